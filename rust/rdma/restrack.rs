// SPDX-License-Identifier: GPL-2.0

//! What `rdma resource show` tells of an object beside what the core knows of it.

use core::marker::PhantomData;
use core::ptr::NonNull;

use kernel::error::to_result;
use kernel::ffi::c_int;
use kernel::prelude::*;

use rdma_bindings as bindings;

use crate::object::{Cq, Mr, Qp, Srq};
use crate::ops::Operations;

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
    /// `EMSGSIZE` if the message is full; the core goes on in another one, from the start of the
    /// object.
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
        // SAFETY: As in `number`.
        to_result(unsafe {
            bindings::rdma_nl_put_driver_u64_hex(self.message.as_ptr(), name, value.into())
        })
    }

    /// Adds a word.
    ///
    /// # Errors
    ///
    /// As for [`number`](Self::number).
    pub fn word(&mut self, name: &CStr, value: &CStr) -> Result {
        let name = name.to_bytes_with_nul().as_ptr().cast();
        let value = value.to_bytes_with_nul().as_ptr().cast();
        // SAFETY: As in `number`, and the value ends with a zero, too.
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
unsafe fn write(
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
            // SAFETY: The nest was opened above, in this message.
            unsafe { bindings::nla_nest_end(message.as_ptr(), nest) };
            0
        }
        Err(error) => {
            // SAFETY: As above.
            unsafe { bindings::nla_nest_cancel(message.as_ptr(), nest) };
            error.to_errno()
        }
    }
}

macro_rules! callback {
    ($(#[$meta:meta])* $callback:ident, $object:ident, $c:ident, $verb:ident) => {
        $(#[$meta])*
        ///
        /// # Safety
        ///
        /// To be called by the core alone, with a message that it writes and an object of a device
        /// of `T` that it keeps from being destroyed.
        pub(crate) unsafe extern "C" fn $callback<T: Operations>(
            message: *mut bindings::sk_buff,
            object: *mut bindings::$c,
        ) -> c_int {
            // SAFETY: The core passes an object that was created: it enters one in its tables after
            // that, takes it out before it has it destroyed, and waits for those who look at it.
            let object = unsafe { $object::<T>::from_raw(object) };
            // SAFETY: The core passes a message that it writes.
            unsafe { write(message, |details| T::$verb(object, details)) }
        }
    };
}

callback! {
    /// `ib_device_ops.fill_res_qp_entry`.
    fill_qp, Qp, ib_qp, qp_details
}

callback! {
    /// `ib_device_ops.fill_res_cq_entry`.
    fill_cq, Cq, ib_cq, cq_details
}

callback! {
    /// `ib_device_ops.fill_res_mr_entry`.
    fill_mr, Mr, ib_mr, mr_details
}

callback! {
    /// `ib_device_ops.fill_res_srq_entry`.
    fill_srq, Srq, ib_srq, srq_details
}
