"""The lab itself: hosts share nothing but the wire, and faults are what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .hosts import HOME, Lab, Way, why_not

pytestmark = [
    pytest.mark.skipif(why_not() is not None, reason=why_not() or ""),
    pytest.mark.long("only real hosts lose packets"),
]

PYTHON = {"PATH": os.environ["PATH"]}
PING = "import socket, sys; socket.create_connection((sys.argv[1], 7000), timeout=2)"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab(tmp_path_factory.mktemp("lab"), ["a", "b", "c"]) as made:
        yield made


@pytest.fixture
def listening(lab: Lab) -> Iterator[subprocess.Popen[bytes]]:
    server = lab["b"].spawn([sys.executable, "-m", "http.server", "7000"], log="server.log", environment=PYTHON)
    while not reaches(lab, "c"):
        assert server.poll() is None
    yield server
    for host in ("a", "b", "c"):
        lab.heal(host)
    server.kill()
    server.wait()


def reaches(lab: Lab, host: str) -> bool:
    return lab[host].run([sys.executable, "-S", "-c", PING, "b"], environment=PYTHON).returncode == 0


def test_a_host_sees_the_repository_and_no_file_of_another_host(lab: Lab) -> None:
    lab["a"].run(["sh", "-c", "echo mine > /tmp/file; echo mine > /mnt/host/file"], environment=PYTHON)

    seen = lab["b"].run(["sh", "-c", f"hostname; ls /tmp /mnt/host; ls {Path(__file__)}"], environment=PYTHON)
    written = lab["b"].run(["touch", str(Path(__file__))], environment=PYTHON)

    assert "file\n" not in seen.stdout
    assert seen.stdout.startswith("b\n")
    assert __file__ in seen.stdout
    assert "Read-only" in written.stderr


@pytest.mark.parametrize("way", ["in", "out", "both"])
def test_a_cut_host_reaches_nobody_until_the_cut_ends(lab: Lab, listening: subprocess.Popen[bytes], way: Way) -> None:
    lab.cut("a", way=way)
    assert not reaches(lab, "a")
    assert reaches(lab, "c")

    lab.heal("a")
    assert reaches(lab, "a")


def test_a_pair_of_hosts_is_cut_for_the_pair_alone(lab: Lab, listening: subprocess.Popen[bytes]) -> None:
    lab.cut("b", peers=["a"])

    assert not reaches(lab, "a")
    assert reaches(lab, "c")


def test_the_processes_of_a_killed_host_end_with_it_and_its_files_stay(lab: Lab) -> None:
    (lab["c"].folder / "kept").write_text("")
    sleeper = lab["c"].spawn(["sleep", "600"], log="sleep.log", environment=PYTHON)

    lab["c"].kill()
    assert sleeper.poll() is not None

    lab["c"].start()
    assert lab["c"].run(["ls", str(HOME / "kept")], environment=PYTHON).returncode == 0
