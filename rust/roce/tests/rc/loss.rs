// SPDX-License-Identifier: GPL-2.0

//! Loss of chosen packets: each one, each pair, and some whose repair must be cheap.

use std::cell::Cell;
use std::rc::Rc;

use roce::event::Event;
use roce::num::Mtu;
use roce::opcode::Operation;
use roce::wr::SendFlags;

use crate::net::{all_succeeded, read, send, write, write_imm, Link, Net, Setup, A, B};

/// Returns a network with requests of all kinds, and with the wrap of PSNs in the middle.
fn exchange(setup: Setup) -> Net {
    let mut net = Net::new(Setup {
        mtu: Mtu::B256,
        psn: [0xff_fff8, 0xff_ffff],
        ..setup
    });
    let fence = SendFlags {
        fence: true,
        ..SendFlags::default()
    };
    net.post(A, 0, send(), 0x1000, 600);
    net.post(A, 1, read(0x2000), 0x10_0000, 1000);
    net.post(A, 2, write(0x20_0000), 0x2000, 600);
    net.post(A, 3, read(0x20_0000), 0x11_0000, 600);
    net.post(A, 4, read(0x3000), 0x12_0000, 10);
    net.post_flagged(A, 5, write_imm(0x20_0000, [1; 4]), fence, 0x3000, 300);
    net.post(A, 6, send(), 0x4000, 0);
    for (id, at) in [(0, 0x30_0000), (1, 0x31_0000), (2, 0x32_0000)] {
        net.post_recv(B, id, at, 1000);
    }
    net
}

fn check(net: &Net) {
    let (a, b) = (&net.ends[A].world, &net.ends[B].world);
    all_succeeded(&a.sent_statuses(), 0..7);
    all_succeeded(&b.received_statuses(), 0..3);
    assert_eq!(b.bytes(0x30_0000, 600), a.bytes(0x1000, 600));
    assert_eq!(a.bytes(0x10_0000, 1000), b.bytes(0x2000, 1000));
    assert_eq!(a.bytes(0x11_0000, 600), a.bytes(0x2000, 600));
    assert_eq!(a.bytes(0x12_0000, 10), b.bytes(0x3000, 10));
    assert_eq!(b.bytes(0x20_0000, 300), a.bytes(0x3000, 300));
    assert_eq!(b.bytes(0x20_0000 + 300, 300), a.bytes(0x2000 + 300, 300));
    net.assert_quiet();
}

/// Lets packets through but for those of these numbers.
fn lose(net: &mut Net, lost: Vec<u64>) {
    let mut number = 0;
    net.filter = Box::new(move |_, _| {
        number += 1;
        !lost.contains(&(number - 1))
    });
}

fn batched(batch: usize) -> Setup {
    Setup {
        link: Link {
            delay_ns: 5000,
            batch,
            ..Link::default()
        },
        ..Setup::default()
    }
}

// Rules: RTY-15
#[test]
fn any_one_packet() {
    for batch in [1, 8] {
        let mut net = exchange(batched(batch));
        net.run();
        check(&net);
        for lost in 0..net.packets {
            let mut net = exchange(batched(batch));
            lose(&mut net, vec![lost]);
            net.run();
            check(&net);
        }
    }
}

// Rules: RTY-15
#[test]
fn any_two_packets() {
    let mut net = exchange(batched(1));
    net.run();
    for first in 0..net.packets {
        for second in first + 1..net.packets + 12 {
            let mut net = exchange(batched(1));
            lose(&mut net, vec![first, second]);
            net.run();
            check(&net);
        }
    }
}

#[test]
fn any_run_of_packets() {
    for first in 0..30 {
        for count in 3..=7 {
            let mut net = exchange(batched(4));
            lose(&mut net, (first..first + count).collect());
            net.run();
            check(&net);
        }
    }
}

// Rules: RTY-15
#[test]
fn any_packet_as_often_as_retries_allow() {
    // Of each kind, the first seven are lost.
    for operation in [
        Operation::SendFirst,
        Operation::SendLast,
        Operation::ReadRequest,
        Operation::ReadResponseFirst,
        Operation::ReadResponseMiddle,
        Operation::ReadResponseLast,
        Operation::WriteFirst,
        Operation::WriteLastImm,
        Operation::Acknowledge,
    ] {
        let mut net = exchange(batched(4));
        let mut left = 7;
        net.filter = Box::new(move |_, packet| {
            let hit = packet.body.operation() == operation && left > 0;
            left -= i32::from(hit);
            !hit
        });
        net.run();
        check(&net);
    }
}

#[test]
fn a_loss_is_met_without_the_timer_if_more_comes_behind() {
    for (op, at) in [(write(0), 0), (read(0), 0x10_0000)] {
        let mut net = Net::new(Setup::default());
        net.post(A, 0, op, at, 100 * 1024);
        let seen = Rc::new(Cell::new(0));
        let count = seen.clone();
        net.filter = Box::new(move |to, packet| {
            let data = packet.payload_len > 0 && (to == B || op == read(0));
            if data {
                count.set(count.get() + 1);
            }
            !(data && count.get() == 50)
        });
        net.run();
        all_succeeded(&net.ends[A].world.sent_statuses(), [0]);
        let world = &net.ends[A].world;
        assert_eq!(world.count(Event::AckTimeout), 0);
        assert_eq!(world.count(Event::Retransmit), 1);
        // It costs the packets that were on their way.
        assert!(seen.get() < 100 + 60, "{} packets", seen.get());
    }
}

#[test]
fn lost_acknowledgements_cost_nothing_if_one_gets_through() {
    let mut net = Net::new(batched(1));
    for id in 0..50 {
        net.post(A, id, write(0), 0, 10);
    }
    let mut acks = 0;
    net.filter = Box::new(move |to, _| {
        acks += usize::from(to == A);
        to == B || acks == 50
    });
    net.run();
    all_succeeded(&net.ends[A].world.sent_statuses(), 0..50);
    assert_eq!(net.ends[A].transmitted.len(), 50);
}

// Rules: DUP-18
#[test]
fn doubled_packets_do_no_harm_and_do_not_multiply() {
    for per_mille in [100, 1000] {
        let mut setup = batched(4);
        setup.link.duplication = per_mille;
        let mut net = exchange(setup);
        net.run();
        check(&net);
        assert!(net.packets < 80, "{} packets", net.packets);
    }
}
