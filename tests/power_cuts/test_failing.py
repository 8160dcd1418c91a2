"""Errors of the disk in the middle of commands: nothing acknowledged is lost, and the next command works (rules 3, 10.2)."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from .cutting import ROOT
from .failing import Case, Recorded, cases
from .faulty_calls import can_fail_calls

#: The first command records a want, the second publishes two instances. `make disk-errors` looks at all calls of ten commands.
SOME = ["--commands", "0", "1", "--stride", "45", "--first", "17"]


def test_both_errors_are_given_to_the_calls_of_a_command_in_turns(tmp_path):
    command = Recorded(["build"], tmp_path, n_calls=10, before=0, after=1)

    assert list(cases([command], 4, 2)) == [
        Case(command, "EIO", 2),
        Case(command, "ENOSPC", 6),
        Case(command, "EIO", 10),
    ]
    assert len(list(cases([command], 1, 1))) == 20


@pytest.mark.long("the kernel fails the system calls of a process")
@pytest.mark.skipif(not can_fail_calls(), reason="the kernel passes no system calls on here")
def test_no_error_of_the_disk_loses_an_acknowledged_command_or_live_data():
    """A process of its own, because a fork of a process with threads may hang."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.power_cuts.failing", *SOME], cwd=ROOT, text=True, capture_output=True
    )

    assert done.returncode == 0, (done.stdout, done.stderr)
    # The number of heartbeats depends on how long a build takes.
    ((n_errors,),) = [re.findall(r"(\d+) errors", done.stdout)]
    assert int(n_errors) >= 7
