// SPDX-License-Identifier: GPL-2.0

//! The atomic extended transport header (AtomicETH).

use crate::num::{Iova, Rkey};

/// Bytes of the header.
pub const BYTES: usize = 28;

/// An atomic extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicEth {
    /// The address of the operand.
    pub iova: Iova,
    /// The key that opens them.
    pub rkey: Rkey,
    /// The addend, or the value to store if the comparison holds.
    pub swap_add: u64,
    /// The value to compare with.
    pub compare: u64,
}

impl AtomicEth {
    /// Parses the header.
    // Rules: WIRE-11
    #[inline]
    pub fn parse(bytes: &[u8; BYTES]) -> Self {
        let [a0, a1, a2, a3, a4, a5, a6, a7, k0, k1, k2, k3, s0, s1, s2, s3, s4, s5, s6, s7, c0, c1, c2, c3, c4, c5, c6, c7] =
            *bytes;
        Self {
            iova: Iova(u64::from_be_bytes([a0, a1, a2, a3, a4, a5, a6, a7])),
            rkey: Rkey(u32::from_be_bytes([k0, k1, k2, k3])),
            swap_add: u64::from_be_bytes([s0, s1, s2, s3, s4, s5, s6, s7]),
            compare: u64::from_be_bytes([c0, c1, c2, c3, c4, c5, c6, c7]),
        }
    }

    /// Emits the header.
    // Rules: WIRE-11
    #[inline]
    pub fn emit(&self) -> [u8; BYTES] {
        let [a0, a1, a2, a3, a4, a5, a6, a7] = self.iova.0.to_be_bytes();
        let [k0, k1, k2, k3] = self.rkey.0.to_be_bytes();
        let [s0, s1, s2, s3, s4, s5, s6, s7] = self.swap_add.to_be_bytes();
        let [c0, c1, c2, c3, c4, c5, c6, c7] = self.compare.to_be_bytes();
        [
            a0, a1, a2, a3, a4, a5, a6, a7, k0, k1, k2, k3, s0, s1, s2, s3, s4, s5, s6, s7, c0, c1,
            c2, c3, c4, c5, c6, c7,
        ]
    }
}
