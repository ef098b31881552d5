// SPDX-License-Identifier: GPL-2.0

//! The RDMA extended transport header (RETH): the remote memory of a READ or WRITE.

use crate::num::{Iova, Rkey};

/// Bytes of the header.
pub const BYTES: usize = 16;

/// An RDMA extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reth {
    /// The start of the requested memory ("virtual address").
    pub iova: Iova,
    /// The key that opens it.
    pub rkey: Rkey,
    /// Its length in bytes ("DMA length").
    pub length: u32,
}

impl Reth {
    /// Parses the header.
    // Rules: WIRE-10
    #[inline]
    pub fn parse(bytes: &[u8; BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, k0, k1, k2, k3, l0, l1, l2, l3] = *bytes;
        Self {
            iova: Iova(u64::from_be_bytes([a, b, c, d, e, f, g, h])),
            rkey: Rkey(u32::from_be_bytes([k0, k1, k2, k3])),
            length: u32::from_be_bytes([l0, l1, l2, l3]),
        }
    }

    /// Emits the header.
    // Rules: WIRE-10
    #[inline]
    pub fn emit(&self) -> [u8; BYTES] {
        let [a, b, c, d, e, f, g, h] = self.iova.0.to_be_bytes();
        let [k0, k1, k2, k3] = self.rkey.0.to_be_bytes();
        let [l0, l1, l2, l3] = self.length.to_be_bytes();
        [a, b, c, d, e, f, g, h, k0, k1, k2, k3, l0, l1, l2, l3]
    }
}
