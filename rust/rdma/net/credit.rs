// SPDX-License-Identifier: GPL-2.0

//! The number of a sender's frames that the network still has.

mod rule;

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
/// false, its [`CreditWaker`] is called once half of the frames are gone. A quarter of the credit is for
/// each [use](CreditUse) in any case, so that none keeps the other one waiting: its waker is also called
/// once half of those are gone. A frame that is sent without credit still goes out.
#[pin_data]
#[repr(align(64))]
pub struct Credit {
    limit: u32,
    requests: Sent,
    replies: Sent,
    #[pin]
    waker: BhSpinLock<Option<Arc<dyn CreditWaker>>>,
    /// Frames refer to their credit, so as long as there is a credit the network may call
    /// `give_back`.
    _hold: Hold,
}

/// What a sender sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreditUse {
    /// Requests. The owner may always post more.
    Request,
    /// Replies to requests. The peer may always send more.
    Reply,
}

/// The frames of one use.
struct Sent {
    in_flight: Atomic<u32>,
    /// True after their sender was told that no credit is left.
    wanted: Atomic<bool>,
}

impl Sent {
    const fn new() -> Self {
        Self {
            in_flight: Atomic::new(0),
            wanted: Atomic::new(false),
        }
    }

    #[inline]
    fn in_flight(&self) -> u32 {
        self.in_flight.read_once()
    }

    /// Returns true once after its sender was told that no credit is left.
    #[inline]
    fn take_wanted(&self) -> bool {
        self.wanted.read_once() && self.wanted.xchg(false, Full)
    }
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
                requests: Sent::new(),
                replies: Sent::new(),
                waker <- new_bh_spinlock!(None, "Credit::waker"),
                _hold: hold,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Returns the number of frames that the network has now. Any context.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        let requests = self.requests.in_flight();
        requests.wrapping_add(self.replies.in_flight())
    }

    /// Returns true if one more frame should be sent. If not, the waker will be called. Any context.
    #[inline]
    pub fn is_available(&self, what: CreditUse) -> bool {
        let (own, others) = self.both(what);
        let is_available = || rule::is_available(self.limit, own.in_flight(), others.in_flight());
        if is_available() {
            return true;
        }
        own.wanted.write_once(true);
        // Pairs with `give_back`, which counts down before it looks at `wanted`: either it sees
        // that we wait, or we see its count.
        smp_mb();
        is_available()
    }

    /// Returns the frames of that use, and those of the other one.
    #[inline]
    fn both(&self, what: CreditUse) -> (&Sent, &Sent) {
        match what {
            CreditUse::Request => (&self.requests, &self.replies),
            CreditUse::Reply => (&self.replies, &self.requests),
        }
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

    /// Counts `skb` as so many frames of that use, at most [`MOST`](Self::MOST), until it is freed.
    ///
    /// # Safety
    ///
    /// `skb` must be the caller's alone, with neither owner nor destructor.
    #[inline]
    pub(super) unsafe fn charge(self: &Arc<Self>, skb: *mut sk_buff, frames: u32, what: CreditUse) {
        let frames = frames.min(Self::MOST);
        let (own, _) = self.both(what);
        own.in_flight.add(frames, Relaxed);
        let this = Arc::into_raw(self.clone()).cast_mut();
        let this = this.map_addr(|address| address | frames as usize);
        let destructor = match what {
            CreditUse::Request => Self::request_destructor,
            CreditUse::Reply => Self::reply_destructor,
        };
        // SAFETY: By the safety requirements the skb is ours alone, with neither owner nor
        // destructor. The reference belongs to the skb from here on. Its destructor is called
        // exactly once, on this skb, because clones and copies have none.
        unsafe {
            (*shared_info(skb)).__bindgen_anon_2.destructor_arg = this.cast();
            (*skb).__bindgen_anon_3.__bindgen_anon_1.destructor = Some(destructor);
        }
    }

    /// Gives the credit of a request back, see [`end`](Self::end).
    ///
    /// # Safety
    ///
    /// As for [`end`](Self::end).
    unsafe extern "C" fn request_destructor(skb: *mut sk_buff) {
        // SAFETY: The requirements of the callee are those of this function.
        unsafe { Self::end(skb, CreditUse::Request) };
    }

    /// Does the same for a reply.
    ///
    /// # Safety
    ///
    /// As for [`end`](Self::end).
    unsafe extern "C" fn reply_destructor(skb: *mut sk_buff) {
        // SAFETY: The requirements of the callee are those of this function.
        unsafe { Self::end(skb, CreditUse::Reply) };
    }

    /// Gives the credit of `skb` back, as the network frees it or gives up its claim to it.
    ///
    /// # Safety
    ///
    /// Only the kernel may call it, on an skb that was [charged](Self::charge).
    #[inline]
    unsafe fn end(skb: *mut sk_buff, what: CreditUse) {
        // SAFETY: `charge` set it along with this destructor. Each owner of the skb leaves both
        // alone until the destructor was called.
        let this = unsafe { (*shared_info(skb)).__bindgen_anon_2.destructor_arg };
        // CAST: `charge` stored a number of at most `MOST`.
        let frames = (this.addr() & COUNT_BITS) as u32;
        let this = this.map_addr(|address| address & !COUNT_BITS);
        // SAFETY: It came from `Arc::into_raw`, and this is the only time that it is taken.
        let this = unsafe { Arc::from_raw(this.cast::<Self>()) };
        this.give_back(frames, what);
    }

    fn give_back(&self, frames: u32, what: CreditUse) {
        let (own, others) = self.both(what);
        let left = own.in_flight.fetch_sub(frames, Full).wrapping_sub(frames);
        // Both counts go down before either is looked at, so the last of two threads sees both.
        let wakes = match rule::resumes_all(self.limit, left, others.in_flight()) {
            true => own.take_wanted() | others.take_wanted(),
            false => rule::resumes_one(self.limit, left) && own.take_wanted(),
        };
        if !wakes {
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
