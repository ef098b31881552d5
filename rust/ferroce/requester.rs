// SPDX-License-Identifier: GPL-2.0

//! Runs the send half of a queue pair.
//!
//! The requester runs in the context that has work for it: a doorbell, a response, a timeout. If that
//! context may not send, [`crate::wake`] decides which one does. If another one is better,
//! [`crate::policy`] chooses it.

use kernel::cpu::CpuId;
use kernel::prelude::*;
use kernel::sync::ArcBorrow;
use rdma::sync::{full_barrier, may_disable_bh};
use rdma::timer::{now_ns, TimerCallback};
use roce::host::Handled;
use roce::limits::MAX_EARLY_PSNS;
use roce::num::Psn;
use roce::qp::State;
use roce::send::SendState;
use roce::time::Instant;
use roce::wire::Packet;

use crate::backlog::TakeOver;
use crate::early::{self, Ended};
use crate::flush::flush;
use crate::held::{with_held, HELD_PACKETS};
use crate::host::Deferred;
use crate::kick;
use crate::payload::{AtHand, Incoming};
use crate::policy::{gains_by_group, Serve, LEFT_NS, RECENT_NS, SLOW_NS};
use crate::pump;
use crate::qp::{Ends, Qp, Route, Run, SendHalf};
use crate::responder;
use crate::stats::Counter;
use crate::tell::tell;
use crate::wake::{self, Act, Came, SendBy, SendGate};

/// How many early responses are handled before requests are sent, so that the peer need not wait for all of them.
const SEND_AFTER: u32 = 32;

/// Returns the time of the protocol.
pub(crate) fn now() -> Instant {
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

/// Sends posted requests, or has another context send them. Process or softirq context.
fn serve_doorbell(qp: ArcBorrow<'_, Qp>) {
    let service = qp.fixed.service;
    // A poster that waits for replies may leave the completions of its sends, as of fi_inject().
    let has_polled = |has_received: bool| {
        qp.fixed.send_cq.is_empty() || (has_received && qp.fixed.recv_cq.is_empty())
    };
    let ring = || {
        let poster = &qp.fixed.send_cq.poster;
        qp.stream.ring(poster, service.is_answered(), has_polled)
    };
    let is_stream = service.has_streams() && ring() == Serve::Beside;
    // Small messages of a stream need no check: their work item seldom moves.
    let other = || match is_stream {
        true => qp.stream_ahead(),
        false => qp.requests_ahead(),
    };
    let origin = qp.backlog.origin();
    send_by(qp, wake::after_doorbell(origin, other, is_stream));
}

/// Sends posted requests without a doorbell of the poster. Process or softirq context.
pub(crate) fn go_on_sending(qp: ArcBorrow<'_, Qp>) {
    let other = || qp.requests_ahead();
    let origin = qp.backlog.origin();
    send_by(qp, wake::after_doorbell(origin, other, false));
}

/// Sends requests that the kernel has posted. Any context.
pub(crate) fn posted_sends(qp: ArcBorrow<'_, Qp>) {
    if may_disable_bh() {
        serve_doorbell(qp);
    } else {
        kick::send_soon(qp);
    }
}

/// Flushes receives that the kernel has posted to a queue pair in ERR. Any context.
///
/// In other states a packet finds them.
pub(crate) fn posted_receives(qp: ArcBorrow<'_, Qp>) {
    // Either this reads that the queue pair has failed, or the flush finds the posted requests.
    full_barrier();
    if qp.state() == State::Err {
        // In a softirq: the work item may wait for a CPU where none begins, and the owner for these receives.
        kick::send_soon(qp);
    }
}

/// Lets the chosen context send. Process or softirq context; [`SendBy::Beside`] is for doorbells.
fn send_by(qp: ArcBorrow<'_, Qp>, sender: SendBy<CpuId>) {
    match sender {
        SendBy::Here => run(qp, |_, _, _| {}),
        SendBy::Process(cpu) => leave_to(qp, cpu),
        SendBy::Queued(cpu) => kick::run_on(qp, cpu),
        SendBy::Softirq(cpu) => kick::send_on(qp, cpu),
        SendBy::Beside => {
            if !kick::run_at(qp, qp.stream.place()) {
                run(qp, |_, _, _| {});
            }
        }
        SendBy::Nobody => {}
    }
}

/// Lets `cpu` send, because its packets would be overtaken. If overtaking only costs time, the timer
/// checks again soon: the work items of that CPU may not get to run.
fn leave_to(qp: ArcBorrow<'_, Qp>, cpu: CpuId) {
    kick::run_on(qp, cpu);
    if !qp.fixed.service.needs_order() {
        kick::look_after(qp, SLOW_NS);
    }
}

/// Continues in process context. If packets must not overtake each other, this is on the CPU that sent
/// the last ones. Process or softirq context.
pub(crate) fn run_later(qp: ArcBorrow<'_, Qp>) {
    let needs_order = qp.fixed.service.needs_order();
    match wake::place(qp.last_sent.cpu(), needs_order, || qp.is_stream()) {
        Some(cpu) if !needs_order => kick::run_on(qp, cpu),
        cpu => kick::run_at_leisure(qp, cpu),
    }
}

/// Handles a received response.
///
/// Requests that it allows are sent here: at once, or after a group of responses. If another CPU handles the
/// packets of this queue pair, the CPU that received them sends. If work items are late, one of them sends. With
/// [`Act::AfterAll`] the caller has them sent.
pub(crate) fn handle_response(
    qp: ArcBorrow<'_, Qp>,
    ends: Ends,
    packet: &Packet,
    datagram: AtHand<'_>,
    act: Act,
) {
    let origin = qp.backlog.origin();
    let is_for_each = origin.is_none() && act == Act::OnEach;
    let (mut has_left, mut is_left, mut late) = (false, false, None);
    let mut has_early = false;
    let run = run_at(qp, origin, |half, deferred, now| {
        // Rules: VAL-5
        if half.route.as_ref().map(Route::ends) != Some(ends) {
            qp.shared().stats.count(Counter::BadSource);
            return;
        }
        has_early = take_response(qp, half, deferred, now, origin, packet, datagram);
        deferred.is_at_rest = half.send.queue.is_drained() && half.service.rest();
        if is_for_each && !deferred.is_at_rest {
            late = half.late_cpu(&qp);
        }
        has_left = half.service.has_left() || (late.is_some() && half.has_unsent());
        let may_be_left = has_left && is_for_each && late.is_none();
        let gains = || {
            gains_by_group(qp.shared().is_local, packet.payload_len)
                && packet.is_whole_answer()
                && qp.requests_ahead().is_none()
        };
        // Counted last: the work item, which ends a group, is queued for each one that is counted as the first.
        is_left = may_be_left && gains() && is_one_of_many(half);
        deferred.is_left = is_left || late.is_some();
    });
    let softirq = origin.or_else(|| is_left.then(CpuId::current));
    let left_to = softirq.map(SendBy::Softirq).or(late.map(SendBy::Queued));
    send_by(qp, wake::after_response(run, left_to, has_left, act));
    if let Some(origin) = origin.filter(|_| has_early) {
        handle_rest(qp, origin);
    }
}

/// Handles the other early responses, after the first of them. Between them `origin` can take the lock, and send
/// requests: the peer waits for these, and there may be many responses.
///
/// A packet that comes in between looks early, and may be asked for again. The caller usually has the turn of the
/// backlog, so that none does.
#[cold]
fn handle_rest(qp: ArcBorrow<'_, Qp>, origin: CpuId) {
    send_at(qp, origin);
    for _ in 0..MAX_EARLY_PSNS / SEND_AFTER {
        let mut ended = Ended::Done;
        let _ = run_at(qp, Some(origin), |half, deferred, now| {
            ended = handle_early(&qp, half, deferred, now);
            qp.response_gap.note_left(&half.early);
        });
        // After the last of them, too: nobody else may have a reason.
        send_at(qp, origin);
        if ended != Ended::More {
            return;
        }
    }
}

/// Counts the response to a READ or an atomic operation, which may allow another one. Returns true if more of
/// them may be among the packets that this CPU handles now: then one run after these sends a train of requests.
/// An acknowledgement needs no such run, as it is one for many requests.
fn is_one_of_many(half: &mut SendHalf) -> bool {
    !half.service.is_acknowledged() && half.arrivals.note() != Came::Alone
}

/// Handles a response, and those that were early. Returns true if there are more of these, and `origin` needs the lock
/// first, to send requests.
fn take_response(
    qp: ArcBorrow<'_, Qp>,
    half: &mut SendHalf,
    deferred: &mut Deferred,
    now: Instant,
    origin: Option<CpuId>,
    packet: &Packet,
    datagram: AtHand<'_>,
) -> bool {
    let stats = &qp.shared().stats;
    let incoming = datagram.incoming(packet);
    half.stats.count_received(incoming.packet.payload_len());
    if half.waiting.holds_packets() {
        half.waiting.hold(datagram, qp.owner(), stats);
        return false;
    }
    let mut has_early = false;
    match respond(&qp, half, deferred, now, packet, incoming) {
        Handled::Done => {
            // A run that does not come to its end is the last one: the one at the end of all goes on.
            let mut may_send = true;
            while handle_early(&qp, half, deferred, now) == Ended::More {
                if origin.is_some() {
                    has_early = true;
                    break;
                }
                let ahead = qp.requests_ahead();
                may_send = may_send && send_here(qp, half, deferred, now, None, ahead) == Run::Idle;
            }
        }
        Handled::PutOff => {
            let absent = deferred.faults.take();
            half.waiting.begin(absent, datagram, qp.owner(), stats);
        }
        Handled::Early => {
            let psn = packet.bth.psn;
            match half.early.hold(psn, datagram, qp.owner(), stats) {
                true => qp.response_gap.note_kept(psn),
                false => half.service.not_kept(),
            }
        }
    }
    qp.response_gap.note_left(&half.early);
    has_early
}

/// Sends pending requests, as after a group of responses, unless work items are late. Softirq context.
pub(crate) fn send_in_softirq(qp: ArcBorrow<'_, Qp>) {
    let mut late = None;
    let run = run_at(qp, None, |half, deferred, _| {
        half.arrivals.end();
        late = half.late_cpu(&qp);
        deferred.is_left = late.is_some();
    });
    send_by(qp, wake::after_softirq(run, late));
}

/// Queues the work item that sends on `cpu`, if responses allow something that the last run had to leave. A
/// run that ended for another reason has its own successor. Process or softirq context.
pub(crate) fn send_at(qp: ArcBorrow<'_, Qp>, cpu: CpuId) {
    if qp.send.lock().service.has_left() {
        kick::send_on(qp, cpu);
    }
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

/// Handles some early responses, see [`early::handle_early`].
#[inline]
fn handle_early(qp: &Qp, half: &mut SendHalf, deferred: &mut Deferred, now: Instant) -> Ended {
    let handle =
        |half: &mut SendHalf, deferred: &mut Deferred, packet: &Packet, incoming: Incoming<'_>| {
            qp.with_send(half, Some(incoming), deferred, |service, host, _| {
                service.handle_kept(now, packet, host)
            })
        };
    early::handle_early(half, deferred, SEND_AFTER, handle)
}

/// Runs `first` on the send half and then the requester, until there is nothing to send.
pub(crate) fn run(
    qp: ArcBorrow<'_, Qp>,
    first: impl FnOnce(&mut SendHalf, &mut Deferred, Instant),
) {
    if let Run::Elsewhere(cpu) = run_at(qp, None, first) {
        leave_to(qp, cpu);
    }
}

/// Runs `first` and then the requester, unless another CPU is to send. Returns how the run ended.
pub(crate) fn run_at(
    qp: ArcBorrow<'_, Qp>,
    other: Option<CpuId>,
    first: impl FnOnce(&mut SendHalf, &mut Deferred, Instant),
) -> Run {
    let mut deferred = Deferred::default();
    let (run, timeout, waits) = {
        let mut half = qp.send.lock();
        let now = now();
        let ahead = qp.requests_ahead();
        half.is_handed_over |= ahead.is_some() && qp.fixed.service.needs_order();
        first(&mut half, &mut deferred, now);
        let run = send_here(qp, &mut half, &mut deferred, now, other, ahead);
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

/// Sends pending requests unless another CPU is to do that: `other`, or one whose packets may be overtaken, which is
/// `ahead`. Returns how the run ended. The send lock is held by the caller.
fn send_here(
    qp: ArcBorrow<'_, Qp>,
    half: &mut SendHalf,
    deferred: &mut Deferred,
    now: Instant,
    other: Option<CpuId>,
    ahead: Option<CpuId>,
) -> Run {
    if deferred.is_at_rest {
        qp.last_sent.note_acknowledged(is_known_received(&qp, half));
        return Run::Idle;
    }
    if half.service.has_failed() && half.waiting.stops_sending() {
        // Nothing needs the memory any more. This run may be the last that can announce the failure.
        half.waiting.stop_sending(None);
    }
    let needs_order = qp.fixed.service.needs_order();
    // Only this run knows the result of a fault. Another one would fault, and fail, again.
    // A retransmission after a timeout has no order to keep. A probe has, and so have new packets behind it:
    // those ahead may only be slow.
    let is_for_here = deferred.faults.has_outcome() || deferred.is_overdue;
    // Neither have requests after the acknowledgement of all packets.
    let is_free = || is_for_here || is_known_received(&qp, half);
    let ahead = ahead.filter(|_| needs_order || !is_free());
    let gate = SendGate {
        is_handed_over: half.is_handed_over,
        stops_sending: half.waiting.stops_sending(),
        is_left: other.is_some() || deferred.is_left,
        is_stranded: qp.is_stranded(),
        ahead,
    };
    if gate.is_stranded {
        kick::look_after(qp, RECENT_NS);
    }
    let run = gate
        .closed()
        .unwrap_or_else(|| send(&qp, half, deferred, now));
    half.is_handed_over |= wake::is_handed_over(&run, needs_order);
    qp.last_sent.note_acknowledged(is_known_received(&qp, half));
    run
}

/// Returns true if the peer has acknowledged all packets, so that none can be overtaken. This matters
/// only for receivers in this machine. A card has sent all packets that are not in flight.
fn is_known_received(qp: &Qp, half: &SendHalf) -> bool {
    qp.shared().is_local && half.service.is_acknowledged()
}

/// Returns the time of the next timeout. There is none while packets wait for memory, because one of
/// them may be the response. The work item that handles them asks again.
fn next_timeout(half: &SendHalf) -> Option<u64> {
    let at = half.service.poll_timeout()?.as_ns();
    (!half.waiting.holds_packets()).then_some(at)
}

/// Sends pending requests, or flushes them if the send queue alone has failed. The send lock is held by
/// the caller.
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

/// Faults in memory for the send half, and resumes it. Sleeps.
pub(crate) fn run_faults(qp: ArcBorrow<'_, Qp>) {
    let wanted = qp.send.lock().waiting.wanted();
    let seen = wanted.see_to(qp.owner(), &qp.shared().stats);
    run(qp, |half, deferred, now| {
        let (to_place, to_send) = half.waiting.go_on(seen);
        deferred.faults = to_place;
        handle_held(&qp, half, deferred, now);
        qp.response_gap.note_left(&half.early);
        deferred.faults = to_send;
    });
}

fn handle_held(qp: &Qp, half: &mut SendHalf, deferred: &mut Deferred, now: Instant) {
    for _ in 0..HELD_PACKETS {
        let Some(held) = half.waiting.next_packet() else {
            return;
        };
        let mut psn = Psn::default();
        let handled = with_held(&held, |packet, incoming| {
            psn = packet.bth.psn;
            respond(qp, half, deferred, now, packet, incoming)
        });
        match handled {
            Handled::Done => {
                let mut ended = Ended::More;
                while ended == Ended::More {
                    ended = handle_early(qp, half, deferred, now);
                }
                if ended == Ended::PutOff {
                    return;
                }
            }
            Handled::PutOff => {
                half.waiting.put_back(deferred.faults.take(), held);
                return;
            }
            Handled::Early => match half.early.put(psn, held) {
                true => qp.response_gap.note_kept(psn),
                false => half.service.not_kept(),
            },
        }
    }
}

impl TimerCallback for Qp {
    fn expired(this: ArcBorrow<'_, Self>) {
        match this.backlog.take_over_late() {
            TakeOver::Nothing => {}
            TakeOver::Later => kick::look_after(this, LEFT_NS),
            TakeOver::Now => kick::handle_backlog_on(this, CpuId::current()),
        }
        responder::look_after_replies(this);
        let (mut has_unsent, mut late) = (false, None);
        let run = run_at(this, None, |half, deferred, now| {
            if !half.waiting.holds_packets() {
                let is_overdue = this.with_send(half, None, deferred, |service, host, _| {
                    service.handle_timeout(now, host)
                });
                // The first run that finds a failure has to announce it.
                deferred.is_overdue = is_overdue || half.service.has_failed();
            }
            late = half.late_cpu(&this).filter(|_| !deferred.is_overdue);
            deferred.is_left = late.is_some();
            has_unsent = half.has_unsent() || (late.is_some() && half.service.has_left());
        });
        let has_sent_lately = || this.last_sent.is_within(SLOW_NS);
        let sender = wake::after_timer(run, late, has_unsent, has_sent_lately);
        if let SendBy::Softirq(_) = sender {
            kick::look_after(this, SLOW_NS);
        }
        send_by(this, sender);
    }
}
