// SPDX-License-Identifier: GPL-2.0

//! Advice about memory regions: what will be used soon.

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

/// A range to be brought in.
struct Piece {
    memory: Arc<OnDemand>,
    at: u64,
    len: u32,
}

/// Ranges that a work item brings in, which sleeps in the process's share of the workers.
#[pin_data]
struct Prefetch {
    pieces: Slots<Option<Piece>>,
    intent: Intent,
    context: Arc<Context>,
    /// What came of it; to be looked at once it is `done`.
    error: Atomic<i32>,
    #[pin]
    done: Done,
    /// Nobody waits for it any more.
    is_given_up: Atomic<bool>,
    /// How far it has come; for whoever waits to see that it goes on.
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

/// How often a process that waits looks whether the device is going, in milliseconds.
const LOOK_MS: u32 = 100;

/// How often it looks in vain whether anything comes.
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

    /// Waits for it. Sleeps: until the process is killed, the device goes, or nothing has come for ten
    /// seconds, at the latest. Whoever removes the device, or moves it elsewhere, waits for the verb.
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

/// Brings in what `ranges` name, which is memory of `pd`'s regions that is paged in on demand; before
/// it returns, or else soon.
///
/// # Errors
///
/// `EFAULT` if a range has no such region or is not all in it, or if its memory is to be written to
/// and may not; if it is brought in at once, also if the process has no such memory, `EINTR` if the
/// process is killed meanwhile, `ENODEV` if the device goes, and `EBUSY` if nothing comes. `ENOMEM`.
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
    let (memory, offset) = pd.device().keys().on_demand(**pd, lkey, at, len)?;
    if intent == Intent::Write && !memory.is_writable() {
        return Err(EFAULT);
    }
    Ok(Piece {
        memory,
        at: offset,
        len,
    })
}
