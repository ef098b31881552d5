// SPDX-License-Identifier: GPL-2.0

//! Links: devices that a user makes and deletes by `rdma link`.
//!
//! One driver registers a link type for as long as its module is loaded, and may stand in for another
//! driver's.

mod new_device;
mod stand_in;

pub use new_device::NewDevice;
pub use stand_in::StandIn;

use crate::{
    device::{
        Device,
        DeviceRef,
        Registered, //
    },
    module::Hold,
    net::NetDevice,
    ops::Operations,
    registry::Registry,
    sync::GlobalGuard, //
};
use core::marker::PhantomData;
use kernel::{
    ffi::{
        c_char,
        c_int, //
    },
    prelude::*,
    sync::Arc, //
};
use rdma_bindings as bindings;

/// The name that a user gives to a device.
///
/// Its methods are compiled here, not in the caller. The compiler cannot rule out a panic in the
/// arithmetic of C strings, and a driver may need code without panics.
#[derive(Clone, Copy)]
pub struct LinkName<'a>(&'a CStr);

impl<'a> LinkName<'a> {
    /// # Safety
    ///
    /// `name` must be a string that is valid for `'a`.
    #[inline(never)]
    unsafe fn from_raw(name: *const c_char) -> Self {
        // SAFETY: By the safety requirements the string is valid for `'a`.
        Self(unsafe { CStr::from_char_ptr(name) })
    }

    /// Returns its bytes, without the 0 at the end.
    #[inline(never)]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0.to_bytes()
    }

    fn as_cstr(&self) -> &'a CStr {
        self.0
    }
}

/// The requests of users.
pub trait Link: Operations {
    /// The link type, as in `rdma link add … type …`. The module should have the alias
    /// `rdma-link-<type>`.
    const TYPE: &'static CStr;

    /// Creates a device of that name over `netdev`, on the request of a user. May sleep. RTNL is
    /// not held, so the netdev may be in removal.
    fn newlink(name: LinkName<'_>, netdev: &NetDevice) -> Result;

    /// Notes that a user deletes `device`, which is unregistered next. May sleep.
    fn dellink(device: &Device<Self>) {
        let _ = device;
    }
}

/// Calls `f` for each registered device of the driver `T`, held registered. May sleep.
///
/// Devices that are added meanwhile may or may not be among them. `f` must not unregister a device
/// other than by [`Registered::unregister_queued`].
pub fn for_each_device<T: Operations>(mut f: impl FnMut(&Registered<T>)) {
    let Ok(registry) = Registry::of::<T>() else {
        return;
    };
    let mut last = 0;
    while let Some((number, device)) = registry.after(last) {
        last = number;
        // SAFETY: By the registry's invariants the device was made for `T`.
        let device = unsafe { DeviceRef::<T>::from_memory(device) };
        if let Some(device) = device.try_get() {
            f(&device);
        }
    }
}

/// The registration of a driver's link type.
///
/// Dropping it refuses further links, unregisters all devices of the driver, even if they are in use,
/// and waits until that is done. It may sleep, and the RTNL must not be held.
///
/// # Examples
///
/// ```
/// use rdma::{
///     link::{
///         Link,
///         LinkRegistration, //
///     },
///     module::Unload, //
/// };
///
/// struct Module<T: Link> {
///     links: LinkRegistration<T>,
///     // The last field, so that it is dropped after all else.
///     unload: Unload,
/// }
///
/// fn init<T: Link>(module: &'static ThisModule) -> Result<Module<T>> {
///     let unload = Unload::new()?;
///     Ok(Module {
///         links: LinkRegistration::register(module)?,
///         unload,
///     })
/// }
/// ```
pub struct LinkRegistration<T: Link> {
    registry: Arc<Registry>,
    _global: GlobalGuard<Registry>,
    _driver: PhantomData<T>,
    // The last field, so that it is given back after all else.
    _hold: Hold,
}

impl<T: Link> LinkRegistration<T> {
    /// Registers the link type of the driver `T`, which is `module`. May sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if there is a registration already; `ENOMEM`; `ENODEV` when the module has no
    /// [`Unload`](crate::module::Unload), or is being unloaded.
    pub fn register(module: &'static ThisModule) -> Result<Self> {
        let hold = Hold::new()?;
        // SAFETY: A zeroed `rdma_link_ops` is a valid one.
        let mut ops: bindings::rdma_link_ops = unsafe { core::mem::zeroed() };
        ops.type_ = T::TYPE.as_char_ptr();
        ops.newlink = Some(newlink_callback::<T>);
        ops.dellink = Some(dellink_callback::<T>);
        let (registry, global) = Registry::install::<T>(ops, module)?;
        // SAFETY: The operations stay in place until they are unregistered by `drop`.
        unsafe { bindings::rdma_link_register(registry.ops()) };
        Ok(Self {
            registry,
            _global: global,
            _driver: PhantomData,
            _hold: hold,
        })
    }
}

impl<T: Link> Drop for LinkRegistration<T> {
    fn drop(&mut self) {
        // SAFETY: They were registered by `register`. This waits for `newlink` to return.
        unsafe { bindings::rdma_link_unregister(self.registry.ops()) };
        self.registry.unregister_all();
    }
}

/// # Safety
///
/// Only the core may call it, with a name and a netdev that it holds.
unsafe extern "C" fn newlink_callback<T: Link>(
    name: *const c_char,
    netdev: *mut bindings::net_device,
) -> c_int {
    // SAFETY: The core passes a string.
    let name = unsafe { LinkName::from_raw(name) };
    // SAFETY: The core holds the netdev during the call.
    let netdev = unsafe { NetDevice::from_raw(netdev) };
    match T::newlink(name, netdev) {
        Ok(()) => 0,
        Err(error) => error.to_errno(),
    }
}

/// # Safety
///
/// Only the core may call it, with a registered device whose link type is this driver's.
unsafe extern "C" fn dellink_callback<T: Link>(ib: *mut bindings::ib_device) -> c_int {
    // SAFETY: The core holds the device registered, and it is one of `T`, as `NewDevice::new` gives
    // the link type to no others.
    T::dellink(unsafe { Device::<T>::from_raw(ib) });
    // The core does not expect a failure: it would keep its hold on the device for ever.
    0
}
