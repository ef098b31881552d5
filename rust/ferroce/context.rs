// SPDX-License-Identifier: GPL-2.0

//! Contexts: what one process that has opened a device may use of what all share.

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::prelude::*;
use kernel::sync::Arc;
use rdma::share::Share;

/// The context of a process that has opened a device.
///
/// It owns the process's shares of what others need, too. Whoever uses some of a share holds the
/// context, which may so outlive the core's. The kernel as a user has none, and is not bounded.
pub(crate) struct Context {
    /// Bytes of packets that wait for memory of the process.
    pub(crate) held_bytes: Arc<Share>,
}

/// Bytes of packets, with all that the kernel keeps for them, that wait for the memory of one process:
/// several queues full of the largest.
const MOST_HELD_BYTES: usize = 16 << 20;

impl Context {
    /// A context that uses nothing. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let context = Self {
            held_bytes: Share::new(MOST_HELD_BYTES)?,
        };
        Ok(Arc::new(context, GFP_KERNEL_ACCOUNT)?)
    }
}
