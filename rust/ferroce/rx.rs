// SPDX-License-Identifier: GPL-2.0

//! Finds the queue pair, or each queue pair, that a datagram is for.

use kernel::prelude::*;
use kernel::sync::ArcBorrow;
use rdma::net::{is_multicast, NetDevice, Receiver, RxPacket};
use rdma::table::IdTable;
use roce::num::Qpn;
use roce::wire::{bth, cnp};

use crate::backlog::{Backlog, Place};
use crate::congestion;
use crate::deliver::{may_be_put_aside, place, put_aside, Delivery};
use crate::device::Device;
use crate::parse::{check_icrc, Parsed, FIRST_BYTES};
use crate::payload::AtHand;
use crate::stats::Counter;
use crate::wake::Act;

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

    /// Finds the device that has the destination GID, if `netdev` has none. `netdev` may be above that of the device,
    /// as a bond or a bridge is. For a packet of this machine it may be any that has the same address.
    ///
    /// The device with `netdev` as that of the GID comes first. Anybody may send packets for which there is no device,
    /// so GID tables are searched only where they may have it.
    #[cold]
    fn find_by_gid<'a>(
        &self,
        packet: &RxPacket<'a>,
        netdev: &NetDevice,
    ) -> Option<ArcBorrow<'a, Device>> {
        let context = packet.context();
        let gid = packet.destination();
        let has_lower = netdev.has_lower();
        if !has_lower && !packet.is_looped() {
            return None;
        }
        let mut second = None;
        let mut from = Some(0);
        while let Some((ifindex, device)) =
            from.and_then(|from| self.devices.borrow_first_from(from, context))
        {
            from = ifindex.checked_add(1);
            let own = || netdev.beside(ifindex, context);
            let is_below = has_lower && own().is_some_and(|own| own.is_below(netdev));
            if is_below && device.has_gid(gid, Some(netdev)) {
                return Some(device);
            }
            let may_have = second.is_none() && (is_below || packet.is_looped());
            if may_have && device.has_gid(gid, None) {
                second = Some(device);
            }
        }
        second
    }
}

impl Receiver for Ingress {
    fn receive(&self, packet: RxPacket<'_>) {
        let context = packet.context();
        let Some(netdev) = packet.device() else {
            return;
        };
        let own = self.devices.get(netdev.ifindex(), context);
        // An index counts in its own namespace, to which a VLAN may have been moved alone.
        let lower = || netdev.vlan_lower().filter(|lower| lower.is_beside(netdev));
        let below = || self.devices.get(lower()?.ifindex(), context);
        let by_gid = || self.find_by_gid(&packet, netdev);
        let Some(device) = own.or_else(below).or_else(by_gid) else {
            packet.reject();
            return;
        };
        if let Err(drop) = receive(&device, packet) {
            device.shared.stats.count(drop);
        }
    }
}

/// Hands a packet to its queue pair, or those of its group.
///
/// # Errors
///
/// The counter of the reason for which it is dropped.
fn receive(device: &Device, datagram: RxPacket<'_>) -> Result<(), Counter> {
    let shared = &device.shared;
    let context = datagram.context();
    let mut first = [0; FIRST_BYTES];
    let first = datagram.peek(&mut first);
    let named = first.first_chunk().map(bth::dest_qp);
    let named = named.and_then(|qpn| shared.qps.get(qpn.get(), context));
    if cnp::is_cnp(first, datagram.payload_len()) {
        return congestion::handle_cnp(device, named, &datagram, first);
    }
    // Its packets enter no network. A stranger must not delay them.
    // Rules: VAL-5
    if named.is_some_and(|qp| qp.own_peer().is_some()) {
        return Err(Counter::BadSource);
    }
    // The CPU that handles those before it looks at it, so that this CPU gets done with a train.
    if let Some(qp) = named.filter(|qp| may_be_put_aside(qp) && qp.backlog.is_open()) {
        let place = place(&qp, &datagram, first);
        put_aside(qp, datagram.into_held(), place, None, context);
        return Ok(());
    }
    let parsed = Parsed::new(&datagram, first);
    let packet = parsed.packet()?;
    let delivery = Delivery::new(&datagram, packet);
    // Rules: VAL-13
    // Either says that there may be many to take it; both must.
    match (
        is_multicast(delivery.ends.ours),
        packet.bth.dest_qp == Qpn::MULTICAST,
    ) {
        (false, false) => {}
        (true, true) => return multicast(device, &delivery, &datagram, first),
        _ => return Err(Counter::UnknownQp),
    }
    // Rules: VAL-1, VAL-2
    let qp = named.ok_or(Counter::UnknownQp)?;
    let half = delivery.check(&qp).map_err(Counter::from)?;
    let other = Backlog::other_for(&shared.senders, datagram.payload_len());
    if let Some(other) = other.filter(|_| may_be_put_aside(&qp)) {
        put_aside(qp, datagram.into_held(), Place::Last, Some(other), context);
        return Ok(());
    }
    check_icrc(&datagram, first)?;
    delivery.hand_over(qp, half, AtHand::Owned(datagram), Act::OnEach);
    Ok(())
}

/// Gives each queue pair of the group that takes it a copy.
// Rules: MCG-1
fn multicast(
    device: &Device,
    delivery: &Delivery<'_>,
    datagram: &RxPacket<'_>,
    first: &[u8],
) -> Result<(), Counter> {
    let members = device.groups.members(delivery.ends.ours);
    let members = members.ok_or(Counter::UnknownQp)?;
    check_icrc(datagram, first)?;
    let shared = &device.shared;
    for qpn in members.iter() {
        let Some(qp) = shared.qps.get(qpn.get(), datagram.context()) else {
            continue;
        };
        // Rules: MCG-3
        match delivery.check(&qp) {
            Ok(half) => {
                shared.stats.count(Counter::ReceivedMulticast);
                delivery.hand_over(qp, half, AtHand::Shared(datagram), Act::OnEach);
            }
            Err(event) => shared.stats.count(event.into()),
        }
    }
    Ok(())
}
