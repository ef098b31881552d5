// SPDX-License-Identifier: GPL-2.0

//! Packets that are late are told from those that are lost.

use roce::limits::{LATE_LOSSES, MAX_LATE_US};

use super::*;
use crate::rng::Rng;

/// A round trip, in nanoseconds.
const LONG_WAY_NS: u64 = 100_000;

/// How late a packet is.
const LATE_NS: u64 = 20_000;

/// Longer than a packet that is so late is waited for.
const WAIT_NS: u64 = 2 * LATE_NS;

/// Makes one with many small requests, the first of which was acknowledged after such a time.
fn after(round_trip_ns: u64, timeout: u8) -> Lone {
    let mut lone = Lone::with(with_timeout(timeout), &[(send(), 10); 8000]);
    lone.poll_psns();
    lone.sleep(round_trip_ns);
    lone.ack(0);
    lone.poll_psns();
    lone
}

/// Says that the peer lacks packet `psn`. Returns true if it is sent again.
fn lacks(lone: &mut Lone, psn: u32) -> bool {
    lone.nak(psn, NakCode::SequenceError);
    is_sent_again(lone, psn)
}

/// Returns true if packet `psn` is sent again, before new ones.
fn is_sent_again(lone: &mut Lone, psn: u32) -> bool {
    lone.poll_psns().first() == Some(&psn)
}

/// Acknowledges packet `psn` with some behind it, `LATE_NS` after it was missed.
fn comes_late(lone: &mut Lone, psn: u32) {
    lone.sleep(LATE_NS);
    lone.ack(psn + 5);
}

/// Acknowledges all that was sent. Returns one of the next packets that are sent.
fn all_came(lone: &mut Lone) -> u32 {
    let end = lone.requester.next_psn().unwrap();
    let end = end.distance_from(Psn::new(FIRST));
    lone.ack(end - 1);
    lone.poll_psns();
    end + 3
}

fn window(lone: &Lone) -> u32 {
    lone.requester.report().unwrap().window
}

/// Makes one with a peer that keeps packets, and to which one was late, which was sent again.
fn after_a_late_packet() -> Lone {
    let mut lone = after(LONG_WAY_NS, 14);
    assert!(lacks(&mut lone, 3), "nothing tells that packets are late");
    comes_late(&mut lone, 3);
    lone
}

/// Makes one with a peer to which another was late, and not sent again.
fn after_two_late_packets() -> Lone {
    let mut lone = after_a_late_packet();
    assert!(!lacks(&mut lone, 12), "it may be late");
    comes_late(&mut lone, 12);
    lone
}

// Rules: RTY-22
#[test]
fn a_packet_that_is_late_is_not_sent_again() {
    let mut lone = after_two_late_packets();
    for psn in (22..62).step_by(10) {
        assert!(!lacks(&mut lone, psn));
        comes_late(&mut lone, psn);
        assert!(!is_sent_again(&mut lone, psn));
    }
    assert_eq!(lone.count(Event::Retransmit), 1);
    assert_eq!(lone.count(Event::Probe), 0);
}

// Rules: RTY-22
#[test]
fn a_packet_that_does_not_come_is_sent_again_soon() {
    let mut lone = after_two_late_packets();
    assert!(!lacks(&mut lone, 22));
    lone.sleep(LATE_NS);
    // The peer asks once more.
    assert!(!lacks(&mut lone, 22));
    lone.sleep(WAIT_NS - LATE_NS);
    assert!(is_sent_again(&mut lone, 22));
    lone.sleep(LONG_WAY_NS);
    lone.ack(30);
    assert_eq!(lone.count(Event::Retransmit), 2);
}

// Rules: RTY-22
#[test]
fn what_nobody_calls_the_timer_for_is_sent_again_by_the_next_nak() {
    let mut lone = after_two_late_packets();
    assert!(!lacks(&mut lone, 22));
    lone.now = lone.now.after_ns(WAIT_NS);
    assert!(lacks(&mut lone, 22));
}

// Rules: RTY-22
#[test]
fn a_wrong_suspicion_costs_one_wait() {
    let mut lone = after_a_late_packet();
    assert!(!lacks(&mut lone, 12));
    lone.sleep(LONG_WAY_NS);
    assert!(is_sent_again(&mut lone, 12));
    // A round trip is as short as that.
    for _ in 0..4 {
        lone.sleep(LATE_NS);
        let psn = all_came(&mut lone);
        assert!(lacks(&mut lone, psn));
    }
}

// Rules: RTY-22
#[test]
fn losses_end_the_waiting() {
    let mut lone = after_two_late_packets();
    let mut waits = 0;
    loop {
        let psn = all_came(&mut lone);
        if lacks(&mut lone, psn) {
            break;
        }
        waits += 1;
        lone.sleep(WAIT_NS);
        assert!(is_sent_again(&mut lone, psn));
        lone.sleep(LONG_WAY_NS);
    }
    assert_eq!(waits, LATE_LOSSES);
}

// Rules: RTY-22
#[test]
fn packets_that_become_later_are_waited_for_longer() {
    let mut lone = after_two_late_packets();
    assert!(!lacks(&mut lone, 22));
    lone.sleep(WAIT_NS);
    assert!(is_sent_again(&mut lone, 22));
    lone.sleep(LATE_NS);
    lone.ack(25);
    assert!(!lacks(&mut lone, 32));
    lone.sleep(WAIT_NS);
    assert!(!is_sent_again(&mut lone, 32));
    lone.sleep(LATE_NS);
    lone.ack(35);
    assert_eq!(lone.count(Event::Retransmit), 2);
}

// Rules: RTY-22, SEG-19
#[test]
fn a_late_packet_does_not_shrink_the_window() {
    let mut lone = after(LONG_WAY_NS, 14);
    assert!(lacks(&mut lone, 3));
    let lost = window(&lone);
    comes_late(&mut lone, 3);
    // What was taken away is back, and it grows by what is acknowledged.
    assert_eq!(window(&lone), lost + 1);
    lone.ack(14);
    assert_eq!(window(&lone), lost + 1 + 6);
}

// Rules: RTY-22
#[test]
fn a_repair_that_is_repeated_proves_nothing() {
    let mut lone = after(LONG_WAY_NS, 14);
    assert!(lacks(&mut lone, 3));
    lone.sleep(4 * LONG_WAY_NS);
    // It was lost, as an acknowledgement that says nothing new tells.
    lone.ack(2);
    assert!(is_sent_again(&mut lone, 3));
    lone.sleep(LATE_NS);
    lone.ack(8);
    assert!(lacks(&mut lone, 12));
}

// Rules: RTY-22
#[test]
fn without_a_timer_nothing_is_waited_for() {
    let mut lone = after(LONG_WAY_NS, 0);
    for psn in (3..63).step_by(10) {
        assert!(lacks(&mut lone, psn));
        comes_late(&mut lone, psn);
    }
}

// Rules: RTY-22
#[test]
fn no_peer_has_a_packet_waited_for_longer_than_the_bound() {
    let most_ns = u64::from(MAX_LATE_US) * 1000;
    for seed in 0..50 {
        let mut rng = Rng::new(seed);
        let mut lone = after(most_ns * 10, 20);
        // A repair may have several packets: what was sent again, and before.
        let (mut sent_again, mut newest) = (Vec::new(), 127);
        let mut send = |lone: &mut Lone, psn: u32| {
            let sent = lone.poll_psns();
            sent_again.extend(sent.iter().filter(|&&psn| psn <= newest));
            newest = sent.into_iter().fold(newest, u32::max);
            sent_again.contains(&psn)
        };
        for psn in (3..900).step_by(10) {
            lone.nak(psn, NakCode::SequenceError);
            if !send(&mut lone, psn) {
                // It acknowledges when that makes packets seem late, or not.
                if rng.chance(500) {
                    lone.sleep(rng.below(most_ns));
                    lone.ack(psn + 5);
                    send(&mut lone, psn);
                    continue;
                }
                lone.sleep(most_ns);
                assert!(send(&mut lone, psn), "seed {seed}");
            }
            lone.sleep(rng.below(most_ns * 10));
            lone.ack(psn + 5);
            send(&mut lone, psn);
        }
    }
}

// Rules: RTY-18
#[test]
fn late_packets_do_not_prove_that_the_peer_keeps_packets() {
    const COUNT: u32 = 128;
    let mut lone = Lone::with(config(), &[(send(), 10); COUNT as usize]);
    assert_eq!(lone.poll_psns().len() as u32, COUNT);
    // 5 came first, and was dropped. 3 and 4 came then, by themselves.
    lone.nak(3, NakCode::SequenceError);
    assert_eq!(lone.poll_psns(), [3]);
    let mut lacks = 5;
    let mut trips = 0;
    while lacks < COUNT {
        lone.nak(lacks, NakCode::SequenceError);
        let sent = lone.poll_psns();
        lacks += sent.iter().filter(|&&psn| psn < COUNT).count() as u32;
        lone.sleep(1_000);
        trips += 1;
    }
    // 1, 2 and 4 packets, then all that the window allows.
    assert!(trips <= 6, "{trips}");
    assert_eq!(lone.count(Event::AckTimeout), 0);
}

// Rules: RTY-21, RTY-22
#[test]
fn a_response_that_is_late_is_not_asked_for_again() {
    let len = 40 * MTU;
    let mut lone = Lone::with(with_timeout(14), &[(read(0), len)]);
    lone.poll_psns();
    lone.sleep(LONG_WAY_NS);
    lone.data(0, 0, len);
    // The first is asked for, the second was late, and so was the third, which is another's place.
    for (psn, is_asked_for) in [(3, true), (8, false), (13, false), (18, false)] {
        for psn in psn - 2..psn {
            lone.data(psn, 0, len);
        }
        lone.data(psn + 2, 0, len);
        lone.data(psn + 1, 0, len);
        assert_eq!(!lone.poll_psns().is_empty(), is_asked_for, "{psn}");
        lone.sleep(LATE_NS);
        lone.data(psn, 0, len);
    }
    // This one is lost.
    for psn in 21..25 {
        lone.data(psn, 0, len);
    }
    lone.data(26, 0, len);
    assert_eq!(lone.poll_psns(), []);
    lone.sleep(WAIT_NS);
    assert_eq!(lone.poll_psns(), [25]);
    lone.data(25, 0, len);
    for psn in 27..40 {
        lone.data(psn, 0, len);
    }
    all_succeeded(&lone.statuses(), 0..1);
}

// Rules: RTY-13, RTY-21
#[test]
fn a_gap_that_closes_before_it_is_asked_for_has_nothing_sent_again() {
    let len = 64 * MTU;
    let requests = [(read(0), len), (write(0), 20 * MTU), (write(0), 20 * MTU)];
    let mut lone = Lone::with(config(), &requests);
    assert_eq!(lone.poll_psns().len(), 41);
    lone.data(0, 0, len);
    lone.data(2, 0, len);
    // It comes in the same batch.
    lone.data(1, 0, len);
    assert_eq!(lone.poll_psns(), []);
    for psn in 3..64 {
        lone.data(psn, 0, len);
    }
    lone.ack(103);
    all_succeeded(&lone.statuses(), 0..3);
}

// Rules: RTY-21, RDA-18
#[test]
fn an_early_response_that_is_too_long_is_not_kept() {
    let mut lone = Lone::with(config(), &[(read(0), 100 * MTU)]);
    lone.poll_psns();
    for psn in 1..100 {
        lone.respond(psn, Response::ReadMiddle, &[0; MTU as usize + 4]);
    }
    assert!(lone.early.is_empty());
    for psn in 0..100 {
        lone.data(psn, 0, 100 * MTU);
    }
    all_succeeded(&lone.statuses(), 0..1);
}
