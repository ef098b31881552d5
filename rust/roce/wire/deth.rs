// SPDX-License-Identifier: GPL-2.0

//! The datagram extended transport header (DETH).

use crate::num::{Qkey, Qpn};

/// Bytes of the header.
pub const BYTES: usize = 8;

/// A datagram extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deth {
    /// The key that the receiver must have.
    pub qkey: Qkey,
    /// The queue pair that sent it.
    pub src_qp: Qpn,
}

impl Deth {
    /// Parses the header; its reserved byte is ignored.
    // Rules: WIRE-14
    #[inline]
    pub fn parse(bytes: &[u8; BYTES]) -> Self {
        let [k0, k1, k2, k3, _, q0, q1, q2] = *bytes;
        Self {
            qkey: Qkey(u32::from_be_bytes([k0, k1, k2, k3])),
            src_qp: Qpn::from_be_bytes([q0, q1, q2]),
        }
    }

    /// Emits the header.
    // Rules: WIRE-14
    #[inline]
    pub fn emit(&self) -> [u8; BYTES] {
        let [k0, k1, k2, k3] = self.qkey.0.to_be_bytes();
        let [q0, q1, q2] = self.src_qp.to_be_bytes();
        [k0, k1, k2, k3, 0, q0, q1, q2]
    }
}
