// SPDX-License-Identifier: GPL-2.0

//! The time that an answer takes.

use crate::limits::{
    INITIAL_PATIENCE_NS, MAX_ROUND_TRIP_NS, MIN_CONGESTED_PSNS, MIN_PROBE_NS, MIN_REPAIR_PROBE_NS,
};
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
    timing: Timing,
    /// How many nanoseconds later it was sent last: again, though it may only be slow. `u32::MAX` is long.
    asked_after: u32,
    /// The average, in nanoseconds; 0 before the first.
    average: u32,
    /// How far it is from the average, on average.
    deviation: u32,
    /// The longest of late, including those of packets that were sent again meanwhile: which of the two was
    /// answered is unknown.
    longest: u32,
    /// The shortest. It grows only with [`recent`](Self::recent): otherwise it would come to include the
    /// queue that the window fills.
    least: u32,
    /// The shortest in this period; 0 before the first.
    recent: u32,
    /// How many packets that were sent [almost alone](Timing::Alone) were measured in this period.
    alone_count: u8,
    /// When this period began, in units of `2^SECOND_SHIFT` ns, modulo 256.
    period_began: u8,
    /// Nothing was measured yet, so all that is what the first answer took since about when it was asked for.
    is_guess: bool,
}

/// The measurement of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Timing {
    /// There is none.
    Off,
    /// Other packets were outstanding, and the packet may wait behind them.
    Behind,
    /// Too few packets were outstanding to make a queue.
    Alone,
    /// As [`Behind`](Self::Behind), and a timeout is over: packets before this one may be lost.
    BehindOverdue,
    /// As [`Alone`](Self::Alone), and a timeout is over.
    AloneOverdue,
}

impl Timing {
    fn overdue(self) -> Self {
        match self {
            Self::Off => Self::Off,
            Self::Behind | Self::BehindOverdue => Self::BehindOverdue,
            Self::Alone | Self::AloneOverdue => Self::AloneOverdue,
        }
    }

    fn is_alone(self) -> bool {
        matches!(self, Self::Alone | Self::AloneOverdue)
    }

    fn is_overdue(self) -> bool {
        matches!(self, Self::BehindOverdue | Self::AloneOverdue)
    }
}

impl RoundTrip {
    /// About a second, in nanoseconds.
    const SECOND_SHIFT: u32 = 30;
    /// How many of these a period has at least.
    const PERIOD: u8 = 10;
    /// Measurements of a period from which on the path counts as longer. Fewer may all be of slow hosts.
    const ENOUGH: u8 = 16;

    pub(super) const NEW: Self = Self {
        timed_at: Instant::from_ns(0),
        timed_end: Psn::new(0),
        timing: Timing::Off,
        asked_after: 0,
        average: 0,
        deviation: 0,
        longest: 0,
        least: 0,
        recent: 0,
        alone_count: 0,
        period_began: 0,
        is_guess: false,
    };

    /// Notes that a packet which ends at `end` was sent and is to be acknowledged. `ahead` PSNs before it are
    /// outstanding.
    #[inline]
    pub(super) fn begin(&mut self, end: Psn, ahead: u32, now: Instant) {
        if self.timing == Timing::Off {
            self.timing = match ahead <= MIN_CONGESTED_PSNS {
                true => Timing::Alone,
                false => Timing::Behind,
            };
            self.timed_end = end;
            self.timed_at = now;
            self.asked_after = 0;
        }
    }

    /// Notes that a timeout is over, and nothing was acknowledged since.
    pub(super) fn timed_out(&mut self) {
        self.timing = self.timing.overdue();
    }

    /// Notes that the oldest packets are sent again, which may only be slow. If they were lost, the peer
    /// acknowledges later ones only now.
    pub(super) fn asked(&mut self, now: Instant) {
        self.asked_after = now.since(self.timed_at).try_into().unwrap_or(u32::MAX);
    }

    /// Returns true if it matters for the measurement that all before `stop` is asked for, and nothing but silence
    /// was the reason. Of an unknown path it does for the measured packet alone: the answers to all packets of a
    /// window come soon after one of many probes.
    pub(super) fn is_asked_by(&self, stop: Psn) -> bool {
        self.average > 0 || !stop.is_before(self.timed_end)
    }

    /// Stops the current measurement, as some packets are sent again.
    pub(super) fn forget(&mut self) {
        self.timing = Timing::Off;
    }

    /// Notes that all before `unacked` is acknowledged. Returns the round trip in nanoseconds if that measures
    /// one, or 0.
    #[inline]
    pub(super) fn acknowledged(&mut self, unacked: Psn, now: Instant) -> u32 {
        if self.timing == Timing::Off || unacked.is_before(self.timed_end) {
            return 0;
        }
        let timing = core::mem::replace(&mut self.timing, Timing::Off);
        let ns = now.since(self.timed_at);
        let since_asked_ns = ns.saturating_sub(self.asked_after.into());
        let took = bounded(ns);
        if !timing.is_overdue() {
            self.longest = weigh(self.longest, took, 3).max(took);
        }
        if self.asked_after == u32::MAX {
            return 0;
        }
        // What comes soon after it was sent again is the answer to that, and so is what comes when that is due.
        if since_asked_ns < ns / 8 || (since_asked_ns < ns && self.is_usual(since_asked_ns)) {
            return 0;
        }
        self.measured(ns);
        self.measured_in_period(ns, timing.is_alone(), now);
        took
    }

    /// Notes that a packet was acknowledged after so many nanoseconds, and whether it was sent almost alone. The
    /// path may have become longer: then the shortest round trip follows after a period.
    fn measured_in_period(&mut self, ns: u64, is_alone: bool, now: Instant) {
        let ns = bounded(ns);
        // CAST: It is modulo 256.
        let second = now.as_ns().wrapping_shr(Self::SECOND_SHIFT) as u8;
        if second.wrapping_sub(self.period_began) >= Self::PERIOD {
            if self.alone_count >= Self::ENOUGH {
                // This one counts at once if it is shorter.
                self.least = self.recent.min(ns);
            }
            self.period_began = second;
            self.recent = 0;
            self.alone_count = 0;
        }
        self.recent = match self.recent {
            0 => ns,
            recent => recent.min(ns),
        };
        self.alone_count = self.alone_count.saturating_add(is_alone.into());
    }

    /// Notes that something was answered. Before the first measurement that tells about how long it takes.
    pub(super) fn answered(&mut self, now: Instant) {
        if self.average == 0 && self.timing != Timing::Off {
            self.measured(now.since(self.timed_at));
            self.is_guess = true;
        }
    }

    /// Notes that an answer took so many nanoseconds.
    pub(super) fn measured(&mut self, ns: u64) {
        let ns = bounded(ns);
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

    /// Returns true if an answer usually takes about so many nanoseconds, as far as known.
    fn is_usual(&self, ns: u64) -> bool {
        self.average > 0 && !self.is_too_soon(ns) && ns <= self.patience_ns()
    }

    /// Returns true if what comes after so many nanoseconds can hardly be the answer.
    pub(super) fn is_too_soon(&self, ns: u64) -> bool {
        ns < u64::from(self.least.saturating_sub(self.least / 8))
    }

    /// Returns the nanoseconds after which an answer is late.
    pub(super) fn patience_ns(&self) -> u64 {
        self.usual_ns().unwrap_or(INITIAL_PATIENCE_NS)
    }

    /// Returns the same if something was measured.
    #[inline]
    pub(super) fn usual_ns(&self) -> Option<u64> {
        let varies_ns = u64::from(self.deviation).saturating_mul(4);
        (self.average > 0).then(|| u64::from(self.average).saturating_add(varies_ns))
    }

    /// Returns how many nanoseconds an answer may take, as far as known: on a path that has become slower packets are
    /// sent again before their answers come, and none of these is measured.
    #[inline]
    pub(super) fn longest_ns(&self) -> u64 {
        self.usual_ns().unwrap_or(0).max(self.longest.into())
    }

    /// Returns the nanoseconds without a packet after which an answer is lost, if packets that were sent before it
    /// have come. Then it does not wait in a queue behind them.
    pub(super) fn silence_ns(&self) -> u64 {
        let usual_ns = u64::from(self.least).saturating_mul(4);
        usual_ns.max(MIN_REPAIR_PROBE_NS).min(self.patience_ns())
    }

    /// Returns the nanoseconds without an answer after which to ask once more.
    pub(super) fn probe_ns(&self, is_repairing: bool) -> u64 {
        match is_repairing {
            true => self.patience_ns().max(MIN_REPAIR_PROBE_NS),
            false => self.patience_ns().saturating_mul(2).max(MIN_PROBE_NS),
        }
    }
}

/// Returns a measured time within the bounds of all of them.
fn bounded(ns: u64) -> u32 {
    // CAST: It is no more than MAX_ROUND_TRIP_NS.
    ns.clamp(1, MAX_ROUND_TRIP_NS.into()) as u32
}

/// Returns the average with a new value that has the weight `1 / 2^shift`.
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
        trip.begin(Psn::new(2), 0, at(1_000));
        trip.begin(Psn::new(3), 0, at(2_000));
        trip.acknowledged(Psn::new(1), at(5_000));
        assert_eq!(trip.average, 0);
        trip.acknowledged(Psn::new(3), at(11_000));
        assert_eq!(trip.average, 10_000);
    }

    #[test]
    fn measures_nothing_that_was_sent_twice() {
        let mut trip = RoundTrip::NEW;
        trip.begin(Psn::new(2), 0, at(1_000));
        trip.forget();
        trip.acknowledged(Psn::new(2), at(11_000));
        assert_eq!(trip.average, 0);
    }

    #[test]
    fn an_outage_is_no_round_trip() {
        let mut trip = RoundTrip::NEW;
        exchange(&mut trip, 10_000, 0, 100, 101);
        for outage_s in [1, 6] {
            let (from, back) = (200 * outage_s, 201 * outage_s);
            trip.begin(Psn::new(2), 0, at(from * SECOND));
            trip.asked(at(back * SECOND));
            trip.acknowledged(Psn::new(2), at(back * SECOND + 50_000));
            assert_eq!(trip.average, 10_000, "after {outage_s} s");
        }
    }

    #[test]
    fn an_outage_that_a_timeout_ends_is_not_the_longest_answer() {
        let outage = |is_overdue| {
            let mut trip = RoundTrip::NEW;
            exchange(&mut trip, 10_000, 0, 100, 101);
            trip.begin(Psn::new(2), 0, at(200 * SECOND));
            if is_overdue {
                trip.timed_out();
            }
            trip.asked(at(200 * SECOND + 90_000));
            trip.acknowledged(Psn::new(2), at(200 * SECOND + 100_000));
            trip.longest_ns()
        };
        assert_eq!(outage(false), 100_000);
        assert!(outage(true) < 20_000);
    }

    #[test]
    fn tells_a_long_way_from_a_loss() {
        let answered = |ns| {
            let mut trip = RoundTrip::NEW;
            trip.begin(Psn::new(2), 0, at(1_000));
            trip.asked(at(2_000));
            trip.asked(at(41_000));
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

    const SECOND: u64 = 1_000_000_000;

    /// Sends and acknowledges a packet every 100 ms from `from_s` to `to_s` seconds.
    fn exchange(trip: &mut RoundTrip, ns: u64, ahead: u32, from_s: u64, to_s: u64) {
        for tenth in from_s * 10..to_s * 10 {
            let sent = tenth * (SECOND / 10);
            trip.begin(Psn::new(2), ahead, at(sent));
            trip.acknowledged(Psn::new(2), at(sent + ns));
        }
    }

    #[test]
    fn the_shortest_follows_a_path_that_becomes_longer() {
        let mut trip = RoundTrip::NEW;
        exchange(&mut trip, 10_000, 0, 100, 101);
        assert_eq!(trip.least, 10_000);
        exchange(&mut trip, 40_000_000, MIN_CONGESTED_PSNS, 101, 105);
        assert_eq!(trip.least, 10_000, "the period is not over");
        exchange(&mut trip, 40_000_000, MIN_CONGESTED_PSNS, 105, 130);
        assert_eq!(trip.least, 40_000_000);
        exchange(&mut trip, 20_000, 512, 130, 131);
        assert_eq!(trip.least, 20_000, "shorter ones count at once");
    }

    #[test]
    fn the_shortest_follows_a_path_that_becomes_longer_than_the_timeout() {
        let mut trip = RoundTrip::NEW;
        exchange(&mut trip, 10_000, 0, 100, 101);
        for tenth in 1050..1300 {
            let sent = tenth * (SECOND / 10);
            trip.begin(Psn::new(2), 0, at(sent));
            trip.timed_out();
            trip.acknowledged(Psn::new(2), at(sent + 40_000_000));
        }
        assert_eq!(trip.least, 40_000_000);
    }

    #[test]
    fn the_shortest_does_not_follow_a_queue() {
        let mut trip = RoundTrip::NEW;
        exchange(&mut trip, 10_000, 0, 100, 101);
        exchange(&mut trip, 1_000_000, MIN_CONGESTED_PSNS + 1, 101, 200);
        assert_eq!(trip.least, 10_000);
    }

    #[test]
    fn the_shortest_does_not_follow_a_few_slow_answers() {
        let mut trip = RoundTrip::NEW;
        exchange(&mut trip, 10_000, 0, 100, 101);
        for second in (110..1000).step_by(11) {
            exchange(&mut trip, 1_000_000, 0, second, second + 1);
        }
        assert_eq!(trip.least, 10_000);
    }

    #[test]
    fn the_end_of_a_slow_period_does_not_hide_a_shorter_one() {
        for ahead in [0, 512] {
            let mut trip = RoundTrip::NEW;
            exchange(&mut trip, 40_000_000, 0, 100, 120);
            exchange(&mut trip, 10_000, ahead, 120, 121);
            exchange(&mut trip, 40_000_000, 0, 121, 122);
            assert_eq!(trip.least, 10_000);
        }
        let mut trip = RoundTrip::NEW;
        exchange(&mut trip, 40_000_000, 0, 100, 109);
        let now = 3_600_000_000_000;
        trip.begin(Psn::new(2), 0, at(now));
        trip.acknowledged(Psn::new(2), at(now + 10_000));
        assert_eq!(trip.least, 10_000);
    }

    #[test]
    fn a_loss_is_no_part_of_the_round_trip() {
        let answered = |asked, ns| {
            let mut trip = RoundTrip::NEW;
            for _ in 0..20 {
                trip.measured(40_000);
            }
            trip.begin(Psn::new(2), 0, at(0));
            trip.asked(at(asked));
            trip.acknowledged(Psn::new(2), at(ns))
        };
        assert_eq!(answered(70_000, 110_000), 0, "the answer to that");
        assert_eq!(answered(70_000, 90_000), 90_000, "that would be too soon");
        assert_eq!(answered(70_000, 200_000), 200_000, "late in any case");
    }
}
