// SPDX-License-Identifier: GPL-2.0

//! Counters that `rdma statistic qp` binds queue pairs to.
//!
//! A counter has the same values as a port. While a queue pair is bound to one, its work is counted
//! there and not by the port. The core adds the values of all counters to those that it shows of
//! the port, also of destroyed ones.

use super::{
    stats::{
        alloc_stats,
        values_of, //
    },
    NewCounter,
    Operations, //
};
use crate::object::Qp;
use core::{
    mem::{
        align_of,
        size_of,
        MaybeUninit, //
    },
    ptr, //
};
use kernel::{
    error::from_result,
    ffi::c_int,
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Full, //
    }, //
};
use rdma_bindings as bindings;

/// The structure that the core allocates for a counter.
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
    /// Bytes of the structure.
    pub(super) const SIZE: usize = {
        // The core allocates by `kzalloc`, which aligns no better.
        assert!(align_of::<Self>() <= bindings::ARCH_KMALLOC_MINALIGN);
        size_of::<Self>()
    };
}

/// Returns the address of the driver's value of `counter`.
///
/// # Safety
///
/// `counter` must be one that the core has allocated for a device of `T`.
unsafe fn data_of<T: Operations>(counter: *mut bindings::rdma_counter) -> *mut T::Counter {
    let counter = counter.cast::<Counter<T>>();
    // SAFETY: The core has allocated as much as it was told, of which `data` is a part.
    unsafe { (&raw mut (*counter).data).cast() }
}

/// Returns the counter that `qp` is bound to, which the core leaves to the driver.
///
/// # Safety
///
/// `qp` must be valid for `'a`.
unsafe fn counter_of<'a>(qp: *mut bindings::ib_qp) -> &'a Atomic<*mut bindings::rdma_counter> {
    // SAFETY: By the safety requirements the field is valid. It is one word, which the core only reads.
    unsafe { Atomic::from_ptr(&raw mut (*qp).counter) }
}

/// Implements `ib_device_ops::counter_init`. There is nothing to do before a queue pair is bound.
///
/// # Safety
///
/// Any call is safe.
pub(super) unsafe extern "C" fn init(_counter: *mut bindings::rdma_counter) {}

/// Implements `ib_device_ops::counter_alloc_stats`.
///
/// # Safety
///
/// Any call is safe.
pub(super) unsafe extern "C" fn stats<T: Operations>(
    _counter: *mut bindings::rdma_counter,
) -> *mut bindings::rdma_hw_stats {
    alloc_stats::<T>()
}

/// Implements `ib_device_ops::counter_bind_qp`. The first queue pair creates the driver's part of
/// the counter. The core frees a counter to which none could be bound, and does not call the driver
/// then.
///
/// Two threads of a process may have the core bind the same queue pair, each to a counter. The core
/// checks without a lock that the queue pair has none, so this checks again.
///
/// # Safety
///
/// Only the core may call it, with a counter and a queue pair of the same device of `T`, and the
/// counter's lock held.
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
        // SAFETY: The core passes a valid counter, and holds its lock.
        let is_new = unsafe { (*counter).id } == 0;
        if is_new {
            let NewCounter { data: new, id } = T::new_counter(object.device())?;
            // SAFETY: There is room for it, and nobody else has it yet.
            unsafe {
                data.write(new);
                // INVARIANT: The data are there from now on.
                (*counter).id = id.get();
            }
        }
        // SAFETY: The queue pair is valid.
        let bound = unsafe { counter_of(qp) }.cmpxchg(ptr::null_mut(), counter, Full);
        if bound.is_err() {
            if is_new {
                // SAFETY: The core passes a valid counter, and holds its lock. The data are those of above,
                // and no queue pair is bound to them.
                unsafe { end::<T>(counter) };
            }
            return Err(EINVAL);
        }
        // SAFETY: By the invariant of `Counter` the data are there.
        T::bind_counter(object, unsafe { &*data });
        Ok(0)
    })
}

/// Drops the data of `counter`.
///
/// # Safety
///
/// `counter` must be one of a device of `T`, with data that nobody uses any more.
unsafe fn end<T: Operations>(counter: *mut bindings::rdma_counter) {
    // SAFETY: By the safety requirements the counter is valid, and the data are there for the last time.
    unsafe {
        ptr::drop_in_place(data_of::<T>(counter));
        // INVARIANT: The data are gone.
        (*counter).id = 0;
    }
}

/// Implements `ib_device_ops::counter_unbind_qp`.
///
/// Two threads of a process may have the core unbind the same queue pair. For each that succeeds it gives
/// back a reference to the counter, so one of them fails.
///
/// # Safety
///
/// Only the core may call it, with a queue pair of a device of `T`, and the lock held of a counter that the
/// queue pair was bound to.
pub(super) unsafe extern "C" fn unbind<T: Operations>(
    qp: *mut bindings::ib_qp,
    _port: u32,
) -> c_int {
    from_result(|| {
        // SAFETY: The core passes a queue pair that was created, and holds it.
        let object = unsafe { Qp::<T>::from_raw(qp) };
        // SAFETY: The core passes a valid queue pair.
        let place = unsafe { counter_of(qp) };
        let bound = place.load(Acquire);
        if bound.is_null() {
            return Err(EINVAL);
        }
        // First this: once the place is free, another counter may be bound.
        T::unbind_counter(object);
        place
            .cmpxchg(bound, ptr::null_mut(), Full)
            .map_err(|_| EINVAL)?;
        Ok(0)
    })
}

/// Implements `ib_device_ops::counter_update_stats`.
///
/// # Safety
///
/// Only the core may call it, with a counter of a device of `T`, and the counter's lock held.
pub(super) unsafe extern "C" fn update<T: Operations>(
    counter: *mut bindings::rdma_counter,
) -> c_int {
    // SAFETY: The core passes a counter with values that `stats` allocated.
    let values = unsafe { values_of((*counter).stats) };
    // SAFETY: The core shows counters to which a queue pair was bound, so by the invariant of
    // `Counter` the data are there.
    T::counter_values(unsafe { &*data_of::<T>(counter) }, values);
    0
}

/// Implements `ib_device_ops::counter_dealloc`.
///
/// # Safety
///
/// Only the core may call it, with a counter of a device of `T` that nobody uses any more.
pub(super) unsafe extern "C" fn dealloc<T: Operations>(
    counter: *mut bindings::rdma_counter,
) -> c_int {
    // SAFETY: The counter is valid and has no other user. The core deallocates counters to which a
    // queue pair was bound, so that its data were made.
    unsafe { end::<T>(counter) };
    0
}
