// SPDX-License-Identifier: GPL-2.0

//! Memory that keys open, whatever stands behind it.

use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::dmabuf::DmaBuf;
use crate::odp::OnDemand;
use crate::umem::Umem;

pub use crate::memory::Pages;

/// What stands behind a key.
pub enum Backing {
    /// Memory of a process, pinned.
    Pinned(Umem),
    /// Memory of a process, paged in when it is used.
    OnDemand(Arc<OnDemand>),
    /// Memory of another device driver.
    DmaBuf(DmaBuf),
}

impl Backing {
    /// Bytes of the blocks that it is mapped in.
    pub fn block_bytes(&self) -> usize {
        match self {
            Self::Pinned(umem) => umem.block_bytes(),
            Self::OnDemand(_) | Self::DmaBuf(_) => PAGE_SIZE,
        }
    }
}

// SAFETY: Each kind of memory keeps to it.
unsafe impl Pages for Backing {
    #[inline]
    fn read_chunks(
        &self,
        at: u64,
        len: usize,
        f: impl FnMut(*const u8, usize) -> Result,
    ) -> Result {
        match self {
            Self::Pinned(umem) => umem.read_chunks(at, len, f),
            Self::OnDemand(memory) => memory.read_chunks(at, len, f),
            Self::DmaBuf(buf) => buf.read_chunks(at, len, f),
        }
    }

    #[inline]
    fn write_chunks(&self, at: u64, len: usize, f: impl FnMut(*mut u8, usize) -> Result) -> Result {
        match self {
            Self::Pinned(umem) => umem.write_chunks(at, len, f),
            Self::OnDemand(memory) => memory.write_chunks(at, len, f),
            Self::DmaBuf(buf) => buf.write_chunks(at, len, f),
        }
    }
}
