// SPDX-License-Identifier: GPL-2.0

//! Packets, as they are in the payload of a UDP datagram.
//!
//! ```text
//!   +-----+--------------------+-----------+-----+------+
//!   | BTH | extension headers  |  payload  | pad | ICRC |
//!   +-----+--------------------+-----------+-----+------+
//!     12     0 ..= 28 bytes      0 ..= MTU   0..3    4
//! ```
//!
//! [`parse`] takes the headers and the length of the whole and returns a [`Packet`]. Its enums
//! carry exactly the extension headers of its opcode. [`HeaderBytes::new`] is the inverse. This
//! module never reads the payload.
//!
//! # Checks on receive
//!
//! A packet is refused ([`ParseError`]) in these cases:
//!
//! * Its opcode is reserved, or of an unsupported transport.
//! * It is shorter than its headers, pad and ICRC.
//! * Payload and pad together are no multiple of four bytes.
//! * An opcode without payload has any.
//! * The transport header version is not 0.
//! * The syndrome of its AETH is reserved.
//!
//! These fields are ignored, as the standard reserves them: the reserved bits of the BTH beside the
//! destination QPN and beside the PSN, MigReq, and the reserved byte of the DETH. FECN and BECN are
//! passed on. The caller knows the path MTU, and checks that First and Middle packets fill it.

pub mod aeth;
pub mod atomicack;
pub mod atomiceth;
pub mod bth;
pub mod cnp;
pub mod deth;
pub mod feth;
pub mod reth;

use crate::num::{Imm, Rkey};
use crate::opcode::{self, Info, Operation, Transport};

pub use aeth::{Aeth, NakCode, Syndrome};
pub use atomicack::AtomicAckEth;
pub use atomiceth::AtomicEth;
pub use bth::Bth;
pub use deth::Deth;
pub use feth::{Feth, Flush, Placement};
pub use reth::Reth;

/// The longest headers of any packet: BTH and AtomicETH.
pub const MAX_HEADER: usize = 40;

/// Bytes of the invariant CRC that ends each packet.
pub const ICRC_BYTES: u32 = 4;

/// A packet, without its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// The base transport header, but for the opcode, which follows from the rest.
    pub bth: Bth,
    /// The operation and its extension headers.
    pub body: Body,
    /// Bytes of payload, without pad and ICRC.
    pub payload_len: u32,
    /// The PSNs that it stands for, from the BTH's on: 1 for any packet from a wire, more for a
    /// [bundle](crate::num::Bundle). The caller sets the number of a bundle here.
    pub psns: u32,
}

/// The operation of a packet, with the extension headers of its opcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body {
    /// A request on a connection.
    Request(Request),
    /// A response on a reliable connection.
    Response(Response),
    /// A datagram.
    Datagram(Datagram),
}

/// The kind of a SEND, which its last packet carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendEnd {
    /// Nothing.
    Plain,
    /// Immediate data.
    Imm(Imm),
    /// A key of the receiver to invalidate.
    Invalidate(Rkey),
}

/// A request on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// First packet of a SEND.
    SendFirst,
    /// A packet within a SEND.
    SendMiddle,
    /// Last packet of a SEND.
    SendLast(SendEnd),
    /// A SEND in one packet.
    SendOnly(SendEnd),
    /// First packet of a WRITE.
    WriteFirst(Reth),
    /// A packet within a WRITE.
    WriteMiddle,
    /// Last packet of a WRITE.
    WriteLast(Option<Imm>),
    /// A WRITE in one packet.
    WriteOnly(Reth, Option<Imm>),
    /// A READ.
    Read(Reth),
    /// A compare-and-swap.
    CompareSwap(AtomicEth),
    /// A fetch-and-add.
    FetchAdd(AtomicEth),
    /// An atomic WRITE.
    AtomicWrite(Reth),
    /// A FLUSH.
    Flush(Feth, Reth),
}

/// A response on a reliable connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Response {
    /// First packet of the response to a READ.
    ReadFirst(Aeth),
    /// A packet within the response to a READ.
    ReadMiddle,
    /// Last packet of the response to a READ.
    ReadLast(Aeth),
    /// The response to a READ in one packet.
    ReadOnly(Aeth),
    /// An acknowledgement, positive or negative.
    Acknowledge(Aeth),
    /// The response to an atomic operation.
    AtomicAcknowledge(Aeth, AtomicAckEth),
}

/// A datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// The source queue pair and the Q_Key.
    pub deth: Deth,
    /// Immediate data.
    pub imm: Option<Imm>,
}

/// Why bytes are not a packet that we take.
// Rules: VAL-11
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParseError {
    /// The opcode is reserved or of a transport that we do not speak.
    Opcode,
    /// It is shorter than its opcode and pad count require.
    Truncated,
    /// Payload and pad together are no multiple of four bytes.
    Alignment,
    /// It has payload or pad where its opcode has none.
    Payload,
    /// The transport header version is not 0.
    Version,
    /// The AETH's syndrome is reserved.
    Syndrome,
}

/// Parses a packet.
///
/// `header` are the first bytes of the UDP payload, all of it or at least [`MAX_HEADER`];
/// `udp_payload_len` is the length of the whole, ICRC included. The ICRC is not checked here.
///
/// # Errors
///
/// See [`ParseError`] and the rules at the top of this module.
// Rules: WIRE-1
pub fn parse(header: &[u8], udp_payload_len: u32) -> Result<Packet, ParseError> {
    let mut reader = Reader(header);
    let raw = reader.take::<{ bth::BYTES }>()?;
    let (transport, info) = opcode::decode(bth::opcode(&raw)).map_err(|_| ParseError::Opcode)?;
    let bth = Bth::parse(transport, &raw)?;
    let payload_len = payload_len(&bth, info, udp_payload_len)?;
    let body = match transport {
        Transport::Ud => Body::Datagram(Datagram::parse(info.operation, &mut reader)?),
        Transport::Rc | Transport::Uc if info.request => {
            Body::Request(Request::parse(info.operation, &mut reader)?)
        }
        Transport::Rc | Transport::Uc => {
            Body::Response(Response::parse(info.operation, &mut reader)?)
        }
    };
    Ok(Packet {
        bth,
        body,
        payload_len,
        psns: 1,
    })
}

/// Returns the payload's length, if the lengths agree with each other.
fn payload_len(bth: &Bth, info: &Info, udp_payload_len: u32) -> Result<u32, ParseError> {
    let header = opcode::header_bytes(bth.transport, info).wrapping_add(bth::BYTES as u32);
    // Rules: WIRE-20
    let padded = udp_payload_len
        .checked_sub(header.wrapping_add(ICRC_BYTES))
        .ok_or(ParseError::Truncated)?;
    // Rules: WIRE-19
    if padded % 4 != 0 {
        return Err(ParseError::Alignment);
    }
    // Rules: WIRE-22
    if !info.payload && (padded != 0 || bth.pad != 0) {
        return Err(ParseError::Payload);
    }
    // Rules: WIRE-21
    padded
        .checked_sub(u32::from(bth.pad))
        .ok_or(ParseError::Truncated)
}

/// Takes headers off the front of bytes.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    // Rules: VAL-12
    fn take<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        let (head, rest) = self.0.split_first_chunk().ok_or(ParseError::Truncated)?;
        self.0 = rest;
        Ok(*head)
    }

    fn reth(&mut self) -> Result<Reth, ParseError> {
        Ok(Reth::parse(&self.take()?))
    }

    fn aeth(&mut self) -> Result<Aeth, ParseError> {
        Aeth::parse(&self.take()?)
    }

    fn atomic_eth(&mut self) -> Result<AtomicEth, ParseError> {
        Ok(AtomicEth::parse(&self.take()?))
    }

    // Rules: WIRE-15
    fn imm(&mut self) -> Result<Imm, ParseError> {
        Ok(Imm(self.take()?))
    }

    // Rules: WIRE-16
    fn ieth(&mut self) -> Result<Rkey, ParseError> {
        Ok(Rkey(u32::from_be_bytes(self.take()?)))
    }
}

impl Request {
    fn parse(operation: Operation, reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        Ok(match operation {
            Operation::SendFirst => Self::SendFirst,
            Operation::SendMiddle => Self::SendMiddle,
            Operation::SendLast => Self::SendLast(SendEnd::Plain),
            Operation::SendLastImm => Self::SendLast(SendEnd::Imm(reader.imm()?)),
            Operation::SendLastInvalidate => Self::SendLast(SendEnd::Invalidate(reader.ieth()?)),
            Operation::SendOnly => Self::SendOnly(SendEnd::Plain),
            Operation::SendOnlyImm => Self::SendOnly(SendEnd::Imm(reader.imm()?)),
            Operation::SendOnlyInvalidate => Self::SendOnly(SendEnd::Invalidate(reader.ieth()?)),
            Operation::WriteFirst => Self::WriteFirst(reader.reth()?),
            Operation::WriteMiddle => Self::WriteMiddle,
            Operation::WriteLast => Self::WriteLast(None),
            Operation::WriteLastImm => Self::WriteLast(Some(reader.imm()?)),
            Operation::WriteOnly => Self::WriteOnly(reader.reth()?, None),
            Operation::WriteOnlyImm => Self::WriteOnly(reader.reth()?, Some(reader.imm()?)),
            Operation::ReadRequest => Self::Read(reader.reth()?),
            Operation::CompareSwap => Self::CompareSwap(reader.atomic_eth()?),
            Operation::FetchAdd => Self::FetchAdd(reader.atomic_eth()?),
            Operation::AtomicWrite => Self::AtomicWrite(reader.reth()?),
            Operation::Flush => Self::Flush(Feth::parse(&reader.take()?), reader.reth()?),
            _ => return Err(ParseError::Opcode),
        })
    }

    /// Returns true if it starts a message.
    #[inline]
    pub const fn starts(&self) -> bool {
        !matches!(
            self,
            Self::SendMiddle | Self::SendLast(_) | Self::WriteMiddle | Self::WriteLast(_)
        )
    }

    /// Returns the operation.
    pub const fn operation(&self) -> Operation {
        match self {
            Self::SendFirst => Operation::SendFirst,
            Self::SendMiddle => Operation::SendMiddle,
            Self::SendLast(SendEnd::Plain) => Operation::SendLast,
            Self::SendLast(SendEnd::Imm(_)) => Operation::SendLastImm,
            Self::SendLast(SendEnd::Invalidate(_)) => Operation::SendLastInvalidate,
            Self::SendOnly(SendEnd::Plain) => Operation::SendOnly,
            Self::SendOnly(SendEnd::Imm(_)) => Operation::SendOnlyImm,
            Self::SendOnly(SendEnd::Invalidate(_)) => Operation::SendOnlyInvalidate,
            Self::WriteFirst(_) => Operation::WriteFirst,
            Self::WriteMiddle => Operation::WriteMiddle,
            Self::WriteLast(None) => Operation::WriteLast,
            Self::WriteLast(Some(_)) => Operation::WriteLastImm,
            Self::WriteOnly(_, None) => Operation::WriteOnly,
            Self::WriteOnly(_, Some(_)) => Operation::WriteOnlyImm,
            Self::Read(_) => Operation::ReadRequest,
            Self::CompareSwap(_) => Operation::CompareSwap,
            Self::FetchAdd(_) => Operation::FetchAdd,
            Self::AtomicWrite(_) => Operation::AtomicWrite,
            Self::Flush(..) => Operation::Flush,
        }
    }

    fn emit(&self, to: &mut HeaderBytes) {
        match self {
            Self::SendFirst | Self::SendMiddle | Self::WriteMiddle | Self::WriteLast(None) => {}
            Self::SendLast(end) | Self::SendOnly(end) => end.emit(to),
            Self::WriteLast(Some(imm)) => to.push(&imm.0),
            Self::WriteFirst(reth)
            | Self::WriteOnly(reth, None)
            | Self::Read(reth)
            | Self::AtomicWrite(reth) => to.push(&reth.emit()),
            Self::WriteOnly(reth, Some(imm)) => {
                to.push(&reth.emit());
                to.push(&imm.0);
            }
            Self::CompareSwap(atomic) | Self::FetchAdd(atomic) => to.push(&atomic.emit()),
            Self::Flush(feth, reth) => {
                to.push(&feth.emit());
                to.push(&reth.emit());
            }
        }
    }
}

impl SendEnd {
    fn emit(&self, to: &mut HeaderBytes) {
        match self {
            Self::Plain => {}
            Self::Imm(imm) => to.push(&imm.0),
            Self::Invalidate(rkey) => to.push(&rkey.0.to_be_bytes()),
        }
    }
}

impl Response {
    fn parse(operation: Operation, reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        Ok(match operation {
            Operation::ReadResponseFirst => Self::ReadFirst(reader.aeth()?),
            Operation::ReadResponseMiddle => Self::ReadMiddle,
            Operation::ReadResponseLast => Self::ReadLast(reader.aeth()?),
            Operation::ReadResponseOnly => Self::ReadOnly(reader.aeth()?),
            Operation::Acknowledge => Self::Acknowledge(reader.aeth()?),
            Operation::AtomicAcknowledge => {
                Self::AtomicAcknowledge(reader.aeth()?, AtomicAckEth::parse(&reader.take()?))
            }
            _ => return Err(ParseError::Opcode),
        })
    }

    /// Returns the operation.
    pub const fn operation(&self) -> Operation {
        match self {
            Self::ReadFirst(_) => Operation::ReadResponseFirst,
            Self::ReadMiddle => Operation::ReadResponseMiddle,
            Self::ReadLast(_) => Operation::ReadResponseLast,
            Self::ReadOnly(_) => Operation::ReadResponseOnly,
            Self::Acknowledge(_) => Operation::Acknowledge,
            Self::AtomicAcknowledge(..) => Operation::AtomicAcknowledge,
        }
    }

    fn emit(&self, to: &mut HeaderBytes) {
        match self {
            Self::ReadMiddle => {}
            Self::ReadFirst(aeth)
            | Self::ReadLast(aeth)
            | Self::ReadOnly(aeth)
            | Self::Acknowledge(aeth) => to.push(&aeth.emit()),
            Self::AtomicAcknowledge(aeth, atomic) => {
                to.push(&aeth.emit());
                to.push(&atomic.emit());
            }
        }
    }
}

impl Datagram {
    fn parse(operation: Operation, reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let deth = Deth::parse(&reader.take()?);
        let imm = match operation {
            Operation::SendOnly => None,
            Operation::SendOnlyImm => Some(reader.imm()?),
            _ => return Err(ParseError::Opcode),
        };
        Ok(Self { deth, imm })
    }

    /// Returns the operation.
    pub const fn operation(&self) -> Operation {
        match self.imm {
            None => Operation::SendOnly,
            Some(_) => Operation::SendOnlyImm,
        }
    }

    fn emit(&self, to: &mut HeaderBytes) {
        to.push(&self.deth.emit());
        if let Some(imm) = self.imm {
            to.push(&imm.0);
        }
    }
}

impl Body {
    /// Returns the operation.
    #[inline]
    pub const fn operation(&self) -> Operation {
        match self {
            Self::Request(request) => request.operation(),
            Self::Response(response) => response.operation(),
            Self::Datagram(datagram) => datagram.operation(),
        }
    }
}

/// The headers of one packet, BTH first.
#[derive(Clone, Copy, Debug)]
pub struct HeaderBytes {
    bytes: [u8; MAX_HEADER],
    len: u8,
}

impl HeaderBytes {
    /// Emits the headers of a packet.
    ///
    /// `bth.transport` must have the operation of `body`: the types do not rule out a READ on an
    /// unreliable connection.
    // Rules: WIRE-18, WIRE-28
    pub fn new(bth: &Bth, body: &Body) -> Self {
        let mut to = Self {
            bytes: [0; MAX_HEADER],
            len: 0,
        };
        to.push(&bth.emit(body.operation()));
        to.push_extensions(body);
        to
    }

    /// Appends the extension headers. It is not inlined: else the common headers would be written
    /// byte by byte, as the rare ones are.
    #[inline(never)]
    fn push_extensions(&mut self, body: &Body) {
        match body {
            Body::Request(request) => request.emit(self),
            Body::Response(response) => response.emit(self),
            Body::Datagram(datagram) => datagram.emit(self),
        }
    }

    /// Appends one header. [`MAX_HEADER`] has room for those of any packet.
    #[inline]
    fn push<const N: usize>(&mut self, header: &[u8; N]) {
        let room = self.bytes.get_mut(usize::from(self.len)..);
        if let Some(to) = room.and_then(|room| room.first_chunk_mut()) {
            *to = *header;
            self.len = self.len.wrapping_add(N as u8);
        }
    }

    /// Returns the bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&[])
    }
}

impl Packet {
    /// Returns true if it has data that a READ asked for.
    pub const fn is_read_data(&self) -> bool {
        use Response::{ReadFirst, ReadLast, ReadMiddle, ReadOnly};
        matches!(
            self.body,
            Body::Response(ReadFirst(_) | ReadMiddle | ReadLast(_) | ReadOnly(_))
        )
    }

    /// Returns true if it is the whole response to a READ or an atomic operation.
    pub const fn is_whole_answer(&self) -> bool {
        use Response::{AtomicAcknowledge, ReadOnly};
        matches!(
            self.body,
            Body::Response(ReadOnly(_) | AtomicAcknowledge(..))
        )
    }

    /// Returns the start of the payload in the UDP payload of this packet, which has
    /// `udp_payload_len` bytes.
    #[inline]
    pub const fn payload_at(&self, udp_payload_len: u32) -> u32 {
        let behind = self.payload_len.wrapping_add(self.bth.pad as u32);
        udp_payload_len.wrapping_sub(behind.wrapping_add(ICRC_BYTES))
    }
}
