// SPDX-License-Identifier: GPL-2.0

//! Links, which decide the fate of a packet on its way.

use std::ops::Range;

use crate::plan::LinkPlan;
use crate::port::ETHERNET_BYTES;
use crate::rng::{Chance, Rng};

/// One way from a node to a node.
pub struct Link {
    rng: Rng,
    delay_ns: u64,
    /// Picoseconds for each bit.
    ps_per_bit: u64,
    queue: u64,
    loss: Chance,
    burst: Chance,
    burst_goes_on: Chance,
    burst_ends_idle: bool,
    duplication: Chance,
    reordering: Chance,
    late_ns: u64,
    corruption: Chance,
    mtu: usize,
    /// When it is cut.
    partitions: Vec<Range<u64>>,
    in_burst: bool,
    /// When the last packet has left.
    free_at: u64,
    /// Sabotage: packets change on the way, and their checksum with them.
    pub forges: bool,
}

/// A packet that arrives.
pub struct Arriving {
    /// When.
    pub at: u64,
    /// The packet.
    pub bytes: Vec<u8>,
}

/// The fate of a packet: its arrivals, and whether it was harmed.
pub struct Fate {
    /// The copies that arrive.
    pub arriving: Vec<Arriving>,
    /// It is lost, broken or late.
    pub harmed: bool,
}

impl Link {
    /// Creates a link with the faults of `plan`, and with cuts within the first `span_ns`.
    pub fn new(plan: &LinkPlan, mut rng: Rng, span_ns: u64) -> Self {
        let rng = &mut rng;
        let rate_gbps = plan.rate_gbps.draw(rng);
        let count = plan.partitions.count(rng);
        Self {
            delay_ns: plan.delay_us.us(rng),
            ps_per_bit: match rate_gbps {
                rate if rate <= 0.0 => 0,
                rate => (1000.0 / rate).round() as u64,
            },
            queue: plan.queue.count(rng),
            loss: plan.loss.chance(rng),
            burst: plan.burst.chance(rng),
            burst_goes_on: plan.burst_goes_on.chance(rng),
            burst_ends_idle: plan.burst_ends_idle,
            duplication: plan.duplication.chance(rng),
            reordering: plan.reordering.chance(rng),
            late_ns: plan.late_us.us(rng),
            corruption: plan.corruption.chance(rng),
            mtu: plan.mtu.count(rng) as usize,
            partitions: (0..count)
                .map(|_| {
                    let start = rng.below(span_ns);
                    start..start + plan.partition_us.us(rng)
                })
                .collect(),
            in_burst: false,
            free_at: 0,
            forges: false,
            rng: rng.clone(),
        }
    }

    /// Returns the time of the end of the last cut.
    pub fn whole_after(&self) -> u64 {
        self.partitions.iter().map(|cut| cut.end).max().unwrap_or(0)
    }

    /// Returns the longest delay of a packet that is not lost, once it has left.
    pub fn most_ns(&self) -> u64 {
        self.delay_ns + self.late_ns
    }

    /// Sends a packet.
    pub fn send(&mut self, now: u64, mut bytes: Vec<u8>) -> Fate {
        let bits = (bytes.len() as u64 + ETHERNET_BYTES) * 8;
        let takes_ns = bits * self.ps_per_bit / 1000;
        self.in_burst &= !(self.burst_ends_idle && self.free_at < now);
        let starts = self.free_at.max(now);
        let waits = (starts - now).checked_div(takes_ns).unwrap_or(0);
        if self.queue > 0 && waits >= self.queue {
            return Fate::lost();
        }
        self.free_at = starts + takes_ns;
        if self.is_lost(now, bytes.len()) {
            return Fate::lost();
        }
        let mut harmed = false;
        if !bytes.is_empty() && self.rng.chance(self.corruption) {
            harmed = true;
            for _ in 0..=self.rng.below(3) {
                let at = self.rng.index(bytes.len());
                bytes[at] ^= 1 << self.rng.below(8);
            }
        }
        if self.forges && self.rng.percent(2) {
            forge(&mut bytes);
        }
        let copy = self.rng.chance(self.duplication).then(|| bytes.clone());
        let mut arriving = Vec::with_capacity(2);
        for bytes in [Some(bytes), copy].into_iter().flatten() {
            let mut at = self.free_at + self.delay_ns;
            if self.rng.chance(self.reordering) {
                harmed |= arriving.is_empty();
                at += self.rng.below(self.late_ns + 1);
            }
            arriving.push(Arriving { at, bytes });
        }
        Fate { arriving, harmed }
    }

    fn is_lost(&mut self, now: u64, len: usize) -> bool {
        let stays = self.burst_goes_on;
        self.in_burst = match self.in_burst {
            true => self.rng.chance(stays),
            false => self.rng.chance(self.burst),
        };
        let is_cut = self.partitions.iter().any(|cut| cut.contains(&now));
        let is_too_long = self.mtu > 0 && len > self.mtu;
        is_cut || is_too_long || self.in_burst || self.rng.chance(self.loss)
    }
}

impl Fate {
    fn lost() -> Self {
        Self {
            arriving: Vec::new(),
            harmed: true,
        }
    }
}

/// Changes the last byte of the payload, if there is one, so that the checksum fits.
fn forge(bytes: &mut [u8]) {
    let len = bytes.len();
    if len > crate::packet::UDP_PAYLOAD + 60 {
        bytes[len - 8] ^= 0x55;
        crate::packet::seal(bytes);
    }
}
