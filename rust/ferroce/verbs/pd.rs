// SPDX-License-Identifier: GPL-2.0

//! Protection domains.

use kernel::prelude::*;
use rdma::object::Ucontext as IbUcontext;
use rdma::share::Charge;

use super::Verbs;
use crate::table::PdId;

/// The driver's side of a protection domain of the core.
pub(crate) struct Handle {
    id: PdId,
    /// The shares of its process. The core charges its own memory for a protection domain to nobody.
    _charges: Option<[Charge; 2]>,
}

/// Allocates a protection domain.
///
/// # Errors
///
/// `ENOMEM` if the process has too many.
pub(super) fn alloc(context: Option<&IbUcontext<Verbs>>) -> Result<Handle> {
    Ok(Handle {
        id: PdId::new(),
        _charges: context.map(|context| context.take_pd()).transpose()?,
    })
}

impl Handle {
    /// Returns its identity.
    pub(super) fn id(&self) -> PdId {
        self.id
    }
}
