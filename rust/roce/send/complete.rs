// SPDX-License-Identifier: GPL-2.0

//! The completer: from responses to completions.

use core::ops::DerefMut;

use super::window::{Entry, Slot};
use super::{Failure, Parts, Requester, Running, Sequence, Timer};
use crate::completion::Status;
use crate::congestion::{Control, Path};
use crate::event::Event;
use crate::host::{Fault, Handled, SendHost, Span};
use crate::num::Psn;
use crate::time::{Instant, Micros};
use crate::wire::{Aeth, AtomicAckEth, Body, NakCode, Packet, Response, Syndrome};
use crate::wr::SendOp;

/// How far an acknowledgement came.
enum Advance {
    /// All the way.
    Done,
    /// To a request that its own answer completes, and which is not complete, with `count` PSNs to
    /// go where the request has `left`.
    Unanswered { count: u32, left: u32 },
}

/// A packet of the response to a READ.
struct ReadPacket {
    psn: Psn,
    psns: u32,
    payload_len: u32,
    /// First or Only.
    starts: bool,
    /// Last or Only.
    ends: bool,
}

impl<P, S: DerefMut<Target = [Slot<P>]>> Requester<P, S> {
    /// Handles a response. The packet passed [`qp::check`](crate::qp::check).
    ///
    /// [`poll_transmit`](Self::poll_transmit) may have more after it.
    pub fn handle_response<H: SendHost<Payload = P>>(
        &mut self,
        now: Instant,
        packet: &Packet,
        host: &mut H,
    ) -> Handled {
        self.handle(now, packet, false, host)
    }

    /// Handles a response that the host has kept as it was [early](Handled::Early), after a packet before
    /// it is done. It is done as well, or still early.
    pub fn handle_kept<H: SendHost<Payload = P>>(
        &mut self,
        now: Instant,
        packet: &Packet,
        host: &mut H,
    ) -> Handled {
        self.handle(now, packet, true, host)
    }

    fn handle<H: SendHost<Payload = P>>(
        &mut self,
        now: Instant,
        packet: &Packet,
        is_kept: bool,
        host: &mut H,
    ) -> Handled {
        // Rules: VAL-10
        let Body::Response(response) = &packet.body else {
            return Handled::Done;
        };
        let Some(running) = self.running() else {
            host.observe(Event::BadState);
            return Handled::Done;
        };
        let mut running = Running { is_kept, ..running };
        match running.handle_response(now, packet, response, host) {
            Ok(handled) => handled,
            Err(failure) => {
                self.settle(Err(failure), host);
                Handled::Done
            }
        }
    }
}

impl<P, S: DerefMut<Target = [Slot<P>]>> Running<'_, P, S> {
    fn handle_response<H: SendHost<Payload = P>>(
        &mut self,
        now: Instant,
        packet: &Packet,
        response: &Response,
        host: &mut H,
    ) -> Result<Handled, Failure> {
        let psn = packet.bth.psn;
        if psn.distance_from(self.sequence.unacked) >= self.sequence.outstanding() {
            // Rules: ACK-9, ACK-10, DUP-17, NAK-20, PSN-13
            // The response is for a complete request, or for a PSN that was never sent.
            if self.is_kept {
                return Ok(Handled::Done);
            }
            host.observe(Event::StaleResponse);
            if is_acknowledgement(response) {
                self.handle_repeated(now, psn);
            }
            return Ok(Handled::Done);
        }
        let read = |starts, ends| ReadPacket {
            psn,
            psns: packet.psns,
            payload_len: packet.payload_len,
            starts,
            ends,
        };
        let handled = match response {
            Response::Acknowledge(aeth) => self.handle_acknowledge(now, psn, aeth, host),
            // Rules: RDA-21
            Response::ReadFirst(aeth) | Response::ReadLast(aeth) | Response::ReadOnly(aeth)
                if !matches!(aeth.syndrome, Syndrome::Ack { .. }) =>
            {
                self.fail_at(now, psn, Status::BadResponse, host)
            }
            Response::ReadFirst(_) => self.handle_read_response(now, &read(true, false), host),
            Response::ReadMiddle => self.handle_read_response(now, &read(false, false), host),
            Response::ReadLast(_) => self.handle_read_response(now, &read(false, true), host),
            Response::ReadOnly(_) => self.handle_read_response(now, &read(true, true), host),
            Response::AtomicAcknowledge(aeth, atomic) => {
                self.handle_atomic_response(now, psn, aeth, atomic, host)
            }
        }?;
        self.follow_up(host)?;
        self.ask_for_rest(now, host)?;
        Ok(handled)
    }

    // Rules: ACK-16
    fn handle_acknowledge<H: SendHost<Payload = P>>(
        &mut self,
        now: Instant,
        psn: Psn,
        aeth: &Aeth,
        host: &mut H,
    ) -> Result<Handled, Failure> {
        match aeth.syndrome {
            // Rules: CRD-2
            Syndrome::Ack { .. } => match self.advance(now, psn.next(), host) {
                Advance::Unanswered { count, left } if count > left => {
                    return self.handle_early(now, psn, psn.next(), host);
                }
                // Within a READ it says nothing about the READ: data complete that.
                Advance::Unanswered { .. } => {}
                Advance::Done => self.check_repair(now, host)?,
            },
            // Rules: RNR-7
            Syndrome::RnrNak(timer) => match self.advance(now, psn, host) {
                Advance::Done => self.wait_for_receiver(now, timer, host)?,
                Advance::Unanswered { .. } => return self.handle_early(now, psn, psn, host),
            },
            // Rules: NAK-5
            Syndrome::Nak(NakCode::SequenceError) => {
                if !self.is_kept {
                    host.observe(Event::SequenceNakReceived);
                }
                match self.advance(now, psn, host) {
                    Advance::Done => self.repair(now, host)?,
                    Advance::Unanswered { .. } => return self.handle_early(now, psn, psn, host),
                }
            }
            Syndrome::Nak(NakCode::InvalidRequest) => {
                return self.fail_at(now, psn, Status::RemoteInvalidRequest, host);
            }
            Syndrome::Nak(NakCode::RemoteAccess) => {
                return self.fail_at(now, psn, Status::RemoteAccess, host);
            }
            Syndrome::Nak(NakCode::RemoteOperation) => {
                return self.fail_at(now, psn, Status::RemoteOperation, host);
            }
        }
        Ok(Handled::Done)
    }

    // Rules: ACK-4
    fn handle_read_response<H: SendHost<Payload = P>>(
        &mut self,
        now: Instant,
        read: &ReadPacket,
        host: &mut H,
    ) -> Result<Handled, Failure> {
        let stop = read.psn.add(read.psns);
        let mtu = self.sequence.config.mtu;
        let most = mtu.bytes().saturating_mul(read.psns);
        if let Advance::Unanswered { .. } = self.advance(now, read.psn, host) {
            return match read.payload_len <= most {
                true => self.handle_early(now, read.psn, stop, host),
                // It is not worth to be kept.
                false => Ok(Handled::Done),
            };
        }
        let entry = match self.window.good(0) {
            Some(entry) => entry,
            None => return Err(Failure(Status::BadResponse)),
        };
        // Rules: RDA-20
        let Some(length) = entry.response_length() else {
            return Err(Failure(Status::BadResponse));
        };
        let at = read
            .psn
            .distance_from(entry.first)
            .wrapping_mul(mtu.bytes());
        let left = length.saturating_sub(at);
        // Rules: RDA-19, RDA-22
        // A response may start in the middle, as the response to a request for missing parts, and
        // end where that request ends.
        let is_last = left <= most;
        let may_end = is_last || self.sequence.parts != Parts::None;
        let in_place =
            (read.starts || at > 0) && (read.ends || !is_last) && (may_end || !read.ends);
        // Rules: RDA-18
        let in_size =
            read.payload_len == left.min(most) && read.psns == mtu.packets(read.payload_len);
        if !in_size || !in_place {
            return Err(Failure(Status::BadResponse));
        }
        if read.payload_len > 0 {
            let span = Span {
                offset: 0,
                len: read.payload_len,
            };
            match host.scatter(&entry.payload, at, span) {
                Ok(()) => {}
                Err(Fault::Absent) => return Ok(Handled::PutOff),
                // Rules: RDA-23
                Err(Fault::Gone) => return Err(Failure(Status::LocalProtection)),
            }
        }
        if is_last {
            // Rules: ORD-10
            self.retire_answered(host);
        }
        self.acknowledged_up_to(now, stop);
        if read.ends {
            self.check_responses(now, is_last);
        }
        Ok(Handled::Done)
    }

    // Rules: ACK-4
    fn handle_atomic_response<H: SendHost<Payload = P>>(
        &mut self,
        now: Instant,
        psn: Psn,
        aeth: &Aeth,
        atomic: &AtomicAckEth,
        host: &mut H,
    ) -> Result<Handled, Failure> {
        if let Advance::Unanswered { .. } = self.advance(now, psn, host) {
            return self.handle_early(now, psn, psn.next(), host);
        }
        // Rules: RDA-21
        let accepted = matches!(aeth.syndrome, Syndrome::Ack { .. });
        let entry = match self.window.good(0) {
            // Rules: RDA-20
            Some(entry) if accepted && matches!(entry.op, SendOp::Atomic { .. }) => entry,
            _ => return Err(Failure(Status::BadResponse)),
        };
        match host.put_original(&entry.payload, atomic.original) {
            Ok(()) => {}
            Err(Fault::Absent) => return Ok(Handled::PutOff),
            // Rules: RDA-23
            Err(Fault::Gone) => return Err(Failure(Status::LocalProtection)),
        }
        // Rules: ORD-10
        self.retire_answered(host);
        self.acknowledged_up_to(now, psn.next());
        Ok(Handled::Done)
    }

    /// Completes the requests before `psn` and fails the request of `psn`.
    // Rules: NAK-16
    fn fail_at<H: SendHost<Payload = P>>(
        &mut self,
        now: Instant,
        psn: Psn,
        status: Status,
        host: &mut H,
    ) -> Result<Handled, Failure> {
        match self.advance(now, psn, host) {
            // Rules: NAK-18, NAK-19
            // The READ that fails itself need not have all its responses before.
            Advance::Unanswered { count, left } if count >= left => {
                self.handle_early(now, psn, psn, host)
            }
            Advance::Unanswered { .. } | Advance::Done => Err(Failure(status)),
        }
    }

    /// Completes all sent packets of an unreliable connection.
    // Rules: CPL-22
    pub(super) fn confirm_sent<H: SendHost<Payload = P>>(
        &mut self,
        now: Instant,
        host: &mut H,
    ) -> Result<(), Failure> {
        if self.sequence.is_acknowledged() || self.sequence.unacked == self.sequence.next {
            return Ok(());
        }
        self.advance(now, self.sequence.next, host);
        self.follow_up(host)
    }

    /// Completes all requests before `to`, up to one that needs its own response. `to` is
    /// outstanding, or the PSN after an outstanding one.
    // Rules: ACK-3
    fn advance<H: SendHost<Payload = P>>(
        &mut self,
        now: Instant,
        to: Psn,
        host: &mut H,
    ) -> Advance {
        let from = self.sequence.unacked;
        let mut at = from;
        let mut result = Advance::Done;
        while at != to {
            // Outstanding PSNs belong to requests in the window.
            let Some(entry) = self.window.good(0) else {
                break;
            };
            let count = to.distance_from(at);
            let left = entry.end().distance_from(at);
            // Rules: ACK-5
            if entry.is_answered() {
                result = Advance::Unanswered { count, left };
                break;
            }
            // Rules: ACK-11, CPL-6
            if count < left {
                at = to;
                break;
            }
            at = entry.end();
            self.retire_head(host);
        }
        if at != from {
            self.acknowledged_up_to(now, at);
        }
        result
    }

    /// Moves the lower edge of the window up to `psn`: there is progress.
    fn acknowledged_up_to(&mut self, now: Instant, psn: Psn) {
        self.sequence.acknowledged_up_to(now, psn);
        self.end_repair();
    }

    /// Completes the oldest request, which was answered.
    // Rules: CPL-7
    fn retire_answered<H: SendHost<Payload = P>>(&mut self, host: &mut H) {
        self.sequence.unanswered = self.sequence.unanswered.saturating_sub(1);
        self.retire_head(host);
    }

    /// Completes the oldest request, successfully, and those behind it that are done already.
    // Rules: ORD-2
    pub(super) fn retire_head<H: SendHost<Payload = P>>(&mut self, host: &mut H) {
        self.retire_one(host);
        while let Some(Entry::Done(_)) = self.window.get(0) {
            self.retire_one(host);
        }
    }

    fn retire_one<H: SendHost<Payload = P>>(&mut self, host: &mut H) {
        match self.window.pop() {
            Some(Entry::Good(entry)) => {
                self.sequence.cursor = self.sequence.cursor.saturating_sub(1);
                host.observe(Event::MessageSent);
                self.identity.succeed(entry, host);
            }
            Some(Entry::Done(entry)) => {
                // The cursor is on it or behind it, unless it went back to the oldest.
                self.sequence.cursor = self.sequence.cursor.saturating_sub(1);
                self.identity.succeed(entry, host);
            }
            // The cursor is on it: it is executed when it is the oldest.
            Some(Entry::Local(entry)) => self.identity.succeed(entry, host),
            Some(Entry::Bad(..)) | None => {}
        }
    }
}

fn is_acknowledgement(response: &Response) -> bool {
    match response {
        Response::Acknowledge(aeth) => matches!(aeth.syndrome, Syndrome::Ack { .. }),
        _ => false,
    }
}

impl Sequence {
    /// Moves the lower edge of the window up to `psn`: there is progress.
    fn acknowledged_up_to(&mut self, now: Instant, psn: Psn) {
        if self.next.distance_from(self.unacked) < psn.distance_from(self.unacked) {
            // Rules: RTY-13
            // It was to be sent again, but the peer has acknowledged it. `cursor` is at the oldest
            // request already.
            self.next = psn;
        }
        let sample_ns = self.round_trip.acknowledged(psn, now);
        let path = Path {
            sample_ns,
            ..self.path(now)
        };
        self.pace
            .acknowledged(psn.distance_from(self.unacked), &path);
        self.moved_at = Micros::of(now);
        self.unacked = psn;
        if self.parts == Parts::Unheard {
            self.parts = Parts::Asked;
        }
        // Or after half of all PSNs it would seem to be ahead.
        if self.asked_again_to.is_before(psn) {
            self.asked_again_to = psn;
        }
        self.gaps.passed(psn);
        self.learn(now);
        self.recovering = false;
        // Rules: RTY-10
        self.retries_left = self.config.retry_cnt.get();
        // Rules: RNR-13
        self.rnr_retries_left = self.config.rnr_retry.get();
        self.timeouts = 0;
        self.probes = 0;
        // Rules: RTY-6
        if self.outstanding() == 0 {
            self.timer = Timer::Off;
            self.may_lack_all = false;
        } else {
            if self.may_lack_all {
                self.may_lack_all = psn.is_before(self.may_lack_to);
            }
            // Rules: RNR-16
            self.arm_ack_timer(now);
        }
    }
}
