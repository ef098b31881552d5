// SPDX-License-Identifier: GPL-2.0

//! Advice about memory regions: memory that will be used soon.

use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic};
use kernel::sync::Arc;
use kernel::workqueue::{impl_has_work, new_work, Work, WorkItem};
use rdma::done::{Done, Waited};
use rdma::errno::EOPNOTSUPP;
use rdma::object::Pd as IbPd;
use rdma::odp::{Intent, OnDemand};
use rdma::ops::{Advice, AdvisedRange};
use rdma::slots::Slots;
use rdma::sync::Marked;
use roce::num::{Iova, Lkey};

use super::Verbs;
use crate::context::Context;
use crate::device::Device;

/// A range to fault in.
struct Piece {
    memory: Arc<OnDemand>,
    at: u64,
    len: u32,
}

/// Ranges that a work item faults in, in a worker of the process.
#[pin_data]
struct Prefetch {
    pieces: Slots<Option<Piece>>,
    intent: Intent,
    context: Arc<Context>,
    /// The result, valid once it is `done`.
    error: Atomic<i32>,
    #[pin]
    done: Done,
    /// The caller no longer waits.
    is_given_up: Atomic<bool>,
    /// The progress, for the waiting caller.
    steps: Atomic<u32>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Prefetch { self.work }
}

impl WorkItem for Prefetch {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if let Err(error) = this.bring_in() {
            this.error.write_once(error.to_errno());
        }
        this.done.set();
    }
}

/// The interval at which a waiting process checks whether the device is being removed, in milliseconds.
const LOOK_MS: u32 = 100;

/// The number of such intervals without progress, after which it gives up.
const LOOKS: u32 = 100;

impl Prefetch {
    fn new(
        pieces: Slots<Option<Piece>>,
        intent: Intent,
        context: Arc<Context>,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                pieces,
                intent,
                context,
                error: Atomic::new(0),
                done <- Done::new(),
                is_given_up: Atomic::new(false),
                steps: Atomic::new(0),
                work <- new_work!("ferroce::Prefetch"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    fn is_wanted(&self) -> bool {
        self.steps
            .write_once(self.steps.read_once().wrapping_add(1));
        !self.is_given_up.read_once() && !self.context.is_closed()
    }

    fn bring_in(&self) -> Result {
        for piece in self.pieces.iter().flatten() {
            let len = u64::from(piece.len);
            let is_wanted = || self.is_wanted();
            let brought = piece.memory.fault_in(piece.at, len, self.intent, is_wanted);
            match brought {
                Err(error) if error == EPERM => return Err(EFAULT),
                other => other?,
            }
        }
        Ok(())
    }

    /// Waits for the result. Sleeps until the process is killed, the device is removed, or there is no
    /// progress for ten seconds. The removal of the device, or its move to another namespace, waits for
    /// this verb.
    fn wait(&self, device: &Device) -> Result {
        let (mut steps, mut looks) = (0, 0);
        let error = loop {
            match self.done.wait(LOOK_MS) {
                Waited::Done => return to_result(self.error.load(Acquire)),
                Waited::Killed => break EINTR,
                Waited::TimedOut if device.is_leaving() => break ENODEV,
                Waited::TimedOut => {}
            }
            let before = core::mem::replace(&mut steps, self.steps.read_once());
            looks = if steps == before { looks + 1 } else { 0 };
            if looks >= LOOKS {
                break EBUSY;
            }
        };
        self.is_given_up.write_once(true);
        Err(error)
    }
}

/// Faults in the `ranges` of on-demand regions of `pd`, before it returns or soon after.
///
/// # Errors
///
/// `EFAULT` if a range is not within such a region, or may not be written to as advised. If it waits:
/// `EFAULT` also if the process has no such memory, `EINTR` if the process is killed, `ENODEV` if the
/// device is removed, and `EBUSY` if there is no progress. `ENOMEM`.
pub(super) fn advise(
    pd: &IbPd<Verbs>,
    advice: Advice,
    at_once: bool,
    ranges: &[AdvisedRange],
) -> Result {
    let intent = match advice {
        Advice::Prefetch => Intent::Read,
        Advice::PrefetchWrite => Intent::Write,
        Advice::PrefetchNoFault => Intent::Look,
    };
    let context = pd.ucontext().ok_or(EOPNOTSUPP)?;
    let mut pieces = Slots::new(ranges.len(), GFP_KERNEL_ACCOUNT)?;
    for (place, range) in pieces.iter_mut().zip(ranges) {
        *place = Some(piece(pd, range, intent)?);
    }
    // There is a queue if there is a region of that kind.
    let Some(paging) = context.paging() else {
        return Ok(());
    };
    let prefetch = Prefetch::new(pieces, intent, Arc::clone(context))?;
    let _ = paging.enqueue(prefetch.clone());
    match at_once {
        true => prefetch.wait(pd.device()),
        // It was advice.
        false => Ok(()),
    }
}

fn piece(pd: &IbPd<Verbs>, range: &AdvisedRange, intent: Intent) -> Result<Piece> {
    let (lkey, at, len) = (Lkey(range.lkey()), Iova(range.addr()), range.len());
    let (memory, offset) = pd.device().keys().on_demand(pd.id(), lkey, at, len)?;
    if intent == Intent::Write && !memory.is_writable() {
        return Err(EFAULT);
    }
    Ok(Piece {
        memory,
        at: offset,
        len,
    })
}
