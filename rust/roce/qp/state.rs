// SPDX-License-Identifier: GPL-2.0

//! The states of a queue pair and the ways between them.

use super::attr::Mask;
use crate::opcode::Transport;

/// The state of a queue pair; the numbers are those of `enum ib_qp_state`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum State {
    /// Nothing is set.
    Reset = 0,
    /// Receives may be posted.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send.
    Rts = 3,
    /// The send queue is (being) drained.
    Sqd = 4,
    /// The send queue failed (unreliable transports).
    Sqe = 5,
    /// Failed: posted work is flushed.
    Err = 6,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 7] = [
        Self::Reset,
        Self::Init,
        Self::Rtr,
        Self::Rts,
        Self::Sqd,
        Self::Sqe,
        Self::Err,
    ];

    /// Decodes `enum ib_qp_state`.
    // Rules: STA-16
    pub const fn from_code(code: u32) -> Option<Self> {
        match code {
            0 => Some(Self::Reset),
            1 => Some(Self::Init),
            2 => Some(Self::Rtr),
            3 => Some(Self::Rts),
            4 => Some(Self::Sqd),
            5 => Some(Self::Sqe),
            6 => Some(Self::Err),
            _ => None,
        }
    }

    /// Returns true if requests of the peer are received.
    // Rules: STA-13, VAL-6, VAL-7, VAL-8
    #[inline]
    pub const fn takes_requests(self) -> bool {
        matches!(self, Self::Rtr | Self::Rts | Self::Sqd | Self::Sqe)
    }

    /// Returns true if responses of the peer are received.
    // Rules: VAL-9
    #[inline]
    pub const fn takes_responses(self) -> bool {
        matches!(self, Self::Rts | Self::Sqd)
    }
}

/// The attributes that a transition takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transition {
    /// The attributes that must be given.
    pub required: Mask,
    /// The attributes that may be given, too.
    pub optional: Mask,
}

impl Transition {
    /// Returns true if a modification that names `mask` may make this transition.
    // Rules: STA-3
    pub const fn takes(self, mask: Mask) -> bool {
        let known = self.required.with(self.optional).with(Mask::STATE);
        mask.contains(self.required) && known.contains(mask)
    }
}

/// Returns the transition from one state to another by the verb *modify QP* on `transport`; `None`
/// if there is none. The driver asks the RDMA core's table, which must agree.
// Rules: STA-1, STA-2
pub const fn transition(transport: Transport, from: State, to: State) -> Option<Transition> {
    match (from, to) {
        (State::Reset, State::Err) => None,
        (_, State::Reset | State::Err) => Some(Transition {
            required: Mask::NONE,
            optional: Mask::NONE,
        }),
        _ => match transport {
            Transport::Rc => connected(from, to, RELIABLE),
            Transport::Uc => connected(from, to, UNRELIABLE),
            Transport::Ud => datagram(from, to),
        },
    }
}

/// The attributes in which connected transports differ: those that matter only with
/// acknowledgements.
struct Extra {
    /// Required to RTR.
    to_rtr: Mask,
    /// Required from RTR to RTS.
    to_rts: Mask,
    /// Optional in RTS.
    running: Mask,
    /// Optional in SQD.
    drained: Mask,
    /// Optional from SQE to RTS.
    resumed: Mask,
}

const RELIABLE: Extra = Extra {
    to_rtr: Mask::MAX_DEST_RD_ATOMIC.with(Mask::MIN_RNR_TIMER),
    to_rts: Mask::TIMEOUT
        .with(Mask::RETRY_CNT)
        .with(Mask::RNR_RETRY)
        .with(Mask::MAX_QP_RD_ATOMIC),
    running: Mask::MIN_RNR_TIMER,
    drained: Mask::PORT
        .with(Mask::TIMEOUT)
        .with(Mask::RETRY_CNT)
        .with(Mask::RNR_RETRY)
        .with(Mask::MAX_QP_RD_ATOMIC)
        .with(Mask::MAX_DEST_RD_ATOMIC)
        .with(Mask::MIN_RNR_TIMER),
    resumed: Mask::NONE,
};

const UNRELIABLE: Extra = Extra {
    to_rtr: Mask::NONE,
    to_rts: Mask::NONE,
    running: Mask::NONE,
    drained: Mask::NONE,
    resumed: Mask::CUR_STATE.with(Mask::ACCESS_FLAGS),
};

const fn connected(from: State, to: State, extra: Extra) -> Option<Transition> {
    let identity = Mask::PKEY_INDEX.with(Mask::PORT).with(Mask::ACCESS_FLAGS);
    let alternate = Mask::ALT_PATH.with(Mask::PATH_MIG_STATE);
    let running = alternate
        .with(Mask::CUR_STATE)
        .with(Mask::ACCESS_FLAGS)
        .with(extra.running);
    let (required, optional) = match (from, to) {
        (State::Reset, State::Init) => (identity, Mask::NONE),
        (State::Init, State::Init) => (Mask::NONE, identity),
        (State::Init, State::Rtr) => (
            Mask::AV
                .with(Mask::PATH_MTU)
                .with(Mask::DEST_QPN)
                .with(Mask::RQ_PSN)
                .with(extra.to_rtr),
            Mask::ALT_PATH
                .with(Mask::ACCESS_FLAGS)
                .with(Mask::PKEY_INDEX),
        ),
        (State::Rtr, State::Rts) => (Mask::SQ_PSN.with(extra.to_rts), running),
        (State::Rts | State::Sqd, State::Rts) => (Mask::NONE, running),
        (State::Rts, State::Sqd) => (Mask::NONE, Mask::EN_SQD_ASYNC_NOTIFY),
        (State::Sqd, State::Sqd) => (
            Mask::NONE,
            alternate
                .with(Mask::PKEY_INDEX)
                .with(Mask::ACCESS_FLAGS)
                .with(Mask::AV)
                .with(extra.drained),
        ),
        (State::Sqe, State::Rts) => (Mask::NONE, extra.resumed),
        _ => return None,
    };
    Some(Transition { required, optional })
}

const fn datagram(from: State, to: State) -> Option<Transition> {
    let identity = Mask::PKEY_INDEX.with(Mask::PORT).with(Mask::QKEY);
    let keys = Mask::PKEY_INDEX.with(Mask::QKEY);
    let running = Mask::CUR_STATE.with(Mask::QKEY);
    let (required, optional) = match (from, to) {
        (State::Reset, State::Init) => (identity, Mask::NONE),
        (State::Init, State::Init) => (Mask::NONE, identity),
        (State::Init, State::Rtr) => (Mask::NONE, keys),
        (State::Rtr, State::Rts) => (Mask::SQ_PSN, running),
        (State::Rts | State::Sqd | State::Sqe, State::Rts) => (Mask::NONE, running),
        (State::Rts, State::Sqd) => (Mask::NONE, Mask::EN_SQD_ASYNC_NOTIFY),
        (State::Sqd, State::Sqd) => (Mask::NONE, keys),
        _ => return None,
    };
    Some(Transition { required, optional })
}
