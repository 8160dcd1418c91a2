"""The DAGSTER_HOME directory, and the store and the warehouse in it, found from files alone.

`instance` does the same for an open Dagster instance. This module imports no Dagster: a command that only reads the
store must not wait for Dagster's import.
"""

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from pwd import getpwuid
from typing import Any
from urllib.parse import unquote

import yaml

from databuild_dagster.data.environment import ENVIRONMENT_VARIABLE, environment_of, home_of
from databuild_dagster.model.wording import is_utf8, one_line
from databuild_dagster.store.errors import StoreInMemory


class BadYaml(ValueError):
    """The file is no YAML; the message says why."""


def read_yaml(path: Path) -> Any:
    """The value of a file. Raises `BadYaml`, and OSError for a file that cannot be read."""
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError:
        raise
    except Exception as error:  # For impossible dates and odd tags, PyYAML raises almost anything.
        raise BadYaml("it is nested too deeply" if isinstance(error, RecursionError) else one_line(error)) from error


#: Names the home, for Dagster and for databuild.
HOME_VARIABLE = "DAGSTER_HOME"
#: The home of a project that has no other.
HOME_DIRECTORY = ".dagster_home"
#: Files that mark a directory as a project, looked for upwards from the working directory.
_MARKS = ("workspace.yaml", "dagster.yaml", "definitions.py", "pyproject.toml", ".git")

#: Overrides the store of the Dagster instance.
DB_URL_VARIABLE = "DATABUILD_DB_URL"
#: SQLAlchemy's urls of a database in the memory of a process.
_IN_MEMORY = frozenset(
    {f"{driver}{name}" for driver in ("sqlite:", "sqlite+pysqlite:") for name in ("//", "///", "///:memory:")}
)
DATABASE_NAME = "databuild.db"
WAREHOUSE_NAME = "warehouse"
#: Sections of dagster.yaml that may move Dagster's own files.
_STORAGE_SECTIONS = frozenset({"storage", "run_storage", "instance_class", "local_artifact_storage"})

#: Of a home without a project's dagster.yaml. Dagster's first page is not its invitation to a newsletter (`nux`). Idle sensors
#: write 60 MB of skipped ticks a day, which Dagster keeps for a week.
SETTINGS = """\
telemetry:
  enabled: false
nux:
  enabled: false

retention:
  sensor:
    purge_after_days: {skipped: 1}
"""


class BadHome(Exception):
    """The named home, or the project's own, cannot be used; the message says why."""


def expanded(path: str | Path) -> Path:
    """The path with the home of its user in place of ~, as far as there is such a user."""
    return Path(os.path.expanduser(path))


def named_home() -> Path | None:
    """The home that DAGSTER_HOME names, or that of the environment in DATABUILD_ENV; None if neither is set. Raises `BadHome`."""
    name = os.environ.get(ENVIRONMENT_VARIABLE)
    return _home_of_variable() if not name else _environment_home(name)


def base_home() -> Path:
    """The home of the base: of DAGSTER_HOME, or of the project. The home need not exist yet. Raises `BadHome`."""
    home = _home_of_variable() or project_home()
    environment = environment_of(home)
    return home if environment is None else Path(environment.base)


def _environment_home(name: str) -> Path:
    base = base_home()
    home = home_of(base, name)
    environment = environment_of(home)
    # A path, such as ../other.environments/name, names one of a different base.
    if environment is None or environment.name != name:
        raise BadHome(
            f"{base} has no environment {one_line(name)} on this host; `databuild env list` lists the environments."
        )
    return home


def _home_of_variable() -> Path | None:
    value = os.environ.get(HOME_VARIABLE)
    if not value:
        return None
    home = expanded(value)
    if not home.is_absolute():
        raise BadHome(f"{HOME_VARIABLE} is {value!r}, which is not absolute; set it to the full path of a directory.")
    if not home.is_dir():
        raise BadHome(f"{HOME_VARIABLE} is {value}, which is no directory; create it or unset {HOME_VARIABLE}.")
    return _not_escaped(home)


def project_home() -> Path:
    """The home of the project around the working directory; it need not exist yet. Raises `BadHome`."""
    return _not_escaped(project_root() / HOME_DIRECTORY)


def the_home() -> tuple[Path, bool]:
    """The home, and whether it was made now. Raises `BadHome`."""
    if (named := named_home()) is not None:
        return named, False
    home = project_home()
    try:
        return home, _make(home)
    except OSError as error:
        raise BadHome(
            f"{home} cannot be made: {error.strerror}; set {HOME_VARIABLE} to a directory you can write to."
        ) from error


def _make(home: Path) -> bool:
    """True if it is new. Kept out of git by itself, and configured by the project's dagster.yaml, today's and tomorrow's."""
    is_new = not home.exists()
    home.mkdir(exist_ok=True)
    ignore = home / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n")
    settings = home / "dagster.yaml"
    if not settings.exists() and not settings.is_symlink():
        of_project = home.parent / "dagster.yaml"
        if of_project.exists():
            settings.symlink_to(Path("..") / "dagster.yaml")
        else:
            settings.write_text(SETTINGS)
    return is_new


def check_writable(home: Path) -> None:
    """Raise `BadHome` for a home that this process may only read, unless the store and Dagster's files are elsewhere."""
    for path in (home, home / DATABASE_NAME):
        if path.exists() and not os.access(path, os.W_OK) and store_url_of_home(home) == sqlite_url(home):
            raise BadHome(
                f"The Dagster home {home} cannot be written: {_why_read_only(path)}; let this user write there, or set "
                f"{HOME_VARIABLE} to a directory that it can write to."
            )


def _why_read_only(path: Path) -> str:
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return "its file system is read-only"
    owner = str(path.stat().st_uid)
    with suppress(KeyError):
        owner = getpwuid(int(owner)).pw_name
    return f"{path} belongs to {owner}"


def _not_escaped(home: Path) -> Path:
    """Raises `BadHome` for a path such as `a%20b`: Dagster opens its SQLite files in `a b`."""
    if not is_utf8(str(home)):
        raise BadHome(
            f"The Dagster home {one_line(home)} has characters in its path that are no UTF-8 to this process; "
            "set LC_ALL=C.UTF-8, or rename the directory."
        )
    if unquote(str(home)) != str(home) and not _configures_storage(home / "dagster.yaml"):
        raise BadHome(
            f"The Dagster home {home} has an escape such as %20 in its path, and Dagster would keep its files in "
            f"{unquote(str(home))}; use a path without a percent sign."
        )
    return home


def project_root() -> Path:
    """The nearest directory, from here upwards, that looks like a project; else the working directory."""
    here = Path.cwd()
    for directory in (here, *here.parents):
        if any((directory / mark).exists() for mark in _MARKS):
            return directory
    return here


def existing_home(given: str | Path | None = None) -> Path:
    """A home to read from: the given home, DAGSTER_HOME, or the project's own home. Raises `BadHome`."""
    if given is not None:
        home = expanded(given).absolute()
        if not home.is_dir():
            raise BadHome(f"The Dagster home {home} is no directory; give the one that was built in.")
        return _not_escaped(home)
    if (named := named_home()) is not None:
        return named
    home = project_home()
    if not home.is_dir():
        raise BadHome(
            f"There is no Dagster home {home}, so nothing was built there; set {HOME_VARIABLE} to the one that was built in."
        )
    return home


def store_url_of_home(home: Path) -> str | None:
    """The url of the store in `home`; None where dagster.yaml places storage, which only Dagster resolves. Raises `BadHome`.

    The url of the variable is not that of an environment, but of its base.
    """
    if environment_of(home) is not None:
        return sqlite_url(home)
    if url := url_of_environment():
        return url
    if _configures_storage(home / "dagster.yaml"):
        return None
    return sqlite_url(home)


def url_of_environment() -> str | None:
    """The value of DATABUILD_DB_URL, if it is set. Raises `StoreInMemory`: every process would have its own store."""
    url = os.environ.get(DB_URL_VARIABLE)
    if url and url.partition("?")[0] in _IN_MEMORY:
        raise StoreInMemory(url=url)
    return url or None


def warehouse_of_home(home: Path) -> str | None:
    """The default warehouse; None where dagster.yaml places storage, which only Dagster resolves."""
    if _configures_storage(home / "dagster.yaml"):
        return None
    if (environment := environment_of(home)) is not None:
        return environment.root
    return str(home.absolute() / WAREHOUSE_NAME)


def sqlite_url(directory: Path) -> str:
    """The url of the store in a directory. A percent sign and a question mark of the path are escaped, as a url has them."""
    path = str(directory.absolute() / DATABASE_NAME)
    return f"sqlite:///{path.replace('%', '%25').replace('?', '%3F')}"


def lacks_store(home: Path, url: str) -> bool:
    """Whether the url is that of the SQLite store in the home, and the file is not there: to open the store would make it."""
    return url == sqlite_url(home) and not (home / DATABASE_NAME).is_file()


def moves_events(home: Path) -> bool:
    """Whether dagster.yaml may place Dagster's events, and its dynamic partitions with them, outside the home. Raises `BadHome`."""
    return _configures_storage(home / "dagster.yaml", _STORAGE_SECTIONS | {"event_log_storage"})


def _configures_storage(path: Path, sections: Collection[str] = _STORAGE_SECTIONS) -> bool:
    """Raises `BadHome`."""
    if not path.exists():
        return False
    try:
        settings = read_yaml(path)
    except BadYaml as error:
        raise BadHome(f"{path} cannot be read as YAML: {error}; correct it.") from error
    return isinstance(settings, dict) and not settings.keys().isdisjoint(sections)
