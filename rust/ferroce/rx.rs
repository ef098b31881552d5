// SPDX-License-Identifier: GPL-2.0

//! From a datagram to the half of the queue pair, or of each queue pair, that it is for.
//!
//! Every packet is hostile until it has passed: its headers are copied out once and parsed, the
//! queue pair must exist and take it, and the ICRC must be right, in the order of what each check
//! costs.

use kernel::prelude::*;
use kernel::sync::{rcu, ArcBorrow};
use rdma::net::{is_multicast, IpHeader, Receiver, RxPacket};
use rdma::table::IdTable;
use roce::event::Event;
use roce::icrc::{self, MaskedHeaders};
use roce::num::Qpn;
use roce::qp::{self, Half};
use roce::wire::{self, Packet, ICRC_BYTES, MAX_HEADER};

use crate::device::Device;
use crate::memory::Incoming;
use crate::qp::{Ends, Qp};
use crate::schedule;
use crate::stats::Counter;

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
        let guard = rcu::read_lock();
        let own = self.devices.get(packet.ifindex(), &guard);
        let device = own.or_else(|| self.devices.get(packet.lower_ifindex()?, &guard));
        let Some(device) = device else {
            return;
        };
        if let Err(drop) = receive(&device, &packet) {
            device.stats.count(drop);
        }
    }
}

/// Hands a packet to its queue pair, or those of its group.
///
/// # Errors
///
/// The counter of the reason for which it is dropped.
fn receive(device: &Device, datagram: &RxPacket<'_>) -> Result<(), Counter> {
    let mut header = [0; MAX_HEADER];
    let header = datagram.peek(&mut header);
    let packet = wire::parse(header, datagram.payload_len())
        .map_err(|error| Counter::from(error.event()))?;
    let arrival = Arrival {
        device,
        datagram,
        packet: &packet,
        ends: Ends {
            ours: datagram.destination(),
            theirs: datagram.source(),
        },
    };
    // Rules: VAL-13
    // Either says that there may be many to take it; both must.
    match (
        is_multicast(arrival.ends.ours),
        packet.bth.dest_qp == Qpn::MULTICAST,
    ) {
        (false, false) => arrival.unicast(header),
        (true, true) => arrival.multicast(header),
        _ => Err(Counter::UnknownQp),
    }
}

/// A packet with good headers.
struct Arrival<'a> {
    device: &'a Device,
    datagram: &'a RxPacket<'a>,
    packet: &'a Packet,
    ends: Ends,
}

impl Arrival<'_> {
    /// Hands it to the queue pair that it names. `header` is as it arrived.
    fn unicast(&self, header: &[u8]) -> Result<(), Counter> {
        let guard = rcu::read_lock();
        // Rules: VAL-1, VAL-2
        let qp = self
            .device
            .qps
            .get(self.packet.bth.dest_qp.get(), &guard)
            .ok_or(Counter::UnknownQp)?;
        let half = self.check(&qp).map_err(Counter::from)?;
        check_icrc(self.datagram, header)?;
        self.hand_over(qp, half);
        Ok(())
    }

    /// Gives each queue pair of the group that takes it a copy.
    // Rules: MCG-1
    fn multicast(&self, header: &[u8]) -> Result<(), Counter> {
        let members = self.device.groups.members(self.ends.ours);
        let members = members.ok_or(Counter::UnknownQp)?;
        check_icrc(self.datagram, header)?;
        let guard = rcu::read_lock();
        for qpn in members.as_slice() {
            let Some(qp) = self.device.qps.get(qpn.get(), &guard) else {
                continue;
            };
            // Rules: MCG-3
            match self.check(&qp) {
                Ok(half) => {
                    self.device.stats.count(Counter::ReceivedMulticast);
                    self.hand_over(qp, half);
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

    fn hand_over(&self, qp: ArcBorrow<'_, Qp>, half: Half) {
        let incoming = Incoming {
            packet: self.datagram,
            device: Some(self.datagram.device()),
            offset: self.packet.header_len() as usize,
        };
        match half {
            Half::Requester => schedule::handle_response(qp, self.ends, self.packet, incoming),
            Half::Responder => schedule::handle_request(qp, self.ends, self.packet, incoming),
        }
    }
}

/// Checks the ICRC of a packet that was parsed, so is long enough to have one.
// Rules: ENC-22
fn check_icrc(datagram: &RxPacket<'_>, header: &[u8]) -> Result<(), Counter> {
    let bad = Counter::BadIcrc;
    let bth = header.first_chunk().ok_or(bad)?;
    let masked = match datagram.ip_header() {
        IpHeader::V4(ip) => MaskedHeaders::ipv4(ip, datagram.udp_header(), bth).map_err(|_| bad)?,
        IpHeader::V6(ip) => MaskedHeaders::ipv6(ip, datagram.udp_header(), bth),
    };
    let seed = rdma::crc::crc32_le(icrc::SEED, masked.as_bytes());
    let end = datagram.payload_len().checked_sub(ICRC_BYTES).ok_or(bad)? as usize;
    let covered = end.checked_sub(bth.len()).ok_or(bad)?;
    let crc = datagram.crc(seed, bth.len(), covered).map_err(|_| bad)?;
    let mut sent = [0; ICRC_BYTES as usize];
    datagram.read(end, &mut sent).map_err(|_| bad)?;
    if sent == icrc::finish(crc) {
        Ok(())
    } else {
        Err(bad)
    }
}
