// SPDX-License-Identifier: GPL-2.0

//! Frames that leave together.

use crate::net::{
    frame::{
        Skb,
        MAX_IP_BYTES, //
    },
    headers::UDP_BYTES,
    path::NextHop,
    skb::{
        next_of,
        shared_info, //
    },
    Credit,
    CreditUse, //
};
use core::ptr::NonNull;
use kernel::{
    bindings::{
        sk_buff,
        CHECKSUM_UNNECESSARY,
        SKB_GSO_FRAGLIST,
        SKB_GSO_UDP_L4,
        SKB_MAX_CSUM_LEVEL, //
    },
    sync::Arc, //
};

/// Frames of one path that go through the network's layers as one, each still a packet of its own.
///
/// The kernel calls this segmentation offload by a list. For a netdev or a receiver that does not
/// support it, the kernel splits the list, which is cheap. All frames except the last have one size, and
/// the last may be shorter. So the kernel can also split a train that was copied into one buffer.
///
/// # Invariants
///
/// - `head` is ours alone, a whole packet without owner and destructor; the `frames - 1` others are
///   its list, which ends with `last`. Each is complete and linear, and has its own headers. They
///   lie before its data, except in the head.
/// - `bytes` is the length of the head and of the UDP payload of the others. It is at most
///   [`MAX_IP_BYTES`].
pub(super) struct Train {
    pub(super) next_hop: NextHop,
    head: Skb,
    last: Option<NonNull<sk_buff>>,
    /// Bytes of the head's UDP payload, and of the headers before it.
    size: u32,
    headers: u32,
    bytes: u32,
    frames: u32,
    /// True if the last frame is shorter than the others.
    is_closed: bool,
}

// SAFETY: The skbs are ours and belong to no thread, and neither do routes and netdevs.
unsafe impl Send for Train {}

impl Train {
    /// Creates a train of one frame: a complete packet with `size` bytes of UDP payload.
    ///
    /// # Safety
    ///
    /// `head` must be linear and without destructor.
    #[inline]
    pub(super) unsafe fn new(next_hop: NextHop, head: Skb, size: u32) -> Self {
        // INVARIANT: By the safety requirements `head` is as described, and there are no others.
        Self {
            next_hop,
            headers: head.len().wrapping_sub(size),
            bytes: head.len(),
            head,
            last: None,
            size,
            frames: 1,
            is_closed: false,
        }
    }

    /// Returns true if a frame with `size` bytes of UDP payload can be its next.
    #[inline]
    pub(super) fn takes(&self, size: u32) -> bool {
        matches!(self.next_hop, NextHop::Routed)
            && !self.is_closed
            && size <= self.size
            && size <= (MAX_IP_BYTES as u32).wrapping_sub(self.bytes)
            && self.frames < Credit::MOST
    }

    /// Returns the number of frames.
    #[inline]
    pub(super) fn frames(&self) -> u32 {
        self.frames
    }

    /// Returns the number of bytes of the UDP payload of all.
    #[inline]
    pub(super) fn payload_bytes(&self) -> u32 {
        self.bytes.wrapping_sub(self.headers)
    }

    /// Returns the number of the next one.
    #[inline]
    pub(super) fn next(&self) -> u16 {
        // CAST: At most `Credit::MOST`.
        self.frames as u16
    }

    /// Appends a frame with `size` bytes of UDP payload, which it [`takes`](Self::takes).
    ///
    /// # Safety
    ///
    /// The skb must be as one of [`new`](Self::new), with headers as long as those of the head.
    #[inline]
    pub(super) unsafe fn append(&mut self, frame: Skb, size: u32) {
        let skb = frame.into_inner();
        let last = self.last.map_or(core::ptr::null_mut(), NonNull::as_ptr);
        // SAFETY: All of them are ours, and `last` is the last of the list, or null if there is none.
        // The headers are in the linear part.
        unsafe {
            kernel::bindings::skb_pull(skb.as_ptr(), self.headers);
            let (head, skb) = (self.head.as_ptr(), skb.as_ptr());
            if last.is_null() {
                (*shared_info(head)).frag_list = skb;
            } else {
                *next_of(last) = skb;
            }
            (*head).len = (*head).len.wrapping_add((*skb).len);
            (*head).data_len = (*head).data_len.wrapping_add((*skb).len);
            (*head).truesize = (*head).truesize.wrapping_add((*skb).truesize);
        }
        // INVARIANT: Appended just now.
        self.last = Some(skb);
        self.bytes = self.bytes.wrapping_add(size);
        self.frames = self.frames.wrapping_add(1);
        self.is_closed = size < self.size;
    }

    /// Couples the frames, and counts them against `credit`, for that use. Returns the skb, which the
    /// caller must send.
    #[inline]
    pub(super) fn couple(
        self,
        credit: &Arc<Credit>,
        what: CreditUse,
    ) -> (NextHop, NonNull<sk_buff>) {
        let udp_len = self.payload_bytes().wrapping_add(UDP_BYTES as u32);
        let skb = self.head.into_inner();
        if self.frames > 1 {
            let field = (self.headers as usize).wrapping_sub(UDP_BYTES - UDP_LENGTH);
            // CAST: It is below 64 KiB.
            let udp_len = (udp_len as u16).to_be_bytes();
            // SAFETY: The skb is ours, with IP and UDP headers at the start of its linear part. By
            // the type invariants it has the form that the kernel expects of such a list.
            unsafe {
                let at = (*skb.as_ptr()).data.add(field);
                core::ptr::copy_nonoverlapping(udp_len.as_ptr(), at, udp_len.len());
                // The fields are as GRO sets them for a list of UDP datagrams. They have no
                // checksum, and every layer that checks it takes one level. CAST: Both numbers are
                // of 16 bits.
                let shared = shared_info(skb.as_ptr());
                (*shared).gso_type = (SKB_GSO_UDP_L4 | SKB_GSO_FRAGLIST) as u32;
                (*shared).gso_size = self.size as u16;
                (*shared).gso_segs = self.frames as u16;
                let headers = (*skb.as_ptr()).__bindgen_anon_4.headers.as_mut();
                headers.set_ip_summed(CHECKSUM_UNNECESSARY as u8);
                headers.set_csum_level(SKB_MAX_CSUM_LEVEL as u8);
            }
        }
        // SAFETY: By the type invariants the skb is ours alone, with neither owner nor destructor.
        unsafe { credit.charge(skb.as_ptr(), self.frames, what) };
        (self.next_hop, skb)
    }
}

/// Offset of the length in a UDP header.
const UDP_LENGTH: usize = 4;
