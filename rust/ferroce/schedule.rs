// SPDX-License-Identifier: GPL-2.0

//! Who runs a queue pair's halves, when, and for how long.
//!
//! The requester runs in the context that has work for it: a doorbell, a response, a timeout. The
//! responder handles a request in the softirq that brings it. What is owed in reply is sent there, too,
//! or where requests come together by a bottom-half work item, which runs when the softirq has handled
//! all packets at hand: see [`crate::stream::Arrivals`]. A run is bounded; what is left is done by a
//! work item in process context, or of replies by the same one, in turn with the packets that arrive.
//! In process context is done all that has to wait for memory that is paged in: see
//! [`crate::paging`]. Large packets between two ends on this machine are handled by another CPU than
//! the one that sends them: see [`crate::inbox`].

use kernel::cpu::CpuId;
use kernel::prelude::*;
use kernel::sync::{Arc, ArcBorrow};
use kernel::workqueue::WorkItem;
use rdma::net::{CreditWaker, HeldPacket, Path};
use rdma::sync::{full_barrier, may_disable_bh, BhDisabled, Marked};
use rdma::timer::{now_ns, TimerCallback};
use rdma::work::{self as worker, Queue};
use roce::abi::Poster;
use roce::event::AsyncEvent;
use roce::host::{Fault, Flush, Handled};
use roce::qp::State;
use roce::recv::RecvState;
use roce::send::{Blocked, SendState};
use roce::time::Instant;
use roce::wire::{Packet, MAX_HEADER};

use crate::ah::{Ah, Found};
use crate::cq::Cq;
use crate::host::{Events, Findings, RecvSide, SendSide};
use crate::inbox::{LastSent, MUCH, SLOW_NS};
use crate::paging::Faults;
use crate::payload::{AtHand, Incoming};
use crate::policy::Serve;
use crate::qp::{work, Ends, Qp, RecvHalf, Route, SendHalf};
use crate::rx;
use crate::service::{QpRequester, QpResponder, QpSender, RecvService, SendService};
use crate::stats::{Counter, Stats};
use crate::stream::Place;
use crate::sweep;
use crate::tx;
use crate::wake::{self, Answers, Rest, SendGate, Sender};

/// Packets that one run of a half sends at most.
const RUN_PACKETS: u32 = 64;

/// Bytes after which a run of a half is over: two trains. Nobody else can use the half meanwhile, and
/// the network begins with them after it; but where another CPU handles them, it is interrupted for each
/// run, and interrupts in return.
const RUN_BYTES: u32 = 124 << 10;

/// Likewise, where they are for its own device: the other end has one thing to wait for, and begins
/// earlier.
const OWN_RUN_BYTES: u32 = 60 << 10;

fn run_bytes(path: &Path) -> u32 {
    if path.keeps_own() {
        OWN_RUN_BYTES
    } else {
        RUN_BYTES
    }
}

/// Bytes that a run may have in any case, if others want the CPU. With twice as many who waits beside a
/// stream waits as long as with rdma_rxe; with half as many the stream loses more than others gain.
const SHORT_RUN_BYTES: u32 = 32 << 10;

/// Whether a run of a half is over that has sent so many bytes, of at most `most`.
fn is_over(qp: &Qp, bytes: u32, most: u32) -> bool {
    bytes >= most || (bytes >= SHORT_RUN_BYTES && is_cpu_wanted(qp))
}

/// Whether who has worked for `qp` for a while had better have others go first. Any context.
pub(crate) fn is_cpu_wanted(qp: &Qp) -> bool {
    worker::is_cpu_wanted() || (qp.takes_turns() && worker::others_wait())
}

/// Has them do so. For work items that have more to do, with nothing held.
fn give_way(qp: &Qp) {
    if qp.takes_turns() {
        worker::let_others_go_first();
    } else {
        worker::give_way();
    }
}

/// Packets that waited for memory and are handled without letting go of the half.
const HELD_PACKETS: u32 = 32;

/// How often one run of a work item faults memory in: the process may take it away again.
const FAULT_ROUNDS: u32 = 64;

/// How long a stream of requests waits for more of them, where there is one CPU.
const SOON_NS: u64 = 100_000;

/// How long a work request waits that could not be taken for want of memory.
const STARVED_NS: u64 = 1_000_000;

/// How a run of a half ended.
pub(crate) type Run = wake::Run<CpuId>;

impl From<Flush> for Run {
    fn from(flush: Flush) -> Self {
        match flush {
            Flush::Done => Self::Idle,
            Flush::More => Self::More,
        }
    }
}

fn now() -> Instant {
    Instant::from_ns(now_ns())
}

/// The doorbell of the send queue rang.
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
    let ring = || qp.stream.ring(service.is_answered(), has_polled);
    let is_stream = service.has_streams() && ring() == Serve::Beside;
    // A stream's small messages would gain nothing: a work item sends them where it did before, mostly.
    let other = || match is_stream {
        true => qp.stream_ahead(),
        false => qp.requests_ahead(),
    };
    send_by(
        qp,
        wake::after_doorbell(qp.inbox.origin(), other, is_stream),
    );
}

/// Goes on with what was posted, where that is not a doorbell of the poster. Process or softirq context.
pub(crate) fn go_on_sending(qp: ArcBorrow<'_, Qp>) {
    let other = || qp.requests_ahead();
    send_by(qp, wake::after_doorbell(qp.inbox.origin(), other, false));
}

/// Has who was chosen send what may be sent. Process or softirq context; beside who asks only for a
/// doorbell.
fn send_by(qp: ArcBorrow<'_, Qp>, sender: Sender<CpuId>) {
    match sender {
        Sender::Here => run_send(qp, |_, _, _| {}),
        Sender::Run(cpu) => leave_to(qp, cpu),
        Sender::Doorbell(cpu) => send_at(qp, cpu),
        Sender::Beside => run_beside(qp),
        Sender::Nobody => {}
    }
}

/// Leaves it to `cpu` to send, whose packets would be overtaken. Where that does no harm but cost time
/// somebody looks again soon: that CPU may be kept from its work items.
fn leave_to(qp: ArcBorrow<'_, Qp>, cpu: CpuId) {
    run_on(qp, cpu);
    if !qp.fixed.service.needs_order() {
        qp.timer.arm_at(now_ns().saturating_add(SLOW_NS));
    }
}

/// Leaves it to a work item on `cpu` to send, and to handle what is left to it.
fn run_on(qp: ArcBorrow<'_, Qp>, cpu: CpuId) {
    let queues = &qp.fixed.device.queues;
    // Beside one who polls, whom the scheduler would have share the CPU, it goes first.
    let queue: &Queue = match qp.takes_turns() {
        true => &queues.ordered_runs,
        false => &queues.placed_streams,
    };
    let _ = queue.enqueue_on::<Arc<Qp>, { work::RUN }>(cpu, qp.into());
}

/// Leaves it to a work item to send, so that who posts goes on posting; or to the timer.
fn run_beside(qp: ArcBorrow<'_, Qp>) {
    match qp.stream.place() {
        Place::On(cpu) => run_on(qp, cpu),
        Place::Anywhere => {
            let queues = &qp.fixed.device.queues;
            let streams = match qp.takes_turns() {
                true => &queues.runs,
                false => &queues.streams,
            };
            let _ = streams.enqueue::<Arc<Qp>, { work::RUN }>(qp.into());
        }
        Place::Here => run_send(qp, |_, _, _| {}),
        Place::Soon => qp.timer.arm_at(now_ns().saturating_add(SOON_NS)),
    }
}

/// The kernel has posted sends. Any context.
pub(crate) fn posted_sends(qp: ArcBorrow<'_, Qp>) {
    if may_disable_bh() {
        return serve_doorbell(qp);
    }
    let queue = &qp.fixed.device.queues.replies;
    let _ = queue.enqueue::<Arc<Qp>, { work::DOORBELL }>(qp.into());
}

/// The kernel has posted receives. Any context.
///
/// A packet that needs one finds it. Only if there are no more packets to come it is flushed.
pub(crate) fn posted_receives(qp: ArcBorrow<'_, Qp>) {
    // Either this sees that the queue pair has failed, or who flushes it sees what was posted.
    full_barrier();
    if qp.state() == State::Err {
        run_later(qp);
    }
}

/// Handles a response that arrived.
///
/// What it allows to be sent is sent here; or by the CPU that the packets of this queue pair come in at,
/// while another one handles them; or, with [`Answers::AfterAll`], when the caller says so.
pub(crate) fn handle_response(
    qp: ArcBorrow<'_, Qp>,
    ends: Ends,
    packet: &Packet,
    datagram: AtHand<'_>,
    answers: Answers,
) {
    let origin = qp.inbox.origin();
    let mut has_left = false;
    let run = run_send_at(qp, origin, |half, findings, now| {
        let stats = &qp.fixed.device.stats;
        // Rules: VAL-5
        if half.route.as_ref().map(Route::ends) != Some(ends) {
            stats.count(Counter::BadSource);
            return;
        }
        let incoming = datagram.incoming(packet);
        count_received(&half.stats, &incoming);
        if half.waiting.holds_packets() {
            half.waiting.hold(datagram, qp.owner(), stats);
        } else if respond(&qp, half, findings, now, packet, incoming) == Handled::PutOff {
            let absent = findings.faults.take();
            half.waiting.begin(absent, datagram, qp.owner(), stats);
        }
        has_left = half.service.has_left();
    });
    send_by(qp, wake::after_response(run, origin, has_left, answers));
}

fn respond(
    qp: &Qp,
    half: &mut SendHalf,
    findings: &mut Findings,
    now: Instant,
    packet: &Packet,
    incoming: Incoming<'_>,
) -> Handled {
    qp.with_send(half, Some(incoming), findings, |service, host, _| {
        service.handle_response(now, packet, host)
    })
}

/// Handles a request that arrived.
pub(crate) fn handle_request(
    qp: ArcBorrow<'_, Qp>,
    ends: Ends,
    packet: &Packet,
    datagram: AtHand<'_>,
    answers: Answers,
) {
    let mut findings = Findings::default();
    let stats = &qp.fixed.device.stats;
    let (owed, handled) = {
        let mut half = qp.recv.lock();
        // Rules: VAL-5
        if !half.takes(ends) {
            stats.count(Counter::BadSource);
            return;
        }
        let incoming = datagram.incoming(packet);
        count_received(&half.stats, &incoming);
        qp.stream.hear();
        if half.waiting.holds_packets() {
            half.waiting.hold(datagram, qp.owner(), stats);
            return;
        }
        let handled = request(&qp, &mut half, &mut findings, packet, incoming);
        if handled == Handled::PutOff {
            let absent = findings.faults.take();
            half.waiting.begin(absent, datagram, qp.owner(), stats);
        }
        let is_owed = answers == Answers::Each && half.service.needs_poll();
        let owed = is_owed.then(|| answer(&qp, &mut half, &mut findings));
        (owed, handled)
    };
    tell(qp, &qp.fixed.recv_cq, findings);
    if let Some(run) = owed {
        go_on_replying(qp, run);
    }
    if handled == Handled::PutOff {
        fault_recv_later(qp);
    }
}

/// Sends what is owed for a request that has just come, unless it had better be sent later, or is going
/// to be. The receive lock is held by the caller.
fn answer(qp: &Qp, half: &mut RecvHalf, findings: &mut Findings) -> Run {
    let is_elsewhere =
        qp.inbox.origin().is_some() || qp.replies_ahead().is_some() || half.waiting.is_any();
    let ended = wake::after_request(is_elsewhere, || half.arrivals.note());
    ended.unwrap_or_else(|| reply(qp, half, findings))
}

/// Has what is owed sent after the packets at hand, by the CPU that received them; or the one that
/// has sent what was owed before, as long as that is on its way.
fn reply_later(qp: ArcBorrow<'_, Qp>) {
    let replies = &qp.fixed.device.queues.replies;
    // So that on this CPU it runs right after that, in process context, too.
    let _bh = BhDisabled::new();
    let _ = match qp.inbox.origin().or_else(|| qp.replies_ahead()) {
        Some(cpu) => replies.enqueue_on::<Arc<Qp>, { work::REPLY }>(cpu, qp.into()),
        None => replies.enqueue::<Arc<Qp>, { work::REPLY }>(qp.into()),
    };
}

/// Has `cpu` send what is owed for requests, if anything is. Process or softirq context.
pub(crate) fn reply_at(qp: ArcBorrow<'_, Qp>, cpu: CpuId) {
    if qp.state() == State::Err {
        flush(qp);
    } else if qp.recv.lock().service.needs_poll() {
        let replies = &qp.fixed.device.queues.replies;
        let _ = replies.enqueue_on::<Arc<Qp>, { work::REPLY }>(cpu, qp.into());
    }
}

/// Has `cpu` send what responses allow to be sent now. Process or softirq context.
pub(crate) fn send_at(qp: ArcBorrow<'_, Qp>, cpu: CpuId) {
    let queue = &qp.fixed.device.queues.replies;
    let _ = queue.enqueue_on::<Arc<Qp>, { work::DOORBELL }>(cpu, qp.into());
}

fn request(
    qp: &Qp,
    half: &mut RecvHalf,
    findings: &mut Findings,
    packet: &Packet,
    incoming: Incoming<'_>,
) -> Handled {
    qp.with_recv(half, Some(incoming), findings, |service, host, _| {
        service.handle_request(packet, host)
    })
}

/// Has `cpu` handle what was put aside for it. Process or softirq context.
pub(crate) fn handle_inbox_on(qp: ArcBorrow<'_, Qp>, cpu: CpuId) {
    let queue = &qp.fixed.device.queues.replies;
    let _ = queue.enqueue_on::<Arc<Qp>, { work::INBOX }>(cpu, qp.into());
}

/// Has this CPU go on handling what was put aside in turn with processes. A work item is for softirqs or
/// for processes, never both, so it is not the one of the inbox that does so.
pub(crate) fn leave_inbox(qp: ArcBorrow<'_, Qp>) {
    qp.inbox.leave();
    run_on(qp, CpuId::current());
}

/// Has `cpu` handle what its own device answers. Process or softirq context.
pub(crate) fn handle_answers_on(qp: ArcBorrow<'_, Qp>, cpu: CpuId) {
    let queue = &qp.fixed.device.queues.replies;
    let _ = queue.enqueue_on::<Arc<Qp>, { work::ANSWERS }>(cpu, qp.into());
}

/// Counts a packet that is a queue pair's.
fn count_received(stats: &Stats, incoming: &Incoming<'_>) {
    stats.count(Counter::ReceivedPackets);
    let bytes = incoming.packet.payload_len();
    stats.add(Counter::ReceivedBytes, u64::from(bytes));
}

/// Flushes both halves of a queue pair that is in ERR. Takes both locks, one after the other.
///
/// Does nothing to a half once the queue pair was reset.
pub(crate) fn flush(qp: ArcBorrow<'_, Qp>) {
    let mut more = false;
    let mut findings = Findings::default();
    {
        let mut half = qp.send.lock();
        if qp.state() == State::Err {
            more |= flush_send(&qp, &mut half, &mut findings) == Run::More;
        }
    }
    more |= findings.waits_for_address;
    tell(qp, &qp.fixed.send_cq, findings);
    let mut findings = Findings::default();
    let mut next = sweep::Next::Never;
    {
        let mut half = qp.recv.lock();
        if qp.state() == State::Err {
            more |= flush_recv(&qp, &mut half, &mut findings) == Run::More;
            next = sweep::next(&qp, &mut half, findings.completed);
        }
    }
    tell(qp, &qp.fixed.recv_cq, findings);

    if more {
        run_later(qp);
    }
    sweep::arrange(qp, next);
}

fn flush_send(qp: &Qp, half: &mut SendHalf, findings: &mut Findings) -> Run {
    half.waiting.clear();
    qp.with_send(half, None, findings, |service, host, _| {
        service.enter_error(host).into()
    })
}

fn flush_recv(qp: &Qp, half: &mut RecvHalf, findings: &mut Findings) -> Run {
    let _ = transmit_replies(qp, half, findings);
    half.waiting.clear();
    qp.with_recv(half, None, findings, |service, host, _| {
        service.enter_error(host).into()
    })
}

/// Whether nothing that is sent there is overtaken: it enters no network.
fn stays_here(route: &Option<Route>) -> bool {
    route.as_ref().is_some_and(|route| route.path.keeps_own())
}

/// Runs `first` on the send half and then the requester, until there is nothing more to send.
fn run_send(qp: ArcBorrow<'_, Qp>, first: impl FnOnce(&mut SendHalf, &mut Findings, Instant)) {
    if let Run::Elsewhere(cpu) = run_send_at(qp, None, first) {
        leave_to(qp, cpu);
    }
}

/// Likewise, unless another CPU is to send. Returns how the run ended.
fn run_send_at(
    qp: ArcBorrow<'_, Qp>,
    other: Option<CpuId>,
    first: impl FnOnce(&mut SendHalf, &mut Findings, Instant),
) -> Run {
    let mut findings = Findings::default();
    let (run, timeout, waits) = {
        let mut half = qp.send.lock();
        let now = now();
        let needs_order = qp.fixed.service.needs_order();
        let ahead = qp.requests_ahead();
        half.deferred |= needs_order && ahead.is_some();
        first(&mut half, &mut findings, now);
        // What came of a fault is known here alone: elsewhere it would be found out again, to fail again.
        // And what is sent again after a timeout has no order to keep.
        let is_for_here = findings.faults.has_outcome() || findings.is_overdue;
        let ahead = ahead.filter(|_| needs_order || !is_for_here);
        let gate = SendGate {
            deferred: half.deferred,
            stops_sending: half.waiting.stops_sending(),
            is_left: other.is_some(),
            ahead,
        };
        let run = gate.closed();
        let run = run.unwrap_or_else(|| send(&qp, &mut half, &mut findings, now));
        half.deferred |= wake::is_deferred(&run, needs_order);
        (run, next_timeout(&half), half.waiting.is_any())
    };
    tell(qp, &qp.fixed.send_cq, findings);
    if let Some(at_ns) = timeout {
        qp.timer.arm_at(at_ns);
    }
    if qp.state() == State::Err {
        flush(qp);
    } else if run == Run::More {
        run_later(qp);
    }
    if waits {
        let _ = qp
            .paging()
            .enqueue::<Arc<Qp>, { work::FAULT_SEND }>(qp.into());
    }
    run
}

/// When to look at the requester's timeouts. Not while packets wait for memory: what one of them says may
/// be what it waits for. The work item that goes on with them asks again.
fn next_timeout(half: &SendHalf) -> Option<u64> {
    let at = half.service.poll_timeout()?.as_ns();
    (!half.waiting.holds_packets()).then_some(at)
}

/// Sends what there is to send, or flushes it when the send queue has failed alone. The send lock is
/// held by the caller.
fn send(qp: &Qp, half: &mut SendHalf, findings: &mut Findings, now: Instant) -> Run {
    let mut run = transmit_requests(qp, half, findings, now);
    match half.service.state() {
        SendState::Error => qp.fail(),
        SendState::Stopped => {
            qp.fail_send();
            run = qp.with_send(half, None, findings, |service, host, _| {
                service.flush_posted(host).into()
            });
        }
        _ => {}
    }
    if findings.waits_for_address {
        return Run::More;
    }
    run
}

fn transmit_requests(qp: &Qp, half: &mut SendHalf, findings: &mut Findings, now: Instant) -> Run {
    let run = qp.with_send(half, None, findings, |service, host, route| {
        match (service, route) {
            (SendService::Connected(_, requester), Some(route)) => {
                let run = send_requests(qp, requester, host, route, now);
                flush_path(qp, &qp.last_sent, &mut route.path, host.common.stats);
                run
            }
            (SendService::Connected(..), None) => Run::Idle,
            (SendService::Datagram(sender), _) => send_datagrams(qp, sender, host),
        }
    });
    if run == Run::Absent {
        half.waiting.stop_sending(findings.faults.take());
    }
    run
}

/// Sends what waits to go together, and notes if it was much.
fn flush_path(qp: &Qp, last: &LastSent, path: &mut Path, stats: &Stats) {
    let device = &qp.fixed.device;
    let bytes = tx::flush(path, &qp.fixed.credit, stats);
    if let Some(own) = path.take_own() {
        if let Err(drop) = rx::pass(qp, own) {
            device.stats.count(drop);
        }
    }
    if bytes < MUCH {
        return;
    }
    let now = now_ns();
    device.queues.senders.note(now);
    last.note_much(now);
}

fn send_requests(
    qp: &Qp,
    requester: &mut QpRequester,
    host: &mut SendSide<'_>,
    route: &mut Route,
    now: Instant,
) -> Run {
    let credit = &qp.fixed.credit;
    let stats = host.common.stats;
    let (mut bytes, most) = (0, run_bytes(&route.path));
    for _ in 0..RUN_PACKETS {
        if is_over(qp, bytes, most) {
            break;
        }
        if !credit.is_available() {
            return Run::Blocked;
        }
        let Some(transmit) = requester.poll_transmit(now, host) else {
            return match requester.blocked() {
                Some(Blocked::Busy) => Run::More,
                Some(Blocked::Window) => {
                    let is_narrow = requester.room() < qp.fixed.window as usize;
                    qp.is_narrow.write_once(is_narrow);
                    Run::Idle
                }
                _ => Run::Idle,
            };
        };
        let psn = transmit.psn;
        bytes = transmit.source.len().saturating_add(bytes);
        let sent = tx::send(&mut route.path, &transmit, credit, stats);
        let Err(miss) = sent else {
            qp.last_sent.note();
            qp.last_sent.note_at(now.as_ns());
            continue;
        };
        match host.common.findings.faults.sort(miss) {
            Fault::Gone => requester.payload_fault(psn, host),
            Fault::Absent => {
                requester.unsend(psn);
                return Run::Absent;
            }
        }
    }
    Run::More
}

fn send_datagrams(qp: &Qp, sender: &mut QpSender, host: &mut SendSide<'_>) -> Run {
    let credit = &qp.fixed.credit;
    let stats = host.common.stats;
    let mtu = qp.fixed.device.active_mtu();
    let mut left = RUN_PACKETS;
    while left > 0 {
        let Some(datagram) = sender.poll_transmit(mtu, host) else {
            return Run::Idle;
        };
        let address = datagram.address.clone();
        // It comes again once its path is locked, and others that go there with it.
        sender.unsend();
        let run = address.with_path(credit, stats, |path| {
            send_datagrams_to(&address, path, qp, sender, host, &mut left)
        });
        if let Some(run) = run {
            return run;
        }
    }
    Run::More
}

/// Sends datagrams by `path`, that of `address`, until the next one goes elsewhere. Returns how the
/// run ended, if it did.
fn send_datagrams_to(
    address: &Arc<Ah>,
    path: &mut Path,
    qp: &Qp,
    sender: &mut QpSender,
    host: &mut SendSide<'_>,
    left: &mut u32,
) -> Option<Run> {
    let credit = &qp.fixed.credit;
    let stats = host.common.stats;
    let mtu = qp.fixed.device.active_mtu();
    while let Some(rest) = left.checked_sub(1) {
        if !credit.is_available() {
            return Some(Run::Blocked);
        }
        let Some(datagram) = sender.poll_transmit(mtu, host) else {
            return Some(Run::Idle);
        };
        if !Arc::ptr_eq(datagram.address, address) {
            sender.unsend();
            return None;
        }
        *left = rest;
        let Err(miss) = tx::send(path, &datagram.transmit, credit, stats) else {
            qp.last_sent.note();
            continue;
        };
        match host.common.findings.faults.sort(miss) {
            Fault::Gone => sender.payload_fault(host),
            Fault::Absent => {
                sender.unsend();
                return Some(Run::Absent);
            }
        }
    }
    None
}

/// Sends what the responder owes. Returns the CPU that has to do so instead, if this one would overtake
/// what that one has sent: where it was queued, nothing may have been ahead yet.
fn run_replies(qp: ArcBorrow<'_, Qp>) -> Option<CpuId> {
    run_replies_after(qp, Faults::default())
}

/// Likewise, after memory was faulted in, or could not be.
fn run_replies_after(qp: ArcBorrow<'_, Qp>, faults: Faults) -> Option<CpuId> {
    let mut findings = Findings::after(faults);
    let run = {
        let mut half = qp.recv.lock();
        // Elsewhere it would be faulted in again, to fail again.
        let stays_here = findings.faults.has_outcome() || stays_here(&half.route);
        let ahead = qp.replies_ahead().filter(|_| !stays_here);
        let elsewhere = wake::replies_elsewhere(ahead, || half.service.needs_poll());
        if elsewhere.is_some() {
            return elsewhere;
        }
        half.arrivals.end();
        reply(&qp, &mut half, &mut findings)
    };
    tell(qp, &qp.fixed.recv_cq, findings);
    go_on_replying(qp, run);
    None
}

/// Sends what is owed, and has the queue pair fail if that was to say so. The receive lock is held by
/// the caller.
fn reply(qp: &Qp, half: &mut RecvHalf, findings: &mut Findings) -> Run {
    let run = transmit_replies(qp, half, findings);
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
        Rest::Fault => fault_recv_later(qp),
    }
}

/// Sends what is owed, as far as one run goes. The receive lock is held by the caller.
///
/// Also done before a responder is stopped: its owner may have seen the completion of a message
/// and be done before the acknowledgement was sent, without which the peer's request would fail.
pub(crate) fn transmit_replies(qp: &Qp, half: &mut RecvHalf, findings: &mut Findings) -> Run {
    if half.waiting.stops_sending() {
        return Run::Absent;
    }
    let run = qp.with_recv(half, None, findings, |service, host, route| {
        let (RecvService::Connected(_, responder), Some(route)) = (service, route) else {
            return Run::Idle;
        };
        // What another CPU has sent is to stay ahead of what comes next, where this one has nothing to send.
        if responder.needs_poll() {
            qp.last_replied.note();
        }
        let run = send_replies(qp, responder, host, route);
        flush_path(qp, &qp.last_replied, &mut route.path, host.common.stats);
        run
    });
    if run == Run::Absent {
        half.waiting.stop_sending(findings.faults.take());
    }
    run
}

fn send_replies(
    qp: &Qp,
    responder: &mut QpResponder,
    host: &mut RecvSide<'_>,
    route: &mut Route,
) -> Run {
    let credit = &qp.fixed.credit;
    let stats = host.common.stats;
    let (mut bytes, most) = (0, run_bytes(&route.path));
    for _ in 0..RUN_PACKETS {
        if is_over(qp, bytes, most) {
            break;
        }
        if !credit.is_available() {
            return Run::Blocked;
        }
        let Some(transmit) = responder.poll_transmit(host) else {
            return Run::Idle;
        };
        bytes = transmit.source.len().saturating_add(bytes);
        let sent = tx::send(&mut route.path, &transmit, credit, stats);
        let Err(miss) = sent else {
            continue;
        };
        match host.common.findings.faults.sort(miss) {
            Fault::Gone => responder.payload_fault(host),
            Fault::Absent => {
                responder.unsend();
                return Run::Absent;
            }
        }
    }
    Run::More
}

/// Has a work item fault in what the receive half waits for.
fn fault_recv_later(qp: ArcBorrow<'_, Qp>) {
    let _ = qp
        .paging()
        .enqueue::<Arc<Qp>, { work::FAULT_RECV }>(qp.into());
}

/// Faults in or writes back what the receive half waits for, and has it go on. Sleeps.
fn run_recv_faults(qp: ArcBorrow<'_, Qp>) {
    let stats = &qp.fixed.device.stats;
    for _ in 0..FAULT_ROUNDS {
        let wanted = {
            let half = qp.recv.lock();
            if !half.waiting.is_any() {
                return;
            }
            half.waiting.wanted()
        };
        let seen = wanted.see_to(qp.owner(), stats);
        let mut findings = Findings::default();
        let to_send = {
            let mut half = qp.recv.lock();
            let (to_place, to_send) = half.waiting.go_on(seen);
            findings.faults = to_place;
            handle_held_requests(&qp, &mut half, &mut findings);
            to_send
        };
        tell(qp, &qp.fixed.recv_cq, findings);
        if run_replies_after(qp, to_send).is_some() {
            reply_later(qp);
        }
    }
    fault_recv_later(qp);
}

fn handle_held_requests(qp: &Qp, half: &mut RecvHalf, findings: &mut Findings) {
    for _ in 0..HELD_PACKETS {
        let Some(held) = half.waiting.next_packet() else {
            return;
        };
        let handled = with_held(&held, |packet, incoming| {
            request(qp, half, findings, packet, incoming)
        });
        if handled == Handled::PutOff {
            half.waiting.put_back(findings.faults.take(), held);
            return;
        }
    }
}

/// Faults in what the send half waits for, and has it go on. Sleeps.
fn run_send_faults(qp: ArcBorrow<'_, Qp>) {
    let wanted = qp.send.lock().waiting.wanted();
    let seen = wanted.see_to(qp.owner(), &qp.fixed.device.stats);
    run_send(qp, |half, findings, now| {
        let (to_place, to_send) = half.waiting.go_on(seen);
        findings.faults = to_place;
        handle_held_responses(&qp, half, findings, now);
        findings.faults = to_send;
    });
}

fn handle_held_responses(qp: &Qp, half: &mut SendHalf, findings: &mut Findings, now: Instant) {
    for _ in 0..HELD_PACKETS {
        let Some(held) = half.waiting.next_packet() else {
            return;
        };
        let handled = with_held(&held, |packet, incoming| {
            respond(qp, half, findings, now, packet, incoming)
        });
        if handled == Handled::PutOff {
            half.waiting.put_back(findings.faults.take(), held);
            return;
        }
    }
}

/// Runs `handle` on a packet that waited. It passed all checks when it arrived.
fn with_held(held: &HeldPacket, handle: impl FnOnce(&Packet, Incoming<'_>) -> Handled) -> Handled {
    let mut header = [0; MAX_HEADER];
    let Ok(packet) = rx::parse(held, held.peek(&mut header)) else {
        return Handled::Done;
    };
    let incoming = Incoming {
        packet: held,
        device: None,
        offset: packet.payload_at(held.payload_len()) as usize,
    };
    handle(&packet, incoming)
}

/// Has the work item go on in process context; where packets must not overtake each other, on the
/// CPU that has sent those before, whoever asks for it.
pub(crate) fn run_later(qp: ArcBorrow<'_, Qp>) {
    let queues = &qp.fixed.device.queues;
    let needs_order = qp.fixed.service.needs_order();
    let _ = match wake::place(qp.last_sent.cpu(), needs_order, || qp.stream.is_one()) {
        wake::Place::Ordered(cpu) => queues
            .ordered_runs
            .enqueue_on::<Arc<Qp>, { work::RUN }>(cpu, qp.into()),
        wake::Place::Placed(cpu) => return run_on(qp, cpu),
        wake::Place::Anywhere => queues.runs.enqueue::<Arc<Qp>, { work::RUN }>(qp.into()),
    };
}

/// Goes on with all that was left to process context. Returns whether there is more, for another run.
fn go_on(qp: ArcBorrow<'_, Qp>) -> bool {
    let is_left = qp.inbox.take_over();
    let has_left = is_left && rx::handle_left(qp);
    // Else it runs where packets are handled.
    if !is_left {
        qp.stream.note_run();
    }
    find_address(&qp);
    let run = run_send_at(qp, None, |half, _, _| half.deferred = false);
    if let Run::Elsewhere(cpu) = run {
        send_at(qp, cpu);
    }
    if run_replies(qp).is_some() {
        reply_later(qp);
    }
    has_left || run == Run::More
}

/// Finds out where the datagram goes that waits for that, if one does. May sleep.
fn find_address(qp: &Qp) {
    let take_wanted = |half: &mut SendHalf| half.send.vectors.as_mut()?.take_wanted();
    let Some(vector) = take_wanted(&mut qp.send.lock()) else {
        return;
    };
    let fixed = &qp.fixed;
    let found = Found::new(vector, fixed.pd, fixed.qpn, &fixed.gids);
    if let Some(vectors) = &mut qp.send.lock().send.vectors {
        vectors.learn(found);
    }
}

/// Tells the owners. No lock of ours is held.
///
/// Those in the kernel are told by work items, as this may be in the course of a verb of theirs.
pub(crate) fn tell(qp: ArcBorrow<'_, Qp>, cq: &Arc<Cq>, findings: Findings) {
    if findings.starved {
        qp.timer.arm_at(now_ns().saturating_add(STARVED_NS));
    }
    if let Some(srq) = qp.fixed.srq.as_ref().filter(|_| findings.srq_is_low) {
        srq.tell();
    }
    if findings.completed {
        qp.stream.hear();
    }
    Cq::tell(cq, findings.notice);
    match qp.fixed.owner {
        Poster::Process => raise(&qp, findings.events),
        Poster::Kernel if findings.events != Events::default() => {
            qp.note(findings.events);
            let queue = &qp.fixed.device.queues.runs;
            let _ = queue.enqueue::<Arc<Qp>, { work::EVENT }>(qp.into());
        }
        Poster::Kernel => {}
    }
}

fn raise(qp: &Qp, events: Events) {
    for event in events.iter() {
        if event != AsyncEvent::SendQueueDrained || qp.notifies_drained() {
            qp.fixed.upcall.raise(event);
        }
    }
}

impl WorkItem<{ work::RUN }> for Qp {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if !this.turn.begin() {
            return;
        }
        let has_more = go_on(this.as_arc_borrow());
        if this.turn.end() {
            run_later(this.as_arc_borrow());
        }
        if has_more {
            give_way(&this);
        }
    }
}

impl WorkItem<{ work::REPLY }> for Qp {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let qp = this.as_arc_borrow();
        // Queued while it runs it would stay on this CPU, so the other work item goes there.
        if let Some(cpu) = run_replies(qp) {
            run_on(qp, cpu);
        }
    }
}

impl WorkItem<{ work::INBOX }> for Qp {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let _ = rx::handle_inbox(this.as_arc_borrow());
    }
}

impl WorkItem<{ work::ANSWERS }> for Qp {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        rx::handle_answers(this.as_arc_borrow());
    }
}

impl WorkItem<{ work::DOORBELL }> for Qp {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        run_send(this.as_arc_borrow(), |_, _, _| {});
    }
}

impl WorkItem<{ work::EVENT }> for Qp {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        raise(&this, this.take_noted());
    }
}

impl WorkItem<{ work::FAULT_SEND }> for Qp {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        run_send_faults(this.as_arc_borrow());
    }
}

impl WorkItem<{ work::FAULT_RECV }> for Qp {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        run_recv_faults(this.as_arc_borrow());
    }
}

impl TimerCallback for Qp {
    fn expired(this: ArcBorrow<'_, Self>) {
        run_send(this, |half, findings, now| {
            if half.waiting.holds_packets() {
                return;
            }
            let deadline = half.service.poll_timeout();
            findings.is_overdue = deadline.is_some_and(|at| at.as_ns() <= now.as_ns());
            this.with_send(half, None, findings, |service, host, _| {
                service.handle_timeout(now, host);
            });
        });
    }
}

impl CreditWaker for Qp {
    fn credit_available(self: ArcBorrow<'_, Self>) {
        run_later(self);
    }
}
