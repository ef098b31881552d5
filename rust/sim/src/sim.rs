// SPDX-License-Identifier: GPL-2.0

//! A run: nodes, queue pairs, links and their events, one after the other.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;

use roce::event::AsyncEvent;
use roce::host::{Fault, Handled, Source, Transmit};
use roce::num::{Bundle, Pkey, Qpn};
use roce::opcode::Transport;
use roce::qp::{self, Half, State};
use roce::recv::RecvState;
use roce::send::{Blocked, SendState};
use roce::time::Instant;
use roce::wire::{Body, Packet, Response, Syndrome};

use crate::adversary::{self, Adversary};
use crate::endpoint::{Halves, Node, Qp, Side};
use crate::flow::Measured;
use crate::host::Host;
use crate::link::{Arriving, Link};
use crate::memory::{Memory, Payload};
use crate::oracle::{End, Oracle, Track};
use crate::packet::{self, Address, Ecn, Incoming};
use crate::plan::Plan;
use crate::port::{Passage, Port};
use crate::rng::Rng;
use crate::sabotage::Sabotage;

/// Events of a run that are more than any needs.
const MAX_EVENTS: u64 = 4_000_000;
/// A packet that waits longer before it is handled counts as lost.
const LATE_NS: u64 = 1_000_000;
/// A pause so long may cost retries.
const LONG_PAUSE_NS: u64 = 1_000_000;

/// Something that happens.
pub(crate) enum Event {
    /// A packet arrives at the port towards a node.
    Pass {
        node: usize,
        from: usize,
        bytes: Vec<u8>,
    },
    /// A packet of a queue pair arrives at a node.
    Arrive {
        node: usize,
        from: usize,
        bytes: Vec<u8>,
    },
    /// A node looks at packets that arrived.
    Work(usize),
    /// The timer of a queue pair fires.
    Timer(usize),
    /// Work is posted.
    Post(usize),
    /// The work of a flow is posted.
    Flow(usize),
    /// Flows are measured.
    Sample,
    /// A receive is posted at a place.
    Receive(usize, usize),
    /// Memory came.
    PageIn(usize, Side),
    /// There may be more to do.
    Poll(usize),
    /// A node stops for so long.
    Pause(usize, u64),
    /// The owner drains a send queue.
    Drain(usize),
    /// The owner resumes a send queue.
    Resume(usize),
    /// The owner moves a queue pair to ERR.
    Fail(usize),
    /// The owner destroys a queue pair.
    Destroy(usize),
    /// The adversary sends something.
    Attack,
    /// The owner of a queue pair that failed under attack connects it anew.
    Revive(usize),
}

struct Scheduled {
    at: u64,
    serial: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.serial) == (other.at, other.serial)
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    /// Compares by time: the earliest is the greatest, as a heap needs it.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.serial).cmp(&(self.at, self.serial))
    }
}

/// The turn in which a packet is handed to a queue pair.
#[derive(Clone, Copy)]
enum Turn {
    /// As it came.
    Came,
    /// Again, as it was kept.
    Kept,
}

/// A run.
pub struct Sim {
    pub(crate) plan: Plan,
    pub(crate) rng: Rng,
    pub(crate) sabotage: Sabotage,
    pub(crate) now: u64,
    pub(crate) nodes: Vec<Node>,
    pub(crate) qps: Vec<Qp>,
    /// The queue pairs that post the messages of flows.
    pub(crate) flows: Vec<usize>,
    /// When these are measured.
    pub(crate) measured_in: Range<u64>,
    pub(crate) measured: Option<Measured>,
    /// From each node to each: `from * nodes + to`.
    pub(crate) links: Vec<Link>,
    /// The port towards each node, where there is one.
    pub(crate) ports: Vec<Option<Port>>,
    pub(crate) oracle: Oracle,
    /// Nodes that are not the adversary's.
    pub(crate) honest_nodes: usize,
    /// Queue pairs that are connected to the adversary.
    pub(crate) attacked: u64,
    pub(crate) adversary: Adversary,
    /// The longest message.
    pub(crate) max_bytes: usize,
    pub(crate) next_key: u32,
    pub(crate) next_wr: u64,
    events: BinaryHeap<Scheduled>,
    serial: u64,
    handled: u64,
    /// After that nothing is planned to happen.
    pub(crate) quiet_after: u64,
    /// Nothing of it is planned, but happened, in nanoseconds: memory that was waited for, RNR.
    waited_ns: u64,
    /// When the last send completed.
    done_at: u64,
    /// Packets that were sent.
    pub(crate) sent: u64,
    /// Packets that must be sent.
    pub(crate) needed: u64,
    /// The latest events, if a trace is wanted.
    pub trace: Option<VecDeque<String>>,
}

/// The outcome of one or several runs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// The first fault that was found.
    pub failure: Option<String>,
    /// When it ended, in nanoseconds.
    pub at_ns: u64,
    /// When the last send completed.
    pub done_ns: u64,
    /// Packets that were sent.
    pub sent: u64,
    /// The counts of events.
    pub events: std::collections::BTreeMap<&'static str, u64>,
    /// The measurements of flows.
    pub measured: Option<Measured>,
}

impl Sim {
    /// Creates a run that has nothing yet.
    pub(crate) fn empty(plan: Plan, rng: Rng, sabotage: Sabotage, in_order: bool) -> Self {
        Self {
            plan,
            rng,
            sabotage,
            now: 0,
            nodes: Vec::new(),
            qps: Vec::new(),
            flows: Vec::new(),
            measured_in: 0..0,
            measured: None,
            links: Vec::new(),
            ports: Vec::new(),
            oracle: Oracle::new(in_order),
            honest_nodes: 0,
            attacked: 0,
            adversary: Adversary::default(),
            max_bytes: 0,
            next_key: 0x0100_0000,
            next_wr: 0,
            events: BinaryHeap::new(),
            serial: 0,
            handled: 0,
            quiet_after: 0,
            waited_ns: 0,
            done_at: 0,
            sent: 0,
            needed: 0,
            trace: None,
        }
    }

    /// Runs it to its end.
    pub fn run(&mut self) -> Outcome {
        while self.oracle.failure().is_none() {
            let Some(next) = self.events.pop() else {
                self.finish();
                break;
            };
            self.handled += 1;
            if self.handled > MAX_EVENTS {
                self.oracle.fail("it does not end".into());
                break;
            }
            self.now = self.now.max(next.at);
            self.dispatch(next.event);
        }
        Outcome {
            failure: self.oracle.failure().map(str::to_owned),
            at_ns: self.now,
            done_ns: self.done_at,
            sent: self.sent,
            events: self.oracle.events.clone(),
            measured: self.take_measured(),
        }
    }

    pub(crate) fn schedule(&mut self, at: u64, event: Event) {
        self.serial += 1;
        self.events.push(Scheduled {
            at,
            serial: self.serial,
            event,
        });
    }

    /// Schedules an event that disturbs or runs by itself, so that the run does not end before it.
    pub(crate) fn plan_for(&mut self, at: u64, event: Event) {
        self.quiet_after = self.quiet_after.max(at);
        self.schedule(at, event);
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(trace) = &mut self.trace {
            if trace.len() == 100_000 {
                trace.pop_front();
            }
            trace.push_back(format!("{:>12.3} us  {}", now as f64 / 1e3, what()));
        }
    }

    /// Returns the node of an event that waits while the node is paused.
    fn pausable(&self, event: &Event) -> Option<usize> {
        match event {
            Event::Pass { .. }
            | Event::Arrive { .. }
            | Event::Sample
            | Event::Pause(..)
            | Event::Attack => None,
            Event::Work(node) => Some(*node),
            Event::Timer(qp)
            | Event::Post(qp)
            | Event::Flow(qp)
            | Event::Receive(qp, _)
            | Event::PageIn(qp, _)
            | Event::Poll(qp)
            | Event::Drain(qp)
            | Event::Resume(qp)
            | Event::Fail(qp)
            | Event::Revive(qp)
            | Event::Destroy(qp) => Some(self.qps[*qp].node),
        }
    }

    fn dispatch(&mut self, event: Event) {
        if let Some(node) = self.pausable(&event) {
            let until = self.nodes[node].paused_until;
            if until > self.now {
                return self.schedule(until, event);
            }
        }
        match event {
            Event::Pass { node, from, bytes } => self.pass(node, from, bytes),
            Event::Arrive { node, from, bytes } => self.arrive(node, from, bytes),
            Event::Work(node) => self.work(node),
            Event::Timer(qp) => self.timer(qp),
            Event::Post(qp) => self.post(qp),
            Event::Flow(qp) => self.post_flow(qp),
            Event::Sample => self.sample(),
            Event::Receive(qp, at) => {
                if self.qps[qp].shared || self.is_alive(qp) {
                    self.post_receive(qp, at);
                } else if self.will_revive(qp) {
                    self.schedule(self.now + 50_000, Event::Receive(qp, at));
                }
            }
            Event::PageIn(qp, side) => self.page_in(qp, side),
            Event::Poll(qp) => self.pump(qp),
            Event::Pause(node, for_ns) => self.pause(node, for_ns),
            Event::Drain(qp) => self.drain(qp),
            Event::Resume(qp) => self.resume(qp),
            Event::Fail(qp) => {
                if self.is_alive(qp) {
                    self.note(|| format!("qp {qp}: the owner moves it to ERR"));
                    self.enter_error(qp);
                }
            }
            Event::Destroy(qp) => self.destroy(qp),
            Event::Attack => self.attack(),
            Event::Revive(qp) => self.revive(qp),
        }
    }

    pub(crate) fn is_alive(&self, qp: usize) -> bool {
        self.qps[qp].exists && self.qps[qp].state != State::Err
    }

    /// Calls into a queue pair, with its world around it.
    pub(crate) fn with<R>(
        &mut self,
        qp: usize,
        packet: &[u8],
        source: Address,
        call: impl FnOnce(&mut Halves, &mut Host<'_>) -> R,
    ) -> R {
        let Self {
            qps, nodes, oracle, ..
        } = self;
        let qp = &mut qps[qp];
        let node = &mut nodes[qp.node];
        let mut host = Host {
            qp: qp.id,
            memory: &mut node.memory,
            queues: &mut qp.queues,
            shared: qp.shared.then_some(&mut node.shared),
            oracle,
            packet,
            source,
        };
        let before = host.queues.outstanding();
        let result = call(&mut qp.halves, &mut host);
        let completed = before - qp.queues.outstanding();
        if completed > 0 {
            self.done_at = self.now;
            if let Some(flow) = &mut qp.flow {
                flow.completed(completed, self.now, &self.measured_in);
            }
        }
        result
    }

    // ---- packets -----------------------------------------------------------

    fn arrive(&mut self, node: usize, from: usize, bytes: Vec<u8>) {
        if node >= self.honest_nodes {
            return self.adversary.capture(bytes);
        }
        let there = &mut self.nodes[node];
        if there.arrived.len() >= there.queue {
            return self.harmed(from);
        }
        there.arrived.push_back((self.now, from, bytes));
        if !there.is_scheduled {
            there.is_scheduled = true;
            let at = there.busy_until.max(self.now);
            self.schedule(at, Event::Work(node));
        }
    }

    /// Notes that a packet of `from` was harmed. The adversary's packets do not count.
    fn harmed(&mut self, from: usize) {
        if from < self.qps.len() {
            self.oracle.harmed(from);
        }
    }

    /// Handles a batch of packets on a node, and then sends the results.
    fn work(&mut self, node: usize) {
        let mut touched = Vec::new();
        for _ in 0..self.nodes[node].batch {
            let Some((at, from, bytes)) = self.nodes[node].arrived.pop_front() else {
                break;
            };
            if self.now - at > LATE_NS {
                self.harmed(from);
            }
            self.nodes[node].busy_until = self.nodes[node].busy_until.max(self.now);
            self.nodes[node].busy_until += self.nodes[node].service_ns;
            if let Some(qp) = self.receive(node, bytes) {
                if !touched.contains(&qp) {
                    touched.push(qp);
                }
            }
        }
        for qp in touched {
            self.pump(qp);
        }
        let there = &mut self.nodes[node];
        there.is_scheduled = !there.arrived.is_empty();
        if there.is_scheduled {
            let at = there.busy_until;
            self.schedule(at, Event::Work(node));
        }
    }

    /// Returns the queue pair of a node with this number.
    fn find_qp(&self, node: usize, qpn: Qpn) -> Option<&Qp> {
        self.qps.iter().find(|qp| qp.node == node && qp.qpn == qpn)
    }

    /// Takes a packet off the network; returns the queue pair that took it.
    fn receive(&mut self, node: usize, bytes: Vec<u8>) -> Option<usize> {
        let address = self.nodes[node].address;
        if let Some((source, dest)) = packet::parse_notification(&bytes, address) {
            return self.receive_notification(node, source, dest);
        }
        let incoming = packet::parse(&bytes, address)?;
        let qp = self.find_qp(node, incoming.packet.bth.dest_qp)?;
        let id = qp.id;
        let is_peer = qp.remote.is_none_or(|remote| remote == incoming.source)
            || self.sabotage == Sabotage::AnySource;
        let half = qp::check(qp.transport, qp.state, Pkey::DEFAULT, &incoming.packet).ok()?;
        if !qp.exists || !is_peer {
            return None;
        }
        let side = match half {
            Half::Requester => Side::Send,
            Half::Responder => Side::Recv,
        };
        self.note(|| format!("qp {id} gets {}", describe(&incoming.packet)));
        if is_rnr(&incoming.packet) && !self.oracle.tracks[id].attacked {
            self.oracle.told_to_wait(id);
        }
        if packet::ecn(&bytes) == Ecn::Ce && self.qps[id].transport == Transport::Rc {
            self.marked(id, side, incoming.packet.is_read_data());
        }
        let waiting = &mut self.qps[id].waiting[side as usize].packets;
        if !waiting.is_empty() {
            waiting.push_back(bytes);
            return None;
        }
        let handled = self.handle(id, side, &incoming, Turn::Came);
        self.settle(id, side, handled, bytes);
        self.follow(id);
        Some(id)
    }

    /// Notes that a packet for a queue pair was marked on its way. The peer is told. If it has
    /// READ data, the own requester reacts, too.
    fn marked(&mut self, qp: usize, side: Side, is_read_data: bool) {
        self.oracle.marked(qp);
        let now = Instant::from_ns(self.now);
        if side == Side::Send && is_read_data {
            self.congested(qp);
        }
        let peer = self.qps[qp].peer.map(|peer| self.qps[peer].qpn);
        let dest = peer.unwrap_or(Qpn::new(adversary::QPN));
        if self.qps[qp].notifier.marked(now) || self.sabotage == Sabotage::EveryMark {
            let (source, to) = self.ends(qp);
            self.oracle.notified(qp, self.now);
            self.note(|| format!("qp {qp} tells its peer of congestion"));
            // Its loss has no other effect.
            let bytes = packet::notification(source, to, dest);
            self.transmit_from(self.qps[qp].node, usize::MAX, bytes, to);
        }
    }

    /// Tells a queue pair of congestion. Returns the queue pair if it listens.
    fn receive_notification(&mut self, node: usize, source: Address, dest: Qpn) -> Option<usize> {
        let qp = self.find_qp(node, dest)?;
        let id = qp.id;
        let is_taken = qp.exists
            && qp.transport == Transport::Rc
            && qp.state != State::Err
            && qp.remote == Some(source);
        self.note(|| format!("qp {id} is told of congestion, and listens: {is_taken}"));
        if !is_taken {
            self.oracle.ignored_notification();
            return None;
        }
        self.congested(id);
        Some(id)
    }

    /// Tells a requester that the path to its peer is congested.
    fn congested(&mut self, qp: usize) {
        self.oracle.congested();
        if let Halves::Connected { requester, .. } = &mut self.qps[qp].halves {
            requester.congested(Instant::from_ns(self.now));
        }
    }

    /// Handles the outcome of a packet, and then early packets that it may have unblocked.
    fn settle(&mut self, qp: usize, side: Side, handled: Handled, bytes: Vec<u8>) {
        match handled {
            Handled::Done => self.handle_early(qp, side),
            Handled::PutOff => {
                self.qps[qp].waiting[side as usize]
                    .packets
                    .push_front(bytes);
                self.wait_for_memory(qp, side);
            }
            Handled::Early if self.qps[qp].has_no_room(side) => {
                if let (Halves::Connected { requester, .. }, Side::Send) =
                    (&mut self.qps[qp].halves, side)
                {
                    requester.not_kept();
                }
            }
            Handled::Early => {
                let address = self.nodes[self.qps[qp].node].address;
                if let Some(incoming) = packet::parse(&bytes, address) {
                    let psn = incoming.packet.bth.psn;
                    self.qps[qp].keep_early(side, psn, bytes);
                }
            }
        }
    }

    /// Handles early packets whose turn may have come.
    fn handle_early(&mut self, qp: usize, side: Side) {
        let address = self.nodes[self.qps[qp].node].address;
        while let Some((psn, bytes)) = self.qps[qp].early[side as usize].pop_front() {
            let Some(incoming) = packet::parse(&bytes, address) else {
                continue;
            };
            match self.handle(qp, side, &incoming, Turn::Kept) {
                Handled::Done => {}
                Handled::Early => {
                    self.qps[qp].early[side as usize].push_front((psn, bytes));
                    return;
                }
                Handled::PutOff => return self.settle(qp, side, Handled::PutOff, bytes),
            }
        }
    }

    fn handle(&mut self, qp: usize, side: Side, incoming: &Incoming<'_>, turn: Turn) -> Handled {
        let (mut packet, now) = (incoming.packet, Instant::from_ns(self.now));
        if self.qps[qp].bundle != Bundle::ONE {
            // Nothing in a packet tells; both ends have one MTU.
            packet.psns = self.qps[qp].mtu.packets(packet.payload_len);
        }
        self.meddle_with_request(qp, side, &packet);
        self.with(
            qp,
            incoming.payload,
            incoming.source,
            |halves, host| match (halves, side) {
                (Halves::Connected { requester, .. }, Side::Send) => match turn {
                    Turn::Came => requester.handle_response(now, &packet, host),
                    Turn::Kept => requester.handle_kept(now, &packet, host),
                },
                (Halves::Connected { responder, .. }, Side::Recv) => match turn {
                    Turn::Came => responder.handle_request(&packet, host),
                    Turn::Kept => responder.handle_kept(&packet, host),
                },
                (Halves::Datagram { receiver, .. }, _) => receiver.handle_datagram(&packet, host),
            },
        )
    }

    fn wait_for_memory(&mut self, qp: usize, side: Side) {
        self.qps[qp].waiting[side as usize].is_due = true;
        let node = self.qps[qp].node;
        let takes = self.rng.below(self.nodes[node].page_in_ns + 1);
        self.waited_ns += takes;
        self.schedule(self.now + takes, Event::PageIn(qp, side));
    }

    /// Brings memory in, and continues the work that waited for it.
    fn page_in(&mut self, qp: usize, side: Side) {
        if !self.is_alive(qp) {
            return;
        }
        self.qps[qp].waiting[side as usize].stops_sending = false;
        self.qps[qp].waiting[side as usize].is_due = false;
        let address = self.nodes[self.qps[qp].node].address;
        while let Some(bytes) = self.qps[qp].waiting[side as usize].packets.pop_front() {
            let Some(incoming) = packet::parse(&bytes, address) else {
                continue;
            };
            let handled = self.handle(qp, side, &incoming, Turn::Came);
            self.settle(qp, side, handled, bytes);
            if self.qps[qp].waiting[side as usize].is_due {
                break;
            }
            self.follow(qp);
            if !self.is_alive(qp) {
                return;
            }
        }
        self.pump(qp);
    }

    /// Sends all packets of a queue pair, and handles its new state.
    pub(crate) fn pump(&mut self, qp: usize) {
        if !self.qps[qp].exists {
            return;
        }
        if self.qps[qp].state != State::Err {
            self.send_replies(qp);
            self.send_requests(qp);
        }
        self.follow(qp);
    }

    fn send_replies(&mut self, qp: usize) {
        // Each READ that it keeps may have all of the memory there is, and one reply may be owed
        // behind them.
        let memory = self.oracle.tracks[qp].model.len() as u64;
        let packets = memory / u64::from(self.qps[qp].mtu.bytes()) + 1;
        let most = self.qps[qp].replays as u64 * packets + 1;
        let mut sent = 0;
        while !self.qps[qp].waiting[Side::Recv as usize].stops_sending && self.send_reply(qp) {
            sent += 1;
        }
        if sent > most {
            let what = format!("qp {qp} sent {sent} replies where {most} are the most");
            self.oracle.fail(what);
        }
    }

    /// Sends one reply; false if there is none.
    fn send_reply(&mut self, qp: usize) -> bool {
        let ends = self.ends(qp);
        let made = self.with(qp, &[], [0; 4], |halves, host| {
            let Halves::Connected { responder, .. } = halves else {
                return None;
            };
            let transmit = responder.poll_transmit(host)?;
            let made = make(&transmit, ends, |grant, at, len| {
                host.memory.fetch(grant, at, len).map(<[u8]>::to_vec)
            });
            match made {
                Err(Fault::Absent) => responder.unsend(),
                Err(Fault::Gone) => responder.payload_fault(host),
                Ok(_) => {}
            }
            Some(made)
        });
        match made {
            None => return false,
            Some(Ok(bytes)) => self.transmit(qp, bytes, ends.1),
            Some(Err(Fault::Gone)) => {}
            Some(Err(Fault::Absent)) => {
                self.qps[qp].waiting[Side::Recv as usize].stops_sending = true;
                self.wait_for_memory(qp, Side::Recv);
            }
        }
        true
    }

    fn send_requests(&mut self, qp: usize) {
        let running = matches!(self.qps[qp].state, State::Rts | State::Sqd | State::Sqe);
        while running && !self.qps[qp].waiting[Side::Send as usize].stops_sending {
            if !self.send_request(qp) {
                break;
            }
        }
    }

    /// Sends one request; false if there is none to send now.
    fn send_request(&mut self, qp: usize) -> bool {
        let now = Instant::from_ns(self.now);
        let (mut ends, mtu) = (self.ends(qp), self.qps[qp].mtu);
        let (made, ends) = self.with(qp, &[], [0; 4], |halves, host| {
            let fetch = |memory: &mut Memory, payload: &Payload, at: u32, len: u32| {
                assert!(at + len <= payload.len, "outside of the request's memory");
                if payload.gone {
                    return Err(Fault::Gone);
                }
                if memory.is_absent() {
                    return Err(Fault::Absent);
                }
                let start = payload.at + at as usize;
                Ok(memory.get(start..start + len as usize).to_vec())
            };
            let made = match halves {
                Halves::Connected { requester, .. } => {
                    let Some(transmit) = requester.poll_transmit(now, host) else {
                        return (None, ends);
                    };
                    let psn = transmit.psn;
                    let made = make(&transmit, ends, |payload, at, len| {
                        fetch(host.memory, payload, at, len)
                    });
                    match made {
                        Err(Fault::Absent) => requester.unsend(psn),
                        Err(Fault::Gone) => requester.payload_fault(psn, host),
                        Ok(_) => {}
                    }
                    made
                }
                Halves::Datagram { sender, .. } => {
                    let Some(datagram) = sender.poll_transmit(mtu, host) else {
                        return (None, ends);
                    };
                    ends.1 = packet::address(*datagram.address);
                    let made = make(&datagram.transmit, ends, |payload, at, len| {
                        fetch(host.memory, payload, at, len)
                    });
                    match made {
                        Err(Fault::Absent) => sender.unsend(),
                        Err(Fault::Gone) => sender.payload_fault(host),
                        Ok(_) => {}
                    }
                    made
                }
            };
            (Some(made), ends)
        });
        match made {
            None => {
                let busy = match &self.qps[qp].halves {
                    Halves::Connected { requester, .. } => {
                        requester.blocked() == Some(Blocked::Busy)
                    }
                    Halves::Datagram { .. } => false,
                };
                if busy {
                    self.schedule(self.now + 1000, Event::Poll(qp));
                }
                return false;
            }
            Some(Ok(bytes)) => {
                if self.qps[qp].drained {
                    let what = format!("qp {qp} sends though it is drained");
                    self.oracle.fail(what);
                }
                self.transmit(qp, bytes, ends.1);
            }
            Some(Err(Fault::Gone)) => {}
            Some(Err(Fault::Absent)) => {
                self.qps[qp].waiting[Side::Send as usize].stops_sending = true;
                self.wait_for_memory(qp, Side::Send);
            }
        }
        true
    }

    /// Returns the addresses of a queue pair and of its peer.
    fn ends(&self, qp: usize) -> (Address, Address) {
        let here = self.nodes[self.qps[qp].node].address;
        let there = self.qps[qp].remote.unwrap_or(here);
        (here, there)
    }

    /// Puts a packet on the network.
    pub(crate) fn transmit(&mut self, from: usize, mut bytes: Vec<u8>, to: Address) {
        let node = self.qps[from].node;
        if self.qps[from].is_ect() {
            packet::set_ecn(&mut bytes, Ecn::Ect0);
        }
        if let (Some(_), Some(sent)) = (&self.trace, packet::parse(&bytes, to)) {
            let what = describe(&sent.packet);
            self.note(|| format!("qp {from} sends {what}"));
        }
        let copies = self.sabotage.copies();
        self.sent += copies * u64::from(!self.oracle.tracks[from].attacked);
        for _ in 1..copies {
            self.transmit_from(node, from, bytes.clone(), to);
        }
        self.transmit_from(node, from, bytes, to);
    }

    pub(crate) fn transmit_from(&mut self, node: usize, from: usize, bytes: Vec<u8>, to: Address) {
        let to = usize::from(to[3] - 1);
        let nodes = self.nodes.len();
        let fate = self.links[node * nodes + to].send(self.now, bytes);
        if fate.harmed {
            self.note(|| "  which the network harms".into());
            self.harmed(from);
        }
        let meets_others = to != node && self.ports[to].is_some();
        for Arriving { at, bytes } in fate.arriving {
            let node = to;
            let event = match meets_others {
                true => Event::Pass { node, from, bytes },
                false => Event::Arrive { node, from, bytes },
            };
            self.schedule(at, event);
        }
    }

    /// Passes a packet through the port towards a node.
    fn pass(&mut self, node: usize, from: usize, mut bytes: Vec<u8>) {
        let Some(port) = &mut self.ports[node] else {
            return;
        };
        match port.pass(self.now, &mut bytes) {
            Passage::Leaves(at) => self.schedule(at, Event::Arrive { node, from, bytes }),
            Passage::Dropped => {
                self.note(|| format!("the port of node {node} drops a packet of qp {from}"));
                self.harmed(from);
            }
        }
    }

    // ---- queue pairs -------------------------------------------------------

    /// Does the driver's part for a queue pair after each call.
    fn follow(&mut self, qp: usize) {
        for event in std::mem::take(&mut self.qps[qp].queues.raised) {
            if event == AsyncEvent::SendQueueDrained {
                self.qps[qp].drained = true;
                self.oracle.drained(qp);
                let at = self.now + self.rng.below(50_000);
                self.plan_for(at, Event::Resume(qp));
            }
        }
        self.replace_receives();
        self.follow_flow(qp);
        let held = &self.qps[qp].queues;
        if held.grants.count() > self.qps[qp].replays + 1 || held.receives_in_use() > 1 {
            let what = format!("qp {qp} holds more than it may");
            self.oracle.fail(what);
        }
        if self.qps[qp].state != State::Err {
            self.follow_states(qp);
        }
        self.arm(qp);
    }

    fn follow_states(&mut self, qp: usize) {
        let (send, recv) = (self.qps[qp].send_state(), self.qps[qp].recv_state());
        let refused = matches!(recv, RecvState::Failed | RecvState::Error);
        if refused {
            self.oracle.refused(qp);
        }
        if refused || send == SendState::Error {
            self.note(|| format!("qp {qp} fails"));
            return self.enter_error(qp);
        }
        let stopped = send == SendState::Stopped;
        if stopped && self.qps[qp].state != State::Sqe {
            self.qps[qp].state = State::Sqe;
            self.with(qp, &[], [0; 4], Halves::flush_posted);
            let at = self.now + self.rng.below(50_000);
            self.plan_for(at, Event::Resume(qp));
        }
        self.oracle.audit(qp, stopped);
    }

    /// Moves a queue pair to ERR, after its owed replies were sent.
    fn enter_error(&mut self, qp: usize) {
        self.send_replies(qp);
        self.qps[qp].state = State::Err;
        self.qps[qp].drained = false;
        self.oracle.ended(qp, End::Error);
        self.qps[qp].waiting = Default::default();
        self.qps[qp].early = Default::default();
        self.with(qp, &[], [0; 4], Halves::enter_error);
        self.follow(qp);
        if self.will_revive(qp) {
            let at = self.now + self.rng.below(20_000);
            self.plan_for(at, Event::Revive(qp));
        }
    }

    fn destroy(&mut self, qp: usize) {
        if !self.qps[qp].exists {
            return;
        }
        self.note(|| format!("qp {qp}: the owner destroys it"));
        self.send_replies(qp);
        self.oracle.ended(qp, End::Destroyed);
        self.with(qp, &[], [0; 4], Halves::reset);
        let there = &mut self.qps[qp];
        there.exists = false;
        there.state = State::Reset;
        there.waiting = Default::default();
        there.early = Default::default();
        there.queues.sends.clear();
        there.queues.datagrams.clear();
        there.queues.receives.clear();
        there.app.left = 0;
        self.replace_receives();
    }

    fn drain(&mut self, qp: usize) {
        if self.qps[qp].state == State::Rts {
            self.note(|| format!("qp {qp}: the owner drains it"));
            self.qps[qp].state = State::Sqd;
            self.with(qp, &[], [0; 4], Halves::drain);
            self.pump(qp);
        }
    }

    fn resume(&mut self, qp: usize) {
        let state = self.qps[qp].state;
        if !matches!(state, State::Sqd | State::Sqe) {
            return;
        }
        self.qps[qp].drained = false;
        self.qps[qp].state = State::Rts;
        self.qps[qp].halves.resume();
        if state == State::Sqe {
            self.oracle.resumed(qp);
        }
        self.pump(qp);
    }

    fn timer(&mut self, qp: usize) {
        if self.qps[qp].armed.is_some_and(|at| at <= self.now) {
            self.qps[qp].armed = None;
        }
        if !self.is_alive(qp) || self.sabotage == Sabotage::NoTimer {
            return;
        }
        let now = Instant::from_ns(self.now);
        self.with(qp, &[], [0; 4], |halves, host| {
            if let Halves::Connected { requester, .. } = halves {
                requester.handle_timeout(now, host);
            }
        });
        self.pump(qp);
    }

    fn arm(&mut self, qp: usize) {
        let there = &mut self.qps[qp];
        let Some(at) = there.timeout() else { return };
        if there.armed.is_none_or(|armed| at < armed) {
            there.armed = Some(at);
            let at = at.max(self.now);
            self.schedule(at, Event::Timer(qp));
        }
    }

    /// Sends or flushes posted work, and schedules more.
    pub(crate) fn work_posted(&mut self, qp: usize) {
        if !self.qps[qp].exists {
            return;
        }
        if self.qps[qp].state == State::Err || self.qps[qp].state == State::Sqe {
            self.with(qp, &[], [0; 4], Halves::flush_posted);
        }
        self.pump(qp);
        let app = &mut self.qps[qp].app;
        if app.left > 0 {
            let at = self.now + 1 + app.rng.below(app.think_ns);
            self.plan_for(at, Event::Post(qp));
        }
    }

    /// Schedules the replacement of completed receives.
    fn replace_receives(&mut self) {
        for (qp, at) in std::mem::take(&mut self.oracle.freed) {
            let late = self.plan.work.receive_delay_us.us(&mut self.rng);
            self.waited_ns += late;
            self.schedule(self.now + late, Event::Receive(qp, at));
        }
    }

    fn pause(&mut self, node: usize, for_ns: u64) {
        self.note(|| format!("node {node} pauses for {for_ns} ns"));
        let until = self.now + for_ns;
        self.nodes[node].paused_until = self.nodes[node].paused_until.max(until);
        self.quiet_after = self.quiet_after.max(until);
        if for_ns < LONG_PAUSE_NS {
            return;
        }
        let on_node = self.qps.iter().filter(|qp| qp.node == node);
        for qp in on_node {
            for _ in 0..8 {
                self.oracle.harmed(qp.id);
            }
        }
    }

    // ---- the end -----------------------------------------------------------

    fn finish(&mut self) {
        for qp in &self.qps {
            let (sends, grants) = (qp.queues.outstanding(), qp.queues.grants.count());
            if qp.exists && sends > 0 {
                let report = match &qp.halves {
                    Halves::Connected { requester, .. } => requester.report(),
                    Halves::Datagram { .. } => None,
                };
                let what = format!(
                    "qp {} in {:?} has {sends} sends left that never complete: {report:?}",
                    qp.id, qp.state
                );
                self.oracle.fail(what);
            }
            let is_over = qp.state == State::Err || !qp.exists;
            let in_use = qp.queues.receives_in_use() > 0;
            if is_over && (grants > 0 || in_use) {
                let what = format!("qp {} is over, but holds {grants} grants", qp.id);
                self.oracle.fail(what);
            }
        }
        let mut memories: Vec<&mut Memory> =
            self.nodes.iter_mut().map(|node| &mut node.memory).collect();
        self.oracle.finish(&mut memories);
        self.check_bounds();
    }

    /// Checks that the run took no longer, and sent no more, than its events explain.
    fn check_bounds(&mut self) {
        let tracks = &self.oracle.tracks;
        let times = |what: &str| self.oracle.events.get(what).copied().unwrap_or(0);
        let (harmed, rnr) = (times("harmed"), times("RNR NAKs"));
        // A requester that gives up has tried eight times.
        let ended = |track: &&Track| track.end != End::Alive && !track.attacked;
        let ended = tracks.iter().filter(ended);
        let excuses = harmed + rnr + 8 * ended.count() as u64;
        let most = self.plan.storm * self.needed as f64 + self.plan.resends * excuses as f64 + 50.0;
        if self.sent as f64 > most {
            let what = format!(
                "a storm: {} packets for {} needed, {harmed} harmed and {rnr} RNR NAKs",
                self.sent, self.needed
            );
            return self.oracle.fail(what);
        }
        let patience = self.qps.iter().zip(tracks).map(|(qp, track)| {
            // To give up takes as long as all retries.
            let give_up = 8 * u64::from(track.end == End::Error);
            (track.harm + give_up + 1) * qp.patience_ns
        });
        let patience: u64 = patience.sum();
        let rnr_ns = self.qps.iter().map(|qp| qp.rnr_ns).max().unwrap_or(0);
        let ports = self.ports.iter().flatten();
        let on_the_way = self.links.iter().map(Link::most_ns).max().unwrap_or(0)
            + ports.map(Port::longest_ns).max().unwrap_or(0);
        let most = self.quiet_after
            + patience
            + self.waited_ns
            + rnr * rnr_ns
            // The slowest links and nodes take that long for a packet.
            + self.sent * (on_the_way + 50_000);
        if self.now > most {
            let what = format!("it took {} ns where {most} are the most", self.now);
            self.oracle.fail(what);
        }
    }
}

/// Makes a packet of a transmission.
fn make<P>(
    transmit: &Transmit<'_, P>,
    (source, dest): (Address, Address),
    fetch: impl FnOnce(&P, u32, u32) -> Result<Vec<u8>, Fault>,
) -> Result<Vec<u8>, Fault> {
    let mut bytes = packet::start(source, dest, transmit.header.as_bytes());
    let len = match &transmit.source {
        Source::Empty => 0,
        Source::Bytes { memory, at, len } => {
            assert!(*len > 0, "an empty copy");
            bytes.extend_from_slice(&fetch(memory, *at, *len)?);
            *len
        }
    };
    assert_eq!(len.wrapping_neg() & 3, u32::from(transmit.pad), "pad");
    packet::finish(&mut bytes, transmit.pad);
    Ok(bytes)
}

fn is_rnr(packet: &Packet) -> bool {
    match &packet.body {
        Body::Response(Response::Acknowledge(aeth)) => {
            matches!(aeth.syndrome, Syndrome::RnrNak(_))
        }
        _ => false,
    }
}

fn describe(packet: &Packet) -> String {
    let what = match &packet.body {
        Body::Response(Response::Acknowledge(aeth)) => format!("{:?}", aeth.syndrome),
        body => format!("{:?}", body.operation()),
    };
    let transport: Transport = packet.bth.transport;
    format!(
        "{transport:?} {what} psn {:#08x}, {} bytes, for {:#x}",
        packet.bth.psn.get(),
        packet.payload_len,
        packet.bth.dest_qp.get()
    )
}
