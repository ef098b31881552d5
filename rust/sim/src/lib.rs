// SPDX-License-Identifier: GPL-2.0

//! Whole endpoints of [`roce`] on virtual time, over links that are as bad as a plan says.
//!
//! A run ([`sim`]) has nodes with memory and queue pairs ([`endpoint`]), links between them
//! ([`link`]), random work ([`work`]) and an oracle ([`oracle`]) that knows what must come of it.
//! All of it follows from a plan ([`plan`]) and a seed ([`rng`]): the same two give the same run on
//! every machine. Packets cross links as bytes, with IP and UDP headers and a real ICRC
//! ([`packet`]).
//!
//! That the oracle can fail is shown by breaking rules on purpose ([`sabotage`]).

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod adversary;
pub mod endpoint;
pub mod host;
pub mod link;
pub mod memory;
pub mod oracle;
pub mod packet;
pub mod plan;
pub mod rng;
pub mod run;
pub mod sabotage;
mod setup;
pub mod sim;
pub mod work;
