// SPDX-License-Identifier: GPL-2.0

//! The arithmetic of a ring's indices, for any that a process stores.

use std::collections::VecDeque;

use proptest::prelude::*;

use crate::shape::Shape;

#[test]
fn rings_have_the_shape_that_was_asked_for() {
    for (entries, bytes, slots, log2) in [
        (0, 1, 2, 0),
        (1, 16, 2, 4),
        (2, 17, 4, 5),
        (3, 48, 4, 6),
        (4, 64, 8, 6),
        (7, 65, 8, 7),
        (1 << 20, 720, 1 << 21, 10),
        ((1 << 20) - 1, 512, 1 << 20, 9),
        (1 << 24, 1 << 16, 1 << 25, 16),
    ] {
        let ring = Shape::new(entries, bytes).unwrap();
        assert_eq!((ring.slots(), ring.log2_slot_bytes()), (slots, log2));
        assert!(ring.capacity() >= entries && ring.slot_bytes() >= bytes as usize);
        assert_eq!(ring.capacity(), slots - 1);
        assert_eq!(ring.mask(), slots - 1);
        assert_eq!(ring.bytes(), slots as usize * ring.slot_bytes());
    }
    for (entries, bytes) in [
        (1, 0),
        (1, (1 << 16) + 1),
        ((1 << 24) + 1, 1),
        (u32::MAX, 1),
        (1, u32::MAX),
    ] {
        assert_eq!(Shape::new(entries, bytes), None);
    }
}

// Rules: WRQ-11
#[test]
fn a_ring_is_a_queue() {
    for entries in 0..9 {
        let ring = Shape::new(entries, 8).unwrap();
        // Every state that a ring can be in.
        for start in 0..ring.slots() {
            for count in 0..=ring.capacity() {
                let mut model = VecDeque::new();
                let mut producer = start;
                for _ in 0..count {
                    assert!(ring.free(producer, start) > 0);
                    model.push_back(ring.offset(producer));
                    producer = ring.next(producer);
                }
                assert_eq!(ring.used(producer, start), count);
                assert_eq!(ring.free(producer, start), ring.capacity() - count);
                let mut consumer = start;
                while let Some(offset) = model.pop_front() {
                    assert!(ring.used(producer, consumer) > 0);
                    assert_eq!(ring.offset(consumer), offset);
                    consumer = ring.next(consumer);
                }
                assert_eq!((ring.used(producer, consumer), consumer), (0, producer));
            }
        }
    }
}

proptest! {
    // Rules: WRQ-10
    #[test]
    fn no_index_leads_out_of_a_ring(
        entries in 0..100_000u32, bytes in 1..1000u32, producer: u32, consumer: u32,
    ) {
        let ring = Shape::new(entries, bytes).unwrap();
        prop_assert!(ring.used(producer, consumer) <= ring.capacity());
        prop_assert_eq!(
            ring.used(producer, consumer) + ring.free(producer, consumer),
            ring.capacity()
        );
        prop_assert!(ring.offset(producer) + ring.slot_bytes() <= ring.bytes());
        prop_assert!(ring.next(producer) < ring.slots());
        // Only the low bits count.
        let masked = producer & ring.mask();
        prop_assert_eq!(ring.offset(producer), ring.offset(masked));
        prop_assert_eq!(ring.used(producer, consumer), ring.used(masked, consumer));
    }
}

// Rules: WRQ-10, WRQ-11, WRQ-12
#[test]
fn ring_indices_count_entries() {
    for log2 in 1..=8 {
        let slots = 1u32 << log2;
        let ring = Shape::new(slots - 1, 24).unwrap();
        assert_eq!((ring.slots(), ring.capacity()), (slots, slots - 1));
        for producer in 0..slots {
            for consumer in 0..slots {
                let used = (producer + slots - consumer) % slots;
                // A peer may have stored anything above the bits that count.
                for stray in [0, slots, 1 << 31, 0u32.wrapping_sub(slots)] {
                    let wild = producer.wrapping_add(stray);
                    assert_eq!(ring.used(wild, consumer), used);
                    assert_eq!(ring.used(producer, consumer.wrapping_add(stray)), used);
                    assert_eq!(ring.free(wild, consumer), slots - 1 - used);
                    assert_eq!(ring.next(wild), (producer + 1) % slots);
                    assert_eq!(ring.offset(wild), producer as usize * 32);
                }
                // Empty, full, and nothing that looks like both.
                assert_eq!(used == 0, producer == consumer);
                let is_full = ring.next(producer) == consumer;
                assert_eq!(ring.free(producer, consumer) == 0, is_full);
            }
        }
        assert_eq!(ring.offset(slots - 1) + ring.slot_bytes(), ring.bytes());
    }
}

#[test]
fn rings_have_room_for_what_was_asked_for_and_not_for_much_more() {
    for entries in (0..1 << 16).chain((1 << 24) - 2..=1 << 24) {
        let ring = Shape::new(entries, 16).unwrap();
        let slots = ring.slots();
        assert!(slots.is_power_of_two() && slots > entries && slots >= 2);
        assert!(slots == 2 || slots / 2 <= entries);
    }
    for bytes in 1..=1 << 16 {
        let slot = Shape::new(1, bytes).unwrap().slot_bytes();
        assert!(slot.is_power_of_two() && slot >= bytes as usize && slot / 2 < bytes as usize);
    }
}
