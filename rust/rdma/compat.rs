// SPDX-License-Identifier: GPL-2.0

//! What differs between the kernels that the crate builds for, and nothing else.
//!
//! Linux 7.3 made the limits of `ib_device_attr` unsigned and `hrtimer_restart` a type of its own,
//! gave the `kernel` crate error codes that 7.2 lacks, and its barriers an argument. What is here
//! builds for both without asking which one it is.

use rdma_bindings as bindings;

/// A limit that a device reports: `int` up to 7.2, `u32` from 7.3.
pub(crate) trait Limit {
    /// `value`, or the most that the type holds.
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

/// `value` as whichever type the kernel has for a limit.
#[inline]
pub(crate) fn limit<T: Limit>(value: u32) -> T {
    T::limit(value)
}

/// `HRTIMER_NORESTART`: a plain number up to 7.2, a type of its own from 7.3.
pub(crate) const HRTIMER_NORESTART: bindings::hrtimer_restart = {
    // What the header says it is, whatever its type.
    assert!(bindings::FERROCE_HRTIMER_NORESTART == 0);
    // SAFETY: Either type is an integer, or a struct of one.
    unsafe { core::mem::zeroed() }
};

/// A full barrier between CPUs; the function of the `kernel` crate takes an argument from 7.3.
#[inline]
pub(crate) fn smp_mb() {
    // SAFETY: A barrier may be put anywhere.
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
            // SAFETY: An `Error` is a struct of one field, and as large as that, which is of this
            // type and holds a negative error code.
            Some(errno) => unsafe { transmute::<NonZero<i32>, Error>(errno) },
            None => panic!(),
        }
    }

    static_assert!(size_of::<Error>() == size_of::<NonZero<i32>>());

    /// The operation is not supported.
    pub const EOPNOTSUPP: Error = error(bindings::EOPNOTSUPP);
    /// Someone else has the address or port.
    pub const EADDRINUSE: Error = error(bindings::EADDRINUSE);
    /// The address is not one of ours.
    pub const EADDRNOTAVAIL: Error = error(bindings::EADDRNOTAVAIL);
    /// There is no such address family here.
    pub const EAFNOSUPPORT: Error = error(bindings::EAFNOSUPPORT);
    /// There is no way to the network.
    pub const ENETUNREACH: Error = error(bindings::ENETUNREACH);
    /// There is no way to the host.
    pub const EHOSTUNREACH: Error = error(bindings::EHOSTUNREACH);
}
