# SPDX-License-Identifier: GPL-2.0
"""What the programs that measure say, as numbers."""

import json
import re

# perftest prints millions of messages to six places, and MiB to two: from this size on the second
# is the more exact.
EXACT_IN_BYTES = 10486


def perftest_results(report):
    """Its JSON has "nan" for a deviation that it cannot tell, which is none."""
    return json.loads(re.sub(r": *-?nan\b", ": null", report))["results"]


def perftest_rate(report, size):
    """Messages a second."""
    results = perftest_results(report)
    if size >= EXACT_IN_BYTES:
        return results["BW_average"] * (1 << 20) / size
    return results["MsgRate"] * 1e6


def perftest_latency(report):
    """In us, half a round trip, of a READ or an atomic all of it."""
    results = perftest_results(report)
    return {"typical": results["t_typical"], "average": results["t_avg"],
            "p99": results["percentile_99"]}


def iperf_bytes_per_second(said):
    return json.loads(said)["end"]["sum_received"]["bits_per_second"] / 8


def cmtime_us(said):
    """Of all connections together, with queue pairs: from the first step to the last one."""
    for line in said.splitlines():
        if line.startswith("full connect"):
            return int(line.split()[3])
    raise ValueError(f"no time for connecting: {said}")


def busy_ticks(stat):
    """Of /proc/stat: hundredths of a second in which a CPU had something to do."""
    user, nice, system, _idle, _wait, irq, softirq, steal = map(int, stat.split()[1:9])
    return user + nice + system + irq + softirq + steal


def is_listening(sockets, port):
    """Of a process's net/tcp: whether somebody listens there."""
    rows = [line.split() for line in sockets.splitlines()[1:]]
    return any(int(row[1].rpartition(":")[2], 16) == port and row[3] == "0A" for row in rows)


def kernel_modules(symbols):
    """Of /proc/kallsyms: which module a symbol belongs to, if no other has one of that name."""
    owners = {}
    for line in symbols.splitlines():
        _, _, name, *module = line.split()
        owners.setdefault(name, set()).add(module[0].strip("[]") if module else "kernel")
    return {name: min(modules) for name, modules in owners.items() if len(modules) == 1}


def perf_shares(said, modules):
    """Of a report of perf with the columns samples, module and symbol: samples by module and
    name. For perf all of the kernel's modules are the kernel."""
    shares = {}
    for line in said.splitlines():
        if line.startswith("#") or line.count("|") < 2:
            continue
        samples, module, name = (cell.strip() for cell in line.split("|", 2))
        name = re.sub(r"^\[\S\] ", "", name)
        # It may know a module, and puts that into brackets.
        module = module.strip("[]")
        if "kernel" in module:
            module = modules.get(name, "kernel")
        shares[module, name] = shares.get((module, name), 0) + int(samples)
    return shares


# ---- applications ----------------------------------------------------------

def found(pattern, said, flags=0):
    """What a pattern has in brackets; ValueError without it."""
    match = re.search(pattern, said, flags)
    if not match:
        raise ValueError(f"no figure: {said.strip() or 'nothing was said'}")
    return match[1]


def ucx_seconds(said):
    """Of ucx_perftest's last line: what a message took overall, of a latency half a round trip."""
    return float(found(r"^ *(?:Final:)? *\d+ +[\d.]+ +[\d.]+ +([\d.]+)(?: +[\d.]+){4}\s*$", said, re.M)) / 1e6


def mpi_seconds(said):
    return float(found(r"^([\d.]+) s each$", said, re.M))


def pingpong_seconds(said):
    """Of fi_pingpong: half a round trip."""
    line = found(r"^(\d\S* +\S+ +=\S+ .*)$", said, re.M)
    return float(line.split()[6]) / 1e6


def qperf_value(said):
    """Bytes a second, or seconds, when it was asked for plain units (-uu)."""
    value, unit = found(r"=\s+([\d.]+ +\S+)", said).split()
    return float(value) * {"bytes/sec": 1, "ns": 1e-9}[unit]


def fio_per_second(said, way):
    """Requests. What it warns of comes before."""
    job = json.loads(said[said.index("{"):])["jobs"][0]
    if job["error"] or not job[way]["iops"]:
        raise ValueError(f"fio: error {job['error']}, nothing was done")
    return job[way]["iops"]


def dd_seconds(said, size):
    return float(found(rf"^{size} bytes .*copied, ([\d.e-]+) s", said, re.M))
