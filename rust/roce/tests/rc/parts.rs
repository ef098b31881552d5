// SPDX-License-Identifier: GPL-2.0

//! READs on a congested path: several requests for one READ.

use std::cell::RefCell;
use std::rc::Rc;

use roce::congestion::Law;
use roce::event::{AsyncEvent, Event};
use roce::num::Mtu;
use roce::send::SendState;
use roce::wire::{Body, Request, Response};

use crate::net::{all_succeeded, raised, read, write, Link, Net, Setup, A, B};
use crate::rng::Rng;

const PACKETS: u32 = 64;

/// Makes a connection for READs of such a depth, to a peer that keeps packets or not.
fn way(law: Law, rd_atomic: u8, keeps: bool) -> Net {
    Net::new(Setup {
        law,
        rd_atomic,
        keeps,
        mtu: Mtu::B256,
        link: Link {
            delay_ns: 5_000,
            batch: 4,
            ..Link::default()
        },
        ..Setup::default()
    })
}

/// Posts so many READs, numbered from `first`.
fn post(net: &mut Net, first: u64, count: u64) {
    for id in first..first + count {
        net.post(A, id, read(0), 0, 256 * PACKETS);
    }
}

/// Runs to the end on a path that is congested all the time.
fn run_congested(net: &mut Net) {
    let mut steps = 0u64;
    while net.step() {
        let now = net.now;
        net.ends[A].requester.congested(now);
        steps += 1;
        assert!(steps < 2_000_000, "it does not end");
    }
}

/// Congests the path until the window is as small as it becomes.
fn congest(net: &mut Net) {
    for id in 0..200 {
        net.post(A, id, write(0), 0, 256 * 8);
    }
    run_congested(net);
    // DCQCN counts the marks by time.
    for _ in 0..200 {
        net.now = net.now.after_ns(60_000);
        net.ends[A].requester.congested(net.now);
    }
}

/// Returns a list of the responses that each READ request to B asks for from now on.
fn watch(net: &mut Net) -> Rc<RefCell<Vec<u32>>> {
    let parts = Rc::new(RefCell::new(Vec::new()));
    let seen = parts.clone();
    net.filter = Box::new(move |to, packet| {
        if let (B, Body::Request(Request::Read(reth))) = (to, &packet.body) {
            seen.borrow_mut().push(reth.length / 256);
        }
        true
    });
    parts
}

fn check(net: &Net, ids: std::ops::Range<u64>) {
    let (a, b) = (&net.ends[A].world, &net.ends[B].world);
    all_succeeded(&a.sent_statuses(), ids);
    let len = 256 * PACKETS as usize;
    assert_eq!(a.bytes(0, len), b.bytes(0, len));
    net.assert_quiet();
}

// Rules: SEG-14
#[test]
fn a_read_is_one_request_while_the_path_is_free() {
    let mut net = way(Law::Window, 4, true);
    let parts = watch(&mut net);
    post(&mut net, 0, 8);
    net.run();
    check(&net, 0..8);
    assert_eq!(*parts.borrow(), [PACKETS; 8]);
}

// Rules: SEG-22
#[test]
fn a_read_on_a_congested_path_is_no_more_at_a_time_than_the_window() {
    for law in [Law::Window, Law::Dcqcn] {
        let mut net = way(law, 4, true);
        congest(&mut net);
        let window = net.ends[A].requester.report().unwrap().window;
        assert!(window < PACKETS / 2, "{law:?}: {window}");
        let parts = watch(&mut net);
        post(&mut net, 200, 4);
        run_congested(&mut net);
        check(&net, 0..204);
        let parts = parts.borrow();
        assert!(parts.iter().all(|part| *part <= window + 8), "{parts:?}");
        assert_eq!(
            parts.iter().sum::<u32>(),
            4 * PACKETS,
            "each is asked for once"
        );
        let world = &net.ends[A].world;
        assert_eq!(
            world.count(Event::Retransmit) + world.count(Event::Probe),
            0
        );
    }
}

// Rules: RDA-3, SEG-22
#[test]
fn parts_need_no_more_resources_of_the_peer_than_one_read() {
    for depth in [1, 2, 4] {
        let mut net = way(Law::Window, depth, true);
        congest(&mut net);
        post(&mut net, 200, 6);
        let most = Rc::new(RefCell::new((0u32, 0u32)));
        let seen = most.clone();
        // Requests that are sent and not yet answered to the end.
        net.filter = Box::new(move |_, packet| {
            let (open, most) = &mut *seen.borrow_mut();
            match &packet.body {
                Body::Request(Request::Read(_)) => *open += 1,
                Body::Response(response) if ends_read(response) => *open -= 1,
                _ => {}
            }
            *most = (*most).max(*open);
            true
        });
        run_congested(&mut net);
        check(&net, 0..206);
        let (open, most) = *most.borrow();
        assert_eq!(open, 0);
        assert!(most <= depth.into(), "{most} of {depth}");
    }
}

fn ends_read(response: &Response) -> bool {
    matches!(response, Response::ReadLast(_) | Response::ReadOnly(_))
}

// Rules: RTY-20, RTY-21, SEG-22
#[test]
fn lost_parts_are_asked_for_again() {
    for keeps in [true, false] {
        for loss in [10, 50, 100] {
            for seed in 1..6 {
                let mut net = way(Law::Window, 4, keeps);
                congest(&mut net);
                net.rng = Rng::new(seed);
                net.setup.link.loss = loss;
                post(&mut net, 200, 8);
                run_congested(&mut net);
                check(&net, 0..208);
            }
        }
    }
}

// Rules: RTY-20, SEG-22
#[test]
fn a_lost_part_or_its_answer_needs_no_timer() {
    for (side, number) in [(B, 1), (B, 2), (A, 1), (A, 2), (A, 3), (A, PACKETS)] {
        let mut net = way(Law::Window, 4, true);
        congest(&mut net);
        post(&mut net, 200, 1);
        let mut count = 0;
        net.filter = Box::new(move |to, _| {
            count += u32::from(to == side);
            to != side || count != number
        });
        run_congested(&mut net);
        check(&net, 0..201);
        assert_eq!(
            net.ends[A].world.count(Event::AckTimeout),
            0,
            "{number} to {side}"
        );
    }
}

// Rules: RTY-20, SEG-22
#[test]
fn a_lost_request_for_a_part_is_asked_for_whole() {
    for law in [Law::Window, Law::Dcqcn] {
        for keeps in [true, false] {
            let mut net = way(law, 4, keeps);
            congest(&mut net);
            let read = widen(&mut net, 26);
            post(&mut net, read, 1);
            // The second request is lost, and a response to a question. If that asks for a few of them, it is a new
            // request to the peer. One for more of them, which begins within it, is invalid.
            let (mut requests, mut responses) = (0, 0);
            net.filter = Box::new(move |to, packet| match &packet.body {
                Body::Request(Request::Read(_)) if to == B => {
                    requests += 1;
                    requests != 2
                }
                Body::Response(_) if to == A && requests > 2 => {
                    responses += 1;
                    responses != 12
                }
                _ => true,
            });
            net.run();
            check(&net, 0..read + 1);
        }
    }
}

/// Sends WRITEs until the window has so many packets. Returns the number of the next request.
fn widen(net: &mut Net, window: u32) -> u64 {
    let mut id = 200;
    while net.ends[A].requester.report().unwrap().window < window {
        net.post(A, id, write(0), 0, 256 * 8);
        net.run();
        id += 1;
    }
    id
}

// Rules: SEG-22, STA-10, STA-11
#[test]
fn a_read_of_several_parts_is_finished_before_the_queue_is_drained() {
    let mut net = way(Law::Window, 4, true);
    congest(&mut net);
    post(&mut net, 200, 2);
    net.transmit(A);
    let end = &mut net.ends[A];
    end.requester.drain(&mut end.world.host(&[]));
    assert_eq!(end.requester.state(), SendState::Draining);
    run_congested(&mut net);
    check_first(&net);
    net.ends[A].requester.resume();
    run_congested(&mut net);
    check(&net, 0..202);
}

/// Checks that the first READ is complete, and the second was not begun.
fn check_first(net: &Net) {
    let end = &net.ends[A];
    all_succeeded(&end.world.sent_statuses(), 0..201);
    raised(&end.world, AsyncEvent::SendQueueDrained);
    assert_eq!(end.requester.state(), SendState::Drained);
}
