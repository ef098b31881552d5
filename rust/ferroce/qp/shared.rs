// SPDX-License-Identifier: GPL-2.0

//! The state that the queue pairs of a device share.

use kernel::prelude::*;
use kernel::sync::atomic::Atomic;
use kernel::sync::Arc;
use kernel::workqueue::{impl_has_work, new_work, Work};
use rdma::net::NetDevice;
use rdma::sync::Marked;
use rdma::table::IdTable;
use rdma::timer::{impl_has_timer, Timer};
use roce::congestion::Law;
use roce::wire::cnp;

use crate::objects::Objects;
use crate::port::Port;
use crate::qp::Qp;
use crate::queues::Queues;
use crate::stats::Stats;
use crate::steering::Senders;

/// The objects that queue pairs find by number, and the services that they use.
#[pin_data]
pub(crate) struct Shared {
    pub(crate) port: Port,
    /// The sending CPU hands frames directly to the receiver, as they enter no queue of a card.
    pub(crate) is_local: bool,
    /// The law of congestion control of connections to come, by its place in [`Law::ALL`].
    law: Atomic<usize>,
    /// The differentiated services code point of CNPs.
    cnp_dscp: Atomic<u32>,
    pub(crate) queues: Arc<Queues>,
    /// Which CPUs send much, of all devices.
    pub(crate) senders: Arc<Senders>,
    /// Counts the events of queue pairs that are not bound to a counter.
    pub(crate) stats: Arc<Stats>,
    #[pin]
    pub(crate) qps: IdTable<Qp>,
    #[pin]
    pub(crate) objects: Objects,
    /// When to look at the queue pairs in ERR that are marked in `qps`, see [`crate::flush`].
    #[pin]
    pub(crate) sweep_timer: Timer<Self>,
    #[pin]
    sweep: Work<Self>,
}

impl_has_timer! {
    impl HasTimer<Self> for Shared { self.sweep_timer }
}

impl_has_work! {
    impl HasWork<Self> for Shared { self.sweep }
}

impl Shared {
    /// Creates the shared state of queue pairs over `netdev`. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(
        netdev: &NetDevice,
        queues: Arc<Queues>,
        senders: Arc<Senders>,
    ) -> Result<Arc<Self>> {
        let port = Port::new(netdev)?;
        let is_local = netdev.vlan_lower().unwrap_or(netdev).is_local();
        let stats = Arc::new(Stats::new()?, GFP_KERNEL)?;
        let shared = try_pin_init!(Self {
            port,
            is_local,
            law: Atomic::new(Law::default().index()),
            cnp_dscp: Atomic::new(cnp::DSCP.into()),
            queues,
            senders,
            stats,
            qps <- IdTable::new(),
            objects <- Objects::new(),
            sweep_timer <- Timer::new(),
            sweep <- new_work!("ferroce::Shared::sweep"),
        });
        Arc::pin_init(shared, GFP_KERNEL)
    }

    /// Returns the law of congestion control of connections to come.
    pub(crate) fn law(&self) -> Law {
        // The stored value is a law's place, so the default is never taken.
        let law = Law::ALL.get(self.law.read_once());
        law.copied().unwrap_or_default()
    }

    /// Sets it.
    pub(crate) fn set_law(&self, law: Law) {
        self.law.write_once(law.index());
    }

    /// Returns the differentiated services code point of CNPs.
    pub(crate) fn cnp_dscp(&self) -> u8 {
        // CAST: It was stored as one.
        self.cnp_dscp.read_once() as u8
    }

    /// Sets it, for all connections.
    pub(crate) fn set_cnp_dscp(&self, dscp: u8) {
        self.cnp_dscp.write_once(dscp.into());
    }
}
