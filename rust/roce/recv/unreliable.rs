// SPDX-License-Identifier: GPL-2.0

//! Requests of an unreliable connection, without acknowledgements and retransmissions.
//!
//! A message is executed if all its packets come in order. A wrong packet drops its message; only
//! an event reports that. The next message is received as it comes:
//!
//! ```text
//!                      PSN expected                     another PSN
//!   starts a message   execute; a message that          as there, and it is expected
//!                      it interrupts is dropped         from now on
//!   goes on with one   execute; dropped when            dropped, with the message
//!                      no message is under way          that is under way
//! ```
//!
//! The receive of a dropped message is kept for the next one. Only a local failure, such as one of
//! local memory, fails the queue pair.

use core::ops::DerefMut;

use super::replay::Replay;
use super::{Failed, Message, Owed, Refusal, Running};
use crate::event::Event;
use crate::host::{Handled, RecvHost};
use crate::wire::{NakCode, Packet, Request};

impl<P, G, S: DerefMut<Target = [Replay<G>]>> Running<'_, P, G, S> {
    // Rules: UCX-1
    pub(super) fn handle_unreliable<H: RecvHost<Payload = P, Grant = G>>(
        &mut self,
        packet: &Packet,
        request: &Request,
        host: &mut H,
    ) -> Result<Handled, Failed> {
        self.establish(host);
        let psn = packet.bth.psn;
        let in_turn = psn == self.sequence.expected;
        // Rules: UCX-4
        if !in_turn {
            host.observe(Event::OutOfSequenceRequest);
        }
        // Rules: UCX-8
        if request.starts() || !in_turn {
            self.abandon(host);
        }
        // Rules: UCX-5
        if !request.starts() && matches!(self.sequence.message, Message::None) {
            // The rest of a dropped message, which is in turn if no packet of it is lost. A late one is not.
            if !psn.is_before(self.sequence.expected) {
                self.sequence.expected = psn.add(packet.psns);
            }
            return Ok(Handled::Done);
        }
        // Rules: UCX-3
        self.sequence.expected = psn;
        let outcome = self.execute(packet, request, host);
        // Rules: RSP-22
        if outcome == Err(Refusal::PutOff) {
            return Ok(Handled::PutOff);
        }
        self.sequence.expected = psn.add(packet.psns);
        // Rules: ACK-17
        self.sequence.owed = Owed::Nothing;
        match outcome {
            Ok(()) => Ok(Handled::Done),
            // Rules: RNR-19
            Err(Refusal::NotReady) => {
                self.abandon(host);
                host.observe(Event::NoReceive);
                Ok(Handled::Done)
            }
            Err(Refusal::Fatal {
                // Rules: ERR-19
                code: code @ NakCode::RemoteOperation,
                recv,
            }) => {
                self.tell_owner(code, recv, host);
                Err(Failed)
            }
            Err(Refusal::FatalTold { .. }) => Err(Failed),
            // Rules: UCX-7
            Err(Refusal::Fatal { .. } | Refusal::NoRoom | Refusal::PutOff) => {
                self.drop_message(host);
                Ok(Handled::Done)
            }
        }
    }

    /// Drops the incomplete message, if there is one.
    // Rules: UCX-6
    fn abandon<H: RecvHost<Payload = P, Grant = G>>(&mut self, host: &mut H) {
        if !matches!(self.sequence.message, Message::None) {
            self.drop_message(host);
        }
    }

    // Rules: UCX-2
    fn drop_message<H: RecvHost<Payload = P, Grant = G>>(&mut self, host: &mut H) {
        host.observe(Event::MessageDropped);
        self.sequence.keep_recv();
        self.sequence.message = Message::None;
    }
}
