// SPDX-License-Identifier: GPL-2.0

//! Attributes of queue pairs, between the core's types and those of the protocol.

use rdma::qp::{self, QpValues};
use roce::qp::{Attr, State};

/// Returns the values that a modification names, for the protocol.
pub(super) fn values(values: &QpValues) -> Attr {
    Attr {
        path_mtu: values.path_mtu,
        rq_psn: values.rq_psn,
        sq_psn: values.sq_psn,
        dest_qp_num: values.dest_qp_num,
        qkey: values.qkey,
        qp_access_flags: values.qp_access_flags,
        max_rd_atomic: values.max_rd_atomic,
        max_dest_rd_atomic: values.max_dest_rd_atomic,
        min_rnr_timer: values.min_rnr_timer,
        timeout: values.timeout,
        retry_cnt: values.retry_cnt,
        rnr_retry: values.rnr_retry,
    }
}

/// Returns the protocol's name of a state.
pub(super) fn from_core(state: qp::State) -> State {
    match state {
        qp::State::Reset => State::Reset,
        qp::State::Init => State::Init,
        qp::State::Rtr => State::Rtr,
        qp::State::Rts => State::Rts,
        qp::State::Sqd => State::Sqd,
        qp::State::Sqe => State::Sqe,
        qp::State::Err => State::Err,
    }
}

/// Returns the core's name of a state.
pub(super) fn to_core(state: State) -> qp::State {
    match state {
        State::Reset => qp::State::Reset,
        State::Init => qp::State::Init,
        State::Rtr => qp::State::Rtr,
        State::Rts => qp::State::Rts,
        State::Sqd => qp::State::Sqd,
        State::Sqe => qp::State::Sqe,
        State::Err => qp::State::Err,
    }
}
