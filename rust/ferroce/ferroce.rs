// SPDX-License-Identifier: GPL-2.0

//! ferroce: soft-RDMA over any netdev.
//!
//! The driver: verbs above, the network below, and the protocol of the crate `roce` between them.
//! See `Documentation/architecture.rst`. Modules import downwards only:
//!
//! ```text
//!   link                            rdma link add and delete
//!   verbs                           what the RDMA core calls
//!   attach                          sockets and network namespaces
//!   device  groups
//!   rx  run                         packets arrive; work items run
//!   deliver                         a packet, or a backlog of them, for one queue pair
//!   requester  responder            a half runs, under its lock
//!   flush
//!   pump                            the loop that sends
//!   own  tell  held
//!   kick                            has work done, and where
//!   qp                              a queue pair, and what those of a device share
//!   host  service                   what the protocol sees
//!   ah  cq  srq  objects
//!   paging
//!   payload
//!   keys                            memory that keys open
//!   backlog  stream  steering  tx  parse
//!   context  port  queue  queues  settings  stats  sweep  table  turn
//!   policy  wake                    pure: where and when; who must
//! ```

#![forbid(unsafe_code)]

mod ah;
mod attach;
mod backlog;
mod context;
mod cq;
mod deliver;
mod device;
mod flush;
mod groups;
mod held;
mod host;
mod keys;
mod kick;
mod link;
mod objects;
mod own;
mod paging;
mod parse;
mod payload;
mod policy;
mod port;
mod pump;
mod qp;
mod queue;
mod queues;
mod requester;
mod responder;
mod run;
mod rx;
mod service;
mod settings;
mod srq;
mod stats;
mod steering;
mod stream;
mod sweep;
mod table;
mod tell;
mod turn;
mod tx;
mod verbs;
mod wake;

use kernel::prelude::*;
use rdma::link::LinkRegistration;
use rdma::module::Unload;
use rdma::net::NetdevNotifier;
use rdma::sync::GlobalGuard;

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
        let state = link::STATE.install(link::State::new()?)?;
        let notifier = NetdevNotifier::register(link::Events)?;
        Ok(Self {
            _links: LinkRegistration::register(module)?,
            _notifier: notifier,
            _state: state,
            _unload: unload,
        })
    }
}
