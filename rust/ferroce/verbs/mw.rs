// SPDX-License-Identifier: GPL-2.0

//! Memory windows.

use kernel::prelude::*;
use kernel::sync::Arc;
use rdma::object::{Mw as IbMw, Pd as IbPd};
use rdma::ops::{MwKind, NewMw};

use super::Verbs;
use crate::keys::Mw;

/// The driver's side of a memory window of the core.
pub(crate) struct Handle(Arc<Mw>);

/// Allocates a memory window.
///
/// # Errors
///
/// `EBUSY` if all keys are in use, `ENOMEM`.
pub(super) fn alloc(pd: &IbPd<Verbs>, kind: MwKind) -> Result<NewMw<Handle>> {
    let mw = pd.device().keys().add_mw(**pd, kind)?;
    Ok(NewMw {
        rkey: mw.key().0,
        data: Handle(mw),
    })
}

/// Takes a memory window away.
pub(super) fn dealloc(mw: &IbMw<Verbs>) {
    mw.device().keys().remove_mw(&mw.0);
}
