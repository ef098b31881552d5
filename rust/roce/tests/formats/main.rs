// SPDX-License-Identifier: GPL-2.0

//! Everything that has a format: numbers, headers, the ICRC, the layouts shared with a process,
//! the attributes of queue pairs, and management datagrams.

mod abi;
mod exhaustive;
mod hex;
mod icrc;
mod kernel;
mod num;
mod opcode;
mod pma;
mod qp;
mod time;
mod wire;
