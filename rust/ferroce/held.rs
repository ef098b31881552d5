// SPDX-License-Identifier: GPL-2.0

//! Packets that have waited for memory.

use rdma::net::HeldPacket;
use roce::host::Handled;
use roce::wire::{Packet, MAX_HEADER};

use crate::parse::Parsed;
use crate::payload::Incoming;

/// Packets that waited for memory and are handled without letting go of the half.
pub(crate) const HELD_PACKETS: u32 = 32;

/// Runs `handle` on a packet that waited. It passed all checks when it arrived.
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
