#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Looks at every UDP datagram of captures of RoCEv2 traffic:

    packets.py FILE[:class=N][:hop=N][:flow=N]...

The ICRC must be the one that scapy computes; the headers below must be those of
RoCEv2, with the traffic class, hop limit and flow label that are given (default:
0, 64, 0; "any" for whatever), and the UDP source port must be the same in all
packets of a connection.  Datagrams to port 9 are not traffic but marks.

Prints a line for each thing that is wrong, which begins with "icrc" or "header", and
in the end how many packets there were.  Status 1: something was wrong.
"""

import sys
from multiprocessing import Pool

from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.utils import PcapReader

DISCARD = 9
ROCE = 4791


def icrc_of(frame):
    """The ICRC that is in the packet, and the one that scapy computes."""
    bth = frame[BTH]
    return bth.icrc.to_bytes(4, "big"), bth.compute_icrc(None)


def ipv4_checksum(header):
    """The checksum of RFC 1071, over a header that has one: 0 if it is right."""
    total = sum(int.from_bytes(header[i:i + 2], "big") for i in range(0, len(header), 2))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return total ^ 0xffff


# Rules: ENC-2, ENC-4, ENC-5, ENC-6, ENC-7
def wrong_ipv4(frame, raw, want):
    ip = frame[IP]
    header = raw[14:14 + 4 * ip.ihl]
    if ip.ihl != 5:
        yield "IPv4 options"
    if ip.len != len(raw) - 14:
        yield f"IPv4 length {ip.len} in a frame of {len(raw)} bytes"
    if ipv4_checksum(header):
        yield f"IPv4 checksum {ip.chksum:#x}"
    if ip.flags != "DF" or ip.frag:
        yield f"IPv4 flags {ip.flags}, fragment offset {ip.frag}"
    if want["class"] is not None and ip.tos != want["class"]:
        yield f"type of service {ip.tos}"
    if ip.ttl != want["hop"]:
        yield f"time to live {ip.ttl}"


# Rules: ENC-4, ENC-5, ENC-7, ENC-8
def wrong_ipv6(frame, raw, want):
    ip = frame[IPv6]
    if ip.plen != len(raw) - 54:
        yield f"IPv6 length {ip.plen} in a frame of {len(raw)} bytes"
    if ip.nh != 17:
        yield f"IPv6 next header {ip.nh}"
    if want["class"] is not None and ip.tc != want["class"]:
        yield f"traffic class {ip.tc}"
    if ip.hlim != want["hop"]:
        yield f"hop limit {ip.hlim}"
    if want["flow"] is not None and ip.fl != want["flow"]:
        yield f"flow label {ip.fl:#x}"


# Rules: ENC-12, ENC-13
def wrong_udp(udp, payload_bytes):
    if udp.len != 8 + payload_bytes:
        yield f"UDP length {udp.len} for {payload_bytes} bytes"
    # The ICRC covers what it would; and senders of trains could not compute one.
    if udp.chksum:
        yield f"UDP checksum {udp.chksum:#x}, not 0"
    if not 0xc000 <= udp.sport <= 0xffff:
        yield f"UDP source port {udp.sport}"
    if payload_bytes % 4:
        yield f"{payload_bytes} bytes of UDP payload, not a multiple of 4"


# Rules: KEY-3, WIRE-32
def wrong_bth(bth, raw):
    if bth.version or bth.resv6 or bth.resv7:
        yield "reserved bits or the version of the BTH"
    if bth.pkey != 0xffff:
        yield f"P_Key {bth.pkey:#x}"
    if bth.padcount and any(raw[-4 - bth.padcount:-4]):
        yield "pad bytes that are not 0"


class Capture:
    """One file, and what must be so in it."""

    def __init__(self, argument):
        self.name, *rules = argument.split(":")
        self.want = {"class": 0, "hop": 64, "flow": 0}
        for rule in rules:
            key, value = rule.split("=")
            if key not in self.want:
                raise ValueError(rule)
            self.want[key] = None if value == "any" else int(value, 0)
        self.ports = {}
        self.count = 0
        self.sample = None

    # Rules: ENC-14
    def wrong_port(self, frame):
        """What a responder sends on a connection has its own source port."""
        ip = frame[IP] if IP in frame else frame[IPv6]
        connection = ip.src, ip.dst, frame[BTH].dqpn
        port = self.ports.setdefault(connection, frame[UDP].sport)
        if port != frame[UDP].sport:
            yield f"UDP source port {frame[UDP].sport}, before it was {port}"

    def check_headers(self, frame, raw):
        below = wrong_ipv4 if IP in frame else wrong_ipv6
        yield from below(frame, raw, self.want)
        headers_bytes = 14 + (20 if IP in frame else 40) + 8
        yield from wrong_udp(frame[UDP], len(raw) - headers_bytes)
        yield from wrong_bth(frame[BTH], raw)
        yield from self.wrong_port(frame)

    # Rules: ENC-11
    def check(self, frame, raw):
        """All that is wrong with a frame, as pairs of its kind and a text."""
        if IP not in frame and IPv6 not in frame:
            yield "header", "neither IPv4 nor IPv6"
            return
        if frame[UDP].dport != ROCE or BTH not in frame:
            yield "header", f"UDP destination port {frame[UDP].dport}"
            return
        for text in self.check_headers(frame, raw):
            yield "header", text
        is_there, computed = icrc_of(frame)
        if is_there != computed:
            yield "icrc", f"{is_there.hex()}, scapy computes {computed.hex()}"
        self.sample = raw

    def findings(self):
        """All that is wrong with the file."""
        with PcapReader(self.name) as reader:
            for number, frame in enumerate(reader, 1):
                if UDP in frame and frame[UDP].dport == DISCARD:
                    continue
                self.count += 1
                for kind, text in self.check(frame, frame.original):
                    yield f"{kind} {self.name} #{number}: {text}"
        if not self.count:
            yield f"header {self.name}: no packets"
        if self.sample and not notices_changes(self.sample):
            yield f"icrc {self.name}: scapy takes a changed packet for good"


def notices_changes(raw):
    """Whether scapy's ICRC covers the P_Key, the QPN, the PSN and the last byte."""
    bth = 14 + (20 if raw[12:14] == b"\x08\x00" else 40) + 8
    for at in bth + 3, bth + 7, bth + 11, len(raw) - 5:
        changed = bytearray(raw)
        changed[at] ^= 1
        is_there, computed = icrc_of(Ether(bytes(changed)))
        if is_there == computed:
            return False
    return True


def look_at(argument):
    """What was found in a file, how many packets it has, and their source ports."""
    capture = Capture(argument)
    findings = list(capture.findings())
    return findings, capture.count, set(capture.ports.values())


# Rules: ENC-14
def main():
    with Pool() as pool:
        results = pool.map(look_at, sys.argv[1:], chunksize=1)
    findings = [finding for found, _, _ in results for finding in found]
    packets = sum(count for _, count, _ in results)
    ports = set().union(*(ports for _, _, ports in results))
    if len(ports) < 2:
        findings.append("header: all connections have one source port")
    for finding in findings:
        print(finding)
    print(f"{packets} packets of {len(results)} captures, {len(ports)} source ports")
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
