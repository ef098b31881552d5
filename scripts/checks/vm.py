# SPDX-License-Identifier: GPL-2.0
"""Runs the stages that boot machines: vm, flavour, deb and debug."""

import os
import pathlib

import plan
from machines import Machines
from plan import enter
from processes import Failed, capture, run, step
from report import SHOWN_LINES, Counts, open_log, read_log, show, tail

SELFTESTS = pathlib.Path("selftests")
MEMINFO = pathlib.Path("/proc/meminfo")


def run_machines(context, suites, settings):
    """Run suites in machines, as many at a time as this host has room for."""
    cpus = len(os.sched_getaffinity(0))
    most = plan.machines_at_once(cpus, plan.available_gb(MEMINFO.read_text()))
    Machines(context.report, settings, most).run(suites)


def build_programs(context, release):
    """Build the test programs, and return true on success. Without them no suite can run."""
    path = context.report.logs / "selftests.log"
    commands = (enter("make", "-C", "selftests", kernel=release),
                enter("make", "-C", "selftests", "consumers", root="consumers"))
    with open_log(path) as log:
        if all(run(command, log) == 0 for command in commands):
            return True
    show(tail(read_log(path), SHOWN_LINES))
    context.report.add(Counts(failed=1), [f"the test programs do not build for {release}: nothing was run"])
    return False


def instructions(log):
    """Return true if the instructions are as few as the recorded ones.

    One round of a short workload differs by 6% from another, which is almost what is tolerated. So the median of
    three rounds decides.
    """
    if run(["scripts/bench", "count"], log, {"CHECK": "1", "QUICK": "1"}) == 0:
        return True
    print("once more, in three rounds", file=log)
    return run(["scripts/bench", "count"], log, {"ROUNDS": "3", "CHECK": "1", "QUICK": "1"}) == 0


def has_rxe(config):
    """Return true if a kernel has the driver rdma_rxe."""
    return config.is_file() and any(line.startswith("CONFIG_RDMA_RXE=") for line in read_log(config).split("\n"))


def benchmark(context, release):
    """Compare the instructions with the recorded ones, unless the kernel lacks the other driver."""
    name = "instructions are as few, against rdma_rxe's, as recorded (make bench-count CHECK=1)"
    if has_rxe(context.cache / "kernels" / release / "build/.config"):
        context.report.check(name, instructions)
    else:
        context.report.skip(f"{name}: {release} has no rdma_rxe")


def vm_suites(releases, is_quick):
    """Return all suites on the default kernel. The other kernels have those for the differences between kernels."""
    suites = plan.all_suites(releases[0], SELFTESTS)
    if not is_quick:
        suites.append(plan.Suite(releases[0], plan.PAIR_SUITE))
    for release in releases[1:]:
        suites.extend(plan.programs(release, plan.KERNEL_PROGRAMS))
    return suites


def vm_stage(context, is_quick):
    """Run the suites on all kernels, and what else boots a machine."""
    release, is_ferroce = context.releases[0], context.driver == "ferroce"
    if not build_programs(context, release):
        return
    settings = plan.Settings(context.driver, is_quick, soak=context.soak)
    run_machines(context, vm_suites(context.releases, is_quick), settings)
    if is_ferroce:
        context.report.check("a command of another project runs in a machine, and its results come back (make run)",
                             ["scripts/test-run"])
    if is_ferroce and not is_quick:
        benchmark(context, release)


def commit_of_tree():
    """Return the commit of this tree, or 0 if it is not in git."""
    try:
        return capture(enter("git", "-c", "safe.directory=/ferroce", "rev-parse", "HEAD"))
    except Failed:
        return "0"


def flavour_release(context):
    """Return the kernel of the flavour in turn, or of FLAVOUR and ARCH. Return none if there is no such kernel."""
    if context.has_flavour:
        return context.releases[0]
    series, arch, flavour = plan.flavour_in_turn(commit_of_tree())
    name = f"{flavour or 'usual'} of {arch}, series {series}"
    step(f"the flavour in turn: {name}")
    try:
        return capture(["qemu/kernel"], {"SERIES": series, "ARCH": arch, "FLAVOUR": flavour})
    except Failed:
        context.report.skip(f"the flavour {name}: it could not be had")
        return None


def flavour_stage(context):
    """Run a few programs on a kernel of another flavour."""
    if context.report.skip_if_late("another flavour"):
        return
    release = flavour_release(context)
    if not release:
        return
    context.report.check(f"the module builds for {release} without a warning or a panic",
                         ["qemu/build", "--kernel", release])
    if build_programs(context, release):
        settings = plan.Settings(context.driver, soak=context.soak)
        run_machines(context, plan.programs(release, plan.FLAVOUR_PROGRAMS), settings)


def deb_stage(context, *options):
    """Check the Debian packages and the tarball."""
    if not build_programs(context, context.releases[0]):
        return
    step("packages")
    command = ["scripts/check-deb", *options]
    context.report.check(
        f"the packages are installed, upgraded, purged, and have modules that load ({' '.join(command)})", command)
    if not options:
        context.report.check("Secure Boot refuses the module without a signature, and takes a signed one",
                             ["scripts/check-secure-boot"])
        context.report.check("packages for RPM and for Arch Linux are made, installed and removed",
                             ["scripts/check-foreign"])
    context.report.check("the same commit gives the same tarball, and that the same packages (make dist)",
                         ["scripts/test-dist", *options])


def all_on_debug(release):
    """Return all suites for the debug kernel, the longest ones first."""
    return [*plan.programs(release, plan.DEBUG_PROGRAMS), *plan.all_suites(release, SELFTESTS),
            plan.Suite(release, plan.PAIR_SUITE)]


def debug_settings(driver, soak):
    """Return the settings for the debug kernel. A run of a given length is not repeated."""
    seconds = plan.DEBUG_SECONDS + 2 * int(soak or 0)
    return plan.Settings(driver, may_repeat=not soak, seconds=seconds, soak=soak)


def debug_stage(context, choose, soak):
    """Run suites on the debug kernel. The function `choose` returns them for its release."""
    try:
        release = capture(["qemu/debug-kernel"])
    except Failed:
        context.report.add(Counts(failed=1), ["there is no debug kernel: nothing was run on it"])
        return
    context.report.check(f"the module builds for {release} without a warning", ["qemu/build", "--kernel", release])
    if build_programs(context, release):
        run_machines(context, choose(release), debug_settings(context.driver, soak))
