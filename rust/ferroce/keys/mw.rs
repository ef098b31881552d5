// SPDX-License-Identifier: GPL-2.0

//! Memory windows: keys to a part of a region, with rights of their own, that are made and taken
//! away by work requests.

use kernel::prelude::*;
use kernel::sync::{Arc, ArcBorrow};
use rdma::ops::MwKind;
use rdma::sync::BhSpinLock;
use roce::host::AccessError;
use roce::num::{Iova, Rkey};
use roce::wr::Bind;

use super::check::{Bytes, Claim, Generation, Identity, Place, Refused, Renewable, Scope, User};
use super::mr::Mr;
use super::rights::Rights;
use crate::table::QpId;

/// The binding of a window.
struct Bound {
    scope: Scope,
    mr: Arc<Mr>,
    /// Where in the region its first byte is.
    start: u64,
    /// The queue pair that alone may use it.
    owner: Option<QpId>,
}

impl AsRef<Scope> for Bound {
    fn as_ref(&self) -> &Scope {
        &self.scope
    }
}

/// A memory window.
///
/// Lock: `binding` is taken below those of a queue pair's halves, and nothing below it. It is held
/// while bytes are copied that the window shows, so that none are once its key is invalid.
#[pin_data]
pub(crate) struct Mw {
    index: u32,
    kind: MwKind,
    #[pin]
    binding: BhSpinLock<Renewable<Bound>>,
}

impl Mw {
    /// Creates a window that is not bound, with keys of `index`.
    pub(super) fn new(index: u32, kind: MwKind, identity: Identity) -> impl PinInit<Self> {
        let binding = Renewable::new(identity);
        pin_init!(Self {
            index,
            kind,
            binding <- rdma::new_bh_spinlock!(binding, "ferroce::Mw::binding"),
        })
    }

    /// Returns the index of its keys.
    pub(super) fn index(&self) -> u32 {
        self.index
    }

    /// Returns its key of now.
    pub(crate) fn key(&self) -> Rkey {
        self.binding.lock().key()
    }

    /// Closes the window permanently.
    pub(super) fn close(&self) {
        self.binding.lock().close();
    }

    /// Binds the window, for `user`, to `mr`, or to nothing.
    pub(super) fn bind(
        &self,
        user: User,
        bind: &Bind,
        mr: Option<ArcBorrow<'_, Mr>>,
    ) -> Result<(), Refused> {
        let rights = Rights::of_window(bind.access).ok_or(Refused)?;
        let zero_based = Rights::is_zero_based(bind.access);
        let mut binding = self.binding.lock();
        // Rules: MWN-7
        if !binding.is(user.pd, bind.window) {
            return Err(Refused);
        }
        let owner = match self.kind {
            // Rules: MWN-4
            MwKind::Domain if zero_based => return Err(Refused),
            MwKind::Domain => None,
            // Rules: MWN-5, MWN-6
            // It is bound to something, and not bound yet.
            MwKind::QueuePair if binding.opens().is_some() || mr.is_none() => return Err(Refused),
            MwKind::QueuePair => Some(user.qp),
        };
        let bound = match mr {
            // Rules: MWN-3
            None => None,
            Some(mr) => {
                // Rules: MWN-10
                let bytes = Bytes::Range(bind.iova, bind.length);
                let claim = Claim::local(user.pd, bind.lkey, rights.needed_to_bind(), bytes);
                let place = mr.admit(&claim).map_err(|_| Refused)?;
                Some(Bound {
                    scope: Scope {
                        rights,
                        iova: if zero_based { Iova(0) } else { bind.iova },
                        length: bind.length,
                    },
                    mr: mr.into(),
                    start: place.offset,
                    owner,
                })
            }
        };
        binding.renew(bind.key, bound);
        Ok(())
    }

    /// Invalidates the key of a window of type 2, for the queue pair that has bound it.
    pub(super) fn invalidate(&self, user: User, key: Rkey) -> Result<(), Refused> {
        let mut binding = self.binding.lock();
        // Rules: MWN-11, MWN-12
        let owned = match (binding.opens(), self.kind) {
            (Some(bound), MwKind::QueuePair) => bound.owner == Some(user.qp),
            _ => false,
        };
        if !owned || !binding.is(user.pd, key) {
            return Err(Refused);
        }
        binding.invalidate();
        Ok(())
    }

    /// Runs `f` on the region, the place of the claimed bytes, and the [generation](Self::while_granted)
    /// of the grant, if the claim is valid.
    // Rules: MWN-1
    #[inline]
    pub(super) fn admit<R>(
        &self,
        qp: QpId,
        claim: &Claim,
        f: impl FnOnce(&Arc<Mr>, Place, Generation) -> Result<R, AccessError>,
    ) -> Result<R, AccessError> {
        let binding = self.binding.lock();
        let (bound, within, generation) = binding.admit(claim)?;
        // Rules: MWN-12
        if bound.owner.is_some_and(|owner| owner != qp) {
            return Err(AccessError);
        }
        let place = Place {
            // It is in the region, as that is, and the window in it.
            offset: bound.start.wrapping_add(within.offset),
            len: within.len,
        };
        f(&bound.mr, place, generation)
    }

    /// Runs `f` on the region, if the window is still bound as it was when something was granted, and
    /// keeps it so meanwhile.
    #[inline]
    pub(super) fn while_granted<R>(
        &self,
        generation: Generation,
        f: impl FnOnce(&Arc<Mr>) -> R,
    ) -> Option<R> {
        let binding = self.binding.lock();
        let bound = binding.granted(generation)?;
        Some(f(&bound.mr))
    }
}
