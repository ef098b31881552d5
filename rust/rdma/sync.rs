// SPDX-License-Identifier: GPL-2.0

//! Locks that disable bottom halves, evidence of read sides, marked accesses, and global state.
//!
//! Received packets, timers and freed frames run in softirq context. A [`BhSpinLock`] guards data that
//! they share with process context. A plain spinlock would deadlock when the softirq interrupts its
//! holder on the same CPU. The kernel may call some verbs in any context, even with interrupts disabled.
//! These use an [`IrqSpinLock`].
//!
//! Both are the kernel crate's [`Lock`] with a backend of ours. The crate has no lock that disables bottom
//! halves, and its `SpinLockIrq` exists from 7.3 on only. It has no evidence of other read sides of RCU
//! than its own guard, and no pointer that RCU protects, which a [`Global`] is.

use core::{
    marker::PhantomData,
    mem,
    ptr, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            AtomicType,
            Full, //
        },
        lock::{
            Backend,
            Guard,
            Lock, //
        },
        rcu,
        Arc, //
    },
    types::NotThreadSafe, //
};
use rdma_bindings as bindings;

/// Unordered accesses to an [`Atomic`] without a function call. Its own `load` and `store` each call a C
/// function.
pub trait Marked<T> {
    /// Loads the value by `READ_ONCE`, as `load(Relaxed)` does.
    fn read_once(&self) -> T;

    /// Stores the value by `WRITE_ONCE`, as `store(value, Relaxed)` does.
    fn write_once(&self, value: T);
}

impl<T: AtomicType> Marked<T> for Atomic<T> {
    #[inline(always)]
    fn read_once(&self) -> T {
        const { assert!(mem::size_of::<T>() <= mem::size_of::<usize>()) };
        // SAFETY: The pointer is valid and aligned, and the value is no wider than a word, which is
        // read in one step. The volatile read is a `READ_ONCE`, which races with no other marked
        // access.
        unsafe { self.as_ptr().read_volatile() }
    }

    #[inline(always)]
    fn write_once(&self, value: T) {
        const { assert!(mem::size_of::<T>() <= mem::size_of::<usize>()) };
        // SAFETY: The pointer is valid and aligned, and the value is no wider than a word, which is
        // written in one step. The volatile write is a `WRITE_ONCE`, which races with no other
        // marked access.
        unsafe { self.as_ptr().write_volatile(value) }
    }
}

/// Creates a [`BhSpinLock`] initialiser with a lock class of its own, and the given name if any.
#[macro_export]
macro_rules! new_bh_spinlock {
    ($inner:expr $(, $name:literal)? $(,)?) => {
        $crate::sync::BhSpinLock::new(
            $inner, ::kernel::optional_name!($($name)?), ::kernel::static_lock_class!())
    };
}
pub use new_bh_spinlock;

/// A spinlock that disables bottom halves while it is held.
///
/// For process and softirq context. Its holder must not sleep.
///
/// # Examples
///
/// ```
/// use rdma::sync::BhSpinLock;
///
/// #[pin_data]
/// struct Counted {
///     #[pin]
///     count: BhSpinLock<u32>,
/// }
///
/// let counted = KBox::pin_init(
///     pin_init!(Counted { count <- rdma::new_bh_spinlock!(0, "Counted::count") }),
///     GFP_KERNEL,
/// )?;
/// *counted.count.lock() += 1;
/// # Ok::<(), Error>(())
/// ```
pub type BhSpinLock<T> = Lock<T, BhSpinLockBackend>;

/// The guard of a locked [`BhSpinLock`].
pub type BhSpinLockGuard<'a, T> = Guard<'a, T, BhSpinLockBackend>;

/// A kernel `spinlock_t`, locked with bottom halves disabled.
pub struct BhSpinLockBackend;

// SAFETY: A `spinlock_t` gives mutual exclusion; `relock` is the default, which calls `lock`.
unsafe impl Backend for BhSpinLockBackend {
    type State = kernel::bindings::spinlock_t;
    type GuardState = ();

    /// # Safety
    ///
    /// `ptr` must be valid for writes and pinned, and `name` and `key` must be valid for ever.
    #[inline]
    unsafe fn init(
        ptr: *mut Self::State,
        name: *const kernel::ffi::c_char,
        key: *mut kernel::bindings::lock_class_key,
    ) {
        // SAFETY: `ptr` is valid for writes, `name` and `key` are valid for ever.
        unsafe { kernel::bindings::__spin_lock_init(ptr, name, key) }
    }

    /// # Safety
    ///
    /// `ptr` must have been passed to `init`.
    #[inline]
    unsafe fn lock(ptr: *mut Self::State) -> Self::GuardState {
        // SAFETY: `ptr` was initialised.
        unsafe { bindings::spin_lock_bh(ptr) }
    }

    /// # Safety
    ///
    /// `ptr` must have been passed to `init`, and the caller must hold the lock.
    #[inline]
    unsafe fn unlock(ptr: *mut Self::State, _guard_state: &Self::GuardState) {
        // SAFETY: The caller owns the lock.
        unsafe { bindings::spin_unlock_bh(ptr) }
    }

    /// # Safety
    ///
    /// `ptr` must have been passed to `init`.
    #[inline]
    unsafe fn try_lock(ptr: *mut Self::State) -> Option<Self::GuardState> {
        // SAFETY: `ptr` was initialised.
        (unsafe { bindings::spin_trylock_bh(ptr) } != 0).then_some(())
    }

    /// # Safety
    ///
    /// `ptr` must have been passed to `init`.
    #[inline]
    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // SAFETY: `ptr` was initialised.
        unsafe { kernel::bindings::spin_assert_is_held(ptr) }
    }
}

/// Creates an [`IrqSpinLock`] initialiser with a lock class of its own, and the given name if any.
#[macro_export]
macro_rules! new_irq_spinlock {
    ($inner:expr $(, $name:literal)? $(,)?) => {
        $crate::sync::IrqSpinLock::new(
            $inner, ::kernel::optional_name!($($name)?), ::kernel::static_lock_class!())
    };
}
pub use new_irq_spinlock;

/// A spinlock that disables interrupts while it is held, and leaves them as they were.
///
/// For every context. Its holder must not sleep, nor take a [`BhSpinLock`].
pub type IrqSpinLock<T> = Lock<T, IrqSpinLockBackend>;

/// A kernel `spinlock_t`, locked with interrupts disabled.
pub struct IrqSpinLockBackend;

// SAFETY: A `spinlock_t` gives mutual exclusion; `relock` is the default, which calls `lock`.
unsafe impl Backend for IrqSpinLockBackend {
    type State = kernel::bindings::spinlock_t;
    /// The flags of the CPU before.
    type GuardState = usize;

    /// # Safety
    ///
    /// `ptr` must be valid for writes and pinned, and `name` and `key` must be valid for ever.
    #[inline]
    unsafe fn init(
        ptr: *mut Self::State,
        name: *const kernel::ffi::c_char,
        key: *mut kernel::bindings::lock_class_key,
    ) {
        // SAFETY: `ptr` is valid for writes, `name` and `key` are valid for ever.
        unsafe { kernel::bindings::__spin_lock_init(ptr, name, key) }
    }

    /// # Safety
    ///
    /// `ptr` must have been passed to `init`.
    #[inline]
    unsafe fn lock(ptr: *mut Self::State) -> Self::GuardState {
        // SAFETY: `ptr` was initialised.
        unsafe { bindings::spin_lock_irqsave(ptr) }
    }

    /// # Safety
    ///
    /// `ptr` must have been passed to `init`, and the caller must hold the lock.
    #[inline]
    unsafe fn unlock(ptr: *mut Self::State, guard_state: &Self::GuardState) {
        // SAFETY: The caller owns the lock, and got the flags by taking it.
        unsafe { bindings::spin_unlock_irqrestore(ptr, *guard_state) }
    }

    /// # Safety
    ///
    /// `ptr` must have been passed to `init`.
    #[inline]
    unsafe fn try_lock(ptr: *mut Self::State) -> Option<Self::GuardState> {
        let mut flags = 0;
        // SAFETY: `ptr` was initialised.
        unsafe { bindings::spin_trylock_irqsave(ptr, &mut flags) }.then_some(flags)
    }

    /// # Safety
    ///
    /// `ptr` must have been passed to `init`.
    #[inline]
    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // SAFETY: `ptr` was initialised.
        unsafe { kernel::bindings::spin_assert_is_held(ptr) }
    }
}

/// Orders all loads and stores before it against all after it, for all CPUs.
#[inline]
pub fn full_barrier() {
    crate::compat::smp_mb();
}

/// Returns true if a [`BhSpinLock`] may be taken here: in process and softirq context, with interrupts
/// enabled.
#[inline]
pub fn may_disable_bh() -> bool {
    // SAFETY: Callable in any context.
    unsafe { bindings::may_disable_bh() }
}

/// Evidence that bottom halves are disabled on this CPU.
///
/// That is a read side of RCU too. Nothing may sleep as long as it exists.
///
/// # Invariants
///
/// Bottom halves are disabled as long as an instance exists, and it does not leave its thread.
pub struct BhDisabled(NotThreadSafe);

impl BhDisabled {
    /// Disables bottom halves. Nests. Process and softirq context.
    #[inline]
    pub fn new() -> Self {
        // SAFETY: Callable in process and softirq context.
        unsafe { bindings::local_bh_disable() };
        // INVARIANT: Disabled just now; enabled again by drop alone.
        Self(NotThreadSafe::default())
    }

    /// Returns evidence for a context in which bottom halves are disabled already.
    ///
    /// # Safety
    ///
    /// They must stay disabled as long as the result exists, and it must never be dropped, since
    /// that would enable them.
    #[inline]
    pub(crate) unsafe fn assume() -> core::mem::ManuallyDrop<Self> {
        // INVARIANT: By the safety requirements bottom halves stay disabled, and the result is
        // never dropped.
        core::mem::ManuallyDrop::new(Self(NotThreadSafe::default()))
    }
}

/// Returns evidence that bottom halves are disabled, from a lock that is held. Only the thread that has taken the lock
/// can borrow the guard mutably; it may share a reference with others.
#[inline]
pub fn bh_disabled<'g, T: ?Sized>(_guard: &'g mut BhSpinLockGuard<'_, T>) -> &'g BhDisabled {
    const { assert!(mem::size_of::<BhDisabled>() == 0) };
    // SAFETY: The type has no bytes, so any aligned pointer is good for a reference.
    // INVARIANT: The holder of the lock has bottom halves disabled, for as long as the guard is
    // borrowed; a reference is never dropped, and does not leave its thread.
    unsafe { ptr::NonNull::dangling().as_ref() }
}

impl Default for BhDisabled {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for BhDisabled {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: They were disabled by `new`.
        unsafe { bindings::local_bh_enable() };
    }
}

/// Evidence of a read-side critical section of RCU.
///
/// # Safety
///
/// As long as an instance exists, the thread that it is confined to is in such a section.
pub unsafe trait ReadSide {}

// SAFETY: By its invariants the guard holds the read side.
unsafe impl ReadSide for rcu::Guard {}

// SAFETY: A region with bottom halves disabled is a read side of RCU.
unsafe impl ReadSide for BhDisabled {}

/// A place for one shared object, for callbacks that have no argument to find it by.
///
/// It is for a `static`. The driver's state is [installed](Self::install) when the module is
/// loaded, and removed when the guard is dropped. In between any code can [get](Self::get) it.
///
/// # Invariants
///
/// `ptr` is null, or came from `Arc::into_raw` and owns that reference. A pointer that was taken
/// out stays valid for one more grace period of RCU.
pub struct Global<T> {
    ptr: Atomic<*mut T>,
    _p: PhantomData<Arc<T>>,
}

// SAFETY: It gives out clones of an `Arc<T>`, which needs `T: Send + Sync`.
unsafe impl<T: Send + Sync> Sync for Global<T> {}

impl<T: Send + Sync + 'static> Global<T> {
    /// Creates an empty place.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        // INVARIANT: The pointer is null.
        Self {
            ptr: Atomic::new(ptr::null_mut()),
            _p: PhantomData,
        }
    }

    /// Stores `value` until the guard is dropped.
    ///
    /// # Errors
    ///
    /// `EBUSY` when the place is taken.
    pub fn install(&'static self, value: Arc<T>) -> Result<GlobalGuard<T>> {
        let new = Arc::into_raw(value).cast_mut();
        // INVARIANT: `new` came from `Arc::into_raw`; when it is stored, the place owns the
        // reference.
        if self.ptr.cmpxchg(ptr::null_mut(), new, Full).is_ok() {
            return Ok(GlobalGuard(self));
        }
        // SAFETY: `new` came from `Arc::into_raw` above and was not stored.
        drop(unsafe { Arc::from_raw(new) });
        Err(EBUSY)
    }

    /// Returns the installed object, if any. Process and softirq context.
    pub fn get(&self) -> Option<Arc<T>> {
        let _rcu = rcu::read_lock();
        let ptr = self.ptr.load(Acquire);
        if ptr.is_null() {
            return None;
        }
        // SAFETY: By the type invariants the pointer came from `Arc::into_raw`, and its count is
        // not given back before a grace period that ends after this read side does.
        let borrowed = unsafe { kernel::sync::ArcBorrow::from_raw(ptr) };
        Some(borrowed.into())
    }
}

/// Keeps a [`Global`] filled.
///
/// Dropping it empties the place; sleeps for a grace period of RCU.
pub struct GlobalGuard<T: Send + Sync + 'static>(&'static Global<T>);

impl<T: Send + Sync + 'static> Drop for GlobalGuard<T> {
    fn drop(&mut self) {
        let ptr = self.0.ptr.xchg(ptr::null_mut(), Full);
        // SAFETY: This is process context, as documented.
        unsafe { kernel::bindings::synchronize_rcu() };
        // SAFETY: There is one guard for one `Arc::into_raw`. The readers of the pointer have ended
        // with the grace period.
        drop(unsafe { Arc::from_raw(ptr) });
    }
}
