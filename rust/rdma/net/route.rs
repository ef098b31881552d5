// SPDX-License-Identifier: GPL-2.0

//! Routes of the IP stack that are kept, until their netdev goes.
//!
//! A route of IPv6 belongs to its network namespace: its operations and its counter are there. So it
//! must be given back before the namespace is freed, however long its user exists. A namespace is
//! freed some time after its netdevs have left it. Then all routes out of them are taken away.

use crate::{
    errno::EHOSTUNREACH,
    new_bh_spinlock,
    sync::{
        BhSpinLock,
        Marked, //
    }, //
};
use core::{
    pin::Pin,
    ptr::{
        self,
        NonNull, //
    }, //
};
use kernel::{
    list::{
        impl_list_arc_safe,
        impl_list_item,
        List,
        ListArc,
        ListLinks, //
    },
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full, //
        },
        rcu,
        Arc, //
    }, //
};
use rdma_bindings as bindings;

/// A reference to a route that can be taken away from its user.
///
/// # Invariants
///
/// `dst` is null, or owns a reference to a route. From null it does not change.
#[pin_data(PinnedDrop)]
struct Kept {
    #[pin]
    links: ListLinks,
    dst: Atomic<*mut bindings::dst_entry>,
}

// SAFETY: Routes may be used and released from any thread.
unsafe impl Send for Kept {}
// SAFETY: Shared access is to an atomic, and to links that their list guards.
unsafe impl Sync for Kept {}

impl_list_arc_safe! {
    impl ListArcSafe<0> for Kept { untracked; }
}
impl_list_item! {
    impl ListItem<0> for Kept { using ListLinks { self.links }; }
}

impl Kept {
    /// Gives the route back, if that was not done before. Readers of RCU may still use it.
    fn give_back(&self) {
        let dst = self.dst.xchg(ptr::null_mut(), Full);
        // SAFETY: By the type invariants the reference is ours, as it was exchanged for null. The
        // function takes null, too. It frees the route a grace period later.
        unsafe { bindings::dst_release(dst) };
    }
}

#[pinned_drop]
impl PinnedDrop for Kept {
    fn drop(self: Pin<&mut Self>) {
        self.give_back();
    }
}

/// The routes out of one netdev that are kept.
#[pin_data]
pub(super) struct Routes {
    /// `None` once the netdev is being removed. Nothing is taken under this lock.
    #[pin]
    kept: BhSpinLock<Option<List<Kept>>>,
}

impl Routes {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            kept <- new_bh_spinlock!(Some(List::new()), "Routes::kept"),
        })
    }

    /// Takes all of them away, and refuses new ones. Process and softirq context.
    pub(super) fn end(&self) {
        let kept = self.kept.lock().take();
        let Some(mut kept) = kept else {
            return;
        };
        while let Some(route) = kept.pop_front() {
            route.give_back();
        }
    }
}

/// A route, until its netdev goes.
pub(super) struct Route {
    kept: Arc<Kept>,
    routes: Arc<Routes>,
    cookie: u32,
    /// The headroom that the route's netdev needs.
    headroom: u32,
}

impl Drop for Route {
    fn drop(&mut self) {
        // Under the lock: `end` finds it in the list, or it is given back. Otherwise the namespace could
        // be freed between.
        let removed = match &mut *self.routes.kept.lock() {
            Some(kept) => {
                self.kept.give_back();
                // SAFETY: `keep` put it into this list and into no other. Once it is in the hands of
                // `end`, there is no list here.
                unsafe { kept.remove(&self.kept) }
            }
            None => None,
        };
        drop(removed);
    }
}

impl Route {
    /// Keeps `dst`, one of `routes`. Process and softirq context.
    ///
    /// # Errors
    ///
    /// `EHOSTUNREACH` if it is null, `ENODEV` if its netdev is being removed, `ENOMEM`.
    ///
    /// # Safety
    ///
    /// `dst` must be null, or a reference to it must be given up for this. The caller must be in a
    /// read side of RCU.
    pub(super) unsafe fn keep(
        routes: &Arc<Routes>,
        dst: *mut bindings::dst_entry,
        cookie: u32,
    ) -> Result<Self> {
        if dst.is_null() {
            return Err(EHOSTUNREACH);
        }
        // SAFETY: By the safety requirements the route is alive, and this is a read side of RCU.
        let headroom = unsafe { bindings::LL_RESERVED_SPACE(bindings::dst_dev_rcu(dst)) };
        // INVARIANT: The caller gives up its reference.
        let new = try_pin_init!(Kept {
            links <- ListLinks::new(),
            dst: Atomic::new(dst),
        }? Error);
        let kept = ListArc::<Kept>::pin_init(new, GFP_ATOMIC).inspect_err(|_| {
            // SAFETY: The reference is still ours if there is no memory to keep it in.
            unsafe { bindings::dst_release(dst) };
        })?;
        let route = kept.clone_arc();
        match &mut *routes.kept.lock() {
            Some(list) => list.push_back(kept),
            None => return Err(ENODEV),
        }
        Ok(Self {
            kept: route,
            routes: routes.clone(),
            cookie,
            headroom,
        })
    }

    /// Runs `f` on the route in a read side of RCU, in which the route stays. Returns `None` if it was
    /// taken away. Any context.
    #[inline]
    pub(super) fn with<R>(&self, f: impl FnOnce(NonNull<bindings::dst_entry>) -> R) -> Option<R> {
        let _rcu = rcu::read_lock();
        NonNull::new(self.kept.dst.read_once()).map(f)
    }

    /// Returns true if it is still the way to the peer. Any context.
    #[inline]
    pub(super) fn is_valid(&self) -> bool {
        let is_valid = |dst: NonNull<bindings::dst_entry>| {
            // SAFETY: The route stays in this read side, and so does the namespace that it belongs to.
            unsafe { !bindings::dst_check(dst.as_ptr(), self.cookie).is_null() }
        };
        self.with(is_valid).unwrap_or(false)
    }

    /// Returns the headroom that its netdev needed when it was found.
    #[inline]
    pub(super) fn headroom(&self) -> u32 {
        self.headroom
    }
}
