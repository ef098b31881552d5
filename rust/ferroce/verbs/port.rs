// SPDX-License-Identifier: GPL-2.0

//! Ports.

use kernel::prelude::*;
use rdma::device::attr::{LinkSpeed, PortAttr};
use rdma::device::{Device as IbDevice, PortEvent, Registered};
use rdma::net::NetDevice;

use super::Verbs;
use crate::port::PORT;
use crate::stats::Counter;

/// Returns the attributes and the state of a port. May sleep.
pub(super) fn query(device: &IbDevice<Verbs>, port: u32) -> Result<PortAttr> {
    // The netdev may be gone, and then the port is down; not every netdev knows its speed.
    let speed = device.link_speed(port).unwrap_or(LinkSpeed::UNKNOWN);
    Ok(device.port_attr(speed))
}

/// Handles the events of the netdev that a device has missed while it was not registered: at the
/// beginning, or during a move to another namespace. May sleep.
pub(super) fn catch_up(device: &Registered<Verbs>) {
    match device.shared.port.netdev() {
        Ok(netdev) if netdev.is_staying() => tell_state(device, &netdev),
        _ => remove(device),
    }
}

/// Has a device unregistered, because its netdev is going. Any context.
pub(crate) fn remove(device: &Registered<Verbs>) {
    device.leave();
    device.unregister_queued();
}

/// Tells the users of a device if its port has become active, or is not active any more. May sleep.
///
/// Events of the netdev may come while a caller without the RTNL looks. What it has seen may then be out of date, so it
/// looks again after each change.
pub(crate) fn tell_state(device: &Registered<Verbs>, netdev: &NetDevice) {
    while let Some(active) = device.shared.port.update_active(netdev) {
        if !active {
            device.shared.stats.count(Counter::LinkDowned);
        }
        let event = match active {
            true => PortEvent::Active,
            false => PortEvent::Error,
        };
        device.dispatch_port_event(PORT.into(), event);
    }
}
