// SPDX-License-Identifier: GPL-2.0

//! The attributes of a queue pair, accumulated over modifications.

use rdma::ah::AhInfo;
use rdma::qp::QpCaps;
use roce::congestion::Law;
use roce::qp::{Attributes, State};

/// The settings of a queue pair. Its lock serialises modifications.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    /// The state that the last modification asked for. A failure since then shows in the queue
    /// pair's own state.
    pub(crate) state: State,
    pub(crate) attributes: Attributes,
    /// `qp_access_flags` as they were given.
    pub(crate) access: u32,
    /// The address vector, from RTR on.
    pub(crate) ah: Option<AhInfo>,
    /// How large the queues are.
    pub(crate) caps: QpCaps,
    pub(crate) signal_all: bool,
    /// The law of congestion control, from RTR on.
    pub(crate) law: Law,
}

impl Settings {
    /// Returns the settings of a queue pair in RESET.
    pub(crate) fn new(caps: QpCaps, signal_all: bool) -> Self {
        Self {
            state: State::Reset,
            attributes: Attributes::NEW,
            access: 0,
            ah: None,
            caps,
            signal_all,
            law: Law::default(),
        }
    }
}
