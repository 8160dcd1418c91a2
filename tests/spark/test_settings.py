"""Which settings share a server."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from databuild_dagster.spark.settings import SparkSettings


def environment(folder: Path) -> Path:
    """A virtual environment with the usual names of its interpreter."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    (folder / "pyvenv.cfg").touch()
    (programs / "python").symlink_to(sys.executable)
    (programs / "python3").symlink_to("python")
    return programs


def test_one_interpreter_has_one_server_however_it_is_spelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = environment(tmp_path / "one"), environment(tmp_path / "other")
    (tmp_path / "link").symlink_to(tmp_path / "one")
    (tmp_path / "python").symlink_to(sys.executable)

    def fingerprint(python: str | Path) -> str:
        monkeypatch.setenv("PYSPARK_PYTHON", str(python))
        return SparkSettings(home=tmp_path).fingerprint()

    monkeypatch.setenv("PATH", str(one))
    same = {
        fingerprint(python) for python in (one / "python", one / "python3", "python3", tmp_path / "link/bin/python")
    }
    assert len(same) == 1
    assert fingerprint(other / "python") not in same, "other packages"
    assert fingerprint(tmp_path / "python") not in same, "no environment"
