// SPDX-License-Identifier: GPL-2.0

//! The time that an answer takes.

use crate::limits::{INITIAL_PATIENCE_NS, MAX_ROUND_TRIP_NS, MIN_PROBE_NS, MIN_REPAIR_PROBE_NS};
use crate::num::Psn;
use crate::time::Instant;

/// The measured time between a packet that asks for an acknowledgement and the acknowledgement.
///
/// One packet at a time is measured, from when it was sent first, and none of those that are sent again with
/// all behind them. So is the answer to a repair.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrip {
    /// When the packet that is measured was sent.
    timed_at: Instant,
    /// The PSN after that packet.
    timed_end: Psn,
    is_timing: bool,
    /// When it was sent last: again, though it may only be slow.
    asked_at: Instant,
    /// The average, in nanoseconds; 0 before the first.
    average: u32,
    /// How far it is from the average, on average.
    deviation: u32,
    /// The shortest. Of a way that becomes longer packets seem to wait from then on: that costs window, and no
    /// more. If it followed, it would come to include the queue that the window fills.
    least: u32,
    /// Nothing was measured yet, so all that is what the first answer took since about when it was asked for.
    is_guess: bool,
}

impl RoundTrip {
    pub(super) const NEW: Self = Self {
        timed_at: Instant::from_ns(0),
        timed_end: Psn::new(0),
        is_timing: false,
        asked_at: Instant::from_ns(0),
        average: 0,
        deviation: 0,
        least: 0,
        is_guess: false,
    };

    /// Notes that a packet which ends at `end` was sent and is to be acknowledged.
    #[inline]
    pub(super) fn begin(&mut self, end: Psn, now: Instant) {
        if !self.is_timing {
            self.is_timing = true;
            self.timed_end = end;
            self.timed_at = now;
            self.asked_at = now;
        }
    }

    /// Notes that all before `stop` is sent again, which may only be slow.
    pub(super) fn asked(&mut self, stop: Psn, now: Instant) {
        if self.is_timing && !stop.is_before(self.timed_end) {
            self.asked_at = now;
        }
    }

    /// Stops the current measurement, as some packets are sent again.
    pub(super) fn forget(&mut self) {
        self.is_timing = false;
    }

    /// Notes that all before `unacked` is acknowledged.
    #[inline]
    pub(super) fn acknowledged(&mut self, unacked: Psn, now: Instant) {
        if self.is_timing && !unacked.is_before(self.timed_end) {
            self.is_timing = false;
            let ns = now.since(self.timed_at);
            // What comes soon after it was sent again is the answer to that.
            if now.since(self.asked_at) >= ns / 8 {
                self.measured(ns);
            }
        }
    }

    /// Notes that something was answered. Before the first measurement that tells about how long it takes.
    pub(super) fn answered(&mut self, now: Instant) {
        if self.average == 0 && self.is_timing {
            self.measured(now.since(self.timed_at));
            self.is_guess = true;
        }
    }

    /// Notes that an answer took so many nanoseconds.
    pub(super) fn measured(&mut self, ns: u64) {
        // CAST: It is no more than MAX_ROUND_TRIP_NS.
        let ns = ns.clamp(1, MAX_ROUND_TRIP_NS.into()) as u32;
        if self.average == 0 {
            self.least = ns;
        }
        self.least = self.least.min(ns);
        if self.average == 0 || core::mem::take(&mut self.is_guess) {
            self.average = ns;
            self.deviation = ns / 2;
            return;
        }
        let off = ns.abs_diff(self.average);
        self.deviation = weigh(self.deviation, off, 2);
        self.average = weigh(self.average, ns, 3).max(1);
    }

    /// Returns the average in nanoseconds; 0 before the first.
    #[inline]
    pub(super) fn average_ns(&self) -> u32 {
        self.average
    }

    /// Returns the shortest in nanoseconds; 0 before the first.
    #[inline]
    pub(super) fn least_ns(&self) -> u32 {
        self.least
    }

    /// Returns true if what comes after so many nanoseconds can hardly be the answer.
    pub(super) fn is_too_soon(&self, ns: u64) -> bool {
        ns < u64::from(self.least.saturating_sub(self.least / 8))
    }

    /// After how many nanoseconds an answer is late.
    pub(super) fn patience_ns(&self) -> u64 {
        match self.average {
            0 => INITIAL_PATIENCE_NS,
            average => {
                u64::from(average).saturating_add(u64::from(self.deviation).saturating_mul(4))
            }
        }
    }

    /// After how many nanoseconds without an answer to ask once more.
    pub(super) fn probe_ns(&self, is_repairing: bool) -> u64 {
        match is_repairing {
            true => self.patience_ns().max(MIN_REPAIR_PROBE_NS),
            false => self.patience_ns().saturating_mul(2).max(MIN_PROBE_NS),
        }
    }
}

/// The average with a new value that has the weight `1 / 2^shift`.
fn weigh(average: u32, new: u32, shift: u32) -> u32 {
    let (average, new) = (u64::from(average), u64::from(new));
    let weighed = average
        .wrapping_sub(average.wrapping_shr(shift))
        .wrapping_add(new.wrapping_shr(shift));
    // CAST: It lies between two values of 32 bits.
    weighed as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Instant {
        Instant::from_ns(ns)
    }

    #[test]
    fn measures_one_packet_at_a_time() {
        let mut trip = RoundTrip::NEW;
        trip.begin(Psn::new(2), at(1_000));
        trip.begin(Psn::new(3), at(2_000));
        trip.acknowledged(Psn::new(1), at(5_000));
        assert_eq!(trip.average, 0);
        trip.acknowledged(Psn::new(3), at(11_000));
        assert_eq!(trip.average, 10_000);
    }

    #[test]
    fn measures_nothing_that_was_sent_twice() {
        let mut trip = RoundTrip::NEW;
        trip.begin(Psn::new(2), at(1_000));
        trip.forget();
        trip.acknowledged(Psn::new(2), at(11_000));
        assert_eq!(trip.average, 0);
    }

    #[test]
    fn tells_a_long_way_from_a_loss() {
        let answered = |ns| {
            let mut trip = RoundTrip::NEW;
            trip.begin(Psn::new(2), at(1_000));
            trip.asked(Psn::new(1), at(2_000));
            trip.asked(Psn::new(2), at(41_000));
            trip.acknowledged(Psn::new(2), at(ns));
            trip.average
        };
        assert_eq!(answered(42_000), 0);
        assert_eq!(answered(61_000), 60_000);
    }

    #[test]
    fn follows_what_changes() {
        let mut trip = RoundTrip::NEW;
        trip.measured(1_000_000);
        for _ in 0..100 {
            trip.measured(10_000);
        }
        assert!(trip.average < 11_000, "{trip:?}");
        assert!(trip.patience_ns() < 20_000, "{trip:?}");
        trip.measured(u64::MAX);
        assert!(trip.patience_ns() < u64::from(MAX_ROUND_TRIP_NS) * 2);
    }
}
