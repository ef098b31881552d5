// SPDX-License-Identifier: GPL-2.0

//! The attributes of a device and of its ports, as verbs report them.

use crate::compat::limit;
use kernel::prelude::*;
use rdma_bindings as bindings;

/// Capabilities of a device: `enum ib_device_cap_flags`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceCaps(pub u64);

impl DeviceCaps {
    /// Counts packets with a bad P_Key.
    pub const BAD_PKEY_CNTR: Self = Self(1 << 1);
    /// Counts packets with a bad Q_Key.
    pub const BAD_QKEY_CNTR: Self = Self(1 << 2);
    /// Checks that the port of an address handle is that of the queue pair.
    pub const UD_AV_PORT_ENFORCE: Self = Self(1 << 6);
    /// Raises an event when a port becomes active.
    pub const PORT_ACTIVE_EVENT: Self = Self(1 << 10);
    /// Has a system image GUID.
    pub const SYS_IMAGE_GUID: Self = Self(1 << 11);
    /// Answers with RNR NAKs when no receive is posted.
    pub const RC_RNR_NAK_GEN: Self = Self(1 << 12);
    /// Can resize shared receive queues.
    pub const SRQ_RESIZE: Self = Self(1 << 13);
    /// Has memory windows.
    pub const MEM_WINDOW: Self = Self(1 << 17);
    /// Has the base memory management extensions.
    pub const MEM_MGT_EXTENSIONS: Self = Self(1 << 21);
    /// Has memory windows of type 2B, which are bound to a queue pair.
    pub const MEM_WINDOW_TYPE_2B: Self = Self(1 << 24);
    /// Can FLUSH to global visibility.
    pub const FLUSH_GLOBAL: Self = Self(1 << 38);
    /// Can FLUSH to persistence: the data outlasts the machine's power.
    pub const FLUSH_PERSISTENT: Self = Self(1 << 39);
    /// Has atomic WRITEs.
    pub const ATOMIC_WRITE: Self = Self(1 << 40);

    /// Returns the union of both.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns these capabilities if `condition` is true, and none otherwise.
    pub const fn only_if(self, condition: bool) -> Self {
        Self(if condition { self.0 } else { 0 })
    }
}

static_assert!(
    DeviceCaps::BAD_PKEY_CNTR.0 == bindings::ib_device_cap_flags_IB_DEVICE_BAD_PKEY_CNTR as u64
);
static_assert!(
    DeviceCaps::BAD_QKEY_CNTR.0 == bindings::ib_device_cap_flags_IB_DEVICE_BAD_QKEY_CNTR as u64
);
static_assert!(
    DeviceCaps::UD_AV_PORT_ENFORCE.0
        == bindings::ib_device_cap_flags_IB_DEVICE_UD_AV_PORT_ENFORCE as u64
);
static_assert!(
    DeviceCaps::PORT_ACTIVE_EVENT.0
        == bindings::ib_device_cap_flags_IB_DEVICE_PORT_ACTIVE_EVENT as u64
);
static_assert!(
    DeviceCaps::SYS_IMAGE_GUID.0 == bindings::ib_device_cap_flags_IB_DEVICE_SYS_IMAGE_GUID as u64
);
static_assert!(
    DeviceCaps::RC_RNR_NAK_GEN.0 == bindings::ib_device_cap_flags_IB_DEVICE_RC_RNR_NAK_GEN as u64
);
static_assert!(
    DeviceCaps::SRQ_RESIZE.0 == bindings::ib_device_cap_flags_IB_DEVICE_SRQ_RESIZE as u64
);
static_assert!(
    DeviceCaps::MEM_WINDOW.0 == bindings::ib_device_cap_flags_IB_DEVICE_MEM_WINDOW as u64
);
static_assert!(
    DeviceCaps::MEM_MGT_EXTENSIONS.0
        == bindings::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS as u64
);

static_assert!(
    DeviceCaps::MEM_WINDOW_TYPE_2B.0
        == bindings::ib_device_cap_flags_IB_DEVICE_MEM_WINDOW_TYPE_2B as u64
);
static_assert!(
    DeviceCaps::FLUSH_GLOBAL.0 == bindings::ib_device_cap_flags_IB_DEVICE_FLUSH_GLOBAL as u64
);
static_assert!(
    DeviceCaps::FLUSH_PERSISTENT.0
        == bindings::ib_device_cap_flags_IB_DEVICE_FLUSH_PERSISTENT as u64
);
static_assert!(
    DeviceCaps::ATOMIC_WRITE.0 == bindings::ib_device_cap_flags_IB_DEVICE_ATOMIC_WRITE as u64
);

/// The scope in which the atomics of a device are atomic.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AtomicCap {
    /// The device has no atomics.
    #[default]
    None,
    /// They are atomic with those of the same device.
    Device,
}

/// The operations that memory supports if it is paged in on demand: bits of `enum
/// ib_odp_transport_cap_bits`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OdpTransportCaps(pub u32);

impl OdpTransportCaps {
    /// To SEND it.
    pub const SEND: Self = Self(bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_SEND);
    /// To receive into it.
    pub const RECV: Self = Self(bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_RECV);
    /// To WRITE it.
    pub const WRITE: Self = Self(bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_WRITE);
    /// To READ it.
    pub const READ: Self = Self(bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_READ);
    /// Atomic operations on it.
    pub const ATOMIC: Self = Self(bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_ATOMIC);
    /// To receive into it from a shared receive queue.
    pub const SRQ_RECV: Self = Self(bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_SRQ_RECV);
    /// To FLUSH it.
    pub const FLUSH: Self = Self(bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_FLUSH);
    /// Atomic WRITEs to it.
    pub const ATOMIC_WRITE: Self =
        Self(bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_ATOMIC_WRITE);

    /// Returns the union of both.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// On-demand paging.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OdpCaps {
    /// A region may be the whole address space of its process.
    pub implicit: bool,
    /// Operations of reliable connections.
    pub rc: OdpTransportCaps,
    /// Operations of unreliable connections.
    pub uc: OdpTransportCaps,
    /// Operations of datagrams.
    pub ud: OdpTransportCaps,
}

/// Limits and capabilities of a device. A limit of 0 means that the object is not supported.
#[derive(Clone, Debug, Default)]
pub struct DeviceAttr {
    /// Firmware version.
    pub fw_ver: u64,
    /// System image GUID, in network order.
    pub sys_image_guid: [u8; 8],
    /// The longest memory region, in bytes.
    pub max_mr_size: u64,
    /// Page sizes of memory regions, one bit each.
    pub page_size_cap: u64,
    /// Vendor, 24 bits.
    pub vendor_id: u32,
    /// The vendor's name for the part.
    pub vendor_part_id: u32,
    /// The part's revision.
    pub hw_ver: u32,
    /// Capabilities.
    pub caps: DeviceCaps,
    /// The scope of its atomics.
    pub atomic_cap: AtomicCap,
    /// Paging on demand, if it has that.
    pub odp: Option<OdpCaps>,
    /// Queue pairs.
    pub max_qp: u32,
    /// Work requests of one queue.
    pub max_qp_wr: u32,
    /// Scatter-gather elements of a send.
    pub max_send_sge: u32,
    /// Scatter-gather elements of a receive.
    pub max_recv_sge: u32,
    /// Scatter-gather elements of a READ.
    pub max_sge_rd: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Completions of one queue.
    pub max_cqe: u32,
    /// Memory regions.
    pub max_mr: u32,
    /// Memory windows.
    pub max_mw: u32,
    /// Protection domains.
    pub max_pd: u32,
    /// READs and atomics that a queue pair may have outstanding as a responder.
    pub max_qp_rd_atom: u32,
    /// READs and atomics that a queue pair may have outstanding as a requester.
    pub max_qp_init_rd_atom: u32,
    /// READs and atomics of all queue pairs together.
    pub max_res_rd_atom: u32,
    /// Address handles.
    pub max_ah: u32,
    /// Shared receive queues.
    pub max_srq: u32,
    /// Work requests of one of them.
    pub max_srq_wr: u32,
    /// Scatter-gather elements of their receives.
    pub max_srq_sge: u32,
    /// Multicast groups.
    pub max_mcast_grp: u32,
    /// Queue pairs of one group.
    pub max_mcast_qp_attach: u32,
    /// Attachments of all groups together.
    pub max_total_mcast_qp_attach: u32,
    /// Pages of a fast-register region, or elements of its list.
    pub max_fast_reg_page_list_len: u32,
    /// Entries of a port's P_Key table.
    pub max_pkeys: u16,
    /// The longest time until it acknowledges: 4.096 µs times two to the power of this.
    pub local_ca_ack_delay: u8,
}

impl DeviceAttr {
    pub(crate) fn fill(&self, raw: &mut bindings::ib_device_attr) {
        raw.fw_ver = self.fw_ver;
        raw.sys_image_guid = u64::from_ne_bytes(self.sys_image_guid);
        raw.max_mr_size = self.max_mr_size;
        raw.page_size_cap = self.page_size_cap;
        raw.vendor_id = self.vendor_id;
        raw.vendor_part_id = self.vendor_part_id;
        raw.hw_ver = self.hw_ver;
        raw.device_cap_flags = self.caps.0;
        // Users make links, and may delete them.
        raw.kernel_cap_flags = bindings::ib_kernel_cap_flags_IBK_ALLOW_USER_UNREG.into();
        if let Some(odp) = self.odp {
            raw.kernel_cap_flags |= u64::from(bindings::ib_kernel_cap_flags_IBK_ON_DEMAND_PAGING);
            raw.odp_caps.general_caps = u64::from(bindings::ib_odp_general_cap_bits_IB_ODP_SUPPORT);
            if odp.implicit {
                raw.odp_caps.general_caps |=
                    u64::from(bindings::ib_odp_general_cap_bits_IB_ODP_SUPPORT_IMPLICIT);
            }
            let transports = &mut raw.odp_caps.per_transport_caps;
            transports.rc_odp_caps = odp.rc.0;
            transports.uc_odp_caps = odp.uc.0;
            transports.ud_odp_caps = odp.ud.0;
        }
        raw.atomic_cap = match self.atomic_cap {
            AtomicCap::None => bindings::ib_atomic_cap_IB_ATOMIC_NONE,
            AtomicCap::Device => bindings::ib_atomic_cap_IB_ATOMIC_HCA,
        };
        raw.max_qp = limit(self.max_qp);
        raw.max_qp_wr = limit(self.max_qp_wr);
        raw.max_send_sge = limit(self.max_send_sge);
        raw.max_recv_sge = limit(self.max_recv_sge);
        raw.max_sge_rd = limit(self.max_sge_rd);
        raw.max_cq = limit(self.max_cq);
        raw.max_cqe = limit(self.max_cqe);
        raw.max_mr = limit(self.max_mr);
        raw.max_mw = limit(self.max_mw);
        raw.max_pd = limit(self.max_pd);
        raw.max_qp_rd_atom = limit(self.max_qp_rd_atom);
        raw.max_qp_init_rd_atom = limit(self.max_qp_init_rd_atom);
        raw.max_res_rd_atom = limit(self.max_res_rd_atom);
        raw.max_ah = limit(self.max_ah);
        raw.max_srq = limit(self.max_srq);
        raw.max_srq_wr = limit(self.max_srq_wr);
        raw.max_srq_sge = limit(self.max_srq_sge);
        raw.max_mcast_grp = limit(self.max_mcast_grp);
        raw.max_mcast_qp_attach = limit(self.max_mcast_qp_attach);
        raw.max_total_mcast_qp_attach = limit(self.max_total_mcast_qp_attach);
        raw.max_fast_reg_page_list_len = self.max_fast_reg_page_list_len;
        raw.max_pkeys = self.max_pkeys;
        raw.local_ca_ack_delay = self.local_ca_ack_delay;
    }
}

/// The logical state of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortState {
    /// It carries nothing.
    Down,
    /// It carries packets.
    Active,
}

/// The state of a port's link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PhysState {
    /// It is turned off.
    Disabled,
    /// It looks for a peer.
    Polling,
    /// It is up.
    LinkUp,
}

/// The speed of a link, as verbs report it: `enum ib_port_speed` and `enum ib_port_width`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkSpeed {
    /// Signalling rate of a lane; `enum ib_port_speed`.
    pub speed: u16,
    /// Lanes; `enum ib_port_width`.
    pub width: u8,
}

impl LinkSpeed {
    /// Four lanes of 2.5 Gb/s, which are reported if nothing is known. Some programs choose the fastest device.
    pub const UNKNOWN: Self = Self {
        speed: bindings::ib_port_speed_IB_SPEED_SDR as u16,
        width: bindings::ib_port_width_IB_WIDTH_4X as u8,
    };
}

/// Attributes of a port.
#[derive(Clone, Debug)]
pub struct PortAttr {
    /// Logical state.
    pub state: PortState,
    /// State of the link.
    pub phys_state: PhysState,
    /// The largest MTU that the port can have; `enum ib_mtu`.
    pub max_mtu: u32,
    /// The largest MTU that its link carries now; `enum ib_mtu`.
    pub active_mtu: u32,
    /// Speed of the link.
    pub speed: LinkSpeed,
    /// The longest message, in bytes.
    pub max_msg_sz: u32,
    /// Entries of the GID table.
    pub gid_tbl_len: u16,
    /// Entries of the P_Key table.
    pub pkey_tbl_len: u16,
    /// Capabilities, `CapabilityMask` of the standard's `PortInfo`.
    pub port_cap_flags: u32,
    /// Packets with a bad P_Key so far.
    pub bad_pkey_cntr: u32,
    /// Packets with a bad Q_Key so far.
    pub qkey_viol_cntr: u32,
}

impl PortAttr {
    pub(crate) fn fill(&self, raw: &mut bindings::ib_port_attr) {
        raw.state = match self.state {
            PortState::Down => bindings::ib_port_state_IB_PORT_DOWN,
            PortState::Active => bindings::ib_port_state_IB_PORT_ACTIVE,
        };
        // CAST: The states are below 8.
        raw.phys_state = match self.phys_state {
            PhysState::Disabled => bindings::ib_port_phys_state_IB_PORT_PHYS_STATE_DISABLED,
            PhysState::Polling => bindings::ib_port_phys_state_IB_PORT_PHYS_STATE_POLLING,
            PhysState::LinkUp => bindings::ib_port_phys_state_IB_PORT_PHYS_STATE_LINK_UP,
        } as u8;
        raw.max_mtu = self.max_mtu;
        raw.active_mtu = self.active_mtu;
        raw.active_speed = self.speed.speed;
        raw.active_width = self.speed.width;
        raw.max_msg_sz = self.max_msg_sz;
        raw.gid_tbl_len = self.gid_tbl_len.into();
        raw.pkey_tbl_len = self.pkey_tbl_len;
        raw.port_cap_flags = self.port_cap_flags;
        raw.bad_pkey_cntr = self.bad_pkey_cntr;
        raw.qkey_viol_cntr = self.qkey_viol_cntr;
        // One virtual lane.
        raw.max_vl_num = 1;
        raw.set_ip_gids(1);
    }
}

/// The attributes of a port that never change.
#[derive(Clone, Copy, Debug)]
pub struct PortImmutable {
    /// Entries of the GID table.
    pub gid_tbl_len: u16,
    /// Entries of the P_Key table.
    pub pkey_tbl_len: u16,
    /// Whether the port has a QP1 that sends and receives management datagrams, which gives it the
    /// connection manager of the core.
    pub has_cm: bool,
}

impl PortImmutable {
    pub(crate) fn fill(&self, raw: &mut bindings::ib_port_immutable) {
        raw.gid_tbl_len = self.gid_tbl_len.into();
        raw.pkey_tbl_len = self.pkey_tbl_len.into();
        if self.has_cm {
            raw.core_cap_flags = bindings::RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP;
            raw.max_mad_size = bindings::IB_MGMT_MAD_SIZE;
        } else {
            raw.core_cap_flags = bindings::RDMA_CORE_CAP_PROT_ROCE_UDP_ENCAP
                | bindings::RDMA_CORE_CAP_AF_IB
                | bindings::RDMA_CORE_CAP_ETH_AH;
        }
    }
}
