// SPDX-License-Identifier: GPL-2.0

//! Persistent memory: bytes that outlast the machine's power once the caches have written them back.

use rdma_bindings as bindings;

/// Whether the kernel can write caches back to persistent memory.
pub const CAN_WRITE_BACK: bool = cfg!(CONFIG_ARCH_HAS_PMEM_API);

/// What the machine calls it, by its firmware's tables or by what was before these.
const KINDS: [usize; 2] = [
    bindings::FERROCE_PERSISTENT_MEMORY,
    bindings::FERROCE_PERSISTENT_MEMORY_LEGACY,
];

/// Whether all `len` bytes at a kernel address in the linear mapping are persistent memory. Not in
/// softirqs.
pub(crate) fn is_persistent(address: usize, len: usize) -> bool {
    KINDS.iter().any(|kind| {
        // SAFETY: It compares numbers with those of the machine's resources.
        unsafe { bindings::memory_is(address, len, *kind) }
    })
}

/// Writes back what the caches have of the `len` bytes at `address`. Any context. It is done once
/// [`wait`] has returned.
///
/// # Safety
///
/// They must be valid for reads.
pub(crate) unsafe fn write_back(address: *const u8, len: usize) {
    // SAFETY: The caller has it so. Caches are written back, and no byte changes.
    unsafe { bindings::wb_cache_pmem(address.cast_mut().cast(), len) };
}

/// Waits until what is being written back has got there, before anything else is written.
pub(crate) fn wait() {
    // SAFETY: A barrier may be put anywhere.
    unsafe { bindings::pmem_wmb() };
}

/// Has others run, if they are due. May sleep.
pub fn give_way() {
    // SAFETY: The caller may sleep.
    unsafe { bindings::cond_resched() };
}
