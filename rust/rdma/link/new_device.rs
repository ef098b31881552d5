// SPDX-License-Identifier: GPL-2.0

//! Creation of devices.

use super::LinkName;
use crate::{
    device::{
        Device,
        DeviceMemory,
        DeviceRef,
        NodeAttr, //
    },
    module::Hold,
    net::Net,
    ops::{
        table,
        Operations, //
    },
    registry::Registry, //
};
use core::ptr::NonNull;
use kernel::{
    error::to_result,
    prelude::*, //
};
use rdma_bindings as bindings;

/// A device that is not registered.
///
/// # Invariants
///
/// The pointer is a device of `T` that nobody else knows, with its data in place.
///
/// # Examples
///
/// ```
/// use rdma::{
///     device::NodeAttr,
///     link::{
///         Link,
///         LinkName,
///         NewDevice, //
///     },
///     net::NetDevice, //
/// };
///
/// /// Serves `Link::newlink` of a driver whose devices have no data.
/// fn newlink<T: Link<Device = ()>>(name: LinkName<'_>, netdev: &NetDevice) -> Result {
///     let node = NodeAttr {
///         node_guid: [2, 0, 0, 0xff, 0xfe, 0, 0, 1],
///         node_desc: b"sample",
///         comp_vectors: 1,
///         local_dma_lkey: 0x100,
///     };
///     let net = netdev.net().ok_or(ENODEV)?;
///     NewDevice::<T>::new(&net, (), node)?.register(name)?;
///     Ok(())
/// }
/// ```
pub struct NewDevice<T: Operations>(NonNull<Device<T>>);

impl<T: Operations> NewDevice<T> {
    /// Creates a device with one port, in the network namespace `net`. May sleep.
    ///
    /// `data` are dropped when the device is unregistered, or with the returned value, after a call
    /// of [`Operations::dealloc`].
    ///
    /// # Errors
    ///
    /// `ENODEV` if the driver has no [`LinkRegistration`](super::LinkRegistration), `ENOMEM`.
    pub fn new(net: &Net, data: T::Device, node: NodeAttr) -> Result<Self> {
        let registry = Registry::of::<T>()?;
        let hold = Hold::new()?;
        let comp_vectors = i32::try_from(node.comp_vectors.max(1)).map_err(|_| EINVAL)?;
        // SAFETY: The size is that of a struct which starts with a device, and the reference proves that
        // the namespace is alive.
        let ib = unsafe { bindings::_ib_alloc_device(Device::<T>::SIZE, net.as_raw()) };
        let device = NonNull::new(ib).ok_or(ENOMEM)?;
        // SAFETY: It was allocated above.
        unsafe { Device::<T>::create(device, hold, data) };
        // SAFETY: The device is ours alone until it is registered.
        unsafe {
            // CAST: Node types are below 8.
            (*ib).node_type = bindings::RDMA_NODE_IB_CA as u8;
            (*ib).node_guid = u64::from_ne_bytes(node.node_guid);
            for (to, from) in (*ib).node_desc.iter_mut().zip(node.node_desc) {
                *to = *from;
            }
            (*ib).phys_port_cnt = 1;
            (*ib).num_comp_vectors = comp_vectors;
            (*ib).local_dma_lkey = node.local_dma_lkey;
            (*ib).link_ops = registry.ops();
            (*ib).uverbs_cmd_mask |= table::COMMANDS;
            bindings::ib_set_device_ops(ib, table::ops::<T>());
            (*ib).ops.owner = registry.module();
        }
        // INVARIANT: All of it is set up.
        Ok(Self(device.cast()))
    }

    /// Registers the device as `name`, which a user chose. May sleep.
    ///
    /// From here on verbs are called, and it may be unregistered at any time.
    ///
    /// # Errors
    ///
    /// `EEXIST` or `ENFILE` if the name is taken; `EINVAL` if it is not a valid name; the errors of
    /// [`Operations::query_device`] and other operations; `ENOMEM`. The device is dropped then.
    pub fn register(self, name: LinkName<'_>) -> Result<DeviceRef<T>> {
        if name.as_bytes().contains(&b'%') {
            return Err(EINVAL);
        }
        let ib: NonNull<bindings::ib_device> = self.0.cast();
        // SAFETY: The device is valid.
        let memory = unsafe { DeviceMemory::get(ib) };
        let registry = Registry::of::<T>()?;
        registry.add(memory.clone())?;
        // SAFETY: By the invariants the device is set up and nobody else knows it.
        let result = to_result(unsafe {
            bindings::ib_mark_name_assigned_by_user(ib.as_ptr());
            bindings::ib_register_device(
                ib.as_ptr(),
                name.as_cstr().as_char_ptr(),
                core::ptr::null_mut(),
            )
        });
        if let Err(error) = result {
            registry.remove(ib);
            return Err(error);
        }
        // The core owns the device now.
        core::mem::forget(self);
        // SAFETY: It was made for `T`.
        Ok(unsafe { DeviceRef::from_memory(memory) })
    }
}

impl<T: Operations> Drop for NewDevice<T> {
    fn drop(&mut self) {
        // SAFETY: By the invariants the device is ours, and not registered. This calls
        // `dealloc_driver`.
        unsafe { bindings::ib_dealloc_device(self.0.as_ptr().cast()) };
    }
}
