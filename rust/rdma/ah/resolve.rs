// SPDX-License-Identifier: GPL-2.0

//! Asking the IP stack where a peer is.

use core::pin::Pin;

use kernel::error::to_result;
use kernel::ffi::{c_int, c_void};
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Release};
use kernel::sync::Completion;
use kernel::types::Opaque;

use rdma_bindings as bindings;

/// How long a neighbour has to answer, in milliseconds: as long as the core gives it.
const TIMEOUT_MS: usize = 1000;

/// A question that the core works on, and its answer.
#[pin_data]
struct Question {
    /// The core's until `done`.
    #[pin]
    answer: Opaque<bindings::rdma_dev_addr>,
    status: Atomic<i32>,
    #[pin]
    done: Completion,
}

/// The MAC address of the next hop between two GIDs, and the hop limit. Sleeps.
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
    // SAFETY: Zeros are valid for all of it, and the core does not have it yet. The namespace of the
    // GID's netdev is taken in place of this one.
    unsafe {
        let answer = question.answer.get();
        (*answer).sgid_attr = sgid_attr;
        (*answer).net = &raw mut bindings::init_net;
    }
    // SAFETY: All that the core is given stays in place until it has called back, which is waited
    // for below; if it fails here it does not. The addresses are of the families that they say.
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
    // Our caller's object keeps the device, and that keeps the module, until this is over.
    question.done.wait_for_completion();
    to_result(question.status.load(Acquire))?;

    // SAFETY: The core is done with it.
    let answer = unsafe { &*question.answer.get() };
    let mac = answer.dst_dev_addr.first_chunk().ok_or(EINVAL)?;
    // CAST: Hop limits are of 8 bits.
    Ok((*mac, answer.hoplimit as u8))
}

/// The core has an answer.
///
/// # Safety
///
/// For the core to call, once, with a [`Question`] that is not dropped before.
unsafe extern "C" fn answered(
    status: c_int,
    _source: *mut bindings::sockaddr,
    _answer: *mut bindings::rdma_dev_addr,
    question: *mut c_void,
) {
    // SAFETY: By the safety requirements.
    let question = unsafe { &*question.cast::<Question>() };
    question.status.store(status, Release);
    question.done.complete_all();
}

/// The IP address that a GID stands for.
fn socket_address(gid: [u8; 16]) -> bindings::__kernel_sockaddr_storage {
    // SAFETY: Zeros are valid for all of it.
    let mut address: bindings::__kernel_sockaddr_storage = unsafe { core::mem::zeroed() };
    let gid = bindings::ib_gid { raw: gid };
    // SAFETY: There is room for an address of either family.
    unsafe { bindings::rdma_gid2ip((&raw mut address).cast(), &gid) };
    address
}
