// SPDX-License-Identifier: GPL-2.0

//! The life of the module's code.
//!
//! The kernel calls this module by function pointers: a socket's receive hook, the destructor of a
//! frame that lies in a queue of some device, a timer. Each must be gone before the module's text
//! is. Dropping the object that stands behind one is the rule, but a frame is out of our hands
//! until the last owner below frees it, and an object may be leaked.
//!
//! So everything that can be called from outside owns a [`Hold`], and the module's data ends with
//! an [`Unload`], whose drop waits until no hold is left. Leaking such an object makes `rmmod` wait
//! for ever, with a message; it never lets the kernel call freed code.
//!
//! A hold is for what ends when its object is taken down. What may last for as long as a process or a
//! disk likes is counted as a use of the module instead, by an [`InUse`]: then `rmmod` is refused.

use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Full};

use crate::sync::Marked;
use crate::time::msleep;

/// How many [`Hold`]s there are.
static HOLDS: Atomic<usize> = Atomic::new(0);

/// Whether an [`Unload`] is there to wait for them.
static LOADED: Atomic<bool> = Atomic::new(false);

/// Keeps the module's code in place.
///
/// # Invariants
///
/// It is counted in `HOLDS`.
pub(crate) struct Hold(());

impl Hold {
    /// Any context.
    ///
    /// # Errors
    ///
    /// `ENODEV` when the module has no [`Unload`], or is being unloaded.
    pub(crate) fn new() -> Result<Self> {
        // Counted first and checked afterwards: `Unload` goes the other way round, so that one of
        // the two sees the other.
        HOLDS.fetch_add(1, Full);
        // INVARIANT: Counted just now.
        let hold = Self(());
        if LOADED.read_once() {
            Ok(hold)
        } else {
            Err(ENODEV)
        }
    }

    /// One more, for who wants to have one beyond the life of what owns this one. Any context.
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
    /// Any context.
    ///
    /// # Errors
    ///
    /// `ENODEV` when the module is being unloaded.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: Called by the module's own code.
        if unsafe { rdma_bindings::hold_module() } {
            Ok(Self(()))
        } else {
            Err(ENODEV)
        }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        // The caller goes on in the module's code, as the last holder of a [`Hold`] does: `Unload`
        // waits for either.
        //
        // SAFETY: It was taken by `new`.
        unsafe { rdma_bindings::release_module() };
    }
}

/// Waits, when dropped, until nobody can call the module any more.
///
/// It belongs in the module's data as the last field, so that it is dropped when everything else
/// is. Without one, nothing can be made that the kernel calls back.
///
/// Dropping it sleeps: for one grace period of tasks RCU (a tenth of a second), and for as long as
/// frames of ours lie in queues below us.
///
/// # Invariants
///
/// There is one at most; `LOADED` is true as long as it exists.
pub struct Unload(());

impl Unload {
    /// How long a wait goes on before it is reported, in milliseconds.
    const REPORT_MS: u32 = 10_000;

    /// How often the count is looked at, in milliseconds.
    const STEP_MS: u32 = 10;

    /// May be called in any context.
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
            msleep(Self::STEP_MS);
            waited_ms = waited_ms.wrapping_add(Self::STEP_MS);
            if waited_ms % Self::REPORT_MS == 0 {
                pr_warn!(
                    "unloading waits for {} objects in use, such as frames queued below a netdev\n",
                    HOLDS.read_once()
                );
            }
        }

        // The last holder gave its hold back in a function of this module, and may have been
        // preempted before it returned. Every task leaves such a function before it next sleeps of
        // its own accord, which is what tasks RCU waits for. Under PREEMPT_RT, to wait for a spinlock
        // is to sleep in that sense, and freeing memory takes spinlocks: so what runs by itself, as work
        // items do, gives its hold back after all that.
        //
        // SAFETY: Process context, as above.
        unsafe { rdma_bindings::wait_for_rcu_tasks() };
    }
}
