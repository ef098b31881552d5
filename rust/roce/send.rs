// SPDX-License-Identifier: GPL-2.0

//! The requester of a connection, its completer included.
//!
//! # The window
//!
//! Every packet of a SEND or WRITE has a PSN. A READ has one request packet, and takes a PSN for
//! each packet of its response. Atomics, atomic WRITEs and FLUSHes are like READs with a response
//! of one packet; statements about READs apply to them, too. A PSN that was sent is outstanding
//! until it is acknowledged. PSNs are acknowledged in order:
//!
//! ```text
//!        unacked            next               end
//!           |                |                  |
//!   --------+================+==================+---------------->  PSN
//!    acked  |  outstanding   | outstanding, to  |  never sent
//!           |                | be sent again    |
//! ```
//!
//! Without loss `next` is `end`. To go back n, `next` moves back to `unacked`. The requests of
//! these PSNs are in a window of their own, oldest first. `cursor` is the request of `next`.
//!
//! # Acknowledgement
//!
//! A response with PSN p acknowledges all PSNs before p. Only its own data complete a READ or an
//! atomic. So a response behind one that is not complete means that packets were lost. After a NAK
//! one packet is sent again, if the peer keeps those behind it. After a gap in the responses the
//! missing ones are requested again: see the module `repair`. After a timeout the oldest packet is sent again alone,
//! unless all are being sent again.
//!
//! A NAK and a gap count once for each value of `unacked`. So a flood of NAKs for one packet, or
//! every packet behind a gap, causes one retransmission at most. If that is lost too, a repeated
//! acknowledgement of the peer tells, or a probe after some round trips, or the timer.
//!
//! # Without acknowledgement
//!
//! A packet that was sent on an unreliable connection is done with. It counts as acknowledged the
//! next time that a packet can be sent. So nothing waits, no timer runs, and nothing is sent again.
//! Requests that need a response, such as READs, are refused. A request that fails stops the send
//! queue alone, which is then in [`SendState::Stopped`].

mod complete;
mod config;
mod gaps;
mod lateness;
mod repair;
mod report;
mod retry;
mod rtt;
mod transmit;
mod window;

use core::mem::size_of;
use core::ops::DerefMut;

use crate::completion::{Completion, CompletionOp, Status};
use crate::congestion::{Control, Controller, Path};
use crate::event::AsyncEvent;
use crate::host::{Flush, SendHost};
use crate::limits::FLUSH_BATCH;
use crate::num::{Psn, Qpn};
use crate::opcode::Connection;
use crate::time::{Instant, Micros};
use crate::wr::{AtomicOp, LocalOp, SendOp};

use gaps::Gaps;
use lateness::Lateness;
use repair::{EarlyResponses, Keeping, Repair};
use rtt::RoundTrip;
use window::{Entry, Outstanding, Window};

pub use crate::half::SendState;
pub use config::{RetryCount, SendConfig, SendUpdate};
pub use report::{SendReport, Waiting};
pub use window::Slot;

/// Why a requester that has work sends nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blocked {
    /// The next request has a fence, and READs or atomics before it are not complete.
    Fence,
    /// The limit of outstanding PSNs is reached.
    PsnWindow,
    /// The peer was asked whether it has the oldest packet, and has not answered.
    Answer,
    /// There is no room for more outstanding requests; [`Requester::widen`] makes some.
    Window,
    /// The responder accepts no more outstanding READs and atomics.
    ReadDepth,
    /// The peer had no receive posted; until then it is left alone.
    Rnr,
    /// A request that cannot be executed waits for those before it.
    BadRequest,
    /// Work on our own side waits for the requests before it.
    Local,
    /// Much work on our own side was done, and there may be more: it is to be polled again, later.
    Busy,
    /// The send queue is drained, or about to be.
    Drain,
}

/// The requester of one queue pair.
#[derive(Debug)]
pub struct Requester<P, S> {
    identity: Identity,
    window: Window<P, S>,
    phase: Phase,
}

/// The attributes of the queue pair that completions need.
#[derive(Clone, Copy, Debug)]
struct Identity {
    qpn: Qpn,
    signal_all: bool,
}

#[derive(Debug)]
enum Phase {
    Idle,
    Running(Sequence),
    /// The configuration to continue with.
    Stopped(SendConfig),
    Error,
}

/// How far a drain has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Drain {
    Off,
    Draining,
    Drained,
}

/// What is known of READs that are asked for in parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Parts {
    /// No part was ever asked for.
    None,
    /// A part was asked for, so a response may end in the middle of a READ.
    Asked,
    /// The same, and a further part of the oldest READ was asked for, of which no response has come. It is a request
    /// of its own, so the peer may not have it.
    Unheard,
}

/// The event that the requester's timer waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Timer {
    Off,
    /// An acknowledgement.
    Ack(Instant),
    /// The end of the time that an RNR NAK asked for.
    Rnr(Instant),
}

/// The numbers of a running requester.
#[derive(Debug)]
struct Sequence {
    config: SendConfig,
    drain: Drain,
    /// The oldest PSN that is not acknowledged.
    unacked: Psn,
    /// The PSN to send next.
    next: Psn,
    /// The PSN after the last that was ever sent.
    end: Psn,
    /// The packet that was handed out last had never been sent before.
    fresh: bool,
    /// The index in the window of the request that `next` is in; the window's length if `next` is
    /// of a request that is not taken yet.
    cursor: usize,
    /// READs and atomics that were begun and are not complete.
    unanswered: u16,
    /// Packets since the last that asked for an acknowledgement, or that is answered.
    since_ack_req: u32,
    /// A timeout came since all was acknowledged: the peer may lack all that was sent before it.
    may_lack_all: bool,
    /// The PSN after the last of that.
    may_lack_to: Psn,
    /// A NAK or gap for this value of `unacked` has been answered.
    recovering: bool,
    keeping: Keeping,
    /// Packets that were sent again without those behind them, until the result is known.
    repair: Option<Repair>,
    /// Responses that the host may have kept.
    early: Option<EarlyResponses>,
    /// Responses behind the kept ones were not kept.
    lacks_rest: bool,
    /// Losses for which the host is taken to have no room for such responses.
    drops_responses: u8,
    /// The PSN up to which all was sent again.
    asked_again_to: Psn,
    /// The time of the last acknowledgement.
    moved_at: Micros,
    parts: Parts,
    lateness: Lateness,
    gaps: Gaps,
    round_trip: RoundTrip,
    pace: Controller,
    retries_left: u8,
    rnr_retries_left: u8,
    /// Timeouts since there was progress.
    timeouts: u8,
    timer: Timer,
    /// When to ask for an answer once more, while the timer waits for one.
    probe_at: Instant,
    /// How often that was done since there was progress.
    probes: u8,
    blocked: Option<Blocked>,
}

// The driver allocates a queue pair in one piece, which is near a size class.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Sequence>() <= 224);

/// A requester that runs, for one call.
struct Running<'a, P, S> {
    sequence: &'a mut Sequence,
    window: &'a mut Window<P, S>,
    identity: Identity,
    /// The current response was kept, as it came before its turn.
    is_kept: bool,
}

/// The oldest request cannot be executed. It completes with this status, and the queue pair fails.
struct Failure(Status);

impl Sequence {
    // Rules: PSN-3
    fn new(config: SendConfig) -> Self {
        Self {
            config,
            drain: Drain::Off,
            unacked: config.sq_psn,
            next: config.sq_psn,
            end: config.sq_psn,
            fresh: false,
            cursor: 0,
            unanswered: 0,
            since_ack_req: 0,
            may_lack_all: false,
            may_lack_to: config.sq_psn,
            recovering: false,
            keeping: Keeping::Unknown,
            repair: None,
            early: None,
            lacks_rest: false,
            drops_responses: 0,
            asked_again_to: config.sq_psn,
            moved_at: Micros::START,
            parts: Parts::None,
            lateness: Lateness::NEW,
            gaps: Gaps::new(config.sq_psn),
            round_trip: RoundTrip::NEW,
            pace: Controller::new(config.law, config.sq_psn),
            retries_left: config.retry_cnt.get(),
            rnr_retries_left: config.rnr_retry.get(),
            timeouts: 0,
            timer: Timer::Off,
            probe_at: Instant::from_ns(0),
            probes: 0,
            blocked: None,
        }
    }

    /// Returns true if the peer acknowledges packets.
    #[inline]
    fn is_acknowledged(&self) -> bool {
        self.config.connection == Connection::Reliable
    }

    /// Returns the state of the path.
    #[inline]
    fn path(&self, now: Instant) -> Path {
        Path {
            now,
            average_ns: self.round_trip.average_ns(),
            sample_ns: 0,
            least_ns: self.round_trip.least_ns(),
            timeout: self.config.timeout,
            mtu: self.config.mtu,
            unacked: self.unacked,
            end: self.end,
        }
    }

    /// Notes that a part of a READ is asked for.
    fn note_part(&mut self) {
        if self.parts == Parts::None {
            self.parts = Parts::Asked;
        }
    }

    /// Returns how many PSNs are outstanding, at most 2^23.
    #[inline]
    fn outstanding(&self) -> u32 {
        self.end.distance_from(self.unacked)
    }
}

impl<P, S: DerefMut<Target = [Slot<P>]>> Requester<P, S> {
    /// Creates a requester in [`SendState::Idle`].
    ///
    /// `window` needs no more than [`MAX_WINDOW_REQUESTS`](crate::limits::MAX_WINDOW_REQUESTS)
    /// slots, nor more than the send queue has. A smaller one limits the outstanding requests. With
    /// `signal_all` every request is signalled, regardless of its flags.
    pub fn new(qpn: Qpn, signal_all: bool, window: S) -> Self {
        Self {
            identity: Identity { qpn, signal_all },
            window: Window::new(window),
            phase: Phase::Idle,
        }
    }

    /// Returns how many requests may be outstanding.
    pub fn room(&self) -> usize {
        self.window.room()
    }

    /// Continues with `storage`, all [`default`](Default::default), if that is larger. Returns the
    /// unused storage: its old one, or `storage`.
    pub fn widen(&mut self, storage: S) -> S {
        self.window.widen(storage)
    }

    /// Moves from RTR to RTS: numbers packets from `config.sq_psn` on and takes work. Does nothing
    /// unless [idle](SendState::Idle).
    // Rules: ERR-17, STA-15
    pub fn start(&mut self, config: SendConfig) {
        if matches!(self.phase, Phase::Idle) {
            self.phase = Phase::Running(Sequence::new(config));
        }
    }

    /// Moves to SQD: takes no more work and finishes the current message. Once all sent packets are
    /// acknowledged, which may be now, raises
    /// [`SendQueueDrained`](crate::event::AsyncEvent::SendQueueDrained).
    // Rules: STA-10
    pub fn drain<H: SendHost<Payload = P>>(&mut self, host: &mut H) {
        if let Some(mut running) = self.running() {
            if running.sequence.drain == Drain::Off {
                running.sequence.drain = Drain::Draining;
            }
            running.check_drained(host);
        }
    }

    /// Moves from SQD or SQE to RTS.
    // Rules: ERR-13, STA-12
    pub fn resume(&mut self) {
        match &mut self.phase {
            Phase::Running(sequence) => sequence.drain = Drain::Off,
            Phase::Stopped(config) => self.phase = Phase::Running(Sequence::new(*config)),
            Phase::Idle | Phase::Error => {}
        }
    }

    /// Changes attributes, which the verbs allow in SQD.
    pub fn modify(&mut self, update: SendUpdate) {
        if let Phase::Running(sequence) = &mut self.phase {
            sequence.config = sequence.config.updated(update);
            sequence.retries_left = sequence.config.retry_cnt.get();
            sequence.rnr_retries_left = sequence.config.rnr_retry.get();
        }
    }

    /// Enters ERR from any state: all requests that were taken and not completed, and all posted
    /// ones, complete as [`Flushed`](crate::completion::Status::Flushed), in order.
    pub fn enter_error<H: SendHost<Payload = P>>(&mut self, host: &mut H) -> Flush {
        self.phase = Phase::Error;
        self.flush(host)
    }

    /// Completes all taken and all posted requests as flushed.
    // Rules: ERR-1
    fn flush<H: SendHost<Payload = P>>(&mut self, host: &mut H) -> Flush {
        while let Some(entry) = self.window.pop() {
            self.identity.fail(entry, Status::Flushed, host);
        }
        self.flush_posted(host)
    }

    /// Completes the requests posted since, in ERR and SQE, as
    /// [`Flushed`](crate::completion::Status::Flushed). Does nothing in other states.
    // Rules: ERR-3, ERR-12
    pub fn flush_posted<H: SendHost<Payload = P>>(&mut self, host: &mut H) -> Flush {
        if !matches!(self.phase, Phase::Error | Phase::Stopped(_)) {
            return Flush::Done;
        }
        // Rules: ERR-20
        for _ in 0..FLUSH_BATCH {
            let (wr_id, payload) = match host.next_send() {
                None => return Flush::Done,
                Some(Ok(request)) => (request.wr_id, Some(request.payload)),
                // Rules: ERR-6
                Some(Err(bad)) => (bad.wr_id, None),
            };
            host.retire(payload, Some(self.identity.failure(wr_id, Status::Flushed)));
        }
        Flush::More
    }

    /// Enters RESET from any state: gives the taken requests back, without completions. The driver
    /// forgets the posted requests that were not taken.
    // Rules: ERR-16
    pub fn reset<H: SendHost<Payload = P>>(&mut self, host: &mut H) {
        self.phase = Phase::Idle;
        while let Some(entry) = self.window.pop() {
            let (_, payload) = entry.into_parts();
            host.retire(payload, None);
        }
    }

    /// Notes that the path to the peer is congested: the peer sent a CNP, or a response was marked.
    /// Returns true if the requester runs and its law reacts.
    // Rules: CNP-5
    pub fn congested(&mut self, now: Instant) -> bool {
        let Phase::Running(sequence) = &mut self.phase else {
            return false;
        };
        if !sequence.is_acknowledged() {
            return false;
        }
        let path = sequence.path(now);
        sequence.pace.congested(&path);
        sequence.config.law.reacts_to_marks()
    }

    /// Returns the state. The driver must check it after every call that takes a host, as a request
    /// that fails changes it. On a reliable connection the requester goes to
    /// [`Error`](SendState::Error), and the driver moves the queue pair and both its halves to ERR.
    /// On an unreliable connection it goes to [`Stopped`](SendState::Stopped), and the driver moves
    /// the queue pair to SQE.
    #[inline]
    pub fn state(&self) -> SendState {
        match &self.phase {
            Phase::Idle => SendState::Idle,
            Phase::Stopped(_) => SendState::Stopped,
            Phase::Error => SendState::Error,
            Phase::Running(sequence) => match sequence.drain {
                Drain::Off => SendState::Running,
                Drain::Draining => SendState::Draining,
                Drain::Drained => SendState::Drained,
            },
        }
    }

    /// Returns the reason that it sent nothing when it was last polled; `None` if it had nothing to
    /// send.
    pub fn blocked(&self) -> Option<Blocked> {
        match &self.phase {
            Phase::Running(sequence) => sequence.blocked,
            Phase::Idle | Phase::Stopped(_) | Phase::Error => None,
        }
    }

    /// Returns true if a poll may have a result without new posts: work was left at the last poll,
    /// a packet is to be sent again, or it has failed.
    #[inline]
    pub fn has_left(&self) -> bool {
        match &self.phase {
            Phase::Running(sequence) => {
                sequence.blocked.is_some() || sequence.sends_again() || sequence.asks_ahead()
            }
            Phase::Idle => false,
            Phase::Stopped(_) | Phase::Error => true,
        }
    }

    /// Notes that all requests that were posted are complete. Returns true if it runs: then it need not be
    /// [polled](Self::poll_transmit), as it has nothing to send.
    #[inline]
    pub fn rest(&mut self) -> bool {
        match &mut self.phase {
            Phase::Running(sequence) if sequence.drain == Drain::Off && self.window.is_empty() => {
                sequence.blocked = None;
                true
            }
            Phase::Running(_) | Phase::Idle | Phase::Stopped(_) | Phase::Error => false,
        }
    }

    /// Returns true if packets were sent that the peer has not acknowledged.
    #[inline]
    pub fn has_outstanding(&self) -> bool {
        match &self.phase {
            Phase::Running(sequence) => sequence.outstanding() > 0,
            Phase::Idle | Phase::Stopped(_) | Phase::Error => false,
        }
    }

    /// Returns true if packets of taken requests can be sent now, not only after the peer's RNR time.
    pub fn has_unsent(&self) -> bool {
        match &self.phase {
            Phase::Running(sequence) => {
                let waits = matches!(sequence.blocked, Some(Blocked::Rnr));
                !waits && self.window.get(sequence.cursor).is_some()
            }
            Phase::Idle | Phase::Stopped(_) | Phase::Error => false,
        }
    }

    /// Returns the PSN of the next new packet, for `sq_psn` of a query; `None` if idle or in ERR.
    // Rules: PSN-18
    pub fn next_psn(&self) -> Option<Psn> {
        match &self.phase {
            Phase::Running(sequence) => Some(sequence.end),
            Phase::Stopped(config) => Some(config.sq_psn),
            Phase::Idle | Phase::Error => None,
        }
    }

    /// Returns the PSN of the oldest packet that the peer has not acknowledged; `None` unless it runs and the peer
    /// acknowledges packets.
    #[inline]
    pub fn unacked_psn(&self) -> Option<Psn> {
        match &self.phase {
            Phase::Running(sequence) if sequence.is_acknowledged() => Some(sequence.unacked),
            _ => None,
        }
    }

    /// Returns the requester, if it runs.
    // Rules: ERR-7, STA-7
    #[inline]
    fn running(&mut self) -> Option<Running<'_, P, S>> {
        match &mut self.phase {
            Phase::Running(sequence) => Some(Running {
                sequence,
                window: &mut self.window,
                identity: self.identity,
                is_kept: false,
            }),
            Phase::Idle | Phase::Stopped(_) | Phase::Error => None,
        }
    }

    /// Fails the oldest request and, with it, the queue pair or at least its send queue, if the
    /// outcome of a call is that.
    // Rules: ERR-4, NAK-17
    fn settle<H: SendHost<Payload = P>>(&mut self, outcome: Result<(), Failure>, host: &mut H) {
        let Err(Failure(status)) = outcome else {
            return;
        };
        if let Some(entry) = self.window.pop() {
            self.identity.fail(entry, status, host);
        }
        self.phase = match &self.phase {
            // Rules: ERR-11
            Phase::Running(sequence) if !sequence.is_acknowledged() => Phase::Stopped(SendConfig {
                sq_psn: sequence.end,
                ..sequence.config
            }),
            // Rules: ERR-10
            _ => Phase::Error,
        };
        // The driver flushes the rest as it moves the queue pair to ERR or SQE.
        let _ = self.flush(host);
    }
}

impl<P, S: DerefMut<Target = [Slot<P>]>> Running<'_, P, S> {
    /// Handles the consequences of completed requests: the oldest request may be a bad one now, and
    /// a drain may be over.
    // Rules: ERR-8
    fn follow_up<H: SendHost<Payload = P>>(&mut self, host: &mut H) -> Result<(), Failure> {
        if let Some(Entry::Bad(bad, _)) = self.window.get(0) {
            return Err(Failure(bad.status));
        }
        self.check_drained(host);
        Ok(())
    }

    /// Ends a drain when all that was begun is acknowledged.
    // Rules: STA-11, UCX-11
    fn check_drained<H: SendHost<Payload = P>>(&mut self, host: &mut H) {
        let sequence = &mut *self.sequence;
        let between_messages = match self.window.good(sequence.cursor) {
            Some(entry) => sequence.next == entry.first,
            None => true,
        };
        if sequence.drain == Drain::Draining && sequence.unacked == sequence.end && between_messages
        {
            sequence.drain = Drain::Drained;
            host.raise(AsyncEvent::SendQueueDrained);
        }
    }
}

impl Identity {
    /// Returns a completion for the failed request `wr_id`.
    fn failure(self, wr_id: u64, status: Status) -> Completion {
        Completion::failure(self.qpn, CompletionOp::Send, wr_id, status)
    }

    /// Gives a request back that failed.
    // Rules: CPL-1
    fn fail<H: SendHost>(self, entry: Entry<H::Payload>, status: Status, host: &mut H) {
        let (wr_id, payload) = entry.into_parts();
        host.retire(payload, Some(self.failure(wr_id, status)));
    }

    /// Gives an executed request back.
    fn succeed<H: SendHost>(self, entry: Outstanding<H::Payload>, host: &mut H) {
        // Rules: CPL-13
        let op = match entry.op {
            SendOp::Send { .. } | SendOp::SendInvalidate { .. } => CompletionOp::Send,
            SendOp::Write { .. } => CompletionOp::Write,
            SendOp::Read { .. } => CompletionOp::Read,
            SendOp::Atomic { op, .. } => match op {
                AtomicOp::CompareSwap { .. } => CompletionOp::CompareSwap,
                AtomicOp::FetchAdd { .. } => CompletionOp::FetchAdd,
            },
            SendOp::AtomicWrite { .. } => CompletionOp::AtomicWrite,
            SendOp::Flush { .. } => CompletionOp::Flush,
            SendOp::Local(op) => match op {
                LocalOp::Bind(_) => CompletionOp::BindWindow,
                LocalOp::Invalidate { .. } => CompletionOp::LocalInvalidate,
                LocalOp::Register(_) => CompletionOp::Register,
            },
        };
        let completion = Completion::sent(self.qpn, op, entry.wr_id, entry.length);
        // Rules: CPL-2
        let signaled = self.signal_all || entry.flags.signaled;
        // Rules: CPL-3
        host.retire(Some(entry.payload), signaled.then_some(completion));
    }
}
