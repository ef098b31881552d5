// SPDX-License-Identifier: GPL-2.0

//! ferroce: soft-RDMA over any netdev.
//!
//! The driver: verbs above, the network below, and the protocol of the crate `roce` between them.
//! See `Documentation/architecture.rst`. Modules import downwards only:
//!
//! ```text
//!   ferroce (module)
//!   verbs   link
//!   rx      schedule
//!   qp      service
//!   host
//!   ah  cq  settings  srq
//!   queue  tx  paging
//!   device  groups  stats  wake
//!   context  payload
//!   keys
//!   table
//! ```

#![forbid(unsafe_code)]

mod ah;
mod context;
mod cq;
mod device;
mod groups;
mod host;
mod inbox;
mod keys;
mod link;
mod paging;
mod payload;
mod policy;
mod qp;
mod queue;
mod rx;
mod schedule;
mod service;
mod settings;
mod srq;
mod stats;
mod stream;
mod sweep;
mod table;
mod turn;
mod tx;
mod verbs;
mod wake;

use kernel::prelude::*;
use kernel::sync::Arc;
use rdma::link::LinkRegistration;
use rdma::module::Unload;
use rdma::net::{NetdevNotifier, PerNetRegistration};
use rdma::sync::GlobalGuard;

use crate::device::Queues;
use crate::verbs::Verbs;

module! {
    type: Ferroce,
    name: "ferroce",
    authors: ["The ferroce developers"],
    description: "Soft RoCEv2 RDMA device",
    license: "GPL",
    alias: ["rdma-link-ferroce"],
    imports_ns: ["DMA_BUF"],
}

/// The module. Dropped from the first field to the last: who brings in work goes before who does it.
struct Ferroce {
    _links: LinkRegistration<Verbs>,
    _notifier: NetdevNotifier<link::Events>,
    _state: GlobalGuard<link::State>,
    _unload: Unload,
}

impl kernel::Module for Ferroce {
    fn init(module: &'static ThisModule) -> Result<Self> {
        let unload = Unload::new()?;
        let state = link::State {
            namespaces: PerNetRegistration::new()?,
            queues: Arc::new(Queues::new()?, GFP_KERNEL)?,
        };
        let state = link::STATE.install(Arc::new(state, GFP_KERNEL)?)?;
        let notifier = NetdevNotifier::register(link::Events)?;
        Ok(Self {
            _links: LinkRegistration::register(module)?,
            _notifier: notifier,
            _state: state,
            _unload: unload,
        })
    }
}
