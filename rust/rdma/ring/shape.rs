// SPDX-License-Identifier: GPL-2.0

//! The number and the size of a ring's slots, and the arithmetic of its indices.
//!
//! One side owns each index. The owner keeps its index to itself and only publishes it (a store with
//! release). The other side loads it with acquire. A process may have stored anything, so the other
//! side takes the low bits. One slot always stays empty, so that a full ring differs from an empty one.
//!
//! This file has no dependency, so the host's tests compile it, too.

/// The shape of a ring. It is fixed when the ring is made and never read back from shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    log2_slots: u8,
    log2_slot_bytes: u8,
}

impl Shape {
    /// Returns the shape of a ring with room for at least `entries` entries of at least `entry_bytes` bytes.
    ///
    /// `None` if `entries` is over 2^24, or `entry_bytes` is 0 or over 2^16.
    pub const fn new(entries: u32, entry_bytes: u32) -> Option<Self> {
        if entries > 1 << 24 || entry_bytes == 0 || entry_bytes > 1 << 16 {
            return None;
        }
        let slots = entries.wrapping_add(1);
        Some(Self {
            log2_slots: ceil_log2(if slots < 2 { 2 } else { slots }),
            log2_slot_bytes: ceil_log2(entry_bytes),
        })
    }

    /// Returns the number of slots, a power of two.
    #[inline]
    pub const fn slots(self) -> u32 {
        1u32.wrapping_shl(self.log2_slots as u32)
    }

    /// Returns how many entries the ring holds: one less than slots.
    // Rules: WRQ-11
    #[inline]
    pub const fn capacity(self) -> u32 {
        self.mask()
    }

    /// Returns the bits of an index that count: `index_mask` of the header.
    #[inline]
    pub const fn mask(self) -> u32 {
        self.slots().wrapping_sub(1)
    }

    /// Returns the logarithm of the size of one slot: `log2_elem_size` of the header.
    #[inline]
    pub const fn log2_slot_bytes(self) -> u32 {
        self.log2_slot_bytes as u32
    }

    /// Returns the size of one slot.
    #[inline]
    pub const fn slot_bytes(self) -> usize {
        1usize.wrapping_shl(self.log2_slot_bytes as u32)
    }

    /// Returns the size of all slots.
    pub const fn bytes(self) -> usize {
        (self.slots() as usize).wrapping_mul(self.slot_bytes())
    }

    /// Returns the offset of slot `index` from the first one. Any index is valid: only its low bits
    /// count.
    // Rules: WRQ-10
    #[inline]
    pub const fn offset(self, index: u32) -> usize {
        let index = (index & self.mask()) as usize;
        index.wrapping_shl(self.log2_slot_bytes as u32)
    }

    /// Returns the index after `index`.
    #[inline]
    #[must_use]
    pub const fn next(self, index: u32) -> u32 {
        index.wrapping_add(1) & self.mask()
    }

    /// Returns how many entries lie between two indices, at most [`capacity`](Self::capacity).
    /// Either may come from shared memory.
    // Rules: WRQ-12
    #[inline]
    pub const fn used(self, producer: u32, consumer: u32) -> u32 {
        producer.wrapping_sub(consumer) & self.mask()
    }

    /// Returns how many more entries fit.
    #[inline]
    pub const fn free(self, producer: u32, consumer: u32) -> u32 {
        self.mask().wrapping_sub(self.used(producer, consumer))
    }
}

/// Returns log2 of the power of two at or above `n`, for `n` of 1 ..= 2^31.
const fn ceil_log2(n: u32) -> u8 {
    (u32::BITS.wrapping_sub(n.wrapping_sub(1).leading_zeros())) as u8
}
