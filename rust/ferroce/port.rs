// SPDX-License-Identifier: GPL-2.0

//! The one port of a device, as its netdev has it.

use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::atomic::{Atomic, Relaxed};
use rdma::device::attr::{PhysState, PortState};
use rdma::net::{NetDevice, NetDeviceSlot};
use roce::num::Mtu;

/// The number of the port.
pub(crate) const PORT: u8 = 1;

/// Bytes that IP, UDP and transport headers, and the ICRC, take of the netdev's MTU at most.
const OVERHEAD_BYTES: u32 = 80;

/// A port.
pub(crate) struct Port {
    netdev: NetDeviceSlot,
    is_active: Atomic<bool>,
}

impl Port {
    /// Makes the port of `netdev`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(netdev: &NetDevice) -> Result<Self> {
        Ok(Self {
            netdev: NetDeviceSlot::new(netdev)?,
            is_active: Atomic::new(is_active(netdev)),
        })
    }

    /// Returns the netdev until it is unregistered.
    ///
    /// # Errors
    ///
    /// `ENODEV` after that.
    pub(crate) fn netdev(&self) -> Result<ARef<NetDevice>> {
        self.netdev.get().ok_or(ENODEV)
    }

    /// Returns the largest path MTU that the netdev carries now.
    pub(crate) fn active_mtu(&self) -> Mtu {
        self.netdev().map_or(Mtu::B256, |netdev| {
            let room = netdev.mtu().saturating_sub(OVERHEAD_BYTES);
            Mtu::within(room).unwrap_or(Mtu::B256)
        })
    }

    /// Returns the state of the port and of its physical layer.
    pub(crate) fn state(&self) -> (PortState, PhysState) {
        match self.netdev() {
            Ok(netdev) => state(&netdev),
            Err(_) => (PortState::Down, PhysState::Disabled),
        }
    }

    /// Looks at whether the port is active. Returns that if it has changed.
    pub(crate) fn update_active(&self, netdev: &NetDevice) -> Option<bool> {
        let is_active = is_active(netdev);
        let was_active = self.is_active.xchg(is_active, Relaxed);
        (was_active != is_active).then_some(is_active)
    }
}

fn is_active(netdev: &NetDevice) -> bool {
    state(netdev).0 == PortState::Active
}

fn state(netdev: &NetDevice) -> (PortState, PhysState) {
    if !netdev.is_up() {
        (PortState::Down, PhysState::Disabled)
    } else if !netdev.has_carrier() {
        (PortState::Down, PhysState::Polling)
    } else {
        (PortState::Active, PhysState::LinkUp)
    }
}
