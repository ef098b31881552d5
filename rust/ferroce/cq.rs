// SPDX-License-Identifier: GPL-2.0

//! Completion queues: the ring of completions, and events for its owner.

use kernel::prelude::*;
use kernel::sync::atomic::Atomic;
use kernel::sync::{new_condvar, Arc, CondVar};
use kernel::workqueue::{impl_has_work, new_work, Work, WorkItem};
use rdma::ring::SharedRing;
use rdma::sched::pause;
use rdma::sync::{IrqSpinLock, Marked};
use rdma::time::Ticks;
use rdma::upcall::CqUpcall;
use roce::abi::{self, Arrival, KernelCompletion};
use roce::completion::Completion;
use roce::num::Qpn;

use crate::policy::{Habit, Watch};
use crate::port::PORT;
use crate::queue::{Move, PIECE};
use crate::queues::Queues;
use crate::stream::Poster;

/// The next completion that causes an event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Armed {
    /// None.
    No,
    /// A completion that is solicited, or an error.
    Solicited,
    /// Any.
    Any,
}

/// Events to raise for a completion queue, once no lock of this driver is held.
#[derive(Clone, Copy, Default)]
#[must_use]
pub(crate) struct Notice {
    /// There are completions, and the queue was armed.
    completed: bool,
    /// A completion was lost because the queue is full. Reported once.
    overflowed: bool,
}

impl Notice {
    fn is_empty(self) -> bool {
        !self.completed && !self.overflowed
    }

    /// Adds the events of `other`.
    pub(crate) fn merge(&mut self, other: Self) {
        self.completed |= other.completed;
        self.overflowed |= other.overflowed;
    }
}

/// The owner of a completion queue.
pub(crate) enum Owner {
    /// A process, which maps the ring and polls it there. It gets events at once.
    Process,
    /// The kernel, which polls by a verb. A work item raises its events: never in the course of a verb,
    /// and never twice at a time.
    Kernel(Arc<Queues>),
}

/// The state of a completion queue, for reports.
#[derive(Clone, Copy)]
pub(crate) struct CqReport {
    /// Completions in it.
    pub(crate) fill: u32,
    /// The next slot to fill.
    pub(crate) producer: u32,
    /// The next completion that causes an event.
    pub(crate) armed: Armed,
    /// A completion was lost because the queue was full.
    pub(crate) overflowed: bool,
}

/// A completion queue.
///
/// `ring` disables interrupts, because the kernel may poll and arm the queue with interrupts disabled.
#[pin_data]
pub(crate) struct Cq {
    #[pin]
    ring: IrqSpinLock<Ring>,
    upcall: CqUpcall,
    owner: Owner,
    /// A [`Habit`]. It changes under `ring`.
    habit: Atomic<u32>,
    /// When the owner last armed the queue or got an event.
    armed_at: Atomic<usize>,
    /// The poster whose requests complete here.
    pub(crate) poster: Poster,
    #[pin]
    tell: Work<Self>,
    /// The work item has raised its events.
    #[pin]
    told: CondVar,
}

impl_has_work! {
    impl HasWork<Self> for Cq { self.tell }
}

struct Ring {
    shared: SharedRing,
    /// The next slot to fill. It is independent of the shared index.
    producer: u32,
    armed: Armed,
    watch: Watch<Ticks>,
    /// An event was raised since the owner last armed the queue, or began to poll.
    had_event: bool,
    overflowed: bool,
    telling: Telling,
}

/// The state of the work item that raises events.
#[derive(Default)]
struct Telling {
    /// The events to raise. They are set when a completion is written, so they are visible before the
    /// item is queued.
    owed: Notice,
    /// The item is raising events.
    now: bool,
    /// How often it has raised events; wraps.
    times: u32,
}

impl Telling {
    fn is_over(&self) -> bool {
        !self.now && self.owed.is_empty()
    }
}

impl Cq {
    /// Creates an empty completion queue over `shared`.
    pub(crate) fn new(shared: SharedRing, upcall: CqUpcall, owner: Owner) -> impl PinInit<Self> {
        let ring = Ring {
            shared,
            producer: 0,
            armed: Armed::No,
            watch: Watch::new(Ticks::now()),
            had_event: false,
            overflowed: false,
            telling: Telling::default(),
        };
        pin_init!(Self {
            ring <- rdma::new_irq_spinlock!(ring, "ferroce::Cq::ring"),
            upcall,
            owner,
            habit: Atomic::new(Habit::Polls.to_bits()),
            armed_at: Atomic::new(0),
            poster: Poster::new(),
            tell <- new_work!("ferroce::Cq::tell"),
            told <- new_condvar!("ferroce::Cq::told"),
        })
    }

    /// Returns true if the kernel owns it.
    pub(crate) fn is_kernel(&self) -> bool {
        matches!(self.owner, Owner::Kernel(_))
    }

    /// Writes `completion`, with the `arrival` of its datagram. Takes the ring's lock. May be called
    /// under the lock of a queue pair.
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
                ring.had_event = true;
                self.note_armed(&mut ring);
            } else if self.habit() != Habit::Polls && !self.is_kernel() && ring.is_polled() {
                ring.had_event = false;
                self.set_habit(Habit::Polls);
            }
            ring.watch.note_written(Ticks::now());
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

    /// Arms the queue. Returns true if it already holds completions.
    // Rules: CPL-17
    pub(crate) fn arm(&self, armed: Armed) -> bool {
        let mut ring = self.ring.lock();
        let had_event = core::mem::take(&mut ring.had_event);
        self.set_habit(self.habit().armed(had_event));
        ring.armed = ring.armed.max(armed);
        self.note_armed(&mut ring);
        ring.shared.consumer() != ring.producer
    }

    /// Notes that the owner arms the queue, or gets an event.
    fn note_armed(&self, ring: &mut Ring) {
        self.armed_at.write_once(Ticks::now().into());
        ring.observe();
    }

    #[inline]
    fn habit(&self) -> Habit {
        Habit::from_bits(self.habit.read_once())
    }

    fn set_habit(&self, habit: Habit) {
        self.habit.write_once(habit.to_bits());
    }

    /// Returns true if the owner sleeps until there are completions, or did so lately, instead of
    /// polling. This is a guess that affects only speed.
    #[inline]
    pub(crate) fn has_sleeper(&self) -> bool {
        let is_past = |ms| Ticks::from(self.armed_at.read_once()).is_past(ms);
        self.habit().sleeps(self.is_kernel(), is_past)
    }

    /// Returns true if the owner has polled all of it.
    pub(crate) fn is_empty(&self) -> bool {
        let ring = self.ring.lock();
        ring.shared.consumer() == ring.producer
    }

    /// Moves completions that the owning process has not polled to `new`, and continues there. Returns
    /// the old ring, which is no longer written. Sleeps.
    ///
    /// Completions are written to the old ring meanwhile. The owner must not poll. One call of it runs at a time, as
    /// the crate `rdma` ensures.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `new` has too little room; `EINTR` if the process is being killed; `EBUSY` if the
    /// copy does not end, because the owner polls all the time. The queue is then unchanged.
    pub(crate) fn resize(&self, new: SharedRing) -> Result<SharedRing> {
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

    /// Passes the oldest completions to `take`, as long as it returns true. For kernel owners only.
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

    /// Removes the completions of a destroyed queue pair. For kernel owners only: their data for
    /// these completions may be gone, too.
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

    /// Returns the state of the queue.
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

    /// Raises events for the owner. No lock of this driver is held, because the owner may post, poll or
    /// arm.
    pub(crate) fn tell(this: &Arc<Self>, notice: Notice) {
        match &this.owner {
            _ if notice.is_empty() => {}
            Owner::Process => this.tell_now(notice),
            Owner::Kernel(queues) => {
                let _ = queues.softirq.enqueue::<Arc<Self>, 0>(this.clone());
            }
        }
    }

    /// Waits until pending events for a kernel owner were raised. Sleeps.
    ///
    /// After the last queue pair of a completion queue is gone, there are no events. So the owner may
    /// free its data for the completion queue, and then the queue.
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
    /// Moves the next piece of unpolled completions. Returns true if all are moved. `consumer` is the
    /// owner's index at the last call.
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

    /// Continues in `new`, which has all completions. Returns the old ring.
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

    /// Begins to observe the owner.
    fn observe(&mut self) {
        self.watch.begin(Ticks::now(), self.shared.consumer());
    }

    /// Returns true if the owner polls without arming the queue.
    fn is_polled(&mut self) -> bool {
        let consumer = self.shared.consumer();
        let is_armed = self.armed != Armed::No;
        self.watch
            .is_polled(Ticks::now(), consumer, is_armed, Ticks::is_past)
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
