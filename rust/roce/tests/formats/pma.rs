// SPDX-License-Identifier: GPL-2.0

//! Questions for the counters of a port.

use roce::pma::{answer, PortCounters, MAD_BYTES};

const COUNTERS: PortCounters = PortCounters {
    link_downed: 300,
    rcv_errors: 5,
    rcv_constraint_errors: 6,
    xmit_discards: 7,
    xmit_bytes: 4 * 0x1_0000_0001,
    rcv_bytes: 4095,
    xmit_packets: 100,
    rcv_packets: 200,
    multicast_xmit_packets: 30,
    multicast_rcv_packets: 40,
};

/// Returns a request of the class, by method and attribute, for port 1.
fn question(method: u8, attr: u8) -> [u8; MAD_BYTES] {
    let mut mad = [0xa5; MAD_BYTES];
    mad[..8].copy_from_slice(&[1, 4, 1, method, 0, 0, 0, 0]);
    mad[16..24].copy_from_slice(&[0, attr, 0, 0, 0, 0, 0, 0]);
    mad[65] = 1;
    mad
}

fn status(reply: &[u8; MAD_BYTES]) -> u16 {
    u16::from_be_bytes([reply[4], reply[5]])
}

fn be(reply: &[u8; MAD_BYTES], at: usize, len: usize) -> u64 {
    let bytes = &reply[64 + at..64 + at + len];
    bytes
        .iter()
        .fold(0, |value, byte| (value << 8) | u64::from(*byte))
}

#[test]
fn what_it_can() {
    let request = question(1, 0x01);
    let reply = answer(&request, || COUNTERS).unwrap();
    assert_eq!(reply[..8], [1, 4, 1, 0x81, 0, 0, 0, 0]);
    // The transaction, and fields that the class does not use, come back.
    assert_eq!(reply[8..64], request[8..64]);
    assert_eq!(reply[64..72], [1, 1, 3, 0, 0, 0, 0, 18]);
    assert!(reply[72..].iter().all(|byte| *byte == 0));
}

#[test]
fn counters_stop_at_their_largest_value() {
    let reply = answer(&question(1, 0x12), || COUNTERS).unwrap();
    assert_eq!(status(&reply), 0);
    assert_eq!(be(&reply, 1, 1), 1);
    assert_eq!(be(&reply, 4, 3), 0);
    assert_eq!(be(&reply, 7, 1), 255);
    assert_eq!(be(&reply, 8, 2), 5);
    assert_eq!(be(&reply, 14, 2), 7);
    assert_eq!(be(&reply, 17, 1), 6);
    assert_eq!(be(&reply, 24, 4), 0xffff_ffff);
    assert_eq!(be(&reply, 28, 4), 1023);
    assert_eq!(be(&reply, 32, 4), 100);
    assert_eq!(be(&reply, 36, 4), 200);
    assert!(reply[64 + 40..].iter().all(|byte| *byte == 0));
}

#[test]
fn wide_counters() {
    let reply = answer(&question(1, 0x1d), || COUNTERS).unwrap();
    assert_eq!(status(&reply), 0);
    let fields: Vec<u64> = (0..8).map(|n| be(&reply, 8 + 8 * n, 8)).collect();
    assert_eq!(fields, [0x1_0000_0001, 1023, 100, 200, 70, 160, 30, 40]);
    assert!(reply[64 + 72..].iter().all(|byte| *byte == 0));
}

#[test]
fn all_ports_are_the_one() {
    let mut request = question(1, 0x1d);
    request[65] = 0xff;
    assert_eq!(status(&answer(&request, || COUNTERS).unwrap()), 0);
    for port in [0, 2, 254] {
        request[65] = port;
        assert_eq!(status(&answer(&request, || COUNTERS).unwrap()), 7 << 2);
    }
}

#[test]
fn what_is_refused() {
    for attr in [0x02, 0x10, 0x13, 0xff] {
        let reply = answer(&question(1, attr), || COUNTERS).unwrap();
        assert_eq!(status(&reply), 3 << 2);
    }
    // Nothing can be set.
    let reply = answer(&question(2, 0x12), || COUNTERS).unwrap();
    assert_eq!((reply[3], status(&reply)), (0x81, 3 << 2));
    let mut request = question(1, 0x12);
    request[2] = 2;
    assert_eq!(status(&answer(&request, || COUNTERS).unwrap()), 1 << 2);
}

#[test]
fn what_is_no_question_for_it() {
    // Answers, and methods that are none of the class.
    for method in [0, 3, 5, 6, 7, 0x81, 0xff] {
        assert_eq!(answer(&question(method, 0x12), || COUNTERS), None);
    }
    // Other classes: subnet management, communication management.
    for class in [1, 3, 7, 0x81] {
        let mut request = question(1, 0x12);
        request[1] = class;
        assert_eq!(answer(&request, || COUNTERS), None);
    }
}
