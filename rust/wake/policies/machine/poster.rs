// SPDX-License-Identifier: GPL-2.0

//! Processes that post.

use std::collections::VecDeque;

/// The way in which a process polls for completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Poll {
    /// Only when it cannot post.
    Full,
    /// After each post.
    Each,
    /// It sleeps until there is one, when it can post no more.
    Events,
}

/// The work of each process of a workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) threads: usize,
    /// Of each thread.
    pub(crate) qps: usize,
    pub(crate) size: u32,
    /// Requests outstanding of a queue pair.
    pub(crate) depth: u64,
    /// Requests of a doorbell.
    pub(crate) list: u64,
    /// Messages of each thread.
    pub(crate) messages: u64,
    pub(crate) poll: Poll,
    /// Messages after which it waits for all, and for so many nanoseconds more.
    pub(crate) burst: Option<(u64, u64)>,
    /// Each message waits for one of the peer.
    pub(crate) is_ping_pong: bool,
    /// The messages are READs of one packet, of which so many may be outstanding for a queue pair.
    pub(crate) reads: Option<u64>,
}

pub(crate) const STREAM: Load = Load {
    threads: 1,
    qps: 1,
    size: 64,
    depth: 128,
    list: 1,
    messages: 4_000,
    poll: Poll::Full,
    burst: None,
    is_ping_pong: false,
    reads: None,
};

/// The event that a process waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Nothing: it runs, or is about to.
    No,
    /// It polls.
    Spins,
    Sleeps,
    /// Its time to rest is over.
    Rests,
    Done,
}

pub(crate) struct Poster {
    pub(crate) cpu: usize,
    pub(crate) qps: Vec<usize>,
    pub(crate) load: Load,
    pub(crate) is_server: bool,
    pub(crate) wait: Wait,
    pub(crate) posted: u64,
    pub(crate) seen: u64,
    pub(crate) received: u64,
    /// The queue pairs of completions that it has not seen.
    pub(crate) completions: VecDeque<usize>,
    /// It was woken by an event.
    pub(crate) is_woken: bool,
    pub(crate) has_just_posted: bool,
    pub(crate) turn: usize,
    pub(crate) rested: u64,
    pub(crate) rests_at: u64,
    pub(crate) end: u64,
}

impl Poster {
    pub(crate) fn new(cpu: usize, qps: Vec<usize>, load: Load, is_server: bool) -> Self {
        Self {
            cpu,
            qps,
            load,
            is_server,
            wait: Wait::No,
            posted: 0,
            seen: 0,
            received: 0,
            completions: VecDeque::new(),
            is_woken: false,
            has_just_posted: false,
            turn: 0,
            rested: 0,
            rests_at: load.burst.map_or(u64::MAX, |(burst, _)| burst),
            end: 0,
        }
    }

    /// Returns true if it may post, apart from the depth of a queue pair.
    pub(crate) fn may_post(&self) -> bool {
        if self.posted >= self.load.messages || self.posted >= self.rests_at {
            return false;
        }
        match (self.load.is_ping_pong, self.is_server) {
            (false, _) => true,
            (true, false) => self.received >= self.posted && self.seen >= self.posted,
            (true, true) => self.received > self.posted,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.seen >= self.load.messages
    }
}
