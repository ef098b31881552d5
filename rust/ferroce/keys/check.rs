// SPDX-License-Identifier: GPL-2.0

//! The check of every key: its owner, variant, rights and bounds, and whether a grant is still valid.

use rdma::umem::is_linear;
use roce::host::{AccessError, Extent};
use roce::num::{Iova, Lkey, Rkey};

use super::number;
use super::rights::Rights;
use crate::table::{PdId, QpId};

/// The user of a remote key: a queue pair, for its peer or for a work request.
#[derive(Clone, Copy)]
pub(crate) struct User {
    pub(crate) pd: PdId,
    pub(crate) qp: QpId,
}

/// A key cannot be made valid, or invalidated.
pub(crate) struct Refused;

/// A request for memory by a key.
#[derive(Clone, Copy)]
pub(super) struct Claim {
    pd: PdId,
    key: u32,
    rights: Rights,
    bytes: Bytes,
}

impl Claim {
    /// Creates the request of an object of `pd` by a local key.
    #[inline]
    pub(super) fn local(pd: PdId, key: Lkey, rights: Rights, bytes: Bytes) -> Self {
        let Lkey(key) = key;
        Self {
            pd,
            key,
            rights,
            bytes,
        }
    }

    /// Creates the request of a peer by a remote key.
    #[inline]
    pub(super) fn remote(user: User, key: Rkey, rights: Rights, bytes: Bytes) -> Self {
        let Rkey(key) = key;
        Self {
            pd: user.pd,
            key,
            rights,
            bytes,
        }
    }

    /// Returns true if it is for all bytes of the key.
    #[inline]
    pub(super) fn is_of_all(&self) -> bool {
        matches!(self.bytes, Bytes::All)
    }
}

/// The requested bytes of a key's memory.
#[derive(Clone, Copy)]
pub(super) enum Bytes {
    /// All bytes.
    All,
    /// This number of bytes from an address on.
    Range(Iova, u64),
    /// At most this number of bytes from an address on; there may be none.
    Leading(Iova, u64),
}

impl From<Extent> for Bytes {
    fn from(extent: Extent) -> Self {
        match extent {
            Extent::Region => Self::All,
            Extent::Range { iova, len } => Self::Range(iova, len.into()),
        }
    }
}

/// The place of the requested bytes in the memory of a key.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) offset: u64,
    /// How many there are.
    pub(super) len: u64,
}

impl Place {
    /// Returns true if all of it, as addresses of the kernel, is mapped there.
    pub(super) fn is_linear(self) -> bool {
        u32::try_from(self.len).is_ok_and(|len| is_linear(self.offset, len))
    }
}

/// The memory and rights of a valid key.
#[derive(Clone, Copy)]
pub(super) struct Scope {
    pub(super) rights: Rights,
    /// The address of its first byte.
    pub(super) iova: Iova,
    pub(super) length: u64,
}

impl Scope {
    /// Returns where `bytes` are.
    // Rules: MEM-2
    #[inline]
    pub(super) fn locate(&self, bytes: Bytes) -> Result<Place, AccessError> {
        let (iova, len) = match bytes {
            Bytes::All => (self.iova, self.length),
            Bytes::Range(iova, len) => (iova, len),
            Bytes::Leading(iova, _) => (iova, 0),
        };
        let offset = iova.0.checked_sub(self.iova.0).ok_or(AccessError)?;
        // Rules: MEM-3
        let end = offset.checked_add(len).ok_or(AccessError)?;
        let left = self.length.checked_sub(end).ok_or(AccessError)?;
        let len = match bytes {
            Bytes::Leading(_, len) => len.min(left),
            Bytes::All | Bytes::Range(..) => len,
        };
        Ok(Place { offset, len })
    }
}

impl AsRef<Scope> for Scope {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// The owner of a key, and its current value.
#[derive(Clone, Copy)]
pub(super) struct Identity {
    pub(super) pd: PdId,
    pub(super) key: u32,
}

impl Identity {
    /// Returns true if objects of `pd` know it by `key`.
    // Rules: MEM-1, MEM-11
    #[inline]
    fn is(self, pd: PdId, key: u32) -> bool {
        self.key == key && self.pd == pd
    }

    /// Checks `claim` against `scope`, the memory that the key opens. Returns the place.
    #[inline]
    pub(super) fn admit(self, scope: &Scope, claim: &Claim) -> Result<Place, AccessError> {
        if !self.is(claim.pd, claim.key) || !scope.rights.contains(claim.rights) {
            return Err(AccessError);
        }
        scope.locate(claim.bytes)
    }
}

/// The number of changes to a key when it granted memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Generation(u64);

/// A key that work requests make valid, with a `V` behind it, and invalidate.
pub(super) struct Renewable<V> {
    identity: Identity,
    /// None while it is invalid.
    opens: Option<V>,
    generation: Generation,
}

impl<V: AsRef<Scope>> Renewable<V> {
    /// Creates an invalid key.
    pub(super) fn new(identity: Identity) -> Self {
        Self {
            identity,
            opens: None,
            generation: Generation(0),
        }
    }

    /// Returns its current value.
    pub(super) fn key(&self) -> Rkey {
        Rkey(self.identity.key)
    }

    /// Returns true if objects of `pd` know it by `key`.
    pub(super) fn is(&self, pd: PdId, key: Rkey) -> bool {
        self.identity.is(pd, key.0)
    }

    /// Returns true if it belongs to objects of `pd`.
    pub(super) fn is_of(&self, pd: PdId) -> bool {
        self.identity.pd == pd
    }

    /// Returns the value that it opens; none while it is not valid.
    #[inline]
    pub(super) fn opens(&self) -> Option<&V> {
        self.opens.as_ref()
    }

    /// Makes it open `opens`, or nothing, and sets the variant of `key`.
    // Rules: MWN-2
    pub(super) fn renew(&mut self, key: Rkey, opens: Option<V>) {
        let key = number::with_variant(self.identity.key, key.0);
        self.change(key, opens);
    }

    /// Invalidates it.
    pub(super) fn invalidate(&mut self) {
        self.change(self.identity.key, None);
    }

    /// Invalidates it permanently.
    pub(super) fn close(&mut self) {
        self.change(0, None);
    }

    fn change(&mut self, key: u32, opens: Option<V>) {
        self.identity.key = key;
        self.opens = opens;
        self.generation.0 = self.generation.0.wrapping_add(1);
    }

    /// Checks `claim`. Returns the value that the key opens, the place in it, and the generation
    /// with which to look at the grant [later](Self::granted).
    #[inline]
    pub(super) fn admit(&self, claim: &Claim) -> Result<(&V, Place, Generation), AccessError> {
        let opens = self.opens.as_ref().ok_or(AccessError)?;
        let place = self.identity.admit(opens.as_ref(), claim)?;
        Ok((opens, place, self.generation))
    }

    /// Returns the value that it opens, if that has not changed since the grant.
    // Rules: MWN-13
    #[inline]
    pub(super) fn granted(&self, generation: Generation) -> Option<&V> {
        self.opens
            .as_ref()
            .filter(|_| self.generation == generation)
    }
}
