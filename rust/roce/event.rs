// SPDX-License-Identifier: GPL-2.0

//! Everything worth counting. The protocol reports events; the host maps them to counters and
//! tracepoints, and tests record them.

use crate::wire::ParseError;

/// Something that happened.
// Rules: KEY-6
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A request arrived whose PSN was already executed.
    DuplicateRequest,
    /// A request arrived ahead of its turn. Requests behind one that found no receive do not count:
    /// the peer sends them again, and nothing was lost.
    OutOfSequenceRequest,
    /// We told the peer that no receive was posted.
    RnrNakSent,
    /// The peer told us that no receive was posted.
    RnrNakReceived,
    /// We told the peer that a packet is missing.
    SequenceNakSent,
    /// The peer told us that a packet is missing.
    SequenceNakReceived,
    /// We refused a request as invalid.
    InvalidRequestNakSent,
    /// We refused access to memory.
    RemoteAccessNakSent,
    /// A request of the peer could not be executed.
    RemoteOperationNakSent,
    /// A response of a READ came out of order, so some were lost.
    ResponseGap,
    /// The peer did not answer in time.
    AckTimeout,
    /// Packets were sent again.
    Retransmit,
    /// A packet was sent again as nothing was heard of the peer for some round trips.
    Probe,
    /// A request failed as the peer never answered.
    RetryExceeded,
    /// A request failed as the peer's receiver was never ready.
    RnrRetryExceeded,
    /// An acknowledgement was saved: one packet answered for more than one request.
    AckCoalesced,
    /// A packet was dropped as its opcode is unknown or not for this transport.
    BadOpcode,
    /// A packet was dropped as its P_Key does not match.
    BadPkey,
    /// A packet was dropped as reserved bits, length, pad or version were not right.
    BadHeader,
    /// A packet was dropped as the queue pair's state does not take it.
    BadState,
    /// A datagram was dropped as its Q_Key is not the queue pair's.
    BadQkey,
    /// A message without acknowledgements was dropped as no receive was posted for it.
    NoReceive,
    /// A message without acknowledgements was dropped: it is too long, lost a part, or lacks the
    /// access that it needs.
    MessageDropped,
    /// A response was dropped as it answers nothing that is outstanding.
    StaleResponse,
    /// A message of the peer with one completion was executed.
    MessageReceived,
    /// A message of ours was acknowledged.
    MessageSent,
}

/// Something that the owner of a queue pair is told by an asynchronous event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AsyncEvent {
    /// The first packet arrived before the queue pair was moved to RTS.
    CommunicationEstablished,
    /// The send queue has drained, as was asked for.
    SendQueueDrained,
    /// The queue pair is in the error state for a reason of its own.
    Fatal,
    /// The responder refused a request as invalid, and the queue pair is in the error state.
    RequestError,
    /// The responder refused access, and the queue pair is in the error state.
    AccessError,
    /// The queue pair is in the error state and takes nothing more from its shared receive queue.
    LastWqeReached,
}

impl ParseError {
    /// Returns the event that counts this error.
    // Rules: VAL-11
    pub const fn event(self) -> Event {
        match self {
            Self::Opcode => Event::BadOpcode,
            Self::Truncated | Self::Alignment | Self::Payload | Self::Version | Self::Syndrome => {
                Event::BadHeader
            }
        }
    }
}
