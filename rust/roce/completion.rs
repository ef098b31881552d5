// SPDX-License-Identifier: GPL-2.0

//! Work completions.

use crate::num::{Imm, Qpn, Rkey};

/// How a work request ended; the numbers are those of `enum ib_wc_status`.
// Rules: CPL-23
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Status {
    /// It was executed.
    Success = 0,
    /// The message did not fit the memory it was for.
    LocalLength = 1,
    /// The request itself is invalid.
    LocalQpOperation = 2,
    /// The request's own memory may not be used so.
    LocalProtection = 4,
    /// The queue pair went into the error state first.
    Flushed = 5,
    /// A memory window could not be bound, or memory not be registered.
    MwBind = 6,
    /// The response was not a valid one for the request.
    BadResponse = 7,
    /// Access to memory failed on our side while a message arrived.
    LocalAccess = 8,
    /// The responder found the request invalid.
    RemoteInvalidRequest = 9,
    /// The responder does not grant the access.
    RemoteAccess = 10,
    /// The responder could not execute it.
    RemoteOperation = 11,
    /// The peer did not answer, however often asked.
    TransportRetryExceeded = 12,
    /// The peer's receiver was never ready.
    RnrRetryExceeded = 13,
    /// The requester was stopped by something else.
    General = 21,
}

/// The kind of work that completed; the numbers are those of `enum ib_wc_opcode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum CompletionOp {
    /// A SEND was sent.
    Send = 0,
    /// An RDMA WRITE was sent.
    Write = 1,
    /// An RDMA READ has its data.
    Read = 2,
    /// A compare-and-swap has returned the original value.
    CompareSwap = 3,
    /// A fetch-and-add has returned the original value.
    FetchAdd = 4,
    /// A memory window is bound.
    BindWindow = 5,
    /// A key is invalid.
    LocalInvalidate = 6,
    /// A FLUSH is through.
    Flush = 8,
    /// An atomic WRITE was executed.
    AtomicWrite = 9,
    /// Memory is registered. The kernel's alone: `enum ib_wc_opcode`.
    Register = 10,
    /// A SEND was received.
    Recv = 128,
    /// An RDMA WRITE with immediate data arrived.
    RecvRdmaWithImm = 129,
}

impl Status {
    /// Returns the status with that number.
    pub const fn from_code(code: u32) -> Option<Self> {
        Some(match code {
            0 => Self::Success,
            1 => Self::LocalLength,
            2 => Self::LocalQpOperation,
            4 => Self::LocalProtection,
            5 => Self::Flushed,
            6 => Self::MwBind,
            7 => Self::BadResponse,
            8 => Self::LocalAccess,
            9 => Self::RemoteInvalidRequest,
            10 => Self::RemoteAccess,
            11 => Self::RemoteOperation,
            12 => Self::TransportRetryExceeded,
            13 => Self::RnrRetryExceeded,
            21 => Self::General,
            _ => return None,
        })
    }
}

/// A work completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The name that the poster gave the request.
    pub wr_id: u64,
    /// How it ended. Unless it is [`Status::Success`], only `wr_id` and `qpn` mean anything
    /// beside it.
    pub status: Status,
    /// The kind of work.
    pub op: CompletionOp,
    /// Bytes received, READ or sent, or returned by an atomic operation.
    pub byte_len: u32,
    /// Immediate data, on the receive side.
    pub imm: Option<Imm>,
    /// The key that the message had us invalidate, on the receive side.
    pub invalidated: Option<Rkey>,
    /// The local queue pair.
    pub qpn: Qpn,
    /// The queue pair that sent it, on the receive side.
    pub src_qp: Qpn,
    /// The receive's memory starts with the IP header of the datagram.
    pub grh: bool,
    /// The receive side's message asked for an event, or the status is an error.
    pub solicited: bool,
}

impl Completion {
    /// Returns a completion of the request `wr_id` of the queue pair `qpn`, which sent or processed
    /// `byte_len` bytes.
    pub(crate) fn sent(qpn: Qpn, op: CompletionOp, wr_id: u64, byte_len: u32) -> Self {
        Self {
            wr_id,
            status: Status::Success,
            op,
            byte_len,
            imm: None,
            invalidated: None,
            qpn,
            src_qp: Qpn::default(),
            grh: false,
            solicited: false,
        }
    }

    /// Returns a completion for the failed request `wr_id` of the queue pair `qpn`.
    pub(crate) fn failure(qpn: Qpn, op: CompletionOp, wr_id: u64, status: Status) -> Self {
        Self {
            wr_id,
            status,
            op,
            byte_len: 0,
            imm: None,
            invalidated: None,
            qpn,
            src_qp: Qpn::default(),
            grh: false,
            // Rules: CPL-15
            solicited: true,
        }
    }
}
