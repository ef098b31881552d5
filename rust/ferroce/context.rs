// SPDX-License-Identifier: GPL-2.0

//! Contexts: what one process that has opened a device may use of what all share.

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::prelude::*;
use kernel::sync::Arc;

/// The context of a process that has opened a device.
///
/// It owns the process's shares of what others need, too. Whoever uses some of a share holds the
/// context, which may so outlive the core's. The kernel as a user has none, and is not bounded.
pub(crate) struct Context {}

impl Context {
    /// A context that uses nothing. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(Self {}, GFP_KERNEL_ACCOUNT)?)
    }
}
