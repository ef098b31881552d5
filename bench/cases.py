# SPDX-License-Identifier: GPL-2.0
"""The measured cases, as data: the rows of both benchmarks, and their targets.

A case is one run of a function of measure.py for one driver, and has one or more figures, each
a row. Ratios are ferroce's to rdma_rxe's. Above 1 is better, for times and rates.
"""

import fnmatch
from dataclasses import dataclass, field

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Figure:
    """One value of a measurement, by its key, and its suffix to a case's name."""

    key: str
    unit: str
    suffix: str = ""


@dataclass(frozen=True)
class Wire:
    """The drivers at the ends: "same" driver at both, client "to rxe", server and so the work "from
    rxe", or both on one device: "loopback". Packets with a loss, even of 0%, pass a queue."""

    mtu: int = 9000
    loss: str | None = None
    ends: str = "same"


@dataclass(frozen=True)
class Case:
    group: str
    name: str
    measure: str
    figures: tuple
    arguments: dict = field(default_factory=dict)
    wire: Wire = Wire()
    drivers: tuple = ("ferroce", "rxe")
    # The case that has TCP's figure for this one.
    tcp: str = ""
    # It is in short runs, too, and represents others there.
    quick: bool = False


@dataclass(frozen=True)
class Target:
    """The target of the worst of some rows, against "rxe", "tcp" or the same driver's row of
    another name."""

    name: str
    rows: tuple
    least: float
    aim: float | None = None
    against: str = "rxe"


def is_called(case, patterns):
    """True if one of these patterns, with | between them, fits the name of a case."""
    return any(fnmatch.fnmatchcase(case.name, pattern) for pattern in patterns.split("|"))


RATE = (Figure("rate", "k/s"),)
BANDWIDTH = (Figure("bandwidth", "MB/s"),)
LATENCY = (Figure("typical", "us", ", typical"), Figure("average", "us", ", average"),
           Figure("p99", "us", ", p99"))
CPU_PER_GB = (Figure("per byte", "CPU s/GB"),)
CPU_PER_MESSAGE = (Figure("per message", "CPU us/message"),)
PER_MESSAGE = (Figure("per message", "instructions/message"),)
PER_BYTE = (Figure("per byte", "instructions/byte"),)

# More is better for these units, and less for all others.
RATES = ("k/s", "MB/s", "1/s")

VERBS = ("send", "write", "read")
LARGE, JUMBO = 64 * KIB, 8 * MIB


def size_name(size):
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def messages(size):
    """The number that takes rdma_rxe about two seconds."""
    return max(32, min(32000, 256 * MIB // size))


def stream(group, verb, size, name="", **more):
    """Messages of one size, one after the other: small ones a rate, large ones a bandwidth."""
    arguments = {"verb": verb, "size": size, "count": messages(size)}
    arguments |= more.pop("arguments", {})
    more.setdefault("figures", BANDWIDTH if size >= 4 * KIB else RATE)
    return Case(group, f"{verb} {size_name(size)}{name}", "stream", arguments=arguments, **more)


def latency(group, verb, size, *options, name="", **more):
    arguments = {"verb": verb, "size": size, "count": 4000, "options": options}
    return Case(group, f"{verb} latency {size_name(size)}{name}", "latency",
                arguments=arguments, figures=more.pop("figures", LATENCY), **more)


def tcp(size, name="", **more):
    more.setdefault("figures", BANDWIDTH)
    return Case("TCP", f"TCP {size_name(size)}{name}", "tcp", drivers=("tcp",),
                arguments={"size": size}, **more)


# ---- in real time ----------------------------------------------------------

TCP_OF = {size: f"TCP {size_name(size)}" for size in (4 * KIB, LARGE, MIB)}


def sizes():
    for verb in VERBS:
        for size in (2, 64, 512, 4 * KIB, 16 * KIB, LARGE, 256 * KIB, MIB, JUMBO):
            yield stream("one queue pair", verb, size, tcp=TCP_OF.get(size, ""),
                         quick=size in (64, LARGE) or (verb, size) == ("read", JUMBO))


def latencies():
    for verb in VERBS:
        for size in (64, 4 * KIB):
            yield latency("latency", verb, size, quick=(verb, size) == ("send", 64))
    # perftest has no events for WRITEs: the target of a WRITE gets no notice.
    for verb in ("send", "read"):
        yield latency("latency", verb, 64, "-e", name=", events")
    yield latency("latency", "atomic", 8, quick=True)


def beside():
    """Short waits beside a stream that never stops. All processes sleep until an event, so that they
    compete only by their packets."""
    bulk = {"verb": "send", "size": LARGE, "count": 10**6, "options": ("-e",)}
    yield Case("beside a stream", "send latency 64 B, beside 64 KiB", "latency_beside", LATENCY,
               {"verb": "send", "size": 64, "count": 4000, "options": ("-e",), "stream": bulk})


def atomics():
    for operation in ("FETCH_AND_ADD", "CMP_AND_SWAP"):
        yield stream("atomics", "atomic", 8, f", {operation}",
                     arguments={"options": ("-A", operation), "count": 20000})


def queue_pairs():
    # Receives of 64 have more completions than one queue may hold.
    for verb, size, each, numbers in (("send", 64, 65536, (8,)), ("write", 64, 65536, (8, 64)),
                                      ("write", LARGE, 4096, (8, 64))):
        for pairs in numbers:
            yield stream("many queue pairs", verb, size, f", {pairs} QPs",
                         arguments={"count": each // pairs, "options": ("-q", str(pairs))},
                         tcp=f"TCP {size_name(size)}, 8 streams" if size == LARGE else "",
                         quick=(size, pairs) == (LARGE, 8))


def datagrams():
    for size in (64, 4 * KIB):
        # The sender is not held back, so all receives are posted at the beginning.
        yield stream("UD", "send", size, ", UD", quick=size == 64, figures=RATE,
                     arguments={"count": 16000, "reporter": "server",
                                "options": ("-c", "UD", "-r", "16000")})


def both_ways():
    for verb in VERBS:
        yield stream("both ways at once", verb, LARGE, ", both ways", quick=verb == "write",
                     arguments={"options": ("-b",), "count": 2048})


def costs():
    """Waiting processes sleep, so that only work is measured."""
    for verb in ("send", "read"):
        yield Case("cost", f"CPU time, {verb} 64 KiB", "cpu_time", CPU_PER_GB, quick=verb == "send",
                   arguments={"verb": verb, "size": LARGE, "count": 2000}, tcp="CPU time, TCP")
        yield Case("cost", f"CPU time, {verb} 64 B", "cpu_time", CPU_PER_MESSAGE,
                   arguments={"verb": verb, "size": 64, "count": 20000})
    yield Case("cost", "CPU time, TCP", "cpu_time_of_tcp", CPU_PER_GB, drivers=("tcp",),
               arguments={"size": LARGE, "count": 4000}, quick=True)
    yield Case("cost", "memory of an idle QP", "memory", (Figure("per queue pair", "KiB"),),
               arguments={"count": 256}, quick=True)
    yield Case("cost", "connections by rdma_cm", "connections", (Figure("rate", "1/s"),),
               arguments={"count": 100}, quick=True)


def loopback():
    wire = Wire(ends="loopback")
    for verb in VERBS:
        yield stream("one device with itself", verb, LARGE, ", loopback", wire=wire,
                     quick=verb == "write")
    yield latency("one device with itself", "send", 64, name=", loopback", wire=wire)


def losses():
    for loss, count in (("0%", 512), ("0.1%", 2048), ("1%", 512)):
        for verb in ("write", "read"):
            yield stream("packets lost", verb, LARGE, f", {loss} lost", wire=Wire(loss=loss),
                         arguments={"count": count}, quick=(loss, verb) == ("0.1%", "write"))


def peers():
    for ends in ("to rxe", "from rxe"):
        for verb in VERBS:
            yield stream("a stock rxe at the other end", verb, LARGE, f", {ends}",
                         wire=Wire(ends=ends), quick=verb == "write")


def narrow():
    wire = Wire(mtu=1500)
    for verb in VERBS:
        for size in (64, LARGE, MIB):
            yield stream("MTU 1500", verb, size, ", MTU 1500", wire=wire,
                         tcp=f"{TCP_OF[size]}, MTU 1500" if size in TCP_OF else "",
                         quick=(verb, size) == ("write", LARGE))
    yield latency("MTU 1500", "send", 64, name=", MTU 1500", wire=wire)


def tcps():
    for size in TCP_OF:
        yield tcp(size, quick=size == LARGE)
    yield Case("TCP", "TCP 64 KiB, 8 streams", "tcp", BANDWIDTH, drivers=("tcp",), quick=True,
               arguments={"size": LARGE, "options": ("-P", "8")})
    for size in (LARGE, MIB):
        yield tcp(size, ", MTU 1500", wire=Wire(mtu=1500), quick=size == LARGE)


TIMED = (*sizes(), *latencies(), *beside(), *atomics(), *queue_pairs(), *datagrams(), *both_ways(), *costs(),
         *loopback(), *losses(), *peers(), *narrow(), *tcps())

TARGETS = (
    Target("bandwidth at 64 KiB and 1 MiB",
           tuple(f"{verb} {size}" for verb in VERBS for size in ("64 KiB", "1 MiB")), 3.5, 5),
    Target("bandwidth at 4 KiB", tuple(f"{verb} 4 KiB" for verb in VERBS), 3, 4),
    Target("message rate, 64 B WRITE and SEND", ("write 64 B", "send 64 B"), 3, 5),
    Target("64 KiB over 8 and 64 QPs", ("write 64 KiB, 8 QPs", "write 64 KiB, 64 QPs"), 4, 6),
    Target("the same against one QP", ("write 64 KiB, 8 QPs", "write 64 KiB, 64 QPs"), 1,
           against="write 64 KiB"),
    Target("latency 64 B, typical and p99",
           tuple(f"{verb} latency 64 B, {which}" for verb in VERBS for which in ("typical", "p99")),
           2.5, 4),
    Target("p99 of 64 B beside a stream of 64 KiB", ("send latency 64 B, beside 64 KiB, p99",), 1),
    Target("UD message rate", ("send 64 B, UD",), 3, 4),
    Target("loopback on one device, 64 KiB",
           tuple(f"{verb} 64 KiB, loopback" for verb in VERBS), 10, 20),
    Target("READ of 8 MiB against READ of 1 MiB", ("read 8 MiB",), 0.9, against="read 1 MiB"),
    Target("0.1% and 1% of the packets lost, 64 KiB",
           tuple(f"{verb} 64 KiB, {loss} lost" for verb in ("write", "read")
                 for loss in ("0.1%", "1%")), 4, 8),
    Target("memory of an idle RC QP", ("memory of an idle QP",), 1, 2),
    Target("64 KiB against TCP", tuple(f"{verb} 64 KiB" for verb in VERBS), 0.4, 0.7,
           against="tcp"),
    Target("to and from a stock rxe peer, 64 KiB",
           tuple(f"{verb} 64 KiB, {ends}" for verb in VERBS for ends in ("to rxe", "from rxe")),
           1, 1.3),
)


# ---- in virtual time -------------------------------------------------------

def counted(verb, size, name="", **more):
    """On the only CPU no process may poll beside working ones: all sleep until an event. perftest
    has no events for WRITEs, so there its client polls only while no other process needs the CPU."""
    arguments = {"count": more.pop("count", 12000 if size < LARGE else 512),
                 "options": more.pop("options", ()) + (() if verb == "write" else ("-e",)),
                 "polls_last": verb == "write"}
    return stream("one CPU", verb, size, name, arguments=arguments,
                  figures=PER_BYTE if size >= 4 * KIB else PER_MESSAGE, **more)


def instructions():
    for verb in VERBS:
        for size in (64, 4 * KIB, LARGE):
            yield counted(verb, size, tcp="TCP 64 KiB" if size == LARGE else "",
                          quick=size != 4 * KIB)
    for verb in ("send", "read"):
        yield counted(verb, 64, ", one at a time", options=("-t", "1"))
    yield counted("read", JUMBO, count=16)
    yield counted("atomic", 8)
    for pairs in (8, 64):
        yield counted("write", LARGE, f", {pairs} QPs", count=1024 // pairs,
                      options=("-q", str(pairs)))
    yield stream("one CPU", "send", 64, ", UD", figures=PER_MESSAGE,
                 arguments={"count": 8000, "reporter": "server",
                            "options": ("-c", "UD", "-r", "8000", "-e")})
    yield counted("write", LARGE, ", loopback", wire=Wire(ends="loopback"))
    yield counted("write", LARGE, ", MTU 1500", wire=Wire(mtu=1500))
    for verb in ("write", "read"):
        for loss in ("0%", "1%"):
            yield counted(verb, LARGE, f", {loss} lost", wire=Wire(loss=loss), count=2048)
    for verb in ("send", "read"):
        yield latency("one CPU", verb, 64, "-e", figures=(Figure("instructions", "instructions"),))
    yield tcp(LARGE, figures=PER_BYTE, quick=True)
    # The first workloads of make bench-explore, which repeat within 3%; 9, with rests and events,
    # does not.
    for seed in (1, 2, 4, 6, 7, 8, 10, 11, 12):
        yield Case("random workloads", f"random workload {seed}", "random_workload", PER_BYTE,
                   {"seed": seed}, quick=True)


COUNTED = tuple(instructions())

# Of one CPU that never waits, whatever the other one does.
COUNTED_TARGETS = tuple(
    Target(f"{verb.upper()} with 1% of the packets lost, against none", (f"{verb} 64 KiB, 1% lost",), 0.9,
           against=f"{verb} 64 KiB, 0% lost")
    for verb in ("write", "read"))

# The cases and targets of real time and of virtual time.
PLANS = {"time": (TIMED, TARGETS), "count": (COUNTED, COUNTED_TARGETS)}
