// SPDX-License-Identifier: GPL-2.0

//! `struct ib_uverbs_wc`: a completion.

use super::{bytes_at, put, u32_at, u64_at};
use crate::completion::{Completion, Status};
use crate::num::{Imm, Qpn, Rkey};

/// Bytes of the structure. A ring slot is the next power of two.
pub const CQE_BYTES: usize = 48;
/// Bytes of a slot in a completion queue.
pub const SLOT_BYTES: usize = 64;

/// Offset of `wr_id`.
pub const WR_ID: usize = 0;
/// Offset of `status`.
pub const STATUS: usize = 8;
/// Offset of `opcode`.
pub const OPCODE: usize = 12;
/// Offset of `vendor_err`.
pub const VENDOR_ERR: usize = 16;
/// Offset of `byte_len`.
pub const BYTE_LEN: usize = 20;
/// Offset of `ex`: immediate data or an invalidated key.
pub const EX: usize = 24;
/// Offset of `qp_num`.
pub const QP_NUM: usize = 28;
/// Offset of `src_qp`.
pub const SRC_QP: usize = 32;
/// Offset of `wc_flags`.
pub const WC_FLAGS: usize = 36;
/// Offset of `sl`.
pub const SL: usize = 44;
/// Offset of `port_num`.
pub const PORT_NUM: usize = 46;

/// `IB_WC_GRH`.
const GRH: u32 = 1 << 0;
/// `IB_WC_WITH_IMM`.
const WITH_IMM: u32 = 1 << 1;
/// `IB_WC_WITH_INVALIDATE`.
const WITH_INVALIDATE: u32 = 1 << 3;

/// How a datagram arrived, in `sl`, which means nothing else with RoCE. mlx5 fills it like this, and UCX
/// before 1.19 finds a datagram's GIDs by it.
mod sl {
    pub(super) const IPV6: u8 = 1;
    pub(super) const IPV4: u8 = 2;
    pub(super) const UDP: u8 = 1 << 3;
}

/// Fields that only completions for kernel users have, behind the structure.
mod kernel {
    /// Flags, and the number of a VLAN.
    pub(super) const ARRIVAL: usize = super::CQE_BYTES;

    pub(super) const IPV6: u8 = 1 << 0;
    pub(super) const VLAN: u8 = 1 << 1;
}

/// Encodes a completion as the process will read it. `port_num` is the device's port, `arrival` says how
/// the datagram arrived that it is of.
///
/// Fields without a meaning in a completion with an error are 0.
pub fn encode_completion(
    completion: &Completion,
    port_num: u8,
    arrival: Option<Arrival>,
) -> [u8; CQE_BYTES] {
    let mut cqe = [0; CQE_BYTES];
    // All of it is within the structure.
    let _ = encode(&mut cqe, completion, port_num, arrival);
    cqe
}

fn encode(
    cqe: &mut [u8],
    completion: &Completion,
    port_num: u8,
    arrival: Option<Arrival>,
) -> Option<()> {
    put(cqe, WR_ID, completion.wr_id.to_ne_bytes())?;
    put(cqe, STATUS, (completion.status as u32).to_ne_bytes())?;
    put(cqe, QP_NUM, completion.qpn.get().to_ne_bytes())?;
    // Rules: CPL-14
    if completion.status != Status::Success {
        return Some(());
    }
    put(cqe, OPCODE, (completion.op as u32).to_ne_bytes())?;
    put(cqe, BYTE_LEN, completion.byte_len.to_ne_bytes())?;
    put(cqe, SRC_QP, completion.src_qp.get().to_ne_bytes())?;
    let mut flags = if completion.grh { GRH } else { 0 };
    if let Some(imm) = completion.imm {
        put(cqe, EX, imm.0)?;
        flags |= WITH_IMM;
    } else if let Some(rkey) = completion.invalidated {
        put(cqe, EX, rkey.0.to_ne_bytes())?;
        flags |= WITH_INVALIDATE;
    }
    put(cqe, WC_FLAGS, flags.to_ne_bytes())?;
    if let Some(arrival) = arrival {
        put(cqe, SL, [arrival.sl()])?;
    }
    put(cqe, PORT_NUM, [port_num])
}

/// How a datagram arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// It came by IPv6, and not by IPv4.
    pub ipv6: bool,
    /// The VLAN that it came by.
    pub vlan: Option<u16>,
}

impl Arrival {
    fn sl(self) -> u8 {
        sl::UDP | if self.ipv6 { sl::IPV6 } else { sl::IPV4 }
    }
}

/// Encodes a completion for the kernel, with how the datagram arrived that it is of.
pub fn encode_kernel_completion(
    completion: &Completion,
    port_num: u8,
    arrival: Option<Arrival>,
) -> [u8; SLOT_BYTES] {
    let mut cqe = [0; SLOT_BYTES];
    // All of it is within the slot.
    let _ = encode(&mut cqe, completion, port_num, arrival);
    if let Some(arrival) = arrival {
        let ipv6 = if arrival.ipv6 { kernel::IPV6 } else { 0 };
        let tagged = arrival.vlan.map_or(0, |_| kernel::VLAN);
        let [low, high] = arrival.vlan.unwrap_or(0).to_ne_bytes();
        let _ = put(&mut cqe, kernel::ARRIVAL, [ipv6 | tagged, low, high]);
    }
    cqe
}

/// A completion as the kernel polls it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelCompletion {
    /// The name that the poster gave the request.
    pub wr_id: u64,
    /// How it ended. Unless it is [`Status::Success`], only `wr_id` and `qpn` mean anything beside
    /// it.
    pub status: Status,
    /// The kind of work: the number of a [`CompletionOp`](crate::completion::CompletionOp).
    pub opcode: u32,
    /// Bytes of it.
    pub byte_len: u32,
    /// Immediate data.
    pub imm: Option<Imm>,
    /// The key that the message had us invalidate.
    pub invalidated: Option<Rkey>,
    /// The local queue pair.
    pub qpn: Qpn,
    /// The queue pair that sent it.
    pub src_qp: Qpn,
    /// The port.
    pub port: u8,
    /// How the datagram arrived. Its memory starts with its IP header. `None` for other operations.
    pub arrival: Option<Arrival>,
}

/// Returns the queue pair of a completion.
pub fn qpn_of(cqe: &[u8]) -> Option<Qpn> {
    u32_at(cqe, QP_NUM).map(Qpn::new)
}

/// Decodes a completion of [`encode_kernel_completion`]; `None` for anything else.
pub fn decode_completion(cqe: &[u8; SLOT_BYTES]) -> Option<KernelCompletion> {
    let flags = u32_at(cqe, WC_FLAGS)?;
    let has = |flag| flags & flag != 0;
    let [how, low, high] = bytes_at(cqe, kernel::ARRIVAL)?;
    let tagged = how & kernel::VLAN != 0;
    let [port] = bytes_at(cqe, PORT_NUM)?;
    Some(KernelCompletion {
        wr_id: u64_at(cqe, WR_ID)?,
        status: Status::from_code(u32_at(cqe, STATUS)?)?,
        opcode: u32_at(cqe, OPCODE)?,
        byte_len: u32_at(cqe, BYTE_LEN)?,
        imm: has(WITH_IMM).then(|| bytes_at(cqe, EX).map(Imm)).flatten(),
        invalidated: has(WITH_INVALIDATE)
            .then(|| u32_at(cqe, EX).map(Rkey))
            .flatten(),
        qpn: qpn_of(cqe)?,
        src_qp: Qpn::new(u32_at(cqe, SRC_QP)?),
        port,
        arrival: has(GRH).then_some(Arrival {
            ipv6: how & kernel::IPV6 != 0,
            vlan: tagged.then_some(u16::from_ne_bytes([low, high])),
        }),
    })
}
