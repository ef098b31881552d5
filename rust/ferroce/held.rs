// SPDX-License-Identifier: GPL-2.0

//! Packets that are kept because they wait for memory or arrived early.

use kernel::prelude::*;
use rdma::net::HeldPacket;
use roce::host::Handled;
use roce::wire::{Packet, MAX_HEADER};

use crate::context::Context;
use crate::parse::Parsed;
use crate::payload::{AtHand, Incoming};
use crate::stats::{Counter, Stats};

/// Puts a packet into a queue by `put`, charges `owner`, and counts it as `kept`. The packet is dropped if
/// the owner or the queue has too many, or there is no memory. Returns true if it is kept.
pub(crate) fn hold(
    packet: AtHand<'_>,
    owner: Option<&Context>,
    stats: &Stats,
    kept: Counter,
    put: impl FnOnce(HeldPacket) -> Result,
) -> bool {
    let held = try_hold(packet, owner, put);
    stats.count(match held {
        Ok(()) => kept,
        Err(_) => Counter::DroppedHeld,
    });
    held.is_ok()
}

fn try_hold(
    packet: AtHand<'_>,
    owner: Option<&Context>,
    put: impl FnOnce(HeldPacket) -> Result,
) -> Result {
    let mut packet = packet.keep()?;
    if let Some(owner) = owner {
        packet = owner.charge(packet)?;
    }
    put(packet)
}

/// Packets that waited for memory and are handled without releasing the half.
pub(crate) const HELD_PACKETS: u32 = 32;

/// Runs `handle` on a kept packet. It passed all checks when it arrived.
pub(crate) fn with_held(
    held: &HeldPacket,
    handle: impl FnOnce(&Packet, Incoming<'_>) -> Handled,
) -> Handled {
    let mut header = [0; MAX_HEADER];
    let parsed = Parsed::new(held, held.peek(&mut header));
    let Ok(packet) = parsed.packet() else {
        return Handled::Done;
    };
    let incoming = Incoming {
        packet: held,
        device: None,
        offset: packet.payload_at(held.payload_len()) as usize,
    };
    handle(packet, incoming)
}
