// SPDX-License-Identifier: GPL-2.0

//! When a queue pair in ERR is looked at again, see [`crate::flush`].

/// The time until the first check of a queue pair.
const FIRST_NS: u64 = 25_000_000;

/// The number of checks, each after twice the time.
const TIMES: u8 = 6;

/// Counts how often a queue pair in ERR was looked at. Guarded by the lock of its receive half.
#[derive(Default)]
pub(crate) struct Sweeps(u8);

/// When to look at a queue pair again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing can be posted unnoticed.
    Never,
    /// After so many nanoseconds.
    After(u64),
    /// Together with all other idle ones of its device.
    WithOthers,
}

impl Sweeps {
    /// Notes that it was looked at, and something was found or not. Returns when to look again.
    pub(crate) fn note(&mut self, found: bool) -> Next {
        if found {
            self.0 = 0;
        }
        if self.0 >= TIMES {
            return Next::WithOthers;
        }
        let after = FIRST_NS.wrapping_shl(self.0.into());
        self.0 = self.0.saturating_add(1);
        Next::After(after)
    }
}
