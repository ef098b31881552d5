// SPDX-License-Identifier: GPL-2.0

//! The states of a queue pair's halves, for all transports.

/// The state of a requester, or of a sender of datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendState {
    /// RESET, INIT or RTR: it has no PSN yet and takes no work.
    Idle,
    /// RTS.
    Running,
    /// SQD: it finishes the messages that it has begun.
    Draining,
    /// SQD: it has finished these messages.
    Drained,
    /// SQE: a request failed on an unreliable transport. Posted work is flushed until the owner
    /// resumes the queue.
    Stopped,
    /// ERR: posted work is flushed.
    Error,
}

/// The state of a responder, or of a receiver of datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecvState {
    /// RESET or INIT: it has no PSN yet. Receives may be posted and stay where they are.
    Idle,
    /// RTR, RTS or SQD.
    Running,
    /// It refused a request. It still has to send the replies that it owes for earlier requests,
    /// then the refusal. Posted receives are flushed.
    Failed,
    /// ERR: posted work is flushed.
    Error,
}
