// SPDX-License-Identifier: GPL-2.0

//! Queue pairs and nodes: the simulated parts of a machine.

use std::collections::VecDeque;

use roce::completion::Status;
use roce::congestion::{Law, Notifier};
use roce::host::Flush;
use roce::limits::MAX_EARLY_PSNS;
use roce::num::{Bundle, Mtu, Psn, Qpn};
use roce::opcode::Transport;
use roce::qp::State;
use roce::recv::{RecvState, Replay, Responder};
use roce::send::{Requester, SendState, Slot};
use roce::time::Instant;
use roce::ud::{Receiver, Sender};

use crate::flow::Flow;
use crate::host::{Host, Queues, RecvQueue};
use crate::memory::{Grant, Memory, Payload};
use crate::packet::Address;
use crate::rng::Rng;

/// The two halves of a queue pair.
#[expect(clippy::large_enum_variant, reason = "a run has few of them")]
pub enum Halves {
    /// RC and UC.
    Connected {
        /// Sends.
        requester: Requester<Payload, Vec<Slot<Payload>>>,
        /// Receives.
        responder: Responder<Payload, Grant, Vec<Replay<Grant>>>,
    },
    /// UD.
    Datagram {
        /// Sends.
        sender: Sender<Payload, usize>,
        /// Receives.
        receiver: Receiver<Payload>,
    },
}

/// Which half something waits in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The half that sends requests.
    Send,
    /// The half that receives them.
    Recv,
}

/// Packets that wait for memory, and whether sending does.
#[derive(Default)]
pub struct Waiting {
    /// Packets, the oldest of which found memory absent.
    pub packets: VecDeque<Vec<u8>>,
    /// The source of a packet to send is absent.
    pub stops_sending: bool,
    /// Memory is on its way.
    pub is_due: bool,
}

/// A queue pair.
pub struct Qp {
    /// Which one.
    pub id: usize,
    /// The node that it is on.
    pub node: usize,
    /// Its number.
    pub qpn: Qpn,
    /// Its transport.
    pub transport: Transport,
    /// Its state.
    pub state: State,
    /// It is there.
    pub exists: bool,
    /// The queue pair that it is connected to; the adversary has none.
    pub peer: Option<usize>,
    /// The peer's address.
    pub remote: Option<Address>,
    /// READs and atomics of the peer that it keeps.
    pub replays: usize,
    /// The path MTU, or the port's.
    pub mtu: Mtu,
    /// The PSNs that a packet of its connection may stand for.
    pub bundle: Bundle,
    /// The law of congestion control.
    pub law: Law,
    /// When it tells its peer of congestion.
    pub notifier: Notifier,
    /// Its halves.
    pub halves: Halves,
    /// Its queues.
    pub queues: Queues,
    /// Its receives are those of the node.
    pub shared: bool,
    /// Work that waits for memory, by half.
    pub waiting: [Waiting; 2],
    /// Packets that came before their turn, by half.
    pub early: [VecDeque<(Psn, Vec<u8>)>; 2],
    /// It drops such packets.
    pub drops_early: bool,
    /// The timer is set to this.
    pub armed: Option<u64>,
    /// The send queue is drained: nothing may be begun.
    pub drained: bool,
    /// The longest that it waits for an acknowledgement, in nanoseconds.
    pub patience_ns: u64,
    /// The time for which a peer must wait for a receive, in nanoseconds.
    pub rnr_ns: u64,
    /// The poster.
    pub app: App,
    /// The flow whose messages it posts.
    pub flow: Option<Flow>,
}

/// The poster of a queue pair.
pub struct App {
    /// The source of random numbers.
    pub rng: Rng,
    /// Work requests to post yet.
    pub left: u64,
    /// Sends that may be outstanding.
    pub depth: usize,
    /// Memory that is sent from and never changes: where, and how much.
    pub source: usize,
    /// Its bytes, twice the longest message.
    pub source_len: usize,
    /// The longest message.
    pub max_bytes: usize,
    /// The key of the memory that the peer may write, and the address of its first byte.
    pub key: u32,
    /// The address of its first byte.
    pub iova: u64,
    /// The same memory, for READs alone.
    pub read_key: u32,
    /// The node's counters.
    pub counter_key: u32,
    /// The number of the work request that must fail, counted from the last.
    pub fault_at: Option<u64>,
    /// A receive that must fail, counted down.
    pub bad_receive: Option<(u64, Status)>,
    /// Time between posts, at most.
    pub think_ns: u64,
    /// Every send is signalled.
    pub signal_all: bool,
}

/// A machine.
pub struct Node {
    /// Its address.
    pub address: Address,
    /// Its memory.
    pub memory: Memory,
    /// Receives that some of its queue pairs share.
    pub shared: RecvQueue,
    /// Packets that arrived: time, sender, bytes.
    pub arrived: VecDeque<(u64, usize, Vec<u8>)>,
    /// How many may wait.
    pub queue: usize,
    /// How many it takes at once.
    pub batch: usize,
    /// Time for each.
    pub service_ns: u64,
    /// How long absent memory takes.
    pub page_in_ns: u64,
    /// It does nothing until then.
    pub paused_until: u64,
    /// It is at work until then.
    pub busy_until: u64,
    /// It will look at packets.
    pub is_scheduled: bool,
    /// Counters that all queue pairs may add to: where, and the address for peers.
    pub counters: usize,
}

/// Early packets that a half has room for, as in the driver.
const EARLY_ROOM: usize = MAX_EARLY_PSNS as usize;

impl Qp {
    /// Returns true if a half keeps no more packets that came before their turn.
    pub fn has_no_room(&self, side: Side) -> bool {
        self.drops_early || self.early[side as usize].len() >= EARLY_ROOM
    }

    /// Keeps an early packet, in the order of PSNs, and each of them once.
    pub fn keep_early(&mut self, side: Side, psn: Psn, bytes: Vec<u8>) {
        let early = &mut self.early[side as usize];
        let at = early.partition_point(|(kept, _)| kept.is_before(psn));
        if early.get(at).is_none_or(|(kept, _)| *kept != psn) {
            early.insert(at, (psn, bytes));
        }
    }

    /// Returns true if its packets may be marked, because it and its peer react to marks.
    pub fn is_ect(&self) -> bool {
        self.transport == Transport::Rc && self.law.reacts_to_marks()
    }

    /// Returns the state of the requester or sender.
    pub fn send_state(&self) -> SendState {
        match &self.halves {
            Halves::Connected { requester, .. } => requester.state(),
            Halves::Datagram { sender, .. } => sender.state(),
        }
    }

    /// Returns the state of the responder or receiver.
    pub fn recv_state(&self) -> RecvState {
        match &self.halves {
            Halves::Connected { responder, .. } => responder.state(),
            Halves::Datagram { receiver, .. } => receiver.state(),
        }
    }

    /// Returns the time at which its timer is to fire.
    pub fn timeout(&self) -> Option<u64> {
        match &self.halves {
            Halves::Connected { requester, .. } => requester.poll_timeout().map(Instant::as_ns),
            Halves::Datagram { .. } => None,
        }
    }
}

impl Halves {
    /// Moves both halves to ERR.
    pub fn enter_error(&mut self, host: &mut Host<'_>) {
        match self {
            Self::Connected {
                requester,
                responder,
            } => {
                while requester.enter_error(host) == Flush::More {}
                while responder.enter_error(host) == Flush::More {}
            }
            Self::Datagram { sender, receiver } => {
                while sender.enter_error(host) == Flush::More {}
                while receiver.enter_error(host) == Flush::More {}
            }
        }
    }

    /// Completes requests that were posted since the flush, if they are flushed.
    pub fn flush_posted(&mut self, host: &mut Host<'_>) {
        match self {
            Self::Connected {
                requester,
                responder,
            } => {
                while requester.flush_posted(host) == Flush::More {}
                while responder.flush_posted(host) == Flush::More {}
            }
            Self::Datagram { sender, receiver } => {
                while sender.flush_posted(host) == Flush::More {}
                while receiver.flush_posted(host) == Flush::More {}
            }
        }
    }

    /// Moves both halves to RESET.
    pub fn reset(&mut self, host: &mut Host<'_>) {
        match self {
            Self::Connected {
                requester,
                responder,
            } => {
                requester.reset(host);
                responder.reset(host);
            }
            Self::Datagram { sender, receiver } => {
                sender.reset(host);
                receiver.reset(host);
            }
        }
    }

    /// Moves the send half to SQD.
    pub fn drain(&mut self, host: &mut Host<'_>) {
        match self {
            Self::Connected { requester, .. } => requester.drain(host),
            Self::Datagram { sender, .. } => sender.drain(host),
        }
    }

    /// Moves the send half from SQD or SQE to RTS.
    pub fn resume(&mut self) {
        match self {
            Self::Connected { requester, .. } => requester.resume(),
            Self::Datagram { sender, .. } => sender.resume(),
        }
    }
}
