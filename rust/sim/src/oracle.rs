// SPDX-License-Identifier: GPL-2.0

//! The oracle: the required results of posted work, by rules of its own.
//!
//! It knows the posted and the completed work, the memory, and the faults of the network, but not
//! the implementation. Connected queue pairs execute work in order. So a model of the peer's memory
//! predicts the effect and the result of each request:
//!
//! - Every send completes once, in order. An unsignalled send completes with the next signalled
//!   one. A completion matches its request. A request that must fail fails with the required
//!   status.
//! - Any other failure needs a reason: the queue pair was in ERR, the peer was gone, or so many
//!   packets were lost since there was progress that the requester was right to give up.
//! - A READ or atomic has the result of the model when it completes. A receive has the data of the
//!   peer's next message when it completes. On a reliable connection the message's send does not
//!   complete before.
//! - In the end, memory matches the model. Writable memory has the effects of all completed
//!   requests, and those of a part of the failed requests, executed in order. All other memory is
//!   unchanged. The shared counters have counted each addition once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use roce::completion::{Completion, CompletionOp, Status};
use roce::event::Event;
use roce::limits::{GRH_BYTES, RNR_RETRY_INFINITE};
use roce::num::{Imm, Qpn, Rkey};
use roce::opcode::Transport;
use roce::wr::AtomicOp;

use crate::memory::{apply, Memory};
use crate::packet::{self, Address};

/// The effect of a send on the memory that the peer opened. Places are from its start.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Nothing.
    None,
    /// A WRITE.
    Write {
        /// The place.
        at: usize,
        /// The data.
        data: Vec<u8>,
    },
    /// An atomic operation.
    Atomic {
        /// The place.
        at: usize,
        /// The operation.
        op: AtomicOp,
    },
}

/// The data that a send brings to its own memory.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Nothing.
    None,
    /// The result of a READ or an atomic.
    Bytes {
        /// The destination.
        at: usize,
        /// The result of the model, in the order of the requests.
        expected: Vec<u8>,
        /// The source in the peer's memory, if that may change.
        from: Option<usize>,
        /// Later WRITEs that did not wait, whose data the result may have instead.
        others: Vec<(usize, Vec<u8>)>,
        /// The result may not have the data of requests posted from now on: they wait.
        closed: bool,
    },
    /// The result of a fetch-and-add of one on a shared counter.
    Counter {
        /// The destination.
        at: usize,
        /// The counter: a node and the number of the counter.
        counter: (usize, usize),
    },
}

/// A message that takes a receive.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The queue pair that it is for.
    pub dest: usize,
    /// The data of a SEND.
    pub data: Option<Vec<u8>>,
    /// The place and data of a WRITE with immediate data.
    pub written: Option<(usize, Vec<u8>)>,
    /// Immediate data.
    pub imm: Option<Imm>,
    /// The key that it has the receiver invalidate.
    pub invalidates: Option<Rkey>,
    /// It asks for an event.
    pub solicited: bool,
}

/// A send work request and its required result.
#[derive(Clone, Debug)]
pub struct Work {
    /// Its name.
    pub wr_id: u64,
    /// The kind of its completion.
    pub op: CompletionOp,
    /// Bytes of it.
    pub length: u32,
    /// It has a completion of its own.
    pub signaled: bool,
    /// The effect on the peer's memory.
    pub effect: Effect,
    /// The data for its own memory.
    pub answer: Answer,
    /// The message that the peer receives by it.
    pub arrival: Option<Arrival>,
    /// How it must fail, if it must.
    pub fails: Option<Status>,
    /// The change of a key when it is done.
    pub key: KeyChange,
}

/// The change of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyChange {
    /// Nothing.
    None,
    /// It may be used by the peer from now on.
    Opened(u32),
    /// It is in use until this is done.
    Used(u32),
    /// It is gone.
    Closed(u32),
}

/// A send that did not complete.
#[derive(Debug)]
struct Pending {
    work: Work,
    /// Packets of the connection that were harmed before it was posted, and RNR NAKs.
    harm: u64,
    rnr: u64,
}

/// The state of a key.
#[derive(Clone, Debug)]
pub struct Key {
    /// Where in the peer's memory it starts.
    pub at: usize,
    /// How many bytes it opens.
    pub len: usize,
    /// The address of its first byte.
    pub iova: u64,
    /// It is open, and no posted request closes it.
    pub open: bool,
    /// It was closed.
    pub closed: bool,
    /// Requests that use it and are not complete.
    pub users: u32,
}

/// A receive.
#[derive(Debug)]
pub struct Receive {
    /// Where it is.
    pub at: usize,
    /// Its bytes.
    pub len: u32,
    /// How it must fail, if anything takes it.
    pub fails: Option<Status>,
    /// The poster.
    poster: usize,
    /// The queue pair that took it.
    taken_by: Option<usize>,
}

/// Why a queue pair does nothing any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It does.
    Alive,
    /// It is in ERR.
    Error,
    /// It was destroyed.
    Destroyed,
}

/// The state of a queue pair.
#[derive(Debug)]
pub struct Track {
    /// The node that it is on.
    pub node: usize,
    /// Its transport.
    pub transport: Transport,
    /// Its number.
    pub qpn: Qpn,
    /// The peer.
    pub peer: Option<usize>,
    /// Retries that it has.
    pub retry_cnt: u8,
    /// Retries that it has for a receiver that is not ready.
    pub rnr_retry: u8,
    /// The peer is the adversary. Its actions cannot be predicted.
    pub attacked: bool,
    /// The places and the largest length of responses that the adversary makes up.
    pub answers: (Vec<usize>, usize),
    /// The place of the memory that its peer may write.
    pub target: usize,
    /// That memory when all posted requests are done.
    pub model: Vec<u8>,
    /// That memory when all completed requests are done.
    base: Vec<u8>,
    /// Effects that may have changed that memory, too, in order.
    uncertain: Vec<Effect>,
    /// Sends that did not complete.
    works: VecDeque<Pending>,
    /// Messages that take a receive of the peer, of a datagram's or unreliable connection's all.
    arrivals: VecDeque<Arrival>,
    /// Counts of messages that were posted, that were delivered, and whose send completed.
    arrivals_posted: usize,
    arrivals_delivered: usize,
    arrivals_confirmed: usize,
    /// Of an unreliable transport: the place among the arrivals after the last one delivered, by
    /// receiver.
    cursors: BTreeMap<usize, usize>,
    /// Keys that open parts of `target`.
    pub keys: BTreeMap<u32, Key>,
    /// How it ended.
    pub end: End,
    /// A send failed, and since then all are flushed.
    send_failed: bool,
    /// A send failed once.
    ever_failed: bool,
    /// A receive failed, and since then all are flushed.
    recv_failed: bool,
    /// A send that must fail was posted.
    faulty: bool,
    /// A receive that must fail was taken.
    bad_receive: Option<Status>,
    /// Packets of the connection that the network harmed.
    pub harm: u64,
    /// Packets that were marked since it told its peer.
    marks: u64,
    /// When it told its peer of congestion.
    notified_at: Option<u64>,
    /// Packets that found no receive.
    no_receive: u64,
    /// RNR NAKs that it got.
    rnr: u64,
    /// Free places for responses.
    pub free_slots: Vec<usize>,
    /// Completions of sends.
    pub completed: u64,
    /// Receives that completed.
    pub receives_done: u64,
}

/// A counter that all work on.
#[derive(Debug, Default)]
struct Counter {
    at: usize,
    found: BTreeSet<u64>,
    uncertain: u64,
}

/// The oracle.
pub struct Oracle {
    /// Queue pairs.
    pub tracks: Vec<Track>,
    /// Receives that did not complete.
    receives: BTreeMap<u64, Receive>,
    /// Receives that completed and are to be replaced: of which queue pair, where.
    pub freed: Vec<(usize, usize)>,
    counters: BTreeMap<(usize, usize), Counter>,
    /// The required memory, by node, without writable memory.
    images: Vec<Vec<u8>>,
    /// The first fault that was found.
    failure: Option<String>,
    /// The network keeps packets in order and does not double them.
    pub in_order: bool,
    /// Requesters may give up though nothing was lost.
    pub may_give_up: bool,
    /// The counts of events, for the `sees` of plans.
    pub events: BTreeMap<&'static str, u64>,
}

impl Track {
    /// Creates the state of a queue pair that has done nothing yet.
    pub fn new(node: usize, transport: Transport, qpn: Qpn) -> Self {
        Self {
            node,
            transport,
            qpn,
            peer: None,
            retry_cnt: 0,
            rnr_retry: 0,
            attacked: false,
            answers: (Vec::new(), 0),
            target: 0,
            model: Vec::new(),
            base: Vec::new(),
            uncertain: Vec::new(),
            works: VecDeque::new(),
            arrivals: VecDeque::new(),
            arrivals_posted: 0,
            arrivals_delivered: 0,
            arrivals_confirmed: 0,
            cursors: BTreeMap::new(),
            keys: BTreeMap::new(),
            end: End::Alive,
            send_failed: false,
            ever_failed: false,
            recv_failed: false,
            faulty: false,
            bad_receive: None,
            harm: 0,
            marks: 0,
            notified_at: None,
            no_receive: 0,
            rnr: 0,
            free_slots: Vec::new(),
            completed: 0,
            receives_done: 0,
        }
    }

    fn is_reliable(&self) -> bool {
        self.transport == Transport::Rc
    }

    /// Sends that did not complete.
    pub fn pending(&self) -> usize {
        self.works.len()
    }
}

impl Oracle {
    /// Creates an oracle without queue pairs.
    pub fn new(in_order: bool) -> Self {
        Self {
            tracks: Vec::new(),
            receives: BTreeMap::new(),
            freed: Vec::new(),
            counters: BTreeMap::new(),
            images: Vec::new(),
            failure: None,
            in_order,
            may_give_up: false,
            events: BTreeMap::new(),
        }
    }

    /// Returns the first fault that was found.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Notes the first fault.
    pub fn fail(&mut self, what: String) {
        self.failure.get_or_insert(what);
    }

    fn fail_qp(&mut self, qp: usize, what: String) {
        let qpn = self.tracks[qp].qpn.get();
        self.fail(format!("queue pair {qpn:#x}: {what}"));
    }

    fn count(&mut self, what: &'static str) {
        *self.events.entry(what).or_default() += 1;
    }

    /// Starts to watch the memory, after its setup.
    pub fn begin<'a>(&mut self, memories: impl Iterator<Item = &'a Memory>) {
        self.images = memories.map(|memory| memory.bytes.clone()).collect();
        for track in &mut self.tracks {
            let range = track.target..track.target + track.model.len();
            let now = &self.images[track.node][range];
            track.model.copy_from_slice(now);
            track.base = now.to_vec();
        }
    }

    /// Adds a counter at `at` of a node, which is 0.
    pub fn add_counter(&mut self, counter: (usize, usize), at: usize) {
        let new = Counter {
            at,
            ..Counter::default()
        };
        self.counters.insert(counter, new);
    }

    /// Returns the required memory of a node.
    pub fn image(&self, node: usize) -> &[u8] {
        &self.images[node]
    }

    // ---- sends -------------------------------------------------------------

    /// Notes a posted send. `fence`: it waits for READs and atomics before it.
    pub fn send_posted(&mut self, qp: usize, work: Work, fence: bool) {
        let track = &mut self.tracks[qp];
        let peer = track.peer;
        for before in &mut track.works {
            if let Answer::Bytes { closed, .. } = &mut before.work.answer {
                *closed |= fence;
            }
        }
        if let KeyChange::Used(key) = work.key {
            if let Some(key) = peer.and_then(|peer| self.tracks[peer].keys.get_mut(&key)) {
                key.users += 1;
            }
        }
        if let Some(peer) = peer {
            let model = &mut self.tracks[peer].model;
            let changed = match &work.effect {
                Effect::None => None,
                Effect::Write { at, data } => Some((*at, data.len())),
                Effect::Atomic { at, .. } => Some((*at, 8)),
            };
            work.effect.apply(model);
            if let Some((at, len)) = changed {
                let bytes = model[at..at + len].to_vec();
                self.may_be_seen(qp, at, &bytes);
            }
        }
        let track = &mut self.tracks[qp];
        track.faulty |= work.fails.is_some();
        if let Some(arrival) = work.arrival.clone() {
            track.arrivals_posted += 1;
            track.arrivals.push_back(arrival);
        }
        track.works.push_back(Pending {
            work,
            harm: track.harm,
            rnr: track.rnr,
        });
        self.count("posted");
    }

    /// Returns the destination and the data of the last posted send, if it is a READ with only one
    /// possible result.
    pub fn last_read(&self, qp: usize) -> Option<(usize, Vec<u8>)> {
        match &self.tracks[qp].works.back()?.work.answer {
            Answer::Bytes {
                at,
                expected,
                from: Some(_),
                others,
                ..
            } if others.is_empty() => Some((*at, expected.clone())),
            _ => None,
        }
    }

    /// Notes an effect whose data earlier READs may return.
    fn may_be_seen(&mut self, qp: usize, at: usize, bytes: &[u8]) {
        for before in &mut self.tracks[qp].works {
            match &mut before.work.answer {
                Answer::Bytes {
                    from: Some(from),
                    expected,
                    others,
                    closed: false,
                    ..
                } if *from < at + bytes.len() && at < *from + expected.len() => {
                    others.push((at, bytes.to_vec()));
                }
                _ => {}
            }
        }
    }

    /// Notes that the protocol gave a send back.
    pub fn retired(&mut self, qp: usize, completion: Option<Completion>, memory: &mut Memory) {
        let Some(completion) = completion else {
            return; // It completes with the next signalled send, or at the end.
        };
        self.sent(qp, &completion, memory);
    }

    /// Checks the completion of a send.
    fn sent(&mut self, qp: usize, completion: &Completion, memory: &mut Memory) {
        loop {
            let Some(pending) = self.tracks[qp].works.pop_front() else {
                return self.fail_qp(qp, format!("{completion:?} is of nothing that was posted"));
            };
            if pending.work.wr_id == completion.wr_id {
                return self.complete(qp, pending, completion, memory);
            }
            let work = pending.work;
            if work.signaled {
                let what = format!("{completion:?} came before that of {:#x}", work.wr_id);
                return self.fail_qp(qp, what);
            }
            self.succeed(qp, work, memory);
        }
    }

    fn complete(
        &mut self,
        qp: usize,
        pending: Pending,
        completion: &Completion,
        memory: &mut Memory,
    ) {
        let work = &pending.work;
        self.tracks[qp].completed += 1;
        if completion.qpn != self.tracks[qp].qpn {
            self.fail_qp(qp, format!("{completion:?} names another queue pair"));
        }
        match completion.status {
            Status::Success => {
                let said = (completion.op, completion.byte_len);
                let asked = (work.op, work.length);
                if said != asked || !work.signaled {
                    self.fail_qp(qp, format!("{completion:?} is no completion of {work}"));
                }
                self.succeed(qp, pending.work, memory);
            }
            Status::Flushed => self.flushed(qp, pending.work, memory),
            status => self.failed(qp, pending, status, memory),
        }
    }

    fn succeed(&mut self, qp: usize, work: Work, memory: &mut Memory) {
        if self.tracks[qp].send_failed {
            self.fail_qp(qp, format!("{work} succeeded after one had failed"));
        }
        if let Some(status) = work.fails {
            self.fail_qp(qp, format!("{work} succeeded instead of {status:?}"));
        }
        self.check_answer(qp, &work, memory);
        self.release(qp, &work, memory);
        let track = &mut self.tracks[qp];
        if work.arrival.is_some() {
            track.arrivals_confirmed += 1;
            if track.is_reliable()
                && !track.attacked
                && track.arrivals_delivered < track.arrivals_confirmed
            {
                let what = format!("{work} is complete, which nobody received");
                return self.fail_qp(qp, what);
            }
        }
        self.count("succeeded");
        let track = &self.tracks[qp];
        let Some(peer) = track.peer else { return };
        if track.is_reliable() {
            work.effect.apply(&mut self.tracks[peer].base);
        } else if !matches!(work.effect, Effect::None) {
            self.tracks[peer].uncertain.push(work.effect.clone());
        }
        match work.key {
            KeyChange::None => {}
            KeyChange::Opened(key) => {
                if let Some(key) = self.tracks[qp].keys.get_mut(&key) {
                    key.open = true;
                }
                self.count("bound");
            }
            KeyChange::Used(key) => {
                if let Some(key) = self.tracks[peer].keys.get_mut(&key) {
                    key.users -= 1;
                }
            }
            KeyChange::Closed(key) => {
                // The key belongs to the peer of the queue pair that has it invalidated.
                let owner = if work.arrival.is_some() { peer } else { qp };
                if let Some(key) = self.tracks[owner].keys.get_mut(&key) {
                    key.closed = true;
                }
                self.count("invalidated");
            }
        }
    }

    /// Checks the result of a READ or atomic.
    fn check_answer(&mut self, qp: usize, work: &Work, memory: &Memory) {
        match &work.answer {
            Answer::None => {}
            Answer::Bytes { at, expected, .. } => {
                let found = memory.get(*at..*at + expected.len());
                let first = (0..found.len()).find(|&i| !work.answer.may_be(i, found[i]));
                if let Some(first) = first {
                    let what = format!(
                        "{work} found {:#04x} and not {:#04x} at byte {first}",
                        found[first], expected[first],
                    );
                    self.fail_qp(qp, what);
                }
            }
            Answer::Counter { at, counter } => {
                let found = memory.word(*at);
                let is_new = match self.counters.get_mut(counter) {
                    Some(counter) => counter.found.insert(found),
                    None => false,
                };
                if !is_new {
                    self.fail_qp(qp, format!("a counter was twice at {found}"));
                }
            }
        }
    }

    /// Frees the destination of a result.
    fn release(&mut self, qp: usize, work: &Work, memory: &Memory) {
        let (at, len) = match &work.answer {
            Answer::None => return,
            Answer::Bytes { at, expected, .. } => (*at, expected.len()),
            Answer::Counter { at, .. } => (*at, 8),
        };
        let node = self.tracks[qp].node;
        self.images[node][at..at + len].copy_from_slice(memory.get(at..at + len));
        self.tracks[qp].free_slots.push(at);
    }

    fn flushed(&mut self, qp: usize, work: Work, memory: &mut Memory) {
        self.fail_sends(qp);
        self.count("flushed");
        self.give_up(qp, work, memory);
    }

    fn failed(&mut self, qp: usize, pending: Pending, status: Status, memory: &mut Memory) {
        let work = &pending.work;
        if self.tracks[qp].send_failed {
            self.fail_qp(qp, format!("{work} failed as {status:?}, not the first"));
        }
        if !self.may_fail(qp, &pending, status) {
            let track = &self.tracks[qp];
            let what = format!(
                "{work} failed as {status:?} for no reason: {} packets harmed, {} RNR NAKs",
                track.harm - pending.harm,
                track.rnr - pending.rnr
            );
            self.fail_qp(qp, what);
        }
        self.fail_sends(qp);
        self.count(match status {
            Status::TransportRetryExceeded => "given up",
            Status::RnrRetryExceeded => "given up waiting",
            _ => "failed",
        });
        self.give_up(qp, pending.work, memory);
    }

    fn fail_sends(&mut self, qp: usize) {
        self.tracks[qp].send_failed = true;
        self.tracks[qp].ever_failed = true;
    }

    fn may_fail(&self, qp: usize, pending: &Pending, status: Status) -> bool {
        let work = &pending.work;
        let track = &self.tracks[qp];
        if track.attacked || work.fails == Some(status) {
            return true;
        }
        let Some(peer) = track.peer.map(|peer| &self.tracks[peer]) else {
            return false;
        };
        match status {
            Status::TransportRetryExceeded => {
                let is_gone = peer.end != End::Alive || peer.recv_failed || peer.send_failed;
                self.may_give_up
                    || is_gone
                    || track.harm - pending.harm > u64::from(track.retry_cnt)
            }
            Status::RnrRetryExceeded => {
                let times = track.rnr - pending.rnr;
                times > u64::from(track.rnr_retry) && track.rnr_retry != RNR_RETRY_INFINITE
            }
            // The peer's receive failed.
            Status::RemoteOperation | Status::RemoteInvalidRequest => {
                work.arrival.is_some() && peer.bad_receive == Some(status)
            }
            _ => false,
        }
    }

    /// Handles a send that failed. A part of it may have been executed.
    fn give_up(&mut self, qp: usize, work: Work, memory: &mut Memory) {
        let node = self.tracks[qp].node;
        if let Answer::Bytes { at, expected, .. } = &work.answer {
            let found = memory.get(*at..*at + expected.len());
            let before = &self.images[node][*at..*at + expected.len()];
            let is_strange = |&i: &usize| found[i] != before[i] && !work.answer.may_be(i, found[i]);
            if let Some(first) = (0..found.len()).find(is_strange) {
                let what = format!("{work} failed, but changed byte {first}");
                self.fail_qp(qp, what);
            }
        }
        if let Answer::Counter { counter, .. } = &work.answer {
            if let Some(counter) = self.counters.get_mut(counter) {
                counter.uncertain += 1;
            }
        }
        self.release(qp, &work, memory);
        if let (Some(peer), false) = (self.tracks[qp].peer, matches!(work.effect, Effect::None)) {
            self.tracks[peer].uncertain.push(work.effect);
        }
    }

    // ---- receives ----------------------------------------------------------

    /// Notes a posted receive.
    pub fn receive_posted(
        &mut self,
        poster: usize,
        wr_id: u64,
        at: usize,
        len: u32,
        fails: Option<Status>,
    ) {
        let receive = Receive {
            poster,
            at,
            len,
            fails,
            taken_by: None,
        };
        self.receives.insert(wr_id, receive);
    }

    /// Notes that a queue pair took a receive.
    pub fn receive_taken(&mut self, qp: usize, wr_id: u64) {
        match self.receives.get_mut(&wr_id) {
            Some(receive) if receive.taken_by.is_none() => receive.taken_by = Some(qp),
            _ => self.fail_qp(qp, format!("took the receive {wr_id:#x} again")),
        }
    }

    /// Notes a packet that found no receive.
    pub fn no_receive(&mut self, qp: usize) {
        self.tracks[qp].no_receive += 1;
        self.count("found no receive");
    }

    /// Notes a receive that was given back without a completion.
    pub fn discarded(&mut self, qp: usize, wr_id: u64, memory: &Memory) {
        match self.receives.remove(&wr_id) {
            Some(receive) => self.forget_receive(qp, &receive, memory),
            None => self.fail_qp(qp, format!("gave the receive {wr_id:#x} back twice")),
        }
    }

    /// Checks the completion of a receive.
    pub fn received(
        &mut self,
        qp: usize,
        completion: Completion,
        memory: &Memory,
        source: Address,
    ) {
        let Some(receive) = self.receives.remove(&completion.wr_id) else {
            return self.fail_qp(qp, format!("{completion:?} is of no receive"));
        };
        if receive.taken_by != Some(qp) || completion.qpn != self.tracks[qp].qpn {
            self.fail_qp(
                qp,
                format!("{completion:?} is of another queue pair's receive"),
            );
        }
        self.tracks[qp].receives_done += 1;
        if completion.status != Status::Success {
            self.receive_failed(qp, &receive, &completion, memory);
            return;
        }
        if self.tracks[qp].recv_failed {
            self.fail_qp(qp, format!("{completion:?} after one had failed"));
        }
        self.count("received");
        let result = match self.tracks[qp].transport {
            _ if self.tracks[qp].attacked => Ok(()),
            Transport::Rc => self.deliver_reliable(qp, &receive, &completion, memory),
            Transport::Uc => self.deliver_unreliable(qp, &receive, &completion, memory),
            Transport::Ud => self.deliver_datagram(qp, &receive, &completion, memory, source),
        };
        if let Err(what) = result {
            self.fail_qp(qp, format!("{completion:?}: {what}"));
        }
        // Memory behind the message is from others that got no further.
        let len = match self.tracks[qp].transport {
            _ if self.tracks[qp].attacked => receive.len,
            Transport::Rc if completion.op == CompletionOp::RecvRdmaWithImm => 0,
            Transport::Rc => completion.byte_len.min(receive.len),
            Transport::Uc | Transport::Ud => receive.len,
        };
        self.accept(qp, &receive, len, memory);
    }

    /// Accepts the first `len` bytes of a receive as right.
    fn accept(&mut self, qp: usize, receive: &Receive, len: u32, memory: &Memory) {
        let range = receive.at..receive.at + len as usize;
        let node = self.tracks[qp].node;
        self.images[node][range.clone()].copy_from_slice(memory.get(range));
        self.freed.push((receive.poster, receive.at));
    }

    fn forget_receive(&mut self, qp: usize, receive: &Receive, memory: &Memory) {
        self.accept(qp, receive, receive.len, memory);
    }

    fn receive_failed(
        &mut self,
        qp: usize,
        receive: &Receive,
        completion: &Completion,
        memory: &Memory,
    ) {
        let track = &self.tracks[qp];
        let next = track
            .peer
            .and_then(|peer| self.tracks[peer].arrivals.front());
        let told = match completion.status {
            Status::Flushed => None,
            _ if track.recv_failed => return self.fail_qp(qp, format!("{completion:?}, too late")),
            status if receive.fails == Some(status) => Some(Status::RemoteOperation),
            Status::LocalLength if next.is_some_and(|next| next.len() > receive.len) => {
                Some(Status::RemoteInvalidRequest)
            }
            // A key that it may not invalidate.
            Status::RemoteInvalidRequest if self.peer_is_faulty(qp) => None,
            _ if track.attacked => None,
            _ => return self.fail_qp(qp, format!("{completion:?} for no reason")),
        };
        // The receive that was taken first may have a part of the message.
        let is_first = !track.recv_failed;
        if is_first && track.is_reliable() && !track.attacked {
            let before = &self.images[track.node][receive.at..receive.at + receive.len as usize];
            let found = memory.get(receive.at..receive.at + receive.len as usize);
            let same = found.iter().zip(before).rev();
            let changed = found.len() - same.take_while(|(a, b)| a == b).count();
            let data = next.and_then(|next| next.data.as_deref()).unwrap_or(&[]);
            let is_part =
                (0..changed).all(|i| found[i] == before[i] || data.get(i) == Some(&found[i]));
            if !is_part {
                self.fail_qp(qp, format!("{completion:?} has what nobody sent"));
            }
        }
        let track = &mut self.tracks[qp];
        track.bad_receive = track.bad_receive.or(told);
        track.recv_failed = true;
        self.count("receives failed");
        let len = if is_first { receive.len } else { 0 };
        self.accept(qp, receive, len, memory);
    }

    fn peer_is_faulty(&self, qp: usize) -> bool {
        let peer = self.tracks[qp].peer.map(|peer| &self.tracks[peer]);
        peer.is_some_and(|peer| peer.faulty)
    }

    fn deliver_reliable(
        &mut self,
        qp: usize,
        receive: &Receive,
        completion: &Completion,
        memory: &Memory,
    ) -> Result<(), &'static str> {
        let peer = self.tracks[qp].peer.ok_or("has no peer")?;
        let arrival = self.tracks[peer].arrivals.pop_front();
        self.tracks[peer].arrivals_delivered += 1;
        let arrival = arrival.ok_or("nobody sent it")?;
        self.check_arrival(qp, peer, &arrival, receive, completion, memory)
    }

    fn deliver_unreliable(
        &mut self,
        qp: usize,
        receive: &Receive,
        completion: &Completion,
        memory: &Memory,
    ) -> Result<(), &'static str> {
        let peer = self.tracks[qp].peer.ok_or("has no peer")?;
        self.find_arrival(qp, peer, receive, completion, memory)
    }

    fn deliver_datagram(
        &mut self,
        qp: usize,
        receive: &Receive,
        completion: &Completion,
        memory: &Memory,
        source: Address,
    ) -> Result<(), &'static str> {
        let node = (0..self.images.len()).find(|node| packet::address(*node) == source);
        let of_source = |track: &Track| Some(track.node) == node && track.qpn == completion.src_qp;
        let peer = self
            .tracks
            .iter()
            .position(of_source)
            .ok_or("nobody sent it")?;
        let header = memory.get(receive.at + 20..receive.at + GRH_BYTES as usize);
        if header[0] != 0x45 || header[12..16] != source || !completion.grh {
            return Err("its header is wrong");
        }
        self.find_arrival(qp, peer, receive, completion, memory)
    }

    /// Finds a message that may be lost. It is one of the sent messages, and none before the last
    /// one that came, unless the network reorders.
    fn find_arrival(
        &mut self,
        qp: usize,
        peer: usize,
        receive: &Receive,
        completion: &Completion,
        memory: &Memory,
    ) -> Result<(), &'static str> {
        let from = match self.tracks[peer].cursors.get(&qp) {
            Some(cursor) if self.in_order => *cursor,
            _ => 0,
        };
        let arrivals = &self.tracks[peer].arrivals;
        let found = (from..arrivals.len()).find(|index| {
            let arrival = &arrivals[*index];
            arrival.dest == qp
                && self
                    .check_arrival(qp, peer, arrival, receive, completion, memory)
                    .is_ok()
        });
        let found = found.ok_or("nobody sent that, then")?;
        self.tracks[peer].cursors.insert(qp, found + 1);
        self.tracks[peer].arrivals_delivered += 1;
        Ok(())
    }

    fn check_arrival(
        &self,
        qp: usize,
        peer: usize,
        arrival: &Arrival,
        receive: &Receive,
        completion: &Completion,
        memory: &Memory,
    ) -> Result<(), &'static str> {
        let header = match self.tracks[qp].transport {
            Transport::Ud => GRH_BYTES,
            Transport::Rc | Transport::Uc => 0,
        };
        let op = match arrival.data {
            Some(_) => CompletionOp::Recv,
            None => CompletionOp::RecvRdmaWithImm,
        };
        let said = (completion.op, completion.imm, completion.invalidated);
        if said != (op, arrival.imm, arrival.invalidates)
            || completion.byte_len != arrival.len() + header
            || completion.src_qp != self.tracks[peer].qpn
            || completion.solicited != arrival.solicited
        {
            return Err("is not the message that is next");
        }
        if let Some(data) = &arrival.data {
            let start = receive.at + header as usize;
            if memory.get(start..start + data.len()) != data {
                return Err("has other bytes than were sent");
            }
        }
        if let Some((at, data)) = &arrival.written {
            let start = self.tracks[qp].target + at;
            if memory.get(start..start + data.len()) != data {
                return Err("is there before what was written");
            }
        }
        Ok(())
    }

    // ---- other events -----------------------------------------------------------

    /// Notes that the network harmed a packet of a queue pair.
    pub fn harmed(&mut self, qp: usize) {
        self.count("harmed");
        self.tracks[qp].harm += 1;
        if let Some(peer) = self.tracks[qp].peer {
            self.tracks[peer].harm += 1;
        }
    }

    /// Notes that a queue pair got an RNR NAK.
    pub fn told_to_wait(&mut self, qp: usize) {
        let track = &mut self.tracks[qp];
        track.rnr += 1;
        self.count("RNR NAKs");
    }

    /// Notes that a packet for a queue pair was marked on its way.
    pub fn marked(&mut self, qp: usize) {
        self.tracks[qp].marks += 1;
        self.count("marked");
    }

    /// Checks that a queue pair tells its peer of congestion only after a mark, and not too often.
    pub fn notified(&mut self, qp: usize, now: u64) {
        let track = &mut self.tracks[qp];
        // Its clock counts microseconds.
        let is_due = track.notified_at.is_none_or(|at| now - at > 49_000);
        let is_right = track.marks > 0 && is_due;
        track.marks = 0;
        track.notified_at = Some(now);
        if !is_right {
            self.fail_qp(qp, "sends CNPs too often".into());
        }
        self.count("CNPs sent");
    }

    /// Notes that a requester was told of congestion.
    pub fn congested(&mut self) {
        self.count("congested");
    }

    /// Notes a CNP that had no effect.
    pub fn ignored_notification(&mut self) {
        self.count("CNPs ignored");
    }

    /// Counts an event of the protocol.
    pub fn observed(&mut self, _qp: usize, event: Event) {
        self.count(match event {
            Event::DuplicateRequest => "duplicates",
            Event::OutOfSequenceRequest => "out of sequence",
            Event::SequenceNakReceived => "sequence NAKs",
            Event::ResponseGap => "response gaps",
            Event::AckTimeout => "timeouts",
            Event::Probe => "probes",
            Event::StaleResponse => "stale responses",
            Event::AckCoalesced => "coalesced",
            Event::MessageDropped => "dropped",
            _ => return,
        });
    }

    /// Notes that a queue pair was resumed after its send queue had failed alone.
    pub fn resumed(&mut self, qp: usize) {
        self.tracks[qp].send_failed = false;
        self.count("resumed");
    }

    /// Checks that a drained send queue has no request left that was begun.
    pub fn drained(&mut self, _qp: usize) {
        self.count("drained");
    }

    /// Notes that a queue pair ended.
    pub fn ended(&mut self, qp: usize, end: End) {
        self.tracks[qp].end = end;
    }

    /// Looks at a queue pair that is not in ERR, after something happened to it.
    pub fn audit(&mut self, qp: usize, may_have_failed_sends: bool) {
        let track = &self.tracks[qp];
        if track.recv_failed || (track.send_failed && !may_have_failed_sends) {
            self.fail_qp(qp, "goes on after a request failed".into());
        }
    }

    /// Notes that a queue pair in ERR was connected anew, to the adversary.
    pub fn revived(&mut self, qp: usize) {
        let track = &mut self.tracks[qp];
        track.end = End::Alive;
        track.send_failed = false;
        track.recv_failed = false;
        self.count("revived");
    }

    /// Notes that a responder failed by itself.
    pub fn refused(&mut self, qp: usize) {
        let track = &self.tracks[qp];
        if !track.attacked && track.bad_receive.is_none() && !self.peer_is_faulty(qp) {
            self.fail_qp(qp, "refused what is right".into());
        }
        self.count("refused");
    }

    // ---- the end -----------------------------------------------------------

    /// Checks the end: all possible work is done, and memory has the required contents.
    pub fn finish(&mut self, memories: &mut [&mut Memory]) {
        for qp in 0..self.tracks.len() {
            self.finish_sends(qp, memories[self.tracks[qp].node]);
        }
        for qp in 0..self.tracks.len() {
            self.finish_receives(qp);
        }
        self.finish_memory(memories);
    }

    fn finish_sends(&mut self, qp: usize, memory: &mut Memory) {
        let end = self.tracks[qp].end;
        while let Some(Pending { work, .. }) = self.tracks[qp].works.pop_front() {
            match end {
                End::Destroyed => self.give_up(qp, work, memory),
                _ if !work.signaled && !self.tracks[qp].send_failed => {
                    self.succeed(qp, work, memory);
                }
                _ => self.fail_qp(qp, format!("{work} never completed")),
            }
        }
    }

    fn finish_receives(&mut self, qp: usize) {
        let track = &self.tracks[qp];
        let Some(peer) = track.peer.map(|peer| &self.tracks[peer]) else {
            return;
        };
        let arrives = match peer.is_reliable() {
            true => track.end == End::Alive && peer.end == End::Alive,
            false => self.is_whole(track),
        };
        let missing = peer.arrivals_posted.saturating_sub(peer.arrivals_delivered);
        let (attacked, end) = (track.attacked, track.end);
        if !attacked && arrives && missing > 0 {
            self.fail_qp(qp, format!("{missing} messages never came"));
        }
        if end == End::Error {
            let mine = |receive: &&Receive| receive.taken_by == Some(qp);
            if self.receives.values().any(|receive| mine(&receive)) {
                self.fail_qp(qp, "a receive that it took never completed".into());
            }
        }
    }

    fn finish_memory(&mut self, memories: &mut [&mut Memory]) {
        for qp in 0..self.tracks.len() {
            self.finish_target(qp, memories);
        }
        let mut wrong = Vec::new();
        for ((node, number), counter) in &self.counters {
            let value = memories[*node].word(counter.at);
            let certain = counter.found.len() as u64;
            let highest = counter.found.last().map_or(0, |last| last + 1);
            if value < certain.max(highest) || value > certain + counter.uncertain {
                wrong.push(format!(
                    "counter {number} of node {node} is at {value} after {certain} additions, and {} \
                     that may have failed",
                    counter.uncertain
                ));
            }
            let place = counter.at..counter.at + 8;
            let word = value.to_ne_bytes();
            self.images[*node][place].copy_from_slice(&word);
        }
        for track in self.tracks.iter().filter(|track| track.attacked) {
            for at in &track.answers.0 {
                let range = *at..*at + track.answers.1;
                let found = memories[track.node].get(range.clone());
                self.images[track.node][range].copy_from_slice(found);
            }
        }
        for receive in self.receives.values() {
            // A message may have begun in it.
            if let Some(qp) = receive.taken_by {
                let node = self.tracks[qp].node;
                let range = receive.at..receive.at + receive.len as usize;
                let found = memories[node].get(range.clone());
                self.images[node][range].copy_from_slice(found);
            }
        }
        for (node, image) in self.images.iter().enumerate() {
            let found = &memories[node].bytes;
            if found != image {
                let at = (0..image.len()).find(|at| found[*at] != image[*at]);
                wrong.push(format!(
                    "memory of node {node} changed at {at:?}, where it may not"
                ));
            }
        }
        for what in wrong {
            self.fail(what);
        }
    }

    /// Returns true if all messages to a queue pair must have arrived, even without
    /// acknowledgement.
    fn is_whole(&self, track: &Track) -> bool {
        let Some(peer) = track.peer.map(|peer| &self.tracks[peer]) else {
            return false;
        };
        let ends = [track.end, peer.end];
        let is_lossless = track.harm == 0 && track.no_receive == 0 && self.in_order;
        is_lossless && ends == [End::Alive; 2] && !peer.ever_failed
    }

    /// Checks the memory that a peer may write.
    fn finish_target(&mut self, qp: usize, memories: &[&mut Memory]) {
        let track = &self.tracks[qp];
        let range = track.target..track.target + track.base.len();
        let found = memories[track.node].get(range.clone());
        let is_right = if track.attacked {
            true
        } else if track.is_reliable() {
            is_partly_done(&track.base, &track.uncertain, found)
        } else if self.is_whole(track) {
            let mut base = track.base.clone();
            for effect in &track.uncertain {
                effect.apply(&mut base);
            }
            base == found
        } else {
            is_some_of(&track.base, &track.uncertain, found)
        };
        self.images[track.node][range].copy_from_slice(found);
        if !is_right {
            self.fail_qp(
                qp,
                "what its peer may write is not what the peer wrote".into(),
            );
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            op, wr_id, length, ..
        } = self;
        write!(f, "{op:?} {wr_id:#x} of {length} bytes")
    }
}

impl Effect {
    /// Applies it.
    fn apply(&self, memory: &mut [u8]) {
        match self {
            Self::None => {}
            Self::Write { at, data } => memory[*at..*at + data.len()].copy_from_slice(data),
            Self::Atomic { at, op } => {
                let mut word = [0; 8];
                word.copy_from_slice(&memory[*at..*at + 8]);
                let new = apply(*op, u64::from_ne_bytes(word));
                memory[*at..*at + 8].copy_from_slice(&new.to_ne_bytes());
            }
        }
    }
}

impl Answer {
    /// Returns true if byte `i` of it may be `byte`.
    fn may_be(&self, i: usize, byte: u8) -> bool {
        let Self::Bytes {
            expected,
            from,
            others,
            ..
        } = self
        else {
            return true;
        };
        let place = from.unwrap_or_default() + i;
        let is_other = |(at, bytes): &(usize, Vec<u8>)| {
            place.checked_sub(*at).and_then(|i| bytes.get(i)) == Some(&byte)
        };
        expected[i] == byte || others.iter().any(is_other)
    }
}

impl Arrival {
    /// Returns bytes of the message.
    fn len(&self) -> u32 {
        let data = self.data.as_ref();
        let written = self.written.as_ref().map(|(_, data)| data);
        data.or(written).map_or(0, |data| data.len() as u32)
    }
}

/// Returns true if `found` is `base` after some of `effects` in order, the last perhaps in part.
fn is_partly_done(base: &[u8], effects: &[Effect], found: &[u8]) -> bool {
    let mut state = base.to_vec();
    if state == found {
        return true;
    }
    for effect in effects {
        if let Effect::Write { at, data } = effect {
            let mut part = state.clone();
            let done = found[*at..].iter().zip(data);
            let done = done.take_while(|(found, written)| found == written).count();
            part[*at..*at + done].copy_from_slice(&data[..done]);
            if part == found {
                return true;
            }
        }
        effect.apply(&mut state);
        if state == found {
            return true;
        }
    }
    false
}

/// Returns true if each byte of `found` is that of `base` or of one of `effects`.
fn is_some_of(base: &[u8], effects: &[Effect], found: &[u8]) -> bool {
    let mut right: Vec<bool> = base.iter().zip(found).map(|(a, b)| a == b).collect();
    for effect in effects {
        if let Effect::Write { at, data } = effect {
            for (i, byte) in data.iter().enumerate() {
                right[at + i] |= found[at + i] == *byte;
            }
        }
    }
    right.iter().all(|right| *right)
}
