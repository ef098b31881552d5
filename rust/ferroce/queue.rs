// SPDX-License-Identifier: GPL-2.0

//! Work queues: rings that a process or the kernel fills and the driver empties.

use kernel::prelude::*;
use rdma::ring::SharedRing;
use rdma::slots::Slots;

/// The driver's end of a send or receive queue.
///
/// Two positions of our own walk the ring: `taken` is how far slots were copied out, `retired` how
/// far they are free again, which alone the process is told.
// Rules: WRQ-14
pub(crate) struct WorkQueue {
    shared: SharedRing,
    taken: u32,
    retired: u32,
}

impl WorkQueue {
    pub(crate) fn new(shared: SharedRing) -> Self {
        Self {
            shared,
            taken: 0,
            retired: 0,
        }
    }

    /// Copies the oldest slot that was not taken yet to `copy`; false if there is none.
    ///
    /// This is the only time that its memory is read, unless it is left where it is.
    // Rules: RTY-14, WRQ-1
    pub(crate) fn copy_next(&self, copy: &mut [u8]) -> bool {
        if self.taken == self.shared.producer() {
            return false;
        }
        self.shared.read(self.taken, copy);
        true
    }

    /// Takes the slot that was copied last.
    pub(crate) fn take(&mut self) {
        self.taken = self.shared.next(self.taken);
    }

    /// Gives the oldest taken slot back to the process.
    // Rules: WRQ-13
    pub(crate) fn retire(&mut self) {
        self.retired = self.shared.next(self.retired);
        self.shared.set_consumer(self.retired);
    }

    /// Returns how many slots were posted and not taken.
    pub(crate) fn waiting(&self) -> u32 {
        self.shared.shape().used(self.shared.producer(), self.taken)
    }

    /// Returns true if all that was posted is complete.
    #[inline]
    pub(crate) fn is_drained(&self) -> bool {
        self.retired == self.shared.producer()
    }

    /// Begins to move posted requests to `to`, in [`PIECE`]s. The [`Move`] must be
    /// [informed](Move::skip) of each request that is taken from now on.
    pub(crate) fn begin_move(&self, to: SharedRing, piece: u32) -> Move {
        Move::new(&self.shared, to, piece)
    }

    /// Copies the next piece by way of `slot`, which is as large as a slot. Returns whether all of it is
    /// there now.
    ///
    /// # Errors
    ///
    /// Those of [`Move::copy`].
    pub(crate) fn copy_piece(&self, moving: &mut Move, slot: &mut [u8]) -> Result<bool> {
        moving.copy(&self.shared, self.taken, self.waiting(), slot)
    }

    /// Continues in the new ring, which has all slots. Returns the old queue.
    pub(crate) fn complete_move(&mut self, moving: &Move) -> Self {
        let (head, _) = moving.publish();
        let new = Self {
            shared: moving.to.clone(),
            taken: head,
            retired: head,
        };
        core::mem::replace(self, new)
    }

    /// Drops all posted requests.
    pub(crate) fn reset(&mut self) {
        let producer = self.shared.producer();
        self.taken = producer;
        self.retired = producer;
        self.shared.set_consumer(producer);
    }
}

/// How many slots are copied at a time where a ring is replaced by another one, and how many bytes.
pub(crate) const PIECE: u32 = 64;
const PIECE_BYTES: usize = 16 << 10;

/// The state of a copy from one ring to another one with slots of the same size.
///
/// The copy proceeds in pieces, so a waiter for the ring's lock waits for one piece at most. Between two
/// pieces slots may be taken and filled.
pub(crate) struct Move {
    to: SharedRing,
    /// Where in `to` the oldest of those is that were copied and not taken since, and how many these
    /// are. Neither is ever read from `to`: a process may have mapped it already.
    head: u32,
    copied: u32,
    /// How many may still be copied: others may take and fill them faster than that.
    left: u32,
    piece: u32,
}

impl Move {
    /// Starts a move. `to` has no slot of `from` yet.
    pub(crate) fn new(from: &SharedRing, to: SharedRing, piece: u32) -> Self {
        // As a divisor it is not 0. CAST: It is no more than `PIECE_BYTES`.
        let fits = PIECE_BYTES.checked_div(from.slot_bytes()).unwrap_or(1) as u32;
        Self {
            to,
            head: 0,
            copied: 0,
            left: from.shape().slots().saturating_mul(2),
            piece: piece.min(fits).max(1),
        }
    }

    /// Removes the `count` oldest slots, which were taken in the old ring.
    pub(crate) fn skip(&mut self, count: u64) {
        let skipped = u64::from(self.copied).min(count) as u32;
        self.head = self.head.wrapping_add(skipped);
        self.copied = self.copied.wrapping_sub(skipped);
    }

    /// Copies the next piece of the `count` slots that are in `from` now, from `start` on. Returns whether
    /// all of them are there now.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is too little room for them; `EBUSY` if this has gone on for too long, as
    /// others took and filled slots meanwhile.
    pub(crate) fn copy(
        &mut self,
        from: &SharedRing,
        start: u32,
        count: u32,
        slot: &mut [u8],
    ) -> Result<bool> {
        if count > self.to.shape().capacity() {
            return Err(EINVAL);
        }
        // A process may take posted entries back.
        self.copied = self.copied.min(count);
        let piece = count.wrapping_sub(self.copied).min(self.piece);
        self.left = self.left.checked_sub(piece).ok_or(EBUSY)?;
        for _ in 0..piece {
            from.read(start.wrapping_add(self.copied), slot);
            self.to.write(self.head.wrapping_add(self.copied), slot);
            self.copied = self.copied.wrapping_add(1);
        }
        Ok(self.copied == count)
    }

    /// Publishes the copied slots in the new ring. Returns its indices, of the oldest slot and behind the
    /// last one.
    pub(crate) fn publish(&self) -> (u32, u32) {
        let mask = self.to.shape().mask();
        let (head, tail) = (self.head, self.head.wrapping_add(self.copied));
        self.to.set_consumer(head);
        self.to.set_producer(tail);
        (head & mask, tail & mask)
    }
}

/// The kernel's end of a send or receive queue. It does the work of a provider in a process.
pub(crate) struct PostQueue {
    ring: SharedRing,
    producer: u32,
    /// Where a slot is made, as large as a slot.
    scratch: Slots<u8>,
}

impl PostQueue {
    /// Creates the kernel's end of `ring`, which must be empty. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(ring: &SharedRing) -> Result<Self> {
        Ok(Self {
            ring: ring.clone(),
            producer: 0,
            scratch: Slots::new(ring.slot_bytes(), GFP_KERNEL)?,
        })
    }

    /// Continues in `ring`, behind its posted slots. Its slots have the same size.
    pub(crate) fn go_on_in(&mut self, ring: SharedRing) {
        self.producer = ring.producer();
        self.ring = ring;
    }

    /// Posts a request. `encode` writes it to the slot, and returns its length.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no free slot; those of `encode`.
    // Rules: WRQ-13
    pub(crate) fn post(&mut self, encode: impl FnOnce(&mut [u8]) -> Result<usize>) -> Result {
        let next = self.ring.next(self.producer);
        if next == self.ring.consumer() {
            return Err(ENOMEM);
        }
        let len = encode(&mut self.scratch)?;
        let made = self.scratch.get(..len).ok_or(EINVAL)?;
        self.ring.write(self.producer, made);
        self.producer = next;
        self.ring.set_producer(next);
        Ok(())
    }
}
