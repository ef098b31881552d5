// SPDX-License-Identifier: GPL-2.0

//! Memory regions.

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::Arc;
use rdma::dmabuf::DmaBuf;
use rdma::errno::EOPNOTSUPP;
use rdma::object::{Mr as IbMr, Pd as IbPd};
use rdma::odp::OnDemand;
use rdma::ops::{DmaBufInit, MrChange, MrInit, NewMr};
use rdma::pages::Backing;
use rdma::sg::SgPages;
use rdma::umem::Umem;
use roce::num::{Iova, Lkey, Rkey};

use super::Verbs;
use crate::fast::{self, FastMr};
use crate::memory::{Mr, Rights};
use crate::table::{self, FAST_INDICES, MR_INDICES};

/// What a region was made of.
#[derive(Clone, Copy)]
pub(crate) enum Origin {
    /// Memory of a process.
    Process(MrInit),
    /// A part of a dma-buf.
    DmaBuf(DmaBufInit),
    /// All memory of the kernel.
    Kernel,
}

/// What stands behind a memory region of the core's.
pub(crate) enum Handle {
    /// Memory that was registered by a verb, and what that is.
    Region(Arc<Mr>, Origin),
    /// Memory of the kernel that work requests register, and its index.
    Fast(Arc<FastMr>, u32),
}

impl Handle {
    /// What it was made of.
    pub(super) fn origin(&self) -> Origin {
        match self {
            Self::Region(_, origin) => *origin,
            Self::Fast(..) => Origin::Kernel,
        }
    }

    /// How many bytes its memory is mapped in at a time; `None` once it is gone, and if it is what
    /// work requests register.
    pub(super) fn block_bytes(&self) -> Option<usize> {
        match self {
            Self::Region(mr, _) => mr.block_bytes(),
            Self::Fast(..) => None,
        }
    }
}

/// Registers memory of the calling process.
///
/// Also when a region is to be registered anew, with something changed: what that leaves alone is
/// pinned again, so the old region stays whole until the new one is there, and what was granted of
/// it ends with it.
///
/// # Errors
///
/// Those of [`Rights::from_flags`], [`Umem::pin`] and [`OnDemand::new`]; `EINVAL` if the whole
/// address space is to be made of huge pages, or pinned memory is to be persistent and is not;
/// `EBUSY` if all keys are in use, `ENOMEM`.
pub(super) fn register(pd: &IbPd<Verbs>, init: MrInit) -> Result<NewMr<Handle>> {
    let rights = Rights::from_flags(init.access)?;
    let is_persistent = rights.contains(Rights::FLUSH_PERSISTENT);
    // Before anything can wait for it: in whose workers it would, the kernel's domains do not say.
    if is_persistent || Rights::is_on_demand(init.access) {
        let context = pd.ucontext().ok_or(EOPNOTSUPP)?;
        context.prepare_paging()?;
    }
    let pages = if Rights::is_on_demand(init.access) {
        let is_implicit = init.start == 0 && init.length == u64::MAX;
        if is_implicit && Rights::is_huge(init.access) {
            return Err(EINVAL);
        }
        let writable = rights.may_change();
        let memory = OnDemand::new(init.start, init.length, writable, is_persistent)?;
        Backing::OnDemand(memory)
    } else {
        let (start, length) = (init.start, init.length);
        let umem = Umem::pin(pd.device(), start, length, init.access)?;
        // Rules: MPE-16
        if is_persistent && !umem.is_persistent() {
            return Err(EINVAL);
        }
        Backing::Pinned(umem)
    };
    let iova = if Rights::is_zero_based(init.access) {
        0
    } else {
        init.iova
    };
    let origin = Origin::Process(init);
    publish(pd, rights, (Iova(iova), init.length), pages, origin)
}

/// Registers a part of a dma-buf.
///
/// # Errors
///
/// Those of [`Rights::from_flags`] and [`DmaBuf::map`]; `EINVAL` if it is to be persistent, which no
/// exporter says of its memory; `EBUSY` if all keys are in use, `ENOMEM`.
pub(super) fn register_dmabuf(pd: &IbPd<Verbs>, init: &DmaBufInit) -> Result<NewMr<Handle>> {
    let rights = Rights::from_flags(init.access)?;
    if rights.contains(Rights::FLUSH_PERSISTENT) {
        return Err(EINVAL);
    }
    let buf = DmaBuf::map(init.fd, init.offset, init.length, rights.may_change())?;
    let pages = Backing::DmaBuf(buf);
    let range = (Iova(init.iova), init.length);
    publish(pd, rights, range, pages, Origin::DmaBuf(*init))
}

/// Registers a region anew, with something changed.
///
/// # Errors
///
/// `EOPNOTSUPP` for what is not memory of a process; those of [`register`].
pub(super) fn change(
    mr: &IbMr<Verbs>,
    pd: &IbPd<Verbs>,
    change: &MrChange,
) -> Result<NewMr<Handle>> {
    match mr.origin() {
        Origin::Process(init) => register(pd, init.changed(change)),
        Origin::DmaBuf(_) | Origin::Kernel => Err(EOPNOTSUPP),
    }
}

fn publish(
    pd: &IbPd<Verbs>,
    rights: Rights,
    (iova, length): (Iova, u64),
    pages: Backing,
    origin: Origin,
) -> Result<NewMr<Handle>> {
    let place = pd.device().shared.objects.mrs.reserve(MR_INDICES)?;
    let key = table::key(place.id(), next_variant());
    let mr = Arc::pin_init(
        Mr::new(**pd, key, rights, iova, length, pages),
        GFP_KERNEL_ACCOUNT,
    )?;
    place.publish(mr.clone())?;
    Ok(NewMr {
        data: Handle::Region(mr, origin),
        lkey: Lkey(key),
        rkey: Rkey(key),
    })
}

/// Makes a region of all memory of the kernel, for users in the kernel; see [`Mr::kernel_region`].
///
/// # Errors
///
/// Those of [`Rights::of_kernel`]; `EBUSY` if all keys are in use, `ENOMEM`.
pub(super) fn register_kernel(pd: &IbPd<Verbs>, access: u32) -> Result<NewMr<Handle>> {
    let rights = Rights::of_kernel(access)?;
    let place = pd.device().shared.objects.mrs.reserve(MR_INDICES)?;
    let key = table::key(place.id(), next_variant());
    let mr = Arc::pin_init(Mr::kernel_region(**pd, key, rights)?, GFP_KERNEL)?;
    place.publish(mr.clone())?;
    Ok(NewMr {
        data: Handle::Region(mr, Origin::Kernel),
        lkey: Lkey(key),
        rkey: Rkey(key),
    })
}

/// Allocates a region that work requests register.
///
/// # Errors
///
/// `EINVAL` for more pages than advertised, `EBUSY` if all keys are in use, `ENOMEM`.
pub(super) fn alloc(pd: &IbPd<Verbs>, max_pages: u32) -> Result<NewMr<Handle>> {
    if max_pages == 0 || max_pages > fast::MAX_PAGES {
        return Err(EINVAL);
    }
    let place = pd.device().shared.objects.fast_mrs.reserve(FAST_INDICES)?;
    let index = place.id();
    let key = table::key(index, next_variant());
    let mr = Arc::pin_init(FastMr::new(**pd, key, max_pages)?, GFP_KERNEL)?;
    place.publish(mr.clone())?;
    Ok(NewMr {
        data: Handle::Fast(mr, index),
        lkey: Lkey(key),
        rkey: Rkey(key),
    })
}

/// Lays out what the next work request registers. Any context.
///
/// # Errors
///
/// Those of [`FastMr::lay_out`]; `EINVAL` for another kind of region.
pub(super) fn lay_out(mr: &IbMr<Verbs>, list: &mut SgPages<'_>) -> Result {
    match &**mr {
        Handle::Fast(mr, _) => mr.lay_out(list),
        Handle::Region(..) => Err(EINVAL),
    }
}

/// Makes a region's key invalid, waits until nothing copies from or to it, and unpins its memory.
pub(super) fn deregister(mr: &IbMr<Verbs>) {
    let objects = &mr.device().shared.objects;
    match &**mr {
        Handle::Region(mr, _) => {
            objects.mrs.remove(table::index_of(mr.key()));
            mr.revoke();
        }
        Handle::Fast(mr, index) => {
            objects.fast_mrs.remove(*index);
            mr.close();
        }
    }
}

/// The low byte of the next key.
// Rules: MEM-10
pub(super) fn next_variant() -> u8 {
    static NEXT: Atomic<u32> = Atomic::new(0);
    // Odd steps visit every value before one comes again.
    NEXT.fetch_add(0x35, Relaxed) as u8
}
