// SPDX-License-Identifier: GPL-2.0

//! RDMA devices.
//!
//! A device is made ([`NewDevice::new`]), registered, and unregistered: by its driver, by a user
//! (`rdma link delete`), by another driver of the same id that is unloaded, or when this module is
//! unloaded. The types say which of its lives it is in:
//!
//! - [`NewDevice`]: not registered yet, nobody else knows it;
//! - [`Registered`]: a hold on a registered device, which cannot be unregistered meanwhile;
//! - [`DeviceRef`]: a reference that keeps no more than the name of a device: it may be upgraded to
//!   a [`Registered`] as long as the device is registered.
//!
//! `&Device<T>` is what verbs and [`Registered`] give access to. The driver's data, `T::Device`,
//! are dropped once the device is unregistered and no verb runs any more.

pub mod attr;

use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;

use kernel::error::to_result;
use kernel::prelude::*;
use kernel::types::Opaque;

use rdma_bindings as bindings;
use roce::num::Lkey;

use crate::errno::EOPNOTSUPP;
use crate::link::{self, Registry};
use crate::module::Hold;
use crate::net::NetDevice;
use crate::ops::{table, Operations};

use attr::LinkSpeed;

/// An RDMA device with the driver's data.
///
/// # Invariants
///
/// `ib` is a device of the core's that was set up by [`NewDevice::new`] for `T`, whose memory is
/// alive. `data` is initialised as long as there is a reference to the whole.
#[repr(C)]
pub struct Device<T: Operations> {
    ib: Opaque<bindings::ib_device>,
    /// Keeps the module's code in place while the core may call it.
    hold: Hold,
    data: T::Device,
}

// SAFETY: The core's device may be used by any thread, and the driver's data are `Send` and `Sync`.
unsafe impl<T: Operations> Send for Device<T> {}
// SAFETY: As above.
unsafe impl<T: Operations> Sync for Device<T> {}

impl<T: Operations> Device<T> {
    /// # Safety
    ///
    /// `ib` must be a device that was made by [`NewDevice::new`] for `T`, whose data are not
    /// dropped for `'a`: one that a verb is called with, or that is held registered.
    #[inline]
    pub(crate) unsafe fn from_raw<'a>(ib: *mut bindings::ib_device) -> &'a Self {
        // SAFETY: The device is the first field of a `Device<T>`, as the caller promises.
        unsafe { &*ib.cast() }
    }

    /// The core's device.
    #[inline]
    pub(crate) fn as_raw(&self) -> *mut bindings::ib_device {
        self.ib.get()
    }

    /// The driver's data.
    #[inline]
    pub fn data(&self) -> &T::Device {
        &self.data
    }

    /// A number that no other registered device of the system has.
    pub fn index(&self) -> u32 {
        // SAFETY: By the invariants the device is valid; the index is set before it is registered.
        unsafe { (*self.as_raw()).index }
    }

    /// Its node GUID, in network order.
    pub fn node_guid(&self) -> [u8; 8] {
        // SAFETY: By the invariants the device is valid, and its GUID doesn't change.
        unsafe { (*self.as_raw()).node_guid }.to_ne_bytes()
    }

    /// The key by which work requests of the kernel name its own memory.
    pub fn local_dma_lkey(&self) -> Option<Lkey> {
        // SAFETY: By the invariants the device is valid, and the key doesn't change.
        let raw = unsafe { (*self.as_raw()).local_dma_lkey };
        (raw != 0).then_some(Lkey(raw))
    }

    /// How many completion vectors it has, at least one.
    pub fn comp_vectors(&self) -> u32 {
        // SAFETY: By the invariants the device is valid, and the number doesn't change.
        u32::try_from(unsafe { (*self.as_raw()).num_comp_vectors }).unwrap_or(1)
    }

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

    /// Tells everyone that `port` became active, or that it failed. Any context.
    pub fn dispatch_port_event(&self, port: u32, event: PortEvent) {
        // SAFETY: A zeroed event is a valid one.
        let mut raw: bindings::ib_event = unsafe { core::mem::zeroed() };
        raw.device = self.as_raw();
        raw.element.port_num = port;
        raw.event = match event {
            PortEvent::Active => bindings::ib_event_type_IB_EVENT_PORT_ACTIVE,
            PortEvent::Error => bindings::ib_event_type_IB_EVENT_PORT_ERR,
            PortEvent::SpeedChange => bindings::ib_event_type_IB_EVENT_DEVICE_SPEED_CHANGE,
        };
        // SAFETY: The event is valid, and the device is registered, as the caller has a reference
        // to it.
        unsafe { bindings::ib_dispatch_event(&raw const raw) };
    }

    /// A reference that outlives the caller's.
    pub fn to_ref(&self) -> DeviceRef<T> {
        // INVARIANT: `from_memory` has its own reference to the memory of a device of `T`.
        DeviceRef {
            memory: DeviceMemory::of(self),
            _operations: PhantomData,
        }
    }
}

impl<T: Operations> Deref for Device<T> {
    type Target = T::Device;

    #[inline]
    fn deref(&self) -> &T::Device {
        &self.data
    }
}

/// What happened to a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortEvent {
    /// It carries packets now.
    Active,
    /// It carries none any more.
    Error,
    /// It became faster or slower.
    SpeedChange,
}

/// A reference to the memory of a device, of whatever driver.
///
/// # Invariants
///
/// It owns a reference to the core's device.
pub(crate) struct DeviceMemory(NonNull<bindings::ib_device>);

// SAFETY: References may be dropped by any thread.
unsafe impl Send for DeviceMemory {}
// SAFETY: As above.
unsafe impl Sync for DeviceMemory {}

impl DeviceMemory {
    /// Takes a reference of its own.
    pub(crate) fn of<T: Operations>(device: &Device<T>) -> Self {
        // SAFETY: The device of a reference is valid.
        unsafe { Self::get(NonNull::from(device).cast()) }
    }

    /// # Safety
    ///
    /// `ib` must be a valid device.
    pub(crate) unsafe fn get(ib: NonNull<bindings::ib_device>) -> Self {
        // SAFETY: The caller passes a valid device.
        unsafe { bindings::get_device(Self::device(ib)) };
        // INVARIANT: The reference was just taken.
        Self(ib)
    }

    pub(crate) fn as_ptr(&self) -> *mut bindings::ib_device {
        self.0.as_ptr()
    }

    /// Holds it registered, if it still is.
    pub(crate) fn try_get(&self) -> bool {
        // SAFETY: By the invariants the memory is alive.
        unsafe { bindings::ib_device_try_get(self.0.as_ptr()) }
    }

    /// # Safety
    ///
    /// `ib` must be a valid device.
    unsafe fn device(ib: NonNull<bindings::ib_device>) -> *mut bindings::device {
        // SAFETY: The caller passes a valid device, whose address only is taken.
        unsafe { &raw mut (*ib.as_ptr()).__bindgen_anon_1 }.cast()
    }
}

impl Clone for DeviceMemory {
    fn clone(&self) -> Self {
        // SAFETY: By the invariants the device is valid.
        unsafe { Self::get(self.0) }
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: By the invariants there is a reference to give back.
        unsafe { bindings::put_device(Self::device(self.0)) };
    }
}

/// A reference to a device that may be unregistered at any time.
///
/// # Invariants
///
/// `memory` was made by [`NewDevice::new`] for `T`.
pub struct DeviceRef<T: Operations> {
    memory: DeviceMemory,
    _operations: PhantomData<Device<T>>,
}

impl<T: Operations> Clone for DeviceRef<T> {
    fn clone(&self) -> Self {
        Self {
            memory: self.memory.clone(),
            _operations: PhantomData,
        }
    }
}

impl<T: Operations> DeviceRef<T> {
    /// # Safety
    ///
    /// `memory` must be of a device that was made by [`NewDevice::new`] for `T`.
    pub(crate) unsafe fn from_memory(memory: DeviceMemory) -> Self {
        // INVARIANT: The caller promises it.
        Self {
            memory,
            _operations: PhantomData,
        }
    }

    /// Whether it is that device.
    pub fn is(&self, device: &Device<T>) -> bool {
        self.memory.as_ptr() == device.as_raw()
    }

    /// Holds the device registered, if it is. Any context.
    pub fn try_get(&self) -> Option<Registered<T>> {
        // INVARIANT: A hold was just taken.
        self.memory.try_get().then(|| Registered(self.clone()))
    }

    /// Unregisters the device, or waits until who does so already has done so.
    ///
    /// Nothing happens if it is not registered any more. May sleep, and waits until no
    /// [`Registered`] of it is left and no verb runs: not to be called from a verb, with a
    /// [`Registered`] of it in hand, or under RTNL.
    pub fn unregister(&self) {
        // SAFETY: The memory is alive. That others may do the same is what the function is made
        // for.
        unsafe { bindings::ib_unregister_device(self.memory.as_ptr()) };
    }
}

/// A device that is registered, and stays so for as long as this exists.
///
/// # Invariants
///
/// It owns a hold (`ib_device_try_get`) on the device.
pub struct Registered<T: Operations>(DeviceRef<T>);

impl<T: Operations> Registered<T> {
    /// Unregisters the device soon, from a work item of the core's. Any context that may not sleep,
    /// too; under RTNL, too. This hold must be dropped before that can come to an end.
    pub fn unregister_queued(&self) {
        // SAFETY: By the invariants the device is registered.
        unsafe { bindings::ib_unregister_device_queued(self.as_raw()) };
    }

    /// Unregisters the device; see [`DeviceRef::unregister`].
    pub fn unregister(self) {
        let device = self.0.clone();
        drop(self);
        device.unregister();
    }

    /// A reference without the hold.
    pub fn device_ref(&self) -> &DeviceRef<T> {
        &self.0
    }
}

impl<T: Operations> Deref for Registered<T> {
    type Target = Device<T>;

    fn deref(&self) -> &Device<T> {
        // SAFETY: By the invariants the device is registered, so that its data are there.
        unsafe { Device::from_raw(self.0.memory.as_ptr()) }
    }
}

impl<T: Operations> Drop for Registered<T> {
    fn drop(&mut self) {
        // SAFETY: By the invariants there is a hold to give back.
        unsafe { bindings::ib_device_put(self.0.memory.as_ptr()) };
    }
}

/// What a device is known by.
#[derive(Clone, Copy, Debug)]
pub struct NodeAttr {
    /// Node GUID, in network order. Should be the same whenever the device is made again.
    pub node_guid: [u8; 8],
    /// Completion vectors, at least one.
    pub comp_vectors: u32,
    /// The key, not 0, by which work requests of the kernel name its own memory: their addresses are
    /// kernel addresses, as the device has no other device behind it which would map them.
    pub local_dma_lkey: Lkey,
}

/// A device that is not registered.
///
/// # Invariants
///
/// The pointer is a device of `T` that nobody else knows, with its data in place.
pub struct NewDevice<T: Operations>(NonNull<Device<T>>);

impl<T: Operations> NewDevice<T> {
    /// A device with one port, for a link over `netdev`, in whose network namespace it will be.
    /// May sleep.
    ///
    /// `data` are dropped when the device is unregistered, or with the returned value, after a call
    /// of [`Operations::dealloc`].
    ///
    /// # Errors
    ///
    /// `ENODEV` if the driver has no [`link::LinkRegistration`], `ENOMEM`.
    pub fn new(netdev: &NetDevice, data: T::Device, node: NodeAttr) -> Result<Self> {
        // The core allocates by `kzalloc`, which aligns no better.
        const { assert!(core::mem::align_of::<Device<T>>() <= bindings::ARCH_KMALLOC_MINALIGN) };

        let registry = Registry::of::<T>()?;
        let hold = Hold::new()?;
        let comp_vectors = i32::try_from(node.comp_vectors.max(1)).map_err(|_| EINVAL)?;
        // SAFETY: The size is that of a struct which starts with a device, and the namespace is
        // alive, as the netdev is in it.
        let ib = unsafe {
            bindings::_ib_alloc_device(
                core::mem::size_of::<Device<T>>(),
                bindings::dev_net(netdev.as_raw()),
            )
        };
        let device = NonNull::new(ib.cast::<Device<T>>()).ok_or(ENOMEM)?;
        // SAFETY: The memory is that of a `Device<T>`, of which the core has set up the first
        // field.
        unsafe {
            (&raw mut (*device.as_ptr()).hold).write(hold);
            (&raw mut (*device.as_ptr()).data).write(data);
        }
        // SAFETY: The device is ours alone until it is registered.
        unsafe {
            // CAST: Node types are below 8.
            (*ib).node_type = bindings::RDMA_NODE_IB_CA as u8;
            (*ib).node_guid = u64::from_ne_bytes(node.node_guid);
            (*ib).phys_port_cnt = 1;
            (*ib).num_comp_vectors = comp_vectors;
            (*ib).local_dma_lkey = node.local_dma_lkey.0;
            (*ib).link_ops = registry.ops();
            (*ib).uverbs_cmd_mask |= table::COMMANDS;
            bindings::ib_set_device_ops(ib, table::ops::<T>());
            (*ib).ops.owner = registry.module();
        }
        // INVARIANT: All of it is set up.
        Ok(Self(device))
    }

    /// Registers the device as `name`, which a user chose. May sleep.
    ///
    /// From here on verbs are called, and it may be unregistered at any time.
    ///
    /// # Errors
    ///
    /// `EEXIST` or `ENFILE` if the name is taken, `EINVAL` if it is none, what
    /// [`Operations::query_device`] and others return, `ENOMEM`. The device is dropped then.
    pub fn register(self, name: link::LinkName<'_>) -> Result<DeviceRef<T>> {
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
        // It is the core's now.
        core::mem::forget(self);
        // SAFETY: It was made for `T`.
        Ok(unsafe { DeviceRef::from_memory(memory) })
    }
}

impl<T: Operations> Drop for NewDevice<T> {
    fn drop(&mut self) {
        // SAFETY: By the invariants the device is ours, and not registered. This calls
        // `dealloc_callback`.
        unsafe { bindings::ib_dealloc_device(self.0.as_ptr().cast()) };
    }
}

/// `ib_device_ops.dealloc_driver`: the last call that the core makes for a device. May sleep.
///
/// # Safety
///
/// To be called by the core alone, once, with a device of `T`.
pub(crate) unsafe extern "C" fn dealloc_callback<T: Operations>(ib: *mut bindings::ib_device) {
    // SAFETY: The core calls with a device of ours, whose data are still there.
    T::dealloc(unsafe { Device::<T>::from_raw(ib) });
    if let Some(ib) = NonNull::new(ib) {
        link::forget(ib);
    }
    let device = ib.cast::<Device<T>>();
    // SAFETY: There is no other reference to the data: the device is not registered any more, and
    // the core makes no further calls. The hold goes last.
    unsafe {
        core::ptr::drop_in_place(&raw mut (*device).data);
        core::ptr::drop_in_place(&raw mut (*device).hold);
    }
}
