# SPDX-License-Identifier: GPL-2.0
"""Measures applications in the virtual machine: the places where they run (stages), and a function
for each "measure" of apps_cases.py. Each takes the place, the amount and the arguments of the case.
It returns seconds if the unit is a time, else the rate and the bytes of each."""

import contextlib
import os
import pathlib
import signal
import statistics
import subprocess
from dataclasses import dataclass

from measure import (ADDRESS, DEADLINE_S, TREE, Failed, listens, pair, running, shell)
from parse import (dd_seconds, fio_per_second, mpi_seconds, pingpong_seconds, qperf_value,
                   ucx_seconds)
from wires import ENDS

SERVER = ADDRESS["b"]
UCX_PORT, PINGPONG_PORT, QPERF_PORT = 13337, 47592, 19765
MPIRUN = TREE / "selftests/consumers/mpirun"
MPI = "/build/selftests/consumers/mpi"
# UCX before 1.19 drops datagrams whose completion does not have the kind of their address, like those of
# rdma_rxe.
UCX_CHECK = "UCX_UD_VERBS_ETH_DGID_CHECK=n"
NVME_DEVICE = "nv0"
EXPORT, MOUNT = "/tmp/export", "/tmp/nfs"
FILE_MIB = 16


# ---- where they run --------------------------------------------------------

@dataclass(frozen=True)
class Place:
    """The used devices, and the ends of a wire or the place to read and write."""

    devices: tuple
    ends: object = None
    path: str = ""


def storage(command):
    """Shell code for NVMe and NFS."""
    try:
        return shell(f". {TREE}/selftests/lib/nvme.sh; . {TREE}/selftests/lib/nfs.sh; {command}").strip()
    except subprocess.CalledProcessError as why:
        raise Failed(f"status {why.returncode}: {command}: {why.stdout}") from None


@contextlib.contextmanager
def wire(driver):
    yield Place(ENDS[driver].devices(), ENDS[driver])


@contextlib.contextmanager
def nvme(driver):
    """From a device to itself: the kernel's host and target know only the first namespace."""
    try:
        storage(f"nvme_up {NVME_DEVICE} {driver}; nvme_connect >&2")
        yield Place((NVME_DEVICE,), path=storage("nvme_disk"))
    finally:
        storage(f"nvme_down {NVME_DEVICE}")


@contextlib.contextmanager
def nfs(driver):
    """From one end of the wire to the other."""
    ends = ENDS[driver]
    path = f"{MOUNT}/file"
    try:
        storage(f"nfs_serve {ends.server} {EXPORT}")
        storage(f"nfs_mount {ends.client} {SERVER} {MOUNT} {EXPORT}")
        run("dd", "if=/dev/zero", f"of={path}", "bs=1M", f"count={FILE_MIB}", "conv=fsync")
        yield Place(ends.devices(), path=path)
    finally:
        storage(f"! mountpoint -q {MOUNT} || umount {MOUNT}; nfs_end {EXPORT}")


STAGES = {"wire": wire, "nvme": nvme, "nfs": nfs}


# ---- programs --------------------------------------------------------------

def run(*command):
    """The output of a single program. Processes that it has started end with it."""
    process = subprocess.Popen([str(word) for word in command], text=True, start_new_session=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)
    try:
        said = process.communicate(timeout=DEADLINE_S)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said = process.communicate()[0]
        raise Failed(f"not over after {DEADLINE_S} s: {said}") from None
    if process.returncode:
        raise Failed(f"{command[0]}: status {process.returncode}: {said}")
    return said


def ucx(place, much, test, size, transport):
    # rc connects by ud.
    methods = "rc_verbs,ud_verbs" if transport == "rc" else "ud_verbs"

    def command(device, *words):
        return ("env", f"UCX_TLS={methods}", f"UCX_NET_DEVICES={device}:1",
                UCX_CHECK, "ucx_perftest", *words, "-P", "0", "-p", str(UCX_PORT))

    said = pair(place.ends, listens(UCX_PORT), command(place.ends.server_device),
                command(place.ends.client_device, SERVER, "-t", test, "-s", str(size), "-n", str(much),
                        "-w", str(much // 10), "-f"))
    return ucx_seconds(said), size


def mpi(place, much, test, size):
    return mpi_seconds(run("env", UCX_CHECK, MPIRUN, *place.ends.words(), MPI, test, size, much)), size


def libfabric(place, much, endpoint, provider, size):
    over = "verbs" if provider == "verbs" else f"verbs;ofi_{provider}"

    def command(device, *words):
        domain = f"{device}-dgram" if provider == "rxd" else device
        return ("env", "FI_UNIVERSE_SIZE=16", "fi_pingpong", "-p", over, "-e", endpoint, "-d", domain,
                "-I", str(much), "-S", str(size), *words)

    return pingpong_seconds(pair(place.ends, listens(PINGPONG_PORT), command(place.ends.server_device),
                                 command(place.ends.client_device, SERVER))), size


def qperf(place, much, test, size):
    """By rdma_cm: without it qperf makes addresses without a GRH. It finds the device by the route."""
    try:
        with running(place.ends, listens(QPERF_PORT), ["qperf"],
                     ["qperf", SERVER, "-uu", "-cm", "1", "-t", f"{max(1, much // 1000)}", "-m", str(size),
                      test]) as (client, _server):
            said = client.communicate(timeout=DEADLINE_S)[0]
            if client.returncode:
                raise Failed(said)
    except subprocess.TimeoutExpired:
        raise Failed(f"not over after {DEADLINE_S} s") from None
    value = qperf_value(said)
    return (value if test.endswith("_lat") else size / value), size


def fio(place, much, rw, size, depth):
    """Depth is the number of messages in progress."""
    said = run("fio", "--name=fio", f"--filename={place.path}", "--direct=1", "--ioengine=libaio",
               f"--rw={rw}", f"--bs={size}", f"--iodepth={depth}", f"--size={FILE_MIB}m", "--time_based",
               f"--runtime={much}ms", "--ramp_time=300ms", "--output-format=json")
    return 1 / fio_per_second(said, "read" if "read" in rw else "write"), size


def dd(place, much, way, size):
    """All bytes, until they are there, repeatedly: the median."""
    ways = {"write": ("if=/dev/zero", f"of={place.path}", "conv=fsync"),
            "read": (f"if={place.path}", "of=/dev/null")}
    seconds = []
    for _ in range(max(1, much // 300)):
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
        seconds.append(dd_seconds(run("dd", *ways[way], "bs=1M", f"count={size >> 20}"), size))
    return statistics.median(seconds), size


MEASURES = {function.__name__: function for function in (ucx, mpi, libfabric, qperf, fio, dd)}


def measured(app, place, much):
    """The figure of an application, in its unit."""
    seconds, size = MEASURES[app.measure](place, much, **app.arguments)
    if app.unit == "us":
        return seconds * 1e6
    return size / seconds / 1e6 if app.unit == "MB/s" else 1e-3 / seconds
