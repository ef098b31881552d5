// SPDX-License-Identifier: GPL-2.0

//! The check of every key: whose it is, its variant, its rights, its bounds, and whether what was
//! granted by it still holds.

use rdma::umem::is_linear;
use roce::host::{AccessError, Extent};
use roce::num::{Iova, Lkey, Rkey};

use super::number;
use super::rights::Rights;
use crate::table::{PdId, QpId};

/// Who presents a remote key: a queue pair, for its peer or in a work request.
#[derive(Clone, Copy)]
pub(crate) struct User {
    pub(crate) pd: PdId,
    pub(crate) qp: QpId,
}

/// A key cannot be made valid, or be invalidated, as was asked.
pub(crate) struct Refused;

/// What is asked for by a key.
#[derive(Clone, Copy)]
pub(super) struct Claim {
    pd: PdId,
    key: u32,
    rights: Rights,
    bytes: Bytes,
}

impl Claim {
    /// What objects of `pd` ask for by a local key.
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

    /// What a peer asks for by a remote key.
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

    /// Whether it is for all that the key opens.
    #[inline]
    pub(super) fn is_of_all(&self) -> bool {
        matches!(self.bytes, Bytes::All)
    }
}

/// Which of the bytes that a key opens.
#[derive(Clone, Copy)]
pub(super) enum Bytes {
    /// All of them.
    All,
    /// So many from an address on.
    Range(Iova, u64),
    /// Of so many from an address on as many as there are; none is enough.
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

/// Where bytes are that were asked for, in what the key opens.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) offset: u64,
    /// How many there are.
    pub(super) len: u64,
}

impl Place {
    /// Whether all of it, as addresses of the kernel, is mapped there.
    pub(super) fn is_linear(self) -> bool {
        u32::try_from(self.len).is_ok_and(|len| is_linear(self.offset, len))
    }
}

/// What a valid key opens.
#[derive(Clone, Copy)]
pub(super) struct Scope {
    pub(super) rights: Rights,
    /// The address of its first byte.
    pub(super) iova: Iova,
    pub(super) length: u64,
}

impl Scope {
    /// Where `bytes` are.
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

/// Whose a key is, and how it reads now.
#[derive(Clone, Copy)]
pub(super) struct Identity {
    pub(super) pd: PdId,
    pub(super) key: u32,
}

impl Identity {
    /// Whether objects of `pd` know it by `key`.
    // Rules: MEM-1, MEM-11
    #[inline]
    fn is(self, pd: PdId, key: u32) -> bool {
        self.key == key && self.pd == pd
    }

    /// Checks `claim` to what the key opens, which is `scope`. Returns where that is.
    #[inline]
    pub(super) fn admit(self, scope: &Scope, claim: &Claim) -> Result<Place, AccessError> {
        if !self.is(claim.pd, claim.key) || !scope.rights.contains(claim.rights) {
            return Err(AccessError);
        }
        scope.locate(claim.bytes)
    }
}

/// How often a key was made valid or taken away when something was granted by it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Generation(u64);

/// A key that work requests make valid, to open a `V`, and take away.
pub(super) struct Renewable<V> {
    identity: Identity,
    /// None while it is not valid.
    opens: Option<V>,
    generation: Generation,
}

impl<V: AsRef<Scope>> Renewable<V> {
    /// A key that is not valid.
    pub(super) fn new(identity: Identity) -> Self {
        Self {
            identity,
            opens: None,
            generation: Generation(0),
        }
    }

    /// How it reads now.
    pub(super) fn key(&self) -> Rkey {
        Rkey(self.identity.key)
    }

    /// Whether objects of `pd` know it by `key`.
    pub(super) fn is(&self, pd: PdId, key: Rkey) -> bool {
        self.identity.is(pd, key.0)
    }

    /// Whether it is one of objects of `pd`.
    pub(super) fn is_of(&self, pd: PdId) -> bool {
        self.identity.pd == pd
    }

    /// What it opens; none while it is not valid.
    #[inline]
    pub(super) fn opens(&self) -> Option<&V> {
        self.opens.as_ref()
    }

    /// Has it open `opens`, or nothing, with the variant of `key` from now on.
    // Rules: MWN-2
    pub(super) fn renew(&mut self, key: Rkey, opens: Option<V>) {
        let key = number::with_variant(self.identity.key, key.0);
        self.change(key, opens);
    }

    /// Takes it away.
    pub(super) fn invalidate(&mut self) {
        self.change(self.identity.key, None);
    }

    /// Takes it away for good.
    pub(super) fn close(&mut self) {
        self.change(0, None);
    }

    fn change(&mut self, key: u32, opens: Option<V>) {
        self.identity.key = key;
        self.opens = opens;
        self.generation.0 = self.generation.0.wrapping_add(1);
    }

    /// Checks `claim` to what it opens. Returns that, where in it, and what the grant is to be looked at
    /// with [later](Self::granted).
    #[inline]
    pub(super) fn admit(&self, claim: &Claim) -> Result<(&V, Place, Generation), AccessError> {
        let opens = self.opens.as_ref().ok_or(AccessError)?;
        let place = self.identity.admit(opens.as_ref(), claim)?;
        Ok((opens, place, self.generation))
    }

    /// What it opens, if that is what it was when something was granted by it.
    // Rules: MWN-13
    #[inline]
    pub(super) fn granted(&self, generation: Generation) -> Option<&V> {
        self.opens
            .as_ref()
            .filter(|_| self.generation == generation)
    }
}
