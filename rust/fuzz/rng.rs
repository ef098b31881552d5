// SPDX-License-Identifier: GPL-2.0

//! Choices that are read from bytes, where the tests have them from a generator.

use std::collections::VecDeque;

/// Bytes to choose by; 0 when there are no more.
#[derive(Clone, Default)]
pub struct Rng(VecDeque<u8>);

impl Rng {
    /// Returns a source of a few bytes that follow from `seed`, for the random decisions of the
    /// world.
    pub fn new(seed: u64) -> Self {
        let mut word = seed;
        let words = [(); 2].map(|()| {
            word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (mixed ^ (mixed >> 31)).to_be_bytes()
        });
        Self(words.as_flattened().iter().copied().collect())
    }

    /// Chooses by `bytes`.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(bytes.iter().copied().collect())
    }

    /// Returns true if all bytes are used up.
    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    fn take(&mut self, count: u32) -> u64 {
        (0..count).fold(0, |word, _| {
            (word << 8) | u64::from(self.0.pop_front().unwrap_or(0))
        })
    }

    /// Returns a number of 64 bits.
    pub fn next(&mut self) -> u64 {
        self.take(8)
    }

    /// Returns a number below `n`, which is not 0; by no more bytes than it takes.
    pub fn below(&mut self, n: u64) -> u64 {
        let bytes = (64 - (n - 1).leading_zeros()).div_ceil(8);
        self.take(bytes) % n
    }

    /// Returns true `per_mille` times in a thousand, if the bytes are evenly distributed.
    pub fn chance(&mut self, per_mille: u32) -> bool {
        self.below(1000) < u64::from(per_mille)
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte = self.take(1) as u8;
        }
    }
}
