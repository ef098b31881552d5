// SPDX-License-Identifier: GPL-2.0

//! The driver that is registered, and its devices.
//!
//! A list keeps the devices. By it the driver finds those over a netdev, and the module is unloaded
//! safely. `ib_unregister_driver` of the core cannot serve that: it selects devices by their driver
//! id, and `rdma_rxe` has the same id.

use crate::{
    device::DeviceMemory,
    sync::{
        Global,
        GlobalGuard, //
    }, //
};
use core::{
    any::TypeId,
    ptr::NonNull, //
};
use kernel::{
    prelude::*,
    sync::{
        new_mutex,
        Arc,
        Mutex, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
    types::Opaque, //
};
use rdma_bindings as bindings;

/// The driver's registration and its devices.
///
/// # Invariants
///
/// All devices of `devices` were made for the driver whose type is `driver`.
#[pin_data]
pub(crate) struct Registry {
    ops: Opaque<bindings::rdma_link_ops>,
    module: *mut bindings::module,
    driver: TypeId,
    #[pin]
    devices: Mutex<Devices>,
}

// SAFETY: The module outlives the registry; the core guards its own part of `ops`.
unsafe impl Send for Registry {}
// SAFETY: Shared access to `devices` is under its lock; the core guards its own part of `ops`.
unsafe impl Sync for Registry {}

struct Devices {
    /// In the order in which they were added, so by number.
    entries: KVec<Entry>,
    last_number: u64,
    closed: bool,
}

struct Entry {
    number: u64,
    device: DeviceMemory,
}

static REGISTRY: Global<Registry> = Global::new();

impl Registry {
    /// Registers the driver `T`, which is `module`, until the guard is dropped. May sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if there is a registration already, `ENOMEM`.
    pub(crate) fn install<T: 'static>(
        ops: bindings::rdma_link_ops,
        module: &'static ThisModule,
    ) -> Result<(Arc<Self>, GlobalGuard<Self>)> {
        // INVARIANT: There are no devices yet.
        let registry = Arc::pin_init(
            try_pin_init!(Self {
                ops: Opaque::new(ops),
                module: module.as_ptr(),
                driver: TypeId::of::<T>(),
                devices <- new_mutex!(Devices {
                    entries: KVec::new(),
                    last_number: 0,
                    closed: false,
                }, "rdma::Registry::devices"),
            }? Error),
            GFP_KERNEL,
        )?;
        let global = REGISTRY.install(registry.clone())?;
        Ok((registry, global))
    }

    /// Returns the registration of the driver `T`.
    ///
    /// # Errors
    ///
    /// `ENODEV` if there is none.
    pub(crate) fn of<T: 'static>() -> Result<Arc<Self>> {
        REGISTRY
            .get()
            .filter(|registry| registry.driver == TypeId::of::<T>())
            .ok_or(ENODEV)
    }

    /// Returns the module of the driver.
    pub(crate) fn module(&self) -> *mut bindings::module {
        self.module
    }

    /// Returns the link type that devices refer to.
    pub(crate) fn ops(&self) -> *mut bindings::rdma_link_ops {
        self.ops.get()
    }

    /// Adds a device of the registered driver's. May sleep.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the driver is being unregistered, `ENOMEM`.
    pub(crate) fn add(&self, device: DeviceMemory) -> Result {
        let mut devices = self.devices.lock();
        if devices.closed {
            return Err(ENODEV);
        }
        let number = devices.last_number.wrapping_add(1);
        // INVARIANT: The caller adds devices of the registered driver.
        devices.entries.push(Entry { number, device }, GFP_KERNEL)?;
        devices.last_number = number;
        Ok(())
    }

    /// Removes a device, if it is there. May sleep.
    pub(crate) fn remove(&self, device: NonNull<bindings::ib_device>) {
        self.devices
            .lock()
            .entries
            .retain(|entry| entry.device.as_ptr() != device.as_ptr());
    }

    /// Returns the first device that was added after the one with `number`, and its number.
    pub(crate) fn after(&self, number: u64) -> Option<(u64, DeviceMemory)> {
        self.devices
            .lock()
            .entries
            .iter()
            .find(|entry| entry.number > number)
            .map(|entry| (entry.number, entry.device.clone()))
    }

    /// Unregisters all devices, and refuses new ones. May sleep.
    pub(crate) fn unregister_all(&self) {
        self.devices.lock().closed = true;
        while let Some((_, device)) = self.after(0) {
            // SAFETY: The device is valid, and other threads may call the function, too. When it
            // returns, the device is unregistered, and `dealloc_driver` has removed it from the
            // list.
            unsafe { bindings::ib_unregister_device(device.as_ptr()) };
            if self
                .after(0)
                .is_some_and(|(_, next)| next.as_ptr() == device.as_ptr())
            {
                // It is being registered at this moment.
                fsleep(Delta::from_millis(1));
            }
        }
    }
}

/// Removes `device` from the list of the registered driver. May sleep.
pub(crate) fn forget(device: NonNull<bindings::ib_device>) {
    if let Some(registry) = REGISTRY.get() {
        registry.remove(device);
    }
}
