"""`databuild log migrate` on homes that earlier versions have made (rule 3.4): tests/golden/README.md says how they were recorded."""

from pathlib import Path
from typing import Any

import pytest

from tests.support import command, golden

STATES = {"01": "Live", "02": "Tainted", "03": "Live", "04": "UpstreamFailed", "05": None}


@pytest.fixture(params=golden.homes())
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The project `shop` as the version left it, with its home."""
    folder = tmp_path / "shop"
    folder.mkdir()
    golden.restore_home(request.param, folder)
    return folder


def ask(project: Path, *arguments: str) -> Any:
    done = command.databuild(project, None, *arguments, "--json")
    assert done.code == 0, (arguments, done)
    return done.json


@pytest.mark.long("it builds what earlier versions left wanted")
def test_a_home_of_an_earlier_version_continues_after_a_migration(project: Path) -> None:
    """January 1 is live, 2 tainted and wanted, 4 failed, and 5 wanted."""
    ask(project, "log", "migrate", "--force")

    checked = ask(project, "log", "check", "--deep")
    days = ask(project, "partitions", "revenue")
    read = ask(project, "read", "revenue@2024-01-03")
    reused = ask(project, "build", "revenue@2024-01-01", "revenue@2024-01-03")
    built = ask(project, "build", "revenue@2024-01-02", "revenue@2024-01-05")
    again = ask(project, "log", "check", "--deep")

    assert {day["ref"].removeprefix("revenue@2024-01-"): day["state"] for day in days} == STATES
    assert read == [{"revenue": 5.5}]
    assert (reused["launches"], reused["refs"]) == (0, {"live": 2, "failed": 0})
    assert built["refs"] == {"live": 2, "failed": 0}
    assert ask(project, "want", "list") == []
    assert [(answer["ok"], answer["violations"]) for answer in (checked, again)] == [(True, []), (True, [])]
