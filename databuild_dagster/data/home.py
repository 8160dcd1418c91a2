"""Which directory is the DAGSTER_HOME, and where it keeps our store and our data, told from files alone.

`instance` answers the same for an open Dagster instance. This module imports neither Dagster nor anything
that does: a command that only reads the store must not wait for Dagster's import.
"""

import os
from pathlib import Path

import yaml

from databuild_dagster.store.errors import StoreInMemory

#: Names the home, for Dagster and for us.
HOME_VARIABLE = "DAGSTER_HOME"
#: The home of a project that has no other.
HOME_DIRECTORY = ".dagster_home"
#: What makes a directory a project, looked for upwards from the working directory.
_MARKS = ("workspace.yaml", "dagster.yaml", "definitions.py", "pyproject.toml", ".git")

#: Overrides where the store is, whatever the Dagster instance says.
DB_URL_VARIABLE = "DATABUILD_DB_URL"
#: How SQLAlchemy writes a database of one process, which ends with it.
_IN_MEMORY = frozenset(
    {f"{driver}{name}" for driver in ("sqlite:", "sqlite+pysqlite:") for name in ("//", "///", "///:memory:")}
)
DATABASE_NAME = "databuild.db"
WAREHOUSE_NAME = "warehouse"
#: Sections of dagster.yaml that may put Dagster's own files somewhere else.
_STORAGE_SECTIONS = frozenset({"storage", "run_storage", "instance_class", "local_artifact_storage"})


class BadHome(Exception):
    """The home that was named, or that is the project's own, cannot be used; the message says why."""


def named_home() -> Path | None:
    """The home that DAGSTER_HOME names, None where it is not set. Raises `BadHome`."""
    told = os.environ.get(HOME_VARIABLE)
    if not told:
        return None
    home = Path(told).expanduser()
    if not home.is_absolute():
        raise BadHome(f"{HOME_VARIABLE} is {told!r}, which is not absolute; set it to the full path of a directory.")
    if not home.is_dir():
        raise BadHome(f"{HOME_VARIABLE} is {told}, which is no directory; create it or unset {HOME_VARIABLE}.")
    return home


def project_home() -> Path:
    """The home of the project that the working directory lies in; it need not exist yet."""
    return project_root() / HOME_DIRECTORY


def project_root() -> Path:
    """The nearest directory, from here upwards, that looks like a project; else the working directory."""
    here = Path.cwd()
    for directory in (here, *here.parents):
        if any((directory / mark).exists() for mark in _MARKS):
            return directory
    return here


def existing_home(told: str | Path | None = None) -> Path:
    """A home to read from: the one told, that of DAGSTER_HOME, or the project's own. Raises `BadHome`; makes nothing."""
    if told is not None:
        home = Path(told).expanduser().absolute()
        if not home.is_dir():
            raise BadHome(f"The Dagster home {home} is no directory; give the one that was built in.")
        return home
    if (named := named_home()) is not None:
        return named
    home = project_home()
    if not home.is_dir():
        raise BadHome(
            f"There is no Dagster home {home}, so nothing was built there; set {HOME_VARIABLE} to the one that was built in."
        )
    return home


def store_url_of_home(home: Path) -> str | None:
    """The store of the instance in `home`; None where dagster.yaml places storage: Dagster can tell."""
    if url := url_of_environment():
        return url
    if _configures_storage(home / "dagster.yaml"):
        return None
    return sqlite_url(home)


def url_of_environment() -> str | None:
    """What DATABUILD_DB_URL names, if it is set. Raises `StoreInMemory`: every process would have a store of its own."""
    url = os.environ.get(DB_URL_VARIABLE)
    if url and url.partition("?")[0] in _IN_MEMORY:
        raise StoreInMemory(url=url)
    return url or None


def warehouse_of_home(home: Path) -> str | None:
    """Where data goes unless a code location says otherwise; None where dagster.yaml places storage: Dagster can tell."""
    if _configures_storage(home / "dagster.yaml"):
        return None
    return str(home.absolute() / WAREHOUSE_NAME)


def sqlite_url(directory: Path) -> str:
    return f"sqlite:///{directory.absolute() / DATABASE_NAME}"


def _configures_storage(path: Path) -> bool:
    if not path.exists():
        return False
    settings = yaml.safe_load(path.read_text())
    return isinstance(settings, dict) and not _STORAGE_SECTIONS.isdisjoint(settings)
