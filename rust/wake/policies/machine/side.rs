// SPDX-License-Identifier: GPL-2.0

//! The driver's state of a queue pair: as `stream.rs`, `steering.rs` and `backlog.rs` keep it.

use std::collections::VecDeque;
use std::mem;

use super::Load;
use crate::policy::{Arrivals, Depth, Placement, Sent, Serve, Stamp, StreamHints, BATCH};
use crate::wake::{self, Came};

/// A packet of a queue pair.
#[derive(Clone, Copy)]
pub(crate) enum Packet {
    /// A packet of a request, by its number.
    Request(u64),
    /// Acknowledges all packets before this one.
    Ack(u64),
    /// The response to the READ of that number.
    Answer(u64),
}

impl Packet {
    /// Returns the packet of a train that is `count` behind this one.
    pub(crate) fn behind(self, count: u64) -> Self {
        match self {
            Self::Request(number) => Self::Request(number + count),
            Self::Answer(number) => Self::Answer(number + count),
            Self::Ack(_) => self,
        }
    }

    pub(crate) fn is_request(self) -> bool {
        matches!(self, Self::Request(_))
    }
}

pub(crate) struct Stream {
    depth: u32,
    pub(crate) is_idle: bool,
    pub(crate) heard: bool,
    posted_on: Option<usize>,
    is_crowded: bool,
    behind: u32,
}

impl Stream {
    fn new() -> Self {
        Self {
            depth: Depth::new().to_bits(),
            is_idle: true,
            heard: true,
            posted_on: None,
            is_crowded: false,
            behind: 0,
        }
    }

    pub(crate) fn ring(&mut self, has_polled: bool, has_another_cpu: bool) -> Serve {
        let was_idle = mem::take(&mut self.is_idle) & mem::take(&mut self.heard) && has_polled;
        let (depth, serve) = Depth::from_bits(self.depth).ring(was_idle, || has_another_cpu);
        self.depth = depth.to_bits();
        if serve == Serve::Here {
            self.is_crowded = false;
        }
        serve
    }

    pub(crate) fn is_one(&self) -> bool {
        Depth::from_bits(self.depth).is_stream()
    }

    pub(crate) fn place(&mut self, here: usize, other: Option<usize>) -> Placement<usize> {
        self.posted_on = Some(here);
        if other.is_none() {
            self.behind = (self.behind + 1) % BATCH;
        }
        let hints = StreamHints {
            other,
            is_crowded: self.is_crowded,
            is_batch_full: other.is_none() && self.behind == 0,
        };
        hints.place()
    }

    pub(crate) fn note_run(&mut self, here: usize) {
        self.is_crowded |= self.posted_on == Some(here);
    }
}

pub(crate) struct LastSent {
    pub(crate) cpu: Option<usize>,
    pub(crate) at: Stamp,
    much_at: Stamp,
}

impl LastSent {
    fn new() -> Self {
        Self {
            cpu: None,
            at: Stamp(0),
            much_at: Stamp(0),
        }
    }

    pub(crate) fn note(&mut self, cpu: usize, now: u64) {
        self.cpu = Some(cpu);
        self.at = Stamp::new(now);
    }

    pub(crate) fn note_much(&mut self, now: u64) {
        self.much_at = Stamp::new(now);
    }

    /// Returns the sending CPU if it is not `here`, and its packets may be overtaken.
    pub(crate) fn ahead(
        &self,
        here: usize,
        is_acknowledged: bool,
        may_be_overtaken: impl FnOnce(Sent) -> bool,
    ) -> Option<usize> {
        let sent = Sent {
            at: self.at,
            much_at: self.much_at,
            is_acknowledged,
        };
        wake::ahead(self.cpu, here, || may_be_overtaken(sent), |_| true)
    }
}

#[derive(Default)]
pub(crate) struct Backlog {
    pub(crate) is_open: bool,
    pub(crate) is_left: bool,
    pub(crate) from: Option<usize>,
    pub(crate) packets: VecDeque<Packet>,
}

impl Backlog {
    pub(crate) fn origin(&self, here: usize) -> Option<usize> {
        if !self.is_open {
            return None;
        }
        wake::origin(self.from, here)
    }
}

/// Work items of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Run,
    Send,
    Reply,
    Backlog,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Item {
    pub(crate) is_pending: bool,
    pub(crate) queued_at: u64,
    /// Where and until when it runs.
    pub(crate) cpu: Option<usize>,
    pub(crate) until: u64,
}

/// A queue pair, at one end.
pub(crate) struct Qp {
    pub(crate) peer: usize,
    pub(crate) poster: Option<usize>,
    pub(crate) load: Load,
    pub(crate) stream: Stream,
    pub(crate) last_sent: LastSent,
    pub(crate) last_replied: LastSent,
    pub(crate) in_flight: u32,
    pub(crate) wants_credit: bool,
    pub(crate) timer: Option<u64>,
    pub(crate) items: [Item; 4],
    pub(crate) backlog: Backlog,
    /// When the lock of the send half is free, and of the receive half.
    pub(crate) send_free: u64,
    pub(crate) recv_free: u64,
    /// Messages that were posted, retired, completed in the queue, and seen by the poster.
    pub(crate) posted: u64,
    pub(crate) retired: u64,
    pub(crate) complete: u64,
    pub(crate) seen: u64,
    /// Packets.
    pub(crate) sent: u64,
    pub(crate) acked: u64,
    pub(crate) expected: u64,
    pub(crate) owed: u64,
    pub(crate) replied: u64,
    pub(crate) arrivals: Arrivals,
    pub(crate) responses: Arrivals,
}

/// Packets of a queue pair that may wait for an acknowledgement.
const WINDOW: u64 = 512;
/// The payload of a packet.
const MTU: u32 = 4096;
/// The most payload bytes and frames of a train.
const TRAIN_BYTES: u32 = 60 << 10;
const TRAIN_FRAMES: u32 = 63;

impl Qp {
    pub(crate) fn new(peer: usize, poster: Option<usize>, load: Load) -> Self {
        Self {
            peer,
            poster,
            load,
            stream: Stream::new(),
            last_sent: LastSent::new(),
            last_replied: LastSent::new(),
            in_flight: 0,
            wants_credit: false,
            timer: None,
            items: [Item::default(); 4],
            backlog: Backlog::default(),
            send_free: 0,
            recv_free: 0,
            posted: 0,
            retired: 0,
            complete: 0,
            seen: 0,
            sent: 0,
            acked: 0,
            expected: 0,
            owed: 0,
            replied: 0,
            arrivals: Arrivals::default(),
            responses: Arrivals::default(),
        }
    }

    /// Returns the number of packets of a message.
    pub(crate) fn packets(&self) -> u64 {
        u64::from(self.load.size.div_ceil(MTU).max(1))
    }

    /// Returns the payload of a packet.
    pub(crate) fn bytes(&self, packet: Packet) -> u32 {
        match packet {
            Packet::Ack(_) => 0,
            Packet::Answer(_) => self.load.size,
            Packet::Request(_) if self.load.reads.is_some() => 0,
            Packet::Request(number) if self.is_last(number) => {
                self.load.size - (self.packets() as u32 - 1) * MTU
            }
            Packet::Request(_) => MTU,
        }
    }

    /// Returns the number of packets that may be outstanding.
    pub(crate) fn window(&self) -> u64 {
        self.load.reads.unwrap_or(WINDOW)
    }

    /// Counts the response to a READ, after which `acked` packets are answered. Returns true if it allows requests,
    /// and others may come with it.
    pub(crate) fn is_one_of_many(&mut self, acked: u64) -> bool {
        let is_last = acked >= self.sent;
        self.has_left() && !is_last && self.responses.note() != Came::Alone
    }

    pub(crate) fn is_last(&self, packet: u64) -> bool {
        (packet + 1) % self.packets() == 0
    }

    /// Frames of a train.
    pub(crate) fn train(&self) -> u32 {
        (TRAIN_BYTES / self.load.size.clamp(1, MTU)).min(TRAIN_FRAMES)
    }

    pub(crate) fn has_left(&self) -> bool {
        self.sent < self.posted * self.packets()
    }

    pub(crate) fn owes(&self) -> bool {
        self.owed > self.replied
    }
}
