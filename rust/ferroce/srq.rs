// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues: receives that the first of several queue pairs takes which needs one.

use kernel::prelude::*;
use rdma::errno::EOPNOTSUPP;
use rdma::ops::SrqAttr;
use rdma::ring::SharedRing;
use rdma::sched::pause;
use rdma::slots::Slots;
use rdma::sync::{BhSpinLock, IrqSpinLock};
use rdma::upcall::SrqUpcall;

use crate::queue::{Move, PostQueue, WorkQueue, PIECE};
use crate::table::PdId;

/// A shared receive queue.
///
/// A slot is free as soon as it is taken, because its users finish in any order.
#[pin_data]
pub(crate) struct Srq {
    /// The protection domain of its receives.
    pub(crate) pd: PdId,
    upcall: SrqUpcall,
    #[pin]
    posted: BhSpinLock<Posted>,
    /// Where the kernel posts, if it owns the queue. Nothing is taken under this lock, and it is
    /// taken under that of `posted`.
    #[pin]
    posts: IrqSpinLock<Option<PostQueue>>,
    /// Scatter-gather elements of a receive.
    max_sge: u32,
}

struct Posted {
    queue: WorkQueue,
    /// How many receives were taken; wraps.
    taken: u64,
    attr: SrqAttr,
    /// Where a slot is copied to, as large as a slot.
    scratch: Slots<u8>,
}

/// A shared receive queue that is getting another ring.
struct Resizing {
    ring: SharedRing,
    moving: Move,
    /// How many receives were taken when a piece was moved last.
    taken: u64,
    limit: Option<u32>,
}

impl Srq {
    /// Creates a shared receive queue over `ring`. The ring is still empty.
    pub(crate) fn new(
        pd: PdId,
        ring: SharedRing,
        attr: SrqAttr,
        scratch: Slots<u8>,
        upcall: SrqUpcall,
        posts: Option<PostQueue>,
    ) -> impl PinInit<Self> {
        let max_sge = attr.max_sge;
        let posted = Posted {
            queue: WorkQueue::new(ring),
            taken: 0,
            attr,
            scratch,
        };
        pin_init!(Self {
            pd,
            upcall,
            posted <- rdma::new_bh_spinlock!(posted, "ferroce::Srq::posted"),
            posts <- rdma::new_irq_spinlock!(posts, "ferroce::Srq::posts"),
            max_sge,
        })
    }

    /// Returns how many scatter-gather elements a receive may have. Any context.
    pub(crate) fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// Runs `f` on where the kernel posts. Any context.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if a process owns the queue; those of `f`.
    pub(crate) fn with_posts(&self, f: impl FnOnce(&mut PostQueue) -> Result) -> Result {
        match &mut *self.posts.lock() {
            Some(queue) => f(queue),
            None => Err(EOPNOTSUPP),
        }
    }

    /// Hands the oldest receive to `take`, with how many SGEs it may have; `None` if there is none.
    /// It stays where it is if `take` returns `None`. Takes the queue's lock; to be called under a
    /// queue pair's. Also returns whether its owner is to be [told](Self::tell) now.
    // Rules: SRQ-1, SRQ-2
    pub(crate) fn take<R>(&self, take: impl FnOnce(&[u8], u32) -> Option<R>) -> (Option<R>, bool) {
        let posted = &mut *self.posted.lock();
        if !posted.queue.copy_next(&mut posted.scratch) {
            return (None, false);
        }
        let taken = take(&posted.scratch, posted.attr.max_sge);
        if taken.is_none() {
            return (None, false);
        }
        posted.queue.take();
        posted.queue.retire();
        posted.taken = posted.taken.wrapping_add(1);
        // Rules: SRQ-3
        let is_low = posted.queue.waiting() < posted.attr.limit;
        if is_low {
            posted.attr.limit = 0;
        }
        (taken, is_low)
    }

    /// Tells the owner that few receives are left. No lock of ours is held.
    pub(crate) fn tell(&self) {
        self.upcall.limit_reached();
    }

    /// Returns its attributes.
    pub(crate) fn attr(&self) -> SrqAttr {
        self.posted.lock().attr
    }

    /// Returns its attributes, and the number of posted receives.
    pub(crate) fn fill(&self) -> (SrqAttr, u32) {
        let posted = self.posted.lock();
        (posted.attr, posted.queue.waiting())
    }

    /// Sets the limit below which the owner is told.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is more than the queue holds.
    pub(crate) fn set_limit(&self, limit: u32) -> Result {
        let mut posted = self.posted.lock();
        if limit > posted.attr.max_wr {
            return Err(EINVAL);
        }
        posted.attr.limit = limit;
        Ok(())
    }

    /// Continues in `ring` with all posted receives. Its slots have the same size. Returns the old queue.
    /// Sleeps.
    ///
    /// Receives are taken meanwhile, and the kernel may post some; a process must not. One call of it runs at a time,
    /// as the crate `rdma` ensures.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `ring` has too little room for that, or for the limit that is set; `EINTR` if the
    /// process is being killed; `EBUSY` if there is no end to it, as more is posted and taken all the
    /// time. The queue is as it was then.
    pub(crate) fn resize(&self, ring: SharedRing, limit: Option<u32>) -> Result<WorkQueue> {
        let mut resizing = {
            let posted = self.posted.lock();
            Resizing {
                moving: posted.queue.begin_move(ring.clone(), PIECE),
                taken: posted.taken,
                ring,
                limit,
            }
        };
        loop {
            let old = self.resize_step(&mut resizing)?;
            if let Some(old) = old {
                return Ok(old);
            }
            pause()?;
        }
    }

    /// Moves as much as is moved at a time; all of the rest, if it is no more. Returns the old queue once
    /// all is moved.
    fn resize_step(&self, resizing: &mut Resizing) -> Result<Option<WorkQueue>> {
        let Resizing {
            moving,
            taken,
            ring,
            limit,
        } = resizing;
        let posted = &mut *self.posted.lock();
        let max_wr = ring.shape().capacity();
        let limit = limit.unwrap_or(posted.attr.limit);
        if limit > max_wr {
            return Err(EINVAL);
        }
        moving.skip(posted.taken.wrapping_sub(*taken));
        *taken = posted.taken;
        if !posted.queue.copy_piece(moving, &mut posted.scratch)? {
            return Ok(None);
        }
        // The kernel may have posted more since. From here on it cannot.
        let mut posts = Some(self.posts.lock()).filter(|posts| posts.is_some());
        if posts.is_some() && !posted.queue.copy_piece(moving, &mut posted.scratch)? {
            return Ok(None);
        }
        let old = posted.queue.complete_move(moving);
        if let Some(Some(posts)) = posts.as_deref_mut() {
            posts.go_on_in(ring.clone());
        }
        posted.attr.max_wr = max_wr;
        posted.attr.limit = limit;
        Ok(Some(old))
    }
}
