// SPDX-License-Identifier: GPL-2.0

//! The FLUSH extended transport header (FETH).

/// Bytes of the header.
pub const BYTES: usize = 4;

const PLACEMENT_MASK: u32 = 0x0f;
const SELECTIVITY_MASK: u32 = 0x03;
const SELECTIVITY_SHIFT: u32 = 4;

/// A FLUSH extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Feth {
    /// The placement: bit 0 global visibility, bit 1 persistence; bits 2 and 3 are reserved.
    pub placement: u8,
    /// The selectivity: 0 the range of the RETH, 1 the whole region; 2 and 3 are reserved.
    pub selectivity: u8,
}

/// The scope and placement of a FLUSH.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flush {
    /// The places that the bytes must reach.
    pub placement: Placement,
    /// True to flush the whole region instead of the named range.
    pub whole_region: bool,
}

/// The places that a FLUSH makes earlier writes reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Placement {
    /// Visible to all.
    pub global: bool,
    /// Kept without power.
    pub persistent: bool,
}

/// Bit of `placement`: everyone is to see it.
const GLOBAL: u8 = 1 << 0;
/// Bit of `placement`: it is to outlast the machine's power.
const PERSISTENT: u8 = 1 << 1;
/// `selectivity`: the range of the RETH.
const RANGE: u8 = 0;
/// `selectivity`: the whole region.
const REGION: u8 = 1;

impl Feth {
    /// Returns the header for `flush`.
    pub fn from_flush(flush: Flush) -> Self {
        let Placement { global, persistent } = flush.placement;
        Self {
            placement: (u8::from(global) * GLOBAL) | (u8::from(persistent) * PERSISTENT),
            selectivity: if flush.whole_region { REGION } else { RANGE },
        }
    }

    /// Decodes the header. Returns `None` if it has a reserved value.
    // Rules: MPE-9
    pub fn flush(&self) -> Option<Flush> {
        let whole_region = match self.selectivity {
            RANGE => false,
            REGION => true,
            _ => return None,
        };
        if self.placement & !(GLOBAL | PERSISTENT) != 0 {
            return None;
        }
        let placement = Placement {
            global: self.placement & GLOBAL != 0,
            persistent: self.placement & PERSISTENT != 0,
        };
        Some(Flush {
            placement,
            whole_region,
        })
    }

    /// Parses the header; the reserved upper bits are ignored.
    // Rules: WIRE-17
    #[inline]
    pub fn parse(bytes: &[u8; BYTES]) -> Self {
        let bits = u32::from_be_bytes(*bytes);
        Self {
            placement: (bits & PLACEMENT_MASK) as u8,
            selectivity: ((bits >> SELECTIVITY_SHIFT) & SELECTIVITY_MASK) as u8,
        }
    }

    /// Emits the header.
    // Rules: WIRE-17
    #[inline]
    pub fn emit(&self) -> [u8; BYTES] {
        let placement = u32::from(self.placement) & PLACEMENT_MASK;
        let selectivity = u32::from(self.selectivity) & SELECTIVITY_MASK;
        ((selectivity << SELECTIVITY_SHIFT) | placement).to_be_bytes()
    }
}
