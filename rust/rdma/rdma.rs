// SPDX-License-Identifier: GPL-2.0

//! Safe abstractions over the RDMA core and the parts of the network stack that a RoCE driver
//! needs.
//!
//! The RDMA core:
//!
//! - [`link`]: the link type that a driver registers, and its devices;
//! - [`device`]: a device and its lives; [`ops`]: the verbs of a driver; [`object`]: what they are
//!   for; [`qp`], [`ah`]: attributes; [`stats`]: counters; [`restrack`]: details for people;
//! - [`udata`], [`ring`], [`mmap`]: what is shared with a process;
//! - [`memory`]: what can be done with any; [`pages`]: what keys open: [`umem`], pinned, [`odp`], paged
//!   in on demand, [`dmabuf`], another driver's;
//! - [`post`]: work requests and completions of users in the kernel; [`sg`]: their scatter lists;
//! - [`upcall`]: telling the owner of a queue.
//!
//! The network: [`net`], with what checks its packets, [`crc`].
//!
//! What both stand on: [`sync`], [`sched`], [`time`], [`table`], [`percpu`], [`revocable`], [`timer`],
//! [`work`], and [`module`], which sees to it that the module can be unloaded.
//!
//! Safe to use means: whatever a driver does with what is here, in whatever order, memory stays
//! sound. It may still deadlock by calling what sleeps where one must not; each item says so.

mod abi;
pub mod ah;
mod compat;
mod counter;
pub mod device;
pub mod dmabuf;
pub mod link;
pub mod memory;
pub mod mmap;
pub mod object;
pub mod odp;
pub mod ops;
pub mod pages;
pub mod pmem;
pub mod post;
pub mod qp;
pub mod restrack;
pub mod ring;
pub mod sg;
pub mod slots;
pub mod stats;
pub mod udata;
pub mod umem;
pub mod upcall;

pub use compat::errno;

pub mod crc;
pub mod done;
pub mod module;
pub mod net;
pub mod percpu;
pub mod revocable;
pub mod sched;
pub mod share;
pub mod sync;
pub mod table;
pub mod time;
pub mod timer;
pub mod work;

/// What the messages of this crate start with.
const __LOG_PREFIX: &[u8] = b"ferroce\0";
