// SPDX-License-Identifier: GPL-2.0

//! Memory regions, and the pieces of them that work requests and peers name.

use kernel::prelude::*;
use kernel::sync::{rcu, Arc};
use rdma::errno::EOPNOTSUPP;
use rdma::net::{Datagram, Frame, HeldPacket, NetDevice, RxPacket};
use rdma::odp::{Intent, OnDemand};
use rdma::pages::{Backing, Pages};
use rdma::pmem;
use rdma::revocable::Revocable;
use rdma::slots::Slots;
use rdma::umem::{is_linear, Umem};
use roce::host::{Access, AccessError, Extent};
use roce::num::Iova;
use roce::wire::Packet;
use roce::wr::{AtomicOp, Placement, ATOMIC_BYTES};

use crate::fast::FastMr;
use crate::paging::{Absent, Miss};
use crate::table::{PdId, LOCAL_DMA_LKEY};
use crate::window::Pane;

/// Rights to a memory region; the bits are those of `enum ib_access_flags`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rights(u32);

impl Rights {
    /// No right but to send from it.
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const LOCAL_WRITE: Self = Self(1 << 0);
    pub(crate) const REMOTE_WRITE: Self = Self(1 << 1);
    pub(crate) const REMOTE_READ: Self = Self(1 << 2);
    pub(crate) const REMOTE_ATOMIC: Self = Self(1 << 3);
    const MW_BIND: Self = Self(1 << 4);
    const ZERO_BASED: u32 = 1 << 5;
    const ON_DEMAND: u32 = 1 << 6;
    const HUGETLB: u32 = 1 << 7;
    const FLUSH_GLOBAL: Self = Self(1 << 8);
    pub(crate) const FLUSH_PERSISTENT: Self = Self(1 << 9);

    /// Flags that a device may ignore (`IB_ACCESS_OPTIONAL`).
    const OPTIONAL: u32 = 0x3ff << 20;
    const SUPPORTED: u32 = Self::LOCAL_WRITE.0
        | Self::REMOTE_WRITE.0
        | Self::REMOTE_READ.0
        | Self::REMOTE_ATOMIC.0
        | Self::MW_BIND.0
        | Self::FLUSH_GLOBAL.0
        | (if pmem::CAN_WRITE_BACK {
            Self::FLUSH_PERSISTENT.0
        } else {
            0
        })
        | Self::ZERO_BASED
        | Self::ON_DEMAND
        | Self::HUGETLB
        | Self::OPTIONAL;
    /// What says of which kind a region is, and is no right to it.
    const KINDS: u32 = Self::ZERO_BASED | Self::ON_DEMAND | Self::HUGETLB;
    /// Rights of a peer that the owner must have too.
    const REMOTE_CHANGE: Self = Self(Self::REMOTE_WRITE.0 | Self::REMOTE_ATOMIC.0);

    /// Checks flags that a user asks for.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` for a flag that ferroce does not know, `EINVAL` for a peer's right to change
    /// memory that the owner may not.
    pub(crate) fn from_flags(flags: u32) -> Result<Self> {
        if flags & !Self::SUPPORTED != 0 {
            return Err(EOPNOTSUPP);
        }
        let rights = Self(flags & !(Self::OPTIONAL | Self::KINDS));
        // Rules: MEM-6
        if rights.meets(Self::REMOTE_CHANGE) && !rights.contains(Self::LOCAL_WRITE) {
            return Err(EINVAL);
        }
        Ok(rights)
    }

    /// Checks flags that a user in the kernel asks for, for memory that it may change in any case.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` for a flag that ferroce does not know, or that is about memory of processes; also
    /// to FLUSH to persistence: what a work request registers cannot be looked at there.
    pub(crate) fn of_kernel(flags: u32) -> Result<Self> {
        if flags & (Self::KINDS | Self::FLUSH_PERSISTENT.0) != 0 {
            return Err(EOPNOTSUPP);
        }
        Self::from_flags(flags | Self::LOCAL_WRITE.0)
    }

    /// What `access` needs.
    // Rules: MEM-4
    pub(crate) fn needed_for(access: Access) -> Self {
        match access {
            Access::Read => Self::REMOTE_READ,
            Access::Write => Self::REMOTE_WRITE,
            Access::Atomic => Self::REMOTE_ATOMIC,
        }
    }

    /// The rights that a window is bound with; `None` if it cannot have them.
    ///
    /// Programs give the flags of their regions here: what is no right of a peer says nothing.
    pub(crate) fn of_window(flags: u32) -> Option<Self> {
        const IGNORED: u32 =
            Rights::LOCAL_WRITE.0 | Rights::MW_BIND.0 | Rights::ZERO_BASED | Rights::OPTIONAL;
        const RIGHTS: u32 = Rights::REMOTE_WRITE.0
            | Rights::REMOTE_READ.0
            | Rights::REMOTE_ATOMIC.0
            | Rights::FLUSH_GLOBAL.0
            | Rights::FLUSH_PERSISTENT.0;
        (flags & !(IGNORED | RIGHTS) == 0).then_some(Self(flags & RIGHTS))
    }

    /// Whether memory of these flags is paged in on demand.
    pub(crate) fn is_on_demand(flags: u32) -> bool {
        flags & Self::ON_DEMAND != 0
    }

    /// Whether a process says that its memory is made of huge pages.
    pub(crate) fn is_huge(flags: u32) -> bool {
        flags & Self::HUGETLB != 0
    }

    /// Whether anything could write to memory with these rights: windows to it may be bound with
    /// rights of their own.
    pub(crate) fn may_change(self) -> bool {
        self.meets(Self(
            Self::LOCAL_WRITE.0 | Self::REMOTE_CHANGE.0 | Self::MW_BIND.0,
        ))
    }

    /// Whether a region or window has address 0 for its first byte.
    pub(crate) fn is_zero_based(flags: u32) -> bool {
        flags & Self::ZERO_BASED != 0
    }

    /// What a FLUSH to `placement` needs.
    pub(crate) fn needed_to_flush(placement: Placement) -> Self {
        let right = |wanted, right: Self| if wanted { right.0 } else { 0 };
        let global = right(placement.global, Self::FLUSH_GLOBAL);
        Self(global | right(placement.persistent, Self::FLUSH_PERSISTENT))
    }

    /// Whether all of `other` is in it.
    pub(crate) fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// A memory region.
#[pin_data]
pub(crate) struct Mr {
    pd: PdId,
    key: u32,
    rights: Rights,
    iova: Iova,
    length: u64,
    /// It is all of the kernel's memory: see [`kernel`](Self::kernel).
    is_kernel: bool,
    /// The pages; gone once the region is deregistered, however many requests still name it.
    #[pin]
    pages: Revocable<Backing>,
}

impl Mr {
    /// The region over `pages` which its users know as the `length` bytes at `iova`.
    pub(crate) fn new(
        pd: PdId,
        key: u32,
        rights: Rights,
        iova: Iova,
        length: u64,
        pages: Backing,
    ) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            pd,
            key,
            rights,
            iova,
            length,
            is_kernel: false,
            pages <- Revocable::new(pages),
        })
    }

    /// All of the kernel's memory, as its own work requests name it by [`LOCAL_DMA_LKEY`].
    ///
    /// # Who gets at it
    ///
    /// A work request whose SGE has that key, by [`kernel_segment`](Self::kernel_segment), which is
    /// called for those of a queue pair that the kernel owns, and no others. What these are was posted
    /// by a verb to a ring that no process maps: the verb refuses requests that a process has the core
    /// pass for it, and a process's own queue pair is never one of the kernel's. Nothing is found
    /// under the key in the table of regions, which is where keys of processes and peers are looked
    /// up.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn kernel() -> Result<impl PinInit<Self, Error>> {
        Self::kernel_region(PdId::new(), LOCAL_DMA_LKEY.0, Rights::LOCAL_WRITE)
    }

    /// A region that is all of the kernel's memory, for users of `pd` in the kernel; its addresses are
    /// those of the kernel.
    ///
    /// A user in the kernel that asks for it gives its peers a key to all memory, if `rights` have any
    /// of a peer's: the core calls that unsafe, and lets nobody but the kernel ask.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn kernel_region(
        pd: PdId,
        key: u32,
        rights: Rights,
    ) -> Result<impl PinInit<Self, Error>> {
        let pages = Umem::kernel()?;
        Ok(try_pin_init!(Self {
            pd,
            key,
            rights,
            iova: Iova(0),
            length: u64::MAX,
            is_kernel: true,
            pages <- Revocable::new(Backing::Pinned(pages)),
        }))
    }

    /// The `len` bytes at `iova` of `this`, which is [`kernel`](Self::kernel).
    pub(crate) fn kernel_segment(
        this: &Arc<Self>,
        iova: Iova,
        len: u32,
    ) -> Result<Segment, AccessError> {
        let offset = this.offset_of(iova, len)?;
        Ok(Segment {
            source: Source::Region(this.clone()),
            offset,
            len,
            room: len,
        })
    }

    /// What local and remote requests present to reach it: one number serves as both.
    pub(crate) fn key(&self) -> u32 {
        self.key
    }

    /// Bytes of the blocks that it is made of; `None` once its memory is gone.
    pub(crate) fn block_bytes(&self) -> Option<usize> {
        let guard = rcu::read_lock();
        let pages = self.pages.try_access_with_guard(&guard)?;
        Some(pages.block_bytes())
    }

    /// Makes the memory unreachable and unpins it. Waits for the copies under way; may sleep.
    // Rules: MEM-9
    pub(crate) fn revoke(&self) {
        self.pages.revoke();
    }

    /// Checks that `pd`'s objects may use the `len` bytes at `iova` with `rights`, by `key`.
    ///
    /// What is written to locally may pass the region's end: only what a message fills of it
    /// counts. Programs post such receives.
    pub(crate) fn segment(
        this: &Arc<Self>,
        pd: PdId,
        key: u32,
        rights: Rights,
        iova: Iova,
        len: u32,
    ) -> Result<Segment, AccessError> {
        if !this.rights.contains(rights) {
            return Err(AccessError);
        }
        let room = if rights == Rights::LOCAL_WRITE {
            this.room(iova, len)
        } else {
            len
        };
        let offset = this.offset_for(pd, key, iova, room)?;
        Ok(Segment {
            source: Source::Region(this.clone()),
            offset,
            len,
            room,
        })
    }

    /// How many of the `len` bytes at `iova` are in the region, if the first one is.
    fn room(&self, iova: Iova, len: u32) -> u32 {
        let offset = iova.0.wrapping_sub(self.iova.0);
        let left = self.length.saturating_sub(offset);
        u32::try_from(left).map_or(len, |left| len.min(left))
    }

    /// The `len` bytes at `iova`, which a window shows.
    pub(crate) fn segment_through(
        this: &Arc<Self>,
        pane: Pane,
        iova: Iova,
        len: u32,
    ) -> Result<Segment, AccessError> {
        let offset = this.offset_of(iova, len)?;
        let guard = rcu::read_lock();
        if this.pages.try_access_with_guard(&guard).is_none() {
            return Err(AccessError);
        }
        Ok(Segment {
            source: Source::Window(this.clone(), pane),
            offset,
            len,
            room: len,
        })
    }

    /// Whether a window of `pd` may show the `length` bytes at `iova` with `rights`, by the local
    /// key `key`.
    pub(crate) fn may_show(
        &self,
        pd: PdId,
        key: u32,
        rights: Rights,
        iova: Iova,
        length: u64,
    ) -> bool {
        let changes = rights.meets(Rights::REMOTE_CHANGE);
        // Rules: MWN-9
        let local = if changes { Rights::LOCAL_WRITE.0 } else { 0 };
        // The memory was looked at, whether it is persistent, only for a region with that right.
        let needed = Rights(local | (rights.0 & Rights::FLUSH_PERSISTENT.0));
        // Rules: MWN-10
        let within = iova
            .0
            .checked_sub(self.iova.0)
            .and_then(|offset| offset.checked_add(length))
            .is_some_and(|end| end <= self.length);
        // Rules: MWN-8
        let allowed = self.rights.contains(Rights::MW_BIND) && self.rights.contains(needed);
        self.pd == pd && self.key == key && allowed && within
    }

    /// Where in the region the `len` bytes at `iova` start, if they all are in it, for `pd`'s objects
    /// that know it by `key`.
    pub(crate) fn offset_for(
        &self,
        pd: PdId,
        key: u32,
        iova: Iova,
        len: u32,
    ) -> Result<u64, AccessError> {
        // Rules: MEM-1, MEM-11
        if self.key != key || self.pd != pd {
            return Err(AccessError);
        }
        self.offset_of(iova, len)
    }

    /// Its memory, if that is paged in on demand and the region not deregistered.
    pub(crate) fn on_demand(&self) -> Option<Arc<OnDemand>> {
        let guard = rcu::read_lock();
        match self.pages.try_access_with_guard(&guard)? {
            Backing::OnDemand(memory) => Some(memory.clone()),
            Backing::Pinned(_) | Backing::DmaBuf(_) => None,
        }
    }

    /// Where in the region the `len` bytes at `iova` start, if they all are in it.
    // Rules: MEM-2
    fn offset_of(&self, iova: Iova, len: u32) -> Result<u64, AccessError> {
        let offset = iova.0.checked_sub(self.iova.0).ok_or(AccessError)?;
        // Rules: MEM-3
        let end = offset.checked_add(u64::from(len)).ok_or(AccessError)?;
        if end > self.length {
            return Err(AccessError);
        }
        // What the kernel does not have mapped would fault.
        if self.is_kernel && !is_linear(offset, len) {
            return Err(AccessError);
        }
        Ok(offset)
    }

    /// What a FLUSH of `extent` to where `placement` says is to see to, by `key`.
    ///
    /// Memory keeps what a CPU has stored, and everyone sees it: for that there is nothing to be done
    /// beyond the right to ask, which a region has for that placement alone.
    pub(crate) fn flush(
        this: &Arc<Self>,
        pd: PdId,
        key: u32,
        extent: Extent,
        placement: Placement,
    ) -> Result<Option<Unwritten>, AccessError> {
        let needed = Rights::needed_to_flush(placement);
        if this.key != key || this.pd != pd || !this.rights.contains(needed) {
            return Err(AccessError);
        }
        let (at, len) = match extent {
            Extent::Region => (0, this.length),
            Extent::Range { iova, len } => (this.offset_of(iova, len)?, u64::from(len)),
        };
        Ok(placement.persistent.then(|| Unwritten {
            mr: this.clone(),
            at,
            len,
        }))
    }

    /// What a FLUSH to persistence of the `len` bytes at `iova`, which a window shows, is to see to.
    pub(crate) fn flush_through(
        this: &Arc<Self>,
        iova: Iova,
        len: u64,
    ) -> Result<Unwritten, AccessError> {
        let at = iova.0.checked_sub(this.iova.0).ok_or(AccessError)?;
        Ok(Unwritten {
            mr: this.clone(),
            at,
            len,
        })
    }
}

/// Bytes of a region that a FLUSH is to get to persistence: they may still be in caches.
#[derive(Clone)]
pub(crate) struct Unwritten {
    mr: Arc<Mr>,
    at: u64,
    len: u64,
}

impl Unwritten {
    /// Bytes that are written back at once, in whatever context, and at most at a time.
    const AT_ONCE: u64 = 64 << 10;
    /// On-demand memory is looked for page by page in ranges up to this, which are what a FLUSH can
    /// name by its length. Of a larger region only what was used of it is known.
    const LOOKED_FOR: u64 = u32::MAX as u64;

    /// Whether it is the same one.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.mr, &other.mr) && self.at == other.at && self.len == other.len
    }

    /// Writes it back, if that does not take long and it is all there. Any context.
    pub(crate) fn write_back_at_once(&self) -> Result {
        if self.len > Self::AT_ONCE {
            return Err(EAGAIN);
        }
        self.write_back_piece(self.at, self.len)
    }

    fn write_back_piece(&self, at: u64, len: u64) -> Result {
        let guard = rcu::read_lock();
        let pages = self.mr.pages.try_access_with_guard(&guard).ok_or(EFAULT)?;
        pages.write_back(at, usize::try_from(len).map_err(|_| EFAULT)?)
    }

    /// Writes it back. Sleeps.
    ///
    /// Pages of on-demand memory that are there are made known first, and those that are not need
    /// nothing.
    ///
    /// # Errors
    ///
    /// `EFAULT` if the memory is gone, `EBUSY` if the process keeps changing it, `EINTR` if it is not
    /// wanted any more, `ENOMEM`.
    pub(crate) fn write_back(&self, is_wanted: impl Fn() -> bool) -> Result {
        if let Some(memory) = self.mr.on_demand() {
            if self.len <= Self::LOOKED_FOR {
                memory.fault_in(self.at, self.len, Intent::Look, &is_wanted)?;
            }
            return memory.write_back_known(self.at, self.len, is_wanted);
        }
        let (mut at, mut left) = (self.at, self.len);
        while left > 0 {
            let piece = left.min(Self::AT_ONCE);
            self.write_back_piece(at, piece)?;
            pmem::give_way();
            if !is_wanted() {
                return Err(EINTR);
            }
            at = at.wrapping_add(piece);
            left = left.wrapping_sub(piece);
        }
        Ok(())
    }
}

/// A checked piece of a memory region, which it holds.
///
/// # Invariants
///
/// `offset + room` does not pass the region's end, and `room` is at most `len`.
pub(crate) struct Segment {
    source: Source,
    offset: u64,
    len: u32,
    /// How many of these bytes the region has.
    room: u32,
}

/// Where a piece of memory is of.
enum Source {
    Region(Arc<Mr>),
    /// A region, granted through a window.
    Window(Arc<Mr>, Pane),
    /// A region as it was registered by a work request, of that generation.
    Fast(Arc<FastMr>, u64),
}

impl Mr {
    /// Runs `copy` on its pages, unless it was revoked. What `absent` makes says what of them has to be
    /// faulted in.
    fn with_pages<R>(
        this: &Arc<Self>,
        copy: impl FnOnce(&Backing) -> Result<R>,
        absent: impl FnOnce(&Arc<Self>) -> Absent,
    ) -> Result<R, Miss> {
        let guard = rcu::read_lock();
        let pages = this.pages.try_access_with_guard(&guard);
        copy(pages.ok_or(Miss::Gone)?).map_err(|error| {
            if error == EAGAIN {
                Miss::Absent(absent(this))
            } else {
                Miss::Gone
            }
        })
    }
}

impl Segment {
    /// The `len` bytes at `offset` of `mr`, which has as many, in its generation.
    pub(crate) fn fast(mr: Arc<FastMr>, generation: u64, offset: u64, len: u32) -> Self {
        Self {
            source: Source::Fast(mr, generation),
            offset,
            len,
            room: len,
        }
    }

    /// Runs `copy` on the region's pages, with where `at` bytes into this piece is in them.
    fn with_pages<R>(
        &self,
        at: u32,
        len: u32,
        intent: Intent,
        copy: impl FnOnce(&Backing, u64, usize) -> Result<R>,
    ) -> Result<R, Miss> {
        let end = at.checked_add(len).ok_or(Miss::Gone)?;
        let left = self.room.checked_sub(end).ok_or(Miss::Gone)?;
        let start = self.offset.wrapping_add(u64::from(at));
        let copy = |pages: &Backing| copy(pages, start, len as usize);
        let absent = |mr: &Arc<Mr>| Absent::new(mr, start, len, left, intent);
        match &self.source {
            Source::Region(mr) => Mr::with_pages(mr, copy, absent),
            Source::Window(mr, pane) => pane
                .while_open(|| Mr::with_pages(mr, copy, absent))
                .ok_or(Miss::Gone)?,
            Source::Fast(mr, generation) => mr.with_pages(*generation, copy),
        }
    }

    /// Stores eight bytes of a packet in the first ones, in one step.
    pub(crate) fn place_atomically(&self, from: Incoming<'_>) -> Result<(), Miss> {
        let mut bytes = [0; ATOMIC_BYTES as usize];
        from.packet
            .read(from.offset, &mut bytes)
            .map_err(|_| Miss::Gone)?;
        self.with_pages(0, ATOMIC_BYTES, Intent::Write, |pages, start, _| {
            pages.store(start, u64::from_ne_bytes(bytes))
        })
    }

    /// Carries out `op` on the first bytes, in one step. Returns what they were.
    // Rules: RDA-16
    pub(crate) fn atomic(&self, op: AtomicOp) -> Result<u64, Miss> {
        self.with_pages(0, ATOMIC_BYTES, Intent::Write, |pages, start, _| match op {
            AtomicOp::CompareSwap { compare, swap } => pages.compare_swap(start, compare, swap),
            AtomicOp::FetchAdd { add } => pages.fetch_add(start, add),
        })
    }
}

/// A datagram that is handled now.
pub(crate) enum AtHand<'a> {
    /// Its handler may keep it.
    Owned(RxPacket<'a>),
    /// It goes to other queue pairs, too.
    Shared(&'a RxPacket<'a>),
}

impl AtHand<'_> {
    /// Makes something to keep of it.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    #[cold]
    pub(crate) fn keep(self) -> Result<HeldPacket> {
        match self {
            Self::Owned(datagram) => Ok(datagram.into_held()),
            Self::Shared(datagram) => datagram.clone_held(),
        }
    }

    /// The payload of `packet`, which this is.
    #[inline]
    pub(crate) fn incoming(&self, packet: &Packet) -> Incoming<'_> {
        let datagram = match self {
            Self::Owned(datagram) => datagram,
            Self::Shared(datagram) => *datagram,
        };
        Incoming {
            packet: datagram,
            device: datagram.device(),
            offset: packet.payload_at(datagram.payload_len()) as usize,
        }
    }
}

/// Bytes of a packet on their way into memory: `offset` is in the UDP payload.
#[derive(Clone, Copy)]
pub(crate) struct Incoming<'a> {
    pub(crate) packet: &'a Datagram,
    /// Where it arrived just now; not known of one that was kept.
    pub(crate) device: Option<&'a NetDevice>,
    pub(crate) offset: usize,
}

/// Memory that payload is copied from and to.
pub(crate) trait Memory {
    /// Appends `len` bytes from byte `at` on to `frame`.
    fn gather(&self, at: u32, len: u32, frame: &mut Frame<'_>) -> Result<(), Miss>;

    /// Copies `len` bytes of a packet to byte `at` and on.
    fn scatter(&self, at: u32, len: u32, from: Incoming<'_>) -> Result<(), Miss>;
}

impl Payload {
    /// Copies what an atomic found to the first bytes.
    pub(crate) fn put_original(&self, original: u64) -> Result<(), Miss> {
        let bytes = original.to_ne_bytes();
        self.for_each_piece(0, ATOMIC_BYTES, |segment, at, run, done| {
            let tail = bytes.get(done as usize..).ok_or(Miss::Gone)?;
            let from = tail.get(..run as usize).ok_or(Miss::Gone)?;
            segment.with_pages(at, run, Intent::Write, |pages, start, _| {
                pages.write(start, from)
            })
        })
    }
}

impl Memory for Segment {
    fn gather(&self, at: u32, len: u32, frame: &mut Frame<'_>) -> Result<(), Miss> {
        self.with_pages(at, len, Intent::Read, |pages, start, len| {
            frame.push_memory(pages, start, len)
        })
    }

    fn scatter(&self, at: u32, len: u32, from: Incoming<'_>) -> Result<(), Miss> {
        self.with_pages(at, len, Intent::Write, |pages, start, len| {
            from.packet.copy_to(from.offset, len, pages, start)
        })
    }
}

/// The local memory of a work request.
pub(crate) enum Payload {
    /// No byte of it.
    Empty,
    /// A copy of what the poster put into the request itself, at the start of a buffer.
    Inline(Slots<u8>),
    /// One piece: the common case.
    One(Segment),
    /// Several, in order; behind them the list is empty.
    Many(Slots<Option<Segment>>),
}

impl Payload {
    /// Runs `copy` on each piece that the `len` bytes from byte `at` on lie in: with where in it,
    /// how many bytes, and how many were before them.
    // Rules: SEG-20
    fn for_each_piece(
        &self,
        at: u32,
        len: u32,
        mut copy: impl FnMut(&Segment, u32, u32, u32) -> Result<(), Miss>,
    ) -> Result<(), Miss> {
        let segments = match self {
            Self::Empty | Self::Inline(_) => &[][..],
            Self::One(segment) => {
                return match at.checked_add(len) {
                    _ if len == 0 => Ok(()),
                    Some(end) if end <= segment.len => copy(segment, at, len, 0),
                    _ => Err(Miss::Gone),
                };
            }
            Self::Many(segments) => &segments[..],
        };
        let mut skip = at;
        let mut done = 0u32;
        for segment in segments.iter().flatten() {
            if done == len {
                break;
            }
            let Some(room) = segment.len.checked_sub(skip).filter(|room| *room > 0) else {
                skip = skip.saturating_sub(segment.len);
                continue;
            };
            let run = room.min(len.saturating_sub(done));
            copy(segment, skip, run, done)?;
            done = done.saturating_add(run);
            skip = 0;
        }
        if done == len {
            Ok(())
        } else {
            Err(Miss::Gone)
        }
    }
}

impl Payload {
    /// Copies `bytes` to the first bytes of it.
    pub(crate) fn put_first(&self, bytes: &[u8]) -> Result<(), Miss> {
        let len = u32::try_from(bytes.len()).map_err(|_| Miss::Gone)?;
        self.for_each_piece(0, len, |segment, start, run, done| {
            let rest = bytes.get(done as usize..).ok_or(Miss::Gone)?;
            let piece = rest.get(..run as usize).ok_or(Miss::Gone)?;
            segment.with_pages(start, run, Intent::Write, |pages, at, _| {
                pages.write(at, piece)
            })
        })
    }
}

impl Memory for Payload {
    fn gather(&self, at: u32, len: u32, frame: &mut Frame<'_>) -> Result<(), Miss> {
        if let Self::Inline(bytes) = self {
            let tail = bytes.get(at as usize..).ok_or(Miss::Gone)?;
            let run = tail.get(..len as usize).ok_or(Miss::Gone)?;
            return frame.push(run).map_err(|_| Miss::Gone);
        }
        self.for_each_piece(at, len, |segment, start, run, _| {
            segment.gather(start, run, frame)
        })
    }

    fn scatter(&self, at: u32, len: u32, from: Incoming<'_>) -> Result<(), Miss> {
        self.for_each_piece(at, len, |segment, start, run, done| {
            let offset = from.offset.saturating_add(done as usize);
            segment.scatter(start, run, Incoming { offset, ..from })
        })
    }
}
