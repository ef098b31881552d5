// SPDX-License-Identifier: GPL-2.0

//! SQD: the send queue is drained, and continues.

use roce::event::AsyncEvent;
use roce::num::Mtu;
use roce::send::{Blocked, SendState};
use roce::wr::SendFlags;

use crate::net::{all_succeeded, raised, read, write, Net, Setup, A};

fn drain(net: &mut Net) {
    let end = &mut net.ends[A];
    end.requester.drain(&mut end.world.host(&[]));
}

// Rules: STA-11
#[test]
fn an_idle_queue_is_drained_at_once() {
    let mut net = Net::new(Setup::default());
    drain(&mut net);
    raised(&net.ends[A].world, AsyncEvent::SendQueueDrained);
    assert_eq!(net.ends[A].requester.state(), SendState::Drained);
    drain(&mut net);
    raised(&net.ends[A].world, AsyncEvent::SendQueueDrained);
}

// Rules: STA-10, STA-12
#[test]
fn what_was_begun_is_finished_and_the_rest_waits() {
    let mut net = Net::new(Setup {
        mtu: Mtu::B256,
        ..Setup::default()
    });
    // The window closes within the second message.
    for id in 0..4 {
        net.post(A, id, write(0), 0, 256 * 100);
    }
    net.transmit(A);
    drain(&mut net);
    assert_eq!(net.ends[A].requester.state(), SendState::Draining);
    assert_eq!(net.ends[A].world.raised, []);
    net.run();
    all_succeeded(&net.ends[A].world.sent_statuses(), 0..2);
    raised(&net.ends[A].world, AsyncEvent::SendQueueDrained);
    assert_eq!(net.ends[A].requester.state(), SendState::Drained);
    assert_eq!(net.ends[A].requester.blocked(), Some(Blocked::Drain));

    net.ends[A].requester.resume();
    net.run();
    assert_eq!(net.ends[A].requester.state(), SendState::Running);
    all_succeeded(&net.ends[A].world.sent_statuses(), 0..4);
    raised(&net.ends[A].world, AsyncEvent::SendQueueDrained);
}

// Rules: STA-10
#[test]
fn a_request_that_waits_for_its_turn_is_not_begun() {
    for by_fence in [true, false] {
        let mut net = Net::new(Setup {
            rd_atomic: 1,
            ..Setup::default()
        });
        net.post(A, 0, read(0), 0, 5000);
        let flags = SendFlags {
            fence: by_fence,
            ..SendFlags::default()
        };
        net.post_flagged(A, 1, read(0), flags, 0, 10);
        net.transmit(A);
        drain(&mut net);
        net.run();
        all_succeeded(&net.ends[A].world.sent_statuses(), 0..1);
        raised(&net.ends[A].world, AsyncEvent::SendQueueDrained);
        net.ends[A].requester.resume();
        net.run();
        all_succeeded(&net.ends[A].world.sent_statuses(), 0..2);
        net.assert_quiet();
    }
}

#[test]
fn loss_only_delays_it() {
    let mut setup = Setup::default();
    setup.link.loss = 300;
    let mut net = Net::new(setup);
    for id in 0..3 {
        net.post(A, id, write(0), 0, 5000);
    }
    net.transmit(A);
    drain(&mut net);
    net.run();
    all_succeeded(&net.ends[A].world.sent_statuses(), 0..3);
    raised(&net.ends[A].world, AsyncEvent::SendQueueDrained);
}

// Rules: STA-12
#[test]
fn resumed_before_it_is_drained_it_just_goes_on() {
    let mut net = Net::new(Setup::default());
    net.post(A, 0, write(0), 0, 5000);
    net.transmit(A);
    drain(&mut net);
    net.ends[A].requester.resume();
    net.post(A, 1, write(0), 0, 5000);
    net.run();
    all_succeeded(&net.ends[A].world.sent_statuses(), 0..2);
    assert_eq!(net.ends[A].world.raised, []);
}
