// SPDX-License-Identifier: GPL-2.0

//! Carrying out requests, in the order of their PSNs.

use core::mem;
use core::ops::DerefMut;

use super::replay::{Kept, Replay};
use super::{failure, Message, Owed, Refusal, Running, Sequence};
use crate::completion::{Completion, CompletionOp, Status};
use crate::event::Event;
use crate::host::{Access, Extent, Fault, FlushError, RecvHost, Span};
use crate::limits::{MAX_MESSAGE_BYTES, PSN_HALF};
use crate::num::{Imm, Iova, Mtu, Psn, Qpn};
use crate::opcode::Position;
use crate::wire::{AtomicEth, Feth, NakCode, Packet, Request, Reth, SendEnd};
use crate::wr::{AtomicOp, RecvRequest, ATOMIC_BYTES};

/// A receive that the immediate data of a WRITE took.
struct ImmRecv<P> {
    recv: RecvRequest<P>,
    imm: Imm,
}

impl<P, G, S: DerefMut<Target = [Replay<G>]>> Running<'_, P, G, S> {
    /// Executes the expected request. Otherwise, changes nothing except for the effects that a
    /// refusal has to undo.
    // Rules: VAL-16
    pub(super) fn execute<H: RecvHost<Payload = P, Grant = G>>(
        &mut self,
        packet: &Packet,
        request: &Request,
        host: &mut H,
    ) -> Result<(), Refusal> {
        match *request {
            Request::SendFirst => self.send(packet, Position::First, SendEnd::Plain, host),
            Request::SendMiddle => self.send(packet, Position::Middle, SendEnd::Plain, host),
            Request::SendLast(end) => self.send(packet, Position::Last, end, host),
            Request::SendOnly(end) => self.send(packet, Position::Only, end, host),
            Request::WriteFirst(reth) => self.write_first(packet, &reth, host),
            Request::WriteMiddle => self.write_next(packet, Position::Middle, None, host),
            Request::WriteLast(imm) => self.write_next(packet, Position::Last, imm, host),
            Request::WriteOnly(reth, imm) => self.write_only(packet, &reth, imm, host),
            Request::Read(reth) => self.read(packet, &reth, host),
            // Rules: RDA-12
            Request::CompareSwap(eth) => {
                let (compare, swap) = (eth.compare, eth.swap_add);
                let op = AtomicOp::CompareSwap { compare, swap };
                self.atomic(packet, request, &eth, op, host)
            }
            // Rules: RDA-13
            Request::FetchAdd(eth) => {
                let op = AtomicOp::FetchAdd { add: eth.swap_add };
                self.atomic(packet, request, &eth, op, host)
            }
            Request::AtomicWrite(reth) => self.atomic_write(packet, request, &reth, host),
            Request::Flush(feth, reth) => self.flush(packet, request, feth, &reth, host),
        }
    }

    fn send<H: RecvHost<Payload = P, Grant = G>>(
        &mut self,
        packet: &Packet,
        position: Position,
        end: SendEnd,
        host: &mut H,
    ) -> Result<(), Refusal> {
        check_length(position, packet, self.sequence.config.mtu)?;
        if position.starts() {
            self.sequence.between_messages()?;
            // Rules: ORD-3, RSP-18
            let recv = take_recv(&mut self.sequence.kept, self.qpn, host)?;
            self.sequence.message = Message::Send { recv, received: 0 };
        }
        // Rules: RSP-2
        let Message::Send { recv, received } = &mut self.sequence.message else {
            return Err(Refusal::INVALID);
        };
        let total = received.saturating_add(packet.payload_len);
        // Rules: RSP-11, RSP-12
        if total > recv.length {
            return Err(Refusal::Fatal {
                code: NakCode::InvalidRequest,
                recv: Status::LocalLength,
            });
        }
        // Rules: RSP-10
        if total > MAX_MESSAGE_BYTES {
            return Err(Refusal::INVALID);
        }
        if let Some(span) = whole(packet) {
            if let Err(fault) = host.scatter(&recv.payload, *received, span) {
                if position.starts() && fault == Fault::Absent {
                    self.sequence.keep_recv();
                }
                return Err(Refusal::of(fault, Status::LocalProtection));
            }
        }
        // Rules: INV-1, INV-2
        if let SendEnd::Invalidate(rkey) = end {
            // Rules: INV-3
            host.invalidate(rkey).map_err(|_| Refusal::Fatal {
                code: NakCode::RemoteAccess,
                recv: Status::RemoteInvalidRequest,
            })?;
        }
        *received = total;
        // Rules: CPL-8
        self.sequence.executed(packet, position.ends(), host);
        if position.ends() {
            if let Message::Send { recv, .. } =
                mem::replace(&mut self.sequence.message, Message::None)
            {
                // Rules: ORD-9
                self.complete(recv, CompletionOp::Recv, total, end, packet, host);
            }
        }
        Ok(())
    }

    fn write_first<H: RecvHost<Payload = P, Grant = G>>(
        &mut self,
        packet: &Packet,
        reth: &Reth,
        host: &mut H,
    ) -> Result<(), Refusal> {
        check_length(Position::First, packet, self.sequence.config.mtu)?;
        self.sequence.between_messages()?;
        self.sequence.may_write()?;
        // Rules: RSP-9
        if reth.length <= packet.payload_len || reth.length > MAX_MESSAGE_BYTES {
            return Err(Refusal::INVALID);
        }
        // Rules: RSP-13
        let grant = authorize(reth, Access::Write, host)?;
        place(&grant, 0, packet, host)?;
        self.sequence.message = Message::Write {
            grant,
            length: reth.length,
            received: packet.payload_len,
        };
        self.sequence.executed(packet, false, host);
        Ok(())
    }

    fn write_next<H: RecvHost<Payload = P, Grant = G>>(
        &mut self,
        packet: &Packet,
        position: Position,
        imm: Option<Imm>,
        host: &mut H,
    ) -> Result<(), Refusal> {
        check_length(position, packet, self.sequence.config.mtu)?;
        // Rules: RSP-3
        let Message::Write {
            grant,
            length,
            received,
        } = &mut self.sequence.message
        else {
            return Err(Refusal::INVALID);
        };
        // The grant covers exactly the bytes that the first packet announced.
        let length = *length;
        let total = received.saturating_add(packet.payload_len);
        // Rules: RSP-8
        let fits = if position.ends() {
            total == length
        } else {
            total < length
        };
        if !fits {
            return Err(Refusal::INVALID);
        }
        // Rules: RNR-3
        let recv = take_recv_for(imm, &mut self.sequence.kept, self.qpn, host)?;
        let placed = place(grant, *received, packet, host);
        if placed == Err(Refusal::PutOff) {
            return self.put_off(recv);
        }
        *received = total;
        if position.ends() {
            self.sequence.message = Message::None;
        }
        self.finish_write(packet, placed, position.ends(), length, recv, host)
    }

    fn write_only<H: RecvHost<Payload = P, Grant = G>>(
        &mut self,
        packet: &Packet,
        reth: &Reth,
        imm: Option<Imm>,
        host: &mut H,
    ) -> Result<(), Refusal> {
        check_length(Position::Only, packet, self.sequence.config.mtu)?;
        self.sequence.between_messages()?;
        // Rules: RSP-16
        self.sequence.may_write()?;
        // Rules: RSP-8
        if reth.length != packet.payload_len {
            return Err(Refusal::INVALID);
        }
        let grant = match reth.length {
            // Rules: RSP-14
            0 => None,
            // Rules: MEM-12
            _ => Some(authorize(reth, Access::Write, host)?),
        };
        // Rules: RNR-3
        let recv = take_recv_for(imm, &mut self.sequence.kept, self.qpn, host)?;
        let placed = match grant {
            Some(grant) => place(&grant, 0, packet, host),
            None => Ok(()),
        };
        if placed == Err(Refusal::PutOff) {
            return self.put_off(recv);
        }
        self.finish_write(packet, placed, true, reth.length, recv, host)
    }

    /// Puts off a packet of a WRITE. Keeps the receive that was taken for its immediate data.
    fn put_off(&mut self, recv: Option<ImmRecv<P>>) -> Result<(), Refusal> {
        if let Some(ImmRecv { recv, .. }) = recv {
            self.sequence.kept = Some(recv);
        }
        Err(Refusal::PutOff)
    }

    /// Accounts for a packet of a WRITE, and completes the receive that its immediate data took.
    // Rules: RSP-20
    fn finish_write<H: RecvHost<Payload = P, Grant = G>>(
        &mut self,
        packet: &Packet,
        placed: Result<(), Refusal>,
        ends: bool,
        length: u32,
        recv: Option<ImmRecv<P>>,
        host: &mut H,
    ) -> Result<(), Refusal> {
        match (placed, recv) {
            (Ok(()), None) => self.sequence.executed(packet, ends, host),
            (Ok(()), Some(ImmRecv { recv, imm })) => {
                self.sequence.executed(packet, ends, host);
                // Rules: CPL-10
                let op = CompletionOp::RecvRdmaWithImm;
                self.complete(recv, op, length, SendEnd::Imm(imm), packet, host);
            }
            (Err(refusal), None) => return Err(refusal),
            (Err(_), Some(ImmRecv { recv, .. })) => {
                let completion = failure(self.qpn, recv.wr_id, Status::LocalAccess);
                host.complete(Some(recv.payload), completion);
                return Err(Refusal::FatalTold {
                    code: NakCode::RemoteOperation,
                });
            }
        }
        Ok(())
    }

    fn read<H: RecvHost<Payload = P, Grant = G>>(
        &mut self,
        packet: &Packet,
        reth: &Reth,
        host: &mut H,
    ) -> Result<(), Refusal> {
        self.sequence.between_messages()?;
        // Rules: RDA-7, RSP-15
        let allowed =
            self.sequence.config.access.read && self.sequence.config.max_dest_rd_atomic > 0;
        // Rules: RSP-9
        if !allowed || reth.length > MAX_MESSAGE_BYTES || !self.replays.make_room() {
            return Err(Refusal::INVALID);
        }
        let grant = authorize_read(reth, host)?;
        let (msn, mtu) = (self.sequence.msn.next(), self.sequence.config.mtu);
        self.keep(Kept::read(packet.bth.psn, reth, msn, grant, mtu), host);
        Ok(())
    }

    fn atomic<H: RecvHost<Payload = P, Grant = G>>(
        &mut self,
        packet: &Packet,
        request: &Request,
        eth: &AtomicEth,
        op: AtomicOp,
        // Rules: RDA-14
        host: &mut H,
    ) -> Result<(), Refusal> {
        self.sequence.between_messages()?;
        // Rules: RDA-7, RSP-15
        let allowed =
            self.sequence.config.access.atomic && self.sequence.config.max_dest_rd_atomic > 0;
        if !allowed || !is_aligned(eth.iova) || !self.replays.make_room() {
            return Err(Refusal::INVALID);
        }
        let memory = Reth {
            iova: eth.iova,
            rkey: eth.rkey,
            length: ATOMIC_BYTES,
        };
        // Rules: RDA-15
        let grant = authorize(&memory, Access::Atomic, host)?;
        let original = host
            .atomic(&grant, op)
            .map_err(|fault| Refusal::of(fault, Status::LocalAccess))?;
        self.keep_done(packet, request, original, host);
        Ok(())
    }

    fn atomic_write<H: RecvHost<Payload = P, Grant = G>>(
        &mut self,
        packet: &Packet,
        request: &Request,
        reth: &Reth,
        host: &mut H,
    ) -> Result<(), Refusal> {
        self.sequence.between_messages()?;
        // Rules: MPE-4
        self.sequence.may_write()?;
        // Rules: MPE-1
        let span = whole(packet).filter(|span| span.len == ATOMIC_BYTES);
        // Rules: MPE-2
        let Some(span) = span.filter(|span| span.len == reth.length && is_aligned(reth.iova))
        else {
            return Err(Refusal::INVALID);
        };
        if self.sequence.config.max_dest_rd_atomic == 0 || !self.replays.make_room() {
            return Err(Refusal::INVALID);
        }
        let grant = authorize(reth, Access::Write, host)?;
        // Rules: MPE-3
        host.place_atomically(&grant, span)
            .map_err(|fault| Refusal::of(fault, Status::LocalAccess))?;
        self.keep_done(packet, request, 0, host);
        Ok(())
    }

    /// Executes a FLUSH. FLUSHes need not keep to a depth other than 0: `rdma_rxe` may have any
    /// number outstanding.
    fn flush<H: RecvHost<Payload = P, Grant = G>>(
        &mut self,
        packet: &Packet,
        request: &Request,
        feth: Feth,
        reth: &Reth,
        host: &mut H,
    ) -> Result<(), Refusal> {
        self.sequence.between_messages()?;
        let flush = feth.flush().ok_or(Refusal::INVALID)?;
        let (wanted, allowed) = (flush.placement, self.sequence.config.access.flush);
        // Rules: MPE-10
        if (wanted.global && !allowed.global)
            || (wanted.persistent && !allowed.persistent)
            || self.sequence.config.max_dest_rd_atomic == 0
        {
            return Err(Refusal::INVALID);
        }
        if !self.replays.make_room() {
            // Rules: MPE-14
            return Err(Refusal::NoRoom);
        }
        let extent = if flush.whole_region {
            // Rules: MPE-12
            Extent::Region
        } else {
            Extent::Range {
                iova: reth.iova,
                len: reth.length,
            }
        };
        // Rules: MPE-11, MPE-13
        host.flush(reth.rkey, extent, wanted)
            .map_err(|error| match error {
                FlushError::Refused => Refusal::ACCESS,
                // Rules: MPE-17
                FlushError::Memory(fault) => Refusal::of(fault, Status::LocalAccess),
            })?;
        self.keep_done(packet, request, 0, host);
        Ok(())
    }

    /// Accounts for an executed operation, and owes its response.
    fn keep_done<H: RecvHost<Payload = P, Grant = G>>(
        &mut self,
        packet: &Packet,
        request: &Request,
        original: u64,
        host: &mut H,
    ) {
        let (msn, mtu) = (self.sequence.msn.next(), self.sequence.config.mtu);
        let kept = Kept::done(packet.bth.psn, request, msn, original, mtu);
        self.keep(kept, host);
    }

    /// Accounts for a READ or an operation that is answered like one, and owes its response.
    // Rules: RDA-24
    fn keep<H: RecvHost<Payload = P, Grant = G>>(&mut self, kept: Kept<G>, host: &mut H) {
        // Rules: ACK-13
        self.sequence.msn = self.sequence.msn.next();
        self.sequence.expect_behind(kept.end());
        self.sequence.unacknowledged = false;
        self.replays.push(kept);
        // Rules: ACK-4
        // Its response acknowledges all earlier requests.
        if self.sequence.owed == Owed::Acknowledgement {
            self.sequence.owed = Owed::Nothing;
            host.observe(Event::AckCoalesced);
        }
        host.observe(Event::MessageReceived);
    }

    /// Completes a receive, successfully.
    // Rules: CPL-9
    fn complete<H: RecvHost<Payload = P, Grant = G>>(
        &self,
        recv: RecvRequest<P>,
        op: CompletionOp,
        byte_len: u32,
        end: SendEnd,
        packet: &Packet,
        host: &mut H,
    ) {
        // Rules: CPL-11
        let (imm, invalidated) = match end {
            SendEnd::Plain => (None, None),
            SendEnd::Imm(imm) => (Some(imm), None),
            SendEnd::Invalidate(rkey) => (None, Some(rkey)),
        };
        let completion = Completion {
            wr_id: recv.wr_id,
            status: Status::Success,
            op,
            byte_len,
            imm,
            invalidated,
            // Rules: CPL-12
            qpn: self.qpn,
            src_qp: self.sequence.config.dest_qp,
            grh: false,
            // Rules: CPL-15
            solicited: packet.bth.solicited,
        };
        host.complete(Some(recv.payload), completion);
    }
}

impl<P, G> Sequence<P, G> {
    /// Checks that a packet that starts a message does not come within another.
    // Rules: RSP-1, RSP-4
    fn between_messages(&self) -> Result<(), Refusal> {
        match self.message {
            Message::None => Ok(()),
            Message::Send { .. } | Message::Write { .. } => Err(Refusal::INVALID),
        }
    }

    /// Leaves the SEND that was begun. The next message begins it again, with the same receive.
    pub(super) fn keep_recv(&mut self) {
        if let Message::Send { recv, .. } = mem::replace(&mut self.message, Message::None) {
            self.kept = Some(recv);
        }
    }

    // Rules: MEM-5, RSP-15
    fn may_write(&self) -> Result<(), Refusal> {
        if self.config.access.write {
            Ok(())
        } else {
            Err(Refusal::INVALID)
        }
    }

    /// Expects the packet `end` behind a READ or atomic. A request that is further back than half of all
    /// PSNs is not outstanding any more.
    // Rules: ACK-24
    fn expect_behind(&mut self, end: Psn) {
        let back = self.expected.distance_from(self.acknowledge);
        let taken = end.distance_from(self.expected);
        self.is_out_of_date |= back.saturating_add(taken) > PSN_HALF;
        self.expected = end;
    }

    /// Accounts for a packet of an executed SEND or WRITE.
    // Rules: PSN-4
    fn executed<H: RecvHost>(&mut self, packet: &Packet, ends: bool, host: &mut H) {
        self.expected = self.expected.add(packet.psns);
        self.acknowledge = self.expected.prev();
        self.is_out_of_date = false;
        if ends {
            // Rules: ACK-12
            self.msn = self.msn.next();
            host.observe(Event::MessageReceived);
        }
        // Rules: ACK-2
        self.unacknowledged = !packet.bth.ack_req;
        if self.unacknowledged {
            return;
        }
        if self.owed == Owed::Acknowledgement {
            host.observe(Event::AckCoalesced);
        }
        // Rules: ACK-1
        self.owed = Owed::Acknowledgement;
    }
}

/// Takes a receive for a message: the kept one, or the next.
fn take_recv<H: RecvHost>(
    kept: &mut Option<RecvRequest<H::Payload>>,
    qpn: Qpn,
    host: &mut H,
) -> Result<RecvRequest<H::Payload>, Refusal> {
    if let Some(recv) = kept.take() {
        return Ok(recv);
    }
    match host.take_recv() {
        // Rules: RNR-1
        None => Err(Refusal::NotReady),
        Some(Ok(recv)) => Ok(recv),
        // Rules: RSP-21
        Some(Err(bad)) => {
            host.complete(None, failure(qpn, bad.wr_id, bad.status));
            Err(Refusal::FatalTold {
                code: NakCode::RemoteOperation,
            })
        }
    }
}

/// Takes a receive for immediate data, if there are any.
// Rules: RNR-6, RSP-19
fn take_recv_for<H: RecvHost>(
    imm: Option<Imm>,
    kept: &mut Option<RecvRequest<H::Payload>>,
    qpn: Qpn,
    host: &mut H,
) -> Result<Option<ImmRecv<H::Payload>>, Refusal> {
    let Some(imm) = imm else {
        return Ok(None);
    };
    let recv = take_recv(kept, qpn, host)?;
    Ok(Some(ImmRecv { recv, imm }))
}

/// Checks that first and middle packets fill the MTU, that a last one is not empty, and that none
/// is longer. A bundle is as long as its packets.
fn check_length(position: Position, packet: &Packet, mtu: Mtu) -> Result<(), Refusal> {
    let len = packet.payload_len;
    let good = match position {
        // Rules: RSP-5
        Position::First | Position::Middle => len == mtu.bytes().saturating_mul(packet.psns),
        // Rules: RSP-6
        Position::Last => 0 < len && mtu.packets(len) == packet.psns,
        // Rules: RSP-7
        Position::Only => mtu.packets(len) == packet.psns,
    };
    if good {
        Ok(())
    } else {
        Err(Refusal::INVALID)
    }
}

/// Returns true if a CPU can work on the bytes of an atomic in one step.
// Rules: RDA-11
fn is_aligned(iova: Iova) -> bool {
    iova.0 & u64::from(ATOMIC_BYTES.wrapping_sub(1)) == 0
}

/// Returns the span of a packet's whole payload, unless it is empty.
fn whole(packet: &Packet) -> Option<Span> {
    match packet.payload_len {
        0 => None,
        len => Some(Span { offset: 0, len }),
    }
}

fn place<H: RecvHost>(
    grant: &H::Grant,
    at: u32,
    packet: &Packet,
    host: &mut H,
) -> Result<(), Refusal> {
    let Some(span) = whole(packet) else {
        return Ok(());
    };
    host.place(grant, at, span)
        .map_err(|fault| Refusal::of(fault, Status::LocalAccess))
}

// Rules: NAK-7
fn authorize<H: RecvHost>(reth: &Reth, access: Access, host: &mut H) -> Result<H::Grant, Refusal> {
    host.authorize(reth.rkey, reth.iova, reth.length, access)
        .map_err(|_| Refusal::ACCESS)
}

/// Authorizes a READ; an empty one needs no right and gets no grant.
// Rules: RSP-14
pub(super) fn authorize_read<H: RecvHost>(
    reth: &Reth,
    host: &mut H,
) -> Result<Option<H::Grant>, Refusal> {
    match reth.length {
        0 => Ok(None),
        _ => authorize(reth, Access::Read, host).map(Some),
    }
}
