# SPDX-License-Identifier: GPL-2.0
"""Counts and shows the results of all checks."""

import math
import pathlib
import re
import time
from dataclasses import dataclass, field

from processes import Failed, run, step

# The lines of a log that a failure shows.
SHOWN_LINES = 60


@dataclass(frozen=True)
class Counts:
    """Numbers of tests. Each test has one of the three results."""
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other):
        return Counts(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    def __str__(self):
        line = f"{self.passed} passed, {self.failed} failed"
        return f"{line}, {self.skipped} skipped" if self.skipped else line

    def is_good(self):
        """Return true if no test failed, and some passed."""
        return not self.failed and self.passed > 0


def log_name(name):
    """Return the name of the file with the log of a check."""
    return re.sub(r"[^A-Za-z0-9.+]+", "-", name) + ".log"


def read_log(path):
    """Return the text of a log. It may have any bytes."""
    return path.read_bytes().decode("utf-8", "surrogateescape")


def open_log(path, mode="w"):
    """Open a log for this program and for its commands. Lines of both keep their order."""
    return path.open(mode, buffering=1, encoding="utf-8", errors="surrogateescape")


def tail(text, number):
    """Return the last lines of a text."""
    return "\n".join(text.removesuffix("\n").split("\n")[-number:])


def show(text):
    """Print the text of a log, if there is any, on lines of its own."""
    if text:
        print(text.removesuffix("\n"))


@dataclass
class Report:
    """The results so far."""
    logs: pathlib.Path
    counts: Counts = Counts()
    failures: list[str] = field(default_factory=list)
    # Tests that failed, and passed when they ran again.
    unsteady: list[str] = field(default_factory=list)
    # The logs of suites that failed without a failed program.
    cut_short: list[pathlib.Path] = field(default_factory=list)
    # The time after which nothing is started, in seconds since the epoch.
    deadline: float = math.inf

    def is_late(self, grace_seconds=0):
        """Return true if nothing may be started any more, so many seconds after the deadline."""
        return time.time() > self.deadline + grace_seconds

    def skip_if_late(self, name):
        """Count a check as skipped if it is too late for it, and return true."""
        if not self.is_late():
            return False
        self.skip(f"{name}: no time is left")
        return True

    def begin(self):
        """Make the directory of the logs. Until there is more to say, the totals are those of a failure."""
        self.logs.mkdir(parents=True, exist_ok=True)
        self.write_totals(Counts(failed=1))

    def write_totals(self, counts):
        """Write the file with the totals."""
        (self.logs / "totals").write_text(f"{counts}\n")

    def add(self, counts, failures=()):
        """Add the results of some tests."""
        self.counts += counts
        self.failures.extend(failures)

    def skip(self, why):
        """Count a skipped check."""
        self.add(Counts(skipped=1))
        print(f"SKIPPED  {why}")

    def check(self, name, action):
        """Run an action as one check. Show the end of its output on failure.

        The action is the words of a command, or a function. The function gets the log, and returns true on
        success.
        """
        if self.skip_if_late(name):
            return
        begin, path = time.monotonic(), self.logs / log_name(name)
        with open_log(path) as log:
            is_good = succeeds(action, log)
        if is_good:
            self.add(Counts(passed=1))
            print(f"ok      {name} ({int(time.monotonic() - begin)} s)")
            return
        self.add(Counts(failed=1), [name])
        show(tail(read_log(path), SHOWN_LINES))
        print(f"FAILED  {name}; the whole log: {path}")

    def finish(self):
        """Print the end of the report, and return the exit status."""
        step("done")
        for path in self.cut_short:
            print(f"--- the end of {path}:")
            show(tail(read_log(path), SHOWN_LINES))
        for test in self.unsteady:
            print(f"unsteady, failed once and then passed: {test}")
        for name in self.failures:
            print(f"failed: {name}")
        self.write_totals(self.counts)
        print(self.counts)
        return 0 if self.counts.is_good() else 1


def succeeds(action, log):
    """Run an action with a log, and return true on success."""
    if not callable(action):
        return run(action, log) == 0
    try:
        return action(log)
    except (Failed, OSError) as error:
        print(error, file=log)
        return False
