// SPDX-License-Identifier: GPL-2.0

//! `ib_device_ops` of a driver, and the functions in it.
//!
//! Each function turns the core's arguments into those of [`Operations`] and the result into the
//! form that the core expects. A *device of `T`* is one that was made by
//! [`NewDevice::new`](crate::link::NewDevice::new) for `T`.

use super::{
    counter,
    restrack,
    stats,
    sysfs,
    Advice,
    AdvisedRange,
    CqInit,
    DmaBufInit,
    MrChange,
    MrInit,
    MrRange,
    MwKind,
    NewCq,
    NewMr,
    NewMw,
    NewQp,
    Notify,
    Operations,
    SrqAttr,
    SrqChange,
    MAD_BYTES, //
};
use crate::{
    ah::AhAttr,
    device::{
        Device,
        DeviceMemory,
        DeviceRef, //
    },
    errno::EOPNOTSUPP,
    mmap::{
        map_ring,
        mmap_free_callback,
        RingFile, //
    },
    module,
    object::{
        Ah,
        Body,
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
        QpInit, //
    },
    registry,
    sg::{
        Cut,
        SgList, //
    },
    udata::Udata,
    upcall::{
        CqUpcall,
        QpUpcall,
        SrqUpcall, //
    }, //
};
use core::{
    mem::MaybeUninit,
    ptr::{
        self,
        NonNull, //
    }, //
};
use kernel::{
    error::from_result,
    ffi::{
        c_char,
        c_int,
        c_uint, //
    },
    prelude::*,
    sync::aref::ARef, //
};
use rdma_bindings as bindings;

/// Commands of the write interface that the core offers only to drivers that ask for them.
pub(crate) const COMMANDS: u64 = 1 << bindings::ib_uverbs_write_cmds_IB_USER_VERBS_CMD_POST_SEND
    | 1 << bindings::ib_uverbs_write_cmds_IB_USER_VERBS_CMD_REQ_NOTIFY_CQ;

/// Returns the operations of the driver `T`.
pub(crate) fn ops<T: Operations>() -> &'static bindings::ib_device_ops {
    &Table::<T>::OPS
}

struct Table<T>(core::marker::PhantomData<T>);

impl<T: Operations> Table<T> {
    const OPS: bindings::ib_device_ops = {
        // SAFETY: A zeroed table is one without operations.
        let mut ops: bindings::ib_device_ops = unsafe { core::mem::zeroed() };

        ops.driver_id = T::DRIVER_ID;
        ops.uverbs_abi_ver = T::UVERBS_ABI_VERSION;
        ops.size_ib_ucontext = Ucontext::<T>::SIZE;
        ops.size_ib_pd = Pd::<T>::SIZE;
        ops.size_ib_cq = Cq::<T>::SIZE;
        ops.size_ib_qp = Qp::<T>::SIZE;

        ops.device_group = (&raw const *sysfs::Attributes::<T>::GROUP).cast();
        ops.query_device = Some(query_device::<T>);
        ops.modify_device = Some(modify_device);
        ops.query_port = Some(query_port::<T>);
        ops.get_port_immutable = Some(get_port_immutable::<T>);
        ops.get_link_layer = Some(get_link_layer);
        ops.query_pkey = Some(query_pkey::<T>);
        ops.get_netdev = Some(get_netdev::<T>);
        ops.get_dev_fw_str = Some(get_dev_fw_str);
        ops.enable_driver = Some(enable_driver::<T>);
        ops.dealloc_driver = Some(dealloc_driver::<T>);
        if !T::COUNTERS.is_empty() {
            ops.alloc_hw_port_stats = Some(stats::alloc::<T>);
            ops.get_hw_stats = Some(stats::get::<T>);
        }
        if T::HAS_NEW_COUNTER {
            ops.size_rdma_counter = counter::Counter::<T>::SIZE;
            ops.counter_init = Some(counter::init);
            ops.counter_alloc_stats = Some(counter::stats::<T>);
            ops.counter_bind_qp = Some(counter::bind::<T>);
            ops.counter_unbind_qp = Some(counter::unbind::<T>);
            ops.counter_update_stats = Some(counter::update::<T>);
            ops.counter_dealloc = Some(counter::dealloc::<T>);
        }

        if T::HAS_PROCESS_MAD {
            ops.process_mad = Some(process_mad::<T>);
        }

        ops.alloc_ucontext = Some(alloc_ucontext::<T>);
        ops.dealloc_ucontext = Some(dealloc_ucontext::<T>);
        ops.disassociate_ucontext = Some(disassociate_ucontext);
        ops.mmap = Some(mmap::<T>);
        ops.mmap_free = Some(mmap_free_callback);

        ops.alloc_pd = Some(alloc_pd::<T>);
        ops.dealloc_pd = Some(dealloc_pd::<T>);

        ops.create_cq = Some(create_cq::<T>);
        if T::HAS_RESIZE_CQ {
            ops.resize_user_cq = Some(resize_cq::<T>);
        }
        ops.poll_cq = Some(poll_cq::<T>);
        ops.req_notify_cq = Some(req_notify_cq::<T>);
        ops.destroy_cq = Some(destroy_cq::<T>);

        ops.create_qp = Some(create_qp::<T>);
        ops.modify_qp = Some(modify_qp::<T>);
        ops.query_qp = Some(query_qp::<T>);
        ops.destroy_qp = Some(destroy_qp::<T>);
        ops.post_send = Some(post_send::<T>);
        ops.post_recv = Some(post_recv::<T>);
        if T::HAS_ATTACH_MCAST {
            ops.attach_mcast = Some(attach_mcast::<T>);
            ops.detach_mcast = Some(detach_mcast::<T>);
        }

        if T::HAS_CREATE_SRQ {
            ops.size_ib_srq = Srq::<T>::SIZE;
            ops.create_srq = Some(create_srq::<T>);
            ops.modify_srq = Some(modify_srq::<T>);
            ops.query_srq = Some(query_srq::<T>);
            ops.destroy_srq = Some(destroy_srq::<T>);
            if T::HAS_POST_SRQ_RECV {
                ops.post_srq_recv = Some(post_srq_recv::<T>);
            }
        }

        if T::HAS_CREATE_AH {
            ops.size_ib_ah = Ah::<T>::SIZE;
            ops.create_ah = Some(create_ah::<T>);
            ops.create_user_ah = Some(create_ah::<T>);
            if T::HAS_MODIFY_AH {
                ops.modify_ah = Some(modify_ah::<T>);
            }
            if T::HAS_QUERY_AH {
                ops.query_ah = Some(query_ah::<T>);
            }
            ops.destroy_ah = Some(destroy_ah::<T>);
        }

        if T::HAS_GET_DMA_MR {
            ops.get_dma_mr = Some(get_dma_mr::<T>);
        }
        if T::HAS_ALLOC_MR && T::HAS_MAP_MR_SG {
            ops.alloc_mr = Some(alloc_mr::<T>);
            ops.map_mr_sg = Some(map_mr_sg::<T>);
        }
        ops.reg_user_mr = Some(reg_user_mr::<T>);
        if T::HAS_REG_USER_MR_DMABUF {
            ops.reg_user_mr_dmabuf = Some(reg_user_mr_dmabuf::<T>);
        }
        if T::HAS_ADVISE_MR {
            ops.advise_mr = Some(advise_mr::<T>);
        }
        if T::HAS_REREG_USER_MR {
            ops.rereg_user_mr = Some(rereg_user_mr::<T>);
        }
        ops.dereg_mr = Some(dereg_mr::<T>);

        if T::HAS_ALLOC_MW {
            ops.size_ib_mw = Mw::<T>::SIZE;
            ops.alloc_mw = Some(alloc_mw::<T>);
            ops.dealloc_mw = Some(dealloc_mw::<T>);
        }

        ops.fill_res_qp_entry = Some(restrack::fill_qp::<T>);
        ops.fill_res_cq_entry = Some(restrack::fill_cq::<T>);
        ops.fill_res_mr_entry = Some(restrack::fill_mr::<T>);
        ops.fill_res_srq_entry = Some(restrack::fill_srq::<T>);
        ops
    };
}

/// Returns the errno of `result`, or 0.
fn to_errno(result: Result) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => error.to_errno(),
    }
}

// Devices and ports

/// Implements `ib_device_ops::query_device`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::query_device`. `device` must be a device of `T`
/// that a verb is called for. `attr` must be valid for reads and writes. `udata` must be null or
/// that of this verb.
unsafe extern "C" fn query_device<T: Operations>(
    device: *mut bindings::ib_device,
    attr: *mut bindings::ib_device_attr,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: The core passes the arguments of a verb.
        unsafe { Udata::new(udata) }?;
        // SAFETY: The core passes a device of ours.
        let device = unsafe { Device::<T>::from_raw(device) };
        let found = T::query_device(device)?;
        // SAFETY: The core passes attributes to fill in.
        let attr = unsafe { &mut *attr };
        found.fill(attr);
        if device.local_dma_lkey().is_some() {
            attr.kernel_cap_flags |= u64::from(bindings::ib_kernel_cap_flags_IBK_LOCAL_DMA_LKEY);
        }
        if T::HAS_ALLOC_MR && T::HAS_MAP_MR_SG {
            attr.kernel_cap_flags |= u64::from(bindings::ib_kernel_cap_flags_IBK_SG_GAPS_REG);
        }
        Ok(0)
    })
}

/// Stores a new description of the node. The core shows it, and leaves its change to the driver.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::modify_device`. `device` must be a valid device,
/// and `modify` a valid description of it.
unsafe extern "C" fn modify_device(
    device: *mut bindings::ib_device,
    mask: c_int,
    modify: *mut bindings::ib_device_modify,
) -> c_int {
    // CAST: A mask of bits.
    if mask as u32 & !bindings::ib_device_modify_flags_IB_DEVICE_MODIFY_NODE_DESC != 0 {
        return EOPNOTSUPP.to_errno();
    }
    if mask != 0 {
        // SAFETY: The core passes a valid device and description, both of the same length.
        unsafe { (*device).node_desc = (*modify).node_desc };
    }
    0
}

/// Writes the version of the module, as that of the firmware.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::get_dev_fw_str`. `to` must be valid for writes of
/// `IB_FW_VERSION_NAME_MAX` bytes.
unsafe extern "C" fn get_dev_fw_str(_device: *mut bindings::ib_device, to: *mut c_char) {
    const MOST: usize = bindings::IB_FW_VERSION_NAME_MAX as usize;
    // SAFETY: The core passes a buffer of this size.
    let to = unsafe { core::slice::from_raw_parts_mut(to.cast::<MaybeUninit<u8>>(), MOST) };
    let version = module::version().to_bytes().iter().take(MOST - 1);
    for (to, from) in to.iter_mut().zip(Iterator::chain(version, &[0])) {
        to.write(*from);
    }
}

/// Implements `ib_device_ops::query_port`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::query_port`. `device` must be a device of `T` that
/// a verb is called for. `attr` must be valid for reads and writes.
unsafe extern "C" fn query_port<T: Operations>(
    device: *mut bindings::ib_device,
    port: u32,
    attr: *mut bindings::ib_port_attr,
) -> c_int {
    from_result(|| {
        // SAFETY: The core passes a device of ours.
        let found = T::query_port(unsafe { Device::from_raw(device) }, port)?;
        // SAFETY: The core passes zeroed attributes to fill in.
        found.fill(unsafe { &mut *attr });
        Ok(0)
    })
}

/// Implements `ib_device_ops::get_port_immutable`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::get_port_immutable`. `device` must be a device of
/// `T`. `immutable` must be valid for reads and writes.
unsafe extern "C" fn get_port_immutable<T: Operations>(
    device: *mut bindings::ib_device,
    port: u32,
    immutable: *mut bindings::ib_port_immutable,
) -> c_int {
    from_result(|| {
        // SAFETY: The core passes a device of ours.
        let found = T::port_immutable(unsafe { Device::from_raw(device) }, port)?;
        // SAFETY: The core passes zeroed attributes to fill in.
        found.fill(unsafe { &mut *immutable });
        Ok(0)
    })
}

/// Implements `ib_device_ops::get_link_layer`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::get_link_layer`. Neither argument is used.
unsafe extern "C" fn get_link_layer(
    _device: *mut bindings::ib_device,
    _port: u32,
) -> bindings::rdma_link_layer {
    bindings::rdma_link_layer_IB_LINK_LAYER_ETHERNET
}

/// Implements `ib_device_ops::query_pkey`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::query_pkey`. `device` must be a device of `T` that
/// a verb is called for. `pkey` must be valid for writes.
unsafe extern "C" fn query_pkey<T: Operations>(
    device: *mut bindings::ib_device,
    port: u32,
    index: u16,
    pkey: *mut u16,
) -> c_int {
    from_result(|| {
        // SAFETY: The core passes a device of ours.
        let found = T::query_pkey(unsafe { Device::from_raw(device) }, port, index)?;
        // SAFETY: The core passes a place for the key.
        unsafe { *pkey = found };
        Ok(0)
    })
}

/// Implements `ib_device_ops::get_netdev`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::get_netdev`. `device` must be a device of `T` that
/// a verb is called for.
unsafe extern "C" fn get_netdev<T: Operations>(
    device: *mut bindings::ib_device,
    port: u32,
) -> *mut bindings::net_device {
    // SAFETY: The core passes a device of ours.
    match T::get_netdev(unsafe { Device::from_raw(device) }, port) {
        // The core gives the reference back.
        Some(netdev) => ARef::into_raw(netdev).as_ptr().cast(),
        None => ptr::null_mut(),
    }
}

/// Implements `ib_device_ops::enable_driver`.
///
/// # Safety
///
/// Only the core may call it, with a device of `T` that it holds registered.
unsafe extern "C" fn enable_driver<T: Operations>(ib: *mut bindings::ib_device) -> c_int {
    if let Some(ib) = NonNull::new(ib) {
        // SAFETY: The device is valid, and was made for `T`.
        let device = unsafe { DeviceRef::<T>::from_memory(DeviceMemory::get(ib)) };
        if let Some(device) = device.try_get() {
            T::enabled(&device);
        }
    }
    0
}

/// Ends a device. It is the last call of the core for the device. May sleep.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::dealloc_driver`. `ib` must be a device of `T` that
/// is not registered any more, and nobody may use its data afterwards.
unsafe extern "C" fn dealloc_driver<T: Operations>(ib: *mut bindings::ib_device) {
    // SAFETY: The core passes a device of ours. Its data are dropped only below.
    T::dealloc(unsafe { Device::<T>::from_raw(ib) });
    if let Some(ib) = NonNull::new(ib) {
        registry::forget(ib);
        // SAFETY: There is no other reference to the data: the device is not registered any more,
        // and the core makes no further calls.
        unsafe { Device::<T>::destroy(ib) };
    }
}

/// Implements `ib_device_ops::process_mad`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::process_mad`. `device` must be a device of `T`
/// that a verb is called for. `request` must be valid for reads, and `reply` for writes.
unsafe extern "C" fn process_mad<T: Operations>(
    device: *mut bindings::ib_device,
    _flags: c_int,
    port: u32,
    _wc: *const bindings::ib_wc,
    _grh: *const bindings::ib_grh,
    request: *const bindings::ib_mad,
    reply: *mut bindings::ib_mad,
    _reply_size: *mut usize,
    _reply_pkey_index: *mut u16,
) -> c_int {
    // SAFETY: The core passes a device of ours and a valid datagram, of plain bytes.
    let answer = unsafe { T::process_mad(Device::from_raw(device), port, &*request.cast()) };
    let mut result = bindings::ib_mad_result_IB_MAD_RESULT_SUCCESS;
    if let Some(answer) = answer {
        // SAFETY: The core passes a place for a datagram.
        unsafe { reply.cast::<[u8; MAD_BYTES]>().write(answer) };
        result |= bindings::ib_mad_result_IB_MAD_RESULT_REPLY;
    }
    // CAST: Flags of four bits.
    result as c_int
}

// Contexts

/// Implements `ib_device_ops::alloc_ucontext`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::alloc_ucontext`. `ucontext` must be a new object
/// that the core allocated for a device of `T`. `udata` must be null or that of this verb.
unsafe extern "C" fn alloc_ucontext<T: Operations>(
    ucontext: *mut bindings::ib_ucontext,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: The core passes the arguments of a verb.
        let mut udata = unsafe { Udata::new(udata) }?;
        // SAFETY: The core has set the device of the new context, one of ours.
        let device = unsafe { Device::from_raw((*ucontext).device) };
        let data = T::alloc_ucontext(device, &mut udata)?;
        let body = Body::new(data, RingFile::new(device)?, udata.into_mappings());
        // SAFETY: The core passes a context that it has allocated for us.
        unsafe { Ucontext::<T>::create(ucontext, body) };
        Ok(0)
    })
}

/// Implements `ib_device_ops::dealloc_ucontext`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::dealloc_ucontext`. `ucontext` must be a context of
/// a device of `T` that was created, and nobody may use it afterwards.
unsafe extern "C" fn dealloc_ucontext<T: Operations>(ucontext: *mut bindings::ib_ucontext) {
    // SAFETY: The core passes a context that was created, for the last time.
    unsafe { Ucontext::<T>::destroy(ucontext) };
}

/// Handles the removal of a device that processes have open.
///
/// A driver with this operation does not wait for them: the core destroys all their objects first.
/// Their mappings have ordinary pages, which stay as they are.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::disassociate_ucontext`. The argument is not used.
unsafe extern "C" fn disassociate_ucontext(_ucontext: *mut bindings::ib_ucontext) {}

/// Maps the ring that the area's offset names.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::mmap`. `ucontext` must be a context of a device of
/// `T` that was created, and `vma` the area that is being mapped.
unsafe extern "C" fn mmap<T: Operations>(
    ucontext: *mut bindings::ib_ucontext,
    vma: *mut bindings::vm_area_struct,
) -> c_int {
    // SAFETY: The core passes a context of ours, which was created.
    let file = unsafe { Ucontext::<T>::from_raw(ucontext) }.ring_file();
    // SAFETY: The core calls `mmap` for that area, and all entries of our contexts are of this
    // crate.
    to_errno(unsafe { map_ring(ucontext, vma, file) })
}

// Protection domains

/// Implements `ib_device_ops::alloc_pd`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::alloc_pd`. `pd` must be a new object that the core
/// allocated for a device of `T`. `udata` must be null or that of this verb.
unsafe extern "C" fn alloc_pd<T: Operations>(
    pd: *mut bindings::ib_pd,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: The core passes the arguments of a verb.
        let mut udata = unsafe { Udata::new(udata) }?;
        // SAFETY: The core has set the device of the new object, one of ours.
        let device = unsafe { Device::from_raw((*pd).device) };
        let ucontext = udata
            .ucontext()
            // SAFETY: The context of a verb was created and is alive.
            .map(|ucontext| unsafe { Ucontext::from_raw(ucontext.as_ptr()) });
        let data = T::alloc_pd(device, ucontext, &mut udata)?;
        // SAFETY: The core passes an object that it has allocated for us.
        unsafe { Pd::<T>::create(pd, Body::new(data, (), udata.into_mappings())) };
        Ok(0)
    })
}

/// Implements `ib_device_ops::dealloc_pd`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::dealloc_pd`. `pd` must be a domain of a device of
/// `T` that was created, and nobody may use it afterwards.
unsafe extern "C" fn dealloc_pd<T: Operations>(
    pd: *mut bindings::ib_pd,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: The core passes an object that was created, for the last time.
    unsafe { Pd::<T>::destroy(pd) };
    0
}

// Completion queues

/// Implements `ib_device_ops::create_cq`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::create_cq`. `cq` must be a new object that the
/// core allocated for a device of `T`. `attr` must be valid for reads, and `attrs` null or the
/// bundle of this verb.
unsafe extern "C" fn create_cq<T: Operations>(
    cq: *mut bindings::ib_cq,
    attr: *const bindings::ib_cq_init_attr,
    attrs: *mut bindings::uverbs_attr_bundle,
) -> c_int {
    from_result(|| {
        let udata = if attrs.is_null() {
            ptr::null_mut()
        } else {
            // SAFETY: The core passes a valid bundle.
            unsafe { &raw mut (*attrs).__bindgen_anon_1.hdr.driver_udata }
        };
        // SAFETY: The core passes the arguments of a verb.
        let mut udata = unsafe { Udata::new(udata) }?;
        // SAFETY: The core has set the device of the new object, one of ours.
        let device = unsafe { Device::from_raw((*cq).device) };
        // SAFETY: The core passes valid attributes.
        let attr = unsafe { &*attr };
        let init = CqInit {
            cqe: attr.cqe,
            comp_vector: attr.comp_vector,
            flags: attr.flags,
        };
        // SAFETY: The object is valid until it is destroyed, which drops the gate.
        let (gate, upcall) = unsafe { CqUpcall::new(NonNull::new(cq).ok_or(EINVAL)?) }?;
        let NewCq { data, cqe } = T::create_cq(device, &init, upcall, &mut udata)?;
        // SAFETY: The core passes an object that it has allocated for us.
        unsafe {
            Cq::<T>::create(cq, Body::new(data, gate, udata.into_mappings()));
            (*cq).cqe = c_int::try_from(cqe).unwrap_or(c_int::MAX);
        }
        Ok(0)
    })
}

/// Implements `ib_device_ops::resize_user_cq`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::resize_user_cq`. `cq` must be a completion queue
/// of a device of `T` that was created. `udata` must be null or that of this verb.
unsafe extern "C" fn resize_cq<T: Operations>(
    cq: *mut bindings::ib_cq,
    cqe: u32,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: The core passes the arguments of a verb.
        let udata = unsafe { Udata::new(udata) }?;
        // SAFETY: The core passes an object that was created.
        let object = unsafe { Cq::<T>::from_raw(cq) };
        object.resize(udata, |udata| {
            let cqe = T::resize_cq(object, cqe, udata)?;
            // SAFETY: The core passes a valid queue, and reads this number after the call.
            unsafe { (*cq).cqe = c_int::try_from(cqe).unwrap_or(c_int::MAX) };
            Ok(())
        })?;
        Ok(0)
    })
}

/// Implements `ib_device_ops::req_notify_cq`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::req_notify_cq`. `cq` must be a completion queue of
/// a device of `T` that was created.
unsafe extern "C" fn req_notify_cq<T: Operations>(
    cq: *mut bindings::ib_cq,
    flags: bindings::ib_cq_notify_flags,
) -> c_int {
    from_result(|| {
        let notify = if flags & bindings::ib_cq_notify_flags_IB_CQ_NEXT_COMP != 0 {
            Notify::Next
        } else {
            Notify::Solicited
        };
        // SAFETY: The core passes an object that was created.
        let holds_some = T::req_notify_cq(unsafe { Cq::from_raw(cq) }, notify)?;
        let wants_to_know = flags & bindings::ib_cq_notify_flags_IB_CQ_REPORT_MISSED_EVENTS != 0;
        Ok((holds_some && wants_to_know).into())
    })
}

/// Polls a completion queue of the kernel. A process polls the ring that it maps. A poll of the
/// core for a process is refused, because the process owns the consumer's end of its ring.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::poll_cq`. `cq` must be a completion queue of a
/// device of `T` that was created. `wcs` must be valid for writes of `count` completions.
unsafe extern "C" fn poll_cq<T: Operations>(
    cq: *mut bindings::ib_cq,
    count: c_int,
    wcs: *mut bindings::ib_wc,
) -> c_int {
    // SAFETY: The core passes an object that was created.
    let object = unsafe { Cq::<T>::from_raw(cq) };
    if object.is_user() {
        return EOPNOTSUPP.to_errno();
    }
    // SAFETY: The core passes room for as many completions.
    let mut completions = unsafe { Completions::new(wcs, count) };
    match T::poll_cq(object, &mut completions) {
        Ok(()) => completions.filled(),
        Err(error) => error.to_errno(),
    }
}

/// Implements `ib_device_ops::destroy_cq`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::destroy_cq`. `cq` must be a completion queue of a
/// device of `T` that was created, and nobody may use it afterwards.
unsafe extern "C" fn destroy_cq<T: Operations>(
    cq: *mut bindings::ib_cq,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: The core passes an object that was created.
    T::destroy_cq(unsafe { Cq::from_raw(cq) });
    // SAFETY: The core passes an object that was created, for the last time.
    unsafe { Cq::<T>::destroy(cq) };
    0
}

// Queue pairs

/// Implements `ib_device_ops::create_qp`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::create_qp`. `qp` must be a new object that the
/// core allocated for a device of `T`. `attr` must be valid, with queues of that device that the
/// core holds. `udata` must be null or that of this verb.
unsafe extern "C" fn create_qp<T: Operations>(
    qp: *mut bindings::ib_qp,
    attr: *mut bindings::ib_qp_init_attr,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: The core passes the arguments of a verb.
        let mut udata = unsafe { Udata::new(udata) }?;
        // SAFETY: The core passes valid attributes.
        let attr = unsafe { &mut *attr };
        // SAFETY: The core passes completion queues of the same device, and holds them.
        let mut init = unsafe { QpInit::from_raw(attr) }?;
        // SAFETY: The core has set the domain of the new object, if it has one, and holds it.
        let pd = unsafe { (*qp).pd };
        if pd.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: The domain was created for a device of `T`, and the core holds it.
        let pd = unsafe { Pd::from_raw(pd) };
        // SAFETY: The object is valid until it is destroyed, which drops the gate.
        let (gate, upcall) = unsafe { QpUpcall::new(NonNull::new(qp).ok_or(EINVAL)?) }?;
        let NewQp { data, qp_num } = T::create_qp(pd, &mut init, upcall, &mut udata)?;
        init.caps.fill(&mut attr.cap);
        // SAFETY: The core passes an object that it has allocated for us.
        unsafe {
            (*qp).qp_num = qp_num;
            Qp::<T>::create(qp, Body::new(data, gate, udata.into_mappings()));
        }
        Ok(0)
    })
}

/// Implements `ib_device_ops::modify_qp`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::modify_qp`. `qp` must be a queue pair of a device
/// of `T` that was created. `attr` must be valid for reads. `udata` must be null or that of this
/// verb.
unsafe extern "C" fn modify_qp<T: Operations>(
    qp: *mut bindings::ib_qp,
    attr: *mut bindings::ib_qp_attr,
    mask: c_int,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: The core passes the arguments of a verb.
        unsafe { Udata::new(udata) }?;
        // SAFETY: The core passes valid attributes, and holds the GID attribute of an address
        // vector during the call. CAST: A mask of bits.
        let attr = unsafe { QpAttr::from_raw(&*attr, mask as u32) }?;
        // SAFETY: The core passes an object that was created.
        T::modify_qp(unsafe { Qp::from_raw(qp) }, &attr)?;
        Ok(0)
    })
}

/// Implements `ib_device_ops::query_qp`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::query_qp`. `qp` must be a queue pair of a device
/// of `T` that was created. `attr` and `init` must be valid for writes.
unsafe extern "C" fn query_qp<T: Operations>(
    qp: *mut bindings::ib_qp,
    attr: *mut bindings::ib_qp_attr,
    _mask: c_int,
    init: *mut bindings::ib_qp_init_attr,
) -> c_int {
    from_result(|| {
        // SAFETY: The core passes an object that was created.
        let info = T::query_qp(unsafe { Qp::from_raw(qp) })?;
        // SAFETY: A zeroed attribute is a valid one.
        let mut raw: bindings::ib_qp_init_attr = unsafe { core::mem::zeroed() };
        // SAFETY: The object is valid, and the core doesn't change these.
        unsafe {
            raw.event_handler = (*qp).registered_event_handler;
            raw.qp_context = (*qp).qp_context;
            raw.send_cq = (*qp).send_cq;
            raw.recv_cq = (*qp).recv_cq;
            raw.srq = (*qp).srq;
            raw.qp_type = (*qp).qp_type;
        }
        info.caps.fill(&mut raw.cap);
        raw.sq_sig_type = if info.sq_sig_all {
            bindings::ib_sig_type_IB_SIGNAL_ALL_WR
        } else {
            bindings::ib_sig_type_IB_SIGNAL_REQ_WR
        };
        // SAFETY: The core passes attributes to fill in.
        unsafe {
            attr.write(info.to_raw());
            init.write(raw);
        }
        Ok(0)
    })
}

/// Implements `ib_device_ops::destroy_qp`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::destroy_qp`. `qp` must be a queue pair of a device
/// of `T` that was created, and nobody may use it afterwards.
unsafe extern "C" fn destroy_qp<T: Operations>(
    qp: *mut bindings::ib_qp,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: The core passes an object that was created.
    T::destroy_qp(unsafe { Qp::from_raw(qp) });
    // SAFETY: The core passes an object that was created, for the last time.
    unsafe { Qp::<T>::destroy(qp) };
    0
}

/// Handles a doorbell, or posts sends of the kernel. A call without requests is the doorbell of a
/// process, which has put its requests into the ring. Requests that a process passes by the core
/// are refused, as their SGEs would be taken for the kernel's.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::post_send`. `qp` must be a queue pair of a device
/// of `T` that was created. `wr` must be null or a list of valid requests, and `bad_wr` null or
/// valid for writes.
unsafe extern "C" fn post_send<T: Operations>(
    qp: *mut bindings::ib_qp,
    wr: *const bindings::ib_send_wr,
    bad_wr: *mut *const bindings::ib_send_wr,
) -> c_int {
    // SAFETY: The core passes an object that was created.
    let object = unsafe { Qp::<T>::from_raw(qp) };
    if object.is_user() && wr.is_null() {
        return to_errno(T::doorbell(object));
    }
    // SAFETY: The queue pair is valid; nobody changes the type of one that the kernel owns.
    let qp_type = unsafe { (*qp).qp_type };
    let is_datagram = matches!(
        qp_type,
        bindings::ib_qp_type_IB_QPT_UD | bindings::ib_qp_type_IB_QPT_GSI
    );
    // SAFETY: The core passes the list of its user, of requests for such a queue pair.
    let mut list = unsafe { SendList::new(wr, is_datagram) };
    let posted = if object.is_user() {
        Err(EOPNOTSUPP)
    } else {
        T::post_send(object, &mut list)
    };
    if posted.is_err() && !bad_wr.is_null() {
        // SAFETY: The core passes a place for the request that failed.
        unsafe { *bad_wr = list.current() };
    }
    to_errno(posted)
}

/// Implements `ib_device_ops::post_recv`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::post_recv`. `qp` must be a queue pair of a device
/// of `T` that was created. `wr` must be null or a list of valid requests, and `bad_wr` null or
/// valid for writes.
unsafe extern "C" fn post_recv<T: Operations>(
    qp: *mut bindings::ib_qp,
    wr: *const bindings::ib_recv_wr,
    bad_wr: *mut *const bindings::ib_recv_wr,
) -> c_int {
    // SAFETY: The core passes an object that was created.
    let object = unsafe { Qp::<T>::from_raw(qp) };
    // SAFETY: The core passes a list of valid requests and a place for the one that fails.
    unsafe {
        post_recvs(object.is_user(), wr, bad_wr, |list| {
            T::post_recv(object, list)
        })
    }
}

/// Posts receives of the kernel by `post`. Receives that a process passes by the core are refused,
/// as their SGEs would be taken for the kernel's.
///
/// # Safety
///
/// `wr` must be null or a list of valid requests, and `bad_wr` null or valid for writes.
unsafe fn post_recvs(
    is_user: bool,
    wr: *const bindings::ib_recv_wr,
    bad_wr: *mut *const bindings::ib_recv_wr,
    post: impl FnOnce(&mut RecvList<'_>) -> Result,
) -> c_int {
    // SAFETY: The core passes the list of its user.
    let mut list = unsafe { RecvList::new(wr) };
    let posted = if is_user {
        Err(EOPNOTSUPP)
    } else {
        post(&mut list)
    };
    if posted.is_err() && !bad_wr.is_null() {
        // SAFETY: The core passes a place for the request that failed.
        unsafe { *bad_wr = list.current() };
    }
    to_errno(posted)
}

/// Implements `ib_device_ops::attach_mcast`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::attach_mcast`. `qp` must be a queue pair of a
/// device of `T` that was created. `gid` must be valid for reads.
unsafe extern "C" fn attach_mcast<T: Operations>(
    qp: *mut bindings::ib_qp,
    gid: *mut bindings::ib_gid,
    _lid: u16,
) -> c_int {
    // SAFETY: The core passes a valid GID, all members of which are plain bytes.
    let mgid = unsafe { (*gid).raw };
    // SAFETY: The core passes an object that was created.
    to_errno(T::attach_mcast(unsafe { Qp::from_raw(qp) }, mgid))
}

/// Implements `ib_device_ops::detach_mcast`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::detach_mcast`. `qp` must be a queue pair of a
/// device of `T` that was created. `gid` must be valid for reads.
unsafe extern "C" fn detach_mcast<T: Operations>(
    qp: *mut bindings::ib_qp,
    gid: *mut bindings::ib_gid,
    _lid: u16,
) -> c_int {
    // SAFETY: The core passes a valid GID, all members of which are plain bytes.
    let mgid = unsafe { (*gid).raw };
    // SAFETY: The core passes an object that was created.
    to_errno(T::detach_mcast(unsafe { Qp::from_raw(qp) }, mgid))
}

// Shared receive queues

/// Implements `ib_device_ops::create_srq`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::create_srq`. `srq` must be a new object that the
/// core allocated for a device of `T`. `init` must be valid for reads and writes. `udata` must be
/// null or that of this verb.
unsafe extern "C" fn create_srq<T: Operations>(
    srq: *mut bindings::ib_srq,
    init: *mut bindings::ib_srq_init_attr,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: The core passes the arguments of a verb.
        let mut udata = unsafe { Udata::new(udata) }?;
        // SAFETY: The core passes valid attributes.
        let init = unsafe { &mut *init };
        if init.srq_type != bindings::ib_srq_type_IB_SRQT_BASIC {
            return Err(EOPNOTSUPP);
        }
        // SAFETY: The core has set the domain of the new object, and holds it.
        let pd = unsafe { Pd::from_raw((*srq).pd) };
        let mut attr = SrqAttr {
            max_wr: init.attr.max_wr,
            max_sge: init.attr.max_sge,
            limit: init.attr.srq_limit,
        };
        // SAFETY: The object is valid until it is destroyed, which drops the gate.
        let (gate, upcall) = unsafe { SrqUpcall::new(NonNull::new(srq).ok_or(EINVAL)?) }?;
        let data = T::create_srq(pd, &mut attr, upcall, &mut udata)?;
        init.attr.max_wr = attr.max_wr;
        init.attr.max_sge = attr.max_sge;
        // SAFETY: The core passes an object that it has allocated for us.
        unsafe { Srq::<T>::create(srq, Body::new(data, gate, udata.into_mappings())) };
        Ok(0)
    })
}

/// Implements `ib_device_ops::modify_srq`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::modify_srq`. `srq` must be a receive queue of a
/// device of `T` that was created. `attr` must be valid for reads. `udata` must be null or that of
/// this verb.
unsafe extern "C" fn modify_srq<T: Operations>(
    srq: *mut bindings::ib_srq,
    attr: *mut bindings::ib_srq_attr,
    mask: bindings::ib_srq_attr_mask,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        let has = |bit: u32| mask & bit != 0;
        let known =
            bindings::ib_srq_attr_mask_IB_SRQ_MAX_WR | bindings::ib_srq_attr_mask_IB_SRQ_LIMIT;
        if mask & !known != 0 {
            return Err(EINVAL);
        }
        // SAFETY: The core passes valid attributes.
        let attr = unsafe { &*attr };
        let change = SrqChange {
            max_wr: has(bindings::ib_srq_attr_mask_IB_SRQ_MAX_WR).then_some(attr.max_wr),
            limit: has(bindings::ib_srq_attr_mask_IB_SRQ_LIMIT).then_some(attr.srq_limit),
        };
        // SAFETY: The core passes the arguments of a verb.
        let mut udata = unsafe { Udata::with_address(udata) }?;
        // SAFETY: The core passes an object that was created.
        let object = unsafe { Srq::<T>::from_raw(srq) };
        if change.max_wr.is_some() {
            object.resize(udata, |udata| T::modify_srq(object, &change, udata))?;
        } else {
            T::modify_srq(object, &change, &mut udata)?;
        }
        Ok(0)
    })
}

/// Implements `ib_device_ops::query_srq`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::query_srq`. `srq` must be a receive queue of a
/// device of `T` that was created. `attr` must be valid for writes.
unsafe extern "C" fn query_srq<T: Operations>(
    srq: *mut bindings::ib_srq,
    attr: *mut bindings::ib_srq_attr,
) -> c_int {
    // SAFETY: The core passes an object that was created.
    let found = T::query_srq(unsafe { Srq::from_raw(srq) });
    // SAFETY: The core passes attributes to fill in.
    unsafe {
        (*attr).max_wr = found.max_wr;
        (*attr).max_sge = found.max_sge;
        (*attr).srq_limit = found.limit;
    }
    0
}

/// Implements `ib_device_ops::destroy_srq`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::destroy_srq`. `srq` must be a receive queue of a
/// device of `T` that was created, and nobody may use it afterwards.
unsafe extern "C" fn destroy_srq<T: Operations>(
    srq: *mut bindings::ib_srq,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: The core passes an object that was created, for the last time.
    unsafe { Srq::<T>::destroy(srq) };
    0
}

/// Implements `ib_device_ops::post_srq_recv`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::post_srq_recv`. `srq` must be a receive queue of a
/// device of `T` that was created. `wr` must be null or a list of valid requests, and `bad_wr` null
/// or valid for writes.
unsafe extern "C" fn post_srq_recv<T: Operations>(
    srq: *mut bindings::ib_srq,
    wr: *const bindings::ib_recv_wr,
    bad_wr: *mut *const bindings::ib_recv_wr,
) -> c_int {
    // SAFETY: The core passes an object that was created.
    let object = unsafe { Srq::<T>::from_raw(srq) };
    // SAFETY: The core passes a list of valid requests and a place for the one that fails.
    unsafe {
        post_recvs(object.is_user(), wr, bad_wr, |list| {
            T::post_srq_recv(object, list)
        })
    }
}

// Address handles

/// Implements `ib_device_ops::create_ah` and `ib_device_ops::create_user_ah`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::create_ah` and `ib_device_ops::create_user_ah`.
/// `ah` must be a new object that the core allocated for a device of `T`. `init` must be valid,
/// with a GID attribute that the core holds. `udata` must be null or that of this verb.
unsafe extern "C" fn create_ah<T: Operations>(
    ah: *mut bindings::ib_ah,
    init: *mut bindings::rdma_ah_init_attr,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: The core passes the arguments of a verb.
        let mut udata = unsafe { Udata::new(udata) }?;
        // SAFETY: The core passes valid attributes, and holds the GID attribute during the call.
        let attr = unsafe { AhAttr::new(&*(*init).ah_attr) }?;
        // SAFETY: The core has set the domain of the new object, and holds it.
        let pd = unsafe { Pd::from_raw((*ah).pd) };
        let data = T::create_ah(pd, &attr, &mut udata)?;
        // SAFETY: The core passes an object that it has allocated for us.
        unsafe { Ah::<T>::create(ah, Body::new(data, (), udata.into_mappings())) };
        Ok(0)
    })
}

/// Implements `ib_device_ops::modify_ah`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::modify_ah`. `ah` must be an address handle of a
/// device of `T` that was created. `attr` must be valid, with a GID attribute that the core holds.
unsafe extern "C" fn modify_ah<T: Operations>(
    ah: *mut bindings::ib_ah,
    attr: *mut bindings::rdma_ah_attr,
) -> c_int {
    from_result(|| {
        // SAFETY: The core passes valid attributes, and holds the GID attribute during the call.
        let attr = unsafe { AhAttr::new(&*attr) }?;
        // SAFETY: The core passes an object that was created.
        T::modify_ah(unsafe { Ah::from_raw(ah) }, &attr)?;
        Ok(0)
    })
}

/// Implements `ib_device_ops::query_ah`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::query_ah`. `ah` must be an address handle of a
/// device of `T` that was created. `attr` must be valid for writes.
unsafe extern "C" fn query_ah<T: Operations>(
    ah: *mut bindings::ib_ah,
    attr: *mut bindings::rdma_ah_attr,
) -> c_int {
    from_result(|| {
        // SAFETY: The core passes an object that was created.
        let info = T::query_ah(unsafe { Ah::from_raw(ah) })?;
        // SAFETY: The core passes attributes to fill in.
        unsafe { attr.write(info.to_raw()) };
        Ok(0)
    })
}

/// Implements `ib_device_ops::destroy_ah`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::destroy_ah`. `ah` must be an address handle of a
/// device of `T` that was created, and nobody may use it afterwards.
unsafe extern "C" fn destroy_ah<T: Operations>(ah: *mut bindings::ib_ah, _flags: u32) -> c_int {
    // SAFETY: The core passes an object that was created.
    T::destroy_ah(unsafe { Ah::from_raw(ah) });
    // SAFETY: The core passes an object that was created, for the last time.
    unsafe { Ah::<T>::destroy(ah) };
    0
}

// Memory regions

/// Creates the object of a region. The core leaves its allocation to the driver.
///
/// Some paths of the core set the address and length, and others do not. Both are set here.
fn new_mr<T: Operations>(
    iova: u64,
    length: u64,
    create: impl FnOnce() -> Result<NewMr<T::Mr>>,
) -> Result<*mut bindings::ib_mr> {
    let mut memory = KBox::<Mr<T>>::new_uninit(GFP_KERNEL_ACCOUNT)?;
    let ib: *mut bindings::ib_mr = memory.as_mut_ptr().cast();
    // SAFETY: The object is the first field, and zeroes are valid for it. The core expects them in
    // all fields that are not set below.
    unsafe { ib.write_bytes(0, 1) };
    let NewMr { data, lkey, rkey } = create()?;
    // SAFETY: The memory is ours, and has room for all of it.
    unsafe {
        (*ib).lkey = lkey;
        (*ib).rkey = rkey;
        (*ib).iova = iova;
        (*ib).length = length;
        Mr::<T>::create(ib, Body::new(data, (), Default::default()));
    }
    let _ = KBox::into_raw(memory);
    Ok(ib)
}

/// Implements `ib_device_ops::get_dma_mr`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::get_dma_mr`. `pd` must be a domain of a device of
/// `T` that was created.
unsafe extern "C" fn get_dma_mr<T: Operations>(
    pd: *mut bindings::ib_pd,
    access: c_int,
) -> *mut bindings::ib_mr {
    // SAFETY: The core passes an object that was created.
    let pd = unsafe { Pd::from_raw(pd) };
    // CAST: A mask of bits.
    match new_mr::<T>(0, u64::MAX, || T::get_dma_mr(pd, access as u32)) {
        Ok(mr) => mr,
        Err(error) => error.to_ptr(),
    }
}

/// Implements `ib_device_ops::alloc_mr`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::alloc_mr`. `pd` must be a domain of a device of
/// `T` that was created.
unsafe extern "C" fn alloc_mr<T: Operations>(
    pd: *mut bindings::ib_pd,
    mr_type: bindings::ib_mr_type,
    max_pages: u32,
) -> *mut bindings::ib_mr {
    if !matches!(
        mr_type,
        bindings::ib_mr_type_IB_MR_TYPE_MEM_REG | bindings::ib_mr_type_IB_MR_TYPE_SG_GAPS
    ) {
        return EOPNOTSUPP.to_ptr();
    }
    // SAFETY: The core passes an object that was created.
    let pd = unsafe { Pd::from_raw(pd) };
    match new_mr::<T>(0, 0, || T::alloc_mr(pd, max_pages)) {
        Ok(mr) => mr,
        Err(error) => error.to_ptr(),
    }
}

/// Implements `ib_device_ops::map_mr_sg`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::map_mr_sg`. `mr` must be a region of a device of
/// `T` that was created. `list` must have `count` valid elements, and `offset` must be null or
/// valid for reads and writes.
unsafe extern "C" fn map_mr_sg<T: Operations>(
    mr: *mut bindings::ib_mr,
    list: *mut bindings::scatterlist,
    count: c_int,
    offset: *mut c_uint,
) -> c_int {
    from_result(|| {
        // SAFETY: The core passes a region that was allocated, and has set the size of its pages.
        let (mr_type, page_size) = unsafe { ((*mr).type_, (*mr).page_size) };
        let cut = if mr_type == bindings::ib_mr_type_IB_MR_TYPE_SG_GAPS {
            Cut::Elements
        } else {
            Cut::Pages(page_size)
        };
        // SAFETY: The core passes the list of its user.
        let mut list = unsafe { SgList::new(list, count, offset, cut) };
        // SAFETY: The core passes an object that was created.
        T::map_mr_sg(unsafe { Mr::from_raw(mr) }, &mut list)?;
        let laid = list.done();
        // SAFETY: The core passes a valid region; its user does nothing else with it meanwhile.
        unsafe {
            (*mr).iova = laid.iova;
            (*mr).length = laid.length;
        }
        Ok(laid.elements)
    })
}

/// Implements `ib_device_ops::reg_user_mr`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::reg_user_mr`. `pd` must be a domain of a device of
/// `T` that was created. `udata` must be null or that of this verb.
unsafe extern "C" fn reg_user_mr<T: Operations>(
    pd: *mut bindings::ib_pd,
    start: u64,
    length: u64,
    iova: u64,
    access: c_int,
    dmah: *mut bindings::ib_dmah,
    udata: *mut bindings::ib_udata,
) -> *mut bindings::ib_mr {
    let register = || {
        // The handle is a hint for the steering of DMA, and there is no DMA.
        if !dmah.is_null() {
            return Err(EOPNOTSUPP);
        }
        // SAFETY: The core passes the arguments of a verb.
        let mut udata = unsafe { Udata::new(udata) }?;
        // SAFETY: The core passes an object that was created.
        let pd = unsafe { Pd::from_raw(pd) };
        let init = MrInit {
            start,
            length,
            iova,
            // CAST: A mask of bits.
            access: access as u32,
        };
        new_mr::<T>(iova, length, || T::reg_user_mr(pd, &init, &mut udata))
    };
    match register() {
        Ok(mr) => mr,
        Err(error) => error.to_ptr(),
    }
}

/// Implements `ib_device_ops::reg_user_mr_dmabuf`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::reg_user_mr_dmabuf`. `pd` must be a domain of a
/// device of `T` that was created.
unsafe extern "C" fn reg_user_mr_dmabuf<T: Operations>(
    pd: *mut bindings::ib_pd,
    offset: u64,
    length: u64,
    iova: u64,
    fd: c_int,
    access: c_int,
    dmah: *mut bindings::ib_dmah,
    _attrs: *mut bindings::uverbs_attr_bundle,
) -> *mut bindings::ib_mr {
    let register = || {
        // The handle is a hint for the steering of DMA, and there is no DMA.
        if !dmah.is_null() {
            return Err(EOPNOTSUPP);
        }
        // SAFETY: The core passes an object that was created.
        let pd = unsafe { Pd::from_raw(pd) };
        let init = DmaBufInit {
            fd,
            offset,
            length,
            iova,
            // CAST: A mask of bits.
            access: access as u32,
        };
        new_mr::<T>(iova, length, || T::reg_user_mr_dmabuf(pd, &init))
    };
    match register() {
        Ok(mr) => mr,
        Err(error) => error.to_ptr(),
    }
}

/// Implements `ib_device_ops::advise_mr`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::advise_mr`. `pd` must be a domain of a device of
/// `T` that was created. `ranges` must have `count` valid elements, at least one.
unsafe extern "C" fn advise_mr<T: Operations>(
    pd: *mut bindings::ib_pd,
    advice: bindings::ib_uverbs_advise_mr_advice,
    flags: u32,
    ranges: *mut bindings::ib_sge,
    count: u32,
    _attrs: *mut bindings::uverbs_attr_bundle,
) -> c_int {
    use bindings::{
        ib_uverbs_advise_mr_advice_IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH as PREFETCH,
        ib_uverbs_advise_mr_advice_IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT as NO_FAULT,
        ib_uverbs_advise_mr_advice_IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE as WRITE,
        ib_uverbs_advise_mr_flag_IB_UVERBS_ADVISE_MR_FLAG_FLUSH as FLUSH,
    };

    from_result(|| {
        let advice = match advice {
            PREFETCH => Advice::Prefetch,
            WRITE => Advice::PrefetchWrite,
            NO_FAULT => Advice::PrefetchNoFault,
            _ => return Err(EOPNOTSUPP),
        };
        if flags & !FLUSH != 0 {
            return Err(EINVAL);
        }
        // SAFETY: The core passes an object that was created.
        let pd = unsafe { Pd::from_raw(pd) };
        // SAFETY: The core passes `count` ranges, at least one. `AdvisedRange` is a transparent
        // `ib_sge`.
        let ranges =
            unsafe { core::slice::from_raw_parts(ranges.cast::<AdvisedRange>(), count as usize) };
        T::advise_mr(pd, advice, flags & FLUSH != 0, ranges)?;
        Ok(0)
    })
}

/// Implements `ib_device_ops::rereg_user_mr`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::rereg_user_mr`. `mr` must be a region of a device
/// of `T` that was created. `pd` must be a domain of a device of `T` that was created. `udata` must
/// be null or that of this verb.
unsafe extern "C" fn rereg_user_mr<T: Operations>(
    mr: *mut bindings::ib_mr,
    flags: c_int,
    start: u64,
    length: u64,
    iova: u64,
    access: c_int,
    pd: *mut bindings::ib_pd,
    udata: *mut bindings::ib_udata,
) -> *mut bindings::ib_mr {
    // CAST: A mask of bits, as is `access` below.
    let flags = flags as u32;
    let change = MrChange {
        range: (flags & bindings::ib_mr_rereg_flags_IB_MR_REREG_TRANS != 0).then_some(MrRange {
            start,
            length,
            iova,
        }),
        access: (flags & bindings::ib_mr_rereg_flags_IB_MR_REREG_ACCESS != 0)
            .then_some(access as u32),
    };
    let register = || {
        // SAFETY: The core passes the arguments of a verb.
        let mut udata = unsafe { Udata::new(udata) }?;
        // SAFETY: The core passes objects that were created.
        let (old, pd) = unsafe { (Mr::from_raw(mr), Pd::from_raw(pd)) };
        // SAFETY: The region is valid; nobody changes these while the core holds it for writing.
        let (old_iova, old_length) = unsafe { ((*mr).iova, (*mr).length) };
        let (iova, length) = match change.range {
            Some(range) => (range.iova, range.length),
            None => (old_iova, old_length),
        };
        new_mr::<T>(iova, length, || {
            T::rereg_user_mr(old, pd, &change, &mut udata)
        })
    };
    match register() {
        Ok(mr) => mr,
        Err(error) => error.to_ptr(),
    }
}

/// Implements `ib_device_ops::dereg_mr`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::dereg_mr`. `mr` must be a region of a device of
/// `T` that was created, and nobody may use it afterwards, if this succeeds.
unsafe extern "C" fn dereg_mr<T: Operations>(
    mr: *mut bindings::ib_mr,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: The core passes an object that was created.
    if let Err(error) = T::dereg_mr(unsafe { Mr::from_raw(mr) }) {
        return error.to_errno();
    }
    // SAFETY: The core passes the region for the last time; `new_mr` made it of such a box.
    unsafe {
        Mr::<T>::destroy(mr);
        drop(KBox::from_raw(mr.cast::<MaybeUninit<Mr<T>>>()));
    }
    0
}

// Memory windows

/// Implements `ib_device_ops::alloc_mw`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::alloc_mw`. `mw` must be a new object that the core
/// allocated for a device of `T`. `udata` must be null or that of this verb.
unsafe extern "C" fn alloc_mw<T: Operations>(
    mw: *mut bindings::ib_mw,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: The core passes the arguments of a verb.
        let mut udata = unsafe { Udata::new(udata) }?;
        // SAFETY: The core has set the domain and the type of the new object, and holds the domain.
        let (pd, raw_type) = unsafe { (Pd::from_raw((*mw).pd), (*mw).type_) };
        let kind = match raw_type {
            bindings::ib_mw_type_IB_MW_TYPE_1 => MwKind::Domain,
            bindings::ib_mw_type_IB_MW_TYPE_2 => MwKind::QueuePair,
            _ => return Err(EINVAL),
        };
        let NewMw { data, rkey } = T::alloc_mw(pd, kind, &mut udata)?;
        // SAFETY: The core passes an object that it has allocated for us.
        unsafe {
            (*mw).rkey = rkey;
            Mw::<T>::create(mw, Body::new(data, (), udata.into_mappings()));
        }
        Ok(0)
    })
}

/// Implements `ib_device_ops::dealloc_mw`.
///
/// # Safety
///
/// Only the core may call it, as `ib_device_ops::dealloc_mw`. `mw` must be a window of a device of
/// `T` that was created, and nobody may use it afterwards.
unsafe extern "C" fn dealloc_mw<T: Operations>(mw: *mut bindings::ib_mw) -> c_int {
    // SAFETY: The core passes an object that was created.
    T::dealloc_mw(unsafe { Mw::from_raw(mw) });
    // SAFETY: The core passes an object that was created, for the last time.
    unsafe { Mw::<T>::destroy(mw) };
    0
}
