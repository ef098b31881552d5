// SPDX-License-Identifier: GPL-2.0

use proptest::prelude::*;
use roce::num::{Iova, Msn, Mtu, Pkey, Psn, Qkey, Qpn};

const CIRCLE: u32 = 1 << 24;
const HALF: u32 = 1 << 23;

/// Numbers where something happens, with neighbours.
fn corners() -> impl Iterator<Item = u32> {
    [0, 1, HALF, CIRCLE]
        .into_iter()
        .flat_map(|corner| (0..=8).map(move |near| (corner + CIRCLE + near - 4) % CIRCLE))
}

#[test]
fn psns_count_on_a_circle() {
    for a in corners() {
        for b in corners() {
            let (psn, other) = (Psn::new(a), Psn::new(b));
            let ahead = (b + CIRCLE - a) % CIRCLE;
            assert_eq!(other.distance_from(psn), ahead);
            assert_eq!(psn.add(ahead), other);
            assert_eq!(other.sub(ahead), psn);
            assert_eq!(psn.is_before(other), ahead != 0 && ahead <= HALF);
            assert_eq!(psn.is_at_or_before(other), ahead <= HALF);
            // One of two different ones is before the other; both at half the circle.
            let both = psn.is_before(other) && other.is_before(psn);
            assert_eq!(both, ahead == HALF);
        }
        assert_eq!(Psn::new(a).next().get(), (a + 1) % CIRCLE);
        assert_eq!(Psn::new(a).prev().get(), (a + CIRCLE - 1) % CIRCLE);
        assert_eq!(Psn::from_be_bytes(Psn::new(a).to_be_bytes()).get(), a);
    }
}

proptest! {
    #[test]
    fn psn_arithmetic_is_a_group(a: u32, b: u32, c: u32) {
        let psn = Psn::new(a);
        prop_assert_eq!(psn.add(b).add(c), psn.add(b.wrapping_add(c)));
        prop_assert_eq!(psn.add(b).sub(b), psn);
        prop_assert_eq!(psn.add(b).distance_from(psn), b % CIRCLE);
        // Order does not depend on where one stands.
        prop_assert_eq!(
            psn.is_before(psn.add(b)),
            psn.add(c).is_before(psn.add(b).add(c))
        );
    }
}

// Rules: MCG-2
#[test]
fn numbers_have_24_bits() {
    assert_eq!(Psn::new(u32::MAX).get(), 0xff_ffff);
    assert_eq!(Msn::new(0x0123_4567).get(), 0x23_4567);
    assert_eq!(Qpn::from_be_bytes([1, 2, 3]).get(), 0x01_0203);
    assert_eq!(Qpn::new(0x01_0203).to_be_bytes(), [1, 2, 3]);
    assert_eq!((Qpn::GSI.get(), Qpn::MULTICAST.get()), (1, 0xff_ffff));
    assert_eq!(format!("{:?}", Psn::new(0x12)), "Psn(0x000012)");
}

#[test]
fn pkeys_match_within_a_partition_unless_both_are_limited() {
    let (full, limited) = (Pkey(0x8001), Pkey(0x0001));
    for (ours, theirs, good) in [
        (full, full, true),
        (full, limited, true),
        (limited, full, true),
        (limited, limited, false),
        (full, Pkey(0x8002), false),
        (Pkey::DEFAULT, Pkey::DEFAULT, true),
        (Pkey::DEFAULT, Pkey(0x7fff), true),
        (Pkey(0x8000), Pkey(0x8000), false),
        (Pkey(0), Pkey(0x8000), false),
    ] {
        assert_eq!(ours.matches(theirs), good, "{ours:?} {theirs:?}");
    }
}

#[test]
fn qkeys_with_the_upper_bit_are_privileged() {
    assert!(Qkey(0x8001_0000).is_privileged());
    assert!(!Qkey(0x7fff_ffff).is_privileged());
}

#[test]
fn mtus_have_codes() {
    for (code, bytes) in [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)] {
        let mtu = Mtu::from_code(code).unwrap();
        assert_eq!((mtu.bytes(), mtu.code()), (bytes, code));
        assert_eq!(Mtu::within(bytes), Some(mtu));
        assert_eq!(Mtu::within(2 * bytes - 1), Some(mtu));
    }
    for code in [0, 6, 7, u32::MAX] {
        assert_eq!(Mtu::from_code(code), None);
    }
    assert_eq!(Mtu::within(255), None);
    assert_eq!(Mtu::within(u32::MAX), Some(Mtu::B4096));
    assert_eq!(Mtu::within(1500 - 80), Some(Mtu::B1024));
}

// Rules: PSN-6
#[test]
fn messages_take_packets() {
    for mtu in Mtu::ALL {
        let n = mtu.bytes();
        for (len, packets) in [
            (0, 1),
            (1, 1),
            (n - 1, 1),
            (n, 1),
            (n + 1, 2),
            (2 * n, 2),
            (2 * n + 1, 3),
            (1 << 31, (1 << 31) / n),
            (u32::MAX, ((1u64 << 32) / u64::from(n)) as u32),
        ] {
            assert_eq!(mtu.packets(len), packets, "{len} at {mtu:?}");
        }
    }
    assert_eq!(Mtu::B256.packets(1 << 31), HALF);
}

#[test]
fn addresses_wrap() {
    assert_eq!(Iova(u64::MAX).add(2), Iova(1));
}
