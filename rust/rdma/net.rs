// SPDX-License-Identifier: GPL-2.0

//! The network below a RoCEv2 device: netdevs and their namespaces, sockets that receive, paths
//! and frames that send.
//!
//! - [`NetDevice`], and [`NetDeviceSlot`], which keeps one without delaying its removal.
//!   [`NetdevNotifier`] reports its changes.
//! - [`Net`], a network namespace, and [`PerNet`], the driver's data of each.
//! - [`Tunnel`], a namespace's UDP port, which hands an [`RxPacket`] for each datagram to its
//!   [`Receiver`]; a [`PacketQueue`] keeps those that cannot be handled at once.
//! - [`DefaultGid`], a netdev's first GID, which works whether or not the IPv6 stack has that
//!   address.
//! - [`Membership`] of a netdev in a multicast group, without which nothing of it arrives.
//! - [`Path`], a way to a peer, which makes [`Frame`]s and sends them in trains; [`Credit`] counts
//!   those that are still below us.

mod credit;
mod default_gid;
mod frame;
mod headers;
mod membership;
mod namespace;
mod neighbour;
mod netdev;
mod notifier;
mod on_link;
mod packet;
mod path;
mod pool;
mod queue;
mod route;
pub(crate) mod rtnl;
mod skb;
mod train;
mod tunnel;

pub use credit::{Credit, CreditGuard, CreditUse, CreditWaker};
pub use default_gid::DefaultGid;
pub use frame::{Frame, Icrc};
pub use membership::{is_multicast, Membership};
pub use namespace::{Net, PerNet, PerNetRef, PerNetRegistration};
pub use netdev::{Name, NetDevice};
pub use notifier::{NetDeviceSlot, NetdevEvent, NetdevEvents, NetdevNotifier};
pub use packet::{Datagram, HeldPacket, IpHeader, RxPacket};
pub use path::{Egress, Flow, OwnFrames, Path, Tally};
pub use queue::{queue_purpose, PacketQueue, Purpose};
pub use tunnel::{Family, Receiver, Tunnel};

/// The UDP port of RoCEv2.
pub const ROCE_PORT: u16 = 4791;

/// Returns the GID that stands for an IPv4 address: the IPv6 address mapped from it.
#[inline]
pub const fn gid_of_ipv4(address: [u8; 4]) -> [u8; 16] {
    let [a, b, c, d] = address;
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
}

/// Returns the IPv4 address that a GID stands for, if it does for one.
#[inline]
pub const fn ipv4_of_gid(gid: [u8; 16]) -> Option<[u8; 4]> {
    let [.., a, b, c, d] = gid;
    // All other bytes at once: this is for each packet.
    match u128::from_be_bytes(gid) >> 32 {
        0xffff => Some([a, b, c, d]),
        _ => None,
    }
}

/// Returns the link-local GID with this interface identifier.
#[inline]
pub(crate) const fn link_local_gid(identifier: [u8; 8]) -> [u8; 16] {
    let [a, b, c, d, e, f, g, h] = identifier;
    [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a, b, c, d, e, f, g, h]
}

/// Returns true if a GID is link-local: of use on one network only.
#[inline]
pub const fn is_link_local(gid: [u8; 16]) -> bool {
    matches!(gid, [0xfe, 0x80, 0, 0, 0, 0, 0, 0, ..])
}

/// Returns the MAC address from which a default GID was made, or `None` if it does not look like
/// one.
#[inline]
pub const fn mac_of_gid(gid: [u8; 16]) -> Option<[u8; 6]> {
    match gid {
        [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a, b, c, 0xff, 0xfe, d, e, f] => {
            Some([a ^ 2, b, c, d, e, f])
        }
        _ => None,
    }
}
