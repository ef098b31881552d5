// SPDX-License-Identifier: GPL-2.0

//! From a plan and a seed to a run that is about to begin.

use std::collections::VecDeque;

use roce::completion::Status;
use roce::congestion::{Law, Notifier};
use roce::limits::{GRH_BYTES, MAX_WINDOW_REQUESTS};
use roce::num::{Bundle, Mtu, Pkey, Psn, Qpn};
use roce::opcode::{Connection, Transport};
use roce::qp::State;
use roce::recv::{RecvConfig, RemoteAccess, Replay, Responder};
use roce::send::{Requester, RetryCount, SendConfig, Slot};
use roce::time::{AckTimeout, RnrTimer};
use roce::ud::{DatagramConfig, Receiver, Sender};
use roce::wr::Placement;

use crate::endpoint::{App, Halves, Node, Qp};
use crate::host::Queues;
use crate::link::Link;
use crate::memory::{Memory, Region, Rights};
use crate::oracle::Track;
use crate::packet;
use crate::plan::{LinkPlan, Plan, Range};
use crate::port::Port;
use crate::rng::Rng;
use crate::sabotage::Sabotage;
use crate::sim::{Event, Sim};
use crate::work::{COUNTERS, COUNTERS_IOVA, QKEY, WORDS};

/// The approximate address of the memory that a peer may write.
const IOVA: u64 = 0x10_0000_0000;

/// Memory for answers, of each queue pair: so many are outstanding at most.
const SLOTS: usize = 12;

/// The attributes that both ends of a connection share.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) transport: Transport,
    mtu: Mtu,
    bundle: Bundle,
    timeout: AckTimeout,
    retry_cnt: RetryCount,
    rnr_retry: RetryCount,
    min_rnr_timer: RnrTimer,
    rd_atomic: u8,
    max_bytes: usize,
    pub(crate) law: Law,
    /// Places for answers.
    pub(crate) slots: usize,
}

impl Sim {
    /// Creates the run of `plan` and `seed`.
    pub fn new(plan: &Plan, seed: u64, sabotage: Sabotage) -> Self {
        let mut rng = Rng::new(seed);
        let in_order = keeps_order(&plan.link);
        let mut sim = Self::empty(plan.clone(), rng.fork(), sabotage, in_order);
        sim.oracle.may_give_up = plan.may_give_up;
        let span_ns = plan.span_us.us(&mut rng).max(1);
        sim.max_bytes = plan.work.max_bytes.count(&mut rng).max(8) as usize;
        sim.add_nodes(&mut rng, span_ns);
        sim.add_connections(&mut rng, Transport::Rc, plan.rc);
        sim.add_connections(&mut rng, Transport::Uc, plan.uc);
        sim.add_datagrams(&mut rng);
        sim.add_flows(&mut rng);
        sim.add_adversary(&mut rng, span_ns);
        sim.add_receives(&mut rng);
        let memories = sim.nodes.iter().map(|node| &node.memory);
        sim.oracle.begin(memories);
        for node in 0..sim.nodes.len() {
            let at = sim.nodes[node].counters;
            for number in 0..COUNTERS {
                sim.oracle.add_counter((node, number), at + 8 * number);
            }
        }
        sim.plan_work(&mut rng, span_ns);
        sim.plan_trouble(&mut rng, span_ns);
        sim.apply_sabotage();
        sim
    }

    fn add_nodes(&mut self, rng: &mut Rng, span_ns: u64) {
        let plan = self.plan.node.clone();
        self.honest_nodes = self.plan.nodes.count(rng).max(1) as usize;
        self.attacked = self.plan.attacked.count(rng);
        // The last one is the adversary's.
        let count = self.honest_nodes + usize::from(self.attacked > 0);
        for number in 0..count {
            let mut memory = Memory::new(plan.absence.chance(rng), rng.fork());
            let counters = memory.area(8 * COUNTERS);
            self.nodes.push(Node {
                address: packet::address(number),
                memory,
                shared: VecDeque::new(),
                arrived: VecDeque::new(),
                queue: plan.queue.count(rng) as usize,
                batch: plan.batch.count(rng).max(1) as usize,
                service_ns: plan.service_ns.count(rng),
                page_in_ns: plan.page_in_us.us(rng),
                paused_until: 0,
                busy_until: 0,
                is_scheduled: false,
                counters,
            });
        }
        for _ in 0..count * count {
            let link = Link::new(&self.plan.link, rng.fork(), span_ns);
            self.quiet_after = self.quiet_after.max(link.whole_after());
            self.links.push(link);
        }
        let ports = self.plan.port.towards.count(rng) as usize;
        for node in 0..count {
            let port = (node < ports).then(|| Port::new(&self.plan.port, rng.fork()));
            self.ports.push(port);
        }
    }

    fn add_connections(&mut self, rng: &mut Rng, transport: Transport, count: Range) {
        for _ in 0..count.count(rng) {
            let a = rng.index(self.honest_nodes);
            // Seldom both ends are on one node.
            let other = 1 + rng.index(self.honest_nodes.saturating_sub(1).max(1));
            let b = match rng.percent(5) {
                true => a,
                false => (a + other) % self.honest_nodes,
            };
            let common = Common::new(&self.plan, rng, transport, self.max_bytes);
            let first = self.add_connection(rng, [a, b], &common);
            if self.plan.work.one_way {
                self.qps[first + 1].app.left = 0;
            }
        }
    }

    /// Connects two queue pairs of two nodes; returns the first.
    pub(crate) fn add_connection(
        &mut self,
        rng: &mut Rng,
        nodes: [usize; 2],
        common: &Common,
    ) -> usize {
        let first = self.qps.len();
        for node in nodes {
            self.add_qp(rng, node, common);
        }
        for (qp, peer) in [(first, first + 1), (first + 1, first)] {
            self.qps[qp].peer = Some(peer);
            self.qps[qp].remote = Some(self.nodes[self.qps[peer].node].address);
            self.oracle.tracks[qp].peer = Some(peer);
        }
        self.connect(rng, first, common);
        first
    }

    fn add_datagrams(&mut self, rng: &mut Rng) {
        for _ in 0..self.plan.ud.count(rng) {
            let node = rng.index(self.honest_nodes);
            let common = Common::new(&self.plan, rng, Transport::Ud, self.max_bytes);
            self.add_qp(rng, node, &common);
        }
    }

    pub(crate) fn add_qp(&mut self, rng: &mut Rng, node: usize, common: &Common) {
        let id = self.qps.len();
        let qpn = Qpn::new(0x11 + id as u32 * 0x101);
        let signal_all = self.plan.qp.signal_all.happens(rng);
        // Those for datagrams are longer, and so have their own.
        let shared = self.plan.qp.shared_receives.happens(rng) && common.transport != Transport::Ud;
        let depth = self.plan.qp.window.count(rng).max(1) as usize;
        let halves = common.halves(qpn, signal_all, depth, rng);
        let mut track = Track::new(node, common.transport, qpn);
        track.retry_cnt = common.retry_cnt.get();
        track.rnr_retry = common.rnr_retry.get();
        let memory = &mut self.nodes[node].memory;
        let source_len = 2 * common.max_bytes;
        let source = memory.area(source_len);
        let target_len = source_len.next_multiple_of(8) + 8 * WORDS;
        track.target = memory.area(target_len);
        rng.fill(&mut memory.bytes[source..source + source_len]);
        rng.fill(&mut memory.bytes[track.target..track.target + target_len]);
        track.model = vec![0; target_len];
        // An atomic needs a word, however short messages are.
        let slot = common.max_bytes.max(8);
        track.free_slots = (0..common.slots).map(|_| memory.area(slot)).collect();
        let (target, iova) = (track.target, IOVA + (rng.next() & 0xff_ffff) * 8);
        self.oracle.tracks.push(track);
        let all = Region {
            owner: id,
            iova,
            at: target,
            len: target_len,
            rights: Rights::ALL,
            revocable: false,
        };
        let read_only = Region {
            rights: Rights::READ,
            ..all.clone()
        };
        let counters = Region {
            iova: COUNTERS_IOVA,
            at: self.nodes[node].counters,
            len: 8 * COUNTERS,
            ..all.clone()
        };
        let app = App {
            left: self.plan.work.messages.count(rng),
            depth,
            source,
            source_len,
            max_bytes: common.max_bytes,
            key: self.open(node, all),
            iova,
            read_key: self.open(node, read_only),
            counter_key: self.open(node, counters),
            fault_at: None,
            bad_receive: None,
            think_ns: 0,
            signal_all,
            rng: rng.fork(),
        };
        self.qps.push(Qp {
            id,
            node,
            qpn,
            transport: common.transport,
            state: State::Rts,
            exists: true,
            peer: None,
            remote: None,
            replays: usize::from(common.rd_atomic),
            mtu: common.mtu,
            bundle: common.bundle,
            law: common.law,
            notifier: Notifier::default(),
            halves,
            queues: Queues::default(),
            shared,
            waiting: Default::default(),
            early: Default::default(),
            drops_early: self.plan.qp.drops_early.happens(rng),
            armed: None,
            drained: false,
            // After some timeouts it waits four times as long.
            patience_ns: 4 * common.timeout.delay_ns().unwrap_or(0),
            rnr_ns: common.min_rnr_timer.delay_ns(),
            app,
            flow: None,
        });
    }

    /// Opens memory of a node; returns the key.
    fn open(&mut self, node: usize, region: Region) -> u32 {
        self.next_key += 0x101;
        self.nodes[node]
            .memory
            .regions
            .insert(self.next_key, region);
        self.next_key
    }

    /// Moves both ends of the connection whose first queue pair is `first` from RESET to RTS.
    fn connect(&mut self, rng: &mut Rng, first: usize, common: &Common) {
        let psn = [first_psn(&self.plan, rng), first_psn(&self.plan, rng)];
        let qpn = [self.qps[first].qpn, self.qps[first + 1].qpn];
        for side in 0..2 {
            let there = 1 - side;
            let halves = &mut self.qps[first + side].halves;
            common.start(halves, qpn[there], psn[side], psn[there]);
        }
    }

    fn plan_work(&mut self, rng: &mut Rng, span_ns: u64) {
        for qp in 0..self.qps.len() {
            let burst = self.plan.work.burst.draw(rng).max(1.0);
            let posts = (self.qps[qp].app.left as f64 / burst).max(1.0);
            self.qps[qp].app.think_ns = (2.0 * span_ns as f64 / posts) as u64 + 1;
            let at = rng.below(self.qps[qp].app.think_ns);
            self.plan_for(at, Event::Post(qp));
        }
    }

    fn add_receives(&mut self, rng: &mut Rng) {
        for qp in 0..self.qps.len() {
            let header = match self.qps[qp].transport {
                Transport::Ud => GRH_BYTES as usize,
                Transport::Rc | Transport::Uc => 0,
            };
            let (node, len) = (self.qps[qp].node, self.qps[qp].app.max_bytes + header);
            for _ in 0..self.plan.work.receives.count(rng).max(1) {
                let at = self.nodes[node].memory.area(len);
                let late = self.plan.work.receive_delay_us.us(rng);
                self.plan_for(late, Event::Receive(qp, at));
            }
        }
    }

    fn plan_trouble(&mut self, rng: &mut Rng, span_ns: u64) {
        let (trouble, node) = (self.plan.trouble.clone(), self.plan.node.clone());
        for number in 0..self.honest_nodes {
            for _ in 0..node.pauses.count(rng) {
                let (at, for_ns) = (rng.below(span_ns), node.pause_us.us(rng));
                self.plan_for(at, Event::Pause(number, for_ns));
            }
        }
        for qp in 0..self.qps.len() {
            if trouble.faults.happens(rng) {
                let app = &mut self.qps[qp].app;
                if rng.percent(85) {
                    app.fault_at = Some(rng.below(app.left.max(1)));
                } else {
                    let status = rng.pick(&[Status::LocalProtection, Status::LocalQpOperation]);
                    app.bad_receive = Some((rng.below(10), status));
                }
            }
            for _ in 0..trouble.drains.count(rng) {
                let at = rng.below(span_ns);
                self.plan_for(at, Event::Drain(qp));
            }
            if trouble.errors.happens(rng) {
                let at = rng.below(span_ns);
                self.plan_for(at, Event::Fail(qp));
            }
            if trouble.destroys.happens(rng) {
                let at = rng.below(span_ns);
                self.plan_for(at, Event::Destroy(qp));
            }
        }
    }
}

impl Common {
    pub(crate) fn new(plan: &Plan, rng: &mut Rng, transport: Transport, max_bytes: usize) -> Self {
        let mtu = match plan.qp.mtu.as_slice() {
            [] => 1024,
            choices => rng.pick(choices),
        };
        let mtu = Mtu::within(mtu).unwrap_or(Mtu::B256);
        let law = match plan.qp.laws.as_slice() {
            [] => Law::default(),
            [one] => law(one),
            several => law(&several[rng.index(several.len())]),
        };
        let bundle = plan.qp.bundle.count(rng).clamp(1, 12) as u32 * mtu.bytes();
        let retries = |count: u64| RetryCount::new(count.min(7) as u8).unwrap_or_default();
        Self {
            transport,
            mtu,
            bundle: Bundle::within(bundle, mtu),
            timeout: AckTimeout::new(plan.qp.timeout.count(rng).min(31) as u8).unwrap_or_default(),
            retry_cnt: retries(plan.qp.retry_cnt.count(rng)),
            rnr_retry: retries(plan.qp.rnr_retry.count(rng)),
            min_rnr_timer: RnrTimer::from_low_bits(plan.qp.min_rnr_timer.count(rng) as u8),
            rd_atomic: plan.qp.rd_atomic.count(rng).clamp(1, 128) as u8,
            max_bytes,
            law,
            slots: SLOTS,
        }
    }

    /// Moves a connected queue pair from RESET to RTS.
    pub(crate) fn start(&self, halves: &mut Halves, dest_qp: Qpn, sq_psn: Psn, rq_psn: Psn) {
        let Halves::Connected {
            requester,
            responder,
        } = halves
        else {
            return;
        };
        let connection = match self.transport {
            Transport::Uc => Connection::Unreliable,
            Transport::Rc | Transport::Ud => Connection::Reliable,
        };
        responder.start(RecvConfig {
            connection,
            dest_qp,
            pkey: Pkey::DEFAULT,
            mtu: self.mtu,
            bundle: self.bundle,
            rq_psn,
            max_dest_rd_atomic: self.rd_atomic,
            min_rnr_timer: self.min_rnr_timer,
            access: RemoteAccess {
                write: true,
                read: true,
                atomic: true,
                flush: Placement {
                    global: true,
                    persistent: false,
                },
            },
        });
        responder.set_established();
        requester.start(SendConfig {
            law: self.law,
            connection,
            dest_qp,
            pkey: Pkey::DEFAULT,
            mtu: self.mtu,
            bundle: self.bundle,
            sq_psn,
            timeout: self.timeout,
            retry_cnt: self.retry_cnt,
            rnr_retry: self.rnr_retry,
            max_rd_atomic: self.rd_atomic,
        });
    }

    /// Returns the halves of a queue pair; those for datagrams run at once.
    fn halves(&self, qpn: Qpn, signal_all: bool, depth: usize, rng: &mut Rng) -> Halves {
        if self.transport == Transport::Ud {
            let config = DatagramConfig {
                pkey: Pkey::DEFAULT,
                qkey: QKEY,
            };
            let mut sender = Sender::new(qpn, signal_all);
            sender.start(config, Psn::new(rng.next() as u32));
            let mut receiver = Receiver::new(qpn);
            receiver.start(config);
            return Halves::Datagram { sender, receiver };
        }
        let window = depth.min(MAX_WINDOW_REQUESTS);
        let window = (0..window).map(|_| Slot::default()).collect();
        let replays = (0..self.rd_atomic).map(|_| Replay::default()).collect();
        Halves::Connected {
            requester: Requester::new(qpn, signal_all, window),
            responder: Responder::new(qpn, replays),
        }
    }
}

/// Returns the law of congestion control with that name.
pub(crate) fn law(name: &str) -> Law {
    let law = Law::ALL.into_iter().find(|law| law.name() == name);
    law.unwrap_or_else(|| panic!("no law of congestion control: {name}"))
}

/// Returns a first PSN: any, or one next to the wrap.
pub(crate) fn first_psn(plan: &Plan, rng: &mut Rng) -> Psn {
    let any = rng.next() as u32;
    let near = 0x100_0000 - 1 - any % 200;
    match plan.qp.wrap.happens(rng) {
        true => Psn::new(near),
        false => Psn::new(any),
    }
}

/// Returns true if packets arrive in the order in which they were sent, each once at most.
fn keeps_order(plan: &LinkPlan) -> bool {
    let never = |range: Range| match range {
        Range::Fixed(chance) => chance == 0.0,
        Range::Between([_, most]) => most == 0.0,
    };
    never(plan.duplication) && never(plan.reordering)
}
