// SPDX-License-Identifier: GPL-2.0

//! The clock, and sleeping by it.

use kernel::bindings;

/// The time of the monotonic clock in nanoseconds, which timers go by. Any context.
#[inline]
pub fn now_ns() -> u64 {
    // SAFETY: Callable in any context.
    let now = unsafe { bindings::ktime_get() };
    // The monotonic clock starts at 0 and does not reach 2^63 in 292 years.
    now.unsigned_abs()
}

/// Sleeps for `ms` milliseconds at least. Process context.
pub fn msleep(ms: u32) {
    // SAFETY: The caller may sleep.
    unsafe { bindings::msleep(ms) };
}
