// SPDX-License-Identifier: GPL-2.0

//! Multicast groups that a netdev is a member of.

use crate::{
    errno::EADDRNOTAVAIL,
    net::{
        ipv4_of_gid,
        rtnl::Rtnl,
        NetDevice,
        NetDeviceSlot, //
    }, //
};
use kernel::prelude::*;
use rdma_bindings as bindings;

/// Returns true if a GID is that of a multicast group: an IPv6 one, or an IPv4 one that is mapped.
#[inline]
pub const fn is_multicast(gid: [u8; 16]) -> bool {
    let [first, ..] = gid;
    match ipv4_of_gid(gid) {
        Some([first, ..]) => first & 0xf0 == 0xe0,
        None => first == 0xff,
    }
}

/// A netdev's membership in a multicast group.
///
/// The IP stack is a member for us. It makes the netdev receive frames to the group's MAC address,
/// and tells routers and switches by IGMP or MLD. It passes datagrams of the group to a
/// [`Tunnel`](crate::net::Tunnel), also those that are sent from here.
///
/// The stack counts memberships, as others may be members by themselves, such as the RDMA core for
/// users of its connection manager. It ends when it is dropped, or before that when the netdev
/// goes. Dropping it sleeps, and takes the RTNL.
///
/// # Invariants
///
/// The stack has counted us for `group` as long as the netdev is there; `group` is one of multicast.
pub struct Membership {
    netdev: NetDeviceSlot,
    group: [u8; 16],
}

impl Membership {
    /// Joins `group` on `netdev`. Sleeps, and takes the RTNL.
    ///
    /// If memory is short, the stack may fail to join an IPv4 group without an error.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `group` is not one of multicast; `EADDRNOTAVAIL` if the netdev takes no part in
    /// that IP version; `ENODEV` if it is being unregistered, or has left its namespace; `ENOMEM`.
    pub fn join(netdev: &NetDevice, group: [u8; 16]) -> Result<Self> {
        if !is_multicast(group) {
            return Err(EINVAL);
        }
        let slot = NetDeviceSlot::new(netdev)?;
        let rtnl = Rtnl::lock();
        // While this waited for the lock, the netdev may have moved to another namespace.
        let netdev = slot.get().ok_or(ENODEV)?;
        match ipv4_of_gid(group) {
            Some(address) => join_v4(&netdev, address, &rtnl)?,
            None => join_v6(&netdev, group)?,
        }
        // INVARIANT: Joined just now.
        Ok(Self {
            netdev: slot,
            group,
        })
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let rtnl = Rtnl::lock();
        // The stack forgets the groups of a netdev with the netdev, and when it moves to another namespace. With
        // the lock held it does not move.
        let Some(netdev) = self.netdev.get() else {
            return;
        };
        match ipv4_of_gid(self.group) {
            Some(address) => leave_v4(&netdev, address, &rtnl),
            None => leave_v6(&netdev, self.group),
        }
    }
}

fn join_v4(netdev: &NetDevice, address: [u8; 4], _rtnl: &Rtnl) -> Result {
    // SAFETY: The netdev is valid. The RTNL is held, which keeps `in_dev` valid.
    unsafe {
        let in_dev = bindings::__in_dev_get_rtnl(netdev.as_raw());
        if in_dev.is_null() {
            return Err(EADDRNOTAVAIL);
        }
        bindings::ip_mc_inc_group(in_dev, u32::from_ne_bytes(address));
    }
    Ok(())
}

fn leave_v4(netdev: &NetDevice, address: [u8; 4], _rtnl: &Rtnl) {
    // SAFETY: The netdev is valid, and the RTNL keeps `in_dev` valid. `join_v4` made us a member,
    // which is undone once.
    unsafe {
        let in_dev = bindings::__in_dev_get_rtnl(netdev.as_raw());
        if !in_dev.is_null() {
            let address = u32::from_ne_bytes(address);
            bindings::__ip_mc_dec_group(in_dev, address, bindings::GFP_KERNEL);
        }
    }
}

#[cfg(CONFIG_IPV6)]
fn join_v6(netdev: &NetDevice, group: [u8; 16]) -> Result {
    // SAFETY: The netdev is valid.
    match unsafe { bindings::ipv6_dev_mc_inc(netdev.as_raw(), &in6_addr(group)) } {
        0 => Ok(()),
        errno => match Error::from_errno(errno) {
            // The stack returns this if it does not know the netdev.
            error if error == EINVAL => Err(EADDRNOTAVAIL),
            error => Err(error),
        },
    }
}

#[cfg(CONFIG_IPV6)]
fn leave_v6(netdev: &NetDevice, group: [u8; 16]) {
    // It fails when the stack has forgotten the netdev meanwhile.
    //
    // SAFETY: The netdev is valid.
    unsafe { bindings::ipv6_dev_mc_dec(netdev.as_raw(), &in6_addr(group)) };
}

#[cfg(CONFIG_IPV6)]
fn in6_addr(group: [u8; 16]) -> bindings::in6_addr {
    // SAFETY: Zeros are valid for all of it.
    let mut address: bindings::in6_addr = unsafe { core::mem::zeroed() };
    address.in6_u.u6_addr8 = group;
    address
}

#[cfg(not(CONFIG_IPV6))]
fn join_v6(_netdev: &NetDevice, _group: [u8; 16]) -> Result {
    Err(EADDRNOTAVAIL)
}

#[cfg(not(CONFIG_IPV6))]
fn leave_v6(_netdev: &NetDevice, _group: [u8; 16]) {}
