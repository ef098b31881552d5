// SPDX-License-Identifier: GPL-2.0

//! Early packets of peers that make them as large as they can.

use crate::room::has_room;

/// Bytes of a buffer, on a machine with small pages.
const BUFFER: usize = 8192;
/// The memory that all may take.
const MOST: usize = 128 << 20;
/// The fragments of a datagram that the stack keeps until it is whole.
const FRAGMENTS: usize = 4 << 20;

/// Returns the bytes that halves keep of peers that send `packets` packets of so many bytes to each.
fn kept(halves: usize, packets: usize, bytes: usize) -> usize {
    let buffers = bytes.div_ceil(BUFFER).max(1);
    let mut kept = 0;
    for _ in 0..halves {
        for index in 0..packets {
            if has_room(kept, buffers, index == 0) {
                kept += buffers;
            }
        }
    }
    kept * BUFFER
}

#[test]
fn packets_of_many_fragments_take_no_more_memory() {
    for bytes in [1, BUFFER, 10_000, 100_000, FRAGMENTS] {
        for halves in [1, 16, 100] {
            let most = MOST + halves * 4 * BUFFER;
            let kept = kept(halves, 1024, bytes);
            assert!(
                kept <= most,
                "{halves} halves keep {kept} for packets of {bytes}"
            );
        }
    }
}

#[test]
fn the_usual_packets_fill_sixteen_halves() {
    assert_eq!(kept(16, 1024, 4608), MOST);
}

#[test]
fn a_half_keeps_one_packet_however_much_the_others_have() {
    assert!(has_room(MOST / BUFFER, 1, true));
    assert!(!has_room(MOST / BUFFER, 1, false));
    assert!(!has_room(MOST / BUFFER, FRAGMENTS / BUFFER, true));
}
