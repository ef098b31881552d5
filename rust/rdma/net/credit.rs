// SPDX-License-Identifier: GPL-2.0

//! How many frames of a sender the network still has.

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::bindings::sk_buff;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Full, Relaxed};
use kernel::sync::{Arc, ArcBorrow};

use rdma_bindings as bindings;

use crate::compat::smp_mb;
use crate::module::Hold;
use crate::new_bh_spinlock;
use crate::sync::{BhSpinLock, Marked};

/// Bounds the frames of one sender that lie below it: in queues of netdevs, and in the receive
/// path of a peer on this machine.
///
/// Each [`Frame`](crate::net::Frame) that was sent counts until the network frees it, or the train with
/// which it left. A sender asks
/// [`is_available`](Self::is_available) first; after a "no" its [`CreditWaker`] is called once half
/// of the frames are gone. A frame that is sent regardless goes out all the same.
#[pin_data]
#[repr(align(64))]
pub struct Credit {
    limit: u32,
    in_flight: Atomic<u32>,
    /// A sender was told that there is nothing left.
    wanted: Atomic<bool>,
    #[pin]
    waker: BhSpinLock<Option<Arc<dyn CreditWaker>>>,
    /// Frames refer to their credit, so as long as there is a credit the network may call
    /// `give_back`.
    _hold: Hold,
}

/// Whom to tell that a [`Credit`] is available again.
pub trait CreditWaker: Send + Sync {
    /// There is credit again.
    ///
    /// Process or softirq context, under locks of the network, possibly while the sender itself is
    /// sending: must neither sleep nor take a lock that is held while a frame is sent. It queues a
    /// work item, for example.
    fn credit_available(self: ArcBorrow<'_, Self>);
}

/// The bits of an address that are 0 for any [`Credit`]: they say how many frames an skb stands for.
const COUNT_BITS: usize = core::mem::align_of::<Credit>() - 1;
const _: () = assert!(Credit::MOST as usize <= COUNT_BITS);

impl Credit {
    /// The most frames that one skb stands for.
    pub(super) const MOST: u32 = 63;

    /// A credit for `limit` frames, at least 1. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `ENODEV` when the module is being unloaded.
    pub fn new(limit: u32) -> Result<Arc<Self>> {
        let hold = Hold::new()?;
        Arc::pin_init(
            pin_init!(Self {
                limit: limit.max(1),
                in_flight: Atomic::new(0),
                wanted: Atomic::new(false),
                waker <- new_bh_spinlock!(None, "Credit::waker"),
                _hold: hold,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Frames that the network has now. Any context.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.read_once()
    }

    /// Whether one more frame should be sent. If not, the waker will be called. Any context.
    #[inline]
    pub fn is_available(&self) -> bool {
        if self.in_flight() < self.limit {
            return true;
        }
        self.wanted.write_once(true);
        // Pairs with `give_back`, which counts down before it looks at `wanted`: either it sees
        // that we wait, or we see its count.
        smp_mb();
        self.in_flight() < self.limit
    }

    /// Has `waker` called until the guard is dropped. Process and softirq context.
    ///
    /// # Errors
    ///
    /// `EBUSY` when there is one already.
    pub fn attach(self: &Arc<Self>, waker: Arc<dyn CreditWaker>) -> Result<CreditGuard> {
        let mut place = self.waker.lock();
        if place.is_some() {
            return Err(EBUSY);
        }
        *place = Some(waker);
        drop(place);
        Ok(CreditGuard(self.clone()))
    }

    /// Counts `skb` as so many frames, at most [`MOST`](Self::MOST), until it is freed.
    ///
    /// # Safety
    ///
    /// `skb` must be the caller's alone, with neither owner nor destructor.
    #[inline]
    pub(super) unsafe fn charge(self: &Arc<Self>, skb: *mut sk_buff, frames: u32) {
        let frames = frames.min(Self::MOST);
        self.in_flight.add(frames, Relaxed);
        let this = Arc::into_raw(self.clone()).cast_mut();
        let this = this.map_addr(|address| address | frames as usize);
        // SAFETY: By the safety requirements. The reference goes along with the skb; its destructor
        // is called exactly once, on the skb that it was set on: clones and copies have none.
        unsafe { bindings::skb_set_destructor(skb, Some(Self::destructor), this.cast()) };
    }

    /// The network frees `skb`, or gives up its claim to it.
    ///
    /// # Safety
    ///
    /// For the kernel to call, on an skb that was [charged](Self::charge).
    unsafe extern "C" fn destructor(skb: *mut sk_buff) {
        // SAFETY: `charge` set it along with this destructor, and who passes an skb on leaves both
        // alone until the destructor was called.
        let this = unsafe { bindings::skb_destructor_arg(skb) };
        // CAST: `charge` put there what fits in.
        let frames = (this.addr() & COUNT_BITS) as u32;
        let this = this.map_addr(|address| address & !COUNT_BITS);
        // SAFETY: It came from `Arc::into_raw`, and this is the only time that it is taken.
        let this = unsafe { Arc::from_raw(this.cast::<Self>()) };
        this.give_back(frames);
    }

    fn give_back(&self, frames: u32) {
        let left = self.in_flight.fetch_sub(frames, Full).wrapping_sub(frames);
        if left > self.limit / 2 || !self.wanted.read_once() || !self.wanted.xchg(false, Full) {
            return;
        }
        if let Some(waker) = &*self.waker.lock() {
            waker.as_arc_borrow().credit_available();
        }
    }
}

/// Keeps a waker attached to a [`Credit`].
///
/// Once it is dropped the waker is not called any more. Process and softirq context, but not in
/// the waker.
pub struct CreditGuard(Arc<Credit>);

impl Drop for CreditGuard {
    fn drop(&mut self) {
        let waker = self.0.waker.lock().take();
        // Without the lock: this may be the last reference.
        drop(waker);
    }
}
