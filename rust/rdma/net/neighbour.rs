// SPDX-License-Identifier: GPL-2.0

//! The part of neighbour discovery (RFC 4861) by which peers find an address that the IPv6 stack
//! does not have.

use crate::net::headers::IPV6_BYTES;

/// Bytes of a solicitation, or an advertisement, without options.
const MESSAGE_BYTES: usize = 24;
/// Bytes of an advertisement with its one option, the IPv6 header included.
pub(super) const ADVERTISEMENT_BYTES: usize = IPV6_BYTES + MESSAGE_BYTES + 8;

/// The longest solicitation that is handled, IPv6 header included. Those of today have two options,
/// of 8 bytes each.
pub(super) const MAX_SOLICITATION_BYTES: usize = IPV6_BYTES + MESSAGE_BYTES + 64;

/// ICMPv6, in an IPv6 header.
pub(super) const IPPROTO_ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const SOURCE_LINK_LAYER_ADDRESS: u8 = 1;
const TARGET_LINK_LAYER_ADDRESS: u8 = 2;
/// The hop limit of a message that was not forwarded.
const HOP_LIMIT: u8 = 255;

/// Returns the multicast group to which solicitations of `address` are sent.
pub(super) fn solicited_node(address: [u8; 16]) -> [u8; 16] {
    let [.., a, b, c] = address;
    [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c]
}

/// Returns the MAC address that packets to a multicast group have.
pub(super) fn multicast_mac(group: [u8; 16]) -> [u8; 6] {
    let [.., a, b, c, d] = group;
    [0x33, 0x33, a, b, c, d]
}

/// A request for the MAC address behind an IPv6 address.
pub(super) struct Solicitation {
    source: [u8; 16],
    mac: [u8; 6],
}

impl Solicitation {
    /// Parses a whole IPv6 packet. Returns `None` if it is not a valid solicitation of `target`.
    ///
    /// Also returns `None` if it lacks the sender's MAC address, or comes from no address. In the
    /// latter case the sender checks whether it may use `target` itself, which only the owner of
    /// the address may answer.
    pub(super) fn parse(packet: &[u8], target: [u8; 16]) -> Option<Self> {
        let (header, message) = packet.split_first_chunk::<IPV6_BYTES>()?;
        let [_, _, _, _, l0, l1, next, hop_limit, addresses @ ..] = header;
        let (source, destination) = addresses.split_first_chunk::<16>()?;
        let destination: [u8; 16] = destination.try_into().ok()?;
        let is_intact = usize::from(u16::from_be_bytes([*l0, *l1])) == message.len()
            && (*next, *hop_limit) == (IPPROTO_ICMPV6, HOP_LIMIT)
            && checksum(source, &destination, message) == 0;
        let is_for_target = destination == target || destination == solicited_node(target);
        let is_from_host = !matches!(source, [0xff, ..]) && *source != [0; 16];
        if !is_intact || !is_for_target || !is_from_host {
            return None;
        }

        let (fixed, options) = message.split_first_chunk::<MESSAGE_BYTES>()?;
        let [SOLICITATION, 0, _, _, _, _, _, _, asked @ ..] = fixed else {
            return None;
        };
        if *asked != target {
            return None;
        }
        // A group's address is refused, because an answer goes to one host.
        let mac = source_mac(options).filter(|[first, ..]| first & 1 == 0)?;
        Some(Self {
            source: *source,
            mac,
        })
    }

    /// Returns the asker's MAC address.
    pub(super) fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Returns the answer, an IPv6 packet: `target` is at `mac`.
    pub(super) fn answer(&self, target: [u8; 16], mac: [u8; 6]) -> [u8; ADVERTISEMENT_BYTES] {
        /// The flags "solicited" and "override".
        const FLAGS: u8 = 0x60;

        let mut message = [0; ADVERTISEMENT_BYTES - IPV6_BYTES];
        let fixed = [ADVERTISEMENT, 0, 0, 0, FLAGS, 0, 0, 0];
        let option = [TARGET_LINK_LAYER_ADDRESS, 1];
        fill(&mut message, [&fixed[..], &target, &option, &mac]);
        let [c0, c1] = checksum(&target, &self.source, &message).to_be_bytes();
        let [_, _, sum0, sum1, ..] = &mut message;
        (*sum0, *sum1) = (c0, c1);

        let mut packet = [0; ADVERTISEMENT_BYTES];
        // CAST: The message is short.
        let header = [
            0x60,
            0,
            0,
            0,
            0,
            message.len() as u8,
            IPPROTO_ICMPV6,
            HOP_LIMIT,
        ];
        fill(&mut packet, [&header[..], &target, &self.source, &message]);
        packet
    }
}

/// Returns the MAC address in the options of a solicitation.
fn source_mac(options: &[u8]) -> Option<[u8; 6]> {
    let mut options = options;
    loop {
        // An option gives its length in units of 8 bytes. A length of 0 ends the loop, which would
        // not end by itself.
        let units = usize::from(*options.get(1)?);
        let (option, rest) = options.split_at_checked(units.wrapping_mul(8))?;
        match *option {
            [SOURCE_LINK_LAYER_ADDRESS, _, a, b, c, d, e, f] => return Some([a, b, c, d, e, f]),
            [] => return None,
            _ => options = rest,
        }
    }
}

/// Puts `parts` one after the other into `to`.
fn fill<'a>(to: &mut [u8], parts: impl IntoIterator<Item = &'a [u8]>) {
    for (to, from) in to.iter_mut().zip(parts.into_iter().flatten()) {
        *to = *from;
    }
}

/// Returns the ICMPv6 checksum of `message`; 0 if it holds the right one already.
fn checksum(source: &[u8; 16], destination: &[u8; 16], message: &[u8]) -> u16 {
    // CAST: A message is below 64 KiB.
    let len = (message.len() as u32).to_be_bytes();
    let next = [0, 0, 0, IPPROTO_ICMPV6];
    let parts = [&source[..], destination, &len, &next, message];
    let sum = parts
        .into_iter()
        .flat_map(|part| part.chunks(2))
        .fold(0u32, |sum, chunk| {
            let word = match *chunk {
                [high, low] => u16::from_be_bytes([high, low]),
                [high] => u16::from_be_bytes([high, 0]),
                _ => 0,
            };
            sum.wrapping_add(word.into())
        });
    // At most 64 KiB of words were added up: twice is enough to fold the carries.
    let folded = (sum & 0xffff).wrapping_add(sum >> 16);
    // CAST: The carry above 16 bits is added.
    !((folded & 0xffff).wrapping_add(folded >> 16) as u16)
}
