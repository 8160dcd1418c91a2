"""The name of a process proves its end on the machine and in the boot where it ran, and nowhere else (rule 6.9)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from databuild_dagster.engine import holders
from databuild_dagster.engine.holders import in_words, surely_gone, this_process
from databuild_dagster.store.processes import Processes, ProcFiles, Psutil

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="both ways to read processes work on Linux only")

DATABASES = ()

BOOT_ID = ("cat", "/proc/sys/kernel/random/boot_id")


def use(monkeypatch: pytest.MonkeyPatch, processes: Processes) -> None:
    monkeypatch.setattr(holders, "PROCESSES", processes)
    forget()


def forget() -> None:
    holders._machine.cache_clear()
    holders._name_of_own.cache_clear()


@pytest.fixture(autouse=True)
def names_of_the_next_test() -> Iterator[None]:
    yield
    forget()


@pytest.fixture(params=[ProcFiles(), Psutil(BOOT_ID)], ids=["files", "psutil"])
def processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Processes:
    use(monkeypatch, request.param)
    return request.param


def name_of(process: subprocess.Popen[bytes], processes: Processes) -> str:
    machine = this_process().rsplit("/", 2)[0]
    return f"{machine}/{process.pid}/{processes.start_of(process.pid)}"


def test_a_process_is_gone_once_it_is_killed(processes: Processes) -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        name = name_of(process, processes)
        assert not surely_gone(name)

        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        assert surely_gone(name), "also before it is reaped"
    assert surely_gone(name)
    assert in_words(name).startswith(f"process {process.pid} on ")


def test_a_process_is_gone_if_another_has_its_id(processes: Processes) -> None:
    assert not surely_gone(this_process())
    assert surely_gone(f"{this_process()}0")


@pytest.mark.parametrize("part", range(3), ids=["host", "boot", "namespace"])
def test_nothing_is_known_of_a_process_elsewhere(processes: Processes, part: int) -> None:
    parts = f"{this_process()}0".split("/")
    parts[part] = "another"

    assert not surely_gone("/".join(parts))


def test_nothing_is_proved_where_the_system_does_not_name_its_boot(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Psutil(("false",)))

    assert this_process().split("/")[1:3] == ["-", "-"]
    assert not surely_gone(f"{this_process()}0")
