// SPDX-License-Identifier: GPL-2.0

//! Memory of another device driver, shared as a dma-buf.
//!
//! There is no device here that does DMA, so nothing is attached to the buffer: it is mapped into
//! the kernel, as an exporter of ordinary memory allows, and copied from and to by a CPU.

use core::ptr::NonNull;

use kernel::error::{from_err_ptr, to_result};
use kernel::ffi::c_int;
use kernel::prelude::*;

use rdma_bindings as bindings;

use crate::errno::EOPNOTSUPP;
use crate::memory::Pages;

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
// SAFETY: As above.
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
    /// `EINVAL` if they are not all in it, `EBADF` if that is no file, `EOPNOTSUPP` if the exporter
    /// does not map it for the kernel, as what it has is no ordinary memory or moves; its own
    /// errors.
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
        // SAFETY: As above. What moves would have to be pinned, for which a device is needed.
        if unsafe { bindings::dma_buf_moves(raw) || !bindings::dma_buf_has_vmap(raw) } {
            return Err(EOPNOTSUPP);
        }
        // SAFETY: Zeroes are an empty mapping.
        let mut map: bindings::iosys_map = unsafe { core::mem::zeroed() };
        // SAFETY: The buffer is valid.
        to_result(unsafe { bindings::dma_buf_vmap_unlocked(raw, &mut map) })?;
        let mapping = Mapping(raw, map);
        // SAFETY: The mapping is that of the call.
        let first = unsafe { bindings::iosys_map_memory(&mapping.1) };
        let first = NonNull::new(first.cast::<u8>()).ok_or(EOPNOTSUPP)?;
        // SAFETY: The buffer is valid.
        to_result(unsafe { bindings::dma_buf_begin_cpu_access(raw, DIRECTION) })?;
        core::mem::forget(mapping);
        // INVARIANT: As set up. The mapping has `size` bytes.
        Ok(Self {
            buffer,
            map,
            // SAFETY: So this is within it.
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
        // SAFETY: The buffer is valid, and mapped so.
        unsafe { bindings::dma_buf_vunmap_unlocked(self.0, &mut self.1) };
    }
}

// SAFETY: By the invariants the whole is one piece, mapped as long as it is there.
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
        // SAFETY: By the invariants. Nothing can be done if it fails.
        let _: c_int = unsafe { bindings::dma_buf_end_cpu_access(raw, DIRECTION) };
        drop(Mapping(raw, self.map));
    }
}
