// SPDX-License-Identifier: GPL-2.0

//! DCQCN, as published by Zhu and others ("Congestion Control for Large-Scale RDMA Deployments", 2015).
//!
//! A CNP cuts the rate by half of the estimate `alpha`, which grows with each CNP and decays without. The rate
//! then comes back: by halves to where it was (fast recovery), by steps above that (additive increase), and by
//! larger steps after long (hyper increase). Time and bytes sent count stages each for itself.
//!
//! The rate is kept by a window, rate times round trip: a timer for each packet costs more than it gives.

use super::{Control, Loss, Path};
use crate::limits;
use crate::time::Micros;

/// The state of the law. Rates are in kbit/s.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dcqcn {
    psns: u32,
    current: u32,
    target: u32,
    /// Bytes acknowledged since the byte counter's last stage.
    bytes: u32,
    /// When the last stage of time ended, and with it alpha decayed.
    stage_at: Micros,
    /// `u16::MAX` is 1.
    alpha: u16,
    time_stages: u8,
    byte_stages: u8,
}

impl Dcqcn {
    /// More than any line has.
    const MAX_RATE: u32 = 400_000_000;
    const MIN_RATE: u32 = 10_000;
    /// R_AI and R_HAI.
    const ADDITIVE_STEP: u32 = 40_000;
    const HYPER_STEP: u32 = 400_000;
    /// F: the stages of fast recovery.
    const FAST_STAGES: u8 = 5;
    /// B: bytes of a stage.
    const STAGE_BYTES: u32 = 10_000_000;
    /// T: microseconds of a stage, after each of which without a CNP alpha decays.
    const STAGE_US: u32 = 55;
    /// g is `1 / 2^ALPHA_SHIFT`.
    const ALPHA_SHIFT: u32 = 8;
    /// Stages that one call makes up for: after so many without a call nothing of the past is left.
    const MOST_STAGES: u32 = 512;

    pub(super) const NEW: Self = Self {
        psns: limits::INITIAL_OUTSTANDING_PSNS,
        current: Self::MAX_RATE,
        target: Self::MAX_RATE,
        bytes: 0,
        stage_at: Micros::START,
        alpha: u16::MAX,
        time_stages: 0,
        byte_stages: 0,
    };

    /// Raises the rate at the end of a stage.
    fn raise(&mut self) {
        let (time, bytes) = (self.time_stages, self.byte_stages);
        if time.min(bytes) > Self::FAST_STAGES {
            self.target = self.target.saturating_add(Self::HYPER_STEP);
        } else if time.max(bytes) > Self::FAST_STAGES {
            self.target = self.target.saturating_add(Self::ADDITIVE_STEP);
        }
        self.target = self.target.min(Self::MAX_RATE);
        let both = u64::from(self.target).saturating_add(self.current.into());
        // CAST: It lies between the two.
        self.current = both.div_ceil(2) as u32;
    }

    fn pass_time(&mut self, now: Micros) {
        if self.current == Self::MAX_RATE {
            self.stage_at = now;
            return;
        }
        let stages = now.since(self.stage_at) / Self::STAGE_US;
        self.stage_at = match stages > Self::MOST_STAGES {
            true => now,
            false => self.stage_at.after(stages.saturating_mul(Self::STAGE_US)),
        };
        for _ in 0..stages.min(Self::MOST_STAGES) {
            self.alpha = self.alpha.saturating_sub(self.alpha >> Self::ALPHA_SHIFT);
            self.time_stages = self.time_stages.saturating_add(1);
            self.raise();
        }
    }

    fn pass_bytes(&mut self, count: u32, path: &Path) {
        self.bytes = self
            .bytes
            .saturating_add(count.saturating_mul(path.mtu.bytes()));
        if self.bytes >= Self::STAGE_BYTES {
            self.bytes = 0;
            self.byte_stages = self.byte_stages.saturating_add(1);
            self.raise();
        }
    }

    /// Returns true if the rate was cut so lately that its effect cannot be seen yet.
    fn has_just_cut(&self, now: Micros) -> bool {
        let is_cut =
            self.current < Self::MAX_RATE && (self.time_stages, self.byte_stages) == (0, 0);
        is_cut && now.since(self.stage_at) < limits::CNP_INTERVAL_US
    }

    /// Makes the window that keeps the rate.
    fn fit(&mut self, path: &Path) {
        if path.average_ns == 0 {
            return;
        }
        // 1 kbit/s for 1 ns is 1/8,000,000 of a byte.
        let bytes = u64::from(self.current).saturating_mul(path.average_ns.into()) / 8_000_000;
        let psns = (bytes / u64::from(path.mtu.bytes())).saturating_add(1);
        let most = path.most_psns();
        self.psns = u32::try_from(psns)
            .unwrap_or(most)
            .clamp(limits::MIN_CONGESTED_PSNS, most);
    }

    /// Returns the rate that the window has allowed.
    fn allowed(&self, path: &Path) -> u32 {
        let bits = u64::from(self.psns)
            .saturating_mul(path.mtu.bytes().into())
            .saturating_mul(8_000_000);
        match path.average_ns {
            0 => Self::MAX_RATE,
            ns => u32::try_from(bits / u64::from(ns)).unwrap_or(Self::MAX_RATE),
        }
    }
}

impl Control for Dcqcn {
    #[inline]
    fn psns(&self) -> u32 {
        self.psns
    }

    fn acknowledged(&mut self, count: u32, path: &Path) {
        self.pass_time(Micros::of(path.now));
        if self.current < Self::MAX_RATE {
            self.pass_bytes(count, path);
        }
        let most = self.psns.saturating_add(count);
        self.fit(path);
        // A rising rate causes no burst: acknowledged packets make room for twice as many.
        self.psns = self.psns.min(most);
    }

    fn lost(&mut self, loss: Loss, path: &Path) {
        match loss {
            // DCQCN leaves losses to the network, which is to have none. It says nothing of those at random.
            Loss::One | Loss::Some(_) if !path.is_queueing() => {}
            Loss::NotReady => {}
            Loss::One | Loss::Some(_) | Loss::Rest => self.congested(path),
            Loss::Silence => {
                self.congested(path);
                self.psns = self.psns.min(limits::MIN_OUTSTANDING_PSNS);
            }
        }
    }

    // Rules: CNP-5
    fn congested(&mut self, path: &Path) {
        let now = Micros::of(path.now);
        self.pass_time(now);
        if self.has_just_cut(now) {
            return;
        }
        // The rate that the window allowed is all that can have been too much.
        self.current = self.current.min(self.allowed(path));
        self.target = self.current;
        let cut = u64::from(self.current).wrapping_mul(self.alpha.into()) >> 17;
        // CAST: It is no more than half of the rate.
        self.current = self.current.saturating_sub(cut as u32).max(Self::MIN_RATE);
        let kept = self.alpha.saturating_sub(self.alpha >> Self::ALPHA_SHIFT);
        self.alpha = kept.saturating_add(u16::MAX >> Self::ALPHA_SHIFT);
        (self.time_stages, self.byte_stages, self.bytes) = (0, 0, 0);
        self.stage_at = now;
        self.fit(path);
    }

    fn was_congested(&self) -> bool {
        self.current < Self::MAX_RATE
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::path;
    use super::*;

    fn at_rate(kbps: u32) -> Dcqcn {
        let mut dcqcn = Dcqcn {
            current: kbps,
            target: kbps,
            ..Dcqcn::NEW
        };
        dcqcn.fit(&path(100, 100, 0));
        dcqcn
    }

    #[test]
    fn the_window_keeps_the_rate() {
        // 10 Gbit/s for 100 us are 125,000 bytes.
        assert_eq!(at_rate(10_000_000).psns(), 123);
    }

    // Rules: CNP-5
    #[test]
    fn halves_at_the_first_cnp_and_comes_back_by_halves() {
        let mut dcqcn = at_rate(10_000_000);
        dcqcn.congested(&path(100, 100, 100));
        assert!(dcqcn.current.abs_diff(5_000_000) < 100_000, "{dcqcn:?}");
        dcqcn.acknowledged(1, &path(100, 100, 156));
        assert!(dcqcn.current.abs_diff(7_500_000) < 100_000, "{dcqcn:?}");
        dcqcn.acknowledged(1, &path(100, 100, 100 + 56 * 5));
        let recovered = dcqcn.current;
        assert!(recovered.abs_diff(10_000_000) < 300_000, "{dcqcn:?}");
        dcqcn.acknowledged(1, &path(100, 100, 100 + 56 * 100));
        assert!(dcqcn.current > recovered, "{dcqcn:?}");
    }

    #[test]
    fn alpha_decays_without_cnps() {
        let mut dcqcn = at_rate(10_000_000);
        dcqcn.acknowledged(1, &path(100, 100, 55 * 1000));
        dcqcn.current = 10_000_000;
        dcqcn.fit(&path(100, 100, 55 * 1000));
        dcqcn.congested(&path(100, 100, 55 * 1000));
        assert!(dcqcn.current > 9_000_000, "{dcqcn:?}");
    }

    #[test]
    fn losses_count_while_packets_wait() {
        let mut dcqcn = at_rate(10_000_000);
        dcqcn.lost(Loss::Some(1), &path(100, 100, 0));
        dcqcn.lost(Loss::NotReady, &path(100, 100, 0));
        assert_eq!(dcqcn.current, 10_000_000);
        dcqcn.lost(Loss::Some(1), &path(300, 100, 100));
        assert!(dcqcn.current < 6_000_000, "{dcqcn:?}");
        dcqcn.lost(Loss::Silence, &path(300, 100, 200));
        assert!(dcqcn.psns() <= limits::MIN_OUTSTANDING_PSNS);
    }

    // Rules: CNP-5
    #[test]
    fn cuts_once_in_an_interval() {
        let mut dcqcn = at_rate(10_000_000);
        for _ in 0..64 {
            dcqcn.congested(&path(100, 100, 101));
        }
        assert!(dcqcn.current > 4_900_000, "{dcqcn:?}");
        dcqcn.congested(&path(100, 100, 152));
        assert!(dcqcn.current < 3_000_000, "{dcqcn:?}");
    }

    #[test]
    fn the_first_cnp_halves_however_long_the_machine_runs() {
        let mut dcqcn = Dcqcn::NEW;
        for at_us in [1_000_000_000, 1_000_000_100] {
            dcqcn.acknowledged(100, &path(100, 100, at_us));
        }
        let before = dcqcn.psns();
        dcqcn.congested(&path(100, 100, 1_000_000_200));
        assert!(dcqcn.psns() <= before / 2 + 2, "{before}, {dcqcn:?}");
    }
}
