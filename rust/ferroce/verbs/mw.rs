// SPDX-License-Identifier: GPL-2.0

//! Memory windows.

use kernel::prelude::*;
use kernel::sync::Arc;
use rdma::object::{Mw as IbMw, Pd as IbPd};
use rdma::ops::{MwKind, NewMw};
use roce::num::Rkey;

use super::mr::next_variant;
use super::Verbs;
use crate::table::{self, MW_INDICES};
use crate::window::Mw;

/// What stands behind a memory window of the core's.
pub(crate) struct Handle {
    mw: Arc<Mw>,
    index: u32,
}

/// Allocates a memory window.
///
/// # Errors
///
/// `EBUSY` if all keys are in use, `ENOMEM`.
pub(super) fn alloc(pd: &IbPd<Verbs>, kind: MwKind) -> Result<NewMw<Handle>> {
    let place = pd.device().shared.objects.mws.reserve(MW_INDICES)?;
    let index = place.id();
    let key = table::key(index, next_variant());
    let mw = Arc::pin_init(Mw::new(**pd, kind, key), GFP_KERNEL_ACCOUNT)?;
    place.publish(mw.clone())?;
    Ok(NewMw {
        data: Handle { mw, index },
        rkey: Rkey(key),
    })
}

/// Takes a memory window away.
pub(super) fn dealloc(mw: &IbMw<Verbs>) {
    mw.device().shared.objects.mws.remove(mw.index);
    mw.mw.close();
}
