#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""What mpi4py makes of an RDMA device with Python's own buffers: each rank sends some to each other one,
by messages, by a collective and as an object, and compares what it has received.

	buffers.py SIZE
"""

import sys

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, ranks = world.rank, world.size
size = int(sys.argv[1])


def data(source, target, way):
    """What one rank sends to another one; no two are alike."""
    head = bytes([source, target, way])
    return bytearray((head + bytes(range(251))) * (size // 254 + 1))[:size]


def compare(received, source, way):
    if received != data(source, rank, way):
        raise SystemExit(f"rank {rank}: what came from {source} is not what was sent, way {way}")


def messages():
    incoming = [bytearray(size) for _ in range(ranks)]
    outgoing = [data(rank, target, 1) for target in range(ranks)]
    requests = [world.Irecv(incoming[source], source) for source in range(ranks) if source != rank]
    requests += [world.Isend(outgoing[target], target) for target in range(ranks) if target != rank]
    MPI.Request.Waitall(requests)
    for source in range(ranks):
        if source != rank:
            compare(incoming[source], source, 1)


def collective():
    incoming = bytearray(size * ranks)
    world.Alltoall(b"".join(data(rank, target, 2) for target in range(ranks)), incoming)
    for source in range(ranks):
        compare(incoming[source * size:(source + 1) * size], source, 2)


def objects():
    for source, received in enumerate(world.alltoall([data(rank, target, 3) for target in range(ranks)])):
        compare(received, source, 3)


for _ in range(3):
    messages()
    collective()
    objects()
world.Barrier()
if rank == 0:
    print(f"{ranks} ranks, {size} bytes each: as they were sent")
