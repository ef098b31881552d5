// SPDX-License-Identifier: GPL-2.0

//! The objects of a device that work requests and peers name by number.

use kernel::prelude::*;
use kernel::sync::Arc;
use rdma::table::IdTable;

use crate::ah::Ah;
use crate::fast::FastMr;
use crate::memory::Mr;
use crate::window::Mw;

/// The tables in which they are found.
#[pin_data]
pub(crate) struct Objects {
    #[pin]
    pub(crate) mrs: IdTable<Mr>,
    #[pin]
    pub(crate) ahs: IdTable<Ah>,
    #[pin]
    pub(crate) mws: IdTable<Mw>,
    #[pin]
    pub(crate) fast_mrs: IdTable<FastMr>,
    /// All memory of the kernel, for its own work requests alone: no key leads here by a table.
    pub(crate) kernel_memory: Arc<Mr>,
}

impl Objects {
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            mrs <- IdTable::new(),
            ahs <- IdTable::new(),
            mws <- IdTable::new(),
            fast_mrs <- IdTable::new(),
            kernel_memory: Arc::pin_init(Mr::kernel()?, GFP_KERNEL)?,
        })
    }
}
