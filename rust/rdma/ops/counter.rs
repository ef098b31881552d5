// SPDX-License-Identifier: GPL-2.0

//! Counters that `rdma statistic qp` binds queue pairs to.
//!
//! A counter is a set of the values that a port has, too. While a queue pair is bound to one, what
//! it does is counted there and not by the port: the core adds the counters to what it shows of the
//! port, also those that are gone.

use core::mem::{align_of, size_of, MaybeUninit};
use core::ptr;

use kernel::error::from_result;
use kernel::ffi::c_int;

use rdma_bindings as bindings;

use super::stats::{alloc_stats, values_of};
use super::{NewCounter, Operations};
use crate::object::Qp;

/// What the core has allocated for a counter.
///
/// # Invariants
///
/// `data` is initialised if and only if `core.id` is not 0.
#[repr(C)]
pub(super) struct Counter<T: Operations> {
    core: bindings::rdma_counter,
    data: MaybeUninit<T::Counter>,
}

impl<T: Operations> Counter<T> {
    /// Bytes of the whole.
    pub(super) const SIZE: usize = {
        // The core allocates by `kzalloc`, which aligns no better.
        assert!(align_of::<Self>() <= bindings::ARCH_KMALLOC_MINALIGN);
        size_of::<Self>()
    };
}

/// Where the driver's value of `counter` is.
///
/// # Safety
///
/// `counter` must be one that the core has allocated for a device of `T`.
unsafe fn data_of<T: Operations>(counter: *mut bindings::rdma_counter) -> *mut T::Counter {
    let counter = counter.cast::<Counter<T>>();
    // SAFETY: The core has allocated as much as it was told, of which `data` is a part.
    unsafe { (&raw mut (*counter).data).cast() }
}

/// `ib_device_ops.counter_init`: there is nothing to do before a queue pair is bound.
///
/// # Safety
///
/// Any call is safe.
pub(super) unsafe extern "C" fn init(_counter: *mut bindings::rdma_counter) {}

/// `ib_device_ops.counter_alloc_stats`.
///
/// # Safety
///
/// Any call is safe.
pub(super) unsafe extern "C" fn stats<T: Operations>(
    _counter: *mut bindings::rdma_counter,
) -> *mut bindings::rdma_hw_stats {
    alloc_stats::<T>()
}

/// `ib_device_ops.counter_bind_qp`. The first queue pair makes the driver's part of the counter: the
/// core frees one to which none could be bound without telling the driver.
///
/// # Safety
///
/// To be called by the core alone, with a counter and a queue pair of the same device of `T`, and
/// the counter's lock held.
pub(super) unsafe extern "C" fn bind<T: Operations>(
    counter: *mut bindings::rdma_counter,
    qp: *mut bindings::ib_qp,
    _port: u32,
) -> c_int {
    from_result(|| {
        // SAFETY: The core passes a queue pair that was created, and holds it.
        let object = unsafe { Qp::<T>::from_raw(qp) };
        // SAFETY: The core passes a counter that it has allocated for this driver.
        let data = unsafe { data_of::<T>(counter) };
        // SAFETY: As above; its lock is held.
        if unsafe { (*counter).id } == 0 {
            let NewCounter { data: new, id } = T::new_counter(object.device())?;
            // SAFETY: There is room for it, and nobody else has it yet.
            unsafe {
                data.write(new);
                // INVARIANT: The data are there from now on.
                (*counter).id = id.get();
            }
        }
        // SAFETY: By the invariant of `Counter` the data are there.
        T::bind_counter(object, unsafe { &*data });
        // SAFETY: Both are valid; the core leaves this field to the driver.
        unsafe { (*qp).counter = counter };
        Ok(0)
    })
}

/// `ib_device_ops.counter_unbind_qp`.
///
/// # Safety
///
/// To be called by the core alone, with a queue pair of a device of `T` that is bound to a counter,
/// whose lock is held.
pub(super) unsafe extern "C" fn unbind<T: Operations>(
    qp: *mut bindings::ib_qp,
    _port: u32,
) -> c_int {
    // SAFETY: The core passes a queue pair that was created, and holds it.
    T::unbind_counter(unsafe { Qp::from_raw(qp) });
    // SAFETY: As above; the core leaves this field to the driver.
    unsafe { (*qp).counter = ptr::null_mut() };
    0
}

/// `ib_device_ops.counter_update_stats`.
///
/// # Safety
///
/// To be called by the core alone, with a counter of a device of `T`, whose lock is held.
pub(super) unsafe extern "C" fn update<T: Operations>(
    counter: *mut bindings::rdma_counter,
) -> c_int {
    // SAFETY: The core passes a counter whose numbers were allocated by `stats`.
    let values = unsafe { values_of((*counter).stats) };
    // SAFETY: The core shows counters to which a queue pair was bound, so by the invariant of
    // `Counter` the data are there.
    T::counter_values(unsafe { &*data_of::<T>(counter) }, values);
    0
}

/// `ib_device_ops.counter_dealloc`.
///
/// # Safety
///
/// To be called by the core alone, with a counter of a device of `T` that nobody uses any more.
pub(super) unsafe extern "C" fn dealloc<T: Operations>(
    counter: *mut bindings::rdma_counter,
) -> c_int {
    // SAFETY: As above; the core deallocates counters to which a queue pair was bound.
    unsafe {
        ptr::drop_in_place(data_of::<T>(counter));
        (*counter).id = 0;
    }
    0
}
