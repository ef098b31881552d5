// SPDX-License-Identifier: GPL-2.0

//! Packets that arrived before their turn.
//!
//! A peer decides how many of them arrive, and in which order. So a packet finds its place in
//! logarithmic time. When a gap has closed, all packets up to the next gap are handled before any that arrive
//! later, at most [`MAX_EARLY_PSNS`]: a packet that arrived in between would look early, and the protocol would report
//! a gap that is none.

use core::cmp::Ordering;

use kernel::alloc::flags::GFP_NOWAIT;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::rbtree::{RBTree, RBTreeNode};
use kernel::sync::atomic::{Atomic, Relaxed};
use rdma::net::HeldPacket;
use rdma::sync::Marked;
use roce::host::Handled;
use roce::limits::MAX_EARLY_PSNS;
use roce::num::Psn;
use roce::wire::Packet;

use crate::context::Context;
use crate::held::{hold, with_held};
use crate::host::Deferred;
use crate::paging::MemoryWait;
use crate::payload::{AtHand, Incoming};
use crate::stats::{Counter, Stats};

mod room;

use self::room::has_room;

/// The [memory](HeldPacket::memory) of the packets of all queue pairs.
static KEPT: Atomic<usize> = Atomic::new(0);

/// The turn of a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Turn(Psn);

// The PSNs of one half are within half of all PSNs, so this is an order. Packets whose turn has passed are
// taken out as soon as it has.
impl Ord for Turn {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self == other, self.0.is_before(other.0)) {
            (true, _) => Ordering::Equal,
            (false, true) => Ordering::Less,
            (false, false) => Ordering::Greater,
        }
    }
}

impl PartialOrd for Turn {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Packets that arrived before their turn, in the order of their PSNs. The lock of their half guards
/// them.
pub(crate) struct EarlyPackets(RBTree<Turn, HeldPacket>);

impl Default for EarlyPackets {
    fn default() -> Self {
        Self(RBTree::new())
    }
}

impl EarlyPackets {
    /// Keeps the packet `psn`, see [`hold`]. Returns true if it is kept, or was before. Packets of the
    /// same device are not kept: they hold their sender's credit, without which the sender could not
    /// repair the gap.
    #[cold]
    pub(crate) fn hold(
        &mut self,
        psn: Psn,
        packet: AtHand<'_>,
        owner: Option<&Context>,
        stats: &Stats,
    ) -> bool {
        if self.0.get(&Turn(psn)).is_some() {
            return true;
        }
        if packet.is_own() || owner.is_some_and(Context::holds_much) {
            stats.count(Counter::DroppedHeld);
            return false;
        }
        hold(packet, owner, stats, Counter::EarlyPackets, |packet| {
            self.insert(psn, packet)
        })
    }

    /// Keeps the packet `psn`, which was held elsewhere and is charged. Returns true if it is kept: see
    /// [`hold`](Self::hold).
    pub(crate) fn put(&mut self, psn: Psn, packet: HeldPacket) -> bool {
        !packet.is_own() && self.insert(psn, packet).is_ok()
    }

    fn insert(&mut self, psn: Psn, packet: HeldPacket) -> Result {
        let bytes = packet.memory();
        if !has_room(KEPT.load(Relaxed), bytes, self.0.is_empty(), PAGE_SIZE) {
            return Err(ENOMEM);
        }
        let node = RBTreeNode::new(Turn(psn), packet, GFP_NOWAIT)?;
        KEPT.fetch_add(bytes, Relaxed);
        if let Some(node) = self.0.insert(node) {
            KEPT.fetch_sub(node.to_key_value().1.memory(), Relaxed);
        }
        Ok(())
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn first(&self) -> Option<&HeldPacket> {
        self.0.values().next()
    }

    /// Takes the first packet.
    fn pop(&mut self) -> Option<HeldPacket> {
        let (_, node) = self.0.cursor_front_mut()?.remove_current();
        let packet = node.to_key_value().1;
        KEPT.fetch_sub(packet.memory(), Relaxed);
        Some(packet)
    }

    /// Drops all packets.
    pub(crate) fn clear(&mut self) {
        while self.pop().is_some() {}
    }
}

impl Drop for EarlyPackets {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Tells contexts without the lock of a half that packets are missing before those that it keeps.
pub(crate) struct Gap {
    /// The PSN of the last early packet, or [`NONE`](Self::NONE). The lock of the half guards the writers.
    end: Atomic<u32>,
}

impl Gap {
    /// No PSN: no packet is early.
    const NONE: u32 = u32::MAX;

    pub(crate) const fn new() -> Self {
        Self {
            end: Atomic::new(Self::NONE),
        }
    }

    /// Notes that the packet `psn` is kept. The lock of the half is held by the caller.
    pub(crate) fn note_kept(&self, psn: Psn) {
        if self.end().is_none_or(|end| end.is_before(psn)) {
            self.end.write_once(psn.get());
        }
    }

    /// Notes that these packets are left. The lock of the half is held by the caller.
    #[inline]
    pub(crate) fn note_left(&self, early: &EarlyPackets) {
        if early.is_empty() && self.is_open() {
            self.end.write_once(Self::NONE);
        }
    }

    /// Returns true if a packet is missing.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.end.read_once() != Self::NONE
    }

    /// Returns true if the packet `psn` may be missing. Early packets are near to the first one that is.
    pub(crate) fn may_lack(&self, psn: Psn) -> bool {
        let is_near = |end: Psn| (1..MAX_EARLY_PSNS).contains(&end.distance_from(psn));
        self.end().is_some_and(is_near)
    }

    fn end(&self) -> Option<Psn> {
        match self.end.read_once() {
            Self::NONE => None,
            end => Some(Psn::new(end)),
        }
    }
}

/// A half of a queue pair that keeps packets.
pub(crate) trait Keeps {
    /// Returns the early packets, and the packets that wait for memory.
    fn kept(&mut self) -> (&mut EarlyPackets, &mut MemoryWait);
}

/// How the handling of early packets ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All are handled whose turn has come.
    Done,
    /// As many are handled as were asked for, and there are more.
    More,
    /// The last of them has to wait for memory.
    PutOff,
}

/// Runs `handle` on early packets whose turn has come, at most `most` of them.
#[inline]
pub(crate) fn handle_early<H: Keeps>(
    half: &mut H,
    deferred: &mut Deferred,
    most: u32,
    handle: impl FnMut(&mut H, &mut Deferred, &Packet, Incoming<'_>) -> Handled,
) -> Ended {
    match half.kept().0.is_empty() {
        true => Ended::Done,
        false => handle_kept(half, deferred, most, handle),
    }
}

#[cold]
fn handle_kept<H: Keeps>(
    half: &mut H,
    deferred: &mut Deferred,
    most: u32,
    mut handle: impl FnMut(&mut H, &mut Deferred, &Packet, Incoming<'_>) -> Handled,
) -> Ended {
    // The half lends them, as `handle` needs all of the half.
    let mut early = core::mem::take(half.kept().0);
    let mut ended = Ended::More;
    for _ in 0..most {
        let Some(held) = early.first() else {
            ended = Ended::Done;
            break;
        };
        let handled = with_held(held, |packet, incoming| {
            handle(half, deferred, packet, incoming)
        });
        if handled == Handled::Early {
            ended = Ended::Done;
            break;
        }
        let held = early.pop();
        if let (Handled::PutOff, Some(held)) = (handled, held) {
            half.kept().1.put_back(deferred.faults.take(), held);
            ended = Ended::PutOff;
            break;
        }
    }
    *half.kept().0 = early;
    ended
}
