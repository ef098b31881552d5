# SPDX-License-Identifier: GPL-2.0
"""What the scripts share that make a document of what the code says."""

import difflib
import json
import sys


def table(head, rows):
    """A simple table of reStructuredText."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    line = "  ".join("=" * width for width in widths)
    text = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
            for row in [head, *rows]]
    return "\n".join([line, text[0], line, *text[1:], line])


def load(path):
    """What is recorded there, or nothing."""
    return json.loads(path.read_text()) if path.exists() else {}


def runs(records, program):
    """With which kernel, and when, each driver was tried, of the records by driver."""
    return "; ".join(f"{driver}: Linux {record[program]['kernel']}, {record[program]['date']}"
                     for driver, record in records.items() if program in record)


def write_or_check(target, new):
    """Writes the document; with --check shows instead how the one that is there differs. Returns
    the exit status."""
    if sys.argv[1:] != ["--check"]:
        target.write_text(new)
        return 0
    old = target.read_text() if target.exists() else ""
    sys.stdout.writelines(difflib.unified_diff(
        old.splitlines(True), new.splitlines(True), str(target), "fresh"))
    return int(old != new)
