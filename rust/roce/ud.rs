// SPDX-License-Identifier: GPL-2.0

//! Datagrams: one packet for each message, to anyone, without an answer.
//!
//! The two halves of such a queue pair are a [`Sender`] and a [`Receiver`], which share nothing. A
//! datagram that was sent is done with: it completes when the next one is asked for. A request that
//! fails stops the send queue alone (SQE). A datagram that cannot be received is dropped, but for
//! an event; only what fails on our side, as our own memory may, fails the queue pair.
//!
//! A receive gets the IP header of its datagram in front of the payload; see
//! [`GRH_BYTES`](crate::limits::GRH_BYTES).

mod receiver;
mod sender;

use crate::num::{Pkey, Qkey};

pub use receiver::Receiver;
pub use sender::{Datagram, Sender};

/// What both halves need to know to run, and may be told anew at any time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatagramConfig {
    /// The partition.
    pub pkey: Pkey,
    /// What datagrams must bear to be taken, and bear whose poster names a privileged key.
    pub qkey: Qkey,
}
