// SPDX-License-Identifier: GPL-2.0

//! The hosts of the two halves of a queue pair: work from rings, memory of keys, and completions to
//! completion queues.

use kernel::prelude::*;
use kernel::sync::{rcu, Arc};
use rdma::ah::Gids;
use rdma::net::{IpHeader, NetDevice};
use rdma::slots::Slots;
use roce::abi::{self, Arrival, DatagramTo, Poster, SendData, SendLimits, Sge, Sges};
use roce::completion::{Completion, Status};
use roce::event::{AsyncEvent, Event};
use roce::host::{
    Access, AccessError, DatagramRecvHost, DatagramSendHost, Extent, Fault, FlushError, Observer,
    RecvHost, SendHost, Span, Taken,
};
use roce::limits::GRH_BYTES;
use roce::num::{Iova, Qpn, Rkey};
use roce::wr::{
    AtomicOp, BadRequest, DatagramRequest, LocalOp, Placement, RecvRequest, SendRequest,
    ATOMIC_BYTES,
};

use crate::ah::{Ah, Lookup, Vectors};
use crate::cq::{Cq, Notice};
use crate::keys::{Keys, Miss, Refused, Rights, Segment, User};
use crate::objects::Objects;
use crate::paging::Faults;
use crate::payload::{Incoming, Memory, Payload};
use crate::queue::WorkQueue;
use crate::srq::Srq;
use crate::stats::Stats;
use crate::stream::Stream;
use crate::table::{PdId, QpId};

/// The reason for which a work request could not be resolved.
enum Unresolved {
    /// It is invalid.
    Bad(Status),
    /// There is no memory to hold it. It is tried again.
    NoMemory,
    /// A work item must find its destination. It is tried again after that.
    Unknown,
}

/// Work to do after the lock of a half is released.
#[derive(Default)]
#[must_use]
pub(crate) struct Deferred {
    /// Events for the owner of the completion queue.
    pub(crate) notice: Notice,
    /// There are completions.
    pub(crate) completed: bool,
    /// Events for the owner of the queue pair; a bit for each [`AsyncEvent`].
    pub(crate) events: Events,
    /// A request could not start for lack of memory.
    pub(crate) starved: bool,
    /// The shared receive queue is below its limit.
    pub(crate) srq_is_low: bool,
    /// A request waits until a work item has found its destination.
    pub(crate) waits_for_address: bool,
    /// The peer has not answered within the timeout of the queue pair, the wait for a receiver is over, or the half
    /// has failed.
    pub(crate) is_overdue: bool,
    /// Requests are sent after the current packets, or by the work item of process context.
    pub(crate) is_left: bool,
    /// All that was posted is complete, so there is nothing to send.
    pub(crate) is_at_rest: bool,
    /// Memory to fault in.
    pub(crate) faults: Faults,
}

impl Deferred {
    /// Starts with no work, after a fault with these results.
    pub(crate) fn after(faults: Faults) -> Self {
        Self {
            faults,
            ..Self::default()
        }
    }
}

/// Events of a queue pair to raise: a bit for each.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Events(pub(crate) u32);

impl Events {
    const ALL: [AsyncEvent; 6] = [
        AsyncEvent::CommunicationEstablished,
        AsyncEvent::SendQueueDrained,
        AsyncEvent::Fatal,
        AsyncEvent::RequestError,
        AsyncEvent::AccessError,
        AsyncEvent::LastWqeReached,
    ];

    fn bit(event: AsyncEvent) -> u32 {
        1u32.wrapping_shl(event as u32)
    }

    fn add(&mut self, event: AsyncEvent) {
        self.0 |= Self::bit(event);
    }

    /// Returns its events.
    pub(crate) fn iter(self) -> impl Iterator<Item = AsyncEvent> {
        Self::ALL
            .into_iter()
            .filter(move |event| self.0 & Self::bit(*event) != 0)
    }
}

/// The common state of both hosts.
pub(crate) struct Common<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) gids: &'a Gids,
    pub(crate) pd: PdId,
    pub(crate) qp: QpId,
    pub(crate) qpn: Qpn,
    pub(crate) owner: Poster,
    pub(crate) cq: &'a Cq,
    /// The counters to increment.
    pub(crate) stats: &'a Stats,
    /// The payload of the current packet.
    pub(crate) incoming: Option<Incoming<'a>>,
    pub(crate) deferred: &'a mut Deferred,
}

impl Common<'_> {
    fn observe(&self, event: Event) {
        self.stats.count(event.into());
    }

    fn raise(&mut self, event: AsyncEvent) {
        self.deferred.events.add(event);
    }

    fn push(&mut self, completion: &Completion) {
        let arrival = if completion.grh { self.arrival() } else { None };
        self.deferred.completed = true;
        self.deferred
            .notice
            .merge(self.cq.push(completion, arrival));
    }

    /// Returns how the current packet arrived.
    fn arrival(&self) -> Option<Arrival> {
        let incoming = self.incoming?;
        Some(Arrival {
            ipv6: incoming.packet.is_ipv6(),
            vlan: incoming.device.and_then(NetDevice::vlan_id),
        })
    }

    /// Returns the current packet from `from` on.
    fn incoming_at(&self, from: Span) -> Result<Incoming<'_>, Miss> {
        let incoming = self.incoming.ok_or(Miss::Gone)?;
        let offset = incoming.offset.saturating_add(from.offset as usize);
        Ok(Incoming { offset, ..incoming })
    }

    /// Copies from the current packet to memory that is used as a whole, which allows readahead.
    fn scatter(&mut self, to: &impl Memory, at: u32, from: Span) -> Result<(), Fault> {
        let placed = self
            .incoming_at(from)
            .and_then(|incoming| to.scatter(at, from.len, incoming));
        placed.map_err(|miss| self.deferred.faults.sort(miss))
    }

    /// Copies from the current packet to a receive, without readahead: its used length is unknown.
    fn receive_into(&mut self, to: &Payload, at: u32, from: Span) -> Result<(), Fault> {
        let placed = self
            .incoming_at(from)
            .and_then(|incoming| to.scatter(at, from.len, incoming));
        placed.map_err(|miss| self.deferred.faults.sort(miss.without_ahead()))
    }

    /// Finds the address handle of that number, and holds it.
    // Rules: UDX-13
    fn handle(&self, number: u32) -> Result<Arc<Ah>, Unresolved> {
        let bad = Unresolved::Bad(Status::LocalQpOperation);
        let guard = rcu::read_lock();
        let found = self.objects.ahs.get(number, &guard);
        match found.filter(|ah| ah.is_of(self.pd)) {
            Some(ah) => Ok(ah.into()),
            None => Err(bad),
        }
    }

    fn keys(&self) -> &Keys {
        &self.objects.keys
    }

    /// Returns the user of remote keys.
    fn user(&self) -> User {
        User {
            pd: self.pd,
            qp: self.qp,
        }
    }

    // Rules: MEM-7
    fn local(&self, pd: PdId, sge: Sge, rights: Rights) -> Result<Segment, Unresolved> {
        let found = self.keys().local(pd, self.owner, sge, rights);
        found.map_err(|AccessError| Unresolved::Bad(Status::LocalProtection))
    }

    /// Resolves the SGEs of a work request of `pd`. The request uses their memory with `rights`.
    fn resolve(
        &self,
        pd: PdId,
        sges: Sges<'_>,
        rights: Rights,
        spare: &mut Spare,
    ) -> Result<Payload, Unresolved> {
        let mut sges = sges.filter(|sge| sge.length > 0);
        let Some(first) = sges.next() else {
            return Ok(Payload::Empty);
        };
        let first = self.local(pd, first, rights)?;
        let Some(second) = sges.next() else {
            return Ok(Payload::One(first));
        };
        let second = self.local(pd, second, rights)?;
        let mut segments = spare.segments()?;
        let mut places = segments.iter_mut();
        let mut put = |segment| match places.next() {
            Some(place) => {
                *place = Some(segment);
                Ok(())
            }
            None => Err(Unresolved::Bad(Status::LocalQpOperation)),
        };
        put(first)?;
        put(second)?;
        for sge in sges {
            put(self.local(pd, sge, rights)?)?;
        }
        Ok(Payload::Many(segments))
    }
}

/// Buffers of retired requests, kept for the next ones.
///
/// Nobody is charged for them, as they may be made in a softirq. So they are no larger than requests of this
/// queue need: the slots of its ring bound them, and those are charged.
pub(crate) struct Spare {
    /// SGEs of one request.
    max_sge: usize,
    /// Inline bytes of one request.
    max_inline: usize,
    segments: Option<Slots<Option<Segment>>>,
    bytes: Option<Slots<u8>>,
}

impl Spare {
    /// Creates it without buffers, for requests within these limits.
    ///
    /// CAST: Both are small.
    pub(crate) fn new(max_sge: u32, max_inline: u32) -> Self {
        Self {
            max_sge: max_sge as usize,
            // An atomic WRITE has its bytes in its slot, whatever the limits are.
            max_inline: max_inline.max(ATOMIC_BYTES) as usize,
            segments: None,
            bytes: None,
        }
    }

    fn segments(&mut self) -> Result<Slots<Option<Segment>>, Unresolved> {
        match self.segments.take() {
            Some(segments) => Ok(segments),
            None => Slots::new(self.max_sge, GFP_ATOMIC).map_err(|_| Unresolved::NoMemory),
        }
    }

    fn inline(&mut self, bytes: &[u8]) -> Result<Payload, Unresolved> {
        if bytes.is_empty() {
            return Ok(Payload::Empty);
        }
        let mut copy = match self.bytes.take() {
            Some(copy) => copy,
            None => Slots::new(self.max_inline, GFP_ATOMIC).map_err(|_| Unresolved::NoMemory)?,
        };
        for (to, from) in copy.iter_mut().zip(bytes) {
            *to = *from;
        }
        Ok(Payload::Inline(copy))
    }

    fn keep(&mut self, payload: Payload) {
        match payload {
            Payload::Empty | Payload::One(_) => {}
            Payload::Inline(bytes) => self.bytes = Some(bytes),
            Payload::Many(mut segments) => {
                segments.iter_mut().for_each(|segment| *segment = None);
                self.segments = Some(segments);
            }
        }
    }
}

/// The parts of a send queue beside its requester.
pub(crate) struct SendQueue {
    pub(crate) queue: WorkQueue,
    pub(crate) limits: SendLimits,
    /// Where a slot is copied to, as large as a slot.
    pub(crate) scratch: Slots<u8>,
    pub(crate) spare: Spare,
    /// Where datagrams go without an address handle; none for a connection.
    pub(crate) vectors: Option<KBox<Vectors>>,
}

/// A requester's host.
pub(crate) struct SendSide<'a> {
    pub(crate) common: Common<'a>,
    pub(crate) send: &'a mut SendQueue,
    pub(crate) stream: &'a Stream,
}

/// Converts the result for a copied work request. `None` leaves the request in the ring until there
/// is memory for it.
fn settle<R>(deferred: &mut Deferred, wr_id: u64, resolved: Result<R, Unresolved>) -> Taken<R> {
    match resolved {
        Ok(request) => Some(Ok(request)),
        Err(Unresolved::Bad(status)) => Some(Err(BadRequest { wr_id, status })),
        Err(Unresolved::NoMemory) => {
            deferred.starved = true;
            None
        }
        Err(Unresolved::Unknown) => {
            deferred.waits_for_address = true;
            None
        }
    }
}

/// A copied slot of the send queue, and the state needed to make a work request of it.
struct Posted<'a, 'c> {
    common: &'a mut Common<'c>,
    slot: &'a [u8],
    limits: &'a SendLimits,
    spare: &'a mut Spare,
    vectors: Option<&'a mut Vectors>,
}

impl Posted<'_, '_> {
    fn payload(&mut self, data: SendData<'_>, rights: Rights) -> Result<Payload, Unresolved> {
        match data {
            SendData::Inline(bytes) => self.spare.inline(bytes),
            SendData::Sges(sges) => self
                .common
                .resolve(self.common.pd, sges, rights, self.spare),
        }
    }

    fn address(&mut self, to: DatagramTo) -> Result<Arc<Ah>, Unresolved> {
        let vector = match to {
            DatagramTo::Handle(number) => return self.common.handle(number),
            DatagramTo::Vector(vector) => vector,
        };
        let Common { pd, qpn, gids, .. } = *self.common;
        let vectors = self.vectors.as_mut();
        match vectors.map(|vectors| vectors.look_up(vector, pd, qpn, gids)) {
            Some(Lookup::Found(ah)) => Ok(ah),
            Some(Lookup::Unknown) => Err(Unresolved::Unknown),
            Some(Lookup::Bad) | None => Err(Unresolved::Bad(Status::LocalQpOperation)),
        }
    }

    fn take_datagram(mut self) -> Taken<DatagramRequest<Payload, Arc<Ah>>> {
        let wqe = match abi::decode_datagram(self.slot, self.limits) {
            Ok(wqe) => wqe,
            Err(bad) => return Some(Err(bad)),
        };
        let request = self.address(wqe.to).and_then(|address| {
            Ok(DatagramRequest {
                wr_id: wqe.wr_id,
                dest: wqe.dest,
                imm: wqe.imm,
                flags: wqe.flags,
                length: wqe.length,
                payload: self.payload(wqe.data, Rights::NONE)?,
                address,
            })
        });
        settle(self.common.deferred, wqe.wr_id, request)
    }

    fn take(mut self) -> Taken<SendRequest<Payload>> {
        let wqe = match abi::decode_send(self.slot, self.limits) {
            Ok(wqe) => wqe,
            Err(bad) => return Some(Err(bad)),
        };
        let rights = if wqe.op.writes_locally() {
            Rights::LOCAL_WRITE
        } else {
            Rights::NONE
        };
        let request = self.payload(wqe.data, rights).map(|payload| SendRequest {
            wr_id: wqe.wr_id,
            op: wqe.op,
            flags: wqe.flags,
            length: wqe.length,
            payload,
        });
        settle(self.common.deferred, wqe.wr_id, request)
    }
}

impl<'c> SendSide<'c> {
    fn retire(&mut self, payload: Option<Payload>, completion: Option<Completion>) {
        if let Some(payload) = payload {
            self.send.spare.keep(payload);
        }
        self.send.queue.retire();
        // Before its poster may see the completion, and post more.
        if self.send.queue.is_drained() {
            self.stream.note_idle(&self.common.cq.poster);
        }
        if let Some(completion) = completion {
            self.common.push(&completion);
        }
    }

    /// Copies the next slot, if there is one, and has `take` make a work request of it.
    fn next<R>(&mut self, take: impl FnOnce(Posted<'_, 'c>) -> Taken<R>) -> Taken<R> {
        let send = &mut *self.send;
        if !send.queue.copy_next(&mut send.scratch) {
            return None;
        }
        let taken = take(Posted {
            common: &mut self.common,
            slot: &send.scratch,
            limits: &send.limits,
            spare: &mut send.spare,
            vectors: send.vectors.as_deref_mut(),
        });
        if taken.is_some() {
            send.queue.take();
        }
        taken
    }
}

impl Observer for SendSide<'_> {
    fn observe(&mut self, event: Event) {
        self.common.observe(event);
    }

    fn raise(&mut self, event: AsyncEvent) {
        self.common.raise(event);
    }
}

impl SendHost for SendSide<'_> {
    type Payload = Payload;

    fn next_send(&mut self) -> Taken<SendRequest<Payload>> {
        self.next(|posted| posted.take())
    }

    fn scatter(&mut self, to: &Payload, at: u32, from: Span) -> Result<(), Fault> {
        self.common.scatter(to, at, from)
    }

    fn put_original(&mut self, to: &Payload, original: u64) -> Result<(), Fault> {
        let placed = to.put_original(original);
        placed.map_err(|miss| self.common.deferred.faults.sort(miss))
    }

    // Rules: MWN-14
    fn carry_out(&mut self, op: &LocalOp) -> Result<(), Status> {
        let (keys, user) = (self.common.keys(), self.common.user());
        let (done, failed) = match op {
            LocalOp::Bind(bind) => (keys.bind(user, bind), Status::MwBind),
            LocalOp::Invalidate { rkey } => {
                (keys.invalidate(user, *rkey), Status::LocalQpOperation)
            }
            LocalOp::Register(register) => (keys.register(user.pd, register), Status::MwBind),
        };
        done.map_err(|Refused| failed)
    }

    fn retire(&mut self, payload: Option<Payload>, completion: Option<Completion>) {
        SendSide::retire(self, payload, completion);
    }
}

impl DatagramSendHost for SendSide<'_> {
    type Payload = Payload;
    type Address = Arc<Ah>;

    fn next_datagram(&mut self) -> Taken<DatagramRequest<Payload, Arc<Ah>>> {
        self.next(|posted| posted.take_datagram())
    }

    fn retire(&mut self, payload: Option<Payload>, completion: Option<Completion>) {
        SendSide::retire(self, payload, completion);
    }
}

/// A receive queue that is one queue pair's own.
pub(crate) struct OwnReceives {
    pub(crate) queue: WorkQueue,
    pub(crate) max_sge: u32,
    /// Where a slot is copied to, as large as a slot.
    pub(crate) scratch: Slots<u8>,
}

/// Where receives come from.
pub(crate) enum Receives {
    Own(OwnReceives),
    Shared(Arc<Srq>),
}

/// The parts of a receive queue beside its responder.
pub(crate) struct RecvQueue {
    pub(crate) receives: Receives,
    pub(crate) spare: Spare,
}

impl RecvQueue {
    /// Gives the oldest taken receive back.
    fn retire(&mut self) {
        if let Receives::Own(own) = &mut self.receives {
            own.queue.retire();
        }
    }

    /// Forgets the receives posted to the queue pair alone.
    pub(crate) fn reset(&mut self) {
        if let Receives::Own(own) = &mut self.receives {
            own.queue.reset();
        }
    }
}

/// A responder's host.
pub(crate) struct RecvSide<'a> {
    pub(crate) common: Common<'a>,
    pub(crate) recv: &'a mut RecvQueue,
}

impl Common<'_> {
    /// Decodes and resolves a receive that was posted for memory of `pd`.
    // Rules: MEM-8
    fn receive(
        &mut self,
        pd: PdId,
        slot: &[u8],
        max_sge: u32,
        spare: &mut Spare,
    ) -> Taken<RecvRequest<Payload>> {
        let wqe = match abi::decode_recv(slot, max_sge) {
            Ok(wqe) => wqe,
            Err(bad) => return Some(Err(bad)),
        };
        let payload = self.resolve(pd, wqe.sges, Rights::LOCAL_WRITE, spare);
        let request = payload.map(|payload| RecvRequest {
            wr_id: wqe.wr_id,
            length: wqe.length,
            payload,
        });
        settle(self.deferred, wqe.wr_id, request)
    }
}

impl OwnReceives {
    fn take(&mut self, common: &mut Common<'_>, spare: &mut Spare) -> Taken<RecvRequest<Payload>> {
        if !self.queue.copy_next(&mut self.scratch) {
            return None;
        }
        let taken = common.receive(common.pd, &self.scratch, self.max_sge, spare)?;
        self.queue.take();
        Some(taken)
    }
}

impl Observer for RecvSide<'_> {
    fn observe(&mut self, event: Event) {
        self.common.observe(event);
    }

    fn raise(&mut self, event: AsyncEvent) {
        self.common.raise(event);
    }
}

impl RecvHost for RecvSide<'_> {
    type Payload = Payload;
    type Grant = Segment;

    fn take_recv(&mut self) -> Option<Result<RecvRequest<Payload>, BadRequest>> {
        let Self { common, recv } = self;
        let spare = &mut recv.spare;
        match &mut recv.receives {
            Receives::Own(own) => own.take(common, spare),
            Receives::Shared(srq) => {
                // Rules: SRQ-4
                let (taken, is_low) =
                    srq.take(|slot, max_sge| common.receive(srq.pd, slot, max_sge, spare));
                common.deferred.srq_is_low |= is_low;
                taken
            }
        }
    }

    fn has_shared_queue(&self) -> bool {
        matches!(self.recv.receives, Receives::Shared(_))
    }

    fn scatter(&mut self, to: &Payload, at: u32, from: Span) -> Result<(), Fault> {
        self.common.receive_into(to, at, from)
    }

    fn complete(&mut self, payload: Option<Payload>, completion: Completion) {
        if let Some(payload) = payload {
            self.recv.spare.keep(payload);
        }
        self.recv.retire();
        self.common.push(&completion);
    }

    fn discard(&mut self, payload: Payload) {
        self.recv.spare.keep(payload);
        self.recv.retire();
    }

    fn authorize(
        &mut self,
        rkey: Rkey,
        iova: Iova,
        len: u32,
        access: Access,
    ) -> Result<Segment, AccessError> {
        let (keys, user) = (self.common.keys(), self.common.user());
        keys.remote(user, rkey, access, iova, len)
    }

    fn invalidate(&mut self, rkey: Rkey) -> Result<(), AccessError> {
        let (keys, user) = (self.common.keys(), self.common.user());
        keys.invalidate(user, rkey).map_err(|Refused| AccessError)
    }

    fn place(&mut self, to: &Segment, at: u32, from: Span) -> Result<(), Fault> {
        self.common.scatter(to, at, from)
    }

    fn place_atomically(&mut self, to: &Segment, from: Span) -> Result<(), Fault> {
        let placed = self
            .common
            .incoming_at(from)
            .and_then(|incoming| to.store(incoming.word()?));
        placed.map_err(|miss| self.common.deferred.faults.sort(miss))
    }

    fn flush(
        &mut self,
        rkey: Rkey,
        extent: Extent,
        placement: Placement,
    ) -> Result<(), FlushError> {
        let (keys, user) = (self.common.keys(), self.common.user());
        let unwritten = keys.flush(user, rkey, extent, placement)?;
        // Rules: MPE-15
        if let Some(unwritten) = unwritten {
            self.common.deferred.faults.write_back(unwritten)?;
        }
        Ok(())
    }

    fn atomic(&mut self, to: &Segment, op: AtomicOp) -> Result<u64, Fault> {
        let done = to.atomic(op);
        done.map_err(|miss| self.common.deferred.faults.sort(miss))
    }
}

impl DatagramRecvHost for RecvSide<'_> {
    // Rules: UDX-4
    fn scatter_grh(&mut self, to: &Payload) -> Result<(), Fault> {
        let packet = self.common.incoming.ok_or(Fault::Gone)?.packet;
        let mut grh = [0; GRH_BYTES as usize];
        match packet.ip_header() {
            IpHeader::V6(ip) => grh = *ip,
            IpHeader::V4(ip) => *grh.last_chunk_mut().ok_or(Fault::Gone)? = *ip,
        }
        let placed = to.put_first(&grh);
        placed.map_err(|miss| self.common.deferred.faults.sort(miss.without_ahead()))
    }
}
