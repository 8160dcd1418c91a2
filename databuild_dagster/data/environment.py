"""An environment from files alone: a home of its own, found from the home of its base by name (rule 16.1).

The folder `HOME.environments/NAME` beside the home of the base has the environment's home, and its data unless it was opened with a
different root.
"""

import os
from pathlib import Path

import msgspec

#: Names the environment of a command.
ENVIRONMENT_VARIABLE = "DATABUILD_ENV"
#: Prefix of the keys of environments in the log of their base, by name.
RECORDS = "environments/"
#: In the home of an environment.
FILE_NAME = "environment.json"


class Environment(msgspec.Struct, frozen=True):
    """An environment as its home has it."""

    name: str
    #: The home of the base.
    base: str
    #: The root of its data, a folder or a url.
    root: str
    #: The database of the base without its password, for messages and comparison.
    place: str = ""


def environment_of(home: str | Path) -> Environment | None:
    """The environment whose home it is; None for any other home."""
    try:
        contents = Path(home, FILE_NAME).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return msgspec.json.decode(contents, type=Environment)


def environment_of_store(path: str | None) -> Environment | None:
    """The environment whose build state is the SQLite file `path`; None for any other build state."""
    return None if path is None else environment_of(os.path.dirname(path))


def folder_of(base: Path, name: str) -> Path:
    """The folder of an environment."""
    return base.with_name(f"{base.name}.environments") / name


def home_of(base: Path, name: str) -> Path:
    """The home of an environment."""
    return folder_of(base, name) / "home"


def base_of_home(home: str | Path) -> Path:
    """The home of the base beside which an environment was opened, from the home of the environment."""
    folders = Path(home).parent.parent
    return folders.with_name(folders.name.removesuffix(".environments"))


def root_beside(root: str, before: Path, home: Path) -> str:
    """The root of an environment whose home was moved from `before` to `home`: one beside the home was moved with it."""
    is_beside = Path(root).is_relative_to(before.parent)
    return str(home.parent / Path(root).relative_to(before.parent)) if is_beside else root


def is_in_environment() -> bool:
    """Whether Dagster's instance of this process is that of an environment."""
    home = os.environ.get("DAGSTER_HOME")
    return bool(home) and environment_of(str(home)) is not None
