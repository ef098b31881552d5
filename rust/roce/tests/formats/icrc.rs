// SPDX-License-Identifier: GPL-2.0

use roce::icrc::{
    finish, MaskedHeaders, NotPlainIpv4, PlainIpv4, IPV4_BYTES, IPV6_BYTES, REST_BYTES, SEED,
    UDP_BYTES,
};
use roce::wire::bth;

use crate::hex::hex;

/// Returns the CRC as the kernel's `crc32_le` computes it: neither seed nor result is inverted.
fn crc32_le(seed: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(seed, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 * (crc & 1))
        })
    })
}

/// Computes the ICRC of a packet that starts with its IP header and ends with its ICRC.
fn icrc(packet: &[u8]) -> Result<[u8; 4], NotPlainIpv4> {
    let ip_bytes = match packet[0] >> 4 {
        4 => IPV4_BYTES,
        _ => IPV6_BYTES,
    };
    let (ip, rest) = packet.split_at(ip_bytes);
    let (udp, rest) = rest.split_first_chunk::<UDP_BYTES>().unwrap();
    let (bth, rest) = rest.split_first_chunk::<{ bth::BYTES }>().unwrap();
    let mut masked = match ip_bytes {
        IPV4_BYTES => MaskedHeaders::ipv4(PlainIpv4::new(ip.try_into().unwrap())?, udp, bth),
        _ => MaskedHeaders::ipv6(ip.try_into().unwrap(), udp, bth),
    };
    assert_eq!(masked.as_bytes().len(), ip_bytes + UDP_BYTES + bth::BYTES);
    let rest = &rest[..rest.len() - 4];
    let crc = crc32_le(crc32_le(SEED, masked.as_bytes()), rest);
    assert!(masked.append(rest));
    assert_eq!(crc, crc32_le(SEED, masked.as_bytes()), "in one piece");
    Ok(finish(crc))
}

/// Returns foreign packets with their ICRC.
fn golden() -> [Vec<u8>; 4] {
    [
        // A congestion notification that a ConnectX-4 Lx sent.
        hex(
            "45c2003c718c400040119161 0a001101 0a001201  000012b700280000
             8100ffff 40000118 00000000  00000000000000000000000000000000  82fd002a",
        ),
        // A SEND on an unreliable connection, of scapy's tests.
        hex(
            "450100400478400040 11b4d5 c0a80007 c0a80007  c00012b7002caca2
             2460ffff 000000d3 00cf1710
             4630818be28935d90e9a95505401be885e500000  78f353f3",
        ),
        // An acknowledgement that scapy made.
        hex(
            "451a0030778840000911df0d 0a010203 0a040506  c12312b7001c081f
             1100ffff 00123456 00abcdef  00000005  d9621b44",
        ),
        // A WRITE over IPv6 that scapy made.
        hex("63a12345002c113f fd000000000000000000000000000001
             fd000000000000000000000000000002  c12312b7002c829f
             0a30ffff 00123456 80abcdef  1122334455667788aabbccdd00000001 5a000000  3cd5021f"),
    ]
}

// Rules: ENC-15
#[test]
fn the_seed_has_the_missing_link_header_in_it() {
    assert_eq!(crc32_le(u32::MAX, &[0xff; 8]), SEED);
}

// Rules: ENC-16, ENC-21
#[test]
fn the_crc_is_that_of_others() {
    for packet in golden() {
        assert_eq!(icrc(&packet).unwrap(), packet[packet.len() - 4..]);
    }
}

// Rules: ENC-16, ENC-17, ENC-18, ENC-19, ENC-20
#[test]
fn what_may_change_on_the_way_does_not_count() {
    for packet in golden() {
        let is_v4 = packet[0] >> 4 == 4;
        let ip_bytes = if is_v4 { IPV4_BYTES } else { IPV6_BYTES };
        // Bits that do not count, by byte.
        let ignored = |at: usize| -> u8 {
            let in_ip = match (is_v4, at) {
                (true, 1 | 8 | 10 | 11) | (false, 1 | 2 | 3 | 7) => 0xff,
                (false, 0) => 0x0f,
                _ => 0,
            };
            match at.checked_sub(ip_bytes) {
                None => in_ip,
                Some(6 | 7 | 12) => 0xff,
                Some(_) => 0,
            }
        };
        let expected = icrc(&packet).unwrap();
        for at in 0..packet.len() - 4 {
            for bit in 0..8 {
                let mut changed = packet.clone();
                changed[at] ^= 1 << bit;
                if at == 0 && ignored(at) & (1 << bit) == 0 {
                    continue; // It is not the same IP any more.
                }
                let same = icrc(&changed).unwrap() == expected;
                assert_eq!(same, ignored(at) & (1 << bit) != 0, "byte {at} bit {bit}");
            }
        }
    }
}

// Rules: ENC-3
#[test]
fn ipv4_options_are_refused() {
    let [packet, ..] = golden();
    for first in 0..=255u8 {
        let mut ip: [u8; IPV4_BYTES] = packet[..IPV4_BYTES].try_into().unwrap();
        ip[0] = first;
        assert_eq!(PlainIpv4::new(&ip).is_ok(), first == 0x45);
    }
}

#[test]
fn what_has_no_room_is_not_appended() {
    let [.., packet] = golden();
    let ip = packet[..IPV6_BYTES].try_into().unwrap();
    let mut masked = MaskedHeaders::ipv6(ip, &[0; UDP_BYTES], &[0; bth::BYTES]);
    let before = masked.as_bytes().to_vec();
    assert!(!masked.append(&[1; REST_BYTES + 1]));
    assert_eq!(masked.as_bytes(), before);
    assert!(masked.append(&[1; REST_BYTES]));
    assert_eq!(masked.as_bytes(), [&before[..], &[1; REST_BYTES]].concat());
    assert!(!masked.append(&[1]));
}
