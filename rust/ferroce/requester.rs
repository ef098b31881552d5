// SPDX-License-Identifier: GPL-2.0

//! Runs the send half of a queue pair.
//!
//! The requester runs in the context that has work for it: a doorbell, a response, a timeout.
//! [`crate::wake`] decides which context goes on where that one may not, and [`crate::policy`] where it
//! should not.

use kernel::cpu::CpuId;
use kernel::prelude::*;
use kernel::sync::ArcBorrow;
use rdma::sync::{full_barrier, may_disable_bh};
use rdma::timer::{now_ns, TimerCallback};
use roce::host::Handled;
use roce::qp::State;
use roce::send::SendState;
use roce::time::Instant;
use roce::wire::Packet;

use crate::flush::flush;
use crate::held::{with_held, HELD_PACKETS};
use crate::host::Deferred;
use crate::kick;
use crate::payload::{AtHand, Incoming};
use crate::policy::{Serve, SLOW_NS};
use crate::pump;
use crate::qp::{Ends, Qp, Route, Run, SendHalf};
use crate::stats::Counter;
use crate::tell::tell;
use crate::wake::{self, Act, SendBy, SendGate};

fn now() -> Instant {
    Instant::from_ns(now_ns())
}

/// Serves the doorbell of the send queue.
///
/// # Errors
///
/// `EINVAL` in a state in which nothing may be posted.
// Rules: STA-7
pub(crate) fn doorbell(qp: ArcBorrow<'_, Qp>) -> Result {
    if matches!(qp.state(), State::Reset | State::Init | State::Rtr) {
        return Err(EINVAL);
    }
    serve_doorbell(qp);
    Ok(())
}

/// Sends what was posted, or has it sent. Process or softirq context.
fn serve_doorbell(qp: ArcBorrow<'_, Qp>) {
    let service = qp.fixed.service;
    let has_polled = || qp.fixed.send_cq.is_empty();
    let ring = || {
        let poster = &qp.fixed.send_cq.poster;
        qp.stream.ring(poster, service.is_answered(), has_polled)
    };
    let is_stream = service.has_streams() && ring() == Serve::Beside;
    // A stream's small messages would gain nothing: a work item sends them where it did before, mostly.
    let other = || match is_stream {
        true => qp.stream_ahead(),
        false => qp.requests_ahead(),
    };
    let origin = qp.backlog.origin();
    send_by(qp, wake::after_doorbell(origin, other, is_stream));
}

/// Goes on with what was posted, where that is not a doorbell of the poster. Process or softirq context.
pub(crate) fn go_on_sending(qp: ArcBorrow<'_, Qp>) {
    let other = || qp.requests_ahead();
    let origin = qp.backlog.origin();
    send_by(qp, wake::after_doorbell(origin, other, false));
}

/// Notes that the kernel has posted sends. Any context.
pub(crate) fn posted_sends(qp: ArcBorrow<'_, Qp>) {
    if may_disable_bh() {
        serve_doorbell(qp);
    } else {
        kick::send_soon(qp);
    }
}

/// Notes that the kernel has posted receives. Any context.
///
/// A packet that needs one finds it. Only if there are no more packets to come it is flushed.
pub(crate) fn posted_receives(qp: ArcBorrow<'_, Qp>) {
    // Either this sees that the queue pair has failed, or the flush sees what was posted.
    full_barrier();
    if qp.state() == State::Err {
        kick::run_at_leisure(qp, None);
    }
}

/// Has the one that was chosen send. Process or softirq context; [`SendBy::Beside`] is for doorbells.
fn send_by(qp: ArcBorrow<'_, Qp>, sender: SendBy<CpuId>) {
    match sender {
        SendBy::Here => run(qp, |_, _, _| {}),
        SendBy::Process(cpu) => leave_to(qp, cpu),
        SendBy::Softirq(cpu) => kick::send_on(qp, cpu),
        SendBy::Beside => {
            if !kick::run_at(qp, qp.stream.place()) {
                run(qp, |_, _, _| {});
            }
        }
        SendBy::Nobody => {}
    }
}

/// Leaves it to `cpu` to send, whose packets would be overtaken. Where that does no harm but cost time
/// the timer looks again soon: that CPU may be kept from its work items.
fn leave_to(qp: ArcBorrow<'_, Qp>, cpu: CpuId) {
    kick::run_on(qp, cpu);
    if !qp.fixed.service.needs_order() {
        kick::look_after(qp, SLOW_NS);
    }
}

/// Has process context go on; where packets must not overtake each other, on the CPU that has sent those
/// before. Any context.
pub(crate) fn run_later(qp: ArcBorrow<'_, Qp>) {
    let needs_order = qp.fixed.service.needs_order();
    match wake::place(qp.last_sent.cpu(), needs_order, || qp.is_stream()) {
        Some(cpu) if !needs_order => kick::run_on(qp, cpu),
        cpu => kick::run_at_leisure(qp, cpu),
    }
}

/// Handles a response that arrived.
///
/// What it allows to be sent is sent here; or by the CPU that the packets of this queue pair come in at,
/// while another one handles them; or, with [`Act::AfterAll`], when the caller says so.
pub(crate) fn handle_response(
    qp: ArcBorrow<'_, Qp>,
    ends: Ends,
    packet: &Packet,
    datagram: AtHand<'_>,
    act: Act,
) {
    let origin = qp.backlog.origin();
    let mut has_left = false;
    let run = run_at(qp, origin, |half, deferred, now| {
        let stats = &qp.shared().stats;
        // Rules: VAL-5
        if half.route.as_ref().map(Route::ends) != Some(ends) {
            stats.count(Counter::BadSource);
            return;
        }
        let incoming = datagram.incoming(packet);
        half.stats.count_received(incoming.packet.payload_len());
        if half.waiting.holds_packets() {
            half.waiting.hold(datagram, qp.owner(), stats);
        } else if respond(&qp, half, deferred, now, packet, incoming) == Handled::PutOff {
            let absent = deferred.faults.take();
            half.waiting.begin(absent, datagram, qp.owner(), stats);
        }
        has_left = half.service.has_left();
    });
    send_by(qp, wake::after_response(run, origin, has_left, act));
}

fn respond(
    qp: &Qp,
    half: &mut SendHalf,
    deferred: &mut Deferred,
    now: Instant,
    packet: &Packet,
    incoming: Incoming<'_>,
) -> Handled {
    qp.with_send(half, Some(incoming), deferred, |service, host, _| {
        service.handle_response(now, packet, host)
    })
}

/// Runs `first` on the send half and then the requester, until there is nothing more to send.
pub(crate) fn run(
    qp: ArcBorrow<'_, Qp>,
    first: impl FnOnce(&mut SendHalf, &mut Deferred, Instant),
) {
    if let Run::Elsewhere(cpu) = run_at(qp, None, first) {
        leave_to(qp, cpu);
    }
}

/// Likewise, unless another CPU is to send. Returns how the run ended.
pub(crate) fn run_at(
    qp: ArcBorrow<'_, Qp>,
    other: Option<CpuId>,
    first: impl FnOnce(&mut SendHalf, &mut Deferred, Instant),
) -> Run {
    let mut deferred = Deferred::default();
    let (run, timeout, waits) = {
        let mut half = qp.send.lock();
        let now = now();
        let needs_order = qp.fixed.service.needs_order();
        let ahead = qp.requests_ahead();
        half.is_handed_over |= needs_order && ahead.is_some();
        first(&mut half, &mut deferred, now);
        // What came of a fault is known here alone: elsewhere it would be found out again, to fail again.
        // And what is sent again after a timeout has no order to keep.
        let is_for_here = deferred.faults.has_outcome() || deferred.is_overdue;
        // Nor has what comes after the acknowledgement of all.
        let is_free = is_for_here || is_known_received(&qp, &half);
        let ahead = ahead.filter(|_| needs_order || !is_free);
        let gate = SendGate {
            is_handed_over: half.is_handed_over,
            stops_sending: half.waiting.stops_sending(),
            is_left: other.is_some(),
            ahead,
        };
        let run = gate.closed();
        let run = run.unwrap_or_else(|| send(&qp, &mut half, &mut deferred, now));
        half.is_handed_over |= wake::is_handed_over(&run, needs_order);
        qp.last_sent
            .note_acknowledged(is_known_received(&qp, &half));
        if half.send.queue.is_drained() {
            qp.stream.note_idle(&qp.fixed.send_cq.poster);
        }
        (run, next_timeout(&half), half.waiting.is_any())
    };
    tell(qp, &qp.fixed.send_cq, deferred);
    if let Some(at_ns) = timeout {
        qp.timer.arm_at(at_ns);
    }
    if qp.state() == State::Err {
        flush(qp);
    } else if run == Run::More {
        run_later(qp);
    }
    if waits {
        kick::fault_send(qp);
    }
    run
}

/// Returns true if nothing that was sent can be overtaken, as the peer has acknowledged it. That is of use
/// where receivers in this machine may be at it: a card has sent what is not in flight.
fn is_known_received(qp: &Qp, half: &SendHalf) -> bool {
    qp.shared().is_local && half.service.is_acknowledged()
}

/// Returns when to look at the requester's timeouts. Not while packets wait for memory: what one of them
/// says may be what it waits for. The work item that goes on with them asks again.
fn next_timeout(half: &SendHalf) -> Option<u64> {
    let at = half.service.poll_timeout()?.as_ns();
    (!half.waiting.holds_packets()).then_some(at)
}

/// Sends what there is to send, or flushes it when the send queue has failed alone. The send lock is
/// held by the caller.
fn send(qp: &Qp, half: &mut SendHalf, deferred: &mut Deferred, now: Instant) -> Run {
    let mut run = pump::requests(qp, half, deferred, now);
    match half.service.state() {
        SendState::Error => qp.fail(),
        SendState::Stopped => {
            qp.fail_send();
            run = qp.with_send(half, None, deferred, |service, host, _| {
                service.flush_posted(host).into()
            });
        }
        _ => {}
    }
    if deferred.waits_for_address {
        return Run::More;
    }
    run
}

/// Faults in what the send half waits for, and has it go on. Sleeps.
pub(crate) fn run_faults(qp: ArcBorrow<'_, Qp>) {
    let wanted = qp.send.lock().waiting.wanted();
    let seen = wanted.see_to(qp.owner(), &qp.shared().stats);
    run(qp, |half, deferred, now| {
        let (to_place, to_send) = half.waiting.go_on(seen);
        deferred.faults = to_place;
        handle_held(&qp, half, deferred, now);
        deferred.faults = to_send;
    });
}

fn handle_held(qp: &Qp, half: &mut SendHalf, deferred: &mut Deferred, now: Instant) {
    for _ in 0..HELD_PACKETS {
        let Some(held) = half.waiting.next_packet() else {
            return;
        };
        let handled = with_held(&held, |packet, incoming| {
            respond(qp, half, deferred, now, packet, incoming)
        });
        if handled == Handled::PutOff {
            half.waiting.put_back(deferred.faults.take(), held);
            return;
        }
    }
}

impl TimerCallback for Qp {
    fn expired(this: ArcBorrow<'_, Self>) {
        let mut has_unsent = false;
        let run = run_at(this, None, |half, deferred, now| {
            has_unsent = half.send.queue.waiting() > 0 || half.service.has_unsent();
            if half.waiting.holds_packets() {
                return;
            }
            let deadline = half.service.poll_timeout();
            deferred.is_overdue = deadline.is_some_and(|at| at.as_ns() <= now.as_ns());
            this.with_send(half, None, deferred, |service, host, _| {
                service.handle_timeout(now, host);
            });
        });
        let has_sent_lately = || this.last_sent.is_within(SLOW_NS);
        let sender = wake::after_timer(run, has_unsent, has_sent_lately);
        if let SendBy::Softirq(_) = sender {
            kick::look_after(this, SLOW_NS);
        }
        send_by(this, sender);
    }
}
