// SPDX-License-Identifier: GPL-2.0

//! Telling the owner of a queue that something happened.
//!
//! A driver learns of completions and errors where packets arrive, at a time when the object may be
//! on its way out. An upcall is a handle that may be kept anywhere: once the object is destroyed it
//! does nothing.

use core::ptr::NonNull;

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Full};
use kernel::sync::{Arc, Completion};

use rdma_bindings as bindings;
use roce::event::AsyncEvent;

use crate::sync::Marked;

/// Set in [`Gate::state`] once the object is going; the other bits count calls in progress.
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
}

// SAFETY: The object is only used by calls of the core's that take it from any thread.
unsafe impl<C> Send for Gate<C> {}
// SAFETY: As above.
unsafe impl<C> Sync for Gate<C> {}

/// What the object's own side holds: closes the gate when it is dropped.
///
/// Waits for calls in progress, so it may sleep, but not for long: handlers don't.
pub(crate) struct GateOwner<C>(Arc<Gate<C>>);

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
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        Ok(Self(gate))
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
        // Of those who leave after it was closed, the last one says so.
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
        // SAFETY: The caller's promise is the same.
        let owner = unsafe { GateOwner::new(cq) }?;
        let upcall = Self(owner.0.clone());
        Ok((owner, upcall))
    }

    /// There is a completion that the owner asked to be told of.
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

    /// The queue has lost a completion and is of no use any more.
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
        // SAFETY: The caller's promise is the same.
        let owner = unsafe { GateOwner::new(qp) }?;
        let upcall = Self(owner.0.clone());
        Ok((owner, upcall))
    }

    /// The queue pair, unless it is gone. Only its address means anything: it may go at any time.
    pub(crate) fn object(&self) -> Option<NonNull<bindings::ib_qp>> {
        (self.0.state.read_once() < CLOSED).then_some(self.0.object)
    }

    /// Raises `event`.
    pub fn raise(&self, event: AsyncEvent) {
        let event_type = match event {
            AsyncEvent::CommunicationEstablished => bindings::ib_event_type_IB_EVENT_COMM_EST,
            AsyncEvent::SendQueueDrained => bindings::ib_event_type_IB_EVENT_SQ_DRAINED,
            AsyncEvent::Fatal => bindings::ib_event_type_IB_EVENT_QP_FATAL,
            AsyncEvent::RequestError => bindings::ib_event_type_IB_EVENT_QP_REQ_ERR,
            AsyncEvent::AccessError => bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR,
            AsyncEvent::LastWqeReached => bindings::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED,
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
        // SAFETY: The caller's promise is the same.
        let owner = unsafe { GateOwner::new(srq) }?;
        let upcall = Self(owner.0.clone());
        Ok((owner, upcall))
    }

    /// Fewer receives are posted than the limit that was set.
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
