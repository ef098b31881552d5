// SPDX-License-Identifier: GPL-2.0

//! The work queues of the module.

use kernel::cpu::{nr_cpu_ids, CpuId};
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::workqueue::{impl_has_work, new_work, Work, WorkItem};
use rdma::slots::Slots;
use rdma::work::{Flags, Queue};

/// The workqueues for the work items of queue pairs and completion queues.
///
/// A stream whose owner polls has high priority, unless work items of its CPU are late. The owner never sleeps, and the
/// scheduler would otherwise share the CPU between the two. A stream whose owner sleeps takes turns with other
/// tasks, like the rest of a long run.
pub(crate) struct Queues {
    /// Runs on any CPU, at normal priority.
    pub(crate) unbound: Queue,
    /// Runs on any CPU, at high priority.
    pub(crate) unbound_high: Queue,
    /// Runs on the CPU that is named, at normal priority.
    pub(crate) bound: Queue,
    /// Runs on the CPU that is named, at high priority.
    pub(crate) bound_high: Queue,
    /// Runs in softirq context, on the named CPU, after the current packets.
    pub(crate) softirq: Queue,
    nudges: Slots<Option<Arc<Nudge>>>,
}

/// An empty work item, in a softirq of one CPU.
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
        // The kernel may write memory back to storage over RDMA.
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

    /// Makes `cpu` start at once with the item that was just queued for it, if it is another CPU. Any
    /// context.
    ///
    /// A lazily preempted kernel wakes a worker without an interrupt. A task in user mode there, such as
    /// a polling process, would continue until the next tick, for milliseconds. On its return from an
    /// interrupt the CPU reschedules.
    pub(crate) fn nudge(&self, cpu: CpuId) {
        if cpu == CpuId::current() {
            return;
        }
        if let Some(Some(nudge)) = self.nudges.get(cpu.as_u32() as usize) {
            let _ = self.softirq.enqueue_on::<Arc<Nudge>, 0>(cpu, nudge.clone());
        }
    }
}
