// SPDX-License-Identifier: GPL-2.0

//! Ports of a switch: where packets of several nodes meet.
//!
//! All packets towards a node pass its port, one after the other, in the order in which they
//! arrive. The queue is bounded in bytes: a packet that does not fit is dropped. By the length of
//! the queue that a packet finds (RED without an average, as DCQCN wants it), it is marked CE if
//! its sender has declared it ECT, and dropped otherwise.

use std::collections::VecDeque;

use crate::packet::{self, Ecn};
use crate::plan::PortPlan;
use crate::rng::Rng;

/// Ethernet's overhead for a packet: preamble, header, checksum and gap.
pub const ETHERNET_BYTES: u64 = 38;

/// Bytes of queue that one cell of a histogram stands for.
const CELL_BYTES: u64 = 1024;

/// The port of a switch towards a node.
pub struct Port {
    rng: Rng,
    ps_per_bit: u64,
    /// Bytes that may be queued; 0 is no limit.
    limit: u64,
    marking: Marking,
    /// Packets in the queue: when each has left, and its bytes. The first is on its way out.
    queue: VecDeque<(u64, u64)>,
    queued_bytes: u64,
    /// When the last of them has left.
    free_at: u64,
    /// Up to when the statistics reach.
    seen_until: u64,
    /// The longest time that a packet spent here.
    longest_ns: u64,
    stats: PortStats,
}

/// Random early detection: by which length of the queue how many packets are marked.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Marking {
    /// Below so many bytes none.
    pub min: u64,
    /// The queue length from which on all packets are marked; 0 is never.
    pub max: u64,
    /// The share of packets just below `max`.
    pub chance: f64,
}

/// The fate of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passage {
    /// It has left the port then.
    Leaves(u64),
    /// It was dropped.
    Dropped,
}

/// The statistics of a port for some time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortStats {
    /// How long it is, in nanoseconds.
    pub elapsed_ns: u64,
    /// How long there was something to send.
    pub busy_ns: u64,
    /// Packets that arrived.
    pub packets: u64,
    /// Packets that were dropped as the queue was full.
    pub overflows: u64,
    /// Packets that were dropped as the queue was long and they were not ECT.
    pub early_drops: u64,
    /// Packets that were marked.
    pub marks: u64,
    /// The longest queue, in bytes.
    pub max_bytes: u64,
    /// The sum over time of the bytes in the queue, in byte-nanoseconds.
    byte_ns: u128,
    /// How long the queue was so many KiB long, in nanoseconds.
    cells: Vec<u64>,
}

impl Port {
    /// Creates a port with the attributes of `plan`.
    pub fn new(plan: &PortPlan, mut rng: Rng) -> Self {
        let rng = &mut rng;
        let kib = |kib: f64| (kib * 1024.0) as u64;
        Self {
            ps_per_bit: (1000.0 / plan.rate_gbps.draw(rng).max(0.001)).round() as u64,
            limit: kib(plan.queue_kib.draw(rng)),
            marking: Marking {
                min: kib(plan.mark_min_kib.draw(rng)),
                max: kib(plan.mark_max_kib.draw(rng)),
                chance: plan.mark_chance.draw(rng),
            },
            queue: VecDeque::new(),
            queued_bytes: 0,
            free_at: 0,
            seen_until: 0,
            longest_ns: 0,
            stats: PortStats::default(),
            rng: rng.clone(),
        }
    }

    /// Queues a packet, and marks it if that is its lot.
    pub fn pass(&mut self, now: u64, bytes: &mut [u8]) -> Passage {
        self.advance(now);
        self.stats.packets += 1;
        let size = bytes.len() as u64 + ETHERNET_BYTES;
        if self.limit > 0 && self.queued_bytes + size > self.limit {
            self.stats.overflows += 1;
            return Passage::Dropped;
        }
        if self.marking.strikes(self.queued_bytes, &mut self.rng) {
            if packet::ecn(bytes) == Ecn::NotEct {
                self.stats.early_drops += 1;
                return Passage::Dropped;
            }
            self.stats.marks += 1;
            packet::set_ecn(bytes, Ecn::Ce);
        }
        self.free_at = self.free_at.max(now) + size * 8 * self.ps_per_bit / 1000;
        self.queue.push_back((self.free_at, size));
        self.queued_bytes += size;
        self.stats.max_bytes = self.stats.max_bytes.max(self.queued_bytes);
        self.longest_ns = self.longest_ns.max(self.free_at - now);
        Passage::Leaves(self.free_at)
    }

    /// Returns the longest time that a packet spent here.
    pub fn longest_ns(&self) -> u64 {
        self.longest_ns
    }

    /// Returns the statistics since the last call, or since the start of the run.
    pub fn take_stats(&mut self, now: u64) -> PortStats {
        self.advance(now);
        std::mem::take(&mut self.stats)
    }

    /// Lets packets leave up to `now`.
    fn advance(&mut self, now: u64) {
        while let Some((at, size)) = self.queue.front().copied().filter(|(at, _)| *at <= now) {
            self.account(at);
            self.queue.pop_front();
            self.queued_bytes -= size;
        }
        self.account(now);
    }

    /// Accounts for a queue that has not changed until `at`.
    fn account(&mut self, at: u64) {
        self.stats.stay(self.queued_bytes, at - self.seen_until);
        self.seen_until = at;
    }
}

impl Marking {
    /// Returns true if a packet that finds `queued` bytes is to be marked.
    fn strikes(self, queued: u64, rng: &mut Rng) -> bool {
        if self.max == 0 || queued < self.min {
            return false;
        }
        if queued >= self.max {
            return true;
        }
        let way = (queued - self.min) as f64 / (self.max - self.min) as f64;
        let millionths = (self.chance * way * 1e6) as u64;
        rng.below(1_000_000) < millionths
    }
}

impl PortStats {
    fn stay(&mut self, bytes: u64, ns: u64) {
        self.elapsed_ns += ns;
        if bytes > 0 {
            self.busy_ns += ns;
        }
        self.byte_ns += u128::from(bytes) * u128::from(ns);
        let cell = (bytes / CELL_BYTES) as usize;
        if cell >= self.cells.len() {
            self.cells.resize(cell + 1, 0);
        }
        self.cells[cell] += ns;
    }

    /// Returns the number of dropped packets.
    pub fn drops(&self) -> u64 {
        self.overflows + self.early_drops
    }

    /// Returns the share of the time in which the port had packets to send.
    pub fn utilisation(&self) -> f64 {
        self.busy_ns as f64 / self.elapsed_ns.max(1) as f64
    }

    /// Returns the average length of the queue over time, in bytes.
    pub fn mean_bytes(&self) -> f64 {
        self.byte_ns as f64 / self.elapsed_ns.max(1) as f64
    }

    /// Returns the queue length that was exceeded in at most one percent of the time, in bytes, at
    /// most a KiB too large.
    pub fn p99_bytes(&self) -> u64 {
        let most = self.elapsed_ns / 100;
        let mut above = 0;
        for (cell, ns) in self.cells.iter().enumerate().rev() {
            above += ns;
            if above > most {
                return (cell as u64 + 1) * CELL_BYTES;
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Range;

    /// Returns a port of 8 Gbit/s: a byte takes a nanosecond.
    fn port(queue_kib: f64, marking: [f64; 3]) -> Port {
        let plan = PortPlan {
            towards: Range::Fixed(1.0),
            rate_gbps: Range::Fixed(8.0),
            queue_kib: Range::Fixed(queue_kib),
            mark_min_kib: Range::Fixed(marking[0]),
            mark_max_kib: Range::Fixed(marking[1]),
            mark_chance: Range::Fixed(marking[2]),
        };
        Port::new(&plan, Rng::new(1))
    }

    /// Returns a packet that takes a KiB of the queue.
    fn packet(ecn: Ecn) -> Vec<u8> {
        let mut bytes = vec![0x45; 1024 - ETHERNET_BYTES as usize];
        packet::set_ecn(&mut bytes, ecn);
        bytes
    }

    #[test]
    fn packets_leave_in_order_at_the_rate() {
        let mut port = port(0.0, [0.0; 3]);
        let mut leaves = 0;
        for number in 1..=100 {
            // They come twice as fast.
            let passage = port.pass(number * 512, &mut packet(Ecn::Ect0));
            assert_eq!(passage, Passage::Leaves(512 + number * 1024));
            leaves = 512 + number * 1024;
        }
        let stats = port.take_stats(leaves);
        assert_eq!((stats.packets, stats.drops(), stats.marks), (100, 0, 0));
        assert_eq!((stats.elapsed_ns, stats.busy_ns), (leaves, 100 * 1024));
        assert_eq!(port.longest_ns(), 100 * 1024 + 512 - 100 * 512);
        // Half as many as came stand there when the last comes.
        assert_eq!(stats.max_bytes, 51 * 1024);
    }

    #[test]
    fn what_does_not_fit_is_dropped() {
        let mut port = port(10.0, [0.0; 3]);
        let mut send = |now, count| {
            let passages = (0..count).map(|_| port.pass(now, &mut packet(Ecn::NotEct)));
            passages
                .filter(|passage| *passage != Passage::Dropped)
                .count()
        };
        assert_eq!(send(0, 15), 10);
        // Not before a packet has left.
        assert_eq!(send(1023, 1), 0);
        assert_eq!(send(1024, 2), 1);
        assert_eq!(send(5 * 1024, 10), 4);
        let stats = port.take_stats(100_000);
        assert_eq!(
            (stats.packets, stats.overflows, stats.early_drops),
            (28, 13, 0)
        );
        assert_eq!(stats.max_bytes, 10 * 1024);
    }

    /// Returns how many of 20,000 packets that find `kib` KiB are marked, and how many are dropped.
    fn marked(kib: u64, ecn: Ecn) -> (u64, u64) {
        let mut port = port(0.0, [10.0, 30.0, 0.1]);
        for _ in 0..kib {
            port.queue.push_back((u64::MAX, 1024));
            port.queued_bytes += 1024;
        }
        for _ in 0..20_000 {
            let mut bytes = packet(ecn);
            let passage = port.pass(0, &mut bytes);
            let is_marked = packet::ecn(&bytes) == Ecn::Ce;
            assert!(!is_marked || ecn != Ecn::NotEct);
            if let Passage::Leaves(_) = passage {
                port.queue.pop_back();
                port.queued_bytes -= 1024;
            }
        }
        let stats = port.take_stats(0);
        (stats.marks, stats.early_drops)
    }

    #[test]
    fn the_longer_the_queue_the_more_is_marked() {
        assert_eq!(marked(9, Ecn::Ect0), (0, 0));
        assert_eq!(marked(10, Ecn::Ect0), (0, 0));
        let (half, _) = marked(20, Ecn::Ect0);
        assert!((900..1100).contains(&half), "{half}");
        let (most, _) = marked(29, Ecn::Ect1);
        assert!((1780..2020).contains(&most), "{most}");
        assert_eq!(marked(30, Ecn::Ect0), (20_000, 0));
    }

    #[test]
    fn what_is_not_ect_is_dropped_instead() {
        let (marks, drops) = marked(20, Ecn::NotEct);
        assert_eq!(marks, 0);
        assert!((900..1100).contains(&drops), "{drops}");
        // A mark of another switch stays.
        assert_eq!(marked(30, Ecn::Ce), (20_000, 0));
    }

    #[test]
    fn the_queue_is_measured_over_time() {
        let mut port = port(0.0, [0.0; 3]);
        for _ in 0..4 {
            port.pass(1000, &mut packet(Ecn::Ect0));
        }
        // 4, 3, 2 and 1 KiB, a microsecond each; then none.
        let stats = port.take_stats(1000 + 4 * 1024 + 4904);
        assert_eq!(stats.elapsed_ns, 10_000);
        assert_eq!(stats.utilisation(), 0.4096);
        assert_eq!(stats.mean_bytes(), 10.0 * 1024.0 * 1024.0 / 10_000.0);
        assert_eq!(stats.p99_bytes(), 5 * 1024);
        let stats = port.take_stats(20_000);
        assert_eq!(
            (stats.elapsed_ns, stats.busy_ns, stats.max_bytes),
            (10_000, 0, 0)
        );
    }
}
