// SPDX-License-Identifier: GPL-2.0

//! Resolution of a peer's address by the IP stack.

use core::pin::Pin;
use kernel::{
    error::to_result,
    ffi::{
        c_int,
        c_void, //
    },
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Completion, //
    },
    types::Opaque, //
};
use rdma_bindings as bindings;

/// The time that a neighbour has to answer, in milliseconds. The core uses the same.
const TIMEOUT_MS: usize = 1000;

/// A question that the core works on, and its answer.
#[pin_data]
struct Question {
    /// It belongs to the core until `done`.
    #[pin]
    answer: Opaque<bindings::rdma_dev_addr>,
    status: Atomic<i32>,
    #[pin]
    done: Completion,
}

/// Returns the MAC address of the next hop between two GIDs, and the hop limit. Sleeps.
///
/// # Errors
///
/// Those of [`AhAttr::resolve`](super::AhAttr::resolve).
pub(super) fn by_ip(
    sgid_attr: &bindings::ib_gid_attr,
    sgid: [u8; 16],
    dgid: [u8; 16],
) -> Result<([u8; 6], u8)> {
    let question = KBox::pin_init(
        pin_init!(Question {
            answer: Opaque::zeroed(),
            status: Atomic::new(0),
            done <- Completion::new(),
        }),
        GFP_KERNEL,
    )?;
    let (mut source, destination) = (socket_address(sgid), socket_address(dgid));
    // SAFETY: Zeros are valid for all fields, and the core does not have the structure yet. The
    // core takes the namespace of the GID's netdev instead of `init_net`.
    unsafe {
        let answer = question.answer.get();
        (*answer).sgid_attr = sgid_attr;
        (*answer).net = &raw mut bindings::init_net;
    }
    // SAFETY: All arguments stay in place until the core has called back, for which the code below
    // waits. If the call fails, the core does not call back. The addresses are of the families that
    // they name.
    to_result(unsafe {
        bindings::rdma_resolve_ip(
            (&raw mut source).cast(),
            (&raw const destination).cast(),
            question.answer.get(),
            TIMEOUT_MS,
            Some(answered),
            true,
            core::ptr::from_ref(Pin::get_ref(question.as_ref()))
                .cast_mut()
                .cast(),
        )
    })?;
    // The caller's object keeps the device, and the device keeps the module, until this ends.
    question.done.wait_for_completion();
    to_result(question.status.load(Acquire))?;

    // SAFETY: The core has called back, so it does not use the answer any more.
    let answer = unsafe { &*question.answer.get() };
    let mac = answer.dst_dev_addr.first_chunk().ok_or(EINVAL)?;
    // CAST: Hop limits are of 8 bits.
    Ok((*mac, answer.hoplimit as u8))
}

/// Takes the answer of the core.
///
/// # Safety
///
/// Only the core may call it, once, with a [`Question`] that is not dropped before.
unsafe extern "C" fn answered(
    status: c_int,
    _source: *mut bindings::sockaddr,
    _answer: *mut bindings::rdma_dev_addr,
    question: *mut c_void,
) {
    // SAFETY: By the safety requirements the pointer is a [`Question`] that is not dropped before
    // this call.
    let question = unsafe { &*question.cast::<Question>() };
    question.status.store(status, Release);
    question.done.complete_all();
}

/// Returns the IP address that a GID stands for.
fn socket_address(gid: [u8; 16]) -> bindings::__kernel_sockaddr_storage {
    // SAFETY: Zeros are valid for all fields.
    let mut address: bindings::__kernel_sockaddr_storage = unsafe { core::mem::zeroed() };
    let gid = bindings::ib_gid { raw: gid };
    // SAFETY: There is room for an address of either family.
    unsafe { bindings::rdma_gid2ip((&raw mut address).cast(), &gid) };
    address
}
