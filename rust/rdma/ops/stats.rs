// SPDX-License-Identifier: GPL-2.0

//! The counters of a port.

use super::Operations;
use crate::device::Device;
use kernel::ffi::c_int;
use rdma_bindings as bindings;

/// Allocates values for all counters of `T`. Returns null if there is no memory.
pub(super) fn alloc_stats<T: Operations>() -> *mut bindings::rdma_hw_stats {
    let Ok(count) = c_int::try_from(T::COUNTERS.len()) else {
        return core::ptr::null_mut();
    };
    // SAFETY: There are `count` descriptions, which are static. `Counter` is transparent.
    unsafe {
        bindings::rdma_alloc_hw_stats_struct(
            T::COUNTERS.as_ptr().cast(),
            count,
            bindings::RDMA_HW_STATS_DEFAULT_LIFESPAN as kernel::ffi::c_ulong,
        )
    }
}

/// Returns the numbers in `stats`.
///
/// # Safety
///
/// `stats` must come from [`alloc_stats`], and be nobody else's for `'a`.
pub(super) unsafe fn values_of<'a>(stats: *mut bindings::rdma_hw_stats) -> &'a mut [u64] {
    // SAFETY: `alloc_stats` allocated `num_counters` values, and by the safety requirements nobody
    // else uses them.
    unsafe {
        core::slice::from_raw_parts_mut(
            (&raw mut (*stats).value).cast::<u64>(),
            (*stats).num_counters as usize,
        )
    }
}

/// Implements `ib_device_ops::alloc_hw_port_stats`.
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

/// Implements `ib_device_ops::get_hw_stats`. Stores all counters, regardless of the requested one.
///
/// # Safety
///
/// Only the core may call it, with a device of `T` and the statistics that [`alloc`] allocated for
/// it.
pub(super) unsafe extern "C" fn get<T: Operations>(
    device: *mut bindings::ib_device,
    stats: *mut bindings::rdma_hw_stats,
    port: u32,
    _index: c_int,
) -> c_int {
    // SAFETY: The core passes a registered device of ours.
    let device = unsafe { Device::<T>::from_raw(device) };
    // SAFETY: The core passes statistics that `alloc` allocated, and holds their lock.
    let values = unsafe { values_of(stats) };
    T::port_counters(device, port, values);
    // SAFETY: The core passes valid statistics, and holds their lock.
    unsafe { (*stats).num_counters }
}
