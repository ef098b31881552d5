// SPDX-License-Identifier: GPL-2.0

//! Frames that leave together.

use core::ptr::NonNull;

use kernel::bindings::sk_buff;
use kernel::sync::Arc;

use rdma_bindings as bindings;

use roce::icrc::UDP_BYTES;

use crate::net::frame::{Skb, MAX_IP_BYTES};
use crate::net::path::NextHop;
use crate::net::Credit;

/// Frames of one path that go through the network's layers as one, each still a packet of its own.
///
/// The kernel calls that segmentation offload by a list. Whoever cannot take it whole, be it a
/// netdev or a receiver, takes it apart, which is not much more than to undo the list. All frames are
/// of one size but for the last, which may be shorter, so that also those can who copy it into one
/// buffer first.
///
/// # Invariants
///
/// - `head` is ours alone, a whole packet without owner and destructor; the `frames - 1` others are
///   its list, which ends with `last`. Each is complete and linear, and has its own headers, which
///   are below its data but for those of the head.
/// - `bytes` is the length of all: the head, and of the others what follows the UDP header. It is at
///   most [`MAX_IP_BYTES`].
/// - The route of `next_hop`, if it has one, is that of the path which has this.
pub(super) struct Train {
    pub(super) next_hop: NextHop,
    head: Skb,
    last: Option<NonNull<sk_buff>>,
    /// Bytes of the head's UDP payload, and of the headers before it.
    size: u32,
    headers: u32,
    bytes: u32,
    frames: u32,
    /// The last one is shorter than the others.
    is_closed: bool,
}

// SAFETY: The skbs are ours and belong to no thread, and neither do routes and netdevs.
unsafe impl Send for Train {}

impl Train {
    /// A train of one frame: a complete packet with `size` bytes of UDP payload.
    ///
    /// # Safety
    ///
    /// `head` must be linear and without destructor. The route of `next_hop`, if it has one, must be valid
    /// as long as the train is there.
    #[inline]
    pub(super) unsafe fn new(next_hop: NextHop, head: Skb, size: u32) -> Self {
        // INVARIANT: By the safety requirements; there are no others.
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

    /// Whether a frame with `size` bytes of UDP payload can be its next.
    #[inline]
    pub(super) fn takes(&self, size: u32) -> bool {
        matches!(self.next_hop, NextHop::Routed(_))
            && !self.is_closed
            && size <= self.size
            && size <= (MAX_IP_BYTES as u32).wrapping_sub(self.bytes)
            && self.frames < Credit::MOST
    }

    /// How many there are.
    #[inline]
    pub(super) fn frames(&self) -> u32 {
        self.frames
    }

    /// Bytes of the UDP payload of all.
    #[inline]
    pub(super) fn payload_bytes(&self) -> u32 {
        self.bytes.wrapping_sub(self.headers)
    }

    /// The number of the next one.
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
            bindings::skb_append_to_list(self.head.as_ptr(), last, skb.as_ptr());
        }
        // INVARIANT: Appended just now.
        self.last = Some(skb);
        self.bytes = self.bytes.wrapping_add(size);
        self.frames = self.frames.wrapping_add(1);
        self.is_closed = size < self.size;
    }

    /// Couples the frames, and counts them against `credit`. What is left to be done is to send the
    /// skb, which is given away.
    #[inline]
    pub(super) fn couple(self, credit: &Arc<Credit>) -> (NextHop, NonNull<sk_buff>) {
        let udp_len = self.payload_bytes().wrapping_add(UDP_BYTES as u32);
        let skb = self.head.into_inner();
        if self.frames > 1 {
            let field = (self.headers as usize).wrapping_sub(UDP_BYTES - UDP_LENGTH);
            // CAST: It is below 64 KiB.
            let udp_len = (udp_len as u16).to_be_bytes();
            // SAFETY: The skb is ours, with IP and UDP headers at the start of its linear part. By the
            // type invariants it is what the kernel takes for such a list.
            unsafe {
                let at = (*skb.as_ptr()).data.add(field);
                core::ptr::copy_nonoverlapping(udp_len.as_ptr(), at, udp_len.len());
                bindings::skb_couple_list(skb.as_ptr(), self.size, self.frames);
            }
        }
        // SAFETY: By the type invariants.
        unsafe { credit.charge(skb.as_ptr(), self.frames) };
        (self.next_hop, skb)
    }
}

/// Where the length is in a UDP header.
const UDP_LENGTH: usize = 4;
