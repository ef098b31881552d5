// SPDX-License-Identifier: GPL-2.0

//! Queues work items of a queue pair, and arms its timer.
//!
//! A queue pair has one work item for each kind of work, and each item belongs to one kind of context.
//! The kernel's mark that an item is queued means that there is work of its kind. A marked item has not
//! started, so it will see all earlier changes.
//!
//! One item with a mask of kinds would not do. An item that is queued while it runs stays on its CPU, so
//! packets to send here would wait for payload that another CPU places.

use kernel::cpu::CpuId;
use kernel::sync::{Arc, ArcBorrow};
use rdma::timer::now_ns;

use crate::policy::{Placement, Stamp, LEFT_NS, RECENT_NS};
use crate::qp::{work, Qp};
use crate::stream::Wait;

/// Sends pending requests in a softirq of `cpu`.
pub(crate) fn send_on(qp: ArcBorrow<'_, Qp>, cpu: CpuId) {
    let queue = &qp.shared().queues.softirq;
    let _ = queue.enqueue_on::<Arc<Qp>, { work::SEND }>(cpu, qp.into());
}

/// Sends pending requests in a softirq of this CPU, once interrupts are enabled, or flushes those of a queue pair in
/// ERR. Any context.
pub(crate) fn send_soon(qp: ArcBorrow<'_, Qp>) {
    let queue = &qp.shared().queues.softirq;
    let _ = queue.enqueue::<Arc<Qp>, { work::SEND }>(qp.into());
}

/// Sends pending replies in a softirq: on `cpu`, or on this CPU after the current packets. For this CPU,
/// bottom halves must be disabled.
pub(crate) fn reply(qp: ArcBorrow<'_, Qp>, cpu: Option<CpuId>) {
    let queue = &qp.shared().queues.softirq;
    let _ = match cpu {
        Some(cpu) => queue.enqueue_on::<Arc<Qp>, { work::REPLY }>(cpu, qp.into()),
        None => queue.enqueue::<Arc<Qp>, { work::REPLY }>(qp.into()),
    };
}

/// Handles the backlog in a softirq of `cpu`.
pub(crate) fn handle_backlog_on(qp: ArcBorrow<'_, Qp>, cpu: CpuId) {
    let queue = &qp.shared().queues.softirq;
    let _ = queue.enqueue_on::<Arc<Qp>, { work::BACKLOG }>(cpu, qp.into());
}

/// Handles responses of the same device in a softirq of `cpu`.
pub(crate) fn handle_responses_on(qp: ArcBorrow<'_, Qp>, cpu: CpuId) {
    let queue = &qp.shared().queues.softirq;
    let _ = queue.enqueue_on::<Arc<Qp>, { work::RESPONSES }>(cpu, qp.into());
}

/// Continues in process context on `cpu` with all pending work. Work that takes turns may get another CPU,
/// unless its packets need order. The timer checks requests, replies and the backlog again: beside a real-time task
/// no work item may begin.
pub(crate) fn run_on(qp: ArcBorrow<'_, Qp>, cpu: CpuId) {
    if qp.takes_turns() {
        let _ = queue_at_leisure(qp, Some(cpu));
    } else {
        queue_on(qp, cpu);
    }
    look_after(qp, LEFT_NS);
}

/// Continues in process context on `cpu`, behind the work items that wait there. They have high priority, unless they
/// are late: then the owners of queue pairs would hardly run beside them, which have to poll and post.
fn queue_on(qp: ArcBorrow<'_, Qp>, cpu: CpuId) {
    let queues = &qp.shared().queues;
    let senders = &qp.shared().senders;
    let is_high = !senders.is_late(cpu);
    let queue = match is_high {
        true => &queues.bound_high,
        false => &queues.bound,
    };
    // All is noted before it runs.
    let wait = (!qp.stream.waits()).then(|| Wait {
        cpu,
        queued_at: Stamp::new(now_ns()),
        is_high,
    });
    if let Some(wait) = wait {
        qp.stream.note_wait(wait);
        senders.note_queued(wait);
    }
    let queued = queue.enqueue_on::<Arc<Qp>, { work::RUN }>(cpu, qp.into());
    if queued.is_ok() {
        return queues.nudge(cpu);
    }
    if let Some(wait) = wait {
        // It waits in another queue.
        let _ = qp.stream.take_wait();
        senders.note_unqueued(wait);
    }
}

/// Continues on a CPU that the scheduler chooses, at high priority. Returns false if the work item is queued already.
fn queue_anywhere(qp: ArcBorrow<'_, Qp>) -> bool {
    let queue = &qp.shared().queues.unbound_high;
    let queued = queue.enqueue::<Arc<Qp>, { work::RUN }>(qp.into());
    queued.is_ok()
}

/// Continues in process context on a CPU that the scheduler chooses. If no CPU is idle, this may be the
/// CPU that sent last. If the work item is queued already, that may be on a CPU where none begins: see [`run_on`].
pub(crate) fn run_anywhere(qp: ArcBorrow<'_, Qp>) {
    if qp.takes_turns() {
        return run_at_leisure(qp, None);
    }
    if !queue_anywhere(qp) {
        return look_after(qp, LEFT_NS);
    }
    if !qp.last_sent.is_within(RECENT_NS) {
        return;
    }
    if let Some(cpu) = qp.last_sent.cpu() {
        qp.shared().queues.nudge(cpu);
    }
}

/// Continues in process context at normal priority, as for the rest of a long run; on `cpu`, if there is
/// one. If the work item is queued already, the timer checks again: see [`run_on`].
pub(crate) fn run_at_leisure(qp: ArcBorrow<'_, Qp>, cpu: Option<CpuId>) {
    if !queue_at_leisure(qp, cpu) {
        look_after(qp, LEFT_NS);
    }
}

/// Queues the work item at normal priority. Work that takes turns and has waited long may get another CPU, and has
/// high priority once. Returns false if the work item is queued already.
fn queue_at_leisure(qp: ArcBorrow<'_, Qp>, cpu: Option<CpuId>) -> bool {
    let may_move = qp.takes_turns() && !qp.fixed.service.needs_order();
    let is_apart = may_move && qp.stream.needs_worker();
    if is_apart && qp.stream.comes_first() {
        return queue_anywhere(qp);
    }
    let queues = &qp.shared().queues;
    // Before it runs.
    qp.stream.note_queued();
    let queued = match cpu.filter(|_| !is_apart) {
        Some(cpu) => queues
            .bound
            .enqueue_on::<Arc<Qp>, { work::RUN }>(cpu, qp.into()),
        None => queues.unbound.enqueue::<Arc<Qp>, { work::RUN }>(qp.into()),
    };
    queued.is_ok()
}

/// Sends pending requests as `placement` says. Returns false if the caller should do so now.
pub(crate) fn run_at(qp: ArcBorrow<'_, Qp>, placement: Placement<CpuId>) -> bool {
    match placement {
        Placement::Here => return false,
        Placement::On(cpu) => run_on(qp, cpu),
        Placement::Unbound => run_anywhere(qp),
        Placement::After(ns) => look_after(qp, ns),
    }
    true
}

/// Runs the timer after `ns` nanoseconds at the latest.
pub(crate) fn look_after(qp: ArcBorrow<'_, Qp>, ns: u64) {
    qp.timer.arm_at(now_ns().saturating_add(ns));
}

/// Faults in memory for the send half.
pub(crate) fn fault_send(qp: ArcBorrow<'_, Qp>) {
    let _ = qp
        .paging()
        .enqueue::<Arc<Qp>, { work::FAULT_SEND }>(qp.into());
}

/// Faults in memory for the receive half.
pub(crate) fn fault_recv(qp: ArcBorrow<'_, Qp>) {
    let _ = qp
        .paging()
        .enqueue::<Arc<Qp>, { work::FAULT_RECV }>(qp.into());
}

/// Raises the noted events.
pub(crate) fn raise_events(qp: ArcBorrow<'_, Qp>) {
    let queue = &qp.shared().queues.unbound;
    let _ = queue.enqueue::<Arc<Qp>, { work::EVENT }>(qp.into());
}
