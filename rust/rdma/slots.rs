// SPDX-License-Identifier: GPL-2.0

//! Arrays of a fixed length, which is known when they are created.
//!
//! The kernel crate's vectors grow, and their arithmetic may panic in the crate that instantiates
//! them. A driver without reachable panics uses this instead.

use core::{
    alloc::Layout,
    ops::{
        Deref,
        DerefMut, //
    },
    ptr::{
        self,
        NonNull, //
    },
    slice, //
};
use kernel::{
    alloc::{
        allocator::KVmalloc,
        Allocator,
        Flags,
        NumaNode, //
    },
    prelude::*, //
};

/// A boxed slice of `T`.
///
/// # Invariants
///
/// `items` points to `len` valid objects in one allocation of [`KVmalloc`] for an array of as many,
/// or dangles, aligned, when there are none. It is owned by this object.
pub struct Slots<T> {
    items: NonNull<T>,
    len: usize,
}

// SAFETY: It owns its items.
unsafe impl<T: Send> Send for Slots<T> {}
// SAFETY: A shared reference gives no more than shared references to the items.
unsafe impl<T: Sync> Sync for Slots<T> {}

impl<T> Slots<T> {
    /// Creates an array without items and memory.
    pub const fn empty() -> Self {
        // INVARIANT: There are no items, so the pointer may dangle.
        Self {
            items: NonNull::dangling(),
            len: 0,
        }
    }
}

impl<T: Default> Slots<T> {
    /// Creates an array of `len` items, each the default. Sleeps if `flags` allow it.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(len: usize, flags: Flags) -> Result<Self> {
        const { assert!(size_of::<T>() > 0) };

        if len == 0 {
            return Ok(Self::empty());
        }
        let layout = Layout::array::<T>(len).map_err(|_| ENOMEM)?;
        let items: NonNull<T> = KVmalloc::alloc(layout, flags, NumaNode::NO_NODE)?.cast();
        for index in 0..len {
            // SAFETY: `index` is within the new allocation.
            unsafe { items.add(index).write(T::default()) };
        }
        // INVARIANT: All of them were written.
        Ok(Self { items, len })
    }
}

impl<T> Deref for Slots<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: By the type invariants there are `len` valid objects, as long as `self` exists.
        unsafe { slice::from_raw_parts(self.items.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Slots<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: By the type invariants there are `len` valid objects, and `self` is borrowed
        // exclusively.
        unsafe { slice::from_raw_parts_mut(self.items.as_ptr(), self.len) }
    }
}

impl<T> Drop for Slots<T> {
    fn drop(&mut self) {
        let items = ptr::slice_from_raw_parts_mut(self.items.as_ptr(), self.len);
        let layout = Layout::for_value::<[T]>(self);
        // SAFETY: By the type invariants the objects are valid and ours. They are not used any
        // more.
        unsafe { ptr::drop_in_place(items) };
        if layout.size() != 0 {
            // SAFETY: It was allocated by `KVmalloc` with this layout.
            unsafe { KVmalloc::free(self.items.cast(), layout) };
        }
    }
}
