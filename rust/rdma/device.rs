// SPDX-License-Identifier: GPL-2.0

//! RDMA devices.
//!
//! A device is [made](crate::link::NewDevice), registered, and unregistered: by its driver, by a
//! user (`rdma link delete`), by another driver of the same id that is unloaded, or when this
//! module is unloaded. The types tell its state:
//!
//! - [`NewDevice`](crate::link::NewDevice): not registered yet, nobody else knows it;
//! - [`Registered`]: a hold on a registered device, which cannot be unregistered meanwhile;
//! - [`DeviceRef`]: a reference that keeps the memory of a device, but not its registration. It may
//!   be upgraded to a [`Registered`] as long as the device is registered.
//!
//! Verbs and [`Registered`] give access to a `&Device<T>`. The driver's data, `T::Device`, are
//! dropped once the device is unregistered and no verb runs any more.

pub mod attr;

use crate::{
    driver::Driver,
    module::Hold, //
};
use core::{
    marker::PhantomData,
    ops::Deref,
    ptr::NonNull, //
};
use kernel::types::Opaque;
use rdma_bindings as bindings;

/// An RDMA device with the driver's data.
///
/// # Invariants
///
/// `ib` is a device of the core that `NewDevice::new` set up for `T`. Its memory is alive. `data`
/// is initialised as long as there is a reference to the whole.
#[repr(C)]
pub struct Device<T: Driver> {
    ib: Opaque<bindings::ib_device>,
    /// Keeps the module's code in place while the core may call it.
    hold: Hold,
    data: T::Device,
}

// SAFETY: The core's device may be used by any thread, and the driver's data are `Send` and `Sync`.
unsafe impl<T: Driver> Send for Device<T> {}
// SAFETY: Shared access reaches fields that the core lets any thread read, and `T::Device`, which
// is `Sync`.
unsafe impl<T: Driver> Sync for Device<T> {}

impl<T: Driver> Device<T> {
    /// Bytes of the structure.
    pub(crate) const SIZE: usize = {
        // The core allocates by `kzalloc`, which aligns no better.
        assert!(core::mem::align_of::<Self>() <= bindings::ARCH_KMALLOC_MINALIGN);
        core::mem::size_of::<Self>()
    };

    /// Completes a device that is being made.
    ///
    /// # Safety
    ///
    /// `ib` must be a device that the core has allocated with room for [`SIZE`](Self::SIZE), and
    /// nobody else may have it yet.
    pub(crate) unsafe fn create(ib: NonNull<bindings::ib_device>, hold: Hold, data: T::Device) {
        let device = ib.cast::<Self>().as_ptr();
        // SAFETY: The memory is that of a `Device<T>`, of which the core has set up the first
        // field.
        unsafe {
            (&raw mut (*device).hold).write(hold);
            (&raw mut (*device).data).write(data);
        }
    }

    /// Drops the fields that `create` wrote. May sleep.
    ///
    /// # Safety
    ///
    /// `ib` must have been passed to `create`, and there may be no reference to it.
    pub(crate) unsafe fn destroy(ib: NonNull<bindings::ib_device>) {
        let device = ib.cast::<Self>().as_ptr();
        // SAFETY: `create` wrote both fields, and by the safety requirements there is no reference
        // to them. The hold is dropped last.
        unsafe {
            core::ptr::drop_in_place(&raw mut (*device).data);
            core::ptr::drop_in_place(&raw mut (*device).hold);
        }
    }

    /// # Safety
    ///
    /// `NewDevice::new` must have made `ib` for `T`, and its data must not be dropped for `'a`.
    /// That holds for the device of a verb, and for one that is held registered.
    #[inline]
    pub(crate) unsafe fn from_raw<'a>(ib: *mut bindings::ib_device) -> &'a Self {
        // SAFETY: The device is the first field of a `Device<T>`, as the caller promises.
        unsafe { &*ib.cast() }
    }

    /// Returns the core's device.
    #[inline]
    pub(crate) fn as_raw(&self) -> *mut bindings::ib_device {
        self.ib.get()
    }

    /// Returns the driver's data.
    #[inline]
    pub fn data(&self) -> &T::Device {
        &self.data
    }

    /// Returns a number that no other registered device of the system has.
    pub fn index(&self) -> u32 {
        // SAFETY: By the invariants the device is valid; the index is set before it is registered.
        unsafe { (*self.as_raw()).index }
    }

    /// Returns its node GUID, in network order.
    pub fn node_guid(&self) -> [u8; 8] {
        // SAFETY: By the invariants the device is valid, and its GUID doesn't change.
        unsafe { (*self.as_raw()).node_guid }.to_ne_bytes()
    }

    /// Returns the key by which work requests of the kernel name its own memory.
    pub fn local_dma_lkey(&self) -> Option<u32> {
        // SAFETY: By the invariants the device is valid, and the key doesn't change.
        let raw = unsafe { (*self.as_raw()).local_dma_lkey };
        (raw != 0).then_some(raw)
    }

    /// Returns how many completion vectors it has, at least one.
    pub fn comp_vectors(&self) -> u32 {
        // SAFETY: By the invariants the device is valid, and the number doesn't change.
        u32::try_from(unsafe { (*self.as_raw()).num_comp_vectors }).unwrap_or(1)
    }

    /// Returns a reference that outlives the caller's.
    pub fn to_ref(&self) -> DeviceRef<T> {
        // INVARIANT: `memory` owns a reference to the memory of a device of `T`.
        DeviceRef {
            memory: DeviceMemory::of(self),
            _operations: PhantomData,
        }
    }
}

impl<T: Driver> Deref for Device<T> {
    type Target = T::Device;

    #[inline]
    fn deref(&self) -> &T::Device {
        &self.data
    }
}

/// An event of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortEvent {
    /// It carries packets now.
    Active,
    /// It carries none any more.
    Error,
    /// It became faster or slower.
    SpeedChange,
}

/// A reference to the memory of a device of any driver.
///
/// # Invariants
///
/// It owns a reference to the core's device.
pub(crate) struct DeviceMemory(NonNull<bindings::ib_device>);

// SAFETY: References may be dropped by any thread.
unsafe impl Send for DeviceMemory {}
// SAFETY: Shared access only counts references, which any number of threads may do at a time.
unsafe impl Sync for DeviceMemory {}

impl DeviceMemory {
    /// Takes a reference of its own.
    pub(crate) fn of<T: Driver>(device: &Device<T>) -> Self {
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

    /// Holds the device registered, if it still is. Returns true if so.
    pub(crate) fn try_get(&self) -> bool {
        // SAFETY: By the invariants the memory is alive.
        unsafe { bindings::ib_device_try_get(self.0.as_ptr()) }
    }

    /// # Safety
    ///
    /// `ib` must be a valid device.
    unsafe fn device(ib: NonNull<bindings::ib_device>) -> *mut bindings::device {
        // SAFETY: The caller passes a valid device. Only the address of a field is taken.
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
/// `memory` was made by `NewDevice::new` for `T`.
///
/// # Examples
///
/// ```
/// use rdma::{
///     device::{
///         Device,
///         DeviceRef,
///         PortEvent, //
///     },
///     driver::Driver, //
/// };
///
/// /// Reports that the link is up, if the device is still registered.
/// fn link_is_up<T: Driver>(device: &DeviceRef<T>) {
///     if let Some(device) = device.try_get() {
///         device.dispatch_port_event(1, PortEvent::Active);
///     }
/// }
/// ```
pub struct DeviceRef<T: Driver> {
    memory: DeviceMemory,
    _operations: PhantomData<Device<T>>,
}

impl<T: Driver> Clone for DeviceRef<T> {
    fn clone(&self) -> Self {
        Self {
            memory: self.memory.clone(),
            _operations: PhantomData,
        }
    }
}

impl<T: Driver> DeviceRef<T> {
    /// # Safety
    ///
    /// `memory` must be of a device that was made by `NewDevice::new` for `T`.
    pub(crate) unsafe fn from_memory(memory: DeviceMemory) -> Self {
        // INVARIANT: The caller promises it.
        Self {
            memory,
            _operations: PhantomData,
        }
    }

    /// Returns true if it is that device.
    pub fn is(&self, device: &Device<T>) -> bool {
        self.memory.as_ptr() == device.as_raw()
    }

    /// Holds the device registered, if it is. Any context.
    pub fn try_get(&self) -> Option<Registered<T>> {
        // INVARIANT: A hold was just taken.
        self.memory.try_get().then(|| Registered(self.clone()))
    }

    /// Unregisters the device, or waits until a concurrent call has done so.
    ///
    /// Does nothing if it is not registered. May sleep, and waits until no [`Registered`] of it is left
    /// and no verb runs. It must not be called from a verb, while holding a [`Registered`] of it, or
    /// under the RTNL.
    pub fn unregister(&self) {
        // SAFETY: The memory is alive. Several threads may call the function at a time.
        unsafe { bindings::ib_unregister_device(self.memory.as_ptr()) };
    }
}

/// A device that is registered, and stays so for as long as this exists.
///
/// # Invariants
///
/// It owns a hold (`ib_device_try_get`) on the device.
pub struct Registered<T: Driver>(DeviceRef<T>);

impl<T: Driver> Registered<T> {
    /// Queues a work item of the core that unregisters the device. Any context, also under RTNL.
    /// The unregistration cannot end before this hold is dropped.
    pub fn unregister_queued(&self) {
        // SAFETY: By the invariants the device is registered.
        unsafe { bindings::ib_unregister_device_queued(self.as_raw()) };
    }

    /// Reports to all users that `port` became active, failed, or changed its speed. Any context.
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
        // SAFETY: The event is valid, and by the invariants the device is registered.
        unsafe { bindings::ib_dispatch_event(&raw const raw) };
    }

    /// Unregisters the device; see [`DeviceRef::unregister`].
    pub fn unregister(self) {
        let device = self.0.clone();
        drop(self);
        device.unregister();
    }

    /// Returns a reference without the hold.
    pub fn device_ref(&self) -> &DeviceRef<T> {
        &self.0
    }
}

impl<T: Driver> Deref for Registered<T> {
    type Target = Device<T>;

    fn deref(&self) -> &Device<T> {
        // SAFETY: By the invariants the device is registered, so that its data are there.
        unsafe { Device::from_raw(self.0.memory.as_ptr()) }
    }
}

impl<T: Driver> Drop for Registered<T> {
    fn drop(&mut self) {
        // SAFETY: By the invariants there is a hold to give back.
        unsafe { bindings::ib_device_put(self.0.memory.as_ptr()) };
    }
}

/// The identity of a device.
#[derive(Clone, Copy, Debug)]
pub struct NodeAttr {
    /// Node GUID, in network order. Should be the same whenever the device is made again.
    pub node_guid: [u8; 8],
    /// Description of the node, until an administrator writes another one; 64 bytes count.
    pub node_desc: &'static [u8],
    /// Completion vectors, at least one.
    pub comp_vectors: u32,
    /// The key, not 0, by which work requests of the kernel name its own memory. Their addresses
    /// are kernel addresses, because no other device is behind this one to map them.
    pub local_dma_lkey: u32,
}
