// SPDX-License-Identifier: GPL-2.0

//! Telling a peer that its packets meet congestion.

use crate::limits::CNP_INTERVAL_US;
use crate::time::{Instant, Micros};

/// Decides which marked packets are answered by a CNP: of a queue pair at most one in 50 µs.
#[derive(Clone, Copy, Debug)]
pub struct Notifier {
    told_at: Micros,
}

impl Default for Notifier {
    fn default() -> Self {
        Self {
            told_at: Micros::LONG_AGO,
        }
    }
}

impl Notifier {
    /// Notes that a packet was marked on its way. Returns true if the peer is to be told.
    // Rules: CNP-3
    #[must_use]
    pub fn marked(&mut self, now: Instant) -> bool {
        let now = Micros::of(now);
        if now.since(self.told_at) < CNP_INTERVAL_US {
            return false;
        }
        self.told_at = now;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rules: CNP-3
    #[test]
    fn tells_no_more_than_once_in_an_interval() {
        let mut notifier = Notifier::default();
        let told = (0..1000u64).filter(|&us| notifier.marked(Instant::from_ns(us * 1000)));
        assert_eq!(told.count(), 1000 / 50);
    }
}
