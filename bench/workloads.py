# SPDX-License-Identifier: GPL-2.0
"""Random workloads: one for each seed, and some known ones, by name.

A workload is a line of words, NAME=VALUE. Words with the default value may be left out. The program
of selftests/bench/explore.c runs it. All random choices are made here.
"""

import random
from dataclasses import dataclass, fields, replace

from cases import KIB, MIB, size_name

# A datagram is a packet.
LARGEST_DATAGRAM = 4096
# Bytes of all messages in progress, and of a burst.
MOST_AT_ONCE = 16 * MIB
# A polling thread has a CPU for itself.
CPUS = 2
# Repeating operations need less time, and have more work for it.
VIRTUAL_SCALE = 0.2

SENDS = ("send", "send_imm")
WRITES = ("write", "write_imm")
ATOMICS = ("fetch_add", "cmp_swap")
OPERATIONS = {"rc": SENDS + WRITES + ("read",) + ATOMICS, "uc": SENDS + WRITES, "ud": SENDS}
TAKES_A_RECEIVE = SENDS + ("write_imm",)


@dataclass(frozen=True)
class Workload:
    transport: str = "rc"
    # One or several kinds, chosen at random for each message.
    op: tuple = ("write",)
    # The least and the most bytes of a message, random between these.
    size: tuple = (64, 64)
    # Queue pairs, and the requests that each may have in progress.
    qps: int = 1
    depth: int = 16
    # Threads on each end, which share the queue pairs in turn.
    threads: int = 1
    # Requests for one doorbell.
    list: int = 1
    # So many messages of each thread, then a rest, once all are delivered; 0: without an end.
    burst: int = 0
    rest_us: int = 0
    # Each so many requests one is signalled.
    signal: int = 1
    # Completions are polled after each post, when the queue is full, or waited for by events.
    poll: str = "full"
    # The receiving end: polls, or waits for events.
    recv_event: int = 0
    # A polling thread has asked for an event before, once.
    armed: int = 0
    # Up to so many bytes are inline.
    inline: int = 0
    srq: int = 0
    # Both ends send requests.
    both: int = 0
    # The ends are processes, or threads of one.
    processes: int = 2
    # One device with itself.
    loopback: int = 0
    # READs and atomics that may be in progress.
    reads: int = 16
    # A single burst, just after the queue pairs are connected.
    fresh: int = 0
    ms: int = 600
    # Of sizes and kinds.
    seed: int = 1

    def words(self, all_of_them=False):
        usual = Workload()
        for field in fields(self):
            value = getattr(self, field.name)
            if all_of_them or value != getattr(usual, field.name) or field.name in ALWAYS:
                yield f"{field.name}={WRITTEN.get(field.name, str)(value)}"

    def line(self):
        return " ".join(self.words())

    def program_words(self):
        """The line for the program, which knows neither the defaults nor its devices."""
        return [word for word in self.words(True) if not word.startswith("loopback=")]

    def takes_receives(self):
        return any(op in TAKES_A_RECEIVE for op in self.op)

    def pollers(self):
        """The number of threads that poll at a time."""
        asking = self.threads * (2 if self.both else 1) if self.poll != "event" else 0
        listens = self.takes_receives() and not self.both and not self.recv_event
        return asking + (self.threads if listens else 0)


ALWAYS = ("op", "size", "qps", "depth", "poll")
WRITTEN = {"op": ",".join, "size": lambda size: "-".join(map(str, dict.fromkeys(size)))}


def parse(line):
    """The workload of a line; ValueError if it is none."""
    kinds = {field.name: type(field.default) for field in fields(Workload)}
    values = {}
    for word in line.split():
        name, _, value = word.partition("=")
        if name not in kinds:
            raise ValueError(f"no such word: {word}")
        if name == "op":
            values[name] = tuple(value.split(","))
        elif name == "size":
            least, _, most = value.partition("-")
            values[name] = (int(least), int(most or least))
        else:
            values[name] = kinds[name](value)
    return checked(Workload(**values))


def checked(workload):
    """The workload, or ValueError if the program could not run it."""
    known = OPERATIONS.get(workload.transport, ())
    for what, holds in (
            ("operation", workload.op and set(workload.op) <= set(known)),
            ("size", 8 <= workload.size[0] <= workload.size[1]),
            ("size of a datagram",
             workload.transport != "ud" or workload.size[1] <= LARGEST_DATAGRAM),
            ("list", 1 <= workload.list <= min(16, workload.depth)),
            ("threads", 1 <= workload.threads <= workload.qps <= 16),
            ("signal", workload.signal == 1 or 2 * workload.signal <= workload.depth),
            ("way to wait", workload.poll in ("each", "full", "event"))):
        if not holds:
            raise ValueError(f"no such {what}: {workload.line()}")
    return workload


# ---- by seed ---------------------------------------------------------------

class Dice:
    """Random choices that are the same with every version of Python: random() is, but not the
    functions based on it."""

    def __init__(self, seed):
        self.random = random.Random(seed).random

    def below(self, number):
        return int(self.random() * number)

    def one(self, values):
        return values[self.below(len(values))]

    def one_in(self, number):
        return self.below(number) == 0


def some_operations(dice, transport):
    known = OPERATIONS[transport]
    if dice.one_in(5):
        number = 2 + dice.below(min(3, len(known) - 1))
        kinds = list(known)
        chosen = {kinds.pop(dice.below(len(kinds))) for _ in range(number)}
        return tuple(op for op in known if op in chosen)
    # Common values are the most frequent.
    likely = [op for op in known for _ in range(3 if op in ("send", "write", "read") else 1)]
    return (dice.one(likely),)


def one_size(dice, largest):
    most = largest.bit_length() - 4
    size = 8 << dice.below(most + 1)
    return min(size + (dice.below(size) if dice.one_in(2) else 0), largest)


def some_sizes(dice, transport, op):
    if set(op) <= set(ATOMICS):
        return (8, 8)
    largest = LARGEST_DATAGRAM if transport == "ud" else MIB
    one = one_size(dice, largest)
    return tuple(sorted((one, one_size(dice, largest)))) if dice.one_in(3) else (one, one)


def within_memory(workload):
    """Reduces the messages in progress, if they are too large."""
    each = workload.size[1] + 4 * KIB
    while workload.qps * workload.depth * each > MOST_AT_ONCE:
        workload = replace(workload, **({"depth": workload.depth // 2} if workload.depth > 1 else
                                        {"qps": workload.qps // 2}))
    burst = min(workload.burst, max(1, MOST_AT_ONCE // each))
    threads = min(workload.threads, workload.qps)
    return replace(workload, burst=burst, threads=threads, list=min(workload.list, workload.depth),
                   signal=workload.signal if 2 * workload.signal <= workload.depth else 1)


def within_cpus(workload):
    """Reduces the polling threads below the number of CPUs."""
    if workload.pollers() > CPUS:
        workload = replace(workload, recv_event=1)
    return replace(workload, poll="event") if workload.pollers() > CPUS else workload


def by_seed(seed):
    """The workload of a seed, always the same."""
    dice = Dice(seed)
    transport = dice.one(("rc",) * 8 + ("ud", "uc"))
    op = some_operations(dice, transport)
    poll = dice.one(("each", "full", "event"))
    workload = Workload(
        transport=transport, op=op, size=some_sizes(dice, transport, op),
        qps=dice.one((1, 1, 1, 2, 2, 4, 8, 16)),
        depth=dice.one((1, 1, 2, 4, 8, 16, 32, 64, 128, 128, 512)),
        threads=dice.one((1, 1, 1, 1, 2, 4)), list=dice.one((1, 1, 1, 2, 4, 16)),
        burst=dice.one((0, 0, 0, 1, 4, 32, 100, 500)),
        rest_us=dice.one((0, 50, 1000, 20000)), signal=dice.one((1, 1, 8)), poll=poll,
        recv_event=int(poll == "event" or dice.one_in(4)), inline=dice.one((0, 0, 0, 128)),
        both=int(dice.one_in(4)), srq=int(dice.one_in(4)), processes=dice.one((1, 2, 2)),
        loopback=int(dice.one_in(10)), reads=dice.one((1, 4, 16, 16)), seed=seed)
    workload = within_cpus(within_memory(workload))
    # Words without a meaning have the default.
    receives = workload.takes_receives()
    return checked(replace(
        workload, rest_us=workload.rest_us if workload.burst else 0,
        srq=workload.srq if receives and transport != "uc" else 0,
        recv_event=workload.recv_event if receives and not workload.both else 0,
        inline=workload.inline if workload.size[0] <= workload.inline and
        set(op) & set(SENDS + WRITES) else 0,
        reads=workload.reads if set(op) & {"read", *ATOMICS} else Workload.reads))


# ---- by name ---------------------------------------------------------------

def bursts():
    for op in ("send", "write", "read"):
        for size in (64, 4 * KIB):
            for burst in (8, 64, 500):
                for rest_ms in (1, 20, 500):
                    yield (f"{op} {size_name(size)}, {burst} after {rest_ms} ms",
                           Workload(op=(op,), size=(size, size), depth=128, burst=burst,
                                    rest_us=1000 * rest_ms))


# Workloads that were slow once.
KNOWN = {
    "write 64 B, 2 QPs, polled after each": Workload(qps=2, depth=128, poll="each"),
    "write 64 B, 2 QPs, polled when full": Workload(qps=2, depth=128),
    "write 4 KiB, the first 300": Workload(size=(4096, 4096), depth=128, burst=300, fresh=1),
    "send 64 KiB, a window of 16, events": Workload(op=("send",), size=(65536, 65536), poll="event",
                                                    recv_event=1),
    "write 380 kB, 2 QPs, polled, armed once": Workload(size=(380197, 380197), qps=2, armed=1),
    "send 32 KiB, 2 QPs by turns, one device": Workload(op=("send",), size=(32768, 32768), qps=2, depth=1,
                                                        loopback=1),
    **dict(bursts()),
}
# Those that represent the others.
FEW = ("write 64 B, 2 QPs, polled after each", "write 4 KiB, the first 300",
       "write 64 B, 500 after 20 ms", "read 4 KiB, 500 after 20 ms", "send 4 KiB, 64 after 1 ms")
