// SPDX-License-Identifier: GPL-2.0

//! The clock.
//!
//! The `Instant` of the kernel crate does not tell other crates its nanoseconds, and the crate does not have
//! the current jiffies. So both are read here.

use core::ptr;
use kernel::{
    bindings,
    time::msecs_to_jiffies, //
};

/// Returns the time of the monotonic clock in nanoseconds, by which timers run. Any context.
#[inline]
pub fn now_ns() -> u64 {
    // SAFETY: Callable in any context.
    let now = unsafe { bindings::ktime_get() };
    // The monotonic clock starts at 0 and does not reach 2^63 in 292 years.
    now.unsigned_abs()
}

/// A time with the resolution of the kernel's tick, which is cheap to read.
#[derive(Clone, Copy)]
pub struct Ticks(usize);

impl Ticks {
    /// Returns the current time. Any context.
    #[inline]
    pub fn now() -> Self {
        // SAFETY: The counter always exists. It is one word, which is read in one step.
        Self(unsafe { ptr::read_volatile(&raw const bindings::jiffies) } as usize)
    }

    /// Returns true if more than `ms` milliseconds have passed since this time. Any context.
    pub fn is_past(self, ms: u32) -> bool {
        Self::now().0.wrapping_sub(self.0) > msecs_to_jiffies(ms)
    }
}

impl From<usize> for Ticks {
    fn from(count: usize) -> Self {
        Self(count)
    }
}

impl From<Ticks> for usize {
    fn from(time: Ticks) -> Self {
        time.0
    }
}
