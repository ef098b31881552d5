// SPDX-License-Identifier: GPL-2.0

//! Decides where the requests of a doorbell are sent.
//!
//! A poster that waits for each request is served fastest in its own context. A poster that streams is
//! not: each request would be sent, received and acknowledged alone. A work item beside the poster, on
//! another CPU, finds many requests at a time, which share one acknowledgement. [`Depth`] distinguishes
//! the two.

use kernel::cpu::CpuId;
use kernel::sync::atomic::{Atomic, Relaxed};
use rdma::sync::Marked;
use rdma::timer::now_ns;
use rdma::work::another_cpu;

use crate::policy::{
    is_apart, is_long_share, is_long_wait, Depth, Placement, Serve, Stamp, StreamHints, BATCH,
};

/// The observed behaviour of the poster of all queue pairs whose requests complete in one
/// completion queue.
///
/// A process may post to several queue pairs in turn. It would seem to wait for each: when it returns to
/// a queue pair, its requests there are complete.
///
/// This is a guess that affects only speed, so accesses are not ordered. But busy queue pairs must be
/// counted exactly, or the poster would never count as waiting again.
pub(crate) struct Poster {
    /// The bits of a [`Depth`].
    depth: Atomic<u32>,
    /// The number of queue pairs that had outstanding requests at the last check.
    busy: Atomic<u32>,
    /// An event for which the poster may have waited came since the last doorbell.
    heard: Atomic<bool>,
    /// So did a completion of a receive.
    received: Atomic<bool>,
}

impl Poster {
    pub(crate) const fn new() -> Self {
        Self {
            depth: Atomic::new(Depth::new().to_bits()),
            busy: Atomic::new(0),
            heard: Atomic::new(true),
            received: Atomic::new(false),
        }
    }

    /// Notes a completion, or a request of the peer.
    #[inline]
    pub(crate) fn hear(&self) {
        set(&self.heard);
    }

    /// Notes a completion of a receive.
    #[inline]
    pub(crate) fn hear_received(&self) {
        set(&self.received);
    }

    fn depth(&self) -> Depth {
        Depth::from_bits(self.depth.read_once())
    }
}

/// How a work item waits for the CPU that it was queued for.
#[derive(Clone, Copy)]
pub(crate) struct Wait {
    pub(crate) cpu: CpuId,
    pub(crate) queued_at: Stamp,
    pub(crate) is_high: bool,
}

impl Wait {
    const IS_ONE: u64 = 1 << 63;
    const IS_HIGH: u64 = 1 << 62;

    /// Returns true if the work item that begins now was late. At normal priority it shares the CPU with others that
    /// never sleep, such as polling owners, and each has a slice of milliseconds.
    pub(crate) fn is_late(self, now: u64) -> bool {
        match self.is_high {
            true => is_long_wait(self.queued_at, now),
            false => is_long_share(self.queued_at, now),
        }
    }

    /// Returns it as bits, of which one is set: the time is the lower half, and the CPU in the upper one.
    fn bits(self) -> u64 {
        let high = if self.is_high { Self::IS_HIGH } else { 0 };
        Self::IS_ONE | high | u64::from(self.cpu.as_u32()) << 32 | u64::from(self.queued_at.0)
    }

    /// Returns what [`bits`](Self::bits) made these, or [`None`] for 0.
    fn from_bits(bits: u64) -> Option<Self> {
        if bits == 0 {
            return None;
        }
        let cpu = (bits & !(Self::IS_ONE | Self::IS_HIGH)) >> 32;
        Some(Self {
            // CAST: The upper half has no other bits now.
            cpu: CpuId::from_u32(cpu as u32)?,
            // CAST: The lower half is the time.
            queued_at: Stamp(bits as u32),
            is_high: bits & Self::IS_HIGH != 0,
        })
    }
}

/// Decides how to serve doorbells of a queue pair, and where to send beside the poster.
///
/// It has the same rules as [`Poster`].
pub(crate) struct Stream {
    /// All requests before the last doorbell are complete. If not, [`Poster::busy`] counts the queue
    /// pair.
    is_idle: Atomic<bool>,
    /// The CPU of the last doorbell.
    posted_on: Atomic<u32>,
    /// The work item ran on the poster's CPU: the scheduler has no idle CPU.
    is_crowded: Atomic<bool>,
    /// Doorbells since the last one that sent requests, on a single CPU; fewer than [`BATCH`].
    behind: Atomic<u32>,
    /// When the work item was queued at normal priority; 0 if it is not.
    queued_at: Atomic<u32>,
    /// The bits of its [`Wait`]; 0 if it does not wait for a CPU.
    waits: Atomic<u64>,
    /// When it last had waited long.
    waited_at: Atomic<u32>,
    /// Its last run had waited long. The next one comes first.
    comes_first: Atomic<bool>,
}

impl Stream {
    pub(crate) const fn new() -> Self {
        Self {
            is_idle: Atomic::new(true),
            posted_on: Atomic::new(u32::MAX),
            is_crowded: Atomic::new(false),
            behind: Atomic::new(0),
            queued_at: Atomic::new(0),
            waits: Atomic::new(0),
            waited_at: Atomic::new(0),
            comes_first: Atomic::new(false),
        }
    }

    /// Notes that all posted requests are complete. A doorbell that rings after its requests were served
    /// makes the queue pair busy for nothing. So this is called after each run, too.
    #[inline]
    pub(crate) fn note_idle(&self, poster: &Poster) {
        if !self.is_idle.read_once() && !self.is_idle.xchg(true, Relaxed) {
            poster.busy.fetch_sub(1, Relaxed);
        }
    }

    /// Makes the queue pair busy. Returns true if no queue pair was busy.
    #[inline]
    fn begin(&self, poster: &Poster) -> bool {
        let was_idle = self.is_idle.read_once() && self.is_idle.xchg(false, Relaxed);
        was_idle && poster.busy.fetch_add(1, Relaxed) == 0
    }

    /// Counts a doorbell and returns how to serve it.
    ///
    /// `is_answered` says whether requests complete by an acknowledgement. Others complete when they are
    /// sent, so they need no probe. `has_polled` returns whether the owner has seen the completions for
    /// which it may wait. Its parameter says whether there are receives among them.
    #[inline]
    pub(crate) fn ring(
        &self,
        poster: &Poster,
        is_answered: bool,
        has_polled: impl FnOnce(bool) -> bool,
    ) -> Serve {
        // A waiting poster sees the event for which it waits. It does not wait for an unsignaled request.
        let has_received = take(&poster.received);
        let was_idle = self.begin(poster) & take(&poster.heard) && has_polled(has_received);
        let may_probe = || is_answered && another_cpu(CpuId::current()).is_some();
        let (depth, serve) = poster.depth().ring(was_idle, may_probe);
        poster.depth.write_once(depth.to_bits());
        if serve == Serve::Here && self.is_crowded.read_once() {
            self.is_crowded.write_once(false);
        }
        serve
    }

    /// Returns true if the poster streams.
    pub(crate) fn is_one(&self, poster: &Poster) -> bool {
        poster.depth().is_stream()
    }

    /// Returns where to send requests that are posted on this CPU.
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

    /// Counts a doorbell on a single CPU.
    fn is_batch_full(&self) -> bool {
        let behind = self.behind.read_once().wrapping_add(1) % BATCH;
        self.behind.write_once(behind);
        behind == 0
    }

    /// Notes that the work item is to be queued at normal priority.
    pub(crate) fn note_queued(&self) {
        if self.queued_at.read_once() == 0 {
            self.queued_at.write_once(Stamp::new(now_ns()).0);
        }
    }

    /// Returns true if the work item waits for a CPU, as [`note_wait`](Self::note_wait) said.
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        self.waits.read_once() != 0
    }

    /// Notes that the work item is to be queued for a CPU.
    pub(crate) fn note_wait(&self, wait: Wait) {
        self.waits.write_once(wait.bits());
    }

    /// Returns how the work item waits for a CPU, if it does, and notes that it is over.
    pub(crate) fn take_wait(&self) -> Option<Wait> {
        if !self.waits() {
            return None;
        }
        Wait::from_bits(self.waits.xchg(0, Relaxed))
    }

    /// Returns when the work item was queued, for [`note_yielded`](Self::note_yielded).
    pub(crate) fn queued(&self) -> u32 {
        self.queued_at.read_once()
    }

    /// Does not count the time until now as waiting, as the work item itself let other tasks run. `queued` is
    /// when it was queued before that. If it has run meanwhile, that is over.
    pub(crate) fn note_yielded(&self, queued: u32) {
        if queued != 0 {
            let _ = self
                .queued_at
                .cmpxchg(queued, Stamp::new(now_ns()).0, Relaxed);
        }
    }

    /// Notes that the work item runs, and whether it had to wait long for a worker. It has its turn.
    pub(crate) fn note_begun(&self) {
        let mut has_waited = false;
        if self.queued_at.read_once() != 0 {
            let (queued_at, now) = (self.queued_at.xchg(0, Relaxed), now_ns());
            has_waited = queued_at != 0 && is_long_wait(Stamp(queued_at), now);
            if has_waited {
                self.waited_at.write_once(Stamp::new(now).0);
            }
        }
        if self.comes_first.read_once() != has_waited {
            self.comes_first.write_once(has_waited);
        }
    }

    /// Returns true if the work item should have a worker of its own. The worker of a CPU runs its items one
    /// after the other. So with many queue pairs each would wait for the turns of all.
    pub(crate) fn needs_worker(&self) -> bool {
        is_apart(Stamp(self.waited_at.read_once()), now_ns())
    }

    /// Returns true if the next run should have high priority, as the last one had waited long. On a busy machine
    /// several waits, one after the other, are longer than the timeout of the peer. It is one run after each long
    /// wait, so that other tasks get most of the time.
    pub(crate) fn comes_first(&self) -> bool {
        self.comes_first.read_once()
    }

    /// Notes that the work item runs on this CPU.
    pub(crate) fn note_run(&self) {
        if self.posted_on.read_once() == CpuId::current().as_u32() {
            self.is_crowded.write_once(true);
        }
    }
}

/// Sets `flag`.
#[inline]
fn set(flag: &Atomic<bool>) {
    if !flag.read_once() {
        flag.write_once(true);
    }
}

/// Clears `flag` and returns whether it was set.
#[inline]
fn take(flag: &Atomic<bool>) -> bool {
    let was_set = flag.read_once();
    if was_set {
        flag.write_once(false);
    }
    was_set
}
