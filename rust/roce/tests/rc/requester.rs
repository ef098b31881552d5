// SPDX-License-Identifier: GPL-2.0

//! The requester, against responses made by hand.

use std::collections::VecDeque;

use roce::completion::{CompletionOp, Status};
use roce::congestion::Law;
use roce::event::{AsyncEvent, Event};
use roce::host::{Flush, Handled, Source};
use roce::limits::{
    INITIAL_OUTSTANDING_PSNS, INITIAL_PATIENCE_NS, MAX_MESSAGE_BYTES, MAX_PROBE_RESPONSES,
    MAX_WINDOW_REQUESTS, MIN_PROBE_NS,
};
use roce::num::{Bundle, Msn, Mtu, Pkey, Psn, Qpn};
use roce::opcode::{Connection, Operation, Transport};
use roce::send::{
    Blocked, Requester, RetryCount, SendConfig, SendState, SendUpdate, Slot, Waiting,
};
use roce::time::{AckTimeout, Instant, RnrTimer};
use roce::wire::{
    Aeth, AtomicAckEth, AtomicEth, Body, Bth, Feth, NakCode, Packet, Request, Response, Reth,
    Syndrome,
};
use roce::wr::{BadRequest, SendFlags, SendOp, SendRequest};

use crate::net::{
    all_succeeded, atomic_write, compare_swap, fetch_add, flush, raised, read, remote, send, write,
    write_imm,
};
use crate::world::{Payload, World};

mod late;

const MTU: u32 = 256;
const FIRST: u32 = 0xff_fffe;

/// A requester without a network.
pub struct Lone {
    pub requester: Requester<Payload, Vec<Slot<Payload>>>,
    pub world: World,
    pub now: Instant,
    early: VecDeque<(Packet, Vec<u8>)>,
}

/// A packet that was sent: its PSN counted from [`FIRST`], the request, and its payload's length.
pub type Sent = (u32, Request, u32);

fn config() -> SendConfig {
    SendConfig {
        law: Law::Window,
        connection: Connection::Reliable,
        dest_qp: Qpn::new(0x22),
        pkey: Pkey::DEFAULT,
        mtu: Mtu::B256,
        bundle: Bundle::ONE,
        sq_psn: Psn::new(FIRST),
        timeout: AckTimeout::new(1).unwrap(),
        retry_cnt: RetryCount::new(2).unwrap(),
        rnr_retry: RetryCount::new(2).unwrap(),
        max_rd_atomic: 2,
    }
}

/// Returns an update that changes none of them.
fn update() -> SendUpdate {
    let config = config();
    SendUpdate {
        timeout: config.timeout,
        retry_cnt: config.retry_cnt,
        rnr_retry: config.rnr_retry,
        max_rd_atomic: config.max_rd_atomic,
        pkey: config.pkey,
        bundle: config.bundle,
    }
}

/// Returns the usual settings with this code of the timeout.
fn with_timeout(code: u8) -> SendConfig {
    SendConfig {
        timeout: AckTimeout::new(code).unwrap(),
        ..config()
    }
}

/// The delay of the timeout in [`config`].
const TIMEOUT_NS: u64 = 8192;

fn slots<P>(count: usize) -> Vec<Slot<P>> {
    (0..count).map(|_| Slot::default()).collect()
}

impl Lone {
    fn new(config: SendConfig) -> Self {
        let mut lone = Self {
            requester: Requester::new(Qpn::new(0x11), true, slots(MAX_WINDOW_REQUESTS)),
            world: World::default(),
            now: Instant::from_ns(1_000_000),
            early: VecDeque::new(),
        };
        lone.world.memory.resize(1 << 20, 0x5a);
        lone.requester.start(config);
        lone
    }

    /// Creates one with room for so many READs and atomics.
    pub fn with_depth(max_rd_atomic: u8) -> Self {
        Self::new(SendConfig {
            max_rd_atomic,
            ..config()
        })
    }

    /// Creates one with posted requests: numbered from 0, of these operations and lengths.
    fn with(config: SendConfig, requests: &[(SendOp, u32)]) -> Self {
        let mut lone = Self::new(config);
        for (id, (op, len)) in requests.iter().enumerate() {
            lone.post(id as u64, *op, *len, SendFlags::default());
        }
        lone
    }

    pub fn post(&mut self, wr_id: u64, op: SendOp, length: u32, flags: SendFlags) {
        // Nothing here reads the bytes, so the longest message needs no memory.
        let payload = self.world.payload(0, length.min(1 << 20));
        self.world.send_queue.push_back(Ok(SendRequest {
            wr_id,
            op,
            flags,
            length,
            payload,
        }));
    }

    /// Returns the next packet.
    fn poll(&mut self) -> Option<(Bth, Sent)> {
        let host = &mut self.world.host(&[]);
        let transmit = self.requester.poll_transmit(self.now, host)?;
        let len = match transmit.source {
            Source::Empty => 0,
            Source::Bytes { len, .. } => len,
        };
        let header = transmit.header.as_bytes();
        let packet = roce::wire::parse(header, transmit.udp_payload_len()).unwrap();
        assert_eq!(packet.payload_len, len);
        let Body::Request(request) = packet.body else {
            panic!("not a request");
        };
        let psn = transmit.psn.distance_from(Psn::new(FIRST));
        Some((packet.bth, (psn, request, len)))
    }

    /// Sends all packets that may be sent now, and returns them.
    pub fn poll_all(&mut self) -> Vec<Sent> {
        std::iter::from_fn(|| self.poll())
            .map(|(_, sent)| sent)
            .collect()
    }

    /// Sends all packets that may be sent now. Returns their PSNs.
    fn poll_psns(&mut self) -> Vec<u32> {
        self.poll_all().into_iter().map(|(psn, ..)| psn).collect()
    }

    /// Delivers a response. It is kept if it comes before its turn.
    fn respond(&mut self, psn: u32, response: Response, payload: &[u8]) {
        let packet = response_packet(psn, response, payload.len() as u32);
        let mut host = self.world.host(payload);
        match self.requester.handle_response(self.now, &packet, &mut host) {
            Handled::Done => self.handle_early(),
            Handled::Early => self.keep_early(packet, payload),
            Handled::PutOff => panic!("memory is there"),
        }
    }

    /// Keeps a response in the order of PSNs, and each of them once.
    fn keep_early(&mut self, packet: Packet, payload: &[u8]) {
        let psn = packet.bth.psn;
        let early = &mut self.early;
        let at = early.partition_point(|(kept, _)| kept.bth.psn.is_before(psn));
        if early.get(at).is_none_or(|(kept, _)| kept.bth.psn != psn) {
            early.insert(at, (packet, payload.to_vec()));
        }
    }

    fn handle_early(&mut self) {
        while let Some((packet, payload)) = self.early.pop_front() {
            let mut host = self.world.host(&payload);
            let handled = self.requester.handle_kept(self.now, &packet, &mut host);
            if handled == Handled::Early {
                return self.early.push_front((packet, payload));
            }
            assert_eq!(handled, Handled::Done);
        }
    }

    fn ack(&mut self, psn: u32) {
        self.acknowledge(psn, Syndrome::ACK);
    }

    fn nak(&mut self, psn: u32, code: NakCode) {
        self.acknowledge(psn, Syndrome::Nak(code));
    }

    fn rnr_nak(&mut self, psn: u32, code: u8) {
        self.acknowledge(psn, Syndrome::RnrNak(RnrTimer::new(code).unwrap()));
    }

    fn acknowledge(&mut self, psn: u32, syndrome: Syndrome) {
        self.respond(psn, Response::Acknowledge(aeth(syndrome)), &[]);
    }

    /// Delivers the response `psn` to a READ of `len` bytes that starts with PSN `first`.
    fn data(&mut self, psn: u32, first: u32, len: u32) {
        let at = (psn - first) * MTU;
        let left = len - at;
        let (starts, ends) = (at == 0, left <= MTU);
        let ack = aeth(Syndrome::ACK);
        let response = match (starts, ends) {
            (true, true) => Response::ReadOnly(ack),
            (true, false) => Response::ReadFirst(ack),
            (false, false) => Response::ReadMiddle,
            (false, true) => Response::ReadLast(ack),
        };
        self.respond(psn, response, &vec![psn as u8; left.min(MTU) as usize]);
    }

    /// Returns true if a timeout is over then.
    fn sleep(&mut self, ns: u64) -> bool {
        self.now = self.now.after_ns(ns);
        let mut host = self.world.host(&[]);
        self.requester.handle_timeout(self.now, &mut host)
    }

    fn statuses(&self) -> Vec<(u64, Status)> {
        self.world.sent_statuses()
    }

    fn count(&self, event: Event) -> usize {
        self.world.count(event)
    }
}

fn aeth(syndrome: Syndrome) -> Aeth {
    Aeth {
        syndrome,
        msn: Msn::new(0),
    }
}

fn response_packet(psn: u32, response: Response, payload_len: u32) -> Packet {
    Packet {
        bth: Bth {
            transport: Transport::Rc,
            solicited: false,
            mig_req: false,
            pad: 0,
            pkey: Pkey::DEFAULT,
            fecn: false,
            becn: false,
            dest_qp: Qpn::new(0x11),
            ack_req: false,
            psn: Psn::new(FIRST).add(psn),
        },
        body: Body::Response(response),
        payload_len,
        psns: 1,
    }
}

/// Returns the READ requests among the packets, as PSN and length.
fn reads(sent: Vec<Sent>) -> Vec<(u32, u32)> {
    let read = |(psn, request, _)| match request {
        Request::Read(reth) => Some((psn, reth.length)),
        _ => None,
    };
    sent.into_iter().filter_map(read).collect()
}

fn ok(ids: std::ops::Range<u64>) -> Vec<(u64, Status)> {
    ids.map(|id| (id, Status::Success)).collect()
}

/// Returns the statuses if `ids` succeeded, the next request failed with `status`, and so many were
/// flushed.
fn failed_after(ids: std::ops::Range<u64>, status: Status, flushed: u64) -> Vec<(u64, Status)> {
    let failed = ids.end;
    let mut expected = ok(ids);
    expected.push((failed, status));
    expected.extend((failed + 1..=failed + flushed).map(|id| (id, Status::Flushed)));
    expected
}

fn fenced() -> SendFlags {
    SendFlags {
        fence: true,
        ..SendFlags::default()
    }
}

// Rules: STA-7
#[test]
fn before_start_it_does_nothing() {
    let mut lone = Lone::new(config());
    lone.requester.reset(&mut lone.world.host(&[]));
    assert_eq!(lone.requester.state(), SendState::Idle);
    lone.post(0, write(0), 10, SendFlags::default());
    assert_eq!(lone.poll_all(), []);
    assert_eq!(lone.requester.next_psn(), None);
    assert_eq!(lone.requester.poll_timeout(), None);
    lone.ack(0);
    assert_eq!(lone.count(Event::BadState), 1);
    lone.sleep(1_000_000_000);
    let host = &mut lone.world.host(&[]);
    lone.requester.drain(host);
    lone.requester.resume();
    assert_eq!(lone.requester.flush_posted(host), Flush::Done);
    lone.requester.payload_fault(Psn::new(FIRST), host);
    assert_eq!(lone.world.send_queue.len(), 1);
}

#[test]
fn it_has_nothing_left_until_something_is_to_be_sent_again() {
    let mut lone = Lone::with(
        config(),
        &[(send(), 600), (read(0), 10), (read(0), 10), (read(0), 10)],
    );
    assert!(!lone.requester.has_left());
    assert_eq!(lone.poll_psns(), [0, 1, 2, 3, 4]);
    // The last READ is one more than may be outstanding.
    assert!(lone.requester.has_left());
    lone.ack(2);
    lone.data(3, 3, 10);
    assert!(lone.requester.has_left());
    assert_eq!(lone.poll_psns(), [5]);
    assert!(!lone.requester.has_left());
    lone.nak(4, NakCode::SequenceError);
    assert!(lone.requester.has_left());
    assert_eq!(lone.poll_psns(), [4]);
    assert!(!lone.requester.has_left());
    lone.nak(4, NakCode::InvalidRequest);
    assert!(lone.requester.has_left());
    lone.requester.reset(&mut lone.world.host(&[]));
    assert!(!lone.requester.has_left());
}

#[test]
fn it_rests_when_all_is_complete() {
    let mut lone = Lone::new(config());
    lone.requester = Requester::new(Qpn::new(0x11), true, slots(1));
    assert!(!lone.requester.rest(), "it does not run");
    lone.requester.start(config());
    lone.post(0, send(), 10, SendFlags::default());
    assert_eq!(lone.poll_psns(), [0]);
    assert!(!lone.requester.rest(), "one is outstanding");
    lone.ack(0);
    // The window was full at the last poll.
    assert_eq!(lone.requester.blocked(), Some(Blocked::Window));
    assert!(lone.requester.rest());
    assert_eq!(lone.requester.blocked(), None);
    assert!(!lone.requester.has_left());
    lone.post(1, send(), 10, SendFlags::default());
    assert_eq!(lone.poll_psns(), [1]);
    lone.ack(1);
    lone.requester.drain(&mut lone.world.host(&[]));
    assert!(!lone.requester.rest(), "it is drained");
}

#[test]
fn it_knows_what_is_outstanding_and_what_is_unsent() {
    let mut lone = Lone::with(config(), &[(send(), 600), (read(0), 10)]);
    let known = |lone: &Lone| {
        let requester = &lone.requester;
        (requester.has_outstanding(), requester.has_unsent())
    };
    assert_eq!(known(&lone), (false, false));
    assert_eq!(lone.poll_psns(), [0, 1, 2, 3]);
    assert_eq!(known(&lone), (true, false));
    lone.nak(1, NakCode::SequenceError);
    assert_eq!(known(&lone), (true, true));
    assert_eq!(lone.poll_psns(), [1]);
    lone.ack(2);
    assert_eq!(known(&lone), (true, false));
    lone.data(3, 3, 10);
    assert_eq!(known(&lone), (false, false));
    lone.requester.reset(&mut lone.world.host(&[]));
    assert_eq!(known(&lone), (false, false));
}

// Rules: ACK-3, ACK-9, ACK-11, CPL-6, PSN-5, RTY-6
#[test]
fn an_acknowledgement_retires_all_up_to_its_psn() {
    let requests = [(write(0), 10), (send(), 600), (write(0), 0), (send(), 1)];
    for (acks, retired) in [
        (vec![], 0),
        (vec![0], 1),
        (vec![1], 1),
        (vec![2], 1),
        (vec![3], 2),
        (vec![5], 4),
        (vec![0, 2, 3, 4, 5], 4),
        (vec![3, 1, 3, 5, 0], 4),
    ] {
        let mut lone = Lone::with(config(), &requests);
        assert_eq!(lone.poll_psns(), [0, 1, 2, 3, 4, 5]);
        for psn in &acks {
            lone.ack(*psn);
        }
        all_succeeded(&lone.statuses(), 0..retired);
        // With all acknowledged nothing is waited for.
        let waits = lone.requester.poll_timeout().is_some();
        assert_eq!(waits, retired < 4, "{acks:?}");
    }
}

// Rules: ACK-9, ACK-10, NAK-20, PSN-13
#[test]
fn responses_outside_of_what_is_outstanding_are_ignored() {
    let mut lone = Lone::with(config(), &[(send(), 10), (send(), 600)]);
    lone.poll_psns();
    lone.ack(0);
    let before = lone.statuses();
    for psn in [4, 5, 0x80_0000, 0xff_fffe, 0xff_ffff, 0] {
        lone.ack(psn);
        lone.nak(psn, NakCode::InvalidRequest);
        lone.nak(psn, NakCode::SequenceError);
        lone.rnr_nak(psn, 0);
        lone.data(psn, psn, 10);
    }
    assert_eq!(lone.statuses(), before);
    assert_eq!(lone.count(Event::StaleResponse), 30);
    assert_eq!(lone.poll_psns(), []);
    assert_eq!(lone.requester.state(), SendState::Running);
}

// Rules: VAL-10
#[test]
fn requests_are_not_responses() {
    let mut lone = Lone::with(config(), &[(send(), 10)]);
    lone.poll_psns();
    let mut packet = response_packet(0, Response::ReadMiddle, 0);
    packet.body = Body::Request(Request::SendMiddle);
    let host = &mut lone.world.host(&[]);
    assert_eq!(
        lone.requester.handle_response(lone.now, &packet, host),
        roce::host::Handled::Done
    );
    assert_eq!(lone.requester.state(), SendState::Running);
    assert_eq!(lone.count(Event::StaleResponse), 0);
}

// Rules: PSN-3, SEG-6, SEG-9, SEG-12
#[test]
fn headers_are_those_of_the_configuration() {
    let mut lone = Lone::with(config(), &[(write_imm(0x777, [1, 2, 3, 4]), 257)]);
    let (first, _) = lone.poll().unwrap();
    let (last, (_, request, len)) = lone.poll().unwrap();
    assert_eq!(first.dest_qp, config().dest_qp);
    assert_eq!(first.pkey, Pkey::DEFAULT);
    assert_eq!((first.psn.get(), last.psn.get()), (FIRST, FIRST + 1));
    assert_eq!((first.ack_req, last.ack_req), (false, true));
    assert_eq!((first.pad, last.pad, len), (0, 3, 1));
    assert_eq!(request.operation(), Operation::WriteLastImm);
}

// Rules: WIRE-29, WIRE-30
#[test]
fn what_requests_have_no_use_for_is_0() {
    let requests = [
        (send(), 300),
        (write_imm(0, [1; 4]), 300),
        (read(0), 300),
        (fetch_add(0, 1), 8),
        (atomic_write(0), 8),
        (flush(0, true), 8),
    ];
    let pkey = Pkey(0x8001);
    for (op, len) in requests {
        let mut lone = Lone::with(SendConfig { pkey, ..config() }, &[(op, len)]);
        let sent: Vec<_> = std::iter::from_fn(|| lone.poll()).collect();
        assert!(!sent.is_empty());
        for (bth, (_, _, len)) in sent {
            let plain = Bth {
                transport: Transport::Rc,
                solicited: false,
                mig_req: false,
                pad: (len.wrapping_neg() & 3) as u8,
                pkey,
                fecn: false,
                becn: false,
                dest_qp: config().dest_qp,
                ack_req: bth.ack_req,
                psn: bth.psn,
            };
            assert_eq!(bth, plain, "{op:?}");
        }
    }
}

// Rules: RTY-12
#[test]
fn what_is_sent_again_is_the_same() {
    let requests = [
        (send(), 600),
        (write_imm(0x40, [1, 2, 3, 4]), 257),
        (fetch_add(0x48, 7), 8),
        (write(0x50), 0),
        (compare_swap(0x58, 1, 2), 8),
    ];
    let mut lone = Lone::with(config(), &requests);
    let everything = |lone: &mut Lone| -> Vec<_> {
        let sent = std::iter::from_fn(|| lone.poll());
        let plain = |(bth, sent)| {
            (
                Bth {
                    ack_req: false,
                    ..bth
                },
                sent,
            )
        };
        sent.map(plain).collect()
    };
    let first = everything(&mut lone);
    assert_eq!(first.len(), 8);
    lone.requester.not_kept(); // All is sent again.
    assert_eq!(everything(&mut lone), first);
    lone.nak(0, NakCode::SequenceError);
    assert_eq!(everything(&mut lone), first[..1]);
}

// Rules: CRD-2
#[test]
fn credits_do_not_hold_it_back() {
    for credits in 0..32 {
        let mut lone = Lone::with(config(), &[(send(), 10), (send(), 10), (send(), 10)]);
        assert_eq!(lone.poll_psns(), [0, 1, 2]);
        lone.acknowledge(0, Syndrome::Ack { credits });
        all_succeeded(&lone.statuses(), 0..1);
        lone.post(3, send(), 10, SendFlags::default());
        assert_eq!(lone.poll_psns(), [3], "{credits}");
        lone.acknowledge(3, Syndrome::Ack { credits });
        all_succeeded(&lone.statuses(), 0..4);
    }
}

// Rules: ACK-16
#[test]
fn any_message_number_will_do() {
    for msn in [0, 1, 2, 77, 0x80_0000, 0xff_ffff] {
        let mut lone = Lone::with(config(), &[(send(), 10), (read(0), 10), (send(), 10)]);
        lone.poll_psns();
        let aeth = Aeth {
            syndrome: Syndrome::ACK,
            msn: Msn::new(msn),
        };
        lone.respond(0, Response::Acknowledge(aeth), &[]);
        all_succeeded(&lone.statuses(), 0..1);
        lone.respond(1, Response::ReadOnly(aeth), &[5; 10]);
        lone.respond(2, Response::Acknowledge(aeth), &[]);
        all_succeeded(&lone.statuses(), 0..3);
    }
}

// Rules: NAK-5, NAK-14, NAK-15, PSN-14
#[test]
fn a_sequence_nak_is_answered_once_for_each_psn() {
    let mut lone = Lone::with(config(), &[(send(), 10), (send(), 1000), (send(), 10)]);
    assert_eq!(lone.poll_psns(), [0, 1, 2, 3, 4, 5]);
    lone.nak(2, NakCode::SequenceError);
    lone.nak(2, NakCode::SequenceError);
    all_succeeded(&lone.statuses(), 0..1);
    assert_eq!(lone.poll_psns(), [2]);
    lone.nak(2, NakCode::SequenceError);
    assert_eq!(lone.poll_psns(), []);
    // It has not kept the rest.
    lone.sleep(ROUND_TRIP_NS);
    lone.nak(3, NakCode::SequenceError);
    assert_eq!(lone.poll_psns(), [3, 4, 5]);
    lone.ack(5);
    all_succeeded(&lone.statuses(), 0..3);
    assert_eq!(lone.count(Event::Retransmit), 2);
    assert_eq!(lone.count(Event::SequenceNakReceived), 4);
}

/// A round trip that is measured, in nanoseconds; the time after which an answer is late is thrice that.
const ROUND_TRIP_NS: u64 = 1000;

/// Returns a requester with ten small requests, after the acknowledgement of the first.
fn after_a_round_trip() -> Lone {
    after_a_round_trip_of(10)
}

/// Returns the same with so many requests.
fn after_a_round_trip_of(requests: usize) -> Lone {
    let mut lone = Lone::with(config(), &vec![(send(), 10); requests]);
    lone.poll_psns();
    lone.sleep(ROUND_TRIP_NS);
    lone.ack(0);
    lone
}

// Rules: RTY-19
#[test]
fn a_repair_that_is_lost_is_noticed_without_a_timer() {
    let mut lone = after_a_round_trip();
    lone.nak(3, NakCode::SequenceError);
    assert_eq!(lone.poll_psns(), [3]);
    // It may be on its way.
    lone.ack(2);
    assert_eq!(lone.poll_psns(), []);
    lone.sleep(4 * ROUND_TRIP_NS);
    // This one is older.
    lone.ack(1);
    assert_eq!(lone.poll_psns(), []);
    lone.ack(2);
    assert_eq!(lone.poll_psns(), [3]);
    lone.ack(2);
    assert_eq!(lone.poll_psns(), []);
    lone.ack(9);
    all_succeeded(&lone.statuses(), 0..10);
    // No retry was counted but that of the NAK.
    assert_eq!(lone.count(Event::Retransmit), 1);
}

// Rules: ACK-21, RTY-18
#[test]
fn a_repair_that_was_not_sent_comes_again() {
    let mut lone = after_a_round_trip();
    lone.nak(3, NakCode::SequenceError);
    assert_eq!(lone.poll_psns(), [3]);
    lone.requester.unsend(Psn::new(FIRST).add(3));
    assert!(lone.requester.has_left());
    assert_eq!(lone.poll_psns(), [3]);
    lone.ack(9);
    all_succeeded(&lone.statuses(), 0..10);
}

/// Makes one that knows that its peer keeps packets, and has all before packet 21 acknowledged.
fn with_a_peer_that_keeps() -> Lone {
    let mut lone = after_a_round_trip_of(400);
    lone.poll_psns();
    lone.nak(1, NakCode::SequenceError);
    assert_eq!(lone.poll_psns().first(), Some(&1));
    lone.sleep(ROUND_TRIP_NS);
    lone.ack(20);
    lone.poll_psns();
    lone
}

/// Makes one that knows the same, and has all 40 requests complete.
fn idle_with_a_peer_that_keeps() -> Lone {
    let mut lone = after_a_round_trip_of(40);
    lone.nak(1, NakCode::SequenceError);
    assert_eq!(lone.poll_psns(), [1]);
    lone.sleep(ROUND_TRIP_NS);
    lone.ack(39);
    all_succeeded(&lone.statuses(), 0..40);
    lone
}

/// Says that the peer lacks packet `psn`, a round trip later. Returns what is sent again.
fn again(lone: &mut Lone, psn: u32) -> Vec<u32> {
    lone.sleep(ROUND_TRIP_NS);
    lone.nak(psn, NakCode::SequenceError);
    sent_near(lone, psn)
}

/// Returns what is sent behind packet `psn`, without new packets.
fn sent_near(lone: &mut Lone, psn: u32) -> Vec<u32> {
    lone.poll_psns()
        .into_iter()
        .filter(|&sent| sent < psn + 64)
        .collect()
}

// Rules: RTY-18
#[test]
fn a_run_of_losses_is_repaired_by_ever_more_packets() {
    let mut lone = with_a_peer_that_keeps();
    assert_eq!(again(&mut lone, 30), [30]);
    assert_eq!(again(&mut lone, 31), [31, 32]);
    // A NAK for a packet that was just sent again has no effect.
    lone.nak(32, NakCode::SequenceError);
    assert!(!lone.poll_psns().contains(&32));
    assert_eq!(again(&mut lone, 33), Vec::from_iter(33..37));
    assert_eq!(again(&mut lone, 37), Vec::from_iter(37..45));
    // The next run is expected to be as long, and the one after it to be half as long. What was sent before the repair
    // and is missing now is lost.
    lone.sleep(ROUND_TRIP_NS);
    lone.ack(60);
    assert_eq!(sent_near(&mut lone, 61), Vec::from_iter(61..76));
    lone.sleep(ROUND_TRIP_NS);
    lone.ack(90);
    assert_eq!(sent_near(&mut lone, 91), Vec::from_iter(91..98));
    // It was longer.
    assert_eq!(again(&mut lone, 98), Vec::from_iter(98..106));
    lone.ack(130);
    all_succeeded(&lone.statuses(), 0..131);
}

// Rules: RTY-18
#[test]
fn a_peer_may_have_lost_a_train() {
    let mut lone = Lone::with(config(), &[(send(), 10); 100]);
    assert_eq!(lone.poll_psns().len(), 100);
    assert_eq!(again(&mut lone, 1), [1]);
    assert_eq!(again(&mut lone, 2), Vec::from_iter(2..18));
    // It lacks more than a train, so it drops packets.
    assert_eq!(again(&mut lone, 18)[..20], Vec::from_iter(18..38));
    lone.ack(99);
    all_succeeded(&lone.statuses(), 0..100);
}

// Rules: RTY-18, RTY-20
#[test]
fn a_slow_answer_to_a_read_of_a_lost_train_does_not_make_the_peer_seem_to_drop_packets() {
    let mut requests = [(send(), 10); 40];
    requests[4] = (read(0), 4 * MTU);
    let mut lone = Lone::with(with_timeout(14), &requests);
    lone.poll_psns();
    assert_eq!(again(&mut lone, 0), [0]);
    assert_eq!(
        again(&mut lone, 1),
        [1, 2, 3, 4, 8, 9, 10, 11, 12, 13, 14, 15, 16]
    );
    for psn in [4, 5] {
        lone.sleep(ROUND_TRIP_NS);
        lone.data(psn, 4, 4 * MTU);
    }
    lone.sleep(5_000_000);
    assert_eq!(lone.count(Event::Probe), 1);
    assert_eq!(lone.poll_psns(), [6], "the rest of the READ");
    for psn in [6, 7] {
        lone.data(psn, 4, 4 * MTU);
    }
    assert_eq!(again(&mut lone, 20), [20]);
}

// Rules: RTY-18, RTY-20
#[test]
fn what_was_dropped_behind_a_train_is_sent_again_though_a_response_was_lost() {
    const LONG: u32 = 100 * MTU;
    let mut requests = [(send(), 10); 15];
    requests[1] = (read(0), 4 * MTU);
    requests[14] = (read(0), LONG);
    let mut lone = Lone::with(with_timeout(14), &requests);
    lone.poll_psns();
    assert_eq!(again(&mut lone, 0), [0]);
    let train = Vec::from_iter([1].into_iter().chain(5..17));
    assert_eq!(again(&mut lone, 1), train);
    lone.sleep(ROUND_TRIP_NS);
    lone.data(1, 1, 4 * MTU);
    // The response 2 is lost, and asked for again.
    lone.data(3, 1, 4 * MTU);
    assert_eq!(reads(lone.poll_all()), [(2, MTU)]);
    lone.data(4, 1, 4 * MTU);
    lone.data(2, 2, MTU);
    lone.ack(16);
    assert_eq!(lone.poll_psns(), []);
    lone.sleep(20_000_000);
    assert_eq!(reads(lone.poll_all()), [(17, LONG)]);
    assert_eq!(lone.count(Event::AckTimeout), 0);
}

// Rules: RTY-20
#[test]
fn a_probe_has_no_packet_that_was_never_sent() {
    let mut lone = Lone::with(with_timeout(14), &[(send(), 10); 2]);
    assert_eq!(lone.poll_psns(), [0, 1]);
    lone.sleep(20_000_000);
    assert_eq!(lone.poll_psns(), [0]);
    lone.ack(0);
    assert_eq!(lone.poll_psns(), [1]);
    lone.post(2, write(0), 100 * MTU, SendFlags::default());
    // Rules: RTY-25
    assert_eq!(lone.poll(), None);
    lone.ack(1);
    let (bth, (psn, ..)) = lone.poll().unwrap();
    assert_eq!((psn, bth.ack_req), (2, false));
}

// Rules: RTY-20
#[test]
fn a_probe_of_a_peer_that_keeps_packets_has_none_that_was_never_sent() {
    let mut lone = idle_with_a_peer_that_keeps();
    for id in 40..42 {
        lone.post(id, send(), 10, SendFlags::default());
    }
    assert_eq!(lone.poll_psns(), [40, 41]);
    lone.sleep(4 * TIMEOUT_NS);
    assert_eq!(lone.poll_psns(), [40]);
    lone.ack(40);
    assert_eq!(lone.poll_psns(), [41]);
    lone.post(42, write(0), 100 * MTU, SendFlags::default());
    let (bth, (psn, ..)) = lone.poll().unwrap();
    assert_eq!((psn, bth.ack_req), (42, false));
}

// Rules: RTY-19
#[test]
fn an_old_acknowledgement_asks_for_nothing_that_was_not_sent() {
    let mut lone = before_reads(14);
    repair_before_reads(&mut lone);
    lone.post(20, write(0), 4 * MTU, SendFlags::default());
    assert_eq!(lone.poll().unwrap().1 .0, 20);
    lone.requester.unsend(Psn::new(FIRST).add(20));
    lone.sleep(4 * ROUND_TRIP_NS);
    lone.ack(19);
    assert_eq!(lone.poll_psns(), [20, 21, 22, 23]);
    // This is no repair on its way.
    lone.nak(20, NakCode::SequenceError);
    assert_eq!(lone.poll_psns(), [20]);
}

// Rules: RTY-13
#[test]
fn what_is_acknowledged_is_not_sent_again() {
    let mut lone = Lone::with(config(), &[(send(), 10), (send(), 1000), (send(), 10)]);
    lone.poll_psns();
    lone.nak(1, NakCode::SequenceError);
    assert_eq!(lone.poll().unwrap().1 .0, 1);
    lone.sleep(ROUND_TRIP_NS);
    // The NAK was stale, or the peer has kept more; but not the next one, which was sent before.
    lone.ack(3);
    assert_eq!(lone.poll_psns(), [4]);
    lone.nak(5, NakCode::SequenceError);
    lone.ack(5);
    assert_eq!(lone.poll_psns(), []);
    all_succeeded(&lone.statuses(), 0..3);
}

// Rules: ERR-10, RTY-8
#[test]
fn without_retries_the_first_nak_is_the_last() {
    let config = SendConfig {
        retry_cnt: RetryCount::NONE,
        ..config()
    };
    let mut lone = Lone::with(config, &[(send(), 10), (send(), 10), (send(), 10)]);
    lone.poll_psns();
    lone.nak(1, NakCode::SequenceError);
    assert_eq!(
        lone.statuses(),
        failed_after(0..1, Status::TransportRetryExceeded, 1)
    );
    assert_eq!(lone.requester.state(), SendState::Error);
}

// Rules: ERR-4, ERR-7, NAK-5, NAK-16, NAK-17, NAK-19
#[test]
fn each_refusal_has_its_status() {
    for (code, status) in [
        (NakCode::InvalidRequest, Status::RemoteInvalidRequest),
        (NakCode::RemoteAccess, Status::RemoteAccess),
        (NakCode::RemoteOperation, Status::RemoteOperation),
    ] {
        for op in [send(), write(0), read(0)] {
            let mut lone = Lone::with(config(), &[(write(0), 10), (op, 700), (send(), 10)]);
            lone.poll_psns();
            lone.post(3, send(), 10, SendFlags::default());
            lone.nak(2, code);
            assert_eq!(lone.statuses(), failed_after(0..1, status, 2));
            assert_eq!(lone.requester.state(), SendState::Error);
            assert_eq!(lone.requester.poll_timeout(), None);
            assert_eq!(lone.poll_psns(), []);
            assert_eq!(lone.world.payloads.count(), 0);
        }
    }
}

// Rules: NAK-18
#[test]
fn a_refusal_behind_an_incomplete_read_is_a_gap() {
    let mut lone = Lone::with(config(), &[(read(0), 700), (send(), 10)]);
    lone.poll_psns();
    lone.data(0, 0, 700);
    lone.nak(3, NakCode::InvalidRequest);
    assert_eq!(lone.statuses(), []);
    assert_eq!(lone.count(Event::ResponseGap), 1);
    assert_eq!(lone.poll_psns(), [1]);
    lone.data(1, 0, 700);
    lone.data(2, 0, 700);
    let refused = failed_after(0..1, Status::RemoteInvalidRequest, 0);
    assert_eq!(lone.statuses(), refused);
}

// Rules: RTY-1, RTY-3, RTY-7, RTY-8, RTY-11
#[test]
fn the_timer_sends_again_and_gives_up() {
    let mut lone = Lone::with(config(), &[(send(), 300), (send(), 10)]);
    lone.poll_psns();
    for patience in [1, 2] {
        assert_eq!(
            lone.requester.poll_timeout(),
            Some(lone.now.after_ns(patience * TIMEOUT_NS))
        );
        lone.sleep(patience * TIMEOUT_NS - 1);
        assert_eq!(lone.poll_psns(), []);
        lone.sleep(1);
        assert_eq!(lone.poll_psns(), [0], "the peer may only be slow");
    }
    lone.sleep(4 * TIMEOUT_NS);
    assert_eq!(
        lone.statuses(),
        failed_after(0..0, Status::TransportRetryExceeded, 1)
    );
    assert_eq!(lone.count(Event::AckTimeout), 3);
    assert_eq!(lone.count(Event::Retransmit), 2);
    assert_eq!(lone.count(Event::RetryExceeded), 1);
}

// Rules: RTY-1, RTY-20
#[test]
fn a_probe_is_no_timeout() {
    let config = with_timeout(14);
    let timeout_ns = config.timeout.delay_ns().unwrap();
    let mut lone = Lone::with(config, &[(send(), 10)]);
    assert!(!lone.sleep(MIN_PROBE_NS * 1000), "nothing was sent");
    lone.poll_psns();
    assert!(!lone.sleep(2 * INITIAL_PATIENCE_NS));
    assert_eq!(lone.poll_psns(), [0]);
    assert_eq!(
        (lone.count(Event::Probe), lone.count(Event::AckTimeout)),
        (1, 0)
    );
    assert!(lone.sleep(timeout_ns));
    assert_eq!(lone.count(Event::AckTimeout), 1);
}

// Rules: RTY-3
#[test]
fn the_timer_waits_for_a_peer_that_is_usually_slow() {
    for (round_trip_ns, wait_ns) in [
        (TIMEOUT_NS / 8, TIMEOUT_NS),
        (TIMEOUT_NS * 3 / 4, TIMEOUT_NS * 3 / 2),
        (TIMEOUT_NS * 3, TIMEOUT_NS * 4),
    ] {
        let mut lone = Lone::with(config(), &[]);
        for psn in 0..50 {
            lone.post(psn.into(), send(), 10, SendFlags::default());
            assert_eq!(lone.poll_psns(), [psn]);
            lone.now = lone.now.after_ns(round_trip_ns);
            lone.ack(psn);
        }
        lone.post(50, send(), 10, SendFlags::default());
        lone.poll_psns();
        let at = lone.requester.poll_timeout().unwrap();
        // The average deviation stays at some nanoseconds.
        let over_ns = at.since(lone.now).abs_diff(wait_ns);
        assert!(over_ns < 100, "{over_ns} ns off after {round_trip_ns} ns");
    }
}

// Rules: RTY-3
#[test]
fn the_timer_waits_for_a_peer_that_becomes_slow() {
    let config = with_timeout(14);
    let timeout_ns = config.timeout.delay_ns().unwrap();
    let slow_ns = timeout_ns * 9 / 10;
    let mut lone = Lone::with(config, &[]);
    for psn in 0..50 {
        let took_ns = match psn {
            0..20 if psn % 2 == 0 => slow_ns / 15,
            0..20 => slow_ns / 5,
            // A probe comes so that this is a usual time after it.
            _ => slow_ns,
        };
        let answered_at = lone.now.after_ns(took_ns);
        lone.post(psn.into(), send(), 10, SendFlags::default());
        lone.poll_psns();
        while lone.requester.poll_timeout().unwrap() < answered_at {
            let at = lone.requester.poll_timeout().unwrap();
            assert!(!lone.sleep(at.since(lone.now)), "only probes are due");
            lone.poll_psns();
        }
        lone.now = answered_at;
        lone.ack(psn);
    }
    assert!(
        lone.count(Event::Probe) >= 30,
        "{}",
        lone.count(Event::Probe)
    );
    lone.post(50, send(), 10, SendFlags::default());
    lone.poll_psns();
    lone.sleep(timeout_ns * 5 / 4);
    assert_eq!(lone.count(Event::AckTimeout), 0);
    lone.sleep(timeout_ns);
    assert_eq!(lone.count(Event::AckTimeout), 1);
}

// Rules: RTY-20
#[test]
fn a_probe_that_is_not_sent_yet_is_not_lost() {
    let mut lone = Lone::with(with_timeout(18), &[(send(), 10); 8000]);
    let sent = lone.poll_psns().len();
    let window = lone.requester.report().unwrap().window;
    for _ in 0..3 {
        lone.sleep(10 * INITIAL_PATIENCE_NS);
    }
    assert_eq!(lone.poll_psns(), [0], "{sent} are outstanding");
    assert_eq!(lone.count(Event::Probe), 1);
    assert_eq!(lone.requester.report().unwrap().window, window);
}

// Rules: RTY-5
#[test]
fn what_is_sent_later_does_not_put_the_timer_off() {
    let mut lone = Lone::with(config(), &[(send(), 10)]);
    lone.poll_psns();
    let timeout = lone.requester.poll_timeout();
    lone.sleep(TIMEOUT_NS / 2);
    lone.post(1, send(), 10, SendFlags::default());
    assert_eq!(lone.poll_psns(), [1]);
    assert_eq!(lone.requester.poll_timeout(), timeout);
}

// Rules: ACK-11, RTY-6, RTY-10
#[test]
fn progress_winds_timer_and_retries_up_again() {
    let mut lone = Lone::with(config(), &[(send(), 1000)]);
    lone.poll_psns();
    for psn in 0..4 {
        for patience in [1, 2] {
            lone.sleep(patience * TIMEOUT_NS);
            assert_eq!(lone.poll_psns().first(), Some(&psn));
        }
        lone.sleep(4 * TIMEOUT_NS - 1);
        lone.ack(psn);
        let timeouts = lone.count(Event::AckTimeout);
        lone.sleep(1);
        lone.poll_psns();
        assert_eq!(lone.count(Event::AckTimeout), timeouts);
    }
    all_succeeded(&lone.statuses(), 0..1);
    assert_eq!(lone.requester.poll_timeout(), None);
}

// Rules: RTY-4
#[test]
fn without_a_timeout_it_waits_for_ever() {
    let config = SendConfig {
        timeout: AckTimeout::NEVER,
        ..config()
    };
    let mut lone = Lone::with(config, &[(send(), 10)]);
    lone.poll_psns();
    assert_eq!(lone.requester.poll_timeout(), None);
    lone.sleep(u64::MAX / 2);
    assert_eq!(lone.poll_psns(), []);
    lone.ack(0);
    all_succeeded(&lone.statuses(), 0..1);
}

// Rules: RTY-1, RTY-7
#[test]
fn after_a_timeout_the_answer_tells_what_the_peer_lacks() {
    let mut lone = Lone::with(config(), &[(send(), 10); 100]);
    let sent = lone.poll_psns().len() as u32;
    lone.sleep(TIMEOUT_NS);
    assert_eq!(lone.poll_psns(), [0]);
    // It lacks all of them.
    let mut lacks = 1;
    for packets in [2, 4, 8] {
        lone.ack(lacks - 1);
        assert_eq!(lone.poll_psns(), Vec::from_iter(lacks..lacks + packets));
        lacks += packets;
    }
    // It was slow: the others were on their way.
    lone.ack(lacks);
    lone.ack(sent - 2);
    assert_eq!(lone.poll_psns(), []);
    lone.ack(sent - 1);
    all_succeeded(&lone.statuses(), 0..100);
    assert_eq!(lone.count(Event::Retransmit), 1);
}

// Rules: RTY-25
#[test]
fn after_a_timeout_nothing_new_is_sent_before_an_answer() {
    let mut lone = Lone::with(config(), &[(send(), 10); 3]);
    assert_eq!(lone.poll_psns(), [0, 1, 2]);
    lone.sleep(TIMEOUT_NS);
    lone.post(3, send(), 10, SendFlags::default());
    assert_eq!(lone.poll_psns(), [0]);
    assert_eq!(lone.requester.blocked(), Some(Blocked::Answer));
    // It lacks the next one, so it is asked whether it lacks that behind it.
    lone.ack(0);
    assert_eq!(lone.poll_psns(), [1, 2]);
    lone.ack(2);
    assert_eq!(lone.poll_psns(), [3]);
    lone.ack(3);
    all_succeeded(&lone.statuses(), 0..4);
}

// Rules: RTY-25
#[test]
fn behind_a_question_a_read_is_to_be_answered_too() {
    let requests = [(send(), 10), (read(0), 10), (send(), 10)];
    for is_silent in [false, true] {
        let mut lone = Lone::with(with_timeout(14), &requests);
        assert_eq!(lone.poll_psns(), [0, 1, 2]);
        lone.sleep(20_000_000);
        lone.post(3, send(), 10, SendFlags::default());
        assert_eq!(lone.poll_psns(), [0]);
        // The peer may have dropped the READ, and what is behind it.
        lone.ack(0);
        assert_eq!(lone.poll_psns(), []);
        assert_eq!(lone.requester.blocked(), Some(Blocked::Answer));
        if is_silent {
            lone.sleep(20_000_000);
            assert_eq!(lone.poll_psns(), [1, 2, 3]);
        } else {
            lone.data(1, 1, 10);
            assert_eq!(lone.poll_psns(), [3]);
        }
        assert_eq!(lone.count(Event::AckTimeout), 0);
    }
}

// Rules: RTY-25
#[test]
fn the_first_response_to_a_read_answers_a_question() {
    let requests = [(send(), 10), (send(), 10), (read(0), 3 * MTU), (send(), 10)];
    let mut lone = Lone::with(with_timeout(14), &requests);
    assert_eq!(lone.poll_psns(), [0, 1, 2, 5]);
    lone.sleep(20_000_000);
    lone.post(4, send(), 10, SendFlags::default());
    assert_eq!(lone.poll_psns(), [0]);
    // It lacks the next one, so it is asked whether it lacks the READ, too.
    lone.ack(0);
    assert_eq!(lone.poll_psns(), [1, 2]);
    lone.ack(1);
    assert_eq!(lone.poll_psns(), []);
    lone.data(2, 2, 3 * MTU);
    assert_eq!(lone.poll_psns(), [6]);
}

// Rules: RTY-25, RTY-4
#[test]
fn without_a_timer_a_question_holds_nothing_back() {
    let mut lone = Lone::with(config(), &[(send(), 10); 2]);
    assert_eq!(lone.poll_psns(), [0, 1]);
    lone.sleep(TIMEOUT_NS);
    assert_eq!(lone.poll_psns(), [0]);
    lone.requester.modify(SendUpdate {
        timeout: AckTimeout::NEVER,
        ..update()
    });
    lone.sleep(20 * TIMEOUT_NS);
    assert_eq!(lone.poll_psns(), [0]);
    assert_eq!(lone.requester.poll_timeout(), None);
    lone.post(2, send(), 10, SendFlags::default());
    assert_eq!(lone.poll_psns(), [2]);
}

// Rules: RTY-25
#[test]
fn a_peer_that_keeps_packets_gets_new_ones_after_a_timeout() {
    let mut lone = idle_with_a_peer_that_keeps();
    lone.post(40, send(), 10, SendFlags::default());
    assert_eq!(lone.poll_psns(), [40]);
    lone.sleep(4 * TIMEOUT_NS);
    assert_eq!(lone.count(Event::AckTimeout), 1);
    lone.post(41, send(), 10, SendFlags::default());
    assert_eq!(lone.poll_psns(), [40, 41]);
}

// Rules: RTY-1, RTY-7, RNR-9
#[test]
fn a_timeout_while_all_is_sent_again_leaves_nothing_out() {
    let mut lone = Lone::with(config(), &[(send(), 10); 6]);
    assert_eq!(lone.poll_psns(), [0, 1, 2, 3, 4, 5]);
    // The peer has dropped the others.
    lone.rnr_nak(0, 1);
    lone.sleep(10_000);
    let psn = |(_, (psn, ..)): (Bth, Sent)| psn;
    assert_eq!(lone.poll().map(psn), Some(0));
    assert_eq!(lone.poll().map(psn), Some(1));
    // The machine stands still before the rest.
    assert!(lone.sleep(TIMEOUT_NS));
    assert_eq!(lone.poll_psns(), [0, 1, 2, 3, 4, 5]);
    lone.ack(5);
    all_succeeded(&lone.statuses(), 0..6);
}

// Rules: RTY-1, RTY-7
#[test]
fn after_a_timeout_a_read_is_asked_for_alone_until_nothing_follows() {
    let config = SendConfig {
        max_rd_atomic: 4,
        ..config()
    };
    let mut lone = Lone::with(config, &[(read(0), 10); 4]);
    assert_eq!(lone.poll_psns(), [0, 1, 2, 3]);
    lone.sleep(TIMEOUT_NS);
    assert_eq!(lone.poll_psns(), [0]);
    // The peer is slow.
    lone.data(0, 0, 10);
    lone.data(1, 1, 10);
    assert_eq!(lone.poll_psns(), []);
    // The other responses are lost.
    lone.sleep(TIMEOUT_NS);
    assert_eq!(lone.poll_psns(), [2]);
    lone.data(2, 2, 10);
    lone.sleep(TIMEOUT_NS - 1);
    assert_eq!(lone.poll_psns(), []);
    lone.sleep(1);
    assert_eq!(lone.poll_psns(), [3]);
    lone.data(3, 3, 10);
    all_succeeded(&lone.statuses(), 0..4);
}

// Rules: RTY-7, RTY-20
#[test]
fn after_a_timeout_and_a_silence_all_is_asked_for_again() {
    let config = SendConfig {
        max_rd_atomic: 4,
        timeout: AckTimeout::new(14).unwrap(),
        ..config()
    };
    let mut lone = Lone::with(config, &[(read(0), 10); 4]);
    assert_eq!(lone.poll_psns(), [0, 1, 2, 3]);
    lone.sleep(4096 << 14);
    assert_eq!(lone.poll_psns(), [0]);
    lone.data(0, 0, 10);
    lone.sleep(1_000_000);
    assert_eq!(lone.poll_psns(), []);
    lone.sleep(4_000_000);
    assert_eq!(lone.poll_psns(), [1, 2, 3]);
    assert_eq!(lone.count(Event::AckTimeout), 1);
    // That was done once: then it is the oldest alone.
    lone.sleep(50_000_000);
    assert_eq!(lone.poll_psns(), [1]);
}

// Rules: RTY-7, RTY-20
#[test]
fn a_timeout_is_forgotten_when_what_was_sent_before_it_is_acknowledged() {
    let mut lone = Lone::with(with_timeout(14), &[(send(), 10); 4000]);
    lone.poll_psns();
    while lone.count(Event::AckTimeout) == 0 {
        lone.sleep(1_000_000);
        lone.poll_psns();
    }
    // Some are outstanding at any time.
    for psn in 0..1000 {
        lone.sleep(1_000);
        lone.ack(psn);
        lone.poll_psns();
    }
    let probes = lone.count(Event::Probe);
    while lone.count(Event::Probe) == probes {
        lone.sleep(100_000);
    }
    assert_eq!(lone.poll_psns(), [1000]);
}

// Rules: NAK-15, RTY-9
#[test]
fn a_nak_for_what_the_timer_sends_again_says_nothing_new() {
    let mut lone = Lone::with(config(), &[(send(), 700)]);
    lone.poll_psns();
    lone.nak(0, NakCode::SequenceError);
    lone.poll_psns();
    lone.sleep(TIMEOUT_NS);
    assert_eq!(lone.poll_psns(), [0]);
    lone.nak(0, NakCode::SequenceError);
    assert_eq!(lone.poll_psns(), []);
    assert_eq!(lone.statuses(), []);
    // The third retry is one too many.
    lone.sleep(2 * TIMEOUT_NS);
    assert_eq!(
        lone.statuses(),
        failed_after(0..0, Status::TransportRetryExceeded, 0)
    );
}

// Rules: RNR-7, RNR-8, RNR-9, RNR-15
#[test]
fn an_rnr_nak_is_waited_out() {
    let mut lone = Lone::with(config(), &[(write(0), 10), (send(), 300), (send(), 10)]);
    lone.poll_psns();
    lone.rnr_nak(1, 5);
    let until = lone.now.after_ns(60_000);
    all_succeeded(&lone.statuses(), 0..1);
    assert_eq!(lone.requester.poll_timeout(), Some(until));
    // The same NAK again, and any other talk of loss, change nothing.
    lone.rnr_nak(1, 20);
    lone.nak(1, NakCode::SequenceError);
    lone.sleep(59_999);
    assert_eq!(lone.poll_psns(), []);
    assert_eq!(lone.requester.blocked(), Some(Blocked::Rnr));
    lone.sleep(1);
    assert_eq!(lone.poll_psns(), [1, 2, 3]);
    assert_eq!(lone.count(Event::RnrNakReceived), 1);
    lone.ack(3);
    all_succeeded(&lone.statuses(), 0..3);
}

#[test]
fn polling_late_enough_ends_the_wait_by_itself() {
    let mut lone = Lone::with(config(), &[(send(), 10)]);
    lone.poll_psns();
    lone.rnr_nak(0, 1);
    lone.now = lone.now.after_ns(10_000);
    assert_eq!(lone.poll_psns(), [0]);
}

// Rules: RNR-16
#[test]
fn progress_ends_the_wait() {
    let mut lone = Lone::with(config(), &[(send(), 10), (send(), 10)]);
    lone.poll_psns();
    lone.rnr_nak(0, 1);
    lone.ack(0); // The NAK was a stray copy.
    assert_eq!(lone.poll_psns(), [1]);
}

// Rules: RNR-11, RNR-12, RNR-14, RNR-18
#[test]
fn rnr_retries_run_out_unless_infinite() {
    for (count, tries) in [(0, 1), (2, 3), (6, 7), (7, 50)] {
        let config = SendConfig {
            rnr_retry: RetryCount::new(count).unwrap(),
            retry_cnt: RetryCount::NONE,
            ..config()
        };
        let mut lone = Lone::with(config, &[(send(), 10), (send(), 10)]);
        for _ in 0..tries {
            assert_eq!(lone.statuses(), []);
            assert_eq!(lone.poll_psns(), [0, 1]);
            lone.rnr_nak(0, 1);
            lone.sleep(10_000);
        }
        if count == 7 {
            assert_eq!(lone.statuses(), []);
        } else {
            let expected = failed_after(0..0, Status::RnrRetryExceeded, 1);
            assert_eq!(lone.statuses(), expected);
            assert_eq!(lone.count(Event::RnrRetryExceeded), 1);
        }
    }
}

// Rules: RNR-14
#[test]
fn an_rnr_nak_shows_that_the_peer_is_there() {
    let mut lone = Lone::with(config(), &[(send(), 10)]);
    for _ in 0..2 {
        // The timer is let run out as often as may be, then the peer speaks.
        for patience in [1, 2] {
            assert_eq!(lone.poll_psns(), [0]);
            lone.sleep(patience * TIMEOUT_NS);
        }
        assert_eq!(lone.poll_psns(), [0]);
        lone.rnr_nak(0, 1);
        lone.sleep(10_000);
    }
    assert_eq!(lone.poll_psns(), [0]);
    assert_eq!(lone.statuses(), []);
}

// Rules: RNR-13
#[test]
fn progress_winds_rnr_retries_up_again() {
    let mut lone = Lone::with(config(), &[(send(), 10), (send(), 10)]);
    for psn in 0..2 {
        for _ in 0..2 {
            lone.poll_psns();
            lone.rnr_nak(psn, 1);
            lone.sleep(10_000);
        }
        lone.poll_psns();
        lone.ack(psn);
    }
    all_succeeded(&lone.statuses(), 0..2);
}

// Rules: RTY-21
#[test]
fn a_host_that_keeps_no_responses_gets_all_again() {
    let mut lone = Lone::with(config(), &[(read(0), 1000)]);
    lone.poll_psns();
    lone.data(0, 0, 1000);
    lone.data(2, 0, 1000);
    lone.early.clear();
    lone.requester.not_kept();
    let again = lone.poll_all();
    let Request::Read(reth) = again[0].1 else {
        panic!("{again:?}");
    };
    assert_eq!((again[0].0, reth.length), (1, 1000 - MTU));
    // Later early packets are not kept.
    lone.data(3, 0, 1000);
    assert!(lone.early.is_empty());
    for psn in 1..4 {
        lone.data(psn, 0, 1000);
    }
    all_succeeded(&lone.statuses(), 0..1);
}

// Rules: ACK-6, RTY-21, SEG-13, SEG-14
#[test]
fn lost_responses_are_asked_for_again_and_only_those() {
    let len = 1000;
    for lost in 0..4 {
        let mut lone = Lone::with(config(), &[(write(0), 10), (read(0x40), len)]);
        assert_eq!(lone.poll_psns(), [0, 1]);
        for psn in 1..5 {
            if psn != lost + 1 {
                lone.data(psn, 1, len);
            }
        }
        if lost == 3 {
            lone.sleep(TIMEOUT_NS); // Nothing comes after it that could tell.
        }
        let (psn, request, _) = lone.poll_all()[0];
        assert_eq!(psn, 1 + lost);
        let Request::Read(reth) = request else {
            panic!("{request:?}");
        };
        let rest = remote(0x40 + (lost * MTU) as usize);
        assert_eq!((reth.iova, reth.rkey), (rest.iova, rest.rkey));
        // No response that has come is requested again.
        assert_eq!(reth.length, MTU.min(len - lost * MTU));
        assert_eq!(lone.poll_psns(), []);
        let ack = aeth(Syndrome::ACK);
        let payload = vec![1 + lost as u8; reth.length as usize];
        lone.respond(1 + lost, Response::ReadOnly(ack), &payload);
        all_succeeded(&lone.statuses(), 0..2);
        assert_eq!(lone.world.memory[..3], [1, 1, 1]);
        assert_eq!(lone.world.memory[999..1001], [4, 0x5a]);
        assert_eq!(lone.count(Event::Retransmit), 1);
    }
}

#[test]
fn a_gap_is_answered_once_for_each_psn() {
    let mut lone = Lone::with(config(), &[(read(0), 2560)]);
    lone.poll_psns();
    lone.data(0, 0, 2560);
    for psn in 2..9 {
        lone.data(psn, 0, 2560);
    }
    assert_eq!(lone.count(Event::ResponseGap), 7);
    assert_eq!(lone.poll_psns(), [1]);
    assert_eq!(lone.count(Event::Retransmit), 1);
    // The late one closes the gap before the answer to the new request.
    lone.data(1, 0, 2560);
    lone.data(1, 0, 2560);
    lone.data(9, 0, 2560);
    all_succeeded(&lone.statuses(), 0..1);
    assert_eq!(lone.poll_psns(), []);
    assert_eq!(lone.count(Event::Retransmit), 1);
}

// Rules: RTY-9
#[test]
fn a_gap_uses_up_retries_too() {
    let mut lone = Lone::with(config(), &[(read(0), 1000), (send(), 10)]);
    assert_eq!(lone.poll_psns(), [0, 4]);
    lone.ack(4);
    assert_eq!(lone.poll_psns(), [0]);
    lone.sleep(TIMEOUT_NS);
    assert_eq!(lone.poll_psns(), [0]);
    // Two were all.
    lone.data(1, 0, 1000);
    assert_eq!(
        lone.statuses(),
        failed_after(0..0, Status::TransportRetryExceeded, 1)
    );
}

// Rules: DUP-17
#[test]
fn a_late_response_shortens_what_is_asked_for_again() {
    let mut lone = Lone::with(config(), &[(read(0), 1000)]);
    lone.poll_psns();
    lone.data(2, 0, 1000);
    lone.data(0, 0, 1000);
    assert_eq!(lone.poll_psns(), [1]);
    lone.data(3, 0, 1000);
    lone.data(1, 0, 1000);
    all_succeeded(&lone.statuses(), 0..1);
    assert_eq!(lone.poll_psns(), []);
}

// Rules: ACK-5, CPL-7
#[test]
fn only_data_complete_a_read() {
    for (ack, gaps, retired) in [
        (0, 0, 1), // before it
        (1, 0, 1), // its first response's number
        (4, 0, 1), // its last one's
        (5, 1, 1), // behind it
    ] {
        let requests = [(write(0), 10), (read(0), 1000), (send(), 10)];
        let mut lone = Lone::with(config(), &requests);
        assert_eq!(lone.poll_psns(), [0, 1, 5]);
        lone.ack(ack);
        assert_eq!(lone.count(Event::ResponseGap), gaps, "ACK {ack}");
        all_succeeded(&lone.statuses(), 0..retired);
        let again = if gaps > 0 { vec![1] } else { vec![] };
        assert_eq!(lone.poll_psns(), again);
        for psn in 1..5 {
            lone.data(psn, 1, 1000);
        }
        if ack != 5 {
            lone.ack(5);
        }
        all_succeeded(&lone.statuses(), 0..3);
    }
}

// Rules: RDA-22
#[test]
fn a_responder_may_start_the_rest_of_a_read_as_a_new_response() {
    let mut lone = Lone::with(config(), &[(read(0), 1000)]);
    lone.poll_psns();
    lone.data(0, 0, 1000);
    lone.data(2, 0, 1000);
    lone.poll_psns();
    let ack = aeth(Syndrome::ACK);
    lone.respond(1, Response::ReadOnly(ack), &[1; 256]);
    lone.respond(3, Response::ReadOnly(ack), &[3; 232]);
    all_succeeded(&lone.statuses(), 0..1);
    // Or all of it, after a timeout.
    let mut lone = Lone::with(config(), &[(read(0), 1000)]);
    lone.poll_psns();
    lone.data(0, 0, 1000);
    lone.sleep(TIMEOUT_NS);
    assert_eq!(lone.poll_psns(), [1]);
    lone.respond(1, Response::ReadFirst(ack), &[1; 256]);
    lone.respond(2, Response::ReadMiddle, &[2; 256]);
    lone.respond(3, Response::ReadOnly(ack), &[3; 232]);
    all_succeeded(&lone.statuses(), 0..1);
}

// Rules: RDA-18, RDA-19, RDA-20, RDA-21
#[test]
fn responses_that_cannot_be_fail_the_request() {
    let ack = aeth(Syndrome::ACK);
    let nak = aeth(Syndrome::Nak(NakCode::RemoteAccess));
    let atomic = AtomicAckEth { original: 0 };
    let full = [0; 256];
    let cases: [(SendOp, u32, Response, &[u8]); 21] = [
        // Too long, too short.
        (read(0), 10, Response::ReadOnly(ack), &full[..11]),
        (read(0), 10, Response::ReadOnly(ack), &full[..9]),
        (read(0), 0, Response::ReadOnly(ack), &full[..1]),
        (read(0), 300, Response::ReadFirst(ack), &full[..255]),
        (read(0), 300, Response::ReadMiddle, &full[..0]),
        // It does not begin.
        (read(0), 300, Response::ReadMiddle, &full),
        (read(0), 10, Response::ReadLast(ack), &full[..10]),
        // It is too long, or ends too early.
        (read(0), 10, Response::ReadFirst(ack), &full[..10]),
        (read(0), 256, Response::ReadMiddle, &full),
        (read(0), 257, Response::ReadOnly(ack), &full),
        (read(0), 300, Response::ReadLast(ack), &full),
        // The wrong kind.
        (send(), 10, Response::ReadOnly(ack), &full[..10]),
        (write(0), 10, Response::ReadMiddle, &full),
        (send(), 10, Response::AtomicAcknowledge(ack, atomic), &[]),
        (read(0), 8, Response::AtomicAcknowledge(ack, atomic), &[]),
        (fetch_add(0, 1), 8, Response::ReadOnly(ack), &full[..8]),
        (fetch_add(0, 1), 8, Response::ReadFirst(ack), &full),
        (compare_swap(0, 1, 2), 8, Response::ReadMiddle, &full),
        (compare_swap(0, 1, 2), 8, Response::ReadLast(ack), &[]),
        // Data with a refusal.
        (
            fetch_add(0, 1),
            8,
            Response::AtomicAcknowledge(nak, atomic),
            &[],
        ),
        (read(0), 10, Response::ReadOnly(nak), &full[..10]),
    ];
    for (op, len, response, payload) in cases {
        let mut lone = Lone::with(config(), &[(op, len), (send(), 10)]);
        lone.poll_psns();
        lone.respond(0, response, payload);
        assert_eq!(
            lone.statuses(),
            failed_after(0..0, Status::BadResponse, 1),
            "{response:?} to {op:?}"
        );
        assert_eq!(lone.world.memory[..256], [0x5a; 256], "nothing is placed");
    }
}

impl Lone {
    /// Delivers the response `psn` to an atomic, with this original value.
    fn original(&mut self, psn: u32, original: u64) {
        let ack = aeth(Syndrome::ACK);
        self.respond(
            psn,
            Response::AtomicAcknowledge(ack, AtomicAckEth { original }),
            &[],
        );
    }
}

// Rules: DUP-17, SEG-15
#[test]
fn an_atomic_is_one_packet_that_says_what_to_do() {
    let requests = [(fetch_add(0x40, 7), 8), (compare_swap(0x48, 1, 2), 8)];
    let mut lone = Lone::with(config(), &requests);
    let eth = |at, swap_add, compare| AtomicEth {
        iova: remote(at).iova,
        rkey: remote(at).rkey,
        swap_add,
        compare,
    };
    assert_eq!(
        lone.poll_all(),
        [
            (0, Request::FetchAdd(eth(0x40, 7, 0)), 0),
            (1, Request::CompareSwap(eth(0x48, 2, 1)), 0),
        ]
    );
    lone.original(0, 0x0102_0304_0506_0708);
    all_succeeded(&lone.statuses(), 0..1);
    assert_eq!(lone.world.word(0), 0x0102_0304_0506_0708);
    lone.original(0, 1); // Again: it is complete.
    assert_eq!(lone.count(Event::StaleResponse), 1);
    assert_eq!(lone.world.word(0), 0x0102_0304_0506_0708);
    lone.original(1, 9);
    all_succeeded(&lone.statuses(), 0..2);
    assert_eq!(lone.poll_psns(), []);
}

// Rules: CPL-13, MPE-6, MPE-7, MPE-8, PSN-7
#[test]
fn atomic_writes_and_flushes_wait_for_an_empty_response() {
    let requests = [(atomic_write(0x40), 8), (flush(0x48, false), 5000)];
    let mut lone = Lone::with(config(), &requests);
    lone.post(2, flush(0, true), u32::MAX >> 1, SendFlags::default());
    let eth = |at, length| Reth {
        iova: remote(at).iova,
        rkey: remote(at).rkey,
        length,
    };
    let feth = |selectivity| Feth {
        placement: 1,
        selectivity,
    };
    let sent = lone.poll_all();
    assert_eq!(
        sent,
        [
            (0, Request::AtomicWrite(eth(0x40, 8)), 8),
            (1, Request::Flush(feth(0), eth(0x48, 5000)), 0),
        ]
    );
    // They count against the depth.
    assert_eq!(lone.requester.blocked(), Some(Blocked::ReadDepth));
    let ack = aeth(Syndrome::ACK);
    lone.ack(1);
    lone.respond(0, Response::ReadOnly(ack), &[]);
    all_succeeded(&lone.statuses(), 0..1);
    let third = Request::Flush(feth(1), eth(0, u32::MAX >> 1));
    let sent = lone.poll_all();
    assert!(sent.contains(&(2, third, 0)), "{sent:?}");
    lone.respond(1, Response::ReadOnly(ack), &[]);
    lone.respond(2, Response::ReadOnly(ack), &[]);
    all_succeeded(&lone.statuses(), 0..3);
    let ops = [
        CompletionOp::AtomicWrite,
        CompletionOp::Flush,
        CompletionOp::Flush,
    ];
    assert!(lone.world.sent.iter().map(|one| one.op).eq(ops));
    for response in [
        Response::ReadFirst(ack),
        Response::ReadMiddle,
        Response::ReadLast(ack),
        Response::AtomicAcknowledge(ack, AtomicAckEth { original: 0 }),
    ] {
        let mut lone = Lone::with(config(), &[(flush(0, false), 8)]);
        lone.poll_psns();
        lone.respond(0, response, &[]);
        assert_eq!(lone.statuses(), failed_after(0..0, Status::BadResponse, 0));
    }
}

// Rules: ACK-5, CPL-7
#[test]
fn only_its_answer_completes_an_atomic() {
    for (ack, gaps, retired) in [
        (0, 0, 1), // before it
        (1, 0, 1), // its own number
        (2, 1, 1), // behind it
    ] {
        let requests = [(write(0), 10), (fetch_add(0, 1), 8), (send(), 10)];
        let mut lone = Lone::with(config(), &requests);
        assert_eq!(lone.poll_psns(), [0, 1, 2]);
        lone.ack(ack);
        assert_eq!(lone.count(Event::ResponseGap), gaps, "ACK {ack}");
        all_succeeded(&lone.statuses(), 0..retired);
        let again = if gaps > 0 { vec![1] } else { vec![] };
        assert_eq!(lone.poll_psns(), again);
        lone.original(1, 1);
        if ack != 2 {
            lone.ack(2);
        }
        all_succeeded(&lone.statuses(), 0..3);
    }
}

// Rules: ACK-6, NAK-18
#[test]
fn an_answer_behind_one_that_is_missing_is_a_gap() {
    let mut lone = Lone::with(config(), &[(fetch_add(0, 1), 8), (fetch_add(0, 1), 8)]);
    assert_eq!(lone.poll_psns(), [0, 1]);
    lone.original(1, 6);
    assert_eq!(lone.count(Event::ResponseGap), 1);
    assert_eq!(lone.statuses(), []);
    assert_eq!(lone.poll_psns(), [0]);
    lone.original(0, 5);
    all_succeeded(&lone.statuses(), 0..2);
    // A refusal of the second completes nothing before the first is answered.
    let mut lone = Lone::with(config(), &[(fetch_add(0, 1), 8), (fetch_add(0, 1), 8)]);
    lone.poll_psns();
    lone.nak(1, NakCode::RemoteAccess);
    assert_eq!(lone.statuses(), []);
    assert_eq!(lone.poll_psns(), [0]);
    lone.original(0, 5);
    assert_eq!(lone.statuses(), failed_after(0..1, Status::RemoteAccess, 0));
}

// Rules: ORD-4, RDA-3
#[test]
fn atomics_keep_to_the_depth_and_to_fences() {
    let requests = [(fetch_add(0, 1), 8), (read(0), 8), (fetch_add(0, 1), 8)];
    let mut lone = Lone::with(config(), &requests);
    lone.post(3, send(), 10, fenced());
    assert_eq!(lone.poll_psns(), [0, 1]);
    assert_eq!(lone.requester.blocked(), Some(Blocked::ReadDepth));
    lone.original(0, 1);
    assert_eq!(lone.poll_psns(), [2]);
    assert_eq!(lone.requester.blocked(), Some(Blocked::Fence));
    lone.data(1, 1, 8);
    assert_eq!(lone.poll_psns(), []);
    lone.original(2, 1);
    assert_eq!(lone.poll_psns(), [3]);
    lone.ack(3);
    all_succeeded(&lone.statuses(), 0..4);
}

// Rules: ORD-10, RDA-23
#[test]
fn memory_that_is_gone_fails_the_atomic() {
    let mut lone = Lone::with(config(), &[(fetch_add(0, 1), 8)]);
    lone.poll_psns();
    lone.world.gone.push(0);
    lone.original(0, 1);
    assert_eq!(
        lone.statuses(),
        failed_after(0..0, Status::LocalProtection, 0)
    );
}

// Rules: ORD-10, RDA-23
#[test]
fn memory_that_is_gone_fails_the_read() {
    let mut lone = Lone::with(config(), &[(read(0), 1000)]);
    lone.poll_psns();
    lone.world.gone.push(0);
    lone.data(0, 0, 1000);
    assert_eq!(
        lone.statuses(),
        failed_after(0..0, Status::LocalProtection, 0)
    );
}

// Rules: RDA-3, RDA-5
#[test]
fn reads_keep_to_the_depth() {
    for depth in 1..=3 {
        let config = SendConfig {
            max_rd_atomic: depth,
            ..config()
        };
        let mut lone = Lone::with(config, &[(read(0), 10); 5]);
        let depth = u32::from(depth);
        let mut expected = Vec::from_iter(0..depth);
        assert_eq!(lone.poll_psns(), expected);
        assert_eq!(lone.requester.blocked(), Some(Blocked::ReadDepth));
        for psn in 0..5 {
            // To ask again takes no place.
            lone.sleep(TIMEOUT_NS);
            assert_eq!(lone.poll_psns(), expected[..1]);
            lone.requester.not_kept();
            assert_eq!(lone.poll_psns(), expected);
            lone.data(psn, psn, 10);
            let more: Vec<u32> = (psn + depth..5).take(1).collect();
            assert_eq!(lone.poll_psns(), more);
            expected.remove(0);
            expected.extend(more);
        }
        all_succeeded(&lone.statuses(), 0..5);
    }
}

// Rules: RDA-4
#[test]
fn the_depth_holds_back_only_reads_and_what_comes_behind() {
    let mut lone = Lone::with(
        config(),
        &[
            (read(0), 10),
            (read(0), 10),
            (send(), 10),
            (read(0), 10),
            (send(), 10),
        ],
    );
    assert_eq!(lone.poll_psns(), [0, 1, 2]);
    lone.data(0, 0, 10);
    assert_eq!(lone.poll_psns(), [3, 4]);
}

// Rules: RDA-6
#[test]
fn without_depth_a_read_is_refused_in_its_turn() {
    let config = SendConfig {
        max_rd_atomic: 0,
        ..config()
    };
    let mut lone = Lone::with(config, &[(send(), 10), (read(0), 10), (send(), 10)]);
    assert_eq!(lone.poll_psns(), [0]);
    assert_eq!(lone.requester.blocked(), Some(Blocked::BadRequest));
    assert_eq!(lone.statuses(), []);
    lone.ack(0);
    assert_eq!(
        lone.statuses(),
        failed_after(0..1, Status::LocalQpOperation, 1)
    );
}

// Rules: ORD-4, ORD-5, ORD-7
#[test]
fn a_fence_waits_for_reads_only() {
    let mut lone = Lone::with(config(), &[(read(0), 10), (read(0), 10), (send(), 10)]);
    lone.post(3, write(0), 10, fenced());
    lone.post(4, send(), 10, SendFlags::default());
    assert_eq!(lone.poll_psns(), [0, 1, 2]);
    assert_eq!(lone.requester.blocked(), Some(Blocked::Fence));
    lone.data(0, 0, 10);
    assert_eq!(lone.poll_psns(), []);
    lone.data(1, 1, 10);
    assert_eq!(lone.poll_psns(), [3, 4]);
    // A request that was begun is not held back when it is sent again.
    lone.sleep(TIMEOUT_NS);
    assert_eq!(lone.poll_psns(), [2]);
    lone.ack(2);
    assert_eq!(lone.poll_psns(), [3, 4]);
}

// Rules: ORD-6
#[test]
fn a_fence_holds_a_read_back_too() {
    let mut lone = Lone::with(config(), &[(read(0), 10)]);
    lone.post(1, read(0), 10, fenced());
    assert_eq!(lone.poll_psns(), [0]);
    assert_eq!(lone.requester.blocked(), Some(Blocked::Fence));
    lone.data(0, 0, 10);
    assert_eq!(lone.poll_psns(), [1]);
}

// Rules: ORD-12
#[test]
fn a_fence_does_not_wait_for_what_is_behind_it() {
    let mut lone = Lone::new(config());
    lone.post(0, write(0), 10, fenced());
    lone.post(1, read(0), 10, SendFlags::default());
    assert_eq!(lone.poll_psns(), [0, 1]);
    // Nor when it is sent again, with the READ outstanding.
    lone.sleep(TIMEOUT_NS);
    assert_eq!(lone.poll_psns(), [0]);
    lone.data(1, 1, 10);
    all_succeeded(&lone.statuses(), 0..2);
}

// Rules: MPE-7
#[test]
fn a_fence_waits_for_atomic_writes_and_flushes() {
    for op in [atomic_write(0x40), flush(0x40, false)] {
        let mut lone = Lone::with(config(), &[(op, 8)]);
        lone.post(1, send(), 10, fenced());
        assert_eq!(lone.poll_psns(), [0]);
        assert_eq!(lone.requester.blocked(), Some(Blocked::Fence));
        lone.respond(0, Response::ReadOnly(aeth(Syndrome::ACK)), &[]);
        assert_eq!(lone.poll_psns(), [1]);
    }
}

// Rules: SEG-17, SEG-18
#[test]
fn the_window_holds_what_it_may_and_asks_where_it_closes() {
    let mut lone = Lone::with(config(), &[(write(0), MTU * 2000)]);
    let sent: Vec<_> = std::iter::from_fn(|| lone.poll()).collect();
    assert_eq!(sent.len() as u32, INITIAL_OUTSTANDING_PSNS);
    assert_eq!(lone.requester.blocked(), Some(Blocked::PsnWindow));
    for (bth, (psn, ..)) in &sent {
        assert_eq!(bth.ack_req, psn % 32 == 31, "at each quarter");
    }
    // Ten are free again, and as many more are let in.
    lone.ack(9);
    let more: Vec<_> = std::iter::from_fn(|| lone.poll()).collect();
    let psns: Vec<_> = more.iter().map(|(_, (psn, ..))| *psn).collect();
    assert_eq!(psns, Vec::from_iter(128..148));
    assert!(more.last().unwrap().0.ack_req, "or nobody would tell");
}

// Rules: SEG-18
#[test]
fn many_small_requests_fill_the_window_too() {
    let mut lone = Lone::with(config(), &[(write(0), 1); 600]);
    assert_eq!(lone.poll_psns().len() as u32, INITIAL_OUTSTANDING_PSNS);
    assert_eq!(lone.requester.blocked(), Some(Blocked::PsnWindow));
    // It leaves requests that it cannot send in the queue.
    assert_eq!(lone.world.send_queue.len(), 472);
    lone.ack(127);
    assert_eq!(lone.poll_psns().len(), 256);
    lone.ack(383);
    assert_eq!(lone.poll_psns().len(), 216);
    lone.ack(599);
    all_succeeded(&lone.statuses(), 0..600);
}

// Rules: SEG-17, CPL-5
#[test]
fn a_window_of_few_requests_is_widened_in_the_middle() {
    let mut lone = Lone::with(config(), &[(write(0), 1); 12]);
    lone.requester = Requester::new(Qpn::new(0x11), true, slots(3));
    lone.requester.start(config());
    assert_eq!(lone.poll_psns(), Vec::from_iter(0..3));
    assert_eq!(lone.requester.blocked(), Some(Blocked::Window));
    // So that the oldest is not at the storage's start.
    lone.ack(1);
    assert_eq!(lone.poll_psns(), Vec::from_iter(3..5));

    let given_back = lone.requester.widen(slots(2));
    assert_eq!((given_back.len(), lone.requester.room()), (2, 3));
    let given_back = lone.requester.widen(slots(8));
    assert_eq!((given_back.len(), lone.requester.room()), (3, 8));
    assert!(given_back
        .iter()
        .all(|slot| format!("{slot:?}") == "Slot(None)"));
    assert_eq!(lone.poll_psns(), Vec::from_iter(5..10));
    assert_eq!(lone.requester.blocked(), Some(Blocked::Window));
    lone.nak(4, NakCode::SequenceError);
    assert_eq!(lone.poll_psns(), [4, 10, 11]);
    lone.ack(11);
    all_succeeded(&lone.statuses(), 0..12);
}

// Rules: SEG-19
#[test]
fn a_loss_makes_the_window_small_and_progress_large_again() {
    let mut lone = Lone::with(config(), &[(write(0), MTU * 2000)]);
    assert_eq!(lone.poll_psns().len(), 128);
    lone.nak(0, NakCode::SequenceError);
    assert_eq!(lone.poll_psns(), [0]);
    lone.sleep(ROUND_TRIP_NS);
    lone.nak(1, NakCode::SequenceError);
    assert_eq!(lone.poll_psns(), Vec::from_iter(1..17));
    lone.sleep(ROUND_TRIP_NS);
    // The peer has dropped the rest.
    lone.nak(17, NakCode::SequenceError);
    assert_eq!(lone.poll_psns(), Vec::from_iter(17..72));
    assert_eq!(lone.requester.blocked(), Some(Blocked::PsnWindow));
    lone.ack(71);
    assert_eq!(lone.poll_psns(), Vec::from_iter(72..135));
    lone.sleep(TIMEOUT_NS);
    assert_eq!(lone.poll_psns(), [72]);
    // It had all but one. Half of the window of 63, and a step, is outstanding again.
    lone.ack(133);
    assert_eq!(lone.poll_psns(), Vec::from_iter(135..134 + 31 + 8));
}

// Rules: SEG-19
#[test]
fn a_receiver_that_is_not_ready_gets_less_in_vain() {
    let mut lone = Lone::with(config(), &[(send(), MTU * 2000)]);
    assert_eq!(lone.poll_psns().len(), 128);
    lone.rnr_nak(0, 1);
    lone.sleep(RnrTimer::new(1).unwrap().delay_ns());
    assert_eq!(lone.poll_psns(), Vec::from_iter(0..64));
    assert_eq!(lone.requester.blocked(), Some(Blocked::PsnWindow));
    // The same NAK for packets that were sent behind it.
    lone.rnr_nak(0, 1);
    lone.rnr_nak(0, 1);
    lone.sleep(RnrTimer::new(1).unwrap().delay_ns());
    assert_eq!(lone.poll_psns(), Vec::from_iter(0..32));
    lone.ack(31);
    assert_eq!(lone.poll_psns(), Vec::from_iter(32..72));
}

// Rules: PSN-9, PSN-18
#[test]
fn the_longest_read_fills_half_the_circle() {
    let requests = [(read(0), MAX_MESSAGE_BYTES), (read(0), 1), (send(), 1)];
    let mut lone = Lone::with(config(), &requests);
    assert_eq!(lone.poll_psns(), [0]);
    assert_eq!(lone.requester.blocked(), Some(Blocked::PsnWindow));
    let next = Psn::new(FIRST).add(1 << 23);
    assert_eq!(lone.requester.next_psn(), Some(next));
    // Behind the window nothing answers.
    lone.ack(1 << 23);
    lone.ack((1 << 23) - 1);
    assert_eq!(lone.statuses(), []);
    assert_eq!(lone.count(Event::StaleResponse), 1);
    lone.sleep(TIMEOUT_NS);
    assert_eq!(lone.poll_psns(), [0]);
}

// Rules: PSN-9
#[test]
fn a_long_read_waits_until_its_numbers_are_free() {
    let requests = [(write(0), 1), (read(0), MAX_MESSAGE_BYTES)];
    let mut lone = Lone::with(config(), &requests);
    assert_eq!(lone.poll_psns(), [0]);
    assert_eq!(lone.requester.blocked(), Some(Blocked::PsnWindow));
    lone.ack(0);
    assert_eq!(lone.poll_psns(), [1]);
}

// Rules: ERR-8, ERR-9, WRQ-8
#[test]
fn a_bad_request_fails_in_its_turn() {
    let mut lone = Lone::with(config(), &[(send(), 10), (send(), 10)]);
    let bad = BadRequest {
        wr_id: 2,
        status: Status::LocalProtection,
    };
    lone.world.send_queue.push_back(Err(bad));
    lone.post(3, send(), 10, SendFlags::default());
    assert_eq!(lone.poll_psns(), [0, 1]);
    assert_eq!(lone.requester.blocked(), Some(Blocked::BadRequest));
    lone.ack(0);
    assert_eq!(lone.requester.state(), SendState::Running);
    lone.ack(1);
    assert_eq!(
        lone.statuses(),
        failed_after(0..2, Status::LocalProtection, 1)
    );
    assert_eq!(lone.requester.state(), SendState::Error);
}

// Rules: SEG-7
#[test]
fn a_bad_request_alone_fails_at_once() {
    let mut lone = Lone::new(config());
    lone.post(0, send(), MAX_MESSAGE_BYTES + 1, SendFlags::default());
    assert_eq!(lone.poll_psns(), []);
    assert_eq!(lone.statuses(), [(0, Status::LocalLength)]);
    assert_eq!(lone.world.payloads.count(), 0);
}

// Rules: ERR-8, ERR-9
#[test]
fn a_source_that_is_gone_fails_its_request_in_its_turn() {
    let requests = [(send(), 300), (send(), 600), (send(), 10)];
    let mut lone = Lone::with(config(), &requests);
    // The second packet of the second request cannot be read.
    for _ in 0..4 {
        lone.poll().unwrap();
    }
    let psn = Psn::new(FIRST).add(3);
    let host = &mut lone.world.host(&[]);
    lone.requester.payload_fault(psn, host);
    assert_eq!(lone.poll_psns(), []);
    // Those before are still kept going.
    lone.sleep(TIMEOUT_NS);
    assert_eq!(lone.poll_psns(), [0]);
    lone.ack(3); // It was never sent.
    assert_eq!(lone.statuses(), []);
    lone.ack(2); // It was, of the request that is given up.
    assert_eq!(
        lone.statuses(),
        failed_after(0..1, Status::LocalProtection, 1)
    );
}

#[test]
fn a_source_that_is_gone_fails_the_oldest_request_at_once() {
    for sent in [1, 2, 3] {
        let mut lone = Lone::with(config(), &[(send(), 600), (send(), 10)]);
        for _ in 0..sent {
            lone.poll().unwrap();
        }
        let psn = Psn::new(FIRST).add(sent - 1);
        let host = &mut lone.world.host(&[]);
        lone.requester.payload_fault(psn.add(9), host); // Never sent.
        lone.requester.payload_fault(psn, host);
        assert_eq!(
            lone.statuses(),
            failed_after(0..0, Status::LocalProtection, 1)
        );
    }
}

// Rules: ERR-9
#[test]
fn a_fault_while_sending_again_keeps_what_came_before() {
    let requests = [(send(), 10), (send(), 10), (send(), 10), (send(), 10)];
    let mut lone = Lone::with(config(), &requests);
    assert_eq!(lone.poll_psns(), [0, 1, 2, 3]);
    lone.requester.not_kept(); // All is sent again.
    lone.poll().unwrap();
    // Of the packets that are sent again, the second; two more had been sent behind it.
    let psn = Psn::new(FIRST).add(1);
    lone.poll().unwrap();
    let host = &mut lone.world.host(&[]);
    lone.requester.payload_fault(psn, host);
    assert_eq!(lone.poll_psns(), []);
    // The peer had them all, and acknowledges any that comes again.
    lone.ack(3);
    assert_eq!(
        lone.statuses(),
        failed_after(0..1, Status::LocalProtection, 2)
    );
}

// Rules: ACK-21, STA-10, STA-11
#[test]
fn what_is_absent_when_it_is_sent_again_is_outstanding_still() {
    let mut lone = Lone::with(config(), &[(send(), 10), (send(), 10)]);
    assert_eq!(lone.poll_psns(), [0, 1]);
    lone.requester.not_kept(); // All is sent again.
    lone.poll().unwrap();
    lone.poll().unwrap();
    lone.requester.unsend(Psn::new(FIRST).add(1));
    // Nothing is begun any more, but this was.
    lone.requester.drain(&mut lone.world.host(&[]));
    assert_eq!(lone.poll_psns(), [1]);
    lone.requester.unsend(Psn::new(FIRST).add(1));
    // The peer got both at first, and says so when it gets any again.
    lone.ack(1);
    all_succeeded(&lone.statuses(), 0..2);
    raised(&lone.world, AsyncEvent::SendQueueDrained);
}

/// Makes a connection without a timeout whose path is known by a SEND. Behind it is `op`, of many packets.
fn known_without_a_timeout(op: SendOp) -> Lone {
    let config = SendConfig {
        law: Law::Dcqcn,
        timeout: AckTimeout::NEVER,
        ..config()
    };
    let mut lone = Lone::with(config, &[(send(), 10), (op, MTU * 2000)]);
    lone.poll().unwrap();
    lone.now = lone.now.after_ns(ROUND_TRIP_NS);
    lone.ack(0);
    lone
}

/// Makes one that is to send all of a window again from PSN 1 on, as the peer was not ready.
fn sends_again_without_a_timeout() -> Lone {
    let mut lone = known_without_a_timeout(send());
    lone.poll_all();
    lone.rnr_nak(1, 1);
    lone.sleep(RnrTimer::new(1).unwrap().delay_ns());
    lone
}

impl Lone {
    /// Sends up to the next packet that asks for an acknowledgement. Takes that back, and returns its PSN.
    fn unsend_what_asks(&mut self) -> u32 {
        let asks = std::iter::from_fn(|| self.poll()).find(|(bth, _)| bth.ack_req);
        let (bth, (asked, ..)) = asks.unwrap();
        assert!(asked > 2);
        self.requester.unsend(bth.psn);
        asked
    }

    /// Delivers the responses to a part of a READ from PSN `first` on, which is all that is outstanding.
    fn answer_part(&mut self, first: u32) {
        let count = self.requester.report().unwrap().outstanding;
        for psn in first..first + count {
            self.data(psn, first, MTU * count);
        }
    }

    /// Congests the path until the window is small.
    fn congest(&mut self) {
        for _ in 0..64 {
            self.now = self.now.after_ns(60_000);
            self.requester.congested(self.now);
        }
    }
}

// Rules: SEG-17
#[test]
fn an_acknowledgement_that_was_not_asked_for_is_asked_for_however_small_the_window() {
    let mut lone = known_without_a_timeout(write(0));
    let asked = lone.unsend_what_asks();
    // Its memory is absent for a while, and the path becomes congested.
    lone.congest();
    let (bth, (psn, ..)) = lone.poll().expect("it waits for ever");
    assert_eq!((psn, bth.ack_req), (asked, true));
    assert!(lone.poll().is_none());
}

// Rules: SEG-22
#[test]
fn a_part_of_a_read_that_was_not_sent_is_taken_back() {
    let mut lone = Lone::with(config(), &[(read(0), MTU * 200)]);
    lone.requester.congested(lone.now);
    let unanswered = |lone: &Lone| lone.requester.report().unwrap().unanswered;
    // Neither part is sent at once.
    for (first, before) in [(0, 0), (65, 1)] {
        for _ in 0..2 {
            let (bth, (psn, ..)) = lone.poll().unwrap();
            assert_eq!(psn, first);
            lone.requester.unsend(bth.psn);
            assert_eq!(unanswered(&lone), before, "part {first}");
        }
        assert_eq!(lone.poll_psns(), [first]);
        lone.answer_part(first);
    }
    assert_eq!(lone.statuses(), []);
    // Further parts follow until the READ is over.
    while let [first] = lone.poll_psns()[..] {
        lone.answer_part(first);
    }
    all_succeeded(&lone.statuses(), 0..1);
}

// Rules: SEG-17
#[test]
fn what_is_sent_again_is_asked_for_however_small_the_window() {
    let mut lone = sends_again_without_a_timeout();
    for psn in 1..20 {
        let (bth, (sent, ..)) = lone.poll().unwrap();
        assert_eq!((sent, bth.ack_req), (psn, false));
    }
    // The network takes no more for a while, and the path becomes congested.
    lone.congest();
    let (bth, (psn, ..)) = lone.poll().expect("it waits for ever");
    assert_eq!((psn, bth.ack_req), (20, true));
    assert!(lone.poll().is_none());
}

// Rules: SEG-17
#[test]
fn what_is_sent_again_asks_later_if_the_packet_that_asked_was_not_sent() {
    let mut lone = sends_again_without_a_timeout();
    let asked = lone.unsend_what_asks();
    lone.congest();
    let (bth, (psn, ..)) = lone.poll().expect("it waits for ever");
    assert_eq!((psn, bth.ack_req), (asked, true));
    assert!(lone.poll().is_none());
}

// Rules: STA-14
#[test]
fn attributes_change_while_it_runs() {
    let mut lone = Lone::with(config(), &[(read(0), 10), (read(0), 10), (read(0), 10)]);
    assert_eq!(lone.poll_psns(), [0, 1]);
    lone.requester.modify(SendUpdate {
        bundle: Bundle::ONE,
        timeout: AckTimeout::new(2).unwrap(),
        retry_cnt: RetryCount::NONE,
        rnr_retry: RetryCount::NONE,
        max_rd_atomic: 3,
        pkey: Pkey(0x8001),
    });
    let (bth, (psn, ..)) = lone.poll().unwrap();
    assert_eq!((psn, bth.pkey), (2, Pkey(0x8001)));
    lone.data(0, 0, 10);
    assert_eq!(
        lone.requester.poll_timeout(),
        Some(lone.now.after_ns(2 * TIMEOUT_NS))
    );
    lone.sleep(2 * TIMEOUT_NS);
    assert_eq!(
        lone.statuses(),
        failed_after(0..1, Status::TransportRetryExceeded, 1)
    );
}

#[test]
fn a_depth_that_goes_to_0_refuses_the_read_that_waits() {
    let mut lone = Lone::with(config(), &[(read(0), 10); 3]);
    assert_eq!(lone.poll_psns(), [0, 1]);
    lone.requester.modify(SendUpdate {
        max_rd_atomic: 0,
        ..update()
    });
    assert_eq!(lone.poll_psns(), []);
    lone.data(0, 0, 10);
    lone.data(1, 1, 10);
    assert_eq!(
        lone.statuses(),
        failed_after(0..2, Status::LocalQpOperation, 0)
    );
}

// Rules: PSN-18, STA-15
#[test]
fn start_is_for_idle_requesters() {
    let mut lone = Lone::with(config(), &[(send(), 10)]);
    lone.poll_psns();
    let mut other = config();
    other.sq_psn = Psn::new(5);
    lone.requester.start(other);
    let next = Psn::new(FIRST).add(1);
    assert_eq!(lone.requester.next_psn(), Some(next));
}

// Rules: STA-11
#[test]
fn a_message_half_sent_is_not_drained_however_much_is_acknowledged() {
    let mut lone = Lone::with(config(), &[(write(0), MTU * 200)]);
    assert_eq!(lone.poll_psns().len() as u32, INITIAL_OUTSTANDING_PSNS);
    let host = &mut lone.world.host(&[]);
    lone.requester.drain(host);
    lone.ack(INITIAL_OUTSTANDING_PSNS - 1);
    assert_eq!(lone.requester.state(), SendState::Draining);
    assert_eq!(lone.world.raised, []);
    assert_eq!(lone.poll_psns().last(), Some(&199));
    lone.ack(198);
    assert_eq!(lone.requester.state(), SendState::Draining);
    lone.ack(199);
    assert_eq!(lone.requester.state(), SendState::Drained);
}

#[test]
fn the_report_says_how_far_it_has_come_and_what_it_waits_for() {
    let mut lone = Lone::with(config(), &[(write(0), 600), (read(0), 10)]);
    let report = |lone: &Lone| lone.requester.report().unwrap();
    assert_eq!(report(&lone).waiting, Waiting::Nothing);
    lone.post(2, send(), 1, fenced());
    assert_eq!(lone.poll_psns(), [0, 1, 2, 3]);
    let sent = report(&lone);
    assert_eq!(sent.waiting, Waiting::Blocked(Blocked::Fence));
    assert_eq!(
        (sent.outstanding, sent.requests, sent.unanswered),
        (4, 3, 1)
    );
    assert_eq!(sent.unacked, Psn::new(FIRST));
    assert_eq!(sent.next, Psn::new(FIRST).add(4));
    lone.sleep(TIMEOUT_NS);
    assert_eq!((report(&lone).timeouts, report(&lone).retries_left), (1, 1));
    assert_eq!(report(&lone).next, Psn::new(FIRST));
    lone.rnr_nak(0, 1);
    assert_eq!(report(&lone).waiting, Waiting::Receiver);
    let _ = lone.requester.enter_error(&mut lone.world.host(&[]));
    assert!(lone.requester.report().is_none());
}

/// Returns a configuration whose packets stand for four each.
fn bundling() -> SendConfig {
    SendConfig {
        bundle: Bundle::within(4 * MTU, Mtu::B256),
        ..config()
    }
}

#[test]
fn a_bundle_takes_as_much_as_its_packets() {
    let length = 9 * MTU + 1;
    let mut lone = Lone::with(
        bundling(),
        &[(write(0), length), (send(), 4 * MTU), (send(), 0)],
    );
    let sizes: Vec<_> = std::iter::from_fn(|| {
        let host = &mut lone.world.host(&[]);
        let transmit = lone.requester.poll_transmit(lone.now, host)?;
        let psn = transmit.psn.distance_from(Psn::new(FIRST));
        Some((psn, transmit.psns, transmit.source.len()))
    })
    .collect();
    let expected = [
        (0, 4, 4 * MTU),
        (4, 4, 4 * MTU),
        (8, 2, MTU + 1),
        (10, 4, 4 * MTU),
        (14, 1, 0),
    ];
    assert_eq!(sizes, expected);
    lone.ack(13);
    assert_eq!(lone.statuses(), ok(0..2));
    lone.ack(14);
    assert_eq!(lone.statuses(), ok(0..3));
}

#[test]
fn bundles_begin_and_end_messages_as_packets_do() {
    let mut lone = Lone::with(bundling(), &[(write(0), 9 * MTU), (write(0), 4 * MTU)]);
    let requests: Vec<_> = lone
        .poll_all()
        .into_iter()
        .map(|(_, sent, _)| sent)
        .collect();
    assert!(matches!(
        requests[..],
        [
            Request::WriteFirst(_),
            Request::WriteMiddle,
            Request::WriteLast(None),
            Request::WriteOnly(_, None),
        ]
    ));
}

#[test]
fn a_bundle_that_was_not_sent_comes_again_whole() {
    let mut lone = Lone::with(bundling(), &[(write(0), 10 * MTU)]);
    let first = lone.poll().unwrap();
    let second = lone.poll().unwrap();
    lone.requester.unsend(Psn::new(FIRST).add(4));
    assert_eq!(lone.poll(), Some(second));
    lone.requester.unsend(Psn::new(FIRST).add(4));
    assert_eq!(lone.requester.next_psn(), Some(Psn::new(FIRST).add(4)));
    // The first lost packet is requested.
    lone.nak(0, NakCode::SequenceError);
    assert_eq!(lone.poll().map(|(_, sent)| sent), Some(first.1));
}

/// Returns true if a requester takes a response to a READ of 10 packets that stands for `psns`.
fn takes_bundle(response: Response, psns: u32, len: u32) -> bool {
    let mut lone = Lone::with(config(), &[(read(0), 10 * MTU)]);
    lone.poll_all();
    let packet = Packet {
        psns,
        ..response_packet(0, response, len)
    };
    let payload = vec![7; len as usize];
    let mut host = lone.world.host(&payload);
    let _ = lone.requester.handle_response(lone.now, &packet, &mut host);
    lone.requester.state() == SendState::Running
}

#[test]
fn a_bundle_of_responses_is_as_long_as_its_packets() {
    let ack = aeth(Syndrome::ACK);
    assert!(takes_bundle(Response::ReadFirst(ack), 4, 4 * MTU));
    assert!(takes_bundle(Response::ReadOnly(ack), 10, 10 * MTU));
    assert!(!takes_bundle(Response::ReadFirst(ack), 4, 3 * MTU));
    assert!(!takes_bundle(Response::ReadFirst(ack), 3, 4 * MTU));
    assert!(!takes_bundle(Response::ReadFirst(ack), 10, 10 * MTU));
    assert!(!takes_bundle(Response::ReadOnly(ack), 11, 10 * MTU));
    // Nor is one from a wire longer than the MTU.
    assert!(!takes_bundle(Response::ReadFirst(ack), 1, 4 * MTU));
}

#[test]
fn bundles_of_responses_complete_a_read() {
    let mut lone = Lone::with(config(), &[(read(0), 6 * MTU), (read(0), MTU)]);
    lone.poll_all();
    let ack = aeth(Syndrome::ACK);
    for (psn, psns, response) in [
        (0, 4, Response::ReadFirst(ack)),
        (4, 2, Response::ReadLast(ack)),
        (6, 1, Response::ReadOnly(ack)),
    ] {
        let payload = vec![psn as u8 + 1; (psns * MTU) as usize];
        let packet = Packet {
            psns,
            ..response_packet(psn, response, psns * MTU)
        };
        let mut host = lone.world.host(&payload);
        let _ = lone.requester.handle_response(lone.now, &packet, &mut host);
    }
    assert_eq!(lone.statuses(), ok(0..2));
}

/// Makes one with this code of the timeout that has sent 20 small requests. The first is acknowledged.
fn before_reads(timeout: u8) -> Lone {
    let mut lone = Lone::new(SendConfig {
        max_rd_atomic: 8,
        ..with_timeout(timeout)
    });
    for id in 0..20 {
        lone.post(id, send(), 10, SendFlags::default());
    }
    lone.poll_psns();
    lone.sleep(ROUND_TRIP_NS);
    lone.ack(0);
    lone
}

/// Repairs the request 2 behind these. All behind it have come.
fn repair_before_reads(lone: &mut Lone) {
    lone.nak(2, NakCode::SequenceError);
    assert_eq!(lone.poll_psns(), [2]);
    lone.sleep(ROUND_TRIP_NS);
    lone.ack(19);
    all_succeeded(&lone.statuses(), 0..20);
}

/// Sends four READs of two packets each. Of the responses 21, 23 and 24 are lost.
fn lose_responses(lone: &mut Lone) {
    for id in 20..24 {
        lone.post(id, read(0), 512, SendFlags::default());
    }
    assert_eq!(lone.poll_psns(), [20, 22, 24, 26]);
    lone.sleep(ROUND_TRIP_NS);
    for psn in [20, 22, 25, 26, 27] {
        lone.data(psn, psn & !1, 512);
    }
}

// Rules: RTY-18, RTY-24
#[test]
fn packets_that_were_sent_again_do_not_prove_that_the_peer_keeps_them() {
    let mut lone = before_reads(0);
    lone.rnr_nak(1, 1);
    lone.sleep(10_000);
    assert_eq!(lone.poll_psns(), Vec::from_iter(1..20));
    // The packet behind it has overtaken this one. The peer may have dropped it, but the others come in order.
    repair_before_reads(&mut lone);
    lose_responses(&mut lone);
    assert_eq!(lone.poll_psns(), [21], "nothing is asked for in advance");
}

// Rules: RTY-18, RTY-24
#[test]
fn packets_behind_one_of_a_train_do_not_prove_that_the_peer_keeps_them() {
    let mut lone = before_reads(14);
    assert_eq!(again(&mut lone, 1), [1]);
    assert_eq!(again(&mut lone, 2), Vec::from_iter(2..18));
    lone.sleep(4 * ROUND_TRIP_NS);
    lone.nak(4, NakCode::SequenceError);
    assert_eq!(lone.poll_psns(), [4]);
    lone.sleep(ROUND_TRIP_NS);
    lone.ack(17);
    // It may have dropped these.
    for psn in 18..20 {
        assert_eq!(lone.poll_psns().first(), Some(&psn));
        lone.sleep(ROUND_TRIP_NS);
        lone.ack(psn);
    }
    lose_responses(&mut lone);
    assert_eq!(lone.poll_psns(), [21], "nothing is asked for in advance");
}

// Rules: RTY-24
#[test]
fn a_question_in_advance_that_was_not_sent_is_asked_in_its_turn() {
    let mut lone = before_reads(0);
    repair_before_reads(&mut lone);
    lose_responses(&mut lone);
    assert_eq!(lone.poll().unwrap().1 .0, 21);
    assert_eq!(lone.poll().unwrap().1 .0, 23);
    // There is no credit for more.
    lone.sleep(ROUND_TRIP_NS);
    lone.data(21, 20, 512);
    lone.data(23, 22, 512);
    all_succeeded(&lone.statuses(), 0..22);
    // Now there is.
    assert_eq!(lone.poll_psns(), [24]);
    lone.data(24, 24, 512);
    all_succeeded(&lone.statuses(), 0..24);
}

// Rules: RTY-21
#[test]
fn what_has_come_again_meanwhile_is_not_asked_for() {
    const LEN: u32 = 1600 * MTU;
    let config = SendConfig {
        max_rd_atomic: 1,
        ..with_timeout(18)
    };
    let mut lone = Lone::with(config, &[(read(0), LEN), (read(0), 10)]);
    assert_eq!(reads(lone.poll_all()), [(0, LEN)]);
    // The responses 0 and 600 are lost.
    (1..1024)
        .filter(|psn| *psn != 600)
        .for_each(|psn| lone.data(psn, 0, LEN));
    assert_eq!(reads(lone.poll_all()), [(0, MTU)]);
    // They are too far ahead to be kept.
    (1024..1501).for_each(|psn| lone.data(psn, 0, LEN));
    lone.data(0, 0, MTU);
    assert_eq!(reads(lone.poll_all()), [(600, MTU)]);
    (1501..1600).for_each(|psn| lone.data(psn, 0, LEN));
    lone.data(600, 600, MTU);
    assert_eq!(reads(lone.poll_all()), [(1024, 477 * MTU)]);
    (1024..1500).for_each(|psn| lone.data(psn, 1024, 477 * MTU));
    // The other READ is the next one, but may not be sent yet.
    assert_eq!(lone.poll_all(), []);
    lone.data(1500, 1024, 477 * MTU);
    assert_eq!(lone.statuses(), ok(0..1));
    assert_eq!(reads(lone.poll_all()), [(1600, 10)]);
    lone.data(1600, 1600, 10);
    assert_eq!(lone.statuses(), ok(0..2));
}

// Rules: RTY-20
#[test]
fn kept_responses_that_the_host_is_handling_are_not_asked_for() {
    const LEN: u32 = 64 * MTU;
    let mut lone = Lone::with(with_timeout(18), &[(read(0), LEN)]);
    assert_eq!(reads(lone.poll_all()), [(0, LEN)]);
    (1..64).for_each(|psn| lone.data(psn, 0, LEN));
    assert_eq!(reads(lone.poll_all()), [(0, MTU)]);
    let kept = std::mem::take(&mut lone.early);
    lone.data(0, 0, MTU);
    lone.sleep(20_000_000);
    let asked = reads(lone.poll_all());
    let most = u32::from(MAX_PROBE_RESPONSES) * MTU;
    assert!(asked.iter().all(|(_, len)| *len <= most), "{asked:?}");
    lone.early = kept;
    lone.handle_early();
    assert_eq!(lone.statuses(), ok(0..1));
}

// Rules: RTY-20
#[test]
fn a_nak_in_place_of_a_response_leaves_that_to_be_asked_for() {
    let mut lone = Lone::with(with_timeout(18), &[(read(0), 10), (read(0), 10)]);
    assert_eq!(lone.poll_psns(), [0, 1]);
    // The response 0 is lost. The packet behind the second READ has overtaken it.
    lone.nak(1, NakCode::SequenceError);
    lone.data(1, 1, 10);
    assert_eq!(reads(lone.poll_all()), [(0, 10)]);
    lone.data(0, 0, 10);
    // What is asked for now is lost, as often as it is asked for.
    for _ in 0..4 {
        let asked = reads(lone.poll_all());
        assert!(asked.iter().all(|read| *read == (1, 10)), "{asked:?}");
        lone.sleep(20_000_000);
    }
    lone.data(1, 1, 10);
    assert_eq!(lone.statuses(), ok(0..2));
}

// Rules: SEG-18
#[test]
fn reads_go_back_within_the_window() {
    const READS: u64 = 600;
    let mut lone = Lone::with(
        SendConfig {
            max_rd_atomic: 128,
            ..with_timeout(1)
        },
        &[],
    );
    for id in 0..READS {
        lone.post(id, read(0), 4 * MTU, SendFlags::default());
    }
    let mut done = 0;
    // Each READ that completes lets another begin.
    while done < 4 * (READS as u32 - 200) {
        lone.poll_all();
        lone.data(done, done / 4 * 4, 4 * MTU);
        done += 1;
    }
    lone.poll_all();
    let timeout = lone.requester.poll_timeout().unwrap();
    // The window shrinks, as nothing is heard.
    lone.sleep(timeout.since(lone.now));
    lone.poll_all();
    lone.requester.not_kept();
    let asked = lone.poll_psns().len();
    assert!((1..20).contains(&asked), "{asked} READs at once");
}

// Rules: SEG-17
#[test]
fn a_window_that_shrinks_behind_a_repaired_read_has_an_acknowledgement_asked_for() {
    const READ: u32 = 2 * MTU;
    let mut lone = Lone::with(with_timeout(0), &[(read(0), READ), (write(0), 1000 * MTU)]);
    // The READ, and 20 packets that do not ask.
    for _ in 0..21 {
        let (bth, _) = lone.poll().unwrap();
        assert!(!bth.ack_req);
    }
    lone.data(1, 0, READ);
    let (_, again) = lone.poll().unwrap();
    assert_eq!(reads(vec![again]), [(0, MTU)]);
    for cut in 0..16 {
        let now = lone.now.after_ns(cut * 60_000);
        lone.requester.congested(now);
    }
    lone.data(0, 0, MTU);
    assert_eq!(lone.statuses(), ok(0..1));
    let (bth, (psn, ..)) = lone.poll().unwrap();
    assert_eq!((psn, bth.ack_req), (22, true));
}
