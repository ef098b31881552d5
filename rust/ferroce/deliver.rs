// SPDX-License-Identifier: GPL-2.0

//! Passes packets to their queue pair.
//!
//! The headers of a packet are copied once and parsed. The queue pair must accept the packet, and the
//! ICRC must be right. The cheapest check comes first.

use kernel::cpu::CpuId;
use kernel::prelude::*;
use kernel::sync::ArcBorrow;
use rdma::net::{Datagram, HeldPacket, RxPacket};
use rdma::sync::BhDisabled;
use roce::event::Event;
use roce::qp::{self, Half};
use roce::wire::{Body, Packet};

use crate::backlog::{Aside, Backlog, Place};
use crate::congestion;
use crate::kick;
use crate::parse::{check_icrc, Parsed, FIRST_BYTES};
use crate::payload::AtHand;
use crate::policy::is_backlog_run_over;
use crate::pump::is_cpu_wanted;
use crate::qp::{Ends, Qp};
use crate::requester;
use crate::responder;
use crate::service::Service;
use crate::stats::Counter;
use crate::wake::{self, Act, Further};

/// A packet with valid headers, and its two ends.
pub(crate) struct Delivery<'a> {
    pub(crate) packet: &'a Packet,
    pub(crate) ends: Ends,
    /// The network says that it met congestion.
    is_marked: bool,
}

impl<'a> Delivery<'a> {
    pub(crate) fn new(datagram: &Datagram, packet: &'a Packet) -> Self {
        Self {
            packet,
            is_marked: congestion::is_marked(datagram),
            ends: Ends::of(datagram),
        }
    }

    /// Checks that the queue pair accepts the packet. Returns the half that handles it.
    pub(crate) fn check(&self, qp: &Qp) -> Result<Half, Event> {
        let transport = qp.fixed.service.transport();
        qp::check(transport, qp.state(), qp.pkey(), self.packet)
    }

    /// Passes the packet to that half.
    pub(crate) fn hand_over(
        &self,
        qp: ArcBorrow<'_, Qp>,
        half: Half,
        datagram: AtHand<'_>,
        act: Act,
    ) {
        if self.is_marked {
            congestion::handle_mark(qp, self.ends, self.packet);
        }
        match half {
            Half::Requester => {
                requester::handle_response(qp, self.ends, self.packet, datagram, act);
            }
            Half::Responder => {
                responder::handle_request(qp, self.ends, self.packet, datagram, act);
            }
        }
    }
}

/// Returns true if another CPU may handle packets for `qp`. Datagrams need data that a backlog does not
/// keep.
pub(crate) fn may_be_put_aside(qp: &Qp) -> bool {
    matches!(qp.fixed.service, Service::Connection(_))
}

/// Returns the place in the backlog of a packet, of which `first` are the first bytes. One that may be missing comes
/// before those that wait.
#[inline]
pub(crate) fn place(qp: &Qp, datagram: &Datagram, first: &[u8]) -> Place {
    match qp.response_gap.is_open() || qp.request_gap.is_open() {
        true => place_by_gap(qp, datagram, first),
        false => Place::Last,
    }
}

#[cold]
fn place_by_gap(qp: &Qp, datagram: &Datagram, first: &[u8]) -> Place {
    let parsed = Parsed::new(datagram, first);
    let Ok(packet) = parsed.packet() else {
        return Place::Last;
    };
    let gap = match packet.body {
        Body::Request(_) => &qp.request_gap,
        Body::Response(_) => &qp.response_gap,
        Body::Datagram(_) => return Place::Last,
    };
    match gap.may_lack(packet.bth.psn) {
        true => Place::First,
        false => Place::Last,
    }
}

/// Adds a packet to the backlog, for `other` or for the CPU that handles the packets before it.
pub(crate) fn put_aside(
    qp: ArcBorrow<'_, Qp>,
    held: HeldPacket,
    place: Place,
    other: Option<CpuId>,
    context: &BhDisabled,
) {
    let stats = &qp.shared().stats;
    let handle = |packet: RxPacket<'_>| handle_put_aside(qp, packet);
    match qp.backlog.put(held, place, other, stats, handle) {
        Aside::No(held) => handle_put_aside(qp, held.now(context)),
        Aside::Behind => {}
        Aside::First(cpu) => kick::handle_backlog_on(qp, cpu),
    }
}

/// Handles one such packet and its effects. Softirq context.
fn handle_put_aside(qp: ArcBorrow<'_, Qp>, packet: RxPacket<'_>) {
    if let Err(drop) = take_in(qp, packet, Act::OnEach) {
        qp.shared().stats.count(drop);
    }
}

/// Checks a packet and passes it to a half. Returns that half.
fn take_in(qp: ArcBorrow<'_, Qp>, datagram: RxPacket<'_>, act: Act) -> Result<Half, Counter> {
    let mut first = [0; FIRST_BYTES];
    let first = datagram.peek(&mut first);
    let parsed = Parsed::new(&datagram, first);
    let delivery = Delivery::new(&datagram, parsed.packet()?);
    let half = delivery.check(&qp).map_err(Counter::from)?;
    if !datagram.is_own() {
        check_icrc(&datagram, first)?;
    }
    delivery.hand_over(qp, half, AtHand::Owned(datagram), act);
    Ok(half)
}

/// Handles packets of the backlog. Softirq context, or that of a work item. Returns true if a work item
/// must continue after other tasks.
pub(crate) fn handle_backlog(qp: ArcBorrow<'_, Qp>) -> bool {
    let more = handle_some(qp, &qp.backlog);
    let gives_way = || is_cpu_wanted(&qp) || qp.shared().senders.idler().is_some();
    match wake::further(more, gives_way) {
        Further::Nobody => false,
        Further::Again => {
            kick::handle_backlog_on(qp, CpuId::current());
            false
        }
        Further::Left => {
            // A work item is for softirqs or for processes, so another one continues, in turn with
            // these.
            qp.backlog.leave();
            kick::run_on(qp, CpuId::current());
            true
        }
    }
}

/// Continues with a backlog that was left to process context, or has a better CPU do so. Returns the
/// same.
pub(crate) fn handle_left(qp: ArcBorrow<'_, Qp>) -> bool {
    if let Some(cpu) = qp.backlog.move_away(&qp.shared().senders) {
        kick::handle_backlog_on(qp, cpu);
        return false;
    }
    // Replies to the same device are sent by softirqs. Like in a softirq, they come after all packets of this
    // run, so that one reply is for many requests. Packets of a network have the CPU that received them reply.
    let _bh = qp.own_peer().map(|_| BhDisabled::new());
    handle_backlog(qp)
}

/// Handles responses of the same device. Softirq context.
pub(crate) fn handle_responses(qp: ArcBorrow<'_, Qp>) {
    if handle_some(qp, &qp.responses) {
        kick::handle_responses_on(qp, CpuId::current());
    }
}

/// Handles packets of a backlog. Returns true if there may be more.
///
/// If another CPU received them, it is interrupted once, to send all replies and requests.
fn handle_some(qp: ArcBorrow<'_, Qp>, backlog: &Backlog) -> bool {
    let Some(origin) = backlog.origin() else {
        return handle_each(&qp, backlog, |packet| handle_put_aside(qp, packet));
    };
    let (mut had_requests, mut had_responses) = (false, false);
    let more = handle_each(&qp, backlog, |packet| {
        match take_in(qp, packet, Act::AfterAll) {
            Ok(Half::Responder) => had_requests = true,
            Ok(Half::Requester) => had_responses = true,
            Err(drop) => qp.shared().stats.count(drop),
        }
    });
    if had_requests {
        responder::reply_at(qp, origin);
    }
    if had_responses {
        requester::send_at(qp, origin);
    }
    more
}

/// Handles packets of a backlog until the run is over. Returns true if there may be more.
fn handle_each(qp: &Qp, backlog: &Backlog, mut handle: impl FnMut(RxPacket<'_>)) -> bool {
    let mut handled = 0u32;
    while !is_backlog_run_over(handled, || is_cpu_wanted(qp)) {
        if !backlog.handle_next(&mut handle) {
            return false;
        }
        handled = handled.saturating_add(1);
    }
    true
}
