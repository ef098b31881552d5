// SPDX-License-Identifier: GPL-2.0

//! Objects that are taken away from those who still refer to what holds them.
//!
//! The kernel crate has the same, but waits for an ordinary grace period of RCU each time, some
//! milliseconds: a process that ends would take minutes to give ten thousands of them back.

use core::pin::Pin;
use core::ptr;

use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Full};
use kernel::sync::rcu;
use kernel::types::Opaque;

use rdma_bindings as bindings;

use crate::sync::Marked;

/// A `T` that is there until it is revoked.
///
/// # Invariants
///
/// `object` is initialised while `is_there`, and for all readers of RCU that have seen it so.
#[pin_data(PinnedDrop)]
pub struct Revocable<T> {
    is_there: Atomic<bool>,
    #[pin]
    object: Opaque<T>,
}

// SAFETY: It owns a `T`, which goes wherever this does.
unsafe impl<T: Send> Send for Revocable<T> {}
// SAFETY: Others get references to the `T`, and whoever revokes it drops it.
unsafe impl<T: Send + Sync> Sync for Revocable<T> {}

impl<T> Revocable<T> {
    /// Holds `object`.
    pub fn new(object: T) -> impl PinInit<Self> {
        // INVARIANT: It is there.
        pin_init!(Self {
            is_there: Atomic::new(true),
            object: Opaque::new(object),
        })
    }

    /// The object, unless it was revoked. Any context.
    ///
    /// It stays until `guard` is dropped, so that must not be for long, nor may one sleep.
    #[inline]
    pub fn try_access_with_guard<'a>(&'a self, _guard: &'a rcu::Guard) -> Option<&'a T> {
        if !self.is_there.read_once() {
            return None;
        }
        // SAFETY: By the invariants it is initialised, and is not dropped before `guard` is, as
        // `revoke` waits for readers that may have seen it.
        Some(unsafe { &*self.object.get() })
    }

    /// Takes the object away, waits until nobody uses it, and drops it. Sleeps, for some tens of
    /// microseconds: other CPUs are asked to hurry. Does nothing the second time.
    pub fn revoke(&self) {
        if !self.is_there.xchg(false, Full) {
            return;
        }
        // SAFETY: No more is asked for than to be called where one may sleep.
        unsafe { bindings::synchronize_rcu_expedited() };
        // SAFETY: It was there until now, nobody uses it any more, and this is the one who saw it.
        unsafe { ptr::drop_in_place(self.object.get()) };
    }
}

#[pinned_drop]
impl<T> PinnedDrop for Revocable<T> {
    fn drop(self: Pin<&mut Self>) {
        if self.is_there.read_once() {
            // SAFETY: It is there, and nobody else refers to this.
            unsafe { ptr::drop_in_place(self.object.get()) };
        }
    }
}
