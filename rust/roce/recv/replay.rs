// SPDX-License-Identifier: GPL-2.0

//! The requests that are answered by a response of their own: those that wait for it, and those that
//! may be asked for it again.

use core::mem;
use core::ops::DerefMut;

use crate::num::{Bundle, Msn, Mtu, Psn};
use crate::opcode::Position;
use crate::wire::{AtomicEth, Request, Reth};

/// The state that a responder needs to answer one READ or atomic, and to answer it again.
///
/// A responder is handed a slice of these, all [`default`](Default::default).
#[derive(Debug)]
pub struct Replay<G>(Option<Kept<G>>);

impl<G> Default for Replay<G> {
    fn default() -> Self {
        Self(None)
    }
}

/// A READ of the peer, or something else that is answered like one.
// Rules: ACK-14
#[derive(Debug)]
pub(super) struct Kept<G> {
    /// The PSN of its first response.
    first: Psn,
    /// How many responses it has.
    packets: u32,
    /// The request.
    request: Request,
    /// The original value of an atomic. It is executed once, however often it is answered.
    original: u64,
    /// The message's number.
    msn: Msn,
    /// How many of its responses were sent, at least once, before the last that was handed out.
    sent: u32,
    /// The part of the response that is still to be sent.
    reply: Option<Reply<G>>,
}

/// Responses to one request that are to be sent, counted from its first.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// The response to send next.
    next: u32,
    /// The one that was sent last.
    last: u32,
    /// The response after the last.
    stop: u32,
}

/// A run of responses to one request, and where their data are.
#[derive(Debug)]
struct Reply<G> {
    /// The memory; none for an empty READ, and for other operations.
    grant: Option<G>,
    /// The response that byte 0 of the grant belongs to.
    base: u32,
    run: Run,
    /// Bytes of the grant.
    length: u32,
    /// It was all sent before.
    again: bool,
}

impl Run {
    fn new(from: u32, stop: u32) -> Self {
        Self {
            next: from,
            last: from,
            stop,
        }
    }

    fn is_pending(&self) -> bool {
        self.next != self.stop
    }

    /// Hands out the next response, which may stand for several. Returns this run as it is then.
    fn hand_out(&mut self, bundle: Bundle) -> Self {
        self.last = self.next;
        self.next = self.next.saturating_add(bundle.psns()).min(self.stop);
        *self
    }

    /// Takes the response back that was handed out last.
    fn unsend(&mut self) {
        self.next = self.last;
    }
}

impl<G> Reply<G> {
    // Rules: RDA-2
    fn new(grant: Option<G>, base: u32, length: u32, again: bool, mtu: Mtu) -> Self {
        Self {
            grant,
            base,
            run: Run::new(base, base.wrapping_add(mtu.packets(length))),
            length,
            again,
        }
    }

    fn is_pending(&self) -> bool {
        self.run.is_pending()
    }
}

impl<G> Kept<G> {
    // Rules: PSN-6
    pub(super) fn read(first: Psn, reth: &Reth, msn: Msn, grant: Option<G>, mtu: Mtu) -> Self {
        Self {
            first,
            packets: mtu.packets(reth.length),
            request: Request::Read(*reth),
            original: 0,
            msn,
            sent: 0,
            reply: Some(Reply::new(grant, 0, reth.length, false, mtu)),
        }
    }

    /// Creates one for an executed operation: an atomic with the value `original`, an atomic WRITE,
    /// or a FLUSH.
    // Rules: MPE-5, PSN-7, RDA-17
    pub(super) fn done(first: Psn, request: &Request, msn: Msn, original: u64, mtu: Mtu) -> Self {
        Self {
            first,
            packets: 1,
            request: essence(request),
            original,
            msn,
            sent: 0,
            reply: Some(Reply::new(None, 0, 0, false, mtu)),
        }
    }

    /// Returns the PSN after its last response.
    pub(super) fn end(&self) -> Psn {
        self.first.add(self.packets)
    }

    fn is_pending(&self) -> bool {
        self.reply.as_ref().is_some_and(Reply::is_pending)
    }

    /// Returns the response from which a duplicate starts: its PSN is of this request,
    /// and it asks for the same, or for memory that the READ asked for from there on.
    // Rules: DUP-7
    fn restart_at(&self, psn: Psn, again: &Request, mtu: Mtu) -> Option<u32> {
        let index = psn.distance_from(self.first);
        if index >= self.packets {
            return None;
        }
        let (Request::Read(reth), Request::Read(again)) = (&self.request, again) else {
            // Rules: DUP-13
            return (self.request == essence(again)).then_some(index);
        };
        let at = index.wrapping_mul(mtu.bytes());
        let left = reth.length.checked_sub(at)?;
        // Rules: DUP-8
        let same_memory = again.rkey == reth.rkey && again.iova == reth.iova.add(u64::from(at));
        // An empty response is only one to an empty READ.
        let length_fits = again.length <= left && (again.length != 0 || left == 0);
        (same_memory && length_fits).then_some(index)
    }
}

/// Responses to a part of a READ that were sent before, and are asked for again while the rest is being sent.
#[derive(Debug)]
struct Patch {
    /// The PSN of the READ's first response.
    first: Psn,
    run: Run,
}

/// Returns a request without the fields that have no meaning. A duplicate may differ in them.
// Rules: DUP-14
fn essence(request: &Request) -> Request {
    match *request {
        Request::FetchAdd(eth) => Request::FetchAdd(AtomicEth { compare: 0, ..eth }),
        other => other,
    }
}

/// The contents of a response.
pub(super) enum Answer {
    /// Data that were READ.
    Data(Position),
    /// The original value of an atomic.
    Original(u64),
}

/// One response.
pub(super) struct Response<'a, G> {
    pub(super) psn: Psn,
    pub(super) msn: Msn,
    /// The contents. Data have their place in the response to the original READ: a requester that
    /// asks for the rest continues where it was.
    pub(super) answer: Answer,
    /// The memory; none for an empty response.
    pub(super) grant: Option<&'a G>,
    /// Where in it to start.
    pub(super) at: u32,
    /// Bytes.
    pub(super) len: u32,
}

/// Where to take up a request again.
pub(super) struct Again {
    /// Which one, counted from the oldest.
    kept: usize,
    /// From which response on.
    response: u32,
}

/// The latest READs and atomics, oldest first, in storage that was handed in.
#[derive(Debug)]
pub(super) struct Replays<G, S> {
    storage: S,
    head: usize,
    len: usize,
    /// None older than this, counted from the oldest, has responses to send.
    cursor: usize,
    /// It is sent before the rest of the same answer.
    patch: Option<Patch>,
    /// The response that was handed out last is of the patch.
    is_patching: bool,
    grant: core::marker::PhantomData<G>,
}

impl<G, S: DerefMut<Target = [Replay<G>]>> Replays<G, S> {
    pub(super) fn new(storage: S) -> Self {
        Self {
            storage,
            head: 0,
            len: 0,
            cursor: 0,
            patch: None,
            is_patching: false,
            grant: core::marker::PhantomData,
        }
    }

    pub(super) fn exchange(&mut self, storage: S) -> S {
        let mut old = mem::replace(self, Self::new(storage));
        while let Some(kept) = old.pop() {
            if self.len == self.storage.len() {
                self.drop_oldest();
            }
            self.push(kept);
        }
        self.cursor = 0;
        old.storage
    }

    pub(super) fn clear(&mut self) {
        self.patch = None;
        while self.pop().is_some() {}
    }

    /// Returns the index in the storage of the one `index` from the oldest.
    fn place(&self, index: usize) -> usize {
        let place = self.head.wrapping_add(index);
        if place < self.storage.len() {
            place
        } else {
            place.wrapping_sub(self.storage.len())
        }
    }

    fn get(&self, index: usize) -> Option<&Kept<G>> {
        if index >= self.len {
            return None;
        }
        self.storage.get(self.place(index))?.0.as_ref()
    }

    fn get_mut(&mut self, index: usize) -> Option<&mut Kept<G>> {
        if index >= self.len {
            return None;
        }
        let place = self.place(index);
        self.storage.get_mut(place)?.0.as_mut()
    }

    fn pop(&mut self) -> Option<Kept<G>> {
        self.leave()?.0.take()
    }

    /// Takes the oldest out of the queue, and leaves it to the caller to take it out of its place.
    fn leave(&mut self) -> Option<&mut Replay<G>> {
        self.len = self.len.checked_sub(1)?;
        self.cursor = self.cursor.saturating_sub(1);
        let place = self.head;
        self.head = self.place(1);
        self.storage.get_mut(place)
    }

    /// Drops the oldest, where it is.
    fn drop_oldest(&mut self) {
        self.patch = None;
        if let Some(place) = self.leave() {
            place.0 = None;
        }
    }

    /// Makes room for one more; false if there cannot be more.
    ///
    /// The oldest is removed, unless it was never answered in full: then the peer has more
    /// outstanding than it may. A repeated answer to the oldest is given up, as further requests
    /// show that the peer does not need it.
    // Rules: DUP-11, RDA-8
    pub(super) fn make_room(&mut self) -> bool {
        if self.len < self.storage.len() {
            return true;
        }
        // Rules: RDA-9, RDA-10
        let unanswered = |reply: &Reply<G>| reply.is_pending() && !reply.again;
        match self.get(0) {
            Some(oldest) if !oldest.reply.as_ref().is_some_and(unanswered) => {
                self.drop_oldest();
                true
            }
            _ => false,
        }
    }

    /// Appends one; to be called when there is room.
    pub(super) fn push(&mut self, kept: Kept<G>) {
        let place = self.place(self.len);
        if let Some(slot) = self.storage.get_mut(place) {
            slot.0 = Some(kept);
            self.len = self.len.wrapping_add(1);
        }
    }

    /// Finds the original of a duplicate: the latest one, as an older one may have had the same PSN, and been
    /// the same request.
    // Rules: DUP-10
    pub(super) fn find(&self, psn: Psn, request: &Request, mtu: Mtu) -> Option<Again> {
        (0..self.len).rev().find_map(|kept| {
            let response = self.get(kept)?.restart_at(psn, request, mtu)?;
            Some(Again { kept, response })
        })
    }

    /// Answers again: a READ with `length` bytes of `grant`. The rest of a current answer is given
    /// up, as the requester would not accept it. If the duplicate asks for a part of the answer, the
    /// rest follows behind it.
    // Rules: DUP-15, DUP-21
    pub(super) fn restart(&mut self, again: Again, grant: Option<G>, length: u32, mtu: Mtu) {
        let Some(kept) = self.get_mut(again.kept) else {
            return;
        };
        let stop = again.response.saturating_add(mtu.packets(length));
        let is_part = |reply: &&Reply<G>| {
            let is_within = stop <= reply.run.next || stop < reply.run.stop;
            reply.is_pending() && reply.base <= again.response && is_within
        };
        if let Some(reply) = kept.reply.as_ref().filter(is_part) {
            // What of it was not sent yet is still to come.
            let stop = stop.min(reply.run.next);
            if again.response < stop {
                let (first, run) = (kept.first, Run::new(again.response, stop));
                self.patch = Some(Patch { first, run });
            }
            return;
        }
        let answered = match &kept.reply {
            Some(reply) => {
                kept.sent = kept.sent.max(reply.run.next);
                reply.again || !reply.is_pending()
            }
            None => true,
        };
        kept.reply = Some(Reply::new(grant, again.response, length, answered, mtu));
        let first = kept.first;
        self.patch = self.patch.take().filter(|patch| patch.first != first);
        self.cursor = self.cursor.min(again.kept);
    }

    /// Returns true if responses are to be sent to requests behind `psn`.
    pub(super) fn any_pending_after(&self, psn: Psn) -> bool {
        (self.cursor..self.len)
            .filter_map(|index| self.get(index))
            .any(|kept| kept.is_pending() && psn.is_before(kept.first))
    }

    /// Returns true if there is a response to send. Gives back the grants of answered requests.
    pub(super) fn has_response(&mut self) -> bool {
        let mut cursor = self.cursor;
        let found = loop {
            match self.get_mut(cursor) {
                None => break false,
                Some(kept) if kept.is_pending() => break true,
                Some(kept) => kept.reply = None,
            }
            cursor = cursor.wrapping_add(1);
        };
        self.cursor = cursor;
        found
    }

    /// Takes the response back that was handed out last.
    pub(super) fn unsend(&mut self) {
        if self.is_patching {
            if let Some(patch) = &mut self.patch {
                patch.run.unsend();
            }
            return;
        }
        let cursor = self.cursor;
        if let Some(reply) = self.get_mut(cursor).and_then(|kept| kept.reply.as_mut()) {
            reply.run.unsend();
        }
    }

    /// Gives the answer up of which a response was handed out last, if the same was sent in full
    /// before. If not, returns the PSN to refuse it at: its first response that was never sent. The
    /// requester may have those before, and would take a refusal of them for an old one.
    // Rules: DUP-20, NAK-24
    pub(super) fn forgo(&mut self) -> Option<Psn> {
        if self.is_patching {
            self.patch = None;
            return None;
        }
        let cursor = self.cursor;
        let kept = self.get_mut(cursor)?;
        let reply = kept.reply.as_ref()?;
        if reply.again {
            kept.reply = None;
            return None;
        }
        Some(kept.first.add(kept.sent.max(reply.run.last)))
    }

    /// Returns the next response to send, if [there is one](Self::has_response).
    // Rules: RDA-1
    pub(super) fn next_response(&mut self, mtu: Mtu, bundle: Bundle) -> Option<Response<'_, G>> {
        let place = self.place(self.cursor);
        let kept = self.storage.get_mut(place)?.0.as_mut()?;
        let reply = kept.reply.as_mut()?;
        let first = kept.first;
        let is_of_it = |patch: &&mut Patch| patch.first == first && patch.run.is_pending();
        let run = match self.patch.as_mut().filter(is_of_it) {
            // Rules: DUP-21
            Some(patch) => {
                self.is_patching = true;
                patch.run.hand_out(bundle)
            }
            None => {
                self.is_patching = false;
                kept.sent = kept.sent.max(reply.run.next);
                reply.run.hand_out(bundle)
            }
        };
        let index = run.last;
        let at = index.wrapping_sub(reply.base).wrapping_mul(mtu.bytes());
        let most = run.next.wrapping_sub(index).saturating_mul(mtu.bytes());
        let answer = match kept.request {
            // Rules: DUP-10
            Request::CompareSwap(_) | Request::FetchAdd(_) => Answer::Original(kept.original),
            _ => Answer::Data(Position::new(index == 0, !run.is_pending())),
        };
        Some(Response {
            // Rules: PSN-8
            psn: first.add(index),
            msn: kept.msn,
            answer,
            grant: reply.grant.as_ref(),
            at,
            len: reply.length.saturating_sub(at).min(most),
        })
    }
}
