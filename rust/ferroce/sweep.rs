// SPDX-License-Identifier: GPL-2.0

//! Receives that are posted to a queue pair in ERR.
//!
//! They are to be flushed, but posting one to a queue that a process maps makes no system call that
//! would tell. So such a queue pair is looked at again: by its own timer, at times that double, as
//! most programs post no more once they have seen the first flushed completions. After 1.6 s it is
//! left to its device, which looks at all of those together, once a second. Where nothing can be
//! posted unnoticed nothing is looked at.

use kernel::sync::{Arc, ArcBorrow};
use kernel::workqueue::WorkItem;
use rdma::timer::{now_ns, TimerCallback};
use rdma::work;
use roce::abi::Poster;
use roce::qp::State;

use crate::device::Device;
use crate::host::Receives;
use crate::qp::{Qp, RecvHalf};
use crate::schedule;

/// When a queue pair is looked at for the first time.
const FIRST_NS: u64 = 25_000_000;

/// How often it is, each time after twice as long.
const TIMES: u8 = 6;

/// How often the device looks at those that are left to it.
const PERIOD_NS: u64 = 1_000_000_000;

/// How often a queue pair in ERR was looked at. Guarded by the lock of its receive half.
#[derive(Default)]
pub(crate) struct Sweeps(u8);

/// When to look at a queue pair again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing can be posted unnoticed.
    Never,
    /// After so many nanoseconds.
    After(u64),
    /// With all others of its device that are idle.
    WithOthers,
}

impl Sweeps {
    /// It was looked at, and something was found or not. Returns when to look again.
    fn note(&mut self, found: bool) -> Next {
        if found {
            self.0 = 0;
        }
        if self.0 >= TIMES {
            return Next::WithOthers;
        }
        let after = FIRST_NS.wrapping_shl(self.0.into());
        self.0 = self.0.saturating_add(1);
        Next::After(after)
    }
}

/// Says when to look again at a queue pair whose receives were flushed just now, which found some or
/// not. The receive lock is held by the caller.
pub(crate) fn next(qp: &Qp, half: &mut RecvHalf, found: bool) -> Next {
    match half.recv.receives {
        Receives::Own(_) if qp.fixed.owner == Poster::Process => half.sweeps.note(found),
        _ => Next::Never,
    }
}

/// Sees to it that `qp` is looked at again.
pub(crate) fn arrange(qp: ArcBorrow<'_, Qp>, next: Next) {
    match next {
        Next::Never => {}
        Next::After(ns) => qp.timer.arm_at(now_ns().saturating_add(ns)),
        Next::WithOthers => {
            let device = &qp.fixed.device;
            device.qps.mark(qp.fixed.qpn.get(), true);
            device
                .sweep_timer
                .arm_at(now_ns().saturating_add(PERIOD_NS));
        }
    }
}

impl TimerCallback for Device {
    fn expired(this: ArcBorrow<'_, Self>) {
        // There may be many.
        let _ = this.queues.runs.enqueue(Arc::<Self>::from(this));
    }
}

impl WorkItem for Device {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let mut next = Some(0);
        let mut is_any_left = false;
        while let Some((number, qp)) = next.and_then(|from| this.qps.first_marked_from(from)) {
            is_any_left |= look_at(qp.as_arc_borrow(), number);
            work::give_way();
            next = number.checked_add(1);
        }
        if is_any_left {
            this.sweep_timer.arm_at(now_ns().saturating_add(PERIOD_NS));
        }
    }
}

/// Flushes what was posted, if anything was. Returns whether to look at it again with the others.
fn look_at(qp: ArcBorrow<'_, Qp>, number: u32) -> bool {
    let is_posted = match &qp.recv.lock().recv.receives {
        Receives::Own(own) => own.queue.waiting() > 0,
        Receives::Shared(_) => false,
    };
    if !is_posted && qp.state() == State::Err {
        return true;
    }
    // Before it is flushed, which may mark it anew.
    qp.fixed.device.qps.mark(number, false);
    if qp.state() == State::Err {
        schedule::flush(qp);
    }
    false
}
