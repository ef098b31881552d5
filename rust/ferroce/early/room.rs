// SPDX-License-Identifier: GPL-2.0

//! The memory that early packets of all queue pairs may take.
//!
//! It is counted in bytes, with all that the kernel keeps for a packet. A peer decides how much that is: a packet that
//! came in small fragments has a buffer for each of them. The bound is the same for all sizes of pages.
//!
//! This file has no dependency, so the host's tests compile it, too.

/// The most bytes of all.
const MOST: usize = 128 << 20;

/// Returns the most bytes of the first packet of a half, which is kept in any case: four times the room for the largest
/// path MTU, or two pages. With large pages, some network devices use a whole one for each packet.
const fn most_of_first(page_bytes: usize) -> usize {
    let (least, two_pages) = (32 << 10, page_bytes.saturating_mul(2));
    if two_pages > least {
        two_pages
    } else {
        least
    }
}

/// Returns true if a packet of so many bytes may be kept, beside `kept` bytes of others. `is_first` says that its half
/// keeps no other.
#[inline]
pub(super) const fn has_room(kept: usize, bytes: usize, is_first: bool, page_bytes: usize) -> bool {
    kept.saturating_add(bytes) <= MOST || (is_first && bytes <= most_of_first(page_bytes))
}
