// SPDX-License-Identifier: GPL-2.0

//! The memory that a process and the driver share: rings of work requests and of completions.
//!
//! The layouts are those of the stock `rxe` provider. Integers are in the machine's own byte order.
//! The process may be hostile, and may write at any time: the driver copies a slot once, and
//! decodes only the copy.
//!
//! Kernel users have rings of the same layout, which no process maps. For them, functions of this
//! module encode work requests and decode completions, as the provider does in a process.

pub mod cqe;
pub mod recv_wqe;
pub mod send_wqe;
pub mod sge;

pub use cqe::{
    decode_completion, encode_completion, encode_kernel_completion, Arrival, KernelCompletion,
};
pub use recv_wqe::{decode_recv, encode_recv, RecvWqe};
pub use send_wqe::{
    decode_datagram, decode_send, encode_send, AddressVector, DatagramTo, DatagramWqe, PostedData,
    PostedSend, PostedSges, Poster, SendData, SendLimits, SendWqe,
};
pub use sge::{encode_sges, Sge, Sges};

/// Reads `N` bytes at `offset`, if they are there.
// Rules: WRQ-9
#[inline]
fn bytes_at<const N: usize>(slot: &[u8], offset: usize) -> Option<[u8; N]> {
    slot.get(offset..)?.first_chunk().copied()
}

#[inline]
fn u32_at(slot: &[u8], offset: usize) -> Option<u32> {
    bytes_at(slot, offset).map(u32::from_ne_bytes)
}

#[inline]
fn u64_at(slot: &[u8], offset: usize) -> Option<u64> {
    bytes_at(slot, offset).map(u64::from_ne_bytes)
}

/// Writes `field` at `offset`, if there is room.
#[inline]
#[must_use]
fn put<const N: usize>(slot: &mut [u8], offset: usize, field: [u8; N]) -> Option<()> {
    *slot.get_mut(offset..)?.first_chunk_mut()? = field;
    Some(())
}
