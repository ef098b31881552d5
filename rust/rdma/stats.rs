// SPDX-License-Identifier: GPL-2.0

//! Counters of a port and their names, as `rdma statistic` and sysfs show them.

use kernel::ffi::c_int;
use kernel::prelude::*;

use rdma_bindings as bindings;

use crate::device::Device;
use crate::ops::Operations;

/// The name of a counter.
#[repr(transparent)]
pub struct Counter(bindings::rdma_stat_desc);

// SAFETY: A counter points to a static name and to nothing else.
unsafe impl Send for Counter {}
// SAFETY: As above.
unsafe impl Sync for Counter {}

impl Counter {
    /// A counter that is called `name`, as in `rdma statistic`: lower case with underscores.
    pub const fn new(name: &'static CStr) -> Self {
        Self(bindings::rdma_stat_desc {
            name: name.to_bytes_with_nul().as_ptr().cast(),
            flags: 0,
            priv_: core::ptr::null(),
        })
    }
}

/// Numbers for all counters of `T`; null if there is no memory.
pub(crate) fn alloc_stats<T: Operations>() -> *mut bindings::rdma_hw_stats {
    let Ok(count) = c_int::try_from(T::COUNTERS.len()) else {
        return core::ptr::null_mut();
    };
    // SAFETY: The descriptions are static and as many as is said; `Counter` is transparent.
    unsafe {
        bindings::rdma_alloc_hw_stats_struct(
            T::COUNTERS.as_ptr().cast(),
            count,
            bindings::RDMA_HW_STATS_DEFAULT_LIFESPAN as kernel::ffi::c_ulong,
        )
    }
}

/// The numbers in `stats`.
///
/// # Safety
///
/// `stats` must come from [`alloc_stats`], and be nobody else's for `'a`.
pub(crate) unsafe fn values_of<'a>(stats: *mut bindings::rdma_hw_stats) -> &'a mut [u64] {
    // SAFETY: They were allocated for as many as this.
    unsafe {
        core::slice::from_raw_parts_mut(
            (&raw mut (*stats).value).cast::<u64>(),
            (*stats).num_counters as usize,
        )
    }
}

/// `ib_device_ops.alloc_hw_port_stats`.
///
/// # Safety
///
/// Any call is safe.
pub(crate) unsafe extern "C" fn alloc_port_stats_callback<T: Operations>(
    _device: *mut bindings::ib_device,
    _port: u32,
) -> *mut bindings::rdma_hw_stats {
    alloc_stats::<T>()
}

/// `ib_device_ops.get_hw_stats`: fills in all counters, whichever is asked for.
///
/// # Safety
///
/// To be called by the core alone, with a device of `T` and what was allocated by
/// [`alloc_port_stats_callback`] for it.
pub(crate) unsafe extern "C" fn get_stats_callback<T: Operations>(
    device: *mut bindings::ib_device,
    stats: *mut bindings::rdma_hw_stats,
    port: u32,
    _index: c_int,
) -> c_int {
    // SAFETY: The core passes a registered device of ours.
    let device = unsafe { Device::<T>::from_raw(device) };
    // SAFETY: The core passes what was allocated for it, and holds its lock.
    let values = unsafe { values_of(stats) };
    T::port_counters(device, port, values);
    // SAFETY: As above.
    unsafe { (*stats).num_counters }
}
