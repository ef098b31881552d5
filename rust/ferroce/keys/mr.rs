// SPDX-License-Identifier: GPL-2.0

//! Memory regions that a verb registers.

use kernel::prelude::*;
use kernel::sync::{rcu, Arc};
use rdma::odp::OnDemand;
use rdma::pages::Backing;
use rdma::revocable::Revocable;
use rdma::umem::Umem;
use roce::host::AccessError;
use roce::num::Iova;

use super::check::{Claim, Identity, Place, Scope};
use super::rights::Rights;

/// A memory region.
#[pin_data]
pub(crate) struct Mr {
    /// The key for local and remote requests: one number serves as both.
    identity: Identity,
    scope: Scope,
    /// It is all of the kernel's memory.
    is_kernel: bool,
    /// The pages; gone once the region is deregistered, however many requests still name it.
    #[pin]
    pages: Revocable<Backing>,
}

impl Mr {
    /// Creates the region over `pages`.
    pub(super) fn new(
        identity: Identity,
        scope: Scope,
        pages: Backing,
    ) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            identity,
            scope,
            is_kernel: false,
            pages <- Revocable::new(pages),
        })
    }

    /// Creates a region of all of the kernel's memory. Its addresses are those of the kernel.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn kernel(identity: Identity, rights: Rights) -> Result<impl PinInit<Self, Error>> {
        let scope = Scope {
            rights,
            iova: Iova(0),
            length: u64::MAX,
        };
        let pages = Umem::kernel()?;
        Ok(try_pin_init!(Self {
            identity,
            scope,
            is_kernel: true,
            pages <- Revocable::new(Backing::Pinned(pages)),
        }))
    }

    /// Returns its key.
    pub(crate) fn key(&self) -> u32 {
        self.identity.key
    }

    /// Returns the number of bytes of the blocks that it is made of; `None` once its memory is gone.
    pub(crate) fn block_bytes(&self) -> Option<usize> {
        self.while_there(Backing::block_bytes)
    }

    /// Makes the memory unreachable and unpins it. Waits for running copies; may sleep.
    // Rules: MEM-9
    pub(super) fn revoke(&self) {
        self.pages.revoke();
    }

    /// Returns the place of the claimed bytes in the region.
    #[inline]
    pub(super) fn admit(&self, claim: &Claim) -> Result<Place, AccessError> {
        let place = self.identity.admit(&self.scope, claim)?;
        // Memory that the kernel has not mapped would fault. A claim to all of it only asks for
        // visibility, which is given.
        if self.is_kernel && !claim.is_of_all() && !place.is_linear() {
            return Err(AccessError);
        }
        Ok(place)
    }

    /// Returns its memory, if that is paged in on demand and the region not deregistered.
    pub(super) fn on_demand(&self) -> Option<Arc<OnDemand>> {
        self.while_there(|pages| match pages {
            Backing::OnDemand(memory) => Some(memory.clone()),
            Backing::Pinned(_) | Backing::DmaBuf(_) | Backing::Sg(_) => None,
        })?
    }

    /// Returns true if it is not deregistered.
    pub(super) fn is_there(&self) -> bool {
        self.while_there(|_| ()).is_some()
    }

    /// Runs `f` on its memory, unless that is gone, and keeps it meanwhile.
    #[inline]
    pub(super) fn while_there<R>(&self, f: impl FnOnce(&Backing) -> R) -> Option<R> {
        let guard = rcu::read_lock();
        self.pages.try_access_with_guard(&guard).map(f)
    }
}
