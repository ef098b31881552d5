// SPDX-License-Identifier: GPL-2.0

//! Prints which operation each transport has, as the code has it: a line for each, with tabs
//! between its columns. `scripts/tables` makes a table of it.

use roce::abi::{decode_datagram, decode_send, send_wqe, sge, Poster, SendLimits};
use roce::opcode::{decode, encode, Operation, Transport};

/// Each posted operation, its number in `enum ib_wr_opcode`, and the packet that carries it.
const POSTED: [(&str, u32, Option<Operation>); 13] = [
    ("SEND", 2, Some(Operation::SendOnly)),
    ("SEND_WITH_IMM", 3, Some(Operation::SendOnlyImm)),
    ("SEND_WITH_INV", 9, Some(Operation::SendOnlyInvalidate)),
    ("RDMA_WRITE", 0, Some(Operation::WriteOnly)),
    ("RDMA_WRITE_WITH_IMM", 1, Some(Operation::WriteOnlyImm)),
    ("RDMA_READ", 4, Some(Operation::ReadRequest)),
    ("ATOMIC_CMP_AND_SWP", 5, Some(Operation::CompareSwap)),
    ("ATOMIC_FETCH_AND_ADD", 6, Some(Operation::FetchAdd)),
    ("ATOMIC_WRITE", 15, Some(Operation::AtomicWrite)),
    ("FLUSH", FLUSH, Some(Operation::Flush)),
    ("LOCAL_INV", 7, None),
    ("BIND_MW", 8, None),
    ("REG_MR", 32, None),
];

const FLUSH: u32 = 14;

/// With room for one SGE.
const SLOT_BYTES: usize = send_wqe::DATA + sge::SGE_BYTES;

const LIMITS: SendLimits = SendLimits {
    max_sge: 1,
    max_inline: 16,
    poster: Poster::Kernel,
};

/// Returns a work request of that opcode, for eight bytes of local memory.
fn slot(opcode: u32) -> [u8; SLOT_BYTES] {
    const LENGTH: usize = send_wqe::DMA + sge::dma::LENGTH;
    const NUM_SGE: usize = send_wqe::DMA + sge::dma::NUM_SGE;
    const SGE_LENGTH: usize = send_wqe::DATA + 8;
    const FLUSH_GLOBAL: u8 = 1;

    let mut slot = [0; SLOT_BYTES];
    let mut put = |at: usize, value: u32| slot[at..][..4].copy_from_slice(&value.to_ne_bytes());
    put(send_wqe::OPCODE, opcode);
    put(LENGTH, 8);
    put(NUM_SGE, 1);
    put(SGE_LENGTH, 8);
    if opcode == FLUSH {
        slot[send_wqe::FLUSH_TYPE] = FLUSH_GLOBAL;
    }
    slot
}

/// Returns true if a requester of that transport begins such a request.
fn requests(transport: Transport, opcode: u32, packet: Option<Operation>) -> bool {
    let slot = slot(opcode);
    let decoded = match transport {
        Transport::Ud => decode_datagram(&slot, &LIMITS).is_ok(),
        Transport::Rc | Transport::Uc => decode_send(&slot, &LIMITS).is_ok(),
    };
    decoded && packet.is_none_or(|packet| has(transport, packet))
}

fn has(transport: Transport, packet: Operation) -> bool {
    decode(encode(transport, packet)).is_ok()
}

fn main() {
    for (name, opcode, packet) in POSTED {
        print!("{name}");
        for transport in Transport::ALL {
            let requester = requests(transport, opcode, packet);
            let responder = packet.is_some_and(|packet| has(transport, packet));
            print!("\t{requester}\t{responder}");
        }
        println!();
    }
}
