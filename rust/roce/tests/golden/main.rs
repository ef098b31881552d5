// SPDX-License-Identifier: GPL-2.0

//! Foreign packets: scapy's, of every opcode with arbitrary values, and captured ones of
//! `rdma_rxe`. Each is parsed, has the fields that scapy reads in it, and is emitted again bit for
//! bit. The computed ICRC is the packet's own. `make.py` makes the files.

use std::collections::BTreeMap;

use roce::icrc::{finish, MaskedHeaders, PlainIpv4, IPV4_BYTES, IPV6_BYTES, SEED, UDP_BYTES};
use roce::opcode;
use roce::wire::{self, bth, HeaderBytes, Packet, ICRC_BYTES};

const SCAPY: &str = include_str!("scapy.txt");
const RXE: &str = include_str!("rxe.txt");

/// A packet from its IP header to its ICRC, and the BTH fields that scapy reads in it.
struct Golden {
    bytes: Vec<u8>,
    said: Vec<u32>,
}

fn golden(file: &str) -> Vec<Golden> {
    let lines = file.lines().filter(|line| !line.starts_with('#'));
    let packet = |line: &str| {
        let (packet, said) = line.split_once(' ').expect("a packet and what it says");
        let byte = |at| u8::from_str_radix(&packet[at..at + 2], 16).expect("hexadecimal digits");
        let number = |word| u32::from_str_radix(word, 16).expect("a hexadecimal number");
        Golden {
            bytes: (0..packet.len()).step_by(2).map(byte).collect(),
            said: said.split(' ').map(number).collect(),
        }
    };
    lines.map(packet).collect()
}

/// Returns the CRC as the kernel's `crc32_le` computes it.
fn crc32_le(seed: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(seed, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 * (crc & 1))
        })
    })
}

impl Golden {
    fn ip_bytes(&self) -> usize {
        match self.bytes[0] >> 4 {
            4 => IPV4_BYTES,
            _ => IPV6_BYTES,
        }
    }

    /// Returns the payload of UDP.
    fn transport(&self) -> &[u8] {
        &self.bytes[self.ip_bytes() + UDP_BYTES..]
    }

    /// Returns its length by the UDP header.
    fn transport_len(&self) -> usize {
        let at = self.ip_bytes() + 4;
        usize::from(u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]])) - UDP_BYTES
    }

    /// Returns true if the capture has the whole packet, not only the headers.
    fn is_whole(&self) -> bool {
        self.transport().len() == self.transport_len()
    }

    fn icrc(&self) -> [u8; 4] {
        let (ip, rest) = self.bytes.split_at(self.ip_bytes());
        let (udp, rest) = rest.split_first_chunk::<UDP_BYTES>().unwrap();
        let (bth, rest) = rest.split_first_chunk::<{ bth::BYTES }>().unwrap();
        let masked = match ip.len() {
            IPV4_BYTES => {
                MaskedHeaders::ipv4(PlainIpv4::new(ip.try_into().unwrap()).unwrap(), udp, bth)
            }
            _ => MaskedHeaders::ipv6(ip.try_into().unwrap(), udp, bth),
        };
        let crc = crc32_le(SEED, masked.as_bytes());
        finish(crc32_le(crc, &rest[..rest.len() - 4]))
    }

    /// Checks all that can be told of it, and returns its opcode.
    fn check(&self) -> u8 {
        let transport = self.transport();
        let len = self.transport_len();
        let packet = wire::parse(transport, len as u32).expect("a packet");
        assert_eq!(self.said, says(&packet), "{packet:?}");

        let header = HeaderBytes::new(&packet.bth, &packet.body);
        let (sent, rest) = transport.split_at(header.as_bytes().len());
        assert_eq!(header.as_bytes(), sent, "{packet:?}");
        let behind = packet.payload_len + u32::from(packet.bth.pad) + ICRC_BYTES;
        assert_eq!(sent.len() + behind as usize, len, "{packet:?}");
        if self.is_whole() {
            assert_eq!(self.icrc(), rest[rest.len() - 4..], "{packet:?}");
        }
        transport[0]
    }
}

/// Returns the BTH fields of a packet, in the order of the files.
fn says(packet: &Packet) -> [u32; 10] {
    let bth = &packet.bth;
    [
        opcode::encode(bth.transport, packet.body.operation()).into(),
        bth.solicited.into(),
        bth.mig_req.into(),
        bth.pad.into(),
        bth.pkey.0.into(),
        bth.fecn.into(),
        bth.becn.into(),
        bth.dest_qp.get(),
        bth.ack_req.into(),
        bth.psn.get(),
    ]
}

/// Returns the number of packets of each opcode.
fn check_all(file: &str) -> BTreeMap<u8, usize> {
    let mut kinds = BTreeMap::new();
    for packet in golden(file) {
        *kinds.entry(packet.check()).or_default() += 1;
    }
    kinds
}

// Rules: ENC-16, ENC-17, ENC-18, WIRE-1, WIRE-2, WIRE-7, WIRE-28
#[test]
fn packets_of_scapy() {
    let kinds = check_all(SCAPY);
    for opcode in 0..=u8::MAX {
        let is_known = opcode::decode(opcode).is_ok();
        assert_eq!(kinds.contains_key(&opcode), is_known, "{opcode:#x}");
    }
    // Over IPv4 and IPv6, with all pads where there may be payload.
    assert!(kinds.values().all(|count| [2, 12].contains(count)));
}

// Rules: ENC-16, WIRE-28
#[test]
fn packets_of_rdma_rxe() {
    let kinds = check_all(RXE);
    // SENDs, WRITEs, READs and their responses; of long packets, the headers.
    assert!(kinds.keys().copied().eq(0x00..=0x11), "{kinds:?}");
}

/// Every byte that the ICRC covers changes it.
#[test]
fn a_byte_that_differs_makes_another_packet() {
    for packet in golden(RXE).into_iter().filter(Golden::is_whole) {
        let headers = packet.ip_bytes() + UDP_BYTES;
        for at in (0..packet.bytes.len() - 4).filter(|at| *at != headers + bth::RESV8A) {
            if at < headers {
                continue; // Of those some may change on the way.
            }
            let mut bytes = packet.bytes.clone();
            bytes[at] ^= 0x10;
            let other = Golden {
                bytes,
                said: Vec::new(),
            };
            assert_ne!(other.icrc(), packet.icrc());
        }
    }
}
