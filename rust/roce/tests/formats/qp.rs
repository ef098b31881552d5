// SPDX-License-Identifier: GPL-2.0

use roce::congestion::Law;
use roce::event::Event;
use roce::num::{Bundle, Mtu, Pkey, Psn, Qkey, Qpn};
use roce::opcode::{Connection, Transport};
use roce::qp::{check, transition, Attr, AttrError, Attributes, Half, Mask, State};
use roce::recv::RemoteAccess;
use roce::send::RetryCount;
use roce::time::{AckTimeout, RnrTimer};
use roce::wire::{Aeth, Body, Bth, Datagram, Deth, Packet, Placement, Request, Response, Syndrome};

/// From, to, required and optional attributes of reliable connections, as the RDMA core of Linux
/// has them.
const KERNEL: [(u32, u32, u32, u32); 22] = [
    (0, 0, 0, 0),
    (0, 1, 0x38, 0),
    (1, 0, 0, 0),
    (1, 1, 0, 0x38),
    (1, 2, 0x12_9180, 0x4018),
    (1, 6, 0, 0),
    (2, 0, 0, 0),
    (2, 3, 0x1_2e00, 0x4_c00a),
    (2, 6, 0, 0),
    (3, 0, 0, 0),
    (3, 3, 0, 0x4_c00a),
    (3, 4, 0, 0x4),
    (3, 6, 0, 0),
    (4, 0, 0, 0),
    (4, 3, 0, 0x4_c00a),
    (4, 4, 0, 0x6_eeb8),
    (4, 6, 0, 0),
    (5, 0, 0, 0),
    (5, 3, 0, 0),
    (5, 6, 0, 0),
    (6, 0, 0, 0),
    (6, 6, 0, 0),
];

/// Those of unreliable connections.
const KERNEL_UC: [(u32, u32, u32, u32); 22] = [
    (0, 0, 0, 0),
    (0, 1, 0x38, 0),
    (1, 0, 0, 0),
    (1, 1, 0, 0x38),
    (1, 2, 0x10_1180, 0x4018),
    (1, 6, 0, 0),
    (2, 0, 0, 0),
    (2, 3, 0x1_0000, 0x4_400a),
    (2, 6, 0, 0),
    (3, 0, 0, 0),
    (3, 3, 0, 0x4_400a),
    (3, 4, 0, 0x4),
    (3, 6, 0, 0),
    (4, 0, 0, 0),
    (4, 3, 0, 0x4_400a),
    (4, 4, 0, 0x4_4098),
    (4, 6, 0, 0),
    (5, 0, 0, 0),
    (5, 3, 0, 0xa),
    (5, 6, 0, 0),
    (6, 0, 0, 0),
    (6, 6, 0, 0),
];

/// Those of datagrams.
const KERNEL_UD: [(u32, u32, u32, u32); 22] = [
    (0, 0, 0, 0),
    (0, 1, 0x70, 0),
    (1, 0, 0, 0),
    (1, 1, 0, 0x70),
    (1, 2, 0, 0x50),
    (1, 6, 0, 0),
    (2, 0, 0, 0),
    (2, 3, 0x1_0000, 0x42),
    (2, 6, 0, 0),
    (3, 0, 0, 0),
    (3, 3, 0, 0x42),
    (3, 4, 0, 0x4),
    (3, 6, 0, 0),
    (4, 0, 0, 0),
    (4, 3, 0, 0x42),
    (4, 4, 0, 0x50),
    (4, 6, 0, 0),
    (5, 0, 0, 0),
    (5, 3, 0, 0x42),
    (5, 6, 0, 0),
    (6, 0, 0, 0),
    (6, 6, 0, 0),
];

// Rules: STA-1, STA-2
#[test]
fn transitions_are_those_of_the_rdma_core() {
    for (transport, kernel) in [
        (Transport::Rc, KERNEL),
        (Transport::Uc, KERNEL_UC),
        (Transport::Ud, KERNEL_UD),
    ] {
        for from in State::ALL {
            for to in State::ALL {
                let found = transition(transport, from, to)
                    .map(|transition| (transition.required.0, transition.optional.0));
                let expected = kernel
                    .iter()
                    .find(|row| (row.0, row.1) == (from as u32, to as u32))
                    .map(|row| (row.2, row.3));
                assert_eq!(found, expected, "{transport:?} {from:?} to {to:?}");
            }
        }
    }
}

// Rules: STA-3
#[test]
fn a_transition_takes_what_it_needs_and_allows() {
    let step = transition(Transport::Rc, State::Rtr, State::Rts).unwrap();
    assert!(step.takes(step.required));
    assert!(step.takes(step.required.with(step.optional).with(Mask::STATE)));
    for bit in 0..21 {
        let bit = Mask(1 << bit);
        let without = Mask(step.required.0 & !bit.0);
        assert_eq!(step.takes(without), without == step.required);
        let known = step.required.with(step.optional).with(Mask::STATE);
        assert_eq!(step.takes(step.required.with(bit)), known.contains(bit));
    }
}

// Rules: STA-16
#[test]
fn states_have_codes() {
    for (code, state) in (0..).zip(State::ALL) {
        assert_eq!(State::from_code(code), Some(state));
        assert_eq!(state as u32, code);
    }
    assert_eq!(State::from_code(7), None);
}

fn attr() -> Attr {
    Attr {
        path_mtu: 3,
        rq_psn: 0xff00_0001,
        sq_psn: 0x1234_5678,
        dest_qp_num: 0xaa_bbcc,
        qkey: 0x1122_3344,
        qp_access_flags: 0xf,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 128,
        min_rnr_timer: 31,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 6,
    }
}

const ALL: Mask = Mask(u32::MAX);

// Rules: PSN-16
#[test]
fn attributes_add_up() {
    let all = Attributes::NEW.modified(&attr(), ALL, Mtu::B4096).unwrap();
    let access = RemoteAccess {
        write: true,
        read: true,
        atomic: true,
        flush: Placement::default(),
    };
    let expected = Attributes {
        pkey: Pkey::DEFAULT,
        path_mtu: Mtu::B1024,
        rq_psn: Psn::new(1),
        sq_psn: Psn::new(0x34_5678),
        dest_qp: Qpn::new(0xaa_bbcc),
        qkey: Qkey(0x1122_3344),
        access,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 128,
        min_rnr_timer: RnrTimer::new(31).unwrap(),
        timeout: AckTimeout::new(14).unwrap(),
        retry_cnt: RetryCount::new(7).unwrap(),
        rnr_retry: RetryCount::new(6).unwrap(),
    };
    assert_eq!(all, expected);
    // One at a time, in any order, it comes to the same.
    let one_by_one = (0..32).rev().fold(Attributes::NEW, |attributes, bit| {
        attributes
            .modified(&attr(), Mask(1 << bit), Mtu::B1024)
            .unwrap()
    });
    assert_eq!(one_by_one, expected);
    let none = Attributes::NEW.modified(&attr(), Mask::NONE, Mtu::B4096);
    assert_eq!(none, Ok(Attributes::NEW));

    let send = all.send_config(Connection::Unreliable, Bundle::ONE, Law::Dcqcn);
    assert_eq!(send.connection, Connection::Unreliable);
    assert_eq!(send.bundle, Bundle::ONE);
    assert_eq!(send.law, Law::Dcqcn);
    assert_eq!((send.dest_qp, send.mtu), (all.dest_qp, all.path_mtu));
    assert_eq!((send.sq_psn, send.timeout), (all.sq_psn, all.timeout));
    assert_eq!(send.retry_cnt, all.retry_cnt);
    assert_eq!(send.rnr_retry, all.rnr_retry);
    assert_eq!(send.max_rd_atomic, 16);
    let recv = all.recv_config(Connection::Reliable, Bundle::ONE);
    assert_eq!(recv.connection, Connection::Reliable);
    assert_eq!((recv.dest_qp, recv.mtu), (all.dest_qp, all.path_mtu));
    assert_eq!((recv.rq_psn, recv.access), (all.rq_psn, all.access));
    assert_eq!(recv.min_rnr_timer, all.min_rnr_timer);
    assert_eq!(recv.max_dest_rd_atomic, 128);
    let (send, recv) = (all.send_update(Bundle::ONE), all.recv_update(Bundle::ONE));
    assert_eq!((send.timeout, send.pkey), (all.timeout, all.pkey));
    assert_eq!((recv.access, recv.pkey), (all.access, all.pkey));
    let datagram = all.datagram_config();
    assert_eq!((datagram.pkey, datagram.qkey), (all.pkey, all.qkey));
}

// Rules: RDA-26, RTY-17, STA-4, STA-5, STA-6
#[test]
fn attributes_have_ranges() {
    let with = |set: fn(&mut Attr)| {
        let mut attr = attr();
        set(&mut attr);
        attr
    };
    for (attr, wrong) in [
        (with(|a| a.path_mtu = 0), Mask::PATH_MTU),
        (with(|a| a.path_mtu = 6), Mask::PATH_MTU),
        (with(|a| a.path_mtu = 5), Mask::PATH_MTU), // above the port's
        (with(|a| a.qp_access_flags = 1 << 5), Mask::ACCESS_FLAGS),
        (with(|a| a.qp_access_flags = 1 << 31), Mask::ACCESS_FLAGS),
        (with(|a| a.dest_qp_num = 1 << 24), Mask::DEST_QPN),
        (with(|a| a.max_rd_atomic = 129), Mask::MAX_QP_RD_ATOMIC),
        (
            with(|a| a.max_dest_rd_atomic = 129),
            Mask::MAX_DEST_RD_ATOMIC,
        ),
        (with(|a| a.min_rnr_timer = 32), Mask::MIN_RNR_TIMER),
        (with(|a| a.timeout = 32), Mask::TIMEOUT),
        (with(|a| a.retry_cnt = 8), Mask::RETRY_CNT),
        (with(|a| a.rnr_retry = 8), Mask::RNR_RETRY),
    ] {
        let all = Attributes::NEW.modified(&attr, ALL, Mtu::B2048);
        assert_eq!(all, Err(AttrError(wrong)));
        let others = Mask(!wrong.0);
        assert!(Attributes::NEW.modified(&attr, others, Mtu::B2048).is_ok());
    }
}

#[test]
fn only_rights_of_a_peer_are_kept_of_access_flags() {
    for (flags, write, read, atomic, global, persistent) in [
        (0x00, false, false, false, false, false),
        (0x01, false, false, false, false, false),
        (0x02, true, false, false, false, false),
        (0x04, false, true, false, false, false),
        (0x08, false, false, true, false, false),
        (0x100, false, false, false, true, false),
        (0x200, false, false, false, false, true),
        (0x2010_0050, false, false, false, false, false),
    ] {
        let attr = Attr {
            qp_access_flags: flags,
            ..attr()
        };
        let new = Attributes::NEW.modified(&attr, Mask::ACCESS_FLAGS, Mtu::B256);
        let expected = RemoteAccess {
            write,
            read,
            atomic,
            flush: Placement { global, persistent },
        };
        assert_eq!(new.unwrap().access, expected);
    }
}

fn packet(transport: Transport, body: Body, pkey: Pkey) -> Packet {
    Packet {
        bth: Bth {
            transport,
            solicited: false,
            mig_req: false,
            pad: 0,
            pkey,
            fecn: false,
            becn: false,
            dest_qp: Qpn::new(2),
            ack_req: false,
            psn: Psn::new(0),
        },
        body,
        payload_len: 0,
        psns: 1,
    }
}

// Rules: STA-13, VAL-6, VAL-7, VAL-8, VAL-9
#[test]
fn packets_reach_the_half_that_takes_them() {
    let request = Body::Request(Request::SendMiddle);
    let aeth = Aeth {
        syndrome: Syndrome::ACK,
        msn: Default::default(),
    };
    let response = Body::Response(Response::Acknowledge(aeth));
    let deth = Deth {
        qkey: Qkey(1),
        src_qp: Qpn::GSI,
    };
    let datagram = Body::Datagram(Datagram { deth, imm: None });
    for state in State::ALL {
        let takes = |half, states: &[State]| {
            if states.contains(&state) {
                Ok(half)
            } else {
                Err(Event::BadState)
            }
        };
        let receiving = [State::Rtr, State::Rts, State::Sqd, State::Sqe];
        for (transport, body, expected) in [
            (Transport::Rc, request, takes(Half::Responder, &receiving)),
            (Transport::Uc, request, takes(Half::Responder, &receiving)),
            (Transport::Ud, datagram, takes(Half::Responder, &receiving)),
            (
                Transport::Rc,
                response,
                takes(Half::Requester, &[State::Rts, State::Sqd]),
            ),
        ] {
            let ours = packet(transport, body, Pkey::DEFAULT);
            let found = check(transport, state, Pkey::DEFAULT, &ours);
            assert_eq!(found, expected, "{state:?} {body:?}");
        }
    }
}

// Rules: MCG-6, VAL-3, VAL-4
#[test]
fn other_transports_and_partitions_are_refused() {
    let body = Body::Request(Request::SendMiddle);
    let ours = packet(Transport::Rc, body, Pkey(0x8001));
    for (transport, pkey, expected) in [
        (Transport::Rc, Pkey(0x8001), Ok(Half::Responder)),
        (Transport::Uc, Pkey(0x8001), Err(Event::BadOpcode)),
        (Transport::Ud, Pkey(0x8001), Err(Event::BadOpcode)),
        (Transport::Rc, Pkey(0x8002), Err(Event::BadPkey)),
    ] {
        assert_eq!(check(transport, State::Rts, pkey, &ours), expected);
    }
}
