// SPDX-License-Identifier: GPL-2.0

//! The responder of a connection.
//!
//! # The handling of a request
//!
//! ```text
//!                             PSN of the request
//!             before expected      expected        after expected
//!                   |                 |                  |
//!   SEND, WRITE  acknowledge       execute         NAK, once, until
//!                again               |             the expected one
//!   READ         answer again     ok / not ok      arrives; kept
//!   or atomic    from Replay         |     \
//!                                    |      `-- no receive: RNR NAK; nothing was
//!                                    |          done, and what follows is kept
//!                              expected moves   until this one comes again
//!                              on; a reply      `-- refused: NAK, and the queue
//!                              is owed              pair fails
//! ```
//!
//! # Owed replies
//!
//! Replies go out in the order of PSNs. A response to a READ acknowledges all earlier requests, so
//! a separate acknowledgement is only owed behind the last READ. There is only one, for the latest
//! executed request: one poll for a batch of packets acknowledges the whole batch. An
//! acknowledgement never bears a PSN of a READ's response, as a requester may take it for the data.
//! All of this applies to atomics, atomic WRITEs and FLUSHes, too. The latter two are answered by
//! an empty response to a READ.
//!
//! # Early packets
//!
//! The host keeps a packet behind a missing one, and hands it in again in its turn. Nothing is
//! executed out of order, and a peer that repairs the gap alone need not send the rest again. A
//! peer that goes back to the missing packet then sends duplicates, which are answered as usual.
//! The turn of a kept packet is within [`MAX_EARLY_PSNS`]. When a reported gap closes, the responder
//! acknowledges at once: by this time the peer tells a late packet from a lost one.
//!
//! Packets behind one that found no receive are kept, too, though without a reply. The peer sends them again, but
//! they may overtake the one that is to come first, and no later packet may tell that they were dropped.
//!
//! # Once
//!
//! An atomic is executed on arrival and its result is kept: a duplicate is answered with the same
//! value. As many results are kept as a requester may have outstanding. An atomic without a kept
//! result is one for which the requester no longer waits, and is dropped.
//!
//! An unreliable connection has no replies, and takes messages as they come: see the module
//! `unreliable`.

mod config;
mod execute;
mod replay;
mod reply;
mod report;
mod unreliable;

use core::mem;
use core::ops::DerefMut;

use crate::completion::{Completion, CompletionOp, Status};
use crate::event::{AsyncEvent, Event};
use crate::host::{Fault, Flush, Handled, RecvHost};
use crate::limits::{FLUSH_BATCH, MAX_EARLY_PSNS};
use crate::num::{Msn, Psn, Qpn};
use crate::opcode::Connection;
use crate::wire::{cnp, Body, HeaderBytes, NakCode, Packet, Request};
use crate::wr::RecvRequest;

use replay::Replays;

pub use crate::half::RecvState;
pub use config::{RecvConfig, RecvUpdate, RemoteAccess};
pub use replay::Replay;
pub use report::{Owes, RecvReport, Within};

/// The responder of one queue pair: receives of payload `P`, grants `G`.
#[derive(Debug)]
pub struct Responder<P, G, S> {
    qpn: Qpn,
    replays: Replays<G, S>,
    phase: Phase<P, G>,
    /// The owner was told that nothing more is taken from the shared receive queue.
    last_wqe_raised: bool,
}

#[derive(Debug)]
enum Phase<P, G> {
    Idle,
    Running(Sequence<P, G>),
    Error,
}

/// The state of a running responder.
#[derive(Debug)]
struct Sequence<P, G> {
    config: RecvConfig,
    /// The PSN that it expects.
    expected: Psn,
    /// The last executed PSN that is not of a READ or atomic. An acknowledgement bears it.
    acknowledge: Psn,
    /// READs since then have taken more than half of all PSNs: a peer would take it for a later one.
    is_out_of_date: bool,
    /// Messages completed.
    msn: Msn,
    /// The message that it is in.
    message: Message<P, G>,
    /// The receive that was taken for a message which was dropped or put off: it is for the next
    /// one.
    kept: Option<RecvRequest<P>>,
    /// The reply that is owed behind all responses to READs.
    owed: Owed,
    /// What the peer was told of the packet `expected`.
    told: Told,
    /// What was dropped or kept behind `expected`, which was put off: to be asked for after that.
    behind: Option<Psn>,
    /// The owner knows that the connection stands.
    established: bool,
    /// Something was executed since the peer was last told how far that is.
    unacknowledged: bool,
}

/// The message that a responder is in.
#[derive(Debug)]
enum Message<P, G> {
    /// None: the next packet starts one.
    None,
    /// A SEND, `received` bytes of it.
    Send { recv: RecvRequest<P>, received: u32 },
    /// A WRITE of `length` bytes, `received` of them.
    Write {
        grant: G,
        length: u32,
        received: u32,
    },
}

/// The report about the expected packet that the peer has got or will get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    Nothing,
    /// It is missing.
    Missing,
    /// There is no receive for it. The peer sends all that is behind it once more.
    NotReady,
}

/// The reply that is owed behind all responses to READs and atomics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owed {
    Nothing,
    /// Of the latest request that is not a READ or atomic.
    Acknowledgement,
    /// The packet that is expected is missing. Of those behind it that came `last` is the last. `acknowledges` says
    /// that this is in place of an acknowledgement.
    SequenceNak {
        last: Psn,
        acknowledges: bool,
    },
    /// The packet that is expected found no receive.
    RnrNak,
    /// The request `psn` was refused. It stays owed to the end: nothing is taken any more.
    Refusal {
        psn: Psn,
        code: NakCode,
    },
}

/// Why a request is not executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    /// No receive is posted.
    NotReady,
    /// There is no room to keep it: the peer is to send it again, as if it had been lost.
    NoRoom,
    /// Memory that it is for is not in reach now. Nothing was done that may not be done again.
    PutOff,
    /// The queue pair fails. A receive that is in use completes with `recv`.
    Fatal { code: NakCode, recv: Status },
    /// The queue pair fails; a receive has already been completed with an error.
    FatalTold { code: NakCode },
}

impl Refusal {
    /// The request is none that may come.
    // Rules: NAK-6
    const INVALID: Self = Self::Fatal {
        code: NakCode::InvalidRequest,
        recv: Status::RemoteInvalidRequest,
    };

    // Rules: NAK-7
    const ACCESS: Self = Self::Fatal {
        code: NakCode::RemoteAccess,
        recv: Status::RemoteAccess,
    };

    /// Returns the refusal for memory that failed. If it failed permanently, a receive in use completes with `recv`.
    // Rules: NAK-8
    fn of(fault: Fault, recv: Status) -> Self {
        match fault {
            Fault::Absent => Self::PutOff,
            Fault::Gone => Self::Fatal {
                code: NakCode::RemoteOperation,
                recv,
            },
        }
    }
}

/// A request was refused permanently: the refusal is owed, and the queue pair fails.
struct Failed;

/// A responder that runs, for one call.
struct Running<'a, P, G, S> {
    sequence: &'a mut Sequence<P, G>,
    replays: &'a mut Replays<G, S>,
    qpn: Qpn,
}

impl<P, G> Sequence<P, G> {
    // Rules: ACK-15, PSN-4
    fn new(config: RecvConfig) -> Self {
        Self {
            config,
            expected: config.rq_psn,
            acknowledge: config.rq_psn.prev(),
            is_out_of_date: false,
            msn: Msn::default(),
            message: Message::None,
            kept: None,
            owed: Owed::Nothing,
            told: Told::Nothing,
            behind: None,
            established: false,
            unacknowledged: false,
        }
    }

    /// Returns the receive that was taken and not completed, if there is one.
    // Rules: CPL-4
    fn into_recv(self) -> Option<RecvRequest<P>> {
        match self.message {
            Message::Send { recv, .. } => Some(recv),
            Message::None | Message::Write { .. } => self.kept,
        }
    }

    /// Returns true if the host may keep the packet, which came before its turn. One that is too long will be
    /// refused anyway.
    // Rules: PSN-19
    fn may_keep(&self, packet: &Packet) -> bool {
        let most = self.config.mtu.bytes().saturating_mul(packet.psns);
        packet.bth.psn.distance_from(self.expected) < MAX_EARLY_PSNS && packet.payload_len <= most
    }

    /// Returns true if an acknowledgement can tell that all before the expected packet is executed.
    fn can_acknowledge_all(&self) -> bool {
        !self.is_out_of_date && self.acknowledge.next() == self.expected
    }

    /// Returns true if it refused a request: then that is all it owes, until it is told.
    #[inline]
    fn has_failed(&self) -> bool {
        matches!(self.owed, Owed::Refusal { .. })
    }
}

impl<P, G, S: DerefMut<Target = [Replay<G>]>> Responder<P, G, S> {
    /// Creates a responder in [`RecvState::Idle`]. It keeps as many READs and atomics of the peer as `replay`
    /// has elements: see [`set_replay`](Self::set_replay).
    pub fn new(qpn: Qpn, replay: S) -> Self {
        Self {
            qpn,
            replays: Replays::new(replay),
            phase: Phase::Idle,
            last_wqe_raised: false,
        }
    }

    /// Exchanges the storage for replays; returns the old one. It keeps the latest replays that
    /// fit.
    ///
    /// There are to be `max_dest_rd_atomic` elements or more: that many READs and atomics may wait
    /// for their responses, and are answered again if those are lost. The next power of two forgives
    /// `rdma_rxe`, which as a requester rounds its depth up so.
    pub fn set_replay(&mut self, replay: S) -> S {
        self.replays.exchange(replay)
    }

    /// Moves from INIT to RTR: expects `config.rq_psn` and takes requests. Does nothing unless
    /// [idle](RecvState::Idle).
    // Rules: STA-15
    pub fn start(&mut self, config: RecvConfig) {
        if matches!(self.phase, Phase::Idle) {
            self.phase = Phase::Running(Sequence::new(config));
        }
    }

    /// Moves from RTR to RTS: the owner knows that the connection stands, so that
    /// [`CommunicationEstablished`](crate::event::AsyncEvent::CommunicationEstablished) is not
    /// raised any more.
    pub fn set_established(&mut self) {
        if let Phase::Running(sequence) = &mut self.phase {
            sequence.established = true;
        }
    }

    /// Changes attributes, as the verbs allow in RTS and SQD.
    pub fn modify(&mut self, update: RecvUpdate) {
        if let Phase::Running(sequence) = &mut self.phase {
            sequence.config = sequence.config.updated(update);
        }
    }

    /// Enters ERR from any state: forgets the owed replies. The receive in use and the posted
    /// receives complete as [`Flushed`](crate::completion::Status::Flushed), in order.
    ///
    /// With a shared receive queue nothing that is posted is flushed, and
    /// [`LastWqeReached`](crate::event::AsyncEvent::LastWqeReached) is raised, once.
    pub fn enter_error<H: RecvHost<Payload = P, Grant = G>>(&mut self, host: &mut H) -> Flush {
        self.replays.clear();
        if let Phase::Running(sequence) = mem::replace(&mut self.phase, Phase::Error) {
            // Rules: ERR-5
            if let Some(recv) = sequence.into_recv() {
                let completion = failure(self.qpn, recv.wr_id, Status::Flushed);
                host.complete(Some(recv.payload), completion);
            }
        }
        // Rules: ERR-14
        if host.has_shared_queue() && !mem::replace(&mut self.last_wqe_raised, true) {
            host.raise(AsyncEvent::LastWqeReached);
        }
        self.flush_posted(host)
    }

    /// Completes the receives posted since, in [`Failed`](RecvState::Failed) and
    /// [`Error`](RecvState::Error), as [`Flushed`](crate::completion::Status::Flushed). Does
    /// nothing in other states.
    // Rules: ERR-2, ERR-3
    pub fn flush_posted<H: RecvHost<Payload = P, Grant = G>>(&mut self, host: &mut H) -> Flush {
        // Rules: STA-8
        let is_stopped = !matches!(self.state(), RecvState::Idle | RecvState::Running);
        // Rules: ERR-15, SRQ-5
        if !is_stopped || host.has_shared_queue() {
            return Flush::Done;
        }
        // Rules: ERR-20
        for _ in 0..FLUSH_BATCH {
            let (wr_id, payload) = match host.take_recv() {
                None => return Flush::Done,
                Some(Ok(recv)) => (recv.wr_id, Some(recv.payload)),
                // Rules: ERR-6
                Some(Err(bad)) => (bad.wr_id, None),
            };
            host.complete(payload, failure(self.qpn, wr_id, Status::Flushed));
        }
        Flush::More
    }

    /// Enters RESET from any state: discards the receive in use, without a completion. The driver
    /// forgets the posted receives that were not taken.
    // Rules: ERR-16, ERR-17
    pub fn reset<H: RecvHost<Payload = P, Grant = G>>(&mut self, host: &mut H) {
        self.last_wqe_raised = false;
        self.replays.clear();
        if let Phase::Running(sequence) = mem::replace(&mut self.phase, Phase::Idle) {
            if let Some(recv) = sequence.into_recv() {
                host.discard(recv.payload);
            }
        }
    }

    /// Returns the state. The driver must check it after every call that takes a host. A responder
    /// that refuses a request goes to [`Failed`](RecvState::Failed). The driver then moves the
    /// queue pair and its requester to ERR, and polls this half until that returns `None`. By then
    /// the peer was told the reason. On an unreliable connection, without such a report, a failure
    /// of local memory leads to [`Error`](RecvState::Error) at once.
    #[inline]
    pub fn state(&self) -> RecvState {
        match &self.phase {
            Phase::Idle => RecvState::Idle,
            Phase::Running(sequence) if sequence.has_failed() => RecvState::Failed,
            Phase::Running(_) => RecvState::Running,
            Phase::Error => RecvState::Error,
        }
    }

    /// Returns the congestion notification packet for the peer; `None` unless it runs.
    // Rules: CNP-1
    pub fn cnp(&self) -> Option<HeaderBytes> {
        match &self.phase {
            Phase::Running(sequence) => Some(cnp::emit(sequence.config.dest_qp)),
            Phase::Idle | Phase::Error => None,
        }
    }

    /// Returns the PSN that it expects, for `rq_psn` of a query; `None` unless it runs.
    // Rules: PSN-18
    pub fn expected_psn(&self) -> Option<Psn> {
        match &self.phase {
            Phase::Running(sequence) => Some(sequence.expected),
            Phase::Idle | Phase::Error => None,
        }
    }

    /// Handles a request. The packet passed [`qp::check`](crate::qp::check).
    ///
    /// [`poll_transmit`](Self::poll_transmit) returns the owed replies. Call it at the end of a
    /// batch of packets rather than after each.
    pub fn handle_request<H: RecvHost<Payload = P, Grant = G>>(
        &mut self,
        packet: &Packet,
        host: &mut H,
    ) -> Handled {
        // Rules: VAL-10
        let Body::Request(request) = &packet.body else {
            return Handled::Done;
        };
        let mut running = match self.running() {
            // Rules: NAK-10
            Some(running) if !running.sequence.has_failed() => running,
            _ => {
                host.observe(Event::BadState);
                return Handled::Done;
            }
        };
        let outcome = match running.sequence.config.connection {
            Connection::Reliable => running.handle_request(packet, request, host),
            Connection::Unreliable => running.handle_unreliable(packet, request, host),
        };
        match outcome {
            Ok(handled) => handled,
            Err(failed) => {
                self.settle(failed, host);
                Handled::Done
            }
        }
    }

    /// Handles a request that the host has kept as it was [early](Handled::Early), after a packet before
    /// it is done. It is done as well, or still early: then those behind it are, too.
    ///
    /// Remaining gaps are not reported. A peer that sends all again has the packets on their way.
    /// Another peer learns of a gap by the acknowledgement, or by a NAK for the next early packet.
    /// Only a gap behind a READ or the like is reported, as no acknowledgement shows that the READ
    /// was executed.
    // Rules: PSN-19
    pub fn handle_kept<H: RecvHost<Payload = P, Grant = G>>(
        &mut self,
        packet: &Packet,
        host: &mut H,
    ) -> Handled {
        let Phase::Running(sequence) = &mut self.phase else {
            return Handled::Done;
        };
        let psn = packet.bth.psn;
        if psn == sequence.expected {
            return self.handle_request(packet, host);
        }
        // Rules: PSN-11
        if psn.is_before(sequence.expected) || sequence.has_failed() {
            return Handled::Done; // Its like was handled meanwhile, or none is any more.
        }
        // Rules: NAK-4
        if sequence.told == Told::Nothing && !sequence.can_acknowledge_all() {
            sequence.ask_for_expected(psn);
        }
        Handled::Early
    }

    /// Returns true if a reply is owed, or the half has failed. Then the driver has to call
    /// [`poll_transmit`](Self::poll_transmit) and to look at its [state](Self::state) after a
    /// batch.
    #[inline]
    pub fn needs_poll(&mut self) -> bool {
        match &self.phase {
            Phase::Idle => false,
            Phase::Running(sequence) => {
                sequence.owed != Owed::Nothing || self.replays.has_response()
            }
            Phase::Error => true,
        }
    }

    /// Returns the responder, if it runs.
    fn running(&mut self) -> Option<Running<'_, P, G, S>> {
        match &mut self.phase {
            Phase::Running(sequence) => Some(Running {
                sequence,
                replays: &mut self.replays,
                qpn: self.qpn,
            }),
            Phase::Idle | Phase::Error => None,
        }
    }

    /// Flushes posted receives when the queue pair fails. Without a report to send first, it enters
    /// ERR.
    fn settle<H: RecvHost<Payload = P, Grant = G>>(&mut self, _: Failed, host: &mut H) {
        if let Phase::Running(sequence) = &mut self.phase {
            // It was taken before all posted receives.
            if let Some(recv) = sequence.kept.take() {
                let completion = failure(self.qpn, recv.wr_id, Status::Flushed);
                host.complete(Some(recv.payload), completion);
            }
        }
        // The driver flushes the rest as it moves the queue pair to ERR.
        let _ = match self.state() {
            RecvState::Failed => self.flush_posted(host),
            _ => self.enter_error(host),
        };
    }
}

impl<P, G, S: DerefMut<Target = [Replay<G>]>> Running<'_, P, G, S> {
    fn handle_request<H: RecvHost<Payload = P, Grant = G>>(
        &mut self,
        packet: &Packet,
        request: &Request,
        host: &mut H,
    ) -> Result<Handled, Failed> {
        self.establish(host);
        let psn = packet.bth.psn;
        // Rules: PSN-10
        if psn == self.sequence.expected {
            return self.handle_expected(packet, request, host);
        }
        // Rules: PSN-11
        if psn.is_before(self.sequence.expected) {
            host.observe(Event::DuplicateRequest);
            self.handle_duplicate(psn, request, host);
            return Ok(Handled::Done);
        }
        // Rules: RNR-4
        if self.sequence.told == Told::NotReady {
            return Ok(self.keep_early(packet));
        }
        // Rules: PSN-12
        host.observe(Event::OutOfSequenceRequest);
        Ok(self.handle_early(packet))
    }

    /// Asks for the packet that is expected, once, as one came before its turn.
    fn handle_early(&mut self, packet: &Packet) -> Handled {
        let psn = packet.bth.psn;
        if self.sequence.told == Told::Nothing {
            // Rules: NAK-2
            self.sequence.ask_for_expected(psn);
        } else if let Owed::SequenceNak { last, .. } = &mut self.sequence.owed {
            if last.is_before(psn) {
                *last = psn;
            }
        } else if packet.bth.ack_req && self.sequence.can_acknowledge_all() {
            // Rules: ACK-22
            self.acknowledge_again();
        }
        self.keep_early(packet)
    }

    /// Has the host keep a packet that came before its turn, if that is near.
    // Rules: RNR-20
    fn keep_early(&self, packet: &Packet) -> Handled {
        match self.sequence.may_keep(packet) {
            true => Handled::Early,
            false => Handled::Done,
        }
    }

    /// Notes that the connection stands, as a packet arrived.
    // Rules: VAL-15
    fn establish<H: RecvHost<Payload = P, Grant = G>>(&mut self, host: &mut H) {
        if !self.sequence.established {
            self.sequence.established = true;
            host.raise(AsyncEvent::CommunicationEstablished);
        }
    }

    // Rules: ORD-8, RSP-17
    fn handle_expected<H: RecvHost<Payload = P, Grant = G>>(
        &mut self,
        packet: &Packet,
        request: &Request,
        host: &mut H,
    ) -> Result<Handled, Failed> {
        // Rules: RNR-21
        if self.sequence.owed == Owed::RnrNak {
            return Ok(Handled::Done);
        }
        // Rules: NAK-3
        let was_told = mem::replace(&mut self.sequence.told, Told::Nothing) == Told::Missing
            && self.sequence.owed == Owed::Nothing;
        let last = match self.sequence.owed {
            Owed::SequenceNak { last, .. } => Some(last),
            _ => self.sequence.behind.take(),
        };
        self.sequence.withdraw_nak(); // What it was to ask for is here.
        match self.execute(packet, request, host) {
            Ok(()) => {
                // Rules: ACK-23
                if was_told {
                    self.acknowledge_again();
                }
                // Rules: NAK-4
                if let Some(last) = last.filter(|psn| !psn.is_before(self.sequence.expected)) {
                    self.sequence.ask_for_expected(last);
                }
                Ok(Handled::Done)
            }
            Err(Refusal::NoRoom) => Ok(Handled::Done),
            // Rules: RSP-22
            Err(Refusal::PutOff) => {
                self.sequence.behind = last;
                // Or the peer might take a message whose memory comes page by page for lost.
                if mem::take(&mut self.sequence.unacknowledged) {
                    self.acknowledge_again();
                }
                Ok(Handled::PutOff)
            }
            // Rules: RNR-1, RNR-5, RNR-17
            Err(Refusal::NotReady) => {
                // Rules: RNR-4
                self.sequence.told = Told::NotReady;
                self.sequence.owed = Owed::RnrNak;
                Ok(Handled::Done)
            }
            Err(Refusal::Fatal { code, recv }) => {
                Err(self.refuse(packet.bth.psn, code, recv, host))
            }
            Err(Refusal::FatalTold { code }) => Err(self.fail(packet.bth.psn, code)),
        }
    }

    // Rules: DUP-4, DUP-5, DUP-16, NAK-22
    fn handle_duplicate<H: RecvHost<Payload = P, Grant = G>>(
        &mut self,
        psn: Psn,
        request: &Request,
        host: &mut H,
    ) {
        match request {
            Request::SendFirst
            | Request::SendMiddle
            | Request::SendLast(_)
            | Request::SendOnly(_)
            | Request::WriteFirst(_)
            | Request::WriteMiddle
            | Request::WriteLast(_)
            | Request::WriteOnly(..) => self.acknowledge_again(),
            Request::Read(_)
            | Request::CompareSwap(_)
            | Request::FetchAdd(_)
            | Request::AtomicWrite(_)
            | Request::Flush(..) => self.answer_again(psn, request, host),
        }
    }

    /// Owes an acknowledgement, unless a response that is owed already says as much or more, or the
    /// peer has long got the responses to later READs.
    // Rules: ACK-24, DUP-1, DUP-2, DUP-3
    fn acknowledge_again(&mut self) {
        if self.sequence.is_out_of_date {
            return;
        }
        let answered = self.replays.any_pending_after(self.sequence.acknowledge);
        if self.sequence.owed == Owed::Nothing && !answered {
            self.sequence.owed = Owed::Acknowledgement;
        }
    }

    /// Answers a READ or atomic again. Of a READ, it answers the whole, or the rest if the
    /// requester has some of it.
    ///
    /// The requested part must lie within the original grant. Access to READ memory is authorized
    /// anew. A grant is given back with the last response, so that a replay that may never be
    /// needed does not hold the region. The region may have gone since. If it has, the duplicate is
    /// dropped: it may be a stray copy of a READ that is long complete.
    // Rules: DUP-6, DUP-19
    fn answer_again<H: RecvHost<Payload = P, Grant = G>>(
        &mut self,
        psn: Psn,
        request: &Request,
        host: &mut H,
    ) {
        let mtu = self.sequence.config.mtu;
        // Rules: DUP-12
        let Some(again) = self.replays.find(psn, request, mtu) else {
            return;
        };
        let (grant, length) = match request {
            // Rules: DUP-9
            Request::Read(reth) => match execute::authorize_read(reth, host) {
                Ok(grant) => (grant, reth.length),
                Err(_) => return,
            },
            _ => (None, 0),
        };
        self.replays.restart(again, grant, length, mtu);
        if self.sequence.owed == Owed::Acknowledgement && self.sequence.acknowledge.is_before(psn) {
            self.sequence.owed = Owed::Nothing;
            host.observe(Event::AckCoalesced);
        }
    }

    /// Refuses the request `psn` and tells the owner, by the receive in use or else by an event.
    fn refuse<H: RecvHost<Payload = P, Grant = G>>(
        &mut self,
        psn: Psn,
        code: NakCode,
        status: Status,
        host: &mut H,
    ) -> Failed {
        self.tell_owner(code, status, host);
        self.fail(psn, code)
    }

    /// Tells the owner that a request failed, by the receive in use or else by an event.
    fn tell_owner<H: RecvHost<Payload = P, Grant = G>>(
        &mut self,
        code: NakCode,
        status: Status,
        host: &mut H,
    ) {
        // Rules: NAK-12
        if let Message::Send { recv, .. } = mem::replace(&mut self.sequence.message, Message::None)
        {
            let completion = failure(self.qpn, recv.wr_id, status);
            host.complete(Some(recv.payload), completion);
        } else {
            // Rules: NAK-11, NAK-13
            host.raise(match code {
                NakCode::RemoteAccess => AsyncEvent::AccessError,
                NakCode::InvalidRequest => AsyncEvent::RequestError,
                NakCode::RemoteOperation | NakCode::SequenceError => AsyncEvent::Fatal,
            });
        }
    }

    /// Fails the queue pair on the request `psn`; the peer will be told `code`.
    // Rules: NAK-9
    fn fail(&mut self, psn: Psn, code: NakCode) -> Failed {
        self.sequence.message = Message::None;
        self.sequence.owed = Owed::Refusal { psn, code };
        Failed
    }
}

/// Returns a completion that says that the receive `wr_id` failed.
fn failure(qpn: Qpn, wr_id: u64, status: Status) -> Completion {
    Completion::failure(qpn, CompletionOp::Recv, wr_id, status)
}
