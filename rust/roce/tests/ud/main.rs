// SPDX-License-Identifier: GPL-2.0

//! Senders and receivers of datagrams.

#[path = "../rc/rng.rs"]
#[allow(dead_code)]
mod rng;
#[path = "../rc/world.rs"]
#[allow(dead_code)]
mod world;

use std::collections::VecDeque;

use roce::completion::{Completion, Status};
use roce::event::{AsyncEvent, Event};
use roce::host::{
    DatagramRecvHost, DatagramSendHost, Fault, Flush, Handled, Observer, Source, Taken,
};
use roce::limits::{FLUSH_BATCH, GRH_BYTES};
use roce::num::{Imm, Mtu, Pkey, Psn, Qkey, Qpn};
use roce::opcode::Transport;
use roce::recv::RecvState;
use roce::send::SendState;
use roce::ud::{DatagramConfig, Receiver, Sender};
use roce::wire::{self, Body, Packet};
use roce::wr::{BadRequest, DatagramDest, DatagramRequest, RecvRequest, SendFlags};

use world::{Host, Payload, World};

const QKEY: Qkey = Qkey(0x1122_3344);
const FIRST: u32 = 0xff_ffff;
const CONFIG: DatagramConfig = DatagramConfig {
    pkey: Pkey::DEFAULT,
    qkey: QKEY,
};
const GRH: [u8; GRH_BYTES as usize] = [0x60; GRH_BYTES as usize];

impl DatagramRecvHost for Host<'_> {
    fn scatter_grh(&mut self, to: &Payload) -> Result<(), Fault> {
        assert!(to.len >= GRH_BYTES, "outside of the receive's memory");
        if self.world.gone.contains(&to.at) {
            return Err(Fault::Gone);
        }
        self.world.memory[to.at..to.at + GRH.len()].copy_from_slice(&GRH);
        Ok(())
    }
}

/// The host of a sender. Its payloads are the bytes themselves, its addresses are names.
#[derive(Default)]
struct Outbox {
    queue: VecDeque<Result<DatagramRequest<Vec<u8>, &'static str>, BadRequest>>,
    /// How many were taken and not retired, with whether they have a payload.
    taken: VecDeque<bool>,
    sent: Vec<Completion>,
    retired: usize,
    events: Vec<Event>,
    raised: Vec<AsyncEvent>,
}

impl Observer for Outbox {
    fn observe(&mut self, event: Event) {
        self.events.push(event);
    }

    fn raise(&mut self, event: AsyncEvent) {
        self.raised.push(event);
    }
}

impl DatagramSendHost for Outbox {
    type Payload = Vec<u8>;
    type Address = &'static str;

    fn next_datagram(&mut self) -> Taken<DatagramRequest<Vec<u8>, &'static str>> {
        let request = self.queue.pop_front()?;
        self.taken.push_back(request.is_ok());
        Some(request)
    }

    fn retire(&mut self, payload: Option<Vec<u8>>, completion: Option<Completion>) {
        let oldest = self.taken.pop_front().expect("nothing was taken");
        assert_eq!(oldest, payload.is_some());
        self.retired += 1;
        self.sent.extend(completion);
    }
}

impl Outbox {
    fn post(&mut self, wr_id: u64, length: usize) {
        self.queue.push_back(Ok(request(wr_id, length)));
    }

    fn statuses(&self) -> Vec<(u64, Status)> {
        self.sent
            .iter()
            .map(|completion| (completion.wr_id, completion.status))
            .collect()
    }
}

fn request(wr_id: u64, length: usize) -> DatagramRequest<Vec<u8>, &'static str> {
    DatagramRequest {
        wr_id,
        dest: DatagramDest {
            qpn: Qpn::new(0x77),
            qkey: QKEY,
        },
        imm: None,
        flags: SendFlags {
            signaled: true,
            ..SendFlags::default()
        },
        length: length as u32,
        payload: (0..length)
            .map(|place| (place + wr_id as usize) as u8)
            .collect(),
        address: "there",
    }
}

type Sending = Sender<Vec<u8>, &'static str>;

fn sender() -> Sending {
    let mut sender = Sender::new(Qpn::new(0x55), false);
    sender.start(CONFIG, Psn::new(FIRST));
    sender
}

/// Returns the next datagram on the wire: the packet and its payload.
fn next(sender: &mut Sending, outbox: &mut Outbox) -> Option<(Packet, Vec<u8>)> {
    let datagram = sender.poll_transmit(Mtu::B1024, outbox)?;
    assert_eq!(*datagram.address, "there");
    let transmit = &datagram.transmit;
    let packet = wire::parse(transmit.header.as_bytes(), transmit.udp_payload_len()).unwrap();
    assert_eq!(packet.bth.transport, Transport::Ud);
    assert!(!packet.bth.ack_req);
    let payload = match transmit.source {
        Source::Empty => Vec::new(),
        Source::Bytes { memory, at, len } => {
            assert_eq!((at, len as usize), (0, memory.len()));
            memory.clone()
        }
    };
    assert_eq!(payload.len(), packet.payload_len as usize);
    Some((packet, payload))
}

fn qkey_of(packet: &Packet) -> Qkey {
    match packet.body {
        Body::Datagram(datagram) => datagram.deth.qkey,
        _ => panic!("not a datagram"),
    }
}

/// A receiver with its world.
struct Inbox {
    receiver: Receiver<Payload>,
    world: World,
}

impl Inbox {
    fn new() -> Self {
        let mut inbox = Self {
            receiver: Receiver::new(Qpn::new(0x77)),
            world: World::default(),
        };
        inbox.world.memory.resize(0x4000, 0);
        inbox.receiver.start(CONFIG);
        inbox
    }

    fn post(&mut self, wr_id: u64, length: u32) {
        let payload = self.world.payload(wr_id as usize * 0x800, length);
        self.world.recv_queue.push_back(Ok(RecvRequest {
            wr_id,
            length,
            payload,
        }));
    }

    fn deliver(&mut self, (packet, payload): &(Packet, Vec<u8>)) {
        let mut host = self.world.host(payload);
        while self.receiver.handle_datagram(packet, &mut host) == Handled::PutOff {}
    }
}

// Rules: PSN-17, UDX-1, UDX-4, UDX-5, UDX-6, UDX-10, UDX-14
#[test]
fn datagrams_arrive_behind_their_header() {
    let (mut sender, mut outbox, mut inbox) = (sender(), Outbox::default(), Inbox::new());
    for (turn, length) in [0, 1, 3, 4, 1023, 1024].into_iter().enumerate() {
        let wr_id = turn as u64;
        inbox.post(wr_id, GRH_BYTES + length as u32);
        outbox.post(wr_id, length);
        let packet = next(&mut sender, &mut outbox).unwrap();
        assert_eq!(packet.0.bth.psn, Psn::new(FIRST).add(turn as u32));
        assert_eq!(packet.0.bth.dest_qp, Qpn::new(0x77));
        inbox.deliver(&packet);
        let got = inbox.world.received.last().unwrap();
        assert_eq!((got.wr_id, got.status), (wr_id, Status::Success));
        assert_eq!(got.byte_len, GRH_BYTES + length as u32);
        assert_eq!(got.src_qp, Qpn::new(0x55));
        assert!(got.grh);
        let at = turn * 0x800;
        assert_eq!(inbox.world.bytes(at, GRH.len()), GRH);
        assert_eq!(inbox.world.bytes(at + GRH.len(), length), packet.1);
    }
    assert!(next(&mut sender, &mut outbox).is_none());
    let all: Vec<_> = (0..6).map(|wr_id| (wr_id, Status::Success)).collect();
    assert_eq!(outbox.statuses(), all);
    assert_eq!(outbox.sent[4].byte_len, 1023);
    assert_eq!(inbox.world.payloads.count(), 0);
}

// Rules: UDX-11
#[test]
fn immediate_data_and_the_wish_for_an_event_arrive() {
    let (mut sender, mut outbox, mut inbox) = (sender(), Outbox::default(), Inbox::new());
    inbox.post(1, 64);
    let imm = Some(Imm([1, 2, 3, 4]));
    outbox.queue.push_back(Ok(DatagramRequest {
        imm,
        flags: SendFlags {
            solicited: true,
            ..SendFlags::default()
        },
        ..request(1, 8)
    }));
    let packet = next(&mut sender, &mut outbox).unwrap();
    inbox.deliver(&packet);
    let got = &inbox.world.received[0];
    assert_eq!((got.imm, got.solicited), (imm, true));
    // It was not signalled.
    assert!(next(&mut sender, &mut outbox).is_none());
    assert!(outbox.sent.is_empty());
    assert_eq!(outbox.retired, 1);
}

// Rules: KEY-5
#[test]
fn a_privileged_key_stands_for_our_own() {
    let (mut sender, mut outbox) = (sender(), Outbox::default());
    for (named, sent) in [
        (0x7fff_ffff, Qkey(0x7fff_ffff)),
        (0x8000_0000, QKEY),
        (!0, QKEY),
    ] {
        let mut request = request(1, 0);
        request.dest.qkey = Qkey(named);
        outbox.queue.push_back(Ok(request));
        let (packet, _) = next(&mut sender, &mut outbox).unwrap();
        assert_eq!(qkey_of(&packet), sent);
    }
    sender.modify(DatagramConfig {
        qkey: Qkey(9),
        ..CONFIG
    });
    let mut request = request(1, 0);
    request.dest.qkey = Qkey(!0);
    outbox.queue.push_back(Ok(request));
    assert_eq!(qkey_of(&next(&mut sender, &mut outbox).unwrap().0), Qkey(9));
}

// Rules: ERR-11, ERR-13, UDX-2
#[test]
fn a_bad_request_stops_the_send_queue() {
    let bad = |wr_id, status| Err(BadRequest { wr_id, status });
    for (wrong, status) in [
        (bad(2, Status::LocalProtection), Status::LocalProtection),
        (Ok(request(2, 1025)), Status::LocalLength),
    ] {
        let (mut sender, mut outbox) = (sender(), Outbox::default());
        outbox.post(1, 8);
        outbox.queue.push_back(wrong);
        outbox.post(3, 8);
        assert!(next(&mut sender, &mut outbox).is_some());
        assert!(next(&mut sender, &mut outbox).is_none());
        let expected = [(1, Status::Success), (2, status), (3, Status::Flushed)];
        assert_eq!(outbox.statuses(), expected);
        assert_eq!(sender.state(), SendState::Stopped);

        outbox.post(4, 8);
        assert!(next(&mut sender, &mut outbox).is_none());
        assert_eq!(sender.flush_posted(&mut outbox), Flush::Done);
        assert_eq!(outbox.statuses().last(), Some(&(4, Status::Flushed)));

        sender.resume();
        assert_eq!(sender.state(), SendState::Running);
        outbox.post(5, 8);
        let (packet, _) = next(&mut sender, &mut outbox).unwrap();
        assert_eq!(packet.bth.psn, Psn::new(FIRST + 1));
    }
}

#[test]
fn a_payload_that_cannot_be_read_stops_the_send_queue() {
    let (mut sender, mut outbox) = (sender(), Outbox::default());
    outbox.post(1, 8);
    outbox.post(2, 8);
    assert!(next(&mut sender, &mut outbox).is_some());
    sender.payload_fault(&mut outbox);
    let expected = [(1, Status::LocalProtection), (2, Status::Flushed)];
    assert_eq!(outbox.statuses(), expected);
    assert_eq!(sender.state(), SendState::Stopped);
    sender.payload_fault(&mut outbox);
    assert_eq!(outbox.retired, 2);
}

// Rules: UDX-15
#[test]
fn draining_is_at_once() {
    let (mut sender, mut outbox) = (sender(), Outbox::default());
    outbox.post(1, 8);
    outbox.post(2, 8);
    assert!(next(&mut sender, &mut outbox).is_some());
    sender.drain(&mut outbox);
    assert_eq!(sender.state(), SendState::Drained);
    assert_eq!(outbox.raised, [AsyncEvent::SendQueueDrained]);
    assert_eq!(outbox.statuses(), [(1, Status::Success)]);
    assert!(next(&mut sender, &mut outbox).is_none());
    sender.resume();
    assert!(next(&mut sender, &mut outbox).is_some());
}

#[test]
fn the_error_state_flushes_and_reset_forgets() {
    let (mut sender, mut outbox) = (sender(), Outbox::default());
    outbox.post(1, 8);
    assert!(next(&mut sender, &mut outbox).is_some());
    for wr_id in 2..u64::from(FLUSH_BATCH) + 3 {
        outbox.post(wr_id, 8);
    }
    assert_eq!(sender.enter_error(&mut outbox), Flush::More);
    assert_eq!(sender.flush_posted(&mut outbox), Flush::Done);
    assert_eq!(outbox.sent[0].status, Status::Success);
    assert!(outbox.sent[1..]
        .iter()
        .all(|sent| sent.status == Status::Flushed));
    assert_eq!(outbox.retired as u32, FLUSH_BATCH + 2);
    assert_eq!(sender.state(), SendState::Error);

    let (mut sender, mut outbox) = (self::sender(), Outbox::default());
    outbox.post(1, 8);
    assert!(next(&mut sender, &mut outbox).is_some());
    sender.reset(&mut outbox);
    assert_eq!((outbox.retired, outbox.sent.len()), (1, 0));
    assert_eq!(sender.state(), SendState::Idle);
    assert!(next(&mut sender, &mut outbox).is_none());
}

fn datagram(length: usize) -> (Packet, Vec<u8>) {
    let (mut sender, mut outbox) = (sender(), Outbox::default());
    outbox.post(1, length);
    next(&mut sender, &mut outbox).unwrap()
}

// Rules: KEY-4, KEY-6, UDX-9
#[test]
fn another_key_does_not_reach_a_receive() {
    let mut inbox = Inbox::new();
    inbox.post(1, 64);
    let mut packet = datagram(4);
    if let Body::Datagram(datagram) = &mut packet.0.body {
        datagram.deth.qkey = Qkey(QKEY.0 ^ 1);
    }
    inbox.deliver(&packet);
    assert_eq!(inbox.world.count(Event::BadQkey), 1);
    assert_eq!(inbox.world.recv_queue.len(), 1);
    inbox.receiver.modify(DatagramConfig {
        qkey: Qkey(QKEY.0 ^ 1),
        ..CONFIG
    });
    inbox.deliver(&packet);
    assert_eq!(inbox.world.received_statuses(), [(1, Status::Success)]);
}

// Rules: PSN-17, UDX-7, UDX-8, UDX-9
#[test]
fn what_cannot_be_received_is_dropped() {
    let mut inbox = Inbox::new();
    inbox.deliver(&datagram(4));
    assert_eq!(inbox.world.count(Event::NoReceive), 1);
    inbox.post(1, GRH_BYTES + 4);
    inbox.post(2, GRH_BYTES + 4);
    for _ in 0..3 {
        inbox.deliver(&datagram(5));
    }
    assert_eq!(inbox.world.count(Event::MessageDropped), 3);
    inbox.deliver(&datagram(4));
    inbox.deliver(&datagram(0));
    let both = [(1, Status::Success), (2, Status::Success)];
    assert_eq!(inbox.world.received_statuses(), both);
    assert_eq!(inbox.receiver.state(), RecvState::Running);
}

// Rules: UDX-8
#[test]
fn what_is_longer_than_any_mtu_is_dropped() {
    let mut inbox = Inbox::new();
    inbox.world.memory.resize(1 << 16, 0);
    inbox.post(1, GRH_BYTES + 5000);
    let with_length = |length: u16| {
        let (mut packet, _) = datagram(4);
        packet.payload_len = length.into();
        (packet, vec![0; length.into()])
    };
    inbox.deliver(&with_length(4097));
    assert_eq!(inbox.world.count(Event::MessageDropped), 1);
    inbox.deliver(&with_length(4096));
    assert_eq!(inbox.world.received_statuses(), [(1, Status::Success)]);
}

// Rules: UDX-8
#[test]
fn a_receive_without_room_for_the_header_gets_nothing() {
    let mut inbox = Inbox::new();
    inbox.post(1, GRH_BYTES - 1);
    inbox.deliver(&datagram(0));
    assert_eq!(inbox.world.count(Event::MessageDropped), 1);
    let _ = inbox.receiver.enter_error(&mut inbox.world.host(&[]));
    assert_eq!(inbox.world.received_statuses(), [(1, Status::Flushed)]);
}

// Rules: ERR-19
#[test]
fn what_fails_on_our_side_fails_the_queue_pair() {
    let mut inbox = Inbox::new();
    inbox.post(1, 64);
    inbox.post(2, 64);
    inbox.world.gone.push(0x800);
    inbox.deliver(&datagram(4));
    let expected = [(1, Status::LocalProtection), (2, Status::Flushed)];
    assert_eq!(inbox.world.received_statuses(), expected);
    assert_eq!(inbox.receiver.state(), RecvState::Error);
    inbox.deliver(&datagram(4));
    assert_eq!(inbox.world.count(Event::BadState), 1);

    let mut inbox = Inbox::new();
    inbox.world.recv_queue.push_back(Err(BadRequest {
        wr_id: 9,
        status: Status::LocalQpOperation,
    }));
    inbox.deliver(&datagram(4));
    let expected = [(9, Status::LocalQpOperation)];
    assert_eq!(inbox.world.received_statuses(), expected);
    assert_eq!(inbox.receiver.state(), RecvState::Error);
}

// Rules: SRQ-5
#[test]
fn an_error_leaves_what_is_posted_to_a_shared_queue_there() {
    let mut inbox = Inbox::new();
    inbox.world.shares_receives = true;
    inbox.post(1, GRH_BYTES);
    inbox.post(2, GRH_BYTES);
    inbox.deliver(&datagram(1));
    let mut host = inbox.world.host(&[]);
    assert_eq!(inbox.receiver.enter_error(&mut host), Flush::Done);
    assert_eq!(inbox.receiver.enter_error(&mut host), Flush::Done);
    assert_eq!(inbox.receiver.flush_posted(&mut host), Flush::Done);
    // It has the one that was too short.
    assert_eq!(inbox.world.received_statuses(), [(1, Status::Flushed)]);
    assert_eq!(inbox.world.recv_queue.len(), 1);
    assert_eq!(inbox.world.raised, [AsyncEvent::LastWqeReached]);

    // Once for each life.
    inbox.receiver.reset(&mut inbox.world.host(&[]));
    inbox.receiver.start(CONFIG);
    let _ = inbox.receiver.enter_error(&mut inbox.world.host(&[]));
    assert_eq!(inbox.world.raised, [AsyncEvent::LastWqeReached; 2]);
}

#[test]
fn an_error_flushes_what_is_posted_a_batch_at_a_time() {
    let mut inbox = Inbox::new();
    for wr_id in 0..u64::from(FLUSH_BATCH) {
        inbox.world.recv_queue.push_back(Err(BadRequest {
            wr_id,
            status: Status::LocalProtection,
        }));
    }
    let mut host = inbox.world.host(&[]);
    assert_eq!(inbox.receiver.enter_error(&mut host), Flush::More);
    assert_eq!(inbox.receiver.flush_posted(&mut host), Flush::Done);
    let all: Vec<_> = (0..u64::from(FLUSH_BATCH))
        .map(|wr_id| (wr_id, Status::Flushed))
        .collect();
    assert_eq!(inbox.world.received_statuses(), all);
}

#[test]
fn a_sender_knows_its_next_number() {
    let mut sender = Sending::new(Qpn::new(0x55), false);
    let mut outbox = Outbox::default();
    assert_eq!(sender.next_psn(), None);
    sender.start(CONFIG, Psn::new(FIRST));
    assert_eq!(sender.next_psn(), Some(Psn::new(FIRST)));
    outbox.post(1, 4);
    let _ = next(&mut sender, &mut outbox);
    assert_eq!(sender.next_psn(), Some(Psn::new(0)));
    sender.unsend();
    assert_eq!(sender.next_psn(), Some(Psn::new(FIRST)));
    outbox.queue.push_back(Ok(request(2, 1025)));
    let _ = next(&mut sender, &mut outbox);
    let _ = next(&mut sender, &mut outbox);
    assert_eq!(sender.state(), SendState::Stopped);
    assert_eq!(sender.next_psn(), Some(Psn::new(0)));
    let _ = sender.enter_error(&mut outbox);
    assert_eq!(sender.next_psn(), None);
}

#[test]
fn reset_gives_a_kept_receive_back() {
    let mut inbox = Inbox::new();
    inbox.post(1, GRH_BYTES);
    inbox.deliver(&datagram(1));
    inbox.receiver.reset(&mut inbox.world.host(&[]));
    assert_eq!(inbox.world.payloads.count(), 0);
    assert!(inbox.world.received.is_empty());
    assert_eq!(inbox.receiver.state(), RecvState::Idle);
}

#[test]
fn a_datagram_whose_receive_is_absent_waits_for_it() {
    let (mut sender, mut outbox, mut inbox) = (sender(), Outbox::default(), Inbox::new());
    inbox.world.absence = 700;
    for wr_id in 0..6 {
        inbox.post(wr_id, 0x400);
        outbox.post(wr_id, 0x100);
        let packet = next(&mut sender, &mut outbox).unwrap();
        inbox.deliver(&packet);
    }
    let all: Vec<_> = (0..6).map(|wr_id| (wr_id, Status::Success)).collect();
    assert_eq!(inbox.world.received_statuses(), all);
    assert_eq!(inbox.world.payloads.count(), 0);
}

#[test]
fn a_datagram_that_was_taken_back_comes_again() {
    let (mut sender, mut outbox) = (sender(), Outbox::default());
    outbox.post(1, 5);
    outbox.post(2, 6);
    for _ in 0..3 {
        let (packet, _) = next(&mut sender, &mut outbox).unwrap();
        assert_eq!((packet.bth.psn, packet.payload_len), (Psn::new(FIRST), 5));
        sender.unsend();
    }
    assert!(outbox.sent.is_empty());
    let (packet, _) = next(&mut sender, &mut outbox).unwrap();
    assert_eq!((packet.bth.psn, packet.payload_len), (Psn::new(FIRST), 5));
    let (packet, _) = next(&mut sender, &mut outbox).unwrap();
    assert_eq!(packet.bth.psn, Psn::new(FIRST).next());
    sender.unsend();
    // It is flushed before later requests.
    outbox.post(3, 7);
    assert_eq!(sender.enter_error(&mut outbox), Flush::Done);
    let statuses = [Status::Success, Status::Flushed, Status::Flushed];
    let all: Vec<_> = (1..).zip(statuses).collect();
    assert_eq!(outbox.statuses(), all);
}
