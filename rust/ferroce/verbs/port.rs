// SPDX-License-Identifier: GPL-2.0

//! Ports.

use kernel::prelude::*;
use rdma::device::attr::{LinkSpeed, PortAttr};
use rdma::device::Device as IbDevice;

use super::Verbs;

/// Returns the attributes and the state of a port. May sleep.
pub(super) fn query(device: &IbDevice<Verbs>, port: u32) -> Result<PortAttr> {
    // The netdev may be gone, and then the port is down; not every netdev knows its speed.
    let speed = device.link_speed(port).unwrap_or(LinkSpeed::UNKNOWN);
    Ok(device.port_attr(speed))
}
