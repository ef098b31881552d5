// SPDX-License-Identifier: GPL-2.0

//! Mapping the rings of an object into its process.
//!
//! Each ring gets an offset in the file of the process's context. The process learns it from
//! [`Mminfo`] and passes it to `mmap`. The object owns the offset, which is removed when the object
//! is destroyed. Existing mappings stay, as they hold their pages.
//!
//! A mapping keeps the file that it is of. The memory map of a process that was killed stays as
//! long as it is used, for example by a fault for on-demand memory that does not end. Its rings
//! would keep the file of the context, and so all objects of the process. So rings refer to another
//! file: [`RingFile`].

use crate::{
    device::Device,
    driver::Driver,
    ring::SharedMemory, //
};
use core::ptr::NonNull;
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    page::PAGE_SHIFT,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full, //
        },
        Arc, //
    },
    types::Opaque, //
};
use rdma_bindings as bindings;

/// The parameters of `mmap` for a ring: `struct mminfo`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mminfo {
    /// Offset in the context's file, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub size: u32,
}

static_assert!(core::mem::size_of::<bindings::mminfo>() == Mminfo::BYTES);
static_assert!(core::mem::offset_of!(bindings::mminfo, offset) == 0);
static_assert!(core::mem::offset_of!(bindings::mminfo, size) == 8);

impl Mminfo {
    /// Bytes that it takes in a response.
    pub const BYTES: usize = 16;

    /// Encodes it as `struct mminfo`.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let [a, b, c, d, e, f, g, h] = self.offset.to_ne_bytes();
        let [i, j, k, l] = self.size.to_ne_bytes();
        [a, b, c, d, e, f, g, h, i, j, k, l, 0, 0, 0, 0]
    }
}

/// The file that mappings of rings refer to, in place of the context's own.
///
/// It is an empty file of shared memory: one of the kernel's, so that it keeps no module. Each
/// context has its own. A process may change the file by its mappings, for example punch a hole,
/// and then affects only its own mappings.
///
/// # Invariants
///
/// Owns a reference to the file.
pub(crate) struct RingFile(NonNull<bindings::file>);

// SAFETY: Files may be used and released by any thread.
unsafe impl Send for RingFile {}
// SAFETY: Shared access passes the file to functions that any number of threads may call at a time.
unsafe impl Sync for RingFile {}

impl RingFile {
    /// Creates a file with the name of `device`. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `ENFILE`.
    pub(crate) fn new<T: Driver>(device: &Device<T>) -> Result<Self> {
        // A rename frees the name that `dev_name` returns, but not this copy of the core's. It may change
        // while it is read, and is only for people.
        //
        // SAFETY: The device is valid, and the name a part of it.
        let mut name = unsafe { (&raw const (*device.as_raw()).name).read_volatile() };
        if let Some(last) = name.last_mut() {
            *last = 0;
        }
        // SAFETY: The name ends with a 0, and the file copies it.
        let file = unsafe { bindings::shmem_kernel_file_setup(name.as_ptr(), 0) };
        // INVARIANT: The reference is ours.
        Ok(Self(NonNull::new(from_err_ptr(file)?).ok_or(ENOMEM)?))
    }

    /// Makes `vma` a mapping of this file, with the operations of this file. The operations that
    /// the core set belong to a module, which the previous file of `vma` kept.
    ///
    /// # Errors
    ///
    /// Those of the kernel for a mapping of shared memory.
    ///
    /// # Safety
    ///
    /// To be called in an `mmap` callback for `vma`.
    unsafe fn take_over(&self, vma: *mut bindings::vm_area_struct) -> Result {
        // SAFETY: By the safety requirements the area is being set up, and by the type invariants
        // the file is valid. The area gets the operations of its new file, too.
        to_result(unsafe {
            bindings::vma_set_file(vma, self.0.as_ptr());
            bindings::vfs_mmap(self.0.as_ptr(), vma)
        })
    }
}

impl Drop for RingFile {
    fn drop(&mut self) {
        // SAFETY: By the type invariants there is a reference to give back.
        unsafe { bindings::fput(self.0.as_ptr()) };
    }
}

/// An offset in a context's file, as the core knows it.
#[repr(C)]
struct Entry {
    core: Opaque<bindings::rdma_user_mmap_entry>,
    memory: Arc<SharedMemory>,
    /// True if it was mapped. An offset serves one mapping.
    is_mapped: Atomic<bool>,
}

/// The right of a process to map a ring. Dropping it revokes the right.
///
/// # Invariants
///
/// The core holds `entry`, was not told to remove it yet, and its context is alive.
pub(crate) struct Mapping {
    entry: NonNull<Entry>,
}

// SAFETY: The entry may be removed from any thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Gives `memory` an offset in the file of `ucontext`. May sleep.
    ///
    /// # Safety
    ///
    /// `ucontext` must be alive until the mapping is dropped.
    pub(crate) unsafe fn new(
        ucontext: NonNull<bindings::ib_ucontext>,
        memory: Arc<SharedMemory>,
    ) -> Result<Self> {
        let bytes = memory.bytes();
        let entry = KBox::new(
            Entry {
                core: Opaque::zeroed(),
                memory,
                is_mapped: Atomic::new(false),
            },
            GFP_KERNEL_ACCOUNT,
        )?;
        // SAFETY: The context is valid, and the entry is pinned on the heap until the core gives it
        // to `mmap_free_callback`.
        to_result(unsafe {
            bindings::rdma_user_mmap_entry_insert(ucontext.as_ptr(), entry.core.get(), bytes)
        })?;
        // INVARIANT: The core has the entry now, and the caller keeps the context alive.
        Ok(Self {
            entry: NonNull::from(KBox::leak(entry)),
        })
    }

    /// Returns the parameters of `mmap` for the process.
    pub(crate) fn info(&self) -> Mminfo {
        // SAFETY: By the invariants the entry is alive; its offset was set when it was inserted and
        // doesn't change.
        let (page, bytes) = unsafe {
            let entry = self.entry.as_ref();
            ((*entry.core.get()).start_pgoff, entry.memory.bytes())
        };
        Mminfo {
            offset: (page as u64).wrapping_shl(PAGE_SHIFT as u32),
            // CAST: `SharedRing::new` bounds the length to 32 bits.
            size: bytes as u32,
        }
    }

    fn into_raw(self) -> *mut Entry {
        let entry = self.entry.as_ptr();
        core::mem::forget(self);
        entry
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: By the invariants the entry is alive and was not removed yet.
        unsafe {
            bindings::rdma_user_mmap_entry_remove(self.entry.as_ref().core.get());
        }
    }
}

/// A place for a mapping that is exchanged as a whole.
///
/// # Invariants
///
/// The pointer is null or a [`Mapping`] that this owns.
pub(crate) struct MappingSlot(Atomic<*mut Entry>);

// SAFETY: The slot only passes mappings, which are `Send`, from thread to thread.
unsafe impl Send for MappingSlot {}
// SAFETY: Shared access exchanges the pointer in one step, so each mapping has one owner at a time.
unsafe impl Sync for MappingSlot {}

impl MappingSlot {
    pub(crate) fn new(mapping: Option<Mapping>) -> Self {
        // INVARIANT: The mapping is ours now.
        Self(Atomic::new(
            mapping.map_or(core::ptr::null_mut(), Mapping::into_raw),
        ))
    }

    /// Stores `mapping`, and returns the previous one.
    pub(crate) fn replace(&self, mapping: Option<Mapping>) -> Option<Mapping> {
        let new = mapping.map_or(core::ptr::null_mut(), Mapping::into_raw);
        // INVARIANT: The previous pointer was ours, and belongs to the returned mapping from here
        // on.
        NonNull::new(self.0.xchg(new, Full)).map(|entry| Mapping { entry })
    }
}

impl Drop for MappingSlot {
    fn drop(&mut self) {
        drop(self.replace(None));
    }
}

/// Maps the ring that the offset of `vma` names, as one of `file`.
///
/// # Errors
///
/// `EINVAL` when no ring has that offset, when it was mapped already, when the length differs, or
/// when the mapping is private.
///
/// # Safety
///
/// To be called in the `mmap` callback for `vma`, of `ucontext`. All entries of `ucontext` must be
/// of this crate.
pub(crate) unsafe fn map_ring(
    ucontext: *mut bindings::ib_ucontext,
    vma: *mut bindings::vm_area_struct,
    file: &RingFile,
) -> Result {
    // SAFETY: The caller passes a valid context and area.
    let found = unsafe { bindings::rdma_user_mmap_entry_get(ucontext, vma) };
    let core = NonNull::new(found).ok_or(EINVAL)?;
    // SAFETY: By the safety requirements it is in an `Entry`, and the core keeps it alive until
    // `rdma_user_mmap_entry_put` below.
    let entry = unsafe { core.cast::<Entry>().as_ref() };
    let map = || {
        if entry.is_mapped.xchg(true, Full) {
            return Err(EINVAL);
        }
        // SAFETY: This is the callback for the area.
        let taken = unsafe { file.take_over(vma) };
        // SAFETY: The caller passes a valid area that is being set up, and locked for that.
        let mapped = taken.and_then(|()| unsafe { entry.memory.map(vma) });
        if mapped.is_err() {
            entry.is_mapped.xchg(false, Full);
        }
        mapped
    };
    let result = map();
    // SAFETY: The reference was taken above.
    unsafe { bindings::rdma_user_mmap_entry_put(core.as_ptr()) };
    result
}

/// Frees an entry that nobody refers to any more: `ib_device_ops.mmap_free`. May sleep.
///
/// # Safety
///
/// Only the core may call it, once, with an entry of a device of this crate.
pub(crate) unsafe extern "C" fn mmap_free_callback(core: *mut bindings::rdma_user_mmap_entry) {
    // SAFETY: The entry was leaked by `Mapping::new`, and the core is done with it.
    drop(unsafe { KBox::from_raw(core.cast::<Entry>()) });
}
