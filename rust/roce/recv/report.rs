// SPDX-License-Identifier: GPL-2.0

//! The report on a responder's state, for people.

use core::ops::DerefMut;

use super::{Message, Owed, Phase, Replay, Responder, Told};
use crate::num::{Msn, Psn};

/// The message that a responder is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Within {
    /// None: the next packet starts one.
    Nothing,
    /// A SEND.
    Send,
    /// A WRITE.
    Write,
}

/// The reply that a responder owes its peer behind the responses to READs and atomics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owes {
    /// Nothing.
    Nothing,
    /// An acknowledgement of the latest request.
    Acknowledgement,
    /// A NAK for a missing packet.
    SequenceNak,
    /// An RNR NAK.
    RnrNak,
    /// The refusal of a request.
    Refusal,
}

/// How far a responder has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecvReport {
    /// The PSN that it expects.
    pub expected: Psn,
    /// Messages completed.
    pub msn: Msn,
    /// The message that it is in.
    pub within: Within,
    /// The owed reply.
    pub owes: Owes,
    /// Whether the peer was told that `expected` is expected, or had no receive, and not come back
    /// with it yet.
    pub nak_sent: bool,
    /// Whether responses to READs or atomics are still to be sent.
    pub responds: bool,
}

impl<P, G, S: DerefMut<Target = [Replay<G>]>> Responder<P, G, S> {
    /// Returns the progress; `None` unless it runs.
    pub fn report(&mut self) -> Option<RecvReport> {
        let responds = self.replays.has_response();
        let Phase::Running(sequence) = &self.phase else {
            return None;
        };
        Some(RecvReport {
            expected: sequence.expected,
            msn: sequence.msn,
            within: match sequence.message {
                Message::None => Within::Nothing,
                Message::Send { .. } => Within::Send,
                Message::Write { .. } => Within::Write,
            },
            owes: match sequence.owed {
                Owed::Nothing => Owes::Nothing,
                Owed::Acknowledgement => Owes::Acknowledgement,
                Owed::SequenceNak { .. } => Owes::SequenceNak,
                Owed::RnrNak => Owes::RnrNak,
                Owed::Refusal { .. } => Owes::Refusal,
            },
            nak_sent: sequence.told != Told::Nothing,
            responds,
        })
    }
}
