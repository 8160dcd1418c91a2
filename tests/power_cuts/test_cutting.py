"""Power cuts in the middle of commands: the store opens, live data is whole, and acknowledged commands are there (rules 3, 10.2)."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from .cutting import cut_power, recorded


def _traces() -> bool:
    """A container may forbid one process to look at another."""
    strace = shutil.which("strace")
    return (
        strace is not None and subprocess.run([strace, "-o", "/dev/null", "true"], capture_output=True).returncode == 0
    )


pytestmark = [
    pytest.mark.long("strace records the system calls of a process"),
    pytest.mark.skipif(not _traces(), reason="strace cannot trace here"),
]

#: `make power-cuts` looks at 10,000.
DISKS = 60


@pytest.fixture(scope="module")
def changes(tmp_path_factory):
    """Those of ten commands, with durable commits."""
    return list(recorded(tmp_path_factory.mktemp("power"), is_durable=True, days=1))


def test_no_power_cut_loses_an_acknowledged_command_or_live_data(changes):
    result = cut_power(changes, DISKS, seed=1, is_durable=True)

    assert result.faults == []


@pytest.mark.parametrize(
    ("left_out", "fault"),
    [("home/warehouse", "builds it again"), ("home/databuild.db-wal", "it lacks the event")],
)
def test_without_the_syncs_of_the_package_some_disks_are_wrong(changes, left_out, fault):
    """A judge that finds nothing here would find nothing above."""
    unsynced = [change for change in changes if not (change.what == "sync" and change.path.startswith(left_out))]

    result = cut_power(unsynced, DISKS, seed=1, is_durable=True)

    assert any(fault in found for found in result.faults)
