// SPDX-License-Identifier: GPL-2.0

//! Telling packets that are late from those that are lost.
//!
//! A gap tells that a packet is missing. It may be lost, or others may have overtaken it. So the requester
//! learns how late packets are, and waits as long before it sends again what is missing. At first it does not
//! wait. Two things tell that a packet was late:
//!
//! ```text
//!   the gap closes while the requester waits          a proof
//!   the gap closes sooner after a repair than the
//!   shortest round trip takes                         a suspicion
//! ```
//!
//! A suspicion may be wrong: all round trips that were measured may contain the time in a queue. So it has one
//! gap waited for. If that does not close, the requester stops waiting, and the time that the next repair takes
//! counts as a round trip, however short it is. A proof holds for some losses. Repairs that are repeated say
//! nothing: nobody knows which of them was acknowledged.
//!
//! A wait is no longer than a round trip, as a repair would come sooner then.

use super::rtt::RoundTrip;
use crate::limits::{LATE_LOSSES, MAX_LATE_US};

/// What is missing, while it is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Held {
    Nothing,
    /// A packet that the peer asked for.
    Request,
    /// A response.
    Response,
    /// Nothing: it was waited for without success, and nothing proves any more that packets are late.
    Given,
}

/// How late packets are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lateness {
    /// How long to wait for a packet that may be late, in microseconds; 0 if packets are not late.
    wait_us: u16,
    /// Losses until nothing proves any more that packets are late.
    losses_left: u8,
    held: Held,
}

impl Lateness {
    pub(super) const NEW: Self = Self {
        wait_us: 0,
        losses_left: 0,
        held: Held::Nothing,
    };

    /// Returns how long to wait for a packet that is missing, in nanoseconds.
    #[inline]
    pub(super) fn wait_ns(&self) -> u64 {
        u64::from(self.wait_us).saturating_mul(1000)
    }

    /// Returns what is waited for.
    #[inline]
    pub(super) fn held(&self) -> Held {
        self.held
    }

    /// Waits for what is missing, or no more.
    #[inline]
    pub(super) fn hold(&mut self, held: Held) {
        self.held = held;
    }

    /// Notes that a packet seems to have been late by so many nanoseconds, as a repair was acknowledged too soon.
    pub(super) fn suspect(&mut self, late_ns: u64, trip: &RoundTrip) {
        let ns = match self.losses_left {
            // The next packet may be much later than this one.
            0 => late_ns.max(u64::from(trip.least_ns() / 2)),
            _ => late_ns,
        };
        self.wait_for(ns, trip);
    }

    /// Notes that a packet was late by so many nanoseconds, as it came while it was waited for.
    pub(super) fn prove(&mut self, late_ns: u64, trip: &RoundTrip) {
        if core::mem::replace(&mut self.losses_left, LATE_LOSSES) == 0 {
            self.wait_us = 0;
        }
        self.wait_for(late_ns, trip);
    }

    /// Waits for packets that are late by so many nanoseconds, and for some that are later.
    fn wait_for(&mut self, late_ns: u64, trip: &RoundTrip) {
        // What is later than a round trip comes sooner if it is sent again.
        let most_us = u64::from(trip.average_ns() / 1000).min(MAX_LATE_US.into());
        let us = late_ns
            .saturating_add(late_ns / 2)
            .div_ceil(1000)
            .min(most_us);
        self.wait_us = self.wait_us.max(u16::try_from(us).unwrap_or(MAX_LATE_US));
    }

    /// Notes that a packet was waited for without success.
    pub(super) fn give_up(&mut self) {
        self.losses_left = self.losses_left.saturating_sub(1);
        self.held = Held::Nothing;
        if self.losses_left == 0 {
            self.wait_us = 0;
            self.held = Held::Given;
        }
    }
}
