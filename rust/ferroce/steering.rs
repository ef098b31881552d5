// SPDX-License-Identifier: GPL-2.0

//! Notes which CPU has sent, and when.
//!
//! All of it is for guesses, see [`crate::policy`]: nothing here is ordered or exact, unless it is said.

use kernel::cpu::{nr_cpu_ids, CpuId};
use kernel::prelude::*;
use kernel::sync::atomic::Atomic;
use rdma::slots::Slots;
use rdma::sync::Marked;
use rdma::timer::now_ns;
use rdma::work::{another_cpu, is_online};

use crate::policy::{is_sending, Overtaking, Sent, Stamp, LARGE};
use crate::wake;

/// Which CPUs send much.
pub(crate) struct Senders(Slots<SentAt>);

/// When one CPU has sent much the last time. Each has a cache line.
#[repr(align(64))]
struct SentAt(Atomic<u64>);

impl Default for SentAt {
    fn default() -> Self {
        Self(Atomic::new(0))
    }
}

impl Senders {
    /// May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(Slots::new(nr_cpu_ids() as usize, GFP_KERNEL)?))
    }

    /// Notes that this CPU has sent much.
    #[inline]
    pub(crate) fn note(&self, now: u64) {
        if let Some(SentAt(at)) = self.0.get(CpuId::current().as_u32() as usize) {
            at.write_once(now);
        }
    }

    fn is_sending(&self, cpu: CpuId, now: u64) -> bool {
        let at = self.0.get(cpu.as_u32() as usize);
        at.is_some_and(|SentAt(at)| is_sending(at.read_once(), now))
    }

    /// Returns the CPU that should handle a packet of so many bytes in place of this one.
    pub(crate) fn other_for(&self, bytes: u32) -> Option<CpuId> {
        if bytes < LARGE {
            return None;
        }
        self.idler()
    }

    /// Returns another CPU that does not send much, if this one does.
    pub(crate) fn idler(&self) -> Option<CpuId> {
        let now = now_ns();
        let here = CpuId::current();
        if !self.is_sending(here, now) {
            return None;
        }
        another_cpu(here).filter(|other| !self.is_sending(*other, now))
    }
}

/// Where and when a half of a queue pair has sent last. What another CPU sends may overtake that, in
/// queues that each CPU has.
pub(crate) struct LastSent {
    cpu: Atomic<u32>,
    at: Atomic<u32>,
    much_at: Atomic<u32>,
    is_acknowledged: Atomic<bool>,
}

impl LastSent {
    pub(crate) const fn new() -> Self {
        Self {
            cpu: Atomic::new(u32::MAX),
            at: Atomic::new(0),
            much_at: Atomic::new(0),
            is_acknowledged: Atomic::new(true),
        }
    }

    /// Notes that this CPU sends. Under the half's lock, so that it is this one still.
    #[inline]
    pub(crate) fn note(&self) {
        self.cpu.write_once(CpuId::current().as_u32());
    }

    /// Notes when it does so.
    #[inline]
    pub(crate) fn note_at(&self, now: u64) {
        self.at.write_once(Stamp::new(now).0);
    }

    /// Notes that it was much.
    pub(crate) fn note_much(&self, now: u64) {
        self.much_at.write_once(Stamp::new(now).0);
    }

    /// Notes whether the peer has said that it has all of it. Under the half's lock.
    #[inline]
    pub(crate) fn note_acknowledged(&self, all: bool) {
        if self.is_acknowledged.read_once() != all {
            self.is_acknowledged.write_once(all);
        }
    }

    /// Returns the CPU, if one has sent.
    pub(crate) fn cpu(&self) -> Option<CpuId> {
        CpuId::from_u32(self.cpu.read_once())
    }

    /// Returns true if one has sent in the last `ns` nanoseconds, and that was noted.
    pub(crate) fn is_within(&self, ns: u64) -> bool {
        Stamp(self.at.read_once()).is_within(now_ns(), ns)
    }

    /// Returns the CPU if it is another than this one, and what it has sent may be overtaken. So many frames
    /// are in flight.
    #[inline]
    pub(crate) fn ahead(&self, overtaking: Overtaking, in_flight: u32) -> Option<CpuId> {
        self.ahead_if(|sent| sent.may_be_overtaken(overtaking, in_flight, now_ns))
    }

    /// Returns the CPU if it is another than this one, and has sent much that a stream may overtake.
    #[inline]
    pub(crate) fn much_ahead(&self) -> Option<CpuId> {
        self.ahead_if(|sent| sent.is_much_ahead(now_ns))
    }

    #[inline]
    fn ahead_if(&self, may_be_overtaken: impl FnOnce(Sent) -> bool) -> Option<CpuId> {
        let may_be_ahead = || {
            may_be_overtaken(Sent {
                at: Stamp(self.at.read_once()),
                much_at: Stamp(self.much_at.read_once()),
                is_acknowledged: self.is_acknowledged.read_once(),
            })
        };
        wake::ahead(self.cpu(), CpuId::current(), may_be_ahead, is_online)
    }
}
