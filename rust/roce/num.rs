// SPDX-License-Identifier: GPL-2.0

//! Numbers of the transport, each a type of its own.
//!
//! Sequence numbers count modulo 2^24 and compare within half of that circle; keys and queue-pair
//! numbers do not count at all. Giving each its own type makes the wrong arithmetic impossible.

use core::fmt;

/// Bits that a 24-bit number of the transport may use.
const MASK_24: u32 = 0x00ff_ffff;

/// Half of the 24-bit circle: numbers nearer than this ahead are "after".
const HALF_24: u32 = 0x0080_0000;

macro_rules! number_24 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(u32);

        impl $name {
            /// Takes the low 24 bits of `raw`.
            // Rules: PSN-16
            #[inline]
            pub const fn new(raw: u32) -> Self {
                Self(raw & MASK_24)
            }

            /// Returns the number, below 2^24.
            #[inline]
            pub const fn get(self) -> u32 {
                self.0
            }

            /// Returns the number as three bytes in network order.
            #[inline]
            pub const fn to_be_bytes(self) -> [u8; 3] {
                let [_, a, b, c] = self.0.to_be_bytes();
                [a, b, c]
            }

            /// Reads three bytes in network order.
            #[inline]
            pub const fn from_be_bytes(bytes: [u8; 3]) -> Self {
                let [a, b, c] = bytes;
                Self(u32::from_be_bytes([0, a, b, c]))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#08x})"), self.0)
            }
        }
    };
}

macro_rules! sequence_24 {
    ($name:ident) => {
        impl $name {
            /// Returns the number `count` further on the circle.
            #[inline]
            #[must_use]
            pub const fn add(self, count: u32) -> Self {
                Self::new(self.0.wrapping_add(count))
            }

            /// Returns the number `count` further back on the circle.
            #[inline]
            #[must_use]
            pub const fn sub(self, count: u32) -> Self {
                Self::new(self.0.wrapping_sub(count))
            }

            /// Returns the next number.
            #[inline]
            #[must_use]
            pub const fn next(self) -> Self {
                self.add(1)
            }

            /// Returns the number before this one.
            #[inline]
            #[must_use]
            pub const fn prev(self) -> Self {
                self.sub(1)
            }

            /// Returns how far this number is ahead of `origin`, 0 ..= 2^24 - 1.
            // Rules: PSN-1, PSN-15
            #[inline]
            pub const fn distance_from(self, origin: Self) -> u32 {
                self.0.wrapping_sub(origin.0) & MASK_24
            }

            /// Returns true if this number comes before `other`: less than half the circle behind
            /// it.
            ///
            /// Exactly half the circle apart counts as before, both ways round; the windows of
            /// the transport are at most half the circle, so no caller can meet that case in a
            /// packet that it accepts.
            // Rules: PSN-2
            #[inline]
            pub const fn is_before(self, other: Self) -> bool {
                self.0 != other.0 && other.distance_from(self) <= HALF_24
            }

            /// Returns true if this number is `other` or comes before it.
            #[inline]
            pub const fn is_at_or_before(self, other: Self) -> bool {
                self.0 == other.0 || self.is_before(other)
            }

            /// Returns this number or `other`, the one that comes first.
            #[inline]
            pub const fn earlier(self, other: Self) -> Self {
                if self.is_before(other) {
                    self
                } else {
                    other
                }
            }

            /// Returns this number or `other`, the one that comes last.
            #[inline]
            pub const fn later(self, other: Self) -> Self {
                if self.is_before(other) {
                    other
                } else {
                    self
                }
            }
        }
    };
}

number_24! {
    /// A packet sequence number.
    Psn
}
sequence_24!(Psn);

number_24! {
    /// A message sequence number: how many messages a responder has completed.
    Msn
}
sequence_24!(Msn);

number_24! {
    /// A queue-pair number.
    Qpn
}

impl Qpn {
    /// The general services interface, QP1.
    pub const GSI: Self = Self(1);

    /// The destination of every multicast packet.
    // Rules: MCG-2
    pub const MULTICAST: Self = Self(MASK_24);
}

/// A partition key: 15 bits of partition and one of membership.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pkey(pub u16);

impl Pkey {
    /// Full member of the default partition.
    // Rules: KEY-3
    pub const DEFAULT: Self = Self(0xffff);

    const FULL: u16 = 0x8000;

    /// Returns true if packets with `other` may pass: the same partition, valid, and not two
    /// limited members.
    // Rules: KEY-1
    #[inline]
    pub const fn matches(self, other: Self) -> bool {
        let base = self.0 & !Self::FULL;
        // Rules: KEY-2
        base != 0 && base == other.0 & !Self::FULL && (self.0 | other.0) & Self::FULL != 0
    }
}

/// A queue key, which guards datagram queue pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Qkey(pub u32);

impl Qkey {
    /// Returns true if only privileged users may send this key (its highest bit).
    #[inline]
    pub const fn is_privileged(self) -> bool {
        self.0 & 0x8000_0000 != 0
    }
}

/// A key that a peer presents to reach our memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rkey(pub u32);

/// A key that a local work request presents to reach its own memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lkey(pub u32);

/// An address inside a memory region, as its owner and its peers name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Iova(pub u64);

impl Iova {
    /// Returns the address `count` bytes further; wraps, as the bounds are checked where access is
    /// granted.
    #[inline]
    #[must_use]
    pub const fn add(self, count: u64) -> Self {
        Self(self.0.wrapping_add(count))
    }
}

/// Immediate data, in the byte order of the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Imm(pub [u8; 4]);

/// A path MTU: the largest payload of one packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mtu {
    /// 256 bytes.
    B256 = 256,
    /// 512 bytes.
    B512 = 512,
    /// 1024 bytes.
    B1024 = 1024,
    /// 2048 bytes.
    B2048 = 2048,
    /// 4096 bytes.
    B4096 = 4096,
}

impl Mtu {
    /// Every MTU, smallest first.
    pub const ALL: [Self; 5] = [
        Self::B256,
        Self::B512,
        Self::B1024,
        Self::B2048,
        Self::B4096,
    ];

    /// Decodes `enum ib_mtu`, 1 ..= 5.
    pub const fn from_code(code: u32) -> Option<Self> {
        match code {
            1 => Some(Self::B256),
            2 => Some(Self::B512),
            3 => Some(Self::B1024),
            4 => Some(Self::B2048),
            5 => Some(Self::B4096),
            _ => None,
        }
    }

    /// Encodes as `enum ib_mtu`.
    pub const fn code(self) -> u32 {
        match self {
            Self::B256 => 1,
            Self::B512 => 2,
            Self::B1024 => 3,
            Self::B2048 => 4,
            Self::B4096 => 5,
        }
    }

    /// Returns the largest MTU not above `bytes`.
    pub fn within(bytes: u32) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|mtu| mtu.bytes() <= bytes)
    }

    /// Returns the number of payload bytes.
    #[inline]
    pub const fn bytes(self) -> u32 {
        self as u32
    }

    /// Returns how many packets a message of `length` bytes takes: at least one, at most 2^23.
    // Rules: PSN-6, SEG-5
    #[inline]
    pub const fn packets(self, length: u32) -> u32 {
        match length.checked_sub(1) {
            None => 1,
            // The MTU is a power of two.
            Some(last) => last
                .wrapping_shr(self.bytes().trailing_zeros())
                .wrapping_add(1),
        }
    }
}

/// How many consecutive PSNs of one message a packet stands for at most.
///
/// On a wire that is one. Packets that never leave a machine may stand for more, which saves work.
/// Such a packet has the payload of all its PSNs, the PSN of the first, and the position of the
/// whole in its message: first, middle or last. The [number of PSNs](crate::wire::Packet::psns) is
/// not in its headers, so a packet from a wire is never taken for a bundle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bundle(u32);

impl Bundle {
    /// The size of each packet on a wire.
    pub const ONE: Self = Self(1);

    /// Returns the largest bundle with at most `bytes` of payload, and at least one packet.
    pub const fn within(bytes: u32, mtu: Mtu) -> Self {
        match bytes.wrapping_div(mtu.bytes()) {
            0 => Self::ONE,
            psns => Self(psns),
        }
    }

    /// Returns the number of payload bytes.
    #[inline]
    pub const fn bytes(self, mtu: Mtu) -> u32 {
        self.0.wrapping_mul(mtu.bytes())
    }

    /// Returns the number of PSNs.
    #[inline]
    pub const fn psns(self) -> u32 {
        self.0
    }
}
