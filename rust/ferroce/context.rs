// SPDX-License-Identifier: GPL-2.0

//! Contexts: what one process that has opened a device may use of what all share.

use core::ops::Deref;

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::prelude::*;
use kernel::sync::atomic::Atomic;
use kernel::sync::{Arc, SetOnce};
use rdma::share::Share;
use rdma::sync::Marked;
use rdma::work::{Flags, Queue};

use crate::groups::MAX_ATTACHED_OF_ONE;
use crate::table::AH_NUMBERS;

/// Bytes of packets, with all that the kernel keeps for them, that wait for the memory of one process:
/// several queues full of the largest.
const MOST_HELD_BYTES: usize = 16 << 20;

/// Address handles of one process, of all that there are. Mostly its memory is at an end before.
const MAX_AHS: usize = (*AH_NUMBERS.end() as usize + 1) / 8;

/// Workers that sleep for one process, for memory that has to be paged in. As many disks' worth of
/// requests at a time; what is more waits in line, behind what is the process's own.
const PAGING_WORKERS: u16 = 8;

/// The context of a process that has opened a device.
///
/// It owns the process's shares of what others need, too. Whoever uses some of a share holds the
/// context, which may so outlive the core's. The kernel as a user has none, and is not bounded.
pub(crate) struct Context {
    /// Address handles.
    pub(crate) ahs: Arc<Share>,
    /// Queue pairs in multicast groups; one for each group that it is in.
    pub(crate) attached: Arc<Share>,
    /// Bytes of packets that wait for memory of the process.
    pub(crate) held_bytes: Arc<Share>,
    /// Where its memory is paged in, and written back to persistence. It is there once the process has
    /// a region that may need that.
    paging: SetOnce<Queue>,
    is_closed: Atomic<bool>,
}

impl Context {
    /// A context that uses nothing. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn new() -> Result<Arc<Self>> {
        let context = Self {
            ahs: Share::new(MAX_AHS)?,
            attached: Share::new(MAX_ATTACHED_OF_ONE as usize)?,
            held_bytes: Share::new(MOST_HELD_BYTES)?,
            paging: SetOnce::new(),
            is_closed: Atomic::new(false),
        };
        Ok(Arc::new(context, GFP_KERNEL_ACCOUNT)?)
    }

    /// Makes a queue of work items that sleep for memory of the process, unless there is one. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `ENODEV` when the module is being unloaded.
    pub(crate) fn prepare_paging(&self) -> Result {
        if self.paging.as_ref().is_none() {
            let queue = Queue::with_workers(c"ferroce_fault", Flags::UNBOUND, PAGING_WORKERS)?;
            // Another thread may have been faster.
            let _ = self.paging.populate(queue);
        }
        Ok(())
    }

    /// The queue of work items that sleep for memory of the process. Any context.
    #[inline]
    pub(crate) fn paging(&self) -> Option<&Queue> {
        self.paging.as_ref()
    }

    /// Whether the process has closed the device. Any context.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.read_once()
    }
}

/// A context that a process has open. Dropping it closes the context.
pub(crate) struct OpenContext(Arc<Context>);

impl OpenContext {
    /// A context that uses nothing. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(Context::new()?))
    }
}

impl Deref for OpenContext {
    type Target = Arc<Context>;

    fn deref(&self) -> &Arc<Context> {
        &self.0
    }
}

impl Drop for OpenContext {
    fn drop(&mut self) {
        self.0.is_closed.write_once(true);
    }
}
