# SPDX-License-Identifier: GPL-2.0
"""Runs the stages host and build: all checks that need no machine."""

import pathlib
import re
from dataclasses import dataclass

from plan import enter, has_spdx, is_shell_script, needs_spdx
from processes import capture, run, step
from report import Counts, open_log, read_log, show, tail

CARGO_TEST = ("cargo", "test", "--manifest-path", "rust/Cargo.toml", "--workspace", "--locked", "--no-fail-fast")
CARGO_RESULT = re.compile(r"^test .* \.\.\. (?:(ok$)|(FAILED$)|(ignored))", re.MULTILINE)
# The lines of cargo's log that a failure shows.
CARGO_LINES = 100


@dataclass(frozen=True)
class CargoOutcome:
    """The results of cargo's tests. Cargo itself may fail, too."""
    counts: Counts
    has_failed: bool


def cargo_outcome(text, status):
    """Return the results for the output and the status of cargo. A failure without a failed test counts as one."""
    found = CARGO_RESULT.findall(text)
    passed, failed, ignored = (sum(bool(groups[kind]) for groups in found) for kind in range(3))
    has_failed = status != 0 or passed == 0
    if has_failed:
        failed = max(1, failed)
    return CargoOutcome(Counts(passed, failed, ignored), has_failed)


def host_tests(context):
    """Count each of cargo's tests."""
    step("host tests")
    path = context.report.logs / "cargo-test.log"
    with open_log(path) as log:
        status = run(enter(*CARGO_TEST), log)
    text = read_log(path)
    result = cargo_outcome(text, status)
    context.report.add(result.counts, ["cargo test"] if result.has_failed else [])
    if result.has_failed:
        show(tail(text, CARGO_LINES))
    counts = result.counts
    print(f"host tests: {counts.passed} passed, {counts.failed} failed, {counts.skipped} ignored")


def host_stage(context):
    """Run cargo's tests, and the checks of layers and of English."""
    host_tests(context)
    check = context.report.check
    check("no modules of a crate import each other in a circle (scripts/circles)", enter("scripts/circles"))
    check("scripts/circles finds the circles there are", enter("python3", "-B", "scripts/test-circles"))
    check("documents and doc comments keep to plain English (scripts/english)", enter("scripts/english", "--check"))
    check("scripts/english counts sentences and finds retired terms", enter("python3", "-B", "scripts/test-english"))
    check("scripts/check counts each result, and ends its commands", enter("python3", "-B", "scripts/test-check"))


def files_in_git(*patterns):
    """Return the files in git that exist, of one kind."""
    listed = capture(enter("git", "-c", "safe.directory=/ferroce", "ls-files", *patterns))
    return [name for name in listed.splitlines() if pathlib.Path(name).is_file()]


def read_text(name):
    """Return the text of a file. It may have any bytes."""
    return read_log(pathlib.Path(name))


def all_have_spdx(log):
    """Return true if each file has its licence."""
    lacking = [name for name in files_in_git() if needs_spdx(name) and not has_spdx(read_text(name))]
    for name in lacking:
        print(f"{name} has no SPDX line", file=log)
    return not lacking


def lint_shell(log):
    """Return true if shellcheck accepts all shell scripts."""
    scripts = [name for name in files_in_git() if is_shell_script(name, read_text(name))]
    return run(enter("shellcheck", "-x", *scripts), log) == 0


def format_rust(log):
    """Return true if rustfmt would change no file."""
    return run(enter("rustfmt", "--check", "--color", "never", "--config-path", "/ferroce/.rustfmt.toml",
                     *files_in_git("*.rs")), log) == 0


def module_checks(check, release):
    """Check the module for one kernel."""
    check(f"the module builds for {release} without a warning or a panic", ["qemu/build", "--kernel", release])
    check(f"the examples of rust/rdma compile for {release} (scripts/examples)",
          enter("scripts/examples", kernel=release))
    check(f"clippy has no complaints, for {release}", ["qemu/build", "--kernel", release, "--clippy"])
    check(f"the test programs build for {release}", enter("make", "-C", "selftests", kernel=release))
    check(f"make refuses the kernels it cannot build for, by name ({release})",
          enter("scripts/test-check-kdir", kernel=release))


def style_checks(check):
    """Check style, licences and the host's own code."""
    check("every file has its licence", all_have_spdx)
    check("shellcheck has no complaints", lint_shell)
    check("Rust is formatted", format_rust)
    check("clippy has no complaints on the host",
          enter("cargo", "clippy", "--manifest-path", "rust/Cargo.toml", "--workspace", "--locked", "--all-targets",
                "--", "-D", "warnings"))


def document_checks(check):
    """Check the generated documents, and the programs that make them."""
    check("the documentation of the protocol builds", enter("scripts/doc"))
    check("the tables of the documentation are fresh (scripts/tables makes them)", enter("scripts/tables", "--check"))
    check("the ledger of unsafe code is fresh (scripts/unsafe-ledger makes it)",
          enter("scripts/unsafe-ledger", "--check"))
    check("scripts/unsafe-ledger finds unsafe functions and comments that prove nothing",
          enter("python3", "-B", "scripts/test-unsafe-ledger"))
    check("scripts/examples finds each example", enter("python3", "-B", "scripts/test-examples"))
    check("each rule of the transport is implemented and tested (scripts/conformance)",
          enter("scripts/conformance", "--check"))
    check("mandoc has no complaints about the manual",
          enter("mandoc", "-Tlint", "-Wwarning", "Documentation/ferroce.7"))
    check("the performance in the documentation is that of the recorded runs (scripts/performance)",
          enter("scripts/performance", "--check"))
    check("the results of consumers are those recorded (scripts/consumers)", enter("scripts/consumers", "--check"))
    check("the survival of each driver is that recorded (scripts/survival)", enter("scripts/survival", "--check"))
    check("the results for each kind of memory are those recorded (scripts/memory)",
          enter("scripts/memory", "--check"))
    check("the benchmark computes figures correctly", enter("python3", "-B", "bench/test"))
    check("the figures of the documentation are fresh (make figures makes them)",
          enter("cargo", "run", "--quiet", "--release", "--locked", "--manifest-path", "rust/Cargo.toml", "-p", "sim",
                "--bin", "goodput", "--", "--check", "Documentation"))


def build_stage(context):
    """Check style and documents, and build the module for all kernels."""
    step("build checks")
    check = context.report.check
    style_checks(check)
    document_checks(check)
    for release in context.releases:
        module_checks(check, release)
    check("make, make install and modprobe find each other",
          enter("scripts/test-install", kernel=context.releases[0]))
