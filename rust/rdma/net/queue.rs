// SPDX-License-Identifier: GPL-2.0

//! Datagrams that wait, in the order in which they came.

use core::ptr::{self, NonNull};

use kernel::bindings::sk_buff;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};

use rdma_bindings as bindings;

use crate::net::packet::{Datagram, HeldPacket};
use crate::sync::Marked;

/// A queue of datagrams, at most [`MAX`](Self::MAX), and [`MAX_OF_ALL`](Self::MAX_OF_ALL) in all
/// queues. It needs no memory of its own; that of the datagrams nobody else pays for, so an empty
/// queue takes one in any case, and others only while there is room for all. Those that are
/// [our own](Datagram::is_own) count against the credit of who has sent them, which is bound enough:
/// they always have room.
///
/// # Invariants
///
/// `first` and `last` are the ends of a list of `len` skbs, linked by `next`, or null. Each is the
/// skb of a [`HeldPacket`] that was let go of for it; its control block says the rest. All of them
/// are counted in [`HELD`].
pub struct PacketQueue {
    first: *mut sk_buff,
    last: *mut sk_buff,
    len: usize,
}

// SAFETY: The skbs are ours and belong to no thread.
unsafe impl Send for PacketQueue {}

/// How many datagrams are in queues.
static HELD: Atomic<usize> = Atomic::new(0);

impl Default for PacketQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl PacketQueue {
    /// The most that a queue holds: as many as a peer may have outstanding by default.
    pub const MAX: usize = 512;

    /// The most that all queues hold together, but for the first one of each.
    pub const MAX_OF_ALL: usize = 1 << 14;

    /// How many wait in all queues.
    #[inline]
    pub fn len_of_all() -> usize {
        HELD.read_once()
    }

    /// An empty queue.
    pub const fn new() -> Self {
        Self {
            first: ptr::null_mut(),
            last: ptr::null_mut(),
            len: 0,
        }
    }

    /// How many wait.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing waits.
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
        let all = HELD.fetch_add(1, Relaxed);
        let is_full = self.len >= Self::MAX || (self.len > 0 && all >= Self::MAX_OF_ALL);
        if is_full && !packet.is_own() {
            HELD.fetch_sub(1, Relaxed);
            return Err(packet);
        }
        let skb = packet.into_skb();
        // SAFETY: The skb is ours, and so is its control block, which is large enough. So is the
        // last one of the list.
        unsafe {
            bindings::skb_set_next(skb, ptr::null_mut());
            match NonNull::new(self.last) {
                Some(last) => bindings::skb_set_next(last.as_ptr(), skb),
                None => self.first = skb,
            }
        }
        self.last = skb;
        self.len = self.len.wrapping_add(1);
        Ok(())
    }

    /// Appends all of `other`, however many there are.
    pub fn append(&mut self, other: Self) {
        let other = core::mem::ManuallyDrop::new(other);
        let Some(first) = NonNull::new(other.first) else {
            return;
        };
        match NonNull::new(self.last) {
            // SAFETY: By the invariants it is ours, and the last one of the list.
            Some(last) => unsafe { bindings::skb_set_next(last.as_ptr(), first.as_ptr()) },
            None => self.first = first.as_ptr(),
        }
        // INVARIANT: The lists are one, of which the other queue has nothing left.
        self.last = other.last;
        self.len = self.len.wrapping_add(other.len);
    }

    /// Puts a datagram back that was taken out last.
    pub fn push_front(&mut self, packet: HeldPacket) {
        HELD.fetch_add(1, Relaxed);
        let skb = packet.into_skb();
        // SAFETY: As in `push`.
        unsafe { bindings::skb_set_next(skb, self.first) };
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
            self.first = bindings::skb_next(skb.as_ptr());
            bindings::skb_set_next(skb.as_ptr(), ptr::null_mut());
        }
        if self.first.is_null() {
            self.last = ptr::null_mut();
        }
        self.len = self.len.wrapping_sub(1);
        HELD.fetch_sub(1, Relaxed);
        // SAFETY: It came from `into_skb`.
        Some(unsafe { HeldPacket::from_skb(skb) })
    }

    /// Drops all.
    pub fn clear(&mut self) {
        while self.pop().is_some() {}
    }
}

impl Drop for PacketQueue {
    fn drop(&mut self) {
        self.clear();
    }
}

impl HeldPacket {
    /// Gives the skb away, with what is known of it in its control block.
    fn into_skb(self) -> *mut sk_buff {
        let Datagram {
            skb,
            payload_len,
            is_ipv6,
            is_own,
            psns,
        } = *self;
        core::mem::forget(self);
        // SAFETY: The skb was ours, as was its control block, which has room for a number.
        unsafe {
            let note = bindings::skb_cb(skb.as_ptr()).cast::<u64>();
            let flags = u64::from(is_ipv6) | u64::from(is_own) << 1 | u64::from(psns) << 2;
            note.write_unaligned(u64::from(payload_len) | flags << 32);
        }
        skb.as_ptr()
    }

    /// # Safety
    ///
    /// `skb` must have come from [`into_skb`](Self::into_skb), and be nobody else's since.
    unsafe fn from_skb(skb: NonNull<sk_buff>) -> Self {
        // SAFETY: By the safety requirements.
        let note = unsafe {
            bindings::skb_cb(skb.as_ptr())
                .cast::<u64>()
                .read_unaligned()
        };
        // INVARIANT: As they were. CAST: The lower half is the length, and above the flags there is
        // nothing else.
        Self(Datagram {
            skb,
            payload_len: note as u32,
            is_ipv6: note >> 32 & 1 != 0,
            is_own: note >> 33 & 1 != 0,
            psns: (note >> 34) as u16,
        })
    }
}
