// SPDX-License-Identifier: GPL-2.0

//! Validated work requests, the input of requester and responder.
//!
//! A request comes in a ring slot, in memory of the poster's process. Types of this module are
//! copies, checked once, that nothing outside the driver can change.

use crate::completion::Status;
use crate::num::{Imm, Iova, Lkey, Qkey, Qpn, Rkey};

pub use crate::wire::{Flush, Placement};

/// The size of the operand and of the result of an atomic operation.
pub const ATOMIC_BYTES: u32 = 8;

/// Memory of the peer that a request names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// Where it starts.
    pub iova: Iova,
    /// The key that opens it.
    pub rkey: Rkey,
}

/// An atomic operation on eight bytes.
// Rules: RDA-12, RDA-13
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicOp {
    /// Stores `swap` if they are `compare`.
    CompareSwap {
        /// The value to compare with.
        compare: u64,
        /// The value to store.
        swap: u64,
    },
    /// Adds `add`; wraps.
    FetchAdd {
        /// The addend.
        add: u64,
    },
}

/// Work on the queue pair's own side, of which no packet tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalOp {
    /// Bind a memory window.
    Bind(Bind),
    /// Invalidate a key.
    Invalidate {
        /// The key.
        rkey: Rkey,
    },
    /// Make memory that was laid out before a region's.
    Register(Register),
}

/// How to register memory by a work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Register {
    /// The region's key from now on; all but its low byte says which region.
    pub key: Rkey,
    /// The address of its first byte for users and peers.
    pub iova: Iova,
    /// The granted access: `enum ib_access_flags`.
    pub access: u32,
}

/// How to bind a memory window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bind {
    /// The window, by its key of now.
    pub window: Rkey,
    /// Its key from now on; only the low byte counts.
    pub key: Rkey,
    /// The region that it is to show, by its local key.
    pub lkey: Lkey,
    /// Where in the region the window starts.
    pub iova: Iova,
    /// Bytes of the window; 0 takes one of type 1 away.
    pub length: u64,
    /// The granted access: `enum ib_access_flags`.
    pub access: u32,
}

/// The operation of a send work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOp {
    /// SEND, with immediate data if there are any.
    Send {
        /// Immediate data for the receive completion.
        imm: Option<Imm>,
    },
    /// SEND that has the receiver invalidate a key.
    SendInvalidate {
        /// The receiver's key.
        rkey: Rkey,
    },
    /// RDMA WRITE, with immediate data (which consume a receive) if there are any.
    Write {
        /// The destination.
        remote: Remote,
        /// Immediate data for the receive completion.
        imm: Option<Imm>,
    },
    /// RDMA READ.
    Read {
        /// The source.
        remote: Remote,
    },
    /// An atomic operation. Its length is [`ATOMIC_BYTES`].
    Atomic {
        /// The operand in the peer's memory.
        remote: Remote,
        /// The operation.
        op: AtomicOp,
    },
    /// An atomic WRITE. Its length is [`ATOMIC_BYTES`].
    AtomicWrite {
        /// The destination.
        remote: Remote,
    },
    /// A FLUSH. It has no local memory; its length is that of the peer's.
    Flush {
        /// The written memory.
        remote: Remote,
        /// The scope and placement.
        flush: Flush,
    },
    /// Work on our own side. It has neither local memory nor length.
    Local(LocalOp),
}

impl SendOp {
    /// Returns true if the operation writes local memory instead of sending from it.
    #[inline]
    pub const fn writes_locally(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::Atomic { .. })
    }
}

/// Flags of a send work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendFlags {
    /// Wait for all earlier READs and atomics of this queue to complete.
    pub fence: bool,
    /// Success makes a completion too (failure always does).
    pub signaled: bool,
    /// Raise an event at the receiver, if it armed for solicited ones.
    pub solicited: bool,
}

/// A validated send work request.
///
/// `P` is the host's: the local memory of the request, resolved and held.
#[derive(Debug)]
pub struct SendRequest<P> {
    /// The poster's name for it.
    pub wr_id: u64,
    /// The operation.
    pub op: SendOp,
    /// How.
    pub flags: SendFlags,
    /// Bytes of the message, at most [`MAX_MESSAGE_BYTES`](crate::limits::MAX_MESSAGE_BYTES).
    pub length: u32,
    /// The source of the payload, or the destination of READ data or of an atomic's original value.
    /// `length` bytes of it are used.
    pub payload: P,
}

/// The queue pair that a datagram is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatagramDest {
    /// Its number.
    pub qpn: Qpn,
    /// The key that it must have. A [privileged](Qkey::is_privileged) one stands for that of the
    /// sender's own queue pair.
    pub qkey: Qkey,
}

/// A validated work request to send a datagram.
///
/// `P` and `A` are the host's: the local memory of the request, and where the datagram goes, both
/// resolved and held.
#[derive(Debug)]
pub struct DatagramRequest<P, A> {
    /// The poster's name for it.
    pub wr_id: u64,
    /// The queue pair that it is for.
    pub dest: DatagramDest,
    /// Immediate data for the receive completion.
    pub imm: Option<Imm>,
    /// How.
    pub flags: SendFlags,
    /// Bytes of the message.
    pub length: u32,
    /// The memory to send from, `length` bytes of it.
    pub payload: P,
    /// Where it goes.
    pub address: A,
}

/// A validated receive work request.
#[derive(Debug)]
pub struct RecvRequest<P> {
    /// The poster's name for it.
    pub wr_id: u64,
    /// Bytes that it has room for.
    pub length: u32,
    /// The memory to receive into.
    pub payload: P,
}

/// A work request that did not pass validation. It still occupies its place in its queue and
/// completes in its turn, with an error.
// Rules: WRQ-8
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadRequest {
    /// The poster's name for it.
    pub wr_id: u64,
    /// The status of the completion.
    pub status: Status,
}
