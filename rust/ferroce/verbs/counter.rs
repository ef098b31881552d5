// SPDX-License-Identifier: GPL-2.0

//! Counters that queue pairs are bound to, for `rdma statistic qp`.

use core::num::NonZero;

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::prelude::*;
use kernel::sync::Arc;
use rdma::device::Device as IbDevice;
use rdma::ops::NewCounter;

use super::Verbs;
use crate::device::Device;
use crate::stats::Stats;
use crate::table::COUNTER_NUMBERS;

/// The driver's side of a counter of the core.
pub(crate) struct Handle {
    device: Arc<Device>,
    number: u32,
    stats: Arc<Stats>,
}

/// Makes a counter, all zero.
///
/// # Errors
///
/// `EBUSY` if all numbers are in use, `ENOMEM`.
pub(super) fn create(device: &IbDevice<Verbs>) -> Result<NewCounter<Handle>> {
    let device = Arc::clone(device.data());
    let place = device.counters.reserve(COUNTER_NUMBERS)?;
    let id = NonZero::new(place.id()).ok_or(EINVAL)?;
    let stats = Arc::new(Stats::new()?, GFP_KERNEL_ACCOUNT)?;
    place.publish(stats.clone())?;
    let data = Handle {
        device: device.clone(),
        number: id.get(),
        stats,
    };
    Ok(NewCounter { data, id })
}

impl Handle {
    /// Returns the counters of the queue pairs.
    pub(super) fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.device.counters.remove(self.number);
        self.device.past_stats.add_all(&self.stats);
    }
}
