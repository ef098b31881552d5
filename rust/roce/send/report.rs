// SPDX-License-Identifier: GPL-2.0

//! The report on a requester's state, for people.

use core::ops::DerefMut;

use super::window::Slot;
use super::{Blocked, Phase, Requester, Sequence, Timer};
use crate::congestion::Control;
use crate::num::Psn;

/// The event that a requester waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// Nothing: all that was posted is complete, or there is more to send.
    Nothing,
    /// An answer of the peer.
    Answer,
    /// The end of the time for which the peer, which had no receive posted, is left alone.
    Receiver,
    /// The reason that the next request is not begun.
    Blocked(Blocked),
}

/// How far a requester has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendReport {
    /// The oldest PSN that is not acknowledged.
    pub unacked: Psn,
    /// The PSN to send next; before others that were sent, when they are sent again.
    pub next: Psn,
    /// PSNs that are outstanding.
    pub outstanding: u32,
    /// The PSNs that may be outstanding: the congestion window.
    pub window: u32,
    /// The average time that an answer takes, in nanoseconds; 0 before the first.
    pub round_trip_ns: u32,
    /// The shortest one.
    pub least_round_trip_ns: u32,
    /// Requests that were taken from the send queue and are not complete.
    pub requests: u32,
    /// READs and atomics among them that were begun.
    pub unanswered: u32,
    /// Retries left before it gives up.
    pub retries_left: u8,
    /// Retries left after RNR NAKs.
    pub rnr_retries_left: u8,
    /// Timeouts since there was progress.
    pub timeouts: u32,
    /// The event that it waits for.
    pub waiting: Waiting,
}

impl<P, S: DerefMut<Target = [Slot<P>]>> Requester<P, S> {
    /// Returns the progress; `None` unless it runs.
    pub fn report(&self) -> Option<SendReport> {
        let Phase::Running(sequence) = &self.phase else {
            return None;
        };
        Some(SendReport {
            unacked: sequence.unacked,
            next: sequence.next,
            outstanding: sequence.outstanding(),
            window: sequence.pace.psns(),
            round_trip_ns: sequence.round_trip.average_ns(),
            least_round_trip_ns: sequence.round_trip.least_ns(),
            requests: u32::try_from(self.window.len()).unwrap_or(u32::MAX),
            unanswered: sequence.unanswered.into(),
            retries_left: sequence.retries_left,
            rnr_retries_left: sequence.rnr_retries_left,
            timeouts: sequence.timeouts.into(),
            waiting: sequence.waiting(),
        })
    }
}

impl Sequence {
    fn waiting(&self) -> Waiting {
        match (self.timer, self.blocked) {
            (Timer::Rnr(_), _) => Waiting::Receiver,
            (_, Some(blocked)) => Waiting::Blocked(blocked),
            (_, None) if self.unacked != self.end => Waiting::Answer,
            (_, None) => Waiting::Nothing,
        }
    }
}
