// SPDX-License-Identifier: GPL-2.0

//! Network namespaces, and data that goes with each.

use crate::{
    module::Hold,
    net::tunnel::Close, //
};
use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    ops::Deref,
    pin::Pin,
    ptr::{
        self,
        NonNull, //
    }, //
};
use kernel::{
    error::to_result,
    new_mutex,
    prelude::*,
    sync::{
        aref::{
            ARef,
            AlwaysRefCounted, //
        },
        atomic::{
            Atomic,
            Full,
            Release, //
        },
        Arc,
        Mutex, //
    },
    types::Opaque, //
};
use rdma_bindings as bindings;

/// A network namespace, `struct net`.
///
/// A reference ([`ARef`]) keeps it from being removed, so it must be short-lived. Data that lasts
/// as long as a namespace is [`PerNet`] data.
#[repr(transparent)]
pub struct Net(Opaque<bindings::net>);

// SAFETY: A namespace may be used and released from any thread.
unsafe impl Send for Net {}
// SAFETY: Shared access passes the namespace to functions that any number of threads may call at a
// time.
unsafe impl Sync for Net {}

// SAFETY: `get_net` and `put_net` count the users of a namespace, which every namespace has.
unsafe impl AlwaysRefCounted for Net {
    fn inc_ref(&self) {
        // SAFETY: A `Net` is only seen while it has users, or before it is removed.
        unsafe { bindings::get_net(self.as_raw()) };
    }

    /// # Safety
    ///
    /// The caller must own a reference, which it gives up.
    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: The caller gives up a reference.
        unsafe { bindings::put_net(obj.cast().as_ptr()) };
    }
}

impl Net {
    /// Becomes a user of `net`, unless its last one has left.
    ///
    /// # Safety
    ///
    /// `net` must be a namespace that is not freed meanwhile.
    pub(crate) unsafe fn try_hold(net: NonNull<bindings::net>) -> Option<ARef<Self>> {
        // SAFETY: By the safety requirements the namespace is not freed meanwhile.
        let net = NonNull::new(unsafe { bindings::maybe_get_net(net.as_ptr()) })?;
        // SAFETY: The reference was taken just now, and belongs to the result.
        Some(unsafe { ARef::from_raw(net.cast()) })
    }

    pub(crate) fn as_raw(&self) -> *mut bindings::net {
        self.0.get()
    }
}

/// Data of which each network namespace has one.
///
/// It is made when the type is [registered](PerNetRegistration) or the namespace is made. It is
/// dropped when the namespace is removed or the registration ends, after all its [`Tunnel`]s were
/// closed.
///
/// [`Tunnel`]: crate::net::Tunnel
pub trait PerNet: Sized + Send + Sync + 'static {
    /// Makes the data of a namespace. May sleep.
    ///
    /// # Errors
    ///
    /// An error keeps the namespace, or the registration, from being made.
    fn init() -> impl PinInit<Self, Error>;

    /// Notes that the namespace is being removed, or that the registration ends. It is the last
    /// call before drop.
    ///
    /// May sleep. Called with the kernel's lock of namespace registration held. The sockets of all
    /// tunnels of this namespace are closed, and no packet comes from there any more.
    fn exit(&self) {}
}

/// The content of a namespace's slot.
#[pin_data]
struct Slot<T: PerNet> {
    #[pin]
    data: T,
    tunnels: Arc<Tunnels>,
}

/// The tunnels that are open in a namespace.
#[pin_data]
pub(crate) struct Tunnels {
    #[pin]
    open: Mutex<KVec<Arc<dyn Close>>>,
}

impl Tunnels {
    fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                open <- new_mutex!(KVec::new(), "Tunnels::open"),
            }),
            GFP_KERNEL,
        )
    }

    /// Adds `tunnel`, which is closed when the namespace is removed. May sleep.
    pub(crate) fn add(&self, tunnel: Arc<dyn Close>) -> Result {
        self.open.lock().push(tunnel, GFP_KERNEL)?;
        Ok(())
    }

    /// Forgets a tunnel that was closed. May sleep.
    pub(crate) fn remove(&self, tunnel: *const ()) {
        let mut open = self.open.lock();
        let index = open
            .iter()
            .position(|other| ptr::addr_eq(Arc::as_ptr(other), tunnel));
        let removed = index.and_then(|index| open.remove(index).ok());
        drop(open);
        drop(removed);
    }

    fn close_all(&self) {
        let open = core::mem::take(&mut *self.open.lock());
        for tunnel in &open {
            tunnel.close();
        }
        // Dropped here, without the lock.
        drop(open);
    }
}

/// The number under which the kernel keeps the slots. The kernel gave it to the registration.
struct SlotId(UnsafeCell<u32>);

// SAFETY: The kernel writes it while there is no other user: before the first namespace is
// initialised. From then on it is only read.
unsafe impl Sync for SlotId {}

static SLOT_ID: SlotId = SlotId(UnsafeCell::new(0));
static REGISTERED: Atomic<bool> = Atomic::new(false);

/// Gives every network namespace its `T`. Dropping it drops them all.
///
/// # Invariants
///
/// `operations` is registered; it is the only one that uses `SLOT_ID`. The slot of a namespace
/// that has users is null, before `T` was made, or holds a [`Slot<T>`].
pub struct PerNetRegistration<T: PerNet> {
    operations: Pin<KBox<Opaque<bindings::pernet_operations>>>,
    _hold: Hold,
    _p: PhantomData<T>,
}

// SAFETY: It may be unregistered from any thread.
unsafe impl<T: PerNet> Send for PerNetRegistration<T> {}
// SAFETY: The kernel synchronises access to `operations`; `T` is `Sync`.
unsafe impl<T: PerNet> Sync for PerNetRegistration<T> {}

impl<T: PerNet> PerNetRegistration<T> {
    /// Makes a `T` for every existing namespace, and from now on for each new one. Sleeps.
    ///
    /// # Errors
    ///
    /// `EBUSY` when the module has one already; the error of [`PerNet::init`]; `ENOMEM`; `ENODEV`
    /// when the module is being unloaded.
    pub fn new() -> Result<Self> {
        let hold = Hold::new()?;
        if REGISTERED.xchg(true, Full) {
            return Err(EBUSY);
        }
        Self::register(hold).inspect_err(|_| REGISTERED.store(false, Release))
    }

    fn register(hold: Hold) -> Result<Self> {
        let operations = KBox::pin(Opaque::<bindings::pernet_operations>::zeroed(), GFP_KERNEL)?;
        // SAFETY: Zeros are valid for all of it, and nobody else has it yet.
        unsafe {
            let operations = operations.get();
            (*operations).init = Some(Self::init);
            (*operations).pre_exit = Some(Self::pre_exit);
            (*operations).exit = Some(Self::exit);
            (*operations).id = SLOT_ID.0.get();
            (*operations).size = size_of::<*mut Slot<T>>();
        }
        // SAFETY: It is filled in, pinned, and unregistered before it is dropped.
        to_result(unsafe { bindings::register_pernet_subsys(operations.get()) })?;
        // INVARIANT: Registered just now; `REGISTERED` keeps others out.
        Ok(Self {
            operations,
            _hold: hold,
            _p: PhantomData,
        })
    }

    /// Returns the address of a namespace's slot.
    ///
    /// # Safety
    ///
    /// To be called by the callbacks of the registration, or while it exists; `net` must not be
    /// freed meanwhile.
    unsafe fn slot(net: *const bindings::net) -> *mut *mut Slot<T> {
        // SAFETY: The number was written before the callbacks were called the first time, and the
        // kernel allocated room for a pointer under it in every namespace.
        unsafe { bindings::net_generic(net, *SLOT_ID.0.get()) }.cast()
    }

    /// Makes the data of a new namespace.
    ///
    /// # Safety
    ///
    /// Only the kernel may call it, once for each namespace.
    unsafe extern "C" fn init(net: *mut bindings::net) -> kernel::ffi::c_int {
        let slot = KBox::try_pin_init(
            try_pin_init!(Slot {
                data <- T::init(),
                tunnels: Tunnels::new()?,
            }),
            GFP_KERNEL,
        );
        match slot {
            Ok(slot) => {
                // SAFETY: The slot is not moved out of before it is dropped.
                let slot = KBox::into_raw(unsafe { Pin::into_inner_unchecked(slot) });
                // SAFETY: This is a callback, and nobody else has the namespace yet.
                unsafe { *Self::slot(net) = slot };
                0
            }
            Err(error) => error.to_errno(),
        }
    }

    /// Ends the use of a namespace that is being removed.
    ///
    /// # Safety
    ///
    /// Only the kernel may call it, once after `init`, when the namespace has no users any more.
    unsafe extern "C" fn pre_exit(net: *mut bindings::net) {
        // SAFETY: This is a callback. `init` succeeded for this namespace, so there is a slot.
        let slot = unsafe { &**Self::slot(net) };
        slot.tunnels.close_all();
        slot.data.exit();
    }

    /// Drops the data of a namespace that was removed.
    ///
    /// # Safety
    ///
    /// Only the kernel may call it, once after `pre_exit` and a grace period of RCU.
    unsafe extern "C" fn exit(net: *mut bindings::net) {
        // SAFETY: This is a callback, the last one.
        let place = unsafe { Self::slot(net) };
        // SAFETY: It came from `KBox::into_raw` in `init`. The namespace has no user any more, or
        // the registration is being dropped: nobody refers to the slot.
        drop(unsafe { KBox::from_raw(*place) });
        // SAFETY: The slot of a namespace is valid until its last callback returns, which is this
        // one.
        unsafe { *place = ptr::null_mut() };
    }

    /// Returns the data of `net`, or `None` while it is being made. Any context.
    pub fn get<'a>(&'a self, net: &'a Net) -> Option<PerNetRef<'a, T>> {
        // SAFETY: The registration exists, and so does the namespace. The slot is written before
        // the namespace can be found by others, or the registration used.
        let slot = unsafe { (*Self::slot(net.as_raw())).as_ref() }?;
        Some(PerNetRef { net, slot })
    }
}

impl<T: PerNet> Drop for PerNetRegistration<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants it is registered. All references to slots borrow `self`.
        unsafe { bindings::unregister_pernet_subsys(self.operations.get()) };
        REGISTERED.store(false, Release);
    }
}

/// The data of a namespace, which is kept from being removed as long as this exists.
pub struct PerNetRef<'a, T: PerNet> {
    net: &'a Net,
    slot: &'a Slot<T>,
}

impl<'a, T: PerNet> PerNetRef<'a, T> {
    /// Returns the namespace.
    pub fn net(&self) -> &'a Net {
        self.net
    }

    pub(crate) fn tunnels(&self) -> &'a Arc<Tunnels> {
        &self.slot.tunnels
    }
}

impl<T: PerNet> Deref for PerNetRef<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.slot.data
    }
}
