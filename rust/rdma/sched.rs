// SPDX-License-Identifier: GPL-2.0

//! Lets other tasks run.

use kernel::prelude::*;
use rdma_bindings as bindings;

/// Returns true if the scheduler wants to run another task on this CPU. A caller with more work should
/// stop and continue in its next turn. Any context.
#[inline]
pub fn is_cpu_wanted() -> bool {
    // SAFETY: Callable in any context.
    unsafe { bindings::is_cpu_wanted() }
}

/// Lets other tasks run, if the scheduler wants that. For work items that hold no lock. Does nothing in
/// a bottom half.
///
/// On a lazily preempted kernel a thread would otherwise run until the next tick, for any number of work
/// items.
pub fn give_way() {
    // SAFETY: Callable in any context.
    if unsafe { bindings::in_task() } && is_cpu_wanted() {
        // SAFETY: This is a task, and the caller holds no lock, as documented.
        unsafe { bindings::schedule() };
    }
}

/// Returns true if another task waits for this CPU, even if the scheduler lets the current one run on
/// for some milliseconds. Any context.
#[inline]
pub fn others_wait() -> bool {
    // SAFETY: Callable in any context.
    unsafe { bindings::others_wait() }
}

/// Lets such tasks run first. For work items that have more to do and hold no lock. Does nothing in a
/// bottom half.
pub fn let_others_go_first() {
    // SAFETY: Callable in any context.
    if unsafe { bindings::in_task() && !bindings::single_task_running() } {
        // SAFETY: This is a task, and the caller holds no lock, as documented.
        unsafe { bindings::yield_() };
    }
}

/// Lets other tasks run between two pieces of long work. Process context, with no spinlock held.
///
/// # Errors
///
/// `EINTR` if the calling process is being killed, so that nobody needs the rest of the work.
pub fn pause() -> Result {
    give_way();
    // SAFETY: The current task is valid.
    if unsafe { bindings::fatal_signal_pending(bindings::get_current()) } != 0 {
        return Err(EINTR);
    }
    Ok(())
}
