// SPDX-License-Identifier: GPL-2.0

//! Safe abstractions over the RDMA core and the parts of the network stack that a RoCE driver
//! needs.
//!
//! # Layers
//!
//! From the lowest to the highest. A module imports from layers below its own, and from its own
//! without a circle, as `scripts/circles` checks:
//!
//! - Primitives: [`sync`], [`sched`], [`time`], [`percpu`], [`slots`], [`done`], [`share`],
//!   [`revocable`], [`crc`]; [`module`], which sees to it that the module can be unloaded, and what it
//!   waits for: [`timer`], [`work`], [`table`].
//! - Memory and the network: [`memory`], what can be done with any; [`pmem`]; [`ring`], shared with a
//!   process; [`sg`], scatter lists; [`net`].
//! - A device and its memory: [`device`], with the values that a [`driver`] has behind each object,
//!   and `registry`, of all devices; [`pages`], which keys open: [`umem`], pinned, [`odp`], paged in
//!   on demand, [`dmabuf`], another driver's; [`mmap`], which processes map.
//! - Objects of verbs: [`object`]; [`udata`], [`ah`], [`qp`] and [`post`], what verbs pass for them;
//!   [`upcall`], telling the owner; [`stats`] and [`restrack`], for people.
//! - Verbs: [`ops`], what a driver implements, and `ib_device_ops` that calls it.
//! - Links: [`link`], the type that a driver registers, and making and registering its devices.
//!
//! Safe to use means: whatever a driver does with what is here, in whatever order, memory stays
//! sound. It may still deadlock by calling what sleeps where one must not; each item says so.

// What the kernel's interfaces are held to, and what differs between kernels.
mod abi;
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

/// What the messages of this crate start with.
const __LOG_PREFIX: &[u8] = b"ferroce\0";
