// SPDX-License-Identifier: GPL-2.0

//! Details of objects for `rdma -dd resource show`, in addition to those of the core and of queries.
//!
//! Each lock is held briefly, to copy the values.

use kernel::prelude::*;
use rdma::restrack::Details;
use roce::recv::{Owes, RecvReport, Within};
use roce::send::{Blocked, SendReport, Waiting};

use super::mr::{self, Origin};
use crate::cq::{Armed, Cq};
use crate::host::Receives;
use crate::keys::Rights;
use crate::qp::Qp;
use crate::srq::Srq;

/// Adds details of a queue pair: the fill levels of its queues, the progress of both halves, and reasons
/// for waiting.
pub(super) fn qp(qp: &Qp, details: &mut Details<'_>) -> Result {
    let (posted, report) = {
        let half = qp.send.lock();
        (half.send.queue.waiting(), half.service.report())
    };
    details.number(c"sq_posted", posted)?;
    if let Some(report) = report {
        send(&report, details)?;
    }
    details.number(c"frames_below", qp.fixed.credit.in_flight())?;

    let (posted, report) = {
        let mut half = qp.recv.lock();
        let posted = match &half.recv.receives {
            Receives::Own(own) => Some(own.queue.waiting()),
            Receives::Shared(_) => None,
        };
        (posted, half.service.report())
    };
    if let Some(posted) = posted {
        details.number(c"rq_posted", posted)?;
    }
    match report {
        Some(report) => recv(&report, details),
        None => Ok(()),
    }
}

fn send(report: &SendReport, details: &mut Details<'_>) -> Result {
    details.number(c"sq_under_way", report.requests)?;
    details.number(c"reads_under_way", report.unanswered)?;
    details.number(c"unacked_psn", report.unacked.get())?;
    details.number(c"next_psn", report.next.get())?;
    details.number(c"outstanding", report.outstanding)?;
    details.number(c"window", report.window)?;
    details.number(c"round_trip_us", report.round_trip_ns / 1000)?;
    details.number(c"least_round_trip_us", report.least_round_trip_ns / 1000)?;
    details.number(c"retries_left", report.retries_left)?;
    details.number(c"rnr_retries_left", report.rnr_retries_left)?;
    details.number(c"timeouts", report.timeouts)?;
    details.word(c"waits_for", waits_for(report.waiting))
}

fn waits_for(waiting: Waiting) -> &'static CStr {
    match waiting {
        Waiting::Nothing => c"nothing",
        Waiting::Answer => c"answer",
        Waiting::Receiver => c"receiver",
        Waiting::Blocked(blocked) => match blocked {
            Blocked::Fence => c"fence",
            Blocked::PsnWindow | Blocked::Window => c"window",
            Blocked::Answer => c"answer",
            Blocked::ReadDepth => c"read_depth",
            Blocked::Rnr => c"receiver",
            Blocked::BadRequest => c"bad_request",
            Blocked::Local => c"local",
            Blocked::Busy => c"cpu",
            Blocked::Drain => c"drain",
        },
    }
}

fn recv(report: &RecvReport, details: &mut Details<'_>) -> Result {
    details.number(c"expected_psn", report.expected.get())?;
    details.number(c"msn", report.msn.get())?;
    details.word(
        c"within",
        match report.within {
            Within::Nothing => c"nothing",
            Within::Send => c"send",
            Within::Write => c"write",
        },
    )?;
    details.word(
        c"owes",
        match report.owes {
            Owes::Nothing if report.responds => c"response",
            Owes::Nothing => c"nothing",
            Owes::Acknowledgement => c"ack",
            Owes::SequenceNak => c"sequence_nak",
            Owes::RnrNak => c"rnr_nak",
            Owes::Refusal => c"refusal",
        },
    )?;
    details.number(c"nak_sent", report.nak_sent)
}

/// Adds the details of a completion queue: its fill level, and when its owner is told.
pub(super) fn cq(cq: &Cq, details: &mut Details<'_>) -> Result {
    let report = cq.report();
    details.number(c"fill", report.fill)?;
    details.number(c"producer", report.producer)?;
    details.word(
        c"armed",
        match report.armed {
            Armed::No => c"no",
            Armed::Solicited => c"solicited",
            Armed::Any => c"any",
        },
    )?;
    details.number(c"overflowed", report.overflowed)
}

/// Adds details of a memory region: its origin, its rights, and for an administrator its addresses. The core
/// reports its length.
pub(super) fn mr(mr: &mr::Handle, details: &mut Details<'_>) -> Result {
    let (kind, start, iova, access) = match mr.origin() {
        Origin::Kernel => return details.word(c"kind", c"kernel"),
        Origin::Process(init) => {
            let on_demand = Rights::is_on_demand(init.access);
            let kind = if on_demand { c"on_demand" } else { c"user" };
            (kind, init.start, init.iova, init.access)
        }
        Origin::DmaBuf(init) => (c"dmabuf", init.offset, init.iova, init.access),
    };
    details.word(c"kind", kind)?;
    if details.is_for_admin() {
        details.hex(c"start", start)?;
        details.hex(c"iova", iova)?;
    }
    details.hex(c"access", access)?;
    match mr.block_bytes() {
        Some(bytes) => details.number(c"block_bytes", bytes as u64),
        None => Ok(()),
    }
}

/// Adds details of a shared receive queue: its fill level and its limit.
pub(super) fn srq(srq: &Srq, details: &mut Details<'_>) -> Result {
    let (attr, posted) = srq.fill();
    details.number(c"posted", posted)?;
    details.number(c"max_wr", attr.max_wr)?;
    details.number(c"max_sge", attr.max_sge)?;
    details.number(c"limit", attr.limit)
}
