"""Catalogs that tests add to the configuration of pyiceberg."""

from __future__ import annotations

from pathlib import Path

import pyiceberg.catalog
import pytest
from pyiceberg.utils.config import Config


def settings_of(name: str, **settings: str) -> dict[str, str]:
    """The environment variables by which pyiceberg knows a catalog."""
    return {f"PYICEBERG_CATALOG__{name.upper()}__{setting}": value for setting, value in settings.items()}


def configure(monkeypatch: pytest.MonkeyPatch, name: str, **settings: str) -> None:
    for variable, value in settings_of(name, **settings).items():
        monkeypatch.setenv(variable, value)
    # pyiceberg reads its configuration when it is imported.
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())


def in_python(home: Path) -> dict[str, str]:
    """The catalog that needs no configuration, with files that Python opens: their calls can be seen, and can fail."""
    root = home / "warehouse"
    return {
        "TYPE": "sql",
        "URI": f"sqlite:///{root}/iceberg.db",
        "WAREHOUSE": f"file://{root}/metadata",
        "PY_IO_IMPL": "pyiceberg.io.fsspec.FsspecFileIO",
    }
