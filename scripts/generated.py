# SPDX-License-Identifier: GPL-2.0
"""What the scripts share that make a document of what the code says."""

import difflib
import sys


def table(head, rows):
    """A simple table of reStructuredText."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    line = "  ".join("=" * width for width in widths)
    text = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
            for row in [head, *rows]]
    return "\n".join([line, text[0], line, *text[1:], line])


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
