// SPDX-License-Identifier: GPL-2.0

//! The lifetime of the module's code.
//!
//! The kernel calls this module by function pointers, such as a socket's receive hook, a timer, or
//! the destructor of a frame in a queue of some device. Each must be gone before the module's text
//! is freed. Usually the drop of its object removes it. But a frame is out of our control until its
//! last owner below frees it, and an object may be leaked.
//!
//! So every object that the kernel can call owns a [`Hold`]. The module's data ends with an
//! [`Unload`]. Its drop waits until no hold is left. Leaking such an object makes `rmmod` wait for
//! ever, with a message; it never lets the kernel call freed code.
//!
//! A hold is for callbacks that end when their object is taken down. Those that may last as long as
//! a process or a disk count as a use of the module instead, by an [`InUse`]: then `rmmod` is
//! refused.
//!
//! Objects that are freed in process context, without a caller who waits, are freed on a queue of the module's
//! own. Some of that work sleeps for as long as a process likes, and must not hold up other users of a queue of
//! the system.

use crate::sync::Marked;
use core::{
    ptr,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Full, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
    types::Opaque, //
};

// Without preemption a grace period of RCU is one of tasks RCU, too.
#[cfg(all(CONFIG_PREEMPTION, not(CONFIG_TASKS_RCU)))]
compile_error!("ferroce needs a kernel with CONFIG_TASKS_RCU, which CONFIG_BPF_SYSCALL selects");

// Bindgen leaves structs without fields in it, of which only the address matters.
#[allow(improper_ctypes)]
extern "C" {
    /// The module that this crate is linked into.
    static __this_module: Opaque<rdma_bindings::module>;
}

/// Returns the version of the module; empty if it has none.
pub fn version() -> &'static CStr {
    // SAFETY: It is the module that this code is in. The version is set before its code runs, and does not
    // change.
    let version = unsafe { (*__this_module.get()).version };
    if version.is_null() {
        return c"";
    }
    // SAFETY: It is a string, which exists as long as the module.
    unsafe { CStr::from_char_ptr(version) }
}

/// The number of [`Hold`]s.
static HOLDS: Atomic<usize> = Atomic::new(0);

/// True while there is an [`Unload`], which waits for them.
static LOADED: Atomic<bool> = Atomic::new(false);

/// The queue on which objects are freed; null while there is no [`Unload`], which owns it.
static FREES: Atomic<*mut bindings::workqueue_struct> = Atomic::new(ptr::null_mut());

/// Objects that are freed at a time. Most of them do not sleep.
const FREES_AT_A_TIME: i32 = 32;

/// Keeps the module's code in place, and the queue on which its objects are freed.
///
/// # Invariants
///
/// It is counted in `HOLDS`. `LOADED` was true after that, so `FREES` is a valid queue until it is dropped.
pub(crate) struct Hold(());

impl Hold {
    /// Creates one. Any context.
    ///
    /// # Errors
    ///
    /// `ENODEV` when the module has no [`Unload`], or is being unloaded.
    pub(crate) fn new() -> Result<Self> {
        // This counts first and checks afterwards. `Unload` does the reverse, so that one of the
        // two sees the other.
        HOLDS.fetch_add(1, Full);
        if LOADED.load(Acquire) {
            // INVARIANT: Counted just now. `FREES` was set before `LOADED`, and `Unload` frees it when it has seen
            // no hold.
            Ok(Self(()))
        } else {
            HOLDS.fetch_sub(1, Full);
            Err(ENODEV)
        }
    }

    /// Returns another hold, for a user that may outlive the owner of this one. Any context.
    pub(crate) fn another(&self) -> Self {
        // INVARIANT: Counted here. `Unload` has not seen the end, as this one is counted.
        HOLDS.fetch_add(1, Full);
        Self(())
    }

    /// Returns the queue for work items that free the module's objects, in process context. It is valid until
    /// the hold is dropped. Any context.
    ///
    /// An item on it must own a hold, and give it back after all else.
    pub(crate) fn frees(&self) -> *mut bindings::workqueue_struct {
        FREES.load(Acquire)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        HOLDS.fetch_sub(1, Full);
    }
}

/// Counts as a use of the module: as long as it exists, `rmmod` is refused.
pub(crate) struct InUse(());

impl InUse {
    /// Creates one. Any context.
    ///
    /// # Errors
    ///
    /// `ENODEV` when the module is being unloaded.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: It is the module that this code is in, which is valid.
        if unsafe { rdma_bindings::try_module_get(__this_module.get()) } {
            Ok(Self(()))
        } else {
            Err(ENODEV)
        }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        // The caller continues in the module's code, as the last holder of a [`Hold`] does.
        // `Unload` waits for either.
        //
        // SAFETY: It was taken by `new`.
        unsafe { rdma_bindings::module_put(__this_module.get()) };
    }
}

/// Waits, when dropped, until nobody can call the module any more.
///
/// It belongs in the module's data as the last field, so that it is dropped when everything else
/// is. Without one, no object can be made that the kernel calls.
///
/// Dropping it sleeps for one grace period of tasks RCU (a tenth of a second), and as long as
/// frames of ours lie in queues below us.
///
/// # Invariants
///
/// There is one at most. As long as it exists, `LOADED` is true and `FREES` is its queue.
pub struct Unload {
    _frees: Frees,
}

/// Owns the queue on which objects are freed.
///
/// # Invariants
///
/// The queue is valid until drop.
struct Frees(NonNull<bindings::workqueue_struct>);

// SAFETY: Work queues may be used and freed from any thread.
unsafe impl Send for Frees {}
// SAFETY: The kernel synchronises access to them.
unsafe impl Sync for Frees {}

impl Frees {
    /// Creates the queue. May sleep.
    ///
    /// It has no worker for when memory has run out: nobody waits for its items, and some of them destroy queues
    /// that have none either.
    fn new() -> Result<Self> {
        // SAFETY: The format takes no argument.
        let queue = unsafe {
            bindings::alloc_workqueue_noprof(
                c"ferroce_free".as_char_ptr(),
                bindings::wq_flags_WQ_UNBOUND,
                FREES_AT_A_TIME,
            )
        };
        // INVARIANT: Made just now.
        Ok(Self(NonNull::new(queue).ok_or(ENOMEM)?))
    }
}

impl Drop for Frees {
    fn drop(&mut self) {
        // SAFETY: By the type invariants it is valid. Nobody queues any more, as that takes a `Hold`. This waits
        // for items that gave theirs back and have not returned.
        unsafe { bindings::destroy_workqueue(self.0.as_ptr()) };
    }
}

impl Unload {
    /// The duration of a wait after which it is reported, in milliseconds.
    const REPORT_MS: u32 = 10_000;

    /// The interval between two checks of the count, in milliseconds.
    const STEP_MS: u32 = 10;

    /// Creates the only one. May sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` when there is one already, `ENOMEM`.
    pub fn new() -> Result<Self> {
        let frees = Frees::new()?;
        FREES
            .cmpxchg(ptr::null_mut(), frees.0.as_ptr(), Full)
            .map_err(|_| EBUSY)?;
        LOADED.xchg(true, Full);
        // INVARIANT: There was no queue, so this is the only one.
        Ok(Self { _frees: frees })
    }
}

impl Drop for Unload {
    fn drop(&mut self) {
        LOADED.xchg(false, Full);

        let mut waited_ms = 0u32;
        while HOLDS.load(Acquire) != 0 {
            // The module's data is dropped in process context.
            fsleep(Delta::from_millis(Self::STEP_MS.into()));
            waited_ms = waited_ms.wrapping_add(Self::STEP_MS);
            if waited_ms % Self::REPORT_MS == 0 {
                pr_warn!(
                    "unloading waits for {} objects in use, such as frames queued below a netdev\n",
                    HOLDS.read_once()
                );
            }
        }
        // Nobody has a hold, so nobody uses the queue. The field's drop waits for its last item and frees it, after
        // this function.
        FREES.xchg(ptr::null_mut(), Full);

        // The last holder gave its hold back in a function of this module, and may have been
        // preempted before it returned. Every task leaves such a function before it next sleeps
        // voluntarily, and tasks RCU waits for that. Under PREEMPT_RT a wait for a spinlock is such
        // a sleep, and freeing memory takes spinlocks. So code that runs by itself, as work items
        // do, gives its hold back after all that.
        //
        // SAFETY: Module data is dropped in process context, where this may sleep.
        unsafe { rdma_bindings::synchronize_rcu_tasks() };
    }
}
