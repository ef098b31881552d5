// SPDX-License-Identifier: GPL-2.0

//! One run at a time of a work item that several work queues have.
//!
//! The kernel runs no work item twice at a time on one work queue. On two queues it may.

use kernel::sync::atomic::{Atomic, Full};

/// Whose turn it is. Any context.
///
/// It is idle, taken, or taken and wanted: asked for again since it was taken.
pub(crate) struct Turn(Atomic<u32>);

const IDLE: u32 = 0;
const TAKEN: u32 = 1;
const WANTED: u32 = 2;

impl Turn {
    pub(crate) const fn new() -> Self {
        Self(Atomic::new(IDLE))
    }

    /// Takes the turn. Returns false if it is taken: its holder is [told](Self::end) then that it was
    /// wanted.
    pub(crate) fn begin(&self) -> bool {
        loop {
            if self.0.cmpxchg(IDLE, TAKEN, Full).is_ok() {
                return true;
            }
            // Also if it is wanted already: the run that is owed sees what was done before this.
            if self.0.cmpxchg(TAKEN, WANTED, Full).is_ok()
                || self.0.cmpxchg(WANTED, WANTED, Full).is_ok()
            {
                return false;
            }
        }
    }

    /// Gives the turn back. Returns true if it was wanted meanwhile: then another run is owed.
    #[must_use]
    pub(crate) fn end(&self) -> bool {
        self.0.xchg(IDLE, Full) == WANTED
    }
}
