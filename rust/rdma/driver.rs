// SPDX-License-Identifier: GPL-2.0

//! What a driver has behind each object.

/// The types of a driver's values.
///
/// Each object of the core is followed by such a value, and is generic over this. Values are moved when
/// they are created, so what has to stay in place goes into an [`Arc`](kernel::sync::Arc). They are dropped
/// when the object is destroyed, where they may sleep.
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
