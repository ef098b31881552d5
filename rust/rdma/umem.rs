// SPDX-License-Identifier: GPL-2.0

//! Memory of a process, pinned, and memory of the kernel.
//!
//! The pages of a process stay in place until the region is dropped, regardless of the process.
//! They are reached by the kernel's linear mapping. So they may be copied from and to in any
//! context, without faults and sleep.
//!
//! The process may change the bytes at any time. Nothing here forms a reference to them. They are
//! copied, and consistent data (a checksum, a header) is computed from a copy.

use crate::{
    device::{
        Device,
        DeviceMemory, //
    },
    driver::Driver,
    memory::Pages,
    pmem, //
};
use core::ptr::NonNull;
use kernel::{
    error::{
        from_err_ptr,
        Error, //
    },
    ffi::c_int,
    page::PAGE_SIZE,
    prelude::*, //
};
use rdma_bindings as bindings;

// Blocks are kept by their kernel addresses, which all memory must have.
#[cfg(CONFIG_HIGHMEM)]
compile_error!("ferroce needs a kernel whose whole memory is mapped (no CONFIG_HIGHMEM)");

/// Block sizes to choose from: a page and every power of two up to 1 GiB.
const BLOCK_SIZES: usize = (2usize << 30) - PAGE_SIZE;

/// Pinned memory of a process, or [all](Self::kernel) memory of the kernel.
///
/// # Invariants
///
/// - Byte `at < len` lies at byte `p & (2^shift - 1)` of `blocks[p >> shift]`, where
///   `p = first + at`, and `p >> shift` is an index of `blocks`.
/// - If there is a `_pinned` region, it is one of `len > 0` bytes whose bytes are those, pinned for
///   the device, and writable if `writable`. If there is none, `blocks` are addresses of the
///   kernel's memory.
///
/// # Examples
///
/// ```
/// use rdma::{
///     device::Device,
///     driver::Driver,
///     memory::Pages,
///     ops::MrInit,
///     umem::Umem, //
/// };
///
/// /// Pins memory of the calling process, and returns a copy of its first bytes.
/// fn pin<T: Driver>(device: &Device<T>, init: &MrInit) -> Result<(Umem, [u8; 8])> {
///     let memory = Umem::pin(device, init.start, init.length, init.access)?;
///     let mut first = [0; 8];
///     memory.read(0, &mut first)?;
///     Ok((memory, first))
/// }
/// ```
pub struct Umem {
    _pinned: Option<Pinned>,
    /// Kernel addresses of the blocks, each of `1 << shift` bytes.
    blocks: KVVec<usize>,
    shift: u32,
    /// The offset of the region in the first block.
    first: usize,
    len: usize,
    writable: bool,
    /// The device for which the memory was pinned. It is released after the memory.
    _device: Option<DeviceMemory>,
}

// SAFETY: A region may be released by any thread, and memory is reached by copies alone.
unsafe impl Send for Umem {}
// SAFETY: Shared access copies bytes of the region, which may happen on any number of threads.
unsafe impl Sync for Umem {}

/// A pinned region, which it owns.
struct Pinned(NonNull<bindings::ib_umem>);

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: The region was pinned, and nobody else releases it.
        unsafe { bindings::ib_umem_release(self.0.as_ptr()) };
    }
}

impl Umem {
    /// Pins the `len` bytes at `start` of the calling process, for writing if `access`
    /// (`enum ib_access_flags`) has any right to change them.
    ///
    /// The pages count against the process's limit of locked memory. May sleep. Dropping the region
    /// may sleep, too.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `len` is 0 or the range wraps, `ENOMEM` if the limit does not allow it, `EFAULT`
    /// if the process does not have that memory or not with these rights, `EOPNOTSUPP` for
    /// on-demand paging.
    pub fn pin<T: Driver>(device: &Device<T>, start: u64, len: u64, access: u32) -> Result<Self> {
        let start = usize::try_from(start).map_err(|_| EINVAL)?;
        let len = usize::try_from(len).map_err(|_| EINVAL)?;
        if len == 0 {
            return Err(EINVAL);
        }
        // SAFETY: The device is registered, as it was given to a verb or `Registered`; the function
        // checks the range. CAST: The flags fit, as those of the core are 30 bits.
        let umem = from_err_ptr(unsafe {
            bindings::ib_umem_get_va(device.as_raw(), start, len, access as c_int)
        })?;
        // From here on a drop of `pinned` releases the region.
        let pinned = Pinned(NonNull::new(umem).ok_or(EFAULT)?);
        let umem = pinned.0;

        // SAFETY: The region is valid and ours.
        let writable = unsafe { umem.as_ref() }.writable() != 0;
        // SAFETY: The region is valid and ours. The address of the process is passed, so that each
        // byte has the same offset in its block.
        let block =
            unsafe { bindings::ib_umem_find_best_pgsz(umem.as_ptr(), BLOCK_SIZES, start as u64) };
        if block < PAGE_SIZE {
            return Err(EINVAL);
        }
        let blocks = Self::blocks(umem, block)?;
        let first = start & block.wrapping_sub(1);
        let last = first.checked_add(len).ok_or(EINVAL)?.wrapping_sub(1);
        let shift = block.trailing_zeros();
        if last.wrapping_shr(shift) >= blocks.len() {
            return Err(EINVAL);
        }

        // INVARIANT: `blocks` covers the region from its first byte to its last, as checked.
        Ok(Self {
            _pinned: Some(pinned),
            blocks,
            shift,
            first,
            len,
            writable,
            _device: Some(DeviceMemory::of(device)),
        })
    }

    /// Returns all memory of the kernel: byte `at` is the one at kernel address `at`.
    ///
    /// An address without memory behind it faults, so each range must be [checked](is_linear) first.
    /// There is no other protection, as there would be none from a device with these addresses. A driver
    /// uses this for work requests of the kernel. It must not let any other user name an
    /// address in it.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn kernel() -> Result<Self> {
        // Two blocks make up the whole address space, of which the last byte is never used.
        const HALF: usize = 1 << (usize::BITS - 1);
        let mut blocks = KVVec::with_capacity(2, GFP_KERNEL)?;
        blocks.push(0, GFP_KERNEL)?;
        blocks.push(HALF, GFP_KERNEL)?;
        // INVARIANT: Byte `at` lies at the kernel address `at`.
        Ok(Self {
            _pinned: None,
            blocks,
            shift: usize::BITS - 1,
            first: 0,
            len: usize::MAX,
            writable: true,
            _device: None,
        })
    }

    /// Returns the kernel addresses of the blocks of `block` bytes that make up `umem`.
    fn blocks(umem: NonNull<bindings::ib_umem>, block: usize) -> Result<KVVec<usize>> {
        // SAFETY: The caller passes a valid region.
        let count = unsafe { bindings::ib_umem_num_dma_blocks(umem.as_ptr(), block) };
        // A region may need a longer list than the kernel allocates. The process is told, not the log.
        let mut blocks = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT | __GFP_NOWARN)?;
        // SAFETY: A zeroed iterator is valid memory for the next function to fill.
        let mut iter: bindings::ib_block_iter = unsafe { core::mem::zeroed() };
        // SAFETY: The region is valid, and the core found `block` as a size of its blocks.
        unsafe {
            bindings::__rdma_umem_block_iter_start(&raw mut iter, umem.as_ptr(), block);
        }
        // SAFETY: The iterator was started and the region is valid.
        while unsafe { bindings::__rdma_umem_block_iter_next(&raw mut iter) } {
            // SAFETY: The iterator stands on a block.
            let address = unsafe { bindings::rdma_block_iter_dma_address(&raw mut iter) };
            // A device without a DMA device has kernel addresses where others have bus addresses.
            // CAST: `usize` and a kernel address are equally wide.
            blocks.push(address as usize, GFP_KERNEL_ACCOUNT)?;
        }
        Ok(blocks)
    }

    /// Returns its length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of bytes of the blocks that it is made of, each contiguous: a power of two.
    #[inline]
    pub fn block_bytes(&self) -> usize {
        1usize.wrapping_shl(self.shift)
    }

    /// Returns true if it has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns true if it may be written to.
    #[inline]
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Returns true if all of it is persistent memory. May sleep.
    pub fn is_persistent(&self) -> bool {
        // Adjacent pieces are checked together.
        let (mut start, mut end) = (0usize, 0usize);
        let check = |start: usize, end: usize| {
            if start < end && !pmem::is_persistent(start, end.wrapping_sub(start)) {
                return Err(EINVAL);
            }
            pmem::give_way();
            Ok(())
        };
        let all = self.chunks(0, self.len, |address, len| {
            let address = address as usize;
            if address != end {
                check(start, end)?;
                start = address;
            }
            end = address.wrapping_add(len);
            Ok(())
        });
        all.and_then(|()| check(start, end)).is_ok()
    }

    #[inline]
    fn chunks(&self, at: u64, len: usize, mut f: impl FnMut(*mut u8, usize) -> Result) -> Result {
        let at = usize::try_from(at).map_err(|_| EFAULT)?;
        if at > self.len || len > self.len.wrapping_sub(at) {
            return Err(EFAULT);
        }
        let block = 1usize.wrapping_shl(self.shift);
        let mask = block.wrapping_sub(1);
        let mut position = self.first.wrapping_add(at);
        let mut left = len;
        while left > 0 {
            let offset = position & mask;
            let base = *self
                .blocks
                .get(position.wrapping_shr(self.shift))
                .ok_or::<Error>(EFAULT)?;
            let piece = left.min(block.wrapping_sub(offset));
            // By the invariants the piece lies within the block, and within the region.
            f(base.wrapping_add(offset) as *mut u8, piece)?;
            position = position.wrapping_add(piece);
            left = left.wrapping_sub(piece);
        }
        Ok(())
    }
}

/// Returns true if all `len` bytes at `address` are in the kernel's linear mapping, with memory
/// behind them. Then they may be accessed in any context. Memory that the DMA API can map is there.
/// Any context.
pub fn is_linear(address: u64, len: u32) -> bool {
    let Ok(start) = usize::try_from(address) else {
        return false;
    };
    let Some(last) = start.checked_add((len as usize).saturating_sub(1)) else {
        return false;
    };
    let mut page = start & !(PAGE_SIZE - 1);
    loop {
        // SAFETY: The function takes any number.
        if !unsafe { bindings::virt_addr_valid(page) } {
            return false;
        }
        match page.checked_add(PAGE_SIZE) {
            Some(next) if next <= last => page = next,
            _ => return true,
        }
    }
}

// SAFETY: Pinned pages are mapped as long as the region exists, and the user of `kernel` must check
// each range. Blocks are whole pages, so no word is cut.
unsafe impl Pages for Umem {
    #[inline]
    fn read_chunks(
        &self,
        at: u64,
        len: usize,
        mut f: impl FnMut(*const u8, usize) -> Result,
    ) -> Result {
        self.chunks(at, len, |address, len| f(address.cast_const(), len))
    }

    #[inline]
    fn write_chunks(&self, at: u64, len: usize, f: impl FnMut(*mut u8, usize) -> Result) -> Result {
        if !self.writable {
            return Err(EFAULT);
        }
        self.chunks(at, len, f)
    }
}
