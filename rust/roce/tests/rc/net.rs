// SPDX-License-Identifier: GPL-2.0

//! Two queue pairs and the network between them, on virtual time.
//!
//! Packets cross it as bytes. All that happens follows from the plan and the seed.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use roce::completion::Status;
use roce::congestion::Law;
use roce::event::AsyncEvent;
use roce::host::{Fault, Flush, Handled, Source};
use roce::limits;
use roce::num::{Bundle, Imm, Iova, Mtu, Pkey, Psn, Qpn, Rkey};
use roce::opcode::{Connection, Operation, Transport};
use roce::qp::{self, Half, State};
use roce::recv::{RecvConfig, RecvState, RemoteAccess, Replay, Responder};
use roce::send::{Requester, RetryCount, SendConfig, SendState, Slot};
use roce::time::{AckTimeout, Instant, RnrTimer};
use roce::wire::{self, Packet};
use roce::wr::{
    AtomicOp, BadRequest, Flush as FlushOp, Placement, RecvRequest, Remote, SendFlags, SendOp,
    SendRequest,
};

use crate::rng::Rng;
use crate::world::{Grant, Payload, Region, World};

pub const A: usize = 0;
pub const B: usize = 1;

/// The key of all of it, for READ and WRITE, from iova [`IOVA`] on.
pub const RKEY: u32 = 0x1234;
pub const IOVA: u64 = 0x7f00_0000_0000;

/// Early packets that a half has room for, as in the driver.
const ROOM: usize = limits::MAX_EARLY_PSNS as usize;

/// One end of the connection.
pub struct Endpoint {
    pub qpn: Qpn,
    pub state: State,
    pub requester: Requester<Payload, Vec<Slot<Payload>>>,
    pub responder: Responder<Payload, Grant, Vec<Replay<Grant>>>,
    pub world: World,
    /// Packets sent, by operation.
    pub transmitted: Vec<Operation>,
    /// It keeps early packets.
    pub keeps: bool,
    early: Kept,
    early_responses: Kept,
}

/// The faults of the network; chances in a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Link {
    pub delay_ns: u64,
    pub loss: u32,
    pub duplication: u32,
    /// Delays a packet so that later ones overtake it.
    pub reordering: u32,
    /// How late such a packet is at most; 0 for four times the usual delay.
    pub late_ns: u64,
    pub corruption: u32,
    /// How many packets a receiver takes as one batch.
    pub batch: usize,
}

/// How the connection is set up.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub mtu: Mtu,
    pub psn: [u32; 2],
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub min_rnr_timer: u8,
    pub rd_atomic: u8,
    pub signal_all: bool,
    pub window: usize,
    pub link: Link,
    /// How often memory is absent when it is used, in a thousand.
    pub absence: u32,
    /// Both ends keep early packets.
    pub keeps: bool,
    /// How often the network takes no more for a while after a packet, in a thousand.
    pub stalls: u32,
    /// How often the peer tells of congestion when packets arrive, in a thousand.
    pub cnps: u32,
    pub law: Law,
    /// Bytes of memory of each side.
    pub memory: usize,
    pub seed: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            mtu: Mtu::B1024,
            psn: [0x1000, 0x2000],
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            rd_atomic: 4,
            signal_all: true,
            window: limits::MAX_WINDOW_REQUESTS,
            link: Link {
                delay_ns: 5_000,
                batch: 8,
                ..Link::default()
            },
            absence: 0,
            keeps: true,
            stalls: 0,
            cnps: 0,
            law: Law::Window,
            memory: 4 << 20,
            seed: 1,
        }
    }
}

struct InFlight {
    to: usize,
    bytes: Vec<u8>,
}

/// Says for a packet to a side whether it gets through; chance is only asked then.
pub type Filter = Box<dyn FnMut(usize, &Packet) -> bool>;

/// Two endpoints and the network between them.
pub struct Net {
    pub ends: [Endpoint; 2],
    pub now: Instant,
    pub setup: Setup,
    pub rng: Rng,
    queue: BinaryHeap<Reverse<(Instant, u64, usize)>>,
    in_flight: Vec<Option<InFlight>>,
    serial: u64,
    pub filter: Filter,
    pub packets: u64,
}

/// Prints how to repeat a failure.
impl Drop for Net {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with {:?} at {:?}", self.setup, self.now);
        }
    }
}

impl Net {
    pub fn new(setup: Setup) -> Self {
        let mut net = Self {
            ends: [A, B].map(|side| Endpoint::new(side, &setup)),
            now: Instant::from_ns(0),
            setup,
            rng: Rng::new(setup.seed),
            queue: BinaryHeap::new(),
            in_flight: Vec::new(),
            serial: 0,
            filter: Box::new(|_, _| true),
            packets: 0,
        };
        for side in [A, B] {
            let mut fill = Rng::new(side as u64 + 77);
            fill.fill(&mut net.ends[side].world.memory);
            net.connect(side);
        }
        net
    }

    /// Moves both sides from RESET to RTS.
    pub fn connect(&mut self, side: usize) {
        let setup = self.setup;
        let dest_qp = self.ends[1 - side].qpn;
        let end = &mut self.ends[side];
        end.responder.start(RecvConfig {
            connection: Connection::Reliable,
            dest_qp,
            pkey: Pkey::DEFAULT,
            mtu: setup.mtu,
            bundle: Bundle::ONE,
            rq_psn: Psn::new(setup.psn[1 - side]),
            max_dest_rd_atomic: setup.rd_atomic,
            min_rnr_timer: RnrTimer::new(setup.min_rnr_timer).unwrap(),
            access: RemoteAccess {
                write: true,
                read: true,
                atomic: true,
                flush: Placement {
                    global: true,
                    persistent: true,
                },
            },
        });
        end.responder.set_established();
        end.requester.start(SendConfig {
            law: setup.law,
            connection: Connection::Reliable,
            dest_qp,
            pkey: Pkey::DEFAULT,
            mtu: setup.mtu,
            bundle: Bundle::ONE,
            sq_psn: Psn::new(setup.psn[side]),
            timeout: AckTimeout::new(setup.timeout).unwrap(),
            retry_cnt: RetryCount::new(setup.retry_cnt).unwrap(),
            rnr_retry: RetryCount::new(setup.rnr_retry).unwrap(),
            max_rd_atomic: setup.rd_atomic,
        });
        end.state = State::Rts;
    }

    pub fn post(&mut self, side: usize, wr_id: u64, op: SendOp, at: usize, len: u32) {
        self.post_flagged(side, wr_id, op, SendFlags::default(), at, len);
    }

    pub fn post_flagged(
        &mut self,
        side: usize,
        wr_id: u64,
        op: SendOp,
        flags: SendFlags,
        at: usize,
        len: u32,
    ) {
        let world = &mut self.ends[side].world;
        let payload = world.payload(at, len);
        world.send_queue.push_back(Ok(SendRequest {
            wr_id,
            op,
            flags,
            length: len,
            payload,
        }));
    }

    pub fn post_bad(&mut self, side: usize, wr_id: u64, status: Status) {
        let queue = &mut self.ends[side].world.send_queue;
        queue.push_back(Err(BadRequest { wr_id, status }));
    }

    pub fn post_recv(&mut self, side: usize, wr_id: u64, at: usize, len: u32) {
        let world = &mut self.ends[side].world;
        let payload = world.payload(at, len);
        world.recv_queue.push_back(Ok(RecvRequest {
            wr_id,
            length: len,
            payload,
        }));
    }

    /// Sends all packets that an endpoint has to send.
    pub fn transmit(&mut self, side: usize) {
        let now = self.now;
        loop {
            let end = &mut self.ends[side];
            let bytes = match end.poll(now) {
                Some(bytes) => bytes,
                None => break,
            };
            self.packets += 1;
            self.send(1 - side, bytes);
            // What is on its way ends the stall.
            let stalls = self.setup.stalls;
            if stalls > 0 && self.rng.chance(stalls) && !self.queue.is_empty() {
                break;
            }
        }
        self.ends[side].follow_states();
    }

    fn send(&mut self, to: usize, mut bytes: Vec<u8>) {
        let packet = parse(&bytes).expect("we send what we take");
        self.ends[1 - to].transmitted.push(packet.body.operation());
        let link = self.setup.link;
        if !(self.filter)(to, &packet) || self.rng.chance(link.loss) {
            return;
        }
        if self.rng.chance(link.corruption) {
            let at = self.rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << self.rng.below(8);
        }
        let copies = if self.rng.chance(link.duplication) {
            2
        } else {
            1
        };
        for _ in 0..copies {
            let mut delay_ns = link.delay_ns;
            if self.rng.chance(link.reordering) {
                let most_ns = match link.late_ns {
                    0 => 4 * link.delay_ns,
                    late_ns => late_ns,
                };
                delay_ns += self.rng.below(most_ns + 1);
            }
            self.schedule(to, delay_ns, bytes.clone());
        }
    }

    fn schedule(&mut self, to: usize, delay_ns: u64, bytes: Vec<u8>) {
        self.serial += 1;
        let at = self.now.after_ns(delay_ns);
        self.queue
            .push(Reverse((at, self.serial, self.in_flight.len())));
        self.in_flight.push(Some(InFlight { to, bytes }));
    }

    /// Delivers the packets that are next: those for one side that have arrived by then, up to a
    /// batch.
    fn deliver(&mut self) {
        let mut batch = Vec::new();
        let mut side = None;
        while let Some(Reverse((at, _, index))) = self.queue.peek().copied() {
            let to = self.in_flight[index].as_ref().expect("once").to;
            let full = batch.len() >= self.setup.link.batch.max(1);
            if at > self.now || full || side.is_some_and(|side| side != to) {
                break;
            }
            side = Some(to);
            self.queue.pop();
            batch.push(self.in_flight[index].take().expect("once").bytes);
        }
        if self.queue.is_empty() {
            self.in_flight.clear();
        }
        let Some(side) = side else { return };
        for bytes in batch {
            self.ends[side].receive(self.now, &bytes);
            if self.setup.cnps > 0 && self.rng.chance(self.setup.cnps) {
                self.ends[side].requester.congested(self.now);
            }
        }
        self.transmit(side);
    }

    /// Lets one thing happen; false if nothing ever will.
    pub fn step(&mut self) -> bool {
        // A stall lasts until something arrives.
        if self.setup.stalls == 0 || self.queue.is_empty() || self.rng.chance(100) {
            for side in [A, B] {
                self.transmit(side);
            }
        }
        let arrival = self.queue.peek().map(|Reverse((at, ..))| *at);
        let timeout = |side: usize| self.ends[side].requester.poll_timeout();
        let timer = roce::time::earliest(timeout(A), timeout(B));
        let Some(next) = roce::time::earliest(arrival, timer) else {
            return false;
        };
        self.now = self.now.max(next);
        if arrival.is_some_and(|at| at <= self.now) {
            self.deliver();
            return true;
        }
        for side in [A, B] {
            self.expire(side);
        }
        true
    }

    /// Has a side handle what its timer has for it by now, before any packet that has arrived.
    pub fn expire(&mut self, side: usize) {
        let end = &mut self.ends[side];
        let mut host = end.world.host(&[]);
        end.requester.handle_timeout(self.now, &mut host);
        self.transmit(side);
    }

    /// Lets a side send so many packets and no more, as if it had no credit for others.
    pub fn send_some(&mut self, side: usize, count: usize) {
        for _ in 0..count {
            let bytes = self.ends[side].poll(self.now).expect("nothing to send");
            self.send(1 - side, bytes);
        }
    }

    /// Runs until nothing is left to happen.
    pub fn run(&mut self) {
        self.run_until(|_| false);
    }

    /// Runs until `done`, or until nothing is left to happen.
    pub fn run_until(&mut self, done: impl Fn(&Self) -> bool) {
        let mut steps = 0u64;
        while !done(self) && self.step() {
            steps += 1;
            assert!(steps < 20_000_000, "it does not end");
        }
    }

    /// Checks that neither side holds anything: all requests are retired, all grants given back.
    pub fn assert_quiet(&self) {
        for end in &self.ends {
            assert_eq!(end.world.send_queue.len(), 0);
            let waiting = end.world.recv_queue.len();
            assert_eq!(end.world.payloads.count(), waiting, "payloads are held");
            assert_eq!(end.world.grants.count(), 0, "grants are held");
        }
    }
}

impl Endpoint {
    fn new(side: usize, setup: &Setup) -> Self {
        let qpn = Qpn::new(0x11 + side as u32);
        let mut world = World::default();
        world.memory.resize(setup.memory, 0);
        world.absence = setup.absence;
        world.regions.insert(
            RKEY,
            Region {
                iova: IOVA,
                at: 0,
                len: setup.memory,
                read: true,
                write: true,
                atomic: true,
                flush: true,
                revocable: false,
            },
        );
        let slots = (0..setup.window).map(|_| Slot::default()).collect();
        let replays = (0..setup.rd_atomic).map(|_| Replay::default()).collect();
        Self {
            qpn,
            state: State::Reset,
            requester: Requester::new(qpn, setup.signal_all, slots),
            responder: Responder::new(qpn, replays),
            world,
            transmitted: Vec::new(),
            keeps: setup.keeps,
            early: VecDeque::new(),
            early_responses: VecDeque::new(),
        }
    }

    /// Returns the next packet of either half.
    fn poll(&mut self, now: Instant) -> Option<Vec<u8>> {
        if let Some(transmit) = self.responder.poll_transmit(&mut self.world.host(&[])) {
            let source = describe(&transmit.source, grant_range);
            let header = transmit.header.as_bytes().to_vec();
            return match self.gather(header, source, transmit_pad(source)) {
                Ok(bytes) => Some(bytes),
                Err(Fault::Absent) => {
                    self.responder.unsend();
                    self.poll(now)
                }
                Err(Fault::Gone) => {
                    self.responder.payload_fault(&mut self.world.host(&[]));
                    self.poll(now)
                }
            };
        }
        let transmit = self
            .requester
            .poll_transmit(now, &mut self.world.host(&[]))?;
        assert_eq!(
            u32::from(transmit.pad),
            transmit_pad(describe(&transmit.source, payload_range))
        );
        let (source, psn) = (describe(&transmit.source, payload_range), transmit.psn);
        let header = transmit.header.as_bytes().to_vec();
        match self.gather(header, source, transmit_pad(source)) {
            Ok(bytes) => Some(bytes),
            Err(Fault::Absent) => {
                self.requester.unsend(psn);
                self.poll(now)
            }
            Err(Fault::Gone) => {
                self.requester.payload_fault(psn, &mut self.world.host(&[]));
                self.poll(now)
            }
        }
    }

    /// Makes a packet of its parts.
    fn gather(
        &self,
        mut bytes: Vec<u8>,
        source: Option<Range>,
        pad: u32,
    ) -> Result<Vec<u8>, Fault> {
        if let Some(range) = source {
            if self.world.gone.contains(&range.start) {
                return Err(Fault::Gone);
            }
            if self.world.is_absent() {
                return Err(Fault::Absent);
            }
            let at = range.start + range.at as usize;
            bytes.extend_from_slice(self.world.bytes(at, range.len as usize));
        }
        bytes.resize(bytes.len() + pad as usize, 0);
        let icrc = crc(&bytes);
        bytes.extend_from_slice(&icrc);
        Ok(bytes)
    }

    /// Takes a packet off the network.
    pub fn receive(&mut self, now: Instant, bytes: &[u8]) {
        let Some((body, icrc)) = bytes.split_last_chunk::<4>() else {
            return;
        };
        if crc(body) != *icrc {
            return;
        }
        let Ok(packet) = parse(bytes) else {
            panic!("a packet of ours does not parse");
        };
        if packet.bth.dest_qp != self.qpn {
            return;
        }
        let start = packet.payload_at(bytes.len() as u32) as usize;
        let payload = &bytes[start..start + packet.payload_len as usize];
        let mut host = self.world.host(payload);
        match qp::check(Transport::Rc, self.state, Pkey::DEFAULT, &packet) {
            Ok(Half::Requester) => {
                match or_again(|| self.requester.handle_response(now, &packet, &mut host)) {
                    Handled::Early if self.keeps && self.early_responses.len() < ROOM => {
                        keep(&mut self.early_responses, packet.bth.psn, bytes);
                    }
                    Handled::Early => self.requester.not_kept(),
                    _ => self.handle_early_responses(now),
                }
            }
            Ok(Half::Responder) => {
                match or_again(|| self.responder.handle_request(&packet, &mut host)) {
                    Handled::Early if self.keeps && self.early.len() < ROOM => {
                        keep(&mut self.early, packet.bth.psn, bytes);
                    }
                    Handled::Early => {}
                    _ => self.handle_early(),
                }
            }
            Err(event) => self.world.events.push(event),
        }
    }

    /// Hands in again the responses that came before their turn.
    fn handle_early_responses(&mut self, now: Instant) {
        while let Some((psn, bytes)) = self.early_responses.pop_front() {
            let (packet, payload) = kept(&bytes);
            let mut host = self.world.host(payload);
            let handled = or_again(|| self.requester.handle_kept(now, &packet, &mut host));
            if handled == Handled::Early {
                self.early_responses.push_front((psn, bytes));
                return;
            }
        }
    }

    /// Handles early requests again.
    fn handle_early(&mut self) {
        while let Some((psn, bytes)) = self.early.pop_front() {
            let (packet, payload) = kept(&bytes);
            let mut host = self.world.host(payload);
            let handled = or_again(|| self.responder.handle_kept(&packet, &mut host));
            if handled == Handled::Early {
                self.early.push_front((psn, bytes));
                return;
            }
        }
    }

    /// Moves the queue pair to ERR once one of its halves failed, as the driver does.
    pub fn follow_states(&mut self) {
        let failed = self.requester.state() == SendState::Error
            || matches!(self.responder.state(), RecvState::Failed | RecvState::Error);
        if !failed || self.state == State::Err {
            return;
        }
        self.state = State::Err;
        self.flush();
    }

    /// Moves to ERR, as the owner or the driver does.
    pub fn flush(&mut self) {
        self.state = State::Err;
        let mut host = self.world.host(&[]);
        while self.requester.enter_error(&mut host) == Flush::More {}
        if self.responder.state() == RecvState::Failed {
            while self.responder.flush_posted(&mut host) == Flush::More {}
        } else {
            while self.responder.enter_error(&mut host) == Flush::More {}
        }
    }
}

/// Early packets, in the order of their PSNs.
type Kept = VecDeque<(Psn, Vec<u8>)>;

/// Keeps a packet in the order of PSNs, and each of them once.
fn keep(early: &mut Kept, psn: Psn, bytes: &[u8]) {
    let at = early.partition_point(|(kept, _)| kept.is_before(psn));
    if early.get(at).is_none_or(|(kept, _)| *kept != psn) {
        early.insert(at, (psn, bytes.to_vec()));
    }
}

/// Returns a packet that was kept, and its payload.
fn kept(bytes: &[u8]) -> (Packet, &[u8]) {
    let Ok(packet) = parse(bytes) else {
        panic!("it was parsed before");
    };
    let start = packet.payload_at(bytes.len() as u32) as usize;
    (packet, &bytes[start..start + packet.payload_len as usize])
}

/// Calls until memory is there.
fn or_again(mut handle: impl FnMut() -> Handled) -> Handled {
    loop {
        match handle() {
            Handled::PutOff => {}
            handled => return handled,
        }
    }
}

/// A part of a payload or grant.
#[derive(Clone, Copy)]
struct Range {
    /// Where the payload or grant starts in memory.
    start: usize,
    at: u32,
    len: u32,
}

fn describe<M>(source: &Source<'_, M>, range: impl Fn(&M) -> (usize, u32)) -> Option<Range> {
    match source {
        Source::Empty => None,
        Source::Bytes { memory, at, len } => {
            let (start, room) = range(memory);
            assert!(*len > 0 && at + len <= room, "outside of its memory");
            Some(Range {
                start,
                at: *at,
                len: *len,
            })
        }
    }
}

fn payload_range(payload: &Payload) -> (usize, u32) {
    (payload.at, payload.len)
}

fn grant_range(grant: &Grant) -> (usize, u32) {
    (grant.at, grant.len)
}

fn transmit_pad(source: Option<Range>) -> u32 {
    source.map_or(0, |range| range.len.wrapping_neg() & 3)
}

pub fn parse(bytes: &[u8]) -> Result<Packet, wire::ParseError> {
    let header = &bytes[..bytes.len().min(wire::MAX_HEADER)];
    wire::parse(header, bytes.len() as u32)
}

/// Stands for the ICRC: any single bit that flips changes it.
fn crc(bytes: &[u8]) -> [u8; 4] {
    let hash = bytes.iter().fold(0x811c_9dc5u32, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    });
    hash.to_le_bytes()
}

pub fn remote(at: usize) -> Remote {
    Remote {
        iova: Iova(IOVA.wrapping_add(at as u64)),
        rkey: Rkey(RKEY),
    }
}

pub fn send() -> SendOp {
    SendOp::Send { imm: None }
}

pub fn send_imm(imm: [u8; 4]) -> SendOp {
    SendOp::Send {
        imm: Some(Imm(imm)),
    }
}

pub fn send_invalidate(rkey: u32) -> SendOp {
    SendOp::SendInvalidate { rkey: Rkey(rkey) }
}

pub fn write(at: usize) -> SendOp {
    SendOp::Write {
        remote: remote(at),
        imm: None,
    }
}

pub fn write_imm(at: usize, imm: [u8; 4]) -> SendOp {
    SendOp::Write {
        remote: remote(at),
        imm: Some(Imm(imm)),
    }
}

pub fn read(at: usize) -> SendOp {
    SendOp::Read { remote: remote(at) }
}

pub fn compare_swap(at: usize, compare: u64, swap: u64) -> SendOp {
    SendOp::Atomic {
        remote: remote(at),
        op: AtomicOp::CompareSwap { compare, swap },
    }
}

pub fn fetch_add(at: usize, add: u64) -> SendOp {
    SendOp::Atomic {
        remote: remote(at),
        op: AtomicOp::FetchAdd { add },
    }
}

pub fn atomic_write(at: usize) -> SendOp {
    SendOp::AtomicWrite { remote: remote(at) }
}

pub const GLOBAL: Placement = Placement {
    global: true,
    persistent: false,
};

/// Returns a FLUSH to global visibility, of the whole region or of the request's length.
pub fn flush(at: usize, whole_region: bool) -> SendOp {
    SendOp::Flush {
        remote: remote(at),
        flush: FlushOp {
            placement: GLOBAL,
            whole_region,
        },
    }
}

/// Checks that all of these succeeded, in this order.
pub fn all_succeeded(statuses: &[(u64, Status)], wr_ids: impl IntoIterator<Item = u64>) {
    let expected: Vec<_> = wr_ids.into_iter().map(|id| (id, Status::Success)).collect();
    assert_eq!(statuses, expected);
}

/// Checks that only this event was raised, and once.
pub fn raised(world: &World, event: AsyncEvent) {
    assert_eq!(world.raised, [event]);
}
