// SPDX-License-Identifier: GPL-2.0

//! Scatter lists of users in the kernel, and the memory that they name.

use crate::{
    memory::Pages,
    umem::is_linear, //
};
use core::marker::PhantomData;
use kernel::{
    error::Error,
    ffi::c_int,
    prelude::*, //
};
use rdma_bindings as bindings;

/// A scatter list, mapped for DMA, that a memory region is to take.
///
/// # Invariants
///
/// `list` is `count` elements that are mapped for DMA. `offset` is null or valid for reads and
/// writes. Both are valid for `'a`.
pub struct SgList<'a> {
    list: *mut bindings::scatterlist,
    count: c_int,
    offset: *mut u32,
    cut: Cut,
    done: Laid,
    _list: PhantomData<&'a mut bindings::scatterlist>,
}

/// The pieces that a region can be made of (`enum ib_mr_type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cut {
    /// Pages of this many bytes (`IB_MR_TYPE_MEM_REG`). Bytes may be missing only at the start of
    /// the first page and at the end of the last one.
    Pages(u32),
    /// Elements of the list, of any address and length (`IB_MR_TYPE_SG_GAPS`).
    Elements,
}

impl Cut {
    /// Returns the bits of its address that a region cannot choose.
    ///
    /// # Errors
    ///
    /// `EINVAL` for pages of an odd size.
    fn address_mask(self) -> Result<u64> {
        match self {
            Self::Pages(size) if size.is_power_of_two() => Ok(u64::from(size).wrapping_sub(1)),
            Self::Pages(_) => Err(EINVAL),
            Self::Elements => Ok(0),
        }
    }
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
    is_first: bool,
    visit: &'f mut dyn FnMut(u64, u32) -> Result,
}

impl SgList<'_> {
    /// # Safety
    ///
    /// The arguments must meet the invariants.
    pub(crate) unsafe fn new(
        list: *mut bindings::scatterlist,
        count: c_int,
        offset: *mut u32,
        cut: Cut,
    ) -> Self {
        // INVARIANT: The caller promises it.
        Self {
            list,
            count,
            offset,
            cut,
            done: Laid::default(),
            _list: PhantomData,
        }
    }

    /// Returns the part of the list that [`for_each`](Self::for_each) used.
    pub(crate) fn done(&self) -> Laid {
        self.done
    }

    /// Calls `visit` with the address and the length of each piece, in order, until it fails or the
    /// region cannot take the next one. The last piece may be longer than the rest of the list.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no list, or an empty element in one of pages; the error of `visit` if it takes
    /// no part of the list.
    fn for_each(&mut self, visit: &mut dyn FnMut(u64, u32) -> Result) -> Result<Laid> {
        self.done = match self.cut {
            Cut::Pages(size) => self.for_each_page(size, visit)?,
            Cut::Elements => self.for_each_element(visit)?,
        };
        Ok(self.done)
    }

    fn for_each_page(
        &mut self,
        size: u32,
        visit: &mut dyn FnMut(u64, u32) -> Result,
    ) -> Result<Laid> {
        if !self.has_no_empty_element() {
            return Err(EINVAL);
        }
        // SAFETY: Zeroes are valid for all fields of a region.
        let mut mr: bindings::ib_mr = unsafe { core::mem::zeroed() };
        mr.page_size = size;
        let mut walk = Walk {
            mr,
            is_first: true,
            visit,
        };
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
        Ok(Laid {
            iova: walk.mr.iova,
            length: walk.mr.length,
            elements,
        })
    }

    fn for_each_element(&mut self, visit: &mut dyn FnMut(u64, u32) -> Result) -> Result<Laid> {
        let mut laid = Laid::default();
        for element in self.elements() {
            let (address, len) = element?;
            let is_first = laid.elements == 0;
            if is_first {
                laid.iova = address;
            }
            match visit(address, len) {
                Ok(()) => {}
                Err(error) if is_first => return Err(error),
                Err(_) => break,
            }
            laid.length = laid.length.wrapping_add(len.into());
            laid.elements = laid.elements.wrapping_add(1);
        }
        if laid.elements == 0 {
            return Err(EINVAL);
        }
        if !self.offset.is_null() {
            // SAFETY: By the invariants it is valid for reads and writes.
            unsafe { self.offset.write(0) };
        }
        Ok(laid)
    }

    /// Returns true if each element has bytes. For one without, the core's walk would visit a page that
    /// the list does not name.
    fn has_no_empty_element(&self) -> bool {
        self.elements()
            .all(|element| element.is_ok_and(|(_, len)| len > 0))
    }

    /// Returns the address and the length of each element, from the offset on. The first one is
    /// `EINVAL` if the offset is beyond it.
    fn elements(&self) -> impl Iterator<Item = Result<(u64, u32)>> + '_ {
        let mut element = self.list;
        let mut skip = match self.offset.is_null() {
            true => 0,
            // SAFETY: By the invariants it is valid for reads and writes.
            false => unsafe { self.offset.read() },
        };
        (0..self.count).map_while(move |_| {
            if element.is_null() {
                return None;
            }
            // SAFETY: By the invariants the elements are mapped for DMA. This is one of them, as only
            // `count` are visited.
            let (start, len) = unsafe {
                (
                    bindings::sg_dma_address(element),
                    bindings::sg_dma_len(element),
                )
            };
            // SAFETY: By the invariants the element is one of the list's.
            element = unsafe { bindings::sg_next(element) };
            let skipped = core::mem::take(&mut skip);
            let len = len.checked_sub(skipped).ok_or(EINVAL);
            Some(len.map(|len| (start.wrapping_add(skipped.into()), len)))
        })
    }
}

/// # Safety
///
/// Only the core may call it, with the first field of a [`Walk`].
unsafe extern "C" fn visit_page(mr: *mut bindings::ib_mr, page: u64) -> c_int {
    // SAFETY: By the safety requirements `mr` is the first field of a `Walk`, and only the core
    // uses that during the call.
    let walk = unsafe { &mut *mr.cast::<Walk<'_>>() };
    // The list may start within the first page. The core has set the address of its start.
    let skip = if walk.is_first {
        walk.mr.iova.wrapping_sub(page)
    } else {
        0
    };
    walk.is_first = false;
    // CAST: It is less than a page.
    let len = walk.mr.page_size.wrapping_sub(skip as u32);
    match (walk.visit)(page.wrapping_add(skip), len) {
        Ok(()) => 0,
        Err(error) => error.to_errno(),
    }
}

/// Contiguous memory.
#[derive(Clone, Copy)]
struct Piece {
    /// The address of byte 0 of the whole memory, if that were contiguous with this piece. It wraps.
    base: usize,
    /// The offset in the whole memory of the first byte after the piece.
    end: usize,
}

/// Memory of the kernel that a scatter list names.
///
/// The creator of the list keeps the memory. The rules of [`Umem::kernel`](crate::umem::Umem::kernel)
/// apply.
///
/// # Invariants
///
/// - The ends of `pieces` rise. A piece has the bytes from the end of the previous one (0 for the
///   first) to its own end. Byte `at` of it lies at `base + at`, in the kernel's linear mapping.
/// - `len` is no more than the last end, and 0 if there is no piece.
pub struct SgMemory {
    pieces: KVVec<Piece>,
    /// The number of pieces that there is room for.
    most: u32,
    len: usize,
    /// The address of the list's start, and the bits of it that a region must keep.
    start: u64,
    mask: u64,
}

impl SgMemory {
    /// Creates one without memory, with room for a list of `most` pieces. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(most: u32) -> Result<Self> {
        // INVARIANT: There is no byte.
        Ok(Self {
            pieces: KVVec::with_capacity(most as usize, GFP_KERNEL)?,
            most,
            len: 0,
            start: 0,
            mask: 0,
        })
    }

    /// Becomes the memory of `list`, or of as much of it as fits and as its region can take. Any
    /// context.
    ///
    /// # Errors
    ///
    /// `EINVAL` for pages of an odd size, an empty list, or an empty element in one of pages, `EFAULT` for memory outside the kernel's
    /// linear mapping. There is no memory then.
    pub fn lay_out(&mut self, list: &mut SgList<'_>) -> Result {
        // INVARIANT: There is no byte meanwhile.
        self.len = 0;
        self.pieces.clear();
        let mask = list.cut.address_mask()?;
        let Self { pieces, most, .. } = self;
        let mut room = *most;
        let laid = list.for_each(&mut |address, len| {
            room = room.checked_sub(1).ok_or(ENOMEM)?;
            add(pieces, address, len)
        })?;
        let length = usize::try_from(laid.length).map_err(|_| EINVAL)?;
        if length == 0 || length > self.end() {
            return Err(EINVAL);
        }
        // INVARIANT: The pieces have all bytes of the list, as checked.
        self.len = length;
        (self.start, self.mask) = (laid.iova, mask);
        Ok(())
    }

    /// Becomes the same memory as `other`. Any context.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is less room.
    pub fn copy_from(&mut self, other: &Self) -> Result {
        // INVARIANT: There is no byte meanwhile.
        self.len = 0;
        self.pieces.clear();
        for piece in other.pieces.iter() {
            let pushed = self.pieces.push_within_capacity(*piece);
            pushed.map_err(|_| EINVAL)?;
        }
        // INVARIANT: The pieces are those of `other`.
        self.len = other.len;
        (self.start, self.mask) = (other.start, other.mask);
        Ok(())
    }

    /// Returns true if a region of it may have the address `iova`. One of pages keeps the offset in
    /// its first page.
    pub fn may_start_at(&self, iova: u64) -> bool {
        (iova ^ self.start) & self.mask == 0
    }

    /// Returns its length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the end of the last piece.
    fn end(&self) -> usize {
        self.pieces.last().map_or(0, |last| last.end)
    }

    #[inline]
    fn chunks(&self, at: u64, len: usize, mut f: impl FnMut(*mut u8, usize) -> Result) -> Result {
        let mut at = usize::try_from(at).map_err(|_| EFAULT)?;
        if at > self.len || len > self.len.wrapping_sub(at) {
            return Err(EFAULT);
        }
        let end = at.wrapping_add(len);
        let mut index = self.find(at);
        while at < end {
            let piece = self.pieces.get(index).ok_or::<Error>(EFAULT)?;
            let stop = piece.end.min(end);
            // By the invariants the bytes from `at` to `stop` lie within the piece.
            f(
                piece.base.wrapping_add(at) as *mut u8,
                stop.wrapping_sub(at),
            )?;
            at = stop;
            index = index.wrapping_add(1);
        }
        Ok(())
    }

    /// Returns the index of the piece with byte `at`, or the number of pieces if none has it.
    #[inline]
    fn find(&self, at: usize) -> usize {
        let (mut low, mut high) = (0, self.pieces.len());
        while low < high {
            // No list is so long that the sum wraps.
            let middle = low.wrapping_add(high) >> 1;
            match self.pieces.get(middle) {
                Some(piece) if piece.end <= at => low = middle.wrapping_add(1),
                _ => high = middle,
            }
        }
        low
    }
}

/// Adds `len` bytes at `address` to `pieces`. What is contiguous becomes one piece.
fn add(pieces: &mut KVVec<Piece>, address: u64, len: u32) -> Result {
    if len == 0 {
        return Ok(());
    }
    if !is_linear(address, len) {
        return Err(EFAULT);
    }
    // CAST: It was found to be a kernel address.
    let address = address as usize;
    let start = pieces.last().map_or(0, |last| last.end);
    let end = start.checked_add(len as usize).ok_or(EINVAL)?;
    let base = address.wrapping_sub(start);
    if let Some(last) = pieces.last_mut().filter(|last| last.base == base) {
        last.end = end;
        return Ok(());
    }
    let pushed = pieces.push_within_capacity(Piece { base, end });
    pushed.map_err(|_| ENOMEM)
}

// SAFETY: All pieces are in the linear mapping, as `add` checks, and stay in it as long as the creator
// of the list has the memory. Contiguous neighbours are one piece, so a word at an aligned address is in
// one piece.
unsafe impl Pages for SgMemory {
    #[inline]
    fn read_chunks(
        &self,
        at: u64,
        len: usize,
        mut f: impl FnMut(*const u8, usize) -> Result,
    ) -> Result {
        self.chunks(at, len, |address, len| f(address.cast_const(), len))
    }

    #[inline]
    fn write_chunks(&self, at: u64, len: usize, f: impl FnMut(*mut u8, usize) -> Result) -> Result {
        self.chunks(at, len, f)
    }
}
