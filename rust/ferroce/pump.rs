// SPDX-License-Identifier: GPL-2.0

//! Sends the packets of one half of a queue pair, as many as one run may.
//!
//! There is one loop, [`pump`]. Its packets come from a [`Source`]: a requester, a responder, or a
//! sender of datagrams.

use kernel::sync::Arc;
use rdma::net::Path;
use rdma::timer::now_ns;
use rdma::work;
use roce::host::{Fault, Transmit};
use roce::num::{Mtu, Psn};
use roce::send::Blocked;
use roce::time::Instant;

use crate::ah::Ah;
use crate::host::{Deferred, RecvSide, SendSide};
use crate::keys::Segment;
use crate::own;
use crate::payload::{Memory, Payload};
use crate::policy::{keeps_busy, Budget, MUCH};
use crate::qp::{Qp, RecvHalf, Route, Run, SendHalf};
use crate::service::{QpRequester, QpResponder, QpSender, RecvService, SendService};
use crate::stats::Stats;
use crate::steering::LastSent;
use crate::tx;

/// Returns true if a run for `qp` should let others have the CPU. Any context.
pub(crate) fn is_cpu_wanted(qp: &Qp) -> bool {
    work::is_cpu_wanted() || (qp.takes_turns() && work::others_wait())
}

/// The protocol machine of a half, with its host.
trait Source {
    type Memory: Memory;

    /// Returns the next packet, or `None` if there is none for now. It is sent,
    /// [taken back](Self::take_back), or [failed](Self::fail) before the next call.
    fn next(&mut self) -> Option<Transmit<'_, Self::Memory>>;

    /// Returns how a run ends that had no next packet.
    fn end(&mut self) -> Run;

    /// Takes the last packet back, to be returned again.
    fn take_back(&mut self);

    /// Fails the message of the last packet, because its memory is gone.
    fn fail(&mut self);

    fn deferred(&mut self) -> &mut Deferred;
}

/// One run of a half.
struct Pass {
    budget: Budget,
    /// The number of sent packets.
    sent: u32,
}

impl Pass {
    fn new(budget: Budget) -> Self {
        Self { budget, sent: 0 }
    }
}

/// Sends the packets of `source` by `path`, until the run is over. The half's lock is held by the
/// caller.
fn pump<S: Source>(
    qp: &Qp,
    source: &mut S,
    path: &mut Path,
    stats: &Stats,
    pass: &mut Pass,
) -> Run {
    let credit = &qp.fixed.credit;
    while !pass.budget.is_spent(|| is_cpu_wanted(qp)) {
        if !credit.is_available(path.credit_use()) {
            return Run::Blocked;
        }
        let Some(transmit) = source.next() else {
            return source.end();
        };
        pass.budget.spend(transmit.source.len());
        let Err(miss) = tx::send(path, &transmit, credit, stats) else {
            pass.sent = pass.sent.saturating_add(1);
            continue;
        };
        match source.deferred().faults.sort(miss) {
            Fault::Gone => source.fail(),
            Fault::Absent => {
                source.take_back();
                return Run::Absent;
            }
        }
    }
    Run::More
}

struct Requests<'a, 'h> {
    qp: &'a Qp,
    requester: &'a mut QpRequester,
    host: &'a mut SendSide<'h>,
    now: Instant,
    /// The PSN of the last packet.
    psn: Psn,
}

impl Source for Requests<'_, '_> {
    type Memory = Payload;

    #[inline]
    fn next(&mut self) -> Option<Transmit<'_, Payload>> {
        let transmit = self.requester.poll_transmit(self.now, self.host);
        if let Some(transmit) = &transmit {
            self.psn = transmit.psn;
        }
        transmit
    }

    fn end(&mut self) -> Run {
        match self.requester.blocked() {
            Some(Blocked::Busy) => return Run::More,
            Some(Blocked::Window) => {
                let is_narrow = self.requester.room() < self.qp.fixed.window as usize;
                self.qp.set_narrow(is_narrow);
            }
            _ => {}
        }
        Run::Idle
    }

    fn take_back(&mut self) {
        self.requester.unsend(self.psn);
    }

    fn fail(&mut self) {
        self.requester.payload_fault(self.psn, self.host);
    }

    fn deferred(&mut self) -> &mut Deferred {
        self.host.common.deferred
    }
}

struct Replies<'a, 'h> {
    responder: &'a mut QpResponder,
    host: &'a mut RecvSide<'h>,
}

impl Source for Replies<'_, '_> {
    type Memory = Segment;

    #[inline]
    fn next(&mut self) -> Option<Transmit<'_, Segment>> {
        self.responder.poll_transmit(self.host)
    }

    fn end(&mut self) -> Run {
        Run::Idle
    }

    fn take_back(&mut self) {
        self.responder.unsend();
    }

    fn fail(&mut self) {
        self.responder.payload_fault(self.host);
    }

    fn deferred(&mut self) -> &mut Deferred {
        self.host.common.deferred
    }
}

struct Datagrams<'a, 'h> {
    sender: &'a mut QpSender,
    host: &'a mut SendSide<'h>,
    mtu: Mtu,
    /// The destination of the current packets.
    address: &'a Arc<Ah>,
    /// The next packet uses another path, which ended the run.
    is_for_other: bool,
}

impl Source for Datagrams<'_, '_> {
    type Memory = Payload;

    #[inline]
    fn next(&mut self) -> Option<Transmit<'_, Payload>> {
        let datagram = self.sender.poll_transmit(self.mtu, self.host)?;
        self.is_for_other = !Arc::ptr_eq(datagram.address, self.address);
        (!self.is_for_other).then_some(datagram.transmit)
    }

    fn end(&mut self) -> Run {
        if self.is_for_other {
            self.take_back();
        }
        Run::Idle
    }

    fn take_back(&mut self) {
        self.sender.unsend();
    }

    fn fail(&mut self) {
        self.sender.payload_fault(self.host);
    }

    fn deferred(&mut self) -> &mut Deferred {
        self.host.common.deferred
    }
}

/// Sends requests or datagrams for one run. The send lock is held by the caller.
pub(crate) fn requests(qp: &Qp, half: &mut SendHalf, deferred: &mut Deferred, now: Instant) -> Run {
    let run = qp.with_send(half, None, deferred, |service, host, route| {
        match (service, route) {
            (SendService::Connected(_, requester), Some(route)) => {
                connected(qp, requester, host, route, now)
            }
            (SendService::Connected(..), None) => Run::Idle,
            (SendService::Datagram(sender), _) => datagrams(qp, sender, host, now),
        }
    });
    if run == Run::Absent {
        half.waiting.stop_sending(deferred.faults.take());
    }
    run
}

fn connected(
    qp: &Qp,
    requester: &mut QpRequester,
    host: &mut SendSide<'_>,
    route: &mut Route,
    now: Instant,
) -> Run {
    let stats = host.common.stats;
    route
        .path
        .note_progress(requester.unacked_psn().map(Psn::get));
    let mut pass = Pass::new(Budget::new(route.path.keeps_own()));
    let mut source = Requests {
        qp,
        requester,
        host,
        now,
        psn: Psn::new(0),
    };
    let run = pump(qp, &mut source, &mut route.path, stats, &mut pass);
    if pass.sent > 0 {
        qp.last_sent.note();
        qp.last_sent.note_at(now.as_ns());
    }
    // A single message of a waiting poster is received here: another CPU could do nothing in parallel.
    let goes_on = run == Run::More || qp.is_stream();
    flush_path(qp, &qp.last_sent, &mut route.path, stats, goes_on);
    run
}

/// Sends datagrams. A path is locked once for consecutive datagrams.
fn datagrams(qp: &Qp, sender: &mut QpSender, host: &mut SendSide<'_>, now: Instant) -> Run {
    let credit = &qp.fixed.credit;
    let stats = host.common.stats;
    let mtu = qp.shared().port.active_mtu();
    let mut pass = Pass::new(Budget::of_datagrams());
    let run = loop {
        let Some(datagram) = sender.poll_transmit(mtu, host) else {
            break Run::Idle;
        };
        let address = datagram.address.clone();
        // It is returned again once its path is locked, with others for this path.
        sender.unsend();
        let mut source = Datagrams {
            sender,
            host,
            mtu,
            address: &address,
            is_for_other: false,
        };
        let run = address.with_path(credit, stats, |path| {
            pump(qp, &mut source, path, stats, &mut pass)
        });
        if run != Run::Idle || !source.is_for_other {
            break run;
        }
    };
    if pass.sent > 0 {
        qp.last_sent.note();
        qp.last_sent.note_at(now.as_ns());
    }
    run
}

/// Sends pending replies for one run. The receive lock is held by the caller.
///
/// This is also done before a responder stops. Its owner may have seen the completion of a message and
/// exit before the acknowledgement is sent. Then the peer's request would fail.
pub(crate) fn replies(qp: &Qp, half: &mut RecvHalf, deferred: &mut Deferred) -> Run {
    if half.waiting.stops_sending() {
        return Run::Absent;
    }
    let run = qp.with_recv(half, None, deferred, |service, host, route| {
        let (RecvService::Connected(_, responder), Some(route)) = (service, route) else {
            return Run::Idle;
        };
        let stats = host.common.stats;
        // The peer sends new requests only as long as it hears the replies to earlier ones.
        route
            .path
            .note_progress(responder.expected_psn().map(Psn::get));
        let mut pass = Pass::new(Budget::new(route.path.keeps_own()));
        let mut source = Replies { responder, host };
        let run = pump(qp, &mut source, &mut route.path, stats, &mut pass);
        if pass.sent > 0 {
            qp.last_replied.note();
        }
        let is_noted = flush_path(qp, &qp.last_replied, &mut route.path, stats, true);
        // All frames of a train count as received once a receiver in this machine begins with the first one.
        // Replies of another CPU would overtake the rest.
        let may_wait = qp.shared().is_local && !route.path.keeps_own();
        if pass.sent > 1 && !is_noted && may_wait {
            qp.last_replied.note_much(now_ns());
        }
        run
    });
    if run == Run::Absent {
        half.waiting.stop_sending(deferred.faults.take());
    }
    run
}

/// Sends the pending train, and notes whether the run sent much. Returns true if it did. `goes_on` says
/// whether this CPU will continue to send.
fn flush_path(qp: &Qp, last: &LastSent, path: &mut Path, stats: &Stats, goes_on: bool) -> bool {
    let bytes = tx::flush(path, &qp.fixed.credit, stats);
    if let Some(frames) = path.take_own() {
        if let Err(drop) = own::pass(qp, frames) {
            qp.shared().stats.count(drop);
        }
    }
    if bytes < MUCH {
        return false;
    }
    let now = now_ns();
    if keeps_busy(bytes, goes_on) {
        qp.shared().senders.note(now);
    }
    last.note_much(now);
    true
}
