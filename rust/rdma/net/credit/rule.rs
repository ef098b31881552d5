// SPDX-License-Identifier: GPL-2.0

//! How requests and replies share a credit.
//!
//! A network that is slow has all frames of the credit most of the time. If both had it in common, the one that
//! is run more often would take each frame that comes back, and the other one would never be sent. So each
//! of them may always have some frames in the network, and only the rest is for both.
//!
//! This file has no dependency, so the host's tests compile it, too.

/// Returns true if one more frame may be sent, of a credit for `limit` frames. The network has `own` frames of
/// the same use, and `others` of the other one.
#[inline]
pub(super) const fn is_available(limit: u32, own: u32, others: u32) -> bool {
    own < limit / 4 || own.saturating_add(others) < limit
}

/// Returns true if there is credit again for all of those that wait.
#[inline]
pub(super) const fn resumes_all(limit: u32, own: u32, others: u32) -> bool {
    own.saturating_add(others) <= limit / 2
}

/// Returns true if there is credit again for a use that has `own` frames in the network, regardless of the other
/// one: half of what it has in any case.
#[inline]
pub(super) const fn resumes_one(limit: u32, own: u32) -> bool {
    own < limit / 8
}
