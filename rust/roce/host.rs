// SPDX-License-Identifier: GPL-2.0

//! The outside world, as the protocol sees it.
//!
//! The protocol asks for everything through these traits and never touches payload bytes, a clock
//! or an allocator. A queue pair has two halves which share nothing: the requester (with its
//! completer) and the responder. Each has a lock of its own in the driver and so a host of its own
//! here. A host lives for one call into a half: it knows the queue pair, holds that half's lock
//! and, while a packet is handled, the packet.

use crate::completion::{Completion, Status};
use crate::event::{AsyncEvent, Event};
use crate::num::{Iova, Psn, Rkey};
use crate::wire::{HeaderBytes, ICRC_BYTES};
use crate::wr::{
    AtomicOp, BadRequest, DatagramRequest, LocalOp, Placement, RecvRequest, SendRequest,
};

/// A run of bytes in the payload of the packet being handled.
///
/// The requester and responder only make spans that lie within the payload length of the packet
/// that they were given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Where it starts, from the payload's first byte.
    pub offset: u32,
    /// Its length in bytes; may be 0.
    pub len: u32,
}

/// Why memory that was granted or posted cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It is gone, or cannot be reached any more.
    Gone,
    /// It exists, but is not in reach now. The access was not made, or in part, and may be
    /// repeated. The host brings the memory in, and lets the caller try again then.
    Absent,
}

/// The result of handling a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Handled {
    /// It is done with.
    Done,
    /// The packet needs memory that is [absent](Fault::Absent), and counts as not arrived. The host
    /// hands it in again once the memory is in reach, before any later packet.
    PutOff,
    /// The packet came before its turn, as an earlier one is missing. The host may keep it, and keeps
    /// one of each PSN. It hands kept packets in again, in the order of PSNs, after each packet that is
    /// [done](Self::Done). It drops a request that it cannot keep, as the network might have done.
    /// Of a response it [says so](crate::send::Requester::not_kept).
    Early,
}

/// The access to local memory that a peer requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// READ it.
    Read,
    /// WRITE it.
    Write,
    /// Execute an atomic operation on it.
    Atomic,
}

/// Which memory of a key's a FLUSH is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// All.
    Region,
    /// `len` bytes from `iova` on; may be none.
    Range {
        /// Where they start.
        iova: Iova,
        /// How many there are.
        len: u32,
    },
}

/// The key, the range or the right to it was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessError;

/// Why a FLUSH was not executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlushError {
    /// The key, the range or the right to it was refused.
    Refused,
    /// The memory cannot be used.
    Memory(Fault),
}

impl From<AccessError> for FlushError {
    fn from(AccessError: AccessError) -> Self {
        Self::Refused
    }
}

impl From<Fault> for FlushError {
    fn from(fault: Fault) -> Self {
        Self::Memory(fault)
    }
}

/// A work request that was taken, good or bad, if there was one.
pub type Taken<R> = Option<Result<R, BadRequest>>;

/// The receiver of events from both halves.
pub trait Observer {
    /// Counts `event`. Called under the half's lock, often once per packet: must be cheap.
    fn observe(&mut self, event: Event);

    /// Raises `event` for the queue pair's owner. Called under the half's lock: the host keeps it
    /// and dispatches it once the lock is dropped.
    fn raise(&mut self, event: AsyncEvent);
}

/// The world of a requester.
pub trait SendHost: Observer {
    /// Local memory of a send work request: an inline copy or a list of regions, resolved and
    /// held until it is given back by [`retire`](Self::retire).
    type Payload;

    /// Takes the oldest work request that was posted and not taken yet.
    ///
    /// The host copies it out of the shared ring once, decodes and checks the copy. A request
    /// that does not pass is returned as `Err` and keeps its place in the order.
    fn next_send(&mut self) -> Option<Result<SendRequest<Self::Payload>, BadRequest>>;

    /// Copies `from` of the current packet to byte `at` of a READ's local memory. `at + from.len`
    /// is within the request's length.
    fn scatter(&mut self, to: &Self::Payload, at: u32, from: Span) -> Result<(), Fault>;

    /// Stores the original value of an atomic operation, in the machine's own byte order, in its
    /// local memory of [`ATOMIC_BYTES`](crate::wr::ATOMIC_BYTES).
    // Rules: RDA-14
    fn put_original(&mut self, to: &Self::Payload, original: u64) -> Result<(), Fault>;

    /// Does work on our own side.
    ///
    /// # Errors
    ///
    /// The status that the request is to fail with, and the queue pair with it.
    fn carry_out(&mut self, op: &LocalOp) -> Result<(), Status>;

    /// Gives the oldest taken work request back: its slot in the send queue is free again.
    ///
    /// Called exactly once for each request that [`next_send`](Self::next_send) returned, in the
    /// order in which they were taken. `payload` is `None` for a request that came as `Err`.
    fn retire(&mut self, payload: Option<Self::Payload>, completion: Option<Completion>);
}

/// The host of a sender of datagrams.
pub trait DatagramSendHost: Observer {
    /// Local memory of a send work request, resolved and held until it is given back by
    /// [`retire`](Self::retire).
    type Payload;

    /// Where a datagram goes: an address handle, which it holds.
    type Address;

    /// Takes the oldest work request that was posted and not taken yet; as
    /// [`SendHost::next_send`].
    fn next_datagram(&mut self) -> Taken<DatagramRequest<Self::Payload, Self::Address>>;

    /// Gives the oldest taken work request back; as [`SendHost::retire`].
    fn retire(&mut self, payload: Option<Self::Payload>, completion: Option<Completion>);
}

/// The world of a responder.
pub trait RecvHost: Observer {
    /// Local memory of a receive work request, resolved and held until it is given back by
    /// [`complete`](Self::complete).
    type Payload;

    /// Proof of a passed access check. It holds the region, and every use of it stays within the
    /// range that was checked.
    type Grant;

    /// Takes the oldest receive work request, from the receive queue or the shared one.
    fn take_recv(&mut self) -> Option<Result<RecvRequest<Self::Payload>, BadRequest>>;

    /// Returns true if receives come from a shared receive queue. This queue pair does not flush
    /// the receives posted there.
    fn has_shared_queue(&self) -> bool {
        false
    }

    /// Copies `from` of the current packet to byte `at` of a receive's memory. `at + from.len` is
    /// within the request's length.
    fn scatter(&mut self, to: &Self::Payload, at: u32, from: Span) -> Result<(), Fault>;

    /// Gives a receive back with its completion. Each receive that [`take_recv`](Self::take_recv)
    /// returned is given back exactly once, in that order, unless it is [discarded](Self::discard).
    /// `payload` is `None` for a receive that came as `Err`.
    fn complete(&mut self, payload: Option<Self::Payload>, completion: Completion);

    /// Gives a receive back without a completion, as the queue pair is reset.
    fn discard(&mut self, payload: Self::Payload);

    /// Checks that the peer may do `access` to the `len` bytes at `iova` by `rkey`.
    ///
    /// Not called for an empty range, which needs no right.
    fn authorize(
        &mut self,
        rkey: Rkey,
        iova: Iova,
        len: u32,
        access: Access,
    ) -> Result<Self::Grant, AccessError>;

    /// Invalidates `rkey` for the peer: no access by it is authorized any more.
    ///
    /// # Errors
    ///
    /// [`AccessError`] if it is no key of this protection domain, or of memory that peers may not
    /// invalidate.
    fn invalidate(&mut self, rkey: Rkey) -> Result<(), AccessError>;

    /// Copies `from` of the current packet to byte `at` of the granted range.
    fn place(&mut self, to: &Self::Grant, at: u32, from: Span) -> Result<(), Fault>;

    /// Stores the eight bytes `from` of the current packet in the granted range in one step. The
    /// range starts at a multiple of eight.
    fn place_atomically(&mut self, to: &Self::Grant, from: Span) -> Result<(), Fault>;

    /// Makes the data written to the memory of `rkey` reach `placement` before it returns.
    ///
    /// # Errors
    ///
    /// [`FlushError`] if the key, the range or the access is refused, or the memory cannot be used.
    /// If the memory is [absent](Fault::Absent), a part of the data may have reached its placement.
    fn flush(&mut self, rkey: Rkey, extent: Extent, placement: Placement)
        -> Result<(), FlushError>;

    /// Applies `op` to the granted range of [`ATOMIC_BYTES`](crate::wr::ATOMIC_BYTES), which starts
    /// at a multiple of that. Returns the original value. The operation is atomic for all other
    /// users of that memory, CPUs of this machine included.
    fn atomic(&mut self, to: &Self::Grant, op: AtomicOp) -> Result<u64, Fault>;
}

/// The host of a receiver of datagrams.
pub trait DatagramRecvHost: RecvHost {
    /// Copies the IP header of the current packet to the start of a receive's memory, which has at
    /// least [`GRH_BYTES`](crate::limits::GRH_BYTES). An IPv6 header fills these bytes; an IPv4
    /// header fills the last of them.
    // Rules: UDX-4
    fn scatter_grh(&mut self, to: &Self::Payload) -> Result<(), Fault>;
}

/// Where the payload of a packet to send comes from.
#[derive(Debug)]
pub enum Source<'a, P> {
    /// It has none.
    Empty,
    /// `len` bytes from byte `at` of `memory`; `len` is at least 1.
    Bytes {
        /// A send request's payload or a READ's grant.
        memory: &'a P,
        /// Where in it to start.
        at: u32,
        /// Bytes, at most the path MTU.
        len: u32,
    },
}

impl<P> Source<'_, P> {
    /// Returns the number of payload bytes.
    #[inline]
    pub fn len(&self) -> u32 {
        match self {
            Self::Empty => 0,
            Self::Bytes { len, .. } => *len,
        }
    }

    /// Returns true if there is no payload.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A packet to send: the headers, then `source`, then `pad` bytes of 0, then the ICRC.
#[derive(Debug)]
pub struct Transmit<'a, P> {
    /// BTH and extension headers, complete.
    pub header: HeaderBytes,
    /// The payload.
    pub source: Source<'a, P>,
    /// Bytes of 0 after the payload, 0 ..= 3.
    pub pad: u8,
    /// The packet's number, by which to report that `source` cannot be read.
    pub psn: Psn,
    /// The PSNs that it stands for: more than 1 only of a [bundle](crate::num::Bundle).
    pub psns: u32,
}

impl<P> Transmit<'_, P> {
    /// Returns the length of the UDP payload: headers, payload, pad and ICRC.
    #[inline]
    pub fn udp_payload_len(&self) -> u32 {
        let header = self.header.as_bytes().len() as u32;
        let payload = match self.source {
            Source::Empty => 0,
            Source::Bytes { len, .. } => len,
        };
        header
            .wrapping_add(payload)
            .wrapping_add(u32::from(self.pad))
            .wrapping_add(ICRC_BYTES)
    }
}

/// Whether a flush is through.
///
/// One call takes at most [`FLUSH_BATCH`](crate::limits::FLUSH_BATCH) posted work requests, as a
/// process can post as fast as they are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Flush {
    /// Nothing was left when it ended.
    Done,
    /// More may be posted: call again, later, without holding the CPU.
    More,
}
