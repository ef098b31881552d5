// SPDX-License-Identifier: GPL-2.0

//! The speed of a port.

use super::Operations;
use crate::{
    device::{
        attr::LinkSpeed,
        Device, //
    },
    errno::EOPNOTSUPP, //
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
    /// `ENODEV` if the port has no netdev any more, `EOPNOTSUPP` if the netdev does not report it.
    pub fn link_speed(&self, port: u32) -> Result<LinkSpeed> {
        let netdev = T::get_netdev(self, port).ok_or(ENODEV)?;
        // Without this check, the core would write to the log at each call.
        // SAFETY: There is a reference to the netdev.
        let is_known = unsafe { bindings::netdev_has_link_ksettings(netdev.as_raw()) };
        if !is_known {
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
