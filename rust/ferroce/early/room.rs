// SPDX-License-Identifier: GPL-2.0

//! The memory that early packets of all queue pairs may take.
//!
//! It is counted in buffers, each of which has room for the largest packet of a path. A peer decides how many
//! buffers a packet has: one that came in small fragments has a buffer for each of them.
//!
//! This file has no dependency, so the host's tests compile it, too.

/// The most buffers of all.
const MOST: usize = 1 << 14;

/// The most buffers of the first packet of a half, which is kept in any case.
const MOST_OF_FIRST: usize = 4;

/// Returns true if a packet of so many buffers may be kept, beside `kept` buffers of others. `is_first` says
/// that its half keeps no other.
#[inline]
pub(super) const fn has_room(kept: usize, buffers: usize, is_first: bool) -> bool {
    kept.saturating_add(buffers) <= MOST || (is_first && buffers <= MOST_OF_FIRST)
}
