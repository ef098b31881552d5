// SPDX-License-Identifier: GPL-2.0

//! The congestion notification packet (CNP) of RoCEv2.
//!
//! A receiver sends it to the queue pair whose packets were marked on their way. It is a BTH of its
//! own transport, with B set and PSN 0, and sixteen reserved bytes. It is never acknowledged, and
//! its loss is harmless.

use super::bth::{self, first_word, word};
use super::{HeaderBytes, ICRC_BYTES, MAX_HEADER};
use crate::num::{Pkey, Qpn};

/// The opcode.
const OPCODE: u8 = 0x81;
/// Reserved bytes after the BTH.
const RESERVED: usize = 16;
/// Bytes before the ICRC.
const BYTES: usize = bth::BYTES + RESERVED;

/// The differentiated services code point of CNPs, by which networks know them: class selector 6.
pub const DSCP: u8 = 48;

/// Returns the packet for the peer's queue pair `dest`, without the ICRC.
// Rules: CNP-1
pub fn emit(dest: Qpn) -> HeaderBytes {
    let mut to = HeaderBytes {
        bytes: [0; MAX_HEADER],
        len: 0,
    };
    to.push(&first_word(OPCODE, 0, Pkey::DEFAULT).to_be_bytes());
    to.push(&word(bth::BECN, dest.get()).to_be_bytes());
    to.push(&[0; 4]);
    to.push(&[0; RESERVED]);
    to
}

/// Returns true if `header` is the start of a CNP whose UDP payload has `udp_payload_len` bytes.
/// Reserved fields, the P_Key and B may have any value.
// Rules: CNP-2
#[inline]
pub fn is_cnp(header: &[u8], udp_payload_len: u32) -> bool {
    header.first() == Some(&OPCODE) && udp_payload_len == BYTES as u32 + ICRC_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire;

    // Rules: CNP-1, CNP-2
    #[test]
    fn is_what_networks_know() {
        let header = emit(Qpn::new(0x12_3456));
        let bytes = header.as_bytes();
        let mut expected = [0; BYTES];
        expected[..8].copy_from_slice(&[0x81, 0, 0xff, 0xff, 0x40, 0x12, 0x34, 0x56]);
        assert_eq!(bytes, expected);
        let len = bytes.len() as u32 + ICRC_BYTES;
        assert!(is_cnp(bytes, len));
        assert_eq!(
            bth::dest_qp(bytes.first_chunk().unwrap()),
            Qpn::new(0x12_3456)
        );
        // It is nothing else, and nothing else is one.
        assert_eq!(wire::parse(bytes, len), Err(wire::ParseError::Opcode));
        assert!(!is_cnp(bytes, len + 4));
        assert!(!is_cnp(&[0x80; BYTES], len));
        assert!(!is_cnp(&[], 0));
    }
}
