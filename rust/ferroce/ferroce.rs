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
//!   own  tell
//!   kick                            has work done, and where
//!   qp                              a queue pair, and what those of a device share
//!   early                           packets that came before their turn
//!   host  service                   what the protocol sees
//!   ah  cq  srq  objects
//!   paging
//!   held
//!   payload
//!   keys                            memory that keys open
//!   backlog  stream  steering  tx  parse
//!   context  port  queue  queues  settings  stats  sweep  table  turn
//!   policy  wake                    pure: where and when; who must
//! ```

#![forbid(unsafe_code)]

mod abi;
mod ah;
mod attach;
mod backlog;
mod congestion;
mod context;
mod cq;
mod deliver;
mod device;
mod early;
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
use rdma::link::{LinkRegistration, StandIn};
use rdma::module::{version, Unload};
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
    params: {
        as_rxe: u8 {
            default: 0,
            description: "1: links of type rxe, too, in the place of rdma_rxe, which must not be loaded",
        },
    },
}

/// The module. Its fields are dropped from first to last: sources of work before the objects that do it.
struct Ferroce {
    _stand_in: Option<StandIn<Verbs>>,
    _links: LinkRegistration<Verbs>,
    _notifier: NetdevNotifier<link::Events>,
    _state: GlobalGuard<link::State>,
    _unload: Unload,
}

impl kernel::Module for Ferroce {
    fn init(module: &'static ThisModule) -> Result<Self> {
        pr_info!("version {}\n", version());
        let unload = Unload::new()?;
        let state = link::STATE.install(link::State::new()?)?;
        let notifier = NetdevNotifier::register(link::Events)?;
        let links = LinkRegistration::register(module)?;
        // A reference up to 7.2, a value from 7.3.
        let stand_in = if module_parameters::as_rxe.value().eq(&0) {
            None
        } else {
            Some(link::stand_in_for_rxe(module)?)
        };
        Ok(Self {
            _stand_in: stand_in,
            _links: links,
            _notifier: notifier,
            _state: state,
            _unload: unload,
        })
    }
}
