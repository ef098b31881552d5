// SPDX-License-Identifier: GPL-2.0

//! The number of a sender's frames that the network still has.

use crate::{
    compat::smp_mb,
    module::Hold,
    net::skb::shared_info,
    new_bh_spinlock,
    sync::{
        BhSpinLock,
        Marked, //
    }, //
};
use kernel::{
    alloc::flags::GFP_KERNEL_ACCOUNT,
    bindings::sk_buff,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        ArcBorrow, //
    }, //
};

/// Bounds the frames of one sender that lie below it: in queues of netdevs, and in the receive
/// path of a peer on this machine.
///
/// Each [`Frame`](crate::net::Frame) that was sent counts until the network frees it, or the train
/// with which it left. A sender asks [`is_available`](Self::is_available) first. If that returns
/// false, its [`CreditWaker`] is called once half of the frames are gone. While a
/// [reply](CreditUse::Reply) waits for credit, [requests](CreditUse::Request) leave half of it.
/// Otherwise a queue pair that always sends requests would keep its replies waiting. A frame that is
/// sent without credit still goes out.
#[pin_data]
#[repr(align(64))]
pub struct Credit {
    limit: u32,
    in_flight: Atomic<u32>,
    /// True after a sender was told that no credit is left.
    wanted: Atomic<bool>,
    /// A reply has found no credit, and none was sent since.
    reply_waits: Atomic<bool>,
    #[pin]
    waker: BhSpinLock<Option<Arc<dyn CreditWaker>>>,
    /// Frames refer to their credit, so as long as there is a credit the network may call
    /// `give_back`.
    _hold: Hold,
}

/// What a sender sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreditUse {
    /// Requests, of which there may always be more.
    Request,
    /// Replies to the peer's requests.
    Reply,
}

/// The sender that waits for a [`Credit`].
pub trait CreditWaker: Send + Sync {
    /// Notes that there is credit again.
    ///
    /// It is called in process or softirq context, under locks of the network, possibly while the
    /// sender itself is sending. It must neither sleep nor take a lock that is held while a frame
    /// is sent. For example, it queues a work item.
    fn credit_available(self: ArcBorrow<'_, Self>);
}

/// The bits of an address that are 0 for any [`Credit`]: they hold the number of frames that an skb
/// stands for.
const COUNT_BITS: usize = core::mem::align_of::<Credit>() - 1;
const _: () = assert!(Credit::MOST as usize <= COUNT_BITS);

impl Credit {
    /// The most frames that one skb stands for.
    pub(super) const MOST: u32 = 63;

    /// Creates a credit for `limit` frames, at least 1. May sleep.
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
                reply_waits: Atomic::new(false),
                waker <- new_bh_spinlock!(None, "Credit::waker"),
                _hold: hold,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Returns the number of frames that the network has now. Any context.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.read_once()
    }

    /// Returns true if one more frame should be sent. If not, the waker will be called. Any context.
    #[inline]
    pub fn is_available(&self, what: CreditUse) -> bool {
        if self.in_flight() < self.most(what) {
            if what == CreditUse::Reply && self.reply_waits.read_once() {
                self.reply_waits.write_once(false);
            }
            return true;
        }
        if what == CreditUse::Reply {
            self.reply_waits.write_once(true);
        }
        self.wanted.write_once(true);
        // Pairs with `give_back`, which counts down before it looks at `wanted`: either it sees
        // that we wait, or we see its count.
        smp_mb();
        self.in_flight() < self.most(what)
    }

    /// Returns the number of frames from which there is no credit.
    #[inline]
    fn most(&self, what: CreditUse) -> u32 {
        match what {
            CreditUse::Request if self.reply_waits.read_once() => self.resumes_at().wrapping_add(1),
            CreditUse::Request | CreditUse::Reply => self.limit,
        }
    }

    /// Returns the number of frames from which the waker is called.
    #[inline]
    fn resumes_at(&self) -> u32 {
        self.limit / 2
    }

    /// Attaches `waker` until the guard is dropped. Process and softirq context.
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
        // SAFETY: By the safety requirements the skb is ours alone, with neither owner nor
        // destructor. The reference belongs to the skb from here on. Its destructor is called
        // exactly once, on this skb, because clones and copies have none.
        unsafe {
            (*shared_info(skb)).__bindgen_anon_2.destructor_arg = this.cast();
            (*skb).__bindgen_anon_3.__bindgen_anon_1.destructor = Some(Self::destructor);
        }
    }

    /// Gives the credit of `skb` back, as the network frees it or gives up its claim to it.
    ///
    /// # Safety
    ///
    /// Only the kernel may call it, on an skb that was [charged](Self::charge).
    unsafe extern "C" fn destructor(skb: *mut sk_buff) {
        // SAFETY: `charge` set it along with this destructor. Each owner of the skb leaves both
        // alone until the destructor was called.
        let this = unsafe { (*shared_info(skb)).__bindgen_anon_2.destructor_arg };
        // CAST: `charge` stored a number of at most `MOST`.
        let frames = (this.addr() & COUNT_BITS) as u32;
        let this = this.map_addr(|address| address & !COUNT_BITS);
        // SAFETY: It came from `Arc::into_raw`, and this is the only time that it is taken.
        let this = unsafe { Arc::from_raw(this.cast::<Self>()) };
        this.give_back(frames);
    }

    fn give_back(&self, frames: u32) {
        let left = self.in_flight.fetch_sub(frames, Full).wrapping_sub(frames);
        if left > self.resumes_at() || !self.wanted.read_once() || !self.wanted.xchg(false, Full) {
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
