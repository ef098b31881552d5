// SPDX-License-Identifier: GPL-2.0

//! The details that a driver reports of its objects.

use super::Operations;
use crate::{
    object::{
        Cq,
        Mr,
        Qp,
        Srq, //
    },
    restrack::write, //
};
use kernel::ffi::c_int;
use rdma_bindings as bindings;

macro_rules! callback {
    ($(#[$meta:meta])* $callback:ident, $object:ident, $c:ident, $verb:ident) => {
        $(#[$meta])*
        ///
        /// # Safety
        ///
        /// Only the core may call it, with a message that it writes and an object of a device of
        /// `T` that it keeps from being destroyed.
        pub(super) unsafe extern "C" fn $callback<T: Operations>(
            message: *mut bindings::sk_buff,
            object: *mut bindings::$c,
        ) -> c_int {
            // SAFETY: The core passes an object that was created: it enters an object in its tables
            // after the creation, removes it before the destruction, and waits for its readers.
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
