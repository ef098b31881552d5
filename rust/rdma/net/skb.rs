// SPDX-License-Identifier: GPL-2.0

//! Fields of socket buffers that C reaches by inline functions.

use kernel::bindings::{
    net_device,
    sk_buff,
    skb_shared_info, //
};

/// Returns the place of the link to the next skb of a list.
///
/// # Safety
///
/// `skb` must be valid.
#[inline]
pub(super) unsafe fn next_of(skb: *mut sk_buff) -> *mut *mut sk_buff {
    // SAFETY: By the safety requirements the skb is valid.
    unsafe { &raw mut (*skb).__bindgen_anon_1.__bindgen_anon_1.next }
}

/// Returns the place of the netdev.
///
/// # Safety
///
/// `skb` must be valid.
#[inline]
pub(super) unsafe fn dev_of(skb: *mut sk_buff) -> *mut *mut net_device {
    // SAFETY: By the safety requirements. The skb is valid, and the other members of the unions are
    // as large.
    unsafe {
        &raw mut (*skb)
            .__bindgen_anon_1
            .__bindgen_anon_1
            .__bindgen_anon_1
            .dev
    }
}

/// Returns the network header (`skb_network_header`).
///
/// # Safety
///
/// `skb` must be valid, with a network header.
#[inline]
pub(super) unsafe fn network_header(skb: *mut sk_buff) -> *mut u8 {
    // SAFETY: By the safety requirements the skb is valid, and its network header lies within its
    // buffer. Both members of the union are the same group of fields.
    unsafe {
        let at = (*skb).__bindgen_anon_4.headers.as_ref().network_header;
        (*skb).head.add(at.into())
    }
}

/// Returns the data that all clones of an skb share (`skb_shinfo`).
///
/// # Safety
///
/// `skb` must be valid.
#[inline]
pub(super) unsafe fn shared_info(skb: *mut sk_buff) -> *mut skb_shared_info {
    // SAFETY: By the safety requirements the skb is valid. The shared data begins where the head
    // ends.
    unsafe { (*skb).head.add((*skb).end as usize).cast() }
}
