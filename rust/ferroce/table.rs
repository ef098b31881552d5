// SPDX-License-Identifier: GPL-2.0

//! The numbers by which a device's objects are found, and the objects' identities.

use core::ops::RangeInclusive;

use kernel::sync::atomic::{Atomic, Relaxed};
use roce::num::Lkey;

/// Queue-pair numbers that are given out: above the special ones, as many as a device advertises.
pub(crate) const QPNS: RangeInclusive<u32> = 0x10..=0xf_ffff;

/// Indices of memory regions that are given out. Keys are 24 bits of index and 8 of variant; key
/// 0 is nobody's.
pub(crate) const MR_INDICES: RangeInclusive<u32> = 1..=0x7_ffff;

/// By what the kernel's work requests name its memory, all of it. It has an index that no region has:
/// who looks it up, as for a peer or a process, finds nothing.
pub(crate) const LOCAL_DMA_LKEY: Lkey = Lkey(1);

/// Numbers of address handles that are given out; 0 says that there is none.
pub(crate) const AH_NUMBERS: RangeInclusive<u32> = 1..=0xff_ffff;

/// Numbers of counters that are given out; 0 says that there is none.
pub(crate) const COUNTER_NUMBERS: RangeInclusive<u32> = 1..=0x7fff_ffff;

/// Indices of memory windows that are given out: no region has them.
pub(crate) const MW_INDICES: RangeInclusive<u32> = 0x8_0000..=0xf_fffe;

/// Indices of regions that work requests register: above all others, so that keys of processes are
/// found first.
pub(crate) const FAST_INDICES: RangeInclusive<u32> = 0x10_0000..=0x17_ffff;

/// Whether `key` is of a memory window.
pub(crate) fn is_window(key: u32) -> bool {
    MW_INDICES.contains(&index_of(key))
}

/// `key` with the variant of `other`.
pub(crate) fn with_variant(key: u32, other: u32) -> u32 {
    key & !0xff | other & 0xff
}

/// Makes a key for the memory region at `index`. Its `variant` differs from the last one's, so
/// that a key that was given up is not soon good again.
pub(crate) fn key(index: u32, variant: u8) -> u32 {
    index.wrapping_shl(8) | u32::from(variant)
}

/// The index of the memory region that `key` belongs to.
pub(crate) fn index_of(key: u32) -> u32 {
    key.wrapping_shr(8)
}

/// The identity of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct QpId(u64);

impl QpId {
    /// An identity that no queue pair had before.
    pub(crate) fn new() -> Self {
        static NEXT: Atomic<u64> = Atomic::new(1);
        Self(NEXT.fetch_add(1, Relaxed))
    }
}

/// The identity of a protection domain: objects work together only when theirs are equal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct PdId(u64);

impl PdId {
    /// An identity that no protection domain had before.
    pub(crate) fn new() -> Self {
        static NEXT: Atomic<u64> = Atomic::new(1);
        Self(NEXT.fetch_add(1, Relaxed))
    }
}
