// SPDX-License-Identifier: GPL-2.0

//! Fuzz targets for the protocol. Each takes bytes, runs a part of the protocol on them, and panics
//! on a fault.
//!
//! The fuzzer finds inputs that reach new code. Those that it found are in `corpus`, and an
//! ordinary test runs them. `make fuzz` searches for more.

#[path = "../roce/tests/rc/adversary.rs"]
#[allow(dead_code)]
mod adversary;
#[path = "../roce/tests/rc/net.rs"]
#[allow(dead_code)]
mod net;
mod reorder;
mod rng;
#[path = "../rdma/ring/shape.rs"]
#[allow(dead_code)]
mod shape;
#[path = "../roce/tests/rc/world.rs"]
#[allow(dead_code)]
mod world;

use roce::abi::{
    cqe, decode_completion, decode_datagram, decode_recv, decode_send, Poster, SendData,
    SendLimits, Sges,
};
use roce::limits::MAX_MESSAGE_BYTES;
use roce::wire::{self, Body, HeaderBytes, Request, ICRC_BYTES, MAX_HEADER};
use roce::wr::SendOp;

use adversary::Victim;
use rng::Rng;
use shape::Shape;

pub use reorder::reorder;

/// A target: its name and function.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 4] = [
    ("packet", packet),
    ("request", request),
    ("endpoint", endpoint),
    ("reorder", reorder),
];

/// Parses the payload of a UDP datagram. A parsed packet is emitted again with the same bytes,
/// apart from reserved fields.
pub fn packet(input: &[u8]) {
    let header = &input[..input.len().min(MAX_HEADER)];
    let Ok(len) = u32::try_from(input.len()) else {
        return;
    };
    let Ok(packet) = wire::parse(header, len) else {
        return;
    };
    let emitted = HeaderBytes::new(&packet.bth, &packet.body);
    let emitted = emitted.as_bytes();
    assert_eq!(packet.payload_at(len) as usize, emitted.len());
    let behind = packet.payload_len + u32::from(packet.bth.pad) + ICRC_BYTES;
    assert_eq!(behind % 4, 0, "words");
    let mut expected = input[..emitted.len()].to_vec();
    expected[4] &= 0xc0;
    expected[8] &= 0x80;
    match packet.body {
        Body::Datagram(_) => expected[16] = 0,
        Body::Request(Request::Flush(feth, _)) => {
            expected[12..15].fill(0);
            expected[15] &= 0x3f;
            let _ = feth.flush();
        }
        _ => {}
    }
    assert_eq!(emitted, expected);
    // Again it is the same.
    assert_eq!(wire::parse(&expected, len), Ok(packet));
}

/// Decodes a slot of a ring. The attributes of its queue are in front. The result keeps to these.
pub fn request(input: &[u8]) {
    let Some((&[how, max_sge, max_inline, entries], slot)) = input.split_first_chunk() else {
        return;
    };
    let limits = SendLimits {
        max_sge: max_sge.into(),
        max_inline: max_inline.into(),
        poster: match how & 1 {
            0 => Poster::Process,
            _ => Poster::Kernel,
        },
    };
    let wr_id = slot.first_chunk().copied().map_or(0, u64::from_ne_bytes);
    match decode_send(slot, &limits) {
        Ok(wqe) => {
            assert_eq!(wqe.wr_id, wr_id);
            data(&wqe.op, wqe.length, wqe.data, &limits);
        }
        Err(bad) => assert_eq!(bad.wr_id, wr_id),
    }
    match decode_datagram(slot, &limits) {
        Ok(wqe) => {
            let op = SendOp::Send { imm: wqe.imm };
            data(&op, wqe.length, wqe.data, &limits);
        }
        Err(bad) => assert_eq!(bad.wr_id, wr_id),
    }
    match decode_recv(slot, limits.max_sge) {
        Ok(wqe) => sum(wqe.sges, wqe.length, &limits),
        Err(bad) => assert_eq!(bad.wr_id, wr_id),
    }
    if let Some(cqe) = slot.first_chunk::<{ cqe::SLOT_BYTES }>() {
        let _ = decode_completion(cqe);
    }
    ring(entries, slot);
}

fn data(op: &SendOp, length: u32, data: SendData<'_>, limits: &SendLimits) {
    match (op, data) {
        // Its length is that of the peer's memory.
        (SendOp::Flush { .. }, data) => assert_eq!(data, SendData::Inline(&[])),
        (SendOp::Local(_), data) => assert_eq!((data, length), (SendData::Inline(&[]), 0)),
        (SendOp::AtomicWrite { .. }, SendData::Inline(bytes)) => {
            assert_eq!((bytes.len(), length), (8, 8));
        }
        (op, SendData::Inline(bytes)) => {
            assert_eq!(bytes.len(), length as usize);
            assert!(length <= limits.max_inline && !op.writes_locally());
        }
        (_, SendData::Sges(sges)) => {
            assert!(length <= MAX_MESSAGE_BYTES);
            sum(sges, length, limits);
        }
    }
}

fn sum(sges: Sges<'_>, length: u32, limits: &SendLimits) {
    assert!(sges.count_left() <= limits.max_sge as usize);
    let sum: u64 = sges.map(|sge| u64::from(sge.length)).sum();
    assert_eq!(sum, u64::from(length));
}

/// Feeds arbitrary indices to a ring.
fn ring(entries: u8, stored: &[u8]) {
    let Some(ring) = Shape::new(entries.into(), 64) else {
        return;
    };
    let mut words = stored
        .chunks_exact(4)
        .map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
    while let (Some(producer), Some(consumer)) = (words.next(), words.next()) {
        let used = ring.used(producer, consumer);
        assert_eq!(used + ring.free(producer, consumer), ring.capacity());
        for index in [producer, consumer] {
            assert!(ring.offset(index) + ring.slot_bytes() <= ring.bytes());
            assert!(ring.next(index) < ring.slots());
        }
    }
}

/// Runs a queue pair on a sequence of packets of a peer, verbs of the owner and time.
pub fn endpoint(input: &[u8]) {
    let mut victim = Victim::new(Rng::of_bytes(input));
    while !victim.rng.is_over() {
        victim.live();
    }
    victim.end();
}
