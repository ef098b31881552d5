// SPDX-License-Identifier: GPL-2.0

//! A window that follows the share of congested round trips.

use super::{Before, Control, Loss, Path};
use crate::limits;
use crate::num::Psn;
use crate::time::Micros;

/// The window.
///
/// It grows with what is acknowledged: by all of that up to a threshold, by a step for each whole window above
/// it. While packets wait for a quarter of the timeout on average it does not grow. Each measured packet that
/// waited for half of the timeout makes it shrink by a quarter: many queue pairs that share a path would time
/// out. Where the path is congested it shrinks once in a round, by half of the share of rounds that were. A
/// round is the time in which a whole window is acknowledged, and no shorter than the time between two CNPs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    psns: u16,
    /// Up to where it grows by every acknowledged PSN.
    threshold: u16,
    /// PSNs acknowledged since a whole window was.
    acknowledged: u16,
    /// PSNs acknowledged since the last loss; `u16::MAX` if they are more, or nothing was lost.
    since_loss: u16,
    /// How many those were between losses, on average.
    loss_distance: u16,
    /// Losses of what was sent before this one have counted already.
    cut_up_to: Psn,
    round_began: Micros,
    /// The share of rounds that were congested; `u16::MAX` is all.
    share: u16,
    /// This round is.
    is_congested: bool,
}

impl Window {
    const MIN: u16 = limits::MIN_OUTSTANDING_PSNS as u16;
    const MIN_CONGESTED: u16 = limits::MIN_CONGESTED_PSNS as u16;
    const KEPT: u16 = limits::MAX_EARLY_PSNS as u16;
    const INITIAL: u16 = limits::INITIAL_OUTSTANDING_PSNS as u16;
    /// The growth above the threshold, for each acknowledged window.
    const STEP: u16 = 8;
    /// The same growth while some rounds are congested: senders that share a queue must keep it
    /// short.
    const CAREFUL_STEP: u16 = 1;
    /// Losses that are nearer to each other than so many PSNs, while packets queue, are those of a full queue.
    const NEAR_PSNS: u16 = 10;
    /// Losses that are so far from each other may be further as well.
    const FAR_PSNS: u16 = 64;
    /// The share of congested rounds from which on it grows carefully.
    const CAREFUL_SHARE: u16 = u16::MAX / 1024;
    /// A round counts for `1 / 2^ROUND_SHIFT` of the share.
    const ROUND_SHIFT: u32 = 4;

    /// Returns the law of a requester whose first packet is `first`.
    pub(super) const fn new(first: Psn) -> Self {
        Self {
            psns: Self::INITIAL,
            threshold: limits::MAX_OUTSTANDING_PSNS as u16,
            acknowledged: 0,
            since_loss: u16::MAX,
            loss_distance: Self::FAR_PSNS,
            cut_up_to: first,
            round_began: Micros::START,
            share: 0,
            is_congested: false,
        }
    }

    /// Returns what is needed to [forgive](Self::forgive) a loss.
    pub(super) fn before(&self) -> Before {
        Before {
            psns: self.psns,
            threshold: self.threshold,
            since_loss: self.since_loss,
        }
    }

    /// Takes back the reaction to a loss that was none, unless the path is congested anyway.
    pub(super) fn forgive(&mut self, before: Before) {
        if self.is_congested {
            return;
        }
        self.psns = self.psns.max(before.psns);
        self.threshold = self.threshold.max(before.threshold);
        self.since_loss = self.since_loss.max(before.since_loss);
    }

    fn shrink_to(&mut self, psns: u16) {
        self.psns = psns;
        self.threshold = psns;
        self.acknowledged = 0;
    }

    /// Shrinks by what was lost. Of random losses it stays large, but no larger than what the peer has room to
    /// keep.
    fn shrink_by(&mut self, count: u32) {
        let count = u16::try_from(count).unwrap_or(u16::MAX);
        let left = self.psns.saturating_sub(count).min(Self::KEPT);
        self.psns = left.max(Self::MIN).min(self.psns);
    }

    fn halve(&mut self) {
        let half = (self.psns / 2).min(Self::KEPT);
        self.shrink_to(half.max(Self::MIN).min(self.psns));
    }

    fn end_round(&mut self, path: &Path) {
        let now = Micros::of(path.now);
        if now.since(self.round_began) < limits::CNP_INTERVAL_US {
            return;
        }
        self.round_began = now;
        let this = if self.is_congested { u16::MAX } else { 0 };
        // Down to 0: after long without congestion, the next comes as the first.
        let forgotten = (self.share >> Self::ROUND_SHIFT).max(1);
        let kept = self.share.saturating_sub(forgotten);
        self.share = kept.saturating_add(this >> Self::ROUND_SHIFT);
        self.is_congested = false;
    }

    /// Notes a loss. Returns true if losses are so near to each other as those of a full queue.
    fn note_loss(&mut self) -> bool {
        let distance = core::mem::take(&mut self.since_loss).min(Self::FAR_PSNS);
        self.loss_distance = (self.loss_distance / 2).saturating_add(distance / 2);
        self.loss_distance < Self::NEAR_PSNS
    }

    /// Grows up to `psns`, or as far as the path allows.
    fn grow_to(&mut self, psns: u16, path: &Path) {
        let most = u16::try_from(path.most_psns()).unwrap_or(u16::MAX);
        // Where packets are lost, no more than what the peer has room to keep.
        let most = match self.since_loss {
            u16::MAX => most,
            _ => most.min(Self::KEPT),
        };
        self.psns = psns.min(most.max(self.psns));
    }

    fn step(&self) -> u16 {
        match self.share < Self::CAREFUL_SHARE {
            true => Self::STEP,
            false => Self::CAREFUL_STEP,
        }
    }
}

impl Control for Window {
    // Rules: SEG-18
    #[inline]
    fn psns(&self) -> u32 {
        self.psns.into()
    }

    // Rules: SEG-19
    #[inline]
    fn acknowledged(&mut self, count: u32, path: &Path) {
        let count = u16::try_from(count).unwrap_or(u16::MAX);
        self.acknowledged = self.acknowledged.saturating_add(count);
        self.since_loss = self.since_loss.saturating_add(count);
        if path.is_near_timeout() {
            let left = self.psns.saturating_sub(self.psns / 4);
            self.shrink_to(left.max(Self::MIN_CONGESTED));
        }
        let is_slow = path.is_slow();
        if self.psns < self.threshold && !is_slow {
            self.grow_to(self.psns.saturating_add(count).min(self.threshold), path);
        }
        if self.acknowledged < self.psns {
            return;
        }
        self.acknowledged = 0;
        if self.psns >= self.threshold && !is_slow && !self.is_congested {
            self.grow_to(self.psns.saturating_add(self.step()), path);
        }
        self.end_round(path);
    }

    // Rules: SEG-19
    fn lost(&mut self, loss: Loss, path: &Path) {
        let is_near = self.note_loss();
        match loss {
            Loss::One | Loss::Some(_) if is_near && path.is_queueing() => {
                // What was sent before the window shrank says nothing of the window as it is now.
                if path.is_outstanding(self.cut_up_to) {
                    return;
                }
                self.cut_up_to = path.end;
                self.halve();
            }
            Loss::One => {
                self.shrink_by(1);
                // A long path takes too long to fill by steps. Many losses may be those of a short queue.
                if is_near || path.is_queueing() || !path.is_long() {
                    self.threshold = self.psns;
                }
            }
            Loss::Some(count) => {
                self.shrink_by(count);
                self.threshold = self.psns;
            }
            Loss::Rest | Loss::NotReady => self.halve(),
            Loss::Silence => {
                self.halve();
                self.psns = self.psns.min(Self::MIN);
            }
        }
    }

    // Rules: CNP-5
    fn congested(&mut self, path: &Path) {
        if self.is_congested {
            return;
        }
        self.is_congested = true;
        self.round_began = Micros::of(path.now);
        if self.share == 0 {
            // Nothing is known but that it is too much.
            self.share = u16::MAX;
        }
        let cut = u32::from(self.psns).wrapping_mul(self.share.into()) >> 17;
        // CAST: It is no more than half of the window.
        let left = self.psns.saturating_sub((cut as u16).max(1));
        self.shrink_to(left.max(Self::MIN_CONGESTED));
    }

    fn was_congested(&self) -> bool {
        self.share > 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::path;
    use super::*;
    use crate::time::AckTimeout;

    const MOST: u32 = limits::SHORT_OUTSTANDING_PSNS;

    fn at_most() -> Window {
        let mut window = Window::new(Psn::new(0));
        window.acknowledged(10_000, &path(10, 10, 0));
        assert_eq!(window.psns(), MOST);
        window
    }

    #[test]
    fn grows_fast_at_first() {
        let mut window = Window::new(Psn::new(0));
        window.acknowledged(100, &path(10, 10, 0));
        assert_eq!(window.psns(), limits::INITIAL_OUTSTANDING_PSNS + 100);
    }

    #[test]
    fn halves_and_grows_slowly_after_all_was_lost() {
        let mut window = at_most();
        window.lost(Loss::Rest, &path(10, 10, 0));
        assert_eq!(window.psns(), MOST / 2);
        window.acknowledged(MOST / 2 - 1, &path(10, 10, 1));
        assert_eq!(window.psns(), MOST / 2);
        window.acknowledged(1, &path(10, 10, 2));
        assert_eq!(window.psns(), MOST / 2 + 8);
    }

    #[test]
    fn shrinks_by_what_was_lost_at_random() {
        let mut window = at_most();
        window.lost(Loss::Some(2), &path(19, 10, 0));
        assert_eq!(window.psns(), MOST - 2);
    }

    #[test]
    fn halves_once_for_losses_of_a_full_queue() {
        let mut window = at_most();
        let full = path(100, 10, 0);
        for _ in 0..8 {
            window.lost(Loss::Some(1), &full);
            window.acknowledged(3, &full);
        }
        let halved = window.psns();
        assert!((MOST / 2 - 8..=MOST / 2).contains(&halved), "{halved}");
        window.lost(Loss::Some(1), &full);
        assert_eq!(window.psns(), halved, "the same window");
        let later = Path {
            unacked: Psn::new(100),
            end: Psn::new(200),
            ..full
        };
        window.lost(Loss::Some(1), &later);
        assert_eq!(window.psns(), halved / 2, "the next window");
    }

    #[test]
    fn forgives_a_loss_that_was_none() {
        let mut window = at_most();
        let (before, psns) = (window.before(), window.psns());
        window.lost(Loss::Some(8), &path(10, 10, 0));
        assert!(window.psns() < psns);
        window.forgive(before);
        assert_eq!(window.psns(), psns);
        window.congested(&path(10, 10, 10));
        let cut = window.psns();
        window.forgive(before);
        assert_eq!(window.psns(), cut, "it is congested");
    }

    #[test]
    fn reacts_wherever_the_first_psn_is() {
        for first in [0, 1, 0x40_0000, 0x80_0000, 0xc0_0000, 0xff_ffff] {
            let mut window = Window {
                cut_up_to: Psn::new(first),
                ..at_most()
            };
            let full = Path {
                unacked: Psn::new(first),
                end: Psn::new(first).add(100),
                ..path(100, 10, 0)
            };
            for _ in 0..16 {
                window.lost(Loss::Some(1), &full);
            }
            assert!(window.psns() <= MOST / 2, "{first:#x}: {window:?}");
        }
    }

    #[test]
    fn stays_large_while_losses_are_far_from_each_other() {
        let mut window = at_most();
        for round in 0..100 {
            window.acknowledged(40, &path(100, 10, round * 100));
            window.lost(Loss::Some(1), &path(100, 10, round * 100));
        }
        assert!(window.psns() > MOST * 3 / 4, "{window:?}");
    }

    #[test]
    fn comes_back_fast_to_half_after_silence() {
        let mut window = at_most();
        window.lost(Loss::Silence, &path(10, 10, 0));
        assert_eq!(window.psns(), limits::MIN_OUTSTANDING_PSNS);
        window.acknowledged(10_000, &path(10, 10, 1));
        assert!(window.psns() >= MOST / 2);
    }

    #[test]
    fn grows_further_on_a_long_way_until_packets_wait() {
        let mut window = at_most();
        for round in 0..1000 {
            window.acknowledged(10_000, &path(1000, 1000, round * 1000));
        }
        let long = window.psns();
        assert_eq!(long, limits::MAX_OUTSTANDING_PSNS);
        let mut window = at_most();
        for round in 0..1000 {
            window.acknowledged(10_000, &path(1600, 1000, round * 1000));
        }
        assert_eq!(window.psns(), MOST, "they wait");
        window.psns = 600;
        window.acknowledged(10_000, &path(1600, 1000, 0));
        assert_eq!(window.psns(), 600, "what it has it keeps");
    }

    #[test]
    fn near_losses_end_the_fast_growth_on_a_long_way() {
        for (apart, is_fast) in [(2, false), (100, true)] {
            let mut window = at_most();
            window.psns = 64;
            let long = path(1000, 1000, 0);
            for _ in 0..8 {
                window.lost(Loss::One, &long);
                window.acknowledged(apart, &long);
            }
            let before = window.psns();
            window.acknowledged(100, &long);
            assert_eq!(window.psns() - before == 100, is_fast, "{window:?}");
        }
    }

    #[test]
    fn shrinks_before_packets_wait_as_long_as_the_timeout() {
        let timeout_us = 67_109;
        let mut window = at_most();
        let acknowledge = |window: &mut Window, waits_us: u32| {
            window.acknowledged(window.psns(), &path(10 + waits_us, 10, 0));
        };
        acknowledge(&mut window, timeout_us / 2 + 1);
        assert_eq!(window.psns(), MOST - MOST / 4);
        acknowledge(&mut window, timeout_us / 4 + 1);
        assert_eq!(window.psns(), MOST - MOST / 4, "it stays");
        acknowledge(&mut window, timeout_us / 4 - 1);
        assert_eq!(window.psns(), MOST - MOST / 4 + 8);
        for _ in 0..100 {
            acknowledge(&mut window, timeout_us);
        }
        // A quarter of 3 is none.
        assert_eq!(window.psns(), limits::MIN_CONGESTED_PSNS + 1);
        let mut window = at_most();
        let long_way = Path {
            timeout: AckTimeout::NEVER,
            ..path(timeout_us, 10, 0)
        };
        window.acknowledged(MOST, &long_way);
        assert_eq!(window.psns(), MOST, "there is no timeout");
        let mut window = at_most();
        window.acknowledged(MOST, &path(timeout_us, timeout_us - 10, 0));
        assert_eq!(
            window.psns(),
            2 * MOST,
            "the way is long, and nothing waits"
        );
    }

    // Rules: CNP-5
    #[test]
    fn halves_at_the_first_mark_and_less_when_few_rounds_are_marked() {
        let mut window = at_most();
        window.congested(&path(10, 10, 0));
        assert_eq!(window.psns(), MOST / 2 + 1);
        window.congested(&path(10, 10, 10));
        assert_eq!(window.psns(), MOST / 2 + 1, "once in a round");
        for round in 1..40 {
            window.acknowledged(10_000, &path(10, 10, round * 60));
        }
        let before = window.psns();
        window.congested(&path(10, 10, 40 * 60));
        let cut = before - window.psns();
        assert!(cut <= before / 16, "{before} - {cut}");
    }

    #[test]
    fn goes_down_to_two() {
        let mut window = at_most();
        for round in 0..10_000 {
            window.congested(&path(100, 10, round * 100));
            window.acknowledged(window.psns(), &path(100, 10, round * 100 + 60));
        }
        assert_eq!(window.psns(), limits::MIN_CONGESTED_PSNS);
    }
}
