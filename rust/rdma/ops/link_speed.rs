// SPDX-License-Identifier: GPL-2.0

//! How fast a port is.

use kernel::error::to_result;
use kernel::prelude::*;

use rdma_bindings as bindings;

use super::Operations;
use crate::device::attr::LinkSpeed;
use crate::device::Device;
use crate::errno::EOPNOTSUPP;

impl<T: Operations> Device<T> {
    /// How fast the netdev of `port` is, by ethtool.
    ///
    /// Takes the RTNL lock, which the caller must not hold; may sleep.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the port has no netdev any more, `EOPNOTSUPP` if the netdev doesn't say.
    pub fn link_speed(&self, port: u32) -> Result<LinkSpeed> {
        let netdev = T::get_netdev(self, port).ok_or(ENODEV)?;
        // The core would write to the log each time that it is asked.
        // SAFETY: There is a reference to the netdev.
        let is_known = unsafe { bindings::netdev_has_link_ksettings(netdev.as_raw()) };
        if !is_known {
            return Err(EOPNOTSUPP);
        }
        let mut link = LinkSpeed::SLOWEST;
        // SAFETY: By the invariants the device is valid.
        to_result(unsafe {
            bindings::ib_get_eth_speed(self.as_raw(), port, &mut link.speed, &mut link.width)
        })?;
        Ok(link)
    }
}
