// SPDX-License-Identifier: GPL-2.0

//! Memory keys, and the memory that they grant.
//!
//! Each device has tables of keys. Only these tables create a [`Segment`], a checked piece of memory, for a
//! work request or a peer. Modules import downwards only:
//!
//! ```text
//!   keys             the tables and their operations
//!   local_dma        the key of the kernel that is in no table
//!   segment          granted memory
//!   absent           memory that a work item must prepare before a copy
//!   flush            the same before a FLUSH to persistence is answered
//!   mw               windows
//!   mr  fast         regions that a verb registers, and regions that work requests register
//!   check            the check of every key: domain, variant, rights, bounds, generation
//!   number  rights
//! ```

mod absent;
mod check;
mod fast;
mod flush;
mod local_dma;
mod mr;
mod mw;
mod number;
mod rights;
mod segment;

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::prelude::*;
use kernel::sync::{rcu, Arc, ArcBorrow};
use rdma::odp::OnDemand;
use rdma::ops::MwKind;
use rdma::pages::Backing;
use rdma::table::IdTable;
use roce::abi::{Poster, Sge};
use roce::host::{Access, AccessError, Extent};
use roce::num::{Iova, Lkey, Rkey};
use roce::wr::{Bind, Placement, Register};

use self::check::{Bytes, Claim, Identity, Scope};
use self::local_dma::KernelMemory;
use self::number::{Kind, FAST_INDICES};
use crate::table::PdId;

pub(crate) use self::absent::{Absent, Miss};
pub(crate) use self::check::{Refused, User};
pub(crate) use self::fast::{FastMr, MAX_FAST_PAGES};
pub(crate) use self::flush::Unwritten;
pub(crate) use self::mr::Mr;
pub(crate) use self::mw::Mw;
pub(crate) use self::number::{LOCAL_DMA_LKEY, MR_INDICES, MW_INDICES};
pub(crate) use self::rights::Rights;
pub(crate) use self::segment::Segment;

/// The keys of a device.
///
/// Each kind of key has its own indices, and its own [`IdTable`]. An `IdTable` finds recent entries
/// without a search, which a mixture of kinds would defeat.
#[pin_data]
pub(crate) struct Keys {
    #[pin]
    mrs: IdTable<Mr>,
    #[pin]
    mws: IdTable<Mw>,
    #[pin]
    fast_mrs: IdTable<FastMr>,
    kernel: KernelMemory,
}

/// The object of a key.
enum Key<'a> {
    Mr(ArcBorrow<'a, Mr>),
    Mw(ArcBorrow<'a, Mw>),
    Fast(ArcBorrow<'a, FastMr>),
}

impl Keys {
    /// Creates tables with only the kernel's key. May sleep.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            mrs <- IdTable::new(),
            mws <- IdTable::new(),
            fast_mrs <- IdTable::new(),
            kernel: KernelMemory::new()?,
        })
    }

    /// Returns the object with the index of `key`.
    #[inline]
    fn find<'g>(&self, key: u32, guard: &'g rcu::Guard) -> Option<Key<'g>> {
        let index = number::index_of(key);
        match Kind::of(index)? {
            Kind::Mr => self.mrs.get(index, guard).map(Key::Mr),
            Kind::Mw => self.mws.get(index, guard).map(Key::Mw),
            Kind::Fast => self.fast_mrs.get(index, guard).map(Key::Fast),
        }
    }

    /// Returns the memory that `sge` names, if a work request of `pd` and `poster` may use it with
    /// `rights`. Any context.
    ///
    /// A local target may exceed the region of a process. Programs post such receives, and only the
    /// bytes that a message fills are used.
    pub(crate) fn local(
        &self,
        pd: PdId,
        poster: Poster,
        sge: Sge,
        rights: Rights,
    ) -> Result<Segment, AccessError> {
        let len = u64::from(sge.length);
        let whole = Bytes::Range(sge.addr, len);
        let claim = |bytes| Claim::local(pd, sge.lkey, rights, bytes);
        let guard = rcu::read_lock();
        match self.find(sge.lkey.0, &guard) {
            Some(Key::Mr(mr)) => {
                let bytes = if rights == Rights::LOCAL_WRITE {
                    Bytes::Leading(sge.addr, len)
                } else {
                    whole
                };
                Segment::of_mr(mr, &claim(bytes), sge.length)
            }
            Some(Key::Fast(mr)) => Segment::of_fast(mr, &claim(whole), sge.length),
            // Its keys are for peers.
            Some(Key::Mw(_)) => Err(AccessError),
            None => self.kernel.segment(poster, sge),
        }
    }

    /// Returns the `len` bytes at `iova`, if the peer of `user` has the right `access` to them by
    /// `rkey`. Any context.
    pub(crate) fn remote(
        &self,
        user: User,
        rkey: Rkey,
        access: Access,
        iova: Iova,
        len: u32,
    ) -> Result<Segment, AccessError> {
        let bytes = Bytes::Range(iova, len.into());
        let claim = Claim::remote(user, rkey, Rights::needed_for(access), bytes);
        let guard = rcu::read_lock();
        match self.find(rkey.0, &guard).ok_or(AccessError)? {
            Key::Mr(mr) => Segment::of_mr(mr, &claim, len),
            Key::Mw(mw) => Segment::of_mw(mw, user.qp, &claim, len),
            Key::Fast(mr) => Segment::of_fast(mr, &claim, len),
        }
    }

    /// Returns the memory that a FLUSH of `extent` must write back for this `placement`, if the peer of
    /// `user` has the right to it by `rkey`. Any context.
    ///
    /// Global visibility needs no work, because all CPUs see stored data. It needs only the right, which
    /// a region has for each placement.
    pub(crate) fn flush(
        &self,
        user: User,
        rkey: Rkey,
        extent: Extent,
        placement: Placement,
    ) -> Result<Option<Unwritten>, AccessError> {
        let rights = Rights::needed_to_flush(placement);
        let claim = Claim::remote(user, rkey, rights, extent.into());
        let guard = rcu::read_lock();
        match self.find(rkey.0, &guard).ok_or(AccessError)? {
            Key::Mr(mr) => {
                let place = mr.admit(&claim)?;
                Ok(placement
                    .persistent
                    .then(|| Unwritten::new(mr.into(), place)))
            }
            Key::Mw(mw) => mw.admit(user.qp, &claim, |mr, place, _| {
                Ok(placement
                    .persistent
                    .then(|| Unwritten::new(mr.clone(), place)))
            }),
            // It has no right to persistence.
            Key::Fast(mr) => mr.admit(&claim).map(|_| None),
        }
    }

    /// Returns the on-demand memory that objects of `pd` know by `lkey`, and the place of the `len`
    /// bytes at `iova` in it. Any context.
    ///
    /// # Errors
    ///
    /// `EFAULT` if the region is not on demand, or the bytes are not in it.
    pub(crate) fn on_demand(
        &self,
        pd: PdId,
        lkey: Lkey,
        iova: Iova,
        len: u32,
    ) -> Result<(Arc<OnDemand>, u64)> {
        let bytes = Bytes::Range(iova, len.into());
        let claim = Claim::local(pd, lkey, Rights::NONE, bytes);
        let guard = rcu::read_lock();
        let Some(Key::Mr(mr)) = self.find(lkey.0, &guard) else {
            return Err(EFAULT);
        };
        let place = mr.admit(&claim).map_err(|_| EFAULT)?;
        Ok((mr.on_demand().ok_or(EFAULT)?, place.offset))
    }

    /// Binds a window. Any context.
    ///
    /// # Errors
    ///
    /// [`Refused`].
    pub(crate) fn bind(&self, user: User, bind: &Bind) -> Result<(), Refused> {
        let guard = rcu::read_lock();
        let Some(Key::Mw(mw)) = self.find(bind.window.0, &guard) else {
            return Err(Refused);
        };
        if bind.length == 0 {
            return mw.bind(user, bind, None);
        }
        match self.find(bind.lkey.0, &guard) {
            Some(Key::Mr(mr)) => mw.bind(user, bind, Some(mr)),
            _ => Err(Refused),
        }
    }

    /// Invalidates a key. Any context.
    ///
    /// Work requests and peers may invalidate the keys of windows, and of regions that work requests
    /// register. Only a verb can end other regions.
    ///
    /// # Errors
    ///
    /// [`Refused`].
    // Rules: INV-4, INV-12
    pub(crate) fn invalidate(&self, user: User, rkey: Rkey) -> Result<(), Refused> {
        let guard = rcu::read_lock();
        match self.find(rkey.0, &guard) {
            Some(Key::Mw(mw)) => mw.invalidate(user, rkey),
            Some(Key::Fast(mr)) => mr.invalidate(user.pd, rkey),
            Some(Key::Mr(_)) | None => Err(Refused),
        }
    }

    /// Registers the memory that was set for it. Any context.
    ///
    /// # Errors
    ///
    /// [`Refused`].
    pub(crate) fn register(&self, pd: PdId, register: &Register) -> Result<(), Refused> {
        let guard = rcu::read_lock();
        match self.find(register.key.0, &guard) {
            Some(Key::Fast(mr)) => mr.register(pd, register),
            _ => Err(Refused),
        }
    }

    /// Adds a region over `pages`, which users of `pd` address as the `length` bytes at `iova`. May
    /// sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if all keys are in use, `ENOMEM`.
    pub(crate) fn add_mr(
        &self,
        pd: PdId,
        rights: Rights,
        (iova, length): (Iova, u64),
        pages: Backing,
    ) -> Result<Arc<Mr>> {
        let place = self.mrs.reserve(MR_INDICES)?;
        let identity = identity(pd, place.id());
        let scope = Scope {
            rights,
            iova,
            length,
        };
        let mr = Arc::pin_init(Mr::new(identity, scope, pages), GFP_KERNEL_ACCOUNT)?;
        place.publish(mr.clone())?;
        Ok(mr)
    }

    /// Adds a region of all kernel memory, for kernel users of `pd`. May sleep.
    ///
    /// If `rights` include those of peers, a kernel user gives its peers a key to all memory. The core
    /// calls that unsafe, and permits it only to the kernel.
    ///
    /// # Errors
    ///
    /// `EBUSY` if all keys are in use, `ENOMEM`.
    pub(crate) fn add_kernel_mr(&self, pd: PdId, rights: Rights) -> Result<Arc<Mr>> {
        let place = self.mrs.reserve(MR_INDICES)?;
        let identity = identity(pd, place.id());
        let mr = Arc::pin_init(Mr::kernel(identity, rights)?, GFP_KERNEL)?;
        place.publish(mr.clone())?;
        Ok(mr)
    }

    /// Invalidates a region's key, waits for running copies, and unpins its memory.
    pub(crate) fn remove_mr(&self, mr: &Mr) {
        self.mrs.remove(number::index_of(mr.key()));
        mr.revoke();
    }

    /// Adds a region that work requests register, for lists of up to `most` pages or elements. May
    /// sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if all keys are in use, `ENOMEM`.
    pub(crate) fn add_fast_mr(&self, pd: PdId, most: u32) -> Result<Arc<FastMr>> {
        let place = self.fast_mrs.reserve(FAST_INDICES)?;
        let index = place.id();
        let new = FastMr::new(index, identity(pd, index), most)?;
        let mr = Arc::pin_init(new, GFP_KERNEL)?;
        place.publish(mr.clone())?;
        Ok(mr)
    }

    /// Removes such a region. When this returns, no copy uses it.
    pub(crate) fn remove_fast_mr(&self, mr: &FastMr) {
        self.fast_mrs.remove(mr.index());
        mr.close();
    }

    /// Adds an unbound window. May sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if all keys are in use, `ENOMEM`.
    pub(crate) fn add_mw(&self, pd: PdId, kind: MwKind) -> Result<Arc<Mw>> {
        let place = self.mws.reserve(MW_INDICES)?;
        let index = place.id();
        let new = Mw::new(index, kind, identity(pd, index));
        let mw = Arc::pin_init(new, GFP_KERNEL_ACCOUNT)?;
        place.publish(mw.clone())?;
        Ok(mw)
    }

    /// Removes a window. When this returns, no copy uses it.
    pub(crate) fn remove_mw(&self, mw: &Mw) {
        self.mws.remove(mw.index());
        mw.close();
    }
}

/// Returns the identity of a new object with `index`, with its first key.
fn identity(pd: PdId, index: u32) -> Identity {
    let key = number::new_key(index);
    Identity { pd, key }
}
