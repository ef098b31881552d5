// SPDX-License-Identifier: GPL-2.0

//! Flows: connections with steady work, and their measurements.
//!
//! Each flow has a reliable connection of its own between node 0 and another node. It moves
//! messages of one length towards node 0, by WRITEs of the other node or by READs of node 0, from a
//! start to a stop. The flows compete for the port towards node 0.

use std::collections::VecDeque;

use roce::opcode::Transport;

use crate::plan::{FlowOp, FlowPlan};
use crate::port::PortStats;
use crate::rng::Rng;
use crate::setup::{law, Common};
use crate::sim::{Event, Sim};

/// How much later than planned a flow may begin, in nanoseconds.
const LATEST_NS: u64 = 10_000;

/// The state of a flow, in the queue pair that posts its messages.
#[derive(Debug)]
pub struct Flow {
    /// The posted operation.
    pub op: FlowOp,
    depth: usize,
    every_ns: u64,
    stops_at: u64,
    /// It will post.
    is_due: bool,
    /// When the messages that are outstanding were posted.
    posted: VecDeque<u64>,
    /// Times of messages that were posted while it was measured.
    times_ns: Vec<u64>,
}

/// The measurements.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Measured {
    /// The statistics of the port towards node 0, before.
    pub before: PortStats,
    /// The statistics of the port towards node 0.
    pub port: PortStats,
    /// The bytes that the flows had moved, at intervals.
    pub samples: Vec<Sample>,
    /// The durations of messages posted meanwhile, in nanoseconds, by flow.
    pub times_ns: Vec<Vec<u64>>,
}

/// The bytes that the flows had moved at some time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sample {
    /// When.
    pub at_ns: u64,
    /// Bytes of messages that have arrived, by flow; none of them counts twice.
    pub moved: Vec<u64>,
}

impl Flow {
    fn new(plan: &FlowPlan) -> Self {
        Self {
            op: plan.op,
            depth: plan.depth.max(1),
            every_ns: ns(plan.every_us),
            stops_at: ns(plan.stop_us),
            is_due: false,
            posted: VecDeque::new(),
            times_ns: Vec::new(),
        }
    }

    /// Completes the oldest `count` messages.
    pub fn completed(&mut self, count: usize, now: u64, measured: &std::ops::Range<u64>) {
        for posted in self.posted.drain(..count) {
            if measured.contains(&posted) {
                self.times_ns.push(now - posted);
            }
        }
    }

    /// Returns true if its depth and end allow another message.
    fn has_room(&self, now: u64) -> bool {
        self.posted.len() < self.depth && now < self.stops_at
    }
}

impl Measured {
    /// Returns the bytes that each flow moved between two times, by the nearest samples.
    pub fn moved(&self, from_ns: u64, to_ns: u64) -> Vec<u64> {
        let at = |ns: u64| {
            let samples = self.samples.iter();
            samples.min_by_key(|sample| sample.at_ns.abs_diff(ns))
        };
        match (at(from_ns), at(to_ns)) {
            (Some(from), Some(to)) => {
                let pairs = from.moved.iter().zip(&to.moved);
                pairs.map(|(from, to)| to - from).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Returns Jain's index of fairness: 1 if all have the same, `1 / n` if one of `n` has all.
pub fn fairness(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    match squares > 0.0 {
        true => sum * sum / (shares.len() as f64 * squares),
        false => 1.0,
    }
}

/// Returns the value that all but `share` of some values do not exceed.
pub fn quantile(values: &[u64], share: f64) -> u64 {
    let mut values = values.to_vec();
    values.sort_unstable();
    let last = values.len().saturating_sub(1);
    let at = (share * last as f64).ceil() as usize;
    values.get(at).copied().unwrap_or(0)
}

fn ns(us: f64) -> u64 {
    (us * 1000.0) as u64
}

impl Sim {
    /// Connects the flows of the plan.
    pub(crate) fn add_flows(&mut self, rng: &mut Rng) {
        let others = self.honest_nodes.saturating_sub(1).max(1);
        for plan in self.plan.flows.clone() {
            for _ in 0..plan.count {
                let node = 1 % self.honest_nodes + self.flows.len() % others;
                let ends = match plan.op {
                    FlowOp::Write => [node, 0],
                    FlowOp::Read => [0, node],
                };
                let mut common = Common::new(&self.plan, rng, Transport::Rc, plan.bytes.max(8));
                common.law = law(&plan.law);
                common.slots = match plan.op {
                    FlowOp::Write => 1,
                    FlowOp::Read => plan.depth.max(1),
                };
                let first = self.add_connection(rng, ends, &common);
                for qp in &mut self.qps[first..] {
                    qp.app.left = 0;
                    qp.drops_early = plan.drops_early;
                }
                self.qps[first].flow = Some(Flow::new(&plan));
                self.flows.push(first);
                let at = ns(plan.start_us) + rng.below(LATEST_NS);
                self.schedule(at, Event::Flow(first));
                self.quiet_after = self.quiet_after.max(ns(plan.stop_us));
            }
        }
        let measure = &self.plan.measure;
        self.measured_in = ns(measure.from_us)..ns(measure.to_us);
        let every = ns(measure.every_us).max(1);
        for at in self.measured_in.clone().step_by(every as usize) {
            self.schedule(at, Event::Sample);
        }
        if !self.measured_in.is_empty() {
            let end = self.measured_in.end;
            self.schedule(end, Event::Sample);
        }
    }

    /// Posts the current messages of a queue pair's flow.
    pub(crate) fn post_flow(&mut self, qp: usize) {
        let now = self.now;
        let is_alive = self.is_alive(qp);
        let Some(flow) = &mut self.qps[qp].flow else {
            return;
        };
        flow.is_due = false;
        let is_over = now >= flow.stops_at || !is_alive;
        let every_ns = flow.every_ns;
        let most = if every_ns > 0 { 1 } else { usize::MAX };
        for _ in 0..most {
            let slots = &self.oracle.tracks[qp].free_slots;
            match &mut self.qps[qp].flow {
                Some(flow) if !is_over && flow.has_room(now) && !slots.is_empty() => {
                    flow.posted.push_back(now);
                }
                _ => break,
            }
            self.post_one(qp);
        }
        self.pump(qp);
        if every_ns > 0 && !is_over {
            let at = now + 1 + self.qps[qp].app.rng.below(2 * every_ns);
            self.schedule(at, Event::Flow(qp));
        }
    }

    /// Schedules the next message of a flow without pauses.
    pub(crate) fn follow_flow(&mut self, qp: usize) {
        let now = self.now;
        match &mut self.qps[qp].flow {
            Some(flow) if flow.every_ns == 0 && !flow.is_due && flow.has_room(now) => {
                flow.is_due = true;
                self.schedule(now, Event::Flow(qp));
            }
            _ => {}
        }
    }

    /// Takes a sample of the bytes that the flows have moved.
    pub(crate) fn sample(&mut self) {
        let moved = |first: &usize| {
            let [poster, peer] = [&self.qps[*first], &self.qps[*first + 1]];
            match poster.flow.as_ref().map(|flow| flow.op) {
                Some(FlowOp::Read) => poster.queues.moved,
                _ => peer.queues.moved,
            }
        };
        let sample = Sample {
            at_ns: self.now,
            moved: self.flows.iter().map(moved).collect(),
        };
        let measured = self.measured.get_or_insert_default();
        measured.samples.push(sample);
        if let Some(Some(port)) = self.ports.first_mut() {
            if self.now == self.measured_in.start {
                measured.before = port.take_stats(self.now);
            } else if self.now == self.measured_in.end {
                measured.port = port.take_stats(self.now);
            }
        }
    }

    /// Returns the measurements, after the end.
    pub(crate) fn take_measured(&mut self) -> Option<Measured> {
        let mut measured = self.measured.take()?;
        for first in &self.flows {
            let flow = self.qps[*first].flow.as_mut();
            let times = flow.map(|flow| std::mem::take(&mut flow.times_ns));
            measured.times_ns.push(times.unwrap_or_default());
        }
        Some(measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_between_one_and_a_share() {
        assert_eq!(fairness(&[5, 5, 5]), 1.0);
        assert_eq!(fairness(&[9, 0, 0, 0]), 0.25);
        assert_eq!(fairness(&[0, 0]), 1.0);
        assert!((fairness(&[1, 2]) - 0.9).abs() < 1e-9);
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let values: Vec<u64> = (1..=101).rev().collect();
        assert_eq!(quantile(&values, 0.99), 100);
        assert_eq!(quantile(&values, 0.5), 51);
        assert_eq!(quantile(&values, 1.0), 101);
        assert_eq!(quantile(&[], 0.5), 0);
    }
}
