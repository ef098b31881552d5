# SPDX-License-Identifier: GPL-2.0
"""Runs the tests of a program in Python. The kernel's ksft.py prints their KTAP.

TESTS="send*" in the environment runs the tests with such names alone. A test is a function; it passes by
returning. selftests/run looks at the kernel's log once the program is over, and sees to it that it ends.
"""

import fnmatch
import os
import signal
import sys
import traceback

from shell import SELFTESTS, shell  # noqa: F401 # for the tests

sys.path.append(os.environ.get("KSELFTEST", "/run/kselftest"))
import ksft  # noqa: E402 # where it is found is said above

DRIVER = os.environ.setdefault("DRIVER", "ferroce")
DEADLINE_S = 60


class Skip(Exception):
    """Ends a test as skipped."""


def _diagnose(exception):
    """Where it came from within the selftests, and what it says."""
    for frame in traceback.extract_tb(exception.__traceback__):
        if SELFTESTS in os.path.abspath(frame.filename) and frame.name != "_run_one":
            path = os.path.relpath(os.path.abspath(frame.filename), SELFTESTS)
            ksft.print_msg(f"{path}:{frame.lineno}: {frame.line}")
    for line in "".join(traceback.format_exception_only(exception)).splitlines():
        ksft.print_msg(line)


def _late(_signal, _frame):
    raise TimeoutError(f"not over after {DEADLINE_S} s")


def _run_one(name, test):
    """Prints the result of a test."""
    report = ksft.test_result_pass
    signal.alarm(DEADLINE_S)
    try:
        test()
    except Skip as reason:
        ksft.print_msg(f"skipped: {reason}")
        report = ksft.test_result_skip
    except Exception as exception:  # whatever it is, the test failed; on to the next one
        _diagnose(exception)
        report = ksft.test_result_fail
    finally:
        signal.alarm(0)
    report(name)


def skip_program(reason):
    """Ends the program, without tests."""
    ksft.print_header()
    print(f"1..0 # SKIP {reason}")
    sys.exit(ksft.KSFT_SKIP)


def main(tests, setup, cleanup):
    """Runs (name, function) pairs between setup and cleanup, and ends the program."""
    signal.signal(signal.SIGALRM, _late)
    pattern = os.environ.get("TESTS", "*")
    tests = [test for test in tests if fnmatch.fnmatchcase(test[0], pattern)]
    if not tests:
        skip_program(f"no test with such a name: {pattern}")
    # What is printed must be there when the program is killed.
    sys.stdout.reconfigure(line_buffering=True)
    ksft.print_header()
    try:
        setup()
        ksft.set_plan(len(tests))
        for name, test in tests:
            _run_one(name, test)
    except Exception as exception:
        _diagnose(exception)
        print("Bail out! the set-up failed")
        ksft.exit_fail()
    finally:
        cleanup()
    ksft.finished()
