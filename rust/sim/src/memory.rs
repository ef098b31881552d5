// SPDX-License-Identifier: GPL-2.0

//! The memory of a node, and the access rights to it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use roce::host::{Access, AccessError, Extent, Fault, FlushError};
use roce::num::{Iova, Rkey};
use roce::wr::{AtomicOp, Placement};

use crate::rng::{Chance, Rng};

/// Bytes between areas, which must not be accessed.
const GUARD: usize = 64;

/// Counts the things that are alive.
#[derive(Clone, Default, Debug)]
pub struct Alive(Rc<Cell<usize>>);

/// One of them.
#[derive(Debug)]
pub struct Token(Rc<Cell<usize>>);

impl Alive {
    /// Returns the count.
    pub fn count(&self) -> usize {
        self.0.get()
    }

    /// Creates one more, until it is dropped.
    pub fn token(&self) -> Token {
        self.0.set(self.0.get() + 1);
        Token(self.0.clone())
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Local memory of a work request.
#[derive(Debug)]
pub struct Payload {
    /// Where it is.
    pub at: usize,
    /// Its bytes.
    pub len: u32,
    /// It cannot be reached any more.
    pub gone: bool,
    /// It is held.
    pub token: Token,
}

/// A granted range.
#[derive(Debug)]
pub struct Grant {
    at: usize,
    len: u32,
    key: u32,
    /// It is held.
    _token: Token,
}

/// A range of memory that a key opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// The queue pair that peers must come through: each has a protection domain of its own.
    pub owner: usize,
    /// The address of its first byte, for peers.
    pub iova: u64,
    /// Where that is.
    pub at: usize,
    /// Its bytes.
    pub len: usize,
    /// The access of peers.
    pub rights: Rights,
    /// Peers may invalidate the key.
    pub revocable: bool,
}

/// The access of peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// WRITE.
    pub write: bool,
    /// READ.
    pub read: bool,
    /// Atomic operations.
    pub atomic: bool,
    /// FLUSH.
    pub flush: bool,
}

impl Rights {
    /// Everything.
    pub const ALL: Self = Self {
        write: true,
        read: true,
        atomic: true,
        flush: true,
    };
    /// Nothing but READ.
    pub const READ: Self = Self {
        write: false,
        read: true,
        atomic: false,
        flush: false,
    };
}

/// The memory of a node.
#[derive(Debug)]
pub struct Memory {
    /// All of it.
    pub bytes: Vec<u8>,
    /// Open regions, by key.
    pub regions: BTreeMap<u32, Region>,
    /// Regions that a work request may open, by key.
    pub planned: BTreeMap<u32, Region>,
    /// The probability that accessed memory is absent.
    pub absence: Chance,
    /// The source of random absence.
    pub luck: Rng,
    /// Sabotage: grants are wider than they should be.
    pub wide_grants: bool,
    /// Sabotage: invalidated regions stay open.
    pub forgets_invalidation: bool,
    /// Sabotage: data that a peer writes goes a byte too far.
    pub stray_writes: bool,
}

impl Memory {
    /// Creates a node without memory.
    pub fn new(absence: Chance, luck: Rng) -> Self {
        Self {
            bytes: vec![0; GUARD],
            regions: BTreeMap::new(),
            planned: BTreeMap::new(),
            absence,
            luck,
            wide_grants: false,
            forgets_invalidation: false,
            stray_writes: false,
        }
    }

    /// Creates an area of `len` bytes. Returns its place, a multiple of [`GUARD`].
    pub fn area(&mut self, len: usize) -> usize {
        let at = self.bytes.len();
        let end = (at + len + GUARD).next_multiple_of(GUARD);
        self.bytes.resize(end, 0);
        at
    }

    /// Returns the bytes of a range.
    pub fn get(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range]
    }

    /// Returns the word at `at`.
    pub fn word(&self, at: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.bytes[at..at + 8]);
        u64::from_ne_bytes(word)
    }

    /// Returns true if the memory of the current access is absent.
    pub fn is_absent(&mut self) -> bool {
        self.luck.chance(self.absence)
    }

    /// Stores bytes, unless they are absent: then a part of them, if that does no harm.
    pub fn put(&mut self, at: usize, bytes: &[u8]) -> Result<(), Fault> {
        if self.is_absent() {
            let half = if bytes.len() == 8 { 0 } else { bytes.len() / 2 };
            self.bytes[at..at + half].copy_from_slice(&bytes[..half]);
            return Err(Fault::Absent);
        }
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    /// Checks the access that a peer of the queue pair `owner` requests.
    pub fn authorize(
        &self,
        owner: usize,
        key: Rkey,
        iova: Iova,
        len: u32,
        access: Access,
        token: Token,
    ) -> Result<Grant, AccessError> {
        let region = self.regions.get(&key.0).ok_or(AccessError)?;
        let allowed = match access {
            Access::Read => region.rights.read,
            Access::Write => region.rights.write,
            Access::Atomic => region.rights.atomic,
        };
        let offset = region.offset(iova, len, self.wide_grants);
        if region.owner != owner || !allowed {
            return Err(AccessError);
        }
        Ok(Grant {
            at: region.at + offset?,
            len,
            key: key.0,
            _token: token,
        })
    }

    /// Invalidates a key for a peer of the queue pair `owner`, or for itself.
    pub fn invalidate(&mut self, owner: usize, key: u32) -> Result<(), AccessError> {
        let region = self.regions.get(&key).ok_or(AccessError)?;
        if region.owner != owner || !region.revocable {
            return Err(AccessError);
        }
        if !self.forgets_invalidation {
            self.regions.remove(&key);
        }
        Ok(())
    }

    /// Opens the planned region of `key`. Returns false if there is none.
    pub fn open(&mut self, key: u32) -> bool {
        let Some(region) = self.planned.remove(&key) else {
            return false;
        };
        self.regions.insert(key, region);
        true
    }

    /// Returns where a granted range starts, if `len` bytes at `at` of it are in it and it is open
    /// still.
    fn reach(&self, grant: &Grant, at: u32, len: u32) -> Result<usize, Fault> {
        assert!(
            at.checked_add(len).is_some_and(|end| end <= grant.len),
            "outside of the grant"
        );
        if !self.regions.contains_key(&grant.key) {
            return Err(Fault::Gone);
        }
        Ok(grant.at + at as usize)
    }

    /// Stores data of a peer's WRITE.
    pub fn place(&mut self, grant: &Grant, at: u32, bytes: &[u8]) -> Result<(), Fault> {
        let place = self.reach(grant, at, bytes.len() as u32)?;
        self.put(place + usize::from(self.stray_writes), bytes)
    }

    /// Returns data for a peer's READ.
    pub fn fetch(&mut self, grant: &Grant, at: u32, len: u32) -> Result<&[u8], Fault> {
        let place = self.reach(grant, at, len)?;
        if self.is_absent() {
            return Err(Fault::Absent);
        }
        Ok(self.get(place..place + len as usize))
    }

    /// Executes an atomic of a peer. Returns the original value.
    pub fn atomic(&mut self, grant: &Grant, op: AtomicOp) -> Result<u64, Fault> {
        assert_eq!(grant.len, 8, "an atomic of another size");
        assert_eq!(grant.at % 8, 0, "an atomic that is not aligned");
        let place = self.reach(grant, 0, 8)?;
        let original = self.word(place);
        self.put(place, &apply(op, original).to_ne_bytes())?;
        Ok(original)
    }

    /// Checks a FLUSH of a peer of the queue pair `owner`.
    pub fn flush(
        &mut self,
        owner: usize,
        key: Rkey,
        extent: Extent,
        placement: Placement,
    ) -> Result<(), FlushError> {
        let region = self.regions.get(&key.0).ok_or(AccessError)?;
        if region.owner != owner || placement.persistent || !region.rights.flush {
            return Err(FlushError::Refused);
        }
        if let Extent::Range { iova, len } = extent {
            region.offset(iova, len, self.wide_grants)?;
        }
        if self.is_absent() {
            return Err(FlushError::Memory(Fault::Absent));
        }
        Ok(())
    }
}

impl Region {
    /// Returns how far from the start `iova` is, if `len` bytes there are all in it.
    fn offset(&self, iova: Iova, len: u32, wide: bool) -> Result<usize, AccessError> {
        let room = if wide { self.len + GUARD } else { self.len } as u64;
        let offset = iova.0.checked_sub(self.iova).ok_or(AccessError)?;
        let end = offset.checked_add(u64::from(len)).ok_or(AccessError)?;
        if end > room {
            return Err(AccessError);
        }
        Ok(offset as usize)
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
