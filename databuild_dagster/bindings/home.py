"""Where a DAGSTER_HOME keeps our store and our data, told from its files alone.

`instance` answers the same for an open Dagster instance. This module imports neither Dagster nor anything
that does: a command that only reads the store must not wait for Dagster's import.
"""

import os
from pathlib import Path

import yaml

#: Overrides where the store is, whatever the Dagster instance says.
DB_URL_VARIABLE = "DATABUILD_DB_URL"
DATABASE_NAME = "databuild.db"
WAREHOUSE_NAME = "warehouse"
#: Sections of dagster.yaml that may put Dagster's own files somewhere else.
_STORAGE_SECTIONS = frozenset({"storage", "run_storage", "instance_class", "local_artifact_storage"})


def store_url_of_home(home: Path) -> str | None:
    """The store of the instance in `home`; None where dagster.yaml places storage: Dagster can tell."""
    if url := os.environ.get(DB_URL_VARIABLE):
        return url
    if _configures_storage(home / "dagster.yaml"):
        return None
    return sqlite_url(home)


def warehouse_of_home(home: Path) -> str:
    """Where data goes unless the code location says otherwise."""
    return str(home.absolute() / WAREHOUSE_NAME)


def sqlite_url(directory: Path) -> str:
    return f"sqlite:///{directory.absolute() / DATABASE_NAME}"


def _configures_storage(path: Path) -> bool:
    if not path.exists():
        return False
    settings = yaml.safe_load(path.read_text())
    return isinstance(settings, dict) and not _STORAGE_SECTIONS.isdisjoint(settings)
