// SPDX-License-Identifier: GPL-2.0

//! The input of a process for a verb beside its arguments, and the response.

use crate::{
    mmap::{
        Mapping,
        Mminfo, //
    },
    ring::SharedRing, //
};
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    error::to_result,
    prelude::*,
    uaccess::{
        UserPtr,
        UserSlice, //
    }, //
};
use rdma_bindings as bindings;

/// Rings that one object may have: a send and a receive queue.
pub(crate) const MAX_RINGS: usize = 2;

/// The process that calls a verb, or none when the kernel calls it.
///
/// The driver's own input must be empty or zero, else the verb fails with `EOPNOTSUPP` before the
/// driver is called. A response that the driver does not give reads as zeroes.
///
/// # Invariants
///
/// `udata` and `ucontext` are valid for `'a` if they are present. The context stays alive as long
/// as the object of the verb.
///
/// # Examples
///
/// ```
/// use rdma::{
///     ops::{
///         CqInit,
///         NewCq, //
///     },
///     ring::{
///         Shape,
///         SharedRing, //
///     },
///     udata::Udata, //
/// };
///
/// /// Creates a completion queue, and tells the process where to map its ring.
/// fn create_cq(init: &CqInit, udata: &mut Udata<'_>) -> Result<NewCq<SharedRing>> {
///     let shape = Shape::new(init.cqe, 64).ok_or(EINVAL)?;
///     let ring = SharedRing::new(shape)?;
///     if udata.is_user() {
///         let place = udata.share(&ring)?;
///         udata.respond(&place.to_bytes())?;
///     }
///     Ok(NewCq {
///         data: ring,
///         cqe: shape.capacity(),
///     })
/// }
/// ```
pub struct Udata<'a> {
    udata: Option<NonNull<bindings::ib_udata>>,
    ucontext: Option<NonNull<bindings::ib_ucontext>>,
    mappings: [Option<Mapping>; MAX_RINGS],
    /// The address of the response in the process, if it is not that of the core.
    response_at: Option<u64>,
    _udata: PhantomData<&'a mut bindings::ib_udata>,
}

/// Returns the context of the process that calls a verb.
///
/// # Safety
///
/// `udata` must be valid, within the attribute bundle of a verb.
unsafe fn context_of(udata: NonNull<bindings::ib_udata>) -> *mut bindings::ib_ucontext {
    // SAFETY: By the safety requirements `udata` is within a valid attribute bundle.
    unsafe {
        let bundle = bindings::rdma_udata_to_uverbs_attr_bundle(udata.as_ptr());
        (*bundle).__bindgen_anon_1.hdr.context
    }
}

impl<'a> Udata<'a> {
    /// Checks that there is no input, and clears the response. May sleep.
    ///
    /// # Safety
    ///
    /// `udata` must be null, or the one that the core passed to a verb. That verb must run for all
    /// of `'a`, on an object of its context.
    pub(crate) unsafe fn new(udata: *mut bindings::ib_udata) -> Result<Self> {
        let udata = NonNull::new(udata);
        let mut ucontext = None;
        if let Some(udata) = udata {
            // SAFETY: The caller passes a valid `udata`.
            to_result(unsafe { bindings::ib_is_udata_in_empty(udata.as_ptr()) })?;
            // SAFETY: The caller passes a valid `udata`.
            to_result(unsafe { bindings::ib_respond_empty_udata(udata.as_ptr()) })?;
            // SAFETY: The caller passes a valid `udata`; the core has it within an attribute
            // bundle.
            ucontext = NonNull::new(unsafe { context_of(udata) });
        }
        // INVARIANT: The caller promises it.
        Ok(Self {
            udata,
            ucontext,
            mappings: [const { None }; MAX_RINGS],
            response_at: None,
            _udata: PhantomData,
        })
    }

    /// Reads the input, which must be the address of the response. May sleep.
    ///
    /// # Safety
    ///
    /// As for [`new`](Self::new).
    pub(crate) unsafe fn with_address(udata: *mut bindings::ib_udata) -> Result<Self> {
        let mut address = [0; 8];
        let udata = NonNull::new(udata);
        let mut ucontext = None;
        if let Some(udata) = udata {
            // SAFETY: The caller passes a valid `udata`.
            let (input, len) = unsafe { ((*udata.as_ptr()).inbuf, (*udata.as_ptr()).inlen) };
            if len != address.len() {
                return Err(EINVAL);
            }
            let input = UserPtr::from_addr(input.addr());
            UserSlice::new(input, len)
                .reader()
                .read_slice(&mut address)?;
            // SAFETY: The caller passes a valid `udata`; the core has it within an attribute
            // bundle.
            ucontext = NonNull::new(unsafe { context_of(udata) });
        }
        // INVARIANT: The caller promises it.
        Ok(Self {
            udata,
            ucontext,
            mappings: [const { None }; MAX_RINGS],
            response_at: Some(u64::from_ne_bytes(address)),
            _udata: PhantomData,
        })
    }

    /// Returns true if a process calls, and not the kernel.
    pub fn is_user(&self) -> bool {
        self.udata.is_some()
    }

    /// Returns the context of the process.
    pub(crate) fn ucontext(&self) -> Option<NonNull<bindings::ib_ucontext>> {
        self.ucontext
    }

    /// Lets the process map `ring` until the object that the verb is for is destroyed or, when the
    /// verb fails, until it returns. Resizing an object replaces its ring. May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the kernel calls, or for a third ring; `ENOMEM`.
    pub fn share(&mut self, ring: &SharedRing) -> Result<Mminfo> {
        let ucontext = self.ucontext.ok_or(EINVAL)?;
        let slot = self
            .mappings
            .iter_mut()
            .find(|slot| slot.is_none())
            .ok_or(EINVAL)?;
        // SAFETY: By the invariants the context outlives the object, and the mapping does not
        // outlive that object.
        let mapping = unsafe { Mapping::new(ucontext, ring.memory().clone()) }?;
        Ok(slot.insert(mapping).info())
    }

    /// Writes `response` to the process. Its length is cut to the room of the process, or filled up
    /// with zeroes. At an address that the process [gave](Self::with_address), all of `response` is
    /// written. Does nothing if the kernel calls. May sleep.
    ///
    /// # Errors
    ///
    /// `EFAULT` if the process cannot be written to.
    pub fn respond(&mut self, response: &[u8]) -> Result {
        let Some(udata) = self.udata else {
            return Ok(());
        };
        if let Some(address) = self.response_at {
            let address = usize::try_from(address).map_err(|_| EFAULT)?;
            let to = UserSlice::new(UserPtr::from_addr(address), response.len());
            return to.writer().write_slice(response);
        }
        // SAFETY: By the invariants `udata` is valid, and `response` is valid for its length.
        to_result(unsafe {
            bindings::_ib_respond_udata(udata.as_ptr(), response.as_ptr().cast(), response.len())
        })
    }

    /// Returns the mappings, for the object.
    pub(crate) fn into_mappings(self) -> [Option<Mapping>; MAX_RINGS] {
        self.mappings
    }
}
