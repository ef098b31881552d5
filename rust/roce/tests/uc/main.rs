// SPDX-License-Identifier: GPL-2.0

//! A requester against a responder on an unreliable connection.

#[path = "../rc/rng.rs"]
#[allow(dead_code)]
mod rng;
#[path = "../rc/world.rs"]
#[allow(dead_code)]
mod world;

use roce::completion::{CompletionOp, Status};
use roce::congestion::Law;
use roce::event::{AsyncEvent, Event};
use roce::host::{Flush, Handled, Source};
use roce::num::{Bundle, Imm, Iova, Mtu, Pkey, Psn, Qpn, Rkey};
use roce::opcode::{Connection, Transport};
use roce::recv::{RecvConfig, RecvState, RemoteAccess, Replay, Responder};
use roce::send::{Requester, RetryCount, SendConfig, SendState, Slot};
use roce::time::{AckTimeout, Instant, RnrTimer};
use roce::wire::{self, Body, Bth, Packet, Request, Reth, SendEnd};
use roce::wr::{BadRequest, RecvRequest, Remote, SendFlags, SendOp, SendRequest};

use world::{Grant, Payload, Region, World};

const MTU: u32 = 256;
const FIRST: u32 = 0xff_fffe;
const KEY: u32 = 0x77;
const REGION: usize = 0x8000;
const FLAGS: SendFlags = SendFlags {
    fence: false,
    signaled: true,
    solicited: false,
};

/// A packet on the wire.
struct Wire {
    packet: Packet,
    payload: Vec<u8>,
}

struct Pair {
    requester: Requester<Payload, Vec<Slot<Payload>>>,
    responder: Responder<Payload, Grant, Vec<Replay<Grant>>>,
    ours: World,
    theirs: World,
}

impl Pair {
    fn new() -> Self {
        let mut requester = Requester::new(
            Qpn::new(5),
            false,
            (0..8).map(|_| Slot::default()).collect(),
        );
        let mut responder = Responder::new(Qpn::new(6), Vec::new());
        requester.start(SendConfig {
            law: Law::Window,
            connection: Connection::Unreliable,
            dest_qp: Qpn::new(6),
            pkey: Pkey::DEFAULT,
            mtu: Mtu::B256,
            bundle: Bundle::ONE,
            sq_psn: Psn::new(FIRST),
            timeout: AckTimeout::new(14).unwrap(),
            retry_cnt: RetryCount::NONE,
            rnr_retry: RetryCount::NONE,
            max_rd_atomic: 16,
        });
        responder.start(RecvConfig {
            connection: Connection::Unreliable,
            dest_qp: Qpn::new(5),
            pkey: Pkey::DEFAULT,
            mtu: Mtu::B256,
            bundle: Bundle::ONE,
            rq_psn: Psn::new(FIRST),
            max_dest_rd_atomic: 0,
            min_rnr_timer: RnrTimer::from_low_bits(0),
            access: RemoteAccess {
                write: true,
                ..RemoteAccess::default()
            },
        });
        let world = || {
            let mut world = World::default();
            world.memory.resize(0x10000, 0);
            world
        };
        let mut theirs = world();
        theirs.regions.insert(
            KEY,
            Region {
                iova: 0x1000,
                at: REGION,
                len: 0x4000,
                read: true,
                write: true,
                atomic: false,
                flush: false,
                revocable: false,
            },
        );
        let mut ours = world();
        for (place, byte) in ours.memory.iter_mut().enumerate() {
            *byte = (place / 256 * 7 + place) as u8;
        }
        Self {
            requester,
            responder,
            ours,
            theirs,
        }
    }

    fn post(&mut self, wr_id: u64, op: SendOp, length: u32) {
        let payload = self.ours.payload(wr_id as usize * 0x100, length);
        self.ours.send_queue.push_back(Ok(SendRequest {
            wr_id,
            op,
            flags: FLAGS,
            length,
            payload,
        }));
    }

    fn send(&mut self, wr_id: u64, length: u32) {
        self.post(wr_id, SendOp::Send { imm: None }, length);
    }

    fn post_recv(&mut self, wr_id: u64, length: u32) {
        let payload = self.theirs.payload(wr_id as usize * 0x1000, length);
        self.theirs.recv_queue.push_back(Ok(RecvRequest {
            wr_id,
            length,
            payload,
        }));
    }

    /// Returns all packets to send.
    fn packets(&mut self) -> Vec<Wire> {
        let mut packets = Vec::new();
        loop {
            let mut host = self.ours.host(&[]);
            let Some(transmit) = self.requester.poll_transmit(Instant::from_ns(1), &mut host)
            else {
                return packets;
            };
            let payload = match transmit.source {
                Source::Empty => Vec::new(),
                Source::Bytes { memory, at, len } => {
                    let start = memory.at + at as usize;
                    self.ours.memory[start..start + len as usize].to_vec()
                }
            };
            let packet =
                wire::parse(transmit.header.as_bytes(), transmit.udp_payload_len()).unwrap();
            assert_eq!(packet.bth.transport, Transport::Uc);
            assert!(!packet.bth.ack_req);
            packets.push(Wire { packet, payload });
        }
    }

    /// Delivers a packet; there must never be an answer.
    fn deliver(&mut self, wire: &Wire) {
        let mut host = self.theirs.host(&wire.payload);
        while self.responder.handle_request(&wire.packet, &mut host) == Handled::PutOff {}
        assert!(self
            .responder
            .poll_transmit(&mut self.theirs.host(&[]))
            .is_none());
    }

    fn exchange(&mut self) {
        for wire in self.packets() {
            self.deliver(&wire);
        }
    }

    fn received(&self, wr_id: u64, from: u64, length: usize) {
        let sent = self.ours.bytes(from as usize * 0x100, length);
        assert_eq!(self.theirs.bytes(wr_id as usize * 0x1000, length), sent);
    }
}

fn remote(at: u64) -> Remote {
    Remote {
        iova: Iova(0x1000 + at),
        rkey: Rkey(KEY),
    }
}

// Rules: RTY-16, UCX-1, UCX-9
#[test]
fn messages_arrive_and_complete_without_an_answer() {
    let mut pair = Pair::new();
    for (wr_id, length) in [(1, 0), (2, 1), (3, MTU), (4, MTU + 1), (5, 5 * MTU)] {
        pair.post_recv(wr_id, 0x1000);
        pair.send(wr_id, length);
        pair.exchange();
        pair.received(wr_id, wr_id, length as usize);
        let sent = pair.ours.sent.last().unwrap();
        assert_eq!(
            (sent.wr_id, sent.byte_len, sent.status),
            (wr_id, length, Status::Success)
        );
        let got = pair.theirs.received.last().unwrap();
        assert_eq!(
            (got.wr_id, got.byte_len, got.src_qp),
            (wr_id, length, Qpn::new(5))
        );
        assert!(!got.grh);
        assert_eq!(pair.requester.poll_timeout(), None);
    }
    assert_eq!(pair.ours.sent.len(), 5);
    assert_eq!(pair.ours.payloads.count(), 0);
    assert_eq!(pair.theirs.payloads.count(), 0);
    assert_eq!(pair.theirs.raised, [AsyncEvent::CommunicationEstablished]);
    assert!(!pair.responder.needs_poll());
}

#[test]
fn writes_arrive() {
    let mut pair = Pair::new();
    let imm = Some(Imm([1, 2, 3, 4]));
    pair.post_recv(9, 0);
    pair.post(
        1,
        SendOp::Write {
            remote: remote(0),
            imm: None,
        },
        3 * MTU,
    );
    pair.post(
        2,
        SendOp::Write {
            remote: remote(0x1000),
            imm,
        },
        2 * MTU,
    );
    pair.exchange();
    assert_eq!(pair.theirs.bytes(REGION, 768), pair.ours.bytes(0x100, 768));
    assert_eq!(
        pair.theirs.bytes(REGION + 0x1000, 512),
        pair.ours.bytes(0x200, 512)
    );
    assert_eq!(pair.theirs.received.len(), 1);
    assert_eq!(pair.theirs.received[0].imm, imm);
    assert_eq!(pair.theirs.received[0].op, CompletionOp::RecvRdmaWithImm);
    assert_eq!(pair.theirs.grants.count(), 0);
}

// Rules: CPL-22, RTY-16
#[test]
fn a_request_completes_when_the_next_packet_is_asked_for() {
    let mut pair = Pair::new();
    pair.send(1, 2 * MTU);
    for _ in 0..2 {
        let mut host = pair.ours.host(&[]);
        assert!(pair
            .requester
            .poll_transmit(Instant::from_ns(1), &mut host)
            .is_some());
        assert!(pair.ours.sent.is_empty());
        assert_eq!(pair.requester.poll_timeout(), None);
    }
    let mut host = pair.ours.host(&[]);
    assert!(pair
        .requester
        .poll_transmit(Instant::from_ns(1), &mut host)
        .is_none());
    assert_eq!(pair.ours.sent_statuses(), [(1, Status::Success)]);
}

// Rules: UCX-2, UCX-3, UCX-4
#[test]
fn a_lost_packet_loses_its_message_alone() {
    // The lost packet: the first, one in the middle, the last.
    for lost in 0..4 {
        let mut pair = Pair::new();
        pair.post_recv(1, 0x1000);
        pair.send(1, 4 * MTU);
        pair.send(9, 3 * MTU);
        let packets = pair.packets();
        for (index, wire) in packets.iter().enumerate() {
            if index != lost {
                pair.deliver(wire);
            }
        }
        // One receive does for both: that of the lost message is kept for the next.
        assert_eq!(
            pair.theirs.received_statuses(),
            [(1, Status::Success)],
            "{lost}"
        );
        pair.received(1, 9, 3 * MTU as usize);
        assert_eq!(pair.theirs.payloads.count(), 0);
    }
}

// Rules: UCX-2
#[test]
fn losses_in_two_messages_lose_both() {
    let mut pair = Pair::new();
    pair.post_recv(1, 0x1000);
    pair.post(
        1,
        SendOp::Write {
            remote: remote(0),
            imm: None,
        },
        3 * MTU,
    );
    pair.send(2, 3 * MTU);
    pair.send(9, MTU);
    for (index, wire) in pair.packets().iter().enumerate() {
        if index != 1 && index != 4 {
            pair.deliver(wire);
        }
    }
    assert_eq!(pair.theirs.received_statuses(), [(1, Status::Success)]);
    pair.received(1, 9, MTU as usize);
    assert_eq!(pair.theirs.count(Event::MessageDropped), 2);
    assert_eq!(pair.theirs.grants.count(), 0);
}

// Rules: UCX-3, UCX-5
#[test]
fn packets_of_a_dropped_message_start_nothing() {
    let mut pair = Pair::new();
    pair.post_recv(1, 0x1000);
    pair.send(1, 3 * MTU);
    let packets = pair.packets();
    for wire in [&packets[1], &packets[2], &packets[1]] {
        pair.deliver(wire);
    }
    assert!(pair.theirs.received.is_empty());
    assert_eq!(pair.theirs.recv_queue.len(), 1);
    // From the start on it is a message again.
    for wire in &packets {
        pair.deliver(wire);
    }
    pair.received(1, 1, 3 * MTU as usize);
}

// Rules: UCX-8
#[test]
fn a_message_that_comes_twice_is_carried_out_twice() {
    for packets in 1..4u32 {
        let mut pair = Pair::new();
        pair.post_recv(1, 0x1000);
        pair.post_recv(2, 0x1000);
        pair.send(5, packets * MTU);
        let wires = pair.packets();
        for wire in wires.iter().chain(&wires) {
            pair.deliver(wire);
        }
        let both = [(1, Status::Success), (2, Status::Success)];
        assert_eq!(pair.theirs.received_statuses(), both);
        pair.received(1, 5, (packets * MTU) as usize);
        pair.received(2, 5, (packets * MTU) as usize);
    }
}

// Rules: UCX-7
#[test]
fn what_a_peer_does_wrong_drops_its_message() {
    let wrong = |op| {
        let mut pair = Pair::new();
        pair.post_recv(1, MTU + 1);
        pair.post(1, op, 2 * MTU);
        pair.send(9, MTU);
        pair.exchange();
        assert_eq!(pair.theirs.received_statuses(), [(1, Status::Success)]);
        pair.received(1, 9, MTU as usize);
        assert_eq!(pair.theirs.count(Event::MessageDropped), 1);
        assert_eq!(pair.responder.state(), RecvState::Running);
    };
    // Longer than the receive.
    wrong(SendOp::Send { imm: None });
    // Out of the region.
    wrong(SendOp::Write {
        remote: remote(0x3fff),
        imm: None,
    });
    // No region.
    let rkey = Rkey(KEY + 1);
    wrong(SendOp::Write {
        remote: Remote { rkey, ..remote(0) },
        imm: None,
    });
}

// Rules: RNR-19, UCX-5
#[test]
fn without_a_receive_a_message_is_dropped() {
    let mut pair = Pair::new();
    pair.send(1, 5 * MTU);
    let imm = Some(Imm([0; 4]));
    pair.post(
        2,
        SendOp::Write {
            remote: remote(0),
            imm,
        },
        2 * MTU,
    );
    pair.exchange();
    assert_eq!(pair.theirs.count(Event::NoReceive), 2);
    assert_eq!(pair.theirs.grants.count(), 0);
    pair.post_recv(3, MTU);
    pair.send(3, MTU);
    pair.exchange();
    pair.received(3, 3, MTU as usize);
    // The wire lost nothing.
    assert_eq!(pair.theirs.count(Event::OutOfSequenceRequest), 0);
}

// Rules: ERR-11, ERR-12, ERR-13, RDA-25
#[test]
fn reads_are_refused_and_stop_the_send_queue() {
    let mut pair = Pair::new();
    pair.post_recv(1, MTU);
    pair.post_recv(2, MTU);
    pair.send(1, MTU);
    pair.post(2, SendOp::Read { remote: remote(0) }, MTU);
    pair.send(3, MTU);
    pair.exchange();
    let expected = [
        (1, Status::Success),
        (2, Status::LocalQpOperation),
        (3, Status::Flushed),
    ];
    assert_eq!(pair.ours.sent_statuses(), expected);
    assert_eq!(pair.requester.state(), SendState::Stopped);
    assert_eq!(pair.requester.next_psn(), Some(Psn::new(FIRST + 1)));

    pair.send(4, MTU);
    assert_eq!(
        pair.requester.flush_posted(&mut pair.ours.host(&[])),
        Flush::Done
    );
    assert_eq!(
        pair.ours.sent_statuses().last(),
        Some(&(4, Status::Flushed))
    );

    pair.requester.resume();
    assert_eq!(pair.requester.state(), SendState::Running);
    pair.send(5, MTU);
    pair.exchange();
    assert_eq!(
        pair.ours.sent_statuses().last(),
        Some(&(5, Status::Success))
    );
    pair.received(2, 5, MTU as usize);
    assert_eq!(pair.theirs.count(Event::OutOfSequenceRequest), 0);
}

// Rules: UCX-10
#[test]
fn a_fault_in_the_middle_stops_the_send_queue() {
    let mut pair = Pair::new();
    pair.post_recv(1, 0x1000);
    pair.send(1, 3 * MTU);
    pair.send(2, MTU);
    let mut host = pair.ours.host(&[]);
    assert!(pair
        .requester
        .poll_transmit(Instant::from_ns(1), &mut host)
        .is_some());
    let psn = pair
        .requester
        .poll_transmit(Instant::from_ns(1), &mut host)
        .unwrap()
        .psn;
    pair.requester.payload_fault(psn, &mut host);
    assert_eq!(
        pair.ours.sent_statuses(),
        [(1, Status::LocalProtection), (2, Status::Flushed)]
    );
    assert_eq!(pair.requester.state(), SendState::Stopped);
    pair.requester.resume();
    pair.send(3, 2 * MTU);
    pair.exchange();
    pair.received(1, 3, 2 * MTU as usize);
}

// Rules: ERR-19
#[test]
fn what_fails_on_our_side_fails_the_queue_pair() {
    let mut pair = Pair::new();
    pair.post_recv(1, MTU);
    pair.post_recv(2, MTU);
    pair.theirs.gone.push(0x1000);
    pair.send(1, MTU);
    pair.exchange();
    let expected = [(1, Status::LocalProtection), (2, Status::Flushed)];
    assert_eq!(pair.theirs.received_statuses(), expected);
    assert_eq!(pair.responder.state(), RecvState::Error);
    assert!(pair.responder.needs_poll());

    let mut pair = Pair::new();
    pair.theirs.recv_queue.push_back(Err(BadRequest {
        wr_id: 7,
        status: Status::LocalQpOperation,
    }));
    pair.send(1, MTU);
    pair.exchange();
    assert_eq!(
        pair.theirs.received_statuses(),
        [(7, Status::LocalQpOperation)]
    );
    assert_eq!(pair.responder.state(), RecvState::Error);
}

#[test]
fn a_kept_receive_is_flushed_or_discarded() {
    for reset in [false, true] {
        let mut pair = Pair::new();
        pair.post_recv(1, 0x1000);
        pair.post_recv(2, 0x1000);
        pair.send(1, 2 * MTU);
        pair.send(2, 2 * MTU);
        let packets = pair.packets();
        pair.deliver(&packets[0]);
        pair.deliver(&packets[3]);
        let mut host = pair.theirs.host(&[]);
        if reset {
            pair.responder.reset(&mut host);
            assert!(pair.theirs.received.is_empty());
            assert_eq!(pair.theirs.payloads.count(), 1);
        } else {
            let _ = pair.responder.enter_error(&mut host);
            let flushed = [(1, Status::Flushed), (2, Status::Flushed)];
            assert_eq!(pair.theirs.received_statuses(), flushed);
        }
    }
}

// Rules: UCX-11
#[test]
fn a_drain_ends_when_the_last_packet_is_out() {
    let mut pair = Pair::new();
    pair.send(1, 2 * MTU);
    let mut host = pair.ours.host(&[]);
    assert!(pair
        .requester
        .poll_transmit(Instant::from_ns(1), &mut host)
        .is_some());
    pair.requester.drain(&mut host);
    assert_eq!(pair.requester.state(), SendState::Draining);
    pair.send(2, MTU);
    assert_eq!(pair.packets().len(), 1);
    assert_eq!(pair.requester.state(), SendState::Drained);
    assert_eq!(pair.ours.raised, [AsyncEvent::SendQueueDrained]);
    pair.requester.resume();
    assert_eq!(pair.packets().len(), 1);
    assert_eq!(
        pair.ours.sent_statuses(),
        [(1, Status::Success), (2, Status::Success)]
    );
}

/// Despite loss, duplication and reordering, a completed message is one that was sent, and each
/// receive completes once.
// Rules: UCX-6
#[test]
fn a_bad_network_never_mixes_messages() {
    let mut seed = 0x1234_5678_9abc_def1u64;
    let mut random = |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    for _ in 0..300 {
        let mut pair = Pair::new();
        for wr_id in 0..8 {
            pair.post_recv(wr_id, 0x800);
        }
        let mut wires = Vec::new();
        let mut lengths = [0u32; 16];
        for wr_id in 1..16u64 {
            lengths[wr_id as usize] = random(5 * u64::from(MTU)) as u32;
            let imm = Some(Imm((wr_id as u32).to_be_bytes()));
            pair.post(wr_id, SendOp::Send { imm }, lengths[wr_id as usize]);
            wires.extend(pair.packets());
        }
        let mut index = 0;
        while index < wires.len() {
            match random(12) {
                0 => {}
                1 => {
                    pair.deliver(&wires[index]);
                    pair.deliver(&wires[index]);
                }
                2 if index + 1 < wires.len() => {
                    pair.deliver(&wires[index + 1]);
                    pair.deliver(&wires[index]);
                    index += 1;
                }
                _ => pair.deliver(&wires[index]),
            }
            index += 1;
        }
        for (turn, got) in pair.theirs.received.clone().iter().enumerate() {
            assert_eq!((got.wr_id, got.status), (turn as u64, Status::Success));
            let sent = u64::from(u32::from_be_bytes(got.imm.unwrap().0));
            assert_eq!(got.byte_len, lengths[sent as usize]);
            pair.received(got.wr_id, sent, got.byte_len as usize);
        }
        assert_eq!(pair.ours.sent.len(), 15);
    }
}

/// Packets of all kinds, with any PSN, length, key and address. The world checks that nothing is
/// touched without a grant, and that each receive completes once and in order.
// Rules: ACK-17, VAL-16
#[test]
fn no_packet_does_harm() {
    let mut seed = 0x0dd0_beef_1234_5678u64;
    let mut random = move |below: u32| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % u64::from(below)) as u32
    };
    for _ in 0..50 {
        let mut pair = Pair::new();
        let mut posted = 0;
        for _ in 0..400 {
            if random(4) == 0 {
                pair.post_recv(posted % 8, random(4 * MTU));
                posted += 1;
            }
            let length = [0, 1, MTU - 1, MTU, MTU, MTU, MTU + 1][random(7) as usize];
            let reth = Reth {
                iova: Iova(0x1000 + u64::from(random(0x4100))),
                rkey: Rkey(KEY + random(8) / 7),
                length: [length, 2 * MTU, 3 * MTU, u32::MAX][random(4) as usize],
            };
            let imm = Imm([1; 4]);
            let request = match random(11) {
                0 => Request::SendFirst,
                1 | 2 => Request::SendMiddle,
                3 => Request::SendLast(SendEnd::Plain),
                4 => Request::SendLast(SendEnd::Imm(imm)),
                5 => Request::SendOnly(SendEnd::Plain),
                6 => Request::WriteFirst(reth),
                7 => Request::WriteMiddle,
                8 => Request::WriteLast(Some(imm)),
                9 => Request::WriteLast(None),
                _ => Request::WriteOnly(reth, Some(imm)),
            };
            let expected = pair.responder.expected_psn().unwrap();
            let packet = Packet {
                bth: Bth {
                    transport: Transport::Uc,
                    solicited: false,
                    mig_req: false,
                    pad: 0,
                    pkey: Pkey::DEFAULT,
                    fecn: false,
                    becn: false,
                    dest_qp: Qpn::new(6),
                    ack_req: random(2) == 0,
                    psn: expected.add(random(10) / 8).sub(random(10) / 8),
                },
                body: Body::Request(request),
                payload_len: length,
                psns: 1,
            };
            pair.deliver(&Wire {
                packet,
                payload: vec![0xbb; length as usize],
            });
            assert_eq!(pair.responder.state(), RecvState::Running);
            assert!(pair.theirs.grants.count() <= 1);
        }
        let done = pair.theirs.received.len();
        assert!(done > 0 && pair.theirs.written > 0);
        assert!(pair
            .theirs
            .received_statuses()
            .iter()
            .all(|got| got.1 == Status::Success));
        let left = pair.theirs.recv_queue.len();
        pair.responder.reset(&mut pair.theirs.host(&[]));
        assert_eq!(pair.theirs.payloads.count(), left);
        assert_eq!(pair.theirs.grants.count(), 0);
        assert!(posted as usize - done - left <= 1);
    }
}

// Rules: RSP-22
#[test]
fn memory_that_comes_and_goes_loses_nothing() {
    let mut pair = Pair::new();
    pair.theirs.absence = 400;
    let imm = Some(Imm([1, 2, 3, 4]));
    for round in 0..30u64 {
        pair.post_recv(1, 0x1000);
        pair.send(1, 4 * MTU + 5);
        pair.post_recv(2, 0);
        let to = remote(0);
        pair.post(2, SendOp::Write { remote: to, imm }, 3 * MTU);
        pair.exchange();
        pair.received(1, 1, 4 * MTU as usize + 5);
        assert_eq!(pair.theirs.bytes(REGION, 768), pair.ours.bytes(0x200, 768));
        assert_eq!(pair.theirs.received.len() as u64, 2 * round + 2);
        assert_eq!(pair.theirs.payloads.count(), 0);
    }
    assert_eq!(pair.theirs.count(Event::MessageDropped), 0);
}

#[test]
fn a_packet_that_was_taken_back_comes_again() {
    let mut pair = Pair::new();
    pair.post_recv(1, 0x1000);
    pair.send(1, 3 * MTU);
    let psns: Vec<_> = [false, true, true, false, true, false]
        .into_iter()
        .map(|taken_back| {
            let mut host = pair.ours.host(&[]);
            let transmit = pair
                .requester
                .poll_transmit(Instant::from_ns(1), &mut host)
                .unwrap();
            let psn = transmit.psn;
            if taken_back {
                pair.requester.unsend(psn);
            }
            psn
        })
        .collect();
    let expected = [0, 1, 1, 1, 2, 2].map(|index| Psn::new(FIRST).add(index));
    assert_eq!(psns, expected);
    assert!(pair.ours.sent.is_empty());
    assert!(pair.packets().is_empty());
    assert_eq!(pair.ours.sent_statuses(), [(1, Status::Success)]);
}
