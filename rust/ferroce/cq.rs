// SPDX-License-Identifier: GPL-2.0

//! Completion queues: the ring that completions are written to, and who is told.

use kernel::prelude::*;
use kernel::sync::atomic::Atomic;
use kernel::sync::{new_condvar, new_mutex, Arc, CondVar, Mutex};
use kernel::workqueue::{impl_has_work, new_work, Work, WorkItem};
use rdma::ring::SharedRing;
use rdma::sched::pause;
use rdma::sync::{IrqSpinLock, Marked};
use rdma::time::Ticks;
use rdma::upcall::CqUpcall;
use roce::abi::{self, Arrival, KernelCompletion};
use roce::completion::Completion;
use roce::num::Qpn;

use crate::port::PORT;
use crate::queue::{Move, PIECE};
use crate::queues::Queues;
use crate::stream::Poster;

/// How long completions may come without their owner's asking to be told of them, until it is taken for one
/// that polls, though it has asked before.
const AWAKE_MS: u32 = 20;

/// When the owner wants to be told of the next completion.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Armed {
    /// Not at all.
    No,
    /// When it was solicited, or is an error.
    Solicited,
    /// Whatever it is.
    Any,
}

/// What a completion queue's owner must be told, once no lock of ours is held.
#[derive(Clone, Copy, Default)]
#[must_use]
pub(crate) struct Notice {
    /// There are completions, and it asked to be told.
    completed: bool,
    /// A completion was lost as the queue is full. Said once.
    overflowed: bool,
}

impl Notice {
    fn is_empty(self) -> bool {
        !self.completed && !self.overflowed
    }

    /// Adds what `other` has to say.
    pub(crate) fn merge(&mut self, other: Self) {
        self.completed |= other.completed;
        self.overflowed |= other.overflowed;
    }
}

/// Who owns a completion queue.
pub(crate) enum Owner {
    /// A process, which maps the ring and polls it there. It is told at once.
    Process,
    /// The kernel, which polls by a verb. It is told by a work item: never in the course of a verb
    /// that it calls, and never twice at a time.
    Kernel(Arc<Queues>),
}

/// How a completion queue is doing.
#[derive(Clone, Copy)]
pub(crate) struct CqReport {
    /// Completions in it.
    pub(crate) fill: u32,
    /// The next slot to fill.
    pub(crate) producer: u32,
    /// When its owner is told.
    pub(crate) armed: Armed,
    /// Whether a completion was lost as it was full.
    pub(crate) overflowed: bool,
}

/// A completion queue.
///
/// Lock: the kernel may poll and arm it with interrupts disabled, which is how `ring` is held.
#[pin_data]
pub(crate) struct Cq {
    #[pin]
    ring: IrqSpinLock<Ring>,
    /// Held while it is replaced by another one.
    #[pin]
    resizing: Mutex<()>,
    upcall: CqUpcall,
    owner: Owner,
    /// Its owner asks to be told of completions: it sleeps until there are some.
    has_sleeper: Atomic<bool>,
    /// What is known of the one that posts what completes here.
    pub(crate) poster: Poster,
    #[pin]
    tell: Work<Self>,
    /// The work item has told.
    #[pin]
    told: CondVar,
}

impl_has_work! {
    impl HasWork<Self> for Cq { self.tell }
}

struct Ring {
    shared: SharedRing,
    /// The next slot to fill; ours alone, whatever the shared index says.
    producer: u32,
    armed: Armed,
    /// When the owner has asked to be told, or was told, for the last time, and how far it had polled.
    awake_since: Ticks,
    polled_then: u32,
    overflowed: bool,
    telling: Telling,
}

/// What the work item has to do with it.
#[derive(Default)]
struct Telling {
    /// What it is to tell: set as a completion is written, so that who looks here knows of it before
    /// the item is queued.
    owed: Notice,
    /// It does.
    now: bool,
    /// How often it has; wraps.
    times: u32,
}

impl Telling {
    fn is_over(&self) -> bool {
        !self.now && self.owed.is_empty()
    }
}

impl Cq {
    /// A completion queue over `shared`, in which nothing was written yet.
    pub(crate) fn new(shared: SharedRing, upcall: CqUpcall, owner: Owner) -> impl PinInit<Self> {
        let ring = Ring {
            shared,
            producer: 0,
            armed: Armed::No,
            awake_since: Ticks::now(),
            polled_then: 0,
            overflowed: false,
            telling: Telling::default(),
        };
        pin_init!(Self {
            ring <- rdma::new_irq_spinlock!(ring, "ferroce::Cq::ring"),
            resizing <- new_mutex!((), "ferroce::Cq::resizing"),
            upcall,
            owner,
            has_sleeper: Atomic::new(false),
            poster: Poster::new(),
            tell <- new_work!("ferroce::Cq::tell"),
            told <- new_condvar!("ferroce::Cq::told"),
        })
    }

    /// Whether the kernel owns it.
    pub(crate) fn is_kernel(&self) -> bool {
        matches!(self.owner, Owner::Kernel(_))
    }

    /// Writes `completion`, with how the datagram arrived that it is of. Takes the ring's lock; may be
    /// called under a queue pair's.
    pub(crate) fn push(&self, completion: &Completion, arrival: Option<Arrival>) -> Notice {
        let mut ring = self.ring.lock();
        let written = if self.is_kernel() {
            ring.write(&abi::encode_kernel_completion(completion, PORT, arrival))
        } else {
            ring.write(&abi::encode_completion(completion, PORT, arrival))
        };
        let notice = if written {
            let completed = ring.awaits(completion);
            if completed {
                // Rules: CPL-18
                ring.armed = Armed::No;
                ring.note_awake();
            } else if self.has_sleeper() && !self.is_kernel() && ring.is_polled() {
                self.has_sleeper.write_once(false);
            }
            Notice {
                completed,
                overflowed: false,
            }
        } else {
            Notice {
                completed: false,
                // Rules: CPL-19
                overflowed: !core::mem::replace(&mut ring.overflowed, true),
            }
        };
        if self.is_kernel() {
            ring.telling.owed.merge(notice);
        }
        notice
    }

    /// Arms the queue. Returns whether it holds completions already, for owners who ask.
    // Rules: CPL-17
    pub(crate) fn arm(&self, armed: Armed) -> bool {
        let mut ring = self.ring.lock();
        self.has_sleeper.write_once(true);
        ring.armed = ring.armed.max(armed);
        ring.note_awake();
        ring.shared.consumer() != ring.producer
    }

    /// Returns true if the owner sleeps until there are completions, or has done so lately: it does not poll
    /// all the time.
    #[inline]
    pub(crate) fn has_sleeper(&self) -> bool {
        self.has_sleeper.read_once()
    }

    /// Whether the owner has polled all of it.
    pub(crate) fn is_empty(&self) -> bool {
        let ring = self.ring.lock();
        ring.shared.consumer() == ring.producer
    }

    /// Goes on in `new`, to which it moves what the owner, a process, has not polled yet. Returns the
    /// old ring, in which nothing is written any more. Sleeps.
    ///
    /// Completions are written meanwhile, to the old ring. The owner must not poll.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `new` has too little room for that; `EINTR` if the process is being killed; `EBUSY` if
    /// there is no end to it, as it polls all the time. The queue is as it was then.
    pub(crate) fn resize(&self, new: SharedRing) -> Result<SharedRing> {
        let _resizing = self.resizing.lock();
        let (mut moving, mut consumer) = {
            let ring = self.ring.lock();
            let moving = Move::new(&ring.shared, new.clone(), PIECE);
            (moving, ring.shared.consumer())
        };
        loop {
            let is_moved = {
                let ring = &mut *self.ring.lock();
                ring.move_piece(&mut moving, &mut consumer)?
                    .then(|| ring.go_on_in(&moving, new.clone()))
            };
            if let Some(old) = is_moved {
                return Ok(old);
            }
            pause()?;
        }
    }

    /// Hands out the oldest completions, for as long as `take` returns true. The kernel's alone.
    pub(crate) fn poll(&self, mut take: impl FnMut(&KernelCompletion) -> bool) {
        let ring = self.ring.lock();
        let mut consumer = ring.shared.consumer();
        while consumer != ring.producer {
            let mut cqe = [0; abi::cqe::SLOT_BYTES];
            ring.shared.read(consumer, &mut cqe);
            consumer = ring.shared.next(consumer);
            ring.shared.set_consumer(consumer);
            if abi::decode_completion(&cqe).is_some_and(|completion| !take(&completion)) {
                return;
            }
        }
    }

    /// Takes out the completions of a queue pair that is no more. The kernel's alone: what they name
    /// may be gone, too.
    pub(crate) fn forget(&self, qpn: Qpn) {
        let mut ring = self.ring.lock();
        let (mut from, mut to) = (ring.shared.consumer(), ring.shared.consumer());
        while from != ring.producer {
            let mut cqe = [0; abi::cqe::SLOT_BYTES];
            ring.shared.read(from, &mut cqe);
            if abi::cqe::qpn_of(&cqe) != Some(qpn) {
                ring.shared.write(to, &cqe);
                to = ring.shared.next(to);
            }
            from = ring.shared.next(from);
        }
        ring.producer = to;
        ring.shared.set_producer(to);
    }

    /// How it is doing.
    pub(crate) fn report(&self) -> CqReport {
        let ring = self.ring.lock();
        let consumer = ring.shared.consumer();
        CqReport {
            fill: ring.shared.shape().used(ring.producer, consumer),
            producer: ring.producer,
            armed: ring.armed,
            overflowed: ring.overflowed,
        }
    }

    /// Tells the owner. Called with no lock of ours held, as the owner may post, poll or arm.
    pub(crate) fn tell(this: &Arc<Self>, notice: Notice) {
        match &this.owner {
            _ if notice.is_empty() => {}
            Owner::Process => this.tell_now(notice),
            Owner::Kernel(queues) => {
                let _ = queues.softirq.enqueue::<Arc<Self>, 0>(this.clone());
            }
        }
    }

    /// Waits until the owner, the kernel, was told of what was written before. Sleeps.
    ///
    /// Once the last queue pair that writes here is gone it is not told any more, so that it may give
    /// up what it has queued for the completion queue, and then that.
    pub(crate) fn wait_told(&self) {
        let mut ring = self.ring.lock();
        let begun = ring.telling.times;
        // The second time that it is over it began after this.
        while !ring.telling.is_over() && ring.telling.times.wrapping_sub(begun) < 2 {
            self.told.wait(&mut ring);
        }
    }

    fn tell_now(&self, notice: Notice) {
        if notice.completed {
            self.upcall.completed();
        }
        if notice.overflowed {
            self.upcall.failed();
        }
    }
}

impl WorkItem for Cq {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let notice = {
            let telling = &mut this.ring.lock().telling;
            telling.now = true;
            core::mem::take(&mut telling.owed)
        };
        this.tell_now(notice);
        let telling = &mut this.ring.lock().telling;
        telling.now = false;
        telling.times = telling.times.wrapping_add(1);
        this.told.notify_all();
    }
}

impl Ring {
    /// Moves the next piece of what was not polled. Returns whether all of it is moved. `consumer` is
    /// where the owner polled when this was done last.
    fn move_piece(&self, moving: &mut Move, consumer: &mut u32) -> Result<bool> {
        let shape = self.shared.shape();
        let start = self.shared.consumer();
        let polled = shape.used(start, *consumer);
        *consumer = start;
        moving.skip(polled.into());
        let held = shape.used(self.producer, start);
        let mut cqe = [0; abi::cqe::CQE_BYTES];
        moving.copy(&self.shared, start, held, &mut cqe)
    }

    /// Goes on in `new`, to which all was moved. Returns the old ring.
    fn go_on_in(&mut self, moving: &Move, new: SharedRing) -> SharedRing {
        let (_, producer) = moving.publish();
        self.producer = producer;
        core::mem::replace(&mut self.shared, new)
    }

    /// Publishes `cqe` in the next slot, unless all are taken.
    // Rules: CPL-20, ORD-11
    fn write(&mut self, cqe: &[u8]) -> bool {
        let next = self.shared.next(self.producer);
        if next == self.shared.consumer() {
            return false;
        }
        self.shared.write(self.producer, cqe);
        self.producer = next;
        self.shared.set_producer(next);
        true
    }

    /// Notes that the owner asks to be told, or is.
    fn note_awake(&mut self) {
        self.awake_since = Ticks::now();
        self.polled_then = self.shared.consumer();
    }

    /// Returns true if the owner has stopped asking to be told, but polls.
    fn is_polled(&self) -> bool {
        self.armed == Armed::No
            && self.shared.consumer() != self.polled_then
            && self.awake_since.is_past(AWAKE_MS)
    }

    // Rules: CPL-16
    fn awaits(&self, completion: &Completion) -> bool {
        match self.armed {
            Armed::No => false,
            Armed::Solicited => completion.solicited,
            Armed::Any => true,
        }
    }
}
