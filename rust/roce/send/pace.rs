// SPDX-License-Identifier: GPL-2.0

//! How much may be outstanding: as much as gets through.

use crate::limits;

/// The PSNs that may be outstanding now.
///
/// A loss has all that was sent after it sent again, so the more is outstanding the dearer it is,
/// and a receiver that falls behind falls further behind by what it gets twice. The number grows
/// with what is acknowledged and shrinks when something was lost, or met no receive: the peer drops
/// what comes behind that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pace {
    psns: u32,
    /// Up to where it grows by every acknowledged PSN.
    threshold: u32,
    /// PSNs acknowledged since it last grew, above the threshold.
    acknowledged: u32,
}

impl Pace {
    const MIN: u32 = limits::MIN_OUTSTANDING_PSNS;
    const INITIAL: u32 = limits::INITIAL_OUTSTANDING_PSNS;
    const MAX: u32 = limits::MAX_OUTSTANDING_PSNS;
    /// What it grows by, above the threshold, when as much as it allows was acknowledged.
    const STEP: u32 = 8;

    pub(super) const NEW: Self = Self {
        psns: Self::INITIAL,
        threshold: Self::MAX,
        acknowledged: 0,
    };

    /// How many PSNs may be outstanding, [`MIN`](Self::MIN) ..= [`MAX`](Self::MAX).
    // Rules: SEG-18
    #[inline]
    pub(super) const fn psns(&self) -> u32 {
        self.psns
    }

    /// `count` PSNs were acknowledged.
    // Rules: SEG-19
    pub(super) fn acknowledged(&mut self, count: u32) {
        let grown = if self.psns < self.threshold {
            self.psns.saturating_add(count).min(self.threshold)
        } else {
            self.acknowledged = self.acknowledged.saturating_add(count);
            if self.acknowledged < self.psns {
                return;
            }
            self.acknowledged = 0;
            self.psns.saturating_add(Self::STEP)
        };
        self.psns = grown.min(Self::MAX);
    }

    /// The peer tells that something was lost, or that it was not ready for it.
    // Rules: SEG-19
    pub(super) fn lost(&mut self) {
        self.threshold = (self.psns / 2).max(Self::MIN);
        self.psns = self.threshold;
        self.acknowledged = 0;
    }

    /// The peer does not answer: everything may be lost.
    pub(super) fn timed_out(&mut self) {
        self.lost();
        self.psns = Self::MIN;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_fast_at_first() {
        let mut pace = Pace::NEW;
        pace.acknowledged(100);
        assert_eq!(pace.psns(), Pace::INITIAL + 100);
        pace.acknowledged(10_000);
        assert_eq!(pace.psns(), Pace::MAX);
    }

    #[test]
    fn halves_and_grows_slowly_after_a_loss() {
        let mut pace = Pace::NEW;
        pace.acknowledged(10_000);
        pace.lost();
        assert_eq!(pace.psns(), Pace::MAX / 2);
        pace.acknowledged(Pace::MAX / 2 - 1);
        assert_eq!(pace.psns(), Pace::MAX / 2);
        pace.acknowledged(1);
        assert_eq!(pace.psns(), Pace::MAX / 2 + Pace::STEP);
    }

    // Rules: SEG-19
    #[test]
    fn never_leaves_its_bounds() {
        let mut pace = Pace::NEW;
        for _ in 0..100 {
            pace.lost();
            assert!(pace.psns() >= Pace::MIN);
            pace.timed_out();
            assert_eq!(pace.psns(), Pace::MIN);
        }
        for _ in 0..10_000 {
            pace.acknowledged(u32::MAX);
            assert!(pace.psns() <= Pace::MAX);
        }
        assert_eq!(pace.psns(), Pace::MAX);
    }

    #[test]
    fn comes_back_fast_to_half_after_a_timeout() {
        let mut pace = Pace::NEW;
        pace.timed_out();
        pace.acknowledged(10_000);
        assert_eq!(pace.psns(), Pace::INITIAL / 2);
    }
}
