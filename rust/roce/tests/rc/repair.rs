// SPDX-License-Identifier: GPL-2.0

//! Lost packets are sent again, with as few others as possible.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use roce::congestion::Law;
use roce::event::Event;
use roce::num::{Mtu, Psn};
use roce::opcode::Operation;
use roce::wire::{Body, Packet, Request};

use crate::net::{
    all_succeeded, atomic_write, fetch_add, read, send, write, Link, Net, Setup, A, B,
};

const PACKETS: u64 = 200;

/// Posts a WRITE of many packets, to a peer that keeps packets or not.
fn stream(keeps: bool) -> Net {
    stream_with(Setup {
        keeps,
        ..Setup::default()
    })
}

/// Posts the same with other attributes.
fn stream_with(setup: Setup) -> Net {
    let mut net = Net::new(Setup {
        mtu: Mtu::B256,
        link: Link {
            delay_ns: 5_000,
            batch: 4,
            ..Link::default()
        },
        ..setup
    });
    net.post(A, 0, write(0), 0, 256 * PACKETS as u32);
    net
}

/// Loses the packets to B that are of these numbers.
fn lose(net: &mut Net, lost: impl Fn(u64) -> bool + 'static) {
    let mut number = 0;
    net.filter = Box::new(move |to, _| {
        number += u64::from(to == B);
        to == A || !lost(number - 1)
    });
}

fn check(net: &Net) -> usize {
    let (a, b) = (&net.ends[A].world, &net.ends[B].world);
    all_succeeded(&a.sent_statuses(), [0]);
    let len = 256 * PACKETS as usize;
    assert_eq!(b.bytes(0, len), a.bytes(0, len));
    assert_eq!(a.count(Event::AckTimeout), 0);
    net.assert_quiet();
    net.ends[A].transmitted.len()
}

// Rules: PSN-19, RTY-18
#[test]
fn one_lost_packet_is_sent_again_alone() {
    for lost in [0, 1, 50, 100, PACKETS - 2] {
        let mut net = stream(true);
        lose(&mut net, move |number| number == lost);
        net.run();
        assert_eq!(check(&net) as u64, PACKETS + 1, "{lost} was lost");
        assert_eq!(net.ends[A].world.count(Event::Retransmit), 1);
    }
}

// Rules: PSN-19
#[test]
fn a_packet_that_is_late_behind_a_gap_is_not_sent_again() {
    let mut net = stream(true);
    net.send_some(A, 2);
    net.setup.link.loss = 1000;
    net.send_some(A, 1);
    net.setup.link.loss = 0;
    net.send_some(A, 1);
    // It comes before what was lost is sent again, and behind many others.
    net.setup.link.delay_ns += 4_000;
    net.send_some(A, 1);
    net.setup.link.delay_ns -= 4_000;
    net.run();
    assert_eq!(check(&net) as u64, PACKETS + 1);
}

// Rules: RTY-18
#[test]
fn a_peer_that_drops_early_packets_gets_all_again() {
    let mut net = stream(false);
    lose(&mut net, |number| number == 50);
    net.run();
    let sent = check(&net) as u64;
    assert!(sent > PACKETS + 10, "{sent} packets");
    // The packet, as many as a train behind it, and then all.
    assert_eq!(net.ends[A].world.count(Event::Retransmit), 3);
}

// Rules: RTY-18
#[test]
fn what_a_peer_does_is_found_out_once() {
    let sent = [true, false].map(|keeps| {
        let mut net = stream(keeps);
        lose(&mut net, |number| number % 40 == 20);
        net.run();
        let retransmits = net.ends[A].world.count(Event::Retransmit) as u64;
        (check(&net) as u64, retransmits)
    });
    // Acknowledgements tell of some losses before a NAK would.
    assert_eq!(sent[0].0, PACKETS + 5);
    assert!(sent[0].1 <= 5);
    // One retransmission of the first loss was useless, and the others went back at once.
    let (packets, retransmits) = sent[1];
    let losses = packets.div_ceil(40);
    assert!(retransmits <= losses + 1, "{retransmits} of {losses}");
}

// Rules: RTY-18
#[test]
fn a_lost_train_does_not_make_a_peer_seem_to_drop_packets() {
    const TRAIN: u64 = 15;
    let mut net = stream(true);
    lose(&mut net, |number| {
        (40..100).contains(&number) && number % 40 < TRAIN
    });
    net.run();
    let again = check(&net) as u64 - PACKETS;
    // For each of them one packet and as many as a train may have.
    assert!(again <= 2 * (TRAIN + 2), "{again} packets again");
}

// Rules: RTY-18
#[test]
fn one_of_a_train_is_lost_again_without_a_timer() {
    for (keeps, second) in (52..68).flat_map(|psn| [(true, psn), (false, psn)]) {
        let mut net = stream_with(Setup {
            keeps,
            timeout: 0,
            ..Setup::default()
        });
        let mut sent = HashMap::<u32, u32>::new();
        let first = net.setup.psn[A];
        net.filter = Box::new(move |to, packet| {
            let psn = packet.bth.psn.distance_from(Psn::new(first));
            let count = sent.entry(psn).or_insert(0);
            *count += u32::from(to == B);
            let is_lost = match *count {
                1 => psn == 50 || keeps && (psn == 51 || psn == second),
                2 => psn == second,
                _ => false,
            };
            to == A || !is_lost
        });
        net.run();
        all_succeeded(&net.ends[A].world.sent_statuses(), [0]);
    }
}

// Rules: RTY-18
#[test]
fn a_read_that_is_lost_is_one_packet() {
    let mut net = stream(true);
    lose(&mut net, |number| number == 10);
    net.run();
    let before = net.ends[A].transmitted.len();
    lose(&mut net, |number| number < 2);
    net.post(A, 1, read(0), 0, 256 * 70);
    net.post(A, 2, write(0), 0, 256);
    net.post(A, 3, write(0), 0, 256 * 40);
    net.run();
    let sent = net.ends[A].transmitted.len() - before;
    assert!(sent <= 42 + 4, "{sent} packets");
}

// Rules: NAK-3, NAK-4, RTY-18
#[test]
fn a_run_of_losses_costs_no_more_than_twice_as_much() {
    for run in [2, 3, 10, 40] {
        let mut net = stream(true);
        // One alone before tells that the peer keeps packets.
        lose(&mut net, move |number| {
            number == 10 || (80..80 + run).contains(&number)
        });
        net.run();
        let again = check(&net) as u64 - PACKETS;
        assert!(again <= 1 + 2 * run, "{again} packets again of {run}");
    }
}

// Rules: RTY-20
#[test]
fn a_lost_tail_is_asked_for_before_the_timer() {
    let mut net = stream(true);
    net.run();
    let before = net.now;
    net.post_recv(B, 0, 0x30_0000, 100);
    net.post(A, 1, send(), 0, 100);
    let mut left = 1;
    net.filter = Box::new(move |_, packet| {
        let hit = packet.body.operation() == Operation::SendOnly && left > 0;
        left -= i32::from(hit);
        !hit
    });
    net.run();
    let (a, b) = (&net.ends[A].world, &net.ends[B].world);
    all_succeeded(&a.sent_statuses(), 0..2);
    all_succeeded(&b.received_statuses(), [0]);
    assert_eq!(a.count(Event::Probe), 1);
    assert_eq!(
        (a.count(Event::AckTimeout), a.count(Event::Retransmit)),
        (0, 0)
    );
    // The timeout is 67 ms.
    assert!(net.now.as_ns() - before.as_ns() < 10_000_000);
}

/// Makes a connection with such a way, and such a timeout.
fn way(delay_ns: u64, batch: usize, timeout: u8) -> Net {
    Net::new(Setup {
        mtu: Mtu::B256,
        timeout,
        link: Link {
            delay_ns,
            batch,
            ..Link::default()
        },
        ..Setup::default()
    })
}

/// Loses the packets to one side that are of these numbers, from 1 on.
fn lose_to(net: &mut Net, side: usize, lost: impl Fn(u64) -> bool + 'static) {
    let mut number = 0;
    net.filter = Box::new(move |to, _| {
        number += u64::from(to == side);
        to != side || !lost(number)
    });
}

// Rules: RTY-21
#[test]
fn a_response_before_more_than_can_be_kept_is_asked_for_without_a_timer() {
    for timeout in [14, 0] {
        let mut net = way(5_000, 4, timeout);
        net.post(A, 0, read(0), 0, 256 * 1000);
        lose_to(&mut net, A, |number| number == 1);
        net.run();
        let world = &net.ends[A].world;
        all_succeeded(&world.sent_statuses(), [0]);
        assert_eq!(world.count(Event::AckTimeout), 0);
        assert_eq!(world.bytes(0, 256_000), net.ends[B].world.bytes(0, 256_000));
    }
}

// Rules: RTY-18, RTY-20
#[test]
fn all_that_was_outstanding_is_lost() {
    for keeps in [true, false] {
        let mut net = stream(keeps);
        lose_to(&mut net, B, |number| number <= 128);
        net.run();
        check(&net);
        let world = &net.ends[A].world;
        assert_eq!(
            (world.count(Event::Probe), world.count(Event::AckTimeout)),
            (1, 0)
        );
    }
}

// Rules: RTY-20
#[test]
fn all_that_was_sent_again_is_lost_again() {
    let mut net = stream(false);
    // One packet, and all that may be outstanding when it went back.
    lose(&mut net, |number| {
        number == 10 || (129..200).contains(&number)
    });
    net.run();
    check(&net);
}

// Rules: RTY-20
#[test]
fn a_long_way_is_learned() {
    let mut net = way(10_000_000, 4, 18);
    for id in 0..20 {
        net.post_recv(B, id, 0x30_0000, 100);
        net.post(A, id, send(), 0, 100);
        net.run();
    }
    all_succeeded(&net.ends[A].world.sent_statuses(), 0..20);
    let probes = net.ends[A].world.count(Event::Probe);
    assert!(probes <= 3, "{probes} probes");
}

// Rules: RTY-19
#[test]
fn a_packet_that_comes_twice_is_sent_once() {
    let mut net = way(5_000, 1, 14);
    // So that the peer is known to keep packets.
    net.post(A, 0, write(0), 0, 256 * 20);
    lose_to(&mut net, B, |number| number == 5);
    net.run();
    let before = net.ends[A].transmitted.len();
    net.setup.link.duplication = 1000;
    net.post(A, 1, write(0), 0, 100);
    net.transmit(A);
    net.setup.link.duplication = 0;
    for id in 2..200u64 {
        net.run_until(|net| net.ends[A].world.sent_statuses().len() as u64 >= id);
        net.post(A, id, write(0), 0, 100);
    }
    net.run();
    all_succeeded(&net.ends[A].world.sent_statuses(), 0..200);
    assert_eq!(net.ends[A].transmitted.len() - before, 199);
}

// Rules: NAK-4, RTY-18
#[test]
fn a_loss_behind_a_read_is_noticed_without_a_timer() {
    let mut net = way(5_000, 4, 0);
    net.post(A, 0, write(0), 0, 100);
    net.post(A, 1, read(0x1000), 0x1000, 100);
    net.post(A, 2, write(0), 0, 100);
    net.post(A, 3, write(0), 0, 100);
    lose_to(&mut net, B, |number| number == 1 || number == 3);
    net.run();
    all_succeeded(&net.ends[A].world.sent_statuses(), 0..4);
}

// Rules: SEG-17, CNP-5
#[test]
fn a_window_that_shrinks_has_an_acknowledgement_asked_for() {
    for law in Law::ALL {
        let mut net = Net::new(Setup {
            law,
            mtu: Mtu::B256,
            timeout: 0,
            ..Setup::default()
        });
        // The window grows, so that few packets ask.
        for id in 0..20 {
            net.post(A, id, write(0), 0, 256 * 200);
        }
        net.run();
        net.post(A, 20, write(0), 0, 256 * 1000);
        net.send_some(A, 20);
        for cut in 0..16 {
            let now = net.now.after_ns(cut * 60_000);
            net.ends[A].requester.congested(now);
        }
        net.run();
        all_succeeded(&net.ends[A].world.sent_statuses(), 0..21);
    }
}

// Rules: RTY-18, RTY-20
#[test]
fn a_loss_before_a_request_with_an_answer_needs_no_timer() {
    for keeps in [true, false] {
        for (op, len) in [(read(0x1000), 5000), (fetch_add(0x1000, 1), 8)] {
            let mut net = stream(true);
            net.run();
            net.ends[B].keeps = keeps;
            net.post(A, 1, write(0), 0, 100);
            net.post(A, 2, op, 0x1000, len);
            net.post(A, 3, write(0), 0, 100);
            lose(&mut net, |number| number == 0);
            net.run();
            let world = &net.ends[A].world;
            all_succeeded(&world.sent_statuses(), 0..4);
            assert_eq!(world.count(Event::AckTimeout), 0, "{op:?}, keeps: {keeps}");
        }
    }
}

// Rules: RTY-20
#[test]
fn a_lost_answer_needs_no_timer() {
    for (op, len) in [(read(0), 100), (read(0), 1000), (fetch_add(0, 1), 8)] {
        // The request is lost, or the answer, or the answer to the request that is sent again, too.
        for (side, times) in [(B, 1), (A, 1), (A, 2)] {
            let mut net = stream(true);
            net.run();
            net.post(A, 1, op, 0, len);
            let lost = match side {
                A => times * u64::from(len.div_ceil(256)),
                _ => times,
            };
            lose_to(&mut net, side, move |number| number <= lost);
            net.run();
            let world = &net.ends[A].world;
            all_succeeded(&world.sent_statuses(), 0..2);
            assert_eq!(
                world.count(Event::AckTimeout),
                0,
                "{op:?}, {lost} to {side}"
            );
            assert_eq!(net.ends[B].world.atomics, usize::from(len == 8));
        }
    }
}

/// Makes a connection with a short way that is known by four READs, to a peer that keeps packets or not.
fn after_reads(batch: usize, timeout: u8, keeps: bool) -> Net {
    let mut net = way(5_000, batch, timeout);
    net.ends[B].keeps = keeps;
    read_in_turn(&mut net, 4);
    net
}

/// Has so many READs done, each after the one before. Then the path is known.
fn read_in_turn(net: &mut Net, count: u64) {
    for id in 0..count {
        post_reads(net, id..id + 1);
        net.run();
    }
}

/// Posts READs of 16 packets with these numbers.
fn post_reads(net: &mut Net, ids: Range<u64>) {
    for id in ids {
        net.post(A, id, read(0), 0, 256 * 16);
    }
}

// Rules: RTY-20
#[test]
fn many_lost_requests_for_data_need_no_timer() {
    /// So many are sent at once.
    const READS: u64 = 4;
    // The peer keeps packets, or drops them. All requests are lost, or all answers.
    for keeps in [true, false] {
        for (side, lost) in [(B, READS), (A, READS * 16)] {
            let mut net = after_reads(16, 18, keeps);
            post_reads(&mut net, 4..4 + READS);
            lose_to(&mut net, side, move |number| number <= lost);
            let begin = net.now;
            net.run();
            let world = &net.ends[A].world;
            all_succeeded(&world.sent_statuses(), 0..4 + READS);
            assert_eq!(world.count(Event::AckTimeout), 0, "{lost} to {side}");
            let took = net.now.since(begin);
            assert!(
                took < 5_000_000,
                "{took} ns, {lost} to {side}, keeps: {keeps}"
            );
            assert!(net.ends[A].transmitted.len() < 24);
        }
    }
}

// Rules: RTY-20
#[test]
fn a_lost_nak_for_a_request_for_data_needs_no_timer() {
    // The oldest request and the NAK are lost.
    for keeps in [true, false] {
        let mut net = after_reads(1, 18, keeps);
        post_reads(&mut net, 4..8);
        let mut numbers = [0, 0];
        net.filter = Box::new(move |to, _| {
            numbers[to] += 1;
            numbers[to] > 1
        });
        net.run();
        let world = &net.ends[A].world;
        all_succeeded(&world.sent_statuses(), 0..8);
        assert_eq!(world.count(Event::AckTimeout), 0, "keeps: {keeps}");
    }
}

/// Returns a filter that drops the duplicates of READs that rdma_rxe refuses. It answers one that lies within the last
/// that it answered, and nothing before that again. All packets have 256 bytes of data.
fn rxe_duplicates() -> impl FnMut(&Packet) -> bool {
    let mut reads: Vec<(Psn, u32, u64, u64)> = Vec::new();
    move |packet| {
        let Body::Request(Request::Read(reth)) = &packet.body else {
            return true;
        };
        let (start, bytes) = (reth.iova.0, u64::from(reth.length));
        let known = reads
            .iter_mut()
            .find(|(first, packets, ..)| packet.bth.psn.distance_from(*first) < *packets);
        let Some((_, _, from, length)) = known else {
            reads.push((packet.bth.psn, reth.length.div_ceil(256), start, bytes));
            return true;
        };
        let is_taken = start >= *from && start + bytes <= *from + *length;
        if is_taken {
            *from = start;
        }
        is_taken
    }
}

// Rules: RTY-20, RTY-21
#[test]
fn rxe_answers_all_that_is_asked_for_again() {
    for responses in [5, 16, 100] {
        // All are lost, all twice, or one.
        for (from, to_number) in [(1, responses), (1, 2 * responses), (1, 1), (5, 5)] {
            // The path is slow at first, so that they may be asked for without need.
            for slow_ns in [0, 1_100_000, 3_000_000] {
                let mut net = after_reads(16, 14, false);
                net.setup.link.delay_ns = net.setup.link.delay_ns.max(slow_ns);
                net.post(A, 4, read(0), 0, 256 * responses);
                let (mut number, mut takes) = (0, rxe_duplicates());
                net.filter = Box::new(move |to, packet| {
                    if to == B {
                        return takes(packet);
                    }
                    number += 1;
                    number < from || number > to_number
                });
                let end = net.now.after_ns(2 * slow_ns + 100_000);
                net.run_until(move |net| net.now > end);
                net.setup.link.delay_ns = 5_000;
                net.run();
                all_succeeded(&net.ends[A].world.sent_statuses(), 0..5);
            }
        }
    }
}

// Rules: RTY-20, RTY-21
#[test]
fn a_lost_repair_of_a_read_needs_no_timer() {
    for keeps in [true, false] {
        for second in [201, 202, 250, 300, 350, 399, 400] {
            let mut net = stream(keeps);
            net.run();
            for id in 1..3 {
                net.post(A, id, read(0), 0, 100 * 256);
            }
            let mut number = 0;
            net.filter = Box::new(move |to, _| {
                number += u64::from(to == A);
                to == B || ![3, second].contains(&number)
            });
            net.run();
            let world = &net.ends[A].world;
            all_succeeded(&world.sent_statuses(), 0..3);
            let timeouts = world.count(Event::AckTimeout);
            assert_eq!(timeouts, 0, "keeps: {keeps}, {second} is lost");
        }
    }
}

// Rules: RTY-20
#[test]
fn the_lost_end_of_a_long_answer_needs_no_timer() {
    // As many as are asked for at once if none has come.
    const PACKETS: u64 = 64;
    for keeps in [true, false] {
        // All responses from this one on, of so many READs.
        for (first, reads) in [
            (1, 1),
            (2, 1),
            (30, 1),
            (63, 1),
            (64, 1),
            (1, 3),
            (30, 3),
            (100, 3),
        ] {
            let mut net = stream(keeps);
            net.run();
            for id in 1..=reads {
                net.post(A, id, read(0), 0, 256 * PACKETS as u32);
            }
            lose_to(&mut net, A, move |number| {
                (first..=PACKETS * reads).contains(&number)
            });
            let begin = net.now;
            net.run();
            let world = &net.ends[A].world;
            all_succeeded(&world.sent_statuses(), 0..=reads);
            let len = 256 * PACKETS as usize;
            assert_eq!(world.bytes(0, len), net.ends[B].world.bytes(0, len));
            assert_eq!(
                world.count(Event::AckTimeout),
                0,
                "{reads} READs, from {first} on"
            );
            // The timeout is 67 ms.
            assert!(net.now.since(begin) < 40_000_000, "{:?}", net.now);
        }
    }
}

// Rules: RTY-20
#[test]
fn a_slow_answer_is_asked_for_again_until_the_path_is_known() {
    let mut net = way(20_000_000, 4, 18);
    let mut before = 0;
    for (id, most) in [(0, 200), (1, 100), (2, 100)] {
        net.post(A, id, read(0), 0, 256 * 100);
        net.run();
        let responses = net.ends[B].transmitted.len() - before;
        assert!(responses <= most, "{responses} responses to READ {id}");
        before += responses;
    }
    let world = &net.ends[A].world;
    all_succeeded(&world.sent_statuses(), 0..3);
    assert_eq!(world.count(Event::AckTimeout), 0);
}

// Rules: RTY-20
#[test]
fn the_lost_answer_to_a_long_read_is_asked_for_in_few_round_trips() {
    const DELAY_NS: u64 = 20_000_000;
    let mut net = way(DELAY_NS, 16, 18);
    for id in 0..4 {
        net.post(A, id, read(0), 0, 256);
        net.run();
    }
    // All but the first response.
    net.post(A, 4, read(0), 0, 256 * 4000);
    lose_to(&mut net, A, |number| (2..=4000).contains(&number));
    let begin = net.now;
    net.run();
    let world = &net.ends[A].world;
    all_succeeded(&world.sent_statuses(), 0..5);
    assert_eq!(world.count(Event::AckTimeout), 0);
    let trips = net.now.since(begin) / (2 * DELAY_NS);
    assert!(trips <= 16, "{trips} round trips");
}

// Rules: RTY-1, RTY-20
#[test]
fn a_timeout_is_no_part_of_the_round_trip() {
    for delay_ns in [5_000_000, 20_000_000] {
        for is_read in [true, false] {
            let mut net = way(delay_ns, 16, 14);
            let op = if is_read { read(0) } else { write(0) };
            for id in 0..40 {
                net.post(A, id, op, 0, 256 * 16);
                net.run();
            }
            for id in 40..44 {
                net.post(A, id, op, 0, 256 * 16);
            }
            // All that is outstanding is lost.
            net.filter = Box::new(|_, _| false);
            net.run_until(|net| net.ends[A].world.count(Event::AckTimeout) > 0);
            net.filter = Box::new(|_, _| true);
            net.run();
            let end = &net.ends[A];
            all_succeeded(&end.world.sent_statuses(), 0..44);
            let trip_ns = u64::from(end.requester.report().unwrap().round_trip_ns);
            assert!(
                trip_ns < 2 * delay_ns + delay_ns / 4,
                "{trip_ns} ns, READ: {is_read}"
            );
        }
    }
}

// Rules: RTY-1, RTY-20
#[test]
fn requests_that_are_lost_in_a_row_cost_one_timeout() {
    const DELAY_NS: u64 = 20_000_000;
    /// So many are sent at once.
    const READS: u64 = 4;
    for (side, lost) in [(B, READS), (A, READS * 16)] {
        // A probe would come later than the timeout.
        let mut net = way(DELAY_NS, 16, 14);
        read_in_turn(&mut net, 40);
        post_reads(&mut net, 40..40 + READS);
        lose_to(&mut net, side, move |number| number <= lost);
        let begin = net.now;
        net.run();
        let world = &net.ends[A].world;
        all_succeeded(&world.sent_statuses(), 0..40 + READS);
        assert_eq!(world.count(Event::AckTimeout), 1, "{lost} to {side}");
        let trips = net.now.since(begin) / (2 * DELAY_NS);
        assert!(trips <= 6, "{trips} round trips, {lost} to {side}");
    }
}

/// Loses packets to B of these PSNs: the first copy, or the first two.
fn lose_psns(net: &mut Net, copies: u32, lost: impl Fn(u32) -> bool + 'static) {
    let mut seen = HashMap::new();
    net.filter = Box::new(move |to, packet| {
        if to == A {
            return true;
        }
        let count = seen.entry(packet.bth.psn).or_insert(0);
        *count += 1;
        *count > copies || !lost(packet.bth.psn.get() & 0xffff)
    });
}

/// Posts a WRITE of so many packets over a path of 10 ms. The path is known, and the peer is known to keep packets.
fn long_stream(packets: u32) -> Net {
    let mut net = way(5_000_000, 16, 18);
    for id in 0..4 {
        net.post(A, id, write(0), 0, 256);
        net.run();
    }
    net.post(A, 4, write(0), 0, 256 * packets);
    net
}

// Rules: RTY-23
#[test]
fn scattered_losses_of_a_long_path_cost_few_round_trips() {
    const PACKETS: u32 = 4000;
    for copies in [1, 2] {
        let mut net = long_stream(PACKETS);
        lose_psns(&mut net, copies, |psn| psn % 40 == 20);
        let begin = net.now;
        net.run();
        let (a, b) = (&net.ends[A].world, &net.ends[B].world);
        all_succeeded(&a.sent_statuses(), 0..5);
        let len = 256 * PACKETS as usize;
        assert!(b.bytes(0, len) == a.bytes(0, len));
        assert_eq!(a.count(Event::AckTimeout), 0);
        // One after the other, 100 gaps take 101 round trips, and 448 if each packet is lost twice.
        let trips = net.now.since(begin) / 10_000_000;
        let most = if copies == 1 { 35 } else { 448 };
        assert!(trips <= most, "{trips} round trips, {copies} copies lost");
        // No packet is sent three times for losses of others.
        let sent = net.ends[A].transmitted.len() as u32;
        assert!(sent < 5 * PACKETS / 2, "{sent} packets");
        net.assert_quiet();
    }
}

// Rules: RTY-23
#[test]
fn a_read_is_not_sent_again_for_losses_of_others() {
    let mut net = long_stream(1000);
    net.post(A, 5, read(0), 0x30_0000, 256 * 100);
    net.post(A, 6, fetch_add(0x3f_0000, 1), 0x38_0000, 8);
    net.post(A, 7, write(0), 0, 256 * 1000);
    let count = |net: &Net, operation| {
        let sent = net.ends[A].transmitted.iter();
        sent.filter(|sent| **sent == operation).count()
    };
    lose_psns(&mut net, 1, |psn| psn % 40 == 20);
    net.run();
    let (a, b) = (&net.ends[A].world, &net.ends[B].world);
    all_succeeded(&a.sent_statuses(), 0..8);
    assert!(b.bytes(0, 256_000) == a.bytes(0, 256_000));
    assert_eq!(a.count(Event::AckTimeout), 0);
    assert!(count(&net, Operation::ReadRequest) <= 2);
    assert!(count(&net, Operation::FetchAdd) <= 2);
}

// Rules: RTY-23
#[test]
fn rare_losses_of_a_long_path_are_sent_again_alone() {
    const PACKETS: u32 = 8000;
    let mut net = long_stream(PACKETS);
    lose_psns(&mut net, 1, |psn| psn % 2000 == 20);
    net.run();
    all_succeeded(&net.ends[A].world.sent_statuses(), 0..5);
    let again = net.ends[A].transmitted.len() as u32 - PACKETS - 4;
    assert!(again <= 8, "{again} packets again");
}

// Rules: RTY-20
#[test]
fn missing_responses_that_are_lost_again_need_no_long_wait() {
    const SLOW_NS: u64 = 2_000_000;
    // The request for the missing ones is lost, or its answer, once or twice.
    for (side, losses) in [(A, 1), (B, 1), (A, 2), (B, 2)] {
        let mut net = way(5_000, 4, 18);
        let mut reads = 0;
        // On average a READ takes long, as if it waited in a queue.
        for _ in 0..32 {
            net.post(A, reads, read(0), 0, 256);
            net.setup.link.delay_ns = if reads < 16 { 5_000 } else { SLOW_NS };
            net.run();
            reads += 1;
        }
        net.setup.link.delay_ns = 5_000;
        for _ in 0..8 {
            net.post(A, reads, read(0), 0, 256 * 16);
            reads += 1;
        }
        // The first response to come, and then the first that was asked for again.
        let mut left = [1, losses];
        net.filter = Box::new(move |to, _| {
            let is_lost = match (left, to) {
                ([1, _], A) => true,
                ([0, again], to) => again > 0 && to == side,
                _ => false,
            };
            if is_lost {
                left[1 - left[0]] -= 1;
            }
            !is_lost
        });
        let begin = net.now;
        net.run();
        let world = &net.ends[A].world;
        all_succeeded(&world.sent_statuses(), 0..reads);
        assert_eq!(world.count(Event::AckTimeout), 0);
        assert!(net.now.since(begin) < SLOW_NS, "{:?}", net.now.since(begin));
    }
}

// Rules: RTY-23
#[test]
fn gaps_behind_a_read_need_no_timer() {
    let mut net = way(500_000, 16, 0);
    for id in 0..4 {
        net.post(A, id, write(0), 0, 256);
        net.run();
    }
    net.post(A, 4, write(0), 0, 256 * 2000);
    for id in (5..65).step_by(3) {
        net.post(A, id, read(0), 0x30_0000, 256);
        net.post(A, id + 1, fetch_add(0x3f_0000, 1), 0x38_0000, 8);
        net.post(A, id + 2, write(0), 0, 256 * 200);
    }
    lose_psns(&mut net, 1, |psn| psn % 17 == 2);
    net.run();
    all_succeeded(&net.ends[A].world.sent_statuses(), 0..65);
    net.assert_quiet();
}

/// READs that are outstanding at a time, of so many packets each.
const READS: u64 = 8;
const RESPONSES: u64 = 16;

/// Makes a connection over a path of 1 ms, to a peer that is known to keep packets, or to drop them.
fn behind_a_loss(keeps: bool) -> Net {
    let mut net = way(500_000, 16, 18);
    net.ends[B].keeps = keeps;
    net.post(A, 0, write(0), 0, 256 * 64);
    lose_to(&mut net, B, |number| number == 20);
    net.run();
    net
}

/// Posts READs there.
fn reads_behind_a_loss(keeps: bool) -> Net {
    let mut net = behind_a_loss(keeps);
    let len = 256 * RESPONSES as u32;
    for id in 1..=READS {
        let at = 0x1000 * id as usize;
        net.post(A, id, read(at), 0x10_0000 + at, len);
    }
    net
}

/// Runs until all READs are complete. Returns the time in round trips.
fn complete_reads(net: &mut Net) -> u64 {
    let begin = net.now;
    net.run();
    let (a, b) = (&net.ends[A].world, &net.ends[B].world);
    all_succeeded(&a.sent_statuses(), 0..=READS);
    let len = 0x1000 * READS as usize;
    assert!(a.bytes(0x10_1000, len) == b.bytes(0x1000, len));
    assert_eq!(a.count(Event::AckTimeout), 0);
    net.assert_quiet();
    net.now.since(begin) / 1_000_000
}

// Rules: RTY-24
#[test]
fn gaps_in_several_reads_cost_few_round_trips() {
    // One response of each READ, or two, or the last of one and the first of the next. One after the other,
    // these take 10, 18 and 7 round trips.
    let lost: [fn(u64) -> bool; 3] = [
        |number| number % RESPONSES == 5,
        |number| number % RESPONSES == 5 || number % RESPONSES == 9,
        |number| [0, 1].contains(&(number % (2 * RESPONSES)).wrapping_sub(RESPONSES)),
    ];
    for (index, (lost, most)) in lost.into_iter().zip([4, 15, 4]).enumerate() {
        let mut net = reads_behind_a_loss(true);
        let sent = net.ends[A].transmitted.len();
        lose_to(&mut net, A, move |number| {
            number <= READS * RESPONSES && lost(number)
        });
        let trips = complete_reads(&mut net);
        assert!(trips <= most, "{trips} round trips, losses {index}");
        // None is asked for twice.
        let asked = net.ends[A].transmitted.len() - sent;
        assert!(
            asked <= 3 * READS as usize,
            "{asked} requests, losses {index}"
        );
    }
}

// Rules: RTY-24
#[test]
fn a_lost_answer_to_a_question_in_advance_needs_no_timer() {
    // Behind the first answers come those to the questions.
    for again in 0..READS {
        let mut net = reads_behind_a_loss(true);
        lose_to(&mut net, A, move |number| {
            let is_first = number <= READS * RESPONSES && number % RESPONSES == 5;
            is_first || number == READS * RESPONSES + again + 1
        });
        let trips = complete_reads(&mut net);
        assert!(trips <= 12, "{trips} round trips, {again} is lost again");
    }
}

// Rules: RTY-24
#[test]
fn nothing_is_asked_for_in_advance_of_a_peer_that_may_drop_packets() {
    let mut net = reads_behind_a_loss(false);
    let mut takes = rxe_duplicates();
    let mut number = 0;
    net.filter = Box::new(move |to, packet| {
        number += u64::from(to == A);
        match to {
            A => number > READS * RESPONSES || number % RESPONSES != 5,
            _ => takes(packet),
        }
    });
    // A gap costs a round trip.
    assert!(complete_reads(&mut net) >= READS);
}

// Rules: RTY-24
#[test]
fn an_atomic_write_is_not_sent_without_its_payload() {
    let mut net = behind_a_loss(true);
    net.post(A, 1, read(0), 0x10_0000, 256 * 4);
    net.post(A, 2, atomic_write(0x3000), 0x11_0000, 8);
    net.post(A, 3, read(0), 0x12_0000, 256 * 4);
    let lengths = Rc::new(RefCell::new(Vec::new()));
    let (seen, mut number) = (lengths.clone(), 0);
    net.filter = Box::new(move |to, packet| {
        if to == B {
            if packet.body.operation() == Operation::AtomicWrite {
                seen.borrow_mut().push(packet.payload_len);
            }
            return true;
        }
        number += 1;
        // A response to the READ before it, and its own.
        ![2, 5].contains(&number)
    });
    net.run();
    all_succeeded(&net.ends[A].world.sent_statuses(), 0..4);
    assert_eq!(*lengths.borrow(), [8, 8]);
}
