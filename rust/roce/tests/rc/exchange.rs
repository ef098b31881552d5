// SPDX-License-Identifier: GPL-2.0

//! Whole messages from one side to the other.

use roce::completion::{CompletionOp, Status};
use roce::event::Event;
use roce::num::{Imm, Mtu};
use roce::opcode::Operation;
use roce::wr::{SendFlags, SendOp};

use crate::net::{
    all_succeeded, read, send, send_imm, send_invalidate, write, write_imm, Link, Net, Setup, A, B,
    RKEY,
};
use crate::world::Region;

/// Where the messages of these tests come from and go to.
const FROM: usize = 0x1003;
const TO: usize = 0x20_0005;
/// A key that may be invalidated.
const REVOCABLE: u32 = RKEY + 1;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Send,
    SendImm,
    SendInvalidate,
    Write,
    WriteImm,
    Read,
}

const KINDS: [Kind; 6] = [
    Kind::Send,
    Kind::SendImm,
    Kind::SendInvalidate,
    Kind::Write,
    Kind::WriteImm,
    Kind::Read,
];

const IMM: [u8; 4] = [0xde, 0xad, 0xbe, 0xef];

impl Kind {
    fn op(self) -> SendOp {
        match self {
            Self::Send => send(),
            Self::SendImm => send_imm(IMM),
            Self::SendInvalidate => send_invalidate(REVOCABLE),
            Self::Write => write(TO),
            Self::WriteImm => write_imm(TO, IMM),
            Self::Read => read(TO),
        }
    }

    fn takes_receive(self) -> bool {
        !matches!(self, Self::Write | Self::Read)
    }
}

/// Sends one message of each kind and of `len` bytes and checks all that is to be seen of it.
fn one_of_each(setup: Setup, len: u32) {
    for kind in KINDS {
        let mut net = Net::new(setup);
        let regions = &mut net.ends[B].world.regions;
        let region = Region {
            revocable: true,
            ..regions[&RKEY]
        };
        regions.insert(REVOCABLE, region);
        let local = net.ends[A].world.bytes(FROM, len as usize).to_vec();
        let distant = net.ends[B].world.bytes(TO, len as usize).to_vec();
        if kind.takes_receive() {
            let room = if kind == Kind::WriteImm { 0 } else { len + 3 };
            net.post_recv(B, 9, TO, room);
        }
        net.post(A, 1, kind.op(), FROM, len);
        net.run();

        let context = format!("{kind:?} of {len} at {:?}", setup.mtu);
        let (a, b) = (&net.ends[A].world, &net.ends[B].world);
        all_succeeded(&a.sent_statuses(), [1]);
        assert_eq!(a.sent[0].byte_len, len, "{context}");
        let op = match kind {
            Kind::Send | Kind::SendImm | Kind::SendInvalidate => CompletionOp::Send,
            Kind::Write | Kind::WriteImm => CompletionOp::Write,
            Kind::Read => CompletionOp::Read,
        };
        assert_eq!(a.sent[0].op, op, "{context}");
        let arrived = match kind {
            Kind::Read => a.bytes(FROM, len as usize) == distant,
            _ => b.bytes(TO, len as usize) == local,
        };
        assert!(arrived, "{context}: wrong bytes");

        let packets = setup.mtu.packets(len) as usize;
        let (requests, responses) = (net.ends[A].transmitted.len(), &net.ends[B].transmitted);
        if kind == Kind::Read {
            assert_eq!((requests, responses.len()), (1, packets), "{context}");
        } else {
            assert_eq!(requests, packets, "{context}");
            assert!(responses.iter().all(|op| *op == Operation::Acknowledge));
        }
        if kind.takes_receive() {
            let received = b.received[0];
            assert_eq!((received.wr_id, received.byte_len), (9, len), "{context}");
            assert_eq!(received.status, Status::Success, "{context}");
            assert_eq!(received.src_qp, net.ends[A].qpn, "{context}");
            let (op, imm) = match kind {
                Kind::Send | Kind::SendInvalidate => (CompletionOp::Recv, None),
                Kind::SendImm => (CompletionOp::Recv, Some(Imm(IMM))),
                _ => (CompletionOp::RecvRdmaWithImm, Some(Imm(IMM))),
            };
            assert_eq!((received.op, received.imm), (op, imm), "{context}");
            let invalidated = kind == Kind::SendInvalidate;
            assert_eq!(received.invalidated.is_some(), invalidated, "{context}");
            let is_gone = !b.regions.contains_key(&REVOCABLE);
            assert_eq!(is_gone, invalidated, "{context}");
        }
        assert_eq!(b.received.len(), usize::from(kind.takes_receive()));
        assert_eq!(a.count(Event::Retransmit), 0, "{context}");
        net.assert_quiet();
    }
}

// Rules: CPL-10, CPL-13, RDA-1, RSP-18, RSP-19, SEG-5, WIRE-15
#[test]
fn every_operation_at_every_mtu_and_size() {
    for mtu in Mtu::ALL {
        let n = mtu.bytes();
        for len in [
            0,
            1,
            2,
            3,
            4,
            n - 1,
            n,
            n + 1,
            2 * n - 1,
            2 * n,
            65535,
            65537,
        ] {
            let setup = Setup {
                mtu,
                ..Setup::default()
            };
            one_of_each(setup, len);
        }
    }
}

#[test]
fn long_messages() {
    for len in [(1 << 20) - 1, (1 << 20) + 1] {
        one_of_each(Setup::default(), len);
    }
}

// Rules: PSN-3, PSN-15
#[test]
fn psns_wrap_anywhere_in_a_message() {
    for first in 0xff_fff0..=0x100_0002 {
        let setup = Setup {
            mtu: Mtu::B256,
            psn: [first, first],
            ..Setup::default()
        };
        one_of_each(setup, 8 * 256 + 1);
    }
}

#[test]
fn a_small_window_only_slows() {
    for window in [1, 2, 3] {
        let setup = Setup {
            window,
            ..Setup::default()
        };
        let mut net = Net::new(setup);
        for id in 0..20 {
            net.post(
                A,
                id,
                write(0x4000 * id as usize),
                0x4000 * id as usize,
                5000,
            );
        }
        net.run();
        all_succeeded(&net.ends[A].world.sent_statuses(), 0..20);
        net.assert_quiet();
    }
}

#[test]
fn both_ways_at_once() {
    let mut net = Net::new(Setup::default());
    for side in [A, B] {
        for id in 0..50 {
            let at = (side * 50 + id as usize) * 0x4000;
            net.post_recv(side, 1000 + id, 0x20_0000 + at, 0x4000);
            net.post(side, id, send(), at, 3000 + 97 * id as u32);
        }
    }
    net.run();
    for side in [A, B] {
        let (here, there) = (&net.ends[side].world, &net.ends[1 - side].world);
        all_succeeded(&here.sent_statuses(), 0..50);
        all_succeeded(&here.received_statuses(), 1000..1050);
        for id in 0..50 {
            let len = 3000 + 97 * id;
            let to = 0x20_0000 + ((1 - side) * 50 + id) * 0x4000;
            let from = (side * 50 + id) * 0x4000;
            assert_eq!(here.bytes(from, len), there.bytes(to, len));
        }
    }
    net.assert_quiet();
}

// Rules: CPL-2, CPL-3
#[test]
fn unsignalled_requests_make_no_completion() {
    let mut net = Net::new(Setup {
        signal_all: false,
        ..Setup::default()
    });
    for id in 0..10 {
        let flags = SendFlags {
            signaled: id % 5 == 4,
            ..SendFlags::default()
        };
        net.post_flagged(A, id, write(0), flags, 0, 100);
    }
    net.run();
    all_succeeded(&net.ends[A].world.sent_statuses(), [4, 9]);
    assert_eq!(net.ends[A].world.retired, 10);
    net.assert_quiet();
}

// Rules: ACK-3
#[test]
fn a_batch_is_acknowledged_at_once() {
    let mut net = Net::new(Setup {
        link: Link {
            delay_ns: 1000,
            batch: 64,
            ..Link::default()
        },
        ..Setup::default()
    });
    for id in 0..64 {
        net.post_recv(B, id, 0, 64);
        net.post(A, id, send(), 0, 64);
    }
    net.run();
    all_succeeded(&net.ends[A].world.sent_statuses(), 0..64);
    assert_eq!(net.ends[B].transmitted, [Operation::Acknowledge]);
    assert_eq!(net.ends[B].world.count(Event::AckCoalesced), 63);
}

// Rules: ACK-4
#[test]
fn a_read_answers_for_what_came_before_it() {
    let mut net = Net::new(Setup {
        link: Link {
            delay_ns: 1000,
            batch: 64,
            ..Link::default()
        },
        ..Setup::default()
    });
    net.post(A, 0, write(0x100), 0, 10);
    net.post(A, 1, read(0x100), 0x200, 10);
    net.post(A, 2, write(0x300), 0, 10);
    net.run();
    all_succeeded(&net.ends[A].world.sent_statuses(), 0..3);
    assert_eq!(
        net.ends[B].transmitted,
        [Operation::ReadResponseOnly, Operation::Acknowledge]
    );
    // The READ came after the WRITE, and saw it.
    let world = &net.ends[A].world;
    assert_eq!(world.bytes(0, 10), world.bytes(0x200, 10));
}

// Rules: SEG-11
#[test]
fn solicited_is_for_the_last_packet_of_what_takes_a_receive() {
    let flags = SendFlags {
        solicited: true,
        ..SendFlags::default()
    };
    for (op, expected) in [
        (send(), vec![(true, Operation::SendLast)]),
        (send_imm(IMM), vec![(true, Operation::SendLastImm)]),
        (write_imm(0, IMM), vec![(true, Operation::WriteLastImm)]),
        (write(0), vec![]),
        (read(0), vec![]),
    ] {
        let mut net = Net::new(Setup::default());
        let solicited = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let seen = solicited.clone();
        net.filter = Box::new(move |_, packet| {
            if packet.bth.solicited {
                seen.borrow_mut().push((true, packet.body.operation()));
            }
            true
        });
        net.post_recv(B, 0, 0, 5000);
        net.post_flagged(A, 0, op, flags, 0, 3000);
        net.run();
        assert_eq!(*solicited.borrow(), expected);
        let received = &net.ends[B].world.received;
        assert!(received.iter().all(|completion| completion.solicited));
    }
}

// Rules: SEG-16
#[test]
fn acknowledgements_are_asked_for_often_enough() {
    let mut net = Net::new(Setup {
        mtu: Mtu::B256,
        ..Setup::default()
    });
    let asked = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let seen = asked.clone();
    net.filter = Box::new(move |to, packet| {
        if to == B && packet.bth.ack_req {
            seen.borrow_mut().push(packet.bth.psn.get() - 0x1000);
        }
        true
    });
    net.post(A, 0, write(0), 0, 256 * 200);
    net.run();
    // Each quarter of the window, until that is large; then at every interval.
    assert_eq!(*asked.borrow(), [31, 63, 95, 127, 191, 199]);
}
