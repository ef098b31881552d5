// SPDX-License-Identifier: GPL-2.0

//! The names of counters, as `rdma statistic` and sysfs show them.

use kernel::prelude::*;
use rdma_bindings as bindings;

/// The name of a counter.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Counter(bindings::rdma_stat_desc);

// SAFETY: A counter points to a static name and to nothing else.
unsafe impl Send for Counter {}
// SAFETY: A counter has no interior that changes.
unsafe impl Sync for Counter {}

impl Counter {
    /// Creates a counter that is called `name`, as in `rdma statistic`: lower case with underscores.
    pub const fn new(name: &'static CStr) -> Self {
        Self(bindings::rdma_stat_desc {
            name: name.to_bytes_with_nul().as_ptr().cast(),
            flags: 0,
            priv_: core::ptr::null(),
        })
    }
}
