// SPDX-License-Identifier: GPL-2.0

//! Runs deferred work and notifies owners, after the lock of a half is released.

use kernel::sync::{Arc, ArcBorrow};
use rdma::upcall::QpEvent;
use roce::abi::Poster;
use roce::event::AsyncEvent;

use crate::cq::Cq;
use crate::host::{Deferred, Events};
use crate::kick;
use crate::qp::Qp;

/// How long a work request waits that could not start for lack of memory.
const STARVED_NS: u64 = 1_000_000;

/// Notifies the owners. No lock of this driver is held.
///
/// Kernel owners are notified by work items, because this may be the course of one of their verbs.
pub(crate) fn tell(qp: ArcBorrow<'_, Qp>, cq: &Arc<Cq>, deferred: Deferred) {
    if deferred.starved {
        kick::look_after(qp, STARVED_NS);
    }
    if let Some(srq) = qp.fixed.srq.as_ref().filter(|_| deferred.srq_is_low) {
        srq.tell();
    }
    if deferred.completed {
        let poster = &qp.fixed.send_cq.poster;
        poster.hear();
        if Arc::ptr_eq(cq, &qp.fixed.recv_cq) {
            poster.hear_received();
        }
    }
    Cq::tell(cq, deferred.notice);
    match qp.fixed.owner {
        Poster::Process => raise(&qp, deferred.events),
        Poster::Kernel if deferred.events != Events::default() => {
            qp.note(deferred.events);
            kick::raise_events(qp);
        }
        Poster::Kernel => {}
    }
}

/// Raises events. Process context, unless the owner is a process.
pub(crate) fn raise(qp: &Qp, events: Events) {
    for event in events.iter() {
        if event != AsyncEvent::SendQueueDrained || qp.notifies_drained() {
            qp.fixed.upcall.raise(event_of(event));
        }
    }
}

/// Returns what the RDMA core calls `event`.
fn event_of(event: AsyncEvent) -> QpEvent {
    match event {
        AsyncEvent::CommunicationEstablished => QpEvent::CommunicationEstablished,
        AsyncEvent::SendQueueDrained => QpEvent::SendQueueDrained,
        AsyncEvent::Fatal => QpEvent::Fatal,
        AsyncEvent::RequestError => QpEvent::RequestError,
        AsyncEvent::AccessError => QpEvent::AccessError,
        AsyncEvent::LastWqeReached => QpEvent::LastWqeReached,
    }
}
