// SPDX-License-Identifier: GPL-2.0

//! Memory that has to be faulted in first, and what waits for it.
//!
//! Copies are made under a half's lock, with bottom halves off, and find pages of on-demand memory
//! or not. If they do not, the half stops there: it keeps what was to be placed, and all packets
//! that come after it, in a queue, and takes back what was to be sent. A work item faults the memory
//! in and has the half go on where it stopped, so everything happens once and in its order. If that
//! fails, the copy fails for good, as one from memory that is gone.
//!
//! A FLUSH to persistence waits in the same way, until a work item has written its memory back from
//! the caches, if that takes long or some of the memory is not known to be there.

use kernel::prelude::*;
use rdma::net::{queue_purpose, HeldPacket, PacketQueue};
use rdma::timer::msleep;
use roce::host::Fault;

use crate::context::Context;
use crate::keys::{Absent, Miss, Unwritten};
use crate::payload::AtHand;
use crate::stats::{Counter, Stats};

/// How long a fault waits for which there was no memory.
const STARVED_MS: u32 = 10;

/// Sees to what is absent, for a process that has `owner` open. Sleeps.
fn see_to(absent: Absent, owner: Option<&Context>, stats: &Stats) -> Option<Outcome> {
    let is_wanted = || owner.is_none_or(|owner| !owner.is_closed());
    let done = match &absent {
        Absent::Page(page) => {
            stats.count(Counter::PageFaults);
            page.fault_in(is_wanted)
        }
        Absent::Unwritten(unwritten) => unwritten.write_back(is_wanted),
    };
    match (done, absent) {
        // What was short may be had soon: the half finds it absent again.
        (Err(error), _) if error == ENOMEM => {
            msleep(STARVED_MS);
            None
        }
        (Err(_), absent) => Some(Outcome::Failed(absent)),
        (Ok(()), Absent::Unwritten(unwritten)) => Some(Outcome::WrittenBack(unwritten)),
        (Ok(()), Absent::Page(_)) => None,
    }
}

/// What has become of memory that was waited for, beyond its being there now.
pub(crate) enum Outcome {
    /// Nothing could be done: finding that absent again is final.
    Failed(Absent),
    /// It was written back.
    WrittenBack(Unwritten),
}

/// What a call into a half finds out about memory that is absent.
#[derive(Default)]
pub(crate) struct Faults {
    /// What was found absent, and stopped the half.
    absent: Option<Absent>,
    /// For the first that is found absent.
    outcome: Option<Outcome>,
}

impl Faults {
    /// After what was waited for was seen to.
    pub(crate) fn after(outcome: Option<Outcome>) -> Self {
        Self {
            absent: None,
            outcome,
        }
    }

    /// Whether the next that is found absent may be told what came of it: that is known here alone.
    pub(crate) fn has_outcome(&self) -> bool {
        self.outcome.is_some()
    }

    /// What to tell the protocol of a miss; what is absent is [taken](Self::take) after the call.
    #[cold]
    pub(crate) fn sort(&mut self, miss: Miss) -> Fault {
        let Miss::Absent(absent) = miss else {
            return Fault::Gone;
        };
        match self.outcome.take() {
            Some(Outcome::Failed(it)) if it.is_same(&absent) => Fault::Gone,
            _ => {
                self.absent = Some(absent);
                Fault::Absent
            }
        }
    }

    /// Gets memory to persistence. What can be done only later is [taken](Self::take) after the call.
    pub(crate) fn write_back(&mut self, unwritten: Unwritten) -> Result<(), Fault> {
        match self.outcome.take() {
            Some(Outcome::WrittenBack(it)) if it.is_same(&unwritten) => return Ok(()),
            outcome => self.outcome = outcome,
        }
        unwritten.write_back_at_once().map_err(|error| {
            if error == EAGAIN {
                self.sort(Miss::Absent(Absent::Unwritten(unwritten)))
            } else {
                Fault::Gone
            }
        })
    }

    pub(crate) fn take(&mut self) -> Option<Absent> {
        self.absent.take()
    }
}

queue_purpose! {
    /// Packets that wait for memory. Their owners' shares are what bounds them.
    Held: usize::MAX
}

/// What a half waits for, and what waits with it. Guarded by the half's lock.
#[derive(Default)]
pub(crate) struct MemoryWait {
    /// What the oldest of `packets` is to be placed in.
    to_place: Option<Absent>,
    packets: PacketQueue<Held>,
    /// How often the oldest packet, or what it waits for, has become another one.
    turn: u32,
    /// How often what is to be sent has.
    send_turn: u32,
    /// What the next packet to send is made of.
    to_send: Option<Absent>,
}

/// What to see to.
#[derive(Default)]
pub(crate) struct Wanted {
    to_place: Option<Absent>,
    to_send: Option<Absent>,
    turn: u32,
    send_turn: u32,
}

/// What was seen to.
pub(crate) struct Seen {
    to_place: Option<Outcome>,
    to_send: Option<Outcome>,
    turn: u32,
    send_turn: u32,
}

impl MemoryWait {
    /// Whether packets have to wait, whatever they are for.
    #[inline]
    pub(crate) fn holds_packets(&self) -> bool {
        !self.packets.is_empty()
    }

    /// Whether nothing may be sent.
    #[inline]
    pub(crate) fn stops_sending(&self) -> bool {
        self.to_send.is_some()
    }

    /// Whether there is something to be done by a work item.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.to_place.is_some() || self.holds_packets() || self.stops_sending()
    }

    /// Has a packet wait behind the others, on account of `owner`. It is dropped, as the network might
    /// have done, if that has too many, or there is no memory to keep it.
    pub(crate) fn hold(&mut self, packet: AtHand<'_>, owner: Option<&Context>, stats: &Stats) {
        let counter = match self.try_hold(packet, owner) {
            Ok(()) => Counter::HeldPackets,
            Err(_) => Counter::DroppedHeld,
        };
        stats.count(counter);
    }

    fn try_hold(&mut self, packet: AtHand<'_>, owner: Option<&Context>) -> Result {
        let mut packet = packet.keep()?;
        if let Some(owner) = owner {
            packet = owner.charge(packet)?;
        }
        self.packets.push(packet).map_err(|_| ENOMEM)
    }

    /// Has the first packet wait, for `absent`; which is seen to also if the packet cannot be kept.
    pub(crate) fn begin(
        &mut self,
        absent: Option<Absent>,
        packet: AtHand<'_>,
        owner: Option<&Context>,
        stats: &Stats,
    ) {
        self.wait_for(absent);
        self.hold(packet, owner, stats);
    }

    /// Has the oldest packet wait again, for `absent`.
    pub(crate) fn put_back(&mut self, absent: Option<Absent>, packet: HeldPacket) {
        self.wait_for(absent);
        self.packets.push_front(packet);
    }

    fn wait_for(&mut self, absent: Option<Absent>) {
        self.to_place = absent;
        self.turn = self.turn.wrapping_add(1);
    }

    /// The oldest packet.
    pub(crate) fn next_packet(&mut self) -> Option<HeldPacket> {
        self.packets.pop()
    }

    /// Has what is to be sent wait for `absent`.
    pub(crate) fn stop_sending(&mut self, absent: Option<Absent>) {
        self.to_send = absent;
        self.send_turn = self.send_turn.wrapping_add(1);
    }

    /// What is waited for. It goes on waiting.
    pub(crate) fn wanted(&self) -> Wanted {
        Wanted {
            to_place: self.to_place.clone(),
            to_send: self.to_send.clone(),
            turn: self.turn,
            send_turn: self.send_turn,
        }
    }

    /// What was waited for has been seen to. Returns what the oldest packet and what is to be sent
    /// have to know of that.
    pub(crate) fn go_on(&mut self, seen: Seen) -> (Faults, Faults) {
        // Of another packet, if the half was reset meanwhile, nothing was seen to.
        let to_place = seen.to_place.filter(|_| seen.turn == self.turn);
        let to_send = seen.to_send.filter(|_| seen.send_turn == self.send_turn);
        self.to_place = None;
        self.to_send = None;
        (Faults::after(to_place), Faults::after(to_send))
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.wait_for(None);
        self.stop_sending(None);
        self.packets.clear();
    }
}

impl Wanted {
    /// Faults it in, or writes it back, for a process that has `owner` open. Sleeps.
    pub(crate) fn see_to(self, owner: Option<&Context>, stats: &Stats) -> Seen {
        let see_to = |absent: Option<Absent>| see_to(absent?, owner, stats);
        Seen {
            to_place: see_to(self.to_place),
            to_send: see_to(self.to_send),
            turn: self.turn,
            send_turn: self.send_turn,
        }
    }
}
