// SPDX-License-Identifier: GPL-2.0

//! What a process passes to a verb beside its arguments, and what it gets back.

use core::marker::PhantomData;
use core::ptr::NonNull;

use kernel::error::to_result;
use kernel::prelude::*;
use kernel::uaccess::{UserPtr, UserSlice};

use rdma_bindings as bindings;

use crate::mmap::{Mapping, Mminfo};
use crate::ring::SharedRing;

/// Rings that one object may have: a send and a receive queue.
pub(crate) const MAX_RINGS: usize = 2;

/// The process that calls a verb, or none when the kernel calls it.
///
/// The driver's own input must be empty or zero, else the verb fails with `EOPNOTSUPP` before the
/// driver is called. A response that the driver does not give reads as zeroes.
///
/// # Invariants
///
/// `udata` and `ucontext` are valid for `'a` where they are there, and the context stays alive for
/// as long as the object that the verb is for.
pub struct Udata<'a> {
    udata: Option<NonNull<bindings::ib_udata>>,
    ucontext: Option<NonNull<bindings::ib_ucontext>>,
    mappings: [Option<Mapping>; MAX_RINGS],
    /// Where in the process responses go, if not to where the core takes them.
    response_at: Option<u64>,
    _udata: PhantomData<&'a mut bindings::ib_udata>,
}

impl<'a> Udata<'a> {
    /// Checks that there is no input, and clears the response. May sleep.
    ///
    /// # Safety
    ///
    /// `udata` must be null or what the core passed to a verb that runs for all of `'a`, on an
    /// object of the context of that verb.
    pub(crate) unsafe fn new(udata: *mut bindings::ib_udata) -> Result<Self> {
        let udata = NonNull::new(udata);
        let mut ucontext = None;
        if let Some(udata) = udata {
            // SAFETY: The caller passes a valid `udata`.
            to_result(unsafe { bindings::ib_is_udata_in_empty(udata.as_ptr()) })?;
            // SAFETY: As above.
            to_result(unsafe { bindings::ib_respond_empty_udata(udata.as_ptr()) })?;
            // SAFETY: As above; the core has it within an attribute bundle.
            ucontext = NonNull::new(unsafe { bindings::ib_udata_ucontext(udata.as_ptr()) });
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

    /// As [`new`](Self::new), for a verb whose input is the address to respond to.
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
            // SAFETY: As above; the core has it within an attribute bundle.
            ucontext = NonNull::new(unsafe { bindings::ib_udata_ucontext(udata.as_ptr()) });
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

    /// Whether a process calls, and not the kernel.
    pub fn is_user(&self) -> bool {
        self.udata.is_some()
    }

    /// The context of the process.
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
        // SAFETY: By the invariants the context outlives the object, and the mapping goes no
        // further than that object.
        let mapping = unsafe { Mapping::new(ucontext, ring.memory().clone()) }?;
        Ok(slot.insert(mapping).info())
    }

    /// Gives the process `response`, cut to or filled with zeroes to the length that it has room
    /// for. Nothing happens if the kernel calls. May sleep.
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
        // SAFETY: By the invariants `udata` is valid, and `response` is as long as is said.
        to_result(unsafe {
            bindings::_ib_respond_udata(udata.as_ptr(), response.as_ptr().cast(), response.len())
        })
    }

    /// The mappings, for the object.
    pub(crate) fn into_mappings(self) -> [Option<Mapping>; MAX_RINGS] {
        self.mappings
    }
}
