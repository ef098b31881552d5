// SPDX-License-Identifier: GPL-2.0

//! Tables from numbers to objects, read without locks or shared reference counts.
//!
//! A received packet names its queue pair, and a work request its memory region, by a number. The
//! lookup is an RCU read. Its result is borrowed for the read-side critical section, and costs no
//! atomic operation on shared memory. To keep that sound, the table drops its own reference to an
//! object a grace period after the removal, in process context, where dropping it may sleep.

use crate::{
    module::Hold,
    new_bh_spinlock,
    sync::{
        BhSpinLock,
        Marked,
        ReadSide, //
    }, //
};
use core::{
    cell::UnsafeCell,
    marker::{
        PhantomData,
        PhantomPinned, //
    },
    ops::RangeInclusive,
    pin::Pin,
    ptr::{
        self,
        NonNull, //
    }, //
};
use kernel::{
    alloc::flags::GFP_KERNEL_ACCOUNT,
    bindings,
    error::to_result,
    new_condvar,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        rcu,
        Arc,
        ArcBorrow,
        CondVar, //
    },
    types::Opaque, //
};
use rdma_bindings as helpers;

/// The number of entries that are found without a search. A power of two.
const NEAR: usize = 64;

/// A table of `T`, each under a number of its own.
///
/// The memory of an entry is charged to the memory control group of the task that inserts it.
///
/// # Invariants
///
/// - `xa` holds pointers to [`Entry<T>`] that came from [`KBox`], or reserved places. An entry that
///   is taken out is freed a grace period of RCU later.
/// - An entry of `near` is also in `xa`, except while the lock of `xa` is held. `near` changes only
///   under that lock.
///
/// # Examples
///
/// ```
/// use kernel::sync::{
///     rcu,
///     Arc, //
/// };
/// use rdma::table::IdTable;
///
/// let table = KBox::pin_init(IdTable::<u32>::new(), GFP_KERNEL)?;
/// let id = table.alloc(16..=0xffff, Arc::new(7, GFP_KERNEL)?)?;
/// assert_eq!(table.get(id, &rcu::read_lock()).as_deref(), Some(&7));
/// table.remove(id);
/// # Ok::<(), Error>(())
/// ```
#[pin_data(PinnedDrop)]
pub struct IdTable<T: Send + Sync + 'static> {
    #[pin]
    xa: Opaque<bindings::xarray>,
    /// The latest entry for each value of the lowest bits of the numbers. In a small table these are
    /// all entries, found at a tenth of the cost.
    near: [Atomic<*mut Entry<T>>; NEAR],
    /// The next number to try. Accessed with the lock of `xa` held.
    next: UnsafeCell<u32>,
    leaving: Arc<Leaving>,
    /// Takes the table's reference to the object of an entry that has left.
    end: fn(Arc<T>),
    #[pin]
    _pin: PhantomPinned,
    _p: PhantomData<Arc<T>>,
}

// SAFETY: The table owns and gives out `Arc<T>`s.
unsafe impl<T: Send + Sync + 'static> Send for IdTable<T> {}
// SAFETY: Changes are made with the lock of `xa` held, and lookups under RCU. The objects that they
// give out are `Send` and `Sync`.
unsafe impl<T: Send + Sync + 'static> Sync for IdTable<T> {}

/// Entries that were taken out of a table and not freed yet.
///
/// It is not generic, as lockdep knows a lock by the one place that makes it.
#[pin_data]
struct Leaving {
    #[pin]
    count: BhSpinLock<usize>,
    #[pin]
    none: CondVar,
}

/// An entry of a table.
#[repr(C)]
struct Entry<T: Send + Sync + 'static> {
    rcu_work: Opaque<bindings::rcu_work>,
    id: u32,
    object: Arc<T>,
    leaving: Arc<Leaving>,
    /// That of the table.
    end: fn(Arc<T>),
    // The last field, so that it is given back after all else.
    hold: Hold,
}

impl<T: Send + Sync + 'static> Entry<T> {
    /// Frees `this` a grace period later, in process context.
    ///
    /// # Safety
    ///
    /// `this` must come from [`KBox::into_raw`] and be reachable by nobody but readers under RCU.
    unsafe fn retire(this: NonNull<Self>) {
        // SAFETY: The entry is valid until it is freed below, after `queue_rcu_work`.
        let entry = unsafe { this.as_ref() };
        entry.leaving.entered();
        // SAFETY: The work is not queued yet: an entry retires once. It stays valid until it runs, and so does the
        // queue, because the work owns the hold.
        unsafe {
            helpers::INIT_RCU_WORK(entry.rcu_work.get(), Some(Self::free));
            bindings::queue_rcu_work(entry.hold.frees(), entry.rcu_work.get());
        }
    }

    /// # Safety
    ///
    /// Only the kernel may call it, on the work that [`retire`](Self::retire) queued.
    unsafe extern "C" fn free(work: *mut bindings::work_struct) {
        // SAFETY: `work` is the one in the `rcu_work` that `retire` queued, the first field of an
        // entry (`repr(C)`).
        let entry = unsafe { kernel::container_of!(work, bindings::rcu_work, work) }.cast::<Self>();
        // SAFETY: The entry came from `KBox::into_raw`, and the grace period is over.
        let entry = unsafe { KBox::from_raw(entry) };
        let Self {
            object,
            leaving,
            end,
            hold,
            ..
        } = KBox::into_inner(entry);
        end(object);
        leaving.left();
        // A task that waits for `leaving` may continue now. The module's text stays until the hold
        // is given back, after which this function does nothing that may wait. An implicit drop
        // would have the reverse order.
        drop(leaving);
        drop(hold);
    }
}

impl Leaving {
    fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                count <- new_bh_spinlock!(0, "IdTable::leaving"),
                none <- new_condvar!("IdTable::flush"),
            }),
            GFP_KERNEL,
        )
    }

    fn entered(&self) {
        let mut count = self.count.lock();
        *count = count.saturating_add(1);
    }

    fn left(&self) {
        let mut count = self.count.lock();
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.none.notify_all();
        }
    }
}

impl<T: Send + Sync + 'static> IdTable<T> {
    /// Creates an empty table. May sleep.
    pub fn new() -> impl PinInit<Self, Error> {
        Self::with_end(drop)
    }

    /// Creates an empty table that passes its own reference to a removed object to `end`, in process context,
    /// instead of dropping it. May sleep.
    ///
    /// It is for objects whose drop may sleep for long. `end` must not, because objects of all tables are freed on
    /// one queue.
    pub fn with_end(end: fn(Arc<T>)) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            xa <- Opaque::ffi_init(|xa| {
                // SAFETY: `xa` is valid for writes.
                unsafe {
                    bindings::xa_init_flags(
                        xa,
                        bindings::XA_FLAGS_ALLOC
                            | bindings::xa_lock_type_XA_LOCK_BH
                            | helpers::FERROCE_XA_FLAGS_ACCOUNT,
                    )
                }
            }),
            near: [const { Atomic::new(ptr::null_mut()) }; NEAR],
            next: UnsafeCell::new(0),
            leaving: Leaving::new()?,
            end,
            _pin: PhantomPinned,
            _p: PhantomData,
        })
    }

    /// Reserves a free number of `range`, in a cycle, so that a number is not reused soon.
    ///
    /// May sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` when all of `range` are in use, `ENOMEM`.
    pub fn reserve(&self, range: RangeInclusive<u32>) -> Result<Reservation<'_, T>> {
        let mut id = 0;
        let limit = bindings::xa_limit {
            min: *range.start(),
            max: *range.end(),
        };
        // SAFETY: The table is valid. `next` is accessed with the lock held, which the call takes.
        let ret = unsafe {
            helpers::xa_alloc_cyclic_bh(
                self.xa.get(),
                &mut id,
                ptr::null_mut(),
                limit,
                self.next.get(),
                bindings::GFP_KERNEL_ACCOUNT,
            )
        };
        // 1 means that the search wrapped.
        if ret < 0 {
            to_result(ret)?;
        }
        Ok(Reservation { table: self, id })
    }

    /// Reserves the number `id`.
    ///
    /// May sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` when it is in use, `ENOMEM`.
    pub fn reserve_at(&self, id: u32) -> Result<Reservation<'_, T>> {
        // SAFETY: The table is valid. The insertion of null reserves the place.
        to_result(unsafe {
            helpers::xa_insert_bh(
                self.xa.get(),
                id as usize,
                ptr::null_mut(),
                bindings::GFP_KERNEL_ACCOUNT,
            )
        })?;
        Ok(Reservation { table: self, id })
    }

    /// Stores `object` under a free number of `range`, for an object that does not need to know its
    /// number.
    ///
    /// See [`reserve`](Self::reserve) and [`Reservation::publish`].
    pub fn alloc(&self, range: RangeInclusive<u32>, object: Arc<T>) -> Result<u32> {
        let reservation = self.reserve(range)?;
        let id = reservation.id();
        reservation.publish(object)?;
        Ok(id)
    }

    /// Returns the object of `id`, valid for the read-side critical section. Any context.
    #[inline]
    pub fn get<'g>(&self, id: u32, _guard: &'g impl ReadSide) -> Option<ArcBorrow<'g, T>> {
        let near = NonNull::new(self.near(id).load(Acquire));
        // SAFETY: By the type invariants it is an entry that was there in the read side which `_guard`
        // proves, so it is not freed before that ends. Its number does not change.
        let near = near.filter(|entry| unsafe { (*entry.as_ptr()).id } == id);
        let entry = near.or_else(|| {
            // SAFETY: The table is valid.
            let entry = unsafe { bindings::xa_load(self.xa.get(), id as usize) };
            NonNull::new(entry.cast())
        })?;
        // SAFETY: The table had the entry in the read side that `_guard` proves, so it is not freed
        // before that ends.
        let object: *const Arc<T> = unsafe { ptr::addr_of!((*entry.as_ptr()).object) };
        // SAFETY: The entry owns a reference as long as it exists, and it exists for `'g`.
        Some(unsafe { ArcBorrow::from_raw(Arc::as_ptr(&*object)) })
    }

    /// Returns the place in which the entry of `id` may be found without a search.
    #[inline]
    fn near(&self, id: u32) -> &Atomic<*mut Entry<T>> {
        &self.near[id as usize % NEAR]
    }

    /// Makes lookups find `entry` without a search, unless `id` was removed meanwhile. Process
    /// context.
    fn note_near(&self, id: u32, entry: *mut Entry<T>) {
        // SAFETY: The table is valid. The lock is released below.
        unsafe { helpers::xa_lock_bh(self.xa.get()) };
        // SAFETY: The table is valid.
        if unsafe { bindings::xa_load(self.xa.get(), id as usize) } == entry.cast() {
            // INVARIANT: It is in `xa`, which is locked.
            self.near(id).store(entry, Release);
        }
        // SAFETY: Locked above.
        unsafe { helpers::xa_unlock_bh(self.xa.get()) };
    }

    /// Removes `id`. Process and softirq context.
    ///
    /// Readers that found it before may still use it. The table's own reference is dropped later,
    /// in process context. Returns `None` when `id` had no object.
    pub fn remove(&self, id: u32) -> Option<Arc<T>> {
        let entry = self.erase_entry(id)?;
        // SAFETY: It was there until now, and is freed by `retire` alone.
        let object = unsafe { entry.as_ref() }.object.clone();
        // SAFETY: It came from `KBox::into_raw` and was taken out just now.
        unsafe { Entry::retire(entry) };
        Some(object)
    }

    /// Removes the entry of `id`, if there is one. A reservation stays.
    fn erase_entry(&self, id: u32) -> Option<NonNull<Entry<T>>> {
        // SAFETY: The table is valid. The lock is released below.
        unsafe { helpers::xa_lock_bh(self.xa.get()) };
        // SAFETY: The table is valid. A reserved place reads as null.
        let entry = NonNull::new(unsafe { bindings::xa_load(self.xa.get(), id as usize) });
        let entry = entry.map(NonNull::cast::<Entry<T>>);
        if let Some(entry) = entry {
            // SAFETY: The table is valid and locked.
            unsafe { bindings::__xa_erase(self.xa.get(), id as usize) };
            // INVARIANT: The entry is removed from `near`, too.
            if self.near(id).read_once() == entry.as_ptr() {
                self.near(id).write_once(ptr::null_mut());
            }
        }
        // SAFETY: Locked above.
        unsafe { helpers::xa_unlock_bh(self.xa.get()) };
        entry
    }

    /// Calls `visit` for each number in use, in order. It may sleep.
    ///
    /// Entries that change meanwhile may be visited or not.
    pub fn for_each(&self, mut visit: impl FnMut(u32, ArcBorrow<'_, T>)) {
        let mut next = Some(0);
        while let Some((id, object)) = next.and_then(|from| self.first_from(from)) {
            visit(id, object.as_arc_borrow());
            next = id.checked_add(1);
        }
    }

    /// Returns the first number in use from `from` on, and its object. Any context.
    pub fn first_from(&self, from: u32) -> Option<(u32, Arc<T>)> {
        self.first_with(from, bindings::XA_PRESENT)
    }

    /// Returns the first number in use from `from` on, and its object, valid for the read-side critical
    /// section. Any context.
    pub fn borrow_first_from<'g>(
        &self,
        from: u32,
        guard: &'g impl ReadSide,
    ) -> Option<(u32, ArcBorrow<'g, T>)> {
        self.borrow_first_with(from, bindings::XA_PRESENT, guard)
    }

    /// Returns the first number in use that is [marked](Self::mark), from `from` on.
    pub fn first_marked_from(&self, from: u32) -> Option<(u32, Arc<T>)> {
        self.first_with(from, helpers::FERROCE_XA_MARK_1)
    }

    /// Marks `id`, if it is in use, or removes its mark. Process and softirq context.
    pub fn mark(&self, id: u32, is_marked: bool) {
        let xa = self.xa.get();
        // SAFETY: The table is valid. The lock is released below.
        unsafe { helpers::xa_lock_bh(xa) };
        // SAFETY: The table is valid and locked. The table does not use this mark itself, and the
        // function marks no empty place.
        unsafe {
            if is_marked {
                bindings::__xa_set_mark(xa, id as usize, helpers::FERROCE_XA_MARK_1);
            } else {
                bindings::__xa_clear_mark(xa, id as usize, helpers::FERROCE_XA_MARK_1);
            }
        }
        // SAFETY: Locked above.
        unsafe { helpers::xa_unlock_bh(xa) };
    }

    fn first_with(&self, from: u32, filter: bindings::xa_mark_t) -> Option<(u32, Arc<T>)> {
        let guard = rcu::read_lock();
        let (id, object) = self.borrow_first_with(from, filter, &guard)?;
        Some((id, object.into()))
    }

    fn borrow_first_with<'g>(
        &self,
        from: u32,
        filter: bindings::xa_mark_t,
        _guard: &'g impl ReadSide,
    ) -> Option<(u32, ArcBorrow<'g, T>)> {
        let mut index = from as usize;
        // SAFETY: The table is valid.
        let entry =
            unsafe { bindings::xa_find(self.xa.get(), &mut index, u32::MAX as usize, filter) };
        let entry = NonNull::new(entry.cast::<Entry<T>>())?;
        // SAFETY: The table had the entry in the read side that `_guard` proves, so it is not freed
        // before that ends.
        let object: *const Arc<T> = unsafe { ptr::addr_of!((*entry.as_ptr()).object) };
        // SAFETY: The entry owns a reference as long as it exists, and it exists for `'g`.
        let object = unsafe { ArcBorrow::from_raw(Arc::as_ptr(&*object)) };
        // CAST: The search ended at a number of 32 bits.
        Some((index as u32, object))
    }

    /// Waits until the table has given up its references to all objects that were removed before.
    /// Sleeps.
    ///
    /// Must not be called where an object of the table is dropped.
    pub fn flush(&self) {
        let mut count = self.leaving.count.lock();
        while *count != 0 {
            self.leaving.none.wait(&mut count);
        }
    }
}

#[pinned_drop]
impl<T: Send + Sync + 'static> PinnedDrop for IdTable<T> {
    fn drop(self: Pin<&mut Self>) {
        let mut next = Some(0);
        while let Some((id, object)) = next.and_then(|from| self.first_from(from)) {
            // This is not the last reference. The table's own is dropped later, in process context.
            drop(object);
            if let Some(entry) = self.erase_entry(id) {
                // SAFETY: It came from `KBox::into_raw` and was taken out just now.
                unsafe { Entry::retire(entry) };
            }
            next = id.checked_add(1);
        }
        // SAFETY: The table is valid and used no longer.
        unsafe { bindings::xa_destroy(self.xa.get()) };
    }
}

/// A number that is reserved, and has no object yet. Lookups do not find it.
///
/// Dropping it makes the number free again.
///
/// # Invariants
///
/// `id` is reserved in `table`, and this is its only reservation.
#[must_use = "a reservation that is dropped is given back"]
pub struct Reservation<'a, T: Send + Sync + 'static> {
    table: &'a IdTable<T>,
    id: u32,
}

impl<T: Send + Sync + 'static> Reservation<'_, T> {
    /// Returns the number.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Stores `object` under the number. Lookups find it from now on.
    ///
    /// May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `ENODEV` when the module is being unloaded. The number is free again then.
    pub fn publish(self, object: Arc<T>) -> Result {
        let entry = KBox::new(
            Entry {
                rcu_work: Opaque::zeroed(),
                id: self.id,
                object,
                leaving: self.table.leaving.clone(),
                end: self.table.end,
                hold: Hold::new()?,
            },
            GFP_KERNEL_ACCOUNT,
        )?;
        let entry = KBox::into_raw(entry);
        // SAFETY: The table is valid. The stored pointer is an entry, as the type invariants
        // require.
        let old = unsafe {
            helpers::xa_store_bh(
                self.table.xa.get(),
                self.id as usize,
                entry.cast(),
                bindings::GFP_KERNEL_ACCOUNT,
            )
        };
        // SAFETY: `xa_store` returned `old`.
        if let Err(error) = to_result(unsafe { bindings::xa_err(old) }) {
            // SAFETY: It came from `KBox::into_raw` and was not stored.
            drop(unsafe { KBox::from_raw(entry) });
            return Err(error);
        }
        self.table.note_near(self.id, entry);
        // The place is in use, so there is no reservation to give back.
        core::mem::forget(self);
        Ok(())
    }
}

impl<T: Send + Sync + 'static> Drop for Reservation<'_, T> {
    fn drop(&mut self) {
        let xa = self.table.xa.get();
        // SAFETY: The table is valid. By the type invariants the place is reserved and empty.
        unsafe {
            helpers::xa_lock_bh(xa);
            bindings::__xa_erase(xa, self.id as usize);
            helpers::xa_unlock_bh(xa);
        }
    }
}
