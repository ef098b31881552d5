// SPDX-License-Identifier: GPL-2.0

//! Kernel memory that work requests register: fast registrations of the standard.
//!
//! A kernel user allocates such a region once. For each use it sets the memory and posts a work request
//! that registers it. Another work request, or the peer, invalidates the key.

use kernel::prelude::*;
use rdma::pages::Backing;
use rdma::sg::{SgList, SgMemory};
use rdma::sync::{BhSpinLock, IrqSpinLock};
use roce::host::AccessError;
use roce::num::Rkey;
use roce::wr::Register;

use super::check::{Claim, Generation, Identity, Place, Refused, Renewable, Scope};
use super::rights::Rights;
use crate::table::PdId;

/// Pages of one region, or elements of its list.
pub(crate) const MAX_FAST_PAGES: u32 = 512;

/// A region that work requests register.
///
/// Only kernel users have such regions, and only work requests of their protection domain can name them.
/// No process has such a domain.
///
/// `shown` is taken under the lock of a half. `next` is taken under `shown`, or in any context to set
/// memory. `shown` is held during copies, so no copy runs once the key is invalid.
#[pin_data]
pub(crate) struct FastMr {
    index: u32,
    /// The memory that the next work request registers.
    #[pin]
    next: IrqSpinLock<SgMemory>,
    #[pin]
    shown: BhSpinLock<Shown>,
}

/// The memory of the key, while the region is not free.
struct Shown {
    key: Renewable<Scope>,
    /// [`Backing::Sg`].
    memory: Backing,
}

impl FastMr {
    /// Returns a free region for lists of up to `most` pages or elements, with keys of `index`. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(index: u32, identity: Identity, most: u32) -> Result<impl PinInit<Self>> {
        let next = SgMemory::new(most)?;
        let shown = Shown {
            key: Renewable::new(identity),
            memory: Backing::Sg(SgMemory::new(most)?),
        };
        Ok(pin_init!(Self {
            index,
            next <- rdma::new_irq_spinlock!(next, "ferroce::FastMr::next"),
            shown <- rdma::new_bh_spinlock!(shown, "ferroce::FastMr::shown"),
        }))
    }

    /// Returns the index of its keys.
    pub(super) fn index(&self) -> u32 {
        self.index
    }

    /// Returns its key of now.
    pub(crate) fn key(&self) -> Rkey {
        self.shown.lock().key.key()
    }

    /// Sets the memory that the next work request registers. Any context.
    ///
    /// # Errors
    ///
    /// Those of [`SgMemory::lay_out`].
    pub(crate) fn lay_out(&self, list: &mut SgList<'_>) -> Result {
        self.next.lock().lay_out(list)
    }

    /// Registers the memory that was set.
    pub(super) fn register(&self, pd: PdId, register: &Register) -> Result<(), Refused> {
        let rights = Rights::of_kernel(register.access).map_err(|_| Refused)?;
        let mut shown = self.shown.lock();
        // The request says which region it is, and its next variant, but not the one of now.
        if !shown.key.is_of(pd) || shown.key.opens().is_some() {
            return Err(Refused);
        }
        let length = {
            let next = self.next.lock();
            if next.is_empty() || !next.may_start_at(register.iova.0) {
                return Err(Refused);
            }
            let Backing::Sg(memory) = &mut shown.memory else {
                return Err(Refused);
            };
            memory.copy_from(&next).map_err(|_| Refused)?;
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

    /// Frees it permanently.
    pub(super) fn close(&self) {
        self.shown.lock().key.close();
    }

    /// Returns the place of the claimed bytes, and the [generation](Self::while_granted) of the grant.
    #[inline]
    pub(super) fn admit(&self, claim: &Claim) -> Result<(Place, Generation), AccessError> {
        let shown = self.shown.lock();
        let (_, place, generation) = shown.key.admit(claim)?;
        Ok((place, generation))
    }

    /// Runs `f` on its memory, if it still is as it was when something was granted, and keeps it so
    /// meanwhile.
    #[inline]
    pub(super) fn while_granted<R>(
        &self,
        generation: Generation,
        f: impl FnOnce(&Backing) -> R,
    ) -> Option<R> {
        let shown = self.shown.lock();
        shown.key.granted(generation)?;
        Some(f(&shown.memory))
    }
}
