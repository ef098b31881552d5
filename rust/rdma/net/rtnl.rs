// SPDX-License-Identifier: GPL-2.0

//! The lock of the network's configuration.

use rdma_bindings as bindings;

/// Holds the RTNL as long as it exists.
pub(crate) struct Rtnl;

impl Rtnl {
    /// Takes the RTNL, which the caller must not hold; may sleep.
    pub(crate) fn lock() -> Self {
        // SAFETY: This is process context, and the caller does not hold the RTNL.
        unsafe { bindings::rtnl_lock() };
        Self
    }
}

impl Drop for Rtnl {
    fn drop(&mut self) {
        // SAFETY: It was locked by `lock`.
        unsafe { bindings::rtnl_unlock() };
    }
}
