# SPDX-License-Identifier: GPL-2.0
"""Samples everything on all CPUs while a case runs, in the virtual machine.

A case has a name; cost(place), which returns the cost of a message in the unit of all figures; and
run(place, sample), which calls sample() while it runs there."""

import os
import pathlib
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from breakdown import breakdown
from measure import Failed
from parse import kernel_modules, perf_shares

CPUS = os.cpu_count()
IS_VIRTUAL = CPUS == 1
# In ns, or instructions if these are counted.
PERIOD = 49_999 if IS_VIRTUAL else 499_979
UNIT = "instructions" if IS_VIRTUAL else "ns of all CPUs"
SECONDS = 0.4 if IS_VIRTUAL else 2
LEAST = 0.004
DATA = "/tmp/perf.data"


def packets():
    """The number sent by all devices, to themselves, too."""
    counters = pathlib.Path("/sys/class/infiniband").glob("*/ports/1/hw_counters/sent_pkts")
    return sum(int(counter.read_text()) for counter in counters)


def wait_for_traffic(is_over):
    """Returns as soon as something sends."""
    begin, deadline = packets(), time.monotonic() + 20
    while packets() - begin < 256:
        if is_over() or time.monotonic() > deadline:
            raise Failed("there is no traffic")
        time.sleep(0.01)


def run_sampled(run, sample):
    """Calls sample() while run() runs."""
    with ThreadPoolExecutor() as pool:
        running = pool.submit(run)
        wait_for_traffic(running.done)
        sample()
        if running.done():
            raise Failed("it was over before the samples were")
        running.result()


class Sampler:
    """perf, which is slow to begin and to end: both while nothing else runs."""

    def __init__(self):
        self.pipes = [pathlib.Path("/tmp/perf.control"), pathlib.Path("/tmp/perf.ack")]
        for pipe in self.pipes:
            os.mkfifo(pipe)
        self.process = subprocess.Popen([
            "perf", "record", "-qaBN", "-e", "cpu-clock", "-c", str(PERIOD), "-o", DATA, "-D", "-1",
            "--control", f"fifo:{self.pipes[0]},{self.pipes[1]}"], stdin=subprocess.DEVNULL)
        self.tell("ping")

    def tell(self, command):
        """Sends it a command, and waits for the end."""
        self.pipes[0].write_text(command + "\n")
        with self.pipes[1].open() as ack:
            if not ack.readline().startswith("ack"):
                raise Failed(f"perf does not {command}")

    def close(self):
        self.tell("stop")
        self.process.wait()
        for pipe in self.pipes:
            pipe.unlink()


def sampled(case, place):
    """The report of perf for some time in the middle of the case."""
    sampler = Sampler()

    def sample():
        sampler.tell("enable")
        time.sleep(SECONDS)
        sampler.tell("disable")
    case.run(place, sample)
    sampler.close()
    said = subprocess.run(["perf", "report", "-i", DATA, "--stdio", "--no-children", "-t", "|",
                           "-F", "sample,dso,sym"], check=True, capture_output=True, text=True)
    return perf_shares(said.stdout, kernel_modules(pathlib.Path("/proc/kallsyms").read_text()))


def demangled(names):
    """The name as in the source; Rust's have a hash behind that of the crate."""
    said = subprocess.run(["c++filt"], input="\n".join(names), check=True, capture_output=True,
                          text=True).stdout
    return dict(zip(names, re.sub(r"\[[0-9a-f]{12,16}\]", "", said).splitlines()))


def show(case, driver, each, shares):
    total = sum(shares.values())
    print(f"\n{case.name}, {driver}: {each:.0f} {UNIT} a message, {total} samples")

    def row(samples, *names):
        share = samples / total
        print(f"{share:7.1%} {each * share:9.0f}  {'  '.join(names)}")

    where = {}
    for (module, _), samples in shares.items():
        where[module] = where.get(module, 0) + samples
    for module, samples in sorted(where.items(), key=lambda item: -item[1]):
        row(samples, module)
    print()
    most = {key: samples for key, samples in shares.items() if samples >= LEAST * total}
    names = demangled([name for _, name in most])
    for (module, name), samples in sorted(most.items(), key=lambda item: -item[1]):
        row(samples, f"{module:<18}", names[name])
    sys.stdout.flush()


def show_symbols():
    """Lets perf see the addresses of the kernel's functions."""
    pathlib.Path("/proc/sys/kernel/kptr_restrict").write_text("0")


def profile(case, driver, place):
    """Shows one, and returns it as data."""
    each = case.cost(place)
    shares = sampled(case, place)
    show(case, driver, each, shares)
    made = breakdown(each, shares)
    names = demangled([name for _, name, _ in made["functions"]])
    made["functions"] = [[module, names[name], much] for module, name, much in made["functions"]]
    return {"case": case.name, "driver": driver, "unit": UNIT, **made}
