// SPDX-License-Identifier: GPL-2.0

//! Memory that a FLUSH is to get to persistence.

use kernel::prelude::*;
use kernel::sync::Arc;
use rdma::odp::Intent;
use rdma::pages::Pages;
use rdma::pmem;

use super::check::Place;
use super::mr::Mr;

/// Bytes of a region that a FLUSH is to get to persistence: they may still be in caches.
#[derive(Clone)]
pub(crate) struct Unwritten {
    mr: Arc<Mr>,
    at: u64,
    len: u64,
}

impl Unwritten {
    /// Returns the memory at `place` in `mr`.
    pub(super) fn new(mr: Arc<Mr>, place: Place) -> Self {
        let Place { offset: at, len } = place;
        Self { mr, at, len }
    }

    /// The most bytes that are written back in one step, and the most that any context writes back
    /// at once.
    const AT_ONCE: u64 = 64 << 10;
    /// The largest range in which absent pages of on-demand memory are looked up. A FLUSH can name
    /// such a range by its length. Of a larger region only the used pages are known.
    const LOOKED_FOR: u64 = u32::MAX as u64;

    /// Returns true if it is the same one.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.mr, &other.mr) && self.at == other.at && self.len == other.len
    }

    /// Writes it back, if that does not take long and it is all there. Any context.
    pub(crate) fn write_back_at_once(&self) -> Result {
        if self.len > Self::AT_ONCE {
            return Err(EAGAIN);
        }
        self.write_back_piece(self.at, self.len)
    }

    fn write_back_piece(&self, at: u64, len: u64) -> Result {
        let len = usize::try_from(len).map_err(|_| EFAULT)?;
        let written = self.mr.while_there(|pages| pages.write_back(at, len));
        written.ok_or(EFAULT)?
    }

    /// Writes it back. Sleeps.
    ///
    /// For on-demand memory, it first looks up the pages that are present. Other pages need no
    /// write-back.
    ///
    /// # Errors
    ///
    /// `EFAULT` if the memory is gone, `EBUSY` if the process keeps changing it, `EINTR` if it is not
    /// wanted any more, `ENOMEM`.
    pub(crate) fn write_back(&self, is_wanted: impl Fn() -> bool) -> Result {
        if let Some(memory) = self.mr.on_demand() {
            if self.len <= Self::LOOKED_FOR {
                memory.fault_in(self.at, self.len, Intent::Look, &is_wanted)?;
            }
            return memory.write_back_known(self.at, self.len, is_wanted);
        }
        let (mut at, mut left) = (self.at, self.len);
        while left > 0 {
            let piece = left.min(Self::AT_ONCE);
            self.write_back_piece(at, piece)?;
            pmem::give_way();
            if !is_wanted() {
                return Err(EINTR);
            }
            at = at.wrapping_add(piece);
            left = left.wrapping_sub(piece);
        }
        Ok(())
    }
}
