// SPDX-License-Identifier: GPL-2.0

//! From a packet of the protocol to a frame of the network.

use kernel::prelude::*;
use kernel::sync::Arc;
use rdma::net::{self, Credit, Path};
use roce::host::{Source, Transmit};
use roce::icrc::{self, IPV4_HEADERS, IPV6_HEADERS};

use crate::keys::Miss;
use crate::payload::Memory;
use crate::stats::{Counter, Stats};

/// The ICRC of the protocol, for frames.
pub(crate) enum Icrc {}

impl net::Icrc for Icrc {
    const SEED: u32 = icrc::SEED;

    #[inline]
    fn mask_ipv4(headers: &mut [u8; IPV4_HEADERS]) {
        icrc::mask_ipv4(headers);
    }

    #[inline]
    fn mask_ipv6(headers: &mut [u8; IPV6_HEADERS]) {
        icrc::mask_ipv6(headers);
    }

    #[inline]
    fn finish(crc: u32) -> [u8; 4] {
        icrc::finish(crc)
    }
}

/// Sends one packet, at the latest when its path is [flushed](flush). Softirq, or process context with
/// bottom halves off.
///
/// A packet that the network refuses counts as lost: the protocol sends it again.
///
/// # Errors
///
/// A [`Miss`] if the payload cannot be read. Nothing was sent then.
pub(crate) fn send<P: Memory>(
    path: &mut Path,
    transmit: &Transmit<'_, P>,
    credit: &Arc<Credit>,
    stats: &Stats,
) -> Result<(), Miss> {
    let header = transmit.header.as_bytes();
    let payload_len = transmit.source.len() as usize;
    let psns = transmit.psns;
    let Ok(mut frame) = path.frame(credit, header, payload_len, transmit.pad) else {
        stats.count(Counter::SendError);
        return Ok(());
    };
    if let Source::Bytes { memory, at, len } = transmit.source {
        memory.gather(at, len, &mut frame)?;
    }
    if frame.send::<Icrc>(psns).is_err() {
        stats.count(Counter::SendError);
    }
    Ok(())
}

/// Sends all packets given to [`send`], and counts the results. In the same context. Returns how
/// many bytes the network took since the last time.
pub(crate) fn flush(path: &mut Path, credit: &Arc<Credit>, stats: &Stats) -> u64 {
    path.flush(credit);
    let tally = path.take_tally();
    if tally.dropped != 0 {
        stats.add(Counter::SendError, tally.dropped.into());
    }
    if tally.sent == 0 {
        return 0;
    }
    stats.add(Counter::SentPackets, tally.sent.into());
    stats.add(Counter::SentBytes, tally.bytes);
    if path.is_multicast() {
        stats.add(Counter::SentMulticast, tally.sent.into());
    }
    tally.bytes
}
