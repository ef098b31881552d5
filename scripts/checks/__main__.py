# SPDX-License-Identifier: GPL-2.0
"""Runs all tests of the project, and counts them one by one. Start it by scripts/check, which lists the stages."""

import functools
import os
import pathlib
import sys
from dataclasses import dataclass, field

import plan
from host import build_stage, host_stage
from processes import Failed, Interrupted, capture, catch_interrupts, end_descendants
from report import Report
from vm import all_on_debug, deb_stage, debug_stage, flavour_stage, vm_stage

DEFAULT_STAGES = ("host", "build", "vm")
# The statuses after an interrupt, and after the end of the program that reads the output.
INTERRUPTED = 130
NO_READER = 141


@dataclass
class Context:
    """The state that all stages share. Paths and choices come from the environment."""
    report: Report
    cache: pathlib.Path
    driver: str = "ferroce"
    # The environment has chosen a flavour, or an architecture.
    has_flavour: bool = False
    soak: str = ""
    # The default kernel, and the newest one of each other series.
    releases: list[str] = field(default_factory=list)


def number_of(environment, name):
    """Return a variable of the environment that is a number, or an empty text."""
    value = environment.get(name, "")
    if value and not value.isdecimal():
        raise Failed(f"{name}={value} is no number")
    return value


def make_context(environment):
    """Return the context for an environment, which scripts/check completes."""
    report = Report(pathlib.Path(environment["BUILD"], "check"))
    if minutes := number_of(environment, "CHECK_MINUTES"):
        report.deadline = int(environment["FERROCE_START"]) + 60 * int(minutes)
    return Context(report, pathlib.Path(environment["CACHE"]), environment.get("DRIVER") or "ferroce",
                   bool(environment.get("FLAVOUR") or environment.get("ARCH")), number_of(environment, "SOAK_SECONDS"))


def debug_programs(names):
    """Return the function that chooses programs for the debug kernel."""
    return functools.partial(plan.programs, names=names)


STAGES = {
    "host": host_stage,
    "build": build_stage,
    "vm": lambda context: vm_stage(context, True),
    "vm-all": lambda context: vm_stage(context, False),
    "flavour": flavour_stage,
    "deb": deb_stage,
    "deb-quick": lambda context: deb_stage(context, "--quick"),
    "debug": lambda context: debug_stage(context, all_on_debug, context.soak),
    "debug-quick": lambda context: debug_stage(context, debug_programs(plan.DEBUG_QUICK_PROGRAMS), context.soak),
    "soak": lambda context: debug_stage(context, debug_programs(plan.SOAK_PROGRAMS),
                                        context.soak or plan.SOAK_SECONDS),
}


def find_releases(report):
    """Return the default kernel, and the newest one of each other series, in the flavour of FLAVOUR."""
    releases = [capture(["qemu/kernel"])]
    for series in plan.other_series(releases[0]):
        try:
            releases.append(capture(["qemu/kernel"], {"SERIES": series}))
        except Failed:
            report.skip(f"the kernels of series {series}: none could be had")
    return releases


def run_stages(names):
    """Run stages in this order, and return the exit status."""
    for name in names:
        if name not in STAGES:
            raise Failed(f"no such stage: {name}")
    context = make_context(os.environ)
    context.report.begin()
    capture(["qemu/rootfs"])
    context.releases = find_releases(context.report)
    for name in names:
        STAGES[name](context)
    return context.report.finish()


def discard_output():
    """Send further output nowhere. Python writes the rest of its buffers at the end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())


def main():
    """Run the stages of the command line. Leave no process behind."""
    sys.stdout.reconfigure(line_buffering=True, encoding="utf-8", errors="surrogateescape")
    catch_interrupts()
    try:
        return run_stages(sys.argv[1:] or DEFAULT_STAGES)
    except Failed as error:
        print(f"check: {error}", file=sys.stderr)
        return error.status
    except Interrupted:
        return INTERRUPTED
    except BrokenPipeError:
        discard_output()
        return NO_READER
    finally:
        end_descendants()


if __name__ == "__main__":
    sys.exit(main())
