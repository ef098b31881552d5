// SPDX-License-Identifier: GPL-2.0

//! The work items of a queue pair. [`crate::qp::work`] lists their purposes.

use kernel::sync::{Arc, ArcBorrow};
use kernel::workqueue::WorkItem;
use rdma::net::CreditWaker;
use rdma::work::{give_way, let_others_go_first, others_wait};

use crate::ah::Found;
use crate::deliver;
use crate::kick;
use crate::qp::{work, Qp, Run, SendHalf};
use crate::requester;
use crate::responder;
use crate::tell::raise;

impl WorkItem<{ work::RUN }> for Qp {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if let Some(wait) = this.stream.take_wait() {
            this.shared().senders.note_begun(wait);
        }
        if !this.turn.begin() {
            return;
        }
        this.stream.note_begun();
        let has_more = go_on(this.as_arc_borrow());
        if this.turn.end() {
            requester::run_later(this.as_arc_borrow());
        }
        if has_more {
            let queued = this.stream.queued();
            let_others(&this);
            this.stream.note_yielded(queued);
        }
    }
}

/// Continues with all work of process context. Returns true if there is more, for another run.
fn go_on(qp: ArcBorrow<'_, Qp>) -> bool {
    let is_left = qp.backlog.take_over();
    let has_left = is_left && deliver::handle_left(qp);
    // Else it runs where packets are handled.
    if !is_left {
        qp.stream.note_run();
    }
    find_address(&qp);
    let run = requester::run_at(qp, None, |half, _, _| half.is_handed_over = false);
    if let Run::Elsewhere(cpu) = run {
        kick::send_on(qp, cpu);
    }
    if responder::run(qp).is_some() {
        responder::reply_later(qp);
    }
    has_left || run == Run::More
}

/// Finds the destination of a datagram that waits for it. May sleep.
fn find_address(qp: &Qp) {
    let take_wanted = |half: &mut SendHalf| half.send.vectors.as_mut()?.take_wanted();
    let Some(vector) = take_wanted(&mut qp.send.lock()) else {
        return;
    };
    let fixed = &qp.fixed;
    let found = Found::new(vector, fixed.pd, fixed.qpn, &fixed.gids);
    if let Some(vectors) = &mut qp.send.lock().send.vectors {
        vectors.learn(found);
    }
}

/// Yields the CPU to other tasks, as this item has more to do. No lock is held.
fn let_others(qp: &Qp) {
    if qp.takes_turns() && others_wait() && qp.shared().senders.ends_turn() {
        let_others_go_first();
    } else {
        give_way();
    }
}

impl WorkItem<{ work::SEND }> for Qp {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        requester::send_in_softirq(this.as_arc_borrow());
    }
}

impl WorkItem<{ work::REPLY }> for Qp {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let qp = this.as_arc_borrow();
        // Queued while it runs it would stay on this CPU, so the item of process context goes there.
        if let Some(cpu) = responder::run(qp) {
            kick::run_on(qp, cpu);
        }
    }
}

impl WorkItem<{ work::BACKLOG }> for Qp {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let _ = deliver::handle_backlog(this.as_arc_borrow());
    }
}

impl WorkItem<{ work::RESPONSES }> for Qp {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        deliver::handle_responses(this.as_arc_borrow());
    }
}

impl WorkItem<{ work::EVENT }> for Qp {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        raise(&this, this.take_noted());
    }
}

impl WorkItem<{ work::FAULT_SEND }> for Qp {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        requester::run_faults(this.as_arc_borrow());
    }
}

impl WorkItem<{ work::FAULT_RECV }> for Qp {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        responder::run_faults(this.as_arc_borrow());
    }
}

impl CreditWaker for Qp {
    fn credit_available(self: ArcBorrow<'_, Self>) {
        requester::run_later(self);
    }
}
