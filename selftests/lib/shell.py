# SPDX-License-Identifier: GPL-2.0
"""The functions of the shell tests, for Python."""

import os
import subprocess

SELFTESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def shell(command):
    """Runs shell code that knows ktap.sh and net.sh, and returns what it printed."""
    sources = f". {SELFTESTS}/ktap.sh; . {SELFTESTS}/net.sh; trap 'rm -rf $ktap_tmp' EXIT; "
    return subprocess.run(
        ["bash", "-c", sources + command],
        check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    ).stdout
