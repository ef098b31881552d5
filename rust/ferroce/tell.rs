// SPDX-License-Identifier: GPL-2.0

//! Does what was put off until the lock of a half was dropped, and tells the owners.

use kernel::sync::{Arc, ArcBorrow};
use roce::abi::Poster;
use roce::event::AsyncEvent;

use crate::cq::Cq;
use crate::host::{Deferred, Events};
use crate::kick;
use crate::qp::Qp;

/// How long a work request waits that could not be taken for want of memory.
const STARVED_NS: u64 = 1_000_000;

/// Tells the owners. No lock of ours is held.
///
/// Those in the kernel are told by work items, as this may be in the course of a verb of theirs.
pub(crate) fn tell(qp: ArcBorrow<'_, Qp>, cq: &Arc<Cq>, deferred: Deferred) {
    if deferred.starved {
        kick::look_after(qp, STARVED_NS);
    }
    if let Some(srq) = qp.fixed.srq.as_ref().filter(|_| deferred.srq_is_low) {
        srq.tell();
    }
    if deferred.completed {
        qp.fixed.send_cq.poster.hear();
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
            qp.fixed.upcall.raise(event);
        }
    }
}
