// SPDX-License-Identifier: GPL-2.0

//! The RoCEv2 transport protocol, sans-IO.
//!
//! No kernel, no clock, no allocation, no payload byte: packets and work requests come in as
//! values, packets to send go out as values, and the rest of the world is behind the traits of
//! [`host`]. The same source is built into `ferroce.ko` and, by cargo, tested on a host. Nothing
//! in it can panic, whatever comes from the wire or from a process.
//!
//! # Words
//!
//! They are those of the InfiniBand specification. A *queue pair* (QP) has a send queue and a
//! receive queue, whose entries are *work requests* and whose results are *completions*. Its
//! *requester* turns send work requests into *requests* on the wire; the peer's *responder* carries
//! them out and *responds*; the requester's *completer* turns responses into completions. What a
//! responder still has to send it *owes*. Verbs have one meaning each: *parse* and *emit* are for
//! bytes of the wire, *decode* and *encode* for bytes shared with a process, *handle* is for
//! input, *poll* for output, *post* for work, *retire* for requests that are over, *authorize* for
//! the right to memory.
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
//! The two halves of a queue pair share nothing: each has its own state, its own lock in the
//! driver and its own host. What concerns both, the driver does to both: see
//! [`Requester::state`](send::Requester::state) and
//! [`Responder::state`](recv::Responder::state).
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
//! `enter_error` leads to `Error` and `reset` to `Idle` from everywhere; a requester whose request
//! fails goes to `Error` by itself. What each half does while it runs is drawn in [`send`] and
//! [`recv`].
//!
//! # Modules
//!
//! Imports run one way, from right to left (`scripts/circles`):
//!
//! ```text
//!   num time limits half | wire opcode icrc pma | wr completion event abi | host | send recv ud | qp
//! ```

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod abi;
pub mod completion;
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
