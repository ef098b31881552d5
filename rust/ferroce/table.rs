// SPDX-License-Identifier: GPL-2.0

//! The numbers by which a device's objects are found, but those of [keys](crate::keys), and the
//! objects' identities.

use core::ops::RangeInclusive;

use kernel::sync::atomic::{Atomic, Relaxed};

/// Queue-pair numbers that are given out: above the special ones, as many as a device advertises.
pub(crate) const QPNS: RangeInclusive<u32> = 0x10..=0xf_ffff;

/// Numbers of address handles that are given out; 0 says that there is none.
pub(crate) const AH_NUMBERS: RangeInclusive<u32> = 1..=0xff_ffff;

/// Protection domains of a device: as many as rdma_rxe has.
pub(crate) const MAX_PD: u32 = 1 << 20;

/// Numbers of counters that are given out; 0 says that there is none.
pub(crate) const COUNTER_NUMBERS: RangeInclusive<u32> = 1..=0x7fff_ffff;

/// The identity of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct QpId(u64);

impl QpId {
    /// Creates an identity that no queue pair had before.
    pub(crate) fn new() -> Self {
        static NEXT: Atomic<u64> = Atomic::new(1);
        Self(NEXT.fetch_add(1, Relaxed))
    }
}

/// The identity of a protection domain: objects work together only when theirs are equal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct PdId(u64);

impl PdId {
    /// Creates an identity that no protection domain had before.
    pub(crate) fn new() -> Self {
        static NEXT: Atomic<u64> = Atomic::new(1);
        Self(NEXT.fetch_add(1, Relaxed))
    }
}
