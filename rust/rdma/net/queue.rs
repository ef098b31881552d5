// SPDX-License-Identifier: GPL-2.0

//! Datagrams that wait, in the order in which they came or in one of their holder's.

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
/// the rest. All but our own are counted in [`Purpose::held`].
pub struct PacketQueue<P: Purpose> {
    first: *mut sk_buff,
    last: *mut sk_buff,
    len: usize,
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
    pub const MAX: usize = 512;

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
            _purpose: PhantomData,
        }
    }

    /// Returns how many wait.
    #[inline]
    pub fn len(&self) -> usize {
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
        let skb = self.admit(packet)?;
        // SAFETY: The skb is ours, and so is its control block, which is large enough. So is the
        // last one of the list.
        unsafe {
            *next_of(skb) = ptr::null_mut();
            match NonNull::new(self.last) {
                Some(last) => *next_of(last.as_ptr()) = skb,
                None => self.first = skb,
            }
        }
        self.last = skb;
        self.len = self.len.wrapping_add(1);
        Ok(())
    }

    /// Inserts a datagram before the first whose [place](HeldPacket::place) does not come before its own, as
    /// `comes_before` says. If that has the same place, the new one is dropped. All must have been inserted so.
    ///
    /// A datagram that goes to the end, or repeats the last one, costs no more than [`push`](Self::push).
    /// Another one costs a walk along those before it, of which there are at most [`MAX`](Self::MAX).
    ///
    /// # Errors
    ///
    /// As for [`push`](Self::push).
    pub fn insert(
        &mut self,
        packet: HeldPacket,
        comes_before: impl Fn(u32, u32) -> bool,
    ) -> Result<(), HeldPacket> {
        let place = packet.place();
        // SAFETY: It is called with skbs of the list, which are ours and by the invariants came from `into_skb`.
        let place_of = |skb: NonNull<sk_buff>| unsafe { place_of(skb) };
        match NonNull::new(self.last).map(place_of) {
            // A peer that repeats its last packet shall not cost a walk each time.
            Some(last) if last == place => return Ok(()),
            Some(last) if !comes_before(last, place) => {}
            _ => return self.push(packet),
        }
        let (mut before, mut behind) = (ptr::null_mut(), self.first);
        while let Some(skb) = NonNull::new(behind) {
            let other = place_of(skb);
            if other == place {
                return Ok(());
            }
            if !comes_before(other, place) {
                break;
            }
            before = behind;
            // SAFETY: By the invariants the skb is ours, and linked to the next one.
            behind = unsafe { *next_of(skb.as_ptr()) };
        }
        let skb = self.admit(packet)?;
        // INVARIANT: The new skb stands between two that were neighbours. It is not the last one: the walk ended
        // at the last one at the latest, which comes behind it.
        //
        // SAFETY: The skb is ours, and so is the one before it.
        unsafe {
            *next_of(skb) = behind;
            match NonNull::new(before) {
                Some(before) => *next_of(before.as_ptr()) = skb,
                None => self.first = skb,
            }
        }
        self.len = self.len.wrapping_add(1);
        Ok(())
    }

    /// Counts a datagram and takes its skb, which the caller links into the list.
    ///
    /// # Errors
    ///
    /// The datagram, if the queue is full, or all are.
    #[inline]
    fn admit(&self, packet: HeldPacket) -> Result<*mut sk_buff, HeldPacket> {
        if self.is_full() && !packet.is_own() {
            return Err(packet);
        }
        Self::count(&packet, 1);
        Ok(packet.into_skb())
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
        Self::count(&packet, 1);
        let skb = packet.into_skb();
        // SAFETY: The packet gave its skb up, so the skb and its link are ours.
        unsafe { *next_of(skb) = self.first };
        self.first = skb;
        if self.last.is_null() {
            self.last = skb;
        }
        self.len = self.len.wrapping_add(1);
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
    place: u32,
}

static_assert!(
    core::mem::size_of::<Note>() <= 48,
    "a control block has no more"
);

/// Returns the [place](HeldPacket::place) of a held packet.
///
/// # Safety
///
/// `skb` must have come from [`HeldPacket::into_skb`], and be nobody else's since.
unsafe fn place_of(skb: NonNull<sk_buff>) -> u32 {
    // SAFETY: By the safety requirements the note is there. A reference to it would not be aligned.
    unsafe {
        let note = (&raw const (*skb.as_ptr()).cb).cast::<Note>();
        ptr::addr_of!((*note).place).read_unaligned()
    }
}

impl HeldPacket {
    /// Gives the skb away, with what is known of it in its control block.
    fn into_skb(self) -> *mut sk_buff {
        let place = self.place();
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
            place,
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
            place,
        } = note;
        let datagram = Datagram {
            skb,
            payload_len,
            is_ipv6,
            is_own,
            psns,
        };
        // INVARIANT: As they were.
        let mut packet = Self::from_parts(datagram, charges);
        packet.set_place(place);
        packet
    }
}
