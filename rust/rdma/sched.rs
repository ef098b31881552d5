// SPDX-License-Identifier: GPL-2.0

//! Whether others want the CPU, and letting them have it.

use kernel::prelude::*;

use rdma_bindings as bindings;

/// Whether the scheduler has something else for this CPU to do: who has worked for a while, and has
/// more, had better stop, and go on where others have their turn. Any context.
#[inline]
pub fn is_cpu_wanted() -> bool {
    // SAFETY: Callable in any context.
    unsafe { bindings::is_cpu_wanted() }
}

/// Has others have their turn, if the scheduler wants that. For work items, with nothing held; does
/// nothing in a bottom half.
///
/// A kernel that is preempted lazily has a thread run until the next tick otherwise, however many work
/// items that are.
pub fn give_way() {
    // SAFETY: By who calls it nothing is held.
    unsafe { bindings::give_way() };
}

/// Whether somebody waits for this CPU, even if the scheduler will have who runs go on for a while, as
/// it does for some milliseconds. Any context.
#[inline]
pub fn others_wait() -> bool {
    // SAFETY: Callable in any context.
    unsafe { bindings::others_wait() }
}

/// Has them go first, for work items that have more to do, with nothing held; does nothing in a bottom
/// half.
pub fn let_others_go_first() {
    // SAFETY: By who calls it nothing is held.
    unsafe { bindings::let_others_go_first() };
}

/// Lets others run, if they want to, between two pieces of long work. Process context, with nothing held
/// that spins.
///
/// # Errors
///
/// `EINTR` if the calling process is being killed: the rest of the work is for nobody then.
pub fn pause() -> Result {
    give_way();
    // SAFETY: Callable in any context.
    if unsafe { bindings::is_being_killed() } {
        return Err(EINTR);
    }
    Ok(())
}
