// SPDX-License-Identifier: GPL-2.0

//! Early packets of peers that make them as large as they can.

use crate::room::has_room;

/// Bytes that a packet is counted with at least.
const LEAST: usize = 8192;
/// The memory that all may take.
const MOST: usize = 128 << 20;
/// The fragments of a datagram that the stack keeps until it is whole.
const FRAGMENTS: usize = 4 << 20;
/// Bytes of the kernel's own data for a packet, more or less.
const OVERHEAD: usize = 1280;
/// Pages of all sizes that are there.
const PAGES: [usize; 3] = [4 << 10, 16 << 10, 64 << 10];

/// Returns the bytes that halves keep of peers that send `packets` packets of so many bytes to each.
fn kept(halves: usize, packets: usize, bytes: usize, page: usize) -> usize {
    let bytes = bytes.max(LEAST);
    let mut kept = 0;
    for _ in 0..halves {
        for index in 0..packets {
            if has_room(kept, bytes, index == 0, page) {
                kept += bytes;
            }
        }
    }
    kept
}

#[test]
fn packets_of_many_fragments_take_no_more_memory() {
    for page in PAGES {
        for bytes in [1, LEAST, 10_000, 100_000, FRAGMENTS] {
            for halves in [1, 16, 100] {
                let most = MOST + halves * (4 * LEAST).max(2 * page);
                let kept = kept(halves, 1024, bytes, page);
                assert!(
                    kept <= most,
                    "{halves} halves keep {kept} for packets of {bytes} with pages of {page}"
                );
            }
        }
    }
}

#[test]
fn the_usual_packets_fill_sixteen_halves() {
    for page in PAGES {
        assert_eq!(kept(16, 1024, 4608, page), MOST, "pages of {page}");
    }
}

#[test]
fn a_half_keeps_one_packet_however_much_the_others_have() {
    for page in PAGES {
        assert!(has_room(MOST, LEAST, true, page));
        assert!(has_room(MOST, page + OVERHEAD, true, page));
        assert!(!has_room(MOST, LEAST, false, page));
        assert!(!has_room(MOST, FRAGMENTS, true, page));
    }
}
