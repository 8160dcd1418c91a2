"""A published dataset of each format, and of one; a catalog that never answers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.features.tables.catalogs import configure
from tests.support.published import DELTA, ICEBERG, PublishedWorld


@pytest.fixture(params=[ICEBERG, DELTA], ids=["iceberg", "delta"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> PublishedWorld:
    """A test with it runs once for each format."""
    return PublishedWorld(tmp_path / "home", request.param)


@pytest.fixture
def iceberg(tmp_path: Path) -> PublishedWorld:
    return PublishedWorld(tmp_path / "iceberg", ICEBERG)


@pytest.fixture
def delta(tmp_path: Path) -> PublishedWorld:
    return PublishedWorld(tmp_path / "delta", DELTA)


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A catalog named silent that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        configure(monkeypatch, "silent", URI=f"http://127.0.0.1:{server.getsockname()[1]}")
        yield server
