// SPDX-License-Identifier: GPL-2.0

//! The differences between the kernels that the crate builds for, and nothing else.
//!
//! Linux 7.3 made the limits of `ib_device_attr` unsigned and `hrtimer_restart` a type of its own.
//! It gave the `kernel` crate error codes that 7.2 lacks, and its barriers an argument. This module
//! builds for both, without a check of the version.

use rdma_bindings as bindings;

/// A limit that a device reports: `int` up to 7.2, `u32` from 7.3.
pub(crate) trait Limit {
    /// Returns `value`, or the maximum of the type if that is less.
    fn limit(value: u32) -> Self;
}

impl Limit for i32 {
    #[inline]
    fn limit(value: u32) -> Self {
        i32::try_from(value).unwrap_or(i32::MAX)
    }
}

impl Limit for u32 {
    #[inline]
    fn limit(value: u32) -> Self {
        value
    }
}

/// Returns `value` in the type that the kernel has for a limit.
#[inline]
pub(crate) fn limit<T: Limit>(value: u32) -> T {
    T::limit(value)
}

/// `HRTIMER_NORESTART`: a plain number up to 7.2, a type of its own from 7.3.
pub(crate) const HRTIMER_NORESTART: bindings::hrtimer_restart = {
    // The value in the header does not depend on the type.
    assert!(bindings::FERROCE_HRTIMER_NORESTART == 0);
    // SAFETY: Either type is an integer, or a struct of one.
    unsafe { core::mem::zeroed() }
};

/// Executes a full barrier between CPUs. The function of the `kernel` crate takes an argument from
/// 7.3.
#[inline]
pub(crate) fn smp_mb() {
    // SAFETY: A barrier has no precondition.
    unsafe { bindings::smp_mb() };
}

/// Errors that the `kernel` crate of 7.2 has no names for.
pub mod errno {
    use core::mem::{size_of, transmute};
    use core::num::NonZero;

    use kernel::error::Error;
    use kernel::prelude::*;

    use rdma_bindings as bindings;

    const fn error(code: u32) -> Error {
        assert!(0 < code && code <= bindings::MAX_ERRNO);
        // CAST: The code was checked.
        match NonZero::new(-(code as i32)) {
            // SAFETY: An `Error` is a struct with one field of this type, and is as large as the
            // field. The field must hold a negative error code, and the code was checked.
            Some(errno) => unsafe { transmute::<NonZero<i32>, Error>(errno) },
            None => panic!(),
        }
    }

    static_assert!(size_of::<Error>() == size_of::<NonZero<i32>>());

    /// The operation is not supported.
    pub const EOPNOTSUPP: Error = error(bindings::EOPNOTSUPP);
    /// The address or port is in use.
    pub const EADDRINUSE: Error = error(bindings::EADDRINUSE);
    /// The address is not one of ours.
    pub const EADDRNOTAVAIL: Error = error(bindings::EADDRNOTAVAIL);
    /// There is no such address family here.
    pub const EAFNOSUPPORT: Error = error(bindings::EAFNOSUPPORT);
    /// There is no route to the network.
    pub const ENETUNREACH: Error = error(bindings::ENETUNREACH);
    /// There is no route to the host.
    pub const EHOSTUNREACH: Error = error(bindings::EHOSTUNREACH);
}
