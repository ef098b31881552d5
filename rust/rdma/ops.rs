// SPDX-License-Identifier: GPL-2.0

//! The verbs of a driver.
//!
//! A driver implements [`Operations`], of which `ib_device_ops` is made. Users do not see operations
//! that a driver leaves out.
//!
//! The core calls verbs in process context, where they may sleep, unless stated otherwise. It calls none
//! for an object before its creation or after its destruction. It destroys no object that another one
//! needs. Otherwise verbs run in parallel, also for the same object.

mod counter;
mod link_speed;
mod restrack;
mod stats;
mod sysfs;
pub(crate) mod table;

use crate::{
    ah::{
        AhAttr,
        AhInfo, //
    },
    device::{
        attr::{
            DeviceAttr,
            PortAttr,
            PortImmutable, //
        },
        Device,
        Registered, //
    },
    driver::Driver,
    net::NetDevice,
    object::{
        Ah,
        Cq,
        Mr,
        Mw,
        Pd,
        Qp,
        Srq,
        Ucontext, //
    },
    post::{
        Completions,
        RecvList,
        SendList, //
    },
    qp::{
        QpAttr,
        QpInfo,
        QpInit, //
    },
    restrack::Details,
    sg::SgList,
    stats::Counter,
    udata::Udata,
    upcall::{
        CqUpcall,
        QpUpcall,
        SrqUpcall, //
    }, //
};
use core::num::NonZero;
use kernel::{
    error::VTABLE_DEFAULT_ERROR,
    prelude::*,
    sync::aref::ARef, //
};
use rdma_bindings as bindings;

/// Bytes of a management datagram.
pub const MAD_BYTES: usize = core::mem::size_of::<bindings::ib_mad>();

/// Parameters of a new completion queue.
#[derive(Clone, Copy, Debug)]
pub struct CqInit {
    /// The least number of completions; not 0.
    pub cqe: u32,
    /// Completion vector, below [`Device::comp_vectors`].
    pub comp_vector: u32,
    /// `enum ib_uverbs_ex_create_cq_flags`.
    pub flags: u32,
}

/// A new completion queue.
pub struct NewCq<D> {
    /// The driver's value.
    pub data: D,
    /// The number of completions that it holds, which the owner is told.
    pub cqe: u32,
}

/// Attributes of a shared receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrqAttr {
    /// Work requests that it holds.
    pub max_wr: u32,
    /// Scatter-gather elements of a work request.
    pub max_sge: u32,
    /// The owner gets one event when fewer are posted than this. 0 means never.
    pub limit: u32,
}

/// Changes to a shared receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrqChange {
    /// Work requests that it has to hold at least.
    pub max_wr: Option<u32>,
    /// The limit, as in [`SrqAttr`].
    pub limit: Option<u32>,
}

/// A new queue pair.
pub struct NewQp<D> {
    /// The driver's value.
    pub data: D,
    /// Its number.
    pub qp_num: u32,
}

/// A new memory region.
pub struct NewMr<D> {
    /// The driver's value.
    pub data: D,
    /// The key by which local work requests name it.
    pub lkey: u32,
    /// The key by which peers name it.
    pub rkey: u32,
}

/// The type of a memory window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MwKind {
    /// Type 1: every queue pair of its protection domain.
    Domain,
    /// Type 2B: the queue pair that bound it, until its key is invalidated.
    QueuePair,
}

/// A new memory window.
pub struct NewMw<D> {
    /// The driver's value.
    pub data: D,
    /// The key by which peers name it, once it is bound.
    pub rkey: u32,
}

/// The memory of a process for a memory region.
#[derive(Clone, Copy, Debug)]
pub struct MrInit {
    /// Its start address in the process.
    pub start: u64,
    /// Its length in bytes.
    pub length: u64,
    /// The address that users and peers give to its first byte; equal to `start` within a page.
    pub iova: u64,
    /// The access rights; `enum ib_access_flags`. The core has checked that remote write access comes
    /// with local write access.
    pub access: u32,
}

impl MrInit {
    /// Returns these parameters with those of `change`.
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

/// The new memory of a memory region.
#[derive(Clone, Copy, Debug)]
pub struct MrRange {
    /// Its start address in the process.
    pub start: u64,
    /// Its length in bytes.
    pub length: u64,
    /// The address of its first byte for users and peers; equal to `start` within a page.
    pub iova: u64,
}

/// Changes to a memory region. Its protection domain is passed beside this.
#[derive(Clone, Copy, Debug)]
pub struct MrChange {
    /// Its memory.
    pub range: Option<MrRange>,
    /// The access rights; as in [`MrInit`].
    pub access: Option<u32>,
}

/// A new counter of queue pairs.
pub struct NewCounter<D> {
    /// The driver's value.
    pub data: D,
    /// Its number, which no other counter of the device has.
    pub id: NonZero<u32>,
}

/// A part of a dma-buf for a memory region.
#[derive(Clone, Copy, Debug)]
pub struct DmaBufInit {
    /// The dma-buf, as the calling process knows it.
    pub fd: i32,
    /// The offset of the region in the dma-buf.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// The address that users and peers give to its first byte; equal to `offset` within a page.
    pub iova: u64,
    /// The access rights; as in [`MrInit`].
    pub access: u32,
}

/// Advice of a process about on-demand memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// It will be read.
    Prefetch,
    /// It will be written to.
    PrefetchWrite,
    /// It will be used where it is present.
    PrefetchNoFault,
}

/// A range of memory with advice.
#[repr(transparent)]
pub struct AdvisedRange(bindings::ib_sge);

impl AdvisedRange {
    /// Returns the address of its first byte.
    pub fn addr(&self) -> u64 {
        self.0.addr
    }

    /// Returns its length in bytes; may be 0.
    pub fn len(&self) -> u32 {
        self.0.length
    }

    /// Returns true if the range is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the local key of its region.
    pub fn lkey(&self) -> u32 {
        self.0.lkey
    }
}

/// The next completion that the owner gets an event for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notify {
    /// The next completion that was solicited, or is an error.
    Solicited,
    /// The next completion.
    Next,
}

/// The largest differentiated services code point.
pub const MAX_DSCP: u8 = 63;

/// The verbs of a driver.
///
/// # Examples
///
/// ```
/// use rdma::{
///     driver::Driver,
///     object::{
///         Pd,
///         Ucontext, //
///     },
///     ops::Operations,
///     udata::Udata, //
/// };
/// # use kernel::sync::aref::ARef;
/// # use rdma::device::attr::{DeviceAttr, PortAttr, PortImmutable};
/// # use rdma::device::Device;
/// # use rdma::net::NetDevice;
/// # use rdma::object::{Cq, Qp};
/// # use rdma::ops::{CqInit, MrInit, NewCq, NewMr, NewQp, Notify};
/// # use rdma::post::{Completions, RecvList, SendList};
/// # use rdma::qp::{QpAttr, QpInfo, QpInit};
/// # use rdma::upcall::{CqUpcall, QpUpcall};
///
/// struct Sample;
///
/// # impl Driver for Sample {
/// #     type Device = ();
/// #     type Ucontext = ();
/// #     type Pd = u32;
/// #     type Cq = ();
/// #     type Qp = ();
/// #     type Mw = ();
/// #     type Srq = ();
/// #     type Ah = ();
/// #     type Mr = ();
/// # }
/// #
/// #[vtable]
/// impl Operations for Sample {
///     const DRIVER_ID: u32 = 0;
///     const UVERBS_ABI_VERSION: u32 = 1;
/// #     type Counter = ();
///
///     fn alloc_pd(
///         device: &Device<Self>,
///         _ucontext: Option<&Ucontext<Self>>,
///         udata: &mut Udata<'_>,
///     ) -> Result<u32> {
///         udata.respond(&7u32.to_ne_bytes())?;
///         Ok(7)
///     }
///
///     // All other verbs.
/// #     fn query_device(_: &Device<Self>) -> Result<DeviceAttr> {
/// #         Ok(DeviceAttr::default())
/// #     }
/// #     fn query_port(_: &Device<Self>, _: u32) -> Result<PortAttr> {
/// #         Err(ENODEV)
/// #     }
/// #     fn port_immutable(_: &Device<Self>, _: u32) -> Result<PortImmutable> {
/// #         Err(ENODEV)
/// #     }
/// #     fn query_pkey(_: &Device<Self>, _: u32, _: u16) -> Result<u16> {
/// #         Err(EINVAL)
/// #     }
/// #     fn get_netdev(_: &Device<Self>, _: u32) -> Option<ARef<NetDevice>> {
/// #         None
/// #     }
/// #     fn alloc_ucontext(_: &Device<Self>, _: &mut Udata<'_>) -> Result {
/// #         Ok(())
/// #     }
/// #     fn create_cq(
/// #         _: &Device<Self>,
/// #         _: &CqInit,
/// #         _: CqUpcall,
/// #         _: &mut Udata<'_>,
/// #     ) -> Result<NewCq<()>> {
/// #         Err(ENOMEM)
/// #     }
/// #     fn req_notify_cq(_: &Cq<Self>, _: Notify) -> Result<bool> {
/// #         Ok(false)
/// #     }
/// #     fn poll_cq(_: &Cq<Self>, _: &mut Completions<'_>) -> Result {
/// #         Ok(())
/// #     }
/// #     fn create_qp(
/// #         _: &Pd<Self>,
/// #         _: &mut QpInit<'_, Self>,
/// #         _: QpUpcall,
/// #         _: &mut Udata<'_>,
/// #     ) -> Result<NewQp<()>> {
/// #         Err(ENOMEM)
/// #     }
/// #     fn modify_qp(_: &Qp<Self>, _: &QpAttr<'_>) -> Result {
/// #         Err(EINVAL)
/// #     }
/// #     fn query_qp(_: &Qp<Self>) -> Result<QpInfo> {
/// #         Err(EINVAL)
/// #     }
/// #     fn doorbell(_: &Qp<Self>) -> Result {
/// #         Ok(())
/// #     }
/// #     fn post_send(_: &Qp<Self>, _: &mut SendList<'_, Self>) -> Result {
/// #         Err(EINVAL)
/// #     }
/// #     fn post_recv(_: &Qp<Self>, _: &mut RecvList<'_>) -> Result {
/// #         Err(EINVAL)
/// #     }
/// #     fn reg_user_mr(_: &Pd<Self>, _: &MrInit, _: &mut Udata<'_>) -> Result<NewMr<()>> {
/// #         Err(ENOMEM)
/// #     }
/// }
/// ```
#[vtable]
pub trait Operations: Driver {
    /// The driver's value of a counter of queue pairs.
    type Counter: Send + Sync;

    /// `enum rdma_driver_id`: the provider of rdma-core for the device.
    const DRIVER_ID: u32;

    /// The version of that provider's ABI.
    const UVERBS_ABI_VERSION: u32;

    /// The counters of a port.
    const COUNTERS: &'static [Counter] = &[];

    /// The names of the laws of congestion control that a device has.
    const CONGESTION_CONTROLS: &'static [&'static str] = &[];

    /// Returns limits and capabilities. The core calls it at registration, and for each query.
    fn query_device(device: &Device<Self>) -> Result<DeviceAttr>;

    /// Returns the state of a port. RTNL is not held.
    fn query_port(device: &Device<Self>, port: u32) -> Result<PortAttr>;

    /// Returns the constant attributes of a port. Called at registration.
    fn port_immutable(device: &Device<Self>, port: u32) -> Result<PortImmutable>;

    /// Returns an entry of a port's P_Key table.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it has no such entry.
    fn query_pkey(device: &Device<Self>, port: u32, index: u16) -> Result<u16>;

    /// Returns the netdev of a port, or none during its removal. After the notifier of
    /// `NETDEV_UNREGISTER` has returned, there must be none. Any context.
    fn get_netdev(device: &Device<Self>, port: u32) -> Option<ARef<NetDevice>>;

    /// Notes that the device can be found from now on: at its registration, and after each move to
    /// another network namespace. [`for_each_device`](crate::link::for_each_device) missed it before,
    /// so events of its netdev may have gone unnoticed. May sleep. The core holds locks, under which
    /// no device can be unregistered, but that can be
    /// [queued](crate::device::Registered::unregister_queued).
    fn enabled(device: &Registered<Self>) {
        let _ = device;
    }

    /// Stores the counters of a port, in the order of [`COUNTERS`](Self::COUNTERS). Work of queue pairs
    /// that are [bound](Self::bind_counter) to other counters is not included.
    fn port_counters(device: &Device<Self>, port: u32, values: &mut [u64]) {
        let _ = (device, port, values);
    }

    /// Returns the law of congestion control that new connections have, as its place in
    /// [`CONGESTION_CONTROLS`](Self::CONGESTION_CONTROLS).
    fn congestion_control(device: &Device<Self>) -> usize {
        let _ = device;
        0
    }

    /// Sets that law.
    fn set_congestion_control(device: &Device<Self>, index: usize) {
        let _ = (device, index);
    }

    /// Returns the differentiated services code point of congestion notification packets.
    fn cnp_dscp(device: &Device<Self>) -> u8 {
        let _ = device;
        0
    }

    /// Sets it, to at most [`MAX_DSCP`].
    fn set_cnp_dscp(device: &Device<Self>, dscp: u8) {
        let _ = (device, dscp);
    }

    /// Returns the answer to a management datagram of a peer or of the kernel; none leaves it to others.
    /// QP1 passes datagrams to the core, which calls this and sends the answer.
    fn process_mad(
        device: &Device<Self>,
        port: u32,
        request: &[u8; MAD_BYTES],
    ) -> Option<[u8; MAD_BYTES]> {
        let _ = (device, port, request);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Handles the end of a device. This is the last call, before its value is dropped. It is also
    /// called for a device whose registration failed.
    fn dealloc(device: &Device<Self>) {
        let _ = device;
    }

    /// Creates the context of a process that opens the device.
    fn alloc_ucontext(device: &Device<Self>, udata: &mut Udata<'_>) -> Result<Self::Ucontext>;

    /// Creates a protection domain, for a process if there is a context.
    fn alloc_pd(
        device: &Device<Self>,
        ucontext: Option<&Ucontext<Self>>,
        udata: &mut Udata<'_>,
    ) -> Result<Self::Pd>;

    /// Creates a completion queue. Its owner gets events through `upcall`.
    fn create_cq(
        device: &Device<Self>,
        init: &CqInit,
        upcall: CqUpcall,
        udata: &mut Udata<'_>,
    ) -> Result<NewCq<Self::Cq>>;

    /// Resizes a process's completion queue to at least `cqe` completions. Returns the new number.
    /// Of concurrent calls for one queue, one runs at a time.
    fn resize_cq(cq: &Cq<Self>, cqe: u32, udata: &mut Udata<'_>) -> Result<u32> {
        let _ = (cq, cqe, udata);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Arms a completion queue. Returns true if it holds completions at that moment, for which there may
    /// be no event. Any context.
    fn req_notify_cq(cq: &Cq<Self>, notify: Notify) -> Result<bool>;

    /// Passes the oldest completions to the kernel, which owns the queue, while `to` has room. Any
    /// context.
    fn poll_cq(cq: &Cq<Self>, to: &mut Completions<'_>) -> Result;

    /// Destroys a completion queue; its value is dropped next. No queue pair uses it.
    fn destroy_cq(cq: &Cq<Self>) {
        let _ = cq;
    }

    /// Creates a queue pair. Its owner gets events through `upcall`. The driver stores the sizes of
    /// the queues in [`QpInit::caps`], not smaller than requested.
    fn create_qp(
        pd: &Pd<Self>,
        init: &mut QpInit<'_, Self>,
        upcall: QpUpcall,
        udata: &mut Udata<'_>,
    ) -> Result<NewQp<Self::Qp>>;

    /// Changes a queue pair; see [`QpAttr::transition`].
    fn modify_qp(qp: &Qp<Self>, attr: &QpAttr<'_>) -> Result;

    /// Returns the attributes of a queue pair.
    fn query_qp(qp: &Qp<Self>) -> Result<QpInfo>;

    /// Destroys a queue pair; its value is dropped next.
    fn destroy_qp(qp: &Qp<Self>) {
        let _ = qp;
    }

    /// Adds a queue pair for datagrams to a multicast group. The core prevents its destruction until it
    /// is detached as often.
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

    /// Handles the doorbell of a process.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the state of the queue pair does not allow it.
    fn doorbell(qp: &Qp<Self>) -> Result;

    /// Posts sends of the kernel, which owns the queue pair. Any context.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the state of the queue pair does not allow it or a work request is invalid, `ENOMEM`
    /// if the queue is full. The last request taken from the list, and those behind it, are then not
    /// posted.
    fn post_send(qp: &Qp<Self>, list: &mut SendList<'_, Self>) -> Result;

    /// Posts receives of the kernel, which owns the queue pair. Any context.
    ///
    /// # Errors
    ///
    /// As for [`post_send`](Self::post_send); `EINVAL` also if there is a shared receive queue.
    fn post_recv(qp: &Qp<Self>, list: &mut RecvList<'_>) -> Result;

    /// Creates a shared receive queue. Its owner gets events through `upcall`. The driver stores
    /// its size in `attr`, not smaller than requested.
    fn create_srq(
        pd: &Pd<Self>,
        attr: &mut SrqAttr,
        upcall: SrqUpcall,
        udata: &mut Udata<'_>,
    ) -> Result<Self::Srq> {
        let _ = (pd, attr, upcall, udata);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Changes a shared receive queue. Of concurrent calls for one queue that change its size, one runs at a
    /// time.
    fn modify_srq(srq: &Srq<Self>, change: &SrqChange, udata: &mut Udata<'_>) -> Result {
        let _ = (srq, change, udata);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Returns the attributes of a shared receive queue.
    fn query_srq(srq: &Srq<Self>) -> SrqAttr {
        let _ = srq;
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Posts receives of the kernel, which owns the queue. Any context.
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

    /// Changes the destination of an address handle. Any context if the kernel calls.
    fn modify_ah(ah: &Ah<Self>, attr: &AhAttr<'_>) -> Result {
        let _ = (ah, attr);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Returns the destination of an address handle. Any context if the kernel calls.
    fn query_ah(ah: &Ah<Self>) -> Result<AhInfo> {
        let _ = ah;
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Destroys an address handle; its value is dropped next. Any context if the kernel calls.
    fn destroy_ah(ah: &Ah<Self>) {
        let _ = ah;
    }

    /// Allocates a memory window, which a work request binds.
    fn alloc_mw(pd: &Pd<Self>, kind: MwKind, udata: &mut Udata<'_>) -> Result<NewMw<Self::Mw>> {
        let _ = (pd, kind, udata);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Destroys a memory window; its value is dropped next.
    fn dealloc_mw(mw: &Mw<Self>) {
        let _ = mw;
    }

    /// Creates a region of all kernel memory.
    fn get_dma_mr(pd: &Pd<Self>, access: u32) -> Result<NewMr<Self::Mr>> {
        let _ = (pd, access);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Allocates a region for lists of up to `most` pages, or elements if the region can have gaps
    /// (`IB_MR_TYPE_SG_GAPS`). The kernel fills it by [`map_mr_sg`](Self::map_mr_sg) and a work
    /// request.
    fn alloc_mr(pd: &Pd<Self>, most: u32) -> Result<NewMr<Self::Mr>> {
        let _ = (pd, most);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Sets the memory that the next work request registers. Any context.
    ///
    /// # Errors
    ///
    /// Those of [`SgMemory::lay_out`](crate::sg::SgMemory::lay_out); `EINVAL` for a region that was not
    /// made by [`alloc_mr`](Self::alloc_mr).
    fn map_mr_sg(mr: &Mr<Self>, list: &mut SgList<'_>) -> Result {
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

    /// Handles advice of a process about memory of `pd`. With `at_once` the call returns when it is
    /// done.
    fn advise_mr(pd: &Pd<Self>, advice: Advice, at_once: bool, ranges: &[AdvisedRange]) -> Result {
        let _ = (pd, advice, at_once, ranges);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Registers a memory region like `mr` with a `change`, in the domain `pd`. The core then destroys
    /// `mr` and returns the keys of the new one to the process.
    ///
    /// # Errors
    ///
    /// As for [`reg_user_mr`](Self::reg_user_mr). `mr` is then unchanged.
    fn rereg_user_mr(
        mr: &Mr<Self>,
        pd: &Pd<Self>,
        change: &MrChange,
        udata: &mut Udata<'_>,
    ) -> Result<NewMr<Self::Mr>> {
        let _ = (mr, pd, change, udata);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Destroys a memory region; its value is dropped next, unless this fails.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it is in use by an object that its owner can destroy.
    fn dereg_mr(mr: &Mr<Self>) -> Result {
        let _ = mr;
        Ok(())
    }

    /// Creates a counter of queue pairs with all values zero.
    fn new_counter(device: &Device<Self>) -> Result<NewCounter<Self::Counter>> {
        let _ = device;
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Counts the work of `qp` in `counter` from now on, and not in its port.
    fn bind_counter(qp: &Qp<Self>, counter: &Self::Counter) {
        let _ = (qp, counter);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Counts the work of `qp` in its port from now on.
    fn unbind_counter(qp: &Qp<Self>) {
        let _ = qp;
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Stores the values of a counter, in the order of [`COUNTERS`](Self::COUNTERS).
    fn counter_values(counter: &Self::Counter, values: &mut [u64]) {
        let _ = (counter, values);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Adds details of a queue pair.
    ///
    /// # Errors
    ///
    /// Those of [`Details`], at the first of which it stops.
    fn qp_details(qp: &Qp<Self>, details: &mut Details<'_>) -> Result {
        let _ = (qp, details);
        Ok(())
    }

    /// Adds details of a completion queue; see [`qp_details`](Self::qp_details).
    fn cq_details(cq: &Cq<Self>, details: &mut Details<'_>) -> Result {
        let _ = (cq, details);
        Ok(())
    }

    /// Adds details of a memory region; see [`qp_details`](Self::qp_details).
    fn mr_details(mr: &Mr<Self>, details: &mut Details<'_>) -> Result {
        let _ = (mr, details);
        Ok(())
    }

    /// Adds details of a shared receive queue; see [`qp_details`](Self::qp_details).
    fn srq_details(srq: &Srq<Self>, details: &mut Details<'_>) -> Result {
        let _ = (srq, details);
        Ok(())
    }
}
