// SPDX-License-Identifier: GPL-2.0

//! Uses what the patches of `rust/upstream/kernel` add to the kernel crate, from several CPUs at a time.
//!
//! For each subject a line in the log says how often something went wrong, and how often it was tried.

use kernel::{
    cpu::nr_cpu_ids,
    impl_has_hr_timer,
    interrupt::{
        local_bh_disable,
        LocalBhDisabled, //
    },
    percpu::PerCpuCounter,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            AtomicFlag,
            Relaxed, //
        },
        new_spinlock_bh,
        rcu::{
            RcuArc,
            ReadSide, //
        },
        Arc,
        ArcBorrow,
        SpinLockBh,
        UniqueArc, //
    },
    time::{
        delay::fsleep,
        hrtimer::{
            ArcHrTimerOwner,
            HrTimer,
            HrTimerCallback,
            HrTimerCallbackContext,
            HrTimerRestart,
            RelativeSoftMode, //
        },
        Delta,
        Monotonic, //
    },
    workqueue::{
        impl_has_work,
        new_work,
        OwnedQueue,
        Queue,
        QueueFlags,
        Work,
        WorkItem, //
    }, //
};

module! {
    type: Exercise,
    name: "crate_exercise",
    authors: ["ferroce"],
    description: "Exercise for patches of the kernel crate",
    license: "GPL",
}

/// How often the owner of a timer is dropped, and a pointer is replaced.
const ROUNDS: i32 = 300;
/// How often each CPU adds to a counter.
const ADDITIONS: usize = 200_000;
/// How often a timer takes the lock that a task takes, too.
const EXPIRIES: i32 = 200;

/// A function that a queue calls once.
#[pin_data]
struct Job<F> {
    #[pin]
    work: Work<Self>,
    function: F,
}

impl_has_work! {
    impl{F} HasWork<Self> for Job<F> { self.work }
}

impl<F: Fn() + Send + 'static> WorkItem for Job<F> {
    type Pointer = Pin<KBox<Self>>;

    fn run(this: Self::Pointer) {
        (this.function)();
    }
}

fn spawn(queue: &Queue, function: impl Fn() + Send + 'static) -> Result {
    queue.enqueue(KBox::pin_init(
        pin_init!(Job {
            work <- new_work!("Job::work"),
            function,
        }),
        GFP_KERNEL,
    )?);
    Ok(())
}

fn new_queue() -> Result<OwnedQueue> {
    Ok(OwnedQueue::new_unbound(
        c"crate_exercise",
        QueueFlags::empty(),
        0,
    )?)
}

/// A timer that starts itself again, and counts under a lock.
#[pin_data]
struct Ticker {
    #[pin]
    timer: HrTimer<Self>,
    #[pin]
    expired: SpinLockBh<i32>,
}

impl_has_hr_timer! {
    impl HasHrTimer<Self> for Ticker {
        mode: RelativeSoftMode<Monotonic>, field: self.timer
    }
}

impl HrTimerCallback for Ticker {
    type Pointer<'a> = Arc<Self>;

    fn run(this: ArcBorrow<'_, Self>, _: HrTimerCallbackContext<'_, Self>) -> HrTimerRestart {
        // SAFETY: This timer expires in softirq context.
        let bh = unsafe { LocalBhDisabled::assume_disabled() };
        *this.expired.lock_with(bh) += 1;
        this.timer.start(Delta::from_micros(20));
        HrTimerRestart::NoRestart
    }
}

fn new_ticker() -> Result<ArcHrTimerOwner<Ticker>> {
    Ok(ArcHrTimerOwner::new(UniqueArc::pin_init(
        pin_init!(Ticker {
            timer <- HrTimer::new(),
            expired <- new_spinlock_bh!(0, "Ticker::expired"),
        }),
        GFP_KERNEL,
    )?))
}

/// Drops the owner of a timer while others start it: it must not expire after that.
fn try_timers() -> Result<(i32, i32)> {
    let mut late = 0;
    for _ in 0..ROUNDS {
        let owner = new_ticker()?;
        let ticker = owner.as_arc().clone();
        let queue = new_queue()?;
        for _ in 0..3 {
            let ticker = ticker.clone();
            let start = move || while ticker.timer.start(Delta::from_micros(10)) {};
            spawn(&queue, start)?;
        }
        fsleep(Delta::from_millis(2));
        drop(owner);
        let expired = *ticker.expired.lock();
        drop(queue);
        fsleep(Delta::from_millis(1));
        if *ticker.expired.lock() != expired {
            late += 1;
            // It may still be started.
            core::mem::forget(ticker);
        }
    }
    Ok((late, ROUNDS))
}

/// Takes a lock in a task, and in softirqs that interrupt it: they must not change what it has locked.
fn try_locks() -> Result<(i32, i32)> {
    let owner = new_ticker()?;
    let ticker = owner.as_arc().clone();
    ticker.timer.start(Delta::from_micros(10));
    let mut wrong = 0;
    while *ticker.expired.lock() < EXPIRIES {
        let mut expired = ticker.expired.lock();
        let before = *expired;
        // The softirq would change it here, or wait for ever.
        for _ in 0..1000 {
            core::hint::spin_loop();
        }
        wrong += i32::from(*expired != before);
        *expired = before;
    }
    Ok((wrong, EXPIRIES))
}

struct Value {
    valid: AtomicFlag,
    dropped: Arc<Atomic<i32>>,
}

impl Drop for Value {
    fn drop(&mut self) {
        self.valid.store(false, Relaxed);
        self.dropped.fetch_add(1, Relaxed);
    }
}

/// Returns true if a value remains valid as long as it is borrowed. Counts those that there are.
fn is_valid(place: &RcuArc<Value>, rcu: &impl ReadSide, reads: &Atomic<i32>) -> bool {
    place.get(rcu).is_none_or(|value| {
        let is_valid = (0..500).all(|_| value.valid.load(Relaxed));
        reads.fetch_add(1, Relaxed);
        is_valid
    })
}

/// Replaces a value while others read it: they must not see one that was dropped.
fn try_pointers() -> Result<(i32, i32)> {
    let place = Arc::new(RcuArc::empty(), GFP_KERNEL)?;
    let dropped = Arc::new(Atomic::new(0), GFP_KERNEL)?;
    let reads = Arc::new(Atomic::new(0), GFP_KERNEL)?;
    let wrong = Arc::new(Atomic::new(0), GFP_KERNEL)?;
    let ends = Arc::new(AtomicFlag::new(false), GFP_KERNEL)?;
    let queue = new_queue()?;
    for _ in 0..2 {
        let (place, ends) = (place.clone(), ends.clone());
        let (reads, wrong) = (reads.clone(), wrong.clone());
        spawn(&queue, move || {
            while !ends.load(Relaxed) {
                let is_valid = is_valid(&place, &local_bh_disable(), &reads);
                wrong.fetch_add(i32::from(!is_valid), Relaxed);
            }
        })?;
    }
    for round in 0..ROUNDS {
        let value = Value {
            valid: AtomicFlag::new(true),
            dropped: dropped.clone(),
        };
        drop(place.replace(Some(Arc::new(value, GFP_KERNEL)?)));
        wrong.fetch_add(i32::from(dropped.load(Relaxed) != round), Relaxed);
        // The next one is replaced while the readers are busy.
        let before = reads.load(Relaxed);
        while reads.load(Relaxed) == before {
            fsleep(Delta::from_micros(5));
        }
    }
    ends.store(true, Relaxed);
    drop(queue);
    drop(place);
    wrong.fetch_add(i32::from(dropped.load(Relaxed) != ROUNDS), Relaxed);
    Ok((wrong.load(Relaxed), ROUNDS))
}

/// Adds to a counter from all CPUs: nothing is lost.
fn try_counters() -> Result<(i32, i32)> {
    let counter = Arc::new(PerCpuCounter::new(GFP_KERNEL)?, GFP_KERNEL)?;
    let queue = new_queue()?;
    for _ in 0..nr_cpu_ids() {
        let counter = counter.clone();
        spawn(&queue, move || {
            for _ in 0..ADDITIONS {
                counter.add(1);
            }
        })?;
    }
    // It waits for the items.
    drop(queue);
    let all = ADDITIONS * nr_cpu_ids() as usize;
    Ok((i32::from(counter.sum() != all), 1))
}

struct Exercise;

impl kernel::Module for Exercise {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        for (subject, (wrong, tries)) in [
            ("timers", try_timers()?),
            ("locks", try_locks()?),
            ("pointers", try_pointers()?),
            ("counters", try_counters()?),
        ] {
            pr_info!("{}: {} of {} wrong\n", subject, wrong, tries);
        }
        Ok(Self)
    }
}
