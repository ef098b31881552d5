// SPDX-License-Identifier: GPL-2.0

//! Packets that another CPU handles.
//!
//! The softirq that receives a packet handles it. If both ends are on this machine, this is usually the
//! CPU that sent the packet. It then does the work of both ends, while other CPUs may be idle. So large
//! packets are steered to a softirq of another CPU, like with receive packet steering. Later packets of
//! the queue pair wait behind them. Only those that fill a gap go ahead, as nothing completes before. Replies, and
//! requests that a response allows, are sent by the CPU that received the packets. Packets of two CPUs would
//! overtake each other.
//!
//! A backlog is bounded. A CPU that finds no room handles the oldest packets, which slows it down as
//! without a backlog. So steering adds no loss.
//!
//! Packets from a network card are steered only if the receiving CPU also sends much.
//!
//! Packets of a connection to its own device enter no network. Their sender appends them here
//! ([`Backlog::put_own`]).

use core::mem;

use kernel::cpu::CpuId;
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Release};
use rdma::net::{queue_purpose, HeldPacket, OwnFrames, PacketQueue, RxPacket};
use rdma::sync::{bh_disabled, BhSpinLock, Marked};
use rdma::timer::now_ns;
use roce::limits::MAX_EARLY_PSNS;

use crate::policy::{Stamp, LEFT_NS, MOST_ASIDE};
use crate::stats::{Counter, Stats};
use crate::steering::Senders;
use crate::wake::{self, Put};

queue_purpose! {
    /// Packets that another CPU handles.
    PutAside: 1 << 14
}

/// Packets that a CPU handles at most to make room for one.
const MAKE_ROOM: u32 = 64;

/// Packets of a queue pair for another CPU, or from the same device.
///
/// `turn` is taken in softirq context or by a work item, with no other lock of this driver. Locks for
/// handling a packet are taken under it, and completion handlers run under it. `packets` is taken under
/// `turn`, or under the half's lock of any queue pair that appends packets. No lock is taken under
/// `packets`.
#[pin_data]
pub(crate) struct Backlog {
    /// There are packets, or one is being handled. It changes under `packets`, and to false under
    /// `turn`, too.
    is_open: Atomic<bool>,
    /// The work item of process context must continue.
    is_left: Atomic<bool>,
    /// When it was left to that.
    left_at: Atomic<u32>,
    /// The CPU that handles the packets, and the one that received them, while the backlog is open.
    cpu: Atomic<u32>,
    from: Atomic<u32>,
    /// How many more packets were added ahead of others than others were taken out, at least 0, since the backlog was
    /// opened. At [`MAX_EARLY_PSNS`] it stays, and no more go ahead. It changes under `packets`.
    lead: Atomic<u32>,
    /// Held while a packet is taken out and handled.
    #[pin]
    turn: BhSpinLock<()>,
    #[pin]
    packets: BhSpinLock<Waiting>,
}

/// The packets of a [`Backlog`].
struct Waiting {
    /// Those that come before the others.
    ahead: PacketQueue<PutAside>,
    in_turn: PacketQueue<PutAside>,
}

impl Waiting {
    const fn new() -> Self {
        Self {
            ahead: PacketQueue::new(),
            in_turn: PacketQueue::new(),
        }
    }

    fn is_empty(&self) -> bool {
        self.ahead.is_empty() && self.in_turn.is_empty()
    }

    fn is_full(&self) -> bool {
        let len = self.ahead.len().saturating_add(self.in_turn.len());
        len >= PacketQueue::<PutAside>::MAX
    }
}

#[inline]
fn has_room() -> bool {
    PacketQueue::<PutAside>::len_of_all() < MOST_ASIDE
}

/// The fate of a packet for another CPU.
pub(crate) enum Aside {
    /// All earlier packets are handled, so this CPU handles it.
    No(HeldPacket),
    /// It waits behind others, for which a work item is queued.
    Behind,
    /// It is the first packet: the caller must queue the work item on that CPU.
    First(CpuId),
}

/// What a timer has to do for a backlog that was left to the work item of process context.
pub(crate) enum TakeOver {
    /// Nothing: it is not left.
    Nothing,
    /// To check again: the work item may still begin.
    Later,
    /// To queue the work item of softirqs in its place.
    Now,
}

/// The place of a packet among those that wait.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// Before all but others with this place.
    First,
    /// Behind all.
    Last,
}

/// The reason for which a packet was not added.
enum Declined {
    /// All earlier packets are handled.
    Closed(HeldPacket),
    Full(HeldPacket),
}

impl Backlog {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            is_open: Atomic::new(false),
            is_left: Atomic::new(false),
            left_at: Atomic::new(0),
            cpu: Atomic::new(u32::MAX),
            from: Atomic::new(u32::MAX),
            lead: Atomic::new(0),
            turn <- rdma::new_bh_spinlock!((), "ferroce::Backlog::turn"),
            packets <- rdma::new_bh_spinlock!(Waiting::new(), "ferroce::Backlog::packets"),
        })
    }

    /// Returns true if a received packet must wait behind others.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Acquire)
    }

    /// Returns the CPU that should handle a packet of this size, if the backlog is closed.
    #[inline]
    pub(crate) fn other_for(senders: &Senders, bytes: u32) -> Option<CpuId> {
        senders.other_for(bytes).filter(|_| has_room())
    }

    /// Adds `packet` for `other`, or for the CPU that handles the packets before it. If there is no
    /// room, `handle` handles the oldest packets. Softirq context.
    pub(crate) fn put(
        &self,
        packet: HeldPacket,
        place: Place,
        other: Option<CpuId>,
        stats: &Stats,
        handle: impl Fn(RxPacket<'_>),
    ) -> Aside {
        let mut packet = packet;
        for round in 0..=MAKE_ROOM {
            // After that much work, other queue pairs fill the backlogs.
            let has_room = || round == MAKE_ROOM || has_room();
            match self.push(packet, place, other, stats, has_room) {
                Ok(first) => {
                    stats.count(Counter::SteeredPackets);
                    return first.map_or(Aside::Behind, Aside::First);
                }
                Err(Declined::Closed(back)) => return Aside::No(back),
                Err(Declined::Full(back)) => packet = back,
            }
            let mut turn = self.turn.lock();
            if let Some(oldest) = self.pop() {
                handle(oldest.now(bh_disabled(&mut turn)));
            }
        }
        stats.count(Counter::DroppedHeld);
        Aside::Behind
    }

    /// Adds `packet` for `other`, or for the CPU that handles the packets before it. Returns `other`
    /// if it opens the backlog. From then on a work item is queued or runs until the backlog closes.
    fn push(
        &self,
        packet: HeldPacket,
        place: Place,
        other: Option<CpuId>,
        stats: &Stats,
        has_room: impl FnOnce() -> bool,
    ) -> Result<Option<CpuId>, Declined> {
        let mut packets = self.packets.lock();
        let is_open = self.is_open.read_once();
        let has_room = || !packets.is_full() && has_room();
        match wake::put(is_open, packets.is_empty(), has_room, other) {
            Put::Full => Err(Declined::Full(packet)),
            Put::Here => Err(Declined::Closed(packet)),
            Put::Behind => {
                let lead = self.lead.read_once();
                match place {
                    // No gap is longer. Packets of a stranger that seem to fill one must not keep others waiting.
                    Place::First if lead < MAX_EARLY_PSNS => {
                        packets.ahead.push(packet).map_err(Declined::Full)?;
                        self.lead.write_once(lead.saturating_add(1));
                        stats.count(Counter::SteeredAhead);
                    }
                    Place::First | Place::Last => {
                        packets.in_turn.push(packet).map_err(Declined::Full)?;
                    }
                }
                Ok(None)
            }
            Put::First(cpu) => {
                // It came before all others, also before those that go ahead.
                packets.ahead.push(packet).map_err(Declined::Full)?;
                self.open(cpu, CpuId::current().as_u32());
                Ok(Some(cpu))
            }
        }
    }

    /// Opens the backlog for `cpu`. `from` received the packets. `packets` must be held.
    fn open(&self, cpu: CpuId, from: u32) {
        self.cpu.write_once(cpu.as_u32());
        self.from.write_once(from);
        self.is_open.store(true, Release);
    }

    /// Appends packets of the same device, for `cpu` or for the CPU that handles the packets before
    /// them. Returns that CPU, on which the caller must queue the work item. Bottom halves are disabled.
    pub(crate) fn put_own(&self, own: PacketQueue<OwnFrames>, cpu: CpuId) -> CpuId {
        let mut packets = self.packets.lock();
        if !self.is_open.read_once() {
            // Nothing overtakes packets that are in no queue of the network.
            self.open(cpu, u32::MAX);
        }
        packets.in_turn.append(own);
        CpuId::from_u32(self.cpu.read_once()).unwrap_or(cpu)
    }

    fn pop(&self) -> Option<HeldPacket> {
        self.pop_from(&mut self.packets.lock())
    }

    fn pop_from(&self, packets: &mut Waiting) -> Option<HeldPacket> {
        if let Some(packet) = packets.ahead.pop() {
            return Some(packet);
        }
        let packet = packets.in_turn.pop()?;
        let lead = self.lead.read_once();
        if (1..MAX_EARLY_PSNS).contains(&lead) {
            self.lead.write_once(lead.saturating_sub(1));
        }
        Some(packet)
    }

    /// Returns the CPU that received the packets, if it is another one. It sends while there are
    /// packets.
    ///
    /// It sends by a work item, which must be queued for each reason to send. The CPU that handles these
    /// packets queues it for them only.
    #[inline]
    pub(crate) fn origin(&self) -> Option<CpuId> {
        if !self.is_open.read_once() {
            return None;
        }
        wake::origin(CpuId::from_u32(self.from.read_once()), CpuId::current())
    }

    /// Moves the backlog to another CPU that does not send, if this CPU sends now. Returns that
    /// CPU, on which the caller must queue the work item. A work item that is queued while it runs
    /// stays on its CPU, so this is for process context.
    ///
    /// A backlog that is never empty would otherwise stay on its CPU. The scheduler would draw all other
    /// work to this CPU.
    pub(crate) fn move_away(&self, senders: &Senders) -> Option<CpuId> {
        let other = senders.idler()?;
        let _packets = self.packets.lock();
        self.cpu.write_once(other.as_u32());
        if self.from.read_once() != u32::MAX {
            self.from.write_once(CpuId::current().as_u32());
        }
        Some(other)
    }

    /// Leaves the backlog to the work item of process context, which the caller must queue.
    pub(crate) fn leave(&self) {
        self.left_at.write_once(Stamp::new(now_ns()).0);
        self.is_left.store(true, Release);
    }

    /// Takes it back if that work item has not begun for long, as beside a real-time task.
    pub(crate) fn take_over_late(&self) -> TakeOver {
        if !self.is_left.load(Acquire) {
            return TakeOver::Nothing;
        }
        if Stamp(self.left_at.read_once()).is_within(now_ns(), LEFT_NS) {
            return TakeOver::Later;
        }
        match self.take_over() {
            true => TakeOver::Now,
            false => TakeOver::Nothing,
        }
    }

    /// Returns true once after [`leave`](Self::leave). The queue of work items orders this behind it.
    pub(crate) fn take_over(&self) -> bool {
        self.is_left.read_once() && self.is_left.xchg(false, Acquire)
    }

    /// Drops all packets, for a queue pair that is reset.
    pub(crate) fn clear(&self) {
        let forgotten = mem::replace(&mut *self.packets.lock(), Waiting::new());
        // Without the lock: packets of our own tell their sender that they are gone.
        drop(forgotten);
    }

    /// Handles the oldest packet. Closes the backlog and returns false if there is none. Only the work
    /// item of the backlog calls this. Softirq context.
    pub(crate) fn handle_next(&self, handle: impl FnOnce(RxPacket<'_>)) -> bool {
        let mut turn = self.turn.lock();
        let Some(oldest) = self.pop_or_close() else {
            return false;
        };
        handle(oldest.now(bh_disabled(&mut turn)));
        true
    }

    fn pop_or_close(&self) -> Option<HeldPacket> {
        let mut packets = self.packets.lock();
        let next = self.pop_from(&mut packets);
        if next.is_none() {
            self.lead.write_once(0);
            self.is_open.store(false, Release);
        }
        next
    }
}
