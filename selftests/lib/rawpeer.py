# SPDX-License-Identifier: GPL-2.0
"""A peer of an RC queue pair that is made of a packet socket alone.

The queue pair under test lives on device fe0 in namespace a. It believes that its
peer is a queue pair of namespace b; but there is none, only this program, which
sends whatever it likes from there, and sees what comes. (The device in b answers
nothing that is for a queue pair which it doesn't have.)
"""

import json
import os
import select
import socket
import struct
import subprocess
import time
import zlib

import ktap
from pyverbs import enums as e
from pyverbs.addr import AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR
from scapy.contrib.roce import AETH, BTH
from scapy.layers.inet import IP, UDP  # noqa: F401 (the dissector needs them)
from scapy.layers.l2 import Ether

ADDRESS_A, ADDRESS_B = "192.0.2.1", "192.0.2.2"
GID_A, GID_B = "0000:0000:0000:0000:0000:ffff:c000:0201", "0000:0000:0000:0000:0000:ffff:c000:0202"
ROCE_PORT = 4791
SOON_S = 5
QUIET_S = 0.15
PSN_MASK = 0xFFFFFF

# BTH opcodes of RC.
(SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_LAST_IMM, SEND_ONLY, SEND_ONLY_IMM,
 WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_LAST_IMM, WRITE_ONLY, WRITE_ONLY_IMM,
 READ_REQUEST, READ_FIRST, READ_MIDDLE, READ_LAST, READ_ONLY, ACK) = range(0x12)

# The transports that acknowledge nothing, in the upper bits of an opcode.
UC, UD = 0x20, 0x60

# AETH syndromes.
SYNDROME_ACK = 0x1F
NAK_SEQUENCE, NAK_INVALID, NAK_ACCESS, NAK_OPERATION = 0x60, 0x61, 0x62, 0x63


def reth(address, rkey, length):
    return struct.pack("!QII", address, rkey, length)


def aeth(syndrome, msn):
    return struct.pack("!I", syndrome << 24 | msn & PSN_MASK)


def icrc_ipv4(packet):
    """The ICRC of an IPv4 packet, given as bytes up to the ICRC, its lengths included."""
    masked = bytearray(b"\xff" * 8 + packet)
    header = (packet[0] & 0xF) * 4
    masked[8 + 1] = 0xFF                            # type of service
    masked[8 + 8] = 0xFF                            # time to live
    masked[8 + 10:8 + 12] = b"\xff\xff"             # header checksum
    masked[8 + header + 6:8 + header + 8] = b"\xff\xff"  # UDP checksum
    if len(packet) > header + 8 + 4:
        masked[8 + header + 8 + 4] = 0xFF           # the byte after the BTH's P_Key
    return struct.pack("<I", zlib.crc32(bytes(masked)))


def netns_socket(namespace, family=socket.AF_PACKET, protocol=socket.htons(3)):
    """A raw socket of a namespace; a packet socket is one on eth0."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        os.setns(there, os.CLONE_NEWNET)
        result = socket.socket(family, socket.SOCK_RAW, protocol)
        if family == socket.AF_PACKET:
            result.bind(("eth0", 0))
    finally:
        os.setns(home, os.CLONE_NEWNET)
        os.close(home)
        os.close(there)
    return result


def mac_of(namespace):
    links = subprocess.run(
        ["ip", "-j", "-n", namespace, "link", "show", "eth0"],
        check=True, stdout=subprocess.PIPE, text=True,
    ).stdout
    return json.loads(links)[0]["address"]


def ip_checksum(header):
    total = sum(struct.unpack(f"!{len(header) // 2}H", header))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def bth(opcode, psn, dqpn, *, solicited=0, migreq=1, padcount=0, version=0, pkey=0xFFFF,
        fecn=0, becn=0, resv6=0, ackreq=1, resv7=0):
    """A base transport header, its fields named as scapy names them."""
    return struct.pack(
        "!BBHII", opcode, solicited << 7 | migreq << 6 | padcount << 4 | version, pkey,
        fecn << 31 | becn << 30 | resv6 << 24 | dqpn, ackreq << 31 | resv7 << 24 | psn)


class Wire:
    """The wire as seen from namespace b."""

    # Offsets in a frame.
    IP, UDP, BTH = 14, 14 + 20, 14 + 20 + 8

    def __init__(self):
        self.socket = netns_socket("b")
        self.ethernet = b"".join(bytes.fromhex(mac.replace(":", ""))
                                 for mac in (mac_of("a"), mac_of("b"))) + b"\x08\x00"

    def frame(self, payload, src=ADDRESS_B, tos=0, ttl=64, id=0, flags=0x4000, udp_length=None):
        """A frame to a with a UDP payload."""
        udp_length = 8 + len(payload) if udp_length is None else udp_length
        ip = struct.pack("!BBHHHBBH4s4s", 0x45, tos, 28 + len(payload), id, flags, ttl, 17, 0,
                         socket.inet_aton(src), socket.inet_aton(ADDRESS_A))
        ip = ip[:10] + struct.pack("!H", ip_checksum(ip)) + ip[12:]
        udp = struct.pack("!HHHH", 0xC123, ROCE_PORT, udp_length, 0)
        return self.ethernet + ip + udp + payload

    def datagram(self, data, icrc=None, **fields):
        """A frame with any data and the ICRC behind them; the right one if none is given."""
        frame = self.frame(data + bytes(4), **fields)[:-4]
        return frame + (icrc_ipv4(frame[self.IP:]) if icrc is None else icrc)

    def send(self, frame):
        self.socket.send(frame)

    def clear(self):
        while select.select([self.socket], [], [], 0)[0]:
            self.socket.recv(65536)

    def packets(self, qpn, seconds):
        """Yields the packets which a sends to a queue pair, while they come within time."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([self.socket], [], [], left)[0]:
                return
            data, address = self.socket.recvfrom(65536)
            if address[2] == socket.PACKET_OUTGOING:
                continue
            packet = Ether(data)
            if BTH in packet and packet[BTH].dqpn == qpn:
                yield packet


class Victim:
    """A queue pair of fe0, connected to nobody."""

    QP_TYPE = e.IBV_QPT_RC
    SIZE = 65536
    MTU = 1024
    TIMEOUT = 14
    PEER_GID = GID_B

    def __init__(self, context, wire, state=e.IBV_QPS_RTS, recvs=16, first_psn=0xFFFFF8):
        self.wire = wire
        self.qpn_of_peer = 0xABCDE
        self.psn = first_psn    # the next that the peer sends
        self.sq_psn = 0x100     # the first that the victim sends
        self.pd = PD(context)
        self.cq = CQ(context, 256)
        self.mr = MR(self.pd, self.SIZE, e.IBV_ACCESS_LOCAL_WRITE |
                     e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_WRITE)
        self.recv_mr = MR(self.pd, self.SIZE, e.IBV_ACCESS_LOCAL_WRITE)
        cap = QPCap(max_send_wr=32, max_recv_wr=64, max_send_sge=4, max_recv_sge=4)
        self.qp = QP(self.pd, QPInitAttr(qp_type=self.QP_TYPE, scq=self.cq, rcq=self.cq,
                                         cap=cap))
        self.modify_to(state)
        self.recvs = 0
        for _ in range(recvs):
            self.post_recv()
        wire.clear()

    def close(self):
        for item in (self.qp, self.recv_mr, self.mr, self.cq, self.pd):
            item.close()

    def modify_to(self, state):
        if state == e.IBV_QPS_RESET:
            return
        attr = QPAttr(qp_state=e.IBV_QPS_INIT, port_num=1)
        attr.qp_access_flags = (e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_WRITE |
                                e.IBV_ACCESS_LOCAL_WRITE)
        self.qp.modify(attr, e.IBV_QP_STATE | e.IBV_QP_PORT | e.IBV_QP_PKEY_INDEX |
                       e.IBV_QP_ACCESS_FLAGS)
        if state == e.IBV_QPS_INIT:
            return
        if state == e.IBV_QPS_ERR:
            self.qp.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)
            return
        attr = QPAttr(qp_state=e.IBV_QPS_RTR)
        attr.path_mtu = {256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}[self.MTU]
        attr.dest_qp_num = self.qpn_of_peer
        attr.rq_psn = self.psn
        attr.max_dest_rd_atomic = 4
        attr.min_rnr_timer = 12
        route = GlobalRoute(dgid=GID(self.PEER_GID), sgid_index=gid_index())
        attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        self.qp.modify(attr, e.IBV_QP_STATE | e.IBV_QP_AV | e.IBV_QP_PATH_MTU |
                       e.IBV_QP_DEST_QPN | e.IBV_QP_RQ_PSN |
                       e.IBV_QP_MAX_DEST_RD_ATOMIC | e.IBV_QP_MIN_RNR_TIMER)
        if state == e.IBV_QPS_RTR:
            return
        attr = QPAttr(qp_state=e.IBV_QPS_RTS)
        attr.sq_psn = self.sq_psn
        attr.timeout = self.TIMEOUT
        attr.retry_cnt = 7
        attr.rnr_retry = 7
        attr.max_rd_atomic = 4
        self.qp.modify(attr, e.IBV_QP_STATE | e.IBV_QP_SQ_PSN | e.IBV_QP_TIMEOUT |
                       e.IBV_QP_RETRY_CNT | e.IBV_QP_RNR_RETRY | e.IBV_QP_MAX_QP_RD_ATOMIC)

    @property
    def state(self):
        return self.qp.query(e.IBV_QP_STATE)[0].qp_state

    # ---- as a user of verbs ----

    def post_recv(self, length=2048):
        sge = SGE(self.recv_mr.buf, length, self.recv_mr.lkey)
        self.qp.post_recv(RecvWR(wr_id=self.recvs, sg=[sge], num_sge=1))
        self.recvs += 1

    def post_read(self, wr_id, length, address=0x1000, rkey=0x42):
        sge = SGE(self.mr.buf, length, self.mr.lkey)
        wr = SendWR(wr_id=wr_id, opcode=e.IBV_WR_RDMA_READ, num_sge=1, sg=[sge],
                    send_flags=e.IBV_SEND_SIGNALED)
        wr.set_wr_rdma(rkey, address)
        self.qp.post_send(wr)

    def post_send(self, wr_id, length=0):
        sge = SGE(self.mr.buf, length, self.mr.lkey)
        self.qp.post_send(SendWR(wr_id=wr_id, opcode=e.IBV_WR_SEND, num_sge=1, sg=[sge],
                                 send_flags=e.IBV_SEND_SIGNALED))

    def poll(self, seconds):
        deadline = time.monotonic() + seconds
        while True:
            count, wcs = self.cq.poll(1)
            if count:
                return wcs[0]
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.001)

    def expect_wc(self, status=e.IBV_WC_SUCCESS, wr_id=None):
        wc = self.poll(SOON_S)
        assert wc is not None, "no completion"
        assert wc.status == status, f"completion with status {wc.status}, not {status}"
        assert wr_id is None or wc.wr_id == wr_id, f"completion of {wc.wr_id}, not {wr_id}"
        return wc

    def expect_no_wc(self):
        wc = self.poll(0)
        assert wc is None, f"a completion: wr_id {wc.wr_id}, status {wc.status}"

    # ---- as its peer ----

    def packet(self, opcode, psn=None, payload=b"", icrc=None, ip=None, **fields):
        """A frame for the victim. Payload: all behind the BTH, which is padded."""
        psn = self.psn if psn is None else psn
        pad = -len(payload) % 4
        fields = {"dqpn": self.qp.qp_num, "padcount": pad, **fields}
        return self.wire.datagram(bth(opcode, psn & PSN_MASK, **fields) + payload + bytes(pad),
                                  icrc, **(ip or {}))

    def send(self, *arguments, **fields):
        self.wire.send(self.packet(*arguments, **fields))

    def answer(self, seconds=SOON_S):
        """The next packet of the victim, with its AETH parsed if it is an ACK; None: none."""
        return next(self.wire.packets(self.qpn_of_peer, seconds), None)

    def expect_ack(self, psn, syndrome_mask=0xE0, syndrome=0):
        packet = self.answer()
        assert packet is not None, "no answer"
        assert packet[BTH].opcode == ACK, f"the answer is {packet[BTH].opcode:#x}"
        value = packet[AETH].syndrome
        assert value & syndrome_mask == syndrome, f"the syndrome is {value:#x}"
        assert packet[BTH].psn == psn & PSN_MASK, f"PSN {packet[BTH].psn:#x}, not {psn:#x}"
        return packet

    def expect_nak(self, psn, syndrome):
        return self.expect_ack(psn, 0xFF, syndrome)

    def expect_silence(self, seconds=QUIET_S):
        packet = self.answer(seconds)
        assert packet is None, f"an answer: {packet!r}"

    def probe(self, text=b"still there?"):
        """A good SEND, which is received and acknowledged."""
        self.wire.clear()
        psn = self.psn
        self.send(SEND_ONLY, payload=text)
        self.psn = psn + 1 & PSN_MASK
        self.expect_ack(psn)
        wc = self.expect_wc()
        assert wc.byte_len == len(text), f"{wc.byte_len} bytes were received"
        got = self.recv_mr.read(len(text), 0)
        assert got == text, f"{got} was received"


class DatagramVictim(Victim):
    """A queue pair of fe0 for datagrams."""

    QP_TYPE = e.IBV_QPT_UD
    QKEY = 0x11223344
    RECV = 1040     # bytes of each receive

    def modify_to(self, state):
        attr = QPAttr(qp_state=e.IBV_QPS_INIT, port_num=1)
        attr.qkey = self.QKEY
        self.qp.modify(attr, e.IBV_QP_STATE | e.IBV_QP_PORT | e.IBV_QP_PKEY_INDEX |
                       e.IBV_QP_QKEY)
        self.qp.modify(QPAttr(qp_state=e.IBV_QPS_RTR), e.IBV_QP_STATE)
        self.qp.modify(QPAttr(qp_state=e.IBV_QPS_RTS), e.IBV_QP_STATE | e.IBV_QP_SQ_PSN)

    def post_recv(self, length=RECV):
        super().post_recv(length)

    def packet(self, payload=b"", qkey=QKEY, opcode=UD | SEND_ONLY, **fields):
        deth = struct.pack("!II", qkey & 0xFFFFFFFF, self.qpn_of_peer)
        return super().packet(opcode, payload=deth + payload, **fields)

    def probe(self, text=b"still there?"):
        """A good datagram, which is received; the receive is replaced."""
        self.wire.send(self.packet(text))
        wc = self.expect_wc()
        assert wc.byte_len == 40 + len(text), f"{wc.byte_len} bytes were received"
        assert wc.src_qp == self.qpn_of_peer, f"it comes from QP {wc.src_qp:#x}"
        got = self.recv_mr.read(len(text), 40)
        assert got == text, f"{got} was received"
        self.post_recv()


_gid_index = None


def gid_index():
    """Where fe0 has ADDRESS_A."""
    global _gid_index
    if _gid_index is None:
        directory = "/sys/class/infiniband/fe0/ports/1/gids"
        for name in os.listdir(directory):
            with open(f"{directory}/{name}", encoding="ascii") as gid:
                if gid.read() == GID_A + "\n":
                    _gid_index = int(name)
    return _gid_index


def counters():
    """The counters of fe0."""
    directory = "/sys/class/infiniband/fe0/ports/1/hw_counters"
    result = {}
    for name in os.listdir(directory):
        with open(f"{directory}/{name}", encoding="ascii") as value:
            result[name] = int(value.read())
    return result


def open_device():
    return Context(name="fe0")


def wire_up():
    """Both ends up, to be called in a test's setup: the wire as it is seen from b, and fe0."""
    ktap.shell("net_up")
    # Packets are to be seen as they are on a wire, not as trains.
    for namespace in "ab":
        ktap.shell(f"ip netns exec {namespace} ethtool -K eth0 gro off tx-udp-segmentation off")
    ktap.shell(f"ip netns exec a ping -c 1 -w 5 {ADDRESS_B}")
    return Wire(), open_device()


def wire_down(device):
    """Takes it all down; `device` is None if it never came up."""
    if device:
        device.close()
    ktap.shell("net_down")
