// SPDX-License-Identifier: GPL-2.0

//! Memory that must be faulted in, and the packets that wait for it.
//!
//! A copy runs under a half's lock, with bottom halves off. It may find that a page of on-demand memory
//! is absent. Then the half stops: it keeps the packet and all later packets in a queue, or takes back
//! the packet to send. A work item faults the page in and resumes the half. So each operation happens
//! once and in order. If the fault fails, the copy fails, like one from memory that is gone.
//!
//! A FLUSH to persistence waits in the same way if its write-back takes long, or if some of its pages
//! are not known. A work item then writes the memory back.

use kernel::prelude::*;
use kernel::time::delay::fsleep;
use kernel::time::Delta;
use rdma::net::{queue_purpose, HeldPacket, PacketQueue};
use roce::host::Fault;

use crate::context::Context;
use crate::held::hold;
use crate::keys::{Absent, Miss, Unwritten};
use crate::payload::AtHand;
use crate::stats::{Counter, Stats};

/// How long a fault waits for free memory.
const STARVED: Delta = Delta::from_millis(10);

/// Faults in or writes back memory for the process of `owner`. Sleeps.
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
        // There may be free memory soon: the half finds the page absent again.
        (Err(error), _) if error == ENOMEM => {
            fsleep(STARVED);
            None
        }
        (Err(_), absent) => Some(Outcome::Failed(absent)),
        (Ok(()), Absent::Unwritten(unwritten)) => Some(Outcome::WrittenBack(unwritten)),
        (Ok(()), Absent::Page(_)) => None,
    }
}

/// The result for memory that the half waits for, apart from its presence.
pub(crate) enum Outcome {
    /// It failed. If the memory is absent again, this is final.
    Failed(Absent),
    /// It was written back.
    WrittenBack(Unwritten),
}

/// The absent memory that a call into a half finds.
#[derive(Default)]
pub(crate) struct Faults {
    /// The absent memory that stopped the half.
    absent: Option<Absent>,
    /// The result of the fault, for the first absent memory.
    outcome: Option<Outcome>,
}

impl Faults {
    /// Starts a call after a fault with this result.
    pub(crate) fn after(outcome: Option<Outcome>) -> Self {
        Self {
            absent: None,
            outcome,
        }
    }

    /// Returns true if this call knows the result of a fault. No other call does.
    pub(crate) fn has_outcome(&self) -> bool {
        self.outcome.is_some()
    }

    /// Returns the fault to report to the protocol for a miss. The caller [takes](Self::take) the
    /// absent memory after the call.
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

    /// Writes memory back to persistence. If this takes long, the caller [takes](Self::take) it after
    /// the call.
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
    /// Packets that wait for memory. The shares of their owners bound them.
    Held: usize::MAX
}

/// The memory that a half waits for, with the waiting packets. The half's lock guards it.
#[derive(Default)]
pub(crate) struct MemoryWait {
    /// The memory for the oldest packet.
    to_place: Option<Absent>,
    packets: PacketQueue<Held>,
    /// A number that changes with the oldest packet and its memory.
    turn: u32,
    /// A number that changes with the packet to send and its memory.
    send_turn: u32,
    /// The memory of the next packet to send.
    to_send: Option<Absent>,
}

/// Memory to fault in or to write back.
#[derive(Default)]
pub(crate) struct Wanted {
    to_place: Option<Absent>,
    to_send: Option<Absent>,
    turn: u32,
    send_turn: u32,
}

/// The results.
pub(crate) struct Seen {
    to_place: Option<Outcome>,
    to_send: Option<Outcome>,
    turn: u32,
    send_turn: u32,
}

impl MemoryWait {
    /// Returns true if all received packets must wait.
    #[inline]
    pub(crate) fn holds_packets(&self) -> bool {
        !self.packets.is_empty()
    }

    /// Returns true if nothing may be sent.
    #[inline]
    pub(crate) fn stops_sending(&self) -> bool {
        self.to_send.is_some()
    }

    /// Returns true if there is work for a work item.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.to_place.is_some() || self.holds_packets() || self.stops_sending()
    }

    /// Appends a packet behind the waiting ones, see [`hold`].
    pub(crate) fn hold(&mut self, packet: AtHand<'_>, owner: Option<&Context>, stats: &Stats) {
        let _ = hold(packet, owner, stats, Counter::HeldPackets, |packet| {
            self.packets.push(packet).map_err(|_| ENOMEM)
        });
    }

    /// Begins to wait for `absent` with this packet. The memory is faulted in even if the packet cannot
    /// be kept.
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

    /// Puts the oldest packet back, to wait for `absent`.
    pub(crate) fn put_back(&mut self, absent: Option<Absent>, packet: HeldPacket) {
        self.wait_for(absent);
        self.packets.push_front(packet);
    }

    fn wait_for(&mut self, absent: Option<Absent>) {
        self.to_place = absent;
        self.turn = self.turn.wrapping_add(1);
    }

    /// Takes the oldest packet.
    pub(crate) fn next_packet(&mut self) -> Option<HeldPacket> {
        self.packets.pop()
    }

    /// Stops sending until `absent` is there.
    pub(crate) fn stop_sending(&mut self, absent: Option<Absent>) {
        self.to_send = absent;
        self.send_turn = self.send_turn.wrapping_add(1);
    }

    /// Returns the memory that the half waits for.
    pub(crate) fn wanted(&self) -> Wanted {
        Wanted {
            to_place: self.to_place.clone(),
            to_send: self.to_send.clone(),
            turn: self.turn,
            send_turn: self.send_turn,
        }
    }

    /// Ends the wait. Returns the results for the oldest packet and for the packet to send.
    pub(crate) fn go_on(&mut self, seen: Seen) -> (Faults, Faults) {
        // If the half was reset meanwhile, the results belong to another packet.
        let to_place = seen.to_place.filter(|_| seen.turn == self.turn);
        let to_send = seen.to_send.filter(|_| seen.send_turn == self.send_turn);
        self.to_place = None;
        self.to_send = None;
        (Faults::after(to_place), Faults::after(to_send))
    }

    /// Drops all packets and ends the wait.
    pub(crate) fn clear(&mut self) {
        self.wait_for(None);
        self.stop_sending(None);
        self.packets.clear();
    }
}

impl Wanted {
    /// Faults memory in, or writes it back, for the process of `owner`. Sleeps.
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
