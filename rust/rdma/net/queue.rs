// SPDX-License-Identifier: GPL-2.0

//! Datagrams that wait, in the order in which they came. Some go ahead of the others.

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
/// `first` and `last` are the ends of a list of `len` skbs, linked by `next`, or null. Each is the
/// skb of a [`HeldPacket`] that was let go of for it, and so in no other queue; its control block says
/// the rest. All but our own are counted in [`Purpose::held`]. The first `ahead` of them go ahead of the others.
pub struct PacketQueue<P: Purpose> {
    first: *mut sk_buff,
    last: *mut sk_buff,
    len: u32,
    ahead: u32,
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

    /// The most that go ahead of the others.
    const MAX_AHEAD: u32 = 64;

    /// Returns how many wait in all queues of this purpose.
    #[inline]
    pub fn len_of_all() -> usize {
        P::held().read_once()
    }

    /// Creates an empty queue.
    pub const fn new() -> Self {
        Self {
            first: ptr::null_mut(),
            last: ptr::null_mut(),
            len: 0,
            ahead: 0,
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
        self.first.is_null()
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
        // SAFETY: By the invariants it is the last one of this queue, if there is one.
        unsafe { self.insert(packet, NonNull::new(self.last)) };
        Ok(())
    }

    /// Puts a datagram before those that wait in turn, behind others that were put so, of which there may be
    /// [`MAX_AHEAD`](Self::MAX_AHEAD). If there are, it is appended.
    ///
    /// # Errors
    ///
    /// The datagram, if the queue is full, or all are.
    pub fn push_ahead(&mut self, packet: HeldPacket) -> Result<(), HeldPacket> {
        if self.ahead >= Self::MAX_AHEAD {
            return self.push(packet);
        }
        if self.is_full() && !packet.is_own() {
            return Err(packet);
        }
        // SAFETY: It is one of this queue, if there is one.
        unsafe { self.insert(packet, self.last_ahead()) };
        // INVARIANT: It is at the front, behind the others that go ahead.
        self.ahead = self.ahead.wrapping_add(1);
        Ok(())
    }

    /// Returns the last one that goes ahead of the others.
    fn last_ahead(&self) -> Option<NonNull<sk_buff>> {
        let (mut last, mut next) = (None, self.first);
        for _ in 0..self.ahead {
            last = Some(NonNull::new(next)?);
            // SAFETY: By the invariants it is ours, and linked to the next one.
            next = unsafe { *next_of(next) };
        }
        last
    }

    /// Inserts a datagram behind `before`, or before all others.
    ///
    /// # Safety
    ///
    /// `before` must be of this queue.
    unsafe fn insert(&mut self, packet: HeldPacket, before: Option<NonNull<sk_buff>>) {
        Self::count(&packet, 1);
        let skb = packet.into_skb();
        let link: *mut *mut sk_buff = match before {
            // SAFETY: By the safety requirements it is of this queue, so it is ours.
            Some(before) => unsafe { next_of(before.as_ptr()) },
            None => &raw mut self.first,
        };
        // SAFETY: The link is ours. The packet gave its skb up, so that is ours as well.
        unsafe {
            *next_of(skb) = *link;
            *link = skb;
            if (*next_of(skb)).is_null() {
                self.last = skb;
            }
        }
        self.len = self.len.wrapping_add(1);
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
        let Some(first) = NonNull::new(other.first) else {
            return;
        };
        match NonNull::new(self.last) {
            // SAFETY: By the invariants it is ours, and the last one of the list.
            Some(last) => unsafe { *next_of(last.as_ptr()) = first.as_ptr() },
            None => self.first = first.as_ptr(),
        }
        // INVARIANT: The lists are one, of which the other queue has nothing left.
        self.last = other.last;
        self.len = self.len.wrapping_add(other.len);
    }

    /// Puts a datagram back that was taken out last.
    pub fn push_front(&mut self, packet: HeldPacket) {
        // SAFETY: It goes behind none.
        unsafe { self.insert(packet, None) };
        if self.ahead > 0 {
            // INVARIANT: Those that go ahead are at the front, with this one.
            self.ahead = self.ahead.wrapping_add(1);
        }
    }

    /// Takes the oldest datagram out.
    pub fn pop(&mut self) -> Option<HeldPacket> {
        let skb = NonNull::new(self.first)?;
        // SAFETY: By the invariants the skb is ours, and linked to the next one.
        unsafe {
            self.first = *next_of(skb.as_ptr());
            *next_of(skb.as_ptr()) = ptr::null_mut();
        }
        if self.first.is_null() {
            self.last = ptr::null_mut();
        }
        self.len = self.len.wrapping_sub(1);
        self.ahead = self.ahead.saturating_sub(1);
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
