// SPDX-License-Identifier: GPL-2.0

//! Persistent memory: bytes that outlast the machine's power once the caches have written them back.

use kernel::ffi::{
    c_int,
    c_void, //
};
use rdma_bindings as bindings;

/// True if the kernel can write caches back to persistent memory.
pub const CAN_WRITE_BACK: bool = cfg!(CONFIG_ARCH_HAS_PMEM_API);

/// The kinds of resources that are persistent memory: those of the firmware's tables, and those of
/// older firmware.
const KINDS: [usize; 2] = [
    bindings::FERROCE_PERSISTENT_MEMORY,
    bindings::FERROCE_PERSISTENT_MEMORY_LEGACY,
];

/// Returns true if all `len` bytes at a kernel address in the linear mapping are persistent memory. Not
/// in softirqs.
pub(crate) fn is_persistent(address: usize, len: usize) -> bool {
    KINDS.iter().any(|kind| {
        // SAFETY: The address is one of the linear mapping, which is turned into a number and compared
        // with those of the machine's resources.
        let found = unsafe {
            let start = bindings::virt_to_phys(address as *const c_void);
            bindings::region_intersects(start, len, bindings::IORESOURCE_MEM as usize, *kind)
        };
        // CAST: A constant of two bits.
        found == bindings::REGION_INTERSECTS as c_int
    })
}

/// Writes back the cached part of the `len` bytes at `address`. Any context. The write-back is
/// complete once [`wait`] has returned.
///
/// # Safety
///
/// The bytes must be valid for reads.
pub(crate) unsafe fn write_back(address: *const u8, len: usize) {
    // SAFETY: By the safety requirements the bytes are valid. Caches are written back, and no byte
    // changes.
    unsafe { bindings::arch_wb_cache_pmem(address.cast_mut().cast(), len) };
}

/// Waits until all write-backs that were started are complete, before anything else is written.
pub(crate) fn wait() {
    // SAFETY: A barrier has no precondition.
    unsafe { bindings::pmem_wmb() };
}

/// Lets other tasks run, if they are due. May sleep.
pub fn give_way() {
    // SAFETY: The caller may sleep.
    unsafe { bindings::cond_resched() };
}
