// SPDX-License-Identifier: GPL-2.0

//! Plans: the parameters of runs.
//!
//! A plan is a file of TOML; the files in `plans/` are examples. Missing values are those of
//! [`Plan::default`]. A number may be a value or a range `[least, most]`. Each run draws a number
//! of the range, for each link, node or queue pair anew. Probabilities are from 0 to 1.

use roce::congestion::Law;
use serde::Deserialize;

use crate::rng::{Chance, Rng};

/// A number, or where it is drawn from.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(untagged)]
pub enum Range {
    /// Always the same.
    Fixed(f64),
    /// Any from the first to the second.
    Between([f64; 2]),
}

/// The parameters of a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Plan {
    /// The purpose, in a few words.
    pub about: String,
    /// Events that must happen in some of many runs. Otherwise the plan fails.
    pub sees: Vec<String>,
    /// Nodes, each a machine with memory and an address.
    pub nodes: Range,
    /// Pairs of connected queue pairs, RC.
    pub rc: Range,
    /// Pairs of connected queue pairs, UC.
    pub uc: Range,
    /// Queue pairs for datagrams.
    pub ud: Range,
    /// Queue pairs of an honest node that are connected to the adversary, RC and UC by turns; with
    /// one or more, node 0 has honest queue pairs and the adversary's attention.
    pub attacked: Range,
    /// The probability that a packet of the adversary's is a CNP. Where it is not 0, its other packets say
    /// anything of congestion.
    pub cnps: Range,
    /// Microseconds in which work is posted and trouble begins.
    pub span_us: Range,
    /// The most packets that are sent for each necessary one, without retransmissions.
    pub storm: f64,
    /// The most packets that are sent again for each that the network harmed or that found no
    /// receive.
    pub resends: f64,
    /// The most timeouts in many runs, for each packet that the network harmed, because most losses
    /// are noticed by other means. 0 is no limit.
    pub timeouts: f64,
    /// Requesters may give up though nothing was lost.
    pub may_give_up: bool,
    /// Connections with steady work.
    pub flows: Vec<FlowPlan>,
    /// When flows are measured.
    pub measure: MeasurePlan,
    /// Links.
    pub link: LinkPlan,
    /// Ports of a switch.
    pub port: PortPlan,
    /// Nodes.
    pub node: NodePlan,
    /// Queue pairs.
    pub qp: QpPlan,
    /// Work.
    pub work: WorkPlan,
    /// The disturbances.
    pub trouble: TroublePlan,
}

/// Connections that move messages to node 0, each from another node in turn.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FlowPlan {
    /// So many of them.
    pub count: usize,
    /// How they move messages.
    pub op: FlowOp,
    /// Bytes of a message.
    pub bytes: usize,
    /// Messages that are outstanding at most.
    pub depth: usize,
    /// When they begin.
    pub start_us: f64,
    /// When they post no more.
    pub stop_us: f64,
    /// The time between two messages, on average; with 0 there are always as many outstanding as
    /// may be.
    pub every_us: f64,
    /// Both ends drop packets that come before their turn.
    pub drops_early: bool,
    /// The law of congestion control, by its name.
    pub law: String,
}

/// How a flow moves messages to node 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FlowOp {
    /// The other node WRITEs.
    Write,
    /// Node 0 READs.
    Read,
}

/// When flows are measured, and how often.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MeasurePlan {
    /// From then on.
    pub from_us: f64,
    /// Until then.
    pub to_us: f64,
    /// Time between samples.
    pub every_us: f64,
}

/// The faults of a link, for each direction of each pair of nodes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkPlan {
    /// Time on the way.
    pub delay_us: Range,
    /// Bytes leave one after the other at this rate; 0 is infinite.
    pub rate_gbps: Range,
    /// Packets that may wait to leave; more are lost. 0 is no limit.
    pub queue: Range,
    /// The probability that a packet is lost.
    pub loss: Range,
    /// The probability that a packet begins a burst of losses.
    pub burst: Range,
    /// The probability that a burst continues with the next packet.
    pub burst_goes_on: Range,
    /// A burst ends when the link is idle, as that of a full queue does.
    pub burst_ends_idle: bool,
    /// The probability that a packet comes twice.
    pub duplication: Range,
    /// The probability that a packet is late, so that others overtake it.
    pub reordering: Range,
    /// By how much a packet is late, at most.
    pub late_us: Range,
    /// The probability that bits of a packet change.
    pub corruption: Range,
    /// The longest packet, with its IP header; longer ones are lost. 0 is no limit.
    pub mtu: Range,
    /// How often it is cut.
    pub partitions: Range,
    /// For how long.
    pub partition_us: Range,
}

/// A port of a switch, which all packets towards a node pass that come from others.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PortPlan {
    /// Nodes, from the first, towards which there is one.
    pub towards: Range,
    /// Bytes leave one after the other at this rate.
    pub rate_gbps: Range,
    /// KiB that may be queued; packets that do not fit are dropped. 0 is no limit.
    pub queue_kib: Range,
    /// The queue up to which no packet is marked, in KiB.
    pub mark_min_kib: Range,
    /// The queue from which on all are marked, in KiB. 0 is none.
    pub mark_max_kib: Range,
    /// The probability that a packet is marked just below that; it begins with 0 at the least.
    pub mark_chance: Range,
}

/// How a node works.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodePlan {
    /// Packets that it takes at once.
    pub batch: Range,
    /// Time that it takes for each.
    pub service_ns: Range,
    /// Packets that may wait; more are lost.
    pub queue: Range,
    /// How often it stops for a while.
    pub pauses: Range,
    /// For how long.
    pub pause_us: Range,
    /// The probability that memory is not in reach when it is used.
    pub absence: Range,
    /// How long it takes to get it.
    pub page_in_us: Range,
}

/// Attributes of queue pairs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QpPlan {
    /// Path MTUs, by their bytes.
    pub mtu: Vec<u32>,
    /// PSNs that one packet may stand for.
    pub bundle: Range,
    /// The code of the local ACK timeout.
    pub timeout: Range,
    /// Retries.
    pub retry_cnt: Range,
    /// Retries for a receiver that is not ready.
    pub rnr_retry: Range,
    /// The code of the RNR timer.
    pub min_rnr_timer: Range,
    /// READs and atomics at a time.
    pub rd_atomic: Range,
    /// Slots of the send queue.
    pub window: Range,
    /// The probability that the first PSN is next to the wrap.
    pub wrap: Range,
    /// The probability that every send is signalled.
    pub signal_all: Range,
    /// The probability that receives come from a queue shared by the node.
    pub shared_receives: Range,
    /// The probability that packets that come before their turn are dropped, as hardware may do.
    pub drops_early: Range,
    /// Laws of congestion control, by their names.
    pub laws: Vec<String>,
}

/// The posted work. The names of operations are their weights.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkPlan {
    /// Work requests for each send queue.
    pub messages: Range,
    /// The longest message, in bytes.
    pub max_bytes: Range,
    /// Only one end of each connection posts.
    pub one_way: bool,
    /// Every message is as long as the longest.
    pub longest: bool,
    /// Work requests posted at once.
    pub burst: Range,
    /// Receives that are kept posted.
    pub receives: Range,
    /// How late a receive is replaced.
    pub receive_delay_us: Range,
    /// SEND, with immediate data as often as not.
    pub send: u32,
    /// RDMA WRITE, with immediate data as often as not.
    pub write: u32,
    /// RDMA READ.
    pub read: u32,
    /// Compare-and-swap and fetch-and-add on memory of one's own.
    pub atomic: u32,
    /// Fetch-and-add on counters that all share.
    pub counter: u32,
    /// Atomic WRITE.
    pub atomic_write: u32,
    /// FLUSH.
    pub flush: u32,
    /// Windows bound and memory registered, used by the peer, and invalidated by either side.
    pub window: u32,
    /// A READ and a fenced SEND of its data.
    pub forward: u32,
    /// The probability that a request has a fence.
    pub fence: Range,
    /// The probability that a request is signalled, where not all are.
    pub signaled: Range,
}

/// The disturbances.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TroublePlan {
    /// The probability that a work request of a queue pair is one that must fail.
    pub faults: Range,
    /// The probability that its owner moves a queue pair to ERR.
    pub errors: Range,
    /// The probability that its owner destroys a queue pair.
    pub destroys: Range,
    /// How often the send queue is drained and resumed.
    pub drains: Range,
}

impl Default for Range {
    fn default() -> Self {
        Self::Fixed(0.0)
    }
}

impl Range {
    /// Draws a number of the range.
    pub fn draw(self, rng: &mut Rng) -> f64 {
        match self {
            Self::Fixed(value) => value,
            Self::Between([least, most]) => {
                least + (most - least) * (rng.below(1_000_001) as f64 / 1e6)
            }
        }
    }

    /// Draws a whole number of the range, both ends as likely as the others.
    pub fn count(self, rng: &mut Rng) -> u64 {
        match self {
            Self::Fixed(value) => value as u64,
            Self::Between([least, most]) => {
                let (least, most) = (least as u64, most as u64);
                least + rng.below(most.saturating_sub(least) + 1)
            }
        }
    }

    /// Draws a probability of the range.
    pub fn chance(self, rng: &mut Rng) -> Chance {
        Chance::new(self.draw(rng))
    }

    /// Returns true if the event of this probability happens.
    pub fn happens(self, rng: &mut Rng) -> bool {
        let chance = self.chance(rng);
        rng.chance(chance)
    }

    /// Draws a number of microseconds, and returns it in nanoseconds.
    pub fn us(self, rng: &mut Rng) -> u64 {
        (self.draw(rng) * 1000.0) as u64
    }
}

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    ///
    /// The invalid part of `text`, and its place.
    pub fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            about: String::new(),
            sees: Vec::new(),
            nodes: Range::Fixed(2.0),
            rc: Range::Fixed(0.0),
            uc: Range::Fixed(0.0),
            ud: Range::Fixed(0.0),
            attacked: Range::Fixed(0.0),
            cnps: Range::Fixed(0.0),
            span_us: Range::Fixed(2000.0),
            storm: 1.2,
            resends: 16.0,
            timeouts: 0.0,
            may_give_up: false,
            flows: Vec::new(),
            measure: MeasurePlan::default(),
            link: LinkPlan::default(),
            port: PortPlan::default(),
            node: NodePlan::default(),
            qp: QpPlan::default(),
            work: WorkPlan::default(),
            trouble: TroublePlan::default(),
        }
    }
}

impl Default for FlowPlan {
    fn default() -> Self {
        Self {
            count: 1,
            op: FlowOp::Write,
            bytes: 65536,
            depth: 4,
            start_us: 0.0,
            stop_us: 1000.0,
            every_us: 0.0,
            drops_early: false,
            law: Law::default().name().into(),
        }
    }
}

impl Default for MeasurePlan {
    fn default() -> Self {
        Self {
            from_us: 0.0,
            to_us: 0.0,
            every_us: 1000.0,
        }
    }
}

impl Default for LinkPlan {
    fn default() -> Self {
        let none = Range::Fixed(0.0);
        Self {
            delay_us: Range::Between([1.0, 50.0]),
            rate_gbps: Range::Fixed(10.0),
            queue: none,
            loss: none,
            burst: none,
            burst_goes_on: none,
            burst_ends_idle: false,
            duplication: none,
            reordering: none,
            late_us: Range::Fixed(100.0),
            corruption: none,
            mtu: none,
            partitions: none,
            partition_us: none,
        }
    }
}

impl Default for PortPlan {
    fn default() -> Self {
        let none = Range::Fixed(0.0);
        Self {
            towards: none,
            rate_gbps: Range::Fixed(10.0),
            queue_kib: none,
            mark_min_kib: none,
            mark_max_kib: none,
            mark_chance: none,
        }
    }
}

impl Default for NodePlan {
    fn default() -> Self {
        Self {
            batch: Range::Between([1.0, 16.0]),
            service_ns: Range::Fixed(200.0),
            queue: Range::Fixed(4096.0),
            pauses: Range::Fixed(0.0),
            pause_us: Range::Fixed(0.0),
            absence: Range::Fixed(0.0),
            page_in_us: Range::Between([1.0, 100.0]),
        }
    }
}

impl Default for QpPlan {
    fn default() -> Self {
        Self {
            mtu: vec![256, 512, 1024, 2048, 4096],
            bundle: Range::Fixed(1.0),
            timeout: Range::Between([14.0, 16.0]),
            retry_cnt: Range::Fixed(7.0),
            rnr_retry: Range::Fixed(7.0),
            min_rnr_timer: Range::Between([1.0, 14.0]),
            rd_atomic: Range::Between([1.0, 16.0]),
            window: Range::Between([1.0, 64.0]),
            wrap: Range::Fixed(0.5),
            signal_all: Range::Fixed(0.5),
            shared_receives: Range::Fixed(0.0),
            drops_early: Range::Fixed(0.3),
            laws: vec![Law::default().name().into()],
        }
    }
}

impl Default for WorkPlan {
    fn default() -> Self {
        Self {
            messages: Range::Between([10.0, 40.0]),
            max_bytes: Range::Between([1024.0, 16384.0]),
            one_way: false,
            longest: false,
            burst: Range::Between([1.0, 8.0]),
            receives: Range::Between([1.0, 16.0]),
            receive_delay_us: Range::Fixed(0.0),
            send: 4,
            write: 4,
            read: 4,
            atomic: 2,
            counter: 1,
            atomic_write: 1,
            flush: 1,
            window: 2,
            forward: 1,
            fence: Range::Fixed(0.05),
            signaled: Range::Fixed(0.7),
        }
    }
}

impl Default for TroublePlan {
    fn default() -> Self {
        let none = Range::Fixed(0.0);
        Self {
            faults: none,
            errors: none,
            destroys: none,
            drains: none,
        }
    }
}
