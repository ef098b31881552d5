// SPDX-License-Identifier: GPL-2.0

//! Work queues of the driver.
//!
//! Items are the kernel's [`Work`](kernel::workqueue::Work) in an `Arc`. They belong on a [`Queue`]
//! and not on one of the system's, because unloading the module waits only for the former.
//!
//! The kernel crate cannot allocate a queue, nor queue an item on a CPU of the caller's choice. A [`Queue`]
//! can. It does not give out the crate's queue: that queues items after a delay, too, and does not wait for these
//! when the queue is freed.

use crate::module::Hold;
use core::{
    mem::ManuallyDrop,
    ops::{
        BitOr,
        Deref, //
    },
    pin::Pin,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    cpu::CpuId,
    prelude::*,
    sync::rcu,
    workqueue::{
        self,
        impl_has_work,
        new_work,
        RawWorkItem,
        Work,
        WorkItem, //
    }, //
};

pub use crate::sched::{give_way, is_cpu_wanted, let_others_go_first, others_wait};

/// The way in which a [`Queue`] runs its items.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flags(u32);

impl Flags {
    /// On the CPU where they were queued, one after the other as long as none sleeps: the caches
    /// are warm, but a long item delays the others.
    pub const PER_CPU: Self = Self(bindings::wq_flags_WQ_PERCPU);
    /// On any CPU that the scheduler chooses. For items that run long.
    pub const UNBOUND: Self = Self(bindings::wq_flags_WQ_UNBOUND);
    /// By workers of the highest nice level.
    pub const HIGH_PRIORITY: Self = Self(bindings::wq_flags_WQ_HIGHPRI);
    /// There is a worker even when memory has run out. Needed where writing back memory may depend
    /// on the items, as with storage over RDMA.
    pub const MEM_RECLAIM: Self = Self(bindings::wq_flags_WQ_MEM_RECLAIM);
    /// In softirq context, on the CPU where they were queued, after the current packets. The items
    /// must not sleep. Goes with [`HIGH_PRIORITY`](Self::HIGH_PRIORITY) alone; others are ignored.
    pub const BOTTOM_HALF: Self = Self(bindings::wq_flags_WQ_BH);
}

impl Flags {
    fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the flags as the kernel requires them: a queue is bound to CPUs or not, and one in
    /// bottom halves is always bound.
    fn consistent(self) -> u32 {
        if self.contains(Self::BOTTOM_HALF) {
            let allowed = Self::BOTTOM_HALF | Self::HIGH_PRIORITY;
            self.0 & allowed.0 | Self::PER_CPU.0
        } else if self.contains(Self::UNBOUND) {
            self.0 & !Self::PER_CPU.0
        } else {
            self.0 | Self::PER_CPU.0
        }
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A work queue of the module's own.
///
/// Dropping it runs the queued items and then frees the queue. That happens in the background, so
/// it may be dropped in any context, even by one of its items; [`Unload`](crate::module::Unload)
/// waits for it. An item must not queue itself again for ever.
///
/// # Examples
///
/// ```
/// use kernel::{
///     sync::Arc,
///     workqueue::{
///         impl_has_work,
///         new_work,
///         Work,
///         WorkItem, //
///     }, //
/// };
/// use rdma::work::{
///     Flags,
///     Queue, //
/// };
///
/// #[pin_data]
/// struct Cleanup {
///     #[pin]
///     work: Work<Self>,
/// }
///
/// impl_has_work! {
///     impl HasWork<Self> for Cleanup { self.work }
/// }
///
/// impl WorkItem for Cleanup {
///     type Pointer = Arc<Self>;
///
///     fn run(_this: Arc<Self>) {}
/// }
///
/// let queue = Queue::new(c"sample", Flags::UNBOUND | Flags::MEM_RECLAIM)?;
/// let cleanup = Arc::pin_init(
///     pin_init!(Cleanup { work <- new_work!("Cleanup::work") }),
///     GFP_KERNEL,
/// )?;
/// let _ = queue.enqueue::<Arc<Cleanup>, 0>(cleanup);
/// # Ok::<(), Error>(())
/// ```
pub struct Queue(Background<Allocated>);

/// A work queue of ours, freed when this is dropped, which sleeps.
struct Allocated(NonNull<bindings::workqueue_struct>);

// SAFETY: Work queues may be used and freed from any thread.
unsafe impl Send for Allocated {}
// SAFETY: The kernel synchronises access to them.
unsafe impl Sync for Allocated {}

impl Drop for Allocated {
    fn drop(&mut self) {
        // SAFETY: It was allocated by `Queue::new`, and nobody refers to it any more.
        unsafe { bindings::destroy_workqueue(self.0.as_ptr()) };
    }
}

impl Queue {
    /// Creates a queue called `name` in the list of workers. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `ENODEV` when the module is being unloaded.
    pub fn new(name: &CStr, flags: Flags) -> Result<Self> {
        // 0 is the kernel's default.
        Self::with_workers(name, flags, 0)
    }

    /// Creates a queue that runs at most `workers` items at a time, if it is not bound to CPUs; 0 is the
    /// kernel's default. In [bottom halves](Flags::BOTTOM_HALF) the number is ignored. May sleep.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new).
    pub fn with_workers(name: &CStr, flags: Flags, workers: u16) -> Result<Self> {
        // The kernel accepts no other number there.
        let workers = match flags.contains(Flags::BOTTOM_HALF) {
            true => 0,
            false => workers,
        };
        // SAFETY: The format takes one string, which is valid for the call.
        let queue = unsafe {
            bindings::alloc_workqueue_noprof(
                c"%s".as_char_ptr(),
                flags.consistent(),
                workers.into(),
                name.as_char_ptr(),
            )
        };
        let queue = Allocated(NonNull::new(queue).ok_or(ENOMEM)?);
        Ok(Self(Background::new(queue)?))
    }

    /// Queues `item`. Any context. It returns the same as
    /// [the crate's function](workqueue::Queue::enqueue).
    pub fn enqueue<W, const ID: u64>(&self, item: W) -> W::EnqueueOutput
    where
        W: RawWorkItem<ID> + Send + 'static,
    {
        let Allocated(queue) = &*self.0;
        // SAFETY: The queue is valid until it is dropped, and the reference is not kept.
        let queue = unsafe { workqueue::Queue::from_raw(queue.as_ptr()) };
        queue.enqueue(item)
    }

    /// Queues `item` on `cpu`, or on any CPU if that is offline. For queues that are [bound to
    /// CPUs](Flags::PER_CPU), and for those in [bottom halves](Flags::BOTTOM_HALF). Any context. It
    /// returns the same as [`enqueue`](Self::enqueue).
    pub fn enqueue_on<W, const ID: u64>(&self, cpu: CpuId, item: W) -> W::EnqueueOutput
    where
        W: RawWorkItem<ID> + Send + 'static,
    {
        let Allocated(queue) = &*self.0;
        // SAFETY: The closure returns false only if the kernel reports that the item is queued
        // already. The item lives long enough, as it is `'static`, and may run on any thread. `cpu`
        // is the number of a CPU.
        unsafe {
            item.__enqueue(|work| {
                rdma_bindings::queue_work_on_online(i32::from(cpu), queue.as_ptr(), work)
            })
        }
    }
}

/// Returns true if `cpu` runs items that are [queued](Queue::enqueue_on) for it, unless it goes offline
/// now. Any context.
pub fn is_online(cpu: CpuId) -> bool {
    // SAFETY: It is the number of a CPU.
    unsafe { rdma_bindings::cpu_online(i32::from(cpu)) }
}

/// Returns true while a CPU goes offline or online. Until its removal is complete, its packets are in no
/// queue. Any context.
pub fn is_plugging_cpus() -> bool {
    // SAFETY: Callable in any context, as it does not wait.
    if unsafe { rdma_bindings::cpus_read_trylock() } == 0 {
        return true;
    }
    // SAFETY: The lock was taken just now.
    unsafe { rdma_bindings::cpus_read_unlock() };
    false
}

/// The number of CPUs that [`another_cpu`] checks.
const CANDIDATES: u32 = 8;

/// Returns a CPU for unrelated work: the next one after `cpu` that is online and not isolated.
/// Returns `None` if none of the next few CPUs is such a one. Any context. It may go offline at any
/// time.
pub fn another_cpu(cpu: CpuId) -> Option<CpuId> {
    let mut id = i32::from(cpu);
    // The kernel frees the mask of such CPUs a grace period after it made another one.
    let _rcu = rcu::read_lock();
    for _ in 0..CANDIDATES {
        // SAFETY: The mask of the CPUs that are online always exists, and `id` is that of a CPU.
        // CAST: Numbers of CPUs are small.
        id = unsafe {
            rdma_bindings::cpumask_next_wrap(id, &raw const rdma_bindings::__cpu_online_mask) as i32
        };
        if id == i32::from(cpu) {
            return None;
        }
        // SAFETY: `id` is that of a CPU.
        if unsafe {
            rdma_bindings::housekeeping_test_cpu(id, rdma_bindings::hk_type_HK_TYPE_DOMAIN)
        } {
            return CpuId::from_i32(id);
        }
    }
    None
}

/// A value with a drop that sleeps, in a place that may be dropped in any context. A work item
/// drops the value. [`Unload`](crate::module::Unload) waits for it.
///
/// # Invariants
///
/// The item is initialised until drop.
pub(crate) struct Background<T: Send + 'static>(ManuallyDrop<Pin<KBox<Item<T>>>>);

#[pin_data]
struct Item<T: Send + 'static> {
    #[pin]
    work: Work<Self>,
    value: T,
    // The last field, so that it is given back after all else.
    hold: Hold,
}

impl_has_work! {
    impl{T: Send + 'static} HasWork<Self> for Item<T> { self.work }
}

impl<T: Send + 'static> WorkItem for Item<T> {
    type Pointer = Pin<KBox<Self>>;

    fn run(this: Self::Pointer) {
        // The hold is given back after the memory of the item is freed.
        let _hold = this.hold.another();
        drop(this);
    }
}

impl<T: Send + 'static> Background<T> {
    /// Creates a place with `value`. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `ENODEV` when the module is being unloaded.
    pub(crate) fn new(value: T) -> Result<Self> {
        let hold = Hold::new()?;
        let item = KBox::pin_init(
            pin_init!(Item {
                work <- new_work!("Background::drop"),
                value,
                hold,
            }),
            GFP_KERNEL,
        )?;
        // INVARIANT: The item is initialised.
        Ok(Self(ManuallyDrop::new(item)))
    }
}

impl<T: Send + 'static> Deref for Background<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T: Send + 'static> Drop for Background<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants the item is initialised. It is not used after this.
        let item = unsafe { ManuallyDrop::take(&mut self.0) };
        // SAFETY: The queue is valid until the hold of the item is given back, which its run does at the end.
        let queue = unsafe { workqueue::Queue::from_raw(item.hold.frees()) };
        queue.enqueue(item);
    }
}
