// SPDX-License-Identifier: GPL-2.0

//! The attributes of a responder.

use crate::num::{Bundle, Mtu, Pkey, Psn, Qpn};
use crate::opcode::Connection;
use crate::time::RnrTimer;
use crate::wr::Placement;

/// The access that a queue pair grants its peer, `qp_access_flags`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RemoteAccess {
    /// WRITE.
    pub write: bool,
    /// READ.
    pub read: bool,
    /// Atomic operations.
    pub atomic: bool,
    /// FLUSH to where.
    pub flush: Placement,
}

/// The configuration of a responder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecvConfig {
    /// The kind of connection.
    pub connection: Connection,
    /// The peer's queue pair.
    pub dest_qp: Qpn,
    /// The partition.
    pub pkey: Pkey,
    /// The path MTU.
    pub mtu: Mtu,
    /// The part of a response that one packet carries.
    pub bundle: Bundle,
    /// The number of the first packet that it expects.
    pub rq_psn: Psn,
    /// READs and atomics of the peer that may be outstanding; with 0, none is taken.
    pub max_dest_rd_atomic: u8,
    /// The time for which a peer must wait when no receive is posted.
    pub min_rnr_timer: RnrTimer,
    /// The access that the peer has.
    pub access: RemoteAccess,
}

/// The attributes that may change while a responder runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecvUpdate {
    /// The time for which a peer must wait when no receive is posted.
    pub min_rnr_timer: RnrTimer,
    /// The access that the peer has.
    pub access: RemoteAccess,
    /// The partition.
    pub pkey: Pkey,
    /// READs and atomics of the peer that may be outstanding.
    pub max_dest_rd_atomic: u8,
    /// The part that one packet carries, from the next one on.
    pub bundle: Bundle,
}

impl RecvConfig {
    /// Returns these attributes with those of `update`.
    // Rules: STA-14
    #[must_use]
    pub(super) fn updated(self, update: RecvUpdate) -> Self {
        Self {
            min_rnr_timer: update.min_rnr_timer,
            access: update.access,
            pkey: update.pkey,
            bundle: update.bundle,
            max_dest_rd_atomic: update.max_dest_rd_atomic,
            ..self
        }
    }
}
