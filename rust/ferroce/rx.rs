// SPDX-License-Identifier: GPL-2.0

//! From a datagram to the half of the queue pair, or of each queue pair, that it is for.
//!
//! Every packet is hostile until it has passed: its headers are copied out once and parsed, the
//! queue pair must exist and take it, and the ICRC must be right, in the order of what each check
//! costs.

use kernel::cpu::CpuId;
use kernel::prelude::*;
use kernel::sync::{rcu, ArcBorrow};
use rdma::net::{
    is_multicast, Datagram, HeldPacket, IpHeader, OwnFrames, PacketQueue, Receiver, RxPacket,
};
use rdma::sync::BhDisabled;
use rdma::table::IdTable;
use roce::event::Event;
use roce::icrc::{self, MaskedHeaders, PlainIpv4, REST_BYTES};
use roce::num::Qpn;
use roce::qp::{self, Half};
use roce::wire::{self, bth, Body, Packet, ICRC_BYTES, MAX_HEADER};

use crate::device::Device;
use crate::inbox::{Aside, Inbox};
use crate::payload::AtHand;
use crate::qp::{Ends, Qp};
use crate::schedule;
use crate::service::Service;
use crate::stats::Counter;
use crate::wake::{self, Answers, Further};

const ICRC_LEN: usize = ICRC_BYTES as usize;

/// Bytes of a packet that are copied out at once: all headers, and all of a small one.
const FIRST_BYTES: usize = bth::BYTES + REST_BYTES + ICRC_LEN;

/// Where a network namespace's RoCEv2 packets arrive.
#[pin_data]
pub(crate) struct Ingress {
    /// The devices, by the index of their network device.
    #[pin]
    pub(crate) devices: IdTable<Device>,
}

impl Ingress {
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            devices <- IdTable::new(),
        })
    }
}

impl Receiver for Ingress {
    fn receive(&self, packet: RxPacket<'_>) {
        let context = packet.context();
        let Some(netdev) = packet.device() else {
            return;
        };
        let own = self.devices.get(netdev.ifindex(), context);
        let below = || self.devices.get(netdev.vlan_lower()?.ifindex(), context);
        let Some(device) = own.or_else(below) else {
            return;
        };
        if let Err(drop) = receive(&device, packet) {
            device.stats.count(drop);
        }
    }
}

/// Packets from an inbox that are handled at a time; so many in any case, if others want the CPU.
const INBOX_PACKETS: usize = 64;
const LEAST_PACKETS: usize = 8;

/// Handles what was put aside for `qp`. Softirq context, or that of a work item. Returns whether a work
/// item is to go on, when others had their turn.
pub(crate) fn handle_inbox(qp: ArcBorrow<'_, Qp>) -> bool {
    let more = handle_some(qp, &qp.inbox);
    let senders = &qp.fixed.device.queues.senders;
    let gives_way = || schedule::is_cpu_wanted(&qp) || Inbox::had_better_move(senders).is_some();
    match wake::further(more, gives_way) {
        Further::Nobody => false,
        Further::Again => {
            schedule::handle_inbox_on(qp, CpuId::current());
            false
        }
        Further::Left => {
            schedule::leave_inbox(qp);
            true
        }
    }
}

/// Goes on with what was left to process context: has another CPU do so, if that had better. Returns
/// likewise.
pub(crate) fn handle_left(qp: ArcBorrow<'_, Qp>) -> bool {
    if let Some(cpu) = qp.inbox.move_away(&qp.fixed.device.queues.senders) {
        schedule::handle_inbox_on(qp, cpu);
        return false;
    }
    handle_inbox(qp)
}

/// Handles responses of its own device to `qp`. Softirq context.
pub(crate) fn handle_answers(qp: ArcBorrow<'_, Qp>) {
    if handle_some(qp, &qp.answers) {
        schedule::handle_answers_on(qp, CpuId::current());
    }
}

/// Handles packets of an inbox. Returns whether there may be more.
///
/// The CPU that received them, if that is another one, is interrupted once, to send what all of them
/// have led to.
fn handle_some(qp: ArcBorrow<'_, Qp>, inbox: &Inbox) -> bool {
    let Some(origin) = inbox.origin() else {
        return handle_up_to(INBOX_PACKETS, &qp, inbox, |packet| {
            handle_put_aside(qp, packet)
        });
    };
    let (mut had_requests, mut had_responses) = (false, false);
    let more = handle_up_to(INBOX_PACKETS, &qp, inbox, |packet| {
        match take_in(qp, packet, Answers::AfterAll) {
            Ok(Half::Responder) => had_requests = true,
            Ok(Half::Requester) => had_responses = true,
            Err(drop) => qp.fixed.device.stats.count(drop),
        }
    });
    if had_requests {
        schedule::reply_at(qp, origin);
    }
    if had_responses {
        schedule::send_at(qp, origin);
    }
    more
}

/// Handles so many packets, or all. Returns whether there may be more.
fn handle_up_to(most: usize, qp: &Qp, inbox: &Inbox, mut handle: impl FnMut(RxPacket<'_>)) -> bool {
    for handled in 0..most {
        if handled >= LEAST_PACKETS && schedule::is_cpu_wanted(qp) {
            return true;
        }
        if !inbox.handle_next(&mut handle) {
            return false;
        }
    }
    true
}

/// Handles one of them, and what it leads to. Softirq context.
fn handle_put_aside(qp: ArcBorrow<'_, Qp>, packet: RxPacket<'_>) {
    if let Err(drop) = take_in(qp, packet, Answers::Each) {
        qp.fixed.device.stats.count(drop);
    }
}

/// Checks it and hands it over. Returns which half it was for.
fn take_in(
    qp: ArcBorrow<'_, Qp>,
    datagram: RxPacket<'_>,
    answers: Answers,
) -> Result<Half, Counter> {
    let mut first = [0; FIRST_BYTES];
    let first = datagram.peek(&mut first);
    let packet = parse(&datagram, first)?;
    let arrival = Arrival::new(&qp.fixed.device, &datagram, &packet);
    let half = arrival.check(&qp).map_err(Counter::from)?;
    if !datagram.is_own() {
        check_icrc(&datagram, first)?;
    }
    arrival.hand_over(qp, half, AtHand::Owned(datagram), answers);
    Ok(half)
}

/// Passes packets that `sender` sends to its own device to the queue pair that they are for. The sender
/// holds a lock of its own, so they are handled later. Bottom halves are disabled.
///
/// That queue pair must be connected to the sender: nobody else's packets may wait before those of its
/// peer.
///
/// # Errors
///
/// The counter of the reason for which they are dropped.
pub(crate) fn pass(sender: &Qp, mut own: PacketQueue<OwnFrames>) -> Result<(), Counter> {
    let device = &sender.fixed.device;
    let Some(first) = own.pop() else {
        return Ok(());
    };
    let mut header = [0; MAX_HEADER];
    let packet = parse(&first, first.peek(&mut header))?;
    let guard = rcu::read_lock();
    let qp = device.qps.get(packet.bth.dest_qp.get(), &guard);
    let qp = qp.ok_or(Counter::UnknownQp)?;
    if qp.own_peer() != Some(sender.fixed.qpn) {
        return Err(Counter::BadSource);
    }
    let here = CpuId::current();
    let len = first.payload_len();
    own.push_front(first);
    if matches!(packet.body, Body::Response(_)) {
        let cpu = qp.last_sent.cpu().unwrap_or(here);
        let cpu = qp.answers.put_own(own, cpu);
        schedule::handle_answers_on(qp, cpu);
        return Ok(());
    }
    let cpu = device.queues.senders.other_for(len).unwrap_or(here);
    if cpu != here {
        (device.stats).add(Counter::SteeredPackets, own.len() as u64);
    }
    let cpu = qp.inbox.put_own(own, cpu);
    schedule::handle_inbox_on(qp, cpu);
    Ok(())
}

/// `first` are its first bytes, all its headers at least.
pub(crate) fn parse(datagram: &Datagram, first: &[u8]) -> Result<Packet, Counter> {
    let mut packet =
        wire::parse(first, datagram.payload_len()).map_err(|error| Counter::from(error.event()))?;
    packet.psns = datagram.psns();
    Ok(packet)
}

/// Hands a packet to its queue pair, or those of its group.
///
/// # Errors
///
/// The counter of the reason for which it is dropped.
fn receive(device: &Device, datagram: RxPacket<'_>) -> Result<(), Counter> {
    let context = datagram.context();
    let mut first = [0; FIRST_BYTES];
    let first = datagram.peek(&mut first);
    let named = first.first_chunk().map(bth::dest_qp);
    let named = named.and_then(|qpn| device.qps.get(qpn.get(), context));
    // Who handles those before it looks at it, so that this CPU gets done with a train.
    if let Some(qp) = named.filter(|qp| may_be_left(qp) && qp.inbox.is_open()) {
        put_aside(qp, datagram.into_held(), None, context);
        return Ok(());
    }
    let packet = parse(&datagram, first)?;
    let arrival = Arrival::new(device, &datagram, &packet);
    // Rules: VAL-13
    // Either says that there may be many to take it; both must.
    match (
        is_multicast(arrival.ends.ours),
        packet.bth.dest_qp == Qpn::MULTICAST,
    ) {
        (false, false) => {}
        (true, true) => return arrival.multicast(&datagram, first),
        _ => return Err(Counter::UnknownQp),
    }
    // Rules: VAL-1, VAL-2
    let qp = named.ok_or(Counter::UnknownQp)?;
    let half = arrival.check(&qp).map_err(Counter::from)?;
    let other = Inbox::other_for(&device.queues.senders, datagram.payload_len());
    if let Some(other) = other.filter(|_| may_be_left(&qp)) {
        put_aside(qp, datagram.into_held(), Some(other), context);
        return Ok(());
    }
    check_icrc(&datagram, first)?;
    arrival.hand_over(qp, half, AtHand::Owned(datagram), Answers::Each);
    Ok(())
}

/// Whether another CPU may handle packets for `qp`. Not datagrams: of them, more has to be known than
/// what is kept.
fn may_be_left(qp: &Qp) -> bool {
    matches!(qp.fixed.service, Service::Connection(_))
}

/// Leaves a packet to another CPU, or to the one that handles those before it.
fn put_aside(qp: ArcBorrow<'_, Qp>, held: HeldPacket, other: Option<CpuId>, context: &BhDisabled) {
    let stats = &qp.fixed.device.stats;
    match (qp.inbox).put(held, other, stats, |packet| handle_put_aside(qp, packet)) {
        Aside::No(held) => handle_put_aside(qp, held.now(context)),
        Aside::Behind => {}
        Aside::First(cpu) => schedule::handle_inbox_on(qp, cpu),
    }
}

/// A packet with good headers.
struct Arrival<'a> {
    device: &'a Device,
    packet: &'a Packet,
    ends: Ends,
}

impl<'a> Arrival<'a> {
    fn new(device: &'a Device, datagram: &Datagram, packet: &'a Packet) -> Self {
        Self {
            device,
            packet,
            ends: Ends {
                ours: datagram.destination(),
                theirs: datagram.source(),
            },
        }
    }

    /// Gives each queue pair of the group that takes it a copy.
    // Rules: MCG-1
    fn multicast(&self, datagram: &RxPacket<'_>, first: &[u8]) -> Result<(), Counter> {
        let members = self.device.groups.members(self.ends.ours);
        let members = members.ok_or(Counter::UnknownQp)?;
        check_icrc(datagram, first)?;
        for qpn in members.iter() {
            let Some(qp) = self.device.qps.get(qpn.get(), datagram.context()) else {
                continue;
            };
            // Rules: MCG-3
            match self.check(&qp) {
                Ok(half) => {
                    self.device.stats.count(Counter::ReceivedMulticast);
                    self.hand_over(qp, half, AtHand::Shared(datagram), Answers::Each);
                }
                Err(event) => self.device.stats.count(event.into()),
            }
        }
        Ok(())
    }

    fn check(&self, qp: &Qp) -> Result<Half, Event> {
        let transport = qp.fixed.service.transport();
        qp::check(transport, qp.state(), qp.pkey(), self.packet)
    }

    fn hand_over(&self, qp: ArcBorrow<'_, Qp>, half: Half, datagram: AtHand<'_>, answers: Answers) {
        match half {
            Half::Requester => {
                schedule::handle_response(qp, self.ends, self.packet, datagram, answers);
            }
            Half::Responder => {
                schedule::handle_request(qp, self.ends, self.packet, datagram, answers);
            }
        }
    }
}

/// Checks the ICRC of a packet that was parsed, so is long enough to have one. `first` are its first
/// bytes, of a small one all.
// Rules: ENC-22
fn check_icrc(datagram: &Datagram, first: &[u8]) -> Result<(), Counter> {
    let bad = Counter::BadIcrc;
    let bth = first.first_chunk().ok_or(bad)?;
    let udp = datagram.udp_header();
    let mut masked = match datagram.ip_header() {
        IpHeader::V4(ip) => MaskedHeaders::ipv4(PlainIpv4::new(ip).map_err(|_| bad)?, udp, bth),
        IpHeader::V6(ip) => MaskedHeaders::ipv6(ip, udp, bth),
    };
    let computed = if first.len() == datagram.payload_len() as usize {
        icrc_of_small(&mut masked, first)
    } else {
        icrc_of_large(&masked, datagram)
    };
    match computed {
        Some((crc, sent)) if sent == icrc::finish(crc) => Ok(()),
        _ => Err(bad),
    }
}

/// The CRC of the packet `all`, and the ICRC that it came with.
fn icrc_of_small(masked: &mut MaskedHeaders, all: &[u8]) -> Option<(u32, [u8; ICRC_LEN])> {
    let (covered, sent) = all.split_last_chunk()?;
    let has_room = masked.append(covered.get(bth::BYTES..)?);
    let crc = rdma::crc::crc32_le(icrc::SEED, masked.as_bytes());
    has_room.then_some((crc, *sent))
}

/// Likewise, of one that is read where it lies.
fn icrc_of_large(masked: &MaskedHeaders, datagram: &Datagram) -> Option<(u32, [u8; ICRC_LEN])> {
    let seed = rdma::crc::crc32_le(icrc::SEED, masked.as_bytes());
    let end = (datagram.payload_len() as usize).checked_sub(ICRC_LEN)?;
    let covered = end.checked_sub(bth::BYTES)?;
    let crc = datagram.crc(seed, bth::BYTES, covered).ok()?;
    let mut sent = [0; ICRC_LEN];
    datagram.read(end, &mut sent).ok()?;
    Some((crc, sent))
}
