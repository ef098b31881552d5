// SPDX-License-Identifier: GPL-2.0

//! The work queues of the module.

use kernel::cpu::{nr_cpu_ids, CpuId};
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::workqueue::{impl_has_work, new_work, Work, WorkItem};
use rdma::slots::Slots;
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
    nudges: Slots<Option<Arc<Nudge>>>,
}

/// An item that does nothing, in a softirq of one CPU.
#[pin_data]
struct Nudge {
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Nudge { self.work }
}

impl WorkItem for Nudge {
    type Pointer = Arc<Self>;

    fn run(_: Arc<Self>) {}
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
        let mut nudges = Slots::<Option<Arc<Nudge>>>::new(nr_cpu_ids() as usize, GFP_KERNEL)?;
        for nudge in nudges.iter_mut() {
            let item = pin_init!(Nudge { work <- new_work!("ferroce::Nudge") });
            *nudge = Some(Arc::pin_init(item, GFP_KERNEL)?);
        }
        Ok(Self {
            unbound: Queue::new(c"ferroce", unbound)?,
            unbound_high: Queue::new(c"ferroce_high", unbound | high)?,
            bound: Queue::new(c"ferroce_bound", bound)?,
            bound_high: Queue::new(c"ferroce_bound_high", bound | high)?,
            softirq: Queue::new(c"ferroce_softirq", Flags::BOTTOM_HALF)?,
            nudges,
        })
    }

    /// Has `cpu` begin at once with what was just queued for it, if that is another than this one. Any
    /// context.
    ///
    /// A kernel that is preempted lazily wakes a worker without an interrupt, so whoever runs in user mode
    /// there, as one that polls, would go on until the next tick, for milliseconds. On its way back from
    /// an interrupt it makes room.
    pub(crate) fn nudge(&self, cpu: CpuId) {
        if cpu == CpuId::current() {
            return;
        }
        if let Some(Some(nudge)) = self.nudges.get(cpu.as_u32() as usize) {
            let _ = self.softirq.enqueue_on::<Arc<Nudge>, 0>(cpu, nudge.clone());
        }
    }
}
