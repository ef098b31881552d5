// SPDX-License-Identifier: GPL-2.0

//! The operations of all kinds of memory that are copied from and to.

use crate::pmem;
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Full,
        Release, //
    }, //
};
use rdma_bindings as bindings;

/// Memory that is copied from and to in any context, piece by piece.
///
/// Its owner may change the bytes at any time. Nothing forms a reference to them. They are copied, and
/// consistent data (a checksum, a header) is computed from a copy.
///
/// # Safety
///
/// Both methods pass pieces to `f`, which must be valid for reads, or for reads and writes, during
/// that call. In order, the pieces must make up the requested bytes. A word whose
/// address is a multiple of its size must lie within one piece.
pub unsafe trait Pages {
    /// Calls `f` with each contiguous piece of the `len` bytes at `at`, in order: its kernel
    /// address and its length, at least 1. The pieces may be read during the call, by code that
    /// tolerates concurrent changes.
    ///
    /// # Errors
    ///
    /// `EFAULT`, without any call, if the bytes are not all within the memory; `EAGAIN` if the next
    /// piece is absent, and has to be [faulted in](crate::odp::OnDemand::fault_in); the first error of `f`.
    fn read_chunks(&self, at: u64, len: usize, f: impl FnMut(*const u8, usize) -> Result)
        -> Result;

    /// Does the same as [`read_chunks`](Self::read_chunks), for pieces that may be written to.
    ///
    /// # Errors
    ///
    /// `EFAULT` also if the memory is not writable.
    fn write_chunks(&self, at: u64, len: usize, f: impl FnMut(*mut u8, usize) -> Result) -> Result;

    /// Copies the bytes from `at` on to `to`. Any context.
    ///
    /// # Errors
    ///
    /// `EFAULT`, with nothing copied, if they are not all within the memory; `EAGAIN` if some of it
    /// is absent.
    fn read(&self, at: u64, to: &mut [u8]) -> Result {
        let mut to_ptr = to.as_mut_ptr();
        self.read_chunks(at, to.len(), |from, len| {
            // SAFETY: `from` is valid for `len` bytes, of which all chunks together are as many as
            // `to` has. The process may change them meanwhile, which the copy tolerates.
            unsafe {
                bindings::memcpy(to_ptr.cast(), from.cast(), len);
                to_ptr = to_ptr.add(len);
            }
            Ok(())
        })
    }

    /// Copies `from` to the bytes from `at` on. Any context.
    ///
    /// # Errors
    ///
    /// `EFAULT`, with nothing copied, if they are not all within the memory or it is not writable;
    /// `EAGAIN`, with some copied at most, if some of it is absent.
    fn write(&self, at: u64, from: &[u8]) -> Result {
        let mut from_ptr = from.as_ptr();
        self.write_chunks(at, from.len(), |to, len| {
            // SAFETY: `to` is valid for `len` bytes, of which all chunks together are as many as
            // `from` has. The process may change them meanwhile, which the copy tolerates.
            unsafe {
                bindings::memcpy(to.cast(), from_ptr.cast(), len);
                from_ptr = from_ptr.add(len);
            }
            Ok(())
        })
    }

    /// Writes the `len` bytes at `at` back from the caches: if they are in persistent memory, they
    /// outlast the machine's power from then on. Any context.
    ///
    /// # Errors
    ///
    /// `EFAULT` if they are not all within the memory; `EAGAIN`, with some written back at most, if
    /// some of it is absent.
    fn write_back(&self, at: u64, len: usize) -> Result {
        let written = self.read_chunks(at, len, |address, len| {
            // SAFETY: The piece is valid for reads during the call.
            unsafe { pmem::write_back(address, len) };
            Ok(())
        });
        pmem::wait();
        written
    }

    /// Adds `add` to the eight bytes at `at`, in one step for all CPUs and processes; wraps.
    /// Returns their previous value. Any context.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write); `EINVAL` if the bytes are not at a multiple of eight.
    fn fetch_add(&self, at: u64, add: u64) -> Result<u64> {
        with_word(self, at, |word| word.fetch_add(add, Full))
    }

    /// Stores `new` in the eight bytes at `at` if they are `old`, in one step for all CPUs and
    /// processes. Returns their previous value. Any context.
    ///
    /// # Errors
    ///
    /// As for [`fetch_add`](Self::fetch_add).
    fn compare_swap(&self, at: u64, old: u64, new: u64) -> Result<u64> {
        with_word(self, at, |word| {
            word.cmpxchg(old, new, Full).unwrap_or_else(|other| other)
        })
    }

    /// Stores `value` in the eight bytes at `at`, in one step for all CPUs and processes. Any
    /// context.
    ///
    /// # Errors
    ///
    /// As for [`fetch_add`](Self::fetch_add).
    fn store(&self, at: u64, value: u64) -> Result {
        with_word(self, at, |word| word.store(value, Release))
    }
}

/// Runs `f` on the eight bytes at `at`.
fn with_word<R>(
    pages: &(impl Pages + ?Sized),
    at: u64,
    f: impl FnOnce(&Atomic<u64>) -> R,
) -> Result<R> {
    const WORD: usize = core::mem::size_of::<u64>();

    let mut f = Some(f);
    let mut result = None;
    pages.write_chunks(at, WORD, |address, len| {
        let word = address.cast::<u64>();
        // A word at an aligned address is within one piece.
        if len != WORD || !word.is_aligned() {
            return Err(EINVAL);
        }
        // SAFETY: The eight bytes are valid for reads and writes during the call, as the pages are,
        // and aligned. All bit patterns are valid. A process may change them by its CPU, and so may
        // a copy of this driver. That is no data race with an atomic, which assumes nothing about
        // the value that it finds.
        let word = unsafe { Atomic::from_ptr(word) };
        result = f.take().map(|f| f(word));
        Ok(())
    })?;
    result.ok_or(EFAULT)
}
