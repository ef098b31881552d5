// SPDX-License-Identifier: GPL-2.0

//! Has work on a queue pair done: by a work item or the timer, on the CPU that is named.
//!
//! A queue pair has one work item for each kind of work, and each item belongs to one kind of context.
//! The kernel's own mark that an item is queued says that there is work of its kind. If it is set already,
//! nothing is to be done: the item has not begun yet, and will see all that was there before.
//!
//! One item with a mask of kinds would not do. An item that is queued while it runs stays on its CPU, so
//! what is to be sent here would wait for what is placed there.

use kernel::cpu::CpuId;
use kernel::sync::{Arc, ArcBorrow};
use rdma::timer::now_ns;
use rdma::work::Queue;

use crate::policy::{Placement, RECENT_NS};
use crate::qp::{work, Qp};

/// Has a softirq of `cpu` send what the requester may send.
pub(crate) fn send_on(qp: ArcBorrow<'_, Qp>, cpu: CpuId) {
    let queue = &qp.shared().queues.softirq;
    let _ = queue.enqueue_on::<Arc<Qp>, { work::SEND }>(cpu, qp.into());
}

/// Has a softirq of this CPU do so, once interrupts are enabled. Any context.
pub(crate) fn send_soon(qp: ArcBorrow<'_, Qp>) {
    let queue = &qp.shared().queues.softirq;
    let _ = queue.enqueue::<Arc<Qp>, { work::SEND }>(qp.into());
}

/// Has a softirq send what the responder owes: on `cpu`, or else on this CPU, after the packets at hand.
/// For this CPU, bottom halves are disabled.
pub(crate) fn reply(qp: ArcBorrow<'_, Qp>, cpu: Option<CpuId>) {
    let queue = &qp.shared().queues.softirq;
    let _ = match cpu {
        Some(cpu) => queue.enqueue_on::<Arc<Qp>, { work::REPLY }>(cpu, qp.into()),
        None => queue.enqueue::<Arc<Qp>, { work::REPLY }>(qp.into()),
    };
}

/// Has a softirq of `cpu` handle the backlog.
pub(crate) fn handle_backlog_on(qp: ArcBorrow<'_, Qp>, cpu: CpuId) {
    let queue = &qp.shared().queues.softirq;
    let _ = queue.enqueue_on::<Arc<Qp>, { work::BACKLOG }>(cpu, qp.into());
}

/// Has a softirq of `cpu` handle the responses of its own device.
pub(crate) fn handle_responses_on(qp: ArcBorrow<'_, Qp>, cpu: CpuId) {
    let queue = &qp.shared().queues.softirq;
    let _ = queue.enqueue_on::<Arc<Qp>, { work::RESPONSES }>(cpu, qp.into());
}

/// Has process context go on with all that was left to it, on `cpu`.
pub(crate) fn run_on(qp: ArcBorrow<'_, Qp>, cpu: CpuId) {
    let queues = &qp.shared().queues;
    let takes_turns = qp.takes_turns();
    let queue: &Queue = match takes_turns {
        true => &queues.bound,
        false => &queues.bound_high,
    };
    let queued = queue.enqueue_on::<Arc<Qp>, { work::RUN }>(cpu, qp.into());
    if queued.is_ok() && !takes_turns {
        queues.nudge(cpu);
    }
}

/// Likewise, on a CPU that the scheduler chooses: where no CPU is idle, that may be the one that has sent last.
pub(crate) fn run_anywhere(qp: ArcBorrow<'_, Qp>) {
    let queues = &qp.shared().queues;
    let takes_turns = qp.takes_turns();
    let queue: &Queue = match takes_turns {
        true => &queues.unbound,
        false => &queues.unbound_high,
    };
    let queued = queue.enqueue::<Arc<Qp>, { work::RUN }>(qp.into());
    if queued.is_err() || takes_turns || !qp.last_sent.is_within(RECENT_NS) {
        return;
    }
    if let Some(cpu) = qp.last_sent.cpu() {
        queues.nudge(cpu);
    }
}

/// Likewise, at the priority of all others, as what is left of a long run; on `cpu`, if that is said.
pub(crate) fn run_at_leisure(qp: ArcBorrow<'_, Qp>, cpu: Option<CpuId>) {
    let queues = &qp.shared().queues;
    let _ = match cpu {
        Some(cpu) => queues
            .bound
            .enqueue_on::<Arc<Qp>, { work::RUN }>(cpu, qp.into()),
        None => queues.unbound.enqueue::<Arc<Qp>, { work::RUN }>(qp.into()),
    };
}

/// Has process context, or the timer, send what the requester may send, as `placement` says. Returns false
/// if that is here and now.
pub(crate) fn run_at(qp: ArcBorrow<'_, Qp>, placement: Placement<CpuId>) -> bool {
    match placement {
        Placement::Here => return false,
        Placement::On(cpu) => run_on(qp, cpu),
        Placement::Unbound => run_anywhere(qp),
        Placement::After(ns) => look_after(qp, ns),
    }
    true
}

/// Has the timer look at the requester after `ns` nanoseconds at the latest.
pub(crate) fn look_after(qp: ArcBorrow<'_, Qp>, ns: u64) {
    qp.timer.arm_at(now_ns().saturating_add(ns));
}

/// Has memory faulted in that the requester waits for.
pub(crate) fn fault_send(qp: ArcBorrow<'_, Qp>) {
    let _ = qp
        .paging()
        .enqueue::<Arc<Qp>, { work::FAULT_SEND }>(qp.into());
}

/// Has memory faulted in that the responder waits for.
pub(crate) fn fault_recv(qp: ArcBorrow<'_, Qp>) {
    let _ = qp
        .paging()
        .enqueue::<Arc<Qp>, { work::FAULT_RECV }>(qp.into());
}

/// Has the events that were noted raised.
pub(crate) fn raise_events(qp: ArcBorrow<'_, Qp>) {
    let queue = &qp.shared().queues.unbound;
    let _ = queue.enqueue::<Arc<Qp>, { work::EVENT }>(qp.into());
}
