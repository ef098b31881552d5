// SPDX-License-Identifier: GPL-2.0

//! The states of a queue pair's halves, whatever it transports by.

/// What a requester, or a sender of datagrams, is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendState {
    /// RESET, INIT or RTR: it has no PSN yet and takes no work.
    Idle,
    /// RTS.
    Running,
    /// SQD: it finishes what it has begun.
    Draining,
    /// SQD: it has finished what it had begun.
    Drained,
    /// SQE: a request failed on an unreliable transport. Whatever is posted is flushed, until the
    /// owner resumes it.
    Stopped,
    /// ERR: whatever is posted is flushed.
    Error,
}

/// What a responder, or a receiver of datagrams, is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecvState {
    /// RESET or INIT: it has no PSN yet. Receives may be posted and stay where they are.
    Idle,
    /// RTR, RTS or SQD.
    Running,
    /// It refused a request; replies that it owes for earlier ones, and the refusal, are still to
    /// be sent. Whatever is posted is flushed.
    Failed,
    /// ERR: whatever is posted is flushed.
    Error,
}
