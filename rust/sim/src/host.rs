// SPDX-License-Identifier: GPL-2.0

//! The surroundings of one queue pair. It checks that the protocol keeps to the contract of the
//! host traits.

use std::collections::VecDeque;

use roce::completion::{Completion, Status};
use roce::event::{AsyncEvent, Event};
use roce::host::{
    Access, AccessError, DatagramRecvHost, DatagramSendHost, Extent, Fault, FlushError, Observer,
    RecvHost, SendHost, Span, Taken,
};
use roce::limits::GRH_BYTES;
use roce::num::{Iova, Rkey};
use roce::wr::{
    AtomicOp, BadRequest, DatagramRequest, LocalOp, Placement, RecvRequest, SendRequest,
};

use crate::memory::{Alive, Grant, Memory, Payload};
use crate::oracle::Oracle;
use crate::packet::Address;
use crate::sabotage::Sabotage;

/// A work request in a queue.
pub type Posted<R> = Result<R, BadRequest>;

/// A receive queue.
pub type RecvQueue = VecDeque<Posted<RecvRequest<Payload>>>;

/// The queues of a queue pair.
#[derive(Default)]
pub struct Queues {
    /// Sends that were not taken yet, of a connection.
    pub sends: VecDeque<Posted<SendRequest<Payload>>>,
    /// The same of datagrams.
    pub datagrams: VecDeque<Posted<DatagramRequest<Payload, usize>>>,
    /// Receives that were not taken yet.
    pub receives: RecvQueue,
    /// Sends that were taken and not retired: their names and whether they have a payload.
    taken: VecDeque<(u64, bool)>,
    /// Receives that were taken, oldest first.
    taken_recvs: VecDeque<(u64, bool)>,
    /// Local memory that is held.
    pub payloads: Alive,
    /// Grants that are held.
    pub grants: Alive,
    /// Bytes that WRITEs of the peer and READs of its own have brought.
    pub moved: u64,
    /// Events that were raised, until they are looked at.
    pub raised: Vec<AsyncEvent>,
    /// The rule that is broken on purpose.
    pub sabotage: Sabotage,
}

impl Queues {
    /// Sends that were posted and not retired.
    pub fn outstanding(&self) -> usize {
        self.sends.len() + self.datagrams.len() + self.taken.len()
    }

    /// Receives that were taken and not completed.
    pub fn receives_in_use(&self) -> usize {
        self.taken_recvs.len()
    }
}

/// The world during one call.
pub struct Host<'a> {
    /// Which queue pair it is for.
    pub qp: usize,
    /// The node's memory.
    pub memory: &'a mut Memory,
    /// The queue pair's queues.
    pub queues: &'a mut Queues,
    /// The receive queue that it shares, if it does.
    pub shared: Option<&'a mut RecvQueue>,
    /// The oracle.
    pub oracle: &'a mut Oracle,
    /// The payload of the current packet.
    pub packet: &'a [u8],
    /// The sender's address.
    pub source: Address,
}

impl Host<'_> {
    fn span(&mut self, from: Span) -> &[u8] {
        let range = from.offset as usize..from.offset as usize + from.len as usize;
        match self.packet.get(range) {
            Some(bytes) if !bytes.is_empty() => bytes,
            _ => panic!("{from:?} of a packet of {} bytes", self.packet.len()),
        }
    }

    /// Stores at byte `at` of local memory.
    fn put(&mut self, to: &Payload, at: u32, bytes: &[u8]) -> Result<(), Fault> {
        let end = u64::from(at) + bytes.len() as u64;
        assert!(end <= u64::from(to.len), "outside of the request's memory");
        if to.gone {
            return Err(Fault::Gone);
        }
        self.memory.put(to.at + at as usize, bytes)
    }

    fn copy(&mut self, to: &Payload, at: u32, from: Span) -> Result<(), Fault> {
        let bytes = self.span(from).to_vec();
        self.put(to, at, &bytes)
    }

    fn retire_send(&mut self, payload: Option<Payload>, completion: Option<Completion>) {
        let Some((wr_id, has_payload)) = self.queues.taken.pop_front() else {
            panic!("retired what was not taken");
        };
        assert_eq!(has_payload, payload.is_some(), "another request's payload");
        if let Some(completion) = &completion {
            assert_eq!(completion.wr_id, wr_id, "another request's completion");
        }
        drop(payload);
        let completion = match (self.queues.sabotage, completion) {
            (Sabotage::LostCompletion, Some(_)) if wr_id % 16 == 0 => None,
            (Sabotage::DoubledCompletion, Some(completion)) if wr_id % 16 == 0 => {
                self.oracle.retired(self.qp, Some(completion), self.memory);
                Some(completion)
            }
            (Sabotage::FalseSuccess, Some(completion)) => Some(Completion {
                status: Status::Success,
                ..completion
            }),
            (_, completion) => completion,
        };
        self.oracle.retired(self.qp, completion, self.memory);
    }

    fn pop_recv(&mut self, has_payload: bool) -> u64 {
        match self.queues.taken_recvs.pop_front() {
            Some((wr_id, had_payload)) if had_payload == has_payload => wr_id,
            other => panic!("gave a receive back that was not the oldest taken: {other:?}"),
        }
    }
}

impl Observer for Host<'_> {
    fn observe(&mut self, event: Event) {
        self.oracle.observed(self.qp, event);
    }

    fn raise(&mut self, event: AsyncEvent) {
        self.queues.raised.push(event);
    }
}

impl SendHost for Host<'_> {
    type Payload = Payload;

    fn next_send(&mut self) -> Option<Result<SendRequest<Payload>, BadRequest>> {
        let posted = self.queues.sends.pop_front()?;
        let entry = match &posted {
            Ok(request) => (request.wr_id, true),
            Err(bad) => (bad.wr_id, false),
        };
        self.queues.taken.push_back(entry);
        Some(posted)
    }

    fn scatter(&mut self, to: &Payload, at: u32, from: Span) -> Result<(), Fault> {
        self.queues.moved += u64::from(from.len);
        self.copy(to, at, from)
    }

    fn put_original(&mut self, to: &Payload, original: u64) -> Result<(), Fault> {
        assert_eq!(to.len, 8, "not the memory of an atomic");
        self.put(to, 0, &original.to_ne_bytes())
    }

    fn carry_out(&mut self, op: &LocalOp) -> Result<(), Status> {
        let may_overtake = matches!(op, LocalOp::Register(_));
        assert!(
            self.queues.taken.len() == 1 || may_overtake,
            "what came before is not complete"
        );
        match op {
            LocalOp::Bind(bind) if self.memory.open(bind.key.0) => Ok(()),
            LocalOp::Register(register) if self.memory.open(register.key.0) => Ok(()),
            LocalOp::Bind(_) | LocalOp::Register(_) => Err(Status::MwBind),
            LocalOp::Invalidate { rkey } => self
                .memory
                .invalidate(self.qp, rkey.0)
                .map_err(|_| Status::LocalQpOperation),
        }
    }

    fn retire(&mut self, payload: Option<Payload>, completion: Option<Completion>) {
        self.retire_send(payload, completion);
    }
}

impl DatagramSendHost for Host<'_> {
    type Payload = Payload;
    type Address = usize;

    fn next_datagram(&mut self) -> Taken<DatagramRequest<Payload, usize>> {
        let posted = self.queues.datagrams.pop_front()?;
        let entry = match &posted {
            Ok(request) => (request.wr_id, true),
            Err(bad) => (bad.wr_id, false),
        };
        self.queues.taken.push_back(entry);
        Some(posted)
    }

    fn retire(&mut self, payload: Option<Payload>, completion: Option<Completion>) {
        self.retire_send(payload, completion);
    }
}

impl RecvHost for Host<'_> {
    type Payload = Payload;
    type Grant = Grant;

    fn take_recv(&mut self) -> Option<Result<RecvRequest<Payload>, BadRequest>> {
        let queue = match &mut self.shared {
            Some(shared) => shared,
            None => &mut self.queues.receives,
        };
        let Some(posted) = queue.pop_front() else {
            self.oracle.no_receive(self.qp);
            return None;
        };
        let entry = match &posted {
            Ok(request) => (request.wr_id, true),
            Err(bad) => (bad.wr_id, false),
        };
        self.queues.taken_recvs.push_back(entry);
        self.oracle.receive_taken(self.qp, entry.0);
        Some(posted)
    }

    fn has_shared_queue(&self) -> bool {
        self.shared.is_some()
    }

    fn scatter(&mut self, to: &Payload, at: u32, from: Span) -> Result<(), Fault> {
        self.copy(to, at, from)
    }

    fn complete(&mut self, payload: Option<Payload>, completion: Completion) {
        let wr_id = self.pop_recv(payload.is_some());
        assert_eq!(completion.wr_id, wr_id, "another receive's completion");
        drop(payload);
        if self.queues.sabotage == Sabotage::ReceiveTwice && wr_id % 16 == 0 {
            self.oracle
                .received(self.qp, completion, self.memory, self.source);
        }
        self.oracle
            .received(self.qp, completion, self.memory, self.source);
    }

    fn discard(&mut self, payload: Payload) {
        let wr_id = self.pop_recv(true);
        drop(payload);
        self.oracle.discarded(self.qp, wr_id, self.memory);
    }

    fn authorize(
        &mut self,
        rkey: Rkey,
        iova: Iova,
        len: u32,
        access: Access,
    ) -> Result<Grant, AccessError> {
        assert!(len > 0, "an empty range needs no right");
        let token = self.queues.grants.token();
        self.memory
            .authorize(self.qp, rkey, iova, len, access, token)
    }

    fn invalidate(&mut self, rkey: Rkey) -> Result<(), AccessError> {
        self.memory.invalidate(self.qp, rkey.0)
    }

    fn place(&mut self, to: &Grant, at: u32, from: Span) -> Result<(), Fault> {
        self.queues.moved += u64::from(from.len);
        let bytes = self.span(from).to_vec();
        self.memory.place(to, at, &bytes)
    }

    fn place_atomically(&mut self, to: &Grant, from: Span) -> Result<(), Fault> {
        assert_eq!(from.len, 8, "an atomic WRITE of another size");
        let bytes = self.span(from).to_vec();
        self.memory.place(to, 0, &bytes)
    }

    fn flush(
        &mut self,
        rkey: Rkey,
        extent: Extent,
        placement: Placement,
    ) -> Result<(), FlushError> {
        self.memory.flush(self.qp, rkey, extent, placement)
    }

    fn atomic(&mut self, to: &Grant, op: AtomicOp) -> Result<u64, Fault> {
        self.memory.atomic(to, op)
    }
}

impl DatagramRecvHost for Host<'_> {
    fn scatter_grh(&mut self, to: &Payload) -> Result<(), Fault> {
        let mut header = [0; GRH_BYTES as usize];
        header[20] = 0x45;
        header[32..36].copy_from_slice(&self.source);
        self.put(to, 0, &header)
    }
}
