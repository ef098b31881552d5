// SPDX-License-Identifier: GPL-2.0

//! Performance management: datagrams by which a port is asked for its counters.

/// Bytes of a management datagram.
pub const MAD_BYTES: usize = 256;

/// The counters of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortCounters {
    /// Times that the link went down.
    pub link_downed: u64,
    /// Packets received with errors.
    pub rcv_errors: u64,
    /// Packets received and dropped as they are of no partition of ours.
    pub rcv_constraint_errors: u64,
    /// Packets that could not be sent.
    pub xmit_discards: u64,
    /// Bytes sent.
    pub xmit_bytes: u64,
    /// Bytes received.
    pub rcv_bytes: u64,
    /// Packets sent.
    pub xmit_packets: u64,
    /// Packets received.
    pub rcv_packets: u64,
    /// Of the packets sent, those to multicast groups.
    pub multicast_xmit_packets: u64,
    /// Of the packets received, those to multicast groups.
    pub multicast_rcv_packets: u64,
}

/// The offsets of the fields that all classes have.
mod field {
    pub(super) const MGMT_CLASS: usize = 1;
    pub(super) const CLASS_VERSION: usize = 2;
    pub(super) const METHOD: usize = 3;
    pub(super) const STATUS: usize = 4;
    pub(super) const ATTR_ID: usize = 16;
    /// The data of the attribute, of this class.
    pub(super) const DATA: usize = 64;
    /// In an attribute of a port: which one.
    pub(super) const PORT_SELECT: usize = DATA + 1;
}

const CLASS: u8 = 4;
const VERSION: u8 = 1;

const GET: u8 = 1;
const SET: u8 = 2;
const GET_RESP: u8 = 0x81;

mod attr {
    pub(super) const CLASS_PORT_INFO: [u8; 2] = [0, 0x01];
    pub(super) const PORT_COUNTERS: [u8; 2] = [0, 0x12];
    pub(super) const PORT_COUNTERS_EXTENDED: [u8; 2] = [0, 0x1d];
}

mod status {
    pub(super) const BAD_VERSION: u16 = 1 << 2;
    pub(super) const UNSUPPORTED_ATTRIBUTE: u16 = 3 << 2;
    pub(super) const BAD_VALUE: u16 = 7 << 2;
}

/// `AllPortSelect`, as one port is all, and `ExtendedWidthSupported`: there are 64-bit counters, also
/// of unicast and multicast packets.
const CAPABILITIES: u16 = (1 << 8) | (1 << 9);
/// An answer takes 4.096 µs times two to the power of this, at most: a second.
const RESPONSE_TIME: u8 = 18;

/// Valid port numbers: the only port of a device, and the number that selects all ports.
const PORTS: [u8; 2] = [1, 0xff];

/// Returns the response to a datagram, if it is a request of this class. Calls `counters` only if
/// the response has them, as most datagrams are of other classes.
///
/// Counters cannot be set: a request to set them is answered as unsupported.
pub fn answer(
    request: &[u8; MAD_BYTES],
    counters: impl FnOnce() -> PortCounters,
) -> Option<[u8; MAD_BYTES]> {
    let byte = |at: usize| request.get(at).copied().unwrap_or(0);
    if byte(field::MGMT_CLASS) != CLASS || !matches!(byte(field::METHOD), GET | SET) {
        return None;
    }
    let mut reply = *request;
    put(&mut reply, field::METHOD, [GET_RESP]);
    let asked = [byte(field::ATTR_ID), byte(field::ATTR_ID + 1)];
    let is_of_port = PORTS.contains(&byte(field::PORT_SELECT));
    let status = match asked {
        _ if byte(field::CLASS_VERSION) != VERSION => status::BAD_VERSION,
        _ if byte(field::METHOD) != GET => status::UNSUPPORTED_ATTRIBUTE,
        attr::CLASS_PORT_INFO => {
            class_port_info(&mut reply);
            0
        }
        attr::PORT_COUNTERS | attr::PORT_COUNTERS_EXTENDED if !is_of_port => status::BAD_VALUE,
        attr::PORT_COUNTERS => {
            port_counters(&mut reply, &counters());
            0
        }
        attr::PORT_COUNTERS_EXTENDED => {
            port_counters_extended(&mut reply, &counters());
            0
        }
        _ => status::UNSUPPORTED_ATTRIBUTE,
    };
    put(&mut reply, field::STATUS, status.to_be_bytes());
    Some(reply)
}

fn class_port_info(reply: &mut [u8; MAD_BYTES]) {
    clear_data(reply, 0);
    put(reply, field::DATA, [VERSION, VERSION]);
    put(reply, field::DATA + 2, CAPABILITIES.to_be_bytes());
    put(reply, field::DATA + 7, [RESPONSE_TIME]);
}

/// Counters stop at the most that they hold.
fn port_counters(reply: &mut [u8; MAD_BYTES], counters: &PortCounters) {
    let eight = |count: u64| u8::try_from(count).unwrap_or(u8::MAX).to_be_bytes();
    let sixteen = |count: u64| u16::try_from(count).unwrap_or(u16::MAX).to_be_bytes();
    let thirty_two = |count: u64| u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes();

    clear_data(reply, 4);
    put(reply, field::DATA + 7, eight(counters.link_downed));
    put(reply, field::DATA + 8, sixteen(counters.rcv_errors));
    put(reply, field::DATA + 14, sixteen(counters.xmit_discards));
    put(
        reply,
        field::DATA + 17,
        eight(counters.rcv_constraint_errors),
    );
    put(
        reply,
        field::DATA + 24,
        thirty_two(words(counters.xmit_bytes)),
    );
    put(
        reply,
        field::DATA + 28,
        thirty_two(words(counters.rcv_bytes)),
    );
    put(reply, field::DATA + 32, thirty_two(counters.xmit_packets));
    put(reply, field::DATA + 36, thirty_two(counters.rcv_packets));
}

fn port_counters_extended(reply: &mut [u8; MAD_BYTES], counters: &PortCounters) {
    let unicast = |all: u64, multicast: u64| all.saturating_sub(multicast);
    let fields = [
        words(counters.xmit_bytes),
        words(counters.rcv_bytes),
        counters.xmit_packets,
        counters.rcv_packets,
        unicast(counters.xmit_packets, counters.multicast_xmit_packets),
        unicast(counters.rcv_packets, counters.multicast_rcv_packets),
        counters.multicast_xmit_packets,
        counters.multicast_rcv_packets,
    ];
    clear_data(reply, 4);
    let places = reply.iter_mut().skip(field::DATA + 8);
    for (to, from) in places.zip(fields.map(u64::to_be_bytes).as_flattened()) {
        *to = *from;
    }
}

/// Returns bytes in the unit of data counters, four bytes.
fn words(bytes: u64) -> u64 {
    bytes / 4
}

/// Clears the data of the attribute from byte `from` on.
fn clear_data(reply: &mut [u8; MAD_BYTES], from: usize) {
    let data = reply.iter_mut().skip(field::DATA.saturating_add(from));
    data.for_each(|byte| *byte = 0);
}

fn put<const N: usize>(reply: &mut [u8; MAD_BYTES], at: usize, bytes: [u8; N]) {
    for (to, from) in reply.iter_mut().skip(at).zip(bytes) {
        *to = from;
    }
}
