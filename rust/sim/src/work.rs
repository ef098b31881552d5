// SPDX-License-Identifier: GPL-2.0

//! Work: random requests, and their expected results for the oracle.

use roce::completion::{CompletionOp, Status};
use roce::limits::GRH_BYTES;
use roce::num::{Imm, Iova, Lkey, Qkey, Qpn, Rkey};
use roce::opcode::Transport;
use roce::wr::{
    AtomicOp, BadRequest, Bind, DatagramDest, DatagramRequest, Flush, LocalOp, Placement,
    RecvRequest, Register, Remote, SendFlags, SendOp, SendRequest,
};

use crate::endpoint::Qp;
use crate::memory::{Memory, Payload, Region, Rights};
use crate::oracle::{Answer, Arrival, Effect, Key, KeyChange, Oracle, Work};
use crate::plan::{FlowOp, WorkPlan};
use crate::sabotage::Sabotage;
use crate::sim::Sim;

/// The Q_Key of all queue pairs for datagrams.
pub const QKEY: Qkey = Qkey(0x1122_3344);

/// Words at the end of the writable memory, for atomics.
pub const WORDS: usize = 8;

/// Shared counters of a node.
pub const COUNTERS: usize = 4;

/// The address of the counters for peers.
pub const COUNTERS_IOVA: u64 = 0x4000_0000;

/// The receiver of a datagram.
pub struct Target {
    id: usize,
    node: usize,
    qpn: Qpn,
}

/// A request to post: the operation and its local memory.
struct Draft {
    op: SendOp,
    completes: CompletionOp,
    at: usize,
    len: usize,
    gone: bool,
    effect: Effect,
    answer: Answer,
    arrival: Option<Arrival>,
    fails: Option<Status>,
    key: KeyChange,
    fence: bool,
    /// It is refused before it is executed.
    bad: bool,
}

impl Draft {
    fn new(op: SendOp, completes: CompletionOp, at: usize, len: usize) -> Self {
        Self {
            op,
            completes,
            at,
            len,
            gone: false,
            effect: Effect::None,
            answer: Answer::None,
            arrival: None,
            fails: None,
            key: KeyChange::None,
            fence: false,
            bad: false,
        }
    }

    fn fails(mut self, status: Status) -> Self {
        self.fails = Some(status);
        self
    }
}

/// A drafter of requests, with its sources.
struct Drafter<'a> {
    qp: &'a mut Qp,
    memory: &'a mut Memory,
    oracle: &'a mut Oracle,
    plan: &'a WorkPlan,
    next_key: &'a mut u32,
    /// The keys and the node of the peer.
    peer: Option<Peer>,
    targets: &'a [Target],
}

/// The known attributes of the peer.
#[derive(Clone, Copy)]
struct Peer {
    id: usize,
    node: usize,
    key: u32,
    read_key: u32,
    iova: u64,
    counter_key: u32,
    target_len: usize,
}

impl Sim {
    /// Posts some work to a queue pair.
    pub(crate) fn post(&mut self, id: usize) {
        let burst = self.plan.work.burst.count(&mut self.qps[id].app.rng).max(1);
        for _ in 0..burst {
            let qp = &self.qps[id];
            let slots = &self.oracle.tracks[id].free_slots;
            if qp.app.left == 0 || qp.queues.outstanding() >= qp.app.depth || slots.is_empty() {
                break;
            }
            self.post_one(id);
        }
        self.work_posted(id);
    }

    pub(crate) fn post_one(&mut self, id: usize) {
        let peer = self.qps[id].peer.map(|peer| {
            let qp = &self.qps[peer];
            Peer {
                id: peer,
                node: qp.node,
                key: qp.app.key,
                read_key: qp.app.read_key,
                iova: qp.app.iova,
                counter_key: qp.app.counter_key,
                target_len: self.oracle.tracks[peer].model.len(),
            }
        });
        let targets: Vec<Target> = if self.qps[id].transport == Transport::Ud {
            let others = self.qps.iter().filter(|qp| qp.transport == Transport::Ud);
            others
                .map(|qp| Target {
                    id: qp.id,
                    node: qp.node,
                    qpn: qp.qpn,
                })
                .collect()
        } else {
            Vec::new()
        };
        let Sim {
            qps,
            nodes,
            oracle,
            plan,
            next_key,
            ..
        } = self;
        let qp = &mut qps[id];
        let memory = &mut nodes[qp.node].memory;
        let mut drafter = Drafter {
            qp,
            memory,
            oracle,
            plan: &plan.work,
            next_key,
            peer,
            targets: &targets,
        };
        let draft = drafter.draft();
        let packets = drafter.post(draft);
        if !self.oracle.tracks[id].attacked {
            self.needed += packets;
        }
    }

    /// Posts a receive to a queue pair, or to the shared queue of its node.
    pub(crate) fn post_receive(&mut self, id: usize, at: usize) {
        self.next_wr += 1;
        let wr_id = self.next_wr | (1 << 40);
        let qp = &mut self.qps[id];
        let node = &mut self.nodes[qp.node];
        let header = match qp.transport {
            Transport::Ud => GRH_BYTES as usize,
            Transport::Rc | Transport::Uc => 0,
        };
        let length = (qp.app.max_bytes + header) as u32;
        let fails = match &mut qp.app.bad_receive {
            Some((0, status)) if !qp.shared => {
                let status = *status;
                qp.app.bad_receive = None;
                Some(status)
            }
            Some((left, _)) => {
                *left = left.saturating_sub(1);
                None
            }
            None => None,
        };
        let payload = Payload {
            at,
            len: length,
            // Its memory is gone, or the request itself is bad.
            gone: fails == Some(Status::LocalProtection),
            token: qp.queues.payloads.token(),
        };
        self.oracle.receive_posted(id, wr_id, at, length, fails);
        let posted = match fails {
            Some(status) if status != Status::LocalProtection => Err(BadRequest { wr_id, status }),
            _ => Ok(RecvRequest {
                wr_id,
                length,
                payload,
            }),
        };
        if qp.shared {
            node.shared.push_back(posted);
        } else {
            qp.queues.receives.push_back(posted);
        }
    }
}

impl Drafter<'_> {
    /// Drafts random work for the queue pair.
    fn draft(&mut self) -> Draft {
        if let (Some(flow), Some(peer)) = (&self.qp.flow, self.peer) {
            return match flow.op {
                FlowOp::Write => self.write(peer, false),
                FlowOp::Read => self.read(peer),
            };
        }
        let app = &mut self.qp.app;
        app.left -= 1;
        if app.fault_at == Some(app.left) && !self.oracle.tracks[self.qp.id].attacked {
            if let Some(draft) = self.draft_fault() {
                return draft;
            }
        }
        let plan = self.plan;
        let rng = &mut self.qp.app.rng;
        let weights = [
            plan.send,
            plan.write,
            plan.window,
            plan.read,
            plan.atomic,
            plan.counter,
            plan.atomic_write,
            plan.flush,
            plan.forward,
        ];
        let kinds = match self.qp.transport {
            Transport::Rc => &weights[..],
            Transport::Uc => &weights[..3],
            Transport::Ud => &weights[..1],
        };
        let mut left = rng.below(kinds.iter().map(|weight| u64::from(*weight)).sum());
        let kind = kinds.iter().position(|weight| {
            let is_it = left < u64::from(*weight);
            left = left.saturating_sub(u64::from(*weight));
            is_it
        });
        match (kind, self.peer) {
            _ if self.oracle.tracks[self.qp.id].attacked => self.anything(),
            (Some(1), Some(peer)) => self.write(peer, true),
            (Some(2), Some(peer)) => self.window(peer),
            (Some(3), Some(peer)) => self.read(peer),
            (Some(4), Some(peer)) => self.atomic(peer),
            (Some(5), Some(peer)) => self.counter(peer),
            (Some(6), Some(peer)) => self.atomic_write(peer),
            (Some(7), Some(peer)) => self.flush(peer),
            (Some(8), Some(_)) => self.forward(),
            _ => self.send(None),
        }
    }

    /// Posts it and tells the oracle. Returns how many packets it needs, responses included.
    fn post(&mut self, draft: Draft) -> u64 {
        let qp = &mut *self.qp;
        let rng = &mut qp.app.rng;
        let free = self.oracle.tracks[qp.id].free_slots.len();
        let is_flow = qp.flow.is_some();
        let signaled = is_flow || self.plan.signaled.happens(rng) || free <= 2;
        let fence = !is_flow && self.plan.fence.happens(rng) || draft.fence;
        let flags = SendFlags {
            fence: fence && qp.queues.sabotage != Sabotage::NoFences,
            signaled,
            solicited: draft
                .arrival
                .as_ref()
                .is_some_and(|arrival| arrival.solicited),
        };
        let wr_id = rng.next();
        let length = draft.len as u32;
        self.oracle.send_posted(
            qp.id,
            Work {
                wr_id,
                op: draft.completes,
                length,
                signaled: signaled || qp.app.signal_all,
                effect: draft.effect,
                answer: draft.answer,
                arrival: draft.arrival.clone(),
                fails: draft.fails,
                key: draft.key,
            },
            fence,
        );
        let payload = Payload {
            at: draft.at,
            len: length,
            gone: draft.gone,
            token: qp.queues.payloads.token(),
        };
        let bad = draft.fails.filter(|_| draft.bad);
        let bad = bad.map(|status| BadRequest { wr_id, status });
        match (qp.transport, draft.op) {
            (Transport::Ud, op) => {
                let dest = draft.arrival.map_or(qp.id, |arrival| arrival.dest);
                let target = self.targets.iter().find(|target| target.id == dest);
                let (node, qpn) = target.map_or((qp.node, qp.qpn), |to| (to.node, to.qpn));
                let request = DatagramRequest {
                    wr_id,
                    dest: DatagramDest { qpn, qkey: QKEY },
                    imm: match op {
                        SendOp::Send { imm } => imm,
                        _ => None,
                    },
                    flags,
                    length,
                    payload,
                    address: node,
                };
                qp.queues.datagrams.push_back(bad.map_or(Ok(request), Err));
            }
            (Transport::Rc | Transport::Uc, op) => {
                let request = SendRequest {
                    wr_id,
                    op,
                    flags,
                    length,
                    payload,
                };
                qp.queues.sends.push_back(bad.map_or(Ok(request), Err));
            }
        }
        u64::from(qp.mtu.packets(length)) + 1
    }

    /// Draws a length, half of the time near a multiple of the MTU.
    fn length(&mut self, most: usize) -> usize {
        if self.plan.longest || self.qp.flow.is_some() {
            return most;
        }
        let mtu = self.qp.mtu.bytes() as usize;
        let rng = &mut self.qp.app.rng;
        let len = match rng.below(4) {
            0 => rng.index(5),
            1 => (rng.index(12) * mtu + rng.index(3)).saturating_sub(1),
            2 => rng.index(mtu),
            _ => rng.index(most + 1),
        };
        len.min(most)
    }

    /// Draws a part of the memory to send from.
    fn source(&mut self, len: usize) -> usize {
        let app = &mut self.qp.app;
        app.source + app.rng.index(app.source_len - len + 1)
    }

    fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        self.oracle.image(self.qp.node)[at..at + len].to_vec()
    }

    fn imm(&mut self) -> Option<Imm> {
        let rng = &mut self.qp.app.rng;
        let imm = Imm((rng.next() as u32).to_ne_bytes());
        rng.percent(40).then_some(imm)
    }

    /// Takes a place for a response. The caller checked that there is one.
    fn slot(&mut self) -> usize {
        let slots = &mut self.oracle.tracks[self.qp.id].free_slots;
        slots.pop().expect("a free slot")
    }

    /// Takes a key that opens a part of the peer's memory: its own or a window. Returns the key,
    /// the start and length of the part, and the address of its first byte.
    fn key_of(&mut self, peer: Peer) -> (u32, usize, usize, u64, KeyChange) {
        let keys = &self.oracle.tracks[peer.id].keys;
        let open: Vec<u32> = keys
            .iter()
            .filter(|(_, key)| key.open)
            .map(|(key, _)| *key)
            .collect();
        let rng = &mut self.qp.app.rng;
        if self.qp.transport != Transport::Rc || open.is_empty() || rng.percent(40) {
            return (peer.key, 0, peer.target_len, peer.iova, KeyChange::None);
        }
        let number = rng.pick(&open);
        let key = &keys[&number];
        (number, key.at, key.len, key.iova, KeyChange::Used(number))
    }

    /// Drafts any request, for the adversary as peer.
    fn anything(&mut self) -> Draft {
        let len = self.length(self.qp.app.max_bytes);
        let at = self.source(len);
        let slot = self.oracle.tracks[self.qp.id].free_slots.first().copied();
        let rng = &mut self.qp.app.rng;
        let remote = Remote {
            iova: Iova(rng.next()),
            rkey: Rkey(rng.next() as u32),
        };
        let kinds = if self.qp.transport == Transport::Rc {
            5
        } else {
            2
        };
        let write = SendOp::Write { remote, imm: None };
        let op = AtomicOp::FetchAdd { add: 1 };
        let atomic = SendOp::Atomic { remote, op };
        match (rng.below(kinds), slot) {
            (1, _) => Draft::new(write, CompletionOp::Write, at, len),
            (2 | 3, Some(slot)) => {
                Draft::new(SendOp::Read { remote }, CompletionOp::Read, slot, len)
            }
            (4, Some(slot)) => Draft::new(atomic, CompletionOp::FetchAdd, slot, 8),
            _ => Draft::new(SendOp::Send { imm: None }, CompletionOp::Send, at, len),
        }
    }

    /// Drafts a SEND; `len` bytes, if that is given.
    fn send(&mut self, len: Option<usize>) -> Draft {
        let (most, dest) = match self.peer {
            Some(peer) => (self.qp.app.max_bytes, peer.id),
            None => {
                let dest = self.qp.app.rng.index(self.targets.len());
                let most = self.qp.app.max_bytes.min(self.qp.mtu.bytes() as usize);
                (most, self.targets[dest].id)
            }
        };
        let len = match len {
            Some(len) => len,
            None => self.length(most),
        };
        let at = self.source(len);
        let imm = self.imm();
        let mut draft = Draft::new(SendOp::Send { imm }, CompletionOp::Send, at, len);
        draft.arrival = Some(Arrival {
            dest,
            data: Some(self.bytes(at, len)),
            written: None,
            imm,
            invalidates: None,
            solicited: self.qp.app.rng.percent(30),
        });
        draft
    }

    /// Drafts a WRITE, which may have immediate data.
    fn write(&mut self, peer: Peer, may_have_imm: bool) -> Draft {
        let (key, start, room, iova, change) = self.key_of(peer);
        let most = room.min(self.qp.app.max_bytes);
        let len = self.length(most);
        let offset = self.qp.app.rng.index(room - len + 1);
        let at = self.source(len);
        let imm = match may_have_imm {
            true => self.imm(),
            false => None,
        };
        let data = self.bytes(at, len);
        let remote = Remote {
            iova: Iova(iova + offset as u64),
            rkey: Rkey(key),
        };
        let op = SendOp::Write { remote, imm };
        let mut draft = Draft::new(op, CompletionOp::Write, at, len);
        draft.key = change;
        if imm.is_some() {
            draft.arrival = Some(Arrival {
                dest: peer.id,
                data: None,
                written: Some((start + offset, data.clone())),
                imm,
                invalidates: None,
                solicited: self.qp.app.rng.percent(30),
            });
        }
        draft.effect = Effect::Write {
            at: start + offset,
            data,
        };
        draft
    }

    fn read(&mut self, peer: Peer) -> Draft {
        let (key, start, room, iova, change) = self.key_of(peer);
        let most = room.min(self.qp.app.max_bytes);
        let len = self.length(most);
        let offset = self.qp.app.rng.index(room - len + 1);
        let at = self.slot();
        let remote = Remote {
            iova: Iova(iova + offset as u64),
            rkey: Rkey(key),
        };
        let mut draft = Draft::new(SendOp::Read { remote }, CompletionOp::Read, at, len);
        let from = start + offset;
        let expected = self.oracle.tracks[peer.id].model[from..from + len].to_vec();
        draft.key = change;
        draft.answer = Answer::Bytes {
            at,
            expected,
            from: Some(from),
            others: Vec::new(),
            closed: false,
        };
        draft
    }

    /// Picks one of the words for atomics. Returns its place in the peer's open memory.
    fn word(&mut self, peer: Peer) -> (usize, Remote) {
        let word = peer.target_len - 8 * (1 + self.qp.app.rng.index(WORDS));
        let remote = Remote {
            iova: Iova(peer.iova + word as u64),
            rkey: Rkey(peer.key),
        };
        (word, remote)
    }

    fn atomic(&mut self, peer: Peer) -> Draft {
        let (word, remote) = self.word(peer);
        let model = &self.oracle.tracks[peer.id].model;
        let found: [u8; 8] = model[word..word + 8].try_into().expect("eight bytes");
        let value = u64::from_ne_bytes(found);
        let rng = &mut self.qp.app.rng;
        let other = rng.next();
        let (op, completes) = match rng.below(3) {
            0 => (AtomicOp::FetchAdd { add: other }, CompletionOp::FetchAdd),
            kind => {
                let (compare, swap) = if kind == 1 {
                    (value, other)
                } else {
                    (other, 0)
                };
                let op = AtomicOp::CompareSwap { compare, swap };
                (op, CompletionOp::CompareSwap)
            }
        };
        let at = self.slot();
        let mut draft = Draft::new(SendOp::Atomic { remote, op }, completes, at, 8);
        draft.effect = Effect::Atomic { at: word, op };
        draft.answer = Answer::Bytes {
            at,
            expected: found.to_vec(),
            from: None,
            others: Vec::new(),
            closed: false,
        };
        draft
    }

    fn counter(&mut self, peer: Peer) -> Draft {
        let number = self.qp.app.rng.index(COUNTERS);
        let remote = Remote {
            iova: Iova(COUNTERS_IOVA + 8 * number as u64),
            rkey: Rkey(peer.counter_key),
        };
        let op = AtomicOp::FetchAdd { add: 1 };
        let at = self.slot();
        let op = SendOp::Atomic { remote, op };
        let mut draft = Draft::new(op, CompletionOp::FetchAdd, at, 8);
        draft.answer = Answer::Counter {
            at,
            counter: (peer.node, number),
        };
        draft
    }

    fn atomic_write(&mut self, peer: Peer) -> Draft {
        let (word, remote) = self.word(peer);
        let at = self.source(8);
        let op = SendOp::AtomicWrite { remote };
        let mut draft = Draft::new(op, CompletionOp::AtomicWrite, at, 8);
        draft.effect = Effect::Write {
            at: word,
            data: self.bytes(at, 8),
        };
        draft
    }

    fn flush(&mut self, peer: Peer) -> Draft {
        let (key, _, room, iova, change) = self.key_of(peer);
        let whole_region = self.qp.app.rng.percent(30);
        let len = self.length(room);
        let remote = Remote {
            iova: Iova(iova),
            rkey: Rkey(key),
        };
        let flush = Flush {
            placement: Placement {
                global: true,
                persistent: false,
            },
            whole_region,
        };
        let op = SendOp::Flush { remote, flush };
        let mut draft = Draft::new(op, CompletionOp::Flush, self.qp.app.source, len);
        draft.key = change;
        draft
    }

    /// Drafts a fenced SEND of the data of the last READ, if there is such; else a READ.
    fn forward(&mut self) -> Draft {
        let last = self.oracle.last_read(self.qp.id);
        let (Some((at, data)), Some(peer)) = (last, self.peer) else {
            return match self.peer {
                Some(peer) => self.read(peer),
                None => self.send(None),
            };
        };
        let imm = self.imm();
        let op = SendOp::Send { imm };
        let mut draft = Draft::new(op, CompletionOp::Send, at, data.len());
        draft.fence = true;
        draft.arrival = Some(Arrival {
            dest: peer.id,
            data: Some(data),
            written: None,
            imm,
            invalidates: None,
            solicited: false,
        });
        draft
    }

    /// Opens a part of the peer's writable memory by another key, or closes such a key.
    fn window(&mut self, peer: Peer) -> Draft {
        let reliable = self.qp.transport == Transport::Rc;
        let theirs = self.oracle.tracks[peer.id].keys.iter();
        let theirs: Vec<u32> = theirs
            .filter(|(_, key)| key.open)
            .map(|(key, _)| *key)
            .collect();
        let ours = self.oracle.tracks[self.qp.id].keys.iter();
        let ours: Vec<u32> = ours
            .filter(|(_, key)| key.open && key.users == 0)
            .map(|(key, _)| *key)
            .collect();
        let rng = &mut self.qp.app.rng;
        match rng.below(4) {
            0 if reliable && !theirs.is_empty() => {
                let key = rng.pick(&theirs);
                self.send_invalidate(peer, key)
            }
            1 if !ours.is_empty() => {
                let number = rng.pick(&ours);
                let key = self.oracle.tracks[self.qp.id].keys.get_mut(&number);
                key.expect("it was looked for").open = false;
                let op = LocalOp::Invalidate { rkey: Rkey(number) };
                let completes = CompletionOp::LocalInvalidate;
                let mut draft = Draft::new(SendOp::Local(op), completes, self.qp.app.source, 0);
                draft.key = KeyChange::Closed(number);
                draft
            }
            _ => self.open(),
        }
    }

    fn send_invalidate(&mut self, peer: Peer, number: u32) -> Draft {
        let key = self.oracle.tracks[peer.id].keys.get_mut(&number);
        key.expect("it was looked for").open = false;
        let mut draft = self.send(None);
        let rkey = Rkey(number);
        draft.op = SendOp::SendInvalidate { rkey };
        draft.key = KeyChange::Closed(number);
        draft.fence = true; // READs by the key must be over.
        if let Some(arrival) = &mut draft.arrival {
            (arrival.imm, arrival.invalidates) = (None, Some(rkey));
        }
        draft
    }

    fn open(&mut self) -> Draft {
        *self.next_key += 0x101;
        let key = *self.next_key;
        let model_len = self.oracle.tracks[self.qp.id].model.len();
        let rng = &mut self.qp.app.rng;
        // Never empty, and without the words for atomics.
        let room = model_len - 8 * WORDS;
        let len = 1 + rng.index(room);
        let at = rng.index(room - len + 1);
        let iova = rng.next() & 0xff_ffff_ffff;
        let region = Region {
            owner: self.qp.id,
            iova,
            at: self.oracle.tracks[self.qp.id].target + at,
            len,
            rights: Rights::ALL,
            revocable: true,
        };
        self.memory.planned.insert(key, region);
        let opened = Key {
            at,
            len,
            iova,
            open: false,
            closed: false,
            users: 0,
        };
        self.oracle.tracks[self.qp.id].keys.insert(key, opened);
        let (op, completes) = if rng.percent(50) {
            let bind = Bind {
                window: Rkey(1),
                key: Rkey(key),
                lkey: Lkey(1),
                iova: Iova(iova),
                length: len as u64,
                access: 0,
            };
            (LocalOp::Bind(bind), CompletionOp::BindWindow)
        } else {
            let register = Register {
                key: Rkey(key),
                iova: Iova(iova),
                access: 0,
            };
            (LocalOp::Register(register), CompletionOp::Register)
        };
        let mut draft = Draft::new(SendOp::Local(op), completes, self.qp.app.source, 0);
        draft.key = KeyChange::Opened(key);
        draft
    }

    // ---- requests that must fail -----------------------------------------------

    /// Drafts a request that must fail. Returns `None` if it is not available for the drawn kind.
    fn draft_fault(&mut self) -> Option<Draft> {
        match (self.qp.transport, self.peer) {
            (Transport::Rc, Some(peer)) => self.fault_of_reliable(peer),
            _ => Some(self.local_fault()),
        }
    }

    /// Drafts a request with a local fault, on any transport.
    fn local_fault(&mut self) -> Draft {
        let kind = self.qp.app.rng.below(5);
        if kind == 4 && self.qp.transport == Transport::Ud {
            let len = self.qp.mtu.bytes() as usize + 1;
            let len = len.min(self.qp.app.source_len);
            if len > self.qp.mtu.bytes() as usize {
                return self.send(Some(len)).fails(Status::LocalLength);
            }
        }
        if let (4, Some(peer), Transport::Uc) = (kind, self.peer, self.qp.transport) {
            let mut draft = self.read(peer).fails(Status::LocalQpOperation);
            // It has no result.
            if let Answer::Bytes { at, .. } = std::mem::replace(&mut draft.answer, Answer::None) {
                self.oracle.tracks[self.qp.id].free_slots.push(at);
            }
            return draft;
        }
        if let (3, Transport::Rc | Transport::Uc) = (kind, self.qp.transport) {
            let op = LocalOp::Invalidate { rkey: Rkey(3) };
            let completes = CompletionOp::LocalInvalidate;
            let draft = Draft::new(SendOp::Local(op), completes, self.qp.app.source, 0);
            return draft.fails(Status::LocalQpOperation);
        }
        let mut draft = self.send(Some(1)).fails(Status::LocalProtection);
        if kind == 0 {
            draft.gone = true;
        } else {
            draft.bad = true;
        }
        if kind == 2 {
            draft = draft.fails(Status::LocalQpOperation);
        }
        // No receiver gets it.
        let dest = draft.arrival.take().map(|arrival| arrival.dest);
        if self.qp.transport == Transport::Ud && dest.is_some() {
            draft.bad |= !draft.gone;
        }
        draft
    }

    fn fault_of_reliable(&mut self, peer: Peer) -> Option<Draft> {
        let remote = |key: u32, iova: u64| Remote {
            iova: Iova(iova),
            rkey: Rkey(key),
        };
        let len = 1 + self.length(self.qp.app.max_bytes - 1);
        let at = self.source(len);
        let write = |remote| SendOp::Write { remote, imm: None };
        let access = Status::RemoteAccess;
        let write_fails =
            |remote| Some(Draft::new(write(remote), CompletionOp::Write, at, len).fails(access));
        match self.qp.app.rng.below(12) {
            0 => write_fails(remote(0xdead, peer.iova)),
            1 => {
                let beyond = (peer.target_len - len + 1) as u64;
                write_fails(remote(peer.key, peer.iova + beyond))
            }
            2 => write_fails(remote(peer.read_key, peer.iova)),
            3 => {
                let keys = self.oracle.tracks[peer.id].keys.iter();
                let mut closed = keys.filter(|(_, key)| key.closed);
                let (number, key) = closed.next()?;
                let remote = remote(*number, key.iova);
                let mut draft = Draft::new(write(remote), CompletionOp::Write, at, 1);
                draft.fails = Some(access);
                Some(draft)
            }
            4 => write_fails(remote(self.qp.app.key, self.qp.app.iova)),
            5 => {
                let at = self.slot();
                let remote = remote(peer.key, peer.iova + 1);
                let op = AtomicOp::FetchAdd { add: 1 };
                let op = SendOp::Atomic { remote, op };
                let draft = Draft::new(op, CompletionOp::FetchAdd, at, 8);
                self.oracle.tracks[self.qp.id].free_slots.push(at);
                Some(draft.fails(Status::RemoteInvalidRequest))
            }
            6 => {
                let more = self.qp.app.source_len - self.qp.app.max_bytes;
                let beyond = self.qp.app.rng.index(more) * self.qp.app.rng.index(2);
                let len = self.qp.app.max_bytes + 1 + beyond;
                Some(self.send(Some(len)).fails(Status::RemoteInvalidRequest))
            }
            7 => {
                let mut draft = self.send(None);
                let rkey = Rkey(peer.key); // Which may not be invalidated.
                draft.op = SendOp::SendInvalidate { rkey };
                if let Some(arrival) = &mut draft.arrival {
                    arrival.imm = None;
                }
                Some(draft.fails(access))
            }
            8 => {
                let remote = remote(peer.key, peer.iova);
                let flush = Flush {
                    placement: Placement {
                        global: false,
                        persistent: true,
                    },
                    whole_region: false,
                };
                let op = SendOp::Flush { remote, flush };
                let draft = Draft::new(op, CompletionOp::Flush, self.qp.app.source, len);
                Some(draft.fails(Status::RemoteInvalidRequest))
            }
            9 => {
                let mut draft = self.read(peer);
                if draft.len == 0 {
                    let Answer::Bytes { at, .. } = draft.answer else {
                        return None;
                    };
                    self.oracle.tracks[self.qp.id].free_slots.push(at);
                    return None;
                }
                draft.gone = true;
                Some(draft.fails(Status::LocalProtection))
            }
            _ => Some(self.local_fault()),
        }
    }
}
