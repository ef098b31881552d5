// SPDX-License-Identifier: GPL-2.0

//! Work requests that users in the kernel post, and completions that they poll.
//!
//! The lists that they post are their own C structures, which do not change during the call. A user
//! in the kernel is trusted to pass valid pointers, as only the user can know that. All values that
//! can be checked are checked.

use crate::{
    driver::Driver,
    object::Ah,
    upcall::QpUpcall, //
};
use core::{
    marker::PhantomData,
    ptr::NonNull,
    slice, //
};
use kernel::prelude::*;
use rdma_bindings as bindings;

/// The operation of a send. Immediate data is in network byte order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOp {
    /// SEND.
    Send {
        /// Immediate data, if there is some.
        imm: Option<[u8; 4]>,
    },
    /// SEND that invalidates a key of the peer.
    SendInvalidate {
        /// That key.
        rkey: u32,
    },
    /// RDMA WRITE.
    Write {
        /// Where to.
        remote: Remote,
        /// Immediate data, if there is some.
        imm: Option<[u8; 4]>,
    },
    /// RDMA READ.
    Read {
        /// Where from.
        remote: Remote,
    },
    /// Atomic WRITE.
    AtomicWrite {
        /// Where to.
        remote: Remote,
    },
    /// Compare and swap.
    CompareSwap {
        /// Where.
        remote: Remote,
        /// The value that is replaced.
        compare: u64,
        /// The new value.
        swap: u64,
    },
    /// Fetch and add.
    FetchAdd {
        /// Where.
        remote: Remote,
        /// The summand.
        add: u64,
    },
    /// Invalidates a key of ours.
    Invalidate {
        /// That key.
        rkey: u32,
    },
    /// Registers memory that was mapped before.
    Register {
        /// The new key.
        key: u32,
        /// The start address.
        iova: u64,
        /// The rights; `enum ib_access_flags`.
        access: u32,
    },
}

/// Memory of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// Its address.
    pub addr: u64,
    /// Its key.
    pub rkey: u32,
}

/// Flags of a send. [Inline data](SendWr::is_inline) is asked for by another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendFlags {
    /// It waits for earlier READs and atomics.
    pub fence: bool,
    /// It makes a completion.
    pub signaled: bool,
    /// The peer's completion is solicited.
    pub solicited: bool,
}

/// The destination of a datagram.
pub struct DatagramDest<'a, T: Driver> {
    /// The peer's queue pair.
    pub qpn: u32,
    /// Its Q_Key.
    pub qkey: u32,
    /// The way to it.
    pub ah: &'a Ah<T>,
}

/// A piece of local memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sge {
    /// Its address.
    pub addr: u64,
    /// Its length in bytes.
    pub length: u32,
    /// Its key.
    pub lkey: u32,
}

/// A list of sends, in order.
///
/// # Invariants
///
/// `next` is null, or a work request that is valid for `'a`, in a list that ends with null;
/// `current` is the one that was returned last, or the first. Each is of the C type that goes with
/// its opcode and, if `is_datagram`, with a queue pair for datagrams.
///
/// # Examples
///
/// ```
/// use rdma::{
///     driver::Driver,
///     post::{
///         SendList,
///         SendOp, //
///     }, //
/// };
///
/// /// Adds up the bytes of all SENDs.
/// fn bytes_to_send<T: Driver>(list: &mut SendList<'_, T>) -> Result<u64> {
///     let mut total = 0;
///     for wr in list {
///         if let SendOp::Send { .. } = wr.op()? {
///             total += wr.sges()?.map(|sge| u64::from(sge.length)).sum::<u64>();
///         }
///     }
///     Ok(total)
/// }
/// ```
pub struct SendList<'a, T: Driver> {
    next: *const bindings::ib_send_wr,
    current: *const bindings::ib_send_wr,
    is_datagram: bool,
    _list: PhantomData<(&'a bindings::ib_send_wr, T)>,
}

impl<'a, T: Driver> SendList<'a, T> {
    /// # Safety
    ///
    /// The arguments must meet the invariants.
    pub(crate) unsafe fn new(first: *const bindings::ib_send_wr, is_datagram: bool) -> Self {
        // INVARIANT: The caller promises it.
        Self {
            next: first,
            current: first,
            is_datagram,
            _list: PhantomData,
        }
    }

    /// Returns the work request that was returned last, or the first.
    pub(crate) fn current(&self) -> *const bindings::ib_send_wr {
        self.current
    }
}

impl<'a, T: Driver> Iterator for SendList<'a, T> {
    type Item = SendWr<'a, T>;

    fn next(&mut self) -> Option<SendWr<'a, T>> {
        let raw = NonNull::new(self.next.cast_mut())?;
        self.current = self.next;
        // SAFETY: By the invariants it is valid.
        self.next = unsafe { raw.as_ref() }.next;
        // INVARIANT: The invariants of the list imply those of the request.
        Some(SendWr {
            raw,
            is_datagram: self.is_datagram,
            _list: PhantomData,
        })
    }
}

/// A send.
///
/// # Invariants
///
/// `raw` is valid for `'a` and of the C type that goes with its opcode and, if `is_datagram`, with a
/// queue pair for datagrams.
pub struct SendWr<'a, T: Driver> {
    raw: NonNull<bindings::ib_send_wr>,
    is_datagram: bool,
    _list: PhantomData<(&'a bindings::ib_send_wr, T)>,
}

impl<'a, T: Driver> SendWr<'a, T> {
    fn raw(&self) -> &'a bindings::ib_send_wr {
        // SAFETY: By the invariants the request is valid for `'a`.
        unsafe { self.raw.as_ref() }
    }

    /// Returns the poster's identifier of it.
    pub fn wr_id(&self) -> u64 {
        // SAFETY: Both members of the union are 64 bits.
        unsafe { self.raw().__bindgen_anon_1.wr_id }
    }

    /// Returns the operation.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an operation that is not one of [`SendOp`].
    pub fn op(&self) -> Result<SendOp> {
        // SAFETY: Both members of the union are 32 bits.
        let (imm, rkey) = unsafe {
            let ex = self.raw().ex;
            (ex.imm_data.to_ne_bytes(), ex.invalidate_rkey)
        };
        Ok(match self.raw().opcode {
            bindings::ib_wr_opcode_IB_WR_SEND => SendOp::Send { imm: None },
            bindings::ib_wr_opcode_IB_WR_SEND_WITH_IMM => SendOp::Send { imm: Some(imm) },
            bindings::ib_wr_opcode_IB_WR_SEND_WITH_INV => SendOp::SendInvalidate { rkey },
            bindings::ib_wr_opcode_IB_WR_RDMA_WRITE => SendOp::Write {
                remote: self.remote(),
                imm: None,
            },
            bindings::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM => SendOp::Write {
                remote: self.remote(),
                imm: Some(imm),
            },
            bindings::ib_wr_opcode_IB_WR_RDMA_READ => SendOp::Read {
                remote: self.remote(),
            },
            bindings::ib_wr_opcode_IB_WR_ATOMIC_WRITE => SendOp::AtomicWrite {
                remote: self.remote(),
            },
            bindings::ib_wr_opcode_IB_WR_ATOMIC_CMP_AND_SWP => self.atomic(true),
            bindings::ib_wr_opcode_IB_WR_ATOMIC_FETCH_AND_ADD => self.atomic(false),
            bindings::ib_wr_opcode_IB_WR_LOCAL_INV => SendOp::Invalidate { rkey },
            bindings::ib_wr_opcode_IB_WR_REG_MR => self.register()?,
            _ => return Err(EINVAL),
        })
    }

    /// Returns the peer's memory of a READ, WRITE or atomic WRITE. It must not be called for other
    /// operations.
    fn remote(&self) -> Remote {
        // SAFETY: By the invariants a work request of such an opcode is an `ib_rdma_wr`, which
        // starts with the part that all have in common.
        let raw = unsafe { self.raw.cast::<bindings::ib_rdma_wr>().as_ref() };
        Remote {
            addr: raw.remote_addr,
            rkey: raw.rkey,
        }
    }

    /// Returns an atomic operation. It must not be called for other operations.
    fn atomic(&self, is_swap: bool) -> SendOp {
        // SAFETY: By the invariants a work request of such an opcode is an `ib_atomic_wr`, which
        // starts with the part that all have in common.
        let raw = unsafe { self.raw.cast::<bindings::ib_atomic_wr>().as_ref() };
        let remote = Remote {
            addr: raw.remote_addr,
            rkey: raw.rkey,
        };
        if is_swap {
            SendOp::CompareSwap {
                remote,
                compare: raw.compare_add,
                swap: raw.swap,
            }
        } else {
            SendOp::FetchAdd {
                remote,
                add: raw.compare_add,
            }
        }
    }

    /// Returns a registration. It must not be called for other operations.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is for another region than its key.
    fn register(&self) -> Result<SendOp> {
        // SAFETY: By the invariants a work request of such an opcode is an `ib_reg_wr`, which
        // starts with the part that all have in common.
        let raw = unsafe { self.raw.cast::<bindings::ib_reg_wr>().as_ref() };
        // SAFETY: The poster's region is valid.
        let mr = unsafe { raw.mr.as_ref() }.ok_or(EINVAL)?;
        if mr.lkey >> 8 != raw.key >> 8 {
            return Err(EINVAL);
        }
        Ok(SendOp::Register {
            key: raw.key,
            iova: mr.iova,
            // CAST: A mask of bits.
            access: raw.access as u32,
        })
    }

    /// Returns the flags of the send.
    ///
    /// # Errors
    ///
    /// `EINVAL` for flags that are not known.
    pub fn flags(&self) -> Result<SendFlags> {
        const KNOWN: i32 = bindings::ib_send_flags_IB_SEND_FENCE
            | bindings::ib_send_flags_IB_SEND_SIGNALED
            | bindings::ib_send_flags_IB_SEND_SOLICITED
            | bindings::ib_send_flags_IB_SEND_INLINE;
        if self.raw().send_flags & !KNOWN != 0 {
            return Err(EINVAL);
        }
        Ok(SendFlags {
            fence: self.has(bindings::ib_send_flags_IB_SEND_FENCE),
            signaled: self.has(bindings::ib_send_flags_IB_SEND_SIGNALED),
            solicited: self.has(bindings::ib_send_flags_IB_SEND_SOLICITED),
        })
    }

    /// Returns true if the data is to be copied now.
    pub fn is_inline(&self) -> bool {
        self.has(bindings::ib_send_flags_IB_SEND_INLINE)
    }

    fn has(&self, flag: i32) -> bool {
        self.raw().send_flags & flag != 0
    }

    /// Returns it as a datagram, or `None` for all other sends.
    fn ud(&self) -> Option<&'a bindings::ib_ud_wr> {
        let is_send = matches!(
            self.raw().opcode,
            bindings::ib_wr_opcode_IB_WR_SEND | bindings::ib_wr_opcode_IB_WR_SEND_WITH_IMM
        );
        // SAFETY: By the invariants a send of a queue pair for datagrams is of this type.
        (self.is_datagram && is_send).then(|| unsafe { self.raw.cast().as_ref() })
    }

    /// Returns the index of the P_Key of a datagram, for QP1; `None` for all other sends.
    pub fn pkey_index(&self) -> Option<u16> {
        Some(self.ud()?.pkey_index)
    }

    /// Returns the destination of a datagram; `None` for all other sends.
    pub fn datagram(&self) -> Option<DatagramDest<'a, T>> {
        let raw = self.ud()?;
        let ah = NonNull::new(raw.ah)?;
        Some(DatagramDest {
            qpn: raw.remote_qpn,
            qkey: raw.remote_qkey,
            // SAFETY: The poster's address handle is one of the same device, and valid.
            ah: unsafe { Ah::from_raw(ah.as_ptr()) },
        })
    }

    /// Returns its memory.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a number of SGEs below 0 or, if there are some, without a list.
    pub fn sges(&self) -> Result<SgList<'a>> {
        let raw = self.raw();
        // SAFETY: The poster's list is as long as it says, and valid as long as the work request.
        unsafe { SgList::new(raw.sg_list, raw.num_sge) }
    }

    /// Copies inline data to the start of `to`. Returns its length.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is longer, and as for [`sges`](Self::sges).
    pub fn copy_inline(&self, to: &mut [u8]) -> Result<u32> {
        let mut rest = to;
        let mut total = 0u32;
        for sge in self.sges()? {
            let len = sge.length as usize;
            if len == 0 {
                continue;
            }
            let (place, after) = rest.split_at_mut_checked(len).ok_or(EINVAL)?;
            // The keys of inline data have no meaning, because the CPU reads the data.
            let from = sge.addr as usize as *const u8;
            // SAFETY: By the inline flag the poster promises that `len` bytes may be read there,
            // and `place` has room for as many. The copy tolerates concurrent changes of the bytes.
            unsafe { bindings::memcpy(place.as_mut_ptr().cast(), from.cast(), len) };
            total = total.checked_add(sge.length).ok_or(EINVAL)?;
            rest = after;
        }
        Ok(total)
    }
}

/// The SGEs of a work request.
#[derive(Clone)]
pub struct SgList<'a>(slice::Iter<'a, bindings::ib_sge>);

impl<'a> SgList<'a> {
    /// # Safety
    ///
    /// `list` must be null or `count` elements that are valid for `'a`.
    unsafe fn new(list: *const bindings::ib_sge, count: i32) -> Result<Self> {
        let count = usize::try_from(count).map_err(|_| EINVAL)?;
        if count == 0 {
            return Ok(Self([].iter()));
        }
        if list.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: `list` is not null, so the caller promises `count` valid elements.
        Ok(Self(unsafe { slice::from_raw_parts(list, count) }.iter()))
    }

    /// Returns the number of SGEs that are left.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if none is left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Iterator for SgList<'_> {
    type Item = Sge;

    #[inline]
    fn next(&mut self) -> Option<Sge> {
        let raw = self.0.next()?;
        Some(Sge {
            addr: raw.addr,
            length: raw.length,
            lkey: raw.lkey,
        })
    }
}

/// A list of receives, in order.
///
/// # Invariants
///
/// `next` is null, or a work request that is valid for `'a`, in a list that ends with null;
/// `current` is the one that was returned last, or the first.
pub struct RecvList<'a> {
    next: *const bindings::ib_recv_wr,
    current: *const bindings::ib_recv_wr,
    _list: PhantomData<&'a bindings::ib_recv_wr>,
}

impl RecvList<'_> {
    /// # Safety
    ///
    /// The arguments must meet the invariants.
    pub(crate) unsafe fn new(first: *const bindings::ib_recv_wr) -> Self {
        // INVARIANT: The caller promises it.
        Self {
            next: first,
            current: first,
            _list: PhantomData,
        }
    }

    /// Returns the work request that was returned last, or the first.
    pub(crate) fn current(&self) -> *const bindings::ib_recv_wr {
        self.current
    }
}

impl<'a> Iterator for RecvList<'a> {
    type Item = RecvWr<'a>;

    fn next(&mut self) -> Option<RecvWr<'a>> {
        // SAFETY: By the invariants it is null or valid.
        let raw: &'a _ = unsafe { self.next.as_ref() }?;
        self.current = self.next;
        self.next = raw.next;
        Some(RecvWr(raw))
    }
}

/// A receive.
pub struct RecvWr<'a>(&'a bindings::ib_recv_wr);

impl<'a> RecvWr<'a> {
    /// Returns the poster's identifier of it.
    pub fn wr_id(&self) -> u64 {
        // SAFETY: Both members of the union are 64 bits.
        unsafe { self.0.__bindgen_anon_1.wr_id }
    }

    /// Returns its memory.
    ///
    /// # Errors
    ///
    /// As for [`SendWr::sges`].
    pub fn sges(&self) -> Result<SgList<'a>> {
        // SAFETY: The poster's list is as long as it says, and valid as long as the work request.
        unsafe { SgList::new(self.0.sg_list, self.0.num_sge) }
    }
}

/// A completion of a user in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The poster's identifier of the work request.
    pub wr_id: u64,
    /// How it ended; `enum ib_wc_status`. Unless that is success, only `wr_id` means anything beside it.
    pub status: u32,
    /// The kind of work; `enum ib_wc_opcode`.
    pub opcode: u32,
    /// The number of bytes.
    pub byte_len: u32,
    /// Immediate data, in network byte order.
    pub imm: Option<[u8; 4]>,
    /// The key that the message invalidated. It has no immediate data then.
    pub invalidated: Option<u32>,
    /// The peer's queue pair.
    pub src_qp: u32,
    /// The port.
    pub port: u32,
    /// How the datagram arrived. Its memory starts with its IP header. `None` for other operations.
    pub arrival: Option<Arrival>,
}

/// How a datagram arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// It came by IPv6, and not by IPv4.
    pub is_ipv6: bool,
    /// The VLAN that it came by.
    pub vlan: Option<u16>,
}

/// The array in which a user in the kernel gets its completions.
///
/// # Invariants
///
/// `room` elements from `next` on may be written to, for `'a`.
pub struct Completions<'a> {
    next: *mut bindings::ib_wc,
    room: usize,
    filled: i32,
    _wcs: PhantomData<&'a mut bindings::ib_wc>,
}

impl Completions<'_> {
    /// # Safety
    ///
    /// `wcs` must be valid for writes of `count` elements during `'a`.
    pub(crate) unsafe fn new(wcs: *mut bindings::ib_wc, count: i32) -> Self {
        // INVARIANT: The caller promises it.
        Self {
            next: wcs,
            room: usize::try_from(count).unwrap_or(0),
            filled: 0,
            _wcs: PhantomData,
        }
    }

    /// Returns the number of completions that were pushed.
    pub(crate) fn filled(&self) -> i32 {
        self.filled
    }

    /// Returns true if there is no room for one more.
    pub fn is_full(&self) -> bool {
        self.room == 0
    }

    /// Adds a completion of the queue pair of `qp`. Does nothing if there is no room, or if that
    /// queue pair is being destroyed.
    #[inline]
    pub fn push(&mut self, completion: &Completion, qp: &QpUpcall) {
        let (Some(left), Some(qp)) = (self.room.checked_sub(1), qp.object()) else {
            return;
        };
        // SAFETY: A zeroed completion is a valid one.
        let mut wc: bindings::ib_wc = unsafe { core::mem::zeroed() };
        wc.__bindgen_anon_1.wr_id = completion.wr_id;
        wc.status = completion.status;
        wc.qp = qp.as_ptr();
        if completion.status == bindings::ib_wc_status_IB_WC_SUCCESS {
            fill(&mut wc, completion);
        }
        // SAFETY: By the invariants there is room for one.
        unsafe { self.next.write(wc) };
        // INVARIANT: One less fits, behind the one just written.
        self.next = self.next.wrapping_add(1);
        self.room = left;
        self.filled = self.filled.saturating_add(1);
    }
}

/// Stores the fields of a successful completion.
#[inline]
fn fill(wc: &mut bindings::ib_wc, completion: &Completion) {
    let mut flags = 0;
    wc.opcode = completion.opcode;
    wc.byte_len = completion.byte_len;
    wc.src_qp = completion.src_qp;
    wc.port_num = completion.port;
    if let Some(imm) = completion.imm {
        wc.ex.imm_data = u32::from_ne_bytes(imm);
        flags |= bindings::ib_wc_flags_IB_WC_WITH_IMM;
    } else if let Some(rkey) = completion.invalidated {
        wc.ex.invalidate_rkey = rkey;
        flags |= bindings::ib_wc_flags_IB_WC_WITH_INVALIDATE;
    }
    if let Some(arrival) = completion.arrival {
        flags |= bindings::ib_wc_flags_IB_WC_GRH;
        flags |= bindings::ib_wc_flags_IB_WC_WITH_NETWORK_HDR_TYPE;
        // CAST: Network types are below 8.
        wc.network_hdr_type = if arrival.is_ipv6 {
            bindings::rdma_network_type_RDMA_NETWORK_IPV6 as u8
        } else {
            bindings::rdma_network_type_RDMA_NETWORK_IPV4 as u8
        };
        if let Some(vlan) = arrival.vlan {
            wc.vlan_id = vlan;
            flags |= bindings::ib_wc_flags_IB_WC_WITH_VLAN;
        }
    }
    // CAST: A mask of bits.
    wc.wc_flags = flags as i32;
}
