// SPDX-License-Identifier: GPL-2.0

//! Packets that wait for another CPU to handle them.
//!
//! The softirq that receives a packet handles it. Where both ends are on this machine that is mostly the
//! CPU that has sent the packet, which then does the work of both ends while others may be idle. So large
//! packets are put aside there, for a softirq of another CPU, as receive packet steering would do if it was
//! set up. Meanwhile whatever else comes for the queue pair waits behind them. Replies, and requests that a
//! response allows, are sent by the CPU that has received the packets: what two CPUs send overtakes each
//! other in the queues that each CPU has.
//!
//! A backlog is bounded. A CPU that finds no room handles the oldest packets, and so is held back as it
//! would be without a backlog: nothing is lost here that the wire did not lose.
//!
//! Where a network's card brings in packets nothing is put aside, unless the CPU sends much too.
//!
//! Packets that a connection has for its own device enter no network. Their sender appends them here
//! ([`Backlog::put_own`]).

use core::mem;

use kernel::cpu::CpuId;
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Release};
use rdma::net::{queue_purpose, HeldPacket, OwnFrames, PacketQueue, RxPacket};
use rdma::sync::{bh_disabled, BhSpinLock, Marked};

use crate::policy::MOST_ASIDE;
use crate::stats::{Counter, Stats};
use crate::steering::Senders;
use crate::wake::{self, Put};

queue_purpose! {
    /// Packets that another CPU handles.
    PutAside: 1 << 14
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
pub(crate) struct Backlog {
    /// Packets are in it, or one from it is being handled. Changed under `packets`; to false under
    /// `turn` as well.
    is_open: Atomic<bool>,
    /// The queue pair's work item of process context is to go on with it.
    is_left: Atomic<bool>,
    /// The CPU that handles the packets, and the one that received them; of an open backlog.
    cpu: Atomic<u32>,
    from: Atomic<u32>,
    /// Held while a packet is taken out and handled.
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

impl Backlog {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            is_open: Atomic::new(false),
            is_left: Atomic::new(false),
            cpu: Atomic::new(u32::MAX),
            from: Atomic::new(u32::MAX),
            turn <- rdma::new_bh_spinlock!((), "ferroce::Backlog::turn"),
            packets <- rdma::new_bh_spinlock!(PacketQueue::new(), "ferroce::Backlog::packets"),
        })
    }

    /// Whether what arrives waits behind others, which were put aside.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Acquire)
    }

    /// Returns the CPU that should handle a packet of so many bytes in place of this one, where none waits.
    #[inline]
    pub(crate) fn other_for(senders: &Senders, bytes: u32) -> Option<CpuId> {
        senders.other_for(bytes).filter(|_| has_room())
    }

    /// Puts `packet` aside for `other`, or for the CPU that handles those before it. Where there is no room
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

    /// Appends `packet` for `other`, or for the CPU that handles those before it. Returns `other` if there are
    /// none: from then on until it is closed the backlog has a work item that is queued or runs.
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

    /// Appends packets that never left the module, for `cpu`, or for the CPU that handles those before them.
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

    /// Returns the CPU that has received the packets, if that is another one: it sends while there are some.
    ///
    /// It sends by a work item, which has to be queued for all that it is to send: the CPU that handles the
    /// packets that are here does so for those alone.
    #[inline]
    pub(crate) fn origin(&self) -> Option<CpuId> {
        if !self.is_open.read_once() {
            return None;
        }
        wake::origin(CpuId::from_u32(self.from.read_once()), CpuId::current())
    }

    /// Gives it to another CPU that does not send, if there is one and this one sends by now. Returns that
    /// CPU, which has to be told. A work item of a backlog that is queued while it runs stays on its CPU, so
    /// this is for process context.
    ///
    /// A backlog that always has something in it would stay where it is otherwise, and with it, in the end,
    /// all that the wire does: the scheduler has work follow work.
    pub(crate) fn move_away(&self, senders: &Senders) -> Option<CpuId> {
        let other = senders.idler()?;
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

    /// Returns true if it was left to process context, once. The queue of work items orders this behind
    /// [`leave`](Self::leave).
    pub(crate) fn take_over(&self) -> bool {
        self.is_left.read_once() && self.is_left.xchg(false, Acquire)
    }

    /// Forgets all, for a queue pair that begins anew.
    pub(crate) fn clear(&self) {
        let forgotten = mem::take(&mut *self.packets.lock());
        // Without the lock: packets of our own tell their sender that they are gone.
        drop(forgotten);
    }

    /// Has the oldest packet handled. Closes the backlog and returns false if there is none. For the one
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
