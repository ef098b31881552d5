// SPDX-License-Identifier: GPL-2.0

//! Memory windows: keys to a part of a region, with rights of their own, that are made and taken
//! away by work requests.

use kernel::prelude::*;
use kernel::sync::Arc;
use rdma::ops::MwKind;
use rdma::sync::BhSpinLock;
use roce::host::{AccessError, Extent};
use roce::num::Iova;
use roce::wr::{Bind, Placement};

use crate::memory::{Mr, Rights, Segment, Unwritten};
use crate::table::{self, PdId, QpId};

/// The window cannot be bound, or its key not be invalidated, as was asked.
pub(crate) struct Refused;

/// What a bound window shows.
struct View {
    mr: Arc<Mr>,
    rights: Rights,
    /// The address of its first byte, for peers.
    iova: u64,
    /// Where that is in the region, for the region's own users.
    start: Iova,
    length: u64,
    /// The queue pair that alone may use it.
    owner: Option<QpId>,
}

/// What changes as a window is bound.
struct Binding {
    key: u32,
    view: Option<View>,
    /// How often it was bound or taken away: what was granted before is void.
    generation: u64,
}

impl Binding {
    fn change(&mut self, key: u32, view: Option<View>) {
        self.key = key;
        self.view = view;
        self.generation = self.generation.wrapping_add(1);
    }
}

/// A memory window.
///
/// Lock: `binding` is taken below those of a queue pair's halves, and nothing below it. It is held
/// while bytes are copied that the window shows, so that none are once its key is invalid.
#[pin_data]
pub(crate) struct Mw {
    pd: PdId,
    kind: MwKind,
    #[pin]
    binding: BhSpinLock<Binding>,
}

/// The right to a window as it was when it was granted.
pub(crate) struct Pane {
    mw: Arc<Mw>,
    generation: u64,
}

impl Pane {
    /// Runs `f` if the window still shows what it did then, and keeps it so meanwhile.
    // Rules: MWN-13
    pub(crate) fn while_open<R>(&self, f: impl FnOnce() -> R) -> Option<R> {
        let binding = self.mw.binding.lock();
        (binding.generation == self.generation).then(f)
    }
}

impl Mw {
    /// A window that is not bound.
    pub(crate) fn new(pd: PdId, kind: MwKind, key: u32) -> impl PinInit<Self> {
        let binding = Binding {
            key,
            view: None,
            generation: 0,
        };
        pin_init!(Self {
            pd,
            kind,
            binding <- rdma::new_bh_spinlock!(binding, "ferroce::Mw::binding"),
        })
    }

    /// Closes the window for good.
    pub(crate) fn close(&self) {
        self.binding.lock().change(0, None);
    }

    /// Binds the window, for a queue pair of `pd`, to `mr`, or to nothing.
    pub(crate) fn bind(
        &self,
        pd: PdId,
        qp: QpId,
        bind: &Bind,
        mr: Option<Arc<Mr>>,
    ) -> Result<(), Refused> {
        let rights = Rights::of_window(bind.access).ok_or(Refused)?;
        let zero_based = Rights::is_zero_based(bind.access);
        let mut binding = self.binding.lock();
        // Rules: MWN-7
        if self.pd != pd || binding.key != bind.window.0 {
            return Err(Refused);
        }
        let owner = match self.kind {
            // Rules: MWN-4
            MwKind::Domain if zero_based => return Err(Refused),
            MwKind::Domain => None,
            // Rules: MWN-5, MWN-6
            // It is bound to something, and not bound yet.
            MwKind::QueuePair if binding.view.is_some() || mr.is_none() => return Err(Refused),
            MwKind::QueuePair => Some(qp),
        };
        let view = match mr {
            // Rules: MWN-3
            None => None,
            Some(mr) => {
                if !mr.may_show(pd, bind.lkey.0, rights, bind.iova, bind.length) {
                    return Err(Refused);
                }
                Some(View {
                    mr,
                    rights,
                    iova: if zero_based { 0 } else { bind.iova.0 },
                    start: bind.iova,
                    length: bind.length,
                    owner,
                })
            }
        };
        // Rules: MWN-2
        let key = table::with_variant(binding.key, bind.key.0);
        binding.change(key, view);
        Ok(())
    }

    /// Invalidates the key of a window of type 2, for the queue pair that has bound it.
    pub(crate) fn invalidate(&self, pd: PdId, qp: QpId, key: u32) -> Result<(), Refused> {
        let mut binding = self.binding.lock();
        // Rules: MWN-11, MWN-12
        let owned = match (&binding.view, self.kind) {
            (Some(view), MwKind::QueuePair) => view.owner == Some(qp),
            _ => false,
        };
        if self.pd != pd || binding.key != key || !owned {
            return Err(Refused);
        }
        binding.change(key, None);
        Ok(())
    }

    /// Runs `f` on the region, where in it the `len` bytes at `iova` are and the generation, if a
    /// queue pair may use them with `rights` by `key`.
    // Rules: MWN-1
    fn look<R>(
        &self,
        (pd, qp): (PdId, QpId),
        key: u32,
        rights: Rights,
        (iova, len): (Iova, u64),
        f: impl FnOnce(&Arc<Mr>, Iova, u64) -> Result<R, AccessError>,
    ) -> Result<R, AccessError> {
        let binding = self.binding.lock();
        let view = binding.view.as_ref().ok_or(AccessError)?;
        // Rules: MWN-12
        let owned = view.owner.is_none_or(|owner| owner == qp);
        if self.pd != pd || binding.key != key || !owned || !view.rights.contains(rights) {
            return Err(AccessError);
        }
        let offset = iova.0.checked_sub(view.iova).ok_or(AccessError)?;
        let end = offset.checked_add(len).ok_or(AccessError)?;
        if end > view.length {
            return Err(AccessError);
        }
        f(&view.mr, view.start.add(offset), binding.generation)
    }

    /// Checks that a queue pair may use the `len` bytes at `iova` with `rights`, by `key`.
    pub(crate) fn segment(
        this: &Arc<Self>,
        user: (PdId, QpId),
        key: u32,
        rights: Rights,
        iova: Iova,
        len: u32,
    ) -> Result<Segment, AccessError> {
        let range = (iova, u64::from(len));
        this.look(user, key, rights, range, |mr, at, generation| {
            let mw = this.clone();
            Mr::segment_through(mr, Pane { mw, generation }, at, len)
        })
    }

    /// As [`Mr::flush`].
    pub(crate) fn flush(
        &self,
        user: (PdId, QpId),
        key: u32,
        extent: Extent,
        placement: Placement,
    ) -> Result<Option<Unwritten>, AccessError> {
        let rights = Rights::needed_to_flush(placement);
        let range = match extent {
            Extent::Range { iova, len } => (iova, u64::from(len)),
            Extent::Region => {
                let binding = self.binding.lock();
                let view = binding.view.as_ref().ok_or(AccessError)?;
                (Iova(view.iova), view.length)
            }
        };
        self.look(user, key, rights, range, |mr, at, _| {
            let unwritten = Mr::flush_through(mr, at, range.1)?;
            Ok(placement.persistent.then_some(unwritten))
        })
    }
}
