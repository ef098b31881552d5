# SPDX-License-Identifier: GPL-2.0
"""Measures in the virtual machine: the wire of selftests/net.sh with either driver at
each end, programs between its ends, and a function for each "measure" of cases.py.

Each takes the ends and the arguments of the case, and returns values by the keys of figures.
"""

import contextlib
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import time
from dataclasses import dataclass, replace

from parse import (busy_ticks, cmtime_us, iperf_bytes_per_second, is_listening, perftest_latency,
                   perftest_rate)
from workloads import VIRTUAL_SCALE, by_seed

TREE = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TREE / "selftests/lib"))
from shell import shell  # noqa: E402 # where it is found is said above

ADDRESS = {"a": "192.0.2.1", "b": "192.0.2.2"}
DEVICE = {"a": "fe0", "b": "fe1"}
PERFTEST_PORT, BESIDE_PORT, IPERF_PORT, CM_PORT = 18515, 18516, 5201, 7471
DEADLINE_S = 100
EXPLORE = "/build/selftests/bench/explore"
REPORT = pathlib.Path("/tmp/perftest.json")


class Failed(Exception):
    """A measurement without a result, and the reason."""


# ---- this machine ----------------------------------------------------------

def version(*command):
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = re.search(r"\d+(\.\d+)+", said)
    return found[0] if found else "unknown"


def about():
    cpu = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return {"kernel": platform.release(), "cpus": os.cpu_count(), "cpu": cpu[1] if cpu else "",
            "perftest": version("ib_send_bw", "--version"),
            "iperf3": version("iperf3", "--version"), "rdma": version("rdma", "-V")}


# ---- the wire --------------------------------------------------------------

class Ends:
    """The places of the client and the server of a measurement, by namespace."""

    def __init__(self, client, server, mtu):
        self.client, self.server = client, server
        # The MTU to request from perftest, as rdma_rxe leaves room for headers.
        self.path_mtu = 4096 if mtu >= 4500 else 1024
        self.gid = {}


class Network:
    """The two namespaces with a veth pair between them. Existing ones are left alone."""

    def __init__(self):
        # Datagrams that a full queue drops are not sent again.
        shell("modprobe -a rdma_rxe ferroce rdma_ucm ib_uverbs sch_netem; wire_up; deep_backlog")
        self.drivers, self.mtu, self.loss, self.gid = None, None, None, {}

    def close(self):
        shell("net_down")

    def prepare(self, wire, driver):
        """The ends of a wire for one driver; "tcp" accepts any device."""
        drivers = {"to rxe": (driver, "rxe"), "from rxe": ("rxe", driver)}.get(
            wire.ends, (driver, driver))
        if driver == "tcp":
            drivers = self.drivers or ("rxe", "rxe")
        if (drivers, wire.mtu) != (self.drivers, self.mtu):
            self._link(drivers, wire.mtu)
        if wire.loss != self.loss:
            self._lose(wire.loss)
        ends = Ends("a", "a" if wire.ends == "loopback" else "b", wire.mtu)
        ends.gid = self.gid
        return ends

    def _link(self, drivers, mtu):
        said = shell(f"""
            DRIVER_A={drivers[0]} DRIVER_B={drivers[1]}
            link_delete fe0; link_delete fe1
            for end in a b; do ip -n $end link set eth0 mtu {mtu}; done
            links_up
            gid_index fe0 $ADDR4_A; gid_index fe1 $ADDR4_B""")
        self.drivers, self.mtu = drivers, mtu
        self.gid = dict(zip("ab", said.split()))

    def _lose(self, loss):
        for name in ADDRESS:
            shell(f"tc -n {name} qdisc del dev eth0 root 2>/dev/null || true"
                  if loss is None else
                  f"tc -n {name} qdisc replace dev eth0 root netem limit 100000 loss {loss}")
        self.loss = loss


# ---- programs --------------------------------------------------------------

def _start(namespace, command):
    return subprocess.Popen(["ip", "netns", "exec", namespace, *command], text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT)


def listens(port):
    """True if a process listens there, or any in its namespace."""
    def look(process):
        net = pathlib.Path(f"/proc/{process.pid}/net")
        try:
            return any(is_listening((net / name).read_text(), port) for name in ("tcp", "tcp6"))
        except FileNotFoundError:  # it has just ended
            return False
    return look


def _accepts(_process):
    """True if a server listens by rdma_cm."""
    said = subprocess.run(["ip", "netns", "exec", "b", "rdma", "resource", "show", "cm_id"],
                          capture_output=True, text=True, check=False).stdout
    return "state LISTEN" in said


def _wait_for(ready, process):
    deadline = time.monotonic() + 20
    while process.poll() is None and time.monotonic() < deadline:
        if ready(process):
            return
        time.sleep(0.02)
    process.kill()
    raise Failed(f"the server does not listen: {process.communicate()[0]}")


@contextlib.contextmanager
def running(ends, ready, server, client):
    """Both ends of a program, as processes: client, server. They end with the context."""
    processes = [_start(ends.server, server)]
    try:
        _wait_for(ready, processes[0])
        processes.insert(0, _start(ends.client, client))
        yield processes
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()


def pair(ends, ready, server, client):
    """Runs both ends of a program, and returns the client's output."""
    try:
        with running(ends, ready, server, client) as processes:
            said = [process.communicate(timeout=DEADLINE_S)[0] for process in processes]
            if any(process.returncode for process in processes):
                raise Failed(f"client: {said[0]}\nserver: {said[1]}")
            return said[0]
    except subprocess.TimeoutExpired:
        ended = "\nserver: ".join(process.communicate()[0] for process in processes)
        raise Failed(f"client: {ended}\nnot over after {DEADLINE_S} s") from None


@dataclass(frozen=True)
class Perftest:
    """A program with its options, the end that reports, and whether its client runs only while no
    other process needs the CPU."""

    program: str
    options: tuple
    reporter: str = "client"
    polls_last: bool = False
    port: int = PERFTEST_PORT

    def command(self, ends, side):
        name = getattr(ends, side)
        report = ("--out_json", f"--out_json_file={REPORT}") if side == self.reporter else ()
        # -F: the clock rate of a virtual CPU may look unsteady.
        command = [self.program, "-d", DEVICE[name], "-x", ends.gid[name], "-F", *report,
                   "-p", str(self.port), *map(str, self.options)]
        if side == "server":
            return command
        last = ("chrt", "--idle", "0") if self.polls_last else ()
        return [*last, *command, ADDRESS[ends.server]]

    def commands(self, ends):
        return self.command(ends, "server"), self.command(ends, "client")

    def report(self, ends):
        REPORT.unlink(missing_ok=True)
        said = pair(ends, listens(self.port), *self.commands(ends))
        if not REPORT.exists():
            raise Failed(f"no report: {said}")
        return REPORT.read_text()


def _sized(ends, verb, size):
    return () if verb == "atomic" else ("-m", ends.path_mtu, "-s", size)


def _streaming(ends, verb, size, count, options=(), **more):
    return Perftest(f"ib_{verb}_bw", (*_sized(ends, verb, size), "-n", count, "-N", *options), **more)


def streaming(ends, **arguments):
    """A stream as processes, to observe."""
    return running(ends, listens(PERFTEST_PORT), *_streaming(ends, **arguments).commands(ends))


# ---- measures --------------------------------------------------------------

def stream(ends, size, **arguments):
    report = _streaming(ends, size=size, **arguments).report(ends)
    rate = perftest_rate(report, size)
    if rate <= 0:
        raise Failed(f"nothing got through: {report}")
    # The last two in virtual time, where an instruction is a nanosecond, with a CPU that is
    # never idle while a message is in progress.
    return {"rate": rate / 1e3, "bandwidth": rate * size / 1e6,
            "per message": 1e9 / rate, "per byte": 1e9 / rate / size}


def latency(ends, verb, size, count, options=(), **more):
    program = Perftest(f"ib_{verb}_lat", (*_sized(ends, verb, size), "-n", count, *options), **more)
    values = perftest_latency(program.report(ends))
    values["instructions"] = values["typical"] * 1e3
    return values


def latency_beside(ends, stream, **arguments):
    """A latency while other processes saturate the same wire."""
    with streaming(ends, **stream) as processes:
        values = latency(ends, port=BESIDE_PORT, **arguments)
        if any(process.poll() is not None for process in processes):
            raise Failed(f"the stream ended before: {processes[0].communicate()[0]}")
    return values


def _iperf(ends, options):
    said = pair(ends, listens(IPERF_PORT), ["iperf3", "-s", "-1"],
                ["iperf3", "-c", ADDRESS[ends.server], "-J", *map(str, options)])
    return iperf_bytes_per_second(said)


def tcp(ends, size, options=()):
    rate = _iperf(ends, ("-l", size, "-t", 1, *options))
    return {"bandwidth": rate / 1e6, "per byte": 1e9 / rate}


def _busy_s():
    return busy_ticks(pathlib.Path("/proc/stat").read_text()) / os.sysconf("SC_CLK_TCK")


def _cpu_time(run, size, count):
    """The time of all CPUs, per message and per byte: the difference of a long and a short run."""
    few = 8
    times = [_busy_s()]
    for number in (few, count):
        run(number)
        times.append(_busy_s())
    each = (times[2] - 2 * times[1] + times[0]) / (count - few)
    if each <= 0:
        raise Failed("the long run took no more than the short one")
    return {"per message": each * 1e6, "per byte": each / size * 1e9}


def cpu_time(ends, verb, size, count):
    return _cpu_time(lambda number: stream(ends, verb=verb, size=size, count=number,
                                           options=("-e",)), size, count)


def cpu_time_of_tcp(ends, size, count):
    return _cpu_time(lambda number: _iperf(ends, ("-l", size, "-n", size * number)), size, count)


def memory(ends, count):
    name = ends.client
    done = subprocess.run([TREE / "bench/idle-qps", DEVICE[name], ends.gid[name], str(count)],
                          capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    if done.returncode:
        raise Failed(done.stderr)
    return {"per queue pair": float(done.stdout)}


def connections(ends, count):
    def command(option):
        return ["cmtime", option, ADDRESS[ends.server], "-p", str(CM_PORT), "-c", str(count)]
    said = pair(ends, _accepts, command("-b"), command("-s"))
    return {"rate": count / cmtime_us(said) * 1e6}


def explored(workload, a, b, scale):
    """The output of the program of random workloads for one workload, between two ends (namespace
    and device), in so many times the usual time. A loopback has both at the first."""
    b = a if workload.loopback else b
    workload = replace(workload, ms=max(1, int(workload.ms * scale)))
    try:
        done = subprocess.run([EXPLORE, *workload.program_words()], text=True, check=False,
                              env=os.environ | {"END_A": a, "END_B": b}, timeout=DEADLINE_S,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
    except subprocess.TimeoutExpired:
        raise Failed(f"not over after {DEADLINE_S} s") from None
    if done.returncode:
        raise Failed(done.stdout.strip() or f"status {done.returncode}")
    return json.loads(done.stdout)


def explored_between(ends, workload, scale):
    """The same, between these ends."""
    a, b = (f"{name}/{DEVICE[name]}" for name in (ends.client, ends.server))
    return explored(workload, a, b, scale)


def random_workload(ends, seed):
    """On the only CPU."""
    return {"per byte": 1e9 / explored_between(ends, by_seed(seed), VIRTUAL_SCALE)["bytes"]}


MEASURES = {function.__name__: function for function in (
    stream, latency, latency_beside, tcp, cpu_time, cpu_time_of_tcp, memory, connections,
    random_workload)}
