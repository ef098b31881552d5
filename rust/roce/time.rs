// SPDX-License-Identifier: GPL-2.0

//! Time as the protocol sees it: instants handed in by the caller, and the coded delays of the
//! wire. Nothing here reads a clock.

/// A point on the caller's monotonic clock, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Instant(u64);

impl Instant {
    /// Returns the instant `ns` nanoseconds after the clock's origin.
    #[inline]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Returns the nanoseconds since the clock's origin.
    #[inline]
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// Returns the instant `delay_ns` later; stops at the end of time.
    #[inline]
    #[must_use]
    pub const fn after_ns(self, delay_ns: u64) -> Self {
        Self(self.0.saturating_add(delay_ns))
    }

    /// Returns the nanoseconds from `earlier` to this; 0 if it is none.
    #[inline]
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Microseconds of a clock that wraps around: enough to compare times that are near.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Micros(u32);

impl Micros {
    pub(crate) const START: Self = Self(0);
    /// Half a circle before the start.
    pub(crate) const LONG_AGO: Self = Self(1 << 31);

    pub(crate) fn of(now: Instant) -> Self {
        // CAST: It wraps around.
        Self((now.0 / 1000) as u32)
    }

    /// Returns how many there are from `earlier` to this.
    pub(crate) fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    pub(crate) fn after(self, micros: u32) -> Self {
        Self(self.0.wrapping_add(micros))
    }
}

/// Returns the earlier of two optional instants.
#[inline]
pub fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if a < b { a } else { b }),
        (one, other) => one.or(other),
    }
}

/// Local ACK timeout, the 5-bit code of a queue pair's `timeout` attribute.
///
/// Code 0 means that the requester never times out; otherwise it waits 4.096 µs · 2^code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AckTimeout(u8);

impl AckTimeout {
    /// No timeout.
    pub const NEVER: Self = Self(0);

    /// Takes a code of 0 ..= 31.
    // Rules: RTY-17
    pub const fn new(code: u8) -> Option<Self> {
        if code <= 31 {
            Some(Self(code))
        } else {
            None
        }
    }

    /// Returns the code.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns the delay in nanoseconds, or `None` for "never".
    // Rules: RTY-2, RTY-4
    #[inline]
    pub const fn delay_ns(self) -> Option<u64> {
        match self.0 {
            0 => None,
            code => Some(4096u64.wrapping_shl(code as u32)),
        }
    }
}

/// RNR NAK timer, the 5-bit code in an RNR NAK and in a queue pair's `min_rnr_timer`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RnrTimer(u8);

impl RnrTimer {
    /// Delays by code, in units of 10 µs.
    // Rules: RNR-10
    const UNITS: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
        1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];

    /// Takes a code of 0 ..= 31.
    pub const fn new(code: u8) -> Option<Self> {
        if code <= 31 {
            Some(Self(code))
        } else {
            None
        }
    }

    /// Takes the low five bits of `bits`.
    #[inline]
    pub const fn from_low_bits(bits: u8) -> Self {
        Self(bits & 31)
    }

    /// Returns the code.
    #[inline]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns the delay in nanoseconds, 10 µs ..= 655.36 ms.
    #[inline]
    pub const fn delay_ns(self) -> u64 {
        Self::UNITS[(self.0 & 31) as usize] as u64 * 10_000
    }
}
