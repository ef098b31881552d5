// SPDX-License-Identifier: GPL-2.0

//! Memory that cannot be copied from or to before a work item has done something for it.

use kernel::prelude::*;
use kernel::sync::Arc;
use rdma::odp::Intent;

use super::flush::Unwritten;
use super::mr::Mr;

/// Bytes that are faulted in beyond the needed ones, if they will be needed, and if that does not
/// take a disk.
const MAX_AHEAD: u32 = 256 << 10;

/// Memory that something has to be done for by a work item.
#[derive(Clone)]
pub(crate) enum Absent {
    /// It is to be faulted in.
    Page(AbsentPage),
    /// It is to be written back from the caches.
    Unwritten(Unwritten),
}

/// Memory that is to be faulted in.
#[derive(Clone)]
pub(crate) struct AbsentPage {
    mr: Arc<Mr>,
    at: u64,
    /// Bytes that are needed.
    len: u32,
    /// Bytes behind them that will be needed.
    ahead: u32,
    intent: Intent,
}

/// Why bytes were not copied.
pub(crate) enum Miss {
    /// The memory is gone, or not there.
    Gone,
    /// It is to be faulted in.
    Absent(Absent),
}

impl Miss {
    /// Returns this without readahead.
    pub(crate) fn without_ahead(self) -> Self {
        match self {
            Self::Absent(Absent::Page(page)) => {
                Self::Absent(Absent::Page(AbsentPage { ahead: 0, ..page }))
            }
            other => other,
        }
    }
}

impl Absent {
    /// Returns `len` absent bytes from byte `at` of `mr` on, with `ahead` bytes behind them that
    /// will be needed, too.
    pub(super) fn page(mr: &Arc<Mr>, at: u64, len: u32, ahead: u32, intent: Intent) -> Self {
        Self::Page(AbsentPage {
            mr: mr.clone(),
            at,
            len,
            ahead: ahead.min(MAX_AHEAD),
            intent,
        })
    }

    /// Returns true if it is the same one.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Page(one), Self::Page(other)) => one.is_same(other),
            (Self::Unwritten(one), Self::Unwritten(other)) => one.is_same(other),
            _ => false,
        }
    }
}

impl AbsentPage {
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.mr, &other.mr) && self.at == other.at && self.intent == other.intent
    }

    /// Faults the memory in, with readahead. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of [`fault_in`](rdma::odp::OnDemand::fault_in); `EFAULT` if the memory is gone.
    pub(crate) fn fault_in(&self, is_wanted: impl Fn() -> bool) -> Result {
        let memory = self.mr.on_demand().ok_or(EFAULT)?;
        memory.fault_in(self.at, self.len.into(), self.intent, &is_wanted)?;
        if self.ahead > 0 {
            let behind = self.at.saturating_add(self.len.into());
            memory.fault_in_ahead(behind, self.ahead.into(), self.intent, is_wanted);
        }
        Ok(())
    }
}
