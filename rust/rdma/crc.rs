// SPDX-License-Identifier: GPL-2.0

//! CRC32, as the kernel's accelerated routines compute it.

/// Continues `crc` over `bytes`: the reflected CRC32 of Ethernet, neither inverted before nor after.
///
/// Process and softirq context.
#[inline]
pub fn crc32_le(crc: u32, bytes: &[u8]) -> u32 {
    // SAFETY: `bytes` is valid for reads of its length.
    unsafe { crc32_le_raw(crc, bytes.as_ptr(), bytes.len()) }
}

/// Does the same as [`crc32_le`], over memory that others may change meanwhile. The result is then
/// an arbitrary number.
///
/// # Safety
///
/// `ptr` must be valid for reads of `len` bytes.
#[inline]
pub(crate) unsafe fn crc32_le_raw(crc: u32, ptr: *const u8, len: usize) -> u32 {
    // SAFETY: By the safety requirements the memory is valid. The C function takes any bytes, and a
    // concurrent change affects only its result.
    unsafe { rdma_bindings::crc32_le(crc, ptr.cast(), len) }
}
