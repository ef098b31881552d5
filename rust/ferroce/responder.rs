// SPDX-License-Identifier: GPL-2.0

//! Runs the receive half of a queue pair.
//!
//! The responder handles a request in the softirq that received it. This softirq also sends the reply to
//! a single request. For a group of requests, a softirq work item sends one reply when all current
//! packets are handled, see [`crate::policy::Arrivals`]. The same item sends replies that are left after
//! a run, in turn with received packets.

use kernel::cpu::CpuId;
use kernel::sync::ArcBorrow;
use rdma::sync::BhDisabled;
use roce::host::Handled;
use roce::limits::MAX_EARLY_PSNS;
use roce::num::Psn;
use roce::qp::State;
use roce::recv::RecvState;
use roce::wire::Packet;

use crate::early::{self, Ended};
use crate::flush::flush;
use crate::held::{with_held, HELD_PACKETS};
use crate::host::Deferred;
use crate::kick;
use crate::paging::Faults;
use crate::payload::{AtHand, Incoming};
use crate::pump;
use crate::qp::{Ends, Qp, RecvHalf, Route, Run};
use crate::stats::Counter;
use crate::tell::tell;
use crate::wake::{self, Act, Rest};

/// Faults of one run of a work item. The process may take the memory away again.
const FAULT_ROUNDS: u32 = 64;

/// Handles a received request.
pub(crate) fn handle_request(
    qp: ArcBorrow<'_, Qp>,
    ends: Ends,
    packet: &Packet,
    datagram: AtHand<'_>,
    act: Act,
) {
    let mut deferred = Deferred::default();
    let stats = &qp.shared().stats;
    let (owed, is_put_off) = {
        let mut half = qp.recv.lock();
        // Rules: VAL-5
        if !half.takes(ends) {
            stats.count(Counter::BadSource);
            return;
        }
        let incoming = datagram.incoming(packet);
        half.stats.count_received(incoming.packet.payload_len());
        qp.fixed.send_cq.poster.hear();
        if half.waiting.holds_packets() {
            half.waiting.hold(datagram, qp.owner(), stats);
            return;
        }
        let handled = request(&qp, &mut half, &mut deferred, packet, incoming);
        let mut is_put_off = handled == Handled::PutOff;
        match handled {
            Handled::Done => {
                is_put_off = handle_early(&qp, &mut half, &mut deferred) == Ended::PutOff;
            }
            Handled::PutOff => {
                let absent = deferred.faults.take();
                half.waiting.begin(absent, datagram, qp.owner(), stats);
            }
            Handled::Early => {
                let psn = packet.bth.psn;
                if half.early.hold(psn, datagram, qp.owner(), stats) {
                    qp.request_gap.note_kept(psn);
                }
            }
        }
        qp.request_gap.note_left(&half.early);
        let is_owed = act == Act::OnEach && half.service.needs_poll();
        let owed = is_owed.then(|| reply_to_request(&qp, &mut half, &mut deferred));
        (owed, is_put_off)
    };
    tell(qp, &qp.fixed.recv_cq, deferred);
    if let Some(run) = owed {
        go_on_replying(qp, run);
    }
    if is_put_off {
        kick::fault_recv(qp);
    }
}

/// Handles early requests, see [`early::handle_early`].
#[inline]
fn handle_early(qp: &Qp, half: &mut RecvHalf, deferred: &mut Deferred) -> Ended {
    let handle =
        |half: &mut RecvHalf, deferred: &mut Deferred, packet: &Packet, incoming: Incoming<'_>| {
            qp.with_recv(half, Some(incoming), deferred, |service, host, _| {
                service.handle_kept(packet, host)
            })
        };
    early::handle_early(half, deferred, MAX_EARLY_PSNS, handle)
}

fn request(
    qp: &Qp,
    half: &mut RecvHalf,
    deferred: &mut Deferred,
    packet: &Packet,
    incoming: Incoming<'_>,
) -> Handled {
    qp.with_recv(half, Some(incoming), deferred, |service, host, _| {
        service.handle_request(packet, host)
    })
}

/// Sends the reply to a new request, unless it is to be sent later or by another CPU. The receive lock
/// is held by the caller.
fn reply_to_request(qp: &Qp, half: &mut RecvHalf, deferred: &mut Deferred) -> Run {
    let is_elsewhere =
        qp.backlog.origin().is_some() || qp.replies_ahead().is_some() || half.waiting.is_any();
    let ended = wake::after_request(is_elsewhere, || half.arrivals.note());
    ended.unwrap_or_else(|| reply(qp, half, deferred))
}

/// Queues the work item that replies, after the current packets. It runs on the CPU that received them.
/// Earlier replies may be in flight from another CPU; then it runs there.
pub(crate) fn reply_later(qp: ArcBorrow<'_, Qp>) {
    // So that it is this CPU still when the item is queued, and runs there as soon as that is done.
    let _bh = BhDisabled::new();
    kick::reply(qp, qp.backlog.origin().or_else(|| qp.replies_ahead()));
}

/// Has replies sent that a work item may have been late for. Softirq context.
///
/// The caller flushes a queue pair in ERR.
pub(crate) fn look_after_replies(qp: ArcBorrow<'_, Qp>) {
    if qp.state() != State::Err && qp.recv.lock().service.needs_poll() {
        reply_later(qp);
    }
}

/// Queues the work item that replies on `cpu`, if there is a reply. Process or softirq context.
pub(crate) fn reply_at(qp: ArcBorrow<'_, Qp>, cpu: CpuId) {
    if qp.state() == State::Err {
        flush(qp);
    } else if qp.recv.lock().service.needs_poll() {
        kick::reply(qp, Some(cpu));
    }
}

/// Returns true if replies enter no network, so that no CPU can overtake another.
fn stays_here(route: &Option<Route>) -> bool {
    route.as_ref().is_some_and(|route| route.path.keeps_own())
}

/// Sends pending replies. Returns the CPU that has to do so instead, if this CPU would overtake its
/// packets. That may change after the work item is queued.
pub(crate) fn run(qp: ArcBorrow<'_, Qp>) -> Option<CpuId> {
    run_after(qp, Faults::default())
}

/// Sends pending replies after a page fault was handled, or has failed. Returns the same.
fn run_after(qp: ArcBorrow<'_, Qp>, faults: Faults) -> Option<CpuId> {
    let mut deferred = Deferred::after(faults);
    let run = {
        let mut half = qp.recv.lock();
        // Only this run knows the result of a fault. Another one would fault, and fail, again.
        let is_for_here = deferred.faults.has_outcome() || stays_here(&half.route);
        let ahead = qp.replies_ahead().filter(|_| !is_for_here);
        let elsewhere = wake::replies_elsewhere(ahead, || half.service.needs_poll());
        // The next request makes a CPU reply again, as the work items of the other one may not begin.
        half.arrivals.end();
        if elsewhere.is_some() {
            return elsewhere;
        }
        reply(&qp, &mut half, &mut deferred)
    };
    tell(qp, &qp.fixed.recv_cq, deferred);
    go_on_replying(qp, run);
    None
}

/// Sends pending replies. A refusal that is sent makes the queue pair fail. The receive lock is held by
/// the caller.
fn reply(qp: &Qp, half: &mut RecvHalf, deferred: &mut Deferred) -> Run {
    let run = pump::replies(qp, half, deferred);
    // The refusal has to go out before the queue pair may fail for it.
    let has_failed = matches!(half.service.state(), RecvState::Failed | RecvState::Error);
    if run == Run::Idle && has_failed {
        qp.fail();
    }
    run
}

/// Queues the work item for the rest, after a run that ended with `run`.
fn go_on_replying(qp: ArcBorrow<'_, Qp>, run: Run) {
    if qp.state() == State::Err {
        flush(qp);
        return;
    }
    match wake::after_replies(&run) {
        Rest::Nothing => {}
        Rest::Reply => reply_later(qp),
        Rest::Fault => kick::fault_recv(qp),
    }
}

/// Faults in or writes back memory for the receive half, and resumes it. Sleeps.
pub(crate) fn run_faults(qp: ArcBorrow<'_, Qp>) {
    let stats = &qp.shared().stats;
    for _ in 0..FAULT_ROUNDS {
        let wanted = {
            let half = qp.recv.lock();
            if !half.waiting.is_any() {
                return;
            }
            half.waiting.wanted()
        };
        let seen = wanted.see_to(qp.owner(), stats);
        let mut deferred = Deferred::default();
        let to_send = {
            let mut half = qp.recv.lock();
            let (to_place, to_send) = half.waiting.go_on(seen);
            deferred.faults = to_place;
            handle_held(&qp, &mut half, &mut deferred);
            qp.request_gap.note_left(&half.early);
            to_send
        };
        tell(qp, &qp.fixed.recv_cq, deferred);
        if run_after(qp, to_send).is_some() {
            reply_later(qp);
        }
    }
    kick::fault_recv(qp);
}

fn handle_held(qp: &Qp, half: &mut RecvHalf, deferred: &mut Deferred) {
    for _ in 0..HELD_PACKETS {
        let Some(held) = half.waiting.next_packet() else {
            return;
        };
        let mut psn = Psn::default();
        let handled = with_held(&held, |packet, incoming| {
            psn = packet.bth.psn;
            request(qp, half, deferred, packet, incoming)
        });
        match handled {
            Handled::Done => {
                if handle_early(qp, half, deferred) == Ended::PutOff {
                    return;
                }
            }
            Handled::PutOff => {
                half.waiting.put_back(deferred.faults.take(), held);
                return;
            }
            Handled::Early => {
                if half.early.put(psn, held) {
                    qp.request_gap.note_kept(psn);
                }
            }
        }
    }
}
