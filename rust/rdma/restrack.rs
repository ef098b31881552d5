// SPDX-License-Identifier: GPL-2.0

//! Details that a driver adds to the objects of `rdma resource show`.

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    error::to_result,
    ffi::c_int,
    prelude::*, //
};
use rdma_bindings as bindings;

/// The details of an object, under names of the driver's: `rdma -dd resource show`.
///
/// They are written one by one, so they may be of different moments.
///
/// # Invariants
///
/// `message` is a valid message that is being written, with the driver's nest open in it, and ours
/// alone for `'a`.
pub struct Details<'a> {
    message: NonNull<bindings::sk_buff>,
    _message: PhantomData<&'a mut bindings::sk_buff>,
}

impl Details<'_> {
    /// Adds a number.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` if the message is full. The core then starts the object again in another message.
    pub fn number(&mut self, name: &CStr, value: impl Into<u64>) -> Result {
        let name = name.to_bytes_with_nul().as_ptr().cast();
        // SAFETY: By the invariants the message is ours to write; the name ends with a zero.
        to_result(unsafe {
            bindings::rdma_nl_put_driver_u64(self.message.as_ptr(), name, value.into())
        })
    }

    /// Adds a number that people read in hexadecimal.
    ///
    /// # Errors
    ///
    /// As for [`number`](Self::number).
    pub fn hex(&mut self, name: &CStr, value: impl Into<u64>) -> Result {
        let name = name.to_bytes_with_nul().as_ptr().cast();
        // SAFETY: By the invariants the message is ours to write; the name ends with a zero.
        to_result(unsafe {
            bindings::rdma_nl_put_driver_u64_hex(self.message.as_ptr(), name, value.into())
        })
    }

    /// Returns true if the user that asks may administer the network. Others may list all objects, too, but
    /// not learn from them where other processes have their memory.
    pub fn is_for_admin(&self) -> bool {
        const CAP: c_int = kernel::bindings::CAP_NET_ADMIN as c_int;
        // SAFETY: The initial namespace always exists, and the task of a request is the current one.
        unsafe {
            kernel::bindings::ns_capable_noaudit(&raw mut kernel::bindings::init_user_ns, CAP)
        }
    }

    /// Adds a word.
    ///
    /// # Errors
    ///
    /// As for [`number`](Self::number).
    pub fn word(&mut self, name: &CStr, value: &CStr) -> Result {
        let name = name.to_bytes_with_nul().as_ptr().cast();
        let value = value.to_bytes_with_nul().as_ptr().cast();
        // SAFETY: By the invariants the message is ours to write; name and value end with a zero.
        to_result(unsafe {
            bindings::rdma_nl_put_driver_string(self.message.as_ptr(), name, value)
        })
    }
}

/// Writes the driver's nest of `message`, as `fill` fills it.
///
/// # Safety
///
/// `message` must be a valid message that is being written, and nobody else's during the call.
pub(crate) unsafe fn write(
    message: *mut bindings::sk_buff,
    fill: impl FnOnce(&mut Details<'_>) -> Result,
) -> c_int {
    const NEST: c_int = bindings::rdma_nldev_attr_RDMA_NLDEV_ATTR_DRIVER as c_int;

    let full = EMSGSIZE.to_errno();
    let Some(message) = NonNull::new(message) else {
        return full;
    };
    // SAFETY: The caller passes a message to write.
    let nest = unsafe { bindings::nla_nest_start_noflag(message.as_ptr(), NEST) };
    if nest.is_null() {
        return full;
    }
    // INVARIANT: The message is the caller's, and the nest was opened just now.
    let filled = fill(&mut Details {
        message,
        _message: PhantomData,
    });
    match filled {
        Ok(()) => {
            // SAFETY: The nest was opened in this message and is not closed.
            unsafe { bindings::nla_nest_end(message.as_ptr(), nest) };
            0
        }
        Err(error) => {
            // SAFETY: The nest was opened in this message and is not closed.
            unsafe { bindings::nla_nest_cancel(message.as_ptr(), nest) };
            error.to_errno()
        }
    }
}
