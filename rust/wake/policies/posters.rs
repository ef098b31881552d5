// SPDX-License-Identifier: GPL-2.0

//! Posters of all kinds, and whether the policy knows them apart.

use crate::policy::{Depth, Serve};

/// The durations of operations, in nanoseconds.
#[derive(Clone, Copy)]
struct Costs {
    /// From one doorbell to the next, without the work in the doorbell.
    post: u64,
    /// A message that is served at once.
    here: u64,
    /// Until the work item runs.
    wake: u64,
    /// A message of many that the work item serves.
    beside: u64,
}

/// A virtual machine without hardware support, a server, and one with a slow poster.
const MACHINES: [Costs; 3] = [
    Costs {
        post: 4_000,
        here: 13_000,
        wake: 17_000,
        beside: 8_000,
    },
    Costs {
        post: 300,
        here: 2_000,
        wake: 3_000,
        beside: 1_000,
    },
    Costs {
        post: 9_000,
        here: 13_000,
        wake: 17_000,
        beside: 8_000,
    },
];

/// A queue pair with its poster, on virtual time.
struct Bench {
    costs: Costs,
    depth: Depth,
    now: u64,
    /// The completion times of requests that the poster did not wait for.
    ends: Vec<u64>,
    served_here: u32,
    served_beside: u32,
}

impl Bench {
    fn new(costs: Costs) -> Self {
        Self {
            costs,
            depth: Depth::new(),
            now: 0,
            ends: Vec::new(),
            served_here: 0,
            served_beside: 0,
        }
    }

    fn post(&mut self) {
        self.now += self.costs.post;
        let last = self.ends.last().copied().unwrap_or(0);
        let (depth, serve) = self.depth.ring(last <= self.now, || true);
        self.depth = Depth::from_bits(depth.to_bits());
        assert_eq!(self.depth, depth);
        match serve {
            Serve::Here => {
                self.served_here += 1;
                self.now = self.now.max(last) + self.costs.here;
                self.ends.push(self.now);
            }
            Serve::Beside => {
                self.served_beside += 1;
                let begin = (self.now + self.costs.wake).max(last);
                self.ends.push(begin + self.costs.beside);
            }
        }
    }

    /// Waits until no more than `most` requests are outstanding.
    fn wait(&mut self, most: usize) {
        if let Some(place) = self.ends.len().checked_sub(most + 1) {
            self.now = self.now.max(self.ends[place]);
        }
    }

    /// Posts `messages` in batches, after each of which it waits for all of it.
    fn batches(&mut self, messages: u32, batch: u32) {
        for message in 1..=messages {
            self.post();
            if message % batch == 0 {
                self.wait(0);
            }
        }
    }

    fn forget_counts(&mut self) {
        (self.served_here, self.served_beside) = (0, 0);
    }
}

#[test]
fn who_waits_for_each_is_served_at_once() {
    for costs in MACHINES {
        let mut bench = Bench::new(costs);
        bench.batches(2_000, 1);
        assert!(bench.served_beside <= 12, "{} probes", bench.served_beside);
        bench.forget_counts();
        bench.batches(100_000, 1);
        assert!(bench.served_beside <= 100, "{} probes", bench.served_beside);
    }
}

#[test]
fn who_posts_on_is_known_by_the_third_doorbell() {
    for costs in MACHINES {
        let mut bench = Bench::new(costs);
        for _ in 0..300 {
            bench.post();
            bench.wait(127);
        }
        assert_eq!(bench.served_here, 1);
    }
}

#[test]
fn a_burst_after_a_rest_is_known_at_once() {
    for costs in MACHINES {
        let mut bench = Bench::new(costs);
        bench.batches(500, 500);
        bench.forget_counts();
        for _ in 0..20 {
            bench.now += 20_000_000;
            bench.batches(500, 500);
        }
        assert_eq!(bench.served_here, 0);
    }
}

#[test]
fn eight_at_a_time_are_a_stream() {
    for costs in MACHINES {
        let mut bench = Bench::new(costs);
        bench.batches(8_000, 8);
        assert!(bench.served_here < 100, "{} at once", bench.served_here);
    }
}

#[test]
fn two_at_a_time_are_none() {
    for costs in MACHINES {
        let mut bench = Bench::new(costs);
        bench.batches(2_000, 2);
        bench.forget_counts();
        bench.batches(20_000, 2);
        assert!(
            bench.served_beside < 1_500,
            "{} beside",
            bench.served_beside
        );
    }
}

#[test]
fn who_begins_to_wait_is_served_at_once_soon() {
    for costs in MACHINES {
        let mut bench = Bench::new(costs);
        bench.batches(1_000, 1_000);
        bench.forget_counts();
        bench.batches(200, 1);
        assert!(bench.served_beside <= 30, "{} beside", bench.served_beside);
        // And the other way round.
        bench.batches(10_000, 1);
        bench.forget_counts();
        bench.batches(10_000, 1_000);
        assert!(bench.served_here <= 1_100, "{} at once", bench.served_here);
    }
}
