// SPDX-License-Identifier: GPL-2.0

//! How much of something one owner may have.

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::Arc;

use crate::sync::Marked;

/// An owner's share of what all have in common. What is taken of it is given back when the
/// [`Charge`] is dropped.
pub struct Share {
    limit: usize,
    used: Atomic<usize>,
}

impl Share {
    /// A share of `limit` units, whatever these are. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(limit: usize) -> Result<Arc<Self>> {
        let share = Self {
            limit,
            used: Atomic::new(0),
        };
        Ok(Arc::new(share, GFP_KERNEL_ACCOUNT)?)
    }

    /// How much is in use. Any context.
    #[inline]
    pub fn used(&self) -> usize {
        self.used.read_once()
    }

    /// Takes `amount`. Any context.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if as much is not left.
    pub fn take(self: &Arc<Self>, amount: u32) -> Result<Charge> {
        // The sum cannot wrap: it counts things that exist.
        let before = self.used.fetch_add(amount as usize, Relaxed);
        // INVARIANT: Counted just now.
        let charge = Charge {
            share: self.clone(),
            amount,
        };
        if before.saturating_add(amount as usize) > self.limit {
            return Err(ENOMEM);
        }
        Ok(charge)
    }
}

/// What was taken of a [`Share`], until it is dropped. Any context.
///
/// # Invariants
///
/// `amount` is counted in `share.used`.
pub struct Charge {
    share: Arc<Share>,
    amount: u32,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.share.used.fetch_sub(self.amount as usize, Relaxed);
    }
}
