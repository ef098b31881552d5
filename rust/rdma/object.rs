// SPDX-License-Identifier: GPL-2.0

//! The objects of verbs: the core's part and, behind it, the driver's.
//!
//! The core allocates an object zeroed, with the room that the driver requested, and calls the verb
//! that creates it. It frees the object after the verb that destroys it. In between the driver's
//! value exists, and every object dereferences to it.
//!
//! # Examples
//!
//! ```
//! use rdma::{
//!     driver::Driver,
//!     object::Pd, //
//! };
//!
//! /// Returns the driver's number of a protection domain, and the core's number of its device.
//! fn numbers<T: Driver<Pd = u32>>(pd: &Pd<T>) -> (u32, u32) {
//!     (**pd, pd.device().index())
//! }
//! ```

use crate::{
    device::Device,
    driver::Driver,
    mmap::{
        Mapping,
        MappingSlot,
        RingFile, //
    },
    udata::{
        Udata,
        MAX_RINGS, //
    },
    upcall::GateOwner, //
};
use core::{
    mem::MaybeUninit,
    ops::Deref,
    ptr::NonNull, //
};
use kernel::{
    prelude::*,
    types::Opaque, //
};
use rdma_bindings as bindings;

/// The driver's part of an object, behind the core's part.
///
/// The fields are dropped in their order: first those by which others reach the object.
pub(crate) struct Body<D, G = ()> {
    /// Rings that the object's process may map.
    mappings: [MappingSlot; MAX_RINGS],
    /// For an object with upcalls: the gate that stops them once it is destroyed. For a context:
    /// its file for rings.
    gate: G,
    data: D,
}

impl<D, G> Body<D, G> {
    pub(crate) fn new(data: D, gate: G, mappings: [Option<Mapping>; MAX_RINGS]) -> Self {
        Self {
            mappings: mappings.map(MappingSlot::new),
            gate,
            data,
        }
    }
}

macro_rules! object {
    (
        $(#[$meta:meta])*
        $name:ident, $c:ident, $data:ident $(, $gate:ty)?
    ) => {
        $(#[$meta])*
        ///
        /// # Invariants
        ///
        /// `ib` is a valid object of the core's, of a device of `T`; `body` is initialised.
        #[repr(C)]
        pub struct $name<T: Driver> {
            ib: Opaque<bindings::$c>,
            body: MaybeUninit<Body<T::$data $(, $gate)?>>,
        }

        // SAFETY: The core's part may be used by any thread, and the driver's is `Send` and `Sync`.
        unsafe impl<T: Driver> Send for $name<T> {}
        // SAFETY: Shared access reaches fields that the core lets any thread read, and the driver's
        // part, which is `Sync`.
        unsafe impl<T: Driver> Sync for $name<T> {}

        impl<T: Driver> $name<T> {
            /// Bytes of the structure.
            // Not every object is allocated by the core, nor passed to a verb.
            #[allow(dead_code)]
            pub(crate) const SIZE: usize = {
                // The core allocates by `kzalloc`, which aligns no better.
                assert!(core::mem::align_of::<Self>() <= bindings::ARCH_KMALLOC_MINALIGN);
                core::mem::size_of::<Self>()
            };

            /// # Safety
            ///
            /// `ib` must be an object of a device of `T` that was created and is not destroyed for
            /// `'a`.
            #[allow(dead_code)]
            #[inline]
            pub(crate) unsafe fn from_raw<'a>(ib: *mut bindings::$c) -> &'a Self {
                // SAFETY: The core's object is the first field of this, as the caller promises.
                unsafe { &*ib.cast() }
            }

            /// Completes an object that is being created.
            ///
            /// # Safety
            ///
            /// `ib` must be the object that the core has allocated for a device of `T`, and nobody
            /// else may have it yet.
            pub(crate) unsafe fn create(
                ib: *mut bindings::$c,
                body: Body<T::$data $(, $gate)?>,
            ) {
                let place = Self::body_of(ib);
                // SAFETY: The memory has room for all of it, as the core was told `SIZE`.
                unsafe { place.write(body) };
            }

            /// Drops the body that `create` wrote. May sleep.
            ///
            /// # Safety
            ///
            /// `ib` must have been passed to `create`, and there may be no reference to it.
            pub(crate) unsafe fn destroy(ib: *mut bindings::$c) {
                // SAFETY: The body is initialised, and nobody uses it any more.
                unsafe { core::ptr::drop_in_place(Self::body_of(ib)) };
            }

            /// Returns the address of the body of `ib`.
            fn body_of(ib: *mut bindings::$c) -> *mut Body<T::$data $(, $gate)?> {
                ib.cast::<Self>()
                    .wrapping_byte_add(core::mem::offset_of!(Self, body))
                    .cast()
            }

            #[inline]
            fn body(&self) -> &Body<T::$data $(, $gate)?> {
                // SAFETY: By the invariants it is initialised.
                unsafe { self.body.assume_init_ref() }
            }

            #[allow(dead_code)]
            #[inline]
            pub(crate) fn as_raw(&self) -> *mut bindings::$c {
                self.ib.get()
            }

            /// Returns the device that it belongs to.
            #[inline]
            pub fn device(&self) -> &Device<T> {
                // SAFETY: By the invariants the object is valid and of a device of `T`, which
                // cannot be unregistered as long as it has objects.
                unsafe { Device::from_raw((*self.ib.get()).device) }
            }
        }

        impl<T: Driver> Deref for $name<T> {
            type Target = T::$data;

            #[inline]
            fn deref(&self) -> &T::$data {
                &self.body().data
            }
        }
    };
}

object! {
    /// The context of a process that has opened the device.
    Ucontext, ib_ucontext, Ucontext, RingFile
}

impl<T: Driver> Ucontext<T> {
    /// Returns the file that mappings of its rings refer to.
    pub(crate) fn ring_file(&self) -> &RingFile {
        &self.body().gate
    }
}

object! {
    /// A protection domain.
    Pd, ib_pd, Pd
}

object! {
    /// A completion queue.
    Cq, ib_cq, Cq, GateOwner<bindings::ib_cq>
}

object! {
    /// A queue pair.
    Qp, ib_qp, Qp, GateOwner<bindings::ib_qp>
}

object! {
    /// A shared receive queue.
    Srq, ib_srq, Srq, GateOwner<bindings::ib_srq>
}

object! {
    /// An address handle.
    Ah, ib_ah, Ah
}

object! {
    /// A memory region.
    Mr, ib_mr, Mr
}

object! {
    /// A memory window.
    Mw, ib_mw, Mw
}

macro_rules! resized {
    ($($name:ident),*) => {$(
        impl<T: Driver> $name<T> {
            /// Runs `resize`, a verb that shares new rings, and then lets the process map these instead of the
            /// old ones. One such call for an object runs at a time: the core allows several, and the rings of
            /// the last one have to be those that the driver uses. Sleeps.
            pub(crate) fn resize<'a>(
                &self,
                mut udata: Udata<'a>,
                resize: impl FnOnce(&mut Udata<'a>) -> Result,
            ) -> Result {
                let Body { gate, mappings, .. } = self.body();
                gate.resize(|| {
                    resize(&mut udata)?;
                    for (slot, mapping) in mappings.iter().zip(udata.into_mappings()) {
                        if mapping.is_some() {
                            drop(slot.replace(mapping));
                        }
                    }
                    Ok(())
                })
            }
        }
    )*};
}

resized!(Cq, Srq);

impl<T: Driver> Qp<T> {
    /// Returns the protection domain that it belongs to.
    #[inline]
    pub fn pd(&self) -> Option<&Pd<T>> {
        // SAFETY: By the invariants the queue pair is valid; the core keeps its domain alive.
        NonNull::new(unsafe { (*self.as_raw()).pd }).map(|pd| unsafe { Pd::from_raw(pd.as_ptr()) })
    }

    /// Returns its number.
    #[inline]
    pub fn qp_num(&self) -> u32 {
        // SAFETY: By the invariants the queue pair is valid; its number was set by its creation.
        unsafe { (*self.as_raw()).qp_num }
    }
}

impl<T: Driver> Pd<T> {
    /// Returns the context of the process that it belongs to, or `None` if it is the kernel's.
    #[inline]
    pub fn ucontext(&self) -> Option<&Ucontext<T>> {
        // SAFETY: By the invariants the domain is valid; the core sets this before its creation.
        let uobject = NonNull::new(unsafe { (*self.as_raw()).uobject })?;
        // SAFETY: The core keeps the uobject as long as its object, and destroys the context only
        // after all of the context's objects.
        let ucontext = NonNull::new(unsafe { (*uobject.as_ptr()).context })?;
        // SAFETY: The context was created, is one of a device of `T`, and outlives the domain.
        Some(unsafe { Ucontext::from_raw(ucontext.as_ptr()) })
    }
}

macro_rules! owned {
    ($($name:ident),*) => {$(
        impl<T: Driver> $name<T> {
            /// Returns true if a process owns it, and not the kernel.
            #[inline]
            pub fn is_user(&self) -> bool {
                // SAFETY: By the invariants the object is valid; the core sets this before its
                // creation.
                !unsafe { (*self.as_raw()).uobject }.is_null()
            }
        }
    )*};
}

owned!(Cq, Qp, Srq);
