// SPDX-License-Identifier: GPL-2.0

//! Memory of a process that is paged in on demand.
//!
//! Nothing is pinned: the process may unmap, move, share and swap out its memory. A region caches the
//! page table for the pages that were used. The memory manager reports every change
//! (`mmu_interval_notifier`). Copies run in any context, while their pages are in the cache. Otherwise
//! they are [faulted in](OnDemand::fault_in), which sleeps, and the copy is repeated.
//!
//! # Chunks
//!
//! The cache consists of chunks, each of 2 MiB of addresses with pages of 4 KiB. They are created
//! as they are used, so a region may cover the whole address space of its process. A region has at
//! most [`MAX_CHUNKS`]; beyond that an old one is removed for each new one.
//!
//! # Owner
//!
//! Workers fault in for the process that made the region. They do so with its rights: quotas of files and the
//! blocks that a file system reserves for root hold. Chunks, page tables and pages of files are charged to its
//! control group. The policy for NUMA nodes, and the hugetlb controller, are those of the worker.
//!
//! # Removal
//!
//! The removal of a chunk's notifier waits until no invalidation is active in the process. A process with several
//! threads that invalidate can make that last as long as it likes. So chunks are removed by the [`Pager`] of their
//! owner, one after the other: nobody else waits.
//!
//! # Invalidation
//!
//! Each chunk has two locks. `pages` guards the cache and is held during a copy. So when an invalidation
//! has cleared an entry under it, no copy uses that page. `changes`, a mutex, orders changes of entries:
//! invalidations, and results of page table walks, which are entered only if no invalidation came
//! between. An invalidation marks written pages dirty, because the process's own page table may not show
//! the writes. It holds `changes` until it is done. So the memory manager cannot proceed with a page
//! that another invalidation has still to mark.
//!
//! # Refused memory
//!
//! A CPU copies pages by their kernel addresses. For some pages that a walk of the page table
//! finds, that is impossible, and pinning would refuse them. These are memory without a kernel
//! mapping (`memfd_secret`), memory of PCI devices, and shadow stacks, to which only their own
//! instructions may write. Each page is checked when it is entered, and a copy of a refused page
//! fails. An entered page stays mapped. The kernel unmaps a page before it gives it to a process
//! (`memfd_secret`), or after it took it from all processes (memory that is unplugged, or has
//! failed). In the latter case the page was invalidated here before.
//!
//! # Why not `ib_umem_odp`
//!
//! In the RDMA core's `ib_umem_odp` the walk itself writes to the page table, without a lock. It
//! marks pages dirty only for devices that do DMA. Neither suits a device that receives packets in
//! softirq context and copies by a CPU.

use crate::{
    memory::Pages,
    module::InUse,
    new_bh_spinlock,
    pmem,
    share::Charge,
    sync::BhSpinLock,
    table::IdTable,
    time::now_ns,
    work::{
        self,
        Queue, //
    }, //
};
use core::{
    pin::Pin,
    ptr, //
};
use kernel::{
    cred::Credential,
    error::to_result,
    ffi::c_void,
    list::{
        impl_list_arc_safe,
        impl_list_item,
        AtomicTracker,
        List,
        ListArc,
        ListLinks,
        TryNewListArc, //
    },
    mm::{
        virt::{
            self,
            VmaRef, //
        },
        Mm,
        MmWithUser, //
    },
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::{
        aref::ARef,
        new_mutex,
        new_spinlock,
        rcu,
        Arc,
        Mutex,
        SpinLock, //
    },
    types::Opaque,
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    }, //
};
use rdma_bindings as bindings;

#[cfg(not(CONFIG_INFINIBAND_ON_DEMAND_PAGING))]
compile_error!("ferroce needs a kernel with CONFIG_INFINIBAND_ON_DEMAND_PAGING");

/// Pages of a chunk.
const CHUNK_PAGES: usize = 512;
/// Bytes of addresses that a chunk covers.
const CHUNK_BYTES: usize = CHUNK_PAGES * PAGE_SIZE;

/// Chunks that a region has at most at a time.
pub const MAX_CHUNKS: usize = 1 << 15;

/// Chunks that are checked for removal whenever one is created.
const LOOK_AT: usize = 4;

/// Pages that are faulted in at a time.
const FAULT_PAGES: usize = 64;

/// Pages that are faulted in ahead under one hold of the memory map's lock.
const LOCKED_PAGES: usize = 8;

/// The effort for one fault. The process may take its pages away again.
struct Effort {
    /// The time to give up, unless there is progress.
    deadline: u64,
    furthest: usize,
    rounds: u32,
    /// The number of waits for a page.
    waits: u32,
    /// The page of the last wait, and the number of waits for it.
    page: usize,
    in_vain: u32,
}

impl Effort {
    /// The time for which the process may keep changing pages, in nanoseconds.
    const NS: u64 = 1_000_000_000;
    /// The least number of rounds, as one fault may take longer than the time limit.
    const LEAST_ROUNDS: u32 = 16;
    const MOST_WAITS: u32 = 16 * FAULT_PAGES as u32;
    /// Waits for a page without the lock of the memory map, after which it is still absent. It cannot be
    /// read, or is being written to its disk. Only a fault that keeps the lock reports that, or waits
    /// for it. Faults of the process itself do so, too.
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

    /// Returns the flags for the next fault.
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

/// The purpose of faulting in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Intent {
    /// To be read.
    Read,
    /// To be written to, and read.
    Write,
    /// No access yet: pages that are present are entered, and others are left alone.
    Look,
}

impl Intent {
    /// Returns the flags that a walk must find for each page.
    fn needed(self) -> usize {
        match self {
            Self::Read => pfn::VALID,
            Self::Write => pfn::VALID | pfn::WRITE,
            Self::Look => 0,
        }
    }

    /// Returns the flags of a fault.
    fn fault_flags(self) -> u32 {
        let write = match self {
            Self::Write => bindings::FERROCE_FAULT_FLAG_WRITE,
            Self::Read | Self::Look => 0,
        };
        write | bindings::FERROCE_FAULT_FLAGS
    }
}

/// `enum hmm_pfn_flags`: the results of a walk of the page table.
mod pfn {
    use rdma_bindings as bindings;

    pub(super) const VALID: usize = !(usize::MAX >> 1);
    pub(super) const WRITE: usize = bindings::FERROCE_HMM_PFN_WRITE;
    pub(super) const ERROR: usize = bindings::FERROCE_HMM_PFN_ERROR;
}

/// Returns true if a walk found a page.
fn is_valid(found: usize) -> bool {
    found & pfn::VALID != 0 && found & pfn::ERROR == 0
}

/// Returns true if a page needs a fault.
fn is_missing(found: usize, intent: Intent) -> bool {
    let needed = intent.needed();
    found & needed != needed
}

/// Faults in missing pages from `from` on. Returns true as soon as it had to wait for one. Sleeps,
/// without the lock of the memory map if the kernel can.
///
/// Each page is tried once, with `more_flags`. In a second try the kernel would keep the lock while it
/// waits.
///
/// # Errors
///
/// `EFAULT` if the process has no such memory, or not with these rights; `EPERM` if it may not be
/// written to; `ENOMEM`.
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
            // SAFETY: The area has the address. Its memory map is in use and locked, until the
            // function reports that it is not.
            let outcome = unsafe {
                kernel::bindings::handle_mm_fault(
                    area.as_ptr(),
                    address,
                    intent.fault_flags() | more_flags,
                    ptr::null_mut(),
                )
            };
            if outcome & bindings::FERROCE_VM_FAULT_UNLOCKED != 0 {
                // The function has released the lock.
                core::mem::forget(lock);
                return Ok(true);
            }
            if outcome & bindings::FERROCE_VM_FAULT_OOM != 0 {
                return Err(ENOMEM);
            }
            // Also for an address at which a walk finds an entry that is no page.
            if outcome & bindings::FERROCE_VM_FAULT_ERROR != 0 {
                return Err(EFAULT);
            }
        }
        address = address.saturating_add(PAGE_SIZE);
    }
    Ok(false)
}

/// Starts to fault in missing anonymous pages from `from` on, without waiting: swapped-out pages
/// are requested. Stops at the first page that cannot be faulted in. May sleep with the lock of the
/// memory map, but not for a disk.
///
/// Pages of files are left alone, because the kernel reads some of them with the lock held,
/// regardless of the flags. A fault also maps neighbours that are in memory.
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
            // SAFETY: The area has the address. Its memory map is in use and locked, and stays so:
            // with this flag the function does not release the lock.
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

/// Returns true if an area belongs to no file and no driver.
fn is_anonymous(area: &VmaRef) -> bool {
    // SAFETY: The reference proves that the area is valid and that its memory map is locked.
    unsafe { (*area.as_ptr()).vm_ops }.is_null()
}

/// Checks that memory of an area can be faulted in.
///
/// # Errors
///
/// `EFAULT` if it cannot; `EPERM` if it may not be written to.
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

/// Removes pages that a CPU cannot copy from the results of a walk, see the module's documentation. A
/// removed page stays absent.
///
/// # Errors
///
/// `EFAULT` if a removed page is needed.
///
/// # Safety
///
/// The pages must be there until this returns.
unsafe fn keep_reachable(pfns: &mut [usize], intent: Intent) -> Result {
    for found in pfns.iter_mut().filter(|found| is_valid(**found)) {
        // SAFETY: By the safety requirements the page is there until this returns.
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

/// Returns true if a CPU can copy from and to the page that a walk found, by its kernel address.
///
/// # Safety
///
/// The page must be there until this returns.
unsafe fn is_reachable(found: usize) -> bool {
    // SAFETY: The walk found the page, and by the safety requirements it is still there.
    let (is_device_memory, address) = unsafe {
        let page = bindings::hmm_pfn_to_page(found);
        (
            bindings::is_pci_p2pdma_page(page),
            bindings::page_address(page).addr(),
        )
    };
    if is_device_memory {
        return false;
    }
    let mut byte = 0u8;
    // SAFETY: There is room for a byte. The function tolerates an address that is not mapped.
    let probed = unsafe {
        bindings::copy_from_kernel_nofault((&raw mut byte).cast(), address as *const c_void, 1)
    };
    probed == 0
}

/// Returns true if some of the addresses from `from` to `to` are a shadow stack. Sleeps for the lock of
/// the memory map.
///
/// The answer is valid until an invalidation of the addresses, like the results of a walk.
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

/// A cached page: its kernel address, with [`PRESENT`](Self::PRESENT) and other flags in the lower bits.
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
/// The page of a present entry stays in place until an invalidation for its address has returned,
/// or until the chunk is dropped. Both clear the entry under the lock. The page may be written to
/// if the entry is writable.
struct PageTable {
    /// [`CHUNK_PAGES`] of them.
    entries: KVec<Entry>,
    /// The number of present entries.
    present: usize,
}

/// The workers of an owner of regions: they fault in memory, and remove chunks.
///
/// It lives as long as there are regions or chunks of the owner.
#[pin_data]
pub struct Pager {
    queue: Queue,
    /// Chunks that have left their regions, a grace period ago or longer.
    #[pin]
    leaving: SpinLock<List<Chunk>>,
    #[pin]
    remove: Work<Self>,
    /// Given back when the workers are.
    _charge: Charge,
}

impl_has_work! {
    impl HasWork<Self> for Pager { self.remove }
}

impl WorkItem for Pager {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        while let Some(chunk) = this.next_leaving() {
            drop(chunk);
            work::give_way();
        }
    }
}

impl Pager {
    /// Creates one whose workers are those of `queue`, which has room for several items at a time. The `charge` is for
    /// the workers. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(queue: Queue, charge: Charge) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                queue,
                leaving <- new_spinlock!(List::new(), "rdma::odp::Pager::leaving"),
                remove <- new_work!("rdma::odp::Pager::remove"),
                _charge: charge,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Returns the queue of the workers. Any context.
    #[inline]
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    fn next_leaving(&self) -> Option<ListArc<Chunk>> {
        self.leaving.lock().pop_front()
    }

    /// Has `chunk`, which has left its region, removed by a worker of its owner. Process context; does not sleep.
    fn remove(chunk: Arc<Chunk>) {
        let pager = chunk.pager.clone();
        // A chunk leaves its region once, so it is in no list.
        if let Ok(chunk) = ListArc::try_from_arc(chunk) {
            pager.leaving.lock().push_back(chunk);
        }
        // If the item is queued already, it finds the chunk.
        let _ = pager.queue.enqueue(pager.clone());
    }
}

/// A part of a region.
///
/// # Invariants
///
/// `notifier` is registered for the [`CHUNK_BYTES`] from `start` on until the chunk is dropped.
#[pin_data(PinnedDrop)]
struct Chunk {
    start: usize,
    /// True if only persistent memory may be written to. It is written back before it is taken
    /// away.
    persistent: bool,
    #[pin]
    changes: Mutex<()>,
    #[pin]
    pages: BhSpinLock<PageTable>,
    /// Those of `leaving`.
    #[pin]
    links: ListLinks,
    #[pin]
    tracker: AtomicTracker,
    #[pin]
    notifier: Opaque<bindings::mmu_interval_notifier>,
    /// Removes it. Its queue keeps the module, too.
    pager: Arc<Pager>,
}

impl_list_arc_safe! {
    impl ListArcSafe<0> for Chunk { tracked_by tracker: AtomicTracker; }
}

impl_list_item! {
    impl ListItem<0> for Chunk { using ListLinks { self.links }; }
}

// SAFETY: The notifier may be removed by any thread.
unsafe impl Send for Chunk {}
// SAFETY: The kernel synchronises access to the notifier, and the locks synchronise access to the
// rest.
unsafe impl Sync for Chunk {}

/// The operations of a chunk's notifier.
static OPS: bindings::mmu_interval_notifier_ops = {
    // SAFETY: Zeroes are no operations.
    let mut ops: bindings::mmu_interval_notifier_ops = unsafe { core::mem::zeroed() };
    ops.invalidate = Some(Chunk::invalidate);
    ops
};

impl Chunk {
    /// Creates a chunk that watches the addresses from `first` on.
    fn new(
        mm: &MmWithUser,
        first: usize,
        persistent: bool,
        pager: Arc<Pager>,
    ) -> impl PinInit<Self, Error> + '_ {
        try_pin_init!(Self {
            start: first,
            persistent,
            pager,
            links <- ListLinks::new(),
            tracker <- AtomicTracker::new(),
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
                // SAFETY: The notifier is pinned, and removed before it is freed. The reference
                // proves that `mm` is in use.
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

    /// Forgets the process's pages from `range.start` to `range.end`, which are about to change.
    ///
    /// # Safety
    ///
    /// Only the memory manager may call it, for a notifier of a chunk.
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
        // SAFETY: The notifier is valid, and `changes` is held here and where the number is read.
        unsafe { bindings::mmu_interval_set_seq(notifier, seq) };
        let first = start.saturating_sub(chunk.start) >> PAGE_SHIFT;
        let last = end.saturating_sub(chunk.start).div_ceil(PAGE_SIZE);
        chunk.forget(first, last.min(CHUNK_PAGES));
        true
    }

    /// Clears the entries `first .. end`, and marks their written pages dirty. `changes` is held by the
    /// caller.
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
                    // SAFETY: The page is still that of the process. The memory manager invalidates
                    // a page before it takes it away, and an invalidation waits for `changes`.
                    unsafe { pmem::write_back(*address as *const u8, PAGE_SIZE) };
                }
                // SAFETY: The page is still that of the process. The memory manager invalidates a
                // page before it takes it away, and an invalidation waits for `changes`.
                unsafe {
                    bindings::folio_mark_dirty(bindings::virt_to_folio(*address as *const c_void))
                };
            }
        }
        if self.persistent {
            pmem::wait();
        }
    }

    /// Writes back the known pages from byte `from` to `to`. May sleep.
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

    /// Makes pages that are not persistent memory read-only in the results of a walk.
    ///
    /// # Errors
    ///
    /// `EFAULT` if such a page is to be written to.
    fn keep_persistent(&self, pfns: &mut [usize], intent: Intent) -> Result {
        let is_writable = |pfn: usize| pfn & pfn::VALID != 0 && pfn & pfn::WRITE != 0;
        for found in pfns.iter_mut().filter(|found| is_writable(**found)) {
            // SAFETY: It is the number of a page, of which only the address is taken.
            let page = unsafe { bindings::page_address(bindings::hmm_pfn_to_page(*found)) };
            let address = page.addr();
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

    /// Faults in the pages from `from` to `to`, at most [`FAULT_PAGES`] of this chunk, both at the start
    /// of a page. Sleeps, mostly without the lock of the memory map, so that observers of the process
    /// need not wait for its disk. A file system may keep the lock for a store.
    ///
    /// It checks `is_wanted` regularly, and stops when that is false.
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

    /// Starts to fault in anonymous pages from `from` to `to`, with the same limits. Enters pages of any
    /// memory that are then present. Waits for no disk.
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
        // No page is needed yet, so an absent one is no reason to fail.
        self.enter_current(mm, from, found, Intent::Look, seq)?;
        Ok(())
    }

    /// Finds present pages from `from` on, as many as `pfns` has room for. Returns the sequence number
    /// of the chunk. Sleeps for the lock of the memory map.
    fn walk(&self, mm: &MmWithUser, from: usize, pfns: &mut [usize]) -> Result<usize> {
        let notifier = self.notifier.get();
        // SAFETY: Zeroes are valid for all fields, and request no faults.
        let mut range: bindings::hmm_range = unsafe { core::mem::zeroed() };
        range.notifier = notifier;
        // SAFETY: The notifier is registered.
        range.notifier_seq = unsafe { bindings::mmu_interval_read_begin(notifier) };
        range.start = from;
        range.end = from.saturating_add(pfns.len() << PAGE_SHIFT);
        range.hmm_pfns = pfns.as_mut_ptr();
        let _lock = mm.mmap_read_lock();
        // SAFETY: The notifier covers the range, and `pfns` has room for its pages. Its memory map
        // is locked, and in use.
        to_result(unsafe { bindings::hmm_range_fault(&mut range) })?;
        Ok(range.notifier_seq)
    }

    /// Enters the results of a walk from `from` on, unless `seq`, which the walk returned, is outdated.
    /// Returns true if they were entered. Sleeps.
    ///
    /// # Errors
    ///
    /// `EFAULT` if a needed page cannot be used, or not with these rights; `EPERM` if it belongs to a
    /// shadow stack and is to be written to.
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
        // SAFETY: `changes` is held, and the notifier is inserted as long as there is a reference
        // to the chunk.
        if unsafe { bindings::mmu_interval_read_retry(self.notifier.get(), seq) } {
            return Ok(false);
        }
        // From here on the pages are those of the process as long as `changes` is held.
        //
        // SAFETY: `changes` is held, so the pages are there.
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

    /// Enters the results of a walk from `from` to `to`.
    ///
    /// # Safety
    ///
    /// The results must be current, and `changes` be held.
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
            let page = unsafe { bindings::page_address(bindings::hmm_pfn_to_page(*found)) };
            let address = page.addr();
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

/// State that changes with the creation of chunks.
struct Growth {
    count: usize,
    /// The next chunk to check for removal.
    cursor: u32,
}

/// Memory of a process that is paged in on demand.
///
/// Its pages are reached by [`Pages`].
#[pin_data]
pub struct OnDemand {
    owner: Owner,
    /// The address of its first byte in the process.
    start: usize,
    len: u64,
    writable: bool,
    /// True if only persistent memory may be written to.
    persistent: bool,
    /// By their place, counted from that of `start`.
    #[pin]
    chunks: IdTable<Chunk>,
    #[pin]
    growth: Mutex<Growth>,
    pager: Arc<Pager>,
}

/// Who pays for faults, and whose rights they have. Workers fault in, and the kernel would take them for the process:
/// root, without a control group.
struct Owner {
    mm: ARef<Mm>,
    credentials: ARef<Credential>,
}

impl Owner {
    /// Returns the calling process, if one calls.
    fn current() -> Option<Self> {
        let mm = ARef::from(&**kernel::current!().mm()?);
        // SAFETY: The task does not change its credentials meanwhile, as it is here.
        let credentials = unsafe { Credential::from_ptr(bindings::current_cred()) };
        Some(Self {
            mm,
            credentials: credentials.into(),
        })
    }

    /// Runs `f` with the rights of the owner. Its allocations that are accounted, and pages that it reads from files,
    /// are charged to the control group of the owner. Task context.
    fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        // SAFETY: The memory map is valid.
        let memcg = unsafe { bindings::get_mem_cgroup_from_mm(self.mm.as_raw()) };
        // SAFETY: The group is held until it is replaced below, and `self` holds the credentials.
        let (before, rights) = unsafe {
            (
                bindings::set_active_memcg(memcg),
                bindings::override_creds(self.credentials.as_ptr()),
            )
        };
        let result = f();
        // SAFETY: Both were those of this task before, and so are valid. The reference to `memcg` was taken above.
        unsafe {
            bindings::revert_creds(rights);
            bindings::set_active_memcg(before);
            bindings::mem_cgroup_put(memcg);
        }
        result
    }
}

impl OnDemand {
    /// Creates memory of the `len` bytes at `start` of the calling process. They may be absent. If they
    /// are to be `persistent`, only persistent memory can be written to. Its chunks are removed by the workers of
    /// `pager`, which must be those of the process. May sleep; dropping it does not sleep for long.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `len` is 0, the range wraps or no process calls; `ENOMEM`; `ENODEV` when the module
    /// is being unloaded.
    pub fn new(
        start: u64,
        len: u64,
        writable: bool,
        persistent: bool,
        pager: Arc<Pager>,
    ) -> Result<Arc<Self>> {
        let end = start.checked_add(len).ok_or(EINVAL)?;
        if len == 0 || usize::try_from(end).is_err() {
            return Err(EINVAL);
        }
        let start = usize::try_from(start).map_err(|_| EINVAL)?;
        let owner = Owner::current().ok_or(EINVAL)?;
        Arc::pin_init(
            try_pin_init!(Self {
                owner,
                start,
                len,
                writable,
                persistent,
                chunks <- IdTable::with_end(Pager::remove),
                growth <- new_mutex!(
                    Growth { count: 0, cursor: 0 },
                    "rdma::odp::OnDemand::growth"
                ),
                pager,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Returns true if it may be written to.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Faults in and enters the pages of the `len` bytes at `at`. Then they can be copied in any
    /// context, until the process or the memory manager takes them away. Sleeps as long as the pages
    /// take to read, possibly forever. Only a worker of the process should call it.
    ///
    /// It checks `is_wanted` regularly, and stops when that is false.
    ///
    /// # Errors
    ///
    /// `EFAULT` if the bytes are not within the region, or the process has no such memory or is gone;
    /// `EPERM` if it may not be used so; `EBUSY` if the process keeps changing it; `EINTR` if it is not
    /// wanted any more; `ENODEV` when the module is being unloaded; `ENOMEM`. Some of the pages may then
    /// be present.
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

    /// Does the same for bytes that will be needed soon, without waiting. Swapped-out pages are
    /// requested, and pages of files are left alone.
    pub fn fault_in_ahead(&self, at: u64, len: u64, intent: Intent, is_wanted: impl Fn() -> bool) {
        // Pages that are absent after this are faulted in when they are needed, or fail then.
        let _ = self.for_groups(at, len, |mm, chunk, from, to| {
            if !is_wanted() {
                return Err(EINTR);
            }
            chunk.fault_in_ahead(mm, from, to, intent)
        });
    }

    /// Runs `f` on the pages of the `len` bytes at `at`, for at most [`FAULT_PAGES`] of one chunk at a
    /// time, with a reference to the memory map, as their [owner](Owner::run). Sleeps.
    ///
    /// # Errors
    ///
    /// `EFAULT` if the bytes are not within the region or the process is gone; `ENODEV` when the module
    /// is being unloaded; `ENOMEM`; the first error of `f`.
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
        let mm = MmWithUser::into_mmput_async(self.owner.mm.mmget_not_zero().ok_or(EFAULT)?);
        self.owner.run(|| -> Result {
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
        })
    }

    /// Writes back known pages of the `len` bytes at `at` from the caches. Other pages of `persistent`
    /// memory were written back when they were taken away. Sleeps.
    ///
    /// It checks `is_wanted` before each chunk, and stops when that is false.
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

    /// Returns the address of byte `at` in the process, if the `len` bytes from there on are in the
    /// region.
    #[inline]
    fn address(&self, at: u64, len: u64) -> Result<usize> {
        if at > self.len || len > self.len.wrapping_sub(at) {
            return Err(EFAULT);
        }
        // The region does not wrap.
        let at = usize::try_from(at).map_err(|_| EFAULT)?;
        Ok(self.start.wrapping_add(at))
    }

    /// Returns the place of the chunk for an address of the region.
    #[inline]
    fn place_of(&self, address: usize) -> Result<u32> {
        let place = (address / CHUNK_BYTES).wrapping_sub(self.start / CHUNK_BYTES);
        u32::try_from(place).map_err(|_| EFAULT)
    }

    fn find(&self, place: u32) -> Option<Arc<Chunk>> {
        let guard = rcu::read_lock();
        Some(self.chunks.get(place, &guard)?.into())
    }

    /// Returns the chunk for `address`. Creates it if there is none. The [owner](Owner::run) calls.
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
        let chunk = Chunk::new(mm, start, self.persistent, self.pager.clone());
        let chunk = Arc::pin_init(chunk, GFP_KERNEL_ACCOUNT)?;
        self.chunks.reserve_at(place)?.publish(chunk.clone())?;
        growth.count = growth.count.saturating_add(1);
        Ok(chunk)
    }

    /// Checks a few chunks, and removes the empty ones. Removes all that it checks if there are too
    /// many chunks.
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
