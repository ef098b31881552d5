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

use crate::sync::Marked;
use kernel::{
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

/// Keeps the module's code in place.
///
/// # Invariants
///
/// It is counted in `HOLDS`.
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
        // INVARIANT: Counted just now.
        let hold = Self(());
        if LOADED.read_once() {
            Ok(hold)
        } else {
            Err(ENODEV)
        }
    }

    /// Returns another hold, for a user that may outlive the owner of this one. Any context.
    pub(crate) fn another(&self) -> Self {
        // INVARIANT: Counted here. `Unload` has not seen the end, as this one is counted.
        HOLDS.fetch_add(1, Full);
        Self(())
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
/// There is one at most; `LOADED` is true as long as it exists.
pub struct Unload(());

impl Unload {
    /// The duration of a wait after which it is reported, in milliseconds.
    const REPORT_MS: u32 = 10_000;

    /// The interval between two checks of the count, in milliseconds.
    const STEP_MS: u32 = 10;

    /// Creates the only one. Any context.
    ///
    /// # Errors
    ///
    /// `EBUSY` when there is one already.
    pub fn new() -> Result<Self> {
        if LOADED.xchg(true, Full) {
            return Err(EBUSY);
        }
        // INVARIANT: It was false, so this is the only one.
        Ok(Self(()))
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
