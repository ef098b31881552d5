#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Runs one module of rdma-core's own suite, as it is, and reports as JSON lines.

	run-module.py DIRECTORY MODULE DEVICE [TEST...]

DIRECTORY holds the suite's package `tests`. Without TESTs: all of the module. A line for
each test that begins, {"begins": id}, and one for each that has ended, {"id", "result",
"detail"}: after a crash one can tell whose it was.
"""

import json
import sys
import unittest

directory, module, device, *wanted = sys.argv[1:]
sys.argv = ["tests", "--dev", device]
sys.path[:0] = [directory, f"{directory}/tests"]

from args_parser import parser  # of the suite

parser.parse_args()

# The tests may print what they like; reports go to where the standard output was.
reports = sys.stdout
sys.stdout = sys.stderr


def report(**fields):
    print(json.dumps(fields), file=reports, flush=True)


class Reporter(unittest.TestResult):
    """Reports each test once; a subtest that fails fails its test."""

    def startTest(self, test):
        super().startTest(test)
        self.outcome = ("ok", "")
        report(begins=test.id())

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        # A class may be skipped as a whole, before any test of it begins.
        self.outcome = ("skipped", reason)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.outcome = ("failed", self.failures[-1][1])

    def addError(self, test, error):
        super().addError(test, error)
        self.outcome = ("failed", self.errors[-1][1])

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            self.outcome = ("failed", str(error[1]))

    def stopTest(self, test):
        super().stopTest(test)
        result, detail = self.outcome
        report(id=test.id(), result=result, detail=detail)


def each_test(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from each_test(item)
        else:
            yield item


found = [test for test in each_test(unittest.defaultTestLoader.loadTestsFromName(f"tests.{module}"))
         if not wanted or test.id() in wanted]
if device == "-":
    for test in found:
        report(id=test.id())
else:
    unittest.TestSuite(found).run(Reporter())
