// SPDX-License-Identifier: GPL-2.0

//! Random numbers from a seed, the same on every machine.

/// A generator of pseudo-random numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Rng(u64);

/// A probability, in millionths.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Chance(u32);

impl Chance {
    /// Takes a probability, clamped to 0 to 1.
    pub fn new(probability: f64) -> Self {
        Self((probability.clamp(0.0, 1.0) * 1e6).round() as u32)
    }

    /// Returns true if the event never happens.
    pub fn is_never(self) -> bool {
        self.0 == 0
    }
}

impl Rng {
    /// Returns the generator of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns another generator, independent of further numbers of this one.
    pub fn fork(&mut self) -> Self {
        Self(self.next() ^ 0x5851_f42d_4c95_7f2d)
    }

    /// Returns the next number.
    #[allow(clippy::should_implement_trait)] // It is no iterator: it never ends.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `n`; 0 if that is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        match n {
            0 => 0,
            n => self.next() % n,
        }
    }

    /// Returns a number below `n`.
    pub fn index(&mut self, n: usize) -> usize {
        self.below(n as u64) as usize
    }

    /// Returns one of `choices`, which are not empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    /// Returns true with this probability.
    pub fn chance(&mut self, chance: Chance) -> bool {
        // An impossible event takes no number, so it costs nothing.
        !chance.is_never() && self.below(1_000_000) < u64::from(chance.0)
    }

    /// Returns true `percent` times in a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}
