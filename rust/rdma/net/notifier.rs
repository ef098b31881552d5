// SPDX-License-Identifier: GPL-2.0

//! Events of netdevs, and references that do not delay their removal.

use crate::{
    module::Hold,
    net::{
        pool::Buffers,
        route::Routes,
        rtnl::Rtnl,
        NetDevice, //
    },
    new_bh_spinlock,
    sync::{
        BhSpinLock,
        Global,
        GlobalGuard, //
    }, //
};
use core::{
    marker::PhantomPinned,
    pin::Pin, //
};
use kernel::{
    error::to_result,
    new_mutex,
    prelude::*,
    sync::{
        aref::ARef,
        Arc,
        Mutex, //
    },
    types::Opaque, //
};
use rdma_bindings as bindings;

/// An event of a netdev. Other events are not reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetdevEvent {
    /// It is known to its namespace.
    Register,
    /// It was set up.
    Up,
    /// It will be set down.
    GoingDown,
    /// It was set down.
    Down,
    /// Its carrier or flags changed.
    Change,
    /// Its MTU changed.
    ChangeMtu,
    /// Its hardware address changed.
    ChangeAddress,
    /// Its name changed.
    ChangeName,
    /// It is removed from the kernel, or moves to another namespace.
    Unregister,
}

impl NetdevEvent {
    fn from_raw(event: usize) -> Option<Self> {
        match u32::try_from(event).ok()? {
            bindings::netdev_cmd_NETDEV_REGISTER => Some(Self::Register),
            bindings::netdev_cmd_NETDEV_UP => Some(Self::Up),
            bindings::netdev_cmd_NETDEV_GOING_DOWN => Some(Self::GoingDown),
            bindings::netdev_cmd_NETDEV_DOWN => Some(Self::Down),
            bindings::netdev_cmd_NETDEV_CHANGE => Some(Self::Change),
            bindings::netdev_cmd_NETDEV_CHANGEMTU => Some(Self::ChangeMtu),
            bindings::netdev_cmd_NETDEV_CHANGEADDR => Some(Self::ChangeAddress),
            bindings::netdev_cmd_NETDEV_CHANGENAME => Some(Self::ChangeName),
            bindings::netdev_cmd_NETDEV_UNREGISTER => Some(Self::Unregister),
            _ => None,
        }
    }
}

/// A listener for events of netdevs.
pub trait NetdevEvents: Send + Sync + 'static {
    /// Handles `event` of `dev`. Process context, with the RTNL held: may sleep, must not take the
    /// RTNL.
    fn event(&self, event: NetdevEvent, dev: &NetDevice);
}

/// Reports the events of all netdevs, in all namespaces, until it is dropped.
///
/// The registration reports `Register` and `Up` for existing netdevs. The drop reports `GoingDown`,
/// `Down` and `Unregister` for those that still exist. Dropping it takes the RTNL and sleeps.
///
/// As long as there is one, [`NetDeviceSlot`]s and [`Path`](crate::net::Path)s can be made. The hardware type of a
/// netdev with a [`DefaultGid`](crate::net::DefaultGid) does not change.
///
/// # Invariants
///
/// `block` is registered with the kernel.
pub struct NetdevNotifier<H: NetdevEvents> {
    // Dropped in this order, after the block was unregistered.
    block: Pin<KBox<Block<H>>>,
    _watched: GlobalGuard<Watched>,
    _hold: Hold,
}

#[pin_data]
struct Block<H: NetdevEvents> {
    #[pin]
    block: Opaque<bindings::notifier_block>,
    handler: H,
    watched: Arc<Watched>,
    #[pin]
    _pin: PhantomPinned,
}

// SAFETY: A notifier block may be unregistered from any thread.
unsafe impl<H: NetdevEvents> Send for Block<H> {}
// SAFETY: The kernel alone uses the block, and synchronises that. The rest is `Sync`.
unsafe impl<H: NetdevEvents> Sync for Block<H> {}

impl<H: NetdevEvents> NetdevNotifier<H> {
    /// Starts reporting to `handler`. Takes the RTNL; sleeps.
    ///
    /// # Errors
    ///
    /// `EBUSY` when the module has one already, `ENOMEM`, `ENODEV` when it is being unloaded.
    pub fn register(handler: H) -> Result<Self> {
        let hold = Hold::new()?;
        let watched = Watched::new()?;
        let guard = WATCHED.install(watched.clone())?;
        let block = KBox::pin_init(Block::new(handler, watched), GFP_KERNEL)?;
        // SAFETY: The block is filled in and pinned; it is unregistered before it is dropped.
        to_result(unsafe { bindings::register_netdevice_notifier(block.block.get()) })?;
        // INVARIANT: Registered just now.
        Ok(Self {
            block,
            _watched: guard,
            _hold: hold,
        })
    }
}

impl<H: NetdevEvents> Drop for NetdevNotifier<H> {
    fn drop(&mut self) {
        // It fails only for blocks that are not registered.
        //
        // SAFETY: By the type invariants the block is registered.
        unsafe { bindings::unregister_netdevice_notifier(self.block.block.get()) };
    }
}

impl<H: NetdevEvents> Block<H> {
    fn new(handler: H, watched: Arc<Watched>) -> impl PinInit<Self> {
        pin_init!(Self {
            block: Opaque::new(bindings::notifier_block {
                notifier_call: Some(Self::call),
                next: core::ptr::null_mut(),
                priority: 0,
            }),
            handler,
            watched,
            _pin: PhantomPinned,
        })
    }

    /// # Safety
    ///
    /// Only the kernel may call it, on a block that was registered.
    unsafe extern "C" fn call(
        block: *mut bindings::notifier_block,
        event: usize,
        info: *mut kernel::ffi::c_void,
    ) -> kernel::ffi::c_int {
        // CAST: The constant is 1.
        const OK: kernel::ffi::c_int = bindings::NOTIFY_OK as kernel::ffi::c_int;
        const TYPE_CHANGE: usize = bindings::netdev_cmd_NETDEV_PRE_TYPE_CHANGE as usize;

        // SAFETY: The kernel passes the block that was registered, which is the field of a `Block`
        // that is alive until it is unregistered.
        let this = unsafe {
            &*kernel::container_of!(Opaque::cast_from(block).cast_mut(), Self, block).cast_const()
        };
        // SAFETY: The kernel passes the information of a netdev event, with a valid netdev.
        let dev =
            unsafe { NetDevice::from_raw(bindings::netdev_notifier_info_to_dev(info.cast())) };
        if event == TYPE_CHANGE && this.watched.has_guests(dev) {
            // SAFETY: The function takes any error number.
            return unsafe { bindings::notifier_from_errno(EBUSY.to_errno()) };
        }
        let Some(event) = NetdevEvent::from_raw(event) else {
            return OK;
        };
        this.handler.event(event, dev);
        match event {
            NetdevEvent::ChangeAddress => this.watched.address_changed(dev),
            NetdevEvent::Unregister => this.watched.forget(dev),
            _ => {}
        }
        OK
    }
}

/// The table by which the notifier finds the slots.
static WATCHED: Global<Watched> = Global::new();

/// The netdevs that slots refer to, and the buffers that the module's paths share.
#[pin_data]
struct Watched {
    buffers: Arc<Buffers>,
    /// One for each netdev. Taken with the RTNL held, or without.
    #[pin]
    places: Mutex<KVec<Arc<Place>>>,
}

/// An object that a netdev calls, and that must leave the netdev before its removal. As long as a netdev has
/// a guest, its hardware type does not change.
pub(super) trait Guest: Send + Sync {
    /// Notes that the hardware address changed. Sleeps; the RTNL is held.
    fn address_changed(&self, dev: &NetDevice);

    /// Leaves `dev` permanently, if it has not left. Sleeps; the RTNL may be held.
    fn leave(&self, dev: &NetDevice);
}

/// A reference to a netdev, until its removal.
#[pin_data]
struct Place {
    /// Used only for comparisons.
    address: usize,
    #[pin]
    dev: BhSpinLock<Option<ARef<NetDevice>>>,
    /// `None` once the netdev is being removed.
    #[pin]
    guests: Mutex<Option<KVec<Arc<dyn Guest>>>>,
    routes: Arc<Routes>,
}

impl Place {
    fn new(dev: &NetDevice) -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                address: dev.as_raw() as usize,
                dev <- new_bh_spinlock!(Some(dev.hold()), "NetDeviceSlot::dev"),
                guests <- new_mutex!(Some(KVec::new()), "NetDeviceSlot::guests"),
                routes: Arc::pin_init(Routes::new(), GFP_KERNEL)?,
            }),
            GFP_KERNEL,
        )
    }

    /// Returns true if it is the place of `dev`.
    fn is_of(&self, dev: &NetDevice) -> bool {
        self.address == dev.as_raw() as usize
    }
}

impl Watched {
    fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                buffers: Buffers::new()?,
                places <- new_mutex!(KVec::new(), "NetDeviceSlot::places"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the place of `dev`. May sleep.
    fn place(&self, dev: &NetDevice) -> Result<Arc<Place>> {
        let mut places = self.places.lock();
        // A netdev that is removed, or moves to another namespace, leaves this state before the notifier
        // forgets it. So a place that is added here is either refused or forgotten.
        if !dev.is_staying() {
            return Err(ENODEV);
        }
        if let Some(place) = places.iter().find(|place| place.is_of(dev)) {
            return Ok(place.clone());
        }
        let place = Place::new(dev)?;
        places.push(place.clone(), GFP_KERNEL)?;
        Ok(place)
    }

    /// Returns the place of `dev`, if it has one. Sleeps.
    fn find(&self, dev: &NetDevice) -> Option<Arc<Place>> {
        let places = self.places.lock();
        places.iter().find(|place| place.is_of(dev)).cloned()
    }

    /// Tells the guests of `dev` that its address changed.
    fn address_changed(&self, dev: &NetDevice) {
        if let Some(place) = self.find(dev) {
            for guest in place.guests.lock().iter().flatten() {
                guest.address_changed(dev);
            }
        }
    }

    /// Returns true if `dev` has guests: its hardware addresses must stay as long as they are. Sleeps.
    fn has_guests(&self, dev: &NetDevice) -> bool {
        self.find(dev)
            .is_some_and(|place| place.guests.lock().iter().flatten().next().is_some())
    }

    /// Empties the place of `dev`.
    fn forget(&self, dev: &NetDevice) {
        let place = {
            let mut places = self.places.lock();
            let index = places.iter().position(|place| place.is_of(dev));
            index.and_then(|index| places.remove(index).ok())
        };
        if let Some(place) = place {
            // A guest that leaves by itself meanwhile still finds the netdev.
            let guests = place.guests.lock().take();
            for guest in guests.iter().flatten() {
                guest.leave(dev);
            }
            let dev = place.dev.lock().take();
            // From here on no more are found. The namespace, to which they belong, may be freed once
            // the netdev has left it.
            place.routes.end();
            drop(dev);
        }
    }
}

/// Returns the buffers for frames.
///
/// # Errors
///
/// `ENODEV` when there is no [`NetdevNotifier`].
pub(super) fn buffers() -> Result<Arc<Buffers>> {
    Ok(WATCHED.get().ok_or(ENODEV)?.buffers.clone())
}

/// A reference to a netdev that does not delay its removal. It is emptied when the netdev is
/// unregistered, right after [`NetdevEvents::event`] was called for that.
#[derive(Clone)]
pub struct NetDeviceSlot(Arc<Place>);

impl NetDeviceSlot {
    /// Creates a slot that refers to `dev`. May sleep.
    ///
    /// # Errors
    ///
    /// `ENODEV` when `dev` is being unregistered already, or no [`NetdevNotifier`] is there;
    /// `ENOMEM`.
    pub fn new(dev: &NetDevice) -> Result<Self> {
        let watched = WATCHED.get().ok_or(ENODEV)?;
        Ok(Self(watched.place(dev)?))
    }

    /// Returns the netdev, if it still exists. Process and softirq context.
    ///
    /// The result should be dropped soon.
    pub fn get(&self) -> Option<ARef<NetDevice>> {
        self.0.dev.lock().clone()
    }

    /// Returns the routes out of the netdev that are kept.
    pub(super) fn routes(&self) -> &Arc<Routes> {
        &self.0.routes
    }

    /// Adds `guest`, which leaves when the netdev is removed. Sleeps, and takes the RTNL.
    ///
    /// # Errors
    ///
    /// `ENODEV` when the netdev is being removed already; `ENOMEM`.
    pub(super) fn add_guest(&self, guest: Arc<dyn Guest>) -> Result {
        // The kernel holds the lock while a netdev changes its type: that is over, or it is refused from now on.
        let _rtnl = Rtnl::lock();
        match &mut *self.0.guests.lock() {
            Some(guests) => Ok(guests.push(guest, GFP_KERNEL)?),
            None => Err(ENODEV),
        }
    }

    /// Removes the guest at `guest`, which has left. May sleep.
    pub(super) fn remove_guest(&self, guest: *const ()) {
        let mut place = self.0.guests.lock();
        let removed = (*place).as_mut().and_then(|guests| {
            let index = guests
                .iter()
                .position(|other| core::ptr::addr_eq(Arc::as_ptr(other), guest))?;
            guests.remove(index).ok()
        });
        drop(place);
        drop(removed);
    }
}
