# SPDX-License-Identifier: GPL-2.0
"""Parses the output of measuring programs into numbers."""

import json
import re

# perftest prints millions of messages to six places, and MiB to two: from this size on the second
# is more exact.
EXACT_IN_BYTES = 10486


def perftest_results(report):
    """Its JSON has "nan" for an unknown deviation, which is none."""
    return json.loads(re.sub(r": *-?nan\b", ": null", report))["results"]


def perftest_rate(report, size):
    """Returns messages a second."""
    results = perftest_results(report)
    if size >= EXACT_IN_BYTES:
        return results["BW_average"] * (1 << 20) / size
    return results["MsgRate"] * 1e6


def perftest_latency(report):
    """Returns us: half a round trip, or a whole one for a READ or an atomic."""
    results = perftest_results(report)
    return {"typical": results["t_typical"], "average": results["t_avg"],
            "p99": results["percentile_99"]}


def iperf_bytes_per_second(said):
    return json.loads(said)["end"]["sum_received"]["bits_per_second"] / 8


def cmtime_us(said):
    """The time of all connections together, with queue pairs: from the first step to the last one."""
    for line in said.splitlines():
        if line.startswith("full connect"):
            return int(line.split()[3])
    raise ValueError(f"no time for connecting: {said}")


def busy_ticks(stat):
    """Parses /proc/stat: hundredths of a second in which a CPU was busy."""
    user, nice, system, _idle, _wait, irq, softirq, steal = map(int, stat.split()[1:9])
    return user + nice + system + irq + softirq + steal


def is_listening(sockets, port):
    """Parses a process's net/tcp: true if a process listens there."""
    rows = [line.split() for line in sockets.splitlines()[1:]]
    return any(int(row[1].rpartition(":")[2], 16) == port and row[3] == "0A" for row in rows)


def kernel_modules(symbols):
    """Parses /proc/kallsyms: the module of each symbol whose name is unique."""
    owners = {}
    for line in symbols.splitlines():
        _, _, name, *module = line.split()
        owners.setdefault(name, set()).add(module[0].strip("[]") if module else "kernel")
    return {name: min(modules) for name, modules in owners.items() if len(modules) == 1}


def perf_shares(said, modules):
    """Parses a report of perf with the columns samples, module and symbol: samples by module and
    name. For perf all of the kernel's modules are the kernel."""
    shares = {}
    for line in said.splitlines():
        if line.startswith("#") or line.count("|") < 2:
            continue
        samples, module, name = (cell.strip() for cell in line.split("|", 2))
        name = re.sub(r"^\[\S\] ", "", name)
        # It may know a module, and prints that in brackets.
        module = module.strip("[]")
        if "kernel" in module:
            module = modules.get(name, "kernel")
        shares[module, name] = shares.get((module, name), 0) + int(samples)
    return shares


# ---- applications ----------------------------------------------------------

def found(pattern, said, flags=0):
    """Returns the group of a pattern; ValueError without a match."""
    match = re.search(pattern, said, flags)
    if not match:
        raise ValueError(f"no figure: {said.strip() or 'nothing was said'}")
    return match[1]


def ucx_seconds(said):
    """Parses ucx_perftest's last line: the overall time of a message, or half a round trip."""
    return float(found(r"^ *(?:Final:)? *\d+ +[\d.]+ +[\d.]+ +([\d.]+)(?: +[\d.]+){4}\s*$", said, re.M)) / 1e6


def mpi_seconds(said):
    return float(found(r"^([\d.]+) s each$", said, re.M))


def pingpong_seconds(said):
    """Parses fi_pingpong: half a round trip."""
    line = found(r"^(\d\S* +\S+ +=\S+ .*)$", said, re.M)
    return float(line.split()[6]) / 1e6


def qperf_value(said):
    """Returns bytes a second, or seconds, for plain units (-uu)."""
    value, unit = found(r"=\s+([\d.]+ +\S+)", said).split()
    return float(value) * {"bytes/sec": 1, "ns": 1e-9}[unit]


def fio_per_second(said, way):
    """Returns requests. Warnings come before."""
    job = json.loads(said[said.index("{"):])["jobs"][0]
    if job["error"] or not job[way]["iops"]:
        raise ValueError(f"fio: error {job['error']}, nothing was done")
    return job[way]["iops"]


def dd_seconds(said, size):
    return float(found(rf"^{size} bytes .*copied, ([\d.e-]+) s", said, re.M))
