// SPDX-License-Identifier: GPL-2.0

//! Counters with one cell for each CPU. The kernel crate has no per-CPU memory.

use core::ptr::NonNull;
use kernel::prelude::*;
use rdma_bindings as bindings;

/// `N` counters that never bounce between CPUs. Adding is one instruction on memory of the current CPU.
/// Reading visits all CPUs.
///
/// # Invariants
///
/// `cells` is per-CPU memory of `N` `u64`, owned by this object.
///
/// # Examples
///
/// ```
/// use rdma::percpu::PerCpuCounters;
///
/// const SENT: usize = 0;
/// const DROPPED: usize = 1;
///
/// let counters = PerCpuCounters::<2>::new()?;
/// counters.add(SENT, 3);
/// assert_eq!([counters.sum(SENT), counters.sum(DROPPED)], [3, 0]);
/// # Ok::<(), Error>(())
/// ```
pub struct PerCpuCounters<const N: usize> {
    cells: NonNull<u64>,
}

// SAFETY: Per-CPU memory is not bound to the thread that allocated it.
unsafe impl<const N: usize> Send for PerCpuCounters<N> {}
// SAFETY: Cells are added to by the kernel's per-CPU operations, which need no lock.
unsafe impl<const N: usize> Sync for PerCpuCounters<N> {}

impl<const N: usize> PerCpuCounters<N> {
    /// Creates counters that are zero, charged to the caller's memory control group. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new() -> Result<Self> {
        // SAFETY: Size and alignment are those of an array of `u64`; `N` is at least 1 below.
        let cells = unsafe {
            kernel::bindings::pcpu_alloc_noprof(
                size_of::<u64>() * N.max(1),
                align_of::<u64>(),
                false,
                kernel::bindings::GFP_KERNEL_ACCOUNT,
            )
        };
        // INVARIANT: Freshly allocated and zeroed.
        Ok(Self {
            cells: NonNull::new(cells.cast()).ok_or(ENOMEM)?,
        })
    }

    /// Adds `count` to counter `index`; no effect unless `index` is below `N`. Any context.
    #[inline]
    pub fn add(&self, index: usize, count: u64) {
        if index >= N {
            return;
        }
        // SAFETY: `index` is within the `N` cells of each CPU, by the type invariants.
        unsafe { bindings::this_cpu_add(self.cells.as_ptr().wrapping_add(index), count) };
    }

    /// Returns the sum of counter `index` over all CPUs; 0 unless `index` is below `N`. Any
    /// context.
    ///
    /// Additions that happen meanwhile may or may not be in it.
    pub fn sum(&self, index: usize) -> u64 {
        if index >= N {
            return 0;
        }
        let cell = self.cells.as_ptr().wrapping_add(index);
        // SAFETY: The function takes any number, and returns the next possible CPU. CAST: Numbers
        // of CPUs are small.
        let next = |cpu: i32| unsafe {
            bindings::cpumask_next(cpu, &raw const bindings::__cpu_possible_mask)
        } as i32;
        let end = i64::from(kernel::cpu::nr_cpu_ids());
        core::iter::successors(Some(next(-1)), |&cpu| Some(next(cpu)))
            .take_while(|&cpu| i64::from(cpu) < end)
            // SAFETY: `cell` is within our per-CPU memory and `cpu` is a possible CPU. The read is
            // a `READ_ONCE`.
            .map(|cpu| unsafe {
                bindings::per_cpu_ptr(cell.cast(), cpu)
                    .cast::<u64>()
                    .read_volatile()
            })
            .fold(0, u64::wrapping_add)
    }
}

impl<const N: usize> Drop for PerCpuCounters<N> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants it is ours and in use no longer.
        unsafe { kernel::bindings::free_percpu(self.cells.as_ptr().cast()) };
    }
}
