// SPDX-License-Identifier: GPL-2.0

//! Payload on its way between packets and memory.

use kernel::prelude::*;
use rdma::net::{Datagram, Frame, HeldPacket, NetDevice, RxPacket};
use rdma::odp::Intent;
use rdma::pages::Pages;
use rdma::slots::Slots;
use roce::wire::Packet;
use roce::wr::ATOMIC_BYTES;

use crate::keys::{Miss, Segment};

/// A datagram that is handled now.
pub(crate) enum AtHand<'a> {
    /// Its handler may keep it.
    Owned(RxPacket<'a>),
    /// It goes to other queue pairs, too.
    Shared(&'a RxPacket<'a>),
}

impl AtHand<'_> {
    /// Makes something to keep of it.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    #[cold]
    pub(crate) fn keep(self) -> Result<HeldPacket> {
        match self {
            Self::Owned(datagram) => Ok(datagram.into_held()),
            Self::Shared(datagram) => datagram.clone_held(),
        }
    }

    /// Returns true if it is from this device itself, and has its sender's credit.
    pub(crate) fn is_own(&self) -> bool {
        match self {
            Self::Owned(datagram) => datagram.is_own(),
            Self::Shared(datagram) => datagram.is_own(),
        }
    }

    /// Returns this payload of `packet`.
    #[inline]
    pub(crate) fn incoming(&self, packet: &Packet) -> Incoming<'_> {
        let datagram = match self {
            Self::Owned(datagram) => datagram,
            Self::Shared(datagram) => *datagram,
        };
        Incoming {
            packet: datagram,
            device: datagram.device(),
            offset: packet.payload_at(datagram.payload_len()) as usize,
        }
    }
}

/// Bytes of a packet on their way into memory: `offset` is in the UDP payload.
#[derive(Clone, Copy)]
pub(crate) struct Incoming<'a> {
    pub(crate) packet: &'a Datagram,
    /// The device on which it arrived; `None` for a kept packet.
    pub(crate) device: Option<&'a NetDevice>,
    pub(crate) offset: usize,
}

impl Incoming<'_> {
    /// Returns the eight bytes of a word.
    pub(crate) fn word(&self) -> Result<u64, Miss> {
        let mut bytes = [0; ATOMIC_BYTES as usize];
        let read = self.packet.read(self.offset, &mut bytes);
        read.map_err(|_| Miss::Gone)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// Memory that payload is copied from and to.
pub(crate) trait Memory {
    /// Appends `len` bytes from byte `at` on to `frame`.
    fn gather(&self, at: u32, len: u32, frame: &mut Frame<'_>) -> Result<(), Miss>;

    /// Copies `len` bytes of a packet to byte `at` and on.
    fn scatter(&self, at: u32, len: u32, from: Incoming<'_>) -> Result<(), Miss>;
}

impl Memory for Segment {
    fn gather(&self, at: u32, len: u32, frame: &mut Frame<'_>) -> Result<(), Miss> {
        self.with_pages(at, len, Intent::Read, |pages, start, len| {
            frame.push_memory(pages, start, len)
        })
    }

    fn scatter(&self, at: u32, len: u32, from: Incoming<'_>) -> Result<(), Miss> {
        self.with_pages(at, len, Intent::Write, |pages, start, len| {
            from.packet.copy_to(from.offset, len, pages, start)
        })
    }
}

/// The local memory of a work request.
pub(crate) enum Payload {
    /// No byte of it.
    Empty,
    /// A copy of inline data, at the start of a buffer.
    Inline(Slots<u8>),
    /// One piece: the common case.
    One(Segment),
    /// Several, in order; behind them the list is empty.
    Many(Slots<Option<Segment>>),
}

impl Payload {
    /// Runs `copy` on each piece that the `len` bytes from byte `at` on lie in: with where in it,
    /// how many bytes, and how many were before them.
    // Rules: SEG-20
    fn for_each_piece(
        &self,
        at: u32,
        len: u32,
        mut copy: impl FnMut(&Segment, u32, u32, u32) -> Result<(), Miss>,
    ) -> Result<(), Miss> {
        let segments = match self {
            Self::Empty | Self::Inline(_) => &[][..],
            Self::One(segment) => {
                return match at.checked_add(len) {
                    _ if len == 0 => Ok(()),
                    Some(end) if end <= segment.len() => copy(segment, at, len, 0),
                    _ => Err(Miss::Gone),
                };
            }
            Self::Many(segments) => &segments[..],
        };
        let mut skip = at;
        let mut done = 0u32;
        for segment in segments.iter().flatten() {
            if done == len {
                break;
            }
            let Some(room) = segment.len().checked_sub(skip).filter(|room| *room > 0) else {
                skip = skip.saturating_sub(segment.len());
                continue;
            };
            let run = room.min(len.saturating_sub(done));
            copy(segment, skip, run, done)?;
            done = done.saturating_add(run);
            skip = 0;
        }
        if done == len {
            Ok(())
        } else {
            Err(Miss::Gone)
        }
    }

    /// Copies the original value of an atomic to the first bytes.
    pub(crate) fn put_original(&self, original: u64) -> Result<(), Miss> {
        let bytes = original.to_ne_bytes();
        self.for_each_piece(0, ATOMIC_BYTES, |segment, at, run, done| {
            let tail = bytes.get(done as usize..).ok_or(Miss::Gone)?;
            let from = tail.get(..run as usize).ok_or(Miss::Gone)?;
            segment.with_pages(at, run, Intent::Write, |pages, start, _| {
                pages.write(start, from)
            })
        })
    }
    /// Copies `bytes` to the first bytes of it.
    pub(crate) fn put_first(&self, bytes: &[u8]) -> Result<(), Miss> {
        let len = u32::try_from(bytes.len()).map_err(|_| Miss::Gone)?;
        self.for_each_piece(0, len, |segment, start, run, done| {
            let rest = bytes.get(done as usize..).ok_or(Miss::Gone)?;
            let piece = rest.get(..run as usize).ok_or(Miss::Gone)?;
            segment.with_pages(start, run, Intent::Write, |pages, at, _| {
                pages.write(at, piece)
            })
        })
    }
}

impl Memory for Payload {
    fn gather(&self, at: u32, len: u32, frame: &mut Frame<'_>) -> Result<(), Miss> {
        if let Self::Inline(bytes) = self {
            let tail = bytes.get(at as usize..).ok_or(Miss::Gone)?;
            let run = tail.get(..len as usize).ok_or(Miss::Gone)?;
            return frame.push(run).map_err(|_| Miss::Gone);
        }
        self.for_each_piece(at, len, |segment, start, run, _| {
            segment.gather(start, run, frame)
        })
    }

    fn scatter(&self, at: u32, len: u32, from: Incoming<'_>) -> Result<(), Miss> {
        self.for_each_piece(at, len, |segment, start, run, done| {
            let offset = from.offset.saturating_add(done as usize);
            segment.scatter(start, run, Incoming { offset, ..from })
        })
    }
}
