"""One Spark server for all tests of a run, whichever worker they run on.

A server costs ten seconds of processor to start and a gigabyte to keep. A test that stops or kills its server, or gives
it other settings, uses a home of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from databuild_dagster.spark.server import stop_server

FOLDER = "spark_home"


@pytest.fixture(scope="session")
def spark_home(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[str]:
    """The home of the shared server. The first session opened in it starts the server."""
    from databuild_dagster.bindings.reading.spark_resource import close_sessions

    base = tmp_path_factory.getbasetemp()
    home = (base.parent if hasattr(request.config, "workerinput") else base) / FOLDER
    home.mkdir(exist_ok=True)
    yield str(home)
    close_sessions()


def stop_spark_server(config: pytest.Config) -> None:
    """Stop it at the end of the run, in the process that started the workers."""
    factory: pytest.TempPathFactory | None = getattr(config, "_tmp_path_factory", None)
    base: Path | None = getattr(factory, "_basetemp", None)
    if base is not None and (base / FOLDER).exists():
        stop_server(base / FOLDER)
