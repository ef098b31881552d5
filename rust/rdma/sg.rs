// SPDX-License-Identifier: GPL-2.0

//! Scatter lists of users in the kernel, for memory regions.

use core::marker::PhantomData;
use kernel::{
    error::Error,
    ffi::c_int,
    prelude::*, //
};
use rdma_bindings as bindings;

/// A scatter list, mapped for DMA, that is cut into pages of one size.
///
/// # Invariants
///
/// `list` is `count` elements that are mapped for DMA. `offset` is null or valid for reads and
/// writes. Both are valid for `'a`.
pub struct SgPages<'a> {
    list: *mut bindings::scatterlist,
    count: c_int,
    offset: *mut u32,
    page_size: u32,
    done: Laid,
    _list: PhantomData<&'a mut bindings::scatterlist>,
}

/// The part of a list that was used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Laid {
    /// The address of its start.
    pub(crate) iova: u64,
    /// Its length in bytes.
    pub(crate) length: u64,
    /// The number of its elements.
    pub(crate) elements: c_int,
}

/// The argument of the core's walk instead of a region. The core knows only the first field.
#[repr(C)]
struct Walk<'f> {
    mr: bindings::ib_mr,
    visit: &'f mut dyn FnMut(u64) -> Result,
}

impl SgPages<'_> {
    /// # Safety
    ///
    /// The arguments must meet the invariants.
    pub(crate) unsafe fn new(
        list: *mut bindings::scatterlist,
        count: c_int,
        offset: *mut u32,
        page_size: u32,
    ) -> Self {
        // INVARIANT: The caller promises it.
        Self {
            list,
            count,
            offset,
            page_size,
            done: Laid::default(),
            _list: PhantomData,
        }
    }

    /// Returns the number of bytes of a page.
    pub(crate) fn page_size(&self) -> u32 {
        self.page_size
    }

    /// Returns the part of the list that [`for_each`](Self::for_each) used.
    pub(crate) fn done(&self) -> Laid {
        self.done
    }

    /// Calls `visit` with the address of each page, in order, until it fails or the list has a
    /// hole. Bytes may be missing only at the start of the first page and at the end of the last
    /// one.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no list; the error of `visit` if it takes no part of the list.
    pub(crate) fn for_each(&mut self, visit: &mut dyn FnMut(u64) -> Result) -> Result<Laid> {
        // SAFETY: Zeroes are valid for all fields of a region.
        let mut mr: bindings::ib_mr = unsafe { core::mem::zeroed() };
        mr.page_size = self.page_size;
        let mut walk = Walk { mr, visit };
        // SAFETY: By the invariants the list is valid. Of the region, which is the first field of the
        // walk, no more is used than its page size, address and length.
        let elements = unsafe {
            bindings::ib_sg_to_pages(
                (&raw mut walk).cast(),
                self.list,
                self.count,
                self.offset,
                Some(visit_page),
            )
        };
        if elements < 0 {
            return Err(Error::from_errno(elements));
        }
        self.done = Laid {
            iova: walk.mr.iova,
            length: walk.mr.length,
            elements,
        };
        Ok(self.done)
    }
}

/// # Safety
///
/// Only the core may call it, with the first field of a [`Walk`].
unsafe extern "C" fn visit_page(mr: *mut bindings::ib_mr, address: u64) -> c_int {
    // SAFETY: By the safety requirements `mr` is the first field of a `Walk`, and only the core
    // uses that during the call.
    let walk = unsafe { &mut *mr.cast::<Walk<'_>>() };
    match (walk.visit)(address) {
        Ok(()) => 0,
        Err(error) => error.to_errno(),
    }
}
