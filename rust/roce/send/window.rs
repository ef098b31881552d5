// SPDX-License-Identifier: GPL-2.0

//! The window: work requests that were taken from the send queue and are not complete.

use core::marker::PhantomData;
use core::mem;
use core::ops::DerefMut;

use crate::completion::Status;
use crate::num::{Mtu, Psn};
use crate::wr::{BadRequest, SendFlags, SendOp, SendRequest};

/// Room for one work request that was taken from the send queue and is not complete.
///
/// A requester is handed a slice of these, all [`default`](Default::default).
#[derive(Debug)]
pub struct Slot<P>(Option<Entry<P>>);

impl<P> Default for Slot<P> {
    fn default() -> Self {
        Self(None)
    }
}

/// A work request in the window.
#[derive(Debug)]
pub(super) enum Entry<P> {
    /// A request that can be executed.
    Good(Outstanding<P>),
    /// One of [`SendOp::Local`] that can be executed, once those before it are complete.
    Local(Outstanding<P>),
    /// A local request that was executed, and completes once those before it are complete. It is
    /// never the oldest: it leaves the window along with its predecessor.
    Done(Outstanding<P>),
    /// A request that cannot be executed: it fails once those before it are complete. The payload
    /// is there if the request was good at first.
    Bad(BadRequest, Option<P>),
}

/// A work request with the PSNs that it was given.
#[derive(Debug)]
pub(super) struct Outstanding<P> {
    pub(super) wr_id: u64,
    pub(super) op: SendOp,
    pub(super) flags: SendFlags,
    pub(super) length: u32,
    pub(super) payload: P,
    /// The PSN of its first packet, or of the first packet of its response.
    pub(super) first: Psn,
    /// The number of its PSNs, 1 ..= 2^23; 0 for an operation without packets.
    pub(super) packets: u32,
    pub(super) ahead: Ahead,
}

/// Responses to a request that are asked for again before it is the oldest, at most once for each request. They
/// are counted from the [first](Outstanding::index_of).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ahead {
    /// None are missing, as far as known.
    No,
    /// Those from response `from` on, and before `to`.
    Wanted { from: u16, to: u16 },
    /// Those from here on were asked for.
    Asked { from: u16 },
}

// Compilers copy larger ones by calls of memcpy(), several times for each request. Local memory of the
// driver has 40 bytes.
const _: () = assert!(mem::size_of::<Slot<[u64; 5]>>() <= 128);

impl<P> Entry<P> {
    /// Returns the request's name and payload.
    pub(super) fn into_parts(self) -> (u64, Option<P>) {
        match self {
            Self::Good(entry) | Self::Local(entry) | Self::Done(entry) => {
                (entry.wr_id, Some(entry.payload))
            }
            Self::Bad(bad, payload) => (bad.wr_id, payload),
        }
    }
}

impl<P> Outstanding<P> {
    // Rules: PSN-5
    pub(super) fn new(request: SendRequest<P>, first: Psn, mtu: Mtu) -> Self {
        Self {
            wr_id: request.wr_id,
            op: request.op,
            flags: request.flags,
            length: request.length,
            payload: request.payload,
            first,
            packets: match request.op {
                // Rules: PSN-7
                SendOp::Flush { .. } => 1,
                SendOp::Local(_) => 0,
                _ => mtu.packets(request.length),
            },
            ahead: Ahead::No,
        }
    }

    /// Returns the PSN after its last one.
    #[inline]
    pub(super) fn end(&self) -> Psn {
        self.first.add(self.packets)
    }

    /// Returns the index of `psn` among its PSNs, if that is small. It is for responses before one that was kept.
    pub(super) fn index_of(&self, psn: Psn) -> Option<u16> {
        psn.distance_from(self.first).try_into().ok()
    }

    /// Returns the PSN with that index.
    pub(super) fn psn_at(&self, index: u16) -> Psn {
        self.first.add(index.into())
    }

    /// Returns the length of the READ responses to it; `None` if it has none.
    #[inline]
    pub(super) fn response_length(&self) -> Option<u32> {
        match self.op {
            SendOp::Read { .. } => Some(self.length),
            SendOp::AtomicWrite { .. } | SendOp::Flush { .. } => Some(0),
            SendOp::Send { .. }
            | SendOp::SendInvalidate { .. }
            | SendOp::Write { .. }
            | SendOp::Atomic { .. }
            | SendOp::Local(_) => None,
        }
    }

    /// Returns true if only a response of its own completes it.
    // Rules: MPE-6, MPE-7
    #[inline]
    pub(super) fn is_answered(&self) -> bool {
        match self.op {
            SendOp::Read { .. }
            | SendOp::Atomic { .. }
            | SendOp::AtomicWrite { .. }
            | SendOp::Flush { .. } => true,
            SendOp::Send { .. }
            | SendOp::SendInvalidate { .. }
            | SendOp::Write { .. }
            | SendOp::Local(_) => false,
        }
    }
}

/// A queue in storage that was handed in.
#[derive(Debug)]
pub(super) struct Window<P, S> {
    storage: S,
    head: usize,
    len: usize,
    payload: PhantomData<P>,
}

impl<P, S: DerefMut<Target = [Slot<P>]>> Window<P, S> {
    pub(super) fn new(storage: S) -> Self {
        Self {
            storage,
            head: 0,
            len: 0,
            payload: PhantomData,
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns how many entries it holds at most.
    pub(super) fn room(&self) -> usize {
        self.storage.len()
    }

    /// Moves to `storage` if that is larger. Returns the unused storage.
    pub(super) fn widen(&mut self, mut storage: S) -> S {
        if storage.len() <= self.room() {
            return storage;
        }
        for (index, to) in storage.iter_mut().take(self.len).enumerate() {
            let place = self.place(index);
            if let Some(from) = self.storage.get_mut(place) {
                to.0 = from.0.take();
            }
        }
        self.head = 0;
        mem::replace(&mut self.storage, storage)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.len >= self.storage.len()
    }

    /// Returns the index in the storage of the entry `index` from the oldest.
    #[inline]
    fn place(&self, index: usize) -> usize {
        let place = self.head.wrapping_add(index);
        if place < self.storage.len() {
            place
        } else {
            place.wrapping_sub(self.storage.len())
        }
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<&Entry<P>> {
        if index >= self.len {
            return None;
        }
        self.storage.get(self.place(index))?.0.as_ref()
    }

    /// Returns the entry `index` from the oldest, if it is a good one.
    #[inline]
    pub(super) fn good(&self, index: usize) -> Option<&Outstanding<P>> {
        match self.get(index)? {
            Entry::Good(entry) => Some(entry),
            Entry::Local(..) | Entry::Done(_) | Entry::Bad(..) => None,
        }
    }

    /// Returns the entry `index` from the oldest to change it, if it is a good one.
    pub(super) fn good_mut(&mut self, index: usize) -> Option<&mut Outstanding<P>> {
        if index >= self.len {
            return None;
        }
        let place = self.place(index);
        match self.storage.get_mut(place)?.0.as_mut()? {
            Entry::Good(entry) => Some(entry),
            Entry::Local(..) | Entry::Done(_) | Entry::Bad(..) => None,
        }
    }

    /// Returns the number of entries before the one to continue with when all PSNs before `end`
    /// were sent.
    pub(super) fn count_before(&self, end: Psn) -> usize {
        let was_sent = |entry: &Entry<P>| match entry {
            Entry::Good(entry) => !end.is_before(entry.end()),
            Entry::Done(_) => true,
            Entry::Local(_) | Entry::Bad(..) => false,
        };
        let entries = (0..self.len).map_while(|index| self.get(index));
        entries.take_while(|entry| was_sent(entry)).count()
    }

    /// Appends an entry; to be called when there is room.
    pub(super) fn push(&mut self, entry: Entry<P>) {
        let place = self.place(self.len);
        if let Some(slot) = self.storage.get_mut(place) {
            slot.0 = Some(entry);
            self.len = self.len.wrapping_add(1);
        }
    }

    /// Removes the oldest entry.
    // Rules: CPL-5
    pub(super) fn pop(&mut self) -> Option<Entry<P>> {
        self.len = self.len.checked_sub(1)?;
        let place = self.head;
        self.head = self.place(1);
        self.storage.get_mut(place)?.0.take()
    }

    /// Makes the entry `index` from the oldest a bad one.
    pub(super) fn spoil(&mut self, index: usize, status: Status) {
        let place = self.place(index);
        let Some(slot) = self.storage.get_mut(place) else {
            return;
        };
        slot.0 = match slot.0.take() {
            Some(Entry::Good(entry)) => Some(Entry::Bad(
                BadRequest {
                    wr_id: entry.wr_id,
                    status,
                },
                Some(entry.payload),
            )),
            other => other,
        };
    }
}
