// SPDX-License-Identifier: GPL-2.0

//! Packets that another CPU handles.
//!
//! The softirq that receives a packet handles it. Where both ends are on this machine it is mostly
//! on the CPU that has sent it, which does the work of both then, while others may be idle. So large
//! packets are put aside there, for a bottom half of another CPU, as receive packet steering would
//! have it if somebody had set that up. While some are, whatever else comes for the queue pair waits
//! behind them. What is to be sent for them is sent by the CPU that has received them, as it would be
//! otherwise: packets that two CPUs send overtake each other in the queues that each of them has.
//!
//! How much waits is bounded. The CPU that finds no room handles what came first, and so is held back
//! as it would be if nothing was put aside: what a wire does not lose is not lost here.
//!
//! Where a network's card brings in packets nothing of this happens, unless the CPU sends much too.
//!
//! Packets that a connection has for its own device come here straight from the sender
//! ([`Inbox::put_own`]): they enter no network.

use core::mem;

use kernel::cpu::{nr_cpu_ids, CpuId};
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Release};
use rdma::net::{queue_purpose, HeldPacket, OwnFrames, PacketQueue, RxPacket};
use rdma::slots::Slots;
use rdma::sync::{bh_disabled, BhSpinLock, Marked};
use rdma::timer::now_ns;
use rdma::work::{another_cpu, is_online};

use crate::stats::{Counter, Stats};
use crate::wake::{self, Put};

/// A packet of so many bytes costs more to handle than to pass on.
const LARGE: u32 = 1024;

/// Bytes that one run sends at least for it to be much: more than a message that somebody waits for.
pub(crate) const MUCH: u64 = 6 << 10;

/// How many packets may wait in all queue pairs' inboxes until who brings more handles them. With many
/// queue pairs one CPU would run far ahead of the other otherwise, and use memory that is in no cache.
const MOST_ASIDE: usize = 512;

queue_purpose! {
    /// Packets that another CPU handles.
    PutAside: 1 << 14
}

/// How long a CPU that has sent much is taken for one that goes on.
const RECENT_NS: u64 = 1_000_000;

/// How long what was much may still be in the queues of the CPU that sent it. One of a virtual machine
/// stands still for a while where others want the CPU that it runs on, too.
pub(crate) const SLOW_NS: u64 = 10_000_000;

/// Which CPUs send much.
///
/// It is a guess, from which nothing but speed depends.
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

    /// This CPU has sent much.
    #[inline]
    pub(crate) fn note(&self, now: u64) {
        if let Some(SentAt(at)) = self.0.get(CpuId::current().as_u32() as usize) {
            at.write_once(now);
        }
    }

    fn is_sending(&self, cpu: CpuId, now: u64) -> bool {
        let Some(SentAt(at)) = self.0.get(cpu.as_u32() as usize) else {
            return false;
        };
        now.saturating_sub(at.read_once()) < RECENT_NS
    }

    /// The CPU that had better handle a packet of so many bytes than this one does.
    pub(crate) fn other_for(&self, bytes: u32) -> Option<CpuId> {
        if bytes < LARGE {
            return None;
        }
        let now = now_ns();
        let here = CpuId::current();
        if !self.is_sending(here, now) {
            return None;
        }
        another_cpu(here).filter(|other| !self.is_sending(*other, now))
    }
}

/// A time in units of 1024 ns, as far as 32 bits go: 73 minutes.
struct Stamp(Atomic<u32>);

impl Stamp {
    const SHIFT: u32 = 10;

    /// CAST: What is lost is above 73 minutes.
    fn units(ns: u64) -> u32 {
        ns.wrapping_shr(Self::SHIFT) as u32
    }

    #[inline]
    fn set(&self, now: u64) {
        self.0.write_once(Self::units(now));
    }

    /// Returns true if it is less than `ns` before `now`. Now and then it is so of an old one, too.
    #[inline]
    fn is_within(&self, now: u64, ns: u64) -> bool {
        Self::units(now).wrapping_sub(self.0.read_once()) < Self::units(ns)
    }
}

/// Where and when a half of a queue pair has sent last. What another CPU sends may overtake that, in
/// queues that each CPU has.
pub(crate) struct LastSent {
    cpu: Atomic<u32>,
    /// When, as far as that is noted.
    at: Stamp,
    /// When it was much.
    much_at: Stamp,
}

impl LastSent {
    pub(crate) const fn new() -> Self {
        Self {
            cpu: Atomic::new(u32::MAX),
            at: Stamp(Atomic::new(0)),
            much_at: Stamp(Atomic::new(0)),
        }
    }

    /// This CPU sends. Under the half's lock, so that it is this one still.
    #[inline]
    pub(crate) fn note(&self) {
        self.cpu.write_once(CpuId::current().as_u32());
    }

    /// It does so at this time.
    #[inline]
    pub(crate) fn note_at(&self, now: u64) {
        self.at.set(now);
    }

    /// It was much.
    pub(crate) fn note_much(&self, now: u64) {
        self.much_at.set(now);
    }

    /// The CPU, if one did.
    pub(crate) fn cpu(&self) -> Option<CpuId> {
        CpuId::from_u32(self.cpu.read_once())
    }

    /// The CPU that had better send, if it is another than this one: it sent within ten milliseconds and
    /// `in_flight` frames were not received yet, or it sent much just now. For what costs little if it
    /// overtakes. Frames may be others than those that this half has sent, and a CPU may stand still, so
    /// there is an end to it.
    #[inline]
    pub(crate) fn had_better(&self, in_flight: u32) -> Option<CpuId> {
        self.other(|| {
            let now = now_ns();
            self.much_at.is_within(now, RECENT_NS)
                || (in_flight > 0 && self.at.is_within(now, SLOW_NS))
        })
    }

    /// The CPU, if it is another than this one and some of what it has sent, of which `in_flight`
    /// frames were not received yet, may still be in its queues. A train counts as received when that
    /// begins, so what was much does for some time.
    #[inline]
    pub(crate) fn ahead(&self, in_flight: u32) -> Option<CpuId> {
        self.other(|| in_flight > 0 || self.much_at.is_within(now_ns(), SLOW_NS))
    }

    /// The CPU, if it is another than this one that is online, and `may_be_ahead`.
    #[inline]
    fn other(&self, may_be_ahead: impl FnOnce() -> bool) -> Option<CpuId> {
        wake::ahead(self.cpu(), CpuId::current(), may_be_ahead, is_online)
    }
}

/// How many packets a CPU handles at most to have room for one.
const MAKE_ROOM: u32 = 64;

/// A queue pair's packets for another CPU, or from its own device.
///
/// Locks: `turn` is taken in softirq context, or by a work item, with no other lock of ours; all that
/// handling a packet takes is taken under it, and handlers of completions run under it. `packets` is
/// taken under it, or under that half of a queue pair, of any, which has packets for it; nothing is
/// taken under `packets`.
#[pin_data]
pub(crate) struct Inbox {
    /// Packets are in it, or one from it is being handled. Changed under `packets`; to false under
    /// `turn` as well.
    is_open: Atomic<bool>,
    /// It is left to the queue pair's work item of process context.
    is_left: Atomic<bool>,
    /// The CPU which handles them, and the one that received them; of an open one.
    cpu: Atomic<u32>,
    from: Atomic<u32>,
    /// Held by who takes a packet out until that is handled.
    #[pin]
    turn: BhSpinLock<()>,
    #[pin]
    packets: BhSpinLock<PacketQueue<PutAside>>,
}

#[inline]
fn has_room() -> bool {
    PacketQueue::<PutAside>::len_of_all() < MOST_ASIDE
}

/// What became of a packet that is for another CPU.
pub(crate) enum Aside {
    /// All that came before is handled by now, so it is to be handled here.
    No(HeldPacket),
    /// It waits behind others, of which that CPU knows.
    Behind,
    /// It is the first that waits: that CPU has to be told.
    First(CpuId),
}

/// Why a packet was not put aside.
enum Declined {
    /// All that came before is handled by now.
    Closed(HeldPacket),
    Full(HeldPacket),
}

impl Inbox {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            is_open: Atomic::new(false),
            is_left: Atomic::new(false),
            cpu: Atomic::new(u32::MAX),
            from: Atomic::new(u32::MAX),
            turn <- rdma::new_bh_spinlock!((), "ferroce::Inbox::turn"),
            packets <- rdma::new_bh_spinlock!(PacketQueue::new(), "ferroce::Inbox::packets"),
        })
    }

    /// Whether what arrives waits behind others, which were put aside.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Acquire)
    }

    /// The CPU that had better handle a packet of so many bytes than this one does, where none waits.
    #[inline]
    pub(crate) fn other_for(senders: &Senders, bytes: u32) -> Option<CpuId> {
        senders.other_for(bytes).filter(|_| has_room())
    }

    /// Puts `packet` aside for `other`, or for whom those before it wait for. Where there is no room
    /// `handle` gets what came first. Softirq context.
    pub(crate) fn put(
        &self,
        packet: HeldPacket,
        other: Option<CpuId>,
        stats: &Stats,
        handle: impl Fn(RxPacket<'_>),
    ) -> Aside {
        let mut packet = packet;
        for round in 0..=MAKE_ROOM {
            // What could not be made good by that much work is not the fault of this queue pair.
            let has_room = || round == MAKE_ROOM || has_room();
            match self.push(packet, other, has_room) {
                Ok(first) => {
                    stats.count(Counter::SteeredPackets);
                    return first.map_or(Aside::Behind, Aside::First);
                }
                Err(Declined::Closed(back)) => return Aside::No(back),
                Err(Declined::Full(back)) => packet = back,
            }
            let turn = self.turn.lock();
            if let Some(oldest) = self.pop() {
                handle(oldest.now(bh_disabled(&turn)));
            }
        }
        stats.count(Counter::DroppedHeld);
        Aside::Behind
    }

    /// Appends `packet` for `other`, or for whom those before it wait for. Returns `other` if there are
    /// none: from then on until it is closed the inbox has a work item that is queued or runs.
    fn push(
        &self,
        packet: HeldPacket,
        other: Option<CpuId>,
        has_room: impl FnOnce() -> bool,
    ) -> Result<Option<CpuId>, Declined> {
        let mut packets = self.packets.lock();
        let is_open = self.is_open.read_once();
        match wake::put(is_open, packets.is_empty(), has_room, other) {
            Put::Full => Err(Declined::Full(packet)),
            Put::Here => Err(Declined::Closed(packet)),
            Put::Behind => {
                packets.push(packet).map_err(Declined::Full)?;
                Ok(None)
            }
            Put::First(cpu) => {
                packets.push(packet).map_err(Declined::Full)?;
                self.open(cpu, CpuId::current().as_u32());
                Ok(Some(cpu))
            }
        }
    }

    /// Opens it, for `cpu`; `from` received the packets. Under `packets`.
    fn open(&self, cpu: CpuId, from: u32) {
        self.cpu.write_once(cpu.as_u32());
        self.from.write_once(from);
        self.is_open.store(true, Release);
    }

    /// Appends packets that never left the module, for `cpu`, or for whom those before them wait for.
    /// Returns that one, which has to be told. Bottom halves are disabled.
    pub(crate) fn put_own(&self, own: PacketQueue<OwnFrames>, cpu: CpuId) -> CpuId {
        let mut packets = self.packets.lock();
        if !self.is_open.read_once() {
            // Nothing overtakes what is in no queue of the network.
            self.open(cpu, u32::MAX);
        }
        packets.append(own);
        CpuId::from_u32(self.cpu.read_once()).unwrap_or(cpu)
    }

    fn pop(&self) -> Option<HeldPacket> {
        self.packets.lock().pop()
    }

    /// The CPU that is to send while there are packets, if that is another one: who received them.
    ///
    /// It sends by a work item, which has to be queued for all that it is to send: whoever handles the
    /// packets that are here does so for those alone.
    #[inline]
    pub(crate) fn origin(&self) -> Option<CpuId> {
        if !self.is_open.read_once() {
            return None;
        }
        wake::origin(CpuId::from_u32(self.from.read_once()), CpuId::current())
    }

    /// Another CPU that had better go on with it, as this one sends by now and that one does not.
    ///
    /// An inbox that always has something in it would stay where it is otherwise, and with it, in the
    /// end, all that the wire does: the scheduler has work follow work.
    pub(crate) fn had_better_move(senders: &Senders) -> Option<CpuId> {
        senders.other_for(LARGE)
    }

    /// Gives it to the CPU that had better go on with it, if one does, and which has to be told. For
    /// whom it was left to: a work item of an inbox that is queued while it runs stays on its CPU.
    pub(crate) fn move_away(&self, senders: &Senders) -> Option<CpuId> {
        let other = Self::had_better_move(senders)?;
        let _packets = self.packets.lock();
        self.cpu.write_once(other.as_u32());
        if self.from.read_once() != u32::MAX {
            self.from.write_once(CpuId::current().as_u32());
        }
        Some(other)
    }

    /// Leaves it to the work item of process context, which has to be queued.
    pub(crate) fn leave(&self) {
        self.is_left.store(true, Release);
    }

    /// Whether it was left to who asks. The queue of work items orders this behind [`leave`](Self::leave).
    pub(crate) fn take_over(&self) -> bool {
        self.is_left.read_once() && self.is_left.xchg(false, Acquire)
    }

    /// Forgets all, for a queue pair that begins anew.
    pub(crate) fn clear(&self) {
        let forgotten = mem::take(&mut *self.packets.lock());
        // Without the lock: packets of our own tell their sender that they are gone.
        drop(forgotten);
    }

    /// Has the oldest packet handled. Closes the inbox and returns false if there is none. For the one
    /// work item that does so; softirq context.
    pub(crate) fn handle_next(&self, handle: impl FnOnce(RxPacket<'_>)) -> bool {
        let turn = self.turn.lock();
        let Some(oldest) = self.pop_or_close() else {
            return false;
        };
        handle(oldest.now(bh_disabled(&turn)));
        true
    }

    fn pop_or_close(&self) -> Option<HeldPacket> {
        let mut packets = self.packets.lock();
        let next = packets.pop();
        if next.is_none() {
            self.is_open.store(false, Release);
        }
        next
    }
}
