// SPDX-License-Identifier: GPL-2.0

//! Memory of another device driver, shared as a dma-buf.
//!
//! There is no device here that does DMA, so nothing is attached to the buffer. It is mapped into
//! the kernel, as an exporter of ordinary memory allows, and a CPU copies from and to it.

use crate::{
    errno::EOPNOTSUPP,
    memory::Pages, //
};
use core::ptr::NonNull;
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    ffi::c_int,
    prelude::*, //
};
use rdma_bindings as bindings;

/// A part of a dma-buf, mapped.
///
/// # Invariants
///
/// - `buffer` is a reference to a buffer that is mapped as `map` says, into ordinary memory, and
///   that the CPU may access.
/// - The `len` bytes from `first` on are in that mapping.
pub struct DmaBuf {
    buffer: Buffer,
    map: bindings::iosys_map,
    first: NonNull<u8>,
    len: usize,
    writable: bool,
}

// SAFETY: The mapping may be used and given back by any thread; its memory is reached by copies
// alone.
unsafe impl Send for DmaBuf {}
// SAFETY: Shared access copies bytes of the mapping, which may happen on any number of threads.
unsafe impl Sync for DmaBuf {}

/// A reference to a dma-buf.
struct Buffer(NonNull<bindings::dma_buf>);

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: The reference is ours.
        unsafe { bindings::dma_buf_put(self.0.as_ptr()) };
    }
}

impl DmaBuf {
    /// Maps the `len` bytes from `offset` on of the dma-buf that the calling process knows as `fd`.
    /// Sleeps, as dropping it does.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the bytes are not all in the buffer; `EBADF` if `fd` is no file; `EOPNOTSUPP` if
    /// the exporter does not map the buffer for the kernel, because its memory is not ordinary or
    /// may move; the errors of the exporter.
    pub fn map(fd: i32, offset: u64, len: u64, writable: bool) -> Result<Self> {
        // SAFETY: Any number may be passed.
        let buffer = from_err_ptr(unsafe { bindings::dma_buf_get(fd) })?;
        let buffer = Buffer(NonNull::new(buffer).ok_or(EINVAL)?);
        let raw = buffer.0.as_ptr();
        // SAFETY: The buffer is valid.
        let size = unsafe { (*raw).size };
        let offset = usize::try_from(offset).map_err(|_| EINVAL)?;
        let len = usize::try_from(len).map_err(|_| EINVAL)?;
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        if len == 0 || end > size {
            return Err(EINVAL);
        }
        // SAFETY: The reference keeps the buffer, and its exporter keeps the operations. Memory
        // that moves would have to be pinned, which needs a device.
        let can_be_mapped = unsafe {
            let ops = (*raw).ops;
            (*ops).pin.is_none() && (*ops).vmap.is_some()
        };
        if !can_be_mapped {
            return Err(EOPNOTSUPP);
        }
        // SAFETY: Zeroes are an empty mapping.
        let mut map: bindings::iosys_map = unsafe { core::mem::zeroed() };
        // SAFETY: The buffer is valid.
        to_result(unsafe { bindings::dma_buf_vmap_unlocked(raw, &mut map) })?;
        let mapping = Mapping(raw, map);
        if mapping.1.is_iomem {
            return Err(EOPNOTSUPP);
        }
        // SAFETY: The mapping is not I/O memory, so this field of the union is set.
        let first = unsafe { mapping.1.__bindgen_anon_1.vaddr };
        let first = NonNull::new(first.cast::<u8>()).ok_or(EOPNOTSUPP)?;
        // SAFETY: The buffer is valid.
        to_result(unsafe { bindings::dma_buf_begin_cpu_access(raw, DIRECTION) })?;
        core::mem::forget(mapping);
        // INVARIANT: The buffer is mapped as `map` says, into ordinary memory, and the CPU may
        // access it. The mapping has `size` bytes.
        Ok(Self {
            buffer,
            map,
            // SAFETY: The mapping has `size` bytes, and `offset` is less, so the address is within
            // it.
            first: unsafe { first.add(offset) },
            len,
            writable,
        })
    }

    #[inline]
    fn piece(&self, at: u64, len: usize) -> Result<*mut u8> {
        let at = usize::try_from(at).map_err(|_| EFAULT)?;
        if at > self.len || len > self.len.wrapping_sub(at) {
            return Err(EFAULT);
        }
        Ok(self.first.as_ptr().wrapping_add(at))
    }
}

/// `DMA_BIDIRECTIONAL`
const DIRECTION: bindings::dma_data_direction = bindings::dma_data_direction_DMA_BIDIRECTIONAL;

/// Unmaps a buffer.
struct Mapping(*mut bindings::dma_buf, bindings::iosys_map);

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: The buffer is valid, and mapped as the second field says.
        unsafe { bindings::dma_buf_vunmap_unlocked(self.0, &mut self.1) };
    }
}

// SAFETY: By the invariants the memory is one piece, which is mapped as long as the value exists.
unsafe impl Pages for DmaBuf {
    #[inline]
    fn read_chunks(
        &self,
        at: u64,
        len: usize,
        mut f: impl FnMut(*const u8, usize) -> Result,
    ) -> Result {
        let piece = self.piece(at, len)?;
        match len {
            0 => Ok(()),
            _ => f(piece, len),
        }
    }

    #[inline]
    fn write_chunks(
        &self,
        at: u64,
        len: usize,
        mut f: impl FnMut(*mut u8, usize) -> Result,
    ) -> Result {
        if !self.writable {
            return Err(EFAULT);
        }
        let piece = self.piece(at, len)?;
        match len {
            0 => Ok(()),
            _ => f(piece, len),
        }
    }
}

impl Drop for DmaBuf {
    fn drop(&mut self) {
        let raw = self.buffer.0.as_ptr();
        // SAFETY: By the invariants the buffer is valid, and the CPU may access it. A failure has
        // no remedy.
        let _: c_int = unsafe { bindings::dma_buf_end_cpu_access(raw, DIRECTION) };
        drop(Mapping(raw, self.map));
    }
}
