// SPDX-License-Identifier: GPL-2.0

//! Where requests of a stream are sent, and requests that come alone.
//!
//! A poster that waits for each request is served fastest at once, in its own context. A poster that
//! posts on is not: each request would be sent, received and acknowledged by itself. Such a stream is
//! left to a work item, which finds many requests at a time, so that there is one acknowledgement for
//! all of them, and which runs beside the poster, on another CPU. Which poster it is
//! [`Depth`] tells.

use kernel::cpu::CpuId;
use kernel::sync::atomic::{Atomic, Relaxed};
use rdma::sync::Marked;
use rdma::work::another_cpu;

use crate::policy::{Depth, Placement, Serve, StreamHints, BATCH};

/// What is known of one that posts, to all queue pairs whose requests complete in one completion queue.
///
/// A process that posts to several queue pairs by turns would seem to wait for each: when it comes back to
/// one, what it has posted there is complete.
///
/// All of it is a guess, from which nothing but speed depends: nothing here is ordered. But queue pairs must
/// be counted exactly, or the poster would never be taken to wait again.
pub(crate) struct Poster {
    /// The bits of a [`Depth`].
    depth: Atomic<u32>,
    /// How many queue pairs have requests that were not complete when they were last looked at.
    busy: Atomic<u32>,
    /// Something came since the last doorbell that may have been waited for.
    heard: Atomic<bool>,
}

impl Poster {
    pub(crate) const fn new() -> Self {
        Self {
            depth: Atomic::new(Depth::new().to_bits()),
            busy: Atomic::new(0),
            heard: Atomic::new(true),
        }
    }

    /// Notes that there was a completion, or a request of the peer.
    #[inline]
    pub(crate) fn hear(&self) {
        if !self.heard.read_once() {
            self.heard.write_once(true);
        }
    }

    fn depth(&self) -> Depth {
        Depth::from_bits(self.depth.read_once())
    }
}

/// Tells how doorbells of a queue pair are to be served, and where to send if that is beside the poster.
///
/// As for [`Poster`].
pub(crate) struct Stream {
    /// All requests are complete that were posted before the last doorbell: if not, the queue pair is one of
    /// those that [`Poster::busy`] counts.
    is_idle: Atomic<bool>,
    /// The CPU of the last doorbell.
    posted_on: Atomic<u32>,
    /// The scheduler had the work item run there, too: it has no idle CPU.
    is_crowded: Atomic<bool>,
    /// Doorbells since one sent what waited, where there is one CPU; fewer than [`BATCH`].
    behind: Atomic<u32>,
}

impl Stream {
    pub(crate) const fn new() -> Self {
        Self {
            is_idle: Atomic::new(true),
            posted_on: Atomic::new(u32::MAX),
            is_crowded: Atomic::new(false),
            behind: Atomic::new(0),
        }
    }

    /// Notes that all requests are complete that were posted. A doorbell that rings after its requests were
    /// served makes the queue pair busy for nothing, so this is called after each run, too.
    #[inline]
    pub(crate) fn note_idle(&self, poster: &Poster) {
        if !self.is_idle.read_once() && !self.is_idle.xchg(true, Relaxed) {
            poster.busy.fetch_sub(1, Relaxed);
        }
    }

    /// Makes the queue pair busy. Returns true if none was.
    #[inline]
    fn begin(&self, poster: &Poster) -> bool {
        let was_idle = self.is_idle.read_once() && self.is_idle.xchg(false, Relaxed);
        was_idle && poster.busy.fetch_add(1, Relaxed) == 0
    }

    /// Counts a doorbell. Returns how it is to be served.
    ///
    /// `is_answered` says whether requests are complete when the peer has answered: what is complete as
    /// soon as it is sent needs no probe, and its poster may count on that. `has_polled` says whether
    /// the owner has seen all completions.
    #[inline]
    pub(crate) fn ring(
        &self,
        poster: &Poster,
        is_answered: bool,
        has_polled: impl FnOnce() -> bool,
    ) -> Serve {
        // One that waits sees what it waits for. A request without a completion is not waited for.
        let was_idle = self.begin(poster) & take(&poster.heard) && has_polled();
        let may_probe = || is_answered && another_cpu(CpuId::current()).is_some();
        let (depth, serve) = poster.depth().ring(was_idle, may_probe);
        poster.depth.write_once(depth.to_bits());
        if serve == Serve::Here && self.is_crowded.read_once() {
            self.is_crowded.write_once(false);
        }
        serve
    }

    /// Returns true if the last doorbells were those of a stream.
    pub(crate) fn is_one(&self, poster: &Poster) -> bool {
        poster.depth().is_stream()
    }

    /// Returns where to send what is posted on this CPU.
    pub(crate) fn place(&self) -> Placement<CpuId> {
        let here = CpuId::current();
        self.posted_on.write_once(here.as_u32());
        let other = another_cpu(here);
        let hints = StreamHints {
            other,
            is_crowded: self.is_crowded.read_once(),
            is_batch_full: other.is_none() && self.is_batch_full(),
        };
        hints.place()
    }

    /// Counts a doorbell on the only CPU.
    fn is_batch_full(&self) -> bool {
        let behind = self.behind.read_once().wrapping_add(1) % BATCH;
        self.behind.write_once(behind);
        behind == 0
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
