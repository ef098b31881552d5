// SPDX-License-Identifier: GPL-2.0

//! Memory of any kind that keys open.

use crate::{
    dmabuf::DmaBuf,
    odp::OnDemand,
    sg::SgMemory,
    umem::Umem, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};

pub use crate::memory::Pages;

/// The memory that a key opens.
pub enum Backing {
    /// Memory of a process, pinned.
    Pinned(Umem),
    /// Memory of a process, paged in when it is used.
    OnDemand(Arc<OnDemand>),
    /// Memory of another device driver.
    DmaBuf(DmaBuf),
    /// Memory of the kernel, which a scatter list names.
    Sg(SgMemory),
}

impl Backing {
    /// Returns the number of bytes of the blocks that it is mapped in.
    pub fn block_bytes(&self) -> usize {
        match self {
            Self::Pinned(umem) => umem.block_bytes(),
            Self::OnDemand(_) | Self::DmaBuf(_) | Self::Sg(_) => PAGE_SIZE,
        }
    }
}

// SAFETY: Each kind of memory implements `Pages` itself, and its pieces are passed on unchanged.
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
            Self::Sg(memory) => memory.read_chunks(at, len, f),
        }
    }

    #[inline]
    fn write_chunks(&self, at: u64, len: usize, f: impl FnMut(*mut u8, usize) -> Result) -> Result {
        match self {
            Self::Pinned(umem) => umem.write_chunks(at, len, f),
            Self::OnDemand(memory) => memory.write_chunks(at, len, f),
            Self::DmaBuf(buf) => buf.write_chunks(at, len, f),
            Self::Sg(memory) => memory.write_chunks(at, len, f),
        }
    }
}
