// SPDX-License-Identifier: GPL-2.0

//! Failure: every work request completes exactly once, whenever it comes.

use roce::completion::Status;
use roce::event::{AsyncEvent, Event};
use roce::host::Flush;
use roce::limits::FLUSH_BATCH;
use roce::qp::State;
use roce::recv::RecvState;
use roce::send::SendState;

use crate::net::{raised, read, remote, send, write, Net, Setup, A, B, RKEY};
use roce::num::Rkey;
use roce::wr::SendOp;

/// Checks that all requests from `from` on were flushed.
fn flushed(statuses: &[(u64, Status)], from: u64, count: u64) {
    let expected: Vec<_> = (from..from + count)
        .map(|id| (id, Status::Flushed))
        .collect();
    assert_eq!(statuses, expected);
}

// Rules: CPL-1, CPL-4, CPL-5, ERR-1, ERR-2, ERR-4
#[test]
fn at_any_moment_all_is_flushed_once() {
    // After so many packets the owner moves the queue pair to ERR.
    for moment in 0..60 {
        let mut net = Net::new(Setup::default());
        for id in 0..20 {
            let (op, at) = match id % 3 {
                0 => (send(), 0x1000),
                1 => (write(0x2000), 0x1000),
                _ => (read(0x3000), 0x10_0000),
            };
            net.post(A, id, op, at, 3000);
            net.post_recv(A, id, 0, 10);
            net.post_recv(B, id, 0x20_0000, 4000);
        }
        net.run_until(|net| net.packets >= moment);
        net.ends[A].flush();
        let done = net.ends[A].world.sent_statuses();
        let good = done
            .iter()
            .take_while(|(_, status)| *status == Status::Success)
            .count();
        assert!(done.iter().map(|(id, _)| *id).eq(0..20), "{done:?}");
        flushed(&done[good..], good as u64, 20 - good as u64);
        flushed(&net.ends[A].world.received_statuses(), 0, 20);
        assert_eq!(net.ends[A].requester.state(), SendState::Error);
        assert_eq!(net.ends[A].responder.state(), RecvState::Error);
        net.run();
        assert_eq!(net.ends[A].world.sent.len(), 20);
        assert_eq!(net.ends[A].world.payloads.count(), 0);
        assert_eq!(net.ends[A].world.grants.count(), 0);
    }
}

// Rules: ERR-3, ERR-6
#[test]
fn later_posts_are_flushed_too() {
    let mut net = Net::new(Setup::default());
    net.ends[A].flush();
    net.post(A, 0, send(), 0, 10);
    net.post_bad(A, 1, Status::LocalProtection);
    net.post_recv(A, 0, 0, 10);
    let end = &mut net.ends[A];
    let host = &mut end.world.host(&[]);
    assert_eq!(end.requester.flush_posted(host), Flush::Done);
    assert_eq!(end.responder.flush_posted(host), Flush::Done);
    flushed(&end.world.sent_statuses(), 0, 2);
    flushed(&end.world.received_statuses(), 0, 1);
    net.assert_quiet();
}

// Rules: ERR-20
#[test]
fn a_flush_has_a_bound() {
    let mut net = Net::new(Setup::default());
    let count = u64::from(FLUSH_BATCH) + 1;
    for id in 0..count {
        net.post(A, id, send(), 0, 0);
    }
    let end = &mut net.ends[A];
    let host = &mut end.world.host(&[]);
    assert_eq!(end.requester.enter_error(host), Flush::More);
    assert_eq!(end.requester.flush_posted(host), Flush::Done);
    flushed(&end.world.sent_statuses(), 0, count);
}

// Rules: ERR-16
#[test]
fn a_reset_gives_everything_back_without_completions() {
    let mut net = Net::new(Setup::default());
    for id in 0..5 {
        net.post(A, id, write(0), 0, 5000);
    }
    net.post_bad(A, 5, Status::LocalProtection);
    net.transmit(A);
    let end = &mut net.ends[A];
    let host = &mut end.world.host(&[]);
    end.requester.reset(host);
    end.responder.reset(host);
    assert_eq!(end.world.sent, []);
    assert_eq!(end.world.retired, 6);
    assert_eq!(end.requester.state(), SendState::Idle);
    net.assert_quiet();
    // Packets that were on their way have no effect.
    net.ends[A].state = State::Reset;
    net.run();
    assert_eq!(net.ends[A].world.sent, []);
}

// Rules: ERR-17
#[test]
fn the_connection_works_again_after_a_reset_of_both() {
    let mut net = Net::new(Setup::default());
    for round in 0..3 {
        net.post(A, 2 * round, write(0x1000), 0, 5000);
        net.post(A, 2 * round + 1, read(0x1000), 0x10_0000, 5000);
        net.run();
        let last = net.ends[A].world.sent[2 * round as usize + 1];
        assert_eq!((last.wr_id, last.status), (2 * round + 1, Status::Success));
        for side in [A, B] {
            let end = &mut net.ends[side];
            let host = &mut end.world.host(&[]);
            end.requester.reset(host);
            end.responder.reset(host);
            net.connect(side);
        }
    }
}

// Rules: NAK-17
#[test]
fn a_refused_request_fails_both_sides() {
    let mut net = Net::new(Setup::default());
    let mut elsewhere = remote(0);
    elsewhere.rkey = Rkey(RKEY + 1);
    net.post(A, 0, write(0), 0, 5000);
    let op = SendOp::Write {
        remote: elsewhere,
        imm: None,
    };
    net.post(A, 1, op, 0, 5000);
    net.post(A, 2, write(0), 0, 5000);
    for side in [A, B] {
        net.post_recv(side, 0, 0, 10);
    }
    net.run();
    assert_eq!(
        net.ends[A].world.sent_statuses(),
        [
            (0, Status::Success),
            (1, Status::RemoteAccess),
            (2, Status::Flushed)
        ]
    );
    raised(&net.ends[B].world, AsyncEvent::AccessError);
    assert_eq!(net.ends[A].world.raised, []);
    for side in [A, B] {
        assert_eq!(net.ends[side].state, State::Err);
        flushed(&net.ends[side].world.received_statuses(), 0, 1);
    }
    net.assert_quiet();
}

// Rules: RTY-3, RTY-11
#[test]
fn a_peer_that_is_gone_is_given_up() {
    let mut net = Net::new(Setup {
        retry_cnt: 3,
        timeout: 10,
        ..Setup::default()
    });
    net.post(A, 0, write(0), 0, 3000);
    net.post(A, 1, write(0), 0, 3000);
    net.filter = Box::new(|_, _| false);
    net.run();
    assert_eq!(
        net.ends[A].world.sent_statuses(),
        [(0, Status::TransportRetryExceeded), (1, Status::Flushed)]
    );
    // 4.194304 ms, then twice and, to the end, four times that.
    assert_eq!(net.now.as_ns(), (1 + 2 + 4 + 4) * 4_194_304);
    assert_eq!(net.ends[A].world.count(Event::Retransmit), 3);
    net.assert_quiet();
}

// Rules: RNR-17, RNR-18
#[test]
fn a_receiver_that_is_never_ready_is_given_up() {
    let mut net = Net::new(Setup {
        rnr_retry: 2,
        ..Setup::default()
    });
    net.post(A, 0, write(0), 0, 10);
    net.post(A, 1, send(), 0, 3000);
    net.run();
    assert_eq!(
        net.ends[A].world.sent_statuses(),
        [(0, Status::Success), (1, Status::RnrRetryExceeded)]
    );
    assert_eq!(net.ends[B].world.count(Event::RnrNakSent), 3);
    assert_eq!(
        net.ends[B].state,
        State::Rts,
        "the receiver is not at fault"
    );
    net.assert_quiet();
}

#[test]
fn a_late_receive_is_waited_for() {
    let mut net = Net::new(Setup::default());
    net.post(A, 0, send(), 0x1000, 3000);
    net.run_until(|net| net.ends[B].world.count(Event::RnrNakSent) == 20);
    net.post_recv(B, 0, 0x20_0000, 3000);
    net.run();
    assert_eq!(net.ends[A].world.sent_statuses(), [(0, Status::Success)]);
    assert_eq!(
        net.ends[A].world.bytes(0x1000, 3000),
        net.ends[B].world.bytes(0x20_0000, 3000)
    );
    net.assert_quiet();
}

#[test]
fn memory_that_goes_away_under_a_read_fails_both_sides() {
    let mut net = Net::new(Setup::default());
    net.ends[B].world.gone.push(0x4000);
    net.post(A, 0, read(0), 0x1000, 10);
    net.post(A, 1, read(0x4000), 0x1000, 5000);
    net.run();
    assert_eq!(
        net.ends[A].world.sent_statuses(),
        [(0, Status::Success), (1, Status::RemoteOperation)]
    );
    raised(&net.ends[B].world, AsyncEvent::Fatal);
    net.assert_quiet();
}

#[test]
fn memory_that_goes_away_under_a_send_fails_it() {
    let mut net = Net::new(Setup::default());
    net.ends[A].world.gone.push(0x4000);
    net.post(A, 0, write(0), 0x1000, 5000);
    net.post(A, 1, write(0), 0x4000, 5000);
    net.run();
    assert_eq!(
        net.ends[A].world.sent_statuses(),
        [(0, Status::Success), (1, Status::LocalProtection)]
    );
    net.assert_quiet();
}
