// SPDX-License-Identifier: GPL-2.0

//! The checks that a packet must pass to reach a queue pair.

use super::State;
use crate::event::Event;
use crate::num::Pkey;
use crate::opcode::Transport;
use crate::wire::{Body, Packet};

/// A half of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Half {
    /// The packet is a response.
    Requester,
    /// The packet is a request or a datagram.
    Responder,
}

/// Checks a packet against the queue pair that it is for, and says which half takes it.
///
/// That the packet comes from the peer's address is the host's to check.
///
/// # Errors
///
/// The packet is to be dropped and the event counted: its transport is not the queue pair's, its
/// P_Key does not match, or the state takes no such packet.
#[inline]
pub fn check(
    transport: Transport,
    state: State,
    pkey: Pkey,
    packet: &Packet,
) -> Result<Half, Event> {
    // Rules: MCG-6, VAL-3, VAL-14
    if packet.bth.transport != transport {
        return Err(Event::BadOpcode);
    }
    // Rules: VAL-4
    if !pkey.matches(packet.bth.pkey) {
        return Err(Event::BadPkey);
    }
    let (half, takes) = match packet.body {
        Body::Request(_) | Body::Datagram(_) => (Half::Responder, state.takes_requests()),
        Body::Response(_) => (Half::Requester, state.takes_responses()),
    };
    if takes {
        Ok(half)
    } else {
        Err(Event::BadState)
    }
}
