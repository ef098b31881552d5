// SPDX-License-Identifier: GPL-2.0

//! Address vectors: where the packets of a queue pair or an address handle go.

mod gids;
mod resolve;

pub use gids::{Gid, Gids};

use crate::net::{
    is_link_local,
    mac_of_gid,
    NetDevice, //
};
use kernel::{
    error::from_err_ptr,
    prelude::*,
    sync::{
        aref::ARef,
        rcu, //
    }, //
};
use rdma_bindings as bindings;

/// The protocol that carries RoCEv2 packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Network {
    /// UDP over IPv4.
    Ipv4,
    /// UDP over IPv6.
    Ipv6,
}

/// The plain part of an address vector. A query returns it, and a path is made from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AhInfo {
    /// The peer's GID.
    pub dgid: [u8; 16],
    /// Index of our GID in the port's table.
    pub sgid_index: u8,
    /// Flow label, 20 bits; 0 leaves the choice of the UDP source port to us.
    pub flow_label: u32,
    /// Hop limit (IPv6) or time to live (IPv4).
    pub hop_limit: u8,
    /// Traffic class: DSCP and ECN bits.
    pub traffic_class: u8,
    /// Service level.
    pub sl: u8,
    /// Static rate; `enum ib_rate`.
    pub static_rate: u8,
    /// Port of our device, from 1.
    pub port: u32,
    /// The next hop's MAC address, as the core resolved it.
    pub dmac: [u8; 6],
}

impl AhInfo {
    /// Returns the C structure with the same meaning, without a GID attribute.
    pub(crate) fn to_raw(self) -> bindings::rdma_ah_attr {
        // SAFETY: A zeroed attribute is a valid one.
        let mut raw: bindings::rdma_ah_attr = unsafe { core::mem::zeroed() };
        raw.type_ = bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE;
        // CAST: The flag is 1.
        raw.ah_flags = bindings::ib_ah_flags_IB_AH_GRH as u8;
        raw.sl = self.sl;
        raw.static_rate = self.static_rate;
        raw.port_num = self.port;
        raw.grh.dgid.raw = self.dgid;
        raw.grh.sgid_index = self.sgid_index;
        raw.grh.flow_label = self.flow_label;
        raw.grh.hop_limit = self.hop_limit;
        raw.grh.traffic_class = self.traffic_class;
        raw.__bindgen_anon_1.roce.dmac = self.dmac;
        raw
    }
}

/// An address vector as the core passes it to a verb.
///
/// # Invariants
///
/// `raw` is of RoCE, has a global route, and its GID attribute is not null and held by the core for
/// as long as the vector.
pub struct AhAttr<'a> {
    raw: &'a bindings::rdma_ah_attr,
}

impl<'a> AhAttr<'a> {
    /// # Errors
    ///
    /// `EINVAL` if the vector has no global route, or not one of RoCEv2.
    ///
    /// # Safety
    ///
    /// `raw.grh.sgid_attr` must be null or held by the core for `'a`.
    pub(crate) unsafe fn new(raw: &'a bindings::rdma_ah_attr) -> Result<Self> {
        let has_grh = u32::from(raw.ah_flags) & bindings::ib_ah_flags_IB_AH_GRH != 0;
        let is_roce = raw.type_ == bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE;
        if !has_grh || !is_roce || raw.grh.sgid_attr.is_null() {
            return Err(EINVAL);
        }
        // INVARIANT: The type, the route and the GID attribute were checked. The caller promises
        // that the core holds the attribute.
        Ok(Self { raw })
    }

    fn sgid_attr(&self) -> &bindings::ib_gid_attr {
        // SAFETY: By the invariants the attribute is valid for as long as `self`.
        unsafe { &*self.raw.grh.sgid_attr }
    }

    /// Returns its plain part.
    pub fn info(&self) -> AhInfo {
        let raw = self.raw;
        // SAFETY: All members of these unions are plain bytes, and by the invariants the vector is
        // of RoCE.
        let (dgid, dmac) = unsafe { (raw.grh.dgid.raw, raw.__bindgen_anon_1.roce.dmac) };
        AhInfo {
            dgid,
            sgid_index: raw.grh.sgid_index,
            flow_label: raw.grh.flow_label,
            hop_limit: raw.grh.hop_limit,
            traffic_class: raw.grh.traffic_class,
            sl: raw.sl,
            static_rate: raw.static_rate,
            port: raw.port_num,
            dmac,
        }
    }

    /// Returns our GID.
    pub fn sgid(&self) -> [u8; 16] {
        // SAFETY: All members of the union are plain bytes.
        unsafe { self.sgid_attr().gid.raw }
    }

    /// Returns the netdev of our GID: that of the device, or one above it, such as a VLAN. Any context.
    ///
    /// # Errors
    ///
    /// `ENODEV` if it is gone, or the GID was removed.
    pub fn netdev(&self) -> Result<ARef<NetDevice>> {
        let _rcu = rcu::read_lock();
        // SAFETY: The attribute is valid, and this is a read side of RCU.
        let netdev = unsafe { bindings::rdma_read_gid_attr_ndev_rcu(self.sgid_attr()) };
        let netdev = from_err_ptr(netdev)?;
        // SAFETY: The netdev is valid as long as the read side lasts.
        Ok(unsafe { NetDevice::from_raw(netdev) }.hold())
    }

    /// Returns its plain part, and resolves the next hop's MAC address and the hop limit if the
    /// core has not done so; see [`Resolver`](crate::qp::Resolver).
    ///
    /// Between default GIDs it does not ask the IP stack, which may lack them: the MAC address is
    /// part of the GID. It sleeps, for a second if a neighbour does not answer.
    ///
    /// # Errors
    ///
    /// The error of the IP stack if it has no route to the peer, such as `ENETUNREACH` or
    /// `EHOSTUNREACH`; `ETIMEDOUT` if a neighbour does not answer; `ENODEV` if the netdev or our
    /// GID is gone; `ENOMEM`.
    pub fn resolve(&self) -> Result<AhInfo> {
        let mut info = self.info();
        if info.dmac != [0; 6] {
            return Ok(info);
        }
        let sgid = self.sgid();
        if info.dgid == sgid && is_link_local(sgid) {
            info.dmac = self.netdev()?.address();
            return Ok(info);
        }
        match mac_of_gid(info.dgid) {
            Some(mac) if is_link_local(sgid) => info.dmac = mac,
            _ => (info.dmac, info.hop_limit) = resolve::by_ip(self.sgid_attr(), sgid, info.dgid)?,
        }
        Ok(info)
    }

    /// Returns the peer's GID.
    pub fn dgid(&self) -> [u8; 16] {
        self.info().dgid
    }

    /// Returns the protocol that carries the packets.
    ///
    /// # Errors
    ///
    /// `EINVAL` if our GID is not one of RoCEv2.
    pub fn network(&self) -> Result<Network> {
        // SAFETY: The attribute is valid.
        match unsafe { bindings::rdma_gid_attr_network_type(self.sgid_attr()) } {
            bindings::rdma_network_type_RDMA_NETWORK_IPV4 => Ok(Network::Ipv4),
            bindings::rdma_network_type_RDMA_NETWORK_IPV6 => Ok(Network::Ipv6),
            _ => Err(EINVAL),
        }
    }
}

/// Returns the UDP source port for packets of `flow_label` between two queue pairs.
///
/// With a flow label of 0 it depends on the queue pairs alone, and is the same both ways.
#[inline]
pub fn udp_sport(flow_label: u32, local_qpn: u32, remote_qpn: u32) -> u16 {
    // SAFETY: The function computes a number from its arguments alone, and takes any.
    unsafe { bindings::rdma_get_udp_sport(flow_label, local_qpn, remote_qpn) }
}
