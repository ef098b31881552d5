// SPDX-License-Identifier: GPL-2.0

use roce::time::{earliest, AckTimeout, Instant, RnrTimer};

// Rules: RTY-2
#[test]
fn ack_timeouts_double_from_4_microseconds() {
    assert_eq!(AckTimeout::new(0).unwrap().delay_ns(), None);
    assert_eq!(AckTimeout::NEVER.delay_ns(), None);
    let mut delay_ns = 8192;
    for code in 1..=31 {
        let timeout = AckTimeout::new(code).unwrap();
        assert_eq!(timeout.code(), code);
        assert_eq!(timeout.delay_ns(), Some(delay_ns));
        delay_ns *= 2;
    }
    assert_eq!(AckTimeout::new(32), None);
}

// Rules: RNR-10
#[test]
fn rnr_timers_are_those_of_the_standard() {
    // In hundredths of a millisecond, by code.
    let table = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
        1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    for (code, hundredths) in (0..).zip(table) {
        let timer = RnrTimer::new(code).unwrap();
        assert_eq!(timer.code(), code);
        assert_eq!(timer.delay_ns(), hundredths * 10_000);
        assert_eq!(RnrTimer::from_low_bits(code | 0xe0), timer);
    }
    assert_eq!(RnrTimer::new(32), None);
}

#[test]
fn instants_stop_at_the_end_of_time() {
    let now = Instant::from_ns(5);
    assert_eq!(now.after_ns(7).as_ns(), 12);
    assert_eq!(now.after_ns(u64::MAX).as_ns(), u64::MAX);
}

#[test]
fn the_earliest_counts() {
    let (a, b) = (Instant::from_ns(1), Instant::from_ns(2));
    for (one, other, expected) in [
        (Some(a), Some(b), Some(a)),
        (Some(b), Some(a), Some(a)),
        (Some(a), None, Some(a)),
        (None, Some(b), Some(b)),
        (None, None, None),
    ] {
        assert_eq!(earliest(one, other), expected);
    }
}
