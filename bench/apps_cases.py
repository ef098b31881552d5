# SPDX-License-Identifier: GPL-2.0
"""Applications that run over either driver, as data: their names, arguments and targets. Each has
one figure, measured by the application's own tool. apps_measure.py runs them."""

from dataclasses import dataclass, field

from cases import KIB, LARGE, MIB, RATES, Target, size_name

SMALL = 64


@dataclass(frozen=True)
class App:
    """One run of a function of apps_measure.py."""

    group: str
    name: str
    measure: str
    unit: str
    arguments: dict = field(default_factory=dict)
    # The place, made for each driver: between the ends of its wire, on an NVMe disk from
    # its device to itself, or in a directory of the other end's.
    stage: str = "wire"
    # It is in short runs, too, and represents others there.
    quick: bool = False
    # The length of a long run, in messages or milliseconds; a short one has a third of that.
    much: int = 1000


def ucx():
    quick = (("rc", "tag_lat"), ("rc", "tag_bw"), ("rc", "put_bw"), ("rc", "get"), ("rc", "am_bw"),
             ("rc", "stream_bw"), ("ud", "tag_bw"), ("ud", "put_bw"))
    for transport in ("rc", "ud"):
        for name in ("tag_lat", "tag_bw", "put_bw", "get", "am_bw", "stream_bw"):
            test = name if name.startswith(("tag", "stream")) else f"ucp_{name}"
            yield App(f"UCX, {transport}", f"UCX {transport} {name} 64 KiB", "ucx",
                      "us" if name == "tag_lat" else "MB/s",
                      {"test": test, "size": LARGE, "transport": transport},
                      quick=(transport, name) in quick)
        for name, unit in (("tag_lat", "us"), ("tag_bw", "k/s")):
            yield App(f"UCX, {transport}", f"UCX {transport} {name} 64 B", "ucx", unit,
                      {"test": name, "size": SMALL, "transport": transport},
                      much=3000 if unit == "us" else 10000)


def mpi():
    for test, unit in (("latency", "us"), ("bandwidth", "MB/s"), ("alltoall", "us")):
        yield App("Open MPI", f"MPI {test} 64 KiB", "mpi", unit, {"test": test, "size": LARGE},
                  quick=test != "latency")
    yield App("Open MPI", "MPI latency 64 B", "mpi", "us", {"test": "latency", "size": SMALL}, much=3000)


def libfabric():
    for endpoint, provider in (("msg", "verbs"), ("rdm", "rxm"), ("rdm", "rxd")):
        name = "msg" if provider == "verbs" else f"rdm by {provider}"
        yield App("libfabric", f"libfabric {name} 64 KiB", "libfabric", "us",
                  {"endpoint": endpoint, "provider": provider, "size": LARGE},
                  quick=provider in ("verbs", "rxm"))
    yield App("libfabric", "libfabric msg 64 B", "libfabric", "us",
              {"endpoint": "msg", "provider": "verbs", "size": SMALL}, quick=True, much=3000)


def qperf():
    for test in ("rc_bw", "rc_rdma_write_bw", "rc_rdma_read_bw"):
        yield App("qperf", f"qperf {test} 64 KiB", "qperf", "MB/s", {"test": test, "size": LARGE},
                  quick=test == "rc_bw")
    yield App("qperf", "qperf rc_lat 64 B", "qperf", "us", {"test": "rc_lat", "size": SMALL})


def nvme():
    for rw in ("randread", "randwrite"):
        for size, depth in ((4 * KIB, 1), (4 * KIB, 32), (128 * KIB, 32)):
            yield App("NVMe-oF", f"NVMe-oF {rw} {size_name(size)}, depth {depth}", "fio",
                      "k/s" if size < LARGE else "MB/s", {"rw": rw, "size": size, "depth": depth},
                      stage="nvme", quick=depth == 32)


def nfs():
    for way in ("write", "read"):
        yield App("NFS", f"NFS {way} 16 MiB by dd", "dd", "MB/s", {"way": way, "size": 16 * MIB},
                  stage="nfs", quick=True)
    for rw in ("read", "write"):
        yield App("NFS", f"NFS {rw} 64 KiB, depth 8", "fio", "MB/s", {"rw": rw, "size": LARGE, "depth": 8},
                  stage="nfs", quick=rw == "read")


APPS = (*ucx(), *mpi(), *libfabric(), *qperf(), *nvme(), *nfs())


def _of(group, *also):
    return tuple(app.name for app in APPS if app.group.startswith(group) and
                 all(word in app.name for word in also))


TARGETS = tuple(Target(name, rows, 2, 3.5) for name, rows in (
    ("UCX at 64 KiB, rc", _of("UCX, rc", "64 KiB")), ("UCX at 64 KiB, ud", _of("UCX, ud", "64 KiB")),
    ("Open MPI at 64 KiB", _of("Open MPI", "64 KiB")),
    ("libfabric at 64 KiB", _of("libfabric", "64 KiB")),
    ("NVMe-oF streams", _of("NVMe-oF", "128 KiB")), ("NFS streams", _of("NFS"))))

# More is better for these units, and less for all others.
assert {app.unit for app in APPS} <= {*RATES, "us"}
