// SPDX-License-Identifier: GPL-2.0

//! The attributes of a requester.

use crate::congestion::Law;
use crate::num::{Bundle, Mtu, Pkey, Psn, Qpn};
use crate::opcode::Connection;
use crate::time::AckTimeout;

/// How often to try again, 0 ..= 7.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RetryCount(u8);

impl RetryCount {
    /// Not once.
    pub const NONE: Self = Self(0);

    /// Takes a count of 0 ..= 7.
    // Rules: RTY-17
    pub const fn new(count: u8) -> Option<Self> {
        if count <= 7 {
            Some(Self(count))
        } else {
            None
        }
    }

    /// Returns the count.
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// The configuration of a requester.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendConfig {
    /// The kind of connection.
    pub connection: Connection,
    /// The peer's queue pair.
    pub dest_qp: Qpn,
    /// The partition.
    pub pkey: Pkey,
    /// The path MTU.
    pub mtu: Mtu,
    /// The part of a message that one packet carries.
    pub bundle: Bundle,
    /// The number of the first packet.
    pub sq_psn: Psn,
    /// How long to wait for an acknowledgement.
    pub timeout: AckTimeout,
    /// How often to send again without any progress.
    pub retry_cnt: RetryCount,
    /// How often to send again to a receiver that is not ready;
    /// [`RNR_RETRY_INFINITE`](crate::limits::RNR_RETRY_INFINITE) never gives up.
    pub rnr_retry: RetryCount,
    /// READs and atomics that may be outstanding; with 0, none is ever sent.
    pub max_rd_atomic: u8,
    /// How much may be outstanding.
    pub law: Law,
}

/// The attributes that may change while the send queue is drained.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendUpdate {
    /// How long to wait for an acknowledgement.
    pub timeout: AckTimeout,
    /// How often to send again without any progress.
    pub retry_cnt: RetryCount,
    /// How often to send again to a receiver that is not ready.
    pub rnr_retry: RetryCount,
    /// READs and atomics that may be outstanding.
    pub max_rd_atomic: u8,
    /// The partition.
    pub pkey: Pkey,
    /// The part that one packet carries, from the next one on.
    pub bundle: Bundle,
}

impl SendConfig {
    /// Returns these attributes with those of `update`.
    // Rules: STA-14
    #[must_use]
    pub(super) fn updated(self, update: SendUpdate) -> Self {
        Self {
            timeout: update.timeout,
            retry_cnt: update.retry_cnt,
            rnr_retry: update.rnr_retry,
            max_rd_atomic: update.max_rd_atomic,
            pkey: update.pkey,
            bundle: update.bundle,
            ..self
        }
    }
}
