// SPDX-License-Identifier: GPL-2.0

//! Safe abstractions over the RDMA core and the parts of the network stack that a RoCE driver needs.
//!
//! # Layers
//!
//! The list is from the lowest layer to the highest. A module imports from lower layers, and from its
//! own without a circle, as `scripts/circles` checks:
//!
//! - Primitives: [`sync`], [`sched`], [`time`], [`percpu`], [`slots`], [`done`], [`share`],
//!   [`user`], [`revocable`], [`crc`]; [`module`], which makes the module safe to unload; its users [`timer`],
//!   [`work`] and [`table`].
//! - Memory and the network: [`memory`], the operations on any memory; [`pmem`]; [`ring`], shared with a
//!   process; [`sg`], scatter lists; [`net`].
//! - Devices and their memory: [`device`]; [`driver`], the values of a driver for each object;
//!   `registry`, all devices; [`pages`], the memory of a key: [`umem`] is pinned, [`odp`] paged in on
//!   demand, [`dmabuf`] another driver's; [`mmap`], mappings of processes.
//! - Objects of verbs: [`object`]; [`udata`], [`ah`], [`qp`] and [`post`], their parameters; [`upcall`],
//!   events for the owner; [`stats`] and [`restrack`], reports to users.
//! - Verbs: [`ops`], which a driver implements, and `ib_device_ops`, which calls it.
//! - Links: [`link`], the link type of a driver, and its devices.
//! - [`abi`], layouts of the kernel's headers.
//!
//! Safe means that no calls of a driver, in any order, make memory unsound. A driver may still
//! deadlock if it sleeps in atomic context. Each item says whether it sleeps.

pub mod abi;
// The differences between kernels.
mod compat;

pub use compat::errno;

// Primitives.
pub mod crc;
pub mod done;
pub mod module;
pub mod percpu;
pub mod revocable;
pub mod sched;
pub mod share;
pub mod slots;
pub mod sync;
pub mod table;
pub mod time;
pub mod timer;
pub mod user;
pub mod work;

// Memory and the network.
pub mod memory;
pub mod net;
pub mod pmem;
pub mod ring;
pub mod sg;

// A device and its memory.
pub mod device;
pub mod dmabuf;
pub mod driver;
pub mod mmap;
pub mod odp;
pub mod pages;
mod registry;
pub mod umem;

// Objects of verbs.
pub mod ah;
pub mod object;
pub mod post;
pub mod qp;
pub mod restrack;
pub mod stats;
pub mod udata;
pub mod upcall;

// Verbs.
pub mod ops;

// Links.
pub mod link;

/// The prefix of the messages of this crate.
const __LOG_PREFIX: &[u8] = b"ferroce\0";
