// SPDX-License-Identifier: GPL-2.0

//! The values of a driver that follow the objects of the core.

/// The types of a driver's values.
///
/// Each object of the core is followed by such a value, and is generic over this. Values move when
/// they are created, so data that must stay in place belongs in an [`Arc`](kernel::sync::Arc). They
/// are dropped when the object is destroyed, and may sleep then.
///
/// # Examples
///
/// ```
/// use kernel::sync::Arc;
/// use rdma::{
///     driver::Driver,
///     ring::SharedRing, //
/// };
///
/// struct Sample;
///
/// impl Driver for Sample {
///     type Device = ();
///     type Ucontext = ();
///     type Pd = u32;
///     type Cq = SharedRing;
///     type Qp = Arc<u32>;
///     type Mw = ();
///     type Srq = ();
///     type Ah = ();
///     type Mr = ();
/// }
/// ```
pub trait Driver: Sized + 'static {
    /// Of a device.
    type Device: Send + Sync;
    /// Of a process's context.
    type Ucontext: Send + Sync;
    /// Of a protection domain.
    type Pd: Send + Sync;
    /// Of a completion queue.
    type Cq: Send + Sync;
    /// Of a queue pair.
    type Qp: Send + Sync;
    /// Of a memory window.
    type Mw: Send + Sync;
    /// Of a shared receive queue.
    type Srq: Send + Sync;
    /// Of an address handle.
    type Ah: Send + Sync;
    /// Of a memory region.
    type Mr: Send + Sync;
}
