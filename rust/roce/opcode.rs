// SPDX-License-Identifier: GPL-2.0

//! The opcode of the base transport header.
//!
//! Its upper three bits name a transport, its lower five an operation. One table lists for each
//! operation the transports that have it, the headers, the position in a message and the payload.
//! Everything else in this crate asks the table.

/// A transport that we speak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Transport {
    /// Reliable connection.
    Rc = 0,
    /// Unreliable connection.
    Uc = 1,
    /// Unreliable datagram.
    Ud = 3,
}

impl Transport {
    /// Every transport that we speak.
    pub const ALL: [Self; 3] = [Self::Rc, Self::Uc, Self::Ud];

    const fn bit(self) -> u8 {
        1 << (self as u8)
    }
}

/// A connection of two queue pairs: one of the transports that have such.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Connection {
    /// Requests are acknowledged, and sent again when they are lost.
    Reliable,
    /// Requests are sent once and never answered.
    Unreliable,
}

impl Connection {
    /// Returns the transport of its packets.
    #[inline]
    pub const fn transport(self) -> Transport {
        match self {
            Self::Reliable => Transport::Rc,
            Self::Unreliable => Transport::Uc,
        }
    }
}

/// An operation, by the lower five bits of its opcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Operation {
    /// First packet of a SEND.
    SendFirst = 0x00,
    /// A packet of a SEND that is neither its first nor its last.
    SendMiddle = 0x01,
    /// Last packet of a SEND.
    SendLast = 0x02,
    /// Last packet of a SEND, with immediate data.
    SendLastImm = 0x03,
    /// A SEND in one packet.
    SendOnly = 0x04,
    /// A SEND in one packet, with immediate data.
    SendOnlyImm = 0x05,
    /// First packet of a WRITE.
    WriteFirst = 0x06,
    /// A packet of a WRITE that is neither its first nor its last.
    WriteMiddle = 0x07,
    /// Last packet of a WRITE.
    WriteLast = 0x08,
    /// Last packet of a WRITE, with immediate data.
    WriteLastImm = 0x09,
    /// A WRITE in one packet.
    WriteOnly = 0x0a,
    /// A WRITE in one packet, with immediate data.
    WriteOnlyImm = 0x0b,
    /// A READ request.
    ReadRequest = 0x0c,
    /// First packet of the response to a READ.
    ReadResponseFirst = 0x0d,
    /// A packet of the response to a READ that is neither its first nor its last.
    ReadResponseMiddle = 0x0e,
    /// Last packet of the response to a READ.
    ReadResponseLast = 0x0f,
    /// The response to a READ in one packet.
    ReadResponseOnly = 0x10,
    /// An acknowledgement, positive or negative.
    Acknowledge = 0x11,
    /// The response to an atomic operation.
    AtomicAcknowledge = 0x12,
    /// A compare-and-swap request.
    CompareSwap = 0x13,
    /// A fetch-and-add request.
    FetchAdd = 0x14,
    /// Last packet of a SEND, with a key to invalidate.
    SendLastInvalidate = 0x16,
    /// A SEND in one packet, with a key to invalidate.
    SendOnlyInvalidate = 0x17,
    /// A FLUSH request.
    Flush = 0x1c,
    /// An atomic WRITE request.
    AtomicWrite = 0x1d,
}

/// The position of a packet in its message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Position {
    /// More packets follow.
    First,
    /// Packets came before and more follow.
    Middle,
    /// Packets came before and none follows.
    Last,
    /// It is the whole message.
    Only,
}

impl Position {
    /// Returns the position of a packet that starts, ends, or neither starts nor ends its message.
    #[inline]
    pub const fn new(starts: bool, ends: bool) -> Self {
        match (starts, ends) {
            (true, true) => Self::Only,
            (true, false) => Self::First,
            (false, false) => Self::Middle,
            (false, true) => Self::Last,
        }
    }

    /// Returns true if the packet starts its message.
    #[inline]
    pub const fn starts(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Returns true if the packet ends its message.
    #[inline]
    pub const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// Extension headers, a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headers(u8);

impl Headers {
    /// None.
    pub const NONE: Self = Self(0);
    /// Datagram (DETH).
    pub const DETH: Self = Self(1 << 0);
    /// FLUSH (FETH).
    pub const FETH: Self = Self(1 << 1);
    /// RDMA (RETH).
    pub const RETH: Self = Self(1 << 2);
    /// Atomic (AtomicETH).
    pub const ATOMIC_ETH: Self = Self(1 << 3);
    /// Acknowledge (AETH).
    pub const AETH: Self = Self(1 << 4);
    /// Atomic acknowledge (AtomicAckETH).
    pub const ATOMIC_ACK_ETH: Self = Self(1 << 5);
    /// Immediate data (ImmDt).
    pub const IMM_DT: Self = Self(1 << 6);
    /// Invalidate (IETH).
    pub const IETH: Self = Self(1 << 7);

    /// Returns the union of both sets.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns true if this set contains `other`.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Bytes of each header, by its bit.
    const BYTES: [u8; 8] = [8, 4, 16, 28, 4, 8, 4, 4];

    /// Returns the length of the headers in this set. For the table alone: the compiler evaluates
    /// it.
    const fn bytes(self) -> u8 {
        let mut bytes = 0;
        let mut bit = 0;
        while bit < Self::BYTES.len() {
            if self.0 & (1 << bit) != 0 {
                bytes += Self::BYTES[bit];
            }
            bit += 1;
        }
        bytes
    }
}

/// The row of an operation in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Info {
    /// The operation.
    pub operation: Operation,
    /// The position of the packet in its message.
    pub position: Position,
    /// The extension headers, without the one that every datagram has.
    pub headers: Headers,
    /// Whether it may carry payload.
    pub payload: bool,
    /// Whether a requester sends it (a responder otherwise).
    pub request: bool,
    /// Bytes of `headers`.
    header_bytes: u8,
    /// Which transports have it, a bit for each.
    transports: u8,
}

const RC: u8 = Transport::Rc.bit();
const CONNECTED: u8 = RC | Transport::Uc.bit();
const ALL: u8 = CONNECTED | Transport::Ud.bit();

/// One row; `|` separates the kind of packet from its headers and payload.
macro_rules! row {
    ($transports:ident $way:ident $operation:ident $position:ident | $($header:ident)* ; $payload:ident) => {
        Some(Info {
            operation: Operation::$operation,
            position: Position::$position,
            headers: Headers::NONE$(.with(Headers::$header))*,
            header_bytes: Headers::NONE$(.with(Headers::$header))*.bytes(),
            payload: row!(@payload $payload),
            request: row!(@way $way),
            transports: $transports,
        })
    };
    (@payload data) => { true };
    (@payload none) => { false };
    (@way request) => { true };
    (@way response) => { false };
}

/// Every operation, by the lower five bits of the opcode.
// Rules: WIRE-4, WIRE-5, WIRE-23
#[rustfmt::skip]
const TABLE: [Option<Info>; 32] = [
    row!(CONNECTED request  SendFirst          First  | ; data),
    row!(CONNECTED request  SendMiddle         Middle | ; data),
    row!(CONNECTED request  SendLast           Last   | ; data),
    row!(CONNECTED request  SendLastImm        Last   | IMM_DT ; data),
    row!(ALL       request  SendOnly           Only   | ; data),
    row!(ALL       request  SendOnlyImm        Only   | IMM_DT ; data),
    row!(CONNECTED request  WriteFirst         First  | RETH ; data),
    row!(CONNECTED request  WriteMiddle        Middle | ; data),
    row!(CONNECTED request  WriteLast          Last   | ; data),
    row!(CONNECTED request  WriteLastImm       Last   | IMM_DT ; data),
    row!(CONNECTED request  WriteOnly          Only   | RETH ; data),
    row!(CONNECTED request  WriteOnlyImm       Only   | RETH IMM_DT ; data),
    row!(RC        request  ReadRequest        Only   | RETH ; none),
    row!(RC        response ReadResponseFirst  First  | AETH ; data),
    row!(RC        response ReadResponseMiddle Middle | ; data),
    row!(RC        response ReadResponseLast   Last   | AETH ; data),
    row!(RC        response ReadResponseOnly   Only   | AETH ; data),
    row!(RC        response Acknowledge        Only   | AETH ; none),
    row!(RC        response AtomicAcknowledge  Only   | AETH ATOMIC_ACK_ETH ; none),
    row!(RC        request  CompareSwap        Only   | ATOMIC_ETH ; none),
    row!(RC        request  FetchAdd           Only   | ATOMIC_ETH ; none),
    None,
    row!(RC        request  SendLastInvalidate Last   | IETH ; data),
    row!(RC        request  SendOnlyInvalidate Only   | IETH ; data),
    None, None, None, None,
    row!(RC        request  Flush              Only   | FETH RETH ; none),
    row!(RC        request  AtomicWrite        Only   | RETH ; data),
    None, None,
];

/// The opcode is reserved, or is of a transport that we do not speak (reliable datagram, XRC,
/// congestion notification, the manufacturers').
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unsupported;

/// Returns the opcode of `operation` on `transport`, as in the BTH.
// Rules: WIRE-2
#[inline]
pub const fn encode(transport: Transport, operation: Operation) -> u8 {
    ((transport as u8) << 5) | operation as u8
}

/// Looks up an opcode of the BTH.
///
/// # Errors
///
/// [`Unsupported`] if no transport that we speak has it.
// Rules: WIRE-2, WIRE-3
#[inline]
pub const fn decode(opcode: u8) -> Result<(Transport, &'static Info), Unsupported> {
    let transport = match opcode >> 5 {
        0 => Transport::Rc,
        1 => Transport::Uc,
        3 => Transport::Ud,
        _ => return Err(Unsupported),
    };
    match &TABLE[(opcode & 31) as usize] {
        Some(info) if info.transports & transport.bit() != 0 => Ok((transport, info)),
        _ => Err(Unsupported),
    }
}

/// Returns all extension headers of a packet of `transport` with `info`.
#[inline]
pub const fn headers(transport: Transport, info: &Info) -> Headers {
    match transport {
        Transport::Ud => info.headers.with(Headers::DETH),
        Transport::Rc | Transport::Uc => info.headers,
    }
}

/// Returns the length of those extension headers.
#[inline]
pub const fn header_bytes(transport: Transport, info: &Info) -> u32 {
    let bytes = info.header_bytes as u32;
    match transport {
        Transport::Ud => bytes.wrapping_add(Headers::DETH.bytes() as u32),
        Transport::Rc | Transport::Uc => bytes,
    }
}
