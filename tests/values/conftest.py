"""The sessions and the warehouse of the matrix of values."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from databuild_dagster.spark.server import stop_server
from databuild_dagster.spark.session import open_session
from databuild_dagster.spark.settings import SparkSettings

#: Published tables are readers, too, and each instance has a content hash.
NEEDED = ("tables", "same_data")
collect_ignore = [] if all(find_spec(f"databuild_dagster.features.{name}") for name in NEEDED) else ["test_matrix.py"]


@pytest.fixture(scope="session")
def sessions(spark_home: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A session of Spark on a JVM, and one of Sail, by name."""
    # Other tests ask for the only server of the shared home.
    own = tmp_path_factory.mktemp("sail")
    opened = {
        "JVM": open_session(SparkSettings(home=spark_home)),
        "Sail": open_session(SparkSettings(home=own, mode="sail")),
    }
    yield opened
    for session in opened.values():
        session.stop()
    stop_server(own)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABUILD_CACHE_DIR", str(tmp_path / "cache"))
