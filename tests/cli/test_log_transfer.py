"""`databuild log export|import` at the command line (rule 3.12)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.catalog import dataset
from tests.support.command import databuild
from tests.support.world import World


@pytest.fixture
def homes(tmp_path: Path) -> tuple[Path, Path]:
    """A home with a want, and one without anything."""
    full, empty = tmp_path / "full", tmp_path / "empty"
    for home in (full, empty):
        home.mkdir()
    world = World([dataset("orders")], url=f"sqlite:///{full}/databuild.db")
    world.want("orders")
    world.close()
    return full, empty


def run(home: Path, *arguments: str, exits: int = 0) -> str:
    """What a command says."""
    done = databuild(home, home, "log", *arguments)
    assert done.code == exits, done.err
    return done.out + done.err


def test_what_one_home_exports_an_empty_one_alone_imports(homes: tuple[Path, Path], tmp_path: Path) -> None:
    full, empty = homes

    exported = json.loads(run(full, "export", f"{tmp_path}/log.jsonl", "--json"))
    said = run(empty, "import", f"{tmp_path}/log.jsonl")
    refused = run(full, "import", f"{tmp_path}/log.jsonl", exits=2)

    assert exported == {"events": 2, "file": f"{tmp_path}/log.jsonl"}
    assert "Imported 2 events." in said
    assert "databuild log take-over --yes" in said
    assert run(empty, "events") == run(full, "events")
    assert "Nothing is wrong." in run(empty, "check", "--deep")
    assert "has 2 events already, and an import needs an empty one." in refused
