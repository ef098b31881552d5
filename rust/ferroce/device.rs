// SPDX-License-Identifier: GPL-2.0

//! A device, as the RDMA core uses it, and the state that its objects share.

use kernel::prelude::*;
use kernel::sync::atomic::Atomic;
use kernel::sync::{Arc, SetOnce};
use rdma::ah::Gids;
use rdma::device::attr::{
    AtomicCap, DeviceAttr, DeviceCaps, LinkSpeed, OdpCaps, OdpTransportCaps, PortAttr,
    PortImmutable,
};
use rdma::net::NetDevice;
use rdma::pmem;
use rdma::sync::Marked;
use rdma::table::IdTable;
use roce::limits;
use roce::num::Mtu;

use crate::context::Users;
use crate::groups::{Groups, MAX_ATTACHED, MAX_GROUPS, MAX_MEMBERS};
use crate::keys::{self, Keys, MR_INDICES, MW_INDICES};
use crate::port::PORT;
use crate::qp::Shared;
use crate::queues::Queues;
use crate::stats::{Counter, Stats};
use crate::steering::Senders;
use crate::table::{AH_NUMBERS, MAX_PD, QPNS};

/// A device.
#[pin_data]
pub(crate) struct Device {
    pub(crate) node_guid: [u8; 8],
    /// The state that its queue pairs share.
    pub(crate) shared: Arc<Shared>,
    /// The counts of counters that are gone.
    pub(crate) past_stats: Stats,
    /// The counters that queue pairs are bound to.
    #[pin]
    pub(crate) counters: IdTable<Stats>,
    is_leaving: Atomic<bool>,
    #[pin]
    pub(crate) groups: Groups,
    /// The GID table, once the device is registered.
    gids: SetOnce<Gids>,
    /// The users that have opened it.
    pub(crate) users: Arc<Users>,
}

impl Device {
    /// Makes a device over `netdev`. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(
        netdev: &NetDevice,
        queues: Arc<Queues>,
        senders: Arc<Senders>,
    ) -> Result<Arc<Self>> {
        let shared = Shared::new(netdev, queues, senders)?;
        let past_stats = Stats::new()?;
        let node_guid = guid_of(netdev.address());
        let device = try_pin_init!(Self {
            node_guid,
            shared,
            past_stats,
            counters <- IdTable::new(),
            is_leaving: Atomic::new(false),
            groups <- Groups::new(),
            gids: SetOnce::new(),
            users: Users::new()?,
        });
        Arc::pin_init(device, GFP_KERNEL)
    }

    /// Returns its memory keys.
    pub(crate) fn keys(&self) -> &Keys {
        &self.shared.objects.keys
    }

    /// Makes the GID table known, for [`has_gid`](Self::has_gid). Any context.
    pub(crate) fn set_gids(&self, gids: Gids) {
        self.gids.populate(gids);
    }

    /// Returns true if the GID table has `gid`, as one of `netdev`; or of any netdev, if that is `None`. Process and
    /// softirq context.
    pub(crate) fn has_gid(&self, gid: [u8; 16], netdev: Option<&NetDevice>) -> bool {
        let gids = self.gids.as_ref();
        gids.is_some_and(|gids| gids.has(PORT.into(), gid, netdev))
    }

    /// Notes that the device is going to be unregistered. That waits for the verbs that run: none may
    /// sleep for long from now on. Any context.
    pub(crate) fn leave(&self) {
        self.is_leaving.write_once(true);
    }

    /// Returns true if it is going to be unregistered. Any context.
    pub(crate) fn is_leaving(&self) -> bool {
        self.is_leaving.read_once()
    }

    /// Limits and capabilities.
    pub(crate) fn attr(&self) -> DeviceAttr {
        DeviceAttr {
            sys_image_guid: self.node_guid,
            max_mr_size: u64::MAX,
            page_size_cap: 0xffff_f000,
            vendor_id: 0x00ff_ffff,
            caps: DeviceCaps::PORT_ACTIVE_EVENT
                .and(DeviceCaps::SYS_IMAGE_GUID)
                .and(DeviceCaps::BAD_PKEY_CNTR)
                .and(DeviceCaps::BAD_QKEY_CNTR)
                .and(DeviceCaps::RC_RNR_NAK_GEN)
                .and(DeviceCaps::SRQ_RESIZE)
                .and(DeviceCaps::MEM_MGT_EXTENSIONS)
                .and(DeviceCaps::MEM_WINDOW)
                .and(DeviceCaps::MEM_WINDOW_TYPE_2B)
                .and(DeviceCaps::FLUSH_GLOBAL)
                .and(DeviceCaps::FLUSH_PERSISTENT.only_if(pmem::CAN_WRITE_BACK))
                .and(DeviceCaps::ATOMIC_WRITE),
            atomic_cap: AtomicCap::Device,
            odp: Some(ODP),
            max_qp: QPNS.count() as u32,
            max_qp_wr: MAX_QP_WR,
            max_send_sge: limits::MAX_SGE as u32,
            max_recv_sge: limits::MAX_SGE as u32,
            max_sge_rd: limits::MAX_SGE as u32,
            max_cq: MAX_CQ,
            max_cqe: MAX_CQE,
            max_mr: MR_INDICES.count() as u32,
            max_mw: MW_INDICES.count() as u32,
            max_pd: MAX_PD,
            max_qp_rd_atom: u32::from(limits::MAX_RD_ATOMIC),
            max_qp_init_rd_atom: u32::from(limits::MAX_RD_ATOMIC),
            max_res_rd_atom: MAX_RES_RD_ATOM,
            max_ah: AH_NUMBERS.count() as u32,
            max_srq: MAX_SRQ,
            max_srq_wr: MAX_SRQ_WR,
            max_srq_sge: MAX_SRQ_SGE,
            max_mcast_grp: MAX_GROUPS,
            max_mcast_qp_attach: MAX_MEMBERS,
            max_total_mcast_qp_attach: MAX_ATTACHED,
            max_fast_reg_page_list_len: keys::MAX_FAST_PAGES,
            max_pkeys: 1,
            local_ca_ack_delay: 15,
            ..DeviceAttr::default()
        }
    }

    /// Returns the port's state, as its netdev has it. `speed` was asked of the netdev without our locks.
    pub(crate) fn port_attr(&self, speed: LinkSpeed) -> PortAttr {
        let port = &self.shared.port;
        let (state, phys_state) = port.state();
        PortAttr {
            state,
            phys_state,
            max_mtu: Mtu::B4096.code(),
            active_mtu: port.active_mtu().code(),
            speed,
            max_msg_sz: limits::MAX_MESSAGE_BYTES,
            gid_tbl_len: GID_TABLE_LEN,
            pkey_tbl_len: 1,
            port_cap_flags: PORT_CAP_CM,
            bad_pkey_cntr: self.violations(Counter::BadPkey),
            qkey_viol_cntr: self.violations(Counter::BadQkey),
        }
    }

    /// Returns a count of violations as the port reports it, which stops at its largest value.
    fn violations(&self, counter: Counter) -> u32 {
        u32::try_from(self.total(counter)).unwrap_or(u32::MAX)
    }

    /// Returns the count of all queue pairs, regardless of the counters to which they are or were
    /// bound.
    pub(crate) fn total(&self, counter: Counter) -> u64 {
        let own = self.shared.stats.get(counter);
        let mut total = own.wrapping_add(self.past_stats.get(counter));
        self.counters.for_each(|_, stats| {
            total = total.wrapping_add(stats.get(counter));
        });
        total
    }

    /// Returns the attributes of the port that never change.
    pub(crate) fn port_immutable() -> PortImmutable {
        PortImmutable {
            gid_tbl_len: GID_TABLE_LEN,
            pkey_tbl_len: 1,
            has_cm: true,
        }
    }
}

/// The operations on memory that is paged in on demand: those on other memory.
const ODP: OdpCaps = {
    const DATAGRAMS: OdpTransportCaps = OdpTransportCaps::SEND
        .and(OdpTransportCaps::RECV)
        .and(OdpTransportCaps::SRQ_RECV);
    const UNRELIABLE: OdpTransportCaps = DATAGRAMS.and(OdpTransportCaps::WRITE);
    OdpCaps {
        implicit: true,
        rc: UNRELIABLE
            .and(OdpTransportCaps::READ)
            .and(OdpTransportCaps::ATOMIC)
            .and(OdpTransportCaps::FLUSH)
            .and(OdpTransportCaps::ATOMIC_WRITE),
        uc: UNRELIABLE,
        ud: DATAGRAMS,
    }
};

/// Work requests of one queue.
pub(crate) const MAX_QP_WR: u32 = 1 << 20;
/// Receives of one shared receive queue.
pub(crate) const MAX_SRQ_WR: u32 = 1 << 20;
/// Scatter-gather elements of one of its receives.
pub(crate) const MAX_SRQ_SGE: u32 = limits::MAX_SGE as u32;
/// Completions of one queue: as many as mlx5 has. Their memory is charged to the owner.
pub(crate) const MAX_CQE: u32 = (1 << 22) - 1;
const MAX_CQ: u32 = 1 << 20;
const MAX_SRQ: u32 = 1 << 20;
const MAX_RES_RD_ATOM: u32 = 0x3_f000;
const GID_TABLE_LEN: u16 = 1024;
/// `IB_PORT_CM_SUP`.
const PORT_CAP_CM: u32 = 1 << 16;

/// Returns the EUI-64 of a MAC address, as IPv6 makes it. It is the same after each link up.
fn guid_of(mac: [u8; 6]) -> [u8; 8] {
    let [a, b, c, d, e, f] = mac;
    [a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}
