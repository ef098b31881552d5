# SPDX-License-Identifier: GPL-2.0
"""KTAP for test programs in Python.

TESTS="send*" in the environment runs the tests with such names alone. A test is a function; it passes by returning. selftests/run looks at the kernel's log
once the program is over, and sees to it that it ends.
"""

import fnmatch
import os
import signal
import subprocess
import sys
import traceback

SELFTESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DRIVER = os.environ.setdefault("DRIVER", "ferroce")
DEADLINE_S = 60


class Skip(Exception):
    """Ends a test as skipped."""


def shell(command):
    """Runs shell code that knows ktap.sh and net.sh, and returns what it printed."""
    sources = f". {SELFTESTS}/ktap.sh; . {SELFTESTS}/net.sh; trap 'rm -rf $ktap_tmp' EXIT; "
    return subprocess.run(
        ["bash", "-c", sources + command],
        check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    ).stdout


def _diagnose(exception):
    """Where it came from within the selftests, and what it says."""
    for frame in traceback.extract_tb(exception.__traceback__):
        if SELFTESTS in os.path.abspath(frame.filename) and frame.name != "_run_one":
            path = os.path.relpath(os.path.abspath(frame.filename), SELFTESTS)
            print(f"# {path}:{frame.lineno}: {frame.line}")
    for line in "".join(traceback.format_exception_only(exception)).splitlines():
        print("#", line)


def _late(_signal, _frame):
    raise TimeoutError(f"not over after {DEADLINE_S} s")


def _run_one(number, name, test):
    """Prints the result of a test, and returns whether it failed."""
    signal.alarm(DEADLINE_S)
    directive = ""
    failed = False
    try:
        test()
    except Skip as reason:
        directive = f" # SKIP {reason}"
    except Exception as exception:  # whatever it is, the test failed; on to the next one
        _diagnose(exception)
        failed = True
    finally:
        signal.alarm(0)
    print(f"{'not ' if failed else ''}ok {number} {name}{directive}", flush=True)
    return failed


def main(tests, setup, cleanup):
    """Runs (name, function) pairs between setup and cleanup, and ends the program."""
    signal.signal(signal.SIGALRM, _late)
    pattern = os.environ.get("TESTS", "*")
    tests = [test for test in tests if fnmatch.fnmatchcase(test[0], pattern)]
    if not tests:
        print(f"KTAP version 1\n1..0 # SKIP no test with such a name: {pattern}")
        sys.exit(4)
    print("KTAP version 1", flush=True)
    failed = False
    try:
        setup()
        print(f"1..{len(tests)}", flush=True)
        for number, (name, test) in enumerate(tests, 1):
            failed |= _run_one(number, name, test)
    except Exception as exception:
        _diagnose(exception)
        print("Bail out! the set-up failed")
        failed = True
    finally:
        cleanup()
    sys.exit(1 if failed else 0)
