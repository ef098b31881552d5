// SPDX-License-Identifier: GPL-2.0

//! Memory windows.

use kernel::prelude::*;
use kernel::sync::Arc;
use rdma::object::{Mw as IbMw, Pd as IbPd};
use rdma::ops::{MwKind, NewMw};
use rdma::share::Charge;

use super::Verbs;
use crate::keys::Mw;

/// The driver's side of a memory window of the core.
pub(crate) struct Handle {
    mw: Arc<Mw>,
    /// The shares of its process.
    _charges: Option<[Charge; 2]>,
}

/// Allocates a memory window.
///
/// # Errors
///
/// `EBUSY` if all keys are in use; `ENOMEM`, also if the process has too many windows.
pub(super) fn alloc(pd: &IbPd<Verbs>, kind: MwKind) -> Result<NewMw<Handle>> {
    let context = pd.ucontext();
    let charges = context.map(|context| context.take_window()).transpose()?;
    let mw = pd.device().keys().add_mw(pd.id(), kind)?;
    Ok(NewMw {
        rkey: mw.key().0,
        data: Handle {
            mw,
            _charges: charges,
        },
    })
}

/// Takes a memory window away.
pub(super) fn dealloc(mw: &IbMw<Verbs>) {
    mw.device().keys().remove_mw(&mw.mw);
}
