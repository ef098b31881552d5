// SPDX-License-Identifier: GPL-2.0

//! The atomic acknowledge extended transport header (AtomicAckETH).

/// Bytes of the header.
pub const BYTES: usize = 8;

/// An atomic acknowledge extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicAckEth {
    /// The original value.
    pub original: u64,
}

impl AtomicAckEth {
    /// Parses the header.
    // Rules: WIRE-13
    #[inline]
    pub fn parse(bytes: &[u8; BYTES]) -> Self {
        Self {
            original: u64::from_be_bytes(*bytes),
        }
    }

    /// Emits the header.
    // Rules: WIRE-13
    #[inline]
    pub fn emit(&self) -> [u8; BYTES] {
        self.original.to_be_bytes()
    }
}
