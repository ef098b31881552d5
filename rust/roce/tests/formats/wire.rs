// SPDX-License-Identifier: GPL-2.0

use proptest::prelude::*;
use roce::event::Event;
use roce::num::{Imm, Iova, Msn, Pkey, Psn, Qkey, Qpn, Rkey};
use roce::opcode::Transport;
use roce::time::RnrTimer;
use roce::wire::{
    parse, Aeth, AtomicAckEth, AtomicEth, Body, Bth, Datagram, Deth, Feth, HeaderBytes, NakCode,
    ParseError, Request, Response, Reth, SendEnd, Syndrome, ICRC_BYTES, MAX_HEADER,
};

use crate::hex::hex;

const IMM: Imm = Imm([0xa1, 0xa2, 0xa3, 0xa4]);
const RKEY: Rkey = Rkey(0xcafe_0123);
const ADDRESS: Iova = Iova(0x0102_0304_0506_0708);
const RETH: Reth = Reth {
    iova: ADDRESS,
    rkey: RKEY,
    length: 0x8000_0001,
};
const RETH_HEX: &str = "0102030405060708 cafe0123 80000001";

fn bth(transport: Transport) -> Bth {
    Bth {
        transport,
        solicited: false,
        mig_req: false,
        pad: 0,
        pkey: Pkey(0xffff),
        fecn: false,
        becn: false,
        dest_qp: Qpn::new(0x12_3456),
        ack_req: false,
        psn: Psn::new(0xab_cdef),
    }
}

fn aeth(syndrome: Syndrome) -> Aeth {
    Aeth {
        syndrome,
        msn: Msn::new(0x01_0203),
    }
}

/// Checks both directions: the bytes of `header` are those of `bth` and `body`.
fn golden(opcode: &str, bth: Bth, body: Body, extensions: &str) {
    let flags = "00 ffff 00123456 00abcdef";
    let bytes = hex(&format!("{opcode} {flags} {extensions}"));
    assert_eq!(HeaderBytes::new(&bth, &body).as_bytes(), bytes, "{body:?}");
    let len = bytes.len() as u32 + ICRC_BYTES;
    let packet = parse(&bytes, len).unwrap();
    assert_eq!((packet.bth, packet.body), (bth, body));
    assert_eq!(packet.payload_len, 0);
    assert_eq!(packet.payload_at(len) as usize, bytes.len());
}

// Rules: RDA-14, WIRE-1, WIRE-10, WIRE-11, WIRE-15, WIRE-16, WIRE-17, WIRE-18
#[test]
fn requests_have_these_bytes() {
    let atomic = AtomicEth {
        iova: ADDRESS,
        rkey: RKEY,
        swap_add: 0x1112_1314_1516_1718,
        compare: 0x2122_2324_2526_2728,
    };
    let atomic_hex = "0102030405060708 cafe0123 1112131415161718 2122232425262728";
    let feth = Feth {
        placement: 2,
        selectivity: 1,
    };
    let imm = SendEnd::Imm(IMM);
    let invalidate = SendEnd::Invalidate(RKEY);
    let plain = SendEnd::Plain;
    let both = [
        (0x00, Request::SendFirst, String::new()),
        (0x01, Request::SendMiddle, String::new()),
        (0x02, Request::SendLast(plain), String::new()),
        (0x03, Request::SendLast(imm), "a1a2a3a4".into()),
        (0x04, Request::SendOnly(plain), String::new()),
        (0x05, Request::SendOnly(imm), "a1a2a3a4".into()),
        (0x06, Request::WriteFirst(RETH), RETH_HEX.into()),
        (0x07, Request::WriteMiddle, String::new()),
        (0x08, Request::WriteLast(None), String::new()),
        (0x09, Request::WriteLast(Some(IMM)), "a1a2a3a4".into()),
        (0x0a, Request::WriteOnly(RETH, None), RETH_HEX.into()),
        (
            0x0b,
            Request::WriteOnly(RETH, Some(IMM)),
            format!("{RETH_HEX} a1a2a3a4"),
        ),
    ];
    for (opcode, request, extensions) in both {
        for (transport, base) in [(Transport::Rc, 0x00), (Transport::Uc, 0x20)] {
            let opcode = format!("{:02x}", base | opcode);
            golden(&opcode, bth(transport), Body::Request(request), &extensions);
        }
    }
    let reliable = [
        ("0c", Request::Read(RETH), RETH_HEX.to_string()),
        ("13", Request::CompareSwap(atomic), atomic_hex.into()),
        ("14", Request::FetchAdd(atomic), atomic_hex.into()),
        ("16", Request::SendLast(invalidate), "cafe0123".into()),
        ("17", Request::SendOnly(invalidate), "cafe0123".into()),
        (
            "1c",
            Request::Flush(feth, RETH),
            format!("00000012 {RETH_HEX}"),
        ),
        ("1d", Request::AtomicWrite(RETH), RETH_HEX.into()),
    ];
    for (opcode, request, extensions) in reliable {
        golden(
            opcode,
            bth(Transport::Rc),
            Body::Request(request),
            &extensions,
        );
    }
}

// Rules: ACK-19, WIRE-12, WIRE-13, WIRE-18
#[test]
fn responses_have_these_bytes() {
    let ack = aeth(Syndrome::ACK);
    let original = AtomicAckEth {
        original: 0x1112_1314_1516_1718,
    };
    for (opcode, response, extensions) in [
        ("0d", Response::ReadFirst(ack), "1f010203"),
        ("0e", Response::ReadMiddle, ""),
        ("0f", Response::ReadLast(ack), "1f010203"),
        ("10", Response::ReadOnly(ack), "1f010203"),
        ("11", Response::Acknowledge(ack), "1f010203"),
        (
            "12",
            Response::AtomicAcknowledge(ack, original),
            "1f010203 1112131415161718",
        ),
    ] {
        golden(
            opcode,
            bth(Transport::Rc),
            Body::Response(response),
            extensions,
        );
    }
}

// Rules: WIRE-14, WIRE-18
#[test]
fn datagrams_have_these_bytes() {
    let deth = Deth {
        qkey: Qkey(0x8001_0000),
        src_qp: Qpn::new(0x0a_0b0c),
    };
    for (opcode, imm, extensions) in [
        ("64", None, "80010000 000a0b0c"),
        ("65", Some(IMM), "80010000 000a0b0c a1a2a3a4"),
    ] {
        let body = Body::Datagram(Datagram { deth, imm });
        golden(opcode, bth(Transport::Ud), body, extensions);
    }
}

// Rules: WIRE-24, WIRE-25, WIRE-26, WIRE-27
#[test]
fn syndromes_have_these_bytes() {
    let nak = |code| Some(Syndrome::Nak(code));
    for byte in 0..=255u8 {
        let value = byte & 0x1f;
        let expected = match byte >> 5 {
            0 => Some(Syndrome::Ack { credits: value }),
            1 => Some(Syndrome::RnrNak(RnrTimer::new(value).unwrap())),
            3 => match value {
                0 => nak(NakCode::SequenceError),
                1 => nak(NakCode::InvalidRequest),
                2 => nak(NakCode::RemoteAccess),
                3 => nak(NakCode::RemoteOperation),
                _ => None,
            },
            _ => None,
        };
        let bytes = [byte, 1, 2, 3];
        match expected {
            Some(syndrome) => {
                assert_eq!(Aeth::parse(&bytes), Ok(aeth(syndrome)));
                assert_eq!(aeth(syndrome).emit(), bytes);
            }
            None => assert_eq!(Aeth::parse(&bytes), Err(ParseError::Syndrome)),
        }
    }
}

// Rules: WIRE-7, WIRE-8, WIRE-33
#[test]
fn each_bit_of_the_bth_has_its_place() {
    let plain = bth(Transport::Rc);
    let body = Body::Request(Request::SendMiddle);
    let flagged = |set: fn(&mut Bth)| {
        let mut bth = plain;
        set(&mut bth);
        bth
    };
    for (bytes, bth) in [
        (
            "01 80 ffff 00123456 00abcdef",
            flagged(|b| b.solicited = true),
        ),
        (
            "01 40 ffff 00123456 00abcdef",
            flagged(|b| b.mig_req = true),
        ),
        ("01 10 ffff 00123456 00abcdef", flagged(|b| b.pad = 1)),
        ("01 30 ffff 00123456 00abcdef", flagged(|b| b.pad = 3)),
        (
            "01 00 8001 00123456 00abcdef",
            flagged(|b| b.pkey = Pkey(0x8001)),
        ),
        ("01 00 ffff 80123456 00abcdef", flagged(|b| b.fecn = true)),
        ("01 00 ffff 40123456 00abcdef", flagged(|b| b.becn = true)),
        (
            "01 00 ffff 00ffffff 00abcdef",
            flagged(|b| b.dest_qp = Qpn::MULTICAST),
        ),
        (
            "01 00 ffff 00123456 80abcdef",
            flagged(|b| b.ack_req = true),
        ),
        (
            "01 00 ffff 00123456 00ffffff",
            flagged(|b| b.psn = Psn::new(0xff_ffff)),
        ),
    ] {
        let bytes = hex(bytes);
        assert_eq!(HeaderBytes::new(&bth, &body).as_bytes(), bytes);
        assert_eq!(parse(&bytes, 12 + 256 + 4).unwrap().bth, bth);
    }
    // A pad count of 4 and more does not reach into other bits.
    let over = flagged(|b| b.pad = 0xff);
    assert_eq!(HeaderBytes::new(&over, &body).as_bytes()[1], 0x30);
}

// Rules: WIRE-8, WIRE-9, WIRE-14
#[test]
fn reserved_bits_are_ignored_where_the_standard_keeps_them() {
    let body = Body::Request(Request::SendMiddle);
    for bytes in [
        "01 00 ffff 3f123456 00abcdef",
        "01 00 ffff 00123456 7fabcdef",
    ] {
        let packet = parse(&hex(bytes), 16).unwrap();
        assert_eq!((packet.bth, packet.body), (bth(Transport::Rc), body));
    }
    let datagram = parse(&hex("64 00 ffff 00123456 00abcdef 80010000 ff0a0b0c"), 24).unwrap();
    let Body::Datagram(Datagram { deth, .. }) = datagram.body else {
        panic!("{datagram:?}");
    };
    assert_eq!(deth.src_qp, Qpn::new(0x0a_0b0c));
}

// Rules: VAL-12, WIRE-3, WIRE-6, WIRE-19, WIRE-20, WIRE-21, WIRE-22, WIRE-26
#[test]
fn malformed_packets_are_refused() {
    let bth = "ffff 00123456 00abcdef";
    let send = format!("04 00 {bth}");
    let padded = |pad| format!("04 {pad}0 {bth}");
    let ack = |syndrome| format!("11 00 {bth} {syndrome} 000001");
    for (header, len, expected) in [
        // Too short for its headers.
        (String::new(), 0, Err(ParseError::Truncated)),
        ("04 00 ffff".into(), 16, Err(ParseError::Truncated)),
        (send.clone(), 12, Err(ParseError::Truncated)),
        (send.clone(), 15, Err(ParseError::Truncated)),
        (send.clone(), 16, Ok(0)),
        (format!("0a 00 {bth}"), 31, Err(ParseError::Truncated)),
        (format!("0a 00 {bth}"), 32, Err(ParseError::Truncated)),
        (
            format!("13 00 {bth} {RETH_HEX}"),
            44,
            Err(ParseError::Truncated),
        ),
        (
            format!("64 00 {bth} 00000000"),
            24,
            Err(ParseError::Truncated),
        ),
        // Not in words.
        (send.clone(), 17, Err(ParseError::Alignment)),
        (send.clone(), 18, Err(ParseError::Alignment)),
        (send.clone(), 19, Err(ParseError::Alignment)),
        // Pad.
        (padded(1), 20, Ok(3)),
        (padded(3), 20, Ok(1)),
        (padded(3), 16, Err(ParseError::Truncated)),
        (padded(1), 16, Err(ParseError::Truncated)),
        (format!("04 30 {bth}"), 24, Ok(5)),
        // Payload where there is none.
        (ack("1f"), 20, Ok(0)),
        (ack("1f"), 24, Err(ParseError::Payload)),
        (
            ack("1f").replace("11 00", "11 10"),
            20,
            Err(ParseError::Payload),
        ),
        (format!("0c 00 {bth} {RETH_HEX}"), 32, Ok(0)),
        (
            format!("0c 00 {bth} {RETH_HEX}"),
            36,
            Err(ParseError::Payload),
        ),
        // Versions, opcodes, syndromes.
        (send.replace("04 00", "04 01"), 16, Err(ParseError::Version)),
        (send.replace("04 00", "04 08"), 16, Err(ParseError::Version)),
        (send.replace("04 00", "15 00"), 16, Err(ParseError::Opcode)),
        (send.replace("04 00", "81 00"), 16, Err(ParseError::Opcode)),
        (send.replace("04 00", "60 00"), 16, Err(ParseError::Opcode)),
        (send.replace("04 00", "36 00"), 16, Err(ParseError::Opcode)),
        (ack("40"), 20, Err(ParseError::Syndrome)),
        (ack("64"), 20, Err(ParseError::Syndrome)),
        (ack("9f"), 20, Err(ParseError::Syndrome)),
    ] {
        let result = parse(&hex(&header), len).map(|packet| packet.payload_len);
        assert_eq!(result, expected, "{header} of {len}");
    }
}

// Rules: VAL-11
#[test]
fn errors_are_counted_by_kind() {
    for (error, event) in [
        (ParseError::Opcode, Event::BadOpcode),
        (ParseError::Truncated, Event::BadHeader),
        (ParseError::Alignment, Event::BadHeader),
        (ParseError::Payload, Event::BadHeader),
        (ParseError::Version, Event::BadHeader),
        (ParseError::Syndrome, Event::BadHeader),
    ] {
        assert_eq!(error.event(), event);
    }
}

fn any_bth(transport: Transport) -> impl Strategy<Value = Bth> {
    (any::<[bool; 5]>(), 0..4u8, any::<u16>(), any::<[u32; 2]>()).prop_map(
        move |([solicited, mig_req, fecn, becn, ack_req], pad, pkey, [qpn, psn])| Bth {
            transport,
            solicited,
            mig_req,
            pad,
            pkey: Pkey(pkey),
            fecn,
            becn,
            dest_qp: Qpn::new(qpn),
            ack_req,
            psn: Psn::new(psn),
        },
    )
}

fn any_reth() -> impl Strategy<Value = Reth> + Clone {
    any::<(u64, u32, u32)>().prop_map(|(iova, rkey, length)| Reth {
        iova: Iova(iova),
        rkey: Rkey(rkey),
        length,
    })
}

fn any_connected() -> impl Strategy<Value = Request> {
    let end = prop_oneof![
        Just(SendEnd::Plain),
        any::<[u8; 4]>().prop_map(|imm| SendEnd::Imm(Imm(imm))),
    ];
    let imm = || any::<Option<[u8; 4]>>().prop_map(|imm| imm.map(Imm));
    prop_oneof![
        Just(Request::SendFirst),
        Just(Request::SendMiddle),
        end.clone().prop_map(Request::SendLast),
        end.prop_map(Request::SendOnly),
        any_reth().prop_map(Request::WriteFirst),
        Just(Request::WriteMiddle),
        imm().prop_map(Request::WriteLast),
        (any_reth(), imm()).prop_map(|(reth, imm)| Request::WriteOnly(reth, imm)),
    ]
}

fn any_reliable() -> impl Strategy<Value = Body> {
    let atomic =
        (any_reth(), any::<[u64; 2]>()).prop_map(|(reth, [swap_add, compare])| AtomicEth {
            iova: reth.iova,
            rkey: reth.rkey,
            swap_add,
            compare,
        });
    let feth = (0..16u8, 0..4u8).prop_map(|(placement, selectivity)| Feth {
        placement,
        selectivity,
    });
    let syndrome = prop_oneof![
        (0..32u8).prop_map(|credits| Syndrome::Ack { credits }),
        (0..32u8).prop_map(|code| Syndrome::RnrNak(RnrTimer::new(code).unwrap())),
        prop_oneof![
            Just(NakCode::SequenceError),
            Just(NakCode::InvalidRequest),
            Just(NakCode::RemoteAccess),
            Just(NakCode::RemoteOperation)
        ]
        .prop_map(Syndrome::Nak),
    ];
    let aeth = (syndrome, any::<u32>()).prop_map(|(syndrome, msn)| Aeth {
        syndrome,
        msn: Msn::new(msn),
    });
    let invalidate = || any::<u32>().prop_map(|rkey| SendEnd::Invalidate(Rkey(rkey)));
    let requests = prop_oneof![
        any_connected(),
        any_reth().prop_map(Request::Read),
        any_reth().prop_map(Request::AtomicWrite),
        atomic.clone().prop_map(Request::CompareSwap),
        atomic.prop_map(Request::FetchAdd),
        (feth, any_reth()).prop_map(|(feth, reth)| Request::Flush(feth, reth)),
        invalidate().prop_map(Request::SendLast),
        invalidate().prop_map(Request::SendOnly),
    ];
    let responses = prop_oneof![
        aeth.clone().prop_map(Response::ReadFirst),
        Just(Response::ReadMiddle),
        aeth.clone().prop_map(Response::ReadLast),
        aeth.clone().prop_map(Response::ReadOnly),
        aeth.clone().prop_map(Response::Acknowledge),
        (aeth, any::<u64>()).prop_map(|(aeth, original)| {
            Response::AtomicAcknowledge(aeth, AtomicAckEth { original })
        }),
    ];
    prop_oneof![
        requests.prop_map(Body::Request),
        responses.prop_map(Body::Response),
    ]
}

fn any_datagram() -> impl Strategy<Value = Body> {
    any::<(u32, u32, Option<[u8; 4]>)>().prop_map(|(qkey, src_qp, imm)| {
        let deth = Deth {
            qkey: Qkey(qkey),
            src_qp: Qpn::new(src_qp),
        };
        Body::Datagram(Datagram {
            deth,
            imm: imm.map(Imm),
        })
    })
}

fn any_packet() -> impl Strategy<Value = (Bth, Body)> {
    prop_oneof![
        (any_bth(Transport::Rc), any_reliable()),
        (
            any_bth(Transport::Uc),
            any_connected().prop_map(Body::Request)
        ),
        (any_bth(Transport::Ud), any_datagram()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    // Rules: WIRE-1
    #[test]
    fn what_is_emitted_parses((bth, body) in any_packet(), words in 0..1025u32) {
        let header = HeaderBytes::new(&bth, &body);
        let bytes = header.as_bytes();
        prop_assert!(bytes.len() <= MAX_HEADER);
        let header_len = bytes.len() as u32;
        let has_payload = parse(bytes, header_len + 8).is_ok();
        // Without payload there is no pad, and the other way round.
        let bth = if has_payload && words > 0 { bth } else { Bth { pad: 0, ..bth } };
        let words = if has_payload { words } else { 0 };
        let header = HeaderBytes::new(&bth, &body);
        let packet = parse(header.as_bytes(), header_len + 4 * words + ICRC_BYTES).unwrap();
        prop_assert_eq!(packet.bth, bth);
        prop_assert_eq!(packet.body, body);
        prop_assert_eq!(packet.payload_len, 4 * words - u32::from(bth.pad));
        prop_assert_eq!(packet.payload_at(header_len + 4 * words + ICRC_BYTES), header_len);
        // Not a byte less.
        let last = header_len as usize - 1;
        let shorter = parse(&header.as_bytes()[..last], header_len + 4 * words + ICRC_BYTES);
        prop_assert_eq!(shorter, Err(ParseError::Truncated));
    }

    // Rules: WIRE-28
    #[test]
    fn what_parses_is_emitted_alike(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..MAX_HEADER + 4),
        opcode in 0..0x70u8,
        len in prop_oneof![0..100u32, any::<u32>()],
    ) {
        // Most random opcodes and versions are refused at once.
        if let [first, flags, ..] = &mut bytes[..] {
            *first = opcode;
            *flags &= 0xf0;
        }
        let Ok(packet) = parse(&bytes, len) else { return Ok(()) };
        let header_len = packet.payload_at(len);
        // But for the bits that are ignored.
        bytes.truncate(header_len as usize);
        bytes[4] &= 0xc0;
        bytes[8] &= 0x80;
        match packet.body {
            Body::Datagram(_) => bytes[16] = 0,
            Body::Request(Request::Flush(..)) => {
                bytes[12..15].fill(0);
                bytes[15] &= 0x3f;
            }
            _ => {}
        }
        let emitted = HeaderBytes::new(&packet.bth, &packet.body);
        prop_assert_eq!(emitted.as_bytes(), &bytes[..]);
    }
}
