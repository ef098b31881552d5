// SPDX-License-Identifier: GPL-2.0

//! The kernel as a user: a decoder reads the request that the kernel posted, and the kernel polls
//! the completion that was written.

use proptest::prelude::*;
use roce::abi::{
    decode_completion, decode_datagram, decode_recv, decode_send, encode_completion,
    encode_kernel_completion, encode_recv, encode_send, encode_sges, recv_wqe, send_wqe,
    AddressVector, Arrival, DatagramTo, PostedData, PostedSend, Poster, SendData, SendLimits, Sge,
};
use roce::completion::{Completion, CompletionOp, Status};
use roce::num::{Imm, Iova, Lkey, Qkey, Qpn, Rkey};
use roce::wr::{AtomicOp, Bind, DatagramDest, LocalOp, Register, Remote, SendFlags, SendOp};

const LIMITS: SendLimits = SendLimits {
    max_sge: 4,
    max_inline: 64,
    poster: Poster::Kernel,
};

const SLOT: usize = send_wqe::DATA + 64;
const REGISTER: SendOp = SendOp::Local(LocalOp::Register(Register {
    key: Rkey(0x12_3456),
    iova: Iova(0xffff_8880_1234_5678),
    access: 0b111,
}));

fn sges(lengths: &[u32]) -> Vec<Sge> {
    let sge = |(index, length): (usize, &u32)| Sge {
        addr: Iova(0xffff_8880_0000_0000 + index as u64),
        length: *length,
        lkey: Lkey(7 + index as u32),
    };
    lengths.iter().enumerate().map(sge).collect()
}

fn flags(raw: u8) -> SendFlags {
    SendFlags {
        fence: raw & 1 != 0,
        signaled: raw & 2 != 0,
        solicited: raw & 4 != 0,
    }
}

fn ops() -> Vec<SendOp> {
    let remote = Remote {
        iova: Iova(0x0123_4567_89ab_cdef),
        rkey: Rkey(0xcafe_f00d),
    };
    let imm = Some(Imm([1, 2, 3, 4]));
    let swap = AtomicOp::CompareSwap {
        compare: 5,
        swap: 6,
    };
    let rkey = Rkey(0x1234_5678);
    vec![
        SendOp::Send { imm: None },
        SendOp::Send { imm },
        SendOp::SendInvalidate { rkey },
        SendOp::Write { remote, imm: None },
        SendOp::Write { remote, imm },
        SendOp::Read { remote },
        SendOp::Atomic { remote, op: swap },
        SendOp::Atomic {
            remote,
            op: AtomicOp::FetchAdd { add: u64::MAX },
        },
    ]
}

fn post(op: SendOp, data: PostedData, raw_flags: u8) -> PostedSend {
    PostedSend {
        wr_id: 0xffff_8880_dead_beef,
        op,
        flags: flags(raw_flags),
        data,
        datagram: None,
    }
}

/// Returns a slot with old contents.
fn used_slot() -> Vec<u8> {
    vec![0xa5; SLOT]
}

#[test]
fn what_is_posted_is_decoded() {
    for raw_flags in 0..8 {
        for op in ops() {
            let lengths: &[u32] = match op {
                SendOp::Atomic { .. } => &[3, 5],
                _ => &[0, 100, 7],
            };
            let posted = sges(lengths);
            let mut slot = used_slot();
            let data = encode_sges(&mut slot[send_wqe::DATA..], posted.iter().copied()).unwrap();
            let wr = post(op, PostedData::Sges(data), raw_flags);
            let len = encode_send(&mut slot, &wr).unwrap();
            assert_eq!(len, send_wqe::DATA + 16 * lengths.len());
            let wqe = decode_send(&slot[..len], &LIMITS).unwrap();
            assert_eq!((wqe.wr_id, wqe.op, wqe.flags), (wr.wr_id, op, wr.flags));
            assert_eq!(wqe.length, lengths.iter().sum::<u32>());
            let SendData::Sges(decoded) = wqe.data else {
                panic!("{:?}", wqe.data);
            };
            assert_eq!(decoded.collect::<Vec<_>>(), posted);
        }
    }
}

#[test]
fn inline_data_are_decoded() {
    let remote = Remote {
        iova: Iova(8),
        rkey: Rkey(9),
    };
    for op in [SendOp::Send { imm: None }, SendOp::AtomicWrite { remote }] {
        let mut slot = used_slot();
        slot[send_wqe::DATA..][..8].copy_from_slice(b"in line!");
        let len = encode_send(&mut slot, &post(op, PostedData::Inline(8), 2)).unwrap();
        let wqe = decode_send(&slot[..len], &LIMITS).unwrap();
        assert_eq!((wqe.op, wqe.length), (op, 8));
        assert_eq!(wqe.data, SendData::Inline(b"in line!"));
    }
}

// Rules: INV-11
#[test]
fn local_work_is_decoded_and_a_process_may_not_register() {
    let invalidate = SendOp::Local(LocalOp::Invalidate { rkey: Rkey(77) });
    for op in [REGISTER, invalidate] {
        let mut slot = used_slot();
        let len = encode_send(&mut slot, &post(op, PostedData::Inline(0), 2)).unwrap();
        let wqe = decode_send(&slot[..len], &LIMITS).unwrap();
        assert_eq!((wqe.op, wqe.length), (op, 0));
        let process = SendLimits {
            poster: Poster::Process,
            ..LIMITS
        };
        let is_refused = decode_send(&slot[..len], &process).is_err();
        assert_eq!(is_refused, op == REGISTER);
    }
}

#[test]
fn what_the_kernel_cannot_post_is_not_encoded() {
    let bind = SendOp::Local(LocalOp::Bind(Bind {
        window: Rkey(1),
        key: Rkey(2),
        lkey: Lkey(3),
        iova: Iova(4),
        length: 5,
        access: 6,
    }));
    let wr = post(bind, PostedData::Inline(0), 0);
    assert_eq!(encode_send(&mut used_slot(), &wr), None);
    // A slot that is too short, wherever it ends.
    let send = post(SendOp::Send { imm: None }, PostedData::Inline(64), 0);
    for len in 0..SLOT {
        assert_eq!(encode_send(&mut vec![0; len], &send), None, "{len}");
    }
    // More SGEs than there is room for, or more bytes than can be counted.
    let room = &mut [0; 40];
    assert!(encode_sges(room, sges(&[1, 2]).into_iter()).is_some());
    assert!(encode_sges(room, sges(&[1, 2, 3]).into_iter()).is_none());
    assert!(encode_sges(room, sges(&[1, u32::MAX]).into_iter()).is_none());
}

#[test]
fn datagrams_are_decoded() {
    let dest = DatagramDest {
        qpn: Qpn::new(0x12_3456),
        qkey: Qkey(0x8001_0000),
    };
    let vector = AddressVector {
        port: 1,
        sgid_index: 200,
        dgid: core::array::from_fn(|place| place as u8),
        flow_label: 0xf_edcb,
        hop_limit: 64,
        traffic_class: 0xb8,
    };
    for imm in [None, Some(Imm([4, 3, 2, 1]))] {
        let mut slot = used_slot();
        let posted = sges(&[24, 232]);
        let data = encode_sges(&mut slot[send_wqe::DATA..], posted.into_iter()).unwrap();
        let wr = PostedSend {
            datagram: Some((dest, vector)),
            ..post(SendOp::Send { imm }, PostedData::Sges(data), 6)
        };
        let len = encode_send(&mut slot, &wr).unwrap();
        let wqe = decode_datagram(&slot[..len], &LIMITS).unwrap();
        assert_eq!((wqe.wr_id, wqe.imm, wqe.length), (wr.wr_id, imm, 256));
        assert_eq!((wqe.dest, wqe.to), (dest, DatagramTo::Vector(vector)));
        assert_eq!(wqe.flags, wr.flags);
    }
}

#[test]
fn receives_are_decoded() {
    for lengths in [&[][..], &[4096], &[1, 2, 3]] {
        let posted = sges(lengths);
        let mut slot = used_slot();
        let data = encode_sges(&mut slot[recv_wqe::DATA..], posted.iter().copied()).unwrap();
        let len = encode_recv(&mut slot, u64::MAX - 1, data).unwrap();
        let wqe = decode_recv(&slot[..len], 3).unwrap();
        assert_eq!(wqe.wr_id, u64::MAX - 1);
        assert_eq!(wqe.length, lengths.iter().sum::<u32>());
        assert_eq!(wqe.sges.collect::<Vec<_>>(), posted);
        assert_eq!(encode_recv(&mut slot[..len - 1], 0, data), None);
    }
}

fn completion() -> Completion {
    Completion {
        wr_id: 0xffff_8880_dead_beef,
        status: Status::Success,
        op: CompletionOp::Recv,
        byte_len: 296,
        imm: None,
        invalidated: None,
        qpn: Qpn::new(1),
        src_qp: Qpn::new(0xabcdef),
        grh: true,
        solicited: false,
    }
}

#[test]
fn completions_are_polled_as_they_were_written() {
    let arrivals = [
        (false, None),
        (true, None),
        (true, Some(0)),
        (false, Some(4094)),
    ];
    for (ipv6, vlan) in arrivals {
        let arrival = Arrival { ipv6, vlan };
        let slot = encode_kernel_completion(&completion(), 1, Some(arrival));
        // Processes read the same.
        assert_eq!(
            slot[..48],
            encode_completion(&completion(), 1, Some(arrival))
        );
        let polled = decode_completion(&slot).unwrap();
        assert_eq!(polled.arrival, Some(arrival));
        assert_eq!((polled.wr_id, polled.byte_len), (completion().wr_id, 296));
        assert_eq!((polled.opcode, polled.status), (128, Status::Success));
        assert_eq!((polled.qpn.get(), polled.src_qp.get()), (1, 0xabcdef));
        assert_eq!(
            (polled.port, polled.imm, polled.invalidated),
            (1, None, None)
        );
    }
    let imm = Completion {
        imm: Some(Imm([1, 2, 3, 4])),
        grh: false,
        ..completion()
    };
    let polled = decode_completion(&encode_kernel_completion(&imm, 1, None)).unwrap();
    assert_eq!((polled.imm, polled.arrival), (imm.imm, None));
    let inv = Completion {
        invalidated: Some(Rkey(0x1234)),
        op: CompletionOp::Register,
        ..completion()
    };
    let polled = decode_completion(&encode_kernel_completion(&inv, 1, None)).unwrap();
    assert_eq!((polled.invalidated, polled.opcode), (inv.invalidated, 10));
}

// Rules: CPL-23
#[test]
fn every_status_is_polled() {
    for code in 0..32 {
        let Some(status) = Status::from_code(code) else {
            continue;
        };
        assert_eq!(status as u32, code);
        let failed = Completion {
            status,
            ..completion()
        };
        let polled = decode_completion(&encode_kernel_completion(&failed, 1, None)).unwrap();
        assert_eq!((polled.status, polled.wr_id), (status, failed.wr_id));
    }
}

proptest! {
    #[test]
    fn any_slot_is_decoded_or_not(bytes: [[u8; 32]; 2]) {
        let mut slot = [0; 64];
        slot.copy_from_slice(bytes.as_flattened());
        let _ = decode_completion(&slot);
    }
}
