// SPDX-License-Identifier: GPL-2.0

//! Plans: what a run is drawn from.
//!
//! A plan is a file of TOML; the files in `plans/` are examples, and what is left out is as in
//! [`Plan::default`]. A number may be given as such or as a range `[least, most]`, of which each run
//! draws one, for each link, node or queue pair anew. Probabilities are from 0 to 1.

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

/// What a run is drawn from.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Plan {
    /// What it is for, in a few words.
    pub about: String,
    /// What must happen in some of many runs, or the plan gets nowhere.
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
    /// Microseconds in which work is posted and trouble begins.
    pub span_us: Range,
    /// The most packets that are sent for each that must be, apart from what is sent again.
    pub storm: f64,
    /// The most packets that are sent again for each that the network harmed or that found no
    /// receive.
    pub resends: f64,
    /// The most timeouts in many runs, for each packet that the network harmed: what is lost is
    /// noticed otherwise, mostly. 0 is no limit.
    pub timeouts: f64,
    /// Requesters may give up though nothing was lost.
    pub may_give_up: bool,
    /// Links.
    pub link: LinkPlan,
    /// Nodes.
    pub node: NodePlan,
    /// Queue pairs.
    pub qp: QpPlan,
    /// Work.
    pub work: WorkPlan,
    /// What goes wrong.
    pub trouble: TroublePlan,
}

/// What a link does to packets, each way of each pair of nodes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkPlan {
    /// Time on the way.
    pub delay_us: Range,
    /// Bytes leave one after the other at this rate; 0 is infinite.
    pub rate_gbps: Range,
    /// Packets that may wait to leave; more are lost. 0 is no limit.
    pub queue: Range,
    /// How likely a packet is lost.
    pub loss: Range,
    /// How likely a packet begins a burst of losses.
    pub burst: Range,
    /// How likely a burst goes on with the next packet.
    pub burst_goes_on: Range,
    /// How likely a packet comes twice.
    pub duplication: Range,
    /// How likely a packet is late, so that others overtake it.
    pub reordering: Range,
    /// By how much a packet is late, at most.
    pub late_us: Range,
    /// How likely bits of a packet change.
    pub corruption: Range,
    /// The longest packet, with its IP header; longer ones are lost. 0 is no limit.
    pub mtu: Range,
    /// How often it is cut.
    pub partitions: Range,
    /// For how long.
    pub partition_us: Range,
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
    /// How likely memory is not in reach when it is used.
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
    /// How likely the first PSN is next to the wrap.
    pub wrap: Range,
    /// How likely every send is signalled.
    pub signal_all: Range,
    /// How likely receives come from a queue shared by the node.
    pub shared_receives: Range,
}

/// What is posted. The names of operations are their weights.
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
    /// A READ and a fenced SEND of what it brought.
    pub forward: u32,
    /// How likely a request has a fence.
    pub fence: Range,
    /// How likely a request is signalled, where not all are.
    pub signaled: Range,
}

/// What goes wrong.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TroublePlan {
    /// How likely a work request of a queue pair is one that must fail.
    pub faults: Range,
    /// How likely its owner moves a queue pair to ERR.
    pub errors: Range,
    /// How likely its owner destroys a queue pair.
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
    /// A number of it.
    pub fn draw(self, rng: &mut Rng) -> f64 {
        match self {
            Self::Fixed(value) => value,
            Self::Between([least, most]) => {
                least + (most - least) * (rng.below(1_000_001) as f64 / 1e6)
            }
        }
    }

    /// A whole number of it, both ends as likely as the others.
    pub fn count(self, rng: &mut Rng) -> u64 {
        match self {
            Self::Fixed(value) => value as u64,
            Self::Between([least, most]) => {
                let (least, most) = (least as u64, most as u64);
                least + rng.below(most.saturating_sub(least) + 1)
            }
        }
    }

    /// A probability of it.
    pub fn chance(self, rng: &mut Rng) -> Chance {
        Chance::new(self.draw(rng))
    }

    /// Whether what it is the probability of happens.
    pub fn happens(self, rng: &mut Rng) -> bool {
        let chance = self.chance(rng);
        rng.chance(chance)
    }

    /// Nanoseconds, of microseconds.
    pub fn us(self, rng: &mut Rng) -> u64 {
        (self.draw(rng) * 1000.0) as u64
    }
}

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    ///
    /// Says what of `text` is no plan, and where.
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
            span_us: Range::Fixed(2000.0),
            storm: 1.2,
            resends: 16.0,
            timeouts: 0.0,
            may_give_up: false,
            link: LinkPlan::default(),
            node: NodePlan::default(),
            qp: QpPlan::default(),
            work: WorkPlan::default(),
            trouble: TroublePlan::default(),
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
