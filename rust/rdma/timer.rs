// SPDX-License-Identifier: GPL-2.0

//! High-resolution timers that expire in softirq context.
//!
//! A [`Timer`] is a field of the object that it serves, which lives in an [`Arc`]. It does nothing
//! until a [`TimerGuard`] enables it. The guard owns a reference to the object, so the callback
//! never sees an object that is being dropped, and never drops the last reference. Dropping the
//! guard stops the timer permanently. The driver keeps the guard in an object that is destroyed in
//! process context.
//!
//! The `HrTimer` of the kernel crate does not serve. Each start returns a handle, whose drop cancels the
//! timer and waits for the callback. So softirq context cannot start a timer again. A driver may also leak the
//! handle, and the timer may then expire after the module's text was freed.
//!
//! Arming is lazy: a timer is only ever moved to an *earlier* time. If it expires too early for its
//! owner, the callback arms it again. So a retransmission timer is armed once per interval, not once
//! per packet.
//!
//! # Examples
//!
//! ```
//! use kernel::sync::{
//!     Arc,
//!     ArcBorrow, //
//! };
//! use rdma::timer::{
//!     impl_has_timer,
//!     now_ns,
//!     Timer,
//!     TimerCallback,
//!     TimerGuard, //
//! };
//!
//! #[pin_data]
//! struct Qp {
//!     #[pin]
//!     retry: Timer<Self>,
//! }
//!
//! impl_has_timer! {
//!     impl HasTimer<Self> for Qp { self.retry }
//! }
//!
//! impl TimerCallback for Qp {
//!     fn expired(this: ArcBorrow<'_, Self>) {
//!         this.retry.arm_at(now_ns() + 2_000_000);
//!     }
//! }
//!
//! let qp = Arc::pin_init(pin_init!(Qp { retry <- Timer::new() }), GFP_KERNEL)?;
//! let guard = TimerGuard::new(qp.clone())?;
//! qp.retry.arm_at(now_ns() + 1_000_000);
//! # Ok::<(), Error>(())
//! ```

use crate::{
    compat::{
        smp_mb,
        HRTIMER_NORESTART, //
    },
    module::Hold,
    new_bh_spinlock,
    sync::{
        BhSpinLock,
        Marked, //
    }, //
};
use core::marker::{
    PhantomData,
    PhantomPinned, //
};
use kernel::{
    bindings,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full, //
        },
        Arc,
        ArcBorrow, //
    },
    types::Opaque, //
};

pub use crate::time::now_ns;

/// A timer, embedded in the `T` whose [`TimerCallback::expired`] it calls.
///
/// `ID` tells several timers of one type apart.
///
/// # Invariants
///
/// `timer` is started only with `state` held and [`State::Enabled`]. The state is that only as long
/// as a [`TimerGuard`] keeps the `T` that contains this timer.
#[pin_data]
pub struct Timer<T, const ID: u64 = 0> {
    #[pin]
    timer: Opaque<bindings::hrtimer>,
    /// The time at which it expires; [`NEVER`](Self::NEVER) when it is not armed.
    deadline_ns: Atomic<u64>,
    /// Taken in softirq; nothing is taken inside it.
    #[pin]
    state: BhSpinLock<State>,
    #[pin]
    _pin: PhantomPinned,
    _owner: PhantomData<fn(T)>,
}

/// Whether a timer may be started.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// There is no guard.
    Disabled,
    /// There is a guard.
    Enabled,
    /// The guard is being dropped.
    Stopping,
}

// SAFETY: The kernel's timers may be used from any thread.
unsafe impl<T, const ID: u64> Send for Timer<T, ID> {}
// SAFETY: Starting and cancelling are synchronised by the kernel; the rest is atomic or locked.
unsafe impl<T, const ID: u64> Sync for Timer<T, ID> {}

/// The callback of a timer.
pub trait TimerCallback<const ID: u64 = 0>:
    HasTimer<Self, ID> + Sized + Send + Sync + 'static
{
    /// Handles the expiry of the timer, at the time for which it was armed or at an earlier one.
    ///
    /// Softirq context, with no lock held. Never runs twice at a time for one timer. It is called
    /// once more after every [`Timer::arm_at`] that found the timer armed, and arms it again if it
    /// has to.
    fn expired(this: ArcBorrow<'_, Self>);
}

/// Declares that a type contains a [`Timer`]; implemented by [`impl_has_timer!`](crate::impl_has_timer).
///
/// # Safety
///
/// The two functions must be inverse to one another and name the same field of type
/// `Timer<T, ID>`.
pub unsafe trait HasTimer<T, const ID: u64 = 0> {
    /// Returns the timer of an object.
    ///
    /// # Safety
    ///
    /// `this` must point to a valid object.
    unsafe fn raw_get_timer(this: *const Self) -> *const Timer<T, ID>;

    /// Returns the object of a timer.
    ///
    /// # Safety
    ///
    /// `timer` must point to that field of an object.
    unsafe fn timer_container_of(timer: *const Timer<T, ID>) -> *const Self;
}

/// Implements [`HasTimer`](crate::timer::HasTimer) for a type with a field of type
/// [`Timer`](crate::timer::Timer).
#[macro_export]
macro_rules! impl_has_timer {
    ($(impl$({$($generics:tt)*})? HasTimer<$timer_type:ty $(, $id:tt)?> for $self:ty
       { self.$field:ident })*) => {$(
        // SAFETY: Only compiles if the field has the right type; `container_of!` inverts the
        // projection.
        unsafe impl$(<$($generics)+>)? $crate::timer::HasTimer<$timer_type $(, $id)?> for $self {
            /// # Safety
            ///
            /// `this` must be valid.
            #[inline]
            unsafe fn raw_get_timer(
                this: *const Self,
            ) -> *const $crate::timer::Timer<$timer_type $(, $id)?> {
                // SAFETY: The caller promises that the pointer is valid.
                unsafe { ::core::ptr::addr_of!((*this).$field) }
            }

            /// # Safety
            ///
            /// `timer` must point to that field of a valid `Self`.
            #[inline]
            unsafe fn timer_container_of(
                timer: *const $crate::timer::Timer<$timer_type $(, $id)?>,
            ) -> *const Self {
                // SAFETY: The caller promises that it points to that field.
                unsafe { ::kernel::container_of!(timer.cast_mut(), Self, $field) }.cast_const()
            }
        }
    )*};
}
pub use impl_has_timer;

impl<T: TimerCallback<ID>, const ID: u64> Timer<T, ID> {
    const NEVER: u64 = u64::MAX;

    /// Creates a timer that is disabled.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            timer <- Opaque::ffi_init(|timer| {
                // SAFETY: `timer` is valid for writes, and pinned from now on.
                unsafe {
                    bindings::hrtimer_setup(
                        timer,
                        Some(Self::run),
                        bindings::CLOCK_MONOTONIC as bindings::clockid_t,
                        bindings::hrtimer_mode_HRTIMER_MODE_ABS_SOFT,
                    )
                }
            }),
            deadline_ns: Atomic::new(Self::NEVER),
            state <- new_bh_spinlock!(State::Disabled, "Timer::state"),
            _pin: PhantomPinned,
            _owner: PhantomData,
        })
    }

    /// Arms the timer for `deadline_ns` of [`now_ns`], unless it is armed for an earlier time.
    ///
    /// A timer with a deadline in the past expires at once. No effect while there is no
    /// [`TimerGuard`]. Process and softirq context; may be called with locks held that the callback
    /// takes.
    pub fn arm_at(&self, deadline_ns: u64) {
        // `ktime_t` ends at 2^63 - 1, which the kernel takes for never.
        let deadline_ns = deadline_ns.min(i64::MAX.unsigned_abs() - 1);

        // Pairs with the exchange in `run`: either this sees that the timer has expired, or the
        // callback sees what the caller changed before.
        smp_mb();
        if self.deadline_ns.read_once() <= deadline_ns {
            return;
        }
        let state = self.state.lock();
        if *state != State::Enabled || self.deadline_ns.read_once() <= deadline_ns {
            return;
        }
        self.deadline_ns.write_once(deadline_ns);
        // SAFETY: The timer was set up by `new`.
        // INVARIANT: `state` is held and `Enabled`.
        unsafe {
            bindings::hrtimer_start_range_ns(
                self.timer.get(),
                deadline_ns as i64,
                0,
                bindings::hrtimer_mode_HRTIMER_MODE_ABS_SOFT,
            )
        };
    }

    /// # Safety
    ///
    /// Only the kernel may call it, on a timer that [`arm_at`](Self::arm_at) started.
    unsafe extern "C" fn run(timer: *mut bindings::hrtimer) -> bindings::hrtimer_restart {
        // SAFETY: The kernel passes the timer that was started, which is the field of a `Timer`.
        let this: *const Self =
            unsafe { kernel::container_of!(Opaque::cast_from(timer).cast_mut(), Self, timer) };
        // SAFETY: By the type invariants the object is alive: a guard's drop waits for this
        // callback.
        unsafe { &*this }.deadline_ns.xchg(Self::NEVER, Full);
        // SAFETY: `this` is the field that `HasTimer` names: only that of a guard's object is ever
        // enabled, and so started. The guard's reference keeps the count above zero.
        let owner = unsafe { ArcBorrow::from_raw(T::timer_container_of(this)) };
        T::expired(owner);
        HRTIMER_NORESTART
    }
}

/// Enables a [`Timer`]; stops it when dropped.
///
/// Dropping waits for a callback that is running. It must not happen in the callback itself, in
/// softirq context, or under a lock that the callback takes.
///
/// # Invariants
///
/// The timer of `owner` is enabled by this guard alone.
pub struct TimerGuard<T: TimerCallback<ID>, const ID: u64 = 0> {
    owner: Arc<T>,
    _hold: Hold,
}

impl<T: TimerCallback<ID>, const ID: u64> TimerGuard<T, ID> {
    /// Enables the timer in `owner`. Process and softirq context.
    ///
    /// # Errors
    ///
    /// `EBUSY` when there is a guard already, `ENODEV` when the module is being unloaded.
    pub fn new(owner: Arc<T>) -> Result<Self> {
        let hold = Hold::new()?;
        {
            let mut state = Self::timer_of(&owner).state.lock();
            if *state != State::Disabled {
                return Err(EBUSY);
            }
            *state = State::Enabled;
        }
        // INVARIANT: It was not enabled before.
        Ok(Self { owner, _hold: hold })
    }

    fn timer_of(owner: &Arc<T>) -> &Timer<T, ID> {
        // SAFETY: The object is valid, and so is its field.
        unsafe { &*T::raw_get_timer(Arc::as_ptr(owner)) }
    }
}

impl<T: TimerCallback<ID>, const ID: u64> Drop for TimerGuard<T, ID> {
    fn drop(&mut self) {
        let timer = Self::timer_of(&self.owner);
        *timer.state.lock() = State::Stopping;
        // From here on nobody starts it.
        //
        // SAFETY: The timer was set up by `Timer::new`.
        unsafe { bindings::hrtimer_cancel(timer.timer.get()) };
        timer.deadline_ns.write_once(Timer::<T, ID>::NEVER);
        *timer.state.lock() = State::Disabled;
    }
}
