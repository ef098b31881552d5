// SPDX-License-Identifier: GPL-2.0

use roce::opcode::{decode, encode, header_bytes, Position, Transport};

/// One operation of a transport: opcode, bytes of extension headers, payload, whether it is a
/// request, and its position.
type Row = (u8, u32, bool, bool, Position);

use Position::{First, Last, Middle, Only};

const CONNECTED: [Row; 12] = [
    (0x00, 0, true, true, First),
    (0x01, 0, true, true, Middle),
    (0x02, 0, true, true, Last),
    (0x03, 4, true, true, Last),
    (0x04, 0, true, true, Only),
    (0x05, 4, true, true, Only),
    (0x06, 16, true, true, First),
    (0x07, 0, true, true, Middle),
    (0x08, 0, true, true, Last),
    (0x09, 4, true, true, Last),
    (0x0a, 16, true, true, Only),
    (0x0b, 20, true, true, Only),
];

const RELIABLE: [Row; 13] = [
    (0x0c, 16, false, true, Only),
    (0x0d, 4, true, false, First),
    (0x0e, 0, true, false, Middle),
    (0x0f, 4, true, false, Last),
    (0x10, 4, true, false, Only),
    (0x11, 4, false, false, Only),
    (0x12, 12, false, false, Only),
    (0x13, 28, false, true, Only),
    (0x14, 28, false, true, Only),
    (0x16, 4, true, true, Last),
    (0x17, 4, true, true, Only),
    (0x1c, 20, false, true, Only),
    (0x1d, 16, true, true, Only),
];

const DATAGRAM: [Row; 2] = [(0x04, 8, true, true, Only), (0x05, 12, true, true, Only)];

fn rows(transport: Transport) -> Vec<Row> {
    match transport {
        Transport::Rc => CONNECTED.into_iter().chain(RELIABLE).collect(),
        Transport::Uc => CONNECTED.to_vec(),
        Transport::Ud => DATAGRAM.to_vec(),
    }
}

// Rules: WIRE-2, WIRE-3, WIRE-4, WIRE-5, WIRE-23
#[test]
fn the_table_has_each_opcode_and_no_other() {
    let mut known = Vec::new();
    for (transport, base) in [
        (Transport::Rc, 0x00),
        (Transport::Uc, 0x20),
        (Transport::Ud, 0x60),
    ] {
        for (operation, bytes, payload, request, position) in rows(transport) {
            let opcode = base | operation;
            let (found, info) = decode(opcode).unwrap();
            assert_eq!(found, transport);
            assert_eq!(info.operation as u8, operation);
            assert_eq!(encode(transport, info.operation), opcode);
            assert_eq!(header_bytes(transport, info), bytes, "{opcode:#x}");
            assert_eq!(info.payload, payload, "{opcode:#x}");
            assert_eq!(info.request, request, "{opcode:#x}");
            assert_eq!(info.position, position, "{opcode:#x}");
            known.push(opcode);
        }
    }
    assert_eq!(known.len(), 25 + 12 + 2);
    for opcode in 0..=255 {
        assert_eq!(
            decode(opcode).is_ok(),
            known.contains(&opcode),
            "{opcode:#x}"
        );
    }
    // Congestion notification, reliable datagram, XRC: known to be none of ours.
    for opcode in [0x81, 0x44, 0xa4] {
        assert!(decode(opcode).is_err());
    }
}

#[test]
fn positions_start_and_end() {
    for (starts, ends, position) in [
        (true, true, Only),
        (true, false, First),
        (false, false, Middle),
        (false, true, Last),
    ] {
        assert_eq!(Position::new(starts, ends), position);
        assert_eq!((position.starts(), position.ends()), (starts, ends));
    }
}
