// SPDX-License-Identifier: GPL-2.0

//! Memory that a key granted.

use kernel::prelude::*;
use kernel::sync::{Arc, ArcBorrow};
use rdma::odp::Intent;
use rdma::pages::{Backing, Pages};
use roce::host::AccessError;
use roce::wr::{AtomicOp, ATOMIC_BYTES};

use super::absent::{Absent, Miss};
use super::check::{Claim, Generation, Place};
use super::fast::FastMr;
use super::mr::Mr;
use super::mw::Mw;
use crate::table::QpId;

/// A checked piece of memory, with a reference to its region or window.
///
/// # Invariants
///
/// `offset + room` does not exceed the end of the region, and `room` is at most `len`.
pub(crate) struct Segment {
    source: Source,
    /// Where in the region it starts.
    offset: u64,
    len: u32,
    /// How many of these bytes the region has.
    room: u32,
}

/// The object that granted it. A key that work requests invalidate may be invalid since then.
enum Source {
    Mr(Arc<Mr>),
    Mw(Arc<Mw>, Generation),
    Fast(Arc<FastMr>, Generation),
}

// There is one for each work request in progress.
const _: () = assert!(core::mem::size_of::<Segment>() <= 40);

impl Segment {
    /// Returns the claimed part of a region, which should have `len` bytes.
    #[inline]
    pub(super) fn of_mr(
        mr: ArcBorrow<'_, Mr>,
        claim: &Claim,
        len: u32,
    ) -> Result<Self, AccessError> {
        let place = mr.admit(claim)?;
        Ok(Self::new(Source::Mr(mr.into()), place, len))
    }

    /// Creates a piece of a window for a queue pair.
    pub(super) fn of_mw(
        mw: ArcBorrow<'_, Mw>,
        qp: QpId,
        claim: &Claim,
        len: u32,
    ) -> Result<Self, AccessError> {
        let (place, generation) = mw.admit(qp, claim, |mr, place, generation| {
            mr.is_there()
                .then_some((place, generation))
                .ok_or(AccessError)
        })?;
        Ok(Self::new(Source::Mw(mw.into(), generation), place, len))
    }

    /// Creates a piece of a region that work requests register.
    pub(super) fn of_fast(
        mr: ArcBorrow<'_, FastMr>,
        claim: &Claim,
        len: u32,
    ) -> Result<Self, AccessError> {
        let (place, generation) = mr.admit(claim)?;
        Ok(Self::new(Source::Fast(mr.into(), generation), place, len))
    }

    #[inline]
    fn new(source: Source, place: Place, len: u32) -> Self {
        // INVARIANT: All that is at the place is in the region.
        Self {
            source,
            offset: place.offset,
            len,
            // CAST: It is no more than `len`.
            room: place.len.min(len.into()) as u32,
        }
    }

    /// Returns its bytes.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Runs `copy` on the memory, with where in it the `len` bytes from byte `at` of this piece on are,
    /// if the grant still holds, and has it hold meanwhile.
    #[inline]
    pub(crate) fn with_pages<R>(
        &self,
        at: u32,
        len: u32,
        intent: Intent,
        copy: impl FnOnce(&Backing, u64, usize) -> Result<R>,
    ) -> Result<R, Miss> {
        let end = at.checked_add(len).ok_or(Miss::Gone)?;
        let ahead = self.room.checked_sub(end).ok_or(Miss::Gone)?;
        let start = self.offset.wrapping_add(at.into());
        let copy = |pages: &Backing| copy(pages, start, len as usize);
        let absent = |mr: &Arc<Mr>| Absent::page(mr, start, len, ahead, intent);
        match &self.source {
            Source::Mr(mr) => copy_in(mr, copy, absent),
            Source::Mw(mw, generation) => mw
                .while_granted(*generation, |mr| copy_in(mr, copy, absent))
                .ok_or(Miss::Gone)?,
            Source::Fast(mr, generation) => mr
                .while_granted(*generation, copy)
                .ok_or(Miss::Gone)?
                .map_err(|_| Miss::Gone),
        }
    }

    /// Stores `word` in the first eight bytes, atomically.
    pub(crate) fn store(&self, word: u64) -> Result<(), Miss> {
        self.with_pages(0, ATOMIC_BYTES, Intent::Write, |pages, start, _| {
            pages.store(start, word)
        })
    }

    /// Executes `op` on the first bytes, atomically. Returns their old value.
    // Rules: RDA-16
    pub(crate) fn atomic(&self, op: AtomicOp) -> Result<u64, Miss> {
        self.with_pages(0, ATOMIC_BYTES, Intent::Write, |pages, start, _| match op {
            AtomicOp::CompareSwap { compare, swap } => pages.compare_swap(start, compare, swap),
            AtomicOp::FetchAdd { add } => pages.fetch_add(start, add),
        })
    }
}

/// Runs `copy` on a region's memory. `absent` returns the part that must be faulted in.
#[inline]
fn copy_in<R>(
    mr: &Arc<Mr>,
    copy: impl FnOnce(&Backing) -> Result<R>,
    absent: impl FnOnce(&Arc<Mr>) -> Absent,
) -> Result<R, Miss> {
    let copied = mr.while_there(copy).ok_or(Miss::Gone)?;
    copied.map_err(|error| {
        if error == EAGAIN {
            Miss::Absent(absent(mr))
        } else {
            Miss::Gone
        }
    })
}
