// SPDX-License-Identifier: GPL-2.0

//! Memory regions.

use kernel::prelude::*;
use kernel::sync::Arc;
use rdma::dmabuf::DmaBuf;
use rdma::errno::EOPNOTSUPP;
use rdma::object::{Mr as IbMr, Pd as IbPd};
use rdma::odp::OnDemand;
use rdma::ops::{DmaBufInit, MrChange, MrInit, NewMr};
use rdma::pages::Backing;
use rdma::sg::SgList;
use rdma::umem::Umem;
use roce::num::Iova;

use super::Verbs;
use crate::keys::{FastMr, Mr, Rights, MAX_FAST_PAGES};

/// The origin of a region's memory.
#[derive(Clone, Copy)]
pub(crate) enum Origin {
    /// Memory of a process.
    Process(MrInit),
    /// A part of a dma-buf.
    DmaBuf(DmaBufInit),
    /// All memory of the kernel.
    Kernel,
}

/// The driver's value of a memory region of the core.
pub(crate) enum Handle {
    /// Memory that a verb registered, and its origin.
    Region(Arc<Mr>, Origin),
    /// Memory of the kernel that work requests register.
    Fast(Arc<FastMr>),
}

impl Handle {
    /// Returns the origin of the memory.
    pub(super) fn origin(&self) -> Origin {
        match self {
            Self::Region(_, origin) => *origin,
            Self::Fast(_) => Origin::Kernel,
        }
    }

    /// Returns the size of its blocks in bytes; `None` once its memory is gone, and for a region that
    /// work requests register.
    pub(super) fn block_bytes(&self) -> Option<usize> {
        match self {
            Self::Region(mr, _) => mr.block_bytes(),
            Self::Fast(_) => None,
        }
    }
}

/// Registers memory of the calling process.
///
/// It also registers a region again with a change. Unchanged memory is pinned again, so the old
/// region stays whole until the new one exists. Grants of the old region end with it.
///
/// # Errors
///
/// Those of [`Rights::from_flags`], [`Umem::pin`] and [`OnDemand::new`]; `EINVAL` if the whole
/// address space is to be made of huge pages, or pinned memory is to be persistent and is not;
/// `EBUSY` if all keys are in use, `ENOMEM`.
pub(super) fn register(pd: &IbPd<Verbs>, init: MrInit) -> Result<NewMr<Handle>> {
    let rights = Rights::from_flags(init.access)?;
    let is_persistent = rights.contains(Rights::FLUSH_PERSISTENT);
    // Prepare this before anything can wait for it: the kernel's domains cannot tell later whose
    // workers must page in.
    let is_on_demand = Rights::is_on_demand(init.access);
    let pager = if is_persistent || is_on_demand {
        let context = pd.ucontext().ok_or(EOPNOTSUPP)?;
        Some(context.prepare_paging()?)
    } else {
        None
    };
    let pages = if let Some(pager) = pager.filter(|_| is_on_demand) {
        let is_implicit = init.start == 0 && init.length == u64::MAX;
        if is_implicit && Rights::is_huge(init.access) {
            return Err(EINVAL);
        }
        let writable = rights.may_change();
        let pager = pager.clone();
        let memory = OnDemand::new(init.start, init.length, writable, is_persistent, pager)?;
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
    let range = (Iova(iova), init.length);
    let mr = pd.device().keys().add_mr(pd.id(), rights, range, pages)?;
    Ok(new_region(mr, origin))
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
    let mr = pd.device().keys().add_mr(pd.id(), rights, range, pages)?;
    Ok(new_region(mr, Origin::DmaBuf(*init)))
}

/// Registers a region anew, with something changed.
///
/// # Errors
///
/// `EOPNOTSUPP` for a region that is not memory of a process; those of [`register`].
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

fn new_region(mr: Arc<Mr>, origin: Origin) -> NewMr<Handle> {
    let key = mr.key();
    NewMr {
        data: Handle::Region(mr, origin),
        lkey: key,
        rkey: key,
    }
}

/// Makes a region of all memory of the kernel, for users in the kernel; see [`Keys::add_kernel_mr`](crate::keys::Keys::add_kernel_mr).
///
/// # Errors
///
/// Those of [`Rights::of_kernel`]; `EBUSY` if all keys are in use, `ENOMEM`.
pub(super) fn register_kernel(pd: &IbPd<Verbs>, access: u32) -> Result<NewMr<Handle>> {
    let rights = Rights::of_kernel(access)?;
    let mr = pd.device().keys().add_kernel_mr(pd.id(), rights)?;
    Ok(new_region(mr, Origin::Kernel))
}

/// Allocates a region that work requests register.
///
/// # Errors
///
/// `EINVAL` for more pages or elements than advertised, `EBUSY` if all keys are in use, `ENOMEM`.
pub(super) fn alloc(pd: &IbPd<Verbs>, most: u32) -> Result<NewMr<Handle>> {
    if most == 0 || most > MAX_FAST_PAGES {
        return Err(EINVAL);
    }
    let mr = pd.device().keys().add_fast_mr(pd.id(), most)?;
    let rkey = mr.key();
    Ok(NewMr {
        data: Handle::Fast(mr),
        lkey: rkey.0,
        rkey: rkey.0,
    })
}

/// Sets the memory that the next work request registers. Any context.
///
/// # Errors
///
/// Those of [`FastMr::lay_out`]; `EINVAL` for another kind of region.
pub(super) fn lay_out(mr: &IbMr<Verbs>, list: &mut SgList<'_>) -> Result {
    match &**mr {
        Handle::Fast(mr) => mr.lay_out(list),
        Handle::Region(..) => Err(EINVAL),
    }
}

/// Makes a region's key invalid, waits until nothing copies from or to it, and unpins its memory.
pub(super) fn deregister(mr: &IbMr<Verbs>) {
    let keys = mr.device().keys();
    match &**mr {
        Handle::Region(mr, _) => keys.remove_mr(mr),
        Handle::Fast(mr) => keys.remove_fast_mr(mr),
    }
}
