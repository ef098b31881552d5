// SPDX-License-Identifier: GPL-2.0

//! Whole endpoints of [`roce`] on virtual time, over links that are as bad as a plan says.
//!
//! A run ([`sim`]) has nodes with memory and queue pairs ([`endpoint`]), links between them
//! ([`link`]), and ports where these meet ([`port`]). Its work is random ([`work`]), or steady and
//! measured ([`flow`]). An oracle ([`oracle`]) knows the required results. All of it follows from a
//! plan ([`plan`]) and a seed ([`rng`]): the same two give the same run on every machine. Packets
//! cross links as bytes, with IP and UDP headers and a real ICRC ([`packet`]).
//!
//! Rules that are broken on purpose show that the oracle can fail ([`sabotage`]).

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod adversary;
pub mod endpoint;
pub mod flow;
pub mod host;
pub mod link;
pub mod memory;
pub mod oracle;
pub mod packet;
pub mod plan;
pub mod port;
pub mod rng;
pub mod run;
pub mod sabotage;
mod setup;
pub mod sim;
pub mod work;
