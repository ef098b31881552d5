// SPDX-License-Identifier: GPL-2.0

//! Buffers for frames, recycled.
//!
//! Most distribution kernels zero memory when it is allocated. For a frame with 4096 bytes of
//! payload that costs more than its CRC. So buffers come from page pools, one for each CPU: the
//! network gives their pages back when it frees a frame, wherever that is.

use core::pin::Pin;
use core::ptr::NonNull;

use kernel::bindings::{GFP_ATOMIC, __GFP_NOWARN};
use kernel::cpu::{nr_cpu_ids, CpuId};
use kernel::error::from_err_ptr;
use kernel::new_spinlock;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::sync::{Arc, SpinLock};

use rdma_bindings as bindings;
use rdma_bindings::sk_buff;

use crate::sync::BhDisabled;
use crate::work::Background;

/// Pages that buffers are cut from: the largest path MTU has room in one, with the headers of all
/// layers and the kernel's own data.
pub(super) const PAGES_BYTES: usize = if PAGE_SIZE < 8192 { 8192 } else { PAGE_SIZE };
const ORDER: u32 = (PAGES_BYTES / PAGE_SIZE).ilog2();

/// Pieces of an skb: fewer than any kernel can be set up for.
const MOST_PIECES: usize = 16;

/// Pages that a pool keeps beside the few for its own CPU; they are allocated as they are needed.
const KEPT: u32 = 128;

/// The buffers of all CPUs.
pub(super) struct Buffers(Background<Pools>);

/// Pools that frames may still have buffers of.
///
/// A buffer that is freed in a softirq of its pool's CPU goes to the pool's cache without a lock: the
/// network looks whether it is that CPU (`page_pool_napi_local`) and then writes to the cache. To
/// destroy a pool is to empty the cache on whatever CPU that is done, also without a lock.
/// `page_pool_destroy` has the network look in vain from then on, but does not wait for who has
/// looked before; it leaves that to drivers, who stop their NAPI first. Both at once lose a page, or
/// free one twice. So when these are dropped, which sleeps, nobody goes to a cache any more before the
/// first pool is destroyed.
struct Pools {
    /// By the number of the CPU; empty for one that is not possible. Taken with bottom halves
    /// disabled, by their CPU alone, unless that can change meanwhile (PREEMPT_RT).
    by_cpu: KVec<Option<Pin<KBox<SpinLock<Pool>>>>>,
}

impl Drop for Pools {
    fn drop(&mut self) {
        for pool in self.by_cpu.iter().flatten() {
            let pool = {
                // As whoever allocates from it does: it is unlocked before they are enabled.
                let _bh = BhDisabled::new();
                let pool = pool.lock().0;
                pool
            };
            // SAFETY: The pool is ours. It has no NAPI, so nothing more is asked for.
            unsafe { bindings::page_pool_disable_direct_recycling(pool.as_ptr()) };
        }
        // Who looked before that does so with bottom halves disabled, and leaves the cache before these
        // are enabled: a read side.
        //
        // SAFETY: Process context, as documented.
        unsafe { kernel::bindings::synchronize_rcu() };
        // The fields are dropped next, and with them each pool.
    }
}

/// Must not be dropped on its own once something was allocated from it: see [`Pools`].
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
        // reference to all pools, nor does anybody use its cache: it is of `Pools`, which has seen to
        // that, or was never used. Pages that frames still use keep the rest of the pool until they
        // are freed; nothing of this module is called for that.
        unsafe { bindings::page_pool_destroy(self.0.as_ptr()) };
    }
}

impl Buffers {
    /// Makes the pools, without buffers. Sleeps.
    pub(super) fn new() -> Result<Arc<Self>> {
        let mut pools = KVec::with_capacity(nr_cpu_ids() as usize, GFP_KERNEL)?;
        for cpu in 0..nr_cpu_ids() {
            // SAFETY: Any number may be asked about.
            let pool = if unsafe { bindings::cpu_is_possible(cpu) } {
                let pool = new_spinlock!(Pool::new(cpu)?, "Buffers::pools");
                Some(KBox::pin_init(pool, GFP_KERNEL)?)
            } else {
                None
            };
            pools.push(pool, GFP_KERNEL)?;
        }
        // What is dropped when this fails was never used.
        let pools = Background::new(Pools { by_cpu: pools })?;
        Ok(Arc::new(Self(pools), GFP_KERNEL)?)
    }

    /// The pool of the CPU that this one is as long as bottom halves are disabled.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, for a CPU that was not possible.
    #[inline]
    fn of_this_cpu(&self, _bh: &BhDisabled) -> Result<&SpinLock<Pool>> {
        let pool = self.0.by_cpu.get(CpuId::current().as_u32() as usize);
        pool.and_then(Option::as_deref).ok_or(ENOMEM)
    }

    /// A linear skb of ours alone, with `len` bytes of data that are to be written and `headroom`
    /// bytes before them. Process and softirq context.
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
            // SAFETY: As in `Pool::skb`.
            let data = unsafe { bindings::page_pool_dev_alloc_va(pool.0.as_ptr(), &mut size) };
            let data = NonNull::new(data).ok_or(ENOMEM)?;
            // SAFETY: The buffer is ours, of as many bytes at least, and the skb has room for it. It is
            // marked as one whose pages are a pool's.
            unsafe { bindings::skb_attach(skb.as_ptr(), data.as_ptr(), piece as u32) };
            left = left.wrapping_sub(piece);
        }
        Ok(())
    }
}

impl Pool {
    /// A pool for `cpu`. Sleeps.
    fn new(cpu: u32) -> Result<Self> {
        // SAFETY: The CPU is possible.
        let pool = from_err_ptr(unsafe { bindings::page_pool_for_cpu(cpu, ORDER, KEPT) })?;
        // INVARIANT: Made just now.
        Ok(Self(NonNull::new(pool).ok_or(ENOMEM)?))
    }

    /// An empty skb with a buffer of `size`, at most `PAGES_BYTES`.
    fn skb(&self, size: u32) -> Option<NonNull<sk_buff>> {
        let pool = self.0.as_ptr();
        let mut size = size;
        // SAFETY: The pool is ours, and the caller's lock and CPU keep others out. It may raise
        // `size` to what is left of a page.
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

/// Bytes of a buffer with `room` bytes for a packet, and the kernel's own data behind them.
#[inline]
fn buffer_size(room: u32) -> u32 {
    const ALIGNMENT: u32 = bindings::SMP_CACHE_BYTES;

    let aligned = room.saturating_add(ALIGNMENT - 1) & !(ALIGNMENT - 1);
    aligned.saturating_add(bindings::SKB_OVERHEAD)
}

/// An empty skb with `room` bytes for a packet, from the allocator.
fn allocate(room: u32) -> Option<NonNull<sk_buff>> {
    const NUMA_NO_NODE: i32 = -1;

    // SAFETY: Callable in any context, as it must not sleep.
    NonNull::new(unsafe { bindings::__alloc_skb(room, GFP_ATOMIC | __GFP_NOWARN, 0, NUMA_NO_NODE) })
}
