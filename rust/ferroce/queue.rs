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

    /// How many slots were posted and not taken.
    pub(crate) fn waiting(&self) -> u32 {
        self.shared.shape().used(self.shared.producer(), self.taken)
    }

    /// A queue in `to` that has what was posted here and not taken, by way of `copy`, which is as
    /// large as a slot.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `to` has too little room for it.
    pub(crate) fn moved_to(&self, to: SharedRing, copy: &mut [u8]) -> Result<Self> {
        self.shared.copy_to(self.taken, self.waiting(), &to, copy)?;
        Ok(Self::new(to))
    }

    /// Forgets everything posted: the queue is as good as new.
    pub(crate) fn reset(&mut self) {
        let producer = self.shared.producer();
        self.taken = producer;
        self.retired = producer;
        self.shared.set_consumer(producer);
    }
}

/// The kernel's end of a send or receive queue, where it posts: what a provider does in a process.
pub(crate) struct PostQueue {
    ring: SharedRing,
    producer: u32,
    /// Where a slot is made, as large as a slot.
    scratch: Slots<u8>,
}

impl PostQueue {
    /// The other end of `ring`, in which nothing was posted yet. May sleep.
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

    /// Goes on in `ring`, whose slots are as large, behind what was posted there.
    pub(crate) fn go_on_in(&mut self, ring: SharedRing) {
        self.producer = ring.producer();
        self.ring = ring;
    }

    /// Posts what `encode` makes, which returns how many bytes of the slot count.
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
