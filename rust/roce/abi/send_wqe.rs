// SPDX-License-Identifier: GPL-2.0

//! `struct rxe_send_wqe`: a send work request.

use super::sge::{dma, Sges};
use super::{bytes_at, put, u32_at, u64_at};
use crate::completion::Status;
use crate::limits;
use crate::num::{Imm, Iova, Lkey, Qkey, Qpn, Rkey};
use crate::wire::Feth;
use crate::wr::{
    AtomicOp, BadRequest, Bind, DatagramDest, LocalOp, Register, Remote, SendFlags, SendOp,
    ATOMIC_BYTES,
};

/// Offset of `wr.wr_id`.
pub const WR_ID: usize = 0;
/// Offset of `wr.opcode`.
pub const OPCODE: usize = 12;
/// Offset of `wr.send_flags`.
pub const SEND_FLAGS: usize = 16;
/// Offset of `wr.ex`: immediate data or a key to invalidate.
pub const EX: usize = 20;
/// Offset of `wr.wr.rdma.remote_addr`.
pub const RDMA_REMOTE_ADDR: usize = 24;
/// Offset of `wr.wr.rdma.rkey`.
pub const RDMA_RKEY: usize = 32;
/// Offset of `wr.wr.ud.remote_qpn`.
pub const UD_REMOTE_QPN: usize = 24;
/// Offset of `wr.wr.ud.remote_qkey`.
pub const UD_REMOTE_QKEY: usize = 28;
/// Offset of `wr.wr.ud.ah_num`.
pub const UD_AH_NUM: usize = 36;
/// Offset of `wr.wr.ud.av`.
pub const UD_AV: usize = 56;
/// Offset of `wr.wr.atomic.remote_addr`.
pub const ATOMIC_REMOTE_ADDR: usize = 24;
/// Offset of `wr.wr.atomic.compare_add`.
pub const ATOMIC_COMPARE_ADD: usize = 32;
/// Offset of `wr.wr.atomic.swap`.
pub const ATOMIC_SWAP: usize = 40;
/// Offset of `wr.wr.atomic.rkey`.
pub const ATOMIC_RKEY: usize = 48;
/// Offset of `wr.wr.flush.remote_addr`.
pub const FLUSH_REMOTE_ADDR: usize = 24;
/// Offset of `wr.wr.flush.rkey`.
pub const FLUSH_RKEY: usize = 36;
/// Offset of `wr.wr.flush.type`.
pub const FLUSH_TYPE: usize = 40;
/// Offset of `wr.wr.flush.level`.
pub const FLUSH_LEVEL: usize = 41;
/// Offset of `wr.wr.mw.addr`.
pub const MW_ADDR: usize = 24;
/// Offset of `wr.wr.mw.length`.
pub const MW_LENGTH: usize = 32;
/// Offset of `wr.wr.mw.mr_lkey`.
pub const MW_MR_LKEY: usize = 40;
/// Offset of `wr.wr.mw.mw_rkey`.
pub const MW_MW_RKEY: usize = 44;
/// Offset of `wr.wr.mw.rkey`.
pub const MW_RKEY: usize = 48;
/// Offset of `wr.wr.mw.access`.
pub const MW_ACCESS: usize = 52;
/// Offset of `dma`.
pub const DMA: usize = 184;
/// Offset of the SGEs or inline data: the size of the structure.
pub const DATA: usize = DMA + dma::DATA;

/// Offsets in `struct rxe_av` and the `struct rxe_global_route` in it.
pub mod av {
    /// `port_num`.
    pub const PORT_NUM: usize = 0;
    /// `grh.dgid`.
    pub const DGID: usize = 8;
    /// `grh.flow_label`.
    pub const FLOW_LABEL: usize = 24;
    /// `grh.sgid_index`.
    pub const SGID_INDEX: usize = 28;
    /// `grh.hop_limit`.
    pub const HOP_LIMIT: usize = 29;
    /// `grh.traffic_class`.
    pub const TRAFFIC_CLASS: usize = 30;
}

/// Opcodes, `enum ib_uverbs_wr_opcode` and, for the kernel, `enum ib_wr_opcode`.
mod op {
    pub(super) const WRITE: u32 = 0;
    pub(super) const WRITE_IMM: u32 = 1;
    pub(super) const SEND: u32 = 2;
    pub(super) const SEND_IMM: u32 = 3;
    pub(super) const READ: u32 = 4;
    pub(super) const COMPARE_SWAP: u32 = 5;
    pub(super) const FETCH_ADD: u32 = 6;
    pub(super) const LOCAL_INVALIDATE: u32 = 7;
    pub(super) const BIND_WINDOW: u32 = 8;
    pub(super) const SEND_INVALIDATE: u32 = 9;
    pub(super) const FLUSH: u32 = 14;
    pub(super) const ATOMIC_WRITE: u32 = 15;
    /// The kernel's alone.
    pub(super) const REGISTER: u32 = 0x20;
}

/// Flags, `enum ib_send_flags`.
mod flag {
    pub(super) const FENCE: u32 = 1 << 0;
    pub(super) const SIGNALED: u32 = 1 << 1;
    pub(super) const SOLICITED: u32 = 1 << 2;
    pub(super) const INLINE: u32 = 1 << 3;
    pub(super) const KNOWN: u32 = FENCE | SIGNALED | SOLICITED | INLINE;
}

/// The limits of a queue pair, set when it was created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendLimits {
    /// SGEs of one work request.
    pub max_sge: u32,
    /// Inline bytes of one work request.
    pub max_inline: u32,
    /// The owner that fills the ring.
    pub poster: Poster,
}

/// The owner that fills a ring of work requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Poster {
    /// A process, which maps it.
    Process,
    /// The kernel, alone: it may also register memory.
    Kernel,
}

/// Local memory of a send work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendData<'a> {
    /// The bytes themselves.
    Inline(&'a [u8]),
    /// Where they are; the sum of the lengths is the request's length.
    Sges(Sges<'a>),
}

/// A decoded send work request. Its keys are not looked up yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendWqe<'a> {
    /// The poster's name for it.
    pub wr_id: u64,
    /// The operation.
    pub op: SendOp,
    /// How.
    pub flags: SendFlags,
    /// Bytes of the message, at most [`limits::MAX_MESSAGE_BYTES`]; of a FLUSH those of the peer's
    /// memory, which the request may say without bound.
    pub length: u32,
    /// Local memory.
    pub data: SendData<'a>,
}

/// Decodes a copy of a slot of a send queue.
///
/// # Errors
///
/// A [`BadRequest`] with the request's `wr_id` and
/// [`Status::LocalQpOperation`] for an unknown opcode or flag, inline data where local memory
/// is written to, more SGEs than `limits` or the slot allows, or lengths that contradict each other;
/// [`Status::LocalLength`] for more inline data than allowed, a message over 2^31 bytes, or local
/// memory of an atomic operation that is not eight bytes long.
pub fn decode_send<'a>(slot: &'a [u8], limits: &SendLimits) -> Result<SendWqe<'a>, BadRequest> {
    let wr_id = u64_at(slot, WR_ID).unwrap_or(0);
    decode(slot, limits, wr_id).map_err(|status| BadRequest { wr_id, status })
}

/// An address vector that a process put into a work request: the fields that are not looked up
/// again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressVector {
    /// The port to send from.
    pub port: u8,
    /// Index of our GID in the port's table.
    pub sgid_index: u8,
    /// The peer's GID.
    pub dgid: [u8; 16],
    /// Flow label.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
}

/// Where a datagram goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatagramTo {
    /// By the address handle of this number, which is not looked up yet.
    Handle(u32),
    /// By this address vector, from a provider that does not know AH numbers.
    Vector(AddressVector),
}

/// A decoded work request to send a datagram. Neither keys nor address are looked up yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatagramWqe<'a> {
    /// The poster's name for it.
    pub wr_id: u64,
    /// The queue pair that it is for.
    pub dest: DatagramDest,
    /// Where that is.
    pub to: DatagramTo,
    /// Immediate data.
    pub imm: Option<Imm>,
    /// How.
    pub flags: SendFlags,
    /// Bytes of the message, at most [`limits::MAX_MESSAGE_BYTES`].
    pub length: u32,
    /// Local memory.
    pub data: SendData<'a>,
}

/// Decodes a copy of a slot of the send queue of a queue pair for datagrams.
///
/// # Errors
///
/// Those of [`decode_send`]; [`Status::LocalQpOperation`] as well for anything but a SEND, and for
/// the number of a queue pair that has more than 24 bits.
pub fn decode_datagram<'a>(
    slot: &'a [u8],
    limits: &SendLimits,
) -> Result<DatagramWqe<'a>, BadRequest> {
    let wr_id = u64_at(slot, WR_ID).unwrap_or(0);
    datagram(slot, limits, wr_id).map_err(|status| BadRequest { wr_id, status })
}

fn datagram<'a>(
    slot: &'a [u8],
    limits: &SendLimits,
    wr_id: u64,
) -> Result<DatagramWqe<'a>, Status> {
    let malformed = Status::LocalQpOperation;
    // Rules: UDX-12
    let Some(SendOp::Send { imm }) = decode_op(slot, limits.poster) else {
        return Err(malformed);
    };
    let wqe = decode(slot, limits, wr_id)?;
    let raw_qpn = u32_at(slot, UD_REMOTE_QPN).ok_or(malformed)?;
    let qpn = Qpn::new(raw_qpn);
    if qpn.get() != raw_qpn {
        return Err(malformed);
    }
    let to = match u32_at(slot, UD_AH_NUM).ok_or(malformed)? {
        0 => DatagramTo::Vector(decode_av(slot).ok_or(malformed)?),
        number => DatagramTo::Handle(number),
    };
    Ok(DatagramWqe {
        wr_id,
        dest: DatagramDest {
            qpn,
            qkey: Qkey(u32_at(slot, UD_REMOTE_QKEY).ok_or(malformed)?),
        },
        to,
        imm,
        flags: wqe.flags,
        length: wqe.length,
        data: wqe.data,
    })
}

fn decode_av(slot: &[u8]) -> Option<AddressVector> {
    let vector = slot.get(UD_AV..)?;
    let byte = |offset| bytes_at(vector, offset).map(|[byte]: [u8; 1]| byte);
    Some(AddressVector {
        port: byte(av::PORT_NUM)?,
        sgid_index: byte(av::SGID_INDEX)?,
        dgid: bytes_at(vector, av::DGID)?,
        flow_label: u32_at(vector, av::FLOW_LABEL)?,
        hop_limit: byte(av::HOP_LIMIT)?,
        traffic_class: byte(av::TRAFFIC_CLASS)?,
    })
}

fn decode<'a>(slot: &'a [u8], limits: &SendLimits, wr_id: u64) -> Result<SendWqe<'a>, Status> {
    let malformed = Status::LocalQpOperation;
    let op = decode_op(slot, limits.poster).ok_or(malformed)?;
    let raw_flags = u32_at(slot, SEND_FLAGS).ok_or(malformed)?;
    // Rules: WRQ-2
    if raw_flags & !flag::KNOWN != 0 {
        return Err(malformed);
    }
    let is_inline = raw_flags & flag::INLINE != 0;
    // Rules: WRQ-6
    if is_inline && op.writes_locally() {
        return Err(malformed);
    }
    let length = match op {
        SendOp::Local(_) => 0, // The field has no meaning.
        _ => u32_at(slot, DMA + dma::LENGTH).ok_or(malformed)?,
    };
    let atomic = matches!(op, SendOp::Atomic { .. } | SendOp::AtomicWrite { .. });
    // Rules: WRQ-7
    if atomic && length != ATOMIC_BYTES {
        return Err(Status::LocalLength);
    }
    let area = slot.get(DATA..).ok_or(malformed)?;
    let data = match op {
        // The request itself has the bytes, regardless of flags and limits.
        SendOp::AtomicWrite { .. } => inline(area, length).ok_or(malformed)?,
        SendOp::Flush { .. } | SendOp::Local(_) => SendData::Inline(&[]),
        _ if is_inline => decode_inline(area, length, limits)?,
        _ => {
            let count = u32_at(slot, DMA + dma::NUM_SGE).ok_or(malformed)?;
            decode_sges(area, count, length, limits)?
        }
    };
    Ok(SendWqe {
        wr_id,
        op,
        flags: SendFlags {
            fence: raw_flags & flag::FENCE != 0,
            signaled: raw_flags & flag::SIGNALED != 0,
            solicited: raw_flags & flag::SOLICITED != 0,
        },
        length,
        data,
    })
}

fn decode_op(slot: &[u8], poster: Poster) -> Option<SendOp> {
    let imm = || bytes_at(slot, EX).map(Imm);
    Some(match u32_at(slot, OPCODE)? {
        op::SEND => SendOp::Send { imm: None },
        op::SEND_IMM => SendOp::Send { imm: Some(imm()?) },
        op::SEND_INVALIDATE => SendOp::SendInvalidate {
            rkey: Rkey(u32_at(slot, EX)?),
        },
        op::WRITE => SendOp::Write {
            remote: decode_remote(slot)?,
            imm: None,
        },
        op::WRITE_IMM => SendOp::Write {
            remote: decode_remote(slot)?,
            imm: Some(imm()?),
        },
        op::READ => SendOp::Read {
            remote: decode_remote(slot)?,
        },
        op::COMPARE_SWAP => SendOp::Atomic {
            remote: decode_atomic_remote(slot)?,
            op: AtomicOp::CompareSwap {
                compare: u64_at(slot, ATOMIC_COMPARE_ADD)?,
                swap: u64_at(slot, ATOMIC_SWAP)?,
            },
        },
        op::FETCH_ADD => SendOp::Atomic {
            remote: decode_atomic_remote(slot)?,
            op: AtomicOp::FetchAdd {
                add: u64_at(slot, ATOMIC_COMPARE_ADD)?,
            },
        },
        op::ATOMIC_WRITE => SendOp::AtomicWrite {
            remote: decode_remote(slot)?,
        },
        op::FLUSH => decode_flush(slot)?,
        op::LOCAL_INVALIDATE => SendOp::Local(LocalOp::Invalidate {
            rkey: Rkey(u32_at(slot, EX)?),
        }),
        op::BIND_WINDOW => SendOp::Local(LocalOp::Bind(Bind {
            window: Rkey(u32_at(slot, MW_MW_RKEY)?),
            key: Rkey(u32_at(slot, MW_RKEY)?),
            lkey: Lkey(u32_at(slot, MW_MR_LKEY)?),
            iova: Iova(u64_at(slot, MW_ADDR)?),
            length: u64_at(slot, MW_LENGTH)?,
            access: u32_at(slot, MW_ACCESS)?,
        })),
        // Rules: INV-11
        op::REGISTER if poster == Poster::Kernel => SendOp::Local(LocalOp::Register(Register {
            key: Rkey(u32_at(slot, MW_RKEY)?),
            iova: Iova(u64_at(slot, MW_ADDR)?),
            access: u32_at(slot, MW_ACCESS)?,
        })),
        // Rules: WRQ-2
        _ => return None,
    })
}

fn decode_flush(slot: &[u8]) -> Option<SendOp> {
    let [placement, selectivity] = bytes_at(slot, FLUSH_TYPE)?;
    let feth = Feth {
        placement,
        selectivity,
    };
    Some(SendOp::Flush {
        remote: Remote {
            iova: Iova(u64_at(slot, FLUSH_REMOTE_ADDR)?),
            rkey: Rkey(u32_at(slot, FLUSH_RKEY)?),
        },
        flush: feth.flush()?,
    })
}

fn decode_remote(slot: &[u8]) -> Option<Remote> {
    Some(Remote {
        iova: Iova(u64_at(slot, RDMA_REMOTE_ADDR)?),
        rkey: Rkey(u32_at(slot, RDMA_RKEY)?),
    })
}

fn decode_atomic_remote(slot: &[u8]) -> Option<Remote> {
    Some(Remote {
        iova: Iova(u64_at(slot, ATOMIC_REMOTE_ADDR)?),
        rkey: Rkey(u32_at(slot, ATOMIC_RKEY)?),
    })
}

/// Decodes inline data. The number of SGEs has no meaning here: the provider leaves any value
/// there.
// Rules: WRQ-5
fn decode_inline<'a>(
    area: &'a [u8],
    length: u32,
    limits: &SendLimits,
) -> Result<SendData<'a>, Status> {
    if length > limits.max_inline {
        return Err(Status::LocalLength);
    }
    inline(area, length).ok_or(Status::LocalLength)
}

fn inline(area: &[u8], length: u32) -> Option<SendData<'_>> {
    let len = usize::try_from(length).ok()?;
    area.get(..len).map(SendData::Inline)
}

fn decode_sges<'a>(
    area: &'a [u8],
    count: u32,
    length: u32,
    limits: &SendLimits,
) -> Result<SendData<'a>, Status> {
    // Rules: WRQ-3
    if count > limits.max_sge {
        return Err(Status::LocalQpOperation);
    }
    let sges = Sges::new(area, count).ok_or(Status::LocalQpOperation)?;
    let total = sges.total().ok_or(Status::LocalLength)?;
    // Rules: SEG-7
    if total > limits::MAX_MESSAGE_BYTES {
        return Err(Status::LocalLength);
    }
    // Rules: WRQ-4
    if total != length {
        return Err(Status::LocalQpOperation);
    }
    Ok(SendData::Sges(sges))
}

/// Local memory of a work request that is being [encoded](encode_send).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostedData {
    /// So many bytes, which are in the slot from [`DATA`] on already.
    Inline(u32),
    /// The SGEs that [`encode_sges`](super::sge::encode_sges) put into the slot from [`DATA`] on.
    Sges(PostedSges),
}

/// SGEs that were encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PostedSges {
    /// How many there are.
    pub count: u32,
    /// The sum of their lengths.
    pub length: u32,
}

/// A work request to be encoded, for the kernel as a poster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PostedSend {
    /// The poster's name for it.
    pub wr_id: u64,
    /// The operation.
    pub op: SendOp,
    /// How.
    pub flags: SendFlags,
    /// Local memory.
    pub data: PostedData,
    /// Where a datagram goes.
    pub datagram: Option<(DatagramDest, AddressVector)>,
}

/// Encodes a work request in a slot that already has the SGEs or inline data. Returns the number of
/// bytes of the slot that count. Fields that no decoder reads keep their values.
///
/// `None` if the slot is too short, or for a request that the kernel has no way to post: a FLUSH, or
/// to bind a window.
pub fn encode_send(slot: &mut [u8], wr: &PostedSend) -> Option<usize> {
    let (raw_inline, length, count, bytes) = match wr.data {
        PostedData::Inline(length) => (flag::INLINE, length, 0, length),
        PostedData::Sges(sges) => {
            let bytes = sges.count.checked_mul(super::sge::SGE_BYTES as u32)?;
            (0, sges.length, sges.count, bytes)
        }
    };
    let opcode = encode_op(slot, &wr.op)?;
    if let Some((dest, vector)) = &wr.datagram {
        put(slot, UD_REMOTE_QPN, dest.qpn.get().to_ne_bytes())?;
        put(slot, UD_REMOTE_QKEY, dest.qkey.0.to_ne_bytes())?;
        put(slot, UD_AH_NUM, [0; 4])?;
        encode_av(slot, vector)?;
    }
    let set = |is_set, flag| if is_set { flag } else { 0 };
    let flags = set(wr.flags.fence, flag::FENCE)
        | set(wr.flags.signaled, flag::SIGNALED)
        | set(wr.flags.solicited, flag::SOLICITED)
        | raw_inline;
    put(slot, WR_ID, wr.wr_id.to_ne_bytes())?;
    put(slot, OPCODE, opcode.to_ne_bytes())?;
    put(slot, SEND_FLAGS, flags.to_ne_bytes())?;
    put(slot, DMA + dma::LENGTH, length.to_ne_bytes())?;
    put(slot, DMA + dma::NUM_SGE, count.to_ne_bytes())?;
    let end = DATA.checked_add(usize::try_from(bytes).ok()?)?;
    (end <= slot.len()).then_some(end)
}

/// Encodes the fields that depend on the operation. Returns its opcode.
fn encode_op(slot: &mut [u8], op: &SendOp) -> Option<u32> {
    Some(match op {
        SendOp::Send { imm: None } => op::SEND,
        SendOp::Send { imm: Some(imm) } => {
            put(slot, EX, imm.0)?;
            op::SEND_IMM
        }
        SendOp::SendInvalidate { rkey } => {
            put(slot, EX, rkey.0.to_ne_bytes())?;
            op::SEND_INVALIDATE
        }
        SendOp::Write { remote, imm } => {
            encode_remote(slot, remote)?;
            match imm {
                None => op::WRITE,
                Some(imm) => {
                    put(slot, EX, imm.0)?;
                    op::WRITE_IMM
                }
            }
        }
        SendOp::Read { remote } => {
            encode_remote(slot, remote)?;
            op::READ
        }
        SendOp::AtomicWrite { remote } => {
            encode_remote(slot, remote)?;
            op::ATOMIC_WRITE
        }
        SendOp::Atomic { remote, op } => {
            put(slot, ATOMIC_REMOTE_ADDR, remote.iova.0.to_ne_bytes())?;
            put(slot, ATOMIC_RKEY, remote.rkey.0.to_ne_bytes())?;
            let (opcode, compare_add, swap) = match *op {
                AtomicOp::CompareSwap { compare, swap } => (op::COMPARE_SWAP, compare, swap),
                AtomicOp::FetchAdd { add } => (op::FETCH_ADD, add, 0),
            };
            put(slot, ATOMIC_COMPARE_ADD, compare_add.to_ne_bytes())?;
            put(slot, ATOMIC_SWAP, swap.to_ne_bytes())?;
            opcode
        }
        SendOp::Local(LocalOp::Invalidate { rkey }) => {
            put(slot, EX, rkey.0.to_ne_bytes())?;
            op::LOCAL_INVALIDATE
        }
        SendOp::Local(LocalOp::Register(register)) => {
            put(slot, MW_RKEY, register.key.0.to_ne_bytes())?;
            put(slot, MW_ADDR, register.iova.0.to_ne_bytes())?;
            put(slot, MW_ACCESS, register.access.to_ne_bytes())?;
            op::REGISTER
        }
        SendOp::Flush { .. } | SendOp::Local(LocalOp::Bind(_)) => return None,
    })
}

fn encode_remote(slot: &mut [u8], remote: &Remote) -> Option<()> {
    put(slot, RDMA_REMOTE_ADDR, remote.iova.0.to_ne_bytes())?;
    put(slot, RDMA_RKEY, remote.rkey.0.to_ne_bytes())
}

fn encode_av(slot: &mut [u8], vector: &AddressVector) -> Option<()> {
    let area = slot.get_mut(UD_AV..)?;
    put(area, av::PORT_NUM, [vector.port])?;
    put(area, av::DGID, vector.dgid)?;
    put(area, av::FLOW_LABEL, vector.flow_label.to_ne_bytes())?;
    put(area, av::SGID_INDEX, [vector.sgid_index])?;
    put(area, av::HOP_LIMIT, [vector.hop_limit])?;
    put(area, av::TRAFFIC_CLASS, [vector.traffic_class])
}
