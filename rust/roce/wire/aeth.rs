// SPDX-License-Identifier: GPL-2.0

//! The acknowledge extended transport header (AETH).
//!
//! ```text
//!   +-+---+---------+-----------------------------------------------+
//!   |0|way|  value  |                      MSN                      |
//!   +-+---+---------+-----------------------------------------------+
//! ```
//!
//! | way | meaning | value |
//! |-----|---------|-------|
//! | 00  | ACK     | credits, of which 31 means "not counted" |
//! | 01  | RNR NAK | timer code |
//! | 10  | reserved | |
//! | 11  | NAK     | code |

use super::ParseError;
use crate::num::Msn;
use crate::time::RnrTimer;

/// Bytes of the header.
pub const BYTES: usize = 4;

/// Credit code of a responder that does not count credits, as ours: RNR NAKs do that work.
// Rules: CRD-1
pub const CREDITS_NOT_COUNTED: u8 = 31;

const ACK: u8 = 0x00;
const RNR_NAK: u8 = 0x20;
const NAK: u8 = 0x60;
const WAY_MASK: u8 = 0xe0;
const VALUE_MASK: u8 = 0x1f;

/// The reason of a negative acknowledgement.
// Rules: WIRE-25
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum NakCode {
    /// A packet before this one is missing: send again from the PSN of this NAK.
    SequenceError = 0,
    /// The request is not valid.
    InvalidRequest = 1,
    /// The request asks for memory that it may not reach.
    RemoteAccess = 2,
    /// The responder could not execute it.
    RemoteOperation = 3,
}

/// The kind of acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Syndrome {
    /// Done, as was everything before.
    Ack {
        /// How many more SENDs the responder has receives for, coded, 0 ..= 31.
        credits: u8,
    },
    /// No receive is posted: try again after this time.
    RnrNak(RnrTimer),
    /// Refused.
    Nak(NakCode),
}

/// An acknowledge extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aeth {
    /// The kind of acknowledgement.
    pub syndrome: Syndrome,
    /// How many messages the responder has completed.
    pub msn: Msn,
}

impl Syndrome {
    /// The positive acknowledgement that our responder sends.
    pub const ACK: Self = Self::Ack {
        credits: CREDITS_NOT_COUNTED,
    };

    // Rules: WIRE-24, WIRE-27
    const fn parse(byte: u8) -> Option<Self> {
        let value = byte & VALUE_MASK;
        match byte & WAY_MASK {
            ACK => Some(Self::Ack { credits: value }),
            RNR_NAK => Some(Self::RnrNak(RnrTimer::from_low_bits(value))),
            NAK => match value {
                0 => Some(Self::Nak(NakCode::SequenceError)),
                1 => Some(Self::Nak(NakCode::InvalidRequest)),
                2 => Some(Self::Nak(NakCode::RemoteAccess)),
                3 => Some(Self::Nak(NakCode::RemoteOperation)),
                _ => None,
            },
            _ => None,
        }
    }

    // Rules: WIRE-24
    const fn emit(self) -> u8 {
        match self {
            Self::Ack { credits } => ACK | credits & VALUE_MASK,
            Self::RnrNak(timer) => RNR_NAK | timer.code(),
            Self::Nak(code) => NAK | code as u8,
        }
    }
}

impl Aeth {
    /// Parses the header.
    ///
    /// # Errors
    ///
    /// [`ParseError::Syndrome`] if the way, the NAK code or the upper bit is reserved.
    // Rules: WIRE-12
    #[inline]
    pub fn parse(bytes: &[u8; BYTES]) -> Result<Self, ParseError> {
        let [syndrome, m0, m1, m2] = *bytes;
        Ok(Self {
            // Rules: WIRE-26
            syndrome: Syndrome::parse(syndrome).ok_or(ParseError::Syndrome)?,
            msn: Msn::from_be_bytes([m0, m1, m2]),
        })
    }

    /// Emits the header.
    // Rules: WIRE-12
    #[inline]
    pub fn emit(&self) -> [u8; BYTES] {
        let [m0, m1, m2] = self.msn.to_be_bytes();
        [self.syndrome.emit(), m0, m1, m2]
    }
}
