"""The project in which commands run, as a user has it; and a home without a project."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from databuild_dagster.bindings.reading.spark_resource import close_sessions
from databuild_dagster.data.home import sqlite_url
from tests.support.catalog import dataset
from tests.support.project import empty_home, known_project, project, shared_project
from tests.support.world import World

__all__ = ["empty_home", "known_project", "project", "shared_project"]


#: More inputs than a command names one by one.
INPUTS = [f"input_{n}" for n in range(7)]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """The store of the home `tmp_path`. A story in it costs a hundredth of a build, and commands show it as they show builds."""
    (tmp_path / "dagster.yaml").write_text("")
    world = World([dataset(name) for name in ("bad", "good", "month", "report", *INPUTS)], url=sqlite_url(tmp_path))
    yield world
    world.close()


@pytest.fixture
def closed_sessions() -> Iterator[None]:
    """The sessions with servers elsewhere are closed before the servers end."""
    yield
    close_sessions()
