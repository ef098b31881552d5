// SPDX-License-Identifier: GPL-2.0

//! Records which CPU sent, and when, and whether work items of a CPU are late.
//!
//! All results are guesses for [`crate::policy`]. They are neither ordered nor exact, except where
//! stated.

use kernel::cpu::{nr_cpu_ids, CpuId};
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use rdma::slots::Slots;
use rdma::sync::Marked;
use rdma::timer::now_ns;
use rdma::work::{another_cpu, is_online, is_plugging_cpus};

use crate::policy::{
    is_late, is_late_over, is_sending, is_turn_over, Overtaking, Sent, Stamp, HELD_NS, LARGE,
};
use crate::stream::Wait;
use crate::wake;

/// The CPUs that send much, the turns of their work items, and whether these are late.
pub(crate) struct Senders(Slots<Known>);

/// The state of one CPU, on a cache line of its own.
#[repr(align(64))]
struct Known {
    /// When the CPU last sent much.
    sent_much_at: Atomic<u64>,
    /// When a turn of work items last began.
    turn_at: Atomic<u64>,
    /// When a work item was queued, the first one since one began; 0 if none was. Only those that
    /// `kick::queue_on` queues count.
    waits_since: Atomic<u32>,
    /// When one last began that was late; 0 if that is long ago.
    late_at: Atomic<u32>,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            sent_much_at: Atomic::new(0),
            turn_at: Atomic::new(0),
            waits_since: Atomic::new(0),
            late_at: Atomic::new(0),
        }
    }
}

/// Returns the time that is noted there, if any.
#[inline]
fn stamp(noted: &Atomic<u32>) -> Option<Stamp> {
    let at = noted.read_once();
    (at != 0).then_some(Stamp(at))
}

impl Senders {
    /// Creates the table. May sleep.
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
        if let Some(known) = self.of(CpuId::current()) {
            known.sent_much_at.write_once(now);
        }
    }

    fn of(&self, cpu: CpuId) -> Option<&Known> {
        self.0.get(cpu.as_u32() as usize)
    }

    fn is_sending(&self, cpu: CpuId, now: u64) -> bool {
        let known = self.of(cpu);
        known.is_some_and(|known| is_sending(known.sent_much_at.read_once(), now))
    }

    /// Returns true if the turn of work items on this CPU is over, and begins the next one.
    pub(crate) fn ends_turn(&self) -> bool {
        let now = now_ns();
        let Some(known) = self.of(CpuId::current()) else {
            return true;
        };
        let is_over = is_turn_over(known.turn_at.read_once(), now);
        if is_over {
            known.turn_at.write_once(now);
        }
        is_over
    }

    /// Notes that a work item is to be queued.
    pub(crate) fn note_queued(&self, wait: Wait) {
        if let Some(known) = self
            .of(wait.cpu)
            .filter(|known| known.waits_since.read_once() == 0)
        {
            known.waits_since.write_once(wait.queued_at.0);
        }
    }

    /// Takes the note back, as the work item does not wait there.
    pub(crate) fn note_unqueued(&self, wait: Wait) {
        if let Some(known) = self.of(wait.cpu) {
            let _ = known.waits_since.cmpxchg(wait.queued_at.0, 0, Relaxed);
        }
    }

    /// Notes that a work item begins, after `wait`. Another CPU may run it.
    ///
    /// One of high priority tells nothing of those that still wait at normal priority.
    pub(crate) fn note_begun(&self, wait: Wait) {
        if wait.cpu.as_u32() != CpuId::current().as_u32() {
            return self.note_unqueued(wait);
        }
        let Some(known) = self.of(wait.cpu) else {
            return;
        };
        if known.waits_since.read_once() != 0 {
            known.waits_since.write_once(0);
        }
        let now = now_ns();
        let is_over = |at| !wait.is_high || is_late_over(at, now);
        if wait.is_late(now) {
            known.late_at.write_once(Stamp::new(now).0);
        } else if stamp(&known.late_at).is_some_and(is_over) {
            known.late_at.write_once(0);
        }
    }

    /// Returns true if work items of `cpu` are late.
    #[inline]
    pub(crate) fn is_late(&self, cpu: CpuId) -> bool {
        self.of(cpu)
            .is_some_and(|known| is_late(stamp(&known.late_at), stamp(&known.waits_since), now_ns))
    }

    /// Returns the CPU that should handle a packet of this size instead of this one.
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

/// Where and when a half of a queue pair sent last. Packets of another CPU may overtake these, because
/// each CPU has its own queues.
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

    /// Notes that this CPU sends. The half's lock must be held, so that the CPU is still this one.
    #[inline]
    pub(crate) fn note(&self) {
        self.cpu.write_once(CpuId::current().as_u32());
    }

    /// Notes the time.
    #[inline]
    pub(crate) fn note_at(&self, now: u64) {
        self.at.write_once(Stamp::new(now).0);
    }

    /// Notes that the run sent much.
    pub(crate) fn note_much(&self, now: u64) {
        self.much_at.write_once(Stamp::new(now).0);
    }

    /// Notes whether the peer has acknowledged all packets. The half's lock must be held.
    #[inline]
    pub(crate) fn note_acknowledged(&self, all: bool) {
        if self.is_acknowledged.read_once() != all {
            self.is_acknowledged.write_once(all);
        }
    }

    /// Returns the CPU that sent last, if any.
    pub(crate) fn cpu(&self) -> Option<CpuId> {
        CpuId::from_u32(self.cpu.read_once())
    }

    /// Returns true if the half sent in the last `ns` nanoseconds, and noted it.
    pub(crate) fn is_within(&self, ns: u64) -> bool {
        Stamp(self.at.read_once()).is_within(now_ns(), ns)
    }

    /// Returns the CPU that sent last, if it is another one and its packets may be overtaken.
    /// `in_flight` frames are in the network.
    #[inline]
    pub(crate) fn ahead(&self, overtaking: Overtaking, in_flight: u32) -> Option<CpuId> {
        self.ahead_if(|sent| sent.may_be_overtaken(overtaking, in_flight, now_ns))
    }

    /// Returns true if frames in flight are in no queue for a moment. The time is limited, because they
    /// may be elsewhere.
    pub(crate) fn is_stranded(&self, in_flight: u32) -> bool {
        let may_be_ahead = || in_flight > 0 && self.is_within(HELD_NS);
        wake::is_stranded(self.cpu(), may_be_ahead, is_online, is_plugging_cpus)
    }

    /// Returns the CPU that sent last, if it is another one and a stream may overtake much of its data.
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
