// SPDX-License-Identifier: GPL-2.0

//! Some packets are late, and none is lost.

use roce::event::Event;
use roce::num::Mtu;

use crate::net::{all_succeeded, fetch_add, read, send, write, Link, Net, Setup, A, B};
use crate::rng::Rng;

/// Sends so many WRITEs of 64 packets. Returns how long that takes.
fn stream(net: &mut Net, ids: std::ops::Range<u64>) -> u64 {
    let (begin, end) = (net.now, ids.end);
    for id in ids {
        net.post(A, id, write(0), 0, 64 * 256);
    }
    net.run_until(|net| net.ends[A].world.sent_statuses().len() as u64 >= end);
    net.now.since(begin)
}

// Rules: RTY-22
#[test]
fn late_packets_leave_the_window_open_on_a_long_way() {
    const DELAY_NS: u64 = 500_000;
    for late_ns in [100_000, 300_000, 600_000] {
        let link = Link {
            delay_ns: DELAY_NS,
            late_ns,
            batch: 16,
            ..Link::default()
        };
        let mut net = Net::new(Setup {
            mtu: Mtu::B256,
            link,
            ..Setup::default()
        });
        let before_ns = stream(&mut net, 0..1000) / 1000;
        net.setup.link.reordering = 50;
        let ns = stream(&mut net, 1000..4000) / 3000;
        let (world, report) = (&net.ends[A].world, net.ends[A].requester.report().unwrap());
        all_succeeded(&world.sent_statuses(), 0..4000);
        assert_eq!(world.count(Event::AckTimeout), 0);
        assert_eq!(u64::from(report.least_round_trip_ns), 2 * DELAY_NS);
        assert!(report.window >= 256, "{report:?}");
        assert!(
            ns < 30 * before_ns,
            "{before_ns} ns in order, {ns} ns if late by {late_ns}"
        );
    }
}

// Rules: SEG-19
#[test]
fn a_path_that_becomes_longer_does_not_close_the_window() {
    const DELAY_NS: u64 = 20_000_000;
    let mut net = Net::new(Setup {
        mtu: Mtu::B256,
        timeout: 14,
        ..Setup::default()
    });
    stream(&mut net, 0..100);
    net.setup.link.delay_ns = DELAY_NS;
    let ns = stream(&mut net, 100..500);
    let (world, report) = (&net.ends[A].world, net.ends[A].requester.report().unwrap());
    all_succeeded(&world.sent_statuses(), 0..500);
    assert_eq!(world.count(Event::AckTimeout), 0);
    assert_eq!(u64::from(report.least_round_trip_ns), 2 * DELAY_NS);
    assert!(report.window >= 256, "{report:?}");
    // Three packets at a time would take 340 s.
    assert!(ns < 40_000_000_000, "{ns} ns");
}

/// Sends WRITEs, or READs and atomics as well, to a peer that drops early packets. Returns how long that takes.
fn to_a_peer_that_drops(reordering: u32, is_mixed: bool, seed: u64) -> u64 {
    let mut net = Net::new(Setup {
        seed,
        link: Link {
            delay_ns: 20_000,
            reordering,
            late_ns: 20_000,
            batch: 8,
            ..Link::default()
        },
        ..Setup::default()
    });
    net.ends[B].keeps = false;
    for id in 0..200 {
        match id % 3 {
            0 if is_mixed => net.post(A, id, read(0), 0, 16 << 10),
            1 if is_mixed => net.post(A, id, fetch_add(0x8000, 1), 0, 8),
            _ => net.post(A, id, write(0), 0, 16 << 10),
        }
    }
    net.run();
    let world = &net.ends[A].world;
    all_succeeded(&world.sent_statuses(), 0..200);
    net.now.as_ns()
}

// Rules: RTY-18, RTY-20
#[test]
fn late_packets_do_not_starve_a_peer_that_drops_early_ones() {
    for (is_mixed, most) in [(false, 40), (true, 10)] {
        let in_order_ns = to_a_peer_that_drops(0, is_mixed, 0);
        let late_ns: u64 = (0..20)
            .map(|seed| to_a_peer_that_drops(30, is_mixed, seed))
            .sum();
        assert!(
            late_ns / 20 < most * in_order_ns,
            "{in_order_ns} ns in order, {} ns if some are late",
            late_ns / 20
        );
    }
}

// Rules: RTY-1, SEG-19
#[test]
fn a_path_longer_than_the_timeout_is_measured() {
    const DELAY_NS: u64 = 100_000_000;
    let mut net = Net::new(Setup {
        mtu: Mtu::B256,
        timeout: 14,
        link: Link {
            delay_ns: DELAY_NS,
            batch: 16,
            ..Link::default()
        },
        ..Setup::default()
    });
    stream(&mut net, 0..4);
    let (world, report) = (&net.ends[A].world, net.ends[A].requester.report().unwrap());
    all_succeeded(&world.sent_statuses(), 0..4);
    assert!(world.count(Event::AckTimeout) > 0);
    assert!(
        u64::from(report.round_trip_ns) >= 2 * DELAY_NS,
        "{report:?}"
    );
}

// Rules: RTY-20, SEG-19
#[test]
fn a_long_path_is_measured_whenever_it_is_asked() {
    // A probe is sent about 126 ms after the first packet.
    for delay_ms in [3, 15, 31, 63, 64, 65, 70] {
        let delay_ns = delay_ms * 1_000_000 + 500_000;
        let mut net = Net::new(Setup {
            mtu: Mtu::B256,
            timeout: 18,
            link: Link {
                delay_ns,
                batch: 16,
                ..Link::default()
            },
            ..Setup::default()
        });
        stream(&mut net, 0..200);
        let report = net.ends[A].requester.report().unwrap();
        assert_eq!(u64::from(report.least_round_trip_ns), 2 * delay_ns);
        assert!(report.window > 512, "{report:?}");
    }
}

/// Sends messages of many packets to a receiver that is often not ready. Nothing is lost, but all stands still now and
/// then, for longer than the timeout or until a probe. Returns how often the peer was not ready, and how often the
/// timeout expired or a probe was sent.
fn standing_still(seed: u64) -> (usize, usize) {
    const MESSAGES: u64 = 40;
    let mut rng = Rng::new(seed);
    let (timeout, stops_ms) = match seed % 2 {
        0 => (8, 4),
        _ => (14, 60),
    };
    let mut net = Net::new(Setup {
        seed,
        mtu: Mtu::B256,
        timeout,
        min_rnr_timer: 1 + rng.below(8) as u8,
        keeps: false,
        stalls: 60,
        link: Link {
            delay_ns: 5_000,
            batch: 1 + rng.below(40) as usize,
            ..Link::default()
        },
        ..Setup::default()
    });
    for id in 0..MESSAGES {
        let len = 256 * (1 + rng.below(40) as u32);
        match rng.below(4) {
            0 => net.post(A, id, read(0), 1 << 20, len),
            1 if rng.chance(500) => net.post(A, id, fetch_add(0x8000, 1), 1 << 20, 8),
            _ => net.post(A, id, send(), 0, len),
        }
    }
    let mut receives = 0;
    loop {
        if receives < MESSAGES && rng.chance(100) {
            net.post_recv(B, receives, 0, 64 * 256);
            receives += 1;
        }
        if rng.chance(20) {
            net.now = net.now.after_ns(1_000_000 * (1 + rng.below(stops_ms)));
            if rng.chance(500) {
                net.expire(A);
            }
        }
        if !net.step() && receives == MESSAGES {
            break;
        }
    }
    all_succeeded(&net.ends[A].world.sent_statuses(), 0..MESSAGES);
    let [a, b] = [A, B].map(|side| &net.ends[side].world);
    let out_of_sequence = b.count(Event::OutOfSequenceRequest);
    let naks = a.count(Event::SequenceNakReceived);
    assert_eq!((out_of_sequence, naks), (0, 0), "seed {seed}");
    let probes = a.count(Event::Probe);
    (
        b.count(Event::RnrNakSent),
        a.count(Event::AckTimeout) + probes,
    )
}

// Rules: RNR-9, RNR-21, RTY-1, RTY-25
#[test]
fn nothing_seems_lost_to_a_receiver_that_was_not_ready() {
    let (mut not_ready, mut questions) = (0, 0);
    for seed in 0..600 {
        let counts = standing_still(seed);
        not_ready += counts.0;
        questions += counts.1;
    }
    assert!(
        not_ready > 3000 && questions > 600,
        "{not_ready} {questions}"
    );
}
