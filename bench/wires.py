# SPDX-License-Identifier: GPL-2.0
"""In the virtual machine: a wire for each driver, between two namespaces of its own, so that no module
is loaded or unloaded between two runs; and the counters of their devices."""

import pathlib
from dataclasses import dataclass

from measure import shell


@dataclass(frozen=True)
class Ends:
    """Namespaces and devices."""

    client: str
    server: str
    client_device: str
    server_device: str

    def words(self):
        """The ends as environment variables for programs of the selftests."""
        return (f"{self.client}/{self.client_device}", f"{self.server}/{self.server_device}")

    def devices(self):
        return (self.client_device, self.server_device)


ENDS = {"ferroce": Ends("a", "b", "fe0", "fe1"), "rxe": Ends("c", "d", "rx0", "rx1")}
DRIVERS = tuple(ENDS)

# Counters that must be 0 on a wire without loss, and receivers that were not ready.
COUNTERS = ("out_of_seq_request", "send_seq_err", "completer_retry_err", "duplicate_request",
            "retry_exceeded_err", "rcvd_rnr_err", "send_rnr_err")


def wires_up():
    shell("""
        modprobe -a rdma_rxe ferroce rdma_ucm ib_uverbs
        # Datagrams that a full queue drops are not sent again.
        deep_backlog
        # wire NAMESPACE NAMESPACE DEVICE DEVICE DRIVER
        wire()
        {
            wire_between "$1" "$2"
            link_add "$1" "$3" "$5"
            link_add "$2" "$4" "$5"
            wait_gid "$3" "$ADDR4_A"
            wait_gid "$4" "$ADDR4_B"
        }
        """ + "\n".join(f"wire {ends.client} {ends.server} {' '.join(ends.devices())} {driver}"
                         for driver, ends in ENDS.items()))


def counters(devices, names):
    """The sum of these counters over all devices that have them."""
    found = {}
    for device in devices:
        port = pathlib.Path("/sys/class/infiniband") / device / "ports/1/hw_counters"
        for name in names:
            if (port / name).exists():
                found[name] = found.get(name, 0) + int((port / name).read_text())
    return found


def counted_since(before, devices, names):
    """The counters that are not 0."""
    return {name: value - before[name] for name, value in counters(devices, names).items()
            if value != before[name]}
