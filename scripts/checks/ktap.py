# SPDX-License-Identifier: GPL-2.0
"""Counts the tests of KTAP.

A test with subtests is not counted, as its subtests are. It counts if it failed and none of them did: a program may
die in the middle. A planned test without a result failed. The whole failed if there is no plan.
"""

import re
from dataclasses import dataclass, field

PLAN = re.compile(r"1\.\.([0-9]+)")
POINT = re.compile(r"(not )?ok [0-9]+(?: (?:- )?)?")
SKIP = "# SKIP"
COMMENT = re.compile(r" *# .*")
FAILED_PROGRAM = re.compile(r"^not ok [0-9]* ([^ \n]+)", re.MULTILINE)
KERNEL_COMPLAINT = re.compile(r"the kernel complains|not ok .* no complaint")


@dataclass
class Level:
    """The tests of one depth that belong to the same test above them."""
    seen: int = 0
    planned: int | None = None
    failed: int = 0

    def missing(self):
        """Return the number of tests without a result."""
        return 1 if self.planned is None else max(0, self.planned - self.seen)


@dataclass
class Tests:
    """The tests of a log: the number of those that passed, and the names of the others."""
    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


class Reader:
    """Reads KTAP line by line."""

    def __init__(self):
        self.tests = Tests()
        self.levels = {}

    def level(self, depth):
        """Return the level at a depth, which may be new."""
        return self.levels.setdefault(depth, Level())

    def plans_nothing(self, depth):
        """Return true if the tests at a depth were skipped as a whole."""
        return depth in self.levels and self.levels[depth].planned == 0

    def fail(self, depth, name):
        """Count a failed test."""
        self.level(depth).failed += 1
        self.tests.failed.append(name)

    def close(self, depth, name):
        """End the tests at a depth, and return the number of failures there."""
        for _ in range(self.level(depth).missing()):
            self.fail(depth, f"{name}: a test without a result")
        return self.levels.pop(depth).failed

    def read(self, line):
        """Read a line. Most lines are no KTAP."""
        text = line.lstrip(" ")
        depth = (len(line) - len(text)) // 2
        if plan := PLAN.match(text):
            self.level(depth).planned = int(plan[1])
        elif point := POINT.match(text):
            is_skip = not point[1] and SKIP in text
            name = COMMENT.sub("", text[point.end():], count=1).rstrip()
            self.point(depth, not point[1], is_skip, name or point[0])

    def point(self, depth, is_good, is_skip, name):
        """Count the result of a test."""
        self.level(depth).seen += 1
        if is_skip and self.plans_nothing(depth + 1):
            del self.levels[depth + 1]
        if depth + 1 in self.levels:
            self.parent(depth, is_good, name)
        elif is_skip:
            self.tests.skipped.append(name)
        elif is_good:
            self.tests.passed += 1
        else:
            self.fail(depth, name)

    def parent(self, depth, is_good, name):
        """Count the result of a test with subtests."""
        failed = self.close(depth + 1, name)
        if failed:
            self.level(depth).failed += 1
        elif not is_good:
            self.fail(depth, name)


def count(text):
    """Return the tests of the output of a suite."""
    reader = Reader()
    for line in text.split("\n"):
        reader.read(line)
    reader.close(0, "KTAP")
    return reader.tests


def failed_programs(text):
    """Return the programs of a suite that failed."""
    return FAILED_PROGRAM.findall(text)


def has_complaint(text):
    """Return true if the kernel complained during a test."""
    return bool(KERNEL_COMPLAINT.search(text))
