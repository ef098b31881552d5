// SPDX-License-Identifier: GPL-2.0

//! Requests and replies over a slow network, which returns one frame of a credit after the other. Both have more
//! to send all the time.

use std::collections::VecDeque;
use std::mem;

use crate::rule::{is_available, resumes_all, resumes_one};

const LIMIT: u32 = 256;
/// Frames of a run, which may be in several trains. They count when their train is sent.
const RUN: u32 = 31;

const REQUESTS: usize = 0;
const REPLIES: usize = 1;

/// When frames are sent, beside the calls of the waker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tries {
    Never,
    /// Whenever so many frames came back, which make the peer send packets.
    After(u32),
}

const TRIES: [Tries; 6] = [
    Tries::Never,
    Tries::After(1),
    Tries::After(2),
    Tries::After(16),
    Tries::After(100),
    Tries::After(200),
];

/// The frames of one use.
#[derive(Clone, Copy, Default)]
struct Sent {
    in_flight: u32,
    is_wanted: bool,
    all: u64,
}

struct Network {
    train: u32,
    uses: [Sent; 2],
    /// The use of each frame that it has.
    frames: VecDeque<usize>,
}

impl Network {
    fn new(train: u32) -> Self {
        Self {
            train,
            uses: [Sent::default(); 2],
            frames: VecDeque::new(),
        }
    }

    fn is_available(&mut self, what: usize) -> bool {
        let (own, others) = (self.uses[what].in_flight, self.uses[1 - what].in_flight);
        let is_available = is_available(LIMIT, own, others);
        self.uses[what].is_wanted |= !is_available;
        is_available
    }

    /// Sends until there is no credit, in runs.
    fn send(&mut self, what: usize) {
        loop {
            let (mut count, mut waiting) = (0, 0);
            while count < RUN && self.is_available(what) {
                (count, waiting) = (count + 1, waiting + 1);
                if waiting == self.train {
                    self.take(what, mem::take(&mut waiting));
                }
            }
            self.take(what, waiting);
            if count < RUN {
                return;
            }
        }
    }

    fn take(&mut self, what: usize, frames: u32) {
        let of_use = &mut self.uses[what];
        of_use.in_flight += frames;
        of_use.all += u64::from(frames);
        self.frames.extend((0..frames).map(|_| what));
    }

    /// Frees one frame. Returns true if the waker is called.
    fn give_back(&mut self) -> bool {
        let Some(what) = self.frames.pop_front() else {
            return false;
        };
        self.uses[what].in_flight -= 1;
        let left = self.uses[what].in_flight;
        if resumes_all(LIMIT, left, self.uses[1 - what].in_flight) {
            let wanted = self
                .uses
                .each_mut()
                .map(|of_use| mem::take(&mut of_use.is_wanted));
            return wanted.contains(&true);
        }
        resumes_one(LIMIT, left) && mem::take(&mut self.uses[what].is_wanted)
    }
}

/// Lets many frames pass, and checks that none of the two waits long, and that the network always has frames.
fn run(train: u32, tries: [Tries; 2]) {
    let mut net = Network::new(train);
    net.send(REQUESTS);
    net.send(REPLIES);
    let (mut least, mut most) = (LIMIT, 0);
    for passed in 1..20_000 {
        let wakes = net.give_back();
        least = least.min(net.frames.len() as u32);
        for what in [REQUESTS, REPLIES] {
            if wakes || matches!(tries[what], Tries::After(frames) if passed % frames == 0) {
                net.send(what);
            }
        }
        most = most.max(net.frames.len() as u32);
    }
    let sent = net.uses.map(|of_use| of_use.all);
    let shown = format!("trains of {train}, {tries:?}: {sent:?}, {least} to {most} at a time");
    let all: u64 = sent.iter().sum();
    assert!(sent.iter().all(|sent| sent * 8 > all), "{shown}");
    assert!(least >= LIMIT / 4, "{shown}");
    assert!(most <= LIMIT + LIMIT / 4 + 2 * train, "{shown}");
}

#[test]
fn nobody_is_kept_waiting() {
    for train in [1, 7, 15, 63] {
        for requests in TRIES {
            for replies in TRIES {
                run(train, [requests, replies]);
            }
        }
    }
}

/// While the other one sends nothing, all of the credit is for one.
#[test]
fn one_alone_has_all_of_it() {
    for what in [REQUESTS, REPLIES] {
        let mut net = Network::new(1);
        net.send(what);
        assert_eq!(net.frames.len() as u32, LIMIT);
        let wakes = (0..LIMIT / 2).filter(|_| net.give_back()).count();
        assert_eq!(wakes, 1);
        net.send(what);
        assert_eq!(net.frames.len() as u32, LIMIT);
    }
}
