# SPDX-License-Identifier: GPL-2.0
"""Runs commands, and ends them when this program is interrupted.

A command stays in the process group of this program. So it can ask for a password, and a key at the terminal
stops both. A machine has a group of its own, which no key reaches. So an interrupt ends all descendants of this
program, of any group.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

# The time for a process to end by itself after SIGTERM, and for the kernel to remove it after SIGKILL.
GRACE_SECONDS = 10
KILL_SECONDS = 5
# The status of a shell for a command that it cannot start.
NOT_STARTED = 127
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal asks this program to end. No handler of other errors catches it."""


class Failed(Exception):
    """A command failed, without which there is no result."""

    def __init__(self, message, status=1):
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Process:
    """A process. Numbers are used again, so the start time belongs to its identity."""
    number: int
    start: str


@dataclass(frozen=True)
class Entry:
    """A row of the table of processes."""
    process: Process
    parent: int
    is_alive: bool


def step(text):
    """Announce a step that may take long, with the time since the start of the first script."""
    now = int(time.time())
    print(f"{now - int(os.environ.get('FERROCE_START', now)):5d}s  {text}", file=sys.stderr, flush=True)


def shell_status(code):
    """Return the status that a shell reports, for the return code of a process."""
    return code if code >= 0 else 128 - code


def start(command, output, environment=None, own_group=False):
    """Start a command without input, and return its process. Its output and its errors go to a file.

    If the command cannot start, write the reason to the file, and return none.
    """
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                env={**os.environ, **(environment or {})}, process_group=0 if own_group else None)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=output, flush=True)
        return None


def run(command, output, environment=None):
    """Run a command to the end, and return its status. Its output and its errors go to a file."""
    process = start(command, output, environment)
    return shell_status(process.wait()) if process else NOT_STARTED


def capture(command, environment=None):
    """Return the output of a command without the newlines at its end. The errors of the command are shown."""
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **(environment or {})},
                                   encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise Failed(f"{command[0]}: {error.strerror}", NOT_STARTED) from error
    output, _ = process.communicate()
    if process.returncode:
        status = shell_status(process.returncode)
        raise Failed(f"{' '.join(command)}: status {status}", status)
    return output.rstrip("\n")


def wait_for_any(processes):
    """Wait until one of the processes has ended, and return it."""
    numbers = {process.pid: process for process in processes}
    while True:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT).si_pid
        if ended in numbers:
            numbers[ended].wait()
            return numbers[ended]
        os.waitpid(ended, 0)


def parse_stat(text):
    """Return the entry for the text of /proc/N/stat. The name in it may contain anything."""
    fields = text[text.rindex(")") + 2:].split()
    return Entry(Process(int(text.split(" ", 1)[0]), fields[19]), int(fields[1]), fields[0] not in "ZX")


def process_table():
    """Return the entries of all processes of this machine."""
    entries = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            entries.append(parse_stat(path.read_text(errors="replace")))
        except OSError:
            continue  # It has ended.
    return entries


def descendants(table, root):
    """Return the living descendants of the process with this number."""
    children = {}
    for entry in table:
        children.setdefault(entry.parent, []).append(entry)
    found, parents = set(), [root]
    while parents:
        below = children.get(parents.pop(), [])
        found.update(entry.process for entry in below if entry.is_alive)
        parents.extend(entry.process.number for entry in below)
    return found


def send(number, processes):
    """Send a signal to processes. Some may have ended, and some may belong to another user."""
    for process in processes:
        try:
            os.kill(process.number, number)
        except (ProcessLookupError, PermissionError):
            continue


def end_descendants(grace=GRACE_SECONDS):
    """End all descendants: first by SIGTERM, and those that are left after a time by SIGKILL."""
    begin, found = time.monotonic(), set()
    while time.monotonic() < begin + grace + KILL_SECONDS:
        table = process_table()
        new = descendants(table, os.getpid()) - found
        found |= new
        left = found & {entry.process for entry in table if entry.is_alive}
        if not left:
            return
        is_over = time.monotonic() > begin + grace
        send(signal.SIGKILL if is_over else signal.SIGTERM, left if is_over else new)
        time.sleep(0.05)


def interrupt(_number, _frame):
    """Handle a signal that asks this program to end. Further ones do not disturb the end."""
    for number in ENDING_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise Interrupted


def catch_interrupts():
    """Raise Interrupted at signals, except for those that the caller of this program ignores."""
    for number in ENDING_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)
