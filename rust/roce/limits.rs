// SPDX-License-Identifier: GPL-2.0

//! Every bound of the protocol, each with its reason.

/// The longest message: lengths on the wire have 32 bits, the standard allows half of that.
pub const MAX_MESSAGE_BYTES: u32 = 1 << 31;

/// Scatter-gather elements of one work request: the most that the stock provider lays out.
pub const MAX_SGE: usize = 32;

/// Inline bytes of one work request: the room of 32 SGEs.
pub const MAX_INLINE_BYTES: usize = MAX_SGE * 16;

/// Bytes at the start of a datagram's receive which its IP header gets.
pub const GRH_BYTES: u32 = 40;

/// READs and atomics that a responder keeps replies for, per queue pair: the largest value the
/// attribute `max_dest_rd_atomic` may take.
pub const MAX_RD_ATOMIC: u8 = 128;

/// PSNs that a requester may have outstanding. The standard allows 2^23. More than the receiver's
/// queues hold only makes loss more expensive. 4096 fill 10 Gbit/s with a round trip of 3 ms.
pub const MAX_OUTSTANDING_PSNS: u32 = 4096;

/// PSNs that a requester may have outstanding on a short path, or while packets queue on the path.
pub const SHORT_OUTSTANDING_PSNS: u32 = 512;

/// The shortest round trip of a long way, in nanoseconds.
pub const LONG_ROUND_TRIP_NS: u32 = 250_000;

/// PSNs that a requester may have outstanding at first, before it has measured the path.
pub const INITIAL_OUTSTANDING_PSNS: u32 = 128;

/// PSNs that a requester may have outstanding after any number of losses: enough to continue.
pub const MIN_OUTSTANDING_PSNS: u32 = 16;

/// PSNs that a requester may have outstanding on a congested path: one on its way, and one that is
/// acknowledged.
pub const MIN_CONGESTED_PSNS: u32 = 2;

/// The time between two congestion notification packets of one queue pair, in microseconds.
pub const CNP_INTERVAL_US: u32 = 50;

/// How far ahead of its turn a packet may be to be kept. A host has room for as many packets of each
/// half. 1024 of them, each in pages of 8 KiB, are what a process may have kept. They fill 10 Gbit/s with
/// a round trip of 0.8 ms, or of 3 ms with the largest MTU.
pub const MAX_EARLY_PSNS: u32 = 1024;

/// A retry count that never runs out (RNR only).
pub const RNR_RETRY_INFINITE: u8 = 7;

/// How often in a row the time that a requester waits for an acknowledgement doubles.
pub const MAX_TIMEOUT_DOUBLINGS: u32 = 2;

/// Requests that a requester's window may hold: one for each PSN that is outstanding on a short
/// path, and one that waits.
pub const MAX_WINDOW_REQUESTS: usize = SHORT_OUTSTANDING_PSNS as usize + 1;

/// Packets that are sent again in a row while those behind them are taken as kept by the peer. A peer that
/// lacks more than that has lost almost all that was outstanding.
pub const MAX_REPAIR_PACKETS: u16 = 64;

/// Losses after which a peer that did not keep packets is tried again.
pub const RETRY_KEEPING: u8 = 32;

/// Packets that are lost at once if the network passes them as one train.
pub const MAX_TRAIN_PACKETS: u16 = 16;

/// How many PSNs behind a repair the peer must have to be taken to keep packets. Fewer may be late.
pub const KEEPING_PROOF_PSNS: u32 = 8;

/// How long an answer may take before the first was measured, in nanoseconds.
pub const INITIAL_PATIENCE_NS: u64 = 2_000_000;

/// The longest round trip that is measured, in nanoseconds. Slower packets wait for the queue
/// pair's timeout.
pub const MAX_ROUND_TRIP_NS: u32 = 500_000_000;

/// The shortest time without an answer after which it is asked for again, in nanoseconds: a timer has to be
/// cheap, and a receiver may be late for its CPU.
pub const MIN_PROBE_NS: u64 = 2_000_000;

/// The shortest time until a requester asks again for the answer to a retransmission, in
/// nanoseconds. A retransmission is worth a timer.
pub const MIN_REPAIR_PROBE_NS: u64 = 100_000;

/// How often in a row the time until the next such question doubles.
pub const MAX_PROBE_DOUBLINGS: u8 = 8;

/// Responses that are asked for again when nothing was heard. More of them may be slow, and twice as many would
/// make them slower.
pub const MAX_PROBE_RESPONSES: u16 = 4;

/// The largest distance of losses from each other that matters, in PSNs. Losses that are further apart are alone in
/// a window.
pub const LONG_DISTANCE_PSNS: u16 = MAX_OUTSTANDING_PSNS as u16;

/// The shortest round trip that is worth to send packets again which may be lost, in nanoseconds. On a shorter
/// path that takes longer than to ask for each gap.
pub const MIN_GUESS_ROUND_TRIP_NS: u64 = 50_000;

/// The longest time to wait for a packet that others overtook, in microseconds.
pub const MAX_LATE_US: u16 = 10_000;

/// Losses after which late packets count as lost again.
pub const LATE_LOSSES: u8 = 16;

/// Half the circle of PSNs: the most that may lie between the oldest outstanding PSN and the next
/// one. A responder takes a PSN that is further back for a later one.
pub const PSN_HALF: u32 = 1 << 23;

/// A long message asks for an acknowledgement each time it has sent this many packets: often
/// enough that the window does not close before one is back, seldom enough to be cheap.
pub const ACK_REQ_INTERVAL: u32 = 64;

/// Local requests that one call executes: a process may post as fast.
pub const LOCAL_BATCH: u32 = 64;

/// Work requests that one call flushes: a process may post as fast as they are flushed.
pub const FLUSH_BATCH: u32 = 1024;
