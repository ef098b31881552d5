// SPDX-License-Identifier: GPL-2.0

//! From datagrams to completions.

use core::mem;

use super::DatagramConfig;
use crate::completion::{Completion, CompletionOp, Status};
use crate::event::{AsyncEvent, Event};
use crate::half::RecvState;
use crate::host::{DatagramRecvHost, Fault, Flush, Handled, RecvHost, Span};
use crate::limits::{FLUSH_BATCH, GRH_BYTES};
use crate::num::{Mtu, Qpn};
use crate::wire::{Body, Datagram, Packet};
use crate::wr::RecvRequest;

/// The receiving half of a queue pair for datagrams.
#[derive(Debug)]
pub struct Receiver<P> {
    qpn: Qpn,
    phase: Phase,
    /// A receive that was too short for a datagram, or whose memory was not in reach. The next
    /// datagram takes it.
    kept: Option<RecvRequest<P>>,
    /// The owner was told that nothing more is taken from the shared receive queue.
    told_last: bool,
}

#[derive(Debug)]
enum Phase {
    Idle,
    Running(DatagramConfig),
    Error,
}

impl<P> Receiver<P> {
    /// Creates a receiver in [`RecvState::Idle`].
    pub fn new(qpn: Qpn) -> Self {
        Self {
            qpn,
            phase: Phase::Idle,
            kept: None,
            told_last: false,
        }
    }

    /// Moves from INIT to RTR: takes datagrams. Does nothing unless [idle](RecvState::Idle).
    pub fn start(&mut self, config: DatagramConfig) {
        if matches!(self.phase, Phase::Idle) {
            self.phase = Phase::Running(config);
        }
    }

    /// Changes attributes.
    pub fn modify(&mut self, new: DatagramConfig) {
        if let Phase::Running(config) = &mut self.phase {
            *config = new;
        }
    }

    /// Enters ERR from any state: all posted receives complete as [`Status::Flushed`], in order.
    ///
    /// With a shared receive queue nothing that is posted is flushed, and
    /// [`LastWqeReached`](crate::event::AsyncEvent::LastWqeReached) is raised, once.
    pub fn enter_error<H: RecvHost<Payload = P>>(&mut self, host: &mut H) -> Flush {
        self.phase = Phase::Error;
        if let Some(recv) = self.kept.take() {
            self.fail(recv.wr_id, Some(recv.payload), Status::Flushed, host);
        }
        if host.has_shared_queue() && !mem::replace(&mut self.told_last, true) {
            host.raise(AsyncEvent::LastWqeReached);
        }
        self.flush_posted(host)
    }

    /// Completes the receives posted since, in ERR, as [`Status::Flushed`]. Does nothing in other
    /// states.
    pub fn flush_posted<H: RecvHost<Payload = P>>(&mut self, host: &mut H) -> Flush {
        if !matches!(self.phase, Phase::Error) || host.has_shared_queue() {
            return Flush::Done;
        }
        for _ in 0..FLUSH_BATCH {
            let (wr_id, payload) = match host.take_recv() {
                None => return Flush::Done,
                Some(Ok(recv)) => (recv.wr_id, Some(recv.payload)),
                Some(Err(bad)) => (bad.wr_id, None),
            };
            self.fail(wr_id, payload, Status::Flushed, host);
        }
        Flush::More
    }

    /// Enters RESET from any state: discards the kept receive, without a completion. The driver
    /// forgets the posted receives that were not taken.
    pub fn reset<H: RecvHost<Payload = P>>(&mut self, host: &mut H) {
        self.phase = Phase::Idle;
        self.told_last = false;
        if let Some(recv) = self.kept.take() {
            host.discard(recv.payload);
        }
    }

    /// Returns the state. The driver must check it after every call that takes a host. A receiver
    /// whose receive fails goes to [`Error`](RecvState::Error). The driver then moves the queue
    /// pair and both its halves to ERR.
    #[inline]
    pub fn state(&self) -> RecvState {
        match &self.phase {
            Phase::Idle => RecvState::Idle,
            Phase::Running(_) => RecvState::Running,
            Phase::Error => RecvState::Error,
        }
    }

    /// Handles a datagram. The packet passed [`qp::check`](crate::qp::check).
    // Rules: UDX-9
    pub fn handle_datagram<H: DatagramRecvHost<Payload = P>>(
        &mut self,
        packet: &Packet,
        host: &mut H,
    ) -> Handled {
        let Body::Datagram(datagram) = &packet.body else {
            return Handled::Done;
        };
        let Phase::Running(config) = &self.phase else {
            host.observe(Event::BadState);
            return Handled::Done;
        };
        // Rules: KEY-4
        if datagram.deth.qkey != config.qkey {
            host.observe(Event::BadQkey);
            return Handled::Done;
        }
        let recv = match self.kept.take().map(Ok).or_else(|| host.take_recv()) {
            None => {
                // Rules: UDX-7
                host.observe(Event::NoReceive);
                return Handled::Done;
            }
            Some(Ok(recv)) => recv,
            Some(Err(bad)) => {
                self.fail(bad.wr_id, None, bad.status, host);
                let _ = self.enter_error(host);
                return Handled::Done;
            }
        };
        // A sender of oversized datagrams must not be able to consume receives.
        let byte_len = packet.payload_len.saturating_add(GRH_BYTES);
        // Rules: UDX-8
        if byte_len > recv.length || packet.payload_len > Mtu::B4096.bytes() {
            host.observe(Event::MessageDropped);
            self.kept = Some(recv);
            return Handled::Done;
        }
        match place(&recv, packet.payload_len, host) {
            Ok(()) => {}
            Err(Fault::Absent) => {
                self.kept = Some(recv);
                return Handled::PutOff;
            }
            // Rules: ERR-19
            Err(Fault::Gone) => {
                let payload = Some(recv.payload);
                self.fail(recv.wr_id, payload, Status::LocalProtection, host);
                let _ = self.enter_error(host);
                return Handled::Done;
            }
        }
        host.observe(Event::MessageReceived);
        let completion = self.completion(recv.wr_id, byte_len, packet, datagram);
        host.complete(Some(recv.payload), completion);
        Handled::Done
    }

    // Rules: UDX-5, UDX-6, UDX-11
    fn completion(
        &self,
        wr_id: u64,
        byte_len: u32,
        packet: &Packet,
        datagram: &Datagram,
    ) -> Completion {
        Completion {
            wr_id,
            status: Status::Success,
            op: CompletionOp::Recv,
            byte_len,
            imm: datagram.imm,
            invalidated: None,
            qpn: self.qpn,
            src_qp: datagram.deth.src_qp,
            grh: true,
            solicited: packet.bth.solicited,
        }
    }

    fn fail<H: RecvHost<Payload = P>>(
        &self,
        wr_id: u64,
        payload: Option<P>,
        status: Status,
        host: &mut H,
    ) {
        let completion = Completion::failure(self.qpn, CompletionOp::Recv, wr_id, status);
        host.complete(payload, completion);
    }
}

/// Copies the IP header and the payload of a datagram to a receive that has room for both.
fn place<H: DatagramRecvHost>(
    recv: &RecvRequest<H::Payload>,
    payload_len: u32,
    host: &mut H,
) -> Result<(), Fault> {
    host.scatter_grh(&recv.payload)?;
    if payload_len == 0 {
        return Ok(());
    }
    let span = Span {
        offset: 0,
        len: payload_len,
    };
    host.scatter(&recv.payload, GRH_BYTES, span)
}
