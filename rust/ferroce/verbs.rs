// SPDX-License-Identifier: GPL-2.0

//! The verbs, by family.

mod advise;
mod ah;
mod attr;
mod counter;
mod cq;
mod details;
mod mad;
mod mr;
mod mw;
mod pd;
pub(crate) mod port;
mod post;
mod qp;
mod srq;

use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;
use rdma::ah::{AhAttr, AhInfo};
use rdma::device::attr::{DeviceAttr, PortAttr, PortImmutable};
use rdma::device::{Device as IbDevice, Registered};
use rdma::driver::Driver;
use rdma::net::NetDevice;
use rdma::object::{
    Ah as IbAh, Cq as IbCq, Mr as IbMr, Mw as IbMw, Pd as IbPd, Qp as IbQp, Srq as IbSrq,
    Ucontext as IbUcontext,
};
use rdma::ops::{
    Advice, AdvisedRange, CqInit, DmaBufInit, MrChange, MrInit, MwKind, NewCounter, NewCq, NewMr,
    NewMw, NewQp, Notify, Operations, SrqAttr, SrqChange, MAD_BYTES,
};
use rdma::post::{Completions, RecvList, SendList};
use rdma::qp::{QpAttr, QpInfo, QpInit};
use rdma::restrack::Details;
use rdma::sg::SgList;
use rdma::stats::Counter;
use rdma::udata::Udata;
use rdma::upcall::{CqUpcall, QpUpcall, SrqUpcall};
use roce::congestion::Law;
use roce::num::Pkey;

use crate::attach::Attached;
use crate::context::OpenContext;
use crate::device::Device;
use crate::stats;

/// The verbs of ferroce.
pub(crate) struct Verbs;

/// `RDMA_DRIVER_RXE`: the provider whose ABI ferroce has.
const RDMA_DRIVER_RXE: u32 = 14;

impl Driver for Verbs {
    type Device = Attached;
    type Ucontext = OpenContext;
    type Pd = pd::Handle;
    type Cq = Arc<crate::cq::Cq>;
    type Qp = qp::Handle;
    type Srq = Arc<crate::srq::Srq>;
    type Ah = ah::Handle;
    type Mr = mr::Handle;
    type Mw = mw::Handle;
}

#[vtable]
impl Operations for Verbs {
    type Counter = counter::Handle;

    const DRIVER_ID: u32 = RDMA_DRIVER_RXE;
    const UVERBS_ABI_VERSION: u32 = 2;
    const COUNTERS: &'static [Counter] = stats::SHOWN;

    const CONGESTION_CONTROLS: &'static [&'static str] = &Law::NAMES;

    fn query_device(device: &IbDevice<Self>) -> Result<DeviceAttr> {
        Ok(device.attr())
    }

    fn query_port(device: &IbDevice<Self>, port: u32) -> Result<PortAttr> {
        port::query(device, port)
    }

    fn port_immutable(_device: &IbDevice<Self>, _port: u32) -> Result<PortImmutable> {
        Ok(Device::port_immutable())
    }

    fn query_pkey(_device: &IbDevice<Self>, _port: u32, index: u16) -> Result<u16> {
        if index == 0 {
            Ok(Pkey::DEFAULT.0)
        } else {
            Err(EINVAL)
        }
    }

    fn get_netdev(device: &IbDevice<Self>, _port: u32) -> Option<ARef<NetDevice>> {
        device.shared.port.netdev().ok()
    }

    fn enabled(device: &Registered<Self>) {
        port::catch_up(device);
    }

    fn port_counters(device: &IbDevice<Self>, _port: u32, values: &mut [u64]) {
        device.shared.stats.read(values);
    }

    fn congestion_control(device: &IbDevice<Self>) -> usize {
        device.shared.law().index()
    }

    fn set_congestion_control(device: &IbDevice<Self>, index: usize) {
        if let Some(law) = Law::ALL.get(index) {
            device.shared.set_law(*law);
        }
    }

    fn cnp_dscp(device: &IbDevice<Self>) -> u8 {
        device.shared.cnp_dscp()
    }

    fn set_cnp_dscp(device: &IbDevice<Self>, dscp: u8) {
        device.shared.set_cnp_dscp(dscp);
    }

    fn process_mad(
        device: &IbDevice<Self>,
        _port: u32,
        request: &[u8; MAD_BYTES],
    ) -> Option<[u8; MAD_BYTES]> {
        mad::process(device, request)
    }

    fn alloc_ucontext(device: &IbDevice<Self>, _udata: &mut Udata<'_>) -> Result<OpenContext> {
        OpenContext::new(&device.users)
    }

    fn alloc_pd(
        _device: &IbDevice<Self>,
        ucontext: Option<&IbUcontext<Self>>,
        _udata: &mut Udata<'_>,
    ) -> Result<Self::Pd> {
        pd::alloc(ucontext)
    }

    fn create_cq(
        device: &IbDevice<Self>,
        init: &CqInit,
        upcall: CqUpcall,
        udata: &mut Udata<'_>,
    ) -> Result<NewCq<Self::Cq>> {
        cq::create(device, init, upcall, udata)
    }

    fn resize_cq(cq: &IbCq<Self>, cqe: u32, udata: &mut Udata<'_>) -> Result<u32> {
        cq::resize(cq, cqe, udata)
    }

    fn poll_cq(cq: &IbCq<Self>, to: &mut Completions<'_>) -> Result {
        cq::poll(cq, to);
        Ok(())
    }

    fn req_notify_cq(cq: &IbCq<Self>, notify: Notify) -> Result<bool> {
        Ok(cq::arm(cq, notify))
    }

    fn create_qp(
        pd: &IbPd<Self>,
        init: &mut QpInit<'_, Self>,
        upcall: QpUpcall,
        udata: &mut Udata<'_>,
    ) -> Result<NewQp<Self::Qp>> {
        qp::create(pd, init, upcall, udata)
    }

    fn modify_qp(qp: &IbQp<Self>, attr: &QpAttr<'_>) -> Result {
        qp::Handle::modify(qp, attr)
    }

    fn query_qp(qp: &IbQp<Self>) -> Result<QpInfo> {
        Ok(qp.query())
    }

    fn destroy_qp(qp: &IbQp<Self>) {
        qp.destroy(qp.device());
    }

    fn attach_mcast(qp: &IbQp<Self>, mgid: [u8; 16]) -> Result {
        let context = qp.pd().and_then(IbPd::ucontext);
        qp.attach(qp.device(), mgid, context.map(|context| &****context))
    }

    fn detach_mcast(qp: &IbQp<Self>, mgid: [u8; 16]) -> Result {
        qp.detach(qp.device(), mgid)
    }

    fn doorbell(qp: &IbQp<Self>) -> Result {
        qp.doorbell()
    }

    fn post_send(qp: &IbQp<Self>, list: &mut SendList<'_, Self>) -> Result {
        qp.post_send(list)
    }

    fn post_recv(qp: &IbQp<Self>, list: &mut RecvList<'_>) -> Result {
        qp.post_recv(list)
    }

    fn create_srq(
        pd: &IbPd<Self>,
        attr: &mut SrqAttr,
        upcall: SrqUpcall,
        udata: &mut Udata<'_>,
    ) -> Result<Self::Srq> {
        srq::create(pd, attr, upcall, udata)
    }

    fn modify_srq(srq: &IbSrq<Self>, change: &SrqChange, udata: &mut Udata<'_>) -> Result {
        srq::modify(srq, change, udata)
    }

    fn query_srq(srq: &IbSrq<Self>) -> SrqAttr {
        srq.attr()
    }

    fn post_srq_recv(srq: &IbSrq<Self>, list: &mut RecvList<'_>) -> Result {
        srq::post_recv(srq, list)
    }

    fn create_ah(pd: &IbPd<Self>, attr: &AhAttr<'_>, udata: &mut Udata<'_>) -> Result<Self::Ah> {
        ah::create(pd, attr, udata)
    }

    fn modify_ah(ah: &IbAh<Self>, attr: &AhAttr<'_>) -> Result {
        ah.modify(attr)
    }

    fn query_ah(ah: &IbAh<Self>) -> Result<AhInfo> {
        Ok(ah.info())
    }

    fn destroy_ah(ah: &IbAh<Self>) {
        ah.destroy();
    }

    fn get_dma_mr(pd: &IbPd<Self>, access: u32) -> Result<NewMr<Self::Mr>> {
        mr::register_kernel(pd, access)
    }

    fn alloc_mr(pd: &IbPd<Self>, most: u32) -> Result<NewMr<Self::Mr>> {
        mr::alloc(pd, most)
    }

    fn map_mr_sg(mr: &IbMr<Self>, list: &mut SgList<'_>) -> Result {
        mr::lay_out(mr, list)
    }

    fn reg_user_mr(
        pd: &IbPd<Self>,
        init: &MrInit,
        _udata: &mut Udata<'_>,
    ) -> Result<NewMr<Self::Mr>> {
        mr::register(pd, *init)
    }

    fn rereg_user_mr(
        mr: &IbMr<Self>,
        pd: &IbPd<Self>,
        change: &MrChange,
        _udata: &mut Udata<'_>,
    ) -> Result<NewMr<Self::Mr>> {
        mr::change(mr, pd, change)
    }

    fn reg_user_mr_dmabuf(pd: &IbPd<Self>, init: &DmaBufInit) -> Result<NewMr<Self::Mr>> {
        mr::register_dmabuf(pd, init)
    }

    fn advise_mr(
        pd: &IbPd<Self>,
        advice: Advice,
        at_once: bool,
        ranges: &[AdvisedRange],
    ) -> Result {
        advise::advise(pd, advice, at_once, ranges)
    }

    fn alloc_mw(pd: &IbPd<Self>, kind: MwKind, _udata: &mut Udata<'_>) -> Result<NewMw<Self::Mw>> {
        mw::alloc(pd, kind)
    }

    fn dealloc_mw(mw: &IbMw<Self>) {
        mw::dealloc(mw);
    }

    fn dereg_mr(mr: &IbMr<Self>) -> Result {
        mr::deregister(mr);
        Ok(())
    }

    fn new_counter(device: &IbDevice<Self>) -> Result<NewCounter<Self::Counter>> {
        counter::create(device)
    }

    fn bind_counter(qp: &IbQp<Self>, counter: &Self::Counter) {
        qp.qp().count_by(counter.stats());
    }

    fn unbind_counter(qp: &IbQp<Self>) {
        qp.qp().count_by(&qp.device().shared.stats);
    }

    fn counter_values(counter: &Self::Counter, values: &mut [u64]) {
        counter.stats().read(values);
    }

    fn qp_details(qp: &IbQp<Self>, details: &mut Details<'_>) -> Result {
        details::qp(qp.qp(), details)
    }

    fn cq_details(cq: &IbCq<Self>, details: &mut Details<'_>) -> Result {
        details::cq(cq, details)
    }

    fn mr_details(mr: &IbMr<Self>, details: &mut Details<'_>) -> Result {
        details::mr(mr, details)
    }

    fn srq_details(srq: &IbSrq<Self>, details: &mut Details<'_>) -> Result {
        details::srq(srq, details)
    }
}
