// SPDX-License-Identifier: GPL-2.0

//! The objects of verbs: the core's part and, behind it, the driver's.
//!
//! The core allocates an object zeroed, with the room that the driver asked for, calls the verb
//! that creates it, and frees it after the verb that destroys it. In between the driver's value is
//! there, and every object dereferences to it.

use core::mem::MaybeUninit;
use core::ops::Deref;
use core::ptr::NonNull;

use kernel::types::Opaque;

use rdma_bindings as bindings;
use roce::num::Qpn;

use crate::device::Device;
use crate::driver::Driver;
use crate::mmap::{Mapping, MappingSlot, RingFile};
use crate::udata::MAX_RINGS;
use crate::upcall::GateOwner;

/// What stands behind the core's part of an object.
///
/// The order of its fields is the order in which they are dropped: first the ways in.
pub(crate) struct Body<D, G = ()> {
    /// Rings that the object's process may map.
    mappings: [MappingSlot; MAX_RINGS],
    /// Of an object with upcalls: what keeps them from it once it is gone. Of a context: its file for
    /// rings.
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
        // SAFETY: As above.
        unsafe impl<T: Driver> Sync for $name<T> {}

        impl<T: Driver> $name<T> {
            /// Bytes of the whole.
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

            /// Drops what `create` has put there. May sleep.
            ///
            /// # Safety
            ///
            /// `ib` must have been passed to `create`, and there may be no reference to it.
            pub(crate) unsafe fn destroy(ib: *mut bindings::$c) {
                // SAFETY: The body is initialised, and nobody uses it any more.
                unsafe { core::ptr::drop_in_place(Self::body_of(ib)) };
            }

            /// Where the body of `ib` is.
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

            /// Replaces the rings that the process may map by those of `mappings` that are there.
            #[allow(dead_code)]
            pub(crate) fn replace_mappings(&self, mappings: [Option<Mapping>; MAX_RINGS]) {
                for (slot, mapping) in self.body().mappings.iter().zip(mappings) {
                    if mapping.is_some() {
                        drop(slot.replace(mapping));
                    }
                }
            }

            /// The device that it belongs to.
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
    /// The file that mappings of its rings refer to.
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

impl<T: Driver> Qp<T> {
    /// The protection domain that it belongs to.
    #[inline]
    pub fn pd(&self) -> Option<&Pd<T>> {
        // SAFETY: By the invariants the queue pair is valid; the core keeps its domain alive.
        NonNull::new(unsafe { (*self.as_raw()).pd }).map(|pd| unsafe { Pd::from_raw(pd.as_ptr()) })
    }

    /// Its number.
    #[inline]
    pub fn qp_num(&self) -> Qpn {
        // SAFETY: By the invariants the queue pair is valid; its number was set by its creation.
        Qpn::new(unsafe { (*self.as_raw()).qp_num })
    }
}

impl<T: Driver> Pd<T> {
    /// The context of the process that it belongs to; none if it is the kernel's.
    #[inline]
    pub fn ucontext(&self) -> Option<&Ucontext<T>> {
        // SAFETY: By the invariants the domain is valid; the core sets this before its creation.
        let uobject = NonNull::new(unsafe { (*self.as_raw()).uobject })?;
        // SAFETY: The core keeps its part of an object for as long as that exists, with its context,
        // which goes only after all of the context's objects.
        let ucontext = NonNull::new(unsafe { (*uobject.as_ptr()).context })?;
        // SAFETY: As above: it was created, is one of a device of `T`, and outlives the domain.
        Some(unsafe { Ucontext::from_raw(ucontext.as_ptr()) })
    }
}

macro_rules! owned {
    ($($name:ident),*) => {$(
        impl<T: Driver> $name<T> {
            /// Whether a process has it, and not the kernel.
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
