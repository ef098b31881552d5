// SPDX-License-Identifier: GPL-2.0

//! Packets that arrived before their turn.

use rdma::net::{queue_purpose, HeldPacket, PacketQueue};
use roce::host::Handled;
use roce::num::Psn;
use roce::wire::Packet;

use crate::context::Context;
use crate::held::{hold, with_held};
use crate::host::Deferred;
use crate::paging::MemoryWait;
use crate::payload::{AtHand, Incoming};
use crate::stats::{Counter, Stats};

queue_purpose! {
    /// Packets that came before their turn.
    Early: 1 << 14
}

/// Packets that arrived before their turn, in the order of their PSNs. The lock of their half guards
/// them.
#[derive(Default)]
pub(crate) struct EarlyPackets(PacketQueue<Early>);

impl EarlyPackets {
    /// Puts the packet `psn` in its place, see [`hold`]. Returns true if it is kept, or was before. Packets of
    /// the same device are not kept: they hold their sender's credit, without which the sender could not
    /// repair the gap.
    #[cold]
    pub(crate) fn hold(
        &mut self,
        psn: Psn,
        packet: AtHand<'_>,
        owner: Option<&Context>,
        stats: &Stats,
    ) -> bool {
        if packet.is_own() || owner.is_some_and(Context::holds_much) {
            stats.count(Counter::DroppedHeld);
            return false;
        }
        hold(packet, owner, stats, Counter::EarlyPackets, |packet| {
            self.insert(psn, packet)
        })
    }

    /// Puts the packet `psn`, which was held elsewhere and is charged, in its place. Returns true if it is
    /// kept: see [`hold`](Self::hold).
    pub(crate) fn put(&mut self, psn: Psn, packet: HeldPacket) -> bool {
        !packet.is_own() && self.insert(psn, packet).is_ok()
    }

    fn insert(&mut self, psn: Psn, mut packet: HeldPacket) -> Result<(), HeldPacket> {
        packet.set_place(psn.get());
        let comes_before = |one, other| Psn::new(one).is_before(Psn::new(other));
        self.0.insert(packet, comes_before)
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the first packet.
    fn next(&mut self) -> Option<HeldPacket> {
        self.0.pop()
    }

    /// Puts back the packet that was taken last.
    fn put_back(&mut self, packet: HeldPacket) {
        self.0.push_front(packet);
    }

    /// Drops all packets.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// A half of a queue pair that keeps packets.
pub(crate) trait Keeps {
    /// Returns the early packets, and the packets that wait for memory.
    fn kept(&mut self) -> (&mut EarlyPackets, &mut MemoryWait);
}

/// Runs `handle` on early packets whose turn has come. The last of them may have to wait for memory.
#[inline]
pub(crate) fn handle_early<H: Keeps>(
    half: &mut H,
    deferred: &mut Deferred,
    handle: impl FnMut(&mut H, &mut Deferred, &Packet, Incoming<'_>) -> Handled,
) -> Handled {
    match half.kept().0.is_empty() {
        true => Handled::Done,
        false => handle_kept(half, deferred, handle),
    }
}

#[cold]
fn handle_kept<H: Keeps>(
    half: &mut H,
    deferred: &mut Deferred,
    mut handle: impl FnMut(&mut H, &mut Deferred, &Packet, Incoming<'_>) -> Handled,
) -> Handled {
    while let Some(held) = half.kept().0.next() {
        let handled = with_held(&held, |packet, incoming| {
            handle(half, deferred, packet, incoming)
        });
        match handled {
            Handled::Done => {}
            Handled::Early => {
                half.kept().0.put_back(held);
                break;
            }
            Handled::PutOff => {
                half.kept().1.put_back(deferred.faults.take(), held);
                return Handled::PutOff;
            }
        }
    }
    Handled::Done
}
