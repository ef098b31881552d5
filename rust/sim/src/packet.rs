// SPDX-License-Identifier: GPL-2.0

//! Packets as bytes: IPv4, UDP, the transport's headers and payload, the ICRC.

use roce::icrc::{self, MaskedHeaders, PlainIpv4, IPV4_BYTES, UDP_BYTES};
use roce::num::Qpn;
use roce::wire::{self, bth, cnp, Packet};

/// The UDP port of RoCEv2.
const PORT: u16 = 4791;
/// Where the UDP payload starts.
pub const UDP_PAYLOAD: usize = IPV4_BYTES + UDP_BYTES;
/// Bytes of the ICRC.
const ICRC: usize = wire::ICRC_BYTES as usize;

/// The address of a node.
pub type Address = [u8; 4];

/// A packet taken off the network that passed the host's checks.
pub struct Incoming<'a> {
    /// The sender's address.
    pub source: Address,
    /// Its transport headers.
    pub packet: Packet,
    /// Its payload.
    pub payload: &'a [u8],
}

/// Returns the address of node number `node`.
pub fn address(node: usize) -> Address {
    [10, 0, 0, node as u8 + 1]
}

/// Starts a packet with IP and UDP headers. [`finish`] fills in their lengths.
pub fn start(source: Address, dest: Address, header: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(UDP_PAYLOAD + header.len() + 64);
    bytes.extend_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    bytes.extend_from_slice(&source);
    bytes.extend_from_slice(&dest);
    bytes.extend_from_slice(&0xc123u16.to_be_bytes());
    bytes.extend_from_slice(&PORT.to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(header);
    bytes
}

/// Ends a packet: pad, lengths and ICRC.
pub fn finish(bytes: &mut Vec<u8>, pad: u8) {
    bytes.resize(bytes.len() + usize::from(pad), 0);
    let total = (bytes.len() + ICRC) as u16;
    bytes[2..4].copy_from_slice(&total.to_be_bytes());
    let udp = total - IPV4_BYTES as u16;
    bytes[24..26].copy_from_slice(&udp.to_be_bytes());
    bytes.extend_from_slice(&[0; ICRC]);
    seal(bytes);
}

/// The congestion field of a packet's IP header. The ICRC does not cover it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ecn {
    /// It is not to be marked.
    NotEct = 0,
    /// It may be marked.
    Ect1 = 1,
    /// It may be marked.
    Ect0 = 2,
    /// It met a queue that was long.
    Ce = 3,
}

/// Returns the congestion field of a packet; `NotEct` if it has no IP header.
pub fn ecn(bytes: &[u8]) -> Ecn {
    match bytes.get(1).map_or(0, |tos| tos & 3) {
        0 => Ecn::NotEct,
        1 => Ecn::Ect1,
        2 => Ecn::Ect0,
        _ => Ecn::Ce,
    }
}

/// Sets the congestion field of a packet.
pub fn set_ecn(bytes: &mut [u8], ecn: Ecn) {
    if let Some(tos) = bytes.get_mut(1) {
        *tos = (*tos & !3) | ecn as u8;
    }
}

/// Sets a correct ICRC in a whole packet, regardless of its contents.
pub fn seal(bytes: &mut [u8]) {
    let Some(end) = bytes.len().checked_sub(ICRC) else {
        return;
    };
    if let Some(icrc) = checksum(&bytes[..end]) {
        bytes[end..].copy_from_slice(&icrc);
    }
}

/// Makes a congestion notification packet, from one address to a queue pair of another.
pub fn notification(source: Address, dest: Address, dest_qp: Qpn) -> Vec<u8> {
    let mut bytes = start(source, dest, cnp::emit(dest_qp).as_bytes());
    bytes[1] = cnp::DSCP << 2;
    finish(&mut bytes, 0);
    bytes
}

/// Returns the sender and the destination queue pair of a congestion notification packet. Returns
/// `None` if it is another packet, is not for `dest` or is broken.
pub fn parse_notification(bytes: &[u8], dest: Address) -> Option<(Address, Qpn)> {
    let (source, transport) = open(bytes, dest)?;
    let header = transport.first_chunk()?;
    let is_cnp = cnp::is_cnp(transport, transport.len() as u32);
    is_cnp.then(|| (source, bth::dest_qp(header)))
}

/// Takes a packet apart as its receiver does; `None` if it is not for `dest` or is broken.
pub fn parse(bytes: &[u8], dest: Address) -> Option<Incoming<'_>> {
    let (source, transport) = open(bytes, dest)?;
    let packet = wire::parse(transport, transport.len() as u32).ok()?;
    let start = packet.payload_at(transport.len() as u32) as usize;
    let payload = transport.get(start..start + packet.payload_len as usize)?;
    Some(Incoming {
        source,
        packet,
        payload,
    })
}

/// Returns the sender of a packet, and its bytes from the BTH on; `None` if it is not for `dest` or
/// is broken.
fn open(bytes: &[u8], dest: Address) -> Option<(Address, &[u8])> {
    let (ip, rest) = bytes.split_first_chunk::<IPV4_BYTES>()?;
    let (udp, transport) = rest.split_first_chunk::<UDP_BYTES>()?;
    let [_, _, l0, l1, .., s0, s1, s2, s3, d0, d1, d2, d3] = *ip;
    let source = [s0, s1, s2, s3];
    let [_, _, p0, p1, u0, u1, _, _] = *udp;
    let is_ours = ip[0] == 0x45
        && usize::from(u16::from_be_bytes([l0, l1])) == bytes.len()
        && ip[9] == 17
        && [d0, d1, d2, d3] == dest
        && u16::from_be_bytes([p0, p1]) == PORT
        && usize::from(u16::from_be_bytes([u0, u1])) == bytes.len() - IPV4_BYTES;
    if !is_ours {
        return None;
    }
    let (body, icrc) = bytes.split_last_chunk::<ICRC>()?;
    (checksum(body)? == *icrc).then_some((source, transport))
}

/// Returns the ICRC of a packet without it; `None` if it is too short or no plain IPv4.
fn checksum(bytes: &[u8]) -> Option<[u8; 4]> {
    let (ip, rest) = bytes.split_first_chunk::<IPV4_BYTES>()?;
    let (udp, rest) = rest.split_first_chunk::<UDP_BYTES>()?;
    let (bth, rest) = rest.split_first_chunk::<{ bth::BYTES }>()?;
    let masked = MaskedHeaders::ipv4(PlainIpv4::new(ip).ok()?, udp, bth);
    let crc = crc32(icrc::SEED, masked.as_bytes());
    Some(icrc::finish(crc32(crc, rest)))
}

/// Tables of the CRC by eight bytes at a time.
const TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (0xedb8_8320 * (crc & 1));
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before: u32 = tables[table - 1][byte];
            tables[table][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// Returns the CRC-32 of Ethernet; neither seed nor result is inverted.
fn crc32(seed: u32, bytes: &[u8]) -> u32 {
    let mut chunks = bytes.chunks_exact(8);
    let mut crc = seed;
    for chunk in &mut chunks {
        let [a, b, c, d] = (crc ^ u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]))
            .to_le_bytes()
            .map(usize::from);
        crc = TABLES[7][a]
            ^ TABLES[6][b]
            ^ TABLES[5][c]
            ^ TABLES[4][d]
            ^ TABLES[3][usize::from(chunk[4])]
            ^ TABLES[2][usize::from(chunk[5])]
            ^ TABLES[1][usize::from(chunk[6])]
            ^ TABLES[0][usize::from(chunk[7])];
    }
    chunks.remainder().iter().fold(crc, |crc, byte| {
        (crc >> 8) ^ TABLES[0][usize::from((crc as u8) ^ byte)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crc_is_that_of_ethernet() {
        assert_eq!(!crc32(!0, b"123456789"), 0xcbf4_3926);
        assert_eq!(!crc32(!0, b"1"), 0x83dc_efb7);
    }

    #[test]
    fn a_notification_is_no_other_packet() {
        let bytes = notification(address(0), address(1), Qpn::new(0x11));
        let parsed = parse_notification(&bytes, address(1));
        assert_eq!(parsed, Some((address(0), Qpn::new(0x11))));
        assert!(parse(&bytes, address(1)).is_none());
        assert!(parse_notification(&bytes, address(0)).is_none());
        assert_eq!((bytes[1], ecn(&bytes)), (0xc0, Ecn::NotEct));
        let mut broken = bytes.clone();
        broken[UDP_PAYLOAD + 7] ^= 1;
        assert!(parse_notification(&broken, address(1)).is_none());
    }

    #[test]
    fn what_changed_is_not_taken() {
        let header = [
            0x04, 0, 0xff, 0xff, 0, 0, 0, 0x11, 0x80, 0, 0, 7, // SEND Only
        ];
        let mut bytes = start(address(0), address(1), &header);
        bytes.extend_from_slice(b"abcd");
        finish(&mut bytes, 0);
        assert_eq!(parse(&bytes, address(1)).unwrap().payload, b"abcd");
        assert_eq!(parse(&bytes, address(1)).unwrap().source, address(0));
        assert!(parse(&bytes, address(0)).is_none());
        // Type of service, time to live, the checksums and a reserved byte may change on the way.
        let masked = [1, 8, 10, 11, 26, 27, 32];
        for at in 0..bytes.len() {
            bytes[at] ^= 0x10;
            assert_eq!(
                parse(&bytes, address(1)).is_some(),
                masked.contains(&at),
                "{at}"
            );
            bytes[at] ^= 0x10;
        }
    }
}
