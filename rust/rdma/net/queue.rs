// SPDX-License-Identifier: GPL-2.0

//! Datagrams that wait, in the order in which they came.

use crate::{
    net::{
        packet::{
            Datagram,
            HeldPacket, //
        },
        skb::next_of,
        OwnFrames, //
    },
    share::Charge,
    sync::Marked, //
};
use core::{
    marker::PhantomData,
    ptr::{
        self,
        NonNull, //
    }, //
};
use kernel::{
    bindings::sk_buff,
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

/// What a [`PacketQueue`] is for. The queues of each purpose are bounded together.
pub trait Purpose {
    /// The most that all queues hold together, but for the first datagram of each.
    const MAX_OF_ALL: usize;

    /// Returns where datagrams in these queues are counted.
    fn held() -> &'static Atomic<usize>;
}

/// Declares a [`Purpose`]: its name, and the most datagrams of all its queues.
#[macro_export]
macro_rules! queue_purpose {
    ($(#[$doc:meta])* $vis:vis $name:ident: $max:expr) => {
        $(#[$doc])*
        $vis enum $name {}

        impl $crate::net::Purpose for $name {
            const MAX_OF_ALL: usize = $max;

            #[inline]
            fn held() -> &'static ::kernel::sync::atomic::Atomic<usize> {
                static HELD: ::kernel::sync::atomic::Atomic<usize> =
                    ::kernel::sync::atomic::Atomic::new(0);
                &HELD
            }
        }
    };
}
pub use queue_purpose;

/// A queue of datagrams, at most [`MAX`](Self::MAX), and [`Purpose::MAX_OF_ALL`] in all queues of its
/// purpose. It needs no memory of its own.
///
/// An empty queue takes a datagram in any case. Those that are [our own](Datagram::is_own) count
/// against the credit of their sender, as long as they exist: they always have room, and take none of
/// others.
///
/// # Invariants
///
/// `last` is the last one of a ring of `len` skbs, linked by `next`, or null: it links to the first. Each is the
/// skb of a [`HeldPacket`] that was let go of for it, and so in no other queue; its control block says
/// the rest. All but our own are counted in [`Purpose::held`].
pub struct PacketQueue<P: Purpose> {
    last: *mut sk_buff,
    len: u32,
    _purpose: PhantomData<fn(P)>,
}

// SAFETY: The skbs are ours and belong to no thread.
unsafe impl<P: Purpose> Send for PacketQueue<P> {}

impl<P: Purpose> Default for PacketQueue<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Purpose> PacketQueue<P> {
    /// The most that a queue holds: as many as a peer may have outstanding by default.
    pub const MAX: u32 = 512;

    /// Returns how many wait in all queues of this purpose.
    #[inline]
    pub fn len_of_all() -> usize {
        P::held().read_once()
    }

    /// Creates an empty queue.
    pub const fn new() -> Self {
        Self {
            last: ptr::null_mut(),
            len: 0,
            _purpose: PhantomData,
        }
    }

    /// Returns how many wait.
    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns true if nothing waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.last.is_null()
    }

    /// Appends a datagram.
    ///
    /// # Errors
    ///
    /// The datagram, if the queue is full, or all are.
    pub fn push(&mut self, packet: HeldPacket) -> Result<(), HeldPacket> {
        if self.is_full() && !packet.is_own() {
            return Err(packet);
        }
        // INVARIANT: It is in the ring, before the first one.
        self.last = self.link(packet);
        Ok(())
    }

    /// Links a datagram in before the first one, and returns its skb.
    fn link(&mut self, packet: HeldPacket) -> *mut sk_buff {
        Self::count(&packet, 1);
        let skb = packet.into_skb();
        // SAFETY: The packet gave its skb up, so it is ours, as a ring of its own.
        unsafe {
            *next_of(skb) = skb;
            self.join(skb, 1);
        }
        skb
    }

    /// Puts a ring of `len` skbs, with this last one, before the first one of this queue.
    ///
    /// # Safety
    ///
    /// As the invariants say, it must be one that could be this queue's. The caller gives it up.
    unsafe fn join(&mut self, last: *mut sk_buff, len: u32) {
        if self.last.is_null() {
            // INVARIANT: By the safety requirements.
            self.last = last;
        } else {
            // INVARIANT: It is one ring of both, and the last one stays.
            // SAFETY: By the invariants and the safety requirements both are ours, and last ones. So each ring
            // continues with the first one of the other.
            unsafe { ptr::swap(next_of(self.last), next_of(last)) };
        }
        self.len = self.len.wrapping_add(len);
    }

    /// Returns true if no datagram has room but our own.
    #[inline]
    fn is_full(&self) -> bool {
        self.len >= Self::MAX || (self.len > 0 && Self::len_of_all() >= P::MAX_OF_ALL)
    }

    /// Counts `packet` among those that wait in queues of this purpose, or no more.
    #[inline]
    fn count(packet: &HeldPacket, change: isize) {
        if !packet.is_own() {
            P::held().fetch_add(change as usize, Relaxed);
        }
    }

    /// Appends all of `other`, however many there are, which are our own.
    pub fn append(&mut self, other: PacketQueue<OwnFrames>) {
        let other = core::mem::ManuallyDrop::new(other);
        if other.last.is_null() {
            return;
        }
        // SAFETY: The other queue has nothing left then.
        unsafe { self.join(other.last, other.len) };
        // INVARIANT: It is in the ring, before the first one.
        self.last = other.last;
    }

    /// Puts a datagram back that was taken out last.
    pub fn push_front(&mut self, packet: HeldPacket) {
        self.link(packet);
    }

    /// Takes the oldest datagram out.
    pub fn pop(&mut self) -> Option<HeldPacket> {
        let last = NonNull::new(self.last)?.as_ptr();
        // SAFETY: By the invariants the skbs of the ring are ours, and it has a first one.
        let skb = unsafe {
            let first = *next_of(last);
            *next_of(last) = *next_of(first);
            *next_of(first) = ptr::null_mut();
            NonNull::new(first)?
        };
        if skb.as_ptr() == last {
            // INVARIANT: It was the only one.
            self.last = ptr::null_mut();
        }
        self.len = self.len.wrapping_sub(1);
        // SAFETY: It came from `into_skb`.
        let packet = unsafe { HeldPacket::from_skb(skb) };
        Self::count(&packet, -1);
        Some(packet)
    }

    /// Drops all.
    pub fn clear(&mut self) {
        while self.pop().is_some() {}
    }
}

impl<P: Purpose> Drop for PacketQueue<P> {
    fn drop(&mut self) {
        self.clear();
    }
}

/// What is known of a held packet, in the control block of its skb.
#[repr(C)]
struct Note {
    payload_len: u32,
    psns: u16,
    is_ipv6: bool,
    is_own: bool,
    charges: Option<[Charge; 2]>,
}

static_assert!(
    core::mem::size_of::<Note>() <= 48,
    "a control block has no more"
);

impl HeldPacket {
    /// Gives the skb away, with what is known of it in its control block.
    fn into_skb(self) -> *mut sk_buff {
        let (datagram, charges) = self.into_parts();
        let Datagram {
            skb,
            payload_len,
            is_ipv6,
            is_own,
            psns,
        } = datagram;
        let note = Note {
            payload_len,
            psns,
            is_ipv6,
            is_own,
            charges,
        };
        // SAFETY: The skb was ours, as was its control block, which has room for it.
        unsafe {
            (&raw mut (*skb.as_ptr()).cb)
                .cast::<Note>()
                .write_unaligned(note)
        };
        skb.as_ptr()
    }

    /// # Safety
    ///
    /// `skb` must have come from [`into_skb`](Self::into_skb), and be nobody else's since.
    unsafe fn from_skb(skb: NonNull<sk_buff>) -> Self {
        // SAFETY: By the safety requirements it is there, and read once.
        let note = unsafe {
            (&raw mut (*skb.as_ptr()).cb)
                .cast::<Note>()
                .read_unaligned()
        };
        let Note {
            payload_len,
            psns,
            is_ipv6,
            is_own,
            charges,
        } = note;
        let datagram = Datagram {
            skb,
            payload_len,
            is_ipv6,
            is_own,
            psns,
        };
        // INVARIANT: As they were.
        Self::from_parts(datagram, charges)
    }
}
