// SPDX-License-Identifier: GPL-2.0

//! Parses and checks datagrams. Each is hostile until it has passed.

use kernel::prelude::*;
use rdma::net::{Datagram, IpHeader};
use roce::icrc::{self, MaskedHeaders, PlainIpv4, REST_BYTES};
use roce::wire::{self, bth, Packet, ParseError, ICRC_BYTES};

use crate::stats::Counter;

const ICRC_LEN: usize = ICRC_BYTES as usize;

/// Bytes of a packet that are copied out at once: all headers, and all of a small one.
pub(crate) const FIRST_BYTES: usize = bth::BYTES + REST_BYTES + ICRC_LEN;

/// A packet that was parsed, or why it could not be.
///
/// It is large, so its users borrow it from here.
pub(crate) struct Parsed(Result<Packet, ParseError>);

impl Parsed {
    /// Parses a packet, of which `first` are the first bytes: all its headers at least.
    #[inline]
    pub(crate) fn new(datagram: &Datagram, first: &[u8]) -> Self {
        let mut parsed = Self(wire::parse(first, datagram.payload_len()));
        if let Ok(packet) = &mut parsed.0 {
            packet.psns = datagram.psns();
        }
        parsed
    }

    /// Returns the packet.
    ///
    /// # Errors
    ///
    /// The counter of the reason for which it is dropped.
    #[inline]
    pub(crate) fn packet(&self) -> Result<&Packet, Counter> {
        self.0.as_ref().map_err(|error| error.event().into())
    }
}

/// Checks the ICRC of a packet that was parsed, so is long enough to have one. `first` are its first
/// bytes, of a small one all.
// Rules: ENC-22
pub(crate) fn check_icrc(datagram: &Datagram, first: &[u8]) -> Result<(), Counter> {
    let bad = Counter::BadIcrc;
    let bth = first.first_chunk().ok_or(bad)?;
    let udp = datagram.udp_header();
    let mut masked = match datagram.ip_header() {
        IpHeader::V4(ip) => MaskedHeaders::ipv4(PlainIpv4::new(ip).map_err(|_| bad)?, udp, bth),
        IpHeader::V6(ip) => MaskedHeaders::ipv6(ip, udp, bth),
    };
    let computed = if first.len() == datagram.payload_len() as usize {
        icrc_of_small(&mut masked, first)
    } else {
        icrc_of_large(&masked, datagram)
    };
    match computed {
        Some((crc, sent)) if sent == icrc::finish(crc) => Ok(()),
        _ => Err(bad),
    }
}

/// Returns the computed and the received ICRC of the packet `all`.
fn icrc_of_small(masked: &mut MaskedHeaders, all: &[u8]) -> Option<(u32, [u8; ICRC_LEN])> {
    let (covered, sent) = all.split_last_chunk()?;
    let has_room = masked.append(covered.get(bth::BYTES..)?);
    let crc = rdma::crc::crc32_le(icrc::SEED, masked.as_bytes());
    has_room.then_some((crc, *sent))
}

/// Returns the computed and the received ICRC of a large packet, which is read in place.
fn icrc_of_large(masked: &MaskedHeaders, datagram: &Datagram) -> Option<(u32, [u8; ICRC_LEN])> {
    let seed = rdma::crc::crc32_le(icrc::SEED, masked.as_bytes());
    let end = (datagram.payload_len() as usize).checked_sub(ICRC_LEN)?;
    let covered = end.checked_sub(bth::BYTES)?;
    let crc = datagram.crc(seed, bth::BYTES, covered).ok()?;
    let mut sent = [0; ICRC_LEN];
    datagram.read(end, &mut sent).ok()?;
    Some((crc, sent))
}
