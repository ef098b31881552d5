// SPDX-License-Identifier: GPL-2.0

//! The longest messages: 2 GiB, up to half the circle of PSNs in one. Their bytes are not kept but
//! checked as they come: byte `at` of a message is a function of `at`.

use roce::completion::{Completion, Status};
use roce::congestion::Law;
use roce::event::{AsyncEvent, Event};
use roce::host::{
    Access, AccessError, Extent, Fault, FlushError, Observer, RecvHost, SendHost, Source, Span,
    Transmit,
};
use roce::limits::{MAX_MESSAGE_BYTES, MAX_WINDOW_REQUESTS};
use roce::num::{Bundle, Iova, Mtu, Pkey, Psn, Qpn, Rkey};
use roce::opcode::Connection;
use roce::recv::{RecvConfig, RemoteAccess, Replay, Responder};
use roce::send::{Requester, RetryCount, SendConfig, Slot};
use roce::time::{AckTimeout, Instant, RnrTimer};
use roce::wire::{self, Packet};
use roce::wr::{
    AtomicOp, BadRequest, LocalOp, Placement, RecvRequest, SendFlags, SendOp, SendRequest,
};

use crate::net::{read, send, write};

/// The start of the current packet in the message, and its length.
#[derive(Clone, Copy, Default)]
struct Data {
    at: u32,
    len: u32,
}

/// Both ends' world.
#[derive(Default)]
struct Vast {
    request: Option<SendRequest<()>>,
    recv: Option<RecvRequest<()>>,
    /// Bytes that arrived, all in their place and each but once.
    arrived: u64,
    packet: Data,
    statuses: Vec<Status>,
    retransmits: usize,
}

impl Vast {
    fn arrive(&mut self, at: u32, from: Span) {
        assert_eq!((from.offset, from.len), (0, self.packet.len));
        assert_eq!(at, self.packet.at, "bytes are out of place");
        assert_eq!(u64::from(at), self.arrived, "bytes come twice");
        self.arrived += u64::from(from.len);
    }
}

impl Observer for Vast {
    fn observe(&mut self, event: Event) {
        self.retransmits += usize::from(event == Event::Retransmit);
    }

    fn raise(&mut self, event: AsyncEvent) {
        panic!("{event:?}");
    }
}

impl SendHost for Vast {
    type Payload = ();

    fn next_send(&mut self) -> Option<Result<SendRequest<()>, BadRequest>> {
        self.request.take().map(Ok)
    }

    fn scatter(&mut self, (): &(), at: u32, from: Span) -> Result<(), Fault> {
        self.arrive(at, from);
        Ok(())
    }

    fn put_original(&mut self, (): &(), _: u64) -> Result<(), Fault> {
        Err(Fault::Gone)
    }

    fn carry_out(&mut self, _: &LocalOp) -> Result<(), Status> {
        Err(Status::LocalQpOperation)
    }

    fn retire(&mut self, _: Option<()>, completion: Option<Completion>) {
        self.statuses.extend(completion.map(|one| one.status));
    }
}

impl RecvHost for Vast {
    type Payload = ();
    type Grant = ();

    fn take_recv(&mut self) -> Option<Result<RecvRequest<()>, BadRequest>> {
        self.recv.take().map(Ok)
    }

    fn scatter(&mut self, (): &(), at: u32, from: Span) -> Result<(), Fault> {
        self.arrive(at, from);
        Ok(())
    }

    fn complete(&mut self, _: Option<()>, completion: Completion) {
        assert_eq!(completion.byte_len, MAX_MESSAGE_BYTES);
        self.statuses.push(completion.status);
    }

    fn discard(&mut self, (): ()) {}

    fn authorize(&mut self, _: Rkey, _: Iova, len: u32, _: Access) -> Result<(), AccessError> {
        assert!(len <= MAX_MESSAGE_BYTES);
        Ok(())
    }

    fn invalidate(&mut self, _: Rkey) -> Result<(), AccessError> {
        Err(AccessError)
    }

    fn place(&mut self, (): &(), at: u32, from: Span) -> Result<(), Fault> {
        self.arrive(at, from);
        Ok(())
    }

    fn place_atomically(&mut self, (): &(), _: Span) -> Result<(), Fault> {
        Err(Fault::Gone)
    }

    fn flush(&mut self, _: Rkey, _: Extent, _: Placement) -> Result<(), FlushError> {
        Err(FlushError::Refused)
    }

    fn atomic(&mut self, (): &(), _: AtomicOp) -> Result<u64, Fault> {
        Err(Fault::Gone)
    }
}

/// Returns the packet as the other side parses it.
fn carry(transmit: &Transmit<'_, ()>) -> (Packet, Data) {
    let header = transmit.header.as_bytes();
    let packet = wire::parse(header, transmit.udp_payload_len()).unwrap();
    let data = match transmit.source {
        Source::Empty => Data::default(),
        Source::Bytes { at, len, .. } => Data { at, len },
    };
    (packet, data)
}

/// Moves a message of 2 GiB and loses the packets of these numbers. A READ's responses say where
/// in the grant they are, so losses are for messages that do not start grants anew.
fn move_2_gib(op: SendOp, mtu: Mtu, lost: &[u64]) {
    let mut vast = Vast {
        request: Some(SendRequest {
            wr_id: 0,
            op,
            flags: SendFlags::default(),
            length: MAX_MESSAGE_BYTES,
            payload: (),
        }),
        recv: Some(RecvRequest {
            wr_id: 0,
            length: MAX_MESSAGE_BYTES,
            payload: (),
        }),
        ..Vast::default()
    };
    let psn = Psn::new(0x90_0000);
    let slots: Vec<Slot<()>> = (0..MAX_WINDOW_REQUESTS).map(|_| Slot::default()).collect();
    let mut requester = Requester::new(Qpn::new(1), true, slots);
    requester.start(SendConfig {
        law: Law::Window,
        connection: Connection::Reliable,
        dest_qp: Qpn::new(2),
        pkey: Pkey::DEFAULT,
        mtu,
        bundle: Bundle::ONE,
        sq_psn: psn,
        timeout: AckTimeout::new(14).unwrap(),
        retry_cnt: RetryCount::new(7).unwrap(),
        rnr_retry: RetryCount::new(7).unwrap(),
        max_rd_atomic: 1,
    });
    let replays: Vec<Replay<()>> = vec![Replay::default()];
    let mut responder = Responder::new(Qpn::new(2), replays);
    responder.start(RecvConfig {
        connection: Connection::Reliable,
        dest_qp: Qpn::new(1),
        pkey: Pkey::DEFAULT,
        mtu,
        bundle: Bundle::ONE,
        rq_psn: psn,
        max_dest_rd_atomic: 1,
        min_rnr_timer: RnrTimer::new(1).unwrap(),
        access: RemoteAccess {
            write: true,
            read: true,
            ..RemoteAccess::default()
        },
    });
    responder.set_established();

    let mut now = Instant::from_ns(0);
    let mut number = 0;
    while vast.statuses.is_empty() || requester.poll_timeout().is_some() {
        let mut idle = true;
        for _ in 0..64 {
            let Some(transmit) = requester.poll_transmit(now, &mut vast) else {
                break;
            };
            idle = false;
            number += 1;
            let (packet, data) = carry(&transmit);
            if !lost.contains(&number) {
                vast.packet = data;
                // A packet that comes before its turn is dropped.
                let handled = responder.handle_request(&packet, &mut vast);
                assert_ne!(handled, roce::host::Handled::PutOff);
            }
        }
        for _ in 0..64 {
            let Some(transmit) = responder.poll_transmit(&mut vast) else {
                break;
            };
            idle = false;
            number += 1;
            let (packet, data) = carry(&transmit);
            if !lost.contains(&number) {
                vast.packet = data;
                assert_eq!(
                    requester.handle_response(now, &packet, &mut vast),
                    roce::host::Handled::Done
                );
            }
        }
        if idle {
            now = requester.poll_timeout().expect("it hangs");
            requester.handle_timeout(now, &mut vast);
        }
    }
    assert_eq!(vast.arrived, u64::from(MAX_MESSAGE_BYTES));
    assert!(vast
        .statuses
        .iter()
        .all(|status| *status == Status::Success));
    assert_eq!(vast.retransmits > 0, !lost.is_empty());
}

// Rules: PSN-15
#[test]
fn send_of_2_gib() {
    move_2_gib(send(), Mtu::B4096, &[]);
    move_2_gib(send(), Mtu::B256, &[7, 1000, 4_000_001, 9_000_000]);
}

#[test]
fn write_of_2_gib() {
    move_2_gib(write(0), Mtu::B4096, &[300]);
    move_2_gib(write(0), Mtu::B256, &[]);
}

#[test]
fn read_of_2_gib() {
    move_2_gib(read(0), Mtu::B4096, &[]);
    move_2_gib(read(0), Mtu::B256, &[]);
}
