// SPDX-License-Identifier: GPL-2.0

//! The responder, against requests made by hand.

use roce::completion::{CompletionOp, Status};
use roce::event::{AsyncEvent, Event};
use roce::host::{Extent, Flush, FlushError, Handled, Source};
use roce::limits::{FLUSH_BATCH, MAX_EARLY_PSNS, MAX_MESSAGE_BYTES};
use roce::num::{Bundle, Imm, Iova, Mtu, Pkey, Psn, Qpn, Rkey};
use roce::opcode::{Connection, Operation, Transport};
use roce::recv::{self, Owes, RecvConfig, RecvState, RecvUpdate, RemoteAccess, Replay, Responder};
use roce::time::RnrTimer;
use roce::wire::{
    AtomicEth, Body, Bth, Feth, NakCode, Packet, Request, Response, Reth, SendEnd, Syndrome,
};
use roce::wr::{AtomicOp, BadRequest, Placement, RecvRequest};

use crate::net::{raised, remote, GLOBAL, IOVA, RKEY};
use crate::world::{Grant, Payload, Region, World};

const MTU: u32 = 256;
const FIRST: u32 = 0xff_fffd;

/// A responder without a network.
pub struct Lone {
    responder: Responder<Payload, Grant, Vec<Replay<Grant>>>,
    world: World,
}

/// A reply: its PSN counted from [`FIRST`], and the response.
pub type Reply = (i32, Response);

fn config() -> RecvConfig {
    RecvConfig {
        connection: Connection::Reliable,
        dest_qp: Qpn::new(0x33),
        pkey: Pkey::DEFAULT,
        mtu: Mtu::B256,
        bundle: Bundle::ONE,
        rq_psn: Psn::new(FIRST),
        max_dest_rd_atomic: 2,
        min_rnr_timer: RnrTimer::new(9).unwrap(),
        access: RemoteAccess {
            write: true,
            read: true,
            atomic: true,
            flush: GLOBAL,
        },
    }
}

fn replays(count: usize) -> Vec<Replay<Grant>> {
    (0..count).map(|_| Replay::default()).collect()
}

impl Lone {
    fn new(config: RecvConfig) -> Self {
        let mut lone = Self {
            responder: Responder::new(Qpn::new(0x44), replays(2)),
            world: World::default(),
        };
        lone.world.memory.resize(0x4000, 0);
        lone.world.regions.insert(
            RKEY,
            Region {
                iova: IOVA,
                at: 0x2000,
                len: 0x2000,
                read: true,
                write: true,
                atomic: true,
                flush: true,
                revocable: false,
            },
        );
        lone.grant_again();
        lone.responder.start(config);
        lone.responder.set_established();
        lone
    }

    /// Grants the key that the peer may have invalidated.
    pub fn grant_again(&mut self) {
        let region = Region {
            revocable: true,
            ..self.world.regions[&RKEY]
        };
        self.world.regions.insert(REVOCABLE, region);
    }

    /// Creates one with posted receives: numbered from 0, of `len` bytes each.
    pub fn with_receives(count: u64, len: u32) -> Self {
        let mut lone = Self::new(config());
        for wr_id in 0..count {
            lone.post(wr_id, len);
        }
        lone
    }

    fn post(&mut self, wr_id: u64, length: u32) {
        let payload = self.world.payload(0, length);
        self.world.recv_queue.push_back(Ok(RecvRequest {
            wr_id,
            length,
            payload,
        }));
    }

    /// Delivers a request with a payload of `len` bytes, which asks for an acknowledgement.
    pub fn request(&mut self, psn: i32, request: Request, len: u32) {
        self.packet(psn, request, &vec![psn as u8; len as usize], true);
    }

    /// Delivers a request that asks for no acknowledgement.
    fn quiet_request(&mut self, psn: i32, request: Request, len: u32) {
        self.packet(psn, request, &vec![psn as u8; len as usize], false);
    }

    fn packet(&mut self, psn: i32, request: Request, payload: &[u8], ack_req: bool) {
        // A packet that comes before its turn is dropped.
        let handled = self.deliver(psn, request, payload, ack_req);
        assert_ne!(handled, Handled::PutOff);
    }

    fn deliver(&mut self, psn: i32, request: Request, payload: &[u8], ack_req: bool) -> Handled {
        self.handle(header(psn, ack_req), request, payload)
    }

    fn handle(&mut self, bth: Bth, request: Request, payload: &[u8]) -> Handled {
        let packet = Packet {
            bth,
            body: Body::Request(request),
            payload_len: payload.len() as u32,
            psns: 1,
        };
        let mut host = self.world.host(payload);
        self.responder.handle_request(&packet, &mut host)
    }

    /// Returns the next reply, with the bytes of its payload.
    fn poll(&mut self) -> Option<(Reply, Vec<u8>)> {
        let host = &mut self.world.host(&[]);
        let transmit = self.responder.poll_transmit(host)?;
        let range = match transmit.source {
            Source::Empty => 0..0,
            Source::Bytes { memory, at, len } => {
                assert!(len > 0 && at + len <= memory.len);
                let start = memory.at + at as usize;
                start..start + len as usize
            }
        };
        let header = transmit.header.as_bytes();
        let packet = roce::wire::parse(header, transmit.udp_payload_len()).unwrap();
        assert_eq!(packet.bth.dest_qp, config().dest_qp);
        assert_eq!(packet.payload_len as usize, range.len());
        let Body::Response(response) = packet.body else {
            panic!("not a response");
        };
        let ahead = transmit.psn.add(0x100).distance_from(Psn::new(FIRST));
        let reply = (ahead as i32 - 0x100, response);
        Some((reply, self.world.memory[range].to_vec()))
    }

    fn poll_all(&mut self) -> Vec<Reply> {
        std::iter::from_fn(|| self.poll())
            .map(|(reply, _)| reply)
            .collect()
    }

    /// Returns the replies to send, each as PSN and kind.
    pub fn replies(&mut self) -> Vec<(i32, Says)> {
        let says = |(psn, response)| (psn, Says::from(response));
        self.poll_all().into_iter().map(says).collect()
    }

    pub fn state(&self) -> RecvState {
        self.responder.state()
    }

    fn expected(&self) -> i32 {
        let expected = self.responder.expected_psn().unwrap();
        expected.distance_from(Psn::new(FIRST)) as i32
    }

    fn count(&self, event: Event) -> usize {
        self.world.count(event)
    }
}

/// Returns the header of a request.
fn header(psn: i32, ack_req: bool) -> Bth {
    Bth {
        transport: Transport::Rc,
        solicited: true,
        mig_req: false,
        pad: 0,
        pkey: Pkey::DEFAULT,
        fecn: false,
        becn: false,
        dest_qp: Qpn::new(0x44),
        ack_req,
        psn: Psn::new(FIRST).add(psn as u32),
    }
}

/// The kind of a reply, without message numbers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Says {
    Ack,
    Nak(NakCode),
    Rnr(u8),
    Data(Operation),
}

impl From<Response> for Says {
    fn from(response: Response) -> Self {
        match response {
            Response::Acknowledge(aeth) => match aeth.syndrome {
                Syndrome::Ack { credits } => {
                    assert_eq!(credits, 31);
                    Self::Ack
                }
                Syndrome::Nak(code) => Self::Nak(code),
                Syndrome::RnrNak(timer) => Self::Rnr(timer.code()),
            },
            response => Self::Data(response.operation()),
        }
    }
}

const ONLY: Says = Says::Data(Operation::ReadResponseOnly);
const START: Says = Says::Data(Operation::ReadResponseFirst);
const MIDDLE: Says = Says::Data(Operation::ReadResponseMiddle);
const END: Says = Says::Data(Operation::ReadResponseLast);

pub fn reth(at: usize, length: u32) -> Reth {
    Reth {
        iova: remote(at).iova,
        rkey: remote(at).rkey,
        length,
    }
}

fn send_only() -> Request {
    Request::SendOnly(SendEnd::Plain)
}

fn send_last() -> Request {
    Request::SendLast(SendEnd::Plain)
}

fn write_only(at: usize, len: u32) -> Request {
    Request::WriteOnly(reth(at, len), None)
}

/// A key that every test's peer may have invalidated.
pub const REVOCABLE: u32 = RKEY + 77;

fn invalidate() -> SendEnd {
    SendEnd::Invalidate(Rkey(REVOCABLE))
}

pub fn atomic_eth(at: usize, swap_add: u64, compare: u64) -> AtomicEth {
    AtomicEth {
        iova: remote(at).iova,
        rkey: remote(at).rkey,
        swap_add,
        compare,
    }
}

fn fetch_add(at: usize, add: u64) -> Request {
    Request::FetchAdd(atomic_eth(at, add, 0x55))
}

fn compare_swap(at: usize, compare: u64, swap: u64) -> Request {
    Request::CompareSwap(atomic_eth(at, swap, compare))
}

const IMM: Imm = Imm([1, 2, 3, 4]);

// Rules: STA-8
#[test]
fn before_start_it_does_nothing() {
    let mut lone = Lone::with_receives(1, 10);
    lone.responder.reset(&mut lone.world.host(&[]));
    assert_eq!(lone.state(), RecvState::Idle);
    lone.request(0, send_only(), 10);
    assert_eq!(lone.count(Event::BadState), 1);
    assert_eq!(lone.replies(), []);
    assert_eq!(lone.responder.expected_psn(), None);
    let host = &mut lone.world.host(&[]);
    lone.responder.set_established();
    lone.responder.payload_fault(host);
    assert_eq!(lone.responder.flush_posted(host), Flush::Done);
    assert_eq!(lone.world.recv_queue.len(), 1);
    // An error before it ran flushes the posted receives.
    let host = &mut lone.world.host(&[]);
    assert_eq!(lone.responder.enter_error(host), Flush::Done);
    assert_eq!(lone.world.received_statuses(), [(0, Status::Flushed)]);
}

// Rules: VAL-10
#[test]
fn responses_are_not_requests() {
    let mut lone = Lone::new(config());
    let packet = Packet {
        bth: header(0, true),
        body: Body::Response(Response::ReadMiddle),
        payload_len: 0,
        psns: 1,
    };
    let host = &mut lone.world.host(&[]);
    assert_eq!(
        lone.responder.handle_request(&packet, host),
        roce::host::Handled::Done
    );
    assert_eq!(lone.replies(), []);
    assert_eq!(lone.expected(), 0);
}

// Rules: VAL-15
#[test]
fn the_first_packet_of_any_kind_establishes_the_connection_once() {
    for psn in [-1, 0, 5] {
        let mut lone = Lone::new(config());
        lone.responder.reset(&mut lone.world.host(&[]));
        lone.responder.start(config());
        lone.request(psn, write_only(0, 1), 1);
        lone.request(psn + 1, write_only(0, 1), 1);
        raised(&lone.world, AsyncEvent::CommunicationEstablished);
    }
}

/// The messages that a responder can be in.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Within {
    Nothing,
    Send,
    Write,
}

// Rules: NAK-6, NAK-9, NAK-11, NAK-12, NAK-13, RSP-1, RSP-2, RSP-3
#[test]
fn packets_come_in_the_order_of_their_message() {
    use Within::{Nothing, Send, Write};
    let full = MTU;
    // The request, its length, and the message that it may be in.
    let cases = [
        (Request::SendFirst, full, Nothing),
        (Request::SendMiddle, full, Send),
        (send_last(), 10, Send),
        (Request::SendLast(SendEnd::Imm(IMM)), 10, Send),
        (send_only(), 10, Nothing),
        (Request::SendOnly(SendEnd::Imm(IMM)), 10, Nothing),
        (Request::SendLast(invalidate()), 10, Send),
        (Request::SendOnly(invalidate()), 10, Nothing),
        (Request::WriteFirst(reth(0, 600)), full, Nothing),
        (Request::WriteMiddle, full, Write),
        (Request::WriteLast(None), 1, Write),
        (Request::WriteLast(Some(IMM)), 1, Write),
        (write_only(0, 10), 10, Nothing),
        (Request::WriteOnly(reth(0, 10), Some(IMM)), 10, Nothing),
        (Request::Read(reth(0, 10)), 0, Nothing),
    ];
    for (request, len, within) in cases {
        for begun in [Nothing, Send, Write] {
            let mut lone = Lone::with_receives(2, 1000);
            // Where a last packet is to come, the message is to end with it.
            let length = if len == 1 { MTU + 1 } else { 600 };
            match begun {
                Nothing => lone.request(0, write_only(0, 0), 0),
                Send => lone.request(0, Request::SendFirst, MTU),
                Write => lone.request(0, Request::WriteFirst(reth(0, length)), MTU),
            }
            lone.poll_all();
            lone.request(1, request, len);
            let context = format!("{request:?} within {begun:?}");
            if begun == within {
                assert_eq!(lone.state(), RecvState::Running, "{context}");
                assert_eq!(lone.expected(), 2, "{context}");
                continue;
            }
            let refusal = (1, Says::Nak(NakCode::InvalidRequest));
            assert_eq!(lone.state(), RecvState::Failed, "{context}");
            assert_eq!(lone.replies(), [refusal], "{context}");
            assert_eq!(lone.state(), RecvState::Error, "{context}");
            assert_eq!(lone.count(Event::InvalidRequestNakSent), 1);
            if begun == Send {
                // The receive in use tells the owner.
                assert_eq!(lone.world.raised, [], "{context}");
                let statuses = [(0, Status::RemoteInvalidRequest), (1, Status::Flushed)];
                assert_eq!(lone.world.received_statuses(), statuses, "{context}");
            } else {
                raised(&lone.world, AsyncEvent::RequestError);
                let statuses = [(0, Status::Flushed), (1, Status::Flushed)];
                assert_eq!(lone.world.received_statuses(), statuses, "{context}");
            }
            assert_eq!(lone.world.payloads.count(), 0, "{context}");
            assert_eq!(lone.world.grants.count(), 0, "{context}");
        }
    }
}

// Rules: NAK-6, RSP-5, RSP-6, RSP-7, RSP-8, RSP-9
#[test]
fn lengths_fit_position_and_mtu() {
    let write_first = Request::WriteFirst(reth(0, 600));
    // The previous request, the request, its length, and whether it is valid.
    let cases = [
        (None, Request::SendFirst, MTU - 1, false),
        (None, Request::SendFirst, MTU + 1, false),
        (None, Request::SendFirst, 0, false),
        (None, send_only(), MTU, true),
        (None, send_only(), MTU + 1, false),
        (None, send_only(), 0, true),
        (
            Some(Request::SendFirst),
            Request::SendMiddle,
            MTU - 4,
            false,
        ),
        (Some(Request::SendFirst), send_last(), 0, false),
        (Some(Request::SendFirst), send_last(), MTU, true),
        (Some(Request::SendFirst), send_last(), MTU + 1, false),
        (None, write_first, MTU - 1, false),
        (None, write_first, 0, false),
        (None, Request::WriteFirst(reth(0, 256)), MTU, false),
        (None, Request::WriteFirst(reth(0, 0)), MTU, false),
        (Some(write_first), Request::WriteMiddle, MTU - 1, false),
        (Some(write_first), Request::WriteLast(None), 0, false),
        (Some(write_first), Request::WriteLast(None), 88, false),
        (None, write_only(0, MTU), MTU, true),
        (None, write_only(0, MTU + 1), MTU + 1, false),
        (None, write_only(0, 10), 9, false),
        (None, write_only(0, 10), 11, false),
        (None, write_only(0, 0), 0, true),
        (None, write_only(0, 0), 1, false),
        (None, write_only(0, 1), 0, false),
        (
            None,
            Request::Read(reth(0, MAX_MESSAGE_BYTES + 1)),
            0,
            false,
        ),
        (
            None,
            Request::WriteFirst(reth(0, MAX_MESSAGE_BYTES + 1)),
            MTU,
            false,
        ),
    ];
    for (first, request, len, good) in cases {
        let mut lone = Lone::with_receives(1, 1000);
        let psn = first.map_or(0, |first| {
            lone.request(0, first, MTU);
            1
        });
        lone.poll_all();
        lone.request(psn, request, len);
        let context = format!("{request:?} of {len} after {first:?}");
        let says = if good {
            Says::Ack
        } else {
            Says::Nak(NakCode::InvalidRequest)
        };
        assert_eq!(lone.replies(), [(psn, says)], "{context}");
    }
}

// Rules: RSP-8, SEG-8
#[test]
fn a_write_is_as_long_as_it_said() {
    for (length, middles, last, good) in [
        (600, 1, 88, true),
        (600, 1, 87, false),
        (600, 1, 89, false),
        (600, 0, 256, false),
        (768, 1, 256, true),
        (768, 2, 1, false), // Nothing would be left for the last one.
        (512, 1, 1, false),
    ] {
        let mut lone = Lone::new(config());
        lone.request(0, Request::WriteFirst(reth(0, length)), MTU);
        for psn in 1..=middles {
            lone.request(psn, Request::WriteMiddle, MTU);
        }
        lone.request(middles + 1, Request::WriteLast(None), last);
        let context = format!("{length} with {middles} and {last}");
        let state = if good {
            RecvState::Running
        } else {
            RecvState::Failed
        };
        assert_eq!(lone.state(), state, "{context}");
        assert!(lone.world.written <= u64::from(length), "{context}");
        if good {
            assert_eq!(lone.world.written, u64::from(length), "{context}");
        }
    }
}

/// Returns a FLUSH to `placement`, of the range or of the region.
fn flush(placement: u8, selectivity: u8, at: usize, length: u32) -> Request {
    let feth = Feth {
        placement,
        selectivity,
    };
    Request::Flush(feth, reth(at, length))
}

// Rules: DUP-19, MPE-5
#[test]
fn an_atomic_write_is_done_once_and_answered_like_an_empty_read() {
    let mut lone = Lone::new(config());
    let request = Request::AtomicWrite(reth(8, 8));
    lone.packet(0, request, &[1, 2, 3, 4, 5, 6, 7, 8], false);
    assert_eq!(lone.replies(), [(0, ONLY)]);
    assert_eq!(lone.world.bytes(at(8), 8), [1, 2, 3, 4, 5, 6, 7, 8]);
    lone.packet(0, request, &[9; 8], false);
    assert_eq!(lone.replies(), [(0, ONLY)]);
    assert_eq!(lone.world.bytes(at(8), 8), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(lone.world.atomics, 1);
    assert_eq!(lone.world.grants.count(), 0);
}

// Rules: MPE-1, MPE-2, MPE-4
#[test]
fn an_atomic_write_has_eight_bytes_in_their_place() {
    let invalid = NakCode::InvalidRequest;
    for (at, length, len, code) in [
        (0, 8, 4, invalid),
        (0, 8, 0, invalid),
        (0, 8, 12, invalid),
        (0, 4, 4, invalid),
        (0, 16, 8, invalid),
        (0, 0, 0, invalid),
        (4, 8, 8, invalid),
        (0x2000, 8, 8, NakCode::RemoteAccess),
    ] {
        let mut lone = Lone::new(config());
        lone.request(0, Request::AtomicWrite(reth(at, length)), len);
        assert_eq!(
            lone.replies(),
            [(0, Says::Nak(code))],
            "{at} {length} {len}"
        );
        assert_eq!(lone.world.written, 0);
    }
    let mut lone = Lone::new(config());
    lone.world.regions.get_mut(&RKEY).unwrap().write = false;
    lone.request(0, Request::AtomicWrite(reth(0, 8)), 8);
    assert_eq!(lone.replies(), [(0, Says::Nak(NakCode::RemoteAccess))]);
}

// Rules: ACK-4, DUP-19, MPE-5, MPE-12, MPE-13, MPE-14
#[test]
fn a_flush_is_answered_like_an_empty_read() {
    let mut lone = Lone::new(config());
    lone.request(0, write_only(0, 8), 8);
    lone.request(1, flush(1, 0, 16, 0x1000), 0);
    lone.request(2, flush(1, 1, 1 << 40, u32::MAX), 0);
    assert_eq!(lone.replies(), [(1, ONLY), (2, ONLY)]);
    let range = Extent::Range {
        iova: remote(16).iova,
        len: 0x1000,
    };
    let done = [(range, GLOBAL), (Extent::Region, GLOBAL)];
    assert_eq!(lone.world.flushes, done);
    // Again, though not done again.
    lone.request(1, flush(1, 0, 16, 0x1000), 0);
    assert_eq!(lone.replies(), [(1, ONLY)]);
    assert_eq!(lone.world.flushes, done);
    // As many as there may be at once, and some more, are only late.
    for psn in 3..8 {
        lone.request(psn, flush(1, 0, 0, 0), 0);
    }
    let gap = (5, Says::Nak(NakCode::SequenceError));
    assert_eq!(lone.replies(), [(3, ONLY), (4, ONLY), gap]);
    lone.request(5, flush(1, 0, 0, 0), 0);
    assert_eq!(lone.replies(), [(5, ONLY)]);
}

// Rules: NAK-4
#[test]
fn what_was_dropped_is_asked_for_after_what_was_put_off() {
    let mut lone = Lone::new(config());
    lone.request(1, write_only(0, 1), 1);
    lone.world.absence = 1000;
    let put_off = lone.deliver(0, write_only(0, 8), &[0; 8], true);
    assert_eq!(put_off, Handled::PutOff);
    // It is there, and is not to be asked for.
    assert_eq!(lone.replies(), []);
    lone.world.absence = 0;
    lone.request(0, write_only(0, 8), 8);
    let nak = Says::Nak(NakCode::SequenceError);
    assert_eq!(lone.replies(), [(1, nak)]);
    lone.request(1, write_only(0, 1), 1);
    assert_eq!(lone.replies(), [(1, Says::Ack)]);
}

// Rules: RSP-22
#[test]
fn what_is_done_is_acknowledged_before_memory_is_waited_for() {
    let mut lone = Lone::new(config());
    lone.quiet_request(0, Request::WriteFirst(reth(0, 600)), MTU);
    lone.quiet_request(1, Request::WriteMiddle, MTU);
    assert_eq!(lone.replies(), []);
    lone.world.absence = 1000;
    for replies in [&[(1, Says::Ack)][..], &[], &[]] {
        let put_off = lone.deliver(2, Request::WriteLast(None), &[3; 88], true);
        assert_eq!(put_off, Handled::PutOff);
        assert_eq!(lone.replies(), replies);
    }
    lone.world.absence = 0;
    lone.request(2, Request::WriteLast(None), 88);
    assert_eq!(lone.replies(), [(2, Says::Ack)]);
    assert_eq!(lone.world.written, 600);
}

// Rules: MPE-17
#[test]
fn a_flush_waits_for_memory_and_is_done_once() {
    let mut lone = Lone::new(config());
    lone.world.absence = 1000;
    for _ in 0..3 {
        let handled = lone.deliver(0, flush(1, 0, 0, 8), &[], true);
        assert_eq!(handled, Handled::PutOff);
        assert_eq!(lone.replies(), []);
    }
    assert_eq!(lone.world.flushes, []);
    lone.world.absence = 0;
    lone.request(0, flush(1, 0, 0, 8), 0);
    assert_eq!(lone.replies(), [(0, ONLY)]);
    assert_eq!(lone.world.flushes.len(), 1);
    // Memory that fails is no matter of rights.
    lone.world.gone.push(0x2000);
    lone.request(1, flush(1, 0, 0, 8), 0);
    assert_eq!(lone.replies(), [(1, Says::Nak(NakCode::RemoteOperation))]);
}

// Rules: MPE-9, MPE-10, MPE-11
#[test]
fn a_flush_that_may_not_be_is_refused() {
    let invalid = NakCode::InvalidRequest;
    let access = NakCode::RemoteAccess;
    let nowhere = RemoteAccess {
        flush: Placement::default(),
        ..config().access
    };
    let all = RemoteAccess {
        flush: Placement {
            global: true,
            persistent: true,
        },
        ..nowhere
    };
    for (rights, request, code) in [
        (all, flush(4, 0, 0, 8), invalid),
        (all, flush(8, 0, 0, 8), invalid),
        (all, flush(1, 2, 0, 8), invalid),
        (all, flush(1, 3, 0, 8), invalid),
        (nowhere, flush(1, 0, 0, 8), invalid),
        (nowhere, flush(2, 0, 0, 8), invalid),
        // The region's own rights and bounds.
        (all, flush(2, 0, 0, 8), access),
        (all, flush(3, 1, 0, 8), access),
        (all, flush(1, 0, 0x1ff9, 8), access),
    ] {
        let mut lone = Lone::new(RecvConfig {
            access: rights,
            ..config()
        });
        lone.request(0, request, 0);
        assert_eq!(lone.replies(), [(0, Says::Nak(code))], "{request:?}");
        assert_eq!(lone.world.flushes, []);
    }
    // Within another message, and where nothing may be kept.
    let mut lone = Lone::new(config());
    lone.request(0, Request::WriteFirst(reth(0, 300)), MTU);
    lone.request(1, flush(1, 0, 0, 8), 0);
    assert_eq!(lone.replies(), [(1, Says::Nak(invalid))]);
    for (request, len) in [
        (flush(1, 0, 0, 8), 0),
        (Request::AtomicWrite(reth(0, 8)), 8),
    ] {
        let mut lone = Lone::new(RecvConfig {
            max_dest_rd_atomic: 0,
            ..config()
        });
        lone.request(0, request, len);
        assert_eq!(lone.replies(), [(0, Says::Nak(invalid))]);
    }
}

// Rules: MEM-5, RDA-7, RSP-15, RSP-16
#[test]
fn rights_are_those_of_the_queue_pair() {
    let none = RemoteAccess::default();
    let read = RemoteAccess { read: true, ..none };
    let write = RemoteAccess {
        write: true,
        ..none
    };
    let atomic = RemoteAccess {
        atomic: true,
        ..none
    };
    let cases = [
        (atomic, 2, fetch_add(0, 1), 0, true),
        (atomic, 2, compare_swap(0, 1, 2), 0, true),
        (atomic, 0, fetch_add(0, 1), 0, false),
        (atomic, 2, Request::Read(reth(0, 1)), 0, false),
        (write, 2, fetch_add(0, 1), 0, false),
        (read, 2, compare_swap(0, 1, 2), 0, false),
        (read, 2, write_only(0, 0), 0, false),
        (read, 2, write_only(0, 1), 1, false),
        (read, 2, Request::WriteFirst(reth(0, 300)), MTU, false),
        (read, 2, Request::Read(reth(0, 1)), 0, true),
        (write, 2, write_only(0, 1), 1, true),
        (write, 2, Request::Read(reth(0, 1)), 0, false),
        (read, 0, Request::Read(reth(0, 1)), 0, false),
        (none, 0, send_only(), 1, true),
    ];
    for (access, max_dest_rd_atomic, request, len, good) in cases {
        let mut lone = Lone::new(RecvConfig {
            access,
            max_dest_rd_atomic,
            ..config()
        });
        lone.post(0, 100);
        lone.request(0, request, len);
        let context = format!("{request:?} with {access:?}");
        assert_eq!(lone.state() == RecvState::Running, good, "{context}");
        if !good {
            let refusal = (0, Says::Nak(NakCode::InvalidRequest));
            assert_eq!(lone.replies(), [refusal], "{context}");
        }
    }
}

// Rules: MEM-12, NAK-7, NAK-11, NAK-13, RDA-2, RSP-14
#[test]
fn memory_that_may_not_be_reached_is_refused() {
    let elsewhere = |iova, rkey, length| Reth {
        iova: Iova(iova),
        rkey: Rkey(rkey),
        length,
    };
    for reth in [
        elsewhere(IOVA, RKEY + 1, 10),
        elsewhere(IOVA - 1, RKEY, 10),
        elsewhere(IOVA + 0x1ff7, RKEY, 10),
        elsewhere(u64::MAX, RKEY, 10),
    ] {
        for request in [
            Request::Read(reth),
            Request::WriteOnly(reth, None),
            Request::WriteOnly(reth, Some(IMM)),
        ] {
            let mut lone = Lone::with_receives(1, 10);
            let len = if matches!(request, Request::Read(_)) {
                0
            } else {
                10
            };
            lone.request(0, request, len);
            raised(&lone.world, AsyncEvent::AccessError);
            assert_eq!(lone.world.received_statuses(), [(0, Status::Flushed)]);
            assert_eq!(lone.replies(), [(0, Says::Nak(NakCode::RemoteAccess))]);
            assert_eq!(lone.count(Event::RemoteAccessNakSent), 1);
            assert_eq!(lone.world.written, 0);
        }
    }
    // An empty range needs no right.
    let mut lone = Lone::new(config());
    lone.request(0, Request::Read(elsewhere(1, 2, 0)), 0);
    lone.request(1, Request::WriteOnly(elsewhere(1, 2, 0), None), 0);
    assert_eq!(lone.replies(), [(0, ONLY), (1, Says::Ack)]);
}

// Rules: NAK-7
#[test]
fn rights_are_those_of_the_region() {
    for (read, write) in [(true, false), (false, true)] {
        for request in [Request::Read(reth(0, 10)), write_only(0, 10)] {
            let mut lone = Lone::new(config());
            let region = lone.world.regions.get_mut(&RKEY).unwrap();
            (region.read, region.write) = (read, write);
            let is_read = matches!(request, Request::Read(_));
            lone.request(0, request, if is_read { 0 } else { 10 });
            let good = if is_read { read } else { write };
            assert_eq!(lone.state() == RecvState::Running, good);
        }
    }
}

// Rules: NAK-9, NAK-12, RSP-11, RSP-12
#[test]
fn a_receive_that_is_too_small_fails_and_so_does_the_message() {
    for (room, fails_at) in [(9, 0), (255, 0), (256, 1), (511, 1), (520, 2)] {
        let mut lone = Lone::with_receives(2, room);
        if room == 9 {
            lone.request(0, send_only(), 10);
        } else {
            lone.request(0, Request::SendFirst, MTU);
            lone.request(1, Request::SendMiddle, MTU);
            lone.request(2, send_last(), 9);
        }
        let statuses = [(0, Status::LocalLength), (1, Status::Flushed)];
        assert_eq!(lone.world.received_statuses(), statuses);
        assert_eq!(lone.world.raised, []);
        let refusal = (fails_at, Says::Nak(NakCode::InvalidRequest));
        assert_eq!(lone.replies(), [refusal], "{room}");
    }
}

// Rules: CPL-11, DUP-5, DUP-16, INV-1, INV-2
#[test]
fn a_send_invalidates_a_key_once() {
    let mut lone = Lone::with_receives(3, 1000);
    lone.request(0, Request::SendFirst, MTU);
    assert!(lone.world.regions.contains_key(&REVOCABLE));
    lone.request(1, Request::SendLast(invalidate()), 10);
    assert!(!lone.world.regions.contains_key(&REVOCABLE));
    let received = lone.world.received[0];
    assert_eq!(received.invalidated, Some(Rkey(REVOCABLE)));
    assert_eq!((received.imm, received.byte_len), (None, MTU + 10));
    // A duplicate says nothing about a key that is the same by chance.
    lone.grant_again();
    lone.request(1, Request::SendLast(invalidate()), 10);
    assert!(lone.world.regions.contains_key(&REVOCABLE));
    assert_eq!(lone.replies(), [(1, Says::Ack)]);
    assert_eq!(lone.world.received.len(), 1);
}

// Rules: INV-1, INV-3
#[test]
fn a_key_that_may_not_be_invalidated_fails_the_send() {
    for rkey in [RKEY, RKEY + 1] {
        let mut lone = Lone::with_receives(2, 1000);
        lone.request(0, Request::SendOnly(SendEnd::Invalidate(Rkey(rkey))), 10);
        assert_eq!(lone.replies(), [(0, Says::Nak(NakCode::RemoteAccess))]);
        let statuses = [(0, Status::RemoteInvalidRequest), (1, Status::Flushed)];
        assert_eq!(lone.world.received_statuses(), statuses);
        assert!(lone.world.regions.contains_key(&RKEY));
    }
}

// Rules: CPL-8, CPL-9, CPL-11, CPL-12, CPL-15
#[test]
fn a_receive_with_room_to_spare_says_how_much_came() {
    let mut lone = Lone::with_receives(1, 1000);
    lone.request(0, Request::SendFirst, MTU);
    lone.request(1, Request::SendLast(SendEnd::Imm(IMM)), 10);
    let completion = lone.world.received[0];
    assert_eq!(completion.byte_len, 266);
    assert_eq!(completion.imm, Some(IMM));
    assert_eq!(completion.op, CompletionOp::Recv);
    assert_eq!(completion.qpn, Qpn::new(0x44));
    assert_eq!(completion.src_qp, config().dest_qp);
    assert!(completion.solicited);
    assert_eq!(
        lone.world.memory[255..267],
        [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0]
    );
}

// Rules: NAK-8, RSP-21
#[test]
fn a_bad_receive_fails_the_queue_pair() {
    for request in [
        Request::SendFirst,
        Request::WriteOnly(reth(0, MTU), Some(IMM)),
    ] {
        let mut lone = Lone::new(config());
        lone.world.recv_queue.push_back(Err(BadRequest {
            wr_id: 7,
            status: Status::LocalProtection,
        }));
        lone.post(8, 10);
        lone.request(0, request, MTU);
        let statuses = [(7, Status::LocalProtection), (8, Status::Flushed)];
        assert_eq!(lone.world.received_statuses(), statuses);
        assert_eq!(lone.world.raised, []);
        assert_eq!(lone.replies(), [(0, Says::Nak(NakCode::RemoteOperation))]);
        assert_eq!(lone.count(Event::RemoteOperationNakSent), 1);
        assert_eq!(lone.world.written, 0);
    }
}

// Rules: ERR-19, NAK-8, NAK-13, NAK-24, ORD-9
#[test]
fn memory_that_goes_away_fails_the_queue_pair() {
    // In a receive.
    let mut lone = Lone::with_receives(1, 1000);
    lone.request(0, Request::SendFirst, MTU);
    lone.world.gone.push(0);
    lone.request(1, send_last(), 10);
    let statuses = [(0, Status::LocalProtection)];
    assert_eq!(lone.world.received_statuses(), statuses);
    assert_eq!(lone.replies(), [(1, Says::Nak(NakCode::RemoteOperation))]);

    // In a region, which takes no receive.
    let mut lone = Lone::with_receives(1, 1000);
    lone.request(0, Request::WriteFirst(reth(0, 300)), MTU);
    lone.world.regions.clear();
    lone.request(1, Request::WriteLast(None), 44);
    assert_eq!(lone.world.received_statuses(), [(0, Status::Flushed)]);
    raised(&lone.world, AsyncEvent::Fatal);
    assert_eq!(lone.replies(), [(1, Says::Nak(NakCode::RemoteOperation))]);

    // In a region, with a receive for the immediate data.
    let mut lone = Lone::with_receives(1, 1000);
    lone.request(0, Request::WriteFirst(reth(0, 300)), MTU);
    lone.world.regions.clear();
    lone.request(1, Request::WriteLast(Some(IMM)), 44);
    assert_eq!(lone.world.received_statuses(), [(0, Status::LocalAccess)]);
    assert_eq!(lone.world.raised, []);
    assert_eq!(lone.replies(), [(1, Says::Nak(NakCode::RemoteOperation))]);

    // Under a response.
    let mut lone = Lone::with_receives(1, 1000);
    lone.request(0, Request::Read(reth(0, 600)), 0);
    lone.request(3, Request::Read(reth(0, 600)), 0);
    lone.request(6, write_only(0, 1), 1);
    lone.poll();
    let ((psn, _), _) = lone.poll().unwrap();
    assert_eq!(psn, 1);
    let host = &mut lone.world.host(&[]);
    lone.responder.payload_fault(host);
    raised(&lone.world, AsyncEvent::Fatal);
    assert_eq!(lone.replies(), [(1, Says::Nak(NakCode::RemoteOperation))]);
    assert_eq!(lone.state(), RecvState::Error);
    assert_eq!(lone.world.grants.count(), 0);
}

// Rules: DUP-20
#[test]
fn a_fault_under_a_duplicate_drops_it() {
    let mut lone = Lone::with_receives(1, 1000);
    lone.request(0, Request::Read(reth(0, 600)), 0);
    assert_eq!(lone.replies().len(), 3);
    // A stray copy, behind which comes the request that closed the memory.
    lone.request(0, Request::Read(reth(0, 600)), 0);
    lone.poll().unwrap();
    let host = &mut lone.world.host(&[]);
    lone.responder.payload_fault(host);
    assert_eq!(lone.replies(), []);
    assert_eq!(lone.state(), RecvState::Running);
    assert_eq!(lone.world.grants.count(), 0);
    lone.request(3, send_only(), 10);
    assert_eq!(lone.replies(), [(3, Says::Ack)]);
}

/// The requester may have the responses that were sent before, and would not accept a refusal of
/// those.
// Rules: NAK-24
#[test]
fn a_fault_under_a_repetition_refuses_what_was_never_sent() {
    for again in 0..3 {
        let mut lone = Lone::new(config());
        lone.request(0, Request::Read(reth(0, 600)), 0);
        lone.poll().unwrap();
        lone.poll().unwrap();
        let at = again as u32 * MTU;
        lone.request(again, Request::Read(reth(at as usize, 600 - at)), 0);
        let ((psn, _), _) = lone.poll().unwrap();
        assert_eq!(psn, again);
        lone.responder.payload_fault(&mut lone.world.host(&[]));
        raised(&lone.world, AsyncEvent::Fatal);
        assert_eq!(lone.replies(), [(2, Says::Nak(NakCode::RemoteOperation))]);
    }
}

// Rules: NAK-24
#[test]
fn a_fault_before_a_refusal_is_what_is_told() {
    let mut lone = Lone::new(config());
    lone.request(0, Request::Read(reth(0, 600)), 0);
    lone.request(3, send_last(), 10);
    raised(&lone.world, AsyncEvent::RequestError);
    lone.poll();
    let host = &mut lone.world.host(&[]);
    lone.responder.payload_fault(host);
    raised(&lone.world, AsyncEvent::RequestError);
    assert_eq!(lone.replies(), [(0, Says::Nak(NakCode::RemoteOperation))]);
}

// Rules: RNR-1, RNR-2, RNR-3, RNR-4, RNR-5, RSP-19
#[test]
fn without_a_receive_nothing_is_done() {
    let takers = [
        (Request::SendFirst, MTU, false),
        (send_only(), 10, false),
        (Request::SendOnly(SendEnd::Imm(IMM)), 0, false),
        (Request::WriteOnly(reth(0, 10), Some(IMM)), 10, false),
        (Request::WriteLast(Some(IMM)), 44, true),
    ];
    for (request, len, after_first) in takers {
        let mut lone = Lone::new(config());
        let psn = i32::from(after_first);
        if after_first {
            lone.request(0, Request::WriteFirst(reth(0, 300)), MTU);
            lone.poll_all();
        }
        let written = lone.world.written;
        for _ in 0..2 {
            lone.request(psn, request, len);
            assert_eq!(lone.replies(), [(psn, Says::Rnr(9))]);
            // Later packets get no reply.
            lone.request(psn + 1, write_only(0, 10), 10);
            lone.request(psn + 2, send_only(), 10);
            assert_eq!(lone.replies(), []);
            assert_eq!(lone.expected(), psn);
            assert_eq!(lone.world.written, written);
            // The wire lost nothing.
            assert_eq!(lone.count(Event::OutOfSequenceRequest), 0);
        }
        assert_eq!(lone.count(Event::RnrNakSent), 2);
        lone.post(5, 1000);
        lone.request(psn, request, len);
        assert_eq!(lone.replies(), [(psn, Says::Ack)]);
        assert_eq!(lone.expected(), psn + 1);
        assert_eq!(lone.world.grants.count(), 0);
    }
}

// Rules: RNR-20
#[test]
fn what_comes_behind_a_request_without_a_receive_is_kept() {
    let mut lone = Lone::new(config());
    lone.request(0, send_only(), 10);
    assert_eq!(lone.replies(), [(0, Says::Rnr(9))]);
    // The peer sends both again, and the first one is overtaken.
    lone.post(1, 1000);
    let kept = lone.deliver(1, write_only(0, 10), &[7; 10], true);
    assert_eq!(kept, Handled::Early);
    assert_eq!(lone.replies(), []);
    let far = lone.deliver(MAX_EARLY_PSNS as i32, write_only(0, 10), &[7; 10], true);
    assert_eq!(far, Handled::Done);
    lone.request(0, send_only(), 10);
    assert_eq!(lone.replies(), [(0, Says::Ack)]);
}

// Rules: RNR-21
#[test]
fn a_request_that_comes_again_before_its_rnr_nak_is_not_executed() {
    let mut lone = Lone::new(config());
    lone.request(0, send_only(), 10);
    // It is dropped, as on a connection to the same device.
    lone.request(1, write_only(0, 10), 10);
    // A probe, before the reply of this batch.
    lone.post(1, 1000);
    lone.request(0, send_only(), 10);
    assert_eq!(lone.replies(), [(0, Says::Rnr(9))]);
    assert_eq!(lone.expected(), 0);
    // The peer sends both again.
    lone.request(0, send_only(), 10);
    lone.request(1, write_only(0, 10), 10);
    assert_eq!(lone.replies(), [(1, Says::Ack)]);
    assert_eq!(lone.count(Event::OutOfSequenceRequest), 0);
}

// Rules: ACK-22, NAK-1, NAK-2, NAK-3, PSN-4, PSN-12
#[test]
fn a_gap_is_told_once() {
    let mut lone = Lone::new(config());
    lone.request(0, write_only(0, 1), 1);
    lone.request(2, write_only(0, 1), 1);
    lone.request(3, write_only(0, 1), 1);
    // The NAK acknowledges earlier requests.
    assert_eq!(lone.replies(), [(1, Says::Nak(NakCode::SequenceError))]);
    lone.quiet_request(4, write_only(0, 1), 1);
    assert_eq!(lone.replies(), []);
    // A request that asks for an acknowledgement gets the current one.
    lone.request(5, write_only(0, 1), 1);
    assert_eq!(lone.replies(), [(0, Says::Ack)]);
    assert_eq!(lone.count(Event::OutOfSequenceRequest), 4);
    // Once it is closed, the next may be told.
    lone.request(1, write_only(0, 1), 1);
    lone.request(3, write_only(0, 1), 1);
    assert_eq!(lone.replies(), [(2, Says::Nak(NakCode::SequenceError))]);
    assert_eq!(lone.count(Event::SequenceNakSent), 2);
    assert_eq!(lone.world.written, 2);
}

// Rules: ACK-22
#[test]
fn a_gap_behind_a_read_is_not_answered_by_an_acknowledgement_before_it() {
    let mut lone = Lone::new(config());
    lone.request(0, write_only(0, 1), 1);
    lone.request(1, Request::Read(reth(0, 1)), 0);
    assert_eq!(lone.replies(), [(1, ONLY)]);
    lone.request(3, write_only(0, 1), 1);
    let nak = Says::Nak(NakCode::SequenceError);
    assert_eq!(lone.replies(), [(2, nak)]);
    lone.request(4, write_only(0, 1), 1);
    assert_eq!(lone.replies(), []);
    // It is worth something again as soon as it is for the last one.
    lone.request(2, write_only(0, 1), 1);
    assert_eq!(lone.replies(), [(2, Says::Ack)]);
    lone.request(4, write_only(0, 1), 1);
    assert_eq!(lone.replies(), [(3, nak)]);
    lone.request(5, write_only(0, 1), 1);
    assert_eq!(lone.replies(), [(2, Says::Ack)]);
}

// Rules: ACK-23
#[test]
fn a_gap_that_closes_is_acknowledged_at_once() {
    let mut lone = Lone::new(config());
    lone.request(1, write_only(0, 1), 1);
    assert_eq!(lone.replies(), [(0, Says::Nak(NakCode::SequenceError))]);
    lone.quiet_request(0, write_only(0, 1), 1);
    assert_eq!(lone.replies(), [(0, Says::Ack)]);
    // A gap that was not told yet need not be.
    lone.quiet_request(2, write_only(0, 1), 1);
    lone.quiet_request(1, write_only(0, 1), 1);
    lone.quiet_request(2, write_only(0, 1), 1);
    assert_eq!(lone.replies(), []);
    // But not so the acknowledgement that the NAK would have been, too.
    lone.quiet_request(4, write_only(0, 1), 1);
    lone.request(3, write_only(0, 1), 1);
    lone.quiet_request(4, write_only(0, 1), 1);
    assert_eq!(lone.replies(), [(4, Says::Ack)]);
}

// Rules: NAK-4
#[test]
fn what_was_dropped_behind_a_gap_that_closes_is_asked_for() {
    let mut lone = Lone::new(config());
    // Overtaken, and dropped. Nothing else comes that would tell the requester.
    lone.request(1, write_only(0, 1), 1);
    lone.request(2, write_only(0, 1), 1);
    lone.request(0, write_only(0, 1), 1);
    let nak = Says::Nak(NakCode::SequenceError);
    assert_eq!(lone.replies(), [(1, nak)]);
    // Once told, a gap is told no more.
    lone.request(1, write_only(0, 1), 1);
    lone.request(2, write_only(0, 1), 1);
    assert_eq!(lone.replies(), [(2, Says::Ack)]);
    // All that was dropped comes again within the batch.
    lone.request(4, write_only(0, 1), 1);
    lone.request(3, write_only(0, 1), 1);
    lone.request(4, Request::Read(reth(0, 1)), 0);
    assert_eq!(lone.replies(), [(4, ONLY)]);
    assert_eq!(lone.count(Event::SequenceNakSent), 1);
}

// Rules: ACK-1, ACK-2, ACK-3, CRD-1, RNR-6
#[test]
fn acknowledgements_are_given_when_asked_for() {
    let mut lone = Lone::new(config());
    lone.quiet_request(0, Request::WriteFirst(reth(0, 600)), MTU);
    assert_eq!(lone.replies(), []);
    lone.request(1, Request::WriteMiddle, MTU);
    assert_eq!(lone.replies(), [(1, Says::Ack)]);
    lone.quiet_request(2, Request::WriteLast(None), 88);
    assert_eq!(lone.replies(), []);
    // One for many, with the highest PSN, be it asked for or not.
    lone.request(3, write_only(0, 1), 1);
    lone.quiet_request(4, write_only(0, 1), 1);
    assert_eq!(lone.replies(), [(4, Says::Ack)]);
}

/// Returns the MSN in a reply.
fn msn_of(response: &Response) -> u32 {
    match response {
        Response::Acknowledge(aeth)
        | Response::ReadFirst(aeth)
        | Response::ReadLast(aeth)
        | Response::ReadOnly(aeth)
        | Response::AtomicAcknowledge(aeth, _) => aeth.msn.get(),
        Response::ReadMiddle => panic!("it has none"),
    }
}

// Rules: ACK-13, ACK-14
#[test]
fn the_number_of_a_message_stays_with_it() {
    let mut lone = Lone::new(config());
    lone.request(0, Request::Read(reth(0, 300)), 0);
    lone.request(2, fetch_add(0, 1), 0);
    lone.request(3, write_only(0, 1), 1);
    let numbers = |lone: &mut Lone| -> Vec<_> {
        let number = |(psn, response): &Reply| (*psn, msn_of(response));
        lone.poll_all().iter().map(number).collect()
    };
    assert_eq!(numbers(&mut lone), [(0, 1), (1, 1), (2, 2), (3, 3)]);
    // Asked for again, each has the number that it had.
    lone.request(2, fetch_add(0, 1), 0);
    assert_eq!(numbers(&mut lone), [(2, 2)]);
    lone.request(1, Request::Read(reth(256, 44)), 0);
    assert_eq!(numbers(&mut lone), [(1, 1)]);
    lone.request(0, Request::Read(reth(0, 300)), 0);
    assert_eq!(numbers(&mut lone), [(0, 1), (1, 1)]);
    lone.request(3, write_only(0, 1), 1);
    assert_eq!(numbers(&mut lone), [(3, 3)]);
}

// Rules: ACK-18, WIRE-29, WIRE-30
#[test]
fn what_replies_have_no_use_for_is_0() {
    let pkey = Pkey(0x8001);
    let mut lone = Lone::new(RecvConfig { pkey, ..config() });
    let mut sent = Vec::new();
    for (psn, request, len) in [
        (0, write_only(0, 5), 5),
        (1, Request::Read(reth(0, 601)), 0),
        (4, fetch_add(0, 1), 0),
        (5, Request::AtomicWrite(reth(0, 8)), 8),
        (7, write_only(0, 5), 5), // too early
        (6, send_only(), 5),      // no receive
        (6, Request::SendMiddle, MTU),
    ] {
        lone.request(psn, request, len);
        let host = &mut lone.world.host(&[]);
        while let Some(transmit) = lone.responder.poll_transmit(host) {
            let header = transmit.header.as_bytes();
            sent.push(roce::wire::parse(header, transmit.udp_payload_len()).unwrap());
        }
    }
    assert_eq!(sent.len(), 9);
    for packet in sent {
        let plain = Bth {
            transport: Transport::Rc,
            solicited: false,
            mig_req: false,
            pad: (packet.payload_len.wrapping_neg() & 3) as u8,
            pkey,
            fecn: false,
            becn: false,
            dest_qp: config().dest_qp,
            ack_req: false,
            psn: packet.bth.psn,
        };
        assert_eq!(packet.bth, plain, "{packet:?}");
    }
}

// Rules: WIRE-31
#[test]
fn marks_on_a_request_change_nothing() {
    for marks in 0..8 {
        let mut lone = Lone::new(config());
        let bth = Bth {
            transport: Transport::Rc,
            solicited: false,
            mig_req: marks & 1 != 0,
            pad: 0,
            pkey: Pkey::DEFAULT,
            fecn: marks & 2 != 0,
            becn: marks & 4 != 0,
            dest_qp: Qpn::new(0x44),
            ack_req: true,
            psn: Psn::new(FIRST),
        };
        assert_eq!(lone.handle(bth, write_only(0, 4), &[7; 4]), Handled::Done);
        assert_eq!(lone.replies(), [(0, Says::Ack)], "{marks}");
        assert_eq!(lone.world.bytes(at(0), 4), [7; 4]);
    }
}

// Rules: PSN-4, PSN-10, PSN-11, PSN-12
#[test]
fn psns_divide_into_new_old_and_early() {
    const HALF: u32 = 1 << 23;
    // Near the corners each of them, and between them some.
    let near = [0, 1, HALF, 1 << 24].into_iter();
    let near = near.flat_map(|corner| (0..9).map(move |near| corner + (1 << 24) + near - 4));
    let between = (0..1 << 24).step_by(0x1_2345);
    for distance in near.chain(between).map(|distance| distance % (1 << 24)) {
        let mut lone = Lone::new(config());
        lone.quiet_request(distance as i32, write_only(0, 1), 1);
        let (new, early, old) = match distance {
            0 => (1, 0, 0),
            _ if distance < HALF => (0, 1, 0),
            _ => (0, 0, 1),
        };
        assert_eq!(lone.world.written, new, "{distance:#x}");
        assert_eq!(lone.count(Event::OutOfSequenceRequest), early);
        assert_eq!(lone.count(Event::DuplicateRequest), old);
        assert_eq!(lone.expected(), new as i32);
    }
}

// Rules: RSP-13
#[test]
fn a_write_is_authorized_as_a_whole_before_a_byte_is_placed() {
    for (at, length, good) in [(0x1e00, 0x200, true), (0x1e00, 0x201, false)] {
        let mut lone = Lone::new(config());
        lone.request(0, Request::WriteFirst(reth(at, length)), MTU);
        let placed = if good { u64::from(MTU) } else { 0 };
        assert_eq!(lone.world.written, placed);
        let says = if good {
            Says::Ack
        } else {
            Says::Nak(NakCode::RemoteAccess)
        };
        assert_eq!(lone.replies(), [(0, says)]);
    }
}

// Rules: ACK-12
#[test]
fn messages_are_counted() {
    let mut lone = Lone::with_receives(3, 1000);
    let msn = |reply: Option<(Reply, Vec<u8>)>| match reply.unwrap().0 .1 {
        Response::Acknowledge(aeth) | Response::ReadOnly(aeth) => aeth.msn.get(),
        other => panic!("{other:?}"),
    };
    lone.request(0, send_only(), 1);
    assert_eq!(msn(lone.poll()), 1);
    lone.request(1, Request::SendFirst, MTU);
    assert_eq!(msn(lone.poll()), 1);
    lone.request(2, send_last(), 1);
    assert_eq!(msn(lone.poll()), 2);
    lone.request(3, Request::Read(reth(0, 1)), 0);
    lone.request(4, Request::Read(reth(0, 1)), 0);
    lone.request(5, write_only(0, 1), 1);
    assert_eq!([3, 4, 5], [0; 3].map(|_| msn(lone.poll())));
    assert_eq!(lone.count(Event::MessageReceived), 5);
}

// Rules: CPL-8, DUP-1, DUP-2, DUP-3, DUP-4, DUP-5
#[test]
fn duplicates_are_acknowledged_again_but_not_done_again() {
    let mut lone = Lone::with_receives(1, 1000);
    lone.request(0, write_only(0, 1), 1);
    lone.request(1, Request::SendFirst, MTU);
    lone.poll_all();
    for (psn, request, len) in [
        (-1, Request::SendMiddle, MTU),
        (0, write_only(0, 1), 1),
        (1, Request::SendFirst, MTU),
        (1, Request::WriteFirst(reth(0, 600)), MTU),
        (1, Request::WriteMiddle, 10),
        (0, Request::WriteLast(None), 10),
        (0, send_only(), 10),
        (0, send_last(), 10),
    ] {
        lone.quiet_request(psn, request, len);
        lone.quiet_request(psn, request, len);
        assert_eq!(lone.replies(), [(1, Says::Ack)]);
    }
    assert_eq!(lone.count(Event::DuplicateRequest), 16);
    assert_eq!(lone.world.written, 1);
    // The message continues at the same place.
    lone.request(2, send_last(), 10);
    assert_eq!(lone.world.received[0].byte_len, 266);
}

// Rules: PSN-10, PSN-11
#[test]
fn half_the_circle_back_is_still_a_duplicate() {
    let mut lone = Lone::new(config());
    lone.request(-(1 << 23), write_only(0, 1), 1);
    assert_eq!(lone.replies(), [(-1, Says::Ack)]);
    lone.request((1 << 23) - 1, write_only(0, 1), 1);
    assert_eq!(lone.replies(), [(0, Says::Nak(NakCode::SequenceError))]);
}

// Rules: ACK-8, ACK-19, PSN-8, RDA-1, RDA-24
#[test]
fn a_read_is_answered_in_order_and_before_what_comes_behind() {
    let mut lone = Lone::with_receives(1, 10);
    for (at, byte) in lone.world.memory.iter_mut().enumerate() {
        *byte = (at / 64) as u8;
    }
    lone.request(0, write_only(0x1000, 1), 1);
    lone.request(1, Request::Read(reth(3, 600)), 0);
    lone.request(4, send_only(), 1);
    lone.request(5, Request::Read(reth(0, 0)), 0);
    lone.request(6, write_only(0x1000, 1), 1);
    let mut data = Vec::new();
    let mut replies = Vec::new();
    while let Some(((psn, response), bytes)) = lone.poll() {
        replies.push((psn, Says::from(response)));
        data.extend(bytes);
    }
    assert_eq!(
        replies,
        [(1, START), (2, MIDDLE), (3, END), (5, ONLY), (6, Says::Ack)]
    );
    assert_eq!(data, lone.world.memory[0x2003..0x2003 + 600]);
    assert_eq!(lone.world.grants.count(), 0);
}

// Rules: PSN-6, PSN-18, RDA-2
#[test]
fn a_read_takes_as_many_numbers_as_its_response_has_packets() {
    for (length, packets) in [(0, 1), (1, 1), (256, 1), (257, 2), (0x2000, 32)] {
        let mut lone = Lone::new(config());
        lone.request(0, Request::Read(reth(0, length)), 0);
        assert_eq!(lone.expected(), packets);
        assert_eq!(lone.poll_all().len() as i32, packets);
    }
    let mut lone = Lone::new(config());
    let region = lone.world.regions.get_mut(&RKEY).unwrap();
    region.len = MAX_MESSAGE_BYTES as usize;
    lone.request(0, Request::Read(reth(0, MAX_MESSAGE_BYTES)), 0);
    assert_eq!(lone.expected(), 1 << 23);
}

/// Reads `length` bytes and has them answered.
fn answered_read(length: u32) -> Lone {
    let mut lone = Lone::new(config());
    lone.request(0, Request::Read(reth(0x10, length)), 0);
    lone.poll_all();
    lone
}

// Rules: DUP-6, DUP-7, DUP-8, NAK-22
#[test]
fn a_read_is_answered_again_from_where_it_is_asked() {
    for (psn, at, length, expected) in [
        (
            0,
            0x10,
            1000,
            vec![(0, START), (1, MIDDLE), (2, MIDDLE), (3, END)],
        ),
        (1, 0x110, 744, vec![(1, MIDDLE), (2, MIDDLE), (3, END)]),
        (3, 0x310, 232, vec![(3, END)]),
        // A part, which ends sooner.
        (1, 0x110, 300, vec![(1, MIDDLE), (2, END)]),
        (0, 0x10, 10, vec![(0, ONLY)]),
        // Not the original request.
        (1, 0x10, 1000, vec![]),
        (1, 0x111, 743, vec![]),
        (1, 0x110, 745, vec![]),
        (0, 0x10, 1001, vec![]),
        (1, 0x110, 0, vec![]),
        (4, 0x410, 0, vec![(4, Says::Nak(NakCode::SequenceError))]),
        (-1, 0x10, 1000, vec![]),
    ] {
        let mut lone = answered_read(1000);
        if psn == 4 {
            lone.request(5, Request::Read(reth(at, length)), 0);
        } else {
            lone.request(psn, Request::Read(reth(at, length)), 0);
        }
        assert_eq!(lone.replies(), expected, "{psn} {at:#x} {length}");
        assert_eq!(lone.expected(), 4);
        assert_eq!(lone.state(), RecvState::Running);
        assert_eq!(lone.world.grants.count(), 0);
    }
}

// Rules: DUP-6
#[test]
fn the_right_bytes_are_read_again() {
    let mut lone = answered_read(1000);
    for (at, byte) in lone.world.memory.iter_mut().enumerate() {
        *byte = (at / 16) as u8;
    }
    lone.request(2, Request::Read(reth(0x210, 488)), 0);
    let mut data = Vec::new();
    while let Some((_, bytes)) = lone.poll() {
        data.extend(bytes);
    }
    assert_eq!(data, lone.world.memory[0x2210..0x2210 + 488]);
}

#[test]
fn an_empty_read_is_answered_again() {
    let mut lone = answered_read(0);
    lone.request(0, Request::Read(reth(0x10, 0)), 0);
    assert_eq!(lone.replies(), [(0, ONLY)]);
}

// Rules: DUP-8
#[test]
fn a_read_by_another_key_is_no_duplicate() {
    let mut lone = answered_read(10);
    let mut other = reth(0x10, 10);
    other.rkey = Rkey(REVOCABLE); // It opens the same memory.
    lone.request(0, Request::Read(other), 0);
    assert_eq!(lone.replies(), []);
}

// Rules: DUP-9, NAK-22
#[test]
fn a_stray_duplicate_of_a_read_whose_region_is_gone_is_dropped() {
    let mut lone = answered_read(10);
    lone.world.regions.clear();
    lone.request(0, Request::Read(reth(0x10, 10)), 0);
    assert_eq!(lone.replies(), []);
    assert_eq!(lone.state(), RecvState::Running);
}

// Rules: DUP-21
#[test]
fn a_duplicate_for_a_part_comes_in_between() {
    let mut lone = Lone::new(config());
    lone.request(0, Request::Read(reth(0, 1000)), 0);
    let next = |lone: &mut Lone| lone.poll().map(|((psn, _), data)| (psn, data.len()));
    assert_eq!(next(&mut lone), Some((0, 256)));
    assert_eq!(next(&mut lone), Some((1, 256)));
    lone.request(0, Request::Read(reth(0, 256)), 0);
    assert_eq!(next(&mut lone), Some((0, 256)));
    assert_eq!(next(&mut lone), Some((2, 256)));
    lone.request(1, Request::Read(reth(0x100, 512)), 0);
    assert_eq!(lone.replies(), [(1, MIDDLE), (2, END), (3, END)]);
    assert_eq!(lone.world.grants.count(), 0);
    // A part that may not be READ any more gets no reply, and the rest continues.
    lone.request(4, Request::Read(reth(0, 1000)), 0);
    lone.poll();
    lone.world.regions.clear();
    lone.request(4, Request::Read(reth(0, 256)), 0);
    assert_eq!(lone.replies(), [(5, MIDDLE), (6, MIDDLE), (7, END)]);
}

// Rules: DUP-15
#[test]
fn a_duplicate_replaces_the_answer_under_way() {
    let mut lone = Lone::new(config());
    lone.request(0, Request::Read(reth(0, 1000)), 0);
    lone.request(4, Request::Read(reth(0, 300)), 0);
    assert_eq!(lone.poll().unwrap().0 .0, 0);
    assert_eq!(lone.poll().unwrap().0 .0, 1);
    lone.request(1, Request::Read(reth(0x100, 744)), 0);
    lone.request(4, Request::Read(reth(0, 300)), 0);
    let psns: Vec<_> = lone.poll_all().into_iter().map(|(psn, _)| psn).collect();
    assert_eq!(psns, [1, 2, 3, 4, 5]);
    assert_eq!(lone.world.grants.count(), 0);
}

// Rules: ACK-7
#[test]
fn an_acknowledgement_never_has_the_number_of_data() {
    let mut lone = Lone::new(config());
    lone.request(0, write_only(0, 1), 1);
    lone.request(1, Request::Read(reth(0, 300)), 0);
    lone.poll_all();
    // A duplicate of the WRITE: the READ behind it is the latest request.
    lone.request(0, write_only(0, 1), 1);
    assert_eq!(lone.replies(), [(0, Says::Ack)]);
    // While the READ is being answered, its response says as much.
    lone.request(1, Request::Read(reth(0, 300)), 0);
    lone.request(0, write_only(0, 1), 1);
    assert_eq!(lone.replies(), [(1, START), (2, END)]);
    lone.request(0, write_only(0, 1), 1);
    lone.request(1, Request::Read(reth(0, 300)), 0);
    assert_eq!(lone.replies(), [(1, START), (2, END)]);
    // Behind the READ it does not.
    lone.request(3, write_only(0, 1), 1);
    lone.request(1, Request::Read(reth(0, 300)), 0);
    assert_eq!(lone.replies(), [(1, START), (2, END), (3, Says::Ack)]);
}

/// Returns a responder whose peer READs up to 2 GiB at once, with so many READs or atomics in progress.
fn of_vast_reads(depth: u8) -> Lone {
    let mut lone = Lone::new(RecvConfig {
        bundle: Bundle::within(MAX_MESSAGE_BYTES, Mtu::B256),
        max_dest_rd_atomic: depth,
        ..config()
    });
    lone.responder.set_replay(replays(depth.into()));
    lone.world.regions.insert(
        VAST,
        Region {
            len: MAX_MESSAGE_BYTES as usize,
            ..lone.world.regions[&RKEY]
        },
    );
    lone
}

const VAST: u32 = RKEY + 78;

impl Lone {
    /// Delivers a READ that takes so many PSNs, and sends its response.
    fn vast_read(&mut self, psn: i32, psns: u32) {
        let reth = Reth {
            rkey: Rkey(VAST),
            ..reth(0, psns * MTU)
        };
        self.request(psn, Request::Read(reth), 0);
        let host = &mut self.world.host(&[]);
        let response = self.responder.poll_transmit(host).unwrap();
        assert_eq!(response.psns, psns);
        assert!(self.responder.poll_transmit(host).is_none());
    }
}

const PSNS: i32 = 1 << 24;

// Rules: ACK-24
#[test]
fn an_acknowledgement_does_not_come_around_the_circle() {
    for first in [0, 1] {
        let mut lone = of_vast_reads(1);
        lone.world.events.clear();
        // The PSN before the first packet would be acknowledged, too.
        if first == 1 {
            lone.request(0, write_only(0, 8), 8);
            assert_eq!(lone.replies(), [(0, Says::Ack)]);
        }
        lone.vast_read(first, 1 << 23);
        lone.vast_read(first + (1 << 23), (1 << 23) - 6);
        // Six WRITEs follow, and the first is lost. The last but one has the PSN of the one before the READs.
        let next = first + PSNS - 6;
        lone.request(next + 1, write_only(0, 8), 8);
        assert_eq!(
            lone.replies(),
            [(next - PSNS, Says::Nak(NakCode::SequenceError))]
        );
        for early in 2..6 {
            lone.request(next + early, write_only(0, 8), 8);
            assert_eq!(lone.replies(), [], "{first}: {early}");
        }
        lone.request(next - 1, send_only(), 0);
        assert_eq!(lone.replies(), [], "a duplicate");
        lone.request(next, write_only(0, 8), 8);
        assert_eq!(lone.replies(), [(next - PSNS, Says::Ack)]);
    }
}

#[test]
fn a_gap_behind_reads_is_asked_for_all_around_the_circle() {
    let mut lone = of_vast_reads(1);
    lone.vast_read(0, 1 << 23);
    lone.vast_read(1 << 23, (1 << 23) - 1);
    // The READ that comes now takes the last PSN of the circle, and a WRITE behind it is missing.
    let early = Packet {
        bth: header(2, true),
        body: Body::Request(write_only(0, 8)),
        payload_len: 8,
        psns: 1,
    };
    lone.vast_read(PSNS - 1, 1);
    let host = &mut lone.world.host(&[0; 8]);
    assert_eq!(lone.responder.handle_kept(&early, host), Handled::Early);
    assert_eq!(lone.replies(), [(0, Says::Nak(NakCode::SequenceError))]);
}

// Rules: RDA-8, RDA-9
#[test]
fn more_reads_than_agreed_are_refused() {
    let mut lone = Lone::new(config());
    lone.request(0, Request::Read(reth(0, 10)), 0);
    lone.request(1, Request::Read(reth(0, 10)), 0);
    lone.request(2, Request::Read(reth(0, 10)), 0);
    assert_eq!(
        lone.replies(),
        [
            (0, ONLY),
            (1, ONLY),
            (2, Says::Nak(NakCode::InvalidRequest))
        ]
    );
    // Answered ones do not count.
    let mut lone = Lone::new(config());
    for psn in 0..10 {
        lone.request(psn, Request::Read(reth(0, 10)), 0);
        assert_eq!(lone.replies(), [(psn, ONLY)]);
    }
    // The latest are kept, older ones forgotten.
    for (psn, kept) in [(9, true), (8, true), (7, false)] {
        lone.request(psn, Request::Read(reth(0, 10)), 0);
        assert_eq!(lone.replies().is_empty(), !kept);
    }
}

/// Returns the place in memory of a peer's address.
fn at(address: usize) -> usize {
    0x2000 + address
}

impl Lone {
    /// Returns the responses to atomics: PSN and original value.
    fn originals(&mut self) -> Vec<(i32, u64)> {
        let original = |(psn, response)| match response {
            Response::AtomicAcknowledge(_, atomic) => (psn, atomic.original),
            other => panic!("{other:?}"),
        };
        self.poll_all().into_iter().map(original).collect()
    }
}

// Rules: DUP-10, DUP-14, RDA-17
#[test]
fn atomics_are_carried_out_once_and_answered_as_often_as_asked() {
    let mut lone = Lone::new(config());
    lone.request(0, fetch_add(8, 5), 0);
    lone.request(1, compare_swap(8, 5, 100), 0);
    assert_eq!(lone.originals(), [(0, 0), (1, 5)]);
    for _ in 0..3 {
        lone.request(1, compare_swap(8, 5, 100), 0);
        assert_eq!(lone.originals(), [(1, 5)]);
        lone.request(0, fetch_add(8, 5), 0);
        lone.request(1, compare_swap(8, 5, 100), 0);
        assert_eq!(lone.originals(), [(0, 0), (1, 5)]);
    }
    // Some peers leave the field that a fetch-and-add does not use as they found it.
    lone.request(0, Request::FetchAdd(atomic_eth(8, 5, 0x66)), 0);
    assert_eq!(lone.originals(), [(0, 0)]);
    assert_eq!((lone.world.atomics, lone.world.word(at(8))), (2, 100));
    assert_eq!(lone.world.grants.count(), 0);
}

// Rules: DUP-10
#[test]
fn an_atomic_is_not_answered_with_the_value_of_the_last_time_around_the_circle() {
    let mut lone = of_vast_reads(4);
    lone.request(0, fetch_add(8, 5), 0);
    assert_eq!(lone.originals(), [(0, 0)]);
    lone.vast_read(1, 1 << 23);
    lone.vast_read(1 + (1 << 23), (1 << 23) - 1);
    for _ in 0..2 {
        lone.request(PSNS, fetch_add(8, 5), 0);
        assert_eq!(lone.originals(), [(0, 5)]);
    }
    assert_eq!((lone.world.atomics, lone.world.word(at(8))), (2, 10));
}

// Rules: DUP-13
#[test]
fn an_atomic_that_differs_is_no_duplicate() {
    let mut lone = Lone::new(config());
    lone.request(0, fetch_add(8, 5), 0);
    lone.poll_all();
    for request in [
        fetch_add(8, 6),
        fetch_add(16, 5),
        compare_swap(8, 0x55, 5),
        Request::Read(reth(8, 8)),
    ] {
        lone.request(0, request, 0);
        assert_eq!(lone.replies(), [], "{request:?}");
    }
    assert_eq!(lone.world.atomics, 1);
    assert_eq!(lone.state(), RecvState::Running);
}

// Rules: DUP-11, DUP-12
#[test]
fn an_atomic_that_is_forgotten_is_not_carried_out_again() {
    let mut lone = Lone::new(config());
    for psn in 0..5 {
        lone.request(psn, fetch_add(0, 1), 0);
        assert_eq!(lone.originals(), [(psn, psn as u64)]);
    }
    for (psn, kept) in [(0, false), (2, false), (3, true), (4, true)] {
        lone.request(psn, fetch_add(0, 1), 0);
        assert_eq!(lone.originals().len(), usize::from(kept));
    }
    assert_eq!(lone.world.word(at(0)), 5);
    // Nor is one after the region has gone.
    lone.world.regions.clear();
    lone.request(4, fetch_add(0, 1), 0);
    assert_eq!(lone.originals(), [(4, 4)]);
}

// Rules: ACK-7, PSN-7, RNR-6
#[test]
fn atomics_and_reads_are_answered_in_their_order() {
    let mut lone = Lone::new(RecvConfig {
        max_dest_rd_atomic: 4,
        ..config()
    });
    drop(lone.responder.set_replay(replays(4)));
    let data = Says::Data(Operation::AtomicAcknowledge);
    lone.request(0, write_only(0, 8), 8);
    lone.request(1, Request::Read(reth(0, 300)), 0);
    lone.request(3, fetch_add(0, 1), 0);
    lone.request(4, write_only(0, 8), 8);
    assert_eq!(
        lone.replies(),
        [(1, START), (2, END), (3, data), (4, Says::Ack)]
    );
    lone.request(1, Request::Read(reth(0, 300)), 0);
    lone.request(3, fetch_add(0, 1), 0);
    lone.request(4, write_only(0, 8), 8);
    assert_eq!(
        lone.replies(),
        [(1, START), (2, END), (3, data), (4, Says::Ack)]
    );
    // An acknowledgement never has the number of an atomic, which a peer may take for its answer.
    lone.request(5, fetch_add(0, 1), 0);
    assert_eq!(lone.replies(), [(5, data)]);
    lone.request(4, write_only(0, 8), 8);
    assert_eq!(lone.replies(), [(4, Says::Ack)]);
    assert_eq!(lone.world.atomics, 2);
}

// Rules: RDA-8
#[test]
fn more_atomics_than_agreed_are_refused() {
    let mut lone = Lone::new(config());
    lone.request(0, fetch_add(0, 1), 0);
    lone.request(1, Request::Read(reth(0, 10)), 0);
    lone.request(2, fetch_add(0, 1), 0);
    let data = Says::Data(Operation::AtomicAcknowledge);
    let refusal = Says::Nak(NakCode::InvalidRequest);
    assert_eq!(lone.replies(), [(0, data), (1, ONLY), (2, refusal)]);
    assert_eq!(lone.world.atomics, 1);
}

// Rules: RDA-11, RDA-15
#[test]
fn atomics_that_cannot_be_are_refused() {
    let invalid = NakCode::InvalidRequest;
    let access = NakCode::RemoteAccess;
    for (request, code) in [
        (fetch_add(4, 1), invalid),
        (compare_swap(1, 1, 1), invalid),
        (fetch_add(0x1ffc, 1), invalid),
        (fetch_add(0x2000, 1), access),
        (compare_swap(usize::MAX - 7, 1, 1), access),
    ] {
        let mut lone = Lone::new(config());
        lone.request(0, request, 0);
        assert_eq!(lone.replies(), [(0, Says::Nak(code))], "{request:?}");
        assert_eq!(lone.world.atomics, 0);
    }
    // The region's rights.
    let mut lone = Lone::new(config());
    lone.world.regions.get_mut(&RKEY).unwrap().atomic = false;
    lone.request(0, fetch_add(0, 1), 0);
    assert_eq!(lone.replies(), [(0, Says::Nak(access))]);
    raised(&lone.world, AsyncEvent::AccessError);
    // Within another message.
    let mut lone = Lone::new(config());
    lone.request(0, Request::WriteFirst(reth(0, 300)), MTU);
    lone.request(1, fetch_add(0, 1), 0);
    assert_eq!(lone.replies(), [(1, Says::Nak(invalid))]);
    // Memory that goes away at the last moment.
    let mut lone = Lone::new(config());
    lone.world.gone.push(at(0));
    lone.request(0, fetch_add(0, 1), 0);
    assert_eq!(lone.replies(), [(0, Says::Nak(NakCode::RemoteOperation))]);
    assert_eq!(lone.world.grants.count(), 0);
}

// Rules: RDA-10
#[test]
fn a_replay_under_way_does_not_count_either() {
    let mut lone = Lone::new(config());
    for psn in 0..2 {
        lone.request(psn, Request::Read(reth(0, 10)), 0);
    }
    lone.poll_all();
    lone.request(0, Request::Read(reth(0, 10)), 0);
    lone.request(2, Request::Read(reth(0, 10)), 0);
    assert_eq!(lone.replies(), [(2, ONLY)]);
    // A READ that was requested twice before its response counts.
    let mut lone = Lone::new(config());
    for psn in [0, 0, 1, 2] {
        lone.request(psn, Request::Read(reth(0, 10)), 0);
    }
    assert_eq!(lone.state(), RecvState::Failed);
}

// Rules: ACK-20, NAK-10, NAK-23
#[test]
fn replies_come_before_the_refusal() {
    let mut lone = Lone::with_receives(1, 10);
    lone.request(0, Request::Read(reth(0, 300)), 0);
    lone.request(2, send_last(), 10);
    lone.request(3, write_only(0, 1), 1); // Nothing is taken any more.
    assert_eq!(lone.state(), RecvState::Failed);
    assert_eq!(lone.count(Event::BadState), 1);
    lone.post(1, 10);
    let host = &mut lone.world.host(&[]);
    assert_eq!(lone.responder.flush_posted(host), Flush::Done);
    assert_eq!(
        lone.world.received_statuses(),
        [(0, Status::Flushed), (1, Status::Flushed)]
    );
    assert_eq!(
        lone.replies(),
        [
            (0, START),
            (1, END),
            (2, Says::Nak(NakCode::InvalidRequest))
        ]
    );
    assert_eq!(lone.state(), RecvState::Error);
}

// Rules: ERR-14, ERR-15
#[test]
fn an_error_flushes_no_more_of_a_shared_queue_than_it_has_taken() {
    let mut lone = Lone::with_receives(3, 1000);
    lone.world.shares_receives = true;
    lone.request(0, Request::SendFirst, MTU);
    for _ in 0..2 {
        let host = &mut lone.world.host(&[]);
        assert_eq!(lone.responder.enter_error(host), Flush::Done);
        assert_eq!(lone.world.received_statuses(), [(0, Status::Flushed)]);
        assert_eq!(lone.world.raised, [AsyncEvent::LastWqeReached]);
    }
    assert_eq!(lone.world.recv_queue.len(), 2);
    // It is like a new one.
    let host = &mut lone.world.host(&[]);
    lone.responder.reset(host);
    assert_eq!(lone.responder.enter_error(host), Flush::Done);
    assert_eq!(lone.world.raised, [AsyncEvent::LastWqeReached; 2]);
    assert_eq!(lone.world.recv_queue.len(), 2);
}

// Rules: ERR-15
#[test]
fn a_refusal_leaves_a_shared_queue_alone() {
    let mut lone = Lone::with_receives(2, 100);
    lone.world.shares_receives = true;
    lone.request(0, Request::SendOnly(SendEnd::Plain), 101);
    assert_eq!(lone.responder.state(), RecvState::Failed);
    assert_eq!(lone.world.received_statuses(), [(0, Status::LocalLength)]);
    assert_eq!(lone.world.recv_queue.len(), 1);
    assert_eq!(lone.world.raised, []);
}

// Rules: ERR-5, ERR-7, VAL-7
#[test]
fn an_error_from_outside_silences_it() {
    let mut lone = Lone::with_receives(2, 1000);
    lone.request(0, Request::Read(reth(0, 300)), 0);
    lone.request(2, Request::SendFirst, MTU);
    let host = &mut lone.world.host(&[]);
    assert_eq!(lone.responder.enter_error(host), Flush::Done);
    assert_eq!(lone.replies(), []);
    assert_eq!(
        lone.world.received_statuses(),
        [(0, Status::Flushed), (1, Status::Flushed)]
    );
    assert_eq!(lone.world.raised, []);
    assert_eq!(lone.world.grants.count(), 0);
    lone.request(3, send_last(), 1);
    assert_eq!(lone.count(Event::BadState), 1);
}

// Rules: ACK-15, ERR-16, ERR-17
#[test]
fn a_reset_gives_everything_back_without_completions() {
    for within in [Within::Nothing, Within::Send, Within::Write] {
        let mut lone = Lone::with_receives(1, 1000);
        lone.request(0, Request::Read(reth(0, 300)), 0);
        match within {
            Within::Nothing => {}
            Within::Send => lone.request(2, Request::SendFirst, MTU),
            Within::Write => lone.request(2, Request::WriteFirst(reth(0, 600)), MTU),
        }
        lone.responder.reset(&mut lone.world.host(&[]));
        assert_eq!(lone.state(), RecvState::Idle);
        assert_eq!(lone.world.received, []);
        assert_eq!(lone.world.grants.count(), 0);
        assert_eq!(lone.world.payloads.count(), lone.world.recv_queue.len());
        // Anew, with nothing left of before.
        lone.responder.start(config());
        lone.request(-1, Request::Read(reth(0, 300)), 0);
        assert_eq!(lone.replies(), []);
        lone.request(0, write_only(0, 1), 1);
        let (reply, _) = lone.poll().unwrap();
        let Response::Acknowledge(aeth) = reply.1 else {
            panic!("{reply:?}");
        };
        assert_eq!(aeth.msn.get(), 1);
    }
}

// Rules: ERR-2, ERR-6, ERR-20
#[test]
fn a_flush_has_a_bound() {
    let count = u64::from(FLUSH_BATCH) + 1;
    let mut lone = Lone::with_receives(count, 0);
    let host = &mut lone.world.host(&[]);
    assert_eq!(lone.responder.enter_error(host), Flush::More);
    assert_eq!(lone.responder.flush_posted(host), Flush::Done);
    let expected = (0..count).map(|id| (id, Status::Flushed));
    assert!(lone.world.received_statuses().into_iter().eq(expected));
    // A bad one is flushed like any other.
    lone.world.recv_queue.push_back(Err(BadRequest {
        wr_id: 9,
        status: Status::LocalProtection,
    }));
    let host = &mut lone.world.host(&[]);
    assert_eq!(lone.responder.flush_posted(host), Flush::Done);
    let last = lone.world.received.last().unwrap();
    assert_eq!((last.wr_id, last.status), (9, Status::Flushed));
}

// Rules: RNR-2, STA-14
#[test]
fn attributes_change_while_it_runs() {
    let mut lone = Lone::new(config());
    lone.responder.modify(RecvUpdate {
        bundle: Bundle::ONE,
        min_rnr_timer: RnrTimer::new(3).unwrap(),
        access: RemoteAccess::default(),
        pkey: Pkey(0x8001),
        max_dest_rd_atomic: 2,
    });
    lone.request(0, send_only(), 1);
    assert_eq!(lone.replies(), [(0, Says::Rnr(3))]);
    lone.request(0, write_only(0, 1), 1);
    assert_eq!(lone.replies(), [(0, Says::Nak(NakCode::InvalidRequest))]);
}

#[test]
fn storage_for_replays_can_be_exchanged() {
    for (count, kept) in [(0, 0), (1, 1), (2, 2), (5, 2)] {
        let mut lone = Lone::new(config());
        for psn in 0..3 {
            lone.request(psn, Request::Read(reth(0, 10)), 0);
            lone.poll_all();
        }
        let old = lone.responder.set_replay(replays(count));
        assert_eq!(old.len(), 2);
        for psn in 0..3 {
            lone.request(psn, Request::Read(reth(0, 10)), 0);
            let answered = psn >= 3 - kept;
            assert_eq!(!lone.replies().is_empty(), answered, "{psn} of {count}");
        }
        lone.request(3, Request::Read(reth(0, 10)), 0);
        let good = count > 0;
        assert_eq!(lone.state() == RecvState::Running, good);
    }
}

#[test]
fn answers_under_way_survive_an_exchange() {
    let mut lone = Lone::new(config());
    lone.request(0, Request::Read(reth(0, 600)), 0);
    lone.poll();
    lone.responder.set_replay(replays(4));
    assert_eq!(lone.replies(), [(1, MIDDLE), (2, END)]);
}

#[test]
fn the_report_says_how_far_it_has_come_and_what_it_owes() {
    let report = |lone: &mut Lone| lone.responder.report().unwrap();
    let owes = |lone: &mut Lone| (report(lone).owes, report(lone).nak_sent);
    let mut lone = Lone::new(config());
    let first = report(&mut lone);
    assert_eq!((first.expected, first.msn.get()), (Psn::new(FIRST), 0));
    assert_eq!(
        (first.within, first.responds),
        (recv::Within::Nothing, false)
    );
    assert_eq!(owes(&mut lone), (Owes::Nothing, false));
    lone.request(0, Request::WriteFirst(reth(0, 300)), MTU);
    assert_eq!(report(&mut lone).within, recv::Within::Write);
    assert_eq!(owes(&mut lone), (Owes::Acknowledgement, false));
    lone.request(1, Request::WriteLast(None), 44);
    lone.request(2, Request::Read(reth(0, 10)), 0);
    let read = report(&mut lone);
    assert_eq!((read.expected, read.msn.get()), (Psn::new(FIRST).add(3), 2));
    assert!(read.responds);
    lone.poll_all();
    lone.request(5, send_only(), 1);
    assert_eq!(owes(&mut lone), (Owes::SequenceNak, true));
    lone.request(3, send_only(), 1);
    assert_eq!(owes(&mut lone), (Owes::RnrNak, true));
    lone.poll_all();
    lone.post(0, 1000);
    lone.request(3, Request::SendFirst, MTU);
    assert_eq!(report(&mut lone).within, recv::Within::Send);
    lone.request(4, Request::WriteMiddle, MTU);
    assert_eq!(owes(&mut lone), (Owes::Refusal, false));
    lone.poll_all();
    assert!(lone.responder.report().is_none());
}

// Rules: STA-15
#[test]
fn start_is_for_idle_responders() {
    let mut lone = Lone::new(config());
    lone.request(0, write_only(0, 1), 1);
    lone.responder.start(config());
    assert_eq!(lone.expected(), 1);
}

// Rules: RSP-10
#[test]
fn a_message_that_grows_past_2_gib_is_refused() {
    // The receive has room for more than a message may have.
    let mut lone = Lone::new(RecvConfig {
        mtu: Mtu::B4096,
        ..config()
    });
    let payload = lone.world.payload(0, 0);
    lone.world.recv_queue.push_back(Ok(RecvRequest {
        wr_id: 0,
        length: u32::MAX,
        payload,
    }));
    lone.world.gone.clear();
    let mut host = Vast(&mut lone.world);
    let mut psn = Psn::new(FIRST);
    let mut send = |request, responder: &mut Responder<_, _, _>| {
        let packet = Packet {
            bth: Bth {
                solicited: false,
                psn,
                ..header(0, false)
            },
            body: Body::Request(request),
            payload_len: 4096,
            psns: 1,
        };
        psn = psn.next();
        assert_eq!(
            responder.handle_request(&packet, &mut host),
            roce::host::Handled::Done
        );
    };
    send(Request::SendFirst, &mut lone.responder);
    for _ in 1..MAX_MESSAGE_BYTES / 4096 {
        send(Request::SendMiddle, &mut lone.responder);
    }
    assert_eq!(lone.responder.state(), RecvState::Running);
    send(Request::SendMiddle, &mut lone.responder);
    assert_eq!(lone.responder.state(), RecvState::Failed);
    assert_eq!(
        lone.world.received_statuses(),
        [(0, Status::RemoteInvalidRequest)]
    );
}

/// A host whose receives have endless memory without contents.
struct Vast<'a>(&'a mut World);

impl roce::host::Observer for Vast<'_> {
    fn observe(&mut self, _: Event) {}

    fn raise(&mut self, event: AsyncEvent) {
        self.0.raised.push(event);
    }
}

impl roce::host::RecvHost for Vast<'_> {
    type Payload = Payload;
    type Grant = Grant;

    fn take_recv(&mut self) -> Option<Result<RecvRequest<Payload>, BadRequest>> {
        self.0.host(&[]).take_recv()
    }

    fn scatter(
        &mut self,
        _: &Payload,
        _: u32,
        _: roce::host::Span,
    ) -> Result<(), roce::host::Fault> {
        Ok(())
    }

    fn complete(&mut self, payload: Option<Payload>, completion: roce::completion::Completion) {
        self.0.host(&[]).complete(payload, completion);
    }

    fn discard(&mut self, payload: Payload) {
        self.0.host(&[]).discard(payload);
    }

    fn authorize(
        &mut self,
        _: Rkey,
        _: Iova,
        _: u32,
        _: roce::host::Access,
    ) -> Result<Grant, roce::host::AccessError> {
        Err(roce::host::AccessError)
    }

    fn invalidate(&mut self, _: Rkey) -> Result<(), roce::host::AccessError> {
        Err(roce::host::AccessError)
    }

    fn place(&mut self, _: &Grant, _: u32, _: roce::host::Span) -> Result<(), roce::host::Fault> {
        Err(roce::host::Fault::Gone)
    }

    fn place_atomically(
        &mut self,
        _: &Grant,
        _: roce::host::Span,
    ) -> Result<(), roce::host::Fault> {
        Err(roce::host::Fault::Gone)
    }

    fn flush(&mut self, _: Rkey, _: Extent, _: Placement) -> Result<(), FlushError> {
        Err(FlushError::Refused)
    }

    fn atomic(&mut self, _: &Grant, _: AtomicOp) -> Result<u64, roce::host::Fault> {
        Err(roce::host::Fault::Gone)
    }
}

/// Delivers a request with a payload of `len` bytes that stands for `psns` packets.
fn bundle(lone: &mut Lone, psn: i32, psns: u32, request: Request, len: u32) {
    let payload = vec![psn as u8 + 1; len as usize];
    let packet = Packet {
        bth: header(psn, true),
        body: Body::Request(request),
        payload_len: len,
        psns,
    };
    let mut host = lone.world.host(&payload);
    let _ = lone.responder.handle_request(&packet, &mut host);
}

#[test]
fn a_bundle_is_what_its_packets_are() {
    let mut lone = Lone::with_receives(1, 10 * MTU);
    bundle(
        &mut lone,
        0,
        4,
        Request::WriteFirst(reth(0, 6 * MTU)),
        4 * MTU,
    );
    assert_eq!((lone.expected(), lone.replies()), (4, vec![(3, Says::Ack)]));
    bundle(&mut lone, 4, 2, Request::WriteLast(None), 2 * MTU);
    assert_eq!((lone.expected(), lone.replies()), (6, vec![(5, Says::Ack)]));
    bundle(&mut lone, 6, 3, send_only(), 2 * MTU + 1);
    assert_eq!((lone.expected(), lone.replies()), (9, vec![(8, Says::Ack)]));
    let written = &lone.world.memory[0x2000..0x2000 + 6 * MTU as usize];
    let (first, last) = written.split_at(4 * MTU as usize);
    assert!(first.iter().all(|byte| *byte == 1) && last.iter().all(|byte| *byte == 5));
    assert_eq!(lone.world.received_statuses(), [(0, Status::Success)]);
}

#[test]
fn a_bundle_is_as_long_as_its_packets() {
    let first = || Request::WriteFirst(reth(0, 6 * MTU));
    for (psns, request, len) in [
        (4, first(), 3 * MTU),
        (3, first(), 4 * MTU),
        (4, first(), 4 * MTU - 4),
        (3, write_only(0, 2 * MTU), 2 * MTU),
        (1, write_only(0, 2 * MTU), 2 * MTU),
        (2, send_only(), 0),
    ] {
        let mut lone = Lone::with_receives(1, 10 * MTU);
        bundle(&mut lone, 0, psns, request, len);
        let refused = (0, Says::Nak(NakCode::InvalidRequest));
        assert_eq!(lone.replies(), [refused], "{psns} with {len}");
    }
}

#[test]
fn a_bundle_that_came_before_is_acknowledged_again() {
    let mut lone = Lone::with_receives(0, 0);
    bundle(&mut lone, 0, 4, write_only(0, 4 * MTU), 4 * MTU);
    assert_eq!(lone.replies(), [(3, Says::Ack)]);
    bundle(&mut lone, 0, 4, write_only(0, 4 * MTU), 4 * MTU);
    assert_eq!((lone.expected(), lone.replies()), (4, vec![(3, Says::Ack)]));
}

#[test]
fn responses_come_in_bundles() {
    let mut lone = Lone::new(RecvConfig {
        bundle: Bundle::within(4 * MTU, Mtu::B256),
        ..config()
    });
    lone.request(0, Request::Read(reth(0, 9 * MTU + 1)), 0);
    let mut sizes = Vec::new();
    while let Some(((psn, response), payload)) = lone.poll() {
        sizes.push((psn, Says::from(response), payload.len() as u32));
        if sizes.len() == 2 {
            // Its source was absent.
            lone.responder.unsend();
        }
    }
    let second = (4, MIDDLE, 4 * MTU);
    let expected = [(0, START, 4 * MTU), second, second, (8, END, MTU + 1)];
    assert_eq!(sizes, expected);
    // A request for a part is answered from its own start.
    lone.request(5, Request::Read(reth(5 * MTU as usize, 4 * MTU + 1)), 0);
    assert_eq!(lone.replies(), [(5, MIDDLE), (9, END)]);
}

// Rules: PSN-19
#[test]
fn an_early_packet_that_is_too_long_is_not_kept() {
    let mut lone = Lone::with_receives(4, 100);
    for (len, handled) in [(MTU, Handled::Early), (MTU + 4, Handled::Done)] {
        let payload = vec![0; len as usize];
        assert_eq!(
            lone.deliver(5, Request::SendMiddle, &payload, false),
            handled
        );
    }
}

// Rules: DUP-15, DUP-21
#[test]
fn a_part_that_is_asked_for_does_not_end_the_answer() {
    let reth = |at: u32, len: u32| Reth {
        iova: Iova(IOVA + u64::from(at * MTU)),
        rkey: Rkey(RKEY),
        length: len * MTU,
    };
    for (at, len) in [(1, 1), (2, 3), (5, 1), (5, 4)] {
        let mut lone = Lone::new(config());
        lone.request(0, Request::Read(reth(0, 10)), 0);
        assert_eq!(lone.poll_all().len(), 10);
        lone.request(1, Request::Read(reth(1, 9)), 0);
        let mut psns: Vec<_> = (0..2).map(|_| lone.poll().unwrap().0 .0).collect();
        lone.request(at as i32, Request::Read(reth(at, len)), 0);
        psns.extend(lone.poll_all().into_iter().map(|(psn, _)| psn));
        assert!(
            (1..10).all(|psn| psns.contains(&psn)),
            "{at}, {len}: {psns:?}"
        );
    }
}
