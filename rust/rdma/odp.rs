// SPDX-License-Identifier: GPL-2.0

//! Memory of a process, paged in on demand.
//!
//! Nothing is pinned: the process may unmap, move, share and swap out its memory as it likes. What
//! is known of it is a copy of the page table, for those pages that were used, which the memory
//! manager tells of every change (`mmu_interval_notifier`). Bytes are copied in any context, as
//! long as their pages are in that copy; if they are not, they are [faulted
//! in](OnDemand::fault_in), which sleeps, and the copy is tried again.
//!
//! # Chunks
//!
//! The copy is made of chunks, each of 2 MiB of addresses with pages of 4 KiB, which come into being
//! as they are used. So a region may cover the whole address space of its process. A region has no
//! more than [`MAX_CHUNKS`]: then one that was made long ago makes room for the next. They are
//! charged to the process, whoever has them made.
//!
//! # Invalidation
//!
//! Each chunk has two locks. `pages` guards the copy of the page table; it is held while bytes are
//! copied, so when an invalidation has cleared an entry under it, nobody uses that page any more.
//! `changes`, a mutex, orders what changes entries: an invalidation, and what was found by a walk
//! of the page table, which is entered only if no invalidation came between. An invalidation marks
//! the pages dirty that were written to, as the process's own page table may not tell so; it holds
//! `changes` until it is through, so the memory manager does not go on with a page that another
//! invalidation has still to mark.
//!
//! # What is refused
//!
//! Pages are copied by their kernel addresses, by a CPU. A walk of the page table finds some that
//! cannot be, and that pinning would refuse: memory that was taken out of the kernel's mapping
//! (`memfd_secret`), memory of PCI devices, and shadow stacks, which nothing but their own
//! instructions may write to. Each page is looked at when it is entered, so a copy of it fails as one
//! of memory that is gone. A page that was entered stays mapped: the kernel takes a page out of its
//! mapping before it gives it to a process (`memfd_secret`), or after it was taken from all of
//! them, which has it invalidated here (memory that is unplugged, or has failed).
//!
//! The RDMA core's own `ib_umem_odp` has a page table that is written to by the walk itself, without
//! a lock, and marks pages dirty only for devices that do DMA: neither suits a device whose packets
//! arrive in softirq context and are copied by a CPU.

use core::pin::Pin;
use core::ptr;

use kernel::error::to_result;
use kernel::ffi::c_void;
use kernel::mm::virt::{self, VmaRef};
use kernel::mm::{Mm, MmWithUser};
use kernel::page::{PAGE_SHIFT, PAGE_SIZE};
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::{new_mutex, rcu, Arc, Mutex};
use kernel::types::Opaque;

use rdma_bindings as bindings;

use crate::memory::Pages;
use crate::module::InUse;
use crate::new_bh_spinlock;
use crate::pmem;
use crate::sync::BhSpinLock;
use crate::table::IdTable;
use crate::time::now_ns;
use crate::work;

#[cfg(not(CONFIG_INFINIBAND_ON_DEMAND_PAGING))]
compile_error!("ferroce needs a kernel with CONFIG_INFINIBAND_ON_DEMAND_PAGING");

/// Pages of a chunk.
const CHUNK_PAGES: usize = 512;
/// Bytes of addresses that a chunk covers.
const CHUNK_BYTES: usize = CHUNK_PAGES * PAGE_SIZE;

/// Chunks that a region has at most at a time.
pub const MAX_CHUNKS: usize = 1 << 15;

/// Chunks that are looked at, whether they are empty and can go, whenever one is made.
const LOOK_AT: usize = 4;

/// Pages that are faulted in at a time.
const FAULT_PAGES: usize = 64;

/// Pages that are faulted in ahead without letting go of the lock of the memory map.
const LOCKED_PAGES: usize = 8;

/// What was done to fault pages in that somebody may keep taking away again.
struct Effort {
    /// When it is given up, unless it comes further.
    deadline: u64,
    furthest: usize,
    rounds: u32,
    /// How often a page was waited for.
    waits: u32,
    /// The page that was waited for last, and how often it was not there after that.
    page: usize,
    in_vain: u32,
}

impl Effort {
    /// How long the process may keep changing pages.
    const NS: u64 = 1_000_000_000;
    /// So often it is tried in any case: one fault may take longer than that.
    const LEAST_ROUNDS: u32 = 16;
    const MOST_WAITS: u32 = 16 * FAULT_PAGES as u32;
    /// So often a page is waited for without the lock of the memory map, and not there after that. It
    /// cannot be read, or is being written to its disk: only a fault that keeps the lock, as those of
    /// the process itself do in the end, tells, or waits for it.
    const MOST_IN_VAIN: u32 = 16;

    fn new() -> Self {
        Self {
            deadline: now_ns().saturating_add(Self::NS),
            furthest: 0,
            rounds: 0,
            waits: 0,
            page: 0,
            in_vain: 0,
        }
    }

    fn may_go_on(&mut self) -> bool {
        self.rounds = self.rounds.wrapping_add(1);
        self.rounds <= Self::LEAST_ROUNDS
            || (now_ns() <= self.deadline && self.waits < Self::MOST_WAITS)
    }

    /// What there is to be said of the next fault.
    fn fault_flags(&self) -> u32 {
        match self.in_vain < Self::MOST_IN_VAIN {
            true => 0,
            false => bindings::FERROCE_FAULT_FLAG_TRIED,
        }
    }

    /// Notes that page `page` was waited for, the first that was missing.
    fn waited_for(&mut self, page: usize) {
        if page > self.furthest {
            self.furthest = page;
            self.deadline = now_ns().saturating_add(Self::NS);
        }
        let is_same = self.page == page && self.waits > 0;
        self.in_vain = if is_same {
            self.in_vain.wrapping_add(1)
        } else {
            0
        };
        self.page = page;
        self.waits = self.waits.wrapping_add(1);
    }
}

/// Written pages that are marked dirty at a time.
const DIRTY_PAGES: usize = 32;

/// What pages are faulted in for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Intent {
    /// To be read.
    Read,
    /// To be written to, and read.
    Write,
    /// Nothing: pages that are there anyway are made known, others left alone.
    Look,
}

impl Intent {
    /// What a walk must find of each page.
    fn needed(self) -> usize {
        match self {
            Self::Read => pfn::VALID,
            Self::Write => pfn::VALID | pfn::WRITE,
            Self::Look => 0,
        }
    }

    /// How a page is faulted in.
    fn fault_flags(self) -> u32 {
        let write = match self {
            Self::Write => bindings::FERROCE_FAULT_FLAG_WRITE,
            Self::Read | Self::Look => 0,
        };
        write | bindings::FERROCE_FAULT_FLAGS
    }
}

/// `enum hmm_pfn_flags`: what a walk of the page table finds a page to be.
mod pfn {
    use rdma_bindings as bindings;

    pub(super) const VALID: usize = !(usize::MAX >> 1);
    pub(super) const WRITE: usize = bindings::FERROCE_HMM_PFN_WRITE;
    pub(super) const ERROR: usize = bindings::FERROCE_HMM_PFN_ERROR;
}

/// Whether a walk found a page.
fn is_valid(found: usize) -> bool {
    found & pfn::VALID != 0 && found & pfn::ERROR == 0
}

/// Whether a walk has not found a page as it is needed.
fn is_missing(found: usize, intent: Intent) -> bool {
    let needed = intent.needed();
    found & needed != needed
}

/// Faults in those pages from `from` on that a walk has not found as they are needed. Returns true as
/// soon as it had to wait for one. Sleeps, without the lock of the memory map where the kernel can.
///
/// Each is tried once, with `more_flags`: tried again at once, the kernel would keep the lock while it
/// waits.
///
/// # Errors
///
/// `EFAULT` if the process has no such memory, or not for that, `EPERM` if it is not to be written to;
/// `ENOMEM`.
fn fault_in_missing(
    mm: &MmWithUser,
    from: usize,
    found: &[usize],
    intent: Intent,
    more_flags: u32,
) -> Result<bool> {
    let lock = mm.mmap_read_lock();
    let mut address = from;
    for found in found {
        if is_missing(*found, intent) {
            let area = lock.vma_lookup(address).ok_or(EFAULT)?;
            check_area(area, intent)?;
            // SAFETY: The area has the address. Its memory map is in use and locked, until the function
            // says that it is not.
            let outcome = unsafe {
                kernel::bindings::handle_mm_fault(
                    area.as_ptr(),
                    address,
                    intent.fault_flags() | more_flags,
                    ptr::null_mut(),
                )
            };
            if outcome & bindings::FERROCE_VM_FAULT_UNLOCKED != 0 {
                // It has let go of the lock.
                core::mem::forget(lock);
                return Ok(true);
            }
            if outcome & bindings::FERROCE_VM_FAULT_OOM != 0 {
                return Err(ENOMEM);
            }
            // Also where the walk finds something that is no page, and always will.
            if outcome & bindings::FERROCE_VM_FAULT_ERROR != 0 {
                return Err(EFAULT);
            }
        }
        address = address.saturating_add(PAGE_SIZE);
    }
    Ok(false)
}

/// Begins to fault in those pages from `from` on that a walk has not found as they are needed, of
/// anonymous memory, and waits for none: those that were swapped out are asked for. Stops at the first
/// page that cannot be had. May sleep, with the lock of the memory map, but not for a disk.
///
/// It leaves alone what belongs to a file: there the kernel reads some pages with the lock held, whatever
/// it is told. A fault brings in its neighbours, too, if they are in memory.
fn begin_missing(mm: &MmWithUser, from: usize, found: &[usize], intent: Intent) {
    let flags = intent.fault_flags() | bindings::FERROCE_FAULT_FLAG_RETRY_NOWAIT;
    let lock = mm.mmap_read_lock();
    let mut address = from;
    for found in found {
        if is_missing(*found, intent) {
            let area = lock.vma_lookup(address);
            let is_simple = |area: &&VmaRef| is_anonymous(area) && check_area(area, intent).is_ok();
            let Some(area) = area.filter(is_simple) else {
                return;
            };
            // SAFETY: The area has the address. Its memory map is in use and locked, and stays so: with
            // this flag the function does not let go of the lock.
            let outcome = unsafe {
                kernel::bindings::handle_mm_fault(area.as_ptr(), address, flags, ptr::null_mut())
            };
            if outcome & bindings::FERROCE_VM_FAULT_ERROR != 0 {
                return;
            }
        }
        address = address.saturating_add(PAGE_SIZE);
    }
}

/// Whether an area is of no file and no driver: all its pages are zeroes, or in memory, or swapped out.
fn is_anonymous(area: &VmaRef) -> bool {
    // SAFETY: A reference to an area is one to a valid one, whose memory map is locked.
    unsafe { (*area.as_ptr()).vm_ops }.is_null()
}

/// Whether memory of an area can be brought in.
///
/// # Errors
///
/// `EFAULT` if it cannot; `EPERM` if it is not to be written to.
fn check_area(area: &VmaRef, intent: Intent) -> Result {
    let flags = area.flags();
    if flags & (virt::flags::IO | virt::flags::PFNMAP) != 0 || flags & virt::flags::READ == 0 {
        return Err(EFAULT);
    }
    if intent == Intent::Write && flags & virt::flags::WRITE == 0 {
        return Err(EPERM);
    }
    Ok(())
}

/// Takes out of what a walk found what cannot be copied by a CPU: see the module's documentation. A
/// page that is taken out stays absent.
///
/// # Errors
///
/// `EFAULT` if there is such a page and it is needed.
///
/// # Safety
///
/// The pages must be there until this returns.
unsafe fn keep_reachable(pfns: &mut [usize], intent: Intent) -> Result {
    for found in pfns.iter_mut().filter(|found| is_valid(**found)) {
        // SAFETY: By the safety requirements.
        if unsafe { is_reachable(*found) } {
            continue;
        }
        if intent != Intent::Look {
            return Err(EFAULT);
        }
        *found = 0;
    }
    Ok(())
}

/// Whether a CPU can copy from and to the page that a walk found, by its kernel address.
///
/// # Safety
///
/// The page must be there until this returns.
unsafe fn is_reachable(found: usize) -> bool {
    // SAFETY: The walk found the page, and by the safety requirements it is still there.
    let (is_device_memory, address) = unsafe {
        (
            bindings::hmm_pfn_is_p2pdma(found),
            bindings::hmm_pfn_address(found),
        )
    };
    if is_device_memory {
        return false;
    }
    let mut byte = 0u8;
    // SAFETY: There is room for a byte. The function copes with an address that is not mapped.
    let probed = unsafe {
        bindings::copy_from_kernel_nofault((&raw mut byte).cast(), address as *const c_void, 1)
    };
    probed == 0
}

/// Whether some of the addresses from `from` to `to` are a shadow stack. Sleeps for the lock of the
/// memory map.
///
/// Its answer is good until an invalidation of the addresses, as what a walk finds is.
fn has_shadow_stack(mm: &MmWithUser, from: usize, to: usize) -> bool {
    let shadow_stack = bindings::FERROCE_VM_SHADOW_STACK;
    if shadow_stack == 0 {
        return false;
    }
    let areas = mm.mmap_read_lock();
    let mut next = from;
    while next < to {
        let Some(area) = areas.vma_lookup(next) else {
            next = next.saturating_add(PAGE_SIZE);
            continue;
        };
        if area.flags() & shadow_stack != 0 {
            return true;
        }
        next = area.end().max(next.saturating_add(PAGE_SIZE));
    }
    false
}

/// What is known of a page: its kernel address, and [`PRESENT`](Self::PRESENT) and the like in the
/// bits below that.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry(usize);

impl Entry {
    const ABSENT: Self = Self(0);
    const PRESENT: usize = 1;
    const WRITABLE: usize = 2;
    /// It was written to.
    const WRITTEN: usize = 4;

    fn has(self, flags: usize) -> bool {
        self.0 & flags == flags
    }

    fn address(self) -> usize {
        self.0 & !(PAGE_SIZE - 1)
    }
}

/// A chunk's copy of the page table.
///
/// # Invariants
///
/// The page of an entry that is present stays where it is until an invalidation for its address
/// has returned or the chunk has gone, both of which clear the entry under the lock. It may be
/// written to if the entry is writable.
struct PageTable {
    /// [`CHUNK_PAGES`] of them.
    entries: KVec<Entry>,
    /// How many are present.
    present: usize,
}

/// A part of a region.
///
/// # Invariants
///
/// `notifier` is registered for the [`CHUNK_BYTES`] from `start` on until the chunk is dropped.
#[pin_data(PinnedDrop)]
struct Chunk {
    start: usize,
    /// Nothing but persistent memory is written to, and written back before it is taken away.
    persistent: bool,
    #[pin]
    changes: Mutex<()>,
    #[pin]
    pages: BhSpinLock<PageTable>,
    #[pin]
    notifier: Opaque<bindings::mmu_interval_notifier>,
}

// SAFETY: The notifier may be removed by any thread.
unsafe impl Send for Chunk {}
// SAFETY: The kernel synchronises access to the notifier, the locks that to the rest.
unsafe impl Sync for Chunk {}

/// The operations of a chunk's notifier.
static OPS: bindings::mmu_interval_notifier_ops = {
    // SAFETY: Zeroes are no operations.
    let mut ops: bindings::mmu_interval_notifier_ops = unsafe { core::mem::zeroed() };
    ops.invalidate = Some(Chunk::invalidate);
    ops
};

impl Chunk {
    /// Watches the addresses from `first` on.
    fn new(mm: &MmWithUser, first: usize, persistent: bool) -> impl PinInit<Self, Error> + '_ {
        try_pin_init!(Self {
            start: first,
            persistent,
            changes <- new_mutex!((), "rdma::odp::Chunk::changes"),
            pages <- new_bh_spinlock!(
                PageTable {
                    entries: KVec::from_elem(Entry::ABSENT, CHUNK_PAGES, GFP_KERNEL_ACCOUNT)?,
                    present: 0,
                },
                "rdma::odp::Chunk::pages"
            ),
            // The last field: it is called from now on. It has its own reference to the memory map.
            notifier <- Opaque::try_ffi_init(|notifier| {
                // SAFETY: The notifier is pinned, and removed before it goes. Somebody uses `mm`.
                to_result(unsafe {
                    bindings::mmu_interval_notifier_insert(
                        notifier,
                        mm.as_raw(),
                        first,
                        CHUNK_BYTES,
                        &OPS,
                    )
                })
            }),
        })
    }

    /// The process's pages from `range.start` to `range.end` are about to change.
    ///
    /// # Safety
    ///
    /// For the memory manager to call, for a notifier of a chunk.
    unsafe extern "C" fn invalidate(
        notifier: *mut bindings::mmu_interval_notifier,
        range: *const bindings::mmu_notifier_range,
        seq: usize,
    ) -> bool {
        // SAFETY: The caller passes a valid range.
        let (may_sleep, start, end) = unsafe {
            (
                bindings::mmu_notifier_range_blockable(range),
                (*range).start,
                (*range).end,
            )
        };
        if !may_sleep {
            return false;
        }
        // SAFETY: The notifier is that of a chunk, which is not dropped before this returns.
        let chunk = unsafe {
            &*kernel::container_of!(
                notifier.cast::<Opaque<bindings::mmu_interval_notifier>>(),
                Chunk,
                notifier
            )
        };
        let _changes = chunk.changes.lock();
        // SAFETY: The notifier is valid, and `changes` is held here and where the number is looked
        // at.
        unsafe { bindings::mmu_interval_set_seq(notifier, seq) };
        let first = start.saturating_sub(chunk.start) >> PAGE_SHIFT;
        let last = end.saturating_sub(chunk.start).div_ceil(PAGE_SIZE);
        chunk.forget(first, last.min(CHUNK_PAGES));
        true
    }

    /// Clears the entries `first .. end`, and marks their pages dirty that were written to.
    /// `changes` is held by the caller.
    fn forget(&self, first: usize, end: usize) {
        let mut next = first;
        while next < end {
            let mut written = [0; DIRTY_PAGES];
            let mut count = 0;
            {
                let pages = &mut *self.pages.lock();
                while let Some(entry) = pages.entries.get_mut(next).filter(|_| next < end) {
                    let was = core::mem::replace(entry, Entry::ABSENT);
                    next = next.wrapping_add(1);
                    if was.has(Entry::PRESENT) {
                        pages.present = pages.present.wrapping_sub(1);
                    }
                    if was.has(Entry::WRITTEN) {
                        written[count] = was.address();
                        count = count.wrapping_add(1);
                        if count == DIRTY_PAGES {
                            break;
                        }
                    }
                }
            }
            for address in written.iter().take(count) {
                if self.persistent {
                    // SAFETY: As below.
                    unsafe { pmem::write_back(*address as *const u8, PAGE_SIZE) };
                }
                // SAFETY: The page is still that of the process: whoever takes it away has it
                // invalidated first, which waits for `changes`.
                unsafe { bindings::mark_page_dirty(*address) };
            }
        }
        if self.persistent {
            pmem::wait();
        }
    }

    /// Writes back the pages that are known of those from byte `from` to `to`. May sleep.
    fn write_back(&self, from: usize, to: usize) {
        let mut next = from >> PAGE_SHIFT;
        let end = to.div_ceil(PAGE_SIZE);
        while next < end {
            let stop = next.saturating_add(FAULT_PAGES).min(end);
            {
                let pages = &*self.pages.lock();
                let entries = pages.entries.iter().take(stop).skip(next);
                for entry in entries.filter(|entry| entry.has(Entry::PRESENT)) {
                    // SAFETY: By the invariants the page is there as long as the lock is held.
                    unsafe { pmem::write_back(entry.address() as *const u8, PAGE_SIZE) };
                }
            }
            next = stop;
            pmem::give_way();
        }
    }

    /// Has what a walk found be written to only where it is persistent memory.
    ///
    /// # Errors
    ///
    /// `EFAULT` if it is to be written to and is not.
    fn keep_persistent(&self, pfns: &mut [usize], intent: Intent) -> Result {
        let is_writable = |pfn: usize| pfn & pfn::VALID != 0 && pfn & pfn::WRITE != 0;
        for found in pfns.iter_mut().filter(|found| is_writable(**found)) {
            // SAFETY: It is the number of a page, of which only the address is taken.
            let address = unsafe { bindings::hmm_pfn_address(*found) };
            if pmem::is_persistent(address, PAGE_SIZE) {
                continue;
            }
            if intent == Intent::Write {
                return Err(EFAULT);
            }
            *found &= !pfn::WRITE;
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.pages.lock().present == 0
    }

    /// Faults in the pages from `from` to `to`, at most [`FAULT_PAGES`] of this chunk, both at the
    /// start of a page. Sleeps, mostly without the lock of the memory map: whoever looks at the process
    /// meanwhile does not have to wait for its disk. (A file system may keep the lock where it wants to
    /// know of a store.)
    ///
    /// It looks at `is_wanted` now and then, and stops when that is false.
    fn fault_in(
        &self,
        mm: &MmWithUser,
        from: usize,
        to: usize,
        intent: Intent,
        is_wanted: &impl Fn() -> bool,
    ) -> Result {
        let mut effort = Effort::new();
        while effort.may_go_on() {
            if !is_wanted() {
                return Err(EINTR);
            }
            work::give_way();
            let mut pfns = [0; FAULT_PAGES];
            let count = to.saturating_sub(from) >> PAGE_SHIFT;
            let found = pfns.get_mut(..count).ok_or(EINVAL)?;
            let seq = match self.walk(mm, from, found) {
                Ok(seq) => seq,
                Err(error) if error == EBUSY => continue,
                Err(error) => return Err(error),
            };
            let Some(first) = found.iter().position(|found| is_missing(*found, intent)) else {
                if self.enter_current(mm, from, found, intent, seq)? {
                    return Ok(());
                }
                continue;
            };
            if fault_in_missing(mm, from, found, intent, effort.fault_flags())? {
                effort.waited_for(first);
            }
        }
        Err(EBUSY)
    }

    /// Begins to fault in the pages from `from` to `to`, bounded as above, of anonymous memory, and enters
    /// those of any memory that are there then. Waits for no disk.
    ///
    /// # Errors
    ///
    /// If some may not have been entered.
    fn fault_in_ahead(&self, mm: &MmWithUser, from: usize, to: usize, intent: Intent) -> Result {
        let mut pfns = [0; FAULT_PAGES];
        let count = to.saturating_sub(from) >> PAGE_SHIFT;
        let found = pfns.get_mut(..count).ok_or(EINVAL)?;
        let mut seq = self.walk(mm, from, found)?;
        if found.iter().any(|found| is_missing(*found, intent)) {
            let mut address = from;
            for some in found.chunks(LOCKED_PAGES) {
                begin_missing(mm, address, some, intent);
                address = address.saturating_add(LOCKED_PAGES * PAGE_SIZE);
            }
            seq = self.walk(mm, from, found)?;
        }
        // None of them is needed yet, so none is a reason to fail.
        self.enter_current(mm, from, found, Intent::Look, seq)?;
        Ok(())
    }

    /// Finds the pages that are there, from `from` on, as many as `pfns` has room for. Returns the number
    /// by which to tell whether that is outdated. Sleeps for the lock of the memory map.
    fn walk(&self, mm: &MmWithUser, from: usize, pfns: &mut [usize]) -> Result<usize> {
        let notifier = self.notifier.get();
        // SAFETY: Zeroes are valid for all of it, and ask for nothing to be faulted in.
        let mut range: bindings::hmm_range = unsafe { core::mem::zeroed() };
        range.notifier = notifier;
        // SAFETY: The notifier is registered.
        range.notifier_seq = unsafe { bindings::mmu_interval_read_begin(notifier) };
        range.start = from;
        range.end = from.saturating_add(pfns.len() << PAGE_SHIFT);
        range.hmm_pfns = pfns.as_mut_ptr();
        let _lock = mm.mmap_read_lock();
        // SAFETY: The notifier covers the range, for whose pages there is room. Its memory map is locked,
        // and in use.
        to_result(unsafe { bindings::hmm_range_fault(&mut range) })?;
        Ok(range.notifier_seq)
    }

    /// Enters what a walk found from `from` on, unless that is outdated: `seq` is what the walk returned.
    /// Returns whether it was entered. Sleeps.
    ///
    /// # Errors
    ///
    /// `EFAULT` if a page is needed that cannot be used, or not for that; `EPERM` if it is of a shadow
    /// stack and to be written to.
    fn enter_current(
        &self,
        mm: &MmWithUser,
        from: usize,
        pfns: &mut [usize],
        intent: Intent,
        seq: usize,
    ) -> Result<bool> {
        let to = from.saturating_add(pfns.len() << PAGE_SHIFT);
        let is_any_writable = pfns.iter().any(|found| found & pfn::WRITE != 0);
        let is_shadow_stack = is_any_writable && has_shadow_stack(mm, from, to);
        let _changes = self.changes.lock();
        // SAFETY: As in `invalidate`.
        if unsafe { bindings::mmu_interval_read_retry(self.notifier.get(), seq) } {
            return Ok(false);
        }
        // From here on the pages are those of the process as long as `changes` is held.
        //
        // SAFETY: So they are there.
        unsafe { keep_reachable(pfns, intent) }?;
        if is_shadow_stack {
            if intent == Intent::Write {
                return Err(EPERM);
            }
            pfns.iter_mut().for_each(|found| *found &= !pfn::WRITE);
        }
        if self.persistent {
            self.keep_persistent(pfns, intent)?;
        }
        // SAFETY: Nothing was invalidated since the walk began, and cannot be as `changes` is held.
        unsafe { self.enter(from, to, pfns) };
        Ok(true)
    }

    /// Enters what a walk found from `from` to `to`.
    ///
    /// # Safety
    ///
    /// It must be so, and `changes` be held.
    unsafe fn enter(&self, from: usize, to: usize, pfns: &[usize]) {
        let count = to.saturating_sub(from) >> PAGE_SHIFT;
        let first = from.saturating_sub(self.start) >> PAGE_SHIFT;
        let pages = &mut *self.pages.lock();
        let entries = pages.entries.iter_mut().skip(first).take(count);
        for (entry, found) in entries.zip(pfns) {
            if !is_valid(*found) {
                continue;
            }
            // SAFETY: The walk found the page.
            let address = unsafe { bindings::hmm_pfn_address(*found) };
            let mut flags = Entry::PRESENT;
            if found & pfn::WRITE != 0 {
                flags |= Entry::WRITABLE;
            }
            if entry.has(Entry::PRESENT) {
                flags |= entry.0 & Entry::WRITTEN;
            } else {
                pages.present = pages.present.wrapping_add(1);
            }
            // INVARIANT: It is the process's page now; when that changes there is an invalidation.
            *entry = Entry(address | flags);
        }
    }

    /// Calls `f` with the pieces that make up the `len` bytes at `offset`, which are in the chunk.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if a page is absent, or not writable if `write`; the first error of `f`.
    #[inline]
    fn pieces(
        &self,
        offset: usize,
        len: usize,
        write: bool,
        f: &mut impl FnMut(*mut u8, usize) -> Result,
    ) -> Result {
        let needed = if write {
            Entry::PRESENT | Entry::WRITABLE
        } else {
            Entry::PRESENT
        };
        let mut at = offset;
        let mut left = len;
        let pages = &mut *self.pages.lock();
        while left > 0 {
            let entry = pages.entries.get_mut(at >> PAGE_SHIFT).ok_or(EFAULT)?;
            if !entry.has(needed) {
                return Err(EAGAIN);
            }
            let within = at & (PAGE_SIZE - 1);
            let piece = left.min(PAGE_SIZE.wrapping_sub(within));
            if write {
                entry.0 |= Entry::WRITTEN;
            }
            // By the invariants the page is there as long as the lock is held.
            f(entry.address().wrapping_add(within) as *mut u8, piece)?;
            at = at.wrapping_add(piece);
            left = left.wrapping_sub(piece);
        }
        Ok(())
    }
}

#[pinned_drop]
impl PinnedDrop for Chunk {
    fn drop(self: Pin<&mut Self>) {
        {
            let _changes = self.changes.lock();
            self.forget(0, CHUNK_PAGES);
        }
        // SAFETY: By the invariants it is registered. No lock is held that an invalidation takes.
        unsafe { bindings::mmu_interval_notifier_remove(self.notifier.get()) };
    }
}

/// What changes as chunks are made.
struct Growth {
    count: usize,
    /// The chunk to look at next, whether it can go.
    cursor: u32,
}

/// Memory of a process that is paged in on demand.
///
/// Its pages are reached by [`Pages`].
#[pin_data]
pub struct OnDemand {
    mm: ARef<Mm>,
    /// The address of its first byte in the process.
    start: usize,
    len: u64,
    writable: bool,
    /// Nothing but persistent memory is written to.
    persistent: bool,
    /// By their place, counted from that of `start`.
    #[pin]
    chunks: IdTable<Chunk>,
    #[pin]
    growth: Mutex<Growth>,
}

/// Runs `f`. What it allocates with `GFP_KERNEL_ACCOUNT` is charged to whoever `mm` belongs to.
fn charged_to<R>(mm: &Mm, f: impl FnOnce() -> R) -> R {
    // SAFETY: The memory map is valid.
    let memcg = unsafe { bindings::mem_cgroup_of_mm(mm.as_raw()) };
    // SAFETY: The group is held until it is replaced below.
    let before = unsafe { bindings::set_active_memcg(memcg) };
    let result = f();
    // SAFETY: What was there before is valid in this thread; the group was taken above.
    unsafe {
        bindings::set_active_memcg(before);
        bindings::mem_cgroup_put(memcg);
    }
    result
}

impl OnDemand {
    /// The `len` bytes at `start` of the calling process. They need not be there, now or ever. If they
    /// are to be `persistent`, only what is persistent memory when it is used can be written to. May
    /// sleep; dropping it may, too.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `len` is 0, the range wraps or nobody calls; `ENOMEM`; `ENODEV` when the module is
    /// being unloaded.
    pub fn new(start: u64, len: u64, writable: bool, persistent: bool) -> Result<Arc<Self>> {
        let end = start.checked_add(len).ok_or(EINVAL)?;
        if len == 0 || usize::try_from(end).is_err() {
            return Err(EINVAL);
        }
        let start = usize::try_from(start).map_err(|_| EINVAL)?;
        let mm: ARef<Mm> = match kernel::current!().mm() {
            Some(mm) => ARef::from(&**mm),
            None => return Err(EINVAL),
        };
        Arc::pin_init(
            try_pin_init!(Self {
                mm,
                start,
                len,
                writable,
                persistent,
                chunks <- IdTable::new(),
                growth <- new_mutex!(
                    Growth { count: 0, cursor: 0 },
                    "rdma::odp::OnDemand::growth"
                ),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Whether it may be written to.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Has the pages of the `len` bytes at `at` brought in, and made known here, so that they can be
    /// copied in any context; until the process or the memory manager takes them away again. Sleeps,
    /// for as long as it takes to read them from wherever they are, which may be for ever: nobody but
    /// a worker of the process's own should call it.
    ///
    /// It looks at `is_wanted` now and then, and stops when that is false.
    ///
    /// # Errors
    ///
    /// `EFAULT` if the bytes are not within the region or the process has no such memory, or is gone;
    /// `EPERM` if it may not be used so; `EBUSY` if the process keeps changing it; `EINTR` if it is
    /// not wanted any more; `ENODEV` when the module is being unloaded; `ENOMEM`. Some of the pages may
    /// be in then.
    pub fn fault_in(
        &self,
        at: u64,
        len: u64,
        intent: Intent,
        is_wanted: impl Fn() -> bool,
    ) -> Result {
        if intent == Intent::Write && !self.writable {
            return Err(EPERM);
        }
        self.for_groups(at, len, |mm, chunk, from, to| {
            chunk.fault_in(mm, from, to, intent, &is_wanted)
        })
    }

    /// Likewise of bytes that will be needed soon, as far as there is nothing to wait for: what was
    /// swapped out is asked for, and what belongs to a file is left as it is.
    pub fn fault_in_ahead(&self, at: u64, len: u64, intent: Intent, is_wanted: impl Fn() -> bool) {
        // What is not brought in now is when it is needed, or fails then.
        let _ = self.for_groups(at, len, |mm, chunk, from, to| {
            if !is_wanted() {
                return Err(EINTR);
            }
            chunk.fault_in_ahead(mm, from, to, intent)
        });
    }

    /// Runs `f` on the pages of the `len` bytes at `at`, of at most [`FAULT_PAGES`] of one chunk at a
    /// time, while somebody uses the memory map. Sleeps.
    ///
    /// # Errors
    ///
    /// `EFAULT` if the bytes are not within the region or the process is gone; `ENODEV` when the module
    /// is being unloaded; `ENOMEM`; the first of `f`.
    fn for_groups(
        &self,
        at: u64,
        len: u64,
        mut f: impl FnMut(&MmWithUser, &Chunk, usize, usize) -> Result,
    ) -> Result {
        let _in_use = InUse::new()?;
        let mut next = self.address(at, len)?;
        let len = usize::try_from(len).map_err(|_| EFAULT)?;
        let end = next
            .checked_add(len)
            .and_then(|end| end.checked_next_multiple_of(PAGE_SIZE))
            .ok_or(EFAULT)?;
        next &= !(PAGE_SIZE - 1);
        let mm = MmWithUser::into_mmput_async(self.mm.mmget_not_zero().ok_or(EFAULT)?);
        while next < end {
            let chunk = self.chunk_for(&mm, next)?;
            let stop = chunk.start.saturating_add(CHUNK_BYTES).min(end);
            while next < stop {
                let upto = next.saturating_add(FAULT_PAGES * PAGE_SIZE).min(stop);
                f(&mm, &chunk, next, upto)?;
                next = upto;
            }
        }
        Ok(())
    }

    /// Writes back from the caches what is known of the `len` bytes at `at`, and so what was written to
    /// them here. What was known of `persistent` memory before is in place already: it was written
    /// back when its pages were taken away. Sleeps.
    ///
    /// It looks at `is_wanted` before each chunk, and stops when that is false.
    ///
    /// # Errors
    ///
    /// `EFAULT` if the bytes are not within the region, `EINTR` if it is not wanted any more.
    pub fn write_back_known(&self, at: u64, len: u64, is_wanted: impl Fn() -> bool) -> Result {
        let start = self.address(at, len)?;
        let end = start.saturating_add(usize::try_from(len).map_err(|_| EFAULT)?);
        let mut next = Some(self.place_of(start)?);
        while let Some((place, chunk)) = next.and_then(|from| self.chunks.first_from(from)) {
            if chunk.start >= end {
                break;
            }
            if !is_wanted() {
                return Err(EINTR);
            }
            let from = start.saturating_sub(chunk.start);
            let to = end.wrapping_sub(chunk.start).min(CHUNK_BYTES);
            chunk.write_back(from, to);
            next = place.checked_add(1);
        }
        pmem::wait();
        Ok(())
    }

    /// The address of byte `at` in the process, if the `len` bytes from there on are in the region.
    #[inline]
    fn address(&self, at: u64, len: u64) -> Result<usize> {
        if at > self.len || len > self.len.wrapping_sub(at) {
            return Err(EFAULT);
        }
        // The region does not wrap.
        let at = usize::try_from(at).map_err(|_| EFAULT)?;
        Ok(self.start.wrapping_add(at))
    }

    /// Which chunk an address of the region is in.
    #[inline]
    fn place_of(&self, address: usize) -> Result<u32> {
        let place = (address / CHUNK_BYTES).wrapping_sub(self.start / CHUNK_BYTES);
        u32::try_from(place).map_err(|_| EFAULT)
    }

    fn find(&self, place: u32) -> Option<Arc<Chunk>> {
        let guard = rcu::read_lock();
        Some(self.chunks.get(place, &guard)?.into())
    }

    /// The chunk that `address` is in, which is made if there is none.
    fn chunk_for(&self, mm: &MmWithUser, address: usize) -> Result<Arc<Chunk>> {
        let place = self.place_of(address)?;
        if let Some(chunk) = self.find(place) {
            return Ok(chunk);
        }
        let growth = &mut *self.growth.lock();
        if let Some(chunk) = self.find(place) {
            return Ok(chunk);
        }
        self.make_room(growth);
        let start = address / CHUNK_BYTES * CHUNK_BYTES;
        let chunk = charged_to(mm, || -> Result<_> {
            let chunk = Arc::pin_init(Chunk::new(mm, start, self.persistent), GFP_KERNEL_ACCOUNT)?;
            self.chunks.reserve_at(place)?.publish(chunk.clone())?;
            Ok(chunk)
        })?;
        growth.count = growth.count.saturating_add(1);
        Ok(chunk)
    }

    /// Gives up chunks that are empty, of a few that it looks at, and any if there are too many.
    fn make_room(&self, growth: &mut Growth) {
        for _ in 0..LOOK_AT {
            let found = self.chunks.first_from(growth.cursor);
            let Some((place, chunk)) = found.or_else(|| self.chunks.first_from(0)) else {
                return;
            };
            growth.cursor = place.wrapping_add(1);
            if growth.count >= MAX_CHUNKS || chunk.is_empty() {
                drop(chunk);
                if self.chunks.remove(place).is_some() {
                    growth.count = growth.count.saturating_sub(1);
                }
            }
        }
    }

    #[inline]
    fn pieces(
        &self,
        at: u64,
        len: usize,
        write: bool,
        mut f: impl FnMut(*mut u8, usize) -> Result,
    ) -> Result {
        let mut next = self.address(at, len as u64)?;
        let mut left = len;
        let guard = rcu::read_lock();
        while left > 0 {
            let chunk = self
                .chunks
                .get(self.place_of(next)?, &guard)
                .ok_or(EAGAIN)?;
            let offset = next % CHUNK_BYTES;
            let piece = left.min(CHUNK_BYTES.wrapping_sub(offset));
            chunk.pieces(offset, piece, write, &mut f)?;
            next = next.wrapping_add(piece);
            left = left.wrapping_sub(piece);
        }
        Ok(())
    }
}

// SAFETY: A page of a chunk stays there while the chunk's lock is held, as it is during `f`. No word
// is on two pages.
unsafe impl Pages for OnDemand {
    fn read_chunks(
        &self,
        at: u64,
        len: usize,
        mut f: impl FnMut(*const u8, usize) -> Result,
    ) -> Result {
        self.pieces(at, len, false, |address, len| f(address.cast_const(), len))
    }

    fn write_chunks(&self, at: u64, len: usize, f: impl FnMut(*mut u8, usize) -> Result) -> Result {
        if !self.writable {
            return Err(EFAULT);
        }
        self.pieces(at, len, true, f)
    }
}
