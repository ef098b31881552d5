// SPDX-License-Identifier: GPL-2.0

//! All of the kernel's memory, as its own work requests name it.

use kernel::prelude::*;
use kernel::sync::Arc;
use roce::abi::{Poster, Sge};
use roce::host::AccessError;

use super::check::{Bytes, Claim, Identity};
use super::mr::Mr;
use super::number::LOCAL_DMA_LKEY;
use super::rights::Rights;
use super::segment::Segment;
use crate::table::PdId;

/// The memory that [`LOCAL_DMA_LKEY`] opens.
///
/// # Access
///
/// Only a work request of a queue pair that the kernel owns, with that key in an SGE, has access. A
/// verb posts such requests to a ring that no process maps. The verb refuses requests that the core
/// posts for a process, and a process's queue pair is never one of the kernel's. The tables for
/// keys of processes and peers do not have this key.
pub(super) struct KernelMemory {
    /// No object has it.
    pd: PdId,
    mr: Arc<Mr>,
}

impl KernelMemory {
    /// Creates the kernel's memory region. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new() -> Result<Self> {
        let pd = PdId::new();
        let identity = Identity {
            pd,
            key: LOCAL_DMA_LKEY.0,
        };
        let mr = Arc::pin_init(Mr::kernel(identity, Rights::LOCAL_WRITE)?, GFP_KERNEL)?;
        Ok(Self { pd, mr })
    }

    /// Returns the memory that `sge` names, in a work request that `poster` has posted.
    #[cold]
    pub(super) fn segment(&self, poster: Poster, sge: Sge) -> Result<Segment, AccessError> {
        if poster != Poster::Kernel {
            return Err(AccessError);
        }
        let bytes = Bytes::Range(sge.addr, sge.length.into());
        let claim = Claim::local(self.pd, sge.lkey, Rights::NONE, bytes);
        Segment::of_mr(self.mr.as_arc_borrow(), &claim, sge.length)
    }
}
