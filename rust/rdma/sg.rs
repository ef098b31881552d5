// SPDX-License-Identifier: GPL-2.0

//! Scatter lists of users in the kernel, which are to be memory regions.

use core::marker::PhantomData;

use kernel::error::Error;
use kernel::ffi::c_int;
use kernel::prelude::*;

use rdma_bindings as bindings;

/// A scatter list, mapped for DMA, that is to be made of pages of one size.
///
/// # Invariants
///
/// `list` is `count` elements that are mapped for DMA, and `offset` is null or a place for where in
/// the first of them to start, both for `'a`.
pub struct SgPages<'a> {
    list: *mut bindings::scatterlist,
    count: c_int,
    offset: *mut u32,
    page_size: u32,
    done: Laid,
    _list: PhantomData<&'a mut bindings::scatterlist>,
}

/// How much of a list was gone through.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Laid {
    /// Where it starts.
    pub(crate) iova: u64,
    /// How many bytes there are.
    pub(crate) length: u64,
    /// How many elements of the list they are.
    pub(crate) elements: c_int,
}

/// What the core's walk is given in place of a region, of which it knows the first field alone.
#[repr(C)]
struct Walk<'f> {
    mr: bindings::ib_mr,
    visit: &'f mut dyn FnMut(u64) -> Result,
}

impl SgPages<'_> {
    /// # Safety
    ///
    /// As the invariants say.
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

    /// Bytes of a page.
    pub(crate) fn page_size(&self) -> u32 {
        self.page_size
    }

    /// What [`for_each`](Self::for_each) has done.
    pub(crate) fn done(&self) -> Laid {
        self.done
    }

    /// Calls `visit` with the address of each page, in order, until it fails or the list has a hole:
    /// only the first page may start with, and the last end with, bytes that are not in the list.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no list; the error of `visit` if it takes no part of the list.
    pub(crate) fn for_each(&mut self, visit: &mut dyn FnMut(u64) -> Result) -> Result<Laid> {
        // SAFETY: A zeroed region is one that nothing is known of.
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
/// For the core to call, with the first field of a [`Walk`].
unsafe extern "C" fn visit_page(mr: *mut bindings::ib_mr, address: u64) -> c_int {
    // SAFETY: By the safety requirements; the core has it to itself during the call.
    let walk = unsafe { &mut *mr.cast::<Walk<'_>>() };
    match (walk.visit)(address) {
        Ok(()) => 0,
        Err(error) => error.to_errno(),
    }
}
