// SPDX-License-Identifier: GPL-2.0

//! Every bound of the protocol, each with its reason.

/// The longest message: lengths on the wire have 32 bits, the standard allows half of that.
pub const MAX_MESSAGE_BYTES: u32 = 1 << 31;

/// Scatter-gather elements of one work request: what the stock provider lays out at most.
pub const MAX_SGE: usize = 32;

/// Inline bytes of one work request: the room of 32 SGEs.
pub const MAX_INLINE_BYTES: usize = MAX_SGE * 16;

/// Bytes at the start of a datagram's receive which its IP header gets.
pub const GRH_BYTES: u32 = 40;

/// READs and atomics that a responder keeps replies for, per queue pair: the largest value the
/// attribute `max_dest_rd_atomic` may take.
pub const MAX_RD_ATOMIC: u8 = 128;

/// PSNs that a requester may have outstanding. The standard allows 2^23; more in flight than
/// the receiver's queues hold only makes loss dearer.
pub const MAX_OUTSTANDING_PSNS: u32 = 512;

/// PSNs that a requester may have outstanding at first, before it knows what gets through.
pub const INITIAL_OUTSTANDING_PSNS: u32 = 128;

/// PSNs that a requester may have outstanding whatever was lost: enough to keep going.
pub const MIN_OUTSTANDING_PSNS: u32 = 16;

/// A retry count that never runs out (RNR only).
pub const RNR_RETRY_INFINITE: u8 = 7;

/// How often in a row the time that a requester waits for an acknowledgement doubles.
pub const MAX_TIMEOUT_DOUBLINGS: u32 = 2;

/// Requests that a requester's window may hold: one for each outstanding PSN, and one that waits.
pub const MAX_WINDOW_REQUESTS: usize = MAX_OUTSTANDING_PSNS as usize + 1;

/// Half the circle of PSNs: the most that may lie between the oldest outstanding PSN and the
/// next one, as a responder takes what is further back for something to come.
pub const PSN_HALF: u32 = 1 << 23;

/// A long message asks for an acknowledgement each time it has sent this many packets: often
/// enough that the window does not close before one is back, seldom enough to be cheap.
pub const ACK_REQ_INTERVAL: u32 = 64;

/// Requests for work on our own side that one call carries out: a process may post as fast.
pub const LOCAL_BATCH: u32 = 64;

/// Work requests that one call flushes: a process may post as fast as they are flushed.
pub const FLUSH_BATCH: u32 = 1024;
