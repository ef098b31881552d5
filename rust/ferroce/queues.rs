// SPDX-License-Identifier: GPL-2.0

//! The work queues of the module.

use kernel::prelude::*;
use rdma::work::{Flags, Queue};

/// The work queues that queue pairs and completion queues have their work items run by.
///
/// A stream whose owner polls is sent at high priority: the owner never sleeps, and the scheduler would
/// have the two share the CPU otherwise. One whose owner sleeps until there is an event gets its turn as
/// other processes do, and so does what is left of long runs.
pub(crate) struct Queues {
    /// Runs on any CPU, at normal priority.
    pub(crate) unbound: Queue,
    /// Runs on any CPU, at high priority.
    pub(crate) unbound_high: Queue,
    /// Runs on the CPU that is named, at normal priority.
    pub(crate) bound: Queue,
    /// Runs on the CPU that is named, at high priority.
    pub(crate) bound_high: Queue,
    /// Runs in softirq context, on the CPU that is named, after the packets at hand.
    pub(crate) softirq: Queue,
}

impl Queues {
    /// Makes the queues. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        // Storage over RDMA may be what memory is written back to.
        let unbound = Flags::UNBOUND | Flags::MEM_RECLAIM;
        let bound = Flags::PER_CPU | Flags::MEM_RECLAIM;
        let high = Flags::HIGH_PRIORITY;
        Ok(Self {
            unbound: Queue::new(c"ferroce", unbound)?,
            unbound_high: Queue::new(c"ferroce_high", unbound | high)?,
            bound: Queue::new(c"ferroce_bound", bound)?,
            bound_high: Queue::new(c"ferroce_bound_high", bound | high)?,
            softirq: Queue::new(c"ferroce_softirq", Flags::BOTTOM_HALF)?,
        })
    }
}
