// SPDX-License-Identifier: GPL-2.0

//! The speed of a port.

use super::Operations;
use crate::{
    device::{
        attr::LinkSpeed,
        Device, //
    },
    errno::EOPNOTSUPP,
    net::{
        rtnl::Rtnl,
        NetDevice, //
    }, //
};
use kernel::{
    error::to_result,
    prelude::*, //
};
use rdma_bindings as bindings;

impl<T: Operations> Device<T> {
    /// Returns the speed of the netdev of `port`, as ethtool reports it.
    ///
    /// Takes the RTNL lock, which the caller must not hold; may sleep.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the port has no netdev any more, `EOPNOTSUPP` if the netdev does not know it.
    pub fn link_speed(&self, port: u32) -> Result<LinkSpeed> {
        let netdev = T::get_netdev(self, port).ok_or(ENODEV)?;
        // The core would take 1 Gb/s for it, and for some netdevs write to the log at each call.
        if !tells_speed(&netdev) {
            return Err(EOPNOTSUPP);
        }
        let mut link = LinkSpeed::UNKNOWN;
        // SAFETY: By the invariants the device is valid.
        to_result(unsafe {
            bindings::ib_get_eth_speed(self.as_raw(), port, &mut link.speed, &mut link.width)
        })?;
        Ok(link)
    }
}

/// Returns true if ethtool knows the speed of the netdev.
fn tells_speed(netdev: &NetDevice) -> bool {
    let mut settings = bindings::ethtool_link_ksettings::default();
    let _rtnl = Rtnl::lock();
    // Its driver may have freed what it would look at.
    if !netdev.is_registered() {
        return false;
    }
    // SAFETY: There is a reference to the netdev, which is registered while the RTNL is held.
    let status = unsafe { bindings::__ethtool_get_link_ksettings(netdev.as_raw(), &mut settings) };
    // CAST: The same bits, which the kernel stores in a field without sign.
    status == 0 && settings.base.speed != bindings::SPEED_UNKNOWN as u32
}
