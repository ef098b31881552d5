// SPDX-License-Identifier: GPL-2.0

//! From work requests to datagrams.

use super::DatagramConfig;
use crate::completion::{Completion, CompletionOp, Status};
use crate::event::{AsyncEvent, Event};
use crate::half::SendState;
use crate::host::{DatagramSendHost, Flush, Source, Transmit};
use crate::limits::FLUSH_BATCH;
use crate::num::{Mtu, Psn, Qpn};
use crate::opcode::Transport;
use crate::wire::{self, Body, Bth, Deth, HeaderBytes};
use crate::wr::DatagramRequest;

/// The sending half of a queue pair for datagrams.
#[derive(Debug)]
pub struct Sender<P, A> {
    qpn: Qpn,
    signal_all: bool,
    phase: Phase,
    /// The request whose datagram was returned last. It counts as sent, unless a fault is reported.
    sent: Option<DatagramRequest<P, A>>,
    /// The request whose datagram was taken back: the next to send.
    unsent: Option<DatagramRequest<P, A>>,
}

/// A datagram to send.
#[derive(Debug)]
pub struct Datagram<'a, P, A> {
    /// The packet to send.
    pub transmit: Transmit<'a, P>,
    /// The destination.
    pub address: &'a A,
}

#[derive(Debug)]
enum Phase {
    Idle,
    Running(Sequence),
    /// SQE.
    Stopped(Sequence),
    Error,
}

#[derive(Clone, Copy, Debug)]
struct Sequence {
    config: DatagramConfig,
    /// The PSN of the next datagram.
    next: Psn,
    drained: bool,
}

impl<P, A> Sender<P, A> {
    /// Creates a sender in [`SendState::Idle`]. With `signal_all` every request is signalled,
    /// regardless of its flags.
    pub fn new(qpn: Qpn, signal_all: bool) -> Self {
        Self {
            qpn,
            signal_all,
            phase: Phase::Idle,
            sent: None,
            unsent: None,
        }
    }

    /// Moves from RTR to RTS: numbers datagrams from `sq_psn` on and takes work. Does nothing
    /// unless [idle](SendState::Idle).
    pub fn start(&mut self, config: DatagramConfig, sq_psn: Psn) {
        if matches!(self.phase, Phase::Idle) {
            self.phase = Phase::Running(Sequence {
                config,
                next: sq_psn,
                drained: false,
            });
        }
    }

    /// Moves to SQD: takes no more work, and raises
    /// [`SendQueueDrained`](crate::event::AsyncEvent::SendQueueDrained).
    // Rules: UDX-15
    pub fn drain<H: DatagramSendHost<Payload = P, Address = A>>(&mut self, host: &mut H) {
        self.confirm_sent(host);
        if let Phase::Running(sequence) = &mut self.phase {
            if !sequence.drained {
                sequence.drained = true;
                host.raise(AsyncEvent::SendQueueDrained);
            }
        }
    }

    /// Moves from SQD or SQE to RTS.
    // Rules: ERR-13
    pub fn resume(&mut self) {
        if let Phase::Running(sequence) | Phase::Stopped(sequence) = &self.phase {
            self.phase = Phase::Running(Sequence {
                drained: false,
                ..*sequence
            });
        }
    }

    /// Changes attributes.
    pub fn modify(&mut self, config: DatagramConfig) {
        if let Phase::Running(sequence) | Phase::Stopped(sequence) = &mut self.phase {
            sequence.config = config;
        }
    }

    /// Enters ERR from any state: all posted requests complete as [`Status::Flushed`], in order.
    pub fn enter_error<H: DatagramSendHost<Payload = P, Address = A>>(
        &mut self,
        host: &mut H,
    ) -> Flush {
        self.confirm_sent(host);
        self.phase = Phase::Error;
        self.flush_posted(host)
    }

    /// Completes the requests posted since, in ERR and SQE, as [`Status::Flushed`]. Does nothing in
    /// other states.
    pub fn flush_posted<H: DatagramSendHost<Payload = P, Address = A>>(
        &mut self,
        host: &mut H,
    ) -> Flush {
        if !matches!(self.phase, Phase::Error | Phase::Stopped(_)) {
            return Flush::Done;
        }
        if let Some(request) = self.unsent.take() {
            let completion = self.failure(request.wr_id, Status::Flushed);
            host.retire(Some(request.payload), Some(completion));
        }
        for _ in 0..FLUSH_BATCH {
            let (wr_id, payload) = match host.next_datagram() {
                None => return Flush::Done,
                Some(Ok(request)) => (request.wr_id, Some(request.payload)),
                Some(Err(bad)) => (bad.wr_id, None),
            };
            host.retire(payload, Some(self.failure(wr_id, Status::Flushed)));
        }
        Flush::More
    }

    /// Enters RESET from any state: drops its requests, without completions. The driver forgets the
    /// posted requests that were not taken.
    pub fn reset<H: DatagramSendHost<Payload = P, Address = A>>(&mut self, host: &mut H) {
        self.phase = Phase::Idle;
        for request in [self.sent.take(), self.unsent.take()].into_iter().flatten() {
            host.retire(Some(request.payload), None);
        }
    }

    /// Returns the state. The driver must check it after every call that takes a host. A sender
    /// whose request fails goes to [`Stopped`](SendState::Stopped). The driver then moves the queue
    /// pair to SQE.
    #[inline]
    pub fn state(&self) -> SendState {
        match &self.phase {
            Phase::Idle => SendState::Idle,
            Phase::Running(sequence) if sequence.drained => SendState::Drained,
            Phase::Running(_) => SendState::Running,
            Phase::Stopped(_) => SendState::Stopped,
            Phase::Error => SendState::Error,
        }
    }

    /// Returns the PSN of the next datagram, for `sq_psn` of a query; `None` if it has none.
    pub fn next_psn(&self) -> Option<Psn> {
        match &self.phase {
            Phase::Running(sequence) | Phase::Stopped(sequence) => Some(sequence.next),
            Phase::Idle | Phase::Error => None,
        }
    }

    /// Returns the next datagram to send, if there is one, with no more payload than `mtu`, the
    /// port's.
    ///
    /// The caller repeats the call until `None`, after a doorbell, and when it may send again. A
    /// datagram that was returned counts as sent.
    pub fn poll_transmit<H: DatagramSendHost<Payload = P, Address = A>>(
        &mut self,
        mtu: Mtu,
        host: &mut H,
    ) -> Option<Datagram<'_, P, A>> {
        self.confirm_sent(host);
        let Phase::Running(sequence) = &mut self.phase else {
            return None;
        };
        if sequence.drained {
            return None;
        }
        let next = match self.unsent.take() {
            Some(request) => Ok(request),
            None => host.next_datagram()?,
        };
        let request = match next {
            // Rules: UDX-2
            Ok(request) if request.length <= mtu.bytes() => request,
            Ok(request) => {
                self.fail(
                    request.wr_id,
                    Some(request.payload),
                    Status::LocalLength,
                    host,
                );
                return None;
            }
            Err(bad) => {
                self.fail(bad.wr_id, None, bad.status, host);
                return None;
            }
        };
        let psn = sequence.next;
        // Rules: PSN-17
        sequence.next = psn.next();
        let config = sequence.config;
        Some(datagram(self.qpn, &config, psn, self.sent.insert(request)))
    }

    /// Says that the datagram that [`poll_transmit`](Self::poll_transmit) returned last was not
    /// sent, as its source is [absent](crate::host::Fault::Absent) or it is not its turn: it is
    /// returned again.
    pub fn unsend(&mut self) {
        if let (Phase::Running(sequence), Some(request)) = (&mut self.phase, self.sent.take()) {
            sequence.next = sequence.next.prev();
            self.unsent = Some(request);
        }
    }

    /// Says that the source of the datagram that [`poll_transmit`](Self::poll_transmit) returned
    /// last cannot be read: it was not sent, and its request fails.
    pub fn payload_fault<H: DatagramSendHost<Payload = P, Address = A>>(&mut self, host: &mut H) {
        if let Some(request) = self.sent.take() {
            let payload = Some(request.payload);
            self.fail(request.wr_id, payload, Status::LocalProtection, host);
        }
    }

    /// Completes the datagram that was returned last.
    // Rules: UDX-10
    fn confirm_sent<H: DatagramSendHost<Payload = P, Address = A>>(&mut self, host: &mut H) {
        let Some(request) = self.sent.take() else {
            return;
        };
        host.observe(Event::MessageSent);
        let completion =
            Completion::sent(self.qpn, CompletionOp::Send, request.wr_id, request.length);
        let signaled = self.signal_all || request.flags.signaled;
        host.retire(Some(request.payload), signaled.then_some(completion));
    }

    /// Fails the oldest request and, with it, the send queue.
    // Rules: ERR-11
    fn fail<H: DatagramSendHost<Payload = P, Address = A>>(
        &mut self,
        wr_id: u64,
        payload: Option<P>,
        status: Status,
        host: &mut H,
    ) {
        host.retire(payload, Some(self.failure(wr_id, status)));
        if let Phase::Running(sequence) = &self.phase {
            self.phase = Phase::Stopped(*sequence);
        }
        // The driver flushes the rest as it moves the queue pair to SQE.
        let _ = self.flush_posted(host);
    }

    fn failure(&self, wr_id: u64, status: Status) -> Completion {
        Completion::failure(self.qpn, CompletionOp::Send, wr_id, status)
    }
}

/// Returns the packet of `request`.
// Rules: UDX-1
fn datagram<'a, P, A>(
    src_qp: Qpn,
    config: &DatagramConfig,
    psn: Psn,
    request: &'a DatagramRequest<P, A>,
) -> Datagram<'a, P, A> {
    let pad = (request.length.wrapping_neg() & 3) as u8;
    let bth = Bth {
        transport: Transport::Ud,
        // Rules: UDX-11
        solicited: request.flags.solicited,
        mig_req: false,
        pad,
        pkey: config.pkey,
        fecn: false,
        becn: false,
        dest_qp: request.dest.qpn,
        ack_req: false,
        psn,
    };
    // Rules: KEY-5
    let qkey = if request.dest.qkey.is_privileged() {
        config.qkey
    } else {
        request.dest.qkey
    };
    let body = Body::Datagram(wire::Datagram {
        // Rules: UDX-14
        deth: Deth { qkey, src_qp },
        imm: request.imm,
    });
    let source = match request.length {
        0 => Source::Empty,
        len => Source::Bytes {
            memory: &request.payload,
            at: 0,
            len,
        },
    };
    Datagram {
        transmit: Transmit {
            header: HeaderBytes::new(&bth, &body),
            source,
            pad,
            psn,
            psns: 1,
        },
        address: &request.address,
    }
}
