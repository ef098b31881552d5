// SPDX-License-Identifier: GPL-2.0

//! Atomic operations over a network: each is executed once, in order, despite any loss.

use roce::completion::{CompletionOp, Status};
use roce::event::Event;
use roce::num::Mtu;
use roce::opcode::Operation;
use roce::wr::SendFlags;

use crate::net::{
    all_succeeded, compare_swap, fetch_add, read, send, write, Link, Net, Setup, A, B,
};

/// Where the words are that are worked on.
const WORD: usize = 0x20_0000;
/// The place of the original values.
const FOUND: usize = 0x10_0001;

fn set(net: &mut Net, side: usize, at: usize, value: u64) {
    net.ends[side].world.memory[at..at + 8].copy_from_slice(&value.to_ne_bytes());
}

// Rules: RDA-12, RDA-13, RDA-14
#[test]
fn they_do_what_they_are_to_do() {
    let mut net = Net::new(Setup::default());
    set(&mut net, B, WORD, u64::MAX - 1);
    net.post(A, 0, fetch_add(WORD, 5), FOUND, 8);
    net.post(
        A,
        1,
        compare_swap(WORD, 3, 0x1122_3344_5566_7788),
        FOUND + 8,
        8,
    );
    net.post(A, 2, compare_swap(WORD, 3, 1), FOUND + 16, 8);
    net.run();
    let (a, b) = (&net.ends[A].world, &net.ends[B].world);
    all_succeeded(&a.sent_statuses(), 0..3);
    assert_eq!(a.word(FOUND), u64::MAX - 1);
    assert_eq!(a.word(FOUND + 8), 3);
    assert_eq!(a.word(FOUND + 16), 0x1122_3344_5566_7788);
    assert_eq!(b.word(WORD), 0x1122_3344_5566_7788);
    assert_eq!(a.sent[0].op, CompletionOp::FetchAdd);
    assert_eq!(a.sent[1].op, CompletionOp::CompareSwap);
    assert!(a.sent.iter().all(|completion| completion.byte_len == 8));
    assert_eq!(net.ends[B].transmitted, [Operation::AtomicAcknowledge; 3]);
    assert_eq!(net.ends[A].transmitted.len(), 3);
    net.assert_quiet();
}

/// Every value between the first and the last is found by exactly one of them.
// Rules: RDA-17
#[test]
fn each_is_carried_out_once_on_a_bad_network() {
    for seed in 0..60 {
        let mut net = Net::new(Setup {
            rd_atomic: [1, 2, 16][seed as usize % 3],
            link: Link {
                delay_ns: 5_000,
                loss: 100,
                duplication: 200,
                reordering: 100,
                late_ns: 0,
                corruption: 10,
                batch: 1 + seed as usize % 8,
            },
            seed,
            ..Setup::default()
        });
        const COUNT: usize = 200;
        for side in [A, B] {
            set(&mut net, side, WORD, 1000);
            for id in 0..COUNT {
                net.post(side, id as u64, fetch_add(WORD, 1), FOUND + 8 * id, 8);
            }
        }
        net.run();
        for side in [A, B] {
            let world = &net.ends[side].world;
            all_succeeded(&world.sent_statuses(), 0..COUNT as u64);
            assert_eq!(world.word(WORD), 1000 + COUNT as u64);
            assert_eq!(world.atomics, COUNT);
            for id in 0..COUNT {
                assert_eq!(world.word(FOUND + 8 * id), 1000 + id as u64);
            }
        }
        net.assert_quiet();
    }
}

// Rules: ORD-8, RSP-17
#[test]
fn what_is_ordered_keeps_its_order_on_a_bad_network() {
    for seed in 0..40 {
        let mut net = Net::new(Setup {
            mtu: Mtu::B256,
            link: Link {
                delay_ns: 5_000,
                loss: 50,
                duplication: 50,
                reordering: 50,
                late_ns: 0,
                corruption: 0,
                batch: 1 + seed as usize % 8,
            },
            seed,
            ..Setup::default()
        });
        let fenced = SendFlags {
            fence: true,
            ..SendFlags::default()
        };
        set(&mut net, B, WORD, 0);
        let mut id = 0;
        for round in 0..20 {
            // A READ sees all before it; fenced, an atomic comes after it.
            net.post_flagged(A, id, fetch_add(WORD, 1), fenced, FOUND, 8);
            net.post(A, id + 1, read(WORD), FOUND + 0x1000 * (round + 1), 700);
            id += 2;
        }
        net.run();
        let world = &net.ends[A].world;
        all_succeeded(&world.sent_statuses(), 0..id);
        for round in 0..20 {
            assert_eq!(world.word(FOUND + 0x1000 * (round + 1)), round as u64 + 1);
        }
        net.assert_quiet();
    }
}

#[test]
fn they_count_with_reads_against_the_depth() {
    let mut net = Net::new(Setup {
        rd_atomic: 2,
        ..Setup::default()
    });
    set(&mut net, B, WORD, 0);
    for id in 0..20 {
        let op = if id % 2 == 0 {
            read(0)
        } else {
            fetch_add(WORD, 1)
        };
        net.post(A, id, op, FOUND + 8 * id as usize, 8);
    }
    net.transmit(A);
    assert_eq!(net.ends[A].transmitted.len(), 2);
    net.run();
    all_succeeded(&net.ends[A].world.sent_statuses(), 0..20);
    assert_eq!(net.ends[B].world.word(WORD), 10);
    net.assert_quiet();
}

// Rules: ACK-4
#[test]
fn their_answers_answer_for_what_came_before() {
    let mut net = Net::new(Setup {
        link: Link {
            delay_ns: 1000,
            batch: 64,
            ..Link::default()
        },
        ..Setup::default()
    });
    net.post_recv(B, 0, 0x30_0000, 100);
    net.post(A, 0, send(), 0, 10);
    net.post(A, 1, fetch_add(WORD, 1), FOUND, 8);
    net.post(A, 2, write(0x30_0100), 0, 10);
    net.run();
    all_succeeded(&net.ends[A].world.sent_statuses(), 0..3);
    assert_eq!(
        net.ends[B].transmitted,
        [Operation::AtomicAcknowledge, Operation::Acknowledge]
    );
}

#[test]
fn a_lost_answer_is_given_again() {
    let mut net = Net::new(Setup::default());
    set(&mut net, B, WORD, 7);
    let mut lost = 0;
    net.filter = Box::new(move |to, _| {
        lost += u32::from(to == A);
        to == B || lost > 3
    });
    net.post(A, 0, fetch_add(WORD, 1), FOUND, 8);
    net.run();
    let (a, b) = (&net.ends[A].world, &net.ends[B].world);
    all_succeeded(&a.sent_statuses(), [0]);
    assert_eq!((a.word(FOUND), b.word(WORD)), (7, 8));
    assert_eq!(b.count(Event::DuplicateRequest), 3);
    assert_eq!(b.atomics, 1);
}

#[test]
fn refusals_reach_the_requester() {
    for (at, status) in [
        (WORD + 4, Status::RemoteInvalidRequest),
        (4 << 20, Status::RemoteAccess),
    ] {
        let mut net = Net::new(Setup::default());
        net.post(A, 0, fetch_add(at, 1), FOUND, 8);
        net.post(A, 1, fetch_add(WORD, 1), FOUND, 8);
        net.run();
        let statuses = net.ends[A].world.sent_statuses();
        assert_eq!(statuses, [(0, status), (1, Status::Flushed)]);
        assert_eq!(net.ends[B].world.atomics, 0);
        net.assert_quiet();
    }
}
