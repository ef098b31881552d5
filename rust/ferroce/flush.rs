// SPDX-License-Identifier: GPL-2.0

//! Flushes queue pairs that are in ERR.
//!
//! Requests that are posted later are to be flushed, too. But posting a receive to a mapped ring makes
//! no system call. So such a queue pair is checked again by its own timer, at intervals that double,
//! because most programs post no more after the first flushed completions. After 1.6 s its device takes
//! over. The device checks all of these together, once a second. Queue pairs to which nothing can be
//! posted unnoticed are not checked.

use kernel::sync::{Arc, ArcBorrow};
use kernel::workqueue::WorkItem;
use rdma::sync::full_barrier;
use rdma::timer::{now_ns, TimerCallback};
use rdma::work;
use roce::abi::Poster;
use roce::qp::State;

use crate::host::{Deferred, Receives};
use crate::kick;
use crate::pump;
use crate::qp::{Qp, RecvHalf, Run, SendHalf, Shared};
use crate::sweep::Next;
use crate::tell::tell;

/// The interval at which a device checks the queue pairs that it took over.
const PERIOD_NS: u64 = 1_000_000_000;

/// Flushes both halves of a queue pair that is in ERR. Takes both locks, one after the other.
///
/// Does nothing to a half once the queue pair was reset.
pub(crate) fn flush(qp: ArcBorrow<'_, Qp>) {
    // Posting to the ring of a receive queue takes no lock: either this finds what was posted, or the poster
    // reads that the queue pair has failed.
    full_barrier();
    let mut more = false;
    let mut deferred = Deferred::default();
    {
        let mut half = qp.send.lock();
        if qp.state() == State::Err {
            more |= flush_send(&qp, &mut half, &mut deferred) == Run::More;
        }
    }
    more |= deferred.waits_for_address;
    tell(qp, &qp.fixed.send_cq, deferred);
    let mut deferred = Deferred::default();
    let mut next = Next::Never;
    {
        let mut half = qp.recv.lock();
        if qp.state() == State::Err {
            more |= flush_recv(&qp, &mut half, &mut deferred) == Run::More;
            next = next_look(&qp, &mut half, deferred.completed);
        }
    }
    tell(qp, &qp.fixed.recv_cq, deferred);

    if more {
        kick::run_at_leisure(qp, None);
    }
    arrange(qp, next);
}

fn flush_send(qp: &Qp, half: &mut SendHalf, deferred: &mut Deferred) -> Run {
    half.waiting.clear();
    half.early.clear();
    qp.response_gap.note_left(&half.early);
    qp.with_send(half, None, deferred, |service, host, _| {
        service.enter_error(host).into()
    })
}

fn flush_recv(qp: &Qp, half: &mut RecvHalf, deferred: &mut Deferred) -> Run {
    let _ = pump::replies(qp, half, deferred);
    half.waiting.clear();
    half.early.clear();
    qp.request_gap.note_left(&half.early);
    qp.with_recv(half, None, deferred, |service, host, _| {
        service.enter_error(host).into()
    })
}

/// Returns when to check a queue pair again whose receives were just flushed. The receive lock is held
/// by the caller.
fn next_look(qp: &Qp, half: &mut RecvHalf, found: bool) -> Next {
    match half.recv.receives {
        Receives::Own(_) if qp.fixed.owner == Poster::Process => half.sweeps.note(found),
        _ => Next::Never,
    }
}

/// Schedules the next check of `qp`.
fn arrange(qp: ArcBorrow<'_, Qp>, next: Next) {
    match next {
        Next::Never => {}
        Next::After(ns) => kick::look_after(qp, ns),
        Next::WithOthers => {
            let shared = qp.shared();
            shared.qps.mark(qp.fixed.qpn.get(), true);
            arm_sweep(shared);
        }
    }
}

fn arm_sweep(shared: &Shared) {
    let at_ns = now_ns().saturating_add(PERIOD_NS);
    shared.sweep_timer.arm_at(at_ns);
}

impl TimerCallback for Shared {
    fn expired(this: ArcBorrow<'_, Self>) {
        // There may be many.
        let _ = this.queues.unbound.enqueue(Arc::<Self>::from(this));
    }
}

impl WorkItem for Shared {
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
            arm_sweep(&this);
        }
    }
}

/// Flushes posted requests. Returns true if the device must check the queue pair again.
fn look_at(qp: ArcBorrow<'_, Qp>, number: u32) -> bool {
    let is_posted = match &qp.recv.lock().recv.receives {
        Receives::Own(own) => own.queue.waiting() > 0,
        Receives::Shared(_) => false,
    };
    if !is_posted && qp.state() == State::Err {
        return true;
    }
    // Before it is flushed, which may mark it anew.
    qp.shared().qps.mark(number, false);
    if qp.state() == State::Err {
        flush(qp);
    }
    false
}
