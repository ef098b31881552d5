#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Migrates a machine of QEMU's that has no system and does not run, but has memory, which is compared.

	migrate.py [--pin] [--slowly] HERE THERE URI QEMU...

QEMU is the command of the machine that goes, THERE the directory of the one that waits for it at URI; HERE that of
this one. In either are ram, its memory, and qmp, its monitor. Status 0: it is there, with all that it had.
"""

import argparse
import filecmp
import json
import os
import socket
import subprocess
import sys
import time

SIZE = 64 << 20
PAGE = 4096
DEADLINE_S = 60


class Monitor:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.connect(path)
        self.lines = self.socket.makefile("r")
        self.lines.readline()
        self("qmp_capabilities")

    def connect(self, path):
        """Once QEMU has made it."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                return self.socket.connect(path)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def __call__(self, command, **arguments):
        self.socket.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        for line in self.lines:
            answer = json.loads(line)
            if "error" in answer:
                raise SystemExit(f"{command}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]
        raise SystemExit(f"{command}: QEMU is gone")


def make_memory(path):
    """Three pages of four have something in them; zeros go another way."""
    with open(path, "wb") as file:
        for _ in range(SIZE // (4 * PAGE)):
            file.write(os.urandom(3 * PAGE) + bytes(PAGE))


def migrate(here, uri):
    here("migrate", uri=uri)
    while True:
        state = here("query-migrate")
        if state.get("status") == "completed":
            return state
        if state.get("status") in ("failed", "cancelled"):
            raise SystemExit(f"the migration has {state['status']}: {state.get('error-desc')}")
        time.sleep(0.1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--slowly", action="store_true")
    parser.add_argument("here")
    parser.add_argument("there")
    parser.add_argument("uri")
    parser.add_argument("qemu", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    make_memory(f"{given.here}/ram")
    machine = subprocess.Popen(given.qemu, stdin=subprocess.DEVNULL)
    try:
        here = Monitor(f"{given.here}/qmp")
        there = Monitor(f"{given.there}/qmp")
        for end in here, there:
            end("migrate-set-capabilities", capabilities=[{"capability": "rdma-pin-all", "state": given.pin}])
        here("migrate-set-parameters", **{"max-bandwidth": 4 << 20 if given.slowly else 1 << 40})
        print(migrate(here, given.uri))
        if not filecmp.cmp(f"{given.here}/ram", f"{given.there}/ram", shallow=False):
            raise SystemExit("its memory is not what it was")
    finally:
        machine.kill()
        machine.wait()


sys.exit(main())
