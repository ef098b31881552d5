// SPDX-License-Identifier: GPL-2.0

//! The objects of a device that work requests and peers name by number.

use kernel::prelude::*;
use rdma::table::IdTable;

use crate::ah::Ah;
use crate::keys::Keys;

/// The tables in which they are found.
#[pin_data]
pub(crate) struct Objects {
    #[pin]
    pub(crate) keys: Keys,
    #[pin]
    pub(crate) ahs: IdTable<Ah>,
}

impl Objects {
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            keys <- Keys::new(),
            ahs <- IdTable::new(),
        })
    }
}
