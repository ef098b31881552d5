// SPDX-License-Identifier: GPL-2.0

//! The invariant CRC and the bytes that it covers.
//!
//! It is the CRC-32 of Ethernet (polynomial 0x04c11db7, bits reflected) over
//!
//! 1. eight bytes of 0xff, in place of the link header that InfiniBand has and Ethernet lacks;
//! 2. the IP and UDP headers and the BTH, with every field set to ones that may change on the way
//!    ([`MaskedHeaders`]);
//! 3. the extension headers, the payload and the pad, as they are.
//!
//! Starting from [`SEED`], which has step 1 in it, feed [`MaskedHeaders::as_bytes`] and then the
//! rest of the packet up to the ICRC to a CRC that neither inverts its seed nor its result (the
//! kernel's `crc32_le`), and put the four bytes of [`finish`] at the packet's end.
//!
//! An IPv4 header with options is refused on receive and never sent. RoCEv2 has none, and no
//! standard says which bytes of them a router may change. IPv6 extension headers before UDP are
//! refused, too.

use crate::wire::bth;

/// The CRC after the eight bytes of ones that stand for a link header, from a seed of all ones.
// Rules: ENC-15
pub const SEED: u32 = 0xdebb_20e3;

/// Bytes of an IPv4 header without options.
pub const IPV4_BYTES: usize = 20;
/// Bytes of an IPv6 header.
pub const IPV6_BYTES: usize = 40;
/// Bytes of a UDP header.
pub const UDP_BYTES: usize = 8;

/// Bytes of the headers of a packet over IPv4, up to and with the BTH.
pub const IPV4_HEADERS: usize = IPV4_BYTES + UDP_BYTES + bth::BYTES;
/// Bytes of those of a packet over IPv6.
pub const IPV6_HEADERS: usize = IPV6_BYTES + UDP_BYTES + bth::BYTES;

/// Where the checksum of UDP is, and the BTH's reserved byte, behind the IP header.
const UDP_CHECKSUM: usize = 6;
const RESV8A: usize = UDP_BYTES + bth::RESV8A;

/// Bytes after the BTH for which [`MaskedHeaders`] have room, so that all of a small packet is one
/// piece.
pub const REST_BYTES: usize = 68;

const MAX_BYTES: usize = IPV6_HEADERS + REST_BYTES;

/// The packet's IPv4 header has options, or is no IPv4 header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotPlainIpv4;

/// An IPv4 header without options.
#[derive(Clone, Copy, Debug)]
pub struct PlainIpv4<'a>(&'a [u8; IPV4_BYTES]);

impl<'a> PlainIpv4<'a> {
    /// Takes a packet's first bytes.
    ///
    /// # Errors
    ///
    /// [`NotPlainIpv4`] if the first one is not that of an IPv4 header of five words.
    // Rules: ENC-3
    #[inline]
    pub const fn new(ip: &'a [u8; IPV4_BYTES]) -> Result<Self, NotPlainIpv4> {
        match ip[0] {
            0x45 => Ok(Self(ip)),
            _ => Err(NotPlainIpv4),
        }
    }
}

/// Masks the headers of a packet over IPv4, without options: type of service, time to live, both
/// checksums and the BTH's reserved byte. Identification and the lengths count as they are.
// Rules: ENC-17, ENC-19, ENC-20
#[inline]
pub fn mask_ipv4(headers: &mut [u8; IPV4_HEADERS]) {
    const TOS: usize = 1;
    const TTL: usize = 8;
    const CHECKSUM: usize = 10;

    headers[TOS] = 0xff;
    headers[TTL] = 0xff;
    headers[CHECKSUM] = 0xff;
    headers[CHECKSUM + 1] = 0xff;
    headers[IPV4_BYTES + UDP_CHECKSUM] = 0xff;
    headers[IPV4_BYTES + UDP_CHECKSUM + 1] = 0xff;
    headers[IPV4_BYTES + RESV8A] = 0xff;
}

/// Masks the headers of a packet over IPv6: traffic class, flow label, hop limit, the UDP checksum and
/// the BTH's reserved byte.
// Rules: ENC-18, ENC-19, ENC-20
#[inline]
pub fn mask_ipv6(headers: &mut [u8; IPV6_HEADERS]) {
    const HOP_LIMIT: usize = 7;

    headers[0] |= 0x0f;
    headers[1] = 0xff;
    headers[2] = 0xff;
    headers[3] = 0xff;
    headers[HOP_LIMIT] = 0xff;
    headers[IPV6_BYTES + UDP_CHECKSUM] = 0xff;
    headers[IPV6_BYTES + UDP_CHECKSUM + 1] = 0xff;
    headers[IPV6_BYTES + RESV8A] = 0xff;
}

/// Headers as the ICRC covers them: fields that may change on the way are all ones.
#[derive(Clone, Copy, Debug)]
pub struct MaskedHeaders {
    bytes: [u8; MAX_BYTES],
    len: u8,
}

impl MaskedHeaders {
    /// Returns the headers of a packet over IPv4, [masked](mask_ipv4).
    #[inline(always)]
    pub fn ipv4(ip: PlainIpv4<'_>, udp: &[u8; UDP_BYTES], bth: &[u8; bth::BYTES]) -> Self {
        Self::new(ip.0, udp, bth, mask_ipv4)
    }

    /// Returns the headers of a packet over IPv6, [masked](mask_ipv6).
    #[inline(always)]
    pub fn ipv6(ip: &[u8; IPV6_BYTES], udp: &[u8; UDP_BYTES], bth: &[u8; bth::BYTES]) -> Self {
        Self::new(ip, udp, bth, mask_ipv6)
    }

    // Rules: ENC-16
    #[inline(always)]
    fn new<const IP: usize, const ALL: usize>(
        ip: &[u8; IP],
        udp: &[u8; UDP_BYTES],
        bth: &[u8; bth::BYTES],
        mask: impl FnOnce(&mut [u8; ALL]),
    ) -> Self {
        const { assert!(IP + UDP_BYTES + bth::BYTES == ALL && ALL <= MAX_BYTES) };
        let mut to = Self {
            bytes: [0; MAX_BYTES],
            len: ALL as u8,
        };
        // There are as many.
        if let Some(headers) = to.bytes.first_chunk_mut() {
            // Three copies of constant length, which the compiler turns into as many moves.
            let (to_ip, rest) = headers.split_at_mut(IP);
            let (to_udp, to_bth) = rest.split_at_mut(UDP_BYTES);
            to_ip.copy_from_slice(ip);
            to_udp.copy_from_slice(udp);
            to_bth.copy_from_slice(bth);
            mask(headers);
        }
        to
    }

    /// Appends `rest`, the bytes behind the BTH, if there is room. There is room for [`REST_BYTES`]
    /// at least. Returns true if it did.
    #[inline]
    pub fn append(&mut self, rest: &[u8]) -> bool {
        let begin = usize::from(self.len);
        let end = begin.saturating_add(rest.len());
        let Some(room) = self.bytes.get_mut(begin..end) else {
            return false;
        };
        room.copy_from_slice(rest);
        self.len = end as u8;
        true
    }

    /// Returns the bytes, ready to be fed to the CRC.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&[])
    }
}

/// Returns the four bytes at the end of a packet, from the CRC over all before them.
// Rules: ENC-21
#[inline]
pub const fn finish(crc: u32) -> [u8; 4] {
    (!crc).to_le_bytes()
}
