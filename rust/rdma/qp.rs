// SPDX-License-Identifier: GPL-2.0

//! Attributes of queue pairs, as verbs pass them.

use crate::{
    ah::{
        AhAttr,
        AhInfo, //
    },
    driver::Driver,
    errno::EOPNOTSUPP,
    object::{
        Cq,
        Qp,
        Srq, //
    }, //
};
use core::ptr::NonNull;
use kernel::{
    prelude::*,
    sync::atomic::{
        atomic_store,
        Relaxed, //
    }, //
};
use rdma_bindings as bindings;

/// The transport of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// The general services interface, QP1.
    Gsi,
}

impl QpType {
    /// # Errors
    ///
    /// `EOPNOTSUPP` for the other types.
    pub(crate) fn from_raw(raw: bindings::ib_qp_type) -> Result<Self> {
        match raw {
            bindings::ib_qp_type_IB_QPT_RC => Ok(Self::Rc),
            bindings::ib_qp_type_IB_QPT_UC => Ok(Self::Uc),
            bindings::ib_qp_type_IB_QPT_UD => Ok(Self::Ud),
            bindings::ib_qp_type_IB_QPT_GSI => Ok(Self::Gsi),
            _ => Err(EOPNOTSUPP),
        }
    }

    pub(crate) fn to_raw(self) -> bindings::ib_qp_type {
        match self {
            Self::Rc => bindings::ib_qp_type_IB_QPT_RC,
            Self::Uc => bindings::ib_qp_type_IB_QPT_UC,
            Self::Ud => bindings::ib_qp_type_IB_QPT_UD,
            Self::Gsi => bindings::ib_qp_type_IB_QPT_GSI,
        }
    }
}

/// The state of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum State {
    /// Nothing is set.
    Reset = bindings::ib_qp_state_IB_QPS_RESET,
    /// Receives may be posted.
    Init = bindings::ib_qp_state_IB_QPS_INIT,
    /// Ready to receive.
    Rtr = bindings::ib_qp_state_IB_QPS_RTR,
    /// Ready to send.
    Rts = bindings::ib_qp_state_IB_QPS_RTS,
    /// The send queue is drained, or is being drained.
    Sqd = bindings::ib_qp_state_IB_QPS_SQD,
    /// The send queue failed.
    Sqe = bindings::ib_qp_state_IB_QPS_SQE,
    /// Failed: posted work is flushed.
    Err = bindings::ib_qp_state_IB_QPS_ERR,
}

impl State {
    /// # Errors
    ///
    /// `EINVAL` for a number that is no state.
    fn from_raw(raw: bindings::ib_qp_state) -> Result<Self> {
        match raw {
            bindings::ib_qp_state_IB_QPS_RESET => Ok(Self::Reset),
            bindings::ib_qp_state_IB_QPS_INIT => Ok(Self::Init),
            bindings::ib_qp_state_IB_QPS_RTR => Ok(Self::Rtr),
            bindings::ib_qp_state_IB_QPS_RTS => Ok(Self::Rts),
            bindings::ib_qp_state_IB_QPS_SQD => Ok(Self::Sqd),
            bindings::ib_qp_state_IB_QPS_SQE => Ok(Self::Sqe),
            bindings::ib_qp_state_IB_QPS_ERR => Ok(Self::Err),
            _ => Err(EINVAL),
        }
    }
}

/// The resolver of the peer's address, when the address vector of a queue pair is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolver {
    /// The core. Before it calls [`modify_qp`](crate::ops::Operations::modify_qp), it looks up the
    /// route to the peer and its MAC address by the IP stack. It refuses the call if there is none.
    Core,
    /// The driver, by [`AhAttr::resolve`](crate::ah::AhAttr::resolve).
    Driver,
}

impl<T: Driver> Qp<T> {
    /// Selects the resolver of the address that a process sets next.
    ///
    /// The core resolves for the types of queue pairs that it knows as connected, and offers no
    /// other choice. So a queue pair with the driver as its resolver shows the type `DRIVER`
    /// meanwhile, for example in `rdma resource`. The driver must select the core again as soon as
    /// the queue pair has its address. Nothing else in the core depends on this type: the core
    /// enters a queue pair in its tables at its creation, with the real type.
    ///
    /// The driver serialises calls for the same queue pair. A call that the core began meanwhile
    /// may have either resolver, which [`AhAttr::resolve`](crate::ah::AhAttr::resolve) takes into
    /// account.
    pub fn set_resolver(&self, resolver: Resolver, qp_type: QpType) {
        let shown = match resolver {
            Resolver::Driver if self.is_user() => bindings::ib_qp_type_IB_QPT_DRIVER,
            // The core resolves for processes alone.
            _ => qp_type.to_raw(),
        };
        // SAFETY: By the invariants the queue pair is valid. The core only reads this field, which
        // is one word.
        unsafe { atomic_store(&raw mut (*self.as_raw()).qp_type, shown, Relaxed) };
    }
}

/// The sizes of the queues of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QpCaps {
    /// Work requests of the send queue.
    pub max_send_wr: u32,
    /// Work requests of the receive queue.
    pub max_recv_wr: u32,
    /// Scatter-gather elements of a send.
    pub max_send_sge: u32,
    /// Scatter-gather elements of a receive.
    pub max_recv_sge: u32,
    /// Bytes of a send that may be inline.
    pub max_inline_data: u32,
}

impl QpCaps {
    fn from_raw(raw: &bindings::ib_qp_cap) -> Self {
        Self {
            max_send_wr: raw.max_send_wr,
            max_recv_wr: raw.max_recv_wr,
            max_send_sge: raw.max_send_sge,
            max_recv_sge: raw.max_recv_sge,
            max_inline_data: raw.max_inline_data,
        }
    }

    pub(crate) fn fill(&self, raw: &mut bindings::ib_qp_cap) {
        raw.max_send_wr = self.max_send_wr;
        raw.max_recv_wr = self.max_recv_wr;
        raw.max_send_sge = self.max_send_sge;
        raw.max_recv_sge = self.max_recv_sge;
        raw.max_inline_data = self.max_inline_data;
    }
}

/// Parameters of a new queue pair.
pub struct QpInit<'a, T: Driver> {
    /// The transport.
    pub qp_type: QpType,
    /// The completion queue for sends.
    pub send_cq: &'a Cq<T>,
    /// The completion queue for receives.
    pub recv_cq: &'a Cq<T>,
    /// The least sizes of the queues. The driver replaces them by the actual sizes.
    pub caps: QpCaps,
    /// True if all sends make completions, and not only those that request one.
    pub sq_sig_all: bool,
    /// Flags that the standard doesn't know; `enum ib_qp_create_flags`.
    pub create_flags: u32,
    /// The port, for QP1.
    pub port: u32,
    /// The shared receive queue that receives come from, if there is one.
    pub srq: Option<&'a Srq<T>>,
}

impl<'a, T: Driver> QpInit<'a, T> {
    /// # Errors
    ///
    /// `EOPNOTSUPP` for other types of queue pairs, `EINVAL` if a completion queue is missing.
    ///
    /// # Safety
    ///
    /// The queues must be null or created for a device of `T`, and alive for `'a`.
    pub(crate) unsafe fn from_raw(raw: &bindings::ib_qp_init_attr) -> Result<Self> {
        if raw.send_cq.is_null() || raw.recv_cq.is_null() {
            return Err(EINVAL);
        }
        Ok(Self {
            qp_type: QpType::from_raw(raw.qp_type)?,
            // SAFETY: It is not null, and the caller promises a queue that was created for a device
            // of `T`.
            send_cq: unsafe { Cq::from_raw(raw.send_cq) },
            // SAFETY: It is not null, and the caller promises a queue that was created for a device
            // of `T`.
            recv_cq: unsafe { Cq::from_raw(raw.recv_cq) },
            caps: QpCaps::from_raw(&raw.cap),
            sq_sig_all: raw.sq_sig_type == bindings::ib_sig_type_IB_SIGNAL_ALL_WR,
            create_flags: raw.create_flags,
            port: raw.port_num,
            srq: NonNull::new(raw.srq)
                // SAFETY: It is not null, and the caller promises a queue that was created for a
                // device of `T`.
                .map(|srq| unsafe { Srq::from_raw(srq.as_ptr()) }),
        })
    }
}

/// Values of attributes, unchecked, as `struct ib_qp_attr` has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QpValues {
    /// The largest payload of a packet; `enum ib_mtu`, or 0 if it is not known.
    pub path_mtu: u32,
    /// The next PSN to receive.
    pub rq_psn: u32,
    /// The next PSN to send.
    pub sq_psn: u32,
    /// The peer's queue pair.
    pub dest_qp_num: u32,
    /// The Q_Key.
    pub qkey: u32,
    /// The rights of peers; `enum ib_access_flags`.
    pub qp_access_flags: u32,
    /// READs and atomics that we may have outstanding.
    pub max_rd_atomic: u8,
    /// READs and atomics that the peer may have outstanding.
    pub max_dest_rd_atomic: u8,
    /// Code of the timer in our RNR NAKs.
    pub min_rnr_timer: u8,
    /// Code of the local ACK timeout.
    pub timeout: u8,
    /// The number of retries when the peer is silent or misses a packet.
    pub retry_cnt: u8,
    /// The number of retries when the peer is not ready.
    pub rnr_retry: u8,
}

/// Changes to a queue pair.
///
/// The attributes that `mask` names are in `values`. Attributes that the core has to interpret are
/// beside it.
///
/// # Examples
///
/// ```
/// use rdma::qp::{
///     QpAttr,
///     QpType,
///     State, //
/// };
///
/// /// Serves `Operations::modify_qp`. The caller has the lock of `state`.
/// fn modify(state: &mut State, attr: &QpAttr<'_>) -> Result {
///     *state = attr.transition(*state, QpType::Rc)?;
///     Ok(())
/// }
/// ```
#[non_exhaustive]
pub struct QpAttr<'a> {
    /// The attributes to change; `enum ib_qp_attr_mask`.
    pub mask: u32,
    /// The values of most of them. Only those that `mask` names have a meaning.
    pub values: QpValues,
    /// The new state.
    pub state: Option<State>,
    /// The current state, as the caller believes.
    pub cur_state: Option<State>,
    /// Whether to raise an event when the send queue has drained.
    pub en_sqd_async_notify: Option<bool>,
    /// Index of the P_Key.
    pub pkey_index: Option<u16>,
    /// The port, from 1.
    pub port: Option<u32>,
    /// The destination of packets.
    pub av: Option<AhAttr<'a>>,
}

impl<'a> QpAttr<'a> {
    /// Attributes of RoCE devices.
    const SUPPORTED: u32 = bindings::ib_qp_attr_mask_IB_QP_ATTR_STANDARD_BITS
        & !bindings::ib_qp_attr_mask_IB_QP_ALT_PATH
        & !bindings::ib_qp_attr_mask_IB_QP_PATH_MIG_STATE
        & !bindings::ib_qp_attr_mask_IB_QP_CAP;

    /// # Errors
    ///
    /// `EINVAL` if a state or address vector is invalid, `EOPNOTSUPP` for attributes that the
    /// standard doesn't know, and for alternate paths and new sizes, which devices of RoCE don't
    /// have.
    ///
    /// # Safety
    ///
    /// If `mask` names an address vector, its GID attribute must be held for `'a`.
    pub(crate) unsafe fn from_raw(raw: &'a bindings::ib_qp_attr, mask: u32) -> Result<Self> {
        if mask & !Self::SUPPORTED != 0 {
            return Err(EOPNOTSUPP);
        }
        let has = |bit: u32| mask & bit != 0;
        let av = has(bindings::ib_qp_attr_mask_IB_QP_AV)
            // SAFETY: The caller promises that the GID attribute is held.
            .then(|| unsafe { AhAttr::new(&raw.ah_attr) })
            .transpose()?;
        Ok(Self {
            mask,
            values: QpValues {
                path_mtu: raw.path_mtu,
                rq_psn: raw.rq_psn,
                sq_psn: raw.sq_psn,
                dest_qp_num: raw.dest_qp_num,
                qkey: raw.qkey,
                // CAST: A mask of bits.
                qp_access_flags: raw.qp_access_flags as u32,
                max_rd_atomic: raw.max_rd_atomic,
                max_dest_rd_atomic: raw.max_dest_rd_atomic,
                min_rnr_timer: raw.min_rnr_timer,
                timeout: raw.timeout,
                retry_cnt: raw.retry_cnt,
                rnr_retry: raw.rnr_retry,
            },
            state: has(bindings::ib_qp_attr_mask_IB_QP_STATE)
                .then(|| State::from_raw(raw.qp_state))
                .transpose()?,
            cur_state: has(bindings::ib_qp_attr_mask_IB_QP_CUR_STATE)
                .then(|| State::from_raw(raw.cur_qp_state))
                .transpose()?,
            en_sqd_async_notify: has(bindings::ib_qp_attr_mask_IB_QP_EN_SQD_ASYNC_NOTIFY)
                .then_some(raw.en_sqd_async_notify != 0),
            pkey_index: has(bindings::ib_qp_attr_mask_IB_QP_PKEY_INDEX).then_some(raw.pkey_index),
            port: has(bindings::ib_qp_attr_mask_IB_QP_PORT).then_some(raw.port_num),
            av,
        })
    }

    /// Returns the next state of the queue pair, which may be `current`.
    ///
    /// Checks that the standard allows the transition for that type, and that all required
    /// attributes and only allowed ones are present. Any context; to be called under the lock that
    /// guards the state.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the transition or the attributes are not allowed, or if the caller's state is
    /// not `current`.
    pub fn transition(&self, current: State, qp_type: QpType) -> Result<State> {
        if self.cur_state.is_some_and(|believed| believed != current) {
            return Err(EINVAL);
        }
        let next = self.state.unwrap_or(current);
        // SAFETY: The function only reads its tables, and each value is in their range.
        let is_ok = unsafe {
            bindings::ib_modify_qp_is_ok(
                current as bindings::ib_qp_state,
                next as bindings::ib_qp_state,
                qp_type.to_raw(),
                self.mask,
            )
        };
        if is_ok {
            Ok(next)
        } else {
            Err(EINVAL)
        }
    }
}

/// The attributes of a queue pair, for a query.
#[derive(Clone, Copy, Debug)]
pub struct QpInfo {
    /// Its state.
    pub state: State,
    /// Whether the send queue drains and is not drained yet.
    pub sq_draining: bool,
    /// The values of other attributes.
    pub values: QpValues,
    /// The sizes of the queues.
    pub caps: QpCaps,
    /// The destination of packets, once it is known.
    pub av: Option<AhInfo>,
    /// Index of the P_Key.
    pub pkey_index: u16,
    /// Whether an event is raised when the send queue has drained.
    pub en_sqd_async_notify: bool,
    /// The port.
    pub port: u32,
    /// True if all sends make completions.
    pub sq_sig_all: bool,
}

impl QpInfo {
    pub(crate) fn to_raw(self) -> bindings::ib_qp_attr {
        // SAFETY: A zeroed attribute is a valid one.
        let mut raw: bindings::ib_qp_attr = unsafe { core::mem::zeroed() };
        let values = &self.values;
        raw.qp_state = self.state as bindings::ib_qp_state;
        raw.cur_qp_state = self.state as bindings::ib_qp_state;
        raw.path_mtu = values.path_mtu;
        raw.path_mig_state = bindings::ib_mig_state_IB_MIG_MIGRATED;
        raw.qkey = values.qkey;
        raw.rq_psn = values.rq_psn;
        raw.sq_psn = values.sq_psn;
        raw.dest_qp_num = values.dest_qp_num;
        // CAST: The flags of the core are 30 bits.
        raw.qp_access_flags = values.qp_access_flags as i32;
        self.caps.fill(&mut raw.cap);
        if let Some(av) = self.av {
            raw.ah_attr = av.to_raw();
        }
        raw.pkey_index = self.pkey_index;
        raw.en_sqd_async_notify = self.en_sqd_async_notify.into();
        raw.sq_draining = self.sq_draining.into();
        raw.max_rd_atomic = values.max_rd_atomic;
        raw.max_dest_rd_atomic = values.max_dest_rd_atomic;
        raw.min_rnr_timer = values.min_rnr_timer;
        raw.port_num = self.port;
        raw.timeout = values.timeout;
        raw.retry_cnt = values.retry_cnt;
        raw.rnr_retry = values.rnr_retry;
        raw
    }
}
