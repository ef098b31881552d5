// SPDX-License-Identifier: GPL-2.0

//! The base transport header (BTH).
//!
//! ```text
//!    0               1               2               3
//!   +---------------+-+-+---+-------+-------------------------------+
//!   |    opcode     |S|M|pad| tver  |             P_Key             |
//!   +---------------+-+-+---+-------+-------------------------------+
//!   |F|B| reserved  |                destination QP                 |
//!   +-+-+-----------+-----------------------------------------------+
//!   |A|  reserved   |                      PSN                      |
//!   +-+-------------+-----------------------------------------------+
//! ```
//!
//! S solicited event, M MigReq, F and B forward and backward congestion notification, A
//! acknowledge request. The second word's first byte is left out of the ICRC.

use super::ParseError;
use crate::num::{Pkey, Psn, Qpn};
use crate::opcode::{self, Operation, Transport};

/// Bytes of the header.
pub const BYTES: usize = 12;

/// The offset of the byte that the ICRC leaves out.
pub const RESV8A: usize = 4;

const SOLICITED: u8 = 0x80;
const MIG_REQ: u8 = 0x40;
const PAD_SHIFT: u8 = 4;
const PAD_MASK: u8 = 0x30;
const VERSION_MASK: u8 = 0x0f;
const FECN: u8 = 0x80;
pub(super) const BECN: u8 = 0x40;
const ACK_REQ: u8 = 0x80;

/// A base transport header, but for the operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bth {
    /// The transport, from the opcode.
    pub transport: Transport,
    /// The sender asks for an event at the receiver.
    pub solicited: bool,
    /// The migration state, which RoCE does not use.
    pub mig_req: bool,
    /// Bytes that fill the payload up to a multiple of four, 0 ..= 3.
    pub pad: u8,
    /// The partition.
    pub pkey: Pkey,
    /// The packet met congestion on its way.
    pub fecn: bool,
    /// Packets in the other direction met congestion.
    pub becn: bool,
    /// Which queue pair it is for.
    pub dest_qp: Qpn,
    /// The sender asks for an acknowledgement.
    pub ack_req: bool,
    /// Its sequence number.
    pub psn: Psn,
}

/// Returns the opcode of a header.
#[inline]
pub(crate) const fn opcode(bytes: &[u8; BYTES]) -> u8 {
    bytes[0]
}

/// Returns the destination queue pair, if `header` is one of a packet.
#[inline]
pub fn dest_qp(bytes: &[u8; BYTES]) -> Qpn {
    let [.., q0, q1, q2, _, _, _, _] = *bytes;
    Qpn::from_be_bytes([q0, q1, q2])
}

impl Bth {
    /// Parses all but the opcode, which [`opcode()`] yields.
    ///
    /// # Errors
    ///
    /// [`ParseError::Version`] if the transport header version is not 0.
    // Rules: WIRE-7, WIRE-8, WIRE-9, WIRE-31
    #[inline]
    pub fn parse(transport: Transport, bytes: &[u8; BYTES]) -> Result<Self, ParseError> {
        let [_, flags, p0, p1, notes, _, _, _, ack, s0, s1, s2] = *bytes;
        // Rules: WIRE-6
        if flags & VERSION_MASK != 0 {
            return Err(ParseError::Version);
        }
        Ok(Self {
            transport,
            solicited: flags & SOLICITED != 0,
            mig_req: flags & MIG_REQ != 0,
            pad: (flags & PAD_MASK) >> PAD_SHIFT,
            pkey: Pkey(u16::from_be_bytes([p0, p1])),
            fecn: notes & FECN != 0,
            becn: notes & BECN != 0,
            dest_qp: dest_qp(bytes),
            ack_req: ack & ACK_REQ != 0,
            psn: Psn::from_be_bytes([s0, s1, s2]),
        })
    }

    /// Emits the header for `operation`.
    // Rules: WIRE-7, WIRE-8, WIRE-9
    #[inline]
    pub fn emit(&self, operation: Operation) -> [u8; BYTES] {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        // Rules: WIRE-33
        let flags = flag(self.solicited, SOLICITED)
            | flag(self.mig_req, MIG_REQ)
            | ((self.pad << PAD_SHIFT) & PAD_MASK);
        let notes = flag(self.fecn, FECN) | flag(self.becn, BECN);
        let opcode = opcode::encode(self.transport, operation);
        let [o0, o1, o2, o3] = first_word(opcode, flags, self.pkey).to_be_bytes();
        let [q0, q1, q2, q3] = word(notes, self.dest_qp.get()).to_be_bytes();
        let [s0, s1, s2, s3] = word(flag(self.ack_req, ACK_REQ), self.psn.get()).to_be_bytes();
        [o0, o1, o2, o3, q0, q1, q2, q3, s0, s1, s2, s3]
    }
}

#[inline]
pub(super) fn first_word(opcode: u8, flags: u8, pkey: Pkey) -> u32 {
    (u32::from(opcode) << 24) | (u32::from(flags) << 16) | u32::from(pkey.0)
}

/// Makes a word of a byte of flags and a number of 24 bits.
#[inline]
pub(super) fn word(flags: u8, number: u32) -> u32 {
    (u32::from(flags) << 24) | number
}
