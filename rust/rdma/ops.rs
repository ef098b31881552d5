// SPDX-License-Identifier: GPL-2.0

//! The verbs of a driver.
//!
//! [`Operations`] is what a driver implements; `ib_device_ops` is made of it. What a driver leaves
//! out is not there for users either.
//!
//! The core calls verbs in process context, where they may sleep, unless they say otherwise. It
//! calls none for an object before it was created or after it was destroyed, and destroys none that
//! another object needs; beyond that verbs run in parallel, also those for the same object.

mod counter;
mod link_speed;
mod restrack;
mod stats;
pub(crate) mod table;

use core::num::NonZero;

use kernel::error::VTABLE_DEFAULT_ERROR;
use kernel::prelude::*;
use kernel::sync::aref::ARef;

use rdma_bindings as bindings;
use roce::num::{Lkey, Pkey, Qpn, Rkey};
use roce::pma::MAD_BYTES;

use crate::ah::{AhAttr, AhInfo};
use crate::device::attr::{DeviceAttr, PortAttr, PortImmutable};
use crate::device::Device;
use crate::driver::Driver;
use crate::net::NetDevice;
use crate::object::{Ah, Cq, Mr, Mw, Pd, Qp, Srq, Ucontext};
use crate::post::{Completions, RecvList, SendList};
use crate::qp::{QpAttr, QpInfo, QpInit};
use crate::restrack::Details;
use crate::sg::SgPages;
use crate::stats::Counter;
use crate::udata::Udata;
use crate::upcall::{CqUpcall, QpUpcall, SrqUpcall};

/// What a completion queue is created with.
#[derive(Clone, Copy, Debug)]
pub struct CqInit {
    /// How many completions it has to hold at least; not 0.
    pub cqe: u32,
    /// Completion vector, below [`Device::comp_vectors`].
    pub comp_vector: u32,
    /// `enum ib_uverbs_ex_create_cq_flags`.
    pub flags: u32,
}

/// A completion queue that was created.
pub struct NewCq<D> {
    /// The driver's value.
    pub data: D,
    /// How many completions it holds, as the owner is told.
    pub cqe: u32,
}

/// What a shared receive queue is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrqAttr {
    /// Work requests that it holds.
    pub max_wr: u32,
    /// Scatter-gather elements of a work request.
    pub max_sge: u32,
    /// The owner is told, once, when fewer are posted than this; 0: never.
    pub limit: u32,
}

/// What is to be changed of a shared receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrqChange {
    /// Work requests that it has to hold at least.
    pub max_wr: Option<u32>,
    /// The limit, as in [`SrqAttr`].
    pub limit: Option<u32>,
}

/// A queue pair that was created.
pub struct NewQp<D> {
    /// The driver's value.
    pub data: D,
    /// Its number.
    pub qp_num: Qpn,
}

/// A memory region that was registered.
pub struct NewMr<D> {
    /// The driver's value.
    pub data: D,
    /// What local work requests name it by.
    pub lkey: Lkey,
    /// What peers name it by.
    pub rkey: Rkey,
}

/// Who may use a memory window, and how it is bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MwKind {
    /// Type 1: every queue pair of its protection domain.
    Domain,
    /// Type 2B: the queue pair that bound it, until its key is invalidated.
    QueuePair,
}

/// A memory window that was allocated.
pub struct NewMw<D> {
    /// The driver's value.
    pub data: D,
    /// What peers name it by, once it is bound.
    pub rkey: Rkey,
}

/// The memory of a process that a memory region is made of.
#[derive(Clone, Copy, Debug)]
pub struct MrInit {
    /// Where it starts, in the process.
    pub start: u64,
    /// Its length in bytes.
    pub length: u64,
    /// The address that users and peers give to its first byte; equal to `start` within a page.
    pub iova: u64,
    /// What may be done with it; `enum ib_access_flags`. The core has checked that whoever may
    /// change it remotely may change it locally.
    pub access: u32,
}

impl MrInit {
    /// This, with what `change` names replaced.
    #[must_use]
    pub fn changed(self, change: &MrChange) -> Self {
        let mut new = self;
        if let Some(range) = change.range {
            new.start = range.start;
            new.length = range.length;
            new.iova = range.iova;
        }
        if let Some(access) = change.access {
            new.access = access;
        }
        new
    }
}

/// The memory of a process that a memory region is to be made of from now on.
#[derive(Clone, Copy, Debug)]
pub struct MrRange {
    /// Where it starts, in the process.
    pub start: u64,
    /// Its length in bytes.
    pub length: u64,
    /// The address of its first byte for users and peers; equal to `start` within a page.
    pub iova: u64,
}

/// What is to be different about a memory region. Its protection domain is passed beside this.
#[derive(Clone, Copy, Debug)]
pub struct MrChange {
    /// Its memory.
    pub range: Option<MrRange>,
    /// What may be done with it; as in [`MrInit`].
    pub access: Option<u32>,
}

/// A counter of queue pairs that was made.
pub struct NewCounter<D> {
    /// The driver's value.
    pub data: D,
    /// Its number, which no other counter of the device has.
    pub id: NonZero<u32>,
}

/// A part of a dma-buf that a memory region is made of.
#[derive(Clone, Copy, Debug)]
pub struct DmaBufInit {
    /// The dma-buf, as the calling process knows it.
    pub fd: i32,
    /// Where in it the region starts.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// The address that users and peers give to its first byte; equal to `offset` within a page.
    pub iova: u64,
    /// What may be done with it; as in [`MrInit`].
    pub access: u32,
}

/// What a process says of memory that is paged in on demand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// It will be read.
    Prefetch,
    /// It will be written to.
    PrefetchWrite,
    /// It will be used where it is there anyway.
    PrefetchNoFault,
}

/// A range of memory that advice is given about.
#[repr(transparent)]
pub struct AdvisedRange(bindings::ib_sge);

impl AdvisedRange {
    /// The address of its first byte.
    pub fn addr(&self) -> u64 {
        self.0.addr
    }

    /// Its length in bytes; may be 0.
    pub fn len(&self) -> u32 {
        self.0.length
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The local key of its region.
    pub fn lkey(&self) -> u32 {
        self.0.lkey
    }
}

/// What a completion queue's owner wants to be told of, once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notify {
    /// The next completion that was solicited, or is an error.
    Solicited,
    /// The next completion.
    Next,
}

/// The verbs of a driver.
#[vtable]
pub trait Operations: Driver {
    /// The driver's value of a counter of queue pairs.
    type Counter: Send + Sync;

    /// `enum rdma_driver_id`: which provider of rdma-core speaks to the device.
    const DRIVER_ID: u32;

    /// The version of that provider's ABI.
    const UVERBS_ABI_VERSION: u32;

    /// The counters of a port.
    const COUNTERS: &'static [Counter] = &[];

    /// Limits and capabilities. Called once, when the device is registered, and by whoever asks.
    fn query_device(device: &Device<Self>) -> Result<DeviceAttr>;

    /// The state of a port. RTNL is not held.
    fn query_port(device: &Device<Self>, port: u32) -> Result<PortAttr>;

    /// What of a port never changes. Called when the device is registered.
    fn port_immutable(device: &Device<Self>, port: u32) -> Result<PortImmutable>;

    /// An entry of a port's P_Key table.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it has no such entry.
    fn query_pkey(device: &Device<Self>, port: u32, index: u16) -> Result<Pkey>;

    /// The netdev of a port, or none once that is being unregistered: from when the notifier of
    /// `NETDEV_UNREGISTER` has returned none must come any more. Any context.
    fn get_netdev(device: &Device<Self>, port: u32) -> Option<ARef<NetDevice>>;

    /// Fills in the counters of a port, in the order of [`COUNTERS`](Self::COUNTERS), without what
    /// queue pairs have done that were [bound](Self::bind_counter) to others.
    fn port_counters(device: &Device<Self>, port: u32, values: &mut [u64]) {
        let _ = (device, port, values);
    }

    /// Answers a management datagram that arrived, or that the kernel has made itself; none leaves it
    /// to others. QP1 gives it to the core, which asks here and sends the answer.
    fn process_mad(
        device: &Device<Self>,
        port: u32,
        request: &[u8; MAD_BYTES],
    ) -> Option<[u8; MAD_BYTES]> {
        let _ = (device, port, request);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// The device is gone: the last call for it, before its value is dropped. Also called for a
    /// device that could not be registered.
    fn dealloc(device: &Device<Self>) {
        let _ = device;
    }

    /// A process opens the device.
    fn alloc_ucontext(device: &Device<Self>, udata: &mut Udata<'_>) -> Result<Self::Ucontext>;

    /// Creates a protection domain, for a process if there is a context.
    fn alloc_pd(
        device: &Device<Self>,
        ucontext: Option<&Ucontext<Self>>,
        udata: &mut Udata<'_>,
    ) -> Result<Self::Pd>;

    /// Creates a completion queue, whose owner is told through `upcall`.
    fn create_cq(
        device: &Device<Self>,
        init: &CqInit,
        upcall: CqUpcall,
        udata: &mut Udata<'_>,
    ) -> Result<NewCq<Self::Cq>>;

    /// Makes a process's completion queue hold at least `cqe` completions. Returns how many it
    /// holds.
    fn resize_cq(cq: &Cq<Self>, cqe: u32, udata: &mut Udata<'_>) -> Result<u32> {
        let _ = (cq, cqe, udata);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Arms a completion queue. Returns whether it holds completions at that moment, of which the
    /// owner may not be told any more. Any context.
    fn req_notify_cq(cq: &Cq<Self>, notify: Notify) -> Result<bool>;

    /// Hands the kernel, which owns the queue, the oldest completions as long as there are some and
    /// `to` has room. Any context.
    fn poll_cq(cq: &Cq<Self>, to: &mut Completions<'_>) -> Result;

    /// A completion queue goes: its value is dropped next. No queue pair uses it any more.
    fn destroy_cq(cq: &Cq<Self>) {
        let _ = cq;
    }

    /// Creates a queue pair, whose owner is told through `upcall`. The driver writes to
    /// [`QpInit::caps`] how large the queues are, at least as large as they were asked to be.
    fn create_qp(
        pd: &Pd<Self>,
        init: &mut QpInit<'_, Self>,
        upcall: QpUpcall,
        udata: &mut Udata<'_>,
    ) -> Result<NewQp<Self::Qp>>;

    /// Changes a queue pair; see [`QpAttr::transition`].
    fn modify_qp(qp: &Qp<Self>, attr: &QpAttr<'_>) -> Result;

    /// What a queue pair is like.
    fn query_qp(qp: &Qp<Self>) -> Result<QpInfo>;

    /// A queue pair goes: its value is dropped next.
    fn destroy_qp(qp: &Qp<Self>) {
        let _ = qp;
    }

    /// Has a queue pair for datagrams get what is sent to a multicast group. The core keeps it from
    /// being destroyed until it is detached as often.
    fn attach_mcast(qp: &Qp<Self>, mgid: [u8; 16]) -> Result {
        let _ = (qp, mgid);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Undoes [`attach_mcast`](Self::attach_mcast). Must not fail for one that was attached.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it was not attached.
    fn detach_mcast(qp: &Qp<Self>, mgid: [u8; 16]) -> Result {
        let _ = (qp, mgid);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// The process has posted sends.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the queue pair is in no state for that.
    fn doorbell(qp: &Qp<Self>) -> Result;

    /// The kernel, which owns the queue pair, posts sends. Any context.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the queue pair is in no state for that or a work request is none, `ENOMEM` if the
    /// queue is full. The one that was taken from the list last is not posted then, nor are those
    /// behind it.
    fn post_send(qp: &Qp<Self>, list: &mut SendList<'_, Self>) -> Result;

    /// The kernel, which owns the queue pair, posts receives. Any context.
    ///
    /// # Errors
    ///
    /// As for [`post_send`](Self::post_send); `EINVAL` also if there is a shared receive queue.
    fn post_recv(qp: &Qp<Self>, list: &mut RecvList<'_>) -> Result;

    /// Creates a shared receive queue, whose owner is told through `upcall`. The driver writes to
    /// `attr` how large it is, at least as large as it was asked to be.
    fn create_srq(
        pd: &Pd<Self>,
        attr: &mut SrqAttr,
        upcall: SrqUpcall,
        udata: &mut Udata<'_>,
    ) -> Result<Self::Srq> {
        let _ = (pd, attr, upcall, udata);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Changes a shared receive queue.
    fn modify_srq(srq: &Srq<Self>, change: &SrqChange, udata: &mut Udata<'_>) -> Result {
        let _ = (srq, change, udata);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// What a shared receive queue is like.
    fn query_srq(srq: &Srq<Self>) -> SrqAttr {
        let _ = srq;
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// The kernel, which owns the queue, posts receives. Any context.
    ///
    /// # Errors
    ///
    /// As for [`post_send`](Self::post_send).
    fn post_srq_recv(srq: &Srq<Self>, list: &mut RecvList<'_>) -> Result {
        let _ = (srq, list);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Creates an address handle. Any context if the kernel calls.
    fn create_ah(pd: &Pd<Self>, attr: &AhAttr<'_>, udata: &mut Udata<'_>) -> Result<Self::Ah> {
        let _ = (pd, attr, udata);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Has an address handle lead elsewhere. Any context if the kernel calls.
    fn modify_ah(ah: &Ah<Self>, attr: &AhAttr<'_>) -> Result {
        let _ = (ah, attr);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Where an address handle leads. Any context if the kernel calls.
    fn query_ah(ah: &Ah<Self>) -> Result<AhInfo> {
        let _ = ah;
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// An address handle goes: its value is dropped next. Any context if the kernel calls.
    fn destroy_ah(ah: &Ah<Self>) {
        let _ = ah;
    }

    /// Allocates a memory window, which is bound by a work request.
    fn alloc_mw(pd: &Pd<Self>, kind: MwKind, udata: &mut Udata<'_>) -> Result<NewMw<Self::Mw>> {
        let _ = (pd, kind, udata);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// A memory window goes: its value is dropped next.
    fn dealloc_mw(mw: &Mw<Self>) {
        let _ = mw;
    }

    /// Makes all memory of the kernel a region.
    fn get_dma_mr(pd: &Pd<Self>, access: u32) -> Result<NewMr<Self::Mr>> {
        let _ = (pd, access);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Allocates a region which the kernel makes of lists of up to `max_pages` pages, by
    /// [`map_mr_sg`](Self::map_mr_sg) and a work request.
    fn alloc_mr(pd: &Pd<Self>, max_pages: u32) -> Result<NewMr<Self::Mr>> {
        let _ = (pd, max_pages);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Lays out what the next work request is to register. Any context.
    ///
    /// # Errors
    ///
    /// Those of [`Umem::lay_out`](crate::umem::Umem::lay_out); `EINVAL` for a region that was not made
    /// by [`alloc_mr`](Self::alloc_mr).
    fn map_mr_sg(mr: &Mr<Self>, list: &mut SgPages<'_>) -> Result {
        let _ = (mr, list);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Registers memory of the calling process.
    fn reg_user_mr(pd: &Pd<Self>, init: &MrInit, udata: &mut Udata<'_>) -> Result<NewMr<Self::Mr>>;

    /// Registers a part of a dma-buf.
    fn reg_user_mr_dmabuf(pd: &Pd<Self>, init: &DmaBufInit) -> Result<NewMr<Self::Mr>> {
        let _ = (pd, init);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// A process says what it will do with memory of `pd`. What follows from that is done before the
    /// call returns, if it is to be done `at_once`.
    fn advise_mr(pd: &Pd<Self>, advice: Advice, at_once: bool, ranges: &[AdvisedRange]) -> Result {
        let _ = (pd, advice, at_once, ranges);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Registers a memory region that is `mr` with a `change`, in the domain `pd`. The core destroys
    /// `mr` next, and gives the process the new one's keys.
    ///
    /// # Errors
    ///
    /// As for [`reg_user_mr`](Self::reg_user_mr). `mr` stays as it was then.
    fn rereg_user_mr(
        mr: &Mr<Self>,
        pd: &Pd<Self>,
        change: &MrChange,
        udata: &mut Udata<'_>,
    ) -> Result<NewMr<Self::Mr>> {
        let _ = (mr, pd, change, udata);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// A memory region goes: its value is dropped next, unless this fails.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it is in use by something that its owner can undo.
    fn dereg_mr(mr: &Mr<Self>) -> Result {
        let _ = mr;
        Ok(())
    }

    /// Makes a counter of queue pairs, all zero.
    fn new_counter(device: &Device<Self>) -> Result<NewCounter<Self::Counter>> {
        let _ = device;
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// What `qp` does from now on is counted by `counter` and not by its port.
    fn bind_counter(qp: &Qp<Self>, counter: &Self::Counter) {
        let _ = (qp, counter);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// What `qp` does from now on is counted by its port.
    fn unbind_counter(qp: &Qp<Self>) {
        let _ = qp;
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Fills in the values of a counter, in the order of [`COUNTERS`](Self::COUNTERS).
    fn counter_values(counter: &Self::Counter, values: &mut [u64]) {
        let _ = (counter, values);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Tells what there is to know of a queue pair.
    ///
    /// # Errors
    ///
    /// Those of [`Details`], which is as far as it needs to get.
    fn qp_details(qp: &Qp<Self>, details: &mut Details<'_>) -> Result {
        let _ = (qp, details);
        Ok(())
    }

    /// Tells what there is to know of a completion queue; see [`qp_details`](Self::qp_details).
    fn cq_details(cq: &Cq<Self>, details: &mut Details<'_>) -> Result {
        let _ = (cq, details);
        Ok(())
    }

    /// Tells what there is to know of a memory region; see [`qp_details`](Self::qp_details).
    fn mr_details(mr: &Mr<Self>, details: &mut Details<'_>) -> Result {
        let _ = (mr, details);
        Ok(())
    }

    /// Tells what there is to know of a shared receive queue; see [`qp_details`](Self::qp_details).
    fn srq_details(srq: &Srq<Self>, details: &mut Details<'_>) -> Result {
        let _ = (srq, details);
        Ok(())
    }
}
