"""One engine for each store in a process, until it is closed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

import dagster as dg
import pytest

from databuild_dagster.bindings.registry.instance import close_engine, engine_for, store_url
from tests.support.dagster_files import fresh_instance

N_OPENERS = 4
_OPENER = """
import sys
from pathlib import Path

from databuild_dagster.bindings.registry.instance import open_instance

print("imported", flush=True)
sys.stdin.readline()
open_instance(Path(sys.argv[1])).get_runs()
"""


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with fresh_instance() as instance:
        yield instance
        close_engine(store_url(instance))


def test_a_process_has_one_engine_for_a_store(instance: dg.DagsterInstance) -> None:
    engine = engine_for(instance)
    engine.memory.put("place in the log", 7)

    assert engine_for(instance) is engine
    assert engine_for(instance).memory.of("place in the log", int) == 7


def test_a_closed_engine_is_opened_again_and_remembers_nothing(instance: dg.DagsterInstance) -> None:
    engine = engine_for(instance)
    engine.memory.put("place in the log", 7)

    close_engine(store_url(instance))

    assert engine_for(instance) is not engine
    assert engine_for(instance).memory.of("place in the log", int) == 0


def test_to_close_what_is_not_open_does_nothing(instance: dg.DagsterInstance) -> None:
    close_engine("sqlite:////nowhere/databuild.db")

    assert engine_for(instance).queries.events.head().seq == 0


@pytest.mark.long("processes open a new home at once")
def test_processes_that_open_a_new_home_at_once_all_have_its_instance(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _OPENER, str(tmp_path)]
    openers = [subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True) for _ in range(N_OPENERS)]
    for opener in openers:
        assert opener.stdout is not None
        assert opener.stdout.readline() == "imported\n"

    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.write("\n")
        opener.stdin.flush()

    ends = [opener.communicate(timeout=250) for opener in openers]
    assert [opener.returncode for opener in openers] == [0] * N_OPENERS, ends
