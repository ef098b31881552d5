// SPDX-License-Identifier: GPL-2.0

//! From work requests to packets.

use core::ops::DerefMut;

use super::window::{Ahead, Entry, Outstanding, Slot, Window};
use super::{Blocked, Drain, Failure, Parts, Requester, Running, Sequence, Timer};
use crate::completion::Status;
use crate::congestion::Control;
use crate::host::{SendHost, Source, Transmit};
use crate::limits::{ACK_REQ_INTERVAL, LOCAL_BATCH, MAX_EARLY_PSNS, MAX_MESSAGE_BYTES, PSN_HALF};
use crate::num::{Bundle, Mtu, Psn};
use crate::time::Instant;
use crate::wire::{AtomicEth, Body, Bth, Feth, HeaderBytes, Request, Reth, SendEnd};
use crate::wr::{AtomicOp, BadRequest, LocalOp, Remote, SendOp};

/// Whether a request may be begun.
enum Gate {
    Open,
    Closed(Blocked),
    /// It can never be.
    Refused(Status),
}

/// The result of taking a work request.
enum Taken {
    /// There was none.
    Nothing,
    /// It is in the window.
    Entry,
    /// It was executed.
    Done,
}

/// One packet of a request.
struct Segment {
    request: Request,
    /// Where in the message it starts.
    at: u32,
    /// Bytes of payload.
    len: u32,
    /// PSNs that it stands for.
    psns: u32,
    /// PSNs from it to the next one that is sent: of a READ those of the responses.
    span: u32,
    /// Whether nothing of the request is to be sent after it.
    ends: bool,
}

impl<P, S: DerefMut<Target = [Slot<P>]>> Requester<P, S> {
    /// Returns the next packet to send, if there is one. Takes new work when the window allows.
    ///
    /// The caller repeats the call until `None`, after a doorbell, a response or a timeout, and
    /// when it may send again. A packet that was returned counts as sent. If it is dropped later,
    /// it is recovered like a packet that the network lost.
    pub fn poll_transmit<H: SendHost<Payload = P>>(
        &mut self,
        now: Instant,
        host: &mut H,
    ) -> Option<Transmit<'_, P>> {
        match self.running()?.prepare(now, host) {
            Ok(true) => self.running()?.transmit(now),
            Ok(false) => {
                let index = self.running()?.next_ahead()?;
                self.running()?.ask_ahead(index)
            }
            Err(failure) => {
                self.settle(Err(failure), host);
                None
            }
        }
    }

    /// Says that the packet `psn`, which [`poll_transmit`](Self::poll_transmit) returned last, was
    /// not sent, as its source is [absent](crate::host::Fault::Absent): it is returned again.
    pub fn unsend(&mut self, psn: Psn) {
        if let Some(mut running) = self.running() {
            running.unsend(psn);
        }
    }

    /// Says that the source of the packet `psn`, returned by
    /// [`poll_transmit`](Self::poll_transmit), cannot be read: its request fails with
    /// [`LocalProtection`](crate::completion::Status::LocalProtection) once those before it are
    /// complete.
    pub fn payload_fault<H: SendHost<Payload = P>>(&mut self, psn: Psn, host: &mut H) {
        if let Some(mut running) = self.running() {
            running.spoil(psn);
            let outcome = running.follow_up(host);
            self.settle(outcome, host);
        }
    }
}

impl<'a, P, S: DerefMut<Target = [Slot<P>]>> Running<'a, P, S> {
    /// Returns the packet `next`, which counts as sent with this.
    fn transmit(self, now: Instant) -> Option<Transmit<'a, P>> {
        let Self {
            sequence, window, ..
        } = self;
        let entry = window.good(sequence.cursor)?;
        let psn = sequence.next;
        let sizes = (sequence.config.mtu, sequence.config.bundle);
        let up_to = sequence.asks_up_to().or_else(|| sequence.read_part(entry));
        let segment = Segment::new(entry, psn, sizes, up_to)?;
        let wants_ack = sequence.wants_ack(entry, &segment);
        let bth = sequence.header(entry, &segment, psn, wants_ack);
        sequence.sent(entry, &segment, wants_ack, now);
        sequence.end_repair(window);
        let source = match segment.len {
            0 => Source::Empty,
            len => Source::Bytes {
                memory: &entry.payload,
                at: segment.at,
                len,
            },
        };
        Some(Transmit {
            header: HeaderBytes::new(&bth, &Body::Request(segment.request)),
            source,
            pad: bth.pad,
            psn,
            psns: segment.psns,
        })
    }

    /// Returns the request of which responses are to be asked for in advance now, as an index in the window. What is
    /// missing before them is asked for first.
    #[inline]
    fn next_ahead(&mut self) -> Option<usize> {
        if !self.sequence.asks_ahead() || self.sequence.sends_again() {
            return None;
        }
        self.find_ahead()
    }

    #[cold]
    fn find_ahead(&mut self) -> Option<usize> {
        if let Timer::Rnr(_) = self.sequence.timer {
            return None;
        }
        let asked_again_to = self.sequence.asked_again_to;
        let found = (1..self.window.len().min(MAX_EARLY_PSNS as usize)).find(|index| {
            let Some(entry) = self.window.good(*index) else {
                return false;
            };
            match entry.ahead {
                Ahead::Wanted { from, .. } => !entry.psn_at(from).is_before(asked_again_to),
                Ahead::No | Ahead::Asked { .. } => false,
            }
        });
        self.sequence.set_asks_ahead(found.is_some());
        found
    }

    /// Returns the request for the responses to the request `index` that are asked for in advance.
    // Rules: RTY-24
    #[cold]
    fn ask_ahead(self, index: usize) -> Option<Transmit<'a, P>> {
        let Self {
            sequence, window, ..
        } = self;
        let entry = window.good_mut(index)?;
        let Ahead::Wanted { from, to } = entry.ahead else {
            return None;
        };
        entry.ahead = Ahead::Asked { from };
        let (from, to) = (entry.psn_at(from), entry.psn_at(to));
        sequence.note_part();
        let sizes = (sequence.config.mtu, sequence.config.bundle);
        let segment = Segment::new(entry, from, sizes, Some(to))?;
        let bth = sequence.header(entry, &segment, from, false);
        Some(Transmit {
            header: HeaderBytes::new(&bth, &Body::Request(segment.request)),
            source: Source::Empty,
            pad: bth.pad,
            psn: from,
            psns: segment.psns,
        })
    }

    /// Takes the packet `psn` back, the last that was handed out.
    ///
    /// If it was sent before, the peer may have it, and answer it: it stays outstanding.
    // Rules: ACK-21
    fn unsend(&mut self, psn: Psn) {
        let sequence = &mut *self.sequence;
        let is_in = |index: usize| {
            let entry = self.window.good(index)?;
            (psn.distance_from(entry.first) < entry.packets).then_some(entry)
        };
        // The cursor is on it or just behind it; after a repair it is anywhere behind.
        let near = [sequence.cursor, sequence.cursor.wrapping_sub(1)].into_iter();
        let mut places = near.chain(0..self.window.len());
        let Some((index, entry)) = places.find_map(|index| Some((index, is_in(index)?))) else {
            return;
        };
        // It may have been the only one that asks for an acknowledgement.
        sequence.since_ack_req = psn.distance_from(sequence.unacked);
        if sequence.fresh {
            sequence.end = psn;
            sequence.round_trip.forget();
            if entry.is_answered() && psn == entry.first {
                sequence.unanswered = sequence.unanswered.saturating_sub(1);
            }
        }
        sequence.cursor = index;
        sequence.next = psn;
        sequence.reopen_repair(psn);
        if sequence.outstanding() == 0 {
            sequence.timer = Timer::Off;
        }
    }

    /// Makes the request of `psn` a bad one: no packet from `psn` on is sent any more. Packets from
    /// `psn` on that were sent are still outstanding, as an acknowledgement of one also
    /// acknowledges all earlier ones.
    // Rules: ERR-9, UCX-10
    fn spoil(&mut self, psn: Psn) {
        let sequence = &mut *self.sequence;
        if psn.distance_from(sequence.unacked) >= sequence.outstanding() {
            return;
        }
        let found = (0..self.window.len()).find_map(|index| {
            let entry = self.window.good(index)?;
            (psn.distance_from(entry.first) < entry.packets).then_some((index, entry.first))
        });
        let Some((index, first)) = found else {
            return;
        };
        self.window.spoil(index, Status::LocalProtection);
        if sequence.fresh {
            sequence.end = psn;
        }
        if sequence.cursor >= index {
            sequence.cursor = index;
            sequence.next = first;
        }
    }

    /// Brings the cursor to a request of which a packet may be sent now; false if there is none.
    fn prepare<H: SendHost<Payload = P>>(
        &mut self,
        now: Instant,
        host: &mut H,
    ) -> Result<bool, Failure> {
        self.confirm_sent(now, host)?;
        let mut done_here = 0u32;
        let blocked = loop {
            if let Timer::Rnr(until) = self.sequence.timer {
                // Rules: RNR-8
                if now < until {
                    break Some(Blocked::Rnr);
                }
                self.sequence.timer = Timer::Off;
            }
            let entry = match self.window.get(self.sequence.cursor) {
                Some(Entry::Good(entry)) => entry,
                Some(Entry::Bad(bad, _)) if self.sequence.cursor == 0 => {
                    return Err(Failure(bad.status));
                }
                // Rules: ERR-8
                Some(Entry::Bad(..)) => break Some(Blocked::BadRequest),
                Some(Entry::Done(_)) => {
                    self.sequence.cursor = self.sequence.cursor.wrapping_add(1);
                    continue;
                }
                // Rules: INV-5, SEG-21
                Some(Entry::Local(entry)) => {
                    if self.sequence.drain != Drain::Off {
                        // Rules: INV-10
                        break Some(Blocked::Drain);
                    }
                    if self.sequence.cursor > 0 {
                        // Rules: INV-6
                        break Some(Blocked::Local);
                    }
                    if done_here >= LOCAL_BATCH {
                        break Some(Blocked::Busy);
                    }
                    // Rules: INV-7, INV-8
                    if let SendOp::Local(op) = &entry.op {
                        host.carry_out(op).map_err(Failure)?;
                    }
                    self.retire_head(host);
                    done_here = done_here.wrapping_add(1);
                    continue;
                }
                None if done_here >= LOCAL_BATCH => break Some(Blocked::Busy),
                None => match self.take(host) {
                    Ok(Taken::Entry) => continue,
                    Ok(Taken::Done) => {
                        done_here = done_here.wrapping_add(1);
                        continue;
                    }
                    Ok(Taken::Nothing) => break None,
                    Err(blocked) => break Some(blocked),
                },
            };
            match self.sequence.gate(entry, self.window) {
                Gate::Open => {
                    self.sequence.blocked = None;
                    return Ok(true);
                }
                // Rules: ORD-7, RDA-4
                Gate::Closed(blocked) => break Some(blocked),
                Gate::Refused(status) => self.window.spoil(self.sequence.cursor, status),
            }
        };
        self.sequence.blocked = blocked;
        Ok(false)
    }

    /// Takes one more work request into the window, unless none may be taken.
    // Rules: ORD-1
    fn take<H: SendHost<Payload = P>>(&mut self, host: &mut H) -> Result<Taken, Blocked> {
        if self.sequence.drain != Drain::Off {
            return Err(Blocked::Drain);
        }
        if self.sequence.outstanding() >= self.sequence.pace.psns() {
            return Err(Blocked::PsnWindow);
        }
        if self.window.is_full() {
            return Err(Blocked::Window);
        }
        let entry = match host.next_send() {
            None => return Ok(Taken::Nothing),
            Some(Err(bad)) => Entry::Bad(bad, None),
            // Rules: SEG-7
            Some(Ok(request)) if request.length > MAX_MESSAGE_BYTES => {
                let bad = BadRequest {
                    wr_id: request.wr_id,
                    status: Status::LocalLength,
                };
                Entry::Bad(bad, Some(request.payload))
            }
            Some(Ok(request)) if !self.sequence.carries(&request.op) => {
                let bad = BadRequest {
                    wr_id: request.wr_id,
                    status: Status::LocalQpOperation,
                };
                Entry::Bad(bad, Some(request.payload))
            }
            Some(Ok(request)) => {
                let op = request.op;
                let entry = Outstanding::new(request, self.sequence.next, self.sequence.config.mtu);
                match op {
                    SendOp::Local(op @ LocalOp::Register(_)) if !entry.flags.fence => {
                        return Ok(self.register(entry, &op, host));
                    }
                    SendOp::Local(_) => Entry::Local(entry),
                    _ => {
                        // Here, and not below with the others: so it is not copied once more.
                        self.window.push(Entry::Good(entry));
                        return Ok(Taken::Entry);
                    }
                }
            }
        };
        self.window.push(entry);
        Ok(Taken::Entry)
    }

    /// Registers memory, without waiting for earlier requests: none of them can use a free region.
    /// The request still completes in its turn.
    // Rules: INV-9
    fn register<H: SendHost<Payload = P>>(
        &mut self,
        entry: Outstanding<P>,
        op: &LocalOp,
        host: &mut H,
    ) -> Taken {
        if let Err(status) = host.carry_out(op) {
            let bad = BadRequest {
                wr_id: entry.wr_id,
                status,
            };
            self.window.push(Entry::Bad(bad, Some(entry.payload)));
            return Taken::Entry;
        }
        self.window.push(Entry::Done(entry));
        if self.window.len() == 1 {
            self.retire_head(host);
        }
        Taken::Done
    }
}

impl Sequence {
    /// Returns true if the connection has such requests: without responses there is no READ.
    // Rules: RDA-25
    fn carries(&self, op: &SendOp) -> bool {
        self.is_acknowledged()
            || matches!(
                op,
                SendOp::Send { .. } | SendOp::Write { .. } | SendOp::Local(_)
            )
    }

    /// Decides whether the packet `next` of `entry` may be sent.
    fn gate<P, S>(&self, entry: &Outstanding<P>, window: &Window<P, S>) -> Gate
    where
        S: DerefMut<Target = [Slot<P>]>,
    {
        // Rules: ORD-12
        // Only packets that were never sent need a gate.
        let is_new = self.next == self.end;
        if is_new && self.next == entry.first {
            if let Some(closed) = self.gate_message(entry) {
                return closed;
            }
        }
        let ahead = self.next.distance_from(self.unacked);
        // Rules: SEG-18
        if ahead >= self.most_psns() {
            return Gate::Closed(Blocked::PsnWindow);
        }
        // Rules: RTY-25
        if is_new && self.awaits_answer(window) {
            return Gate::Closed(Blocked::Answer);
        }
        // Rules: SEG-22
        let is_next_part = is_new && self.next != entry.first;
        if is_next_part && ahead > 0 && entry.is_answered() {
            return Gate::Closed(Blocked::PsnWindow);
        }
        Gate::Open
    }

    /// Returns the PSN up to which a READ is asked for now if that is not all of it. On a congested path its responses
    /// would overflow a queue if they are more than the window has. So it becomes several requests. One at a time is
    /// outstanding, so the peer needs no more resources than for one.
    // Rules: SEG-22
    #[inline]
    fn read_part<P>(&mut self, entry: &Outstanding<P>) -> Option<Psn> {
        if !matches!(entry.op, SendOp::Read { .. }) {
            return None;
        }
        if self.next != self.end {
            // No more than was asked for before.
            return self.end.is_before(entry.end()).then_some(self.end);
        }
        let is_part = self.next != entry.first;
        let most = self.pace.psns();
        if !is_part && (!self.pace.was_congested() || entry.packets <= most) {
            return None;
        }
        let ahead = self.next.distance_from(self.unacked);
        let stop = self.next.add(most.saturating_sub(ahead).max(1));
        if !stop.is_before(entry.end()) {
            return None;
        }
        self.note_part();
        Some(stop)
    }

    /// Returns how many PSNs may be outstanding, before `next`. When the window has shrunk, none of these
    /// packets may ask for an acknowledgement, or be answered. One more PSN, which asks for it, is allowed then.
    fn most_psns(&self) -> u32 {
        self.pace.psns().max(self.since_ack_req.saturating_add(1))
    }

    /// Returns the reason that the message of `entry` may not be begun, if there is one.
    fn gate_message<P>(&self, entry: &Outstanding<P>) -> Option<Gate> {
        // Rules: STA-10
        if self.drain != Drain::Off {
            return Some(Gate::Closed(Blocked::Drain));
        }
        // Rules: ORD-4, ORD-5, ORD-6
        if entry.flags.fence && self.unanswered > 0 {
            return Some(Gate::Closed(Blocked::Fence));
        }
        if !entry.is_answered() {
            return None;
        }
        let depth = u16::from(self.config.max_rd_atomic);
        // Rules: RDA-6
        if depth == 0 {
            return Some(Gate::Refused(Status::LocalQpOperation));
        }
        // Rules: RDA-3
        if self.unanswered >= depth {
            return Some(Gate::Closed(Blocked::ReadDepth));
        }
        // Rules: PSN-9
        // A READ has all its PSNs at once, and the responder must be able to tell the oldest
        // outstanding PSN from one to come.
        if self.outstanding().saturating_add(entry.packets) > PSN_HALF {
            return Some(Gate::Closed(Blocked::PsnWindow));
        }
        None
    }

    /// Returns the BTH of the packet `psn`.
    // Rules: SEG-12
    fn header<P>(
        &self,
        entry: &Outstanding<P>,
        segment: &Segment,
        psn: Psn,
        wants_ack: bool,
    ) -> Bth {
        let takes_receive = match entry.op {
            SendOp::Send { .. } | SendOp::SendInvalidate { .. } => true,
            SendOp::Write { imm, .. } => imm.is_some(),
            SendOp::Read { .. }
            | SendOp::Atomic { .. }
            | SendOp::AtomicWrite { .. }
            | SendOp::Flush { .. }
            | SendOp::Local(_) => false,
        };
        Bth {
            transport: self.config.connection.transport(),
            // Rules: SEG-11
            solicited: segment.ends && takes_receive && entry.flags.solicited,
            // Rules: WIRE-29
            mig_req: false,
            // Rules: SEG-6
            pad: (segment.len.wrapping_neg() & 3) as u8,
            pkey: self.config.pkey,
            // Rules: WIRE-30
            fecn: false,
            becn: false,
            dest_qp: self.config.dest_qp,
            ack_req: wants_ack,
            psn,
        }
    }

    /// Returns true if the packet is to ask for an acknowledgement. A packet asks at the end of
    /// each message, every so often within a long one, and where the window closes. A READ or
    /// atomic is answered anyway.
    fn wants_ack<P>(&self, entry: &Outstanding<P>, segment: &Segment) -> bool {
        // Rules: UCX-9
        if entry.is_answered() || !self.is_acknowledged() {
            return false;
        }
        // Rules: SEG-17
        let end = self.next.add(segment.psns);
        let outstanding_then = end.distance_from(self.unacked);
        let interval = ACK_REQ_INTERVAL.min(self.pace.psns() / 4);
        // Rules: SEG-16
        segment.ends
            || self.since_ack_req.saturating_add(segment.psns) >= interval
            || outstanding_then >= self.most_psns()
            || self.ends_repair(end)
    }

    /// Accounts for a packet that is sent now.
    // Rules: PSN-3
    fn sent<P>(
        &mut self,
        entry: &Outstanding<P>,
        segment: &Segment,
        wants_ack: bool,
        now: Instant,
    ) {
        let is_new = self.next == self.end;
        self.fresh = is_new;
        if is_new && entry.is_answered() {
            match self.next == entry.first {
                // Rules: RDA-5
                true => self.unanswered = self.unanswered.saturating_add(1),
                // Rules: SEG-22
                false => self.parts = Parts::Unheard,
            }
        }
        // Of a READ the first response tells.
        if is_new && (wants_ack || entry.is_answered()) {
            let ahead = self.next.distance_from(self.unacked);
            self.round_trip
                .begin(self.next.add(segment.psns), ahead, now);
        }
        self.since_ack_req = match entry.is_answered() {
            // Of what is behind a repair its answer tells nothing.
            true if self.is_repairing() => self.since_ack_req,
            true => 0,
            false if wants_ack => 0,
            false => self.since_ack_req.saturating_add(segment.psns),
        };
        if segment.ends {
            // Rules: SEG-10
            self.next = entry.end();
            self.cursor = self.cursor.wrapping_add(1);
        } else {
            self.next = self.next.add(segment.span);
        }
        if is_new {
            self.end = self.next;
        }
        // Rules: RTY-5
        if self.timer == Timer::Off {
            self.arm_ack_timer(now);
        }
    }
}

impl Segment {
    /// Returns a request in one packet, without payload.
    fn bare(request: Request) -> Self {
        Self {
            request,
            at: 0,
            len: 0,
            psns: 1,
            span: 1,
            ends: true,
        }
    }

    /// Returns the packet `psn` of `entry`, or `None` for an operation without packets. `up_to`
    /// limits a READ request to the PSNs before it.
    // Rules: RTY-12, SEG-1, SEG-2
    #[inline(always)] // Otherwise it becomes a call for each packet, as there are two callers.
    fn new<P>(
        entry: &Outstanding<P>,
        psn: Psn,
        (mtu, bundle): (Mtu, Bundle),
        up_to: Option<Psn>,
    ) -> Option<Self> {
        let at = psn.distance_from(entry.first).wrapping_mul(mtu.bytes());
        let left = entry.length.saturating_sub(at);
        // Rules: SEG-3
        let len = left.min(bundle.bytes(mtu));
        let starts = at == 0;
        // Rules: SEG-4, SEG-5
        let ends = len == left;
        let request = match entry.op {
            SendOp::Send { imm } => send(starts, ends, imm.map_or(SendEnd::Plain, SendEnd::Imm)),
            SendOp::SendInvalidate { rkey } => send(starts, ends, SendEnd::Invalidate(rkey)),
            SendOp::Write { remote, imm } => match (starts, ends) {
                (true, true) => Request::WriteOnly(reth(remote, 0, entry.length), imm),
                // Rules: SEG-8
                (true, false) => Request::WriteFirst(reth(remote, 0, entry.length)),
                (false, false) => Request::WriteMiddle,
                (false, true) => Request::WriteLast(imm),
            },
            // Rules: SEG-13
            SendOp::Read { remote } => {
                // Rules: SEG-14, RTY-21
                let most = up_to.map_or(left, |up_to| {
                    up_to.distance_from(psn).saturating_mul(mtu.bytes())
                });
                let part = left.min(most);
                return Some(Self {
                    span: mtu.packets(part),
                    ends: part == left,
                    ..Self::bare(Request::Read(reth(remote, at, part)))
                });
            }
            SendOp::Atomic { remote, op } => return Some(Self::bare(atomic(remote, op))),
            SendOp::AtomicWrite { remote } => Request::AtomicWrite(reth(remote, 0, entry.length)),
            SendOp::Flush { remote, flush } => {
                let feth = Feth::from_flush(flush);
                let reth = reth(remote, 0, entry.length);
                // Rules: MPE-8
                return Some(Self::bare(Request::Flush(feth, reth)));
            }
            SendOp::Local(_) => return None,
        };
        let psns = mtu.packets(len);
        Some(Self {
            request,
            at,
            len,
            psns,
            span: psns,
            ends,
        })
    }
}

// Rules: SEG-9
fn send(starts: bool, ends: bool, end: SendEnd) -> Request {
    match (starts, ends) {
        (true, true) => Request::SendOnly(end),
        (true, false) => Request::SendFirst,
        (false, false) => Request::SendMiddle,
        (false, true) => Request::SendLast(end),
    }
}

// Rules: SEG-15
fn atomic(remote: Remote, op: AtomicOp) -> Request {
    let eth = |swap_add, compare| AtomicEth {
        iova: remote.iova,
        rkey: remote.rkey,
        swap_add,
        compare,
    };
    match op {
        AtomicOp::CompareSwap { compare, swap } => Request::CompareSwap(eth(swap, compare)),
        AtomicOp::FetchAdd { add } => Request::FetchAdd(eth(add, 0)),
    }
}

/// Returns the header that names `length` bytes of `remote` from byte `at` on.
fn reth(remote: Remote, at: u32, length: u32) -> Reth {
    Reth {
        iova: remote.iova.add(u64::from(at)),
        rkey: remote.rkey,
        length,
    }
}
