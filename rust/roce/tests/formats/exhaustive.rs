// SPDX-License-Identifier: GPL-2.0

//! Small domains, completely: each assertion holds for every value.

use roce::num::{Mtu, Pkey, Psn};
use roce::time::{AckTimeout, RnrTimer};

const CIRCLE: u32 = 1 << 24;
const HALF: u32 = 1 << 23;

/// Where on the circle a computation could go wrong.
const ORIGINS: [u32; 7] = [0, 1, HALF - 1, HALF, HALF + 1, CIRCLE - 2, CIRCLE - 1];

// Rules: PSN-1
#[test]
fn psns_count_modulo_2_to_the_24() {
    for raw in 0..CIRCLE {
        let psn = Psn::new(raw);
        assert_eq!(psn.get(), raw);
        assert_eq!(Psn::new(raw | 0xff00_0000), psn);
        assert_eq!(Psn::from_be_bytes(psn.to_be_bytes()), psn);
        assert_eq!(
            psn.next().get(),
            if raw == CIRCLE - 1 { 0 } else { raw + 1 }
        );
        assert_eq!(psn.next().prev(), psn);
        assert_eq!(psn.add(CIRCLE), psn);
        // Facts about 0 hold for each PSN: the circle has no special place.
        for step in ORIGINS {
            assert_eq!(psn.add(step).get(), (raw + step) % CIRCLE);
            assert_eq!(psn.sub(step).get(), (raw + CIRCLE - step) % CIRCLE);
            assert_eq!(psn.add(step).distance_from(psn), step);
        }
    }
}

/// Only the distance of two PSNs counts, as the test before shows: so all
/// distances from a few places are all pairs.
// Rules: PSN-2
#[test]
fn psns_are_ordered_within_half_the_circle() {
    for origin in ORIGINS {
        let here = Psn::new(origin);
        for distance in 0..CIRCLE {
            let there = Psn::new((origin + distance) % CIRCLE);
            assert_eq!(there.distance_from(here), distance);
            let is_ahead = 0 < distance && distance <= HALF;
            assert_eq!(here.is_before(there), is_ahead);
            assert_eq!(here.is_at_or_before(there), is_ahead || distance == 0);
            // Of two different ones one is before the other; at half the circle, each.
            let is_behind = distance >= HALF;
            assert_eq!(there.is_before(here), is_behind);
        }
    }
}

// Rules: KEY-1, KEY-2
#[test]
fn pkeys_match_as_members_of_a_partition() {
    for ours in 0..=u16::MAX {
        let partition = ours & 0x7fff;
        let mut others = vec![0, 0x8000, 0x7fff, 0xffff, partition, partition | 0x8000];
        others.extend((0..16).map(|bit| ours ^ (1 << bit)));
        for theirs in others {
            let same = partition == theirs & 0x7fff;
            let is_one_full = (ours | theirs) & 0x8000 != 0;
            let expected = partition != 0 && same && is_one_full;
            assert_eq!(Pkey(ours).matches(Pkey(theirs)), expected);
        }
    }
    for ours in [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
        for theirs in 0..=u16::MAX {
            let expected = ours & 0x7fff != 0
                && ours & 0x7fff == theirs & 0x7fff
                && (ours | theirs) & 0x8000 != 0;
            assert_eq!(Pkey(ours).matches(Pkey(theirs)), expected);
        }
    }
}

#[test]
fn timers_have_a_delay_for_each_code_and_no_other() {
    for code in 0..=u8::MAX {
        let timeout = AckTimeout::new(code);
        let timer = RnrTimer::new(code);
        assert_eq!(
            (timeout.is_some(), timer.is_some()),
            (code <= 31, code <= 31)
        );
        assert_eq!(RnrTimer::from_low_bits(code).code(), code & 31);
        let (Some(timeout), Some(timer)) = (timeout, timer) else {
            continue;
        };
        let expected = (code > 0).then(|| 4096u64 << code);
        assert_eq!((timeout.code(), timeout.delay_ns()), (code, expected));
        // A longer delay for a larger code; 0 stands for the longest.
        let shorter = RnrTimer::from_low_bits(code.wrapping_sub(1));
        if code != 1 {
            assert!(shorter.delay_ns() < timer.delay_ns());
        }
        assert_eq!(timer.delay_ns() % 10_000, 0);
    }
}

#[test]
fn messages_take_as_many_packets_as_they_need() {
    for mtu in Mtu::ALL {
        let bytes = mtu.bytes();
        let whole = |length: u32| u64::from(length).div_ceil(u64::from(bytes)).max(1);
        let near = (0..=u32::MAX / bytes).map(|count| count * bytes);
        let near = near.flat_map(|at| [at.wrapping_sub(1), at, at.wrapping_add(1)]);
        for length in (0..=4 * bytes).chain(near) {
            assert_eq!(u64::from(mtu.packets(length)), whole(length));
        }
    }
}
