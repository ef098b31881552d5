// SPDX-License-Identifier: GPL-2.0

//! When a queue pair in ERR is looked at again, see [`crate::flush`].

/// When a queue pair is looked at for the first time.
const FIRST_NS: u64 = 25_000_000;

/// How often it is, each time after twice as long.
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
    /// With all others of its device that are idle.
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
