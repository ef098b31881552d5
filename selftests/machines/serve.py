#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Runs programs on machine b for the tests on machine a.

    serve.py ADDRESS PORT COMMAND...

A client sends a line, which becomes the last argument of the command.  It gets what the
command says, and at the end a line "status N".  A client that goes away takes what it has
started along.  The line "over" ends this program.
"""

import os
import select
import signal
import socket
import subprocess
import sys
import threading


def line_of(client):
    line = b""
    while not line.endswith(b"\n"):
        more = client.recv(4096)
        if not more:
            return ""
        line += more
    return line.decode().rstrip("\n")


def gone(client, seconds):
    return bool(select.select([client], [], [], seconds)[0]) and not client.recv(4096)


def run(command, client):
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=client,
                               stderr=client, start_new_session=True)
    while process.poll() is None:
        if gone(client, 0.1):
            break
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    return process.wait()


def serve(command, client):
    with client:
        line = line_of(client)
        if line == "over":
            os._exit(0)
        if not line:
            return
        status = run(command + [line], client)
        try:
            client.sendall(b"status %d\n" % (status % 256))
        except OSError:
            pass


def main():
    listener = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=64)
    while True:
        client, _ = listener.accept()
        threading.Thread(target=serve, args=(sys.argv[3:], client), daemon=True).start()


main()
