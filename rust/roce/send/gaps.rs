// SPDX-License-Identifier: GPL-2.0

//! How far losses are from each other.
//!
//! A NAK names one gap only, so each gap costs a round trip. If many packets are outstanding and losses are near
//! to each other, other gaps are to be expected behind the first. The requester then sends all of these packets
//! again at once, if that takes less time.
//!
//! ```text
//!   gaps expected = packets outstanding / distance
//!   time to gain  = gaps expected x round trip of an empty path
//!   time to spend = two round trips with all these packets on the path: to send them, and to send them again
//! ```
//!
//! While packets queue on the path, it is busy without that.
//!
//! Packets that were late and not lost do not count.
//!
//! A full queue, and a network that passes frames in trains, lose several packets in a row. So the next gap is
//! expected to be as long as the last one. What is expected is halved after each gap that was not longer.

use core::num::NonZeroU8;

use super::rtt::RoundTrip;
use crate::limits::{LONG_DISTANCE_PSNS, MAX_REPAIR_PACKETS, MIN_GUESS_ROUND_TRIP_NS};
use crate::num::Psn;

/// The distance of losses from each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gaps {
    /// The last packet of these.
    last: Psn,
    kind: Kind,
    /// The average distance in PSNs, at most [`LONG_DISTANCE_PSNS`].
    distance: u16,
    /// How many packets a gap is expected to have, at least 1 and at most [`MAX_REPAIR_PACKETS`].
    length: u8,
}

/// Packets that were sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Some of these are lost.
    Guess,
    /// So many that are lost in a row.
    Gap(NonZeroU8),
}

impl Kind {
    const ONE: Self = Self::Gap(NonZeroU8::MIN);
}

impl Gaps {
    /// Returns that of a requester whose first packet is `first`. Nothing was lost.
    pub(super) const fn new(first: Psn) -> Self {
        Self {
            last: first,
            kind: Kind::ONE,
            distance: LONG_DISTANCE_PSNS,
            length: 1,
        }
    }

    /// Notes that the packet `psn` was lost. `repaired` says how many packets right before it were sent again, so that
    /// this is the same gap.
    pub(super) fn note(&mut self, psn: Psn, repaired: Option<u16>) {
        // One within a repair is no news: the packets before it arrived.
        if !self.last.is_before(psn) || repaired == Some(0) {
            return;
        }
        let distance = psn.distance_from(self.last);
        self.last = psn;
        if let (Some(repaired), Kind::Gap(count)) = (repaired, self.kind) {
            // A READ is one packet of many PSNs.
            let more = u8::try_from(distance.min(repaired.into())).unwrap_or(u8::MAX);
            self.kind = Kind::Gap(count.saturating_add(more));
            return;
        }
        self.learn_length();
        self.kind = Kind::ONE;
        let distance = u16::try_from(distance).unwrap_or(u16::MAX);
        self.distance = (self.distance / 2).saturating_add(distance.min(LONG_DISTANCE_PSNS) / 2);
    }

    /// Learns from the last gap how long gaps are, if it was no longer than expected.
    fn learn_length(&mut self) {
        if self.kind == Kind::ONE {
            self.length = (self.length / 2).max(1);
        }
    }

    /// Notes that the last gap is longer than expected, and that so many packets more of it are sent again.
    pub(super) fn grow(&mut self, packets: u16) {
        let known = match self.kind {
            Kind::Gap(count) => count.get().wrapping_sub(1),
            Kind::Guess => 0,
        };
        let length = packets
            .saturating_add(known.into())
            .clamp(1, MAX_REPAIR_PACKETS);
        self.length = u8::try_from(length).unwrap_or(u8::MAX);
    }

    /// Returns how many packets are to be sent again for the last gap: as many as are expected, or, if it is longer,
    /// as many as are known of it.
    pub(super) fn length(&self) -> u16 {
        match self.kind {
            Kind::Gap(count) if count != NonZeroU8::MIN => count.get().into(),
            _ => self.length.into(),
        }
    }

    /// Notes that all packets before `stop` are sent again. Nobody tells which of them were lost.
    pub(super) fn guessed(&mut self, stop: Psn) {
        self.last = stop.prev();
        self.kind = Kind::Guess;
    }

    /// Notes that all before `psn` is acknowledged.
    #[inline]
    pub(super) fn passed(&mut self, psn: Psn) {
        if !self.last.is_before(psn) {
            return;
        }
        if self.kind == Kind::Guess {
            self.kind = Kind::ONE;
        }
        // Or after half of all PSNs it would seem to be ahead.
        if psn.distance_from(self.last) > LONG_DISTANCE_PSNS.into() {
            self.last = psn.sub(LONG_DISTANCE_PSNS.into());
        }
    }

    /// Returns true if `psn` is outstanding and was sent again so.
    pub(super) fn has_guessed(&self, psn: Psn) -> bool {
        self.kind == Kind::Guess && !self.last.is_before(psn)
    }

    /// Notes that what was taken for lost was only late.
    pub(super) fn forgive(&mut self) {
        self.distance = LONG_DISTANCE_PSNS;
        self.length = 1;
    }

    /// Returns true if it takes less time to send so many packets again than to wait for the gaps among them, one
    /// after the other.
    pub(super) fn are_many(&self, packets: u32, trip: &RoundTrip) -> bool {
        let (least, average) = (u64::from(trip.least_ns()), u64::from(trip.average_ns()));
        let gain = least.saturating_mul(packets.into());
        let cost = average.saturating_mul(self.distance.into());
        let is_queueing = average / 2 > least;
        least >= MIN_GUESS_ROUND_TRIP_NS && !is_queueing && gain / 2 > cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG_NS: u64 = 1_000_000;

    fn trip(ns: u64) -> RoundTrip {
        let mut trip = RoundTrip::NEW;
        trip.measured(ns);
        trip
    }

    /// Returns the state after gaps at such a distance.
    fn after(distance: usize, count: usize) -> Gaps {
        let mut gaps = Gaps::new(Psn::new(0));
        for psn in (1..=count).map(|gap| gap * distance) {
            gaps.note(Psn::new(psn as u32), None);
        }
        gaps
    }

    #[test]
    fn learns_the_distance_from_few_gaps() {
        assert!(!after(100, 1).are_many(1024, &trip(LONG_NS)));
        let gaps = after(100, 8);
        assert!(gaps.are_many(400, &trip(LONG_NS)));
        assert!(!gaps.are_many(100, &trip(LONG_NS)));
        assert!(!after(2000, 100).are_many(1024, &trip(LONG_NS)));
    }

    #[test]
    fn a_short_path_or_a_full_one_gets_no_guess() {
        let gaps = after(100, 8);
        assert!(!gaps.are_many(1024, &trip(MIN_GUESS_ROUND_TRIP_NS - 1)));
        let mut full = trip(LONG_NS);
        assert!(gaps.are_many(1024, &full));
        for _ in 0..100 {
            full.measured(LONG_NS * 5 / 2);
        }
        assert!(!gaps.are_many(1024, &full));
    }

    #[test]
    fn a_run_of_losses_is_one_gap() {
        let mut gaps = after(1000, 8);
        for psn in 8001..8100 {
            gaps.note(Psn::new(psn), Some(1));
        }
        assert!(!gaps.are_many(512, &trip(LONG_NS)));
    }

    #[test]
    fn losses_among_guessed_packets_do_not_count() {
        let mut gaps = after(1000, 8);
        gaps.guessed(Psn::new(9000));
        for psn in (8010..9000).step_by(10) {
            assert!(gaps.has_guessed(Psn::new(psn)));
            gaps.note(Psn::new(psn), None);
        }
        assert!(!gaps.has_guessed(Psn::new(9000)));
        assert!(!gaps.are_many(512, &trip(LONG_NS)));
        gaps.passed(Psn::new(8999));
        assert!(gaps.has_guessed(Psn::new(8999)));
        gaps.passed(Psn::new(9000));
        assert!(!gaps.has_guessed(Psn::new(8999)));
    }

    #[test]
    fn losses_count_after_many_packets_without_one() {
        let mut gaps = after(10, 8);
        for psn in (0..0x0c0_0000).step_by(100) {
            gaps.passed(Psn::new(psn));
        }
        gaps.note(Psn::new(0x0c0_0000), None);
        assert!(!gaps.are_many(1024, &trip(LONG_NS)));
    }

    #[test]
    fn late_packets_are_forgiven() {
        let mut gaps = after(10, 8);
        gaps.forgive();
        assert!(!gaps.are_many(1024, &trip(LONG_NS)));
    }
}
