// SPDX-License-Identifier: GPL-2.0

//! Scatter-gather elements: `struct rxe_dma_info` and the `struct rxe_sge` behind it.

use super::send_wqe::PostedSges;
use super::{put, u32_at, u64_at};
use crate::num::{Iova, Lkey};

/// Offsets in `struct rxe_dma_info`.
pub mod dma {
    /// `length`: bytes of the whole message.
    pub const LENGTH: usize = 0;
    /// `num_sge`.
    pub const NUM_SGE: usize = 12;
    /// Where the elements, or inline data, start: the size of the structure.
    pub const DATA: usize = 24;
}

/// Bytes of one `struct rxe_sge`.
pub const SGE_BYTES: usize = 16;

const ADDR: usize = 0;
const LENGTH: usize = 8;
const LKEY: usize = 12;

/// A scatter-gather element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sge {
    /// Where it starts.
    pub addr: Iova,
    /// Its length in bytes; may be 0.
    pub length: u32,
    /// The key that opens it.
    pub lkey: Lkey,
}

/// The scatter-gather elements of a work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sges<'a>(&'a [u8]);

impl<'a> Sges<'a> {
    /// Takes the first `count` elements of `bytes`, if there are that many.
    pub(super) fn new(bytes: &'a [u8], count: u32) -> Option<Self> {
        let len = usize::try_from(count).ok()?.checked_mul(SGE_BYTES)?;
        bytes.get(..len).map(Self)
    }

    /// Returns how many are left.
    pub fn count_left(&self) -> usize {
        self.0.len() / SGE_BYTES
    }

    /// Returns the sum of all lengths, unless it is more than 32 bits hold.
    // Rules: WRQ-4
    pub fn total(&self) -> Option<u32> {
        self.clone()
            .try_fold(0u32, |sum, sge| sum.checked_add(sge.length))
    }
}

impl Iterator for Sges<'_> {
    type Item = Sge;

    #[inline]
    fn next(&mut self) -> Option<Sge> {
        let (sge, rest) = self.0.split_first_chunk::<SGE_BYTES>()?;
        self.0 = rest;
        Some(Sge {
            addr: Iova(u64_at(sge, ADDR)?),
            length: u32_at(sge, LENGTH)?,
            lkey: Lkey(u32_at(sge, LKEY)?),
        })
    }
}

/// Encodes `sges` at the start of `area`. `None` if it has no room for them, or if their lengths
/// together are more than 32 bits hold.
pub fn encode_sges(area: &mut [u8], sges: impl Iterator<Item = Sge>) -> Option<PostedSges> {
    let mut posted = PostedSges {
        count: 0,
        length: 0,
    };
    let mut rest = area;
    for sge in sges {
        let (place, after) = rest.split_first_chunk_mut::<SGE_BYTES>()?;
        put(place, ADDR, sge.addr.0.to_ne_bytes())?;
        put(place, LENGTH, sge.length.to_ne_bytes())?;
        put(place, LKEY, sge.lkey.0.to_ne_bytes())?;
        posted.count = posted.count.checked_add(1)?;
        posted.length = posted.length.checked_add(sge.length)?;
        rest = after;
    }
    Some(posted)
}
