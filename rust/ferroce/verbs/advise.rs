// SPDX-License-Identifier: GPL-2.0

//! Advice about memory regions: what will be used soon.

use kernel::prelude::*;
use kernel::sync::{rcu, Arc};
use kernel::workqueue::{impl_has_work, new_work, Work, WorkItem};
use rdma::object::Pd as IbPd;
use rdma::odp::{Intent, OnDemand};
use rdma::ops::{Advice, AdvisedRange};
use rdma::slots::Slots;
use roce::num::Iova;

use super::Verbs;
use crate::memory::Mr;
use crate::table;

/// A range to be brought in.
struct Piece {
    memory: Arc<OnDemand>,
    at: u64,
    len: u32,
}

/// Ranges that are brought in later.
#[pin_data]
struct Prefetch {
    pieces: Slots<Option<Piece>>,
    intent: Intent,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Prefetch { self.work }
}

impl WorkItem for Prefetch {
    type Pointer = Pin<KBox<Self>>;

    fn run(this: Self::Pointer) {
        // It was advice: nobody waits for what comes of it.
        let _ = bring_in(&this.pieces, this.intent);
    }
}

/// Brings in what `ranges` name, which is memory of `pd`'s regions that is paged in on demand; before
/// it returns, or else soon.
///
/// # Errors
///
/// `EFAULT` if a range has no such region or is not all in it, or if its memory is to be written to
/// and may not; if it is brought in at once, also if the process has no such memory. `ENOMEM`.
pub(super) fn advise(
    pd: &IbPd<Verbs>,
    advice: Advice,
    at_once: bool,
    ranges: &[AdvisedRange],
) -> Result {
    let intent = match advice {
        Advice::Prefetch => Intent::Read,
        Advice::PrefetchWrite => Intent::Write,
        Advice::PrefetchNoFault => Intent::Look,
    };
    let mut pieces = Slots::new(ranges.len(), GFP_KERNEL_ACCOUNT)?;
    for (place, range) in pieces.iter_mut().zip(ranges) {
        *place = Some(piece(pd, range, intent)?);
    }
    if at_once {
        return bring_in(&pieces, intent);
    }
    let prefetch = KBox::pin_init(
        pin_init!(Prefetch {
            pieces,
            intent,
            work <- new_work!("ferroce::Prefetch"),
        }),
        GFP_KERNEL_ACCOUNT,
    )?;
    pd.device().queues.faults.enqueue(prefetch);
    Ok(())
}

fn piece(pd: &IbPd<Verbs>, range: &AdvisedRange, intent: Intent) -> Result<Piece> {
    let guard = rcu::read_lock();
    let mr = pd.device().mrs.get(table::index_of(range.lkey()), &guard);
    let mr: Arc<Mr> = mr.ok_or(EFAULT)?.into();
    let (at, len) = (Iova(range.addr()), range.len());
    let offset = mr.offset_for(**pd, range.lkey(), at, len);
    let offset = offset.map_err(|_| EFAULT)?;
    let memory = mr.on_demand().ok_or(EFAULT)?;
    if intent == Intent::Write && !memory.is_writable() {
        return Err(EFAULT);
    }
    Ok(Piece {
        memory,
        at: offset,
        len,
    })
}

fn bring_in(pieces: &[Option<Piece>], intent: Intent) -> Result {
    for piece in pieces.iter().flatten() {
        let brought = piece
            .memory
            .fault_in(piece.at, u64::from(piece.len), intent);
        match brought {
            Err(error) if error == EPERM => return Err(EFAULT),
            other => other?,
        }
    }
    Ok(())
}
