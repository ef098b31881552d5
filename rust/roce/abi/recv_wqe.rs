// SPDX-License-Identifier: GPL-2.0

//! `struct rxe_recv_wqe`: a receive work request.

use super::send_wqe::PostedSges;
use super::sge::{dma, Sges, SGE_BYTES};
use super::{put, u32_at, u64_at};
use crate::completion::Status;
use crate::wr::BadRequest;

/// Offset of `wr_id`.
pub const WR_ID: usize = 0;
/// Offset of `dma`.
pub const DMA: usize = 16;
/// Offset of the SGEs: the size of the structure.
pub const DATA: usize = DMA + dma::DATA;

/// A decoded receive work request. Its keys are not looked up yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecvWqe<'a> {
    /// The poster's name for it.
    pub wr_id: u64,
    /// Bytes that it has room for.
    pub length: u32,
    /// Local memory; the sum of the lengths is `length`.
    pub sges: Sges<'a>,
}

/// Decodes a copy of a slot of a receive queue. `max_sge` is the limit of the queue.
///
/// # Errors
///
/// A [`BadRequest`] with the request's `wr_id` and
/// [`Status::LocalQpOperation`] for more SGEs than `max_sge` or the slot allows, or lengths that
/// contradict each other; [`Status::LocalLength`] for room of 2^32 bytes or more.
pub fn decode_recv(slot: &[u8], max_sge: u32) -> Result<RecvWqe<'_>, BadRequest> {
    let wr_id = u64_at(slot, WR_ID).unwrap_or(0);
    decode(slot, max_sge, wr_id).map_err(|status| BadRequest { wr_id, status })
}

fn decode(slot: &[u8], max_sge: u32, wr_id: u64) -> Result<RecvWqe<'_>, Status> {
    let malformed = Status::LocalQpOperation;
    let length = u32_at(slot, DMA + dma::LENGTH).ok_or(malformed)?;
    let count = u32_at(slot, DMA + dma::NUM_SGE).ok_or(malformed)?;
    // Rules: WRQ-3
    if count > max_sge {
        return Err(malformed);
    }
    let area = slot.get(DATA..).ok_or(malformed)?;
    let sges = Sges::new(area, count).ok_or(malformed)?;
    let total = sges.total().ok_or(Status::LocalLength)?;
    if total != length {
        return Err(malformed);
    }
    Ok(RecvWqe {
        wr_id,
        length,
        sges,
    })
}

/// Encodes a receive in a slot in which its SGEs are already, from [`DATA`] on. Returns how many
/// bytes of the slot count; `None` if it is too short.
pub fn encode_recv(slot: &mut [u8], wr_id: u64, sges: PostedSges) -> Option<usize> {
    put(slot, WR_ID, wr_id.to_ne_bytes())?;
    put(slot, DMA + dma::LENGTH, sges.length.to_ne_bytes())?;
    put(slot, DMA + dma::NUM_SGE, sges.count.to_ne_bytes())?;
    let bytes = usize::try_from(sges.count).ok()?.checked_mul(SGE_BYTES)?;
    let end = DATA.checked_add(bytes)?;
    (end <= slot.len()).then_some(end)
}
