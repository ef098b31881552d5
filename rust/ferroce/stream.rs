// SPDX-License-Identifier: GPL-2.0

//! Where requests of a stream are sent, and requests that come alone.
//!
//! A poster that waits for each request is served fastest at once, in its own context. A poster that
//! posts on is not: each request would be sent, received and acknowledged by itself. Such a stream is
//! left to a work item, which finds many requests at a time, so that there is one acknowledgement for
//! all of them, and which runs beside the poster, on another CPU. Which poster it is
//! [`Depth`] tells.

use core::mem;

use kernel::cpu::CpuId;
use kernel::sync::atomic::Atomic;
use rdma::sync::Marked;
use rdma::work::another_cpu;

use crate::policy::{Depth, Serve};
use crate::wake::Came;

/// Doorbells of a stream after which what waits is sent, where there is one CPU.
const BATCH: u32 = 32;

/// Requests in a row that are taken to come alone before it is looked at again.
const TRUST: u8 = 16;

/// Tells how doorbells are to be served, and where to send if that is beside the poster.
///
/// All of it is a guess, from which nothing but speed depends: nothing here is ordered or exact.
pub(crate) struct Stream {
    /// The bits of a [`Depth`].
    depth: Atomic<u32>,
    /// All requests are complete that were posted before the last doorbell.
    is_idle: Atomic<bool>,
    /// Something came since the last doorbell that may have been waited for.
    heard: Atomic<bool>,
    /// The CPU of the last doorbell.
    posted_on: Atomic<u32>,
    /// The scheduler had the work item run there, too: it has no idle CPU.
    is_crowded: Atomic<bool>,
    /// Doorbells since one sent what waited, where there is one CPU; fewer than [`BATCH`].
    behind: Atomic<u32>,
}

/// Where to send what is posted.
pub(crate) enum Place {
    /// Where the scheduler likes: it knows idle CPUs.
    Anywhere,
    /// On another CPU than that of who posts, idle or not.
    On(CpuId),
    /// Here, now: there is no other CPU, and enough waits.
    Here,
    /// Here, soon: there is no other CPU.
    Soon,
}

impl Stream {
    pub(crate) const fn new() -> Self {
        Self {
            depth: Atomic::new(Depth::new().to_bits()),
            is_idle: Atomic::new(true),
            heard: Atomic::new(true),
            posted_on: Atomic::new(u32::MAX),
            is_crowded: Atomic::new(false),
            behind: Atomic::new(0),
        }
    }

    /// All requests that were posted are complete.
    #[inline]
    pub(crate) fn note_idle(&self) {
        if !self.is_idle.read_once() {
            self.is_idle.write_once(true);
        }
    }

    /// There was a completion, or a request of the peer.
    #[inline]
    pub(crate) fn hear(&self) {
        if !self.heard.read_once() {
            self.heard.write_once(true);
        }
    }

    fn depth(&self) -> Depth {
        Depth::from_bits(self.depth.read_once())
    }

    /// A doorbell rang. Returns how it is to be served.
    ///
    /// `is_answered` says whether requests are complete when the peer has answered: what is complete as
    /// soon as it is sent needs no probe, and its poster may count on that. `has_polled` says whether
    /// the owner has seen all completions.
    #[inline]
    pub(crate) fn ring(&self, is_answered: bool, has_polled: impl FnOnce() -> bool) -> Serve {
        // Who waits sees what it waits for. A request without a completion is not waited for.
        let was_idle = take(&self.is_idle) & take(&self.heard) && has_polled();
        let may_probe = || is_answered && another_cpu(CpuId::current()).is_some();
        let (depth, serve) = self.depth().ring(was_idle, may_probe);
        self.depth.write_once(depth.to_bits());
        if serve == Serve::Here && self.is_crowded.read_once() {
            self.is_crowded.write_once(false);
        }
        serve
    }

    /// Whether the last doorbells were those of a stream.
    pub(crate) fn is_one(&self) -> bool {
        self.depth().is_stream()
    }

    /// Where to send what is posted on this CPU.
    pub(crate) fn place(&self) -> Place {
        let here = CpuId::current();
        self.posted_on.write_once(here.as_u32());
        match another_cpu(here) {
            None => self.place_alone(),
            Some(cpu) if self.is_crowded.read_once() => Place::On(cpu),
            Some(_) => Place::Anywhere,
        }
    }

    /// Where to, on the only CPU. The scheduler has a work item preempt who posts, for each post.
    fn place_alone(&self) -> Place {
        let behind = self.behind.read_once().wrapping_add(1) % BATCH;
        self.behind.write_once(behind);
        if behind == 0 {
            Place::Here
        } else {
            Place::Soon
        }
    }

    /// The work item runs on this CPU.
    pub(crate) fn note_run(&self) {
        if self.posted_on.read_once() == CpuId::current().as_u32() {
            self.is_crowded.write_once(true);
        }
    }
}

/// Whether `flag` is set, and clears it.
#[inline]
fn take(flag: &Atomic<bool>) -> bool {
    let was_set = flag.read_once();
    if was_set {
        flag.write_once(false);
    }
    was_set
}

/// Tells whether the peer's requests come alone, each when the one before was answered.
///
/// One that does is answered at once, which spares it a softirq of its own; those that come together
/// are answered together after the last of them. Only an answer that is given then shows which of it
/// is so. So that is done now and then in any case, the more seldom the more often there was one.
///
/// It is a guess, from which nothing but speed depends; but after each [`Came::First`] somebody has
/// to call [`end`](Self::end). Under the receive lock.
#[derive(Default)]
pub(crate) struct Arrivals {
    /// Requests that wait for the answer which is given after the last of them, or many.
    waiting: u8,
    /// How many are taken to come alone after that.
    trust: u8,
    /// Those that are left of them.
    left: u8,
}

impl Arrivals {
    /// There was a request to answer.
    #[inline]
    pub(crate) fn note(&mut self) -> Came {
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            return Came::Alone;
        }
        self.waiting = self.waiting.saturating_add(1);
        match self.waiting {
            1 => Came::First,
            _ => Came::Behind,
        }
    }

    /// Those that came together are answered.
    pub(crate) fn end(&mut self) {
        self.trust = match mem::take(&mut self.waiting) {
            0 => return,
            1 => self.trust.saturating_mul(2).clamp(1, TRUST),
            _ => 0,
        };
        self.left = self.trust;
    }
}
