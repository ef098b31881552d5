// SPDX-License-Identifier: GPL-2.0

//! Rights to memory.

use kernel::prelude::*;
use rdma::errno::EOPNOTSUPP;
use rdma::pmem;
use roce::host::Access;
use roce::wr::Placement;

/// Rights to a memory region; the bits are those of `enum ib_access_flags`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rights(u32);

impl Rights {
    /// No right but to send from it.
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const LOCAL_WRITE: Self = Self(1 << 0);
    pub(crate) const REMOTE_WRITE: Self = Self(1 << 1);
    pub(crate) const REMOTE_READ: Self = Self(1 << 2);
    pub(crate) const REMOTE_ATOMIC: Self = Self(1 << 3);
    const MW_BIND: Self = Self(1 << 4);
    const ZERO_BASED: u32 = 1 << 5;
    const ON_DEMAND: u32 = 1 << 6;
    const HUGETLB: u32 = 1 << 7;
    const FLUSH_GLOBAL: Self = Self(1 << 8);
    pub(crate) const FLUSH_PERSISTENT: Self = Self(1 << 9);

    /// Flags that a device may ignore (`IB_ACCESS_OPTIONAL`).
    const OPTIONAL: u32 = 0x3ff << 20;
    const SUPPORTED: u32 = Self::LOCAL_WRITE.0
        | Self::REMOTE_WRITE.0
        | Self::REMOTE_READ.0
        | Self::REMOTE_ATOMIC.0
        | Self::MW_BIND.0
        | Self::FLUSH_GLOBAL.0
        | (if pmem::CAN_WRITE_BACK {
            Self::FLUSH_PERSISTENT.0
        } else {
            0
        })
        | Self::ZERO_BASED
        | Self::ON_DEMAND
        | Self::HUGETLB
        | Self::OPTIONAL;
    /// Flags that select the kind of a region, and are no rights.
    const KINDS: u32 = Self::ZERO_BASED | Self::ON_DEMAND | Self::HUGETLB;
    /// Rights of a peer that the owner must have too.
    const REMOTE_CHANGE: Self = Self(Self::REMOTE_WRITE.0 | Self::REMOTE_ATOMIC.0);

    /// Checks flags that a user asks for.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` for a flag that ferroce does not know, `EINVAL` for a peer's right to change
    /// memory that the owner may not.
    pub(crate) fn from_flags(flags: u32) -> Result<Self> {
        if flags & !Self::SUPPORTED != 0 {
            return Err(EOPNOTSUPP);
        }
        let rights = Self(flags & !(Self::OPTIONAL | Self::KINDS));
        // Rules: MEM-6
        if rights.meets(Self::REMOTE_CHANGE) && !rights.contains(Self::LOCAL_WRITE) {
            return Err(EINVAL);
        }
        Ok(rights)
    }

    /// Checks flags that a user in the kernel asks for, for memory that it may change in any case.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` for a flag that ferroce does not know, or that concerns memory of processes. It
    /// is also returned for FLUSH to persistence, as the memory that a work request registers
    /// cannot be checked there.
    pub(crate) fn of_kernel(flags: u32) -> Result<Self> {
        if flags & (Self::KINDS | Self::FLUSH_PERSISTENT.0) != 0 {
            return Err(EOPNOTSUPP);
        }
        Self::from_flags(flags | Self::LOCAL_WRITE.0)
    }

    /// Returns the rights that `access` needs.
    // Rules: MEM-4
    pub(crate) fn needed_for(access: Access) -> Self {
        match access {
            Access::Read => Self::REMOTE_READ,
            Access::Write => Self::REMOTE_WRITE,
            Access::Atomic => Self::REMOTE_ATOMIC,
        }
    }

    /// Returns the rights of a window; `None` if it cannot have them.
    ///
    /// Programs pass the flags of their regions here, so flags that are no right of a peer are ignored.
    pub(crate) fn of_window(flags: u32) -> Option<Self> {
        const IGNORED: u32 =
            Rights::LOCAL_WRITE.0 | Rights::MW_BIND.0 | Rights::ZERO_BASED | Rights::OPTIONAL;
        const RIGHTS: u32 = Rights::REMOTE_WRITE.0
            | Rights::REMOTE_READ.0
            | Rights::REMOTE_ATOMIC.0
            | Rights::FLUSH_GLOBAL.0
            | Rights::FLUSH_PERSISTENT.0;
        (flags & !(IGNORED | RIGHTS) == 0).then_some(Self(flags & RIGHTS))
    }

    /// Returns the rights that a region needs for a window with these rights.
    // Rules: MWN-8, MWN-9
    pub(super) fn needed_to_bind(self) -> Self {
        let changes = self.meets(Self::REMOTE_CHANGE);
        let local = if changes { Self::LOCAL_WRITE.0 } else { 0 };
        // The memory was looked at, whether it is persistent, only for a region with that right.
        Self(Self::MW_BIND.0 | local | (self.0 & Self::FLUSH_PERSISTENT.0))
    }

    /// Returns true if memory of these flags is paged in on demand.
    pub(crate) fn is_on_demand(flags: u32) -> bool {
        flags & Self::ON_DEMAND != 0
    }

    /// Returns true if a process says that its memory is made of huge pages.
    pub(crate) fn is_huge(flags: u32) -> bool {
        flags & Self::HUGETLB != 0
    }

    /// Returns true if anything could write to memory with these rights: windows to it may be bound with
    /// rights of their own.
    pub(crate) fn may_change(self) -> bool {
        self.meets(Self(
            Self::LOCAL_WRITE.0 | Self::REMOTE_CHANGE.0 | Self::MW_BIND.0,
        ))
    }

    /// Returns true if a region or window has address 0 for its first byte.
    pub(crate) fn is_zero_based(flags: u32) -> bool {
        flags & Self::ZERO_BASED != 0
    }

    /// Returns the rights that a FLUSH to `placement` needs.
    pub(crate) fn needed_to_flush(placement: Placement) -> Self {
        let right = |wanted, right: Self| if wanted { right.0 } else { 0 };
        let global = right(placement.global, Self::FLUSH_GLOBAL);
        Self(global | right(placement.persistent, Self::FLUSH_PERSISTENT))
    }

    /// Returns true if all of `other` is in it.
    pub(crate) fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}
