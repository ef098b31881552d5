// SPDX-License-Identifier: GPL-2.0

//! IPv6 packets to a neighbour whose MAC address is known, past the IPv6 stack.
//!
//! See [`DefaultGid`](crate::net::DefaultGid) for their purpose.

use crate::net::{
    frame::{
        Fate,
        CONGESTION, //
    },
    skb::dev_of,
    NetDevice, //
};
use core::ptr::NonNull;
use kernel::bindings::sk_buff;
use rdma_bindings::{
    self as bindings,
    ETH_P_IPV6, //
};

/// Sends a packet out of `dev` to `mac`, or back to this machine if `mac` is `dev`'s own.
///
/// The netdev makes the link layer's header. Queueing disciplines and packet
/// sockets then treat it like any other packet. Process and softirq context.
///
/// # Safety
///
/// `skb` must be ours alone, and is given away: a whole IPv6 packet, linear, with its network
/// header set and headroom for the netdev's header.
pub(super) unsafe fn send(skb: NonNull<sk_buff>, dev: &NetDevice, mac: [u8; 6]) -> Fate {
    let skb = skb.as_ptr();
    // SAFETY: The skb is ours, and the netdev is valid. CAST: The number is of 16 bits.
    let has_header = unsafe {
        let len = (*skb).len;
        *dev_of(skb) = dev.as_raw().cast();
        (*skb).__bindgen_anon_4.headers.as_mut().protocol = (ETH_P_IPV6 as u16).to_be();
        len <= dev.mtu()
            && bindings::dev_hard_header(
                skb,
                dev.as_raw(),
                ETH_P_IPV6 as u16,
                mac.as_ptr().cast(),
                len,
            ) >= 0
    };
    if !has_header {
        // SAFETY: The skb is ours.
        unsafe { bindings::consume_skb(skb) };
        return Fate::Dropped;
    }
    // SAFETY: The skb is a whole frame with its netdev set, and is given away here. The netdev is
    // valid during the call, and releases the frame before its removal.
    let ret = unsafe {
        if mac == dev.address() {
            bindings::dev_forward_skb(dev.as_raw(), skb)
        } else {
            bindings::dev_queue_xmit(skb)
        }
    };
    match ret {
        0 | CONGESTION => Fate::Taken,
        _ => Fate::Dropped,
    }
}
