// SPDX-License-Identifier: GPL-2.0

//! Work on the queue pair's own side: binding windows and invalidating keys.

use roce::completion::{CompletionOp, Status};
use roce::limits::LOCAL_BATCH;
use roce::num::{Iova, Lkey, Rkey};
use roce::send::{Blocked, SendState};
use roce::wr::{Bind, LocalOp, Register, SendFlags, SendOp};

use crate::net::{all_succeeded, read, send, write, Link, Net, Setup, A, B, RKEY};

const BIND: LocalOp = LocalOp::Bind(Bind {
    window: Rkey(1),
    key: Rkey(2),
    lkey: Lkey(3),
    iova: Iova(4),
    length: 5,
    access: 6,
});

fn invalidate(rkey: u32) -> LocalOp {
    LocalOp::Invalidate { rkey: Rkey(rkey) }
}

fn register(key: u32) -> LocalOp {
    LocalOp::Register(Register {
        key: Rkey(key),
        iova: Iova(0x1000),
        access: 7,
    })
}

fn post(net: &mut Net, wr_id: u64, op: LocalOp) {
    net.post(A, wr_id, SendOp::Local(op), 0, 0);
}

/// Returns a network that loses, doubles and reorders packets.
fn bad_network(seed: u64) -> Net {
    Net::new(Setup {
        link: Link {
            delay_ns: 5_000,
            loss: 100,
            duplication: 50,
            reordering: 50,
            late_ns: 0,
            corruption: 0,
            batch: 1 + seed as usize % 8,
        },
        seed,
        ..Setup::default()
    })
}

// Rules: INV-5, INV-6, PSN-18, SEG-21
#[test]
fn it_is_done_in_its_turn_and_takes_no_number() {
    let mut net = Net::new(Setup::default());
    net.post(A, 0, write(0x100), 0, 3000);
    post(&mut net, 1, BIND);
    net.post(A, 2, read(0x100), 0x5000, 3000);
    post(&mut net, 3, invalidate(RKEY));
    post(&mut net, 4, BIND);
    net.post(A, 5, write(0x100), 0, 1);
    net.transmit(A);
    // The host ensures that all earlier requests are complete.
    assert_eq!(net.ends[A].requester.blocked(), Some(Blocked::Local));
    assert_eq!(net.ends[A].transmitted.len(), 3);
    net.run();
    let world = &net.ends[A].world;
    all_succeeded(&world.sent_statuses(), 0..6);
    assert_eq!(world.local, [BIND, invalidate(RKEY), BIND]);
    assert_eq!(world.sent[1].op, CompletionOp::BindWindow);
    assert_eq!(world.sent[3].op, CompletionOp::LocalInvalidate);
    assert_eq!(net.ends[A].transmitted.len(), 5);
    assert_eq!(net.ends[A].requester.next_psn().unwrap().get(), 0x1000 + 7);
    net.assert_quiet();
}

// Rules: INV-7
#[test]
fn it_is_done_once_on_a_bad_network() {
    for seed in 0..40 {
        let mut net = bad_network(seed);
        for id in 0..60 {
            match id % 4 {
                0 => net.post(A, id, write(0x100), 0, 3000),
                1 => net.post(A, id, read(0x100), 0x5000, 3000),
                _ => post(&mut net, id, BIND),
            }
        }
        net.run();
        let world = &net.ends[A].world;
        all_succeeded(&world.sent_statuses(), 0..60);
        assert_eq!(world.local.len(), 30);
        net.assert_quiet();
    }
}

// Rules: INV-8
#[test]
fn a_failure_fails_the_queue_pair_in_its_turn() {
    let mut net = Net::new(Setup::default());
    net.post(A, 0, write(0x100), 0, 10);
    post(&mut net, 1, invalidate(0xbad));
    post(&mut net, 2, BIND);
    net.run();
    assert_eq!(
        net.ends[A].world.sent_statuses(),
        [
            (0, Status::Success),
            (1, Status::LocalQpOperation),
            (2, Status::Flushed)
        ]
    );
    assert_eq!(net.ends[A].world.local, []);
    net.assert_quiet();
}

#[test]
fn an_error_flushes_what_waits() {
    let mut net = Net::new(Setup::default());
    net.post(A, 0, send(), 0, 10);
    post(&mut net, 1, BIND);
    net.transmit(A);
    let end = &mut net.ends[A];
    let _ = end.requester.enter_error(&mut end.world.host(&[]));
    let statuses = [(0, Status::Flushed), (1, Status::Flushed)];
    assert_eq!(end.world.sent_statuses(), statuses);
    assert_eq!(end.world.local, []);
}

// Rules: INV-10
#[test]
fn it_waits_while_the_queue_drains() {
    let mut net = Net::new(Setup::default());
    net.post(A, 0, write(0x100), 0, 10);
    post(&mut net, 1, BIND);
    net.transmit(A);
    let end = &mut net.ends[A];
    end.requester.drain(&mut end.world.host(&[]));
    net.run();
    assert_eq!(net.ends[A].requester.state(), SendState::Drained);
    assert_eq!(net.ends[A].world.local, []);
    net.ends[A].requester.resume();
    net.run();
    assert_eq!(net.ends[A].world.local, [BIND]);
    all_succeeded(&net.ends[A].world.sent_statuses(), 0..2);
}

#[test]
fn a_call_does_no_more_than_a_batch() {
    let mut net = Net::new(Setup::default());
    let count = u64::from(LOCAL_BATCH) + 3;
    for id in 0..count {
        let flags = SendFlags::default();
        net.post_flagged(A, id, SendOp::Local(BIND), flags, 0, 0);
    }
    net.transmit(A);
    assert_eq!(net.ends[A].world.local.len(), LOCAL_BATCH as usize);
    assert_eq!(net.ends[A].requester.blocked(), Some(Blocked::Busy));
    net.transmit(A);
    all_succeeded(&net.ends[A].world.sent_statuses(), 0..count);
    assert_eq!(net.ends[A].requester.blocked(), None);
    net.post(B, 0, write(0), 0, 1);
    net.run();
    net.assert_quiet();
}

// Rules: INV-9, ORD-2
#[test]
fn memory_is_registered_at_once_and_completes_in_its_turn() {
    let mut net = Net::new(Setup::default());
    post(&mut net, 0, register(1));
    net.post(A, 1, write(0x100), 0, 3000);
    post(&mut net, 2, register(2));
    post(&mut net, 3, register(3));
    net.post(A, 4, read(0x100), 0x5000, 3000);
    post(&mut net, 5, register(4));
    net.post(A, 6, write(0x100), 0, 1);
    net.transmit(A);
    // All of it was done, and sent. Only requests without an incomplete predecessor are complete.
    let world = &net.ends[A].world;
    assert_eq!(
        world.local,
        [register(1), register(2), register(3), register(4)]
    );
    all_succeeded(&world.sent_statuses(), 0..1);
    assert_eq!(net.ends[A].requester.blocked(), None);
    net.run();
    let world = &net.ends[A].world;
    all_succeeded(&world.sent_statuses(), 0..7);
    assert_eq!(world.sent[2].op, CompletionOp::Register);
    assert_eq!(world.sent[2].byte_len, 0);
    net.assert_quiet();
}

#[test]
fn memory_is_registered_once_on_a_bad_network() {
    for seed in 0..60 {
        let mut net = bad_network(seed);
        for id in 0..80 {
            match (id + seed) % 5 {
                0 => net.post(A, id, write(0x100), 0, 3000),
                1 => net.post(A, id, read(0x100), 0x5000, 3000),
                2 => post(&mut net, id, BIND),
                _ => post(&mut net, id, register(id as u32)),
            }
        }
        net.run();
        let world = &net.ends[A].world;
        all_succeeded(&world.sent_statuses(), 0..80);
        let is_register = |op: &&LocalOp| matches!(op, LocalOp::Register(_));
        assert_eq!(world.local.iter().filter(is_register).count(), 32);
        net.assert_quiet();
    }
}

#[test]
fn a_registration_that_fails_does_so_in_its_turn() {
    let mut net = Net::new(Setup::default());
    net.post(A, 0, write(0x100), 0, 10);
    post(&mut net, 1, register(1));
    post(&mut net, 2, register(0xbad));
    net.post(A, 3, write(0x100), 0, 10);
    post(&mut net, 4, register(2));
    net.run();
    assert_eq!(
        net.ends[A].world.sent_statuses(),
        [
            (0, Status::Success),
            (1, Status::Success),
            (2, Status::MwBind),
            (3, Status::Flushed),
            (4, Status::Flushed)
        ]
    );
    assert_eq!(net.ends[A].world.local, [register(1)]);
    net.assert_quiet();
}

// Rules: INV-9
#[test]
fn a_registration_with_a_fence_waits() {
    let mut net = Net::new(Setup::default());
    net.post(A, 0, read(0x100), 0x5000, 10);
    let fence = SendFlags {
        fence: true,
        signaled: true,
        solicited: false,
    };
    net.post_flagged(A, 1, SendOp::Local(register(1)), fence, 0, 0);
    net.transmit(A);
    assert_eq!(net.ends[A].world.local, []);
    net.run();
    all_succeeded(&net.ends[A].world.sent_statuses(), 0..2);
    net.assert_quiet();
}

#[test]
fn a_call_registers_no_more_than_a_batch() {
    let mut net = Net::new(Setup::default());
    let count = u64::from(LOCAL_BATCH) + 3;
    for id in 0..count {
        post(&mut net, id, register(1));
    }
    net.transmit(A);
    assert_eq!(net.ends[A].world.local.len(), LOCAL_BATCH as usize);
    assert_eq!(net.ends[A].requester.blocked(), Some(Blocked::Busy));
    net.transmit(A);
    all_succeeded(&net.ends[A].world.sent_statuses(), 0..count);
}

#[test]
fn a_flush_takes_what_was_registered_too() {
    let mut net = Net::new(Setup::default());
    net.post(A, 0, send(), 0, 10);
    post(&mut net, 1, register(1));
    net.transmit(A);
    let end = &mut net.ends[A];
    let _ = end.requester.enter_error(&mut end.world.host(&[]));
    let statuses = [(0, Status::Flushed), (1, Status::Flushed)];
    assert_eq!(end.world.sent_statuses(), statuses);
}
