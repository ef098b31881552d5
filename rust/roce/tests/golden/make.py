#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Makes the packets of this directory's tests, which were made by others than us.

	make.py scapy >scapy.txt		by scapy's layers, of every opcode
	make.py capture FILE >rxe.txt		a few of each kind of a capture, as they are
	make.py seed DIR [FILE...]		those of scapy.txt, or a few of each kind of captures,
						to a directory, each the payload of UDP

To be run inside the root. Each line is a packet from its IP header to its ICRC, in hexadecimal
digits; behind it stands what scapy says of its BTH.
"""

import hashlib
import pathlib
import random
import struct
import sys

from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw
from scapy.utils import RawPcapReader

PORT = 4791
FIELDS = ("opcode", "solicited", "migreq", "padcount", "pkey", "fecn", "becn", "dqpn", "ackreq",
          "psn")


def reth(rng):
    return struct.pack(">QII", rng.getrandbits(64), rng.getrandbits(32), rng.getrandbits(32))


def atomic_eth(rng):
    return struct.pack(">QIQQ", rng.getrandbits(64), rng.getrandbits(32), rng.getrandbits(64),
                       rng.getrandbits(64))


def aeth(rng):
    syndrome = rng.choice([0x1f, 0x00, 0x0a, 0x20, 0x2c, 0x3f, 0x60, 0x61, 0x62, 0x63])
    return bytes([syndrome]) + rng.randbytes(3)


def word(rng):
    return rng.randbytes(4)


def original(rng):
    return rng.randbytes(8)


def deth(rng):
    return rng.randbytes(4) + b"\0" + rng.randbytes(3)


def feth(rng):
    return struct.pack(">I", rng.randrange(64))


# What follows the BTH of each operation, and whether there may be payload.
CONNECTED = {
    0x00: ([], True), 0x01: ([], True), 0x02: ([], True), 0x03: ([word], True),
    0x04: ([], True), 0x05: ([word], True), 0x06: ([reth], True), 0x07: ([], True),
    0x08: ([], True), 0x09: ([word], True), 0x0a: ([reth], True), 0x0b: ([reth, word], True),
}
RELIABLE = {
    **CONNECTED,
    0x0c: ([reth], False), 0x0d: ([aeth], True), 0x0e: ([], True), 0x0f: ([aeth], True),
    0x10: ([aeth], True), 0x11: ([aeth], False), 0x12: ([aeth, original], False),
    0x13: ([atomic_eth], False), 0x14: ([atomic_eth], False), 0x16: ([word], True),
    0x17: ([word], True), 0x1c: ([feth, reth], False), 0x1d: ([reth], True),
}
DATAGRAM = {0x04: ([deth], True), 0x05: ([deth, word], True)}
OPCODES = {
    **RELIABLE,
    **{0x20 | operation: row for operation, row in CONNECTED.items()},
    **{0x60 | operation: row for operation, row in DATAGRAM.items()},
}


def below(rng, version):
    """The IP header, with values of no meaning in all that need not have one."""
    if version == 4:
        return IP(src=f"10.{rng.randrange(256)}.2.3", dst="10.4.5.6", tos=rng.randrange(256),
                  ttl=rng.randrange(1, 256), id=rng.getrandbits(16), flags=rng.choice(["", "DF"]))
    return IPv6(src="fd00::1:2", dst="fd00::3:4", tc=rng.randrange(256), fl=rng.getrandbits(20),
                hlim=rng.randrange(1, 256))


def packet(rng, version, opcode, length):
    headers, _ = OPCODES[opcode]
    pad = -length % 4
    behind = b"".join(header(rng) for header in headers) + rng.randbytes(length) + bytes(pad)
    bth = BTH(opcode=opcode, solicited=rng.getrandbits(1), migreq=rng.getrandbits(1),
              padcount=pad, pkey=rng.getrandbits(16), fecn=rng.getrandbits(1),
              becn=rng.getrandbits(1), dqpn=rng.getrandbits(24), ackreq=rng.getrandbits(1),
              psn=rng.getrandbits(24))
    udp = UDP(sport=0xc000 | rng.getrandbits(14), dport=PORT, chksum=0)
    return bytes(below(rng, version) / udp / bth / Raw(behind))


def line(raw):
    layer = IP if raw[0] >> 4 == 4 else IPv6
    bth = layer(raw)[BTH]
    said = " ".join(f"{int(getattr(bth, field)):x}" for field in FIELDS)
    return f"{raw.hex()} {said}"


def by_scapy():
    rng = random.Random(4791)
    print("# SPDX-License-Identifier: GPL-2.0")
    print("# Made by scapy: make.py scapy")
    for opcode, (_, payload) in OPCODES.items():
        for version in 4, 6:
            for length in ([0, 1, 2, 3, 4, 61] if payload else [0]):
                # It has no datagrams of less than that, nor atomic WRITEs; a parser need not know.
                print(line(packet(rng, version, opcode, length)))


def is_whole(raw, udp_at, bth):
    """Whether the capture has all of it; then its ICRC is right."""
    if len(raw) < udp_at + int.from_bytes(raw[udp_at + 4:udp_at + 6], "big"):
        return False
    assert bth.icrc.to_bytes(4, "big") == bth.compute_icrc(None), raw.hex()
    return True


def kinds_of(name):
    """The packets of a capture by kind, which is opcode, syndrome and pad. Those that it has cut off
    are cut off behind the longest headers."""
    kinds = {}
    for frame, _ in RawPcapReader(name):
        raw = bytes(frame[14:])
        at = 20 if raw[0] >> 4 == 4 else 40
        if int.from_bytes(raw[at + 2:at + 4], "big") != PORT:
            continue
        bth = (IP if at == 20 else IPv6)(raw)[BTH]
        syndrome = raw[at + 20] if bth.opcode == 0x11 else None
        if not is_whole(raw, at, bth):
            raw = raw[:at + 8 + 40]
        kinds.setdefault((bth.opcode, syndrome, bth.padcount), set()).add(raw)
    return kinds


def shortest(name):
    """The two shortest of each kind."""
    kinds = kinds_of(name)
    for kind in sorted(kinds, key=lambda kind: tuple(-1 if part is None else part for part in kind)):
        yield from sorted(kinds[kind], key=lambda raw: (len(raw), raw))[:2]


def of_capture(name):
    print("# SPDX-License-Identifier: GPL-2.0")
    print("# Captured between two rdma_rxe of Linux: make.py capture")
    for raw in shortest(name):
        print(line(raw))


def of_scapy():
    lines = pathlib.Path(__file__).with_name("scapy.txt").read_text().splitlines()
    for text in lines:
        if not text.startswith("#"):
            yield bytes.fromhex(text.split()[0])


def seed(directory, names):
    packets = [raw for name in names for raw in shortest(name)] if names else of_scapy()
    for raw in packets:
        payload = raw[(20 if raw[0] >> 4 == 4 else 40) + 8:]
        name = hashlib.sha1(payload).hexdigest()
        (pathlib.Path(directory) / name).write_bytes(payload)


def main():
    match sys.argv[1:]:
        case ["scapy"]:
            by_scapy()
        case ["capture", name]:
            of_capture(name)
        case ["seed", directory, *names]:
            seed(directory, names)
        case _:
            sys.exit(__doc__)


main()
