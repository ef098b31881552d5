#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Moves memory between two processes by a transfer engine, as those who serve language models do, and compares it.

	engine.py ENGINE -s DEVICE ADDRESS PORT			the one whose memory it is
	engine.py ENGINE DEVICE ADDRESS SERVER PORT SIZE ROUNDS	the one that writes to it and reads it

ENGINE: mooncake or nixl. The server says by TCP, at PORT, how its engine and its memory are found, and in the end
compares what was written to it last. It serves one client.
"""

import base64
import ctypes
import json
import os
import socket
import sys
import traceback

ROOM = 1 << 24


class Mooncake:
    """Each engine finds its peer by the address that the peer's engine gave."""

    def __init__(self, device, address, buffer):
        from mooncake.engine import TransferEngine

        self.engine = TransferEngine()
        self.must(self.engine.initialize(address, "P2PHANDSHAKE", "rdma", device), "initialize")
        self.must(self.engine.register_memory(ctypes.addressof(buffer), len(buffer)), "register_memory")
        self.name = f"{address}:{self.engine.get_rpc_port()}"

    @staticmethod
    def must(result, what):
        if result:
            raise SystemExit(f"{what}: {result}")

    def write(self, peer, local, remote, size):
        self.must(self.engine.transfer_sync_write(peer, local, remote, size), "transfer_sync_write")

    def read(self, peer, local, remote, size):
        self.must(self.engine.transfer_sync_read(peer, local, remote, size), "transfer_sync_read")


class Nixl:
    """Its transport is UCX, which the environment restricts to the device."""

    def __init__(self, device, address, buffer):
        os.environ |= {"UCX_NET_DEVICES": f"{device}:1", "UCX_TLS": "rc,ud"}
        from nixl_cu12 import nixl_agent, nixl_agent_config

        self.agent = nixl_agent(f"{device} {address}", nixl_agent_config(backends=["UCX"]))
        self.memory = self.agent.register_memory([(ctypes.addressof(buffer), len(buffer), 0, "")], "DRAM")
        self.name = base64.b64encode(self.agent.get_agent_metadata()).decode()
        self.peers = {}

    def transfer(self, operation, peer, local, remote, size):
        if peer not in self.peers:
            self.peers[peer] = self.agent.add_remote_agent(base64.b64decode(peer))
        here, there = (self.agent.get_xfer_descs([(place, size, 0)], "DRAM") for place in (local, remote))
        handle = self.agent.initialize_xfer(operation, here, there, self.peers[peer])
        state = self.agent.transfer(handle)
        while state == "PROC":
            state = self.agent.check_xfer_state(handle)
        if state != "DONE":
            raise SystemExit(f"{operation}: {state}")
        handle.release()

    def write(self, *transfer):
        self.transfer("WRITE", *transfer)

    def read(self, *transfer):
        self.transfer("READ", *transfer)


ENGINES = {"mooncake": Mooncake, "nixl": Nixl}


def pattern(round_number, size):
    unit = bytes([round_number & 0xFF]) + bytes(range(250))
    return (unit * (size // len(unit) + 1))[:size]


def compare(buffer, round_number, size):
    if bytes(buffer[:size]) != pattern(round_number, size):
        raise SystemExit(f"what is there is not what was written in round {round_number}")


def serve(engine, device, address, port):
    buffer = (ctypes.c_char * ROOM)()
    engine = engine(device, address, buffer)
    with socket.create_server((address, int(port))) as listener:
        peer, _ = listener.accept()
    with peer, peer.makefile("rw") as lines:
        print(json.dumps({"name": engine.name, "memory": ctypes.addressof(buffer)}), file=lines, flush=True)
        last = json.loads(lines.readline())
        compare(buffer, last["round"], last["size"])
        print("true", file=lines, flush=True)


def use(engine, device, address, server, port, size, rounds):
    size, rounds = int(size), int(rounds)
    buffer = (ctypes.c_char * (2 * ROOM))()
    here = ctypes.addressof(buffer)
    engine = engine(device, address, buffer)
    with socket.create_connection((server, int(port))) as peer, peer.makefile("rw") as lines:
        there = json.loads(lines.readline())
        for round_number in range(1, rounds + 1):
            buffer[:size] = pattern(round_number, size)
            engine.write(there["name"], here, there["memory"], size)
            engine.read(there["name"], here + ROOM, there["memory"], size)
            compare(buffer[ROOM:ROOM + size], round_number, size)
        print(json.dumps({"round": rounds, "size": size}), file=lines, flush=True)
        if lines.readline() != "true\n":
            raise SystemExit("the server found something else")


def main(name, *arguments):
    if arguments[0] == "-s":
        serve(ENGINES[name], *arguments[1:])
    else:
        use(ENGINES[name], *arguments)


# The threads of an engine do not survive the interpreter's end.
status = 1
try:
    main(*sys.argv[1:])
    status = 0
except SystemExit as end:
    print(end, file=sys.stderr)
except Exception:
    traceback.print_exc()
sys.stdout.flush()
sys.stderr.flush()
os._exit(status)
