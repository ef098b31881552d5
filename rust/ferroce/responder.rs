// SPDX-License-Identifier: GPL-2.0

//! Runs the receive half of a queue pair.
//!
//! The responder handles a request in the softirq that brings it. What it owes in reply is sent there, too;
//! or, where requests come together, by a work item in softirq context, which runs when all packets at hand
//! are handled, see [`crate::policy::Arrivals`]. Replies that are left after a run are sent by the same item,
//! in turn with the packets that arrive.

use kernel::cpu::CpuId;
use kernel::sync::ArcBorrow;
use rdma::sync::BhDisabled;
use roce::host::Handled;
use roce::qp::State;
use roce::recv::RecvState;
use roce::wire::Packet;

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

/// How often one run of a work item faults memory in: the process may take it away again.
const FAULT_ROUNDS: u32 = 64;

/// Handles a request that arrived.
pub(crate) fn handle_request(
    qp: ArcBorrow<'_, Qp>,
    ends: Ends,
    packet: &Packet,
    datagram: AtHand<'_>,
    act: Act,
) {
    let mut deferred = Deferred::default();
    let stats = &qp.shared().stats;
    let (owed, handled) = {
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
        if handled == Handled::PutOff {
            let absent = deferred.faults.take();
            half.waiting.begin(absent, datagram, qp.owner(), stats);
        }
        let is_owed = act == Act::OnEach && half.service.needs_poll();
        let owed = is_owed.then(|| reply_to_request(&qp, &mut half, &mut deferred));
        (owed, handled)
    };
    tell(qp, &qp.fixed.recv_cq, deferred);
    if let Some(run) = owed {
        go_on_replying(qp, run);
    }
    if handled == Handled::PutOff {
        kick::fault_recv(qp);
    }
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

/// Sends what is owed for a request that has just come, unless it should be sent later, or is going to be.
/// The receive lock is held by the caller.
fn reply_to_request(qp: &Qp, half: &mut RecvHalf, deferred: &mut Deferred) -> Run {
    let is_elsewhere =
        qp.backlog.origin().is_some() || qp.replies_ahead().is_some() || half.waiting.is_any();
    let ended = wake::after_request(is_elsewhere, || half.arrivals.note());
    ended.unwrap_or_else(|| reply(qp, half, deferred))
}

/// Has what is owed sent after the packets at hand, by the CPU that received them; or the one that
/// has sent what was owed before, as long as that is on its way.
pub(crate) fn reply_later(qp: ArcBorrow<'_, Qp>) {
    // So that it is this CPU still when the item is queued, and runs there as soon as that is done.
    let _bh = BhDisabled::new();
    kick::reply(qp, qp.backlog.origin().or_else(|| qp.replies_ahead()));
}

/// Has `cpu` send what is owed for requests, if anything is. Process or softirq context.
pub(crate) fn reply_at(qp: ArcBorrow<'_, Qp>, cpu: CpuId) {
    if qp.state() == State::Err {
        flush(qp);
    } else if qp.recv.lock().service.needs_poll() {
        kick::reply(qp, Some(cpu));
    }
}

/// Returns true if nothing that is sent there is overtaken, as it enters no network.
fn stays_here(route: &Option<Route>) -> bool {
    route.as_ref().is_some_and(|route| route.path.keeps_own())
}

/// Sends what the responder owes. Returns the CPU that has to do so instead, if this one would overtake
/// what that one has sent: where it was queued, nothing may have been ahead yet.
pub(crate) fn run(qp: ArcBorrow<'_, Qp>) -> Option<CpuId> {
    run_after(qp, Faults::default())
}

/// Likewise, after memory was faulted in, or could not be.
fn run_after(qp: ArcBorrow<'_, Qp>, faults: Faults) -> Option<CpuId> {
    let mut deferred = Deferred::after(faults);
    let run = {
        let mut half = qp.recv.lock();
        // What came of a fault is known here alone: elsewhere it would be found out again, to fail again.
        let is_for_here = deferred.faults.has_outcome() || stays_here(&half.route);
        let ahead = qp.replies_ahead().filter(|_| !is_for_here);
        let elsewhere = wake::replies_elsewhere(ahead, || half.service.needs_poll());
        if elsewhere.is_some() {
            return elsewhere;
        }
        half.arrivals.end();
        reply(&qp, &mut half, &mut deferred)
    };
    tell(qp, &qp.fixed.recv_cq, deferred);
    go_on_replying(qp, run);
    None
}

/// Sends what is owed, and has the queue pair fail if that was to say so. The receive lock is held by
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

/// Sees to it that the rest is sent, after a run that ended like this.
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

/// Faults in or writes back what the receive half waits for, and has it go on. Sleeps.
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
        let handled = with_held(&held, |packet, incoming| {
            request(qp, half, deferred, packet, incoming)
        });
        if handled == Handled::PutOff {
            half.waiting.put_back(deferred.faults.take(), held);
            return;
        }
    }
}
