// SPDX-License-Identifier: GPL-2.0

//! Buffers for frames, recycled.
//!
//! Most distribution kernels zero memory when it is allocated. For a frame with 4096 bytes of
//! payload that costs more than its CRC. So buffers come from page pools, one for each CPU: the
//! network gives their pages back when it frees a frame, on any CPU.

use crate::{
    sync::BhDisabled,
    work::Background, //
};
use core::{
    pin::Pin,
    ptr::NonNull, //
};
use kernel::{
    bindings::{
        GFP_ATOMIC, //
        __GFP_NOWARN,
    },
    cpu::{
        nr_cpu_ids,
        CpuId, //
    },
    error::from_err_ptr,
    new_spinlock,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    }, //
};
use rdma_bindings::{
    self as bindings,
    sk_buff, //
};

#[cfg(not(CONFIG_PAGE_POOL))]
compile_error!("ferroce needs a kernel with CONFIG_PAGE_POOL");

/// Pages that buffers are cut from: the largest path MTU has room in one, with the headers of all
/// layers and the kernel's own data.
pub(super) const PAGES_BYTES: usize = if PAGE_SIZE < 8192 { 8192 } else { PAGE_SIZE };
const ORDER: u32 = (PAGES_BYTES / PAGE_SIZE).ilog2();

/// Pieces of an skb: at most the lowest limit that a kernel can be configured for.
const MOST_PIECES: usize = 16;

/// Pages that a pool keeps beside the few for its own CPU; they are allocated as they are needed.
const KEPT: u32 = 128;

/// The buffers of all CPUs.
pub(super) struct Buffers(Background<Pools>);

/// Pools with buffers that frames may still use.
///
/// A buffer that is freed in a softirq of its pool's CPU goes to the pool's cache without a lock.
/// The network checks that it runs on that CPU (`page_pool_napi_local`), and then writes to the
/// cache. Destroying a pool empties the cache, on any CPU and without a lock. After
/// `page_pool_destroy` the check fails, but the function does not wait for earlier checks. It
/// leaves that to drivers, which stop their NAPI first. Both at the same time would lose a page, or
/// free one twice. So the drop of these sleeps until no cache is in use, before it destroys the
/// first pool.
struct Pools {
    /// By the number of the CPU; empty for one that is not possible. Taken with bottom halves
    /// disabled, by their CPU alone, unless that can change meanwhile (PREEMPT_RT).
    by_cpu: KVec<Option<Pin<KBox<SpinLock<Pool>>>>>,
}

impl Drop for Pools {
    fn drop(&mut self) {
        for pool in self.by_cpu.iter().flatten() {
            let pool = {
                // As in an allocation, the lock is released before bottom halves are enabled.
                let _bh = BhDisabled::new();
                let pool = pool.lock().0;
                pool
            };
            // SAFETY: The pool is ours. It has no NAPI, so there is no other requirement.
            unsafe { bindings::page_pool_disable_direct_recycling(pool.as_ptr()) };
        }
        // A CPU that checked before that has bottom halves disabled, which is a read side. It
        // leaves the cache before it enables them.
        //
        // SAFETY: This is process context, as documented.
        unsafe { kernel::bindings::synchronize_rcu() };
        // The fields are dropped next, and with them each pool.
    }
}

/// A pool. It must not be dropped on its own once something was allocated from it: see [`Pools`].
///
/// # Invariants
///
/// Owns a page pool, of pages of `PAGES_BYTES`.
struct Pool(NonNull<bindings::page_pool>);

// SAFETY: A page pool may be used and destroyed by any thread; its users are serialised by a lock.
unsafe impl Send for Pool {}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: By the type invariants it is ours. Nobody allocates any more, as that takes a
        // reference to all pools. Nobody uses its cache: the drop of `Pools` ensured that, or the
        // pool was never used. Pages that frames still use keep the rest of the pool until they are
        // freed, which calls no code of this module.
        unsafe { bindings::page_pool_destroy(self.0.as_ptr()) };
    }
}

impl Buffers {
    /// Makes the pools, without buffers. Sleeps.
    pub(super) fn new() -> Result<Arc<Self>> {
        let mut pools = KVec::with_capacity(nr_cpu_ids() as usize, GFP_KERNEL)?;
        for cpu in 0..nr_cpu_ids() {
            // SAFETY: The function takes any number.
            let pool = if unsafe { bindings::cpu_possible(cpu) } {
                let pool = new_spinlock!(Pool::new(cpu)?, "Buffers::pools");
                Some(KBox::pin_init(pool, GFP_KERNEL)?)
            } else {
                None
            };
            pools.push(pool, GFP_KERNEL)?;
        }
        // If this fails, the pools that are dropped were never used.
        let pools = Background::new(Pools { by_cpu: pools })?;
        Ok(Arc::new(Self(pools), GFP_KERNEL)?)
    }

    /// Returns the pool of the current CPU, which stays the same while bottom halves are disabled.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, for a CPU that was not possible.
    #[inline]
    fn of_this_cpu(&self, _bh: &BhDisabled) -> Result<&SpinLock<Pool>> {
        let pool = self.0.by_cpu.get(CpuId::current().as_u32() as usize);
        pool.and_then(Option::as_deref).ok_or(ENOMEM)
    }

    /// Returns a linear skb of ours alone, with `len` bytes of data that are to be written and
    /// `headroom` bytes before them. Process and softirq context.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn skb(&self, headroom: u32, len: u32) -> Result<NonNull<sk_buff>> {
        // The CPU, and with it the pool, is ours until this is dropped: frames that are freed on
        // this CPU go back to its pool without taking the lock.
        let bh = BhDisabled::new();
        let room = headroom.saturating_add(len);
        let size = buffer_size(room);
        let skb = if size as usize > PAGES_BYTES {
            allocate(room)
        } else {
            self.of_this_cpu(&bh)?.lock().skb(size)
        };
        let skb = skb.ok_or(ENOMEM)?;
        // SAFETY: The skb is new and has room for both. CAST: Both are below 64 KiB.
        unsafe {
            bindings::skb_reserve(skb.as_ptr(), headroom as i32);
            bindings::skb_put(skb.as_ptr(), len);
        }
        Ok(skb)
    }

    /// Appends `len` bytes that are to be written to an skb of [`skb`](Self::skb), in pieces of
    /// `PAGES_BYTES` and the rest. Process and softirq context.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: it has some of them then; `EINVAL` if these are more than [`MOST_PIECES`].
    ///
    /// # Safety
    ///
    /// `skb` must be ours alone, come from here, and have no pieces yet.
    pub(super) unsafe fn extend(&self, skb: NonNull<sk_buff>, len: usize) -> Result {
        if len > MOST_PIECES * PAGES_BYTES {
            return Err(EINVAL);
        }
        let bh = BhDisabled::new();
        let pool = self.of_this_cpu(&bh)?.lock();
        let mut left = len;
        while left > 0 {
            let piece = left.min(PAGES_BYTES);
            // CAST: It is no more than a page or two.
            let mut size = piece as u32;
            // SAFETY: The pool is ours, and the lock with bottom halves disabled keeps others out.
            // It may raise `size` to the rest of a page.
            let data = unsafe { bindings::page_pool_dev_alloc_va(pool.0.as_ptr(), &mut size) };
            let data = NonNull::new(data).ok_or(ENOMEM)?;
            // SAFETY: The buffer is ours, of as many bytes at least, and the skb has room for it.
            // The skb is marked as one with pages of a pool.
            unsafe { bindings::skb_attach(skb.as_ptr(), data.as_ptr(), piece as u32) };
            left = left.wrapping_sub(piece);
        }
        Ok(())
    }
}

impl Pool {
    /// Creates a pool for `cpu`. Sleeps.
    fn new(cpu: u32) -> Result<Self> {
        // SAFETY: The CPU is possible.
        let pool = from_err_ptr(unsafe { bindings::page_pool_for_cpu(cpu, ORDER, KEPT) })?;
        // INVARIANT: Made just now.
        Ok(Self(NonNull::new(pool).ok_or(ENOMEM)?))
    }

    /// Returns an empty skb with a buffer of `size`, at most `PAGES_BYTES`.
    fn skb(&self, size: u32) -> Option<NonNull<sk_buff>> {
        let pool = self.0.as_ptr();
        let mut size = size;
        // SAFETY: The pool is ours, and the caller's lock and CPU keep others out. It may raise
        // `size` to the rest of a page.
        let data = unsafe { bindings::page_pool_dev_alloc_va(pool, &mut size) };
        let data = NonNull::new(data)?;
        // SAFETY: The buffer is ours, and of `size` bytes.
        let skb = unsafe { bindings::napi_build_skb(data.as_ptr(), size) };
        let Some(skb) = NonNull::new(skb) else {
            // SAFETY: The buffer came from this pool and is not in use.
            unsafe { bindings::page_pool_free_va(pool, data.as_ptr(), false) };
            return None;
        };
        // SAFETY: Its buffer is a page of a pool, or a part of one.
        unsafe { bindings::skb_mark_for_recycle(skb.as_ptr()) };
        Some(skb)
    }
}

/// Returns the number of bytes of a buffer with `room` bytes for a packet, and the kernel's own data behind them.
#[inline]
fn buffer_size(room: u32) -> u32 {
    const ALIGNMENT: u32 = bindings::SMP_CACHE_BYTES;

    let aligned = room.saturating_add(ALIGNMENT - 1) & !(ALIGNMENT - 1);
    aligned.saturating_add(bindings::SKB_OVERHEAD)
}

/// Returns an empty skb with `room` bytes for a packet, from the allocator.
fn allocate(room: u32) -> Option<NonNull<sk_buff>> {
    const NUMA_NO_NODE: i32 = -1;

    // SAFETY: The function may be called in any context, as `GFP_ATOMIC` forbids it to sleep.
    NonNull::new(unsafe { bindings::__alloc_skb(room, GFP_ATOMIC | __GFP_NOWARN, 0, NUMA_NO_NODE) })
}
