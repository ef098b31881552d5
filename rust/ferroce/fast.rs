// SPDX-License-Identifier: GPL-2.0

//! Memory of the kernel that work requests register: what the standard calls fast registration.
//!
//! A user in the kernel allocates such a region once. For each use it lays out pages, has a work
//! request make them the region's, and another one, or its peer, take them away.

use kernel::prelude::*;
use kernel::sync::Arc;
use rdma::pages::Backing;
use rdma::sg::SgPages;
use rdma::sync::{BhSpinLock, IrqSpinLock};
use rdma::umem::Umem;
use roce::host::{AccessError, Extent};
use roce::num::Iova;
use roce::wr::{Placement, Register};

use crate::memory::{Rights, Segment};
use crate::paging::Miss;
use crate::table::{self, PdId};
use crate::window::Refused;

/// Pages of one region.
pub(crate) const MAX_PAGES: u32 = 512;

/// A region that work requests register.
///
/// Only users in the kernel have such regions, and work requests of their protection domain reach
/// them: that of a process is never the same.
///
/// Locks: `shown` is taken below those of a queue pair's halves, and `next` below that, in any context
/// by who lays out. `shown` is held while bytes are copied, so that none are once the key is invalid.
#[pin_data]
pub(crate) struct FastMr {
    pd: PdId,
    /// What the next work request registers.
    #[pin]
    next: IrqSpinLock<Umem>,
    #[pin]
    shown: BhSpinLock<Shown>,
}

/// What its key opens.
struct Shown {
    key: u32,
    /// None while it is free.
    view: Option<View>,
    pages: Backing,
    /// How often it was registered or invalidated: what was granted before is void.
    generation: u64,
}

#[derive(Clone, Copy)]
struct View {
    rights: Rights,
    /// The address of its first byte.
    iova: Iova,
    length: u64,
}

impl Shown {
    fn change(&mut self, key: u32, view: Option<View>) {
        self.key = key;
        self.view = view;
        self.generation = self.generation.wrapping_add(1);
    }

    /// Where in the region the `len` bytes at `iova` are, if `key` opens them for `rights`.
    fn look(&self, key: u32, rights: Rights, iova: Iova, len: u32) -> Result<u64, AccessError> {
        let view = self.view.ok_or(AccessError)?;
        if self.key != key || !view.rights.contains(rights) {
            return Err(AccessError);
        }
        let offset = iova.0.checked_sub(view.iova.0).ok_or(AccessError)?;
        let end = offset.checked_add(u64::from(len)).ok_or(AccessError)?;
        if end > view.length {
            return Err(AccessError);
        }
        Ok(offset)
    }
}

impl FastMr {
    /// A free region for lists of up to `max_pages` pages. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(pd: PdId, key: u32, max_pages: u32) -> Result<impl PinInit<Self>> {
        let next = Umem::pages(max_pages)?;
        let shown = Shown {
            key,
            view: None,
            pages: Backing::Pinned(Umem::pages(max_pages)?),
            generation: 0,
        };
        Ok(pin_init!(Self {
            pd,
            next <- rdma::new_irq_spinlock!(next, "ferroce::FastMr::next"),
            shown <- rdma::new_bh_spinlock!(shown, "ferroce::FastMr::shown"),
        }))
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
    pub(crate) fn register(&self, pd: PdId, register: &Register) -> Result<(), Refused> {
        let rights = Rights::of_kernel(register.access).map_err(|_| Refused)?;
        let mut shown = self.shown.lock();
        if self.pd != pd || shown.view.is_some() {
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
        let key = table::with_variant(shown.key, register.key.0);
        let view = View {
            rights,
            iova: register.iova,
            length,
        };
        shown.change(key, Some(view));
        Ok(())
    }

    /// Makes it free: nothing is copied by its key once this returns. That it is free already is no
    /// reason to fail, as both ends of a connection may see to it.
    pub(crate) fn invalidate(&self, pd: PdId, key: u32) -> Result<(), Refused> {
        let mut shown = self.shown.lock();
        if self.pd != pd || shown.key != key {
            return Err(Refused);
        }
        shown.change(key, None);
        Ok(())
    }

    /// Makes it free for good.
    pub(crate) fn close(&self) {
        self.shown.lock().change(0, None);
    }

    /// Checks that objects of `pd` may use the `len` bytes at `iova` with `rights`, by `key`.
    pub(crate) fn segment(
        this: &Arc<Self>,
        pd: PdId,
        key: u32,
        rights: Rights,
        iova: Iova,
        len: u32,
    ) -> Result<Segment, AccessError> {
        if this.pd != pd {
            return Err(AccessError);
        }
        let shown = this.shown.lock();
        let offset = shown.look(key, rights, iova, len)?;
        Ok(Segment::fast(this.clone(), shown.generation, offset, len))
    }

    /// As [`Mr::flush`](crate::memory::Mr::flush); it has no right to persistence.
    pub(crate) fn flush(
        &self,
        pd: PdId,
        key: u32,
        extent: Extent,
        placement: Placement,
    ) -> Result<(), AccessError> {
        if self.pd != pd {
            return Err(AccessError);
        }
        let rights = Rights::needed_to_flush(placement);
        let shown = self.shown.lock();
        let (iova, len) = match extent {
            Extent::Range { iova, len } => (iova, len),
            Extent::Region => (shown.view.ok_or(AccessError)?.iova, 0),
        };
        shown.look(key, rights, iova, len).map(drop)
    }

    /// Runs `copy` on its pages, if it still is what it was when it was granted, and keeps it so
    /// meanwhile.
    pub(crate) fn with_pages<R>(
        &self,
        generation: u64,
        copy: impl FnOnce(&Backing) -> Result<R>,
    ) -> Result<R, Miss> {
        let shown = self.shown.lock();
        if shown.generation != generation {
            return Err(Miss::Gone);
        }
        copy(&shown.pages).map_err(|_| Miss::Gone)
    }
}
