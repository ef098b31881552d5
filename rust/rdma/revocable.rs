// SPDX-License-Identifier: GPL-2.0

//! Objects that can be revoked while others still refer to their holder.
//!
//! The `Revocable` of the kernel crate waits for an ordinary grace period of RCU each time, which
//! takes some milliseconds. A process that ends would take minutes to release ten thousands of
//! objects. From 7.3 on each access to it calls a C function, too, which loads its flag.

use crate::sync::Marked;
use core::{
    pin::Pin,
    ptr, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full, //
        },
        rcu, //
    },
    types::Opaque, //
};
use rdma_bindings as bindings;

/// A `T` that exists until it is revoked.
///
/// # Invariants
///
/// `object` is initialised while `is_there`, and for all readers of RCU that have seen it so.
///
/// # Examples
///
/// ```
/// use kernel::sync::rcu;
/// use rdma::revocable::Revocable;
///
/// let key = KBox::pin_init(Revocable::new(7), GFP_KERNEL)?;
/// assert_eq!(key.try_access_with_guard(&rcu::read_lock()), Some(&7));
/// key.revoke();
/// assert_eq!(key.try_access_with_guard(&rcu::read_lock()), None);
/// # Ok::<(), Error>(())
/// ```
#[pin_data(PinnedDrop)]
pub struct Revocable<T> {
    is_there: Atomic<bool>,
    #[pin]
    object: Opaque<T>,
}

// SAFETY: It owns a `T`, and both move to another thread together.
unsafe impl<T: Send> Send for Revocable<T> {}
// SAFETY: Shared access gives out references to the `T`, which is `Sync`. Any thread may revoke and
// so drop the `T`, which is `Send`.
unsafe impl<T: Send + Sync> Sync for Revocable<T> {}

impl<T> Revocable<T> {
    /// Creates a holder of `object`.
    pub fn new(object: T) -> impl PinInit<Self> {
        // INVARIANT: The object is initialised.
        pin_init!(Self {
            is_there: Atomic::new(true),
            object: Opaque::new(object),
        })
    }

    /// Returns the object, unless it was revoked. Any context.
    ///
    /// The object stays until `guard` is dropped. The caller must drop the guard soon, and must not
    /// sleep before that.
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
    /// microseconds: the grace period is expedited. Does nothing the second time.
    pub fn revoke(&self) {
        if !self.is_there.xchg(false, Full) {
            return;
        }
        // SAFETY: The function may sleep, and this one is called where that is allowed.
        unsafe { bindings::synchronize_rcu_expedited() };
        // SAFETY: The object was initialised until now. After the grace period nobody uses it, and
        // only the caller that cleared `is_there` gets here.
        unsafe { ptr::drop_in_place(self.object.get()) };
    }
}

#[pinned_drop]
impl<T> PinnedDrop for Revocable<T> {
    fn drop(self: Pin<&mut Self>) {
        if self.is_there.read_once() {
            // SAFETY: The object is initialised, and nobody else refers to its holder.
            unsafe { ptr::drop_in_place(self.object.get()) };
        }
    }
}
