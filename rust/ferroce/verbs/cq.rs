// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::prelude::*;
use kernel::sync::{rcu, Arc};
use rdma::device::Device as IbDevice;
use rdma::errno::EOPNOTSUPP;
use rdma::object::Cq as IbCq;
use rdma::ops::{CqInit, NewCq, Notify};
use rdma::post::{self, Completions};
use rdma::ring::{Shape, SharedRing};
use rdma::udata::Udata;
use rdma::upcall::CqUpcall;
use roce::abi::{cqe, KernelCompletion};

use super::Verbs;
use crate::cq::{Armed, Cq, Owner};
use crate::device::MAX_CQE;

/// Creates a completion queue.
///
/// # Errors
///
/// `EINVAL` for more completions than advertised or a completion vector that the device lacks;
/// `EOPNOTSUPP` for flags, of which none is known; `ENOMEM`.
pub(super) fn create(
    device: &IbDevice<Verbs>,
    init: &CqInit,
    upcall: CqUpcall,
    udata: &mut Udata<'_>,
) -> Result<NewCq<Arc<Cq>>> {
    if init.flags != 0 {
        return Err(EOPNOTSUPP);
    }
    if init.comp_vector >= device.comp_vectors() {
        return Err(EINVAL);
    }
    let shape = shape(init.cqe)?;
    let ring = SharedRing::new(shape)?;
    let owner = if udata.is_user() {
        let mapping = udata.share(&ring)?;
        udata.respond(&mapping.to_bytes())?;
        Owner::Process
    } else {
        Owner::Kernel(device.shared.queues.clone())
    };
    Ok(NewCq {
        data: Arc::pin_init(Cq::new(ring, upcall, owner), GFP_KERNEL_ACCOUNT)?,
        cqe: shape.capacity(),
    })
}

/// Gives a completion queue another size.
///
/// # Errors
///
/// `EINVAL` for more completions than advertised, or fewer than it holds at the moment; `EINTR` if the
/// process is being killed; `EBUSY` if it polls all the time; `ENOMEM`. It is as it was then.
pub(super) fn resize(cq: &IbCq<Verbs>, cqe: u32, udata: &mut Udata<'_>) -> Result<u32> {
    let shape = shape(cqe)?;
    let ring = SharedRing::new(shape)?;
    let mapping = udata.share(&ring)?;
    // Before it changes: a process that cannot be told keeps the ring that it knows.
    udata.respond(&mapping.to_bytes())?;
    drop(cq.resize(ring)?);
    Ok(shape.capacity())
}

/// Returns the shape of a ring for `cqe` completions.
fn shape(cqe: u32) -> Result<Shape> {
    if cqe == 0 || cqe > MAX_CQE {
        return Err(EINVAL);
    }
    Shape::new(cqe, cqe::SLOT_BYTES as u32).ok_or(EINVAL)
}

/// Hands the kernel its completions. Any context.
///
/// Those of a queue pair that is gone are left out; its destruction takes them away.
pub(super) fn poll(cq: &IbCq<Verbs>, to: &mut Completions<'_>) {
    if to.is_full() {
        return;
    }
    let device = cq.device();
    let guard = rcu::read_lock();
    cq.poll(|completion| {
        if let Some(qp) = device.shared.qps.get(completion.qpn.get(), &guard) {
            to.push(&polled(completion), &qp.fixed.upcall);
        }
        !to.is_full()
    });
}

/// Returns the core's form of a completion.
#[inline]
fn polled(completion: &KernelCompletion) -> post::Completion {
    post::Completion {
        wr_id: completion.wr_id,
        status: completion.status as u32,
        opcode: completion.opcode,
        byte_len: completion.byte_len,
        imm: completion.imm.map(|imm| imm.0),
        invalidated: completion.invalidated.map(|rkey| rkey.0),
        src_qp: completion.src_qp.get(),
        port: completion.port.into(),
        arrival: completion.arrival.map(|arrival| post::Arrival {
            is_ipv6: arrival.ipv6,
            vlan: arrival.vlan,
        }),
    }
}

/// Arms a completion queue. Returns whether it holds completions already.
pub(super) fn arm(cq: &IbCq<Verbs>, notify: Notify) -> bool {
    cq.arm(match notify {
        Notify::Solicited => Armed::Solicited,
        Notify::Next => Armed::Any,
    })
}
