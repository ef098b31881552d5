// SPDX-License-Identifier: GPL-2.0

//! Posts of the kernel: copies lists of work requests to slots of a ring.
//!
//! A process has a provider for this work. Any context.

use kernel::prelude::*;
use rdma::post::{self, RecvList, RecvWr, SendList, SendWr, SgList};
use roce::abi::{
    encode_recv, encode_send, encode_sges, recv_wqe, send_wqe, AddressVector, PostedData,
    PostedSend, PostedSges, SendLimits, Sge,
};
use roce::limits::MAX_MESSAGE_BYTES;
use roce::num::{Imm, Iova, Lkey, Qkey, Qpn, Rkey};
use roce::wr::{
    AtomicOp, DatagramDest, LocalOp, Register, Remote, SendFlags, SendOp, ATOMIC_BYTES,
};

use super::Verbs;
use crate::queue::PostQueue;
use crate::service::Service;
use crate::table::PdId;

/// The queue pair's attributes that sends need.
#[derive(Clone, Copy)]
pub(super) struct Sender {
    pub(super) service: Service,
    pub(super) pd: PdId,
    pub(super) limits: SendLimits,
    /// It is in ERR: all posted requests are flushed, even invalid ones.
    pub(super) has_failed: bool,
}

/// Posts sends. Returns how many were, and how it ended.
///
/// # Errors
///
/// `ENOMEM` if the queue is full. `EINVAL` for an opcode or flags that the queue pair does not have,
/// more SGEs or inline data than it was created with, a message of over 2^31 bytes, an address
/// handle of another protection domain or a P_Key that is not in the table. The request that was taken from the list last, and those
/// behind it, are not posted.
pub(super) fn sends(
    queue: &mut PostQueue,
    sender: &Sender,
    list: &mut SendList<'_, Verbs>,
) -> (u32, Result) {
    let mut count = 0u32;
    for wr in list {
        if let Err(error) = queue.post(|slot| send(slot, sender, &wr)) {
            return (count, Err(error));
        }
        count = count.saturating_add(1);
    }
    (count, Ok(()))
}

fn send(slot: &mut [u8], sender: &Sender, wr: &SendWr<'_, Verbs>) -> Result<usize> {
    let op = operation(wr.op()?);
    if !sender.service.carries(&op) && !sender.has_failed {
        return Err(EINVAL);
    }
    let flags = wr.flags()?;
    let area = slot.get_mut(send_wqe::DATA..).ok_or(EINVAL)?;
    let data = data(area, sender, wr, &op)?;
    let datagram = match sender.service {
        Service::Connection(_) => None,
        Service::Datagram | Service::Gsi if sender.has_failed => datagram(sender, wr).ok(),
        Service::Datagram | Service::Gsi => Some(datagram(sender, wr)?),
    };
    let wr = PostedSend {
        wr_id: wr.wr_id(),
        op,
        flags: SendFlags {
            fence: flags.fence,
            signaled: flags.signaled,
            solicited: flags.solicited,
        },
        data,
        datagram,
    };
    encode_send(slot, &wr).ok_or(EINVAL)
}

/// Returns the protocol's form of an operation.
#[inline]
fn operation(op: post::SendOp) -> SendOp {
    let remote = |remote: post::Remote| Remote {
        iova: Iova(remote.addr),
        rkey: Rkey(remote.rkey),
    };
    match op {
        post::SendOp::Send { imm } => SendOp::Send { imm: imm.map(Imm) },
        post::SendOp::SendInvalidate { rkey } => SendOp::SendInvalidate { rkey: Rkey(rkey) },
        post::SendOp::Write { remote: to, imm } => SendOp::Write {
            remote: remote(to),
            imm: imm.map(Imm),
        },
        post::SendOp::Read { remote: from } => SendOp::Read {
            remote: remote(from),
        },
        post::SendOp::AtomicWrite { remote: to } => SendOp::AtomicWrite { remote: remote(to) },
        post::SendOp::CompareSwap {
            remote: at,
            compare,
            swap,
        } => SendOp::Atomic {
            remote: remote(at),
            op: AtomicOp::CompareSwap { compare, swap },
        },
        post::SendOp::FetchAdd { remote: at, add } => SendOp::Atomic {
            remote: remote(at),
            op: AtomicOp::FetchAdd { add },
        },
        post::SendOp::Invalidate { rkey } => {
            SendOp::Local(LocalOp::Invalidate { rkey: Rkey(rkey) })
        }
        post::SendOp::Register { key, iova, access } => {
            SendOp::Local(LocalOp::Register(Register {
                key: Rkey(key),
                iova: Iova(iova),
                access,
            }))
        }
    }
}

/// Puts a request's local memory into its slot.
fn data(
    area: &mut [u8],
    sender: &Sender,
    wr: &SendWr<'_, Verbs>,
    op: &SendOp,
) -> Result<PostedData> {
    let limits = &sender.limits;
    let is_inline = wr.is_inline();
    match op {
        SendOp::Local(LocalOp::Bind(_)) | SendOp::Flush { .. } => return Err(EINVAL),
        SendOp::Local(_) => return Ok(PostedData::Inline(0)),
        // The value is part of the request, so it has to be there now.
        SendOp::AtomicWrite { .. } if !is_inline => return Err(EINVAL),
        SendOp::Read { .. } | SendOp::Atomic { .. } if is_inline => return Err(EINVAL),
        _ => {}
    }
    if is_inline {
        let max = usize::try_from(limits.max_inline).map_err(|_| EINVAL)?;
        let room = area.len().min(max);
        let length = wr.copy_inline(area.get_mut(..room).ok_or(EINVAL)?)?;
        if matches!(op, SendOp::AtomicWrite { .. }) && length != ATOMIC_BYTES {
            return Err(EINVAL);
        }
        return Ok(PostedData::Inline(length));
    }
    let sges = sges(area, wr.sges()?, limits.max_sge)?;
    let is_atomic = matches!(op, SendOp::Atomic { .. });
    if sges.length > MAX_MESSAGE_BYTES || is_atomic && sges.length != ATOMIC_BYTES {
        return Err(EINVAL);
    }
    Ok(PostedData::Sges(sges))
}

fn sges(area: &mut [u8], list: SgList<'_>, max_sge: u32) -> Result<PostedSges> {
    if !u32::try_from(list.len()).is_ok_and(|count| count <= max_sge) {
        return Err(EINVAL);
    }
    let sges = list.map(|sge| Sge {
        addr: Iova(sge.addr),
        length: sge.length,
        lkey: Lkey(sge.lkey),
    });
    encode_sges(area, sges).ok_or(EINVAL)
}

fn datagram(sender: &Sender, wr: &SendWr<'_, Verbs>) -> Result<(DatagramDest, AddressVector)> {
    let dest = wr.datagram().ok_or(EINVAL)?;
    // Each request of QP1 says which P_Key it goes by: there is one.
    if sender.service == Service::Gsi && wr.pkey_index() != Some(0) {
        return Err(EINVAL);
    }
    let vector = dest.ah.vector(sender.pd).ok_or(EINVAL)?;
    let dest = DatagramDest {
        qpn: Qpn::new(dest.qpn),
        qkey: Qkey(dest.qkey),
    };
    Ok((dest, vector))
}

/// Posts receives.
///
/// # Errors
///
/// As for [`sends`].
pub(super) fn receives(queue: &mut PostQueue, max_sge: u32, list: &mut RecvList<'_>) -> Result {
    for wr in list {
        queue.post(|slot| receive(slot, max_sge, &wr))?;
    }
    Ok(())
}

fn receive(slot: &mut [u8], max_sge: u32, wr: &RecvWr<'_>) -> Result<usize> {
    let area = slot.get_mut(recv_wqe::DATA..).ok_or(EINVAL)?;
    let sges = sges(area, wr.sges()?, max_sge)?;
    encode_recv(slot, wr.wr_id(), sges).ok_or(EINVAL)
}
