// SPDX-License-Identifier: GPL-2.0

//! Limits on the use of a resource by one owner.

use crate::sync::Marked;
use kernel::{
    alloc::flags::GFP_KERNEL_ACCOUNT,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// An owner's share of a common resource. Dropping a [`Charge`] gives its amount back.
pub struct Share {
    limit: usize,
    used: Atomic<usize>,
}

impl Share {
    /// Creates a share of `limit` units of any kind. May sleep.
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

    /// Returns the amount in use. Any context.
    #[inline]
    pub fn used(&self) -> usize {
        self.used.read_once()
    }

    /// Returns true if more than half of it is in use. Any context.
    pub fn is_half_used(&self) -> bool {
        self.used() > self.limit / 2
    }

    /// Takes `amount`. Any context.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if less than that is left.
    pub fn take(self: &Arc<Self>, amount: u32) -> Result<Charge> {
        // The sum cannot wrap, because it counts objects that exist.
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

/// An amount that was taken of a [`Share`], until this is dropped. Any context.
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
