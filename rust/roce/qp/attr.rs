// SPDX-License-Identifier: GPL-2.0

//! The attributes of a queue pair.

use crate::congestion::Law;
use crate::limits::MAX_RD_ATOMIC;
use crate::num::{Bundle, Mtu, Pkey, Psn, Qkey, Qpn};
use crate::opcode::Connection;
use crate::recv::{RecvConfig, RecvUpdate, RemoteAccess};
use crate::send::{RetryCount, SendConfig, SendUpdate};
use crate::time::{AckTimeout, RnrTimer};
use crate::ud::DatagramConfig;
use crate::wr::Placement;

/// A set of attributes; the bits are those of `enum ib_qp_attr_mask`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mask(pub u32);

impl Mask {
    /// No attribute.
    pub const NONE: Self = Self(0);
    /// `qp_state`.
    pub const STATE: Self = Self(1 << 0);
    /// `cur_qp_state`.
    pub const CUR_STATE: Self = Self(1 << 1);
    /// `en_sqd_async_notify`.
    pub const EN_SQD_ASYNC_NOTIFY: Self = Self(1 << 2);
    /// `qp_access_flags`.
    pub const ACCESS_FLAGS: Self = Self(1 << 3);
    /// `pkey_index`.
    pub const PKEY_INDEX: Self = Self(1 << 4);
    /// `port_num`.
    pub const PORT: Self = Self(1 << 5);
    /// `qkey`.
    pub const QKEY: Self = Self(1 << 6);
    /// `ah_attr`.
    pub const AV: Self = Self(1 << 7);
    /// `path_mtu`.
    pub const PATH_MTU: Self = Self(1 << 8);
    /// `timeout`.
    pub const TIMEOUT: Self = Self(1 << 9);
    /// `retry_cnt`.
    pub const RETRY_CNT: Self = Self(1 << 10);
    /// `rnr_retry`.
    pub const RNR_RETRY: Self = Self(1 << 11);
    /// `rq_psn`.
    pub const RQ_PSN: Self = Self(1 << 12);
    /// `max_rd_atomic`.
    pub const MAX_QP_RD_ATOMIC: Self = Self(1 << 13);
    /// `alt_ah_attr` and the attributes of that path.
    pub const ALT_PATH: Self = Self(1 << 14);
    /// `min_rnr_timer`.
    pub const MIN_RNR_TIMER: Self = Self(1 << 15);
    /// `sq_psn`.
    pub const SQ_PSN: Self = Self(1 << 16);
    /// `max_dest_rd_atomic`.
    pub const MAX_DEST_RD_ATOMIC: Self = Self(1 << 17);
    /// `path_mig_state`.
    pub const PATH_MIG_STATE: Self = Self(1 << 18);
    /// `dest_qp_num`.
    pub const DEST_QPN: Self = Self(1 << 20);

    /// Returns the union of both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns true if this set contains `other`.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The attributes that a modification names, unchecked, as `struct ib_qp_attr` has them. Only those
/// in the mask are looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Attr {
    /// `path_mtu`, an `enum ib_mtu`.
    pub path_mtu: u32,
    /// `rq_psn`.
    pub rq_psn: u32,
    /// `sq_psn`.
    pub sq_psn: u32,
    /// `dest_qp_num`.
    pub dest_qp_num: u32,
    /// `qkey`.
    pub qkey: u32,
    /// `qp_access_flags`, of `enum ib_access_flags`.
    pub qp_access_flags: u32,
    /// `max_rd_atomic`.
    pub max_rd_atomic: u8,
    /// `max_dest_rd_atomic`.
    pub max_dest_rd_atomic: u8,
    /// `min_rnr_timer`.
    pub min_rnr_timer: u8,
    /// `timeout`.
    pub timeout: u8,
    /// `retry_cnt`.
    pub retry_cnt: u8,
    /// `rnr_retry`.
    pub rnr_retry: u8,
}

/// An attribute has a value that it may not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttrError(pub Mask);

/// The checked attributes of a queue pair, as they add up over its modifications.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// The partition, which the host looks up by `pkey_index`.
    pub pkey: Pkey,
    /// The path MTU.
    pub path_mtu: Mtu,
    /// The first PSN expected.
    pub rq_psn: Psn,
    /// The first PSN sent.
    pub sq_psn: Psn,
    /// The peer's queue pair.
    pub dest_qp: Qpn,
    /// The Q_Key that a datagram must have to be received.
    pub qkey: Qkey,
    /// The access that the peer has.
    pub access: RemoteAccess,
    /// READs and atomics that we may have outstanding.
    pub max_rd_atomic: u8,
    /// READs and atomics that the peer may have outstanding.
    pub max_dest_rd_atomic: u8,
    /// The delay in RNR NAKs.
    pub min_rnr_timer: RnrTimer,
    /// The local ACK timeout.
    pub timeout: AckTimeout,
    /// Retries without progress.
    pub retry_cnt: RetryCount,
    /// Retries after RNR NAKs.
    pub rnr_retry: RetryCount,
}

impl Attributes {
    /// The attributes of a new queue pair.
    pub const NEW: Self = Self {
        pkey: Pkey::DEFAULT,
        path_mtu: Mtu::B256,
        rq_psn: Psn::new(0),
        sq_psn: Psn::new(0),
        dest_qp: Qpn::new(0),
        qkey: Qkey(0),
        access: RemoteAccess {
            write: false,
            read: false,
            atomic: false,
            flush: Placement {
                global: false,
                persistent: false,
            },
        },
        max_rd_atomic: 0,
        max_dest_rd_atomic: 0,
        min_rnr_timer: RnrTimer::from_low_bits(0),
        timeout: AckTimeout::NEVER,
        retry_cnt: RetryCount::NONE,
        rnr_retry: RetryCount::NONE,
    };

    /// Returns these attributes, with those of `attr` that `mask` names and that are kept here.
    /// `active_mtu` is the port's. Of a PSN the low 24 bits count, as the verbs define it.
    ///
    /// # Errors
    ///
    /// [`AttrError`] names an attribute that is out of its range: the path MTU is none or above
    /// `active_mtu`; a queue-pair number has more than 24 bits; an access flag says something that
    /// is no right of a peer; a depth is over [`MAX_RD_ATOMIC`]; a timer or timeout is over 31; a
    /// retry count is over 7.
    // Rules: STA-4
    pub fn modified(self, attr: &Attr, mask: Mask, active_mtu: Mtu) -> Result<Self, AttrError> {
        let mut new = self;
        let named = |bit: Mask| mask.contains(bit);
        if named(Mask::PATH_MTU) {
            // Rules: STA-5
            new.path_mtu = Mtu::from_code(attr.path_mtu)
                .filter(|mtu| *mtu <= active_mtu)
                .ok_or(AttrError(Mask::PATH_MTU))?;
        }
        if named(Mask::RQ_PSN) {
            // Rules: PSN-16
            new.rq_psn = Psn::new(attr.rq_psn);
        }
        if named(Mask::SQ_PSN) {
            new.sq_psn = Psn::new(attr.sq_psn);
        }
        if named(Mask::DEST_QPN) {
            // Rules: STA-6
            new.dest_qp = Some(Qpn::new(attr.dest_qp_num))
                .filter(|qpn| qpn.get() == attr.dest_qp_num)
                .ok_or(AttrError(Mask::DEST_QPN))?;
        }
        if named(Mask::QKEY) {
            new.qkey = Qkey(attr.qkey);
        }
        if named(Mask::ACCESS_FLAGS) {
            new.access = access(attr.qp_access_flags).ok_or(AttrError(Mask::ACCESS_FLAGS))?;
        }
        if named(Mask::MAX_QP_RD_ATOMIC) {
            new.max_rd_atomic =
                depth(attr.max_rd_atomic).ok_or(AttrError(Mask::MAX_QP_RD_ATOMIC))?;
        }
        if named(Mask::MAX_DEST_RD_ATOMIC) {
            new.max_dest_rd_atomic =
                depth(attr.max_dest_rd_atomic).ok_or(AttrError(Mask::MAX_DEST_RD_ATOMIC))?;
        }
        if named(Mask::MIN_RNR_TIMER) {
            new.min_rnr_timer =
                RnrTimer::new(attr.min_rnr_timer).ok_or(AttrError(Mask::MIN_RNR_TIMER))?;
        }
        if named(Mask::TIMEOUT) {
            new.timeout = AckTimeout::new(attr.timeout).ok_or(AttrError(Mask::TIMEOUT))?;
        }
        if named(Mask::RETRY_CNT) {
            new.retry_cnt = RetryCount::new(attr.retry_cnt).ok_or(AttrError(Mask::RETRY_CNT))?;
        }
        if named(Mask::RNR_RETRY) {
            new.rnr_retry = RetryCount::new(attr.rnr_retry).ok_or(AttrError(Mask::RNR_RETRY))?;
        }
        Ok(new)
    }

    /// Returns the configuration with which the responder starts.
    pub fn recv_config(&self, connection: Connection, bundle: Bundle) -> RecvConfig {
        RecvConfig {
            connection,
            dest_qp: self.dest_qp,
            pkey: self.pkey,
            mtu: self.path_mtu,
            bundle,
            rq_psn: self.rq_psn,
            max_dest_rd_atomic: self.max_dest_rd_atomic,
            min_rnr_timer: self.min_rnr_timer,
            access: self.access,
        }
    }

    /// Returns the attributes that may have changed for a running responder.
    pub fn recv_update(&self, bundle: Bundle) -> RecvUpdate {
        RecvUpdate {
            bundle,
            pkey: self.pkey,
            max_dest_rd_atomic: self.max_dest_rd_atomic,
            min_rnr_timer: self.min_rnr_timer,
            access: self.access,
        }
    }

    /// Returns the configuration with which the requester starts.
    pub fn send_config(&self, connection: Connection, bundle: Bundle, law: Law) -> SendConfig {
        SendConfig {
            law,
            connection,
            dest_qp: self.dest_qp,
            pkey: self.pkey,
            mtu: self.path_mtu,
            bundle,
            sq_psn: self.sq_psn,
            timeout: self.timeout,
            retry_cnt: self.retry_cnt,
            rnr_retry: self.rnr_retry,
            max_rd_atomic: self.max_rd_atomic,
        }
    }

    /// Returns the attributes that may have changed for a running requester.
    pub fn send_update(&self, bundle: Bundle) -> SendUpdate {
        SendUpdate {
            bundle,
            pkey: self.pkey,
            timeout: self.timeout,
            retry_cnt: self.retry_cnt,
            rnr_retry: self.rnr_retry,
            max_rd_atomic: self.max_rd_atomic,
        }
    }

    /// Returns the configuration of both halves of a queue pair for datagrams, at the start and
    /// after each change.
    pub fn datagram_config(&self) -> DatagramConfig {
        DatagramConfig {
            pkey: self.pkey,
            qkey: self.qkey,
        }
    }
}

/// Decodes access flags; `None` if there are others than those of a queue pair.
const fn access(flags: u32) -> Option<RemoteAccess> {
    const LOCAL_WRITE: u32 = 1 << 0;
    const REMOTE_WRITE: u32 = 1 << 1;
    const REMOTE_READ: u32 = 1 << 2;
    const REMOTE_ATOMIC: u32 = 1 << 3;
    const MW_BIND: u32 = 1 << 4;
    const ON_DEMAND: u32 = 1 << 6;
    const FLUSH_GLOBAL: u32 = 1 << 8;
    const FLUSH_PERSISTENT: u32 = 1 << 9;
    const OPTIONAL: u32 = 0x3ff0_0000;

    // Programs pass the flags of their regions here. Flags that grant no access to a peer have no
    // effect.
    const LOCAL: u32 = LOCAL_WRITE | MW_BIND | ON_DEMAND | OPTIONAL;
    const FLUSH: u32 = FLUSH_GLOBAL | FLUSH_PERSISTENT;
    if flags & !(LOCAL | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | FLUSH) != 0 {
        return None;
    }
    Some(RemoteAccess {
        write: flags & REMOTE_WRITE != 0,
        read: flags & REMOTE_READ != 0,
        atomic: flags & REMOTE_ATOMIC != 0,
        flush: Placement {
            global: flags & FLUSH_GLOBAL != 0,
            persistent: flags & FLUSH_PERSISTENT != 0,
        },
    })
}

// Rules: RDA-26
const fn depth(depth: u8) -> Option<u8> {
    if depth <= MAX_RD_ATOMIC {
        Some(depth)
    } else {
        None
    }
}
