// SPDX-License-Identifier: GPL-2.0

//! Replies: turns owed replies into packets.

use core::mem;
use core::ops::DerefMut;

use super::replay::{Answer, Replay};
use super::{Owed, Phase, RecvConfig, Responder, Running, Sequence, Told};
use crate::completion::Status;
use crate::event::Event;
use crate::host::{RecvHost, Source, Transmit};
use crate::num::{Msn, Psn};
use crate::opcode::Position;
use crate::wire::{Aeth, AtomicAckEth, Body, Bth, HeaderBytes, NakCode, Response, Syndrome};

impl<P, G, S: DerefMut<Target = [Replay<G>]>> Responder<P, G, S> {
    /// Returns the next reply to send, if one is owed. Responses to READs and atomics come first,
    /// in the order of their PSNs. A refusal, or one acknowledgement for all other requests,
    /// follows.
    ///
    /// The caller repeats the call until `None`, at the end of a batch of requests and when it may
    /// send again. A reply that was returned counts as sent.
    // Rules: ACK-8
    pub fn poll_transmit<H: RecvHost<Payload = P, Grant = G>>(
        &mut self,
        host: &mut H,
    ) -> Option<Transmit<'_, G>> {
        // Rules: NAK-23
        // The borrow checker would have the loan of a response last until the end of the function
        // on every path: so it is asked first whether there is one.
        if self.running()?.replays.has_response() {
            return self.running()?.respond();
        }
        let sequence = self.running()?.sequence;
        let config = sequence.config;
        // Rules: ACK-20
        let was_refused = sequence.has_failed();
        let (psn, aeth) = sequence.pay(host)?;
        if was_refused {
            self.phase = Phase::Error;
        }
        let response = Response::Acknowledge(aeth);
        Some(transmit(&config, psn, response, Source::Empty))
    }

    /// Says that the packet that [`poll_transmit`](Self::poll_transmit) returned last was not sent,
    /// as its source is [absent](crate::host::Fault::Absent): it is returned again.
    pub fn unsend(&mut self) {
        if let Some(running) = self.running() {
            running.replays.unsend();
        }
    }

    /// Reports that the source of the packet that [`poll_transmit`](Self::poll_transmit) returned
    /// last cannot be read. The READ is refused at its first response that was never sent, and the
    /// queue pair fails. If the READ was answered in full before, its duplicate is dropped, like
    /// one that is no longer authorized. It may be a stray copy, and the sender may have had the
    /// memory's key invalidated since.
    // Rules: NAK-24
    pub fn payload_fault<H: RecvHost<Payload = P, Grant = G>>(&mut self, host: &mut H) {
        let Some(mut running) = self.running() else {
            return;
        };
        let Some(psn) = running.replays.forgo() else {
            return;
        };
        // Later replies, data or a refusal, are never sent.
        running.replays.clear();
        let code = NakCode::RemoteOperation;
        let failed = if running.sequence.has_failed() {
            running.fail(psn, code) // The owner was told before.
        } else {
            running.refuse(psn, code, Status::Flushed, host)
        };
        self.settle(failed, host);
    }
}

impl<'a, P, G, S: DerefMut<Target = [Replay<G>]>> Running<'a, P, G, S> {
    /// Returns the next response to a READ or atomic.
    // Rules: ACK-19
    fn respond(self) -> Option<Transmit<'a, G>> {
        let Self {
            sequence, replays, ..
        } = self;
        let config = &sequence.config;
        let response = replays.next_response(config.mtu, config.bundle)?;
        let aeth = acknowledgement(response.msn);
        let body = match response.answer {
            Answer::Data(Position::First) => Response::ReadFirst(aeth),
            Answer::Data(Position::Middle) => Response::ReadMiddle,
            Answer::Data(Position::Last) => Response::ReadLast(aeth),
            Answer::Data(Position::Only) => Response::ReadOnly(aeth),
            Answer::Original(original) => {
                Response::AtomicAcknowledge(aeth, AtomicAckEth { original })
            }
        };
        let source = match response.grant {
            Some(memory) => Source::Bytes {
                memory,
                at: response.at,
                len: response.len,
            },
            None => Source::Empty,
        };
        Some(transmit(config, response.psn, body, source))
    }
}

impl<P, G> Sequence<P, G> {
    /// Owes a NAK that asks for the expected packet, because the later packet `last` has arrived.
    pub(super) fn ask_for_expected(&mut self, last: Psn) {
        self.told = Told::Missing;
        self.owed = Owed::SequenceNak {
            last,
            acknowledges: self.owed == Owed::Acknowledgement,
        };
    }

    /// Owes a sequence NAK no more. An acknowledgement that it was in place of is owed again.
    // Rules: ACK-1
    pub(super) fn withdraw_nak(&mut self) {
        self.owed = match self.owed {
            Owed::SequenceNak { acknowledges, .. } if acknowledges => Owed::Acknowledgement,
            Owed::SequenceNak { .. } => Owed::Nothing,
            owed => owed,
        };
    }

    /// Takes the reply that is owed. Returns its PSN and AETH.
    fn pay<H: RecvHost>(&mut self, host: &mut H) -> Option<(Psn, Aeth)> {
        let (psn, syndrome, event) = match mem::replace(&mut self.owed, Owed::Nothing) {
            Owed::Nothing => return None,
            // Rules: ACK-3, ACK-7
            Owed::Acknowledgement => return Some((self.acknowledge, acknowledgement(self.msn))),
            // Rules: RNR-2
            Owed::RnrNak => (
                self.expected,
                Syndrome::RnrNak(self.config.min_rnr_timer),
                Event::RnrNakSent,
            ),
            // Rules: NAK-1
            Owed::SequenceNak { .. } => (
                self.expected,
                Syndrome::Nak(NakCode::SequenceError),
                Event::SequenceNakSent,
            ),
            Owed::Refusal { psn, code } => (psn, Syndrome::Nak(code), refusal_event(code)),
        };
        host.observe(event);
        let msn = self.msn;
        Some((psn, Aeth { syndrome, msn }))
    }
}

fn refusal_event(code: NakCode) -> Event {
    match code {
        NakCode::SequenceError => Event::SequenceNakSent,
        NakCode::InvalidRequest => Event::InvalidRequestNakSent,
        NakCode::RemoteAccess => Event::RemoteAccessNakSent,
        NakCode::RemoteOperation => Event::RemoteOperationNakSent,
    }
}

fn acknowledgement(msn: Msn) -> Aeth {
    Aeth {
        syndrome: Syndrome::ACK,
        msn,
    }
}

// Rules: ACK-18
fn transmit<'a, G>(
    config: &RecvConfig,
    psn: Psn,
    response: Response,
    source: Source<'a, G>,
) -> Transmit<'a, G> {
    let pad = (source.len().wrapping_neg() & 3) as u8;
    let bth = Bth {
        transport: config.connection.transport(),
        solicited: false,
        // Rules: WIRE-29
        mig_req: false,
        pad,
        pkey: config.pkey,
        // Rules: WIRE-30
        fecn: false,
        becn: false,
        dest_qp: config.dest_qp,
        ack_req: false,
        psn,
    };
    Transmit {
        header: HeaderBytes::new(&bth, &Body::Response(response)),
        psns: config.mtu.packets(source.len()),
        source,
        pad,
        psn,
    }
}
