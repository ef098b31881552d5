# SPDX-License-Identifier: GPL-2.0
"""Runs suites in virtual machines, several at a time, and counts their tests.

Each suite, or single program of one, has a machine of its own, so it cannot affect others. A failed suite runs again
after all others, alone, as a busy host may be the cause. After the deadline of the report none starts.
"""

import subprocess
from dataclasses import dataclass, field

import ktap
import plan
from processes import NOT_STARTED, run, shell_status, start, step, wait_for_any
from report import Counts, Report, open_log, read_log, show

# The status of selftests/run after a failed test. Others mean that the machine died, or had no time.
FAILED_TEST = 1


@dataclass(frozen=True)
class Outcome:
    """The results of one machine: the numbers, and the names of the tests that did not pass."""
    counts: Counts
    failed: tuple[str, ...]
    skipped: tuple[str, ...]


@dataclass(frozen=True)
class Repeat:
    """A failed suite that runs again: its results, and its failed programs."""
    suite: plan.Suite
    first: Outcome
    programs: tuple[str, ...]


@dataclass
class Verdict:
    """The results of both looks at a suite."""
    counts: Counts
    failures: list[str] = field(default_factory=list)
    is_unsteady: bool = False


def outcome(text, status):
    """Return the results for the output and the status of a machine, which may die after the last test, too."""
    tests = ktap.count(text)
    failed = list(tests.failed)
    number = len(failed)
    if status > FAILED_TEST or (status and not failed):
        failed.append(f"status {status}")
    return Outcome(Counts(tests.passed, max(number, int(status != 0)), len(tests.skipped)), tuple(failed),
                   tuple(tests.skipped))


def may_be_the_host(text, status):
    """Return true if a busy host may be the cause: the machine did not die, and its kernel did not complain."""
    return status == FAILED_TEST and bool(ktap.failed_programs(text)) and not ktap.has_complaint(text)


def verdict(first, second):
    """Return the verdict for the results of both looks. A test that is skipped now has not passed."""
    failures = list(second.failed)
    failures.extend(f"{name}: skipped when it ran again" for name in second.skipped if name not in first.skipped)
    if not failures and not second.counts.passed:
        failures.append("nothing passed when it ran again")
    if failures:
        return Verdict(first.counts, failures)
    counts = Counts(first.counts.passed + first.counts.failed, 0, first.counts.skipped)
    return Verdict(counts, is_unsteady=True)


@dataclass
class Machines:
    """The machines that run, and the suites that are to run again."""
    report: Report
    settings: plan.Settings
    most: int
    running: dict[subprocess.Popen, plan.Suite] = field(default_factory=dict)
    repeats: list[Repeat] = field(default_factory=list)

    def log(self, suite, suffix=""):
        """Return the path of the log of a suite."""
        return self.report.logs / f"vm-{suite.release}-{suite.name.replace('/', '-')}{suffix}.ktap"

    def run(self, suites):
        """Run suites to the end, and then the failed ones again."""
        for suite in suites:
            self.start(suite)
        while self.running:
            self.collect()
        for repeat in self.repeats:
            self.look_again(repeat)
        self.repeats.clear()

    def command(self, suite, programs):
        """Return the command that runs programs of a suite, in one machine or in two."""
        if suite.name == plan.PAIR_SUITE:
            return plan.pair_command(suite.release, programs, self.settings)
        return plan.boot_command(suite, programs, self.settings)

    def start(self, suite):
        """Start a suite, once there is room for one more machine."""
        while len(self.running) >= self.most:
            self.collect()
        if self.report.skip_if_late(suite):
            return
        step(suite)
        with open_log(self.log(suite)) as log:
            process = start(self.command(suite, [suite.name]), log, own_group=True)
        if process:
            self.running[process] = suite
        else:
            self.judge(suite, NOT_STARTED)

    def collect(self):
        """Wait for the end of one suite, and count its tests."""
        process = wait_for_any(self.running)
        suite = self.running.pop(process)
        step(f"{suite} is over")
        self.judge(suite, shell_status(process.returncode))

    def judge(self, suite, status):
        """Show the output of a suite. Count its tests, or note the suite for a second look."""
        path = self.log(suite)
        text = read_log(path)
        show(text)
        result = outcome(text, status)
        if self.may_repeat() and may_be_the_host(text, status):
            self.repeats.append(Repeat(suite, result, tuple(ktap.failed_programs(text))))
            for name in result.failed:
                print(f"failed: {name}")
            step("the failed programs run again, alone, after all others")
            return
        self.add(suite, result.counts, result.failed)
        if result.failed and not ktap.failed_programs(text):
            self.report.cut_short.append(path)

    def may_repeat(self):
        """Return true if one more failed suite may run again."""
        return self.settings.may_repeat and len(self.repeats) < plan.AGAIN_MOST

    def add(self, suite, counts, failed):
        """Add the results of a suite to the report."""
        self.report.add(counts, [f"{suite.release}, {suite.name}: {name}" for name in failed])

    def look_again(self, repeat):
        """Run the failed programs of a suite again. A test that passes now is named at the end."""
        if self.report.is_late(plan.GRACE_SECONDS):
            self.add(repeat.suite, repeat.first.counts, repeat.first.failed)
            return
        suite, path = repeat.suite, self.log(repeat.suite, "-again")
        names = " ".join(repeat.programs)
        step(f"once more: {names} on {suite.release}")
        with open_log(path) as log:
            status = run(self.command(suite, repeat.programs), log)
        text = read_log(path)
        show(text)
        result = verdict(repeat.first, outcome(text, status))
        self.add(suite, result.counts, result.failures)
        if result.is_unsteady:
            self.report.unsteady.append(f"{suite.release}: {names}")
