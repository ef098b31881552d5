// SPDX-License-Identifier: GPL-2.0

//! Neighbour discovery (RFC 4861), as far as it takes to be found by an address that the IPv6 stack
//! does not have.

/// Bytes of an IPv6 header.
const IPV6_BYTES: usize = 40;
/// Bytes of a solicitation, or an advertisement, without options.
const MESSAGE_BYTES: usize = 24;
/// Bytes of an advertisement with its one option, the IPv6 header included.
pub(super) const ADVERTISEMENT_BYTES: usize = IPV6_BYTES + MESSAGE_BYTES + 8;

/// The longest solicitation that is looked at, IPv6 header included. Those of today have two
/// options, of 8 bytes each.
pub(super) const MAX_SOLICITATION_BYTES: usize = IPV6_BYTES + MESSAGE_BYTES + 64;

/// ICMPv6, in an IPv6 header.
pub(super) const IPPROTO_ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const SOURCE_LINK_LAYER_ADDRESS: u8 = 1;
const TARGET_LINK_LAYER_ADDRESS: u8 = 2;
/// What shows that a message was not forwarded.
const HOP_LIMIT: u8 = 255;

/// The multicast group in which the owner of `address` is asked for.
pub(super) fn solicited_node(address: [u8; 16]) -> [u8; 16] {
    let [.., a, b, c] = address;
    [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c]
}

/// The MAC address that packets to a multicast group have.
pub(super) fn multicast_mac(group: [u8; 16]) -> [u8; 6] {
    let [.., a, b, c, d] = group;
    [0x33, 0x33, a, b, c, d]
}

/// Somebody asks for the MAC address behind an IPv6 address.
pub(super) struct Solicitation {
    source: [u8; 16],
    mac: [u8; 6],
}

impl Solicitation {
    /// Takes a whole IPv6 packet. None if it is not a valid solicitation of `target`.
    ///
    /// None as well if it does not tell the asker's MAC address, and if it comes from no address:
    /// then the asker only wants to know whether it may have `target` itself. That is for whoever
    /// really has it to answer.
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
        // Not that of a group: an answer is for one.
        let mac = source_mac(options).filter(|[first, ..]| first & 1 == 0)?;
        Some(Self {
            source: *source,
            mac,
        })
    }

    /// The asker's MAC address.
    pub(super) fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// The answer, an IPv6 packet: `target` is at `mac`.
    pub(super) fn answer(&self, target: [u8; 16], mac: [u8; 6]) -> [u8; ADVERTISEMENT_BYTES] {
        /// Asked for, and to replace what is known.
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

/// The MAC address in the options of a solicitation.
fn source_mac(options: &[u8]) -> Option<[u8; 6]> {
    let mut options = options;
    loop {
        // An option says how many units of 8 bytes it has; none would never end.
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

/// The ICMPv6 checksum of `message`; 0 if it holds the right one already.
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
    // CAST: What is left above 16 bits is added.
    !((folded & 0xffff).wrapping_add(folded >> 16) as u16)
}
