// SPDX-License-Identifier: GPL-2.0

//! The RoCEv2 transport protocol, sans-IO.
//!
//! This crate has no kernel, no clock, no allocation and no payload byte. Packets and work requests
//! come in as values, packets to send go out as values, and the rest of the world is behind the
//! traits of [`host`]. The same source is built into `ferroce.ko` and, by cargo, tested on a host.
//! No input from the wire or from a process can make it panic.
//!
//! # Words
//!
//! The terms are those of the InfiniBand specification. A *queue pair* (QP) has a send queue and a
//! receive queue. Their entries are *work requests*, and the results are *completions*. The
//! *requester* turns send work requests into *requests* on the wire. The peer's *responder*
//! executes them and *responds*. The requester's *completer* turns responses into completions. A
//! responder *owes* the replies that it still has to send. Each verb has one meaning. *Parse* and
//! *emit* are for bytes of the wire, *decode* and *encode* for bytes shared with a process.
//! *Handle* is for input, *poll* for output, *post* for work, *retire* for completed requests,
//! *authorize* for access to memory.
//!
//! | | what it is | where |
//! |---|---|---|
//! | BTH, RETH, AETH, … | headers of a packet | [`wire`] |
//! | PSN | number of a packet; modulo 2^24, like all numbers that count | [`num::Psn`] |
//! | MSN | how many messages a responder has completed | [`num::Msn`] |
//! | QPN, P_Key, R_Key, L_Key | who and what is meant; these do not count | [`num`] |
//! | WQE, CQE | a work request and a completion in a ring that a process maps | [`abi`] |
//! | RNR | receiver not ready: no receive is posted | [`recv`] |
//!
//! # A message's way
//!
//! ```text
//!   SendHost::next_send                             RecvHost::take_recv, authorize
//!        |                                                     |
//!        v            requests (Transmit -> wire::parse)       v
//!   +-----------+  ------------------------------------>  +-----------+
//!   | requester |                                         | responder | --> scatter, place
//!   +-----------+  <------------------------------------  +-----------+
//!        |            responses (Transmit -> wire::parse)      |
//!        v                                                     v
//!   SendHost::retire                                RecvHost::complete
//! ```
//!
//! The two halves of a queue pair share nothing: each has its own state, its own lock in the driver
//! and its own host. The driver applies an event that concerns both to both: see
//! [`Requester::state`](send::Requester::state) and [`Responder::state`](recv::Responder::state).
//!
//! # States
//!
//! Of a queue pair ([`qp::State`]), and of its halves:
//!
//! ```text
//!                                                 Requester            Responder
//!    RESET --> INIT ------> RTR -------> RTS
//!      ^                                 |  ^
//!      |                                 v  |     Idle                 Idle
//!      |                                 SQD        | start (RTS)        | start (RTR)
//!      |                                  |         v                    v
//!      +---------- ERR <------------------+       Running <-.          Running
//!               (from all but RESET)                | drain | resume     | refuses
//!                                                   v       |            v
//!                                                 Draining -+          Failed
//!                                                   |       |            | told the peer
//!                                                   v       |            v
//!                                                 Drained --'          Error
//! ```
//!
//! `enter_error` leads to `Error` and `reset` to `Idle` from everywhere. A requester whose request
//! fails goes to `Error` by itself. [`send`] and [`recv`] show the work of a running half.
//!
//! # Modules
//!
//! Imports run one way, from right to left (`scripts/circles`):
//!
//! ```text
//!   num time limits half | wire opcode icrc pma congestion | wr completion event abi | host | send recv ud | qp
//! ```

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod abi;
pub mod completion;
pub mod congestion;
pub mod event;
pub mod half;
pub mod host;
pub mod icrc;
pub mod limits;
pub mod num;
pub mod opcode;
pub mod pma;
pub mod qp;
pub mod recv;
pub mod send;
pub mod time;
pub mod ud;
pub mod wire;
pub mod wr;
