// SPDX-License-Identifier: GPL-2.0

//! Sequences of packets, all of them up to a length, against an automaton that knows nothing of the
//! requester and the responder but the rules.

use roce::num::{Imm, Rkey};
use roce::recv::RecvState;
use roce::wire::{Feth, Request, SendEnd};
use roce::wr::{SendFlags, SendOp};

use crate::net::{
    atomic_write, compare_swap, fetch_add, flush, read, remote, send, send_imm, send_invalidate,
    write, write_imm,
};
use crate::{requester, responder};

const MTU: u32 = 256;
/// The length of a WRITE of several packets.
const WRITTEN: u32 = 2 * MTU + 1;
const IMM: [u8; 4] = [1, 2, 3, 4];

/// The message that the next packet may be in, or none.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Within {
    Nothing,
    Send,
    /// A WRITE with so many bytes to come.
    Write(u32),
}

impl Within {
    /// Returns the state after a packet of `len` bytes, if it is allowed.
    fn after(self, request: &Request, len: u32) -> Option<Self> {
        use Within::{Nothing, Send, Write};
        let full = len == MTU;
        let some = 0 < len && len <= MTU;
        let (may, next) = match (self, request) {
            (Nothing, Request::SendFirst) => (full, Send),
            (Send, Request::SendMiddle) => (full, Send),
            (Send, Request::SendLast(_)) => (some, Nothing),
            (Nothing, Request::SendOnly(_)) => (len <= MTU, Nothing),
            (Nothing, Request::WriteFirst(reth)) => (
                full && reth.length > MTU,
                Write(reth.length.wrapping_sub(MTU)),
            ),
            (Write(left), Request::WriteMiddle) => {
                (full && left > MTU, Write(left.wrapping_sub(MTU)))
            }
            (Write(left), Request::WriteLast(_)) => (some && left == len, Nothing),
            (Nothing, Request::WriteOnly(reth, _)) => (len <= MTU && reth.length == len, Nothing),
            (Nothing, Request::AtomicWrite(_)) => (len == 8, Nothing),
            (
                Nothing,
                Request::Read(_)
                | Request::CompareSwap(_)
                | Request::FetchAdd(_)
                | Request::Flush(..),
            ) => (len == 0, Nothing),
            _ => (false, Nothing),
        };
        may.then_some(next)
    }
}

/// Returns every kind of request, each with the length of its packet.
fn symbols() -> Vec<(Request, u32)> {
    use responder::{atomic_eth, reth, REVOCABLE};
    let imm = Imm(IMM);
    let ends = [
        SendEnd::Plain,
        SendEnd::Imm(imm),
        SendEnd::Invalidate(Rkey(REVOCABLE)),
    ];
    let feth = Feth {
        placement: 1,
        selectivity: 0,
    };
    let mut symbols = vec![
        (Request::SendFirst, MTU),
        (Request::SendMiddle, MTU),
        (Request::WriteFirst(reth(0, WRITTEN)), MTU),
        (Request::WriteMiddle, MTU),
        (Request::WriteOnly(reth(0, 5), None), 5),
        (Request::WriteOnly(reth(0, 5), Some(imm)), 5),
        (Request::Read(reth(0, 300)), 0),
        (Request::CompareSwap(atomic_eth(0, 1, 2)), 0),
        (Request::FetchAdd(atomic_eth(0, 1, 2)), 0),
        (Request::AtomicWrite(reth(0, 8)), 8),
        (Request::Flush(feth, reth(0, 8)), 0),
    ];
    symbols.extend(ends.map(|end| (Request::SendLast(end), 7)));
    symbols.extend(ends.map(|end| (Request::SendOnly(end), 7)));
    for imm in [None, Some(imm)] {
        // The end of the WRITE, and one that is too early or too late.
        symbols.push((Request::WriteLast(imm), 1));
        symbols.push((Request::WriteLast(imm), MTU));
    }
    symbols
}

/// Delivers `sequence` to a responder. All but the last packet are allowed. Returns whether it
/// took that.
fn takes(sequence: &[(Request, u32)]) -> bool {
    let mut lone = responder::Lone::with_receives(sequence.len() as u64, 4 * MTU);
    let mut psn = 0;
    for (request, len) in sequence {
        assert_eq!(lone.state(), RecvState::Running, "{sequence:?}");
        lone.grant_again();
        lone.request(psn, *request, *len);
        let is_read = matches!(request, Request::Read(_));
        psn += if is_read { 2 } else { 1 };
        lone.replies();
    }
    lone.state() == RecvState::Running
}

// Rules: RSP-1, RSP-2, RSP-3, RSP-4
#[test]
fn a_responder_takes_what_an_automaton_takes() {
    let symbols = symbols();
    let mut legal = vec![(Within::Nothing, Vec::new())];
    let mut looked_at = 0;
    for _ in 0..4 {
        let mut longer = Vec::new();
        for (within, sequence) in legal {
            for symbol in &symbols {
                let next = within.after(&symbol.0, symbol.1);
                let mut sequence: Vec<(Request, u32)> = Vec::clone(&sequence);
                sequence.push(*symbol);
                assert_eq!(takes(&sequence), next.is_some(), "{sequence:?}");
                looked_at += 1;
                if let Some(next) = next {
                    longer.push((next, sequence));
                }
            }
        }
        legal = longer;
    }
    assert!(looked_at > 10_000, "{looked_at}");
}

/// Returns all messages that a requester may send, with lengths at which something changes.
fn messages() -> Vec<(SendOp, u32)> {
    let lengths = [0, 1, MTU - 1, MTU, MTU + 1, 2 * MTU, 3 * MTU, 3 * MTU + 2];
    let ops = [
        send(),
        send_imm(IMM),
        send_invalidate(5),
        write(0x40),
        write_imm(0x40, IMM),
    ];
    let mut messages = Vec::new();
    for op in ops {
        messages.extend(lengths.map(|len| (op, len)));
    }
    messages.extend([0, 1, 700].map(|len| (read(0x40), len)));
    messages.extend([
        (fetch_add(0x40, 1), 8),
        (compare_swap(0x40, 1, 2), 8),
        (atomic_write(0x40), 8),
        (flush(0x40, false), 5000),
    ]);
    messages
}

/// Returns true if the last packet of a message has the immediate data or key of the message.
fn brings(op: &SendOp, request: &Request) -> bool {
    match (op, request) {
        (SendOp::Send { imm: None }, Request::SendLast(end) | Request::SendOnly(end)) => {
            *end == SendEnd::Plain
        }
        (SendOp::Send { imm: Some(imm) }, Request::SendLast(end) | Request::SendOnly(end)) => {
            *end == SendEnd::Imm(*imm)
        }
        (SendOp::SendInvalidate { rkey }, Request::SendLast(end) | Request::SendOnly(end)) => {
            *end == SendEnd::Invalidate(*rkey)
        }
        (SendOp::Write { imm, .. }, Request::WriteLast(sent) | Request::WriteOnly(_, sent)) => {
            imm == sent
        }
        (SendOp::Read { .. }, Request::Read(_))
        | (SendOp::AtomicWrite { .. }, Request::AtomicWrite(_))
        | (SendOp::Flush { .. }, Request::Flush(..)) => true,
        (SendOp::Atomic { .. }, Request::CompareSwap(_) | Request::FetchAdd(_)) => true,
        _ => false,
    }
}

/// Checks the packets sent for `messages` with the automaton.
fn follow(messages: &[(SendOp, u32)], sent: &[(u32, Request, u32)]) {
    let mut packets = sent.iter();
    let mut psn = 0;
    for (op, length) in messages {
        let mut within = Within::Nothing;
        let mut left = match op {
            SendOp::Read { .. } | SendOp::Atomic { .. } | SendOp::Flush { .. } => 0,
            _ => *length,
        };
        loop {
            let (number, request, len) = packets.next().expect("a packet more");
            assert_eq!(*number, psn, "{messages:?}");
            psn += match op {
                SendOp::Read { .. } => length.div_ceil(MTU).max(1),
                _ => 1,
            };
            within = within.after(request, *len).expect("it may come");
            if let Request::WriteFirst(reth) | Request::WriteOnly(reth, _) = request {
                assert_eq!((reth.iova, reth.length), (remote(0x40).iova, *length));
            }
            left -= len;
            if within == Within::Nothing {
                assert!(brings(op, request), "{op:?}: {request:?}");
                break;
            }
        }
        assert_eq!(left, 0, "{op:?} of {length}");
    }
    assert_eq!(packets.next(), None);
}

/// For each message, and each pair of messages: the requester sends the allowed packets, and all of
/// them.
// Rules: ORD-1, SEG-1, SEG-2, SEG-3, SEG-4, SEG-5, SEG-8, SEG-9, SEG-10
#[test]
fn a_requester_sends_what_a_responder_takes() {
    let messages = messages();
    for first in &messages {
        for second in &messages {
            let mut lone = requester::Lone::with_depth(8);
            for (id, (op, len)) in [first, second].into_iter().enumerate() {
                lone.post(id as u64, *op, *len, SendFlags::default());
            }
            follow(&[*first, *second], &lone.poll_all());
        }
    }
}
