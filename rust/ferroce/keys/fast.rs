// SPDX-License-Identifier: GPL-2.0

//! Memory of the kernel that work requests register: what the standard calls fast registration.
//!
//! A user in the kernel allocates such a region once. For each use it lays out pages, has a work
//! request make them the region's, and another one, or its peer, take them away.

use kernel::prelude::*;
use rdma::pages::Backing;
use rdma::sg::SgPages;
use rdma::sync::{BhSpinLock, IrqSpinLock};
use rdma::umem::Umem;
use roce::host::AccessError;
use roce::num::Rkey;
use roce::wr::Register;

use super::check::{Claim, Generation, Identity, Place, Refused, Renewable, Scope};
use super::rights::Rights;
use crate::table::PdId;

/// Pages of one region.
pub(crate) const MAX_FAST_PAGES: u32 = 512;

/// A region that work requests register.
///
/// Only users in the kernel have such regions, and work requests of their protection domain reach
/// them: that of a process is never the same.
///
/// Locks: `shown` is taken below those of a queue pair's halves, and `next` below that, in any context
/// by who lays out. `shown` is held while bytes are copied, so that none are once the key is invalid.
#[pin_data]
pub(crate) struct FastMr {
    index: u32,
    /// What the next work request registers.
    #[pin]
    next: IrqSpinLock<Umem>,
    #[pin]
    shown: BhSpinLock<Shown>,
}

/// What its key opens, while it is not free.
struct Shown {
    key: Renewable<Scope>,
    pages: Backing,
}

impl FastMr {
    /// A free region for lists of up to `max_pages` pages, with keys of `index`. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(
        index: u32,
        identity: Identity,
        max_pages: u32,
    ) -> Result<impl PinInit<Self>> {
        let next = Umem::pages(max_pages)?;
        let shown = Shown {
            key: Renewable::new(identity),
            pages: Backing::Pinned(Umem::pages(max_pages)?),
        };
        Ok(pin_init!(Self {
            index,
            next <- rdma::new_irq_spinlock!(next, "ferroce::FastMr::next"),
            shown <- rdma::new_bh_spinlock!(shown, "ferroce::FastMr::shown"),
        }))
    }

    /// The index of its keys.
    pub(super) fn index(&self) -> u32 {
        self.index
    }

    /// Its key of now.
    pub(crate) fn key(&self) -> Rkey {
        self.shown.lock().key.key()
    }

    /// Lays out what the next work request registers. Any context.
    ///
    /// # Errors
    ///
    /// Those of [`Umem::lay_out`].
    pub(crate) fn lay_out(&self, list: &mut SgPages<'_>) -> Result {
        self.next.lock().lay_out(list)
    }

    /// Makes what was laid out the region's.
    pub(super) fn register(&self, pd: PdId, register: &Register) -> Result<(), Refused> {
        let rights = Rights::of_kernel(register.access).map_err(|_| Refused)?;
        let mut shown = self.shown.lock();
        // The request says which region it is, and its next variant, but not the one of now.
        if !shown.key.is_of(pd) || shown.key.opens().is_some() {
            return Err(Refused);
        }
        let length = {
            let next = self.next.lock();
            let in_page = register.iova.0 & (next.block_bytes() as u64).wrapping_sub(1);
            if next.is_empty() || in_page != next.offset_in_page() as u64 {
                return Err(Refused);
            }
            let Backing::Pinned(pages) = &mut shown.pages else {
                return Err(Refused);
            };
            pages.copy_pages(&next).map_err(|_| Refused)?;
            next.len() as u64
        };
        let scope = Scope {
            rights,
            iova: register.iova,
            length,
        };
        shown.key.renew(register.key, Some(scope));
        Ok(())
    }

    /// Makes it free: nothing is copied by its key once this returns. That it is free already is no
    /// reason to fail, as both ends of a connection may see to it.
    pub(super) fn invalidate(&self, pd: PdId, key: Rkey) -> Result<(), Refused> {
        let mut shown = self.shown.lock();
        if !shown.key.is(pd, key) {
            return Err(Refused);
        }
        shown.key.invalidate();
        Ok(())
    }

    /// Makes it free for good.
    pub(super) fn close(&self) {
        self.shown.lock().key.close();
    }

    /// Where in it is what is claimed, and [what a grant of that is known by](Self::while_granted).
    #[inline]
    pub(super) fn admit(&self, claim: &Claim) -> Result<(Place, Generation), AccessError> {
        let shown = self.shown.lock();
        let (_, place, generation) = shown.key.admit(claim)?;
        Ok((place, generation))
    }

    /// Runs `f` on its pages, if it still is as it was when something was granted, and keeps it so
    /// meanwhile.
    #[inline]
    pub(super) fn while_granted<R>(
        &self,
        generation: Generation,
        f: impl FnOnce(&Backing) -> R,
    ) -> Option<R> {
        let shown = self.shown.lock();
        shown.key.granted(generation)?;
        Some(f(&shown.pages))
    }
}
