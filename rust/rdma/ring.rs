// SPDX-License-Identifier: GPL-2.0

//! Rings that the kernel shares with a process, or has for users in the kernel.
//!
//! A ring is a power of two of equal slots behind a header with a producer and a consumer index
//! (`struct rxe_queue_buf`), mapped into the process that owns the queue. The owner of an index
//! stores it with release, the other side loads it with acquire.
//!
//! The process may write any byte of it at any time, so nothing here ever forms a reference to the
//! memory. Indices are atomic, and masked when they are loaded. Slots are copied in or out as a
//! whole.

mod shape;

use core::{
    mem::offset_of,
    ptr::NonNull, //
};
use kernel::{
    error::to_result,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc, //
    }, //
};
use rdma_bindings as bindings;

pub use shape::Shape;

/// Bytes of the header, which the slots follow.
const HEADER: usize = offset_of!(bindings::rxe_queue_buf, data);
// Offsets in the header.
const LOG2_ELEM_SIZE: usize = offset_of!(bindings::rxe_queue_buf, log2_elem_size);
const INDEX_MASK: usize = offset_of!(bindings::rxe_queue_buf, index_mask);
const PRODUCER_INDEX: usize = offset_of!(bindings::rxe_queue_buf, producer_index);
const CONSUMER_INDEX: usize = offset_of!(bindings::rxe_queue_buf, consumer_index);

/// Memory that is mapped in the kernel and may be mapped in processes.
///
/// # Invariants
///
/// `base` points to `bytes` bytes of vmalloc memory that this owns. `bytes` is a multiple of the
/// page size, and at least one page.
pub(crate) struct SharedMemory {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: The memory is accessed by atomics and by copies alone, from any context.
unsafe impl Send for SharedMemory {}
// SAFETY: Shared access is by atomics and by copies alone, so any number of threads may have it.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Allocates zeroed memory of at least `bytes` bytes, charged to the caller's memory control
    /// group.
    ///
    /// A process at its limit gets an error, and is not killed.
    fn new(bytes: usize) -> Result<Self> {
        let bytes = bytes
            .max(1)
            .checked_next_multiple_of(PAGE_SIZE)
            .ok_or(ENOMEM)?;
        let flags = bindings::GFP_KERNEL_ACCOUNT
            | bindings::FERROCE_GFP_RETRY_MAYFAIL
            | bindings::__GFP_ZERO
            | bindings::__GFP_NOWARN;
        // SAFETY: The function may sleep, and this one is called where that is allowed.
        let base = unsafe { bindings::__vmalloc_noprof(bytes, flags) };
        // INVARIANT: The memory is `bytes` long, and nobody else has its address.
        Ok(Self {
            base: NonNull::new(base.cast()).ok_or(ENOMEM)?,
            bytes,
        })
    }

    /// Returns its length in bytes, a multiple of the page size.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Maps all of it at the start of `vma`.
    ///
    /// The pages stay alive for as long as they are mapped, even when the memory is dropped.
    ///
    /// # Safety
    ///
    /// `vma` must be valid, locked for writing and without pages yet, as in an `mmap` callback.
    pub(crate) unsafe fn map(&self, vma: *mut bindings::vm_area_struct) -> Result {
        // SAFETY: The caller passes a valid area.
        let start = unsafe { (*vma).__bindgen_anon_1.__bindgen_anon_1.vm_start };
        for offset in (0..self.bytes).step_by(PAGE_SIZE) {
            // SAFETY: By the invariants the page lies within the memory.
            let page = unsafe { bindings::vmalloc_to_page(self.base.as_ptr().add(offset).cast()) };
            // SAFETY: The caller passes a valid and locked area, and the page is an ordinary one.
            // The function checks that the address lies within the area.
            to_result(unsafe { bindings::vm_insert_page(vma, start.wrapping_add(offset), page) })?;
        }
        // Its size is fixed, and a core dump has no use for it.
        // SAFETY: The caller passes a valid area, locked for writing.
        unsafe {
            bindings::vm_flags_set(
                vma,
                (bindings::VM_DONTEXPAND | bindings::VM_DONTDUMP) as bindings::vm_flags_t,
            )
        };
        Ok(())
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: By the invariants the memory is from vmalloc, and ours.
        unsafe { bindings::vfree(self.base.as_ptr().cast()) };
    }
}

/// A ring of slots, which a process may map.
///
/// No process maps the ring of a user in the kernel. A clone is the same ring, for the other end.
///
/// All methods may be called in any context but [`new`](Self::new), which may sleep. They take no
/// lock: the user of an end of a ring must hold the lock that guards this end. Dropping the last
/// holder of the memory frees it, which must not happen with interrupts disabled.
///
/// # Invariants
///
/// `memory` is at least as long as the header and `shape.bytes()` together.
///
/// # Examples
///
/// ```
/// use rdma::ring::{
///     Shape,
///     SharedRing, //
/// };
///
/// let ring = SharedRing::new(Shape::new(15, 64).ok_or(EINVAL)?)?;
/// let producer = ring.producer();
/// ring.write(producer, &[1; 64]);
/// ring.set_producer(ring.next(producer));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone)]
pub struct SharedRing {
    memory: Arc<SharedMemory>,
    shape: Shape,
}

impl SharedRing {
    /// Creates an empty ring of that shape. The memory is zeroed and charged to the calling process. May
    /// sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, also if it is too long for a process to map.
    pub fn new(shape: Shape) -> Result<Self> {
        let bytes = HEADER.checked_add(shape.bytes()).ok_or(ENOMEM)?;
        // The process is told its length in 32 bits.
        u32::try_from(bytes).map_err(|_| ENOMEM)?;
        // INVARIANT: The memory is as long as the shape says.
        let ring = Self {
            memory: Arc::new(SharedMemory::new(bytes)?, GFP_KERNEL_ACCOUNT)?,
            shape,
        };
        ring.word::<{ LOG2_ELEM_SIZE }>()
            .store(shape.log2_slot_bytes(), Release);
        ring.word::<{ INDEX_MASK }>().store(shape.mask(), Release);
        Ok(ring)
    }

    /// Returns its shape.
    #[inline]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the number of bytes of one slot.
    #[inline]
    pub fn slot_bytes(&self) -> usize {
        self.shape.slot_bytes()
    }

    /// Returns the index after `index`.
    #[inline]
    #[must_use]
    pub fn next(&self, index: u32) -> u32 {
        self.shape.next(index)
    }

    /// Returns the producer's index: loaded with acquire, masked.
    #[inline]
    pub fn producer(&self) -> u32 {
        self.word::<{ PRODUCER_INDEX }>().load(Acquire) & self.shape.mask()
    }

    /// Returns the consumer's index: loaded with acquire, masked.
    #[inline]
    pub fn consumer(&self) -> u32 {
        self.word::<{ CONSUMER_INDEX }>().load(Acquire) & self.shape.mask()
    }

    /// Publishes the slots before `index`: a store with release.
    #[inline]
    pub fn set_producer(&self, index: u32) {
        self.word::<{ PRODUCER_INDEX }>()
            .store(index & self.shape.mask(), Release);
    }

    /// Gives the slots before `index` back: a store with release.
    #[inline]
    pub fn set_consumer(&self, index: u32) {
        self.word::<{ CONSUMER_INDEX }>()
            .store(index & self.shape.mask(), Release);
    }

    /// Copies the start of slot `index` to `to`, as much of it as both have.
    #[inline]
    pub fn read(&self, index: u32, to: &mut [u8]) {
        let len = to.len().min(self.slot_bytes());
        // SAFETY: By `slot`, `len` bytes may be read there. The process may change them meanwhile,
        // which the copy tolerates: it is not an access of Rust.
        unsafe {
            bindings::memcpy(to.as_mut_ptr().cast(), self.slot(index).cast(), len);
        }
    }

    /// Copies `from` to the start of slot `index`, as much of it as the slot holds.
    #[inline]
    pub fn write(&self, index: u32, from: &[u8]) {
        let len = from.len().min(self.slot_bytes());
        // SAFETY: By `slot`, `len` bytes may be written there. The process may change them
        // meanwhile, which the copy tolerates: it is not an access of Rust.
        unsafe {
            bindings::memcpy(self.slot(index).cast(), from.as_ptr().cast(), len);
        }
    }

    /// Returns the memory, for mappings.
    pub(crate) fn memory(&self) -> &Arc<SharedMemory> {
        &self.memory
    }

    /// Returns the address of slot `index`. For any index, the [`slot_bytes`](Self::slot_bytes)
    /// bytes from there belong to the ring.
    #[inline]
    fn slot(&self, index: u32) -> *mut u8 {
        let offset = HEADER.wrapping_add(self.shape.offset(index));
        // SAFETY: By the invariants the slot lies within the memory, and so does its start.
        unsafe { self.memory.base.as_ptr().add(offset) }
    }

    /// Returns the word at `OFFSET` of the header.
    #[inline]
    fn word<const OFFSET: usize>(&self) -> &Atomic<u32> {
        const { assert!(OFFSET % 4 == 0 && OFFSET < HEADER) };
        // SAFETY: The word lies within the header, is aligned, lives as long as `self`, and is only
        // accessed atomically by the kernel. Any bit pattern is a `u32`.
        unsafe { Atomic::from_ptr(self.memory.base.as_ptr().add(OFFSET).cast()) }
    }
}
