// SPDX-License-Identifier: GPL-2.0

//! The counters of a port.

use kernel::ffi::c_int;

use rdma_bindings as bindings;

use super::Operations;
use crate::device::Device;

/// Numbers for all counters of `T`; null if there is no memory.
pub(super) fn alloc_stats<T: Operations>() -> *mut bindings::rdma_hw_stats {
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
pub(super) unsafe fn values_of<'a>(stats: *mut bindings::rdma_hw_stats) -> &'a mut [u64] {
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
pub(super) unsafe extern "C" fn alloc<T: Operations>(
    _device: *mut bindings::ib_device,
    _port: u32,
) -> *mut bindings::rdma_hw_stats {
    alloc_stats::<T>()
}

/// `ib_device_ops.get_hw_stats`: fills in all counters, whichever is asked for.
///
/// # Safety
///
/// To be called by the core alone, with a device of `T` and what was allocated by [`alloc`]
/// for it.
pub(super) unsafe extern "C" fn get<T: Operations>(
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
