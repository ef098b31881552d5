// SPDX-License-Identifier: GPL-2.0

//! Numbers of keys: 24 bits of index, which select the object, and 8 bits of variant.

use core::ops::RangeInclusive;

use kernel::sync::atomic::{Atomic, Relaxed};
use roce::num::Lkey;

/// Indices of memory regions that a verb registers: half of all. Key 0 is never used.
pub(crate) const MR_INDICES: RangeInclusive<u32> = 1..=0x7f_ffff;

/// Indices of memory windows.
pub(crate) const MW_INDICES: RangeInclusive<u32> = 0x80_0000..=0xbf_ffff;

/// Indices of regions that work requests register.
pub(crate) const FAST_INDICES: RangeInclusive<u32> = 0xc0_0000..=0xff_ffff;

/// The key of all kernel memory, for work requests of the kernel. No object has its index, so a lookup
/// for a peer or a process finds nothing.
pub(crate) const LOCAL_DMA_LKEY: Lkey = Lkey(1);

/// The kind of an object with keys.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// A memory region that a verb registers.
    Mr,
    /// A memory window.
    Mw,
    /// A region that work requests register.
    Fast,
}

impl Kind {
    /// Returns the kind of objects with this index.
    #[inline]
    pub(super) fn of(index: u32) -> Option<Self> {
        if MR_INDICES.contains(&index) {
            Some(Self::Mr)
        } else if MW_INDICES.contains(&index) {
            Some(Self::Mw)
        } else if FAST_INDICES.contains(&index) {
            Some(Self::Fast)
        } else {
            None
        }
    }
}

/// Creates a key for the object at `index`. Its variant differs from the last one, so that an old key
/// does not soon become valid again.
// Rules: MEM-10
pub(super) fn new_key(index: u32) -> u32 {
    static NEXT: Atomic<u32> = Atomic::new(0);
    // Odd steps visit every value before one comes again.
    with_variant(index.wrapping_shl(8), NEXT.fetch_add(0x35, Relaxed))
}

/// Returns `key` with the variant of `other`.
pub(super) fn with_variant(key: u32, other: u32) -> u32 {
    key & !0xff | other & 0xff
}

/// Returns the index of the object of `key`.
#[inline]
pub(super) fn index_of(key: u32) -> u32 {
    key.wrapping_shr(8)
}
