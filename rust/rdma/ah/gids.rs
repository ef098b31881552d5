// SPDX-License-Identifier: GPL-2.0

//! Lookup of GIDs outside of verbs.

use crate::{
    device::{
        Device,
        DeviceMemory, //
    },
    driver::Driver,
    net::NetDevice, //
};
use core::ptr;
use kernel::{
    error::from_err_ptr,
    prelude::*,
    sync::{
        aref::ARef,
        rcu, //
    }, //
};
use rdma_bindings as bindings;

/// The GID tables of a device, which may have been unregistered.
pub struct Gids(DeviceMemory);

/// One of our GIDs.
pub struct Gid {
    /// The GID.
    pub gid: [u8; 16],
    /// Its netdev: that of the device, or one above it, such as a VLAN.
    pub netdev: ARef<NetDevice>,
}

impl Gids {
    /// Returns the GID tables of `device`.
    pub fn of<T: Driver>(device: &Device<T>) -> Self {
        Self(DeviceMemory::of(device))
    }

    /// Returns the GID that is now at `index` of a port's table. Any context.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the device is not registered any more or the GID's netdev is gone; `EINVAL` and
    /// others if there is no such port or index, or the entry is not one of RoCEv2.
    pub fn get(&self, port: u32, index: u8) -> Result<Gid> {
        let _registered = Hold::new(&self.0)?;
        // SAFETY: The device is registered for as long as there is a hold on it.
        let attr = unsafe { bindings::rdma_get_gid_attr(self.0.as_ptr(), port, index.into()) };
        let attr = Attr(from_err_ptr(attr.cast_mut())?);
        attr.read()
    }

    /// Returns true if a port's table has `gid` now, as one of RoCEv2 and of `netdev`; or of any, if
    /// that is `None`. Process and softirq context.
    pub fn has(&self, port: u32, gid: [u8; 16], netdev: Option<&NetDevice>) -> bool {
        let Ok(_registered) = Hold::new(&self.0) else {
            return false;
        };
        let gid = bindings::ib_gid { raw: gid };
        // SAFETY: The device is registered for as long as there is a hold on it. The GID is valid, and
        // so is the netdev, of which only the address is compared.
        let attr = unsafe {
            bindings::rdma_find_gid_by_port(
                self.0.as_ptr(),
                &gid,
                bindings::ib_gid_type_IB_GID_TYPE_ROCE_UDP_ENCAP,
                port,
                netdev.map_or(ptr::null_mut(), NetDevice::as_raw),
            )
        };
        // INVARIANT: The core took a reference for us. It is given back here, before the hold: the table goes with the
        // device.
        let found = from_err_ptr(attr.cast_mut()).map(Attr);
        found.is_ok()
    }
}

/// # Invariants
///
/// Owns a hold on a registered device.
struct Hold<'a>(&'a DeviceMemory);

impl<'a> Hold<'a> {
    fn new(device: &'a DeviceMemory) -> Result<Self> {
        if device.try_get() {
            // INVARIANT: The hold was just taken.
            Ok(Self(device))
        } else {
            Err(ENODEV)
        }
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        // SAFETY: By the invariants there is a hold to give back.
        unsafe { bindings::ib_device_put(self.0.as_ptr()) };
    }
}

/// # Invariants
///
/// Owns a reference to a GID attribute.
struct Attr(*mut bindings::ib_gid_attr);

impl Attr {
    fn read(&self) -> Result<Gid> {
        // SAFETY: By the invariants the attribute is valid.
        let attr = unsafe { &*self.0 };
        // SAFETY: By the invariants the attribute is valid, and the reference keeps it.
        match unsafe { bindings::rdma_gid_attr_network_type(attr) } {
            bindings::rdma_network_type_RDMA_NETWORK_IPV4
            | bindings::rdma_network_type_RDMA_NETWORK_IPV6 => {}
            _ => return Err(EINVAL),
        }
        let _rcu = rcu::read_lock();
        // SAFETY: The attribute is valid, and this is a read side of RCU.
        let netdev = from_err_ptr(unsafe { bindings::rdma_read_gid_attr_ndev_rcu(attr) })?;
        Ok(Gid {
            // SAFETY: All members of the union are plain bytes.
            gid: unsafe { attr.gid.raw },
            // SAFETY: The netdev is valid as long as the read side lasts.
            netdev: unsafe { NetDevice::from_raw(netdev) }.hold(),
        })
    }
}

impl Drop for Attr {
    fn drop(&mut self) {
        // SAFETY: By the invariants there is a reference to give back.
        unsafe { bindings::rdma_put_gid_attr(self.0) };
    }
}
