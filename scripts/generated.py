# SPDX-License-Identifier: GPL-2.0
"""Functions of the scripts that make a document."""

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
    """The record, or nothing."""
    return json.loads(path.read_text()) if path.exists() else {}


def runs(records, program):
    """The kernel and the date of each driver's record."""
    return "; ".join(f"{driver}: Linux {record[program]['kernel']}, {record[program]['date']}"
                     for driver, record in records.items() if program in record)


def write_or_check(target, new):
    """Writes the document. With --check, shows the differences to the existing one instead. Returns
    the exit status."""
    if sys.argv[1:] != ["--check"]:
        target.write_text(new)
        return 0
    old = target.read_text() if target.exists() else ""
    sys.stdout.writelines(difflib.unified_diff(
        old.splitlines(True), new.splitlines(True), str(target), "fresh"))
    return int(old != new)
