// SPDX-License-Identifier: GPL-2.0

//! Address handles: the destinations of datagrams.
//!
//! An old provider does not know numbers of address handles, and puts an address vector into each work
//! request. For these, a queue pair has [`Vectors`].

use kernel::prelude::*;
use kernel::sync::Arc;
use rdma::ah::{udp_sport, AhInfo, Gid, Gids};
use rdma::net::{mac_of_gid, Credit, Egress, Flow, Path};
use rdma::sync::BhSpinLock;
use roce::abi::AddressVector;
use roce::num::Qpn;

use crate::port::PORT;
use crate::stats::Stats;
use crate::table::PdId;
use crate::tx;

/// An address handle.
///
/// All queue pairs of its protection domain may send by it, each under its own lock. The lock of the
/// path is taken after that.
#[pin_data]
pub(crate) struct Ah {
    pd: PdId,
    #[pin]
    destination: BhSpinLock<Destination>,
}

/// The destination of an address handle.
pub(crate) struct Destination {
    pub(crate) info: AhInfo,
    pub(crate) path: Path,
}

impl Ah {
    pub(crate) fn new(pd: PdId, destination: Destination) -> impl PinInit<Self> {
        pin_init!(Self {
            pd,
            destination <- rdma::new_bh_spinlock!(destination, "ferroce::Ah::destination"),
        })
    }

    /// Returns true if objects of `pd` may use it.
    pub(crate) fn is_of(&self, pd: PdId) -> bool {
        self.pd == pd
    }

    /// Returns the destination.
    pub(crate) fn info(&self) -> AhInfo {
        self.destination.lock().info
    }

    /// Changes the destination.
    pub(crate) fn replace(&self, destination: Destination) {
        let old = core::mem::replace(&mut *self.destination.lock(), destination);
        drop(old);
    }

    /// Runs `f` on the path with exclusive access, and then sends the pending train.
    pub(crate) fn with_path<R>(
        &self,
        credit: &Arc<Credit>,
        stats: &Stats,
        f: impl FnOnce(&mut Path) -> R,
    ) -> R {
        let path = &mut self.destination.lock().path;
        let result = f(path);
        tx::flush(path, credit, stats);
        result
    }
}

/// The address vectors of one queue pair, with the result for the last one.
///
/// Finding the netdev of a GID may sleep. So a work request waits until a work item has found it. Each
/// connection of rdma_cm has its own vectors, mostly from the same GID, for which nothing must be found.
#[derive(Default)]
pub(crate) struct Vectors {
    wanted: Option<AddressVector>,
    known: Option<Known>,
}

struct Known {
    vector: AddressVector,
    /// The GID that it is sent from, and where that is.
    local: [u8; 16],
    egress: Option<Egress>,
    /// None if it leads nowhere.
    ah: Option<Arc<Ah>>,
}

impl Known {
    /// Returns true if it is the result for `vector`, which is sent from `ours`. A netdev that was
    /// removed or moved, and came back, needs a new path.
    fn is_for(&self, vector: &AddressVector, ours: &Gid) -> bool {
        let leaves_by_ours = |egress: &Egress| egress.is_of(&ours.netdev);
        self.vector == *vector
            && self.local == ours.gid
            && self.egress.as_ref().is_none_or(leaves_by_ours)
    }

    /// Returns the entry for another vector, if it is sent from the same GID, `ours`.
    fn turn_to(self, vector: AddressVector, pd: PdId, qpn: Qpn, ours: &Gid) -> Option<Self> {
        let egress = self.egress?;
        if self.local != ours.gid || !egress.is_of(&ours.netdev) {
            return None;
        }
        let destination = destination_of(&vector, qpn, ours, &egress).ok()?;
        let ah = Arc::pin_init(Ah::new(pd, destination), GFP_ATOMIC).ok()?;
        Some(Self {
            vector,
            local: self.local,
            egress: Some(egress),
            ah: Some(ah),
        })
    }
}

/// The result for an address vector.
pub(crate) enum Lookup {
    Found(Arc<Ah>),
    /// It leads nowhere.
    Bad,
    /// A work item has to find out.
    Unknown,
}

impl Vectors {
    /// Looks up `vector` for the queue pair `qpn` of `pd`. The port's table must still have our GID at
    /// its index. Process and softirq context.
    pub(crate) fn look_up(
        &mut self,
        vector: AddressVector,
        pd: PdId,
        qpn: Qpn,
        gids: &Gids,
    ) -> Lookup {
        if vector.port != PORT {
            return Lookup::Bad;
        }
        let Ok(ours) = gids.get(PORT.into(), vector.sgid_index) else {
            return Lookup::Bad;
        };
        if self
            .known
            .as_ref()
            .is_some_and(|known| known.vector != vector)
        {
            let known = self.known.take();
            self.known = known.and_then(|known| known.turn_to(vector, pd, qpn, &ours));
        }
        match &self.known {
            Some(known) if known.is_for(&vector, &ours) => {
                if let Some(ah) = &known.ah {
                    return Lookup::Found(ah.clone());
                }
                // The next request may have more luck.
                self.known = None;
                Lookup::Bad
            }
            _ => {
                self.wanted = Some(vector);
                Lookup::Unknown
            }
        }
    }

    /// Takes the address vector for a work item to resolve.
    pub(crate) fn take_wanted(&mut self) -> Option<AddressVector> {
        self.wanted.take()
    }

    /// Stores the result of a work item.
    pub(crate) fn learn(&mut self, found: Found) {
        self.known = Some(found.0);
    }

    /// Forgets all.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}

/// The result of a work item.
pub(crate) struct Found(Known);

impl Found {
    /// Finds a way to where `vector` leads from the queue pair `qpn`. May sleep.
    pub(crate) fn new(vector: AddressVector, pd: PdId, qpn: Qpn, gids: &Gids) -> Self {
        let ours = gids.get(PORT.into(), vector.sgid_index).ok();
        let egress = (ours.as_ref()).and_then(|ours| Egress::new(&ours.netdev).ok());
        let ah = (ours.as_ref().zip(egress.as_ref())).and_then(|(ours, egress)| {
            let destination = destination_of(&vector, qpn, ours, egress).ok()?;
            Arc::pin_init(Ah::new(pd, destination), GFP_KERNEL).ok()
        });
        Self(Known {
            vector,
            local: ours.map_or([0; 16], |ours| ours.gid),
            egress,
            ah,
        })
    }
}

/// Resolves the destination by the IP stack. A MAC address found by the process is not used.
fn destination_of(
    vector: &AddressVector,
    qpn: Qpn,
    ours: &Gid,
    egress: &Egress,
) -> Result<Destination> {
    let info = AhInfo {
        dgid: vector.dgid,
        sgid_index: vector.sgid_index,
        flow_label: vector.flow_label,
        hop_limit: vector.hop_limit,
        traffic_class: vector.traffic_class,
        port: PORT.into(),
        ..AhInfo::default()
    };
    let flow = Flow {
        local: ours.gid,
        remote: info.dgid,
        traffic_class: info.traffic_class,
        hop_limit: info.hop_limit,
        flow_label: info.flow_label,
        source_port: udp_sport(info.flow_label, qpn.get(), qpn.get()),
        mac: mac_of_gid(info.dgid),
    };
    let path = egress.path(flow)?;
    Ok(Destination { info, path })
}
