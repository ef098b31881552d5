// SPDX-License-Identifier: GPL-2.0

//! Events for the owner of a queue.
//!
//! A driver learns of completions and errors where packets arrive, at a time when the object may be
//! in destruction. An upcall is a handle that may be kept anywhere: once the object is destroyed it
//! does nothing.

use crate::sync::Marked;
use core::ptr::NonNull;
use kernel::{
    alloc::flags::GFP_KERNEL_ACCOUNT,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full, //
        },
        new_mutex,
        Arc,
        Completion,
        Mutex, //
    }, //
};
use rdma_bindings as bindings;

/// Set in [`Gate::state`] once the object is being destroyed; the other bits count calls in
/// progress.
const CLOSED: i64 = 1 << 62;

/// A way to an object of the core that can be closed.
///
/// # Invariants
///
/// `object` is valid while `state` counts a call that began before it was closed.
#[pin_data]
struct Gate<C> {
    state: Atomic<i64>,
    object: NonNull<C>,
    #[pin]
    idle: Completion,
    /// Held while the rings of the object are replaced.
    #[pin]
    resizing: Mutex<()>,
}

// SAFETY: The object is only used by calls of the core's that take it from any thread.
unsafe impl<C> Send for Gate<C> {}
// SAFETY: Shared access is to an atomic, a completion, and calls that any number of threads may
// make.
unsafe impl<C> Sync for Gate<C> {}

/// The object's own end of a gate. It closes the gate when it is dropped.
///
/// The drop waits for calls in progress, so it may sleep. It does not sleep long, as handlers do
/// not sleep.
pub(crate) struct GateOwner<C>(Arc<Gate<C>>);

/// Creates [`Gate::resizing`]. It is not generic, as lockdep knows a lock by the one place that makes it.
fn resizing() -> impl PinInit<Mutex<()>> {
    new_mutex!((), "rdma::Gate::resizing")
}

impl<C> GateOwner<C> {
    /// # Safety
    ///
    /// `object` must be valid until the owner is dropped.
    unsafe fn new(object: NonNull<C>) -> Result<Self> {
        // INVARIANT: The caller promises that it is valid while the gate is open.
        let gate = Arc::pin_init(
            pin_init!(Gate {
                state: Atomic::new(0),
                object,
                idle <- Completion::new(),
                resizing <- resizing(),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        Ok(Self(gate))
    }

    /// Runs `f` while no other thread does so for this object. Sleeps.
    pub(crate) fn resize<R>(&self, f: impl FnOnce() -> R) -> R {
        let _resizing = self.0.resizing.lock();
        f()
    }
}

impl<C> Drop for GateOwner<C> {
    fn drop(&mut self) {
        if self.0.state.fetch_add(CLOSED, Full) != 0 {
            self.0.idle.wait_for_completion();
        }
    }
}

impl<C> Gate<C> {
    /// Runs `call` on the object, unless the gate is closed.
    fn enter(&self, call: impl FnOnce(NonNull<C>)) {
        if self.state.read_once() >= CLOSED {
            return;
        }
        if self.state.fetch_add(1, Full) < CLOSED {
            call(self.object);
        }
        // The last call that ends after the gate was closed reports that.
        if self.state.fetch_sub(1, Full) == CLOSED.wrapping_add(1) {
            self.idle.complete_all();
        }
    }
}

/// Tells the owner of a completion queue.
///
/// May be called in any context with no lock held that the owner's handlers could want: they may
/// post, poll and arm.
#[derive(Clone)]
pub struct CqUpcall(Arc<Gate<bindings::ib_cq>>);

impl CqUpcall {
    /// # Safety
    ///
    /// `cq` must be valid until the returned owner is dropped.
    pub(crate) unsafe fn new(
        cq: NonNull<bindings::ib_cq>,
    ) -> Result<(GateOwner<bindings::ib_cq>, Self)> {
        // SAFETY: The caller keeps `cq` valid until the owner is dropped.
        let owner = unsafe { GateOwner::new(cq) }?;
        let upcall = Self(owner.0.clone());
        Ok((owner, upcall))
    }

    /// Reports a completion for which the owner requested an event.
    pub fn completed(&self) {
        self.0.enter(|cq| {
            let cq = cq.as_ptr();
            // SAFETY: By the gate's invariants the queue is valid; the core set its handler before
            // the queue was created.
            unsafe {
                if let Some(handler) = (*cq).comp_handler {
                    handler(cq, (*cq).cq_context);
                }
            }
        });
    }

    /// Reports that the queue has lost a completion, and cannot be used any more.
    pub fn failed(&self) {
        self.0.enter(|cq| {
            let cq = cq.as_ptr();
            // SAFETY: By the gate's invariants the queue is valid; the core set its handler before
            // the queue was created. A zeroed event is a valid one.
            unsafe {
                let mut event: bindings::ib_event = core::mem::zeroed();
                event.device = (*cq).device;
                event.element.cq = cq;
                event.event = bindings::ib_event_type_IB_EVENT_CQ_ERR;
                if let Some(handler) = (*cq).event_handler {
                    handler(&raw mut event, (*cq).cq_context);
                }
            }
        });
    }
}

/// An event of a queue pair, for its owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpEvent {
    /// The first packet arrived before the queue pair was moved to RTS.
    CommunicationEstablished,
    /// The send queue has drained.
    SendQueueDrained,
    /// The queue pair failed for a reason of its own.
    Fatal,
    /// A request of the peer was invalid, and the queue pair failed.
    RequestError,
    /// A request of the peer was denied access, and the queue pair failed.
    AccessError,
    /// The queue pair takes nothing more from its shared receive queue.
    LastWqeReached,
}

/// Tells the owner of a queue pair.
///
/// May be called with no lock held that the owner's handler could want. Handlers of processes may
/// be called in any context, those of the kernel in process context.
#[derive(Clone)]
pub struct QpUpcall(Arc<Gate<bindings::ib_qp>>);

impl QpUpcall {
    /// # Safety
    ///
    /// `qp` must be valid until the returned owner is dropped.
    pub(crate) unsafe fn new(
        qp: NonNull<bindings::ib_qp>,
    ) -> Result<(GateOwner<bindings::ib_qp>, Self)> {
        // SAFETY: The caller keeps `qp` valid until the owner is dropped.
        let owner = unsafe { GateOwner::new(qp) }?;
        let upcall = Self(owner.0.clone());
        Ok((owner, upcall))
    }

    /// Returns the queue pair, unless it is being destroyed. Only its address may be used, as it
    /// may be destroyed at any time.
    pub(crate) fn object(&self) -> Option<NonNull<bindings::ib_qp>> {
        (self.0.state.read_once() < CLOSED).then_some(self.0.object)
    }

    /// Raises `event`.
    pub fn raise(&self, event: QpEvent) {
        let event_type = match event {
            QpEvent::CommunicationEstablished => bindings::ib_event_type_IB_EVENT_COMM_EST,
            QpEvent::SendQueueDrained => bindings::ib_event_type_IB_EVENT_SQ_DRAINED,
            QpEvent::Fatal => bindings::ib_event_type_IB_EVENT_QP_FATAL,
            QpEvent::RequestError => bindings::ib_event_type_IB_EVENT_QP_REQ_ERR,
            QpEvent::AccessError => bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR,
            QpEvent::LastWqeReached => bindings::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED,
        };
        self.0.enter(|qp| {
            let qp = qp.as_ptr();
            // SAFETY: By the gate's invariants the queue pair is valid; the core set its handler
            // before the queue pair was created. A zeroed event is a valid one.
            unsafe {
                let mut event: bindings::ib_event = core::mem::zeroed();
                event.device = (*qp).device;
                event.element.qp = qp;
                event.event = event_type;
                if let Some(handler) = (*qp).event_handler {
                    handler(&raw mut event, (*qp).qp_context);
                }
            }
        });
    }
}

/// Tells the owner of a shared receive queue.
///
/// May be called with no lock held that the owner's handler could want.
#[derive(Clone)]
pub struct SrqUpcall(Arc<Gate<bindings::ib_srq>>);

impl SrqUpcall {
    /// # Safety
    ///
    /// `srq` must be valid until the returned owner is dropped.
    pub(crate) unsafe fn new(
        srq: NonNull<bindings::ib_srq>,
    ) -> Result<(GateOwner<bindings::ib_srq>, Self)> {
        // SAFETY: The caller keeps `srq` valid until the owner is dropped.
        let owner = unsafe { GateOwner::new(srq) }?;
        let upcall = Self(owner.0.clone());
        Ok((owner, upcall))
    }

    /// Reports that fewer receives are posted than the limit.
    pub fn limit_reached(&self) {
        self.0.enter(|srq| {
            let srq = srq.as_ptr();
            // SAFETY: By the gate's invariants the queue is valid; the core set its handler before
            // the queue was created. A zeroed event is a valid one.
            unsafe {
                let mut event: bindings::ib_event = core::mem::zeroed();
                event.device = (*srq).device;
                event.element.srq = srq;
                event.event = bindings::ib_event_type_IB_EVENT_SRQ_LIMIT_REACHED;
                if let Some(handler) = (*srq).event_handler {
                    handler(&raw mut event, (*srq).srq_context);
                }
            }
        });
    }
}
