// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues.

use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::Arc;
use rdma::mmap::Mminfo;
use rdma::object::{Pd as IbPd, Srq as IbSrq};
use rdma::ops::{SrqAttr, SrqChange};
use rdma::post::RecvList;
use rdma::ring::{Shape, SharedRing};
use rdma::slots::Slots;
use rdma::udata::Udata;
use rdma::upcall::SrqUpcall;
use roce::abi::{recv_wqe, sge};

use super::{post, Verbs};
use crate::device::{MAX_SRQ_SGE, MAX_SRQ_WR};
use crate::queue::PostQueue;
use crate::srq::Srq;

/// Creates a shared receive queue.
///
/// # Errors
///
/// `EINVAL` for a larger one than advertised, or a limit above its size; `ENOMEM`.
pub(super) fn create(
    pd: &IbPd<Verbs>,
    attr: &mut SrqAttr,
    upcall: SrqUpcall,
    udata: &mut Udata<'_>,
) -> Result<Arc<Srq>> {
    let shape = shape(attr.max_wr, attr.max_sge)?;
    attr.max_wr = shape.capacity();
    if attr.limit > attr.max_wr {
        return Err(EINVAL);
    }
    let ring = SharedRing::new(shape)?;
    let posts = if udata.is_user() {
        let mapping = udata.share(&ring)?;
        udata.respond(&response(mapping))?;
        None
    } else {
        Some(PostQueue::new(&ring)?)
    };
    let scratch = Slots::new(shape.slot_bytes(), GFP_KERNEL_ACCOUNT)?;
    Arc::pin_init(
        Srq::new(pd.id(), ring, *attr, scratch, upcall, posts),
        GFP_KERNEL_ACCOUNT,
    )
}

/// Gives a shared receive queue another size or limit, or both.
///
/// # Errors
///
/// `EINVAL` for a size above the advertised one or below the number of posted receives, or for a
/// limit above the size; `EFAULT` if the process cannot be told; `EINTR` if it is being killed;
/// `EBUSY` if receives are posted and taken all the time; `ENOMEM`. The queue is unchanged then.
pub(super) fn modify(srq: &IbSrq<Verbs>, change: &SrqChange, udata: &mut Udata<'_>) -> Result {
    let Some(max_wr) = change.max_wr else {
        return change.limit.map_or(Ok(()), |limit| srq.set_limit(limit));
    };
    let shape = shape(max_wr, srq.attr().max_sge)?;
    let ring = SharedRing::new(shape)?;
    if udata.is_user() {
        let mapping = udata.share(&ring)?;
        // Before it changes: a process that cannot be told keeps the ring that it knows.
        udata.respond(&mapping.to_bytes())?;
    }
    drop(srq.resize(ring, change.limit)?);
    Ok(())
}

/// Posts receives of the kernel. Any context.
pub(super) fn post_recv(srq: &IbSrq<Verbs>, list: &mut RecvList<'_>) -> Result {
    let max_sge = srq.max_sge();
    srq.with_posts(|queue| post::receives(queue, max_sge, list))
}

/// Returns the shape of a ring for `max_wr` receives of `max_sge` elements.
fn shape(max_wr: u32, max_sge: u32) -> Result<Shape> {
    if max_wr == 0 || max_wr > MAX_SRQ_WR || max_sge > MAX_SRQ_SGE {
        return Err(EINVAL);
    }
    let sges = max_sge.saturating_mul(sge::SGE_BYTES as u32);
    let slot = (recv_wqe::DATA as u32).saturating_add(sges);
    Shape::new(max_wr, slot).ok_or(EINVAL)
}

/// Makes a `struct rxe_create_srq_resp`: the place to map the ring, and a number of the queue,
/// which is only for people.
fn response(mapping: Mminfo) -> [u8; Mminfo::BYTES + 8] {
    static NEXT: Atomic<u32> = Atomic::new(1);
    let number = NEXT.fetch_add(1, Relaxed) & 0x00ff_ffff;
    let mut response = [0; Mminfo::BYTES + 8];
    let fields = Iterator::chain(mapping.to_bytes().into_iter(), number.to_ne_bytes());
    for (to, from) in response.iter_mut().zip(fields) {
        *to = from;
    }
    response
}
