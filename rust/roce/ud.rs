// SPDX-License-Identifier: GPL-2.0

//! Datagrams: one packet for each message, to anyone, without an answer.
//!
//! The halves of such a queue pair, a [`Sender`] and a [`Receiver`], share nothing. A datagram that
//! was sent is done with: it completes when the next one is requested. A request that fails stops
//! the send queue alone (SQE). A datagram that cannot be received is dropped and reported by an
//! event. Only a local failure, such as one of local memory, fails the queue pair.
//!
//! A receive gets the IP header of its datagram in front of the payload; see
//! [`GRH_BYTES`](crate::limits::GRH_BYTES).

mod receiver;
mod sender;

use crate::num::{Pkey, Qkey};

pub use receiver::Receiver;
pub use sender::{Datagram, Sender};

/// The attributes that both halves need to run. They may change at any time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatagramConfig {
    /// The partition.
    pub pkey: Pkey,
    /// The Q_Key of datagrams that are received, and of datagrams whose poster names a privileged
    /// key.
    pub qkey: Qkey,
}
