# SPDX-License-Identifier: GPL-2.0
"""Chooses kernels, flavours, suites and programs, and makes the commands that run them."""

import fnmatch
import re
from dataclasses import dataclass

# The kernels to test beside the default one, the newest of the archive.
SERIES_SUPPORTED = ("7.2", "7.3")

# Debian's flavours beside the usual one, of which each run tests one: the values of SERIES, ARCH and FLAVOUR.
FLAVOURS_IN_TURN = (("7.2", "amd64", "cloud"), ("7.2", "amd64", "rt"),
                    ("7.3", "amd64", "cloud"), ("7.3", "amd64", "rt"),
                    ("7.3", "arm64", ""), ("7.3", "arm64", "16k"))

# Programs for the differences of a flavour: another way to load the module, sleeping locks, softirqs in threads,
# other page sizes.
FLAVOUR_PROGRAMS = ("traffic/pingpong", "kverbs/verbs", "memory/odp", "load/link")

# Programs for the differences between kernels.
KERNEL_PROGRAMS = ("load", "traffic/pingpong")

# Programs that only the debug kernel has the time or the means for.
DEBUG_PROGRAMS = ("stress/races", "stress/lifecycle", "stress/soak", "faults/failing")

# Programs that create and destroy most objects under use, and the most used ones.
DEBUG_QUICK_PROGRAMS = ("verbs", "stress/lifecycle", "stress/races", "hostile/rings", "memory/odp")

SOAK_PROGRAMS = ("stress/soak",)
SOAK_SECONDS = "1800"

# The suite that needs two machines.
PAIR_SUITE = "machines"

# The time limits of a machine, of a pair of them, and of one with the debug kernel, in seconds.
SUITE_SECONDS = 2400
PAIR_SECONDS = 1200
DEBUG_SECONDS = 7200

# The time after the deadline in which failed suites may still run again.
GRACE_SECONDS = 600

# More failed suites than this are not the fault of a busy host.
AGAIN_MOST = 3

# The memory of the host for a machine.
MACHINE_GB = 5

# The long suites come first, so that none is left alone at the end.
LONGEST = re.compile(r"pyverbs|stress|hostile|faults|traffic")
LONG = re.compile(r"gid|interop|matrix|manage|verbs")

# A line for which a program needs a machine of its own, with the options of the kernel.
BOOT_LINE = re.compile(r"^# boot: (.*)$", re.MULTILINE)

# Files without an SPDX line: they have no comments, or they are input or output of programs.
WITHOUT_SPDX = ("COPYING", "*.lock", "*.json", "*/corpus/*", "rust/upstream/*.patch")

SHELL = re.compile(r"#!.*(?:bash|/sh| sh)$")
SHELL_ANYWHERE = re.compile(r"^#!.*sh$|shellcheck shell=", re.MULTILINE)


@dataclass(frozen=True)
class Settings:
    """The choices for a set of suites."""
    driver: str = "ferroce"
    # The suites run without variants.
    is_quick: bool = True
    # A failed suite may run again.
    may_repeat: bool = True
    # The time limit of each machine, if it is not the usual one.
    seconds: int | None = None
    # The length of stress/soak, if it is not the usual one.
    soak: str = ""


@dataclass(frozen=True)
class Suite:
    """A suite, or a program of one, on a kernel. The options of the kernel are for a machine of its own."""
    release: str
    name: str
    options: str = ""

    def __str__(self):
        return f"suite {self.name} on {self.release}"


def enter(*words, kernel=None, root=None):
    """Return the command that runs words in the root file system."""
    options = [*(("--kernel", kernel) if kernel else ()), *(("--root", root) if root else ())]
    return ["qemu/enter", *options, "--", *words]


def boot_command(suite, programs, settings):
    """Return the command that runs programs of a suite in a machine of its own.

    The full suite of consumers takes half an hour: `make consumers` runs it.
    """
    is_consumers = suite.name.startswith("consumers")
    quick = "1" if settings.is_quick or is_consumers else ""
    return ["qemu/boot", "--kernel", suite.release, "--timeout", str(settings.seconds or SUITE_SECONDS),
            *(("--root", "consumers") if is_consumers else ()),
            *(("--append", suite.options) if suite.options else ()), "--",
            "env", f"DRIVER={settings.driver}", f"QUICK={quick}",
            *((f"SOAK_SECONDS={settings.soak}",) if settings.soak else ()),
            "selftests/run", *programs]


def pair_command(release, programs, settings):
    """Return the command that runs programs of the suite that needs two machines."""
    return ["qemu/boot-pair", "--kernel", release, "--timeout", str(settings.seconds or PAIR_SECONDS), "--",
            "env", f"DRIVER={settings.driver}", f"MACHINES={' '.join(programs)}", "selftests/machines/run"]


def start_order(name):
    """Return the key by which suites are sorted: first the long ones."""
    rank = 0 if LONGEST.search(name) else 1 if LONG.search(name) else 2
    return rank, name


def suite_names(selftests):
    """Return the suites that need one machine, in the order in which they start."""
    names = {path.relative_to(selftests).parts[0] for path in selftests.glob("*/**/*.test")}
    return sorted(names - {PAIR_SUITE}, key=start_order)


def boot_lines(text):
    """Return the options of the kernel that a program needs, one string for each machine."""
    return BOOT_LINE.findall(text)


def booted_programs(selftests):
    """Return the programs that need a machine of their own, each with the options of the kernel."""
    found = []
    for path in sorted(selftests.glob("**/*.test")):
        name = str(path.relative_to(selftests)).removesuffix(".test")
        found.extend((name, options) for options in boot_lines(path.read_text("utf-8", "replace")))
    return found


def all_suites(release, selftests):
    """Return the suites that need one machine, and the programs that need a machine of their own."""
    return [*(Suite(release, name) for name in suite_names(selftests)),
            *(Suite(release, name, options) for name, options in booted_programs(selftests))]


def programs(release, names):
    """Return suites or programs on a kernel."""
    return [Suite(release, name) for name in names]


def machines_at_once(cpus, memory_gb):
    """Return the number of machines that run at a time.

    A machine uses little more than one CPU, and not all the time. So half as many machines again as CPUs run,
    if memory allows.
    """
    return max(1, min(memory_gb // MACHINE_GB, cpus * 3 // 2))


def available_gb(meminfo):
    """Return the available memory from the text of /proc/meminfo."""
    found = re.search(r"^MemAvailable: +([0-9]+)", meminfo, re.MULTILINE)
    return int(found[1]) // (1 << 20) if found else 0


def other_series(default):
    """Return the series of kernels to test beside the default release."""
    return [series for series in SERIES_SUPPORTED if not default.startswith(f"{series}.")]


def flavour_in_turn(commit):
    """Return the series, the architecture and the flavour for a commit. It has the same choice in each run."""
    return FLAVOURS_IN_TURN[int(commit[:7], 16) % len(FLAVOURS_IN_TURN)]


def needs_spdx(name):
    """Return true if a file must have an SPDX line."""
    return not any(fnmatch.fnmatchcase(name, pattern) for pattern in WITHOUT_SPDX)


def has_spdx(text):
    """Return true if one of the first lines is an SPDX line."""
    return any("SPDX-License-Identifier: GPL-2.0" in line for line in text.split("\n")[:5])


def is_shell_script(name, text):
    """Return true if shellcheck can read a file."""
    is_candidate = name.endswith((".sh", ".test")) or SHELL.match(text.split("\n", 1)[0])
    return bool(is_candidate and not name.endswith(".py") and SHELL_ANYWHERE.search(text))
