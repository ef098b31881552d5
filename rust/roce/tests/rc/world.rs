// SPDX-License-Identifier: GPL-2.0

//! The surroundings of one queue pair: memory, queues, completions. It checks that the protocol
//! keeps to the contract of the host traits.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use roce::completion::{Completion, Status};
use roce::event::{AsyncEvent, Event};
use roce::host::{
    Access, AccessError, Extent, Fault, FlushError, Observer, RecvHost, SendHost, Span,
};
use roce::num::{Iova, Rkey};
use roce::wr::{AtomicOp, BadRequest, LocalOp, Placement, RecvRequest, SendRequest};

use crate::rng::Rng;

/// Counts the things that are alive.
#[derive(Clone, Default, Debug)]
pub struct Alive(Rc<Cell<usize>>);

impl Alive {
    pub fn count(&self) -> usize {
        self.0.get()
    }

    fn token(&self) -> Token {
        self.0.set(self.0.get() + 1);
        Token(self.0.clone())
    }
}

#[derive(Debug)]
struct Token(Rc<Cell<usize>>);

impl Drop for Token {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Local memory of a work request: `len` bytes of the world's memory from `at` on.
#[derive(Debug)]
pub struct Payload {
    pub at: usize,
    pub len: u32,
    serial: u64,
    _token: Token,
}

/// A granted range.
#[derive(Debug)]
pub struct Grant {
    pub at: usize,
    pub len: u32,
    region: u32,
    _token: Token,
}

/// A range of memory that peers may reach.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    pub iova: u64,
    pub at: usize,
    pub len: usize,
    pub read: bool,
    pub write: bool,
    pub atomic: bool,
    /// Peers may FLUSH it to everyone's sight.
    pub flush: bool,
    /// Peers may invalidate its key.
    pub revocable: bool,
}

/// The world of one queue pair.
#[derive(Default)]
pub struct World {
    pub memory: Vec<u8>,
    pub regions: BTreeMap<u32, Region>,
    /// Local memory that cannot be reached any more, by its start.
    pub gone: Vec<usize>,
    /// How often memory is absent when it is used, in a thousand.
    pub absence: u32,
    luck: Cell<u64>,
    pub send_queue: VecDeque<Result<SendRequest<Payload>, BadRequest>>,
    pub recv_queue: VecDeque<Result<RecvRequest<Payload>, BadRequest>>,
    /// The receives are of a shared queue, which others take from, too.
    pub shares_receives: bool,
    pub sent: Vec<Completion>,
    pub received: Vec<Completion>,
    pub events: Vec<Event>,
    pub raised: Vec<AsyncEvent>,
    pub payloads: Alive,
    pub grants: Alive,
    /// Requests that were taken and not retired, oldest first: serials of their payloads.
    taken: VecDeque<Option<u64>>,
    /// Receives that were taken and not completed, oldest first: serials of their payloads.
    recvs: VecDeque<Option<u64>>,
    pub retired: usize,
    serials: u64,
    /// Bytes that the peer changed, apart from receives.
    pub written: u64,
    /// Executed atomics.
    pub atomics: usize,
    /// Work on its own side that was done; invalidating a key that is not there fails.
    pub local: Vec<LocalOp>,
    /// Executed FLUSHes.
    pub flushes: Vec<(Extent, Placement)>,
}

impl World {
    pub fn payload(&mut self, at: usize, len: u32) -> Payload {
        assert!(
            at + len as usize <= self.memory.len(),
            "a test's own mistake"
        );
        self.serials += 1;
        Payload {
            at,
            len,
            serial: self.serials,
            _token: self.payloads.token(),
        }
    }

    pub fn count(&self, event: Event) -> usize {
        self.events.iter().filter(|seen| **seen == event).count()
    }

    pub fn sent_statuses(&self) -> Vec<(u64, Status)> {
        statuses(&self.sent)
    }

    pub fn received_statuses(&self) -> Vec<(u64, Status)> {
        statuses(&self.received)
    }

    pub fn bytes(&self, at: usize, len: usize) -> &[u8] {
        &self.memory[at..at + len]
    }

    pub fn word(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.bytes(at, 8).try_into().unwrap())
    }

    /// Returns a host for a call that handles a packet with this payload.
    pub fn host<'a>(&'a mut self, packet: &'a [u8]) -> Host<'a> {
        Host {
            world: self,
            packet,
        }
    }

    /// Returns true if the memory of the current access is absent.
    pub fn is_absent(&self) -> bool {
        let mut rng = Rng::new(self.luck.get());
        self.luck.set(rng.next());
        rng.chance(self.absence)
    }

    fn put(&mut self, at: usize, bytes: &[u8]) -> Result<(), Fault> {
        if self.gone.contains(&at) {
            return Err(Fault::Gone);
        }
        if self.is_absent() {
            // A part of it may be there.
            let half = bytes.len() / 2;
            if bytes.len() != 8 {
                self.memory[at..at + half].copy_from_slice(&bytes[..half]);
            }
            return Err(Fault::Absent);
        }
        self.memory[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

/// Returns the value that an atomic operation stores.
pub fn apply(op: AtomicOp, value: u64) -> u64 {
    match op {
        AtomicOp::CompareSwap { compare, swap } if value == compare => swap,
        AtomicOp::CompareSwap { .. } => value,
        AtomicOp::FetchAdd { add } => value.wrapping_add(add),
    }
}

fn statuses(completions: &[Completion]) -> Vec<(u64, Status)> {
    completions
        .iter()
        .map(|completion| (completion.wr_id, completion.status))
        .collect()
}

/// The world during one call.
pub struct Host<'a> {
    pub world: &'a mut World,
    packet: &'a [u8],
}

impl Host<'_> {
    fn span(&self, from: Span) -> &[u8] {
        assert!(from.len > 0, "an empty copy");
        let start = from.offset as usize;
        self.packet
            .get(start..start + from.len as usize)
            .expect("a span outside of the packet")
    }
}

impl Observer for Host<'_> {
    fn observe(&mut self, event: Event) {
        self.world.events.push(event);
    }

    fn raise(&mut self, event: AsyncEvent) {
        self.world.raised.push(event);
    }
}

impl SendHost for Host<'_> {
    type Payload = Payload;

    fn next_send(&mut self) -> Option<Result<SendRequest<Payload>, BadRequest>> {
        let request = self.world.send_queue.pop_front()?;
        let serial = request.as_ref().ok().map(|request| request.payload.serial);
        self.world.taken.push_back(serial);
        Some(request)
    }

    fn scatter(&mut self, to: &Payload, at: u32, from: Span) -> Result<(), Fault> {
        assert!(at + from.len <= to.len, "outside of the READ's memory");
        let bytes = self.span(from).to_vec();
        if self.world.gone.contains(&to.at) {
            return Err(Fault::Gone);
        }
        self.world.put(to.at + at as usize, &bytes)
    }

    fn put_original(&mut self, to: &Payload, original: u64) -> Result<(), Fault> {
        assert_eq!(to.len, 8, "not the memory of an atomic");
        self.world.put(to.at, &original.to_ne_bytes())
    }

    fn carry_out(&mut self, op: &LocalOp) -> Result<(), Status> {
        let may_overtake = matches!(op, LocalOp::Register(_));
        assert!(
            self.world.taken.len() == 1 || may_overtake,
            "what came before is not complete"
        );
        if let LocalOp::Invalidate { rkey } = op {
            let gone = self.world.regions.remove(&rkey.0);
            gone.ok_or(Status::LocalQpOperation)?;
        }
        if matches!(op, LocalOp::Register(register) if register.key == Rkey(0xbad)) {
            return Err(Status::MwBind);
        }
        self.world.local.push(*op);
        Ok(())
    }

    fn retire(&mut self, payload: Option<Payload>, completion: Option<Completion>) {
        let oldest = self.world.taken.pop_front().expect("nothing was taken");
        assert_eq!(
            oldest,
            payload.map(|payload| payload.serial),
            "out of order"
        );
        self.world.retired += 1;
        self.world.sent.extend(completion);
    }
}

impl RecvHost for Host<'_> {
    type Payload = Payload;
    type Grant = Grant;

    fn has_shared_queue(&self) -> bool {
        self.world.shares_receives
    }

    fn take_recv(&mut self) -> Option<Result<RecvRequest<Payload>, BadRequest>> {
        let request = self.world.recv_queue.pop_front()?;
        let serial = request.as_ref().ok().map(|request| request.payload.serial);
        self.world.recvs.push_back(serial);
        Some(request)
    }

    fn scatter(&mut self, to: &Payload, at: u32, from: Span) -> Result<(), Fault> {
        assert!(at + from.len <= to.len, "outside of the receive's memory");
        let bytes = self.span(from).to_vec();
        if self.world.gone.contains(&to.at) {
            return Err(Fault::Gone);
        }
        self.world.put(to.at + at as usize, &bytes)
    }

    fn complete(&mut self, payload: Option<Payload>, completion: Completion) {
        let oldest = self.world.recvs.pop_front().expect("nothing was taken");
        assert_eq!(
            oldest,
            payload.map(|payload| payload.serial),
            "out of order"
        );
        self.world.received.push(completion);
    }

    fn discard(&mut self, payload: Payload) {
        let oldest = self.world.recvs.pop_front().expect("nothing was taken");
        assert_eq!(oldest, Some(payload.serial), "out of order");
    }

    fn authorize(
        &mut self,
        rkey: Rkey,
        iova: Iova,
        len: u32,
        access: Access,
    ) -> Result<Grant, AccessError> {
        assert!(len > 0, "an empty range needs no right");
        let region = self.world.regions.get(&rkey.0).ok_or(AccessError)?;
        let allowed = match access {
            Access::Read => region.read,
            Access::Write => region.write,
            Access::Atomic => region.atomic,
        };
        let offset = iova.0.checked_sub(region.iova).ok_or(AccessError)?;
        let end = offset.checked_add(u64::from(len)).ok_or(AccessError)?;
        if !allowed || end > region.len as u64 {
            return Err(AccessError);
        }
        Ok(Grant {
            at: region.at + offset as usize,
            len,
            region: rkey.0,
            _token: self.world.grants.token(),
        })
    }

    fn invalidate(&mut self, rkey: Rkey) -> Result<(), AccessError> {
        let region = self.world.regions.get(&rkey.0).ok_or(AccessError)?;
        if !region.revocable {
            return Err(AccessError);
        }
        self.world.regions.remove(&rkey.0);
        Ok(())
    }

    fn place(&mut self, to: &Grant, at: u32, from: Span) -> Result<(), Fault> {
        assert!(at + from.len <= to.len, "outside of the grant");
        if !self.world.regions.contains_key(&to.region) {
            return Err(Fault::Gone);
        }
        let bytes = self.span(from).to_vec();
        self.world.put(to.at + at as usize, &bytes)?;
        self.world.written += bytes.len() as u64;
        Ok(())
    }

    fn place_atomically(&mut self, to: &Grant, from: Span) -> Result<(), Fault> {
        assert_eq!((to.len, to.at % 8, from.len), (8, 0, 8));
        self.place(to, 0, from)?;
        self.world.atomics += 1;
        Ok(())
    }

    fn flush(
        &mut self,
        rkey: Rkey,
        extent: Extent,
        placement: Placement,
    ) -> Result<(), FlushError> {
        let region = self.world.regions.get(&rkey.0).ok_or(AccessError)?;
        if placement.persistent || (placement.global && !region.flush) {
            return Err(FlushError::Refused);
        }
        if let Extent::Range { iova, len } = extent {
            let offset = iova.0.checked_sub(region.iova).ok_or(AccessError)?;
            let end = offset.checked_add(u64::from(len)).ok_or(AccessError)?;
            if end > region.len as u64 {
                return Err(FlushError::Refused);
            }
        }
        if self.world.is_absent() {
            return Err(Fault::Absent.into());
        }
        if self.world.gone.contains(&region.at) {
            return Err(Fault::Gone.into());
        }
        self.world.flushes.push((extent, placement));
        Ok(())
    }

    fn atomic(&mut self, to: &Grant, op: AtomicOp) -> Result<u64, Fault> {
        assert_eq!(to.len, 8);
        assert_eq!(to.at % 8, 0, "an atomic that is not aligned");
        if !self.world.regions.contains_key(&to.region) || self.world.gone.contains(&to.at) {
            return Err(Fault::Gone);
        }
        let original = self.world.word(to.at);
        let new = apply(op, original);
        self.world.put(to.at, &new.to_ne_bytes())?;
        self.world.atomics += 1;
        Ok(original)
    }
}
