# SPDX-License-Identifier: GPL-2.0
"""Makes a JUnit report of the output of a command.

    junit.py COMMAND STATUS SECONDS <OUTPUT >REPORT

Each line of TAP or KTAP in the output is a test case, nested ones as well. The command itself is one more, which
fails if its status is not 0.
"""

import re
import sys
from xml.etree import ElementTree

RESULT = re.compile(r"\s*(not )?ok\b\s*(\d*)\s*(?:-\s)?\s*(.*?)\s*(?:#\s*(SKIP|TODO)\b\s*(.*))?$", re.IGNORECASE)
# XML has no other characters.
ILLEGAL = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# Bytes of the output that a failure shows.
MOST_OUTPUT = 64 << 10


def clean(text):
    return ILLEGAL.sub("?", text)


def cases(output):
    """Yields name, outcome and message for each result line. Outcomes are passed, failed and skipped."""
    notes = []
    for line in output.splitlines():
        found = RESULT.fullmatch(line)
        if not found:
            notes.append(line)
            continue
        bad, number, name, directive, reason = found.groups()
        name = name or f"test {number}"
        if directive:
            yield name, "skipped", reason or directive
        elif bad:
            yield name, "failed", "\n".join(notes)[-MOST_OUTPUT:]
        else:
            yield name, "passed", ""
        notes = []


def report(command, status, seconds, output):
    """Returns the report as XML."""
    found = list(cases(output))
    outcome = "failed" if status else "passed"
    found.append((command, outcome, f"status {status}\n{output[-MOST_OUTPUT:]}"))
    counts = {kind: sum(case[1] == kind for case in found) for kind in ("failed", "skipped")}
    suite = ElementTree.Element(
        "testsuite", name="ferroce", tests=str(len(found)), failures=str(counts["failed"]),
        skipped=str(counts["skipped"]), time=str(seconds))
    for name, outcome, message in found:
        case = ElementTree.SubElement(suite, "testcase", name=clean(name), classname="ferroce")
        if outcome == "failed":
            ElementTree.SubElement(case, "failure", message="failed").text = clean(message)
        elif outcome == "skipped":
            ElementTree.SubElement(case, "skipped", message=clean(message))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)


if __name__ == "__main__":
    sys.stdin.reconfigure(errors="replace")
    print(report(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.stdin.read()))
