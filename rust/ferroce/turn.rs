// SPDX-License-Identifier: GPL-2.0

//! Runs a work item that uses several workqueues once at a time.
//!
//! The kernel runs no work item twice at a time on one workqueue. On two workqueues it may.

use kernel::sync::atomic::{Atomic, Full};

/// The turn of a work item. Any context.
///
/// It is idle, taken, or taken and wanted: requested again since it was taken.
pub(crate) struct Turn(Atomic<u32>);

const IDLE: u32 = 0;
const TAKEN: u32 = 1;
const WANTED: u32 = 2;

impl Turn {
    pub(crate) const fn new() -> Self {
        Self(Atomic::new(IDLE))
    }

    /// Takes the turn. Returns false if it is taken; then [`end`](Self::end) tells its holder that it
    /// was wanted.
    pub(crate) fn begin(&self) -> bool {
        loop {
            if self.0.cmpxchg(IDLE, TAKEN, Full).is_ok() {
                return true;
            }
            // Also if it is wanted already: the owed run sees all work that was done before this.
            if self.0.cmpxchg(TAKEN, WANTED, Full).is_ok()
                || self.0.cmpxchg(WANTED, WANTED, Full).is_ok()
            {
                return false;
            }
        }
    }

    /// Releases the turn. Returns true if it was wanted meanwhile: then the caller must cause another
    /// run.
    #[must_use]
    pub(crate) fn end(&self) -> bool {
        self.0.xchg(IDLE, Full) == WANTED
    }
}
