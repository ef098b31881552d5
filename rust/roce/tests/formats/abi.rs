// SPDX-License-Identifier: GPL-2.0

use proptest::prelude::*;
use roce::abi::{
    cqe, decode_datagram, decode_recv, decode_send, encode_completion, recv_wqe, send_wqe, sge,
    AddressVector, Arrival, DatagramTo, Poster, SendData, SendLimits, Sge,
};
use roce::completion::{Completion, CompletionOp, Status};
use roce::limits::MAX_MESSAGE_BYTES;
use roce::num::{Imm, Iova, Lkey, Qkey, Qpn, Rkey};
use roce::wr::{
    AtomicOp, BadRequest, Bind, DatagramDest, Flush, LocalOp, Placement, Remote, SendFlags, SendOp,
};

const LIMITS: SendLimits = SendLimits {
    max_sge: 4,
    max_inline: 60,
    poster: Poster::Process,
};

/// A slot as the provider fills it. The numbers are offsets of `struct rxe_send_wqe`.
struct Slot(Vec<u8>);

impl Slot {
    fn new(opcode: u32, flags: u32) -> Self {
        let mut slot = Self(vec![0; 208 + 64]);
        slot.u64(0, 0x1122_3344_5566_7788);
        slot.u32(12, opcode);
        slot.u32(16, flags);
        slot.0[20..24].copy_from_slice(&[1, 2, 3, 4]);
        slot.u64(24, 0x7f00_1234_5678);
        slot.u32(32, 0xcafe);
        slot
    }

    fn u32(&mut self, at: usize, value: u32) {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }

    fn u64(&mut self, at: usize, value: u64) {
        self.0[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    }

    fn with_sges(mut self, lengths: &[u32]) -> Self {
        let mut total = 0u32;
        for (index, length) in lengths.iter().enumerate() {
            let at = 208 + 16 * index;
            self.u64(at, 0x1000 * (index as u64 + 1));
            self.u32(at + 8, *length);
            self.u32(at + 12, 0x10 + index as u32);
            total = total.wrapping_add(*length);
        }
        self.length(total);
        self.u32(196, lengths.len() as u32);
        self
    }

    /// Sets `dma.length` and `dma.resid`.
    fn length(&mut self, length: u32) {
        self.u32(184, length);
        self.u32(188, length);
    }
}

const WR_ID: u64 = 0x1122_3344_5566_7788;

fn refusal(status: Status) -> BadRequest {
    BadRequest {
        wr_id: WR_ID,
        status,
    }
}

#[test]
fn offsets_are_those_of_the_uapi_header() {
    assert_eq!(
        [
            send_wqe::WR_ID,
            send_wqe::OPCODE,
            send_wqe::SEND_FLAGS,
            send_wqe::EX
        ],
        [0, 12, 16, 20]
    );
    assert_eq!([send_wqe::RDMA_REMOTE_ADDR, send_wqe::RDMA_RKEY], [24, 32]);
    assert_eq!(
        [
            send_wqe::ATOMIC_REMOTE_ADDR,
            send_wqe::ATOMIC_COMPARE_ADD,
            send_wqe::ATOMIC_SWAP,
            send_wqe::ATOMIC_RKEY,
        ],
        [24, 32, 40, 48]
    );
    assert_eq!(
        [
            send_wqe::FLUSH_REMOTE_ADDR,
            send_wqe::FLUSH_RKEY,
            send_wqe::FLUSH_TYPE,
            send_wqe::FLUSH_LEVEL,
        ],
        [24, 36, 40, 41]
    );
    assert_eq!(
        [
            send_wqe::MW_ADDR,
            send_wqe::MW_LENGTH,
            send_wqe::MW_MR_LKEY,
            send_wqe::MW_MW_RKEY,
            send_wqe::MW_RKEY,
            send_wqe::MW_ACCESS,
        ],
        [24, 32, 40, 44, 48, 52]
    );
    assert_eq!([send_wqe::DMA, send_wqe::DATA], [184, 208]);
    assert_eq!(
        [
            send_wqe::UD_REMOTE_QPN,
            send_wqe::UD_REMOTE_QKEY,
            send_wqe::UD_AH_NUM,
            send_wqe::UD_AV
        ],
        [24, 28, 36, 56]
    );
    assert_eq!(
        [recv_wqe::WR_ID, recv_wqe::DMA, recv_wqe::DATA],
        [0, 16, 40]
    );
    assert_eq!(
        [
            sge::dma::LENGTH,
            sge::dma::NUM_SGE,
            sge::dma::DATA,
            sge::SGE_BYTES
        ],
        [0, 12, 24, 16]
    );
    assert_eq!((cqe::CQE_BYTES, cqe::SLOT_BYTES), (48, 64));
}

// Rules: WRQ-2
#[test]
fn send_opcodes_are_decoded() {
    let remote = Remote {
        iova: Iova(0x7f00_1234_5678),
        rkey: Rkey(0xcafe),
    };
    let imm = Some(Imm([1, 2, 3, 4]));
    let known = [
        SendOp::Write { remote, imm: None },
        SendOp::Write { remote, imm },
        SendOp::Send { imm: None },
        SendOp::Send { imm },
        SendOp::Read { remote },
    ];
    for (opcode, op) in (0..).zip(known) {
        let slot = Slot::new(opcode, 0).with_sges(&[10]);
        let wqe = decode_send(&slot.0, &LIMITS).unwrap();
        assert_eq!((wqe.wr_id, wqe.op, wqe.length), (WR_ID, op, 10));
    }
    let slot = Slot::new(9, 0).with_sges(&[10]);
    let rkey = Rkey(u32::from_ne_bytes([1, 2, 3, 4]));
    let wqe = decode_send(&slot.0, &LIMITS).unwrap();
    assert_eq!(wqe.op, SendOp::SendInvalidate { rkey });
    let unknown = (10..=13).chain(16..=0x30);
    for opcode in unknown.chain([0xf0, 0xff, 0x100, u32::MAX]) {
        let slot = Slot::new(opcode, 0).with_sges(&[10]);
        let expected = Err(refusal(Status::LocalQpOperation));
        assert_eq!(decode_send(&slot.0, &LIMITS), expected, "{opcode}");
    }
}

/// Returns the slot of an atomic.
fn atomic_slot(opcode: u32, flags: u32, lengths: &[u32]) -> Slot {
    let mut slot = Slot::new(opcode, flags).with_sges(lengths);
    slot.u64(32, 0x0102_0304_0506_0708);
    slot.u64(40, 0x1112_1314_1516_1718);
    slot.u32(48, 0xbeef);
    slot
}

// Rules: WRQ-7
#[test]
fn atomics_are_decoded() {
    let remote = Remote {
        iova: Iova(0x7f00_1234_5678),
        rkey: Rkey(0xbeef),
    };
    let swap = AtomicOp::CompareSwap {
        compare: 0x0102_0304_0506_0708,
        swap: 0x1112_1314_1516_1718,
    };
    let add = AtomicOp::FetchAdd {
        add: 0x0102_0304_0506_0708,
    };
    for (opcode, op) in [(5, swap), (6, add)] {
        for lengths in [&[8][..], &[3, 0, 5]] {
            let slot = atomic_slot(opcode, 0, lengths);
            let wqe = decode_send(&slot.0, &LIMITS).unwrap();
            assert_eq!(wqe.op, SendOp::Atomic { remote, op });
            assert_eq!((wqe.wr_id, wqe.length), (WR_ID, 8));
        }
        // The original value has eight bytes, no more and no less.
        for lengths in [&[][..], &[7], &[9], &[8, 8]] {
            let slot = atomic_slot(opcode, 0, lengths);
            let expected = Err(refusal(Status::LocalLength));
            assert_eq!(decode_send(&slot.0, &LIMITS), expected, "{lengths:?}");
        }
        let slot = atomic_slot(opcode, 8, &[8]);
        let expected = Err(refusal(Status::LocalQpOperation));
        assert_eq!(decode_send(&slot.0, &LIMITS), expected, "inline");
    }
}

#[test]
fn local_work_is_decoded() {
    let mut slot = Slot::new(7, 0);
    slot.length(77); // It has no meaning.
    let wqe = decode_send(&slot.0, &LIMITS).unwrap();
    let rkey = Rkey(u32::from_ne_bytes([1, 2, 3, 4]));
    assert_eq!(wqe.op, SendOp::Local(LocalOp::Invalidate { rkey }));
    assert_eq!((wqe.length, wqe.data), (0, SendData::Inline(&[])));

    let mut slot = Slot::new(8, 0);
    slot.u64(32, 0x1_0000_0000);
    for (at, value) in [(40, 0x11), (44, 0x22), (48, 0x33), (52, 0x44)] {
        slot.u32(at, value);
    }
    let bind = Bind {
        window: Rkey(0x22),
        key: Rkey(0x33),
        lkey: Lkey(0x11),
        iova: Iova(0x7f00_1234_5678),
        length: 0x1_0000_0000,
        access: 0x44,
    };
    let wqe = decode_send(&slot.0, &LIMITS).unwrap();
    assert_eq!(wqe.op, SendOp::Local(LocalOp::Bind(bind)));
    assert_eq!((wqe.length, wqe.data), (0, SendData::Inline(&[])));
}

#[test]
fn atomic_writes_are_decoded() {
    let remote = Remote {
        iova: Iova(0x7f00_1234_5678),
        rkey: Rkey(0xcafe),
    };
    // The bytes stand where SGEs would; neither their number nor the inline flag says so.
    for flags in [0, 8] {
        let mut slot = Slot::new(15, flags);
        slot.length(8);
        slot.u64(208, 0x0102_0304_0506_0708);
        let none = SendLimits {
            max_sge: 0,
            max_inline: 0,
            ..LIMITS
        };
        let wqe = decode_send(&slot.0, &none).unwrap();
        assert_eq!((wqe.op, wqe.length), (SendOp::AtomicWrite { remote }, 8));
        let bytes = 0x0102_0304_0506_0708u64.to_ne_bytes();
        assert_eq!(wqe.data, SendData::Inline(&bytes));
        assert!(decode_send(&slot.0[..215], &none).is_err());
        for length in [0, 7, 9] {
            slot.length(length);
            let expected = Err(refusal(Status::LocalLength));
            assert_eq!(decode_send(&slot.0, &none), expected);
        }
    }
}

#[test]
fn flushes_are_decoded() {
    for (placement, selectivity, good) in [
        (0, 0, true),
        (1, 0, true),
        (2, 1, true),
        (3, 1, true),
        (4, 0, false),
        (0x80, 0, false),
        (1, 2, false),
        (1, 0xff, false),
    ] {
        let mut slot = Slot::new(14, 0);
        slot.length(u32::MAX);
        slot.u32(36, 0xf1);
        slot.0[40] = placement;
        slot.0[41] = selectivity;
        let decoded = decode_send(&slot.0, &LIMITS);
        if !good {
            assert_eq!(decoded, Err(refusal(Status::LocalQpOperation)));
            continue;
        }
        let wqe = decoded.unwrap();
        let op = SendOp::Flush {
            remote: Remote {
                iova: Iova(0x7f00_1234_5678),
                rkey: Rkey(0xf1),
            },
            flush: Flush {
                placement: Placement {
                    global: placement & 1 != 0,
                    persistent: placement & 2 != 0,
                },
                whole_region: selectivity == 1,
            },
        };
        assert_eq!((wqe.op, wqe.length), (op, u32::MAX));
        assert_eq!(wqe.data, SendData::Inline(&[]));
    }
}

// Rules: WRQ-2
#[test]
fn send_flags_are_decoded() {
    for bits in 0..8u32 {
        let slot = Slot::new(2, bits).with_sges(&[]);
        let expected = SendFlags {
            fence: bits & 1 != 0,
            signaled: bits & 2 != 0,
            solicited: bits & 4 != 0,
        };
        assert_eq!(decode_send(&slot.0, &LIMITS).unwrap().flags, expected);
    }
    for bit in 4..32 {
        let slot = Slot::new(2, 1 << bit).with_sges(&[]);
        let expected = Err(refusal(Status::LocalQpOperation));
        assert_eq!(decode_send(&slot.0, &LIMITS), expected, "bit {bit}");
    }
}

#[test]
fn sges_are_decoded() {
    let slot = Slot::new(2, 0).with_sges(&[1, 0, 70_000]);
    let wqe = decode_send(&slot.0, &LIMITS).unwrap();
    assert_eq!(wqe.length, 70_001);
    let SendData::Sges(sges) = wqe.data else {
        panic!("{wqe:?}");
    };
    assert_eq!(sges.count_left(), 3);
    let sge = |addr, length, lkey| Sge {
        addr: Iova(addr),
        length,
        lkey: Lkey(lkey),
    };
    assert!(sges.eq([
        sge(0x1000, 1, 0x10),
        sge(0x2000, 0, 0x11),
        sge(0x3000, 70_000, 0x12)
    ]));
}

// Rules: SEG-7, WRQ-3, WRQ-4
#[test]
fn sges_have_bounds() {
    let over = Err(Status::LocalQpOperation);
    for (lengths, expected) in [
        (vec![], Ok(0)),
        (vec![1; 4], Ok(4)),
        (vec![1; 5], over), // more than the queue pair has
        (vec![MAX_MESSAGE_BYTES], Ok(MAX_MESSAGE_BYTES)),
        (vec![MAX_MESSAGE_BYTES, 0], Ok(MAX_MESSAGE_BYTES)),
        (vec![MAX_MESSAGE_BYTES, 1], Err(Status::LocalLength)),
        (vec![u32::MAX], Err(Status::LocalLength)),
        // A sum that wraps to the length in the slot.
        (vec![u32::MAX, 11], Err(Status::LocalLength)),
        (vec![1 << 31, 1 << 31, 10], Err(Status::LocalLength)),
    ] {
        let mut slot = Slot::new(2, 0);
        slot.0.resize(208 + 16 * 5, 0);
        let slot = slot.with_sges(&lengths);
        let result = decode_send(&slot.0, &LIMITS);
        let result = result.map(|wqe| wqe.length).map_err(|bad| bad.status);
        assert_eq!(result, expected, "{lengths:?}");
    }
    // The slot has less room than the limit says.
    let slot = Slot::new(2, 0).with_sges(&[1; 4]);
    let limits = SendLimits {
        max_sge: 32,
        ..LIMITS
    };
    let mut short = slot.0.clone();
    short.pop();
    assert!(decode_send(&slot.0, &limits).is_ok());
    let expected = Err(refusal(Status::LocalQpOperation));
    assert_eq!(decode_send(&short, &limits), expected);
    // A count that overflows an offset.
    let mut slot = Slot::new(2, 0);
    slot.u32(196, u32::MAX);
    let limits = SendLimits {
        max_sge: u32::MAX,
        ..LIMITS
    };
    assert_eq!(decode_send(&slot.0, &limits), expected);
}

// Rules: WRQ-4
#[test]
fn lengths_must_agree() {
    for length in [0, 9, 11, u32::MAX] {
        let mut slot = Slot::new(2, 0).with_sges(&[10]);
        slot.length(length);
        let expected = Err(refusal(Status::LocalQpOperation));
        assert_eq!(decode_send(&slot.0, &LIMITS), expected);
    }
}

// Rules: WRQ-5
#[test]
fn inline_data_are_decoded() {
    for opcode in [0, 1, 2, 3] {
        for length in [0, 1, 60] {
            let mut slot = Slot::new(opcode, 8);
            slot.length(length);
            slot.u32(196, 77); // The provider leaves any value there.
            for (at, byte) in slot.0[208..].iter_mut().enumerate() {
                *byte = at as u8;
            }
            let wqe = decode_send(&slot.0, &LIMITS).unwrap();
            let expected = Vec::from_iter(0..length as u8);
            assert_eq!(wqe.length, length);
            assert_eq!(wqe.data, SendData::Inline(&expected));
        }
    }
    let mut slot = Slot::new(2, 8);
    for length in [61, 64, 65, u32::MAX] {
        slot.length(length);
        let expected = Err(refusal(Status::LocalLength));
        assert_eq!(decode_send(&slot.0, &LIMITS), expected);
    }
    // More than the slot has, however much may be.
    let limits = SendLimits {
        max_inline: 100,
        ..LIMITS
    };
    slot.length(65);
    let expected = Err(refusal(Status::LocalLength));
    assert_eq!(decode_send(&slot.0, &limits), expected);
}

// Rules: WRQ-6
#[test]
fn there_is_no_inline_read() {
    let slot = Slot::new(4, 8).with_sges(&[]);
    let expected = Err(refusal(Status::LocalQpOperation));
    assert_eq!(decode_send(&slot.0, &LIMITS), expected);
}

// Rules: WRQ-8
#[test]
fn short_slots_are_refused() {
    let send = Slot::new(0, 0).with_sges(&[]);
    for len in 0..208 {
        let bad = decode_send(&send.0[..len], &LIMITS).unwrap_err();
        assert_eq!(bad.status, Status::LocalQpOperation);
        assert_eq!(bad.wr_id, if len >= 8 { WR_ID } else { 0 });
    }
    assert!(decode_send(&send.0[..208], &LIMITS).is_ok());
    for len in 0..40 {
        let bad = decode_recv(&send.0[..len], 4).unwrap_err();
        assert_eq!(bad.status, Status::LocalQpOperation);
    }
}

/// Returns a receive's slot: offsets of `struct rxe_recv_wqe`.
fn recv_slot(lengths: &[u32], length: u32) -> Vec<u8> {
    let mut slot = vec![0; 40 + 16 * lengths.len()];
    slot[..8].copy_from_slice(&WR_ID.to_ne_bytes());
    slot[16..20].copy_from_slice(&length.to_ne_bytes());
    slot[28..32].copy_from_slice(&(lengths.len() as u32).to_ne_bytes());
    for (index, length) in lengths.iter().enumerate() {
        let at = 40 + 16 * index + 8;
        slot[at..at + 4].copy_from_slice(&length.to_ne_bytes());
    }
    slot
}

// Rules: WRQ-3
#[test]
fn receives_are_decoded() {
    for (lengths, length, expected) in [
        (vec![], 0, Ok(0)),
        (vec![10, 20], 30, Ok(30)),
        (vec![u32::MAX], u32::MAX, Ok(u32::MAX)),
        (vec![u32::MAX, 1], 0, Err(Status::LocalLength)),
        (vec![10, 20], 31, Err(Status::LocalQpOperation)),
        (vec![1; 5], 5, Err(Status::LocalQpOperation)),
    ] {
        let slot = recv_slot(&lengths, length);
        let result = decode_recv(&slot, 4);
        if let Ok(wqe) = result {
            assert_eq!(wqe.wr_id, WR_ID);
            assert!(wqe.sges.map(|sge| sge.length).eq(lengths.iter().copied()));
        }
        let result = result.map(|wqe| wqe.length).map_err(|bad| {
            assert_eq!(bad.wr_id, WR_ID);
            bad.status
        });
        assert_eq!(result, expected, "{lengths:?}");
    }
    let slot = recv_slot(&[1; 4], 4);
    let expected = Err(refusal(Status::LocalQpOperation));
    assert_eq!(decode_recv(&slot[..slot.len() - 1], 4), expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]

    // Rules: WRQ-9
    #[test]
    fn whatever_a_process_writes_has_bounds(
        mut slot in proptest::collection::vec(any::<u8>(), 0..400),
        opcode in 0..20u32,
        flags in 0..20u32,
        count in 0..12u32,
        length in prop_oneof![0..100u32, any::<u32>()],
        consistent: bool,
        max_sge in 0..10u32,
        max_inline in 0..200u32,
    ) {
        let mut put = |at: usize, value: u32| {
            if let Some(to) = slot.get_mut(at..at + 4) {
                to.copy_from_slice(&value.to_ne_bytes());
            }
        };
        put(12, opcode);
        put(16, flags);
        put(196, count);
        put(184, length);
        if consistent {
            for index in 0..count {
                put(208 + 16 * index as usize + 8, length / 16);
            }
            put(184, count * (length / 16));
        }
        let wr_id = slot.first_chunk().copied().map_or(0, u64::from_ne_bytes);
        let limits = SendLimits { max_sge, max_inline, ..LIMITS };
        match decode_send(&slot, &limits) {
            Err(bad) => prop_assert_eq!(bad.wr_id, wr_id),
            Ok(wqe) => {
                prop_assert_eq!(wqe.wr_id, wr_id);
                prop_assert!(wqe.length <= MAX_MESSAGE_BYTES);
                match wqe.data {
                    // Its length is that of the peer's memory.
                    _ if matches!(wqe.op, SendOp::Flush { .. }) => {}
                    SendData::Inline(bytes) if matches!(wqe.op, SendOp::AtomicWrite { .. }) => {
                        prop_assert_eq!((bytes.len(), wqe.length), (8, 8));
                    }
                    SendData::Inline(bytes) => {
                        prop_assert_eq!(bytes.len(), wqe.length as usize);
                        prop_assert!(wqe.length <= max_inline);
                    }
                    SendData::Sges(sges) => {
                        prop_assert!(sges.count_left() <= max_sge as usize);
                        let sum: u64 = sges.map(|sge| u64::from(sge.length)).sum();
                        prop_assert_eq!(sum, u64::from(wqe.length));
                    }
                }
            }
        }
        if let Ok(wqe) = decode_recv(&slot, max_sge) {
            prop_assert!(wqe.sges.count_left() <= max_sge as usize);
            let sum: u64 = wqe.sges.map(|sge| u64::from(sge.length)).sum();
            prop_assert_eq!(sum, u64::from(wqe.length));
        }
    }
}

// Rules: CPL-14, CPL-23
#[test]
fn completions_are_encoded() {
    let completion = Completion {
        wr_id: WR_ID,
        status: Status::Success,
        op: CompletionOp::RecvRdmaWithImm,
        byte_len: 0x0102_0304,
        imm: Some(Imm([5, 6, 7, 8])),
        invalidated: None,
        qpn: Qpn::new(0x11),
        src_qp: Qpn::new(0x22),
        grh: false,
        solicited: true,
    };
    let u32_at = |cqe: &[u8; 48], at: usize| u32::from_ne_bytes(*cqe[at..].first_chunk().unwrap());
    let cqe = encode_completion(&completion, 1, None);
    assert_eq!(cqe[..8], WR_ID.to_ne_bytes());
    let fields = [8, 12, 16, 20, 28, 32, 36].map(|at| u32_at(&cqe, at));
    assert_eq!(fields, [0, 129, 0, 0x0102_0304, 0x11, 0x22, 2]);
    assert_eq!(cqe[24..28], [5, 6, 7, 8]);
    assert_eq!(cqe[40..], [0, 0, 0, 0, 0, 0, 1, 0]);

    let without = Completion {
        imm: None,
        op: CompletionOp::Read,
        ..completion
    };
    let cqe = encode_completion(&without, 1, None);
    assert_eq!([12, 24, 36].map(|at| u32_at(&cqe, at)), [2, 0, 0]);

    for (imm, flags) in [(None, 1), (Some(Imm([0; 4])), 3)] {
        let datagram = Completion {
            imm,
            grh: true,
            ..completion
        };
        for (arrival, sl) in [
            (None, 0),
            (Some((false, None)), 8 | 2),
            (Some((true, None)), 8 | 1),
            (Some((true, Some(5))), 8 | 1),
        ] {
            let arrival = arrival.map(|(ipv6, vlan)| Arrival { ipv6, vlan });
            let cqe = encode_completion(&datagram, 1, arrival);
            assert_eq!(u32_at(&cqe, 36), flags);
            assert_eq!(cqe[40..], [0, 0, 0, 0, sl, 0, 1, 0]);
        }
    }
    let invalidated = Completion {
        imm: None,
        invalidated: Some(Rkey(0x5566_7788)),
        op: CompletionOp::Recv,
        ..completion
    };
    let cqe = encode_completion(&invalidated, 1, None);
    assert_eq!(
        [12, 24, 36].map(|at| u32_at(&cqe, at)),
        [128, 0x5566_7788, 8]
    );

    let failed = Completion {
        status: Status::RnrRetryExceeded,
        ..completion
    };
    let cqe = encode_completion(&failed, 1, None);
    assert_eq!([8, 28].map(|at| u32_at(&cqe, at)), [13, 0x11]);
    let silent: Vec<u8> = [&cqe[12..28], &cqe[32..]].concat();
    assert!(silent.iter().all(|byte| *byte == 0));
}

/// Returns a datagram to queue pair 0x77 by the address handle `ah_num`.
fn datagram_slot(opcode: u32, ah_num: u32) -> Slot {
    let mut slot = Slot::new(opcode, 2);
    slot.u32(24, 0x77);
    slot.u32(28, 0x8899_aabb);
    slot.u32(36, ah_num);
    slot.with_sges(&[5, 6])
}

#[test]
fn datagrams_are_decoded() {
    for (opcode, imm) in [(2, None), (3, Some(Imm([1, 2, 3, 4])))] {
        let slot = datagram_slot(opcode, 9);
        let wqe = decode_datagram(&slot.0, &LIMITS).unwrap();
        assert_eq!((wqe.wr_id, wqe.length, wqe.imm), (WR_ID, 11, imm));
        let dest = DatagramDest {
            qpn: Qpn::new(0x77),
            qkey: Qkey(0x8899_aabb),
        };
        assert_eq!((wqe.dest, wqe.to), (dest, DatagramTo::Handle(9)));
        assert!(wqe.flags.signaled && !wqe.flags.solicited);
        assert!(matches!(wqe.data, SendData::Sges(sges) if sges.count_left() == 2));
    }
    let slot = datagram_slot(2, u32::MAX);
    let wqe = decode_datagram(&slot.0, &LIMITS).unwrap();
    assert_eq!(wqe.to, DatagramTo::Handle(u32::MAX));
}

#[test]
fn an_address_vector_is_decoded_where_there_is_no_handle() {
    let mut slot = datagram_slot(2, 0);
    for (place, byte) in slot.0[56..56 + 88].iter_mut().enumerate() {
        *byte = place as u8;
    }
    slot.u32(56 + 24, 0xf_edcb);
    let wqe = decode_datagram(&slot.0, &LIMITS).unwrap();
    let expected = AddressVector {
        port: 0,
        sgid_index: 28,
        dgid: core::array::from_fn(|place| 8 + place as u8),
        flow_label: 0xf_edcb,
        hop_limit: 29,
        traffic_class: 30,
    };
    assert_eq!(wqe.to, DatagramTo::Vector(expected));
}

// Rules: UDX-12
#[test]
fn what_is_no_datagram_is_refused() {
    let bad = Err(refusal(Status::LocalQpOperation));
    for opcode in [0, 1, 4, 5, 9, 99] {
        let slot = datagram_slot(opcode, 9);
        assert_eq!(decode_datagram(&slot.0, &LIMITS), bad, "opcode {opcode}");
    }
    let mut slot = datagram_slot(2, 9);
    slot.u32(24, 1 << 24);
    assert_eq!(decode_datagram(&slot.0, &LIMITS), bad);
    // The end of the slot, wherever it is.
    let slot = datagram_slot(2, 0);
    for len in 0..208 + 32 {
        assert!(
            decode_datagram(&slot.0[..len], &LIMITS).is_err(),
            "{len} bytes"
        );
    }
}

proptest! {
    #[test]
    fn any_datagram_is_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = decode_datagram(&bytes, &LIMITS);
    }
}
