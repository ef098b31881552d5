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

/// What [`LOCAL_DMA_LKEY`] opens.
///
/// # Who gets at it
///
/// A work request whose SGE has that key, of a queue pair that the kernel owns, and no others. What
/// these are was posted by a verb to a ring that no process maps: the verb refuses requests that a
/// process has the core pass for it, and a process's own queue pair is never one of the kernel's.
/// Nothing is found under the key in the tables, which is where keys of processes and peers are looked
/// up.
pub(super) struct KernelMemory {
    /// No object has it.
    pd: PdId,
    mr: Arc<Mr>,
}

impl KernelMemory {
    /// May sleep.
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

    /// What `sge` of a work request names that `poster` has posted.
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
