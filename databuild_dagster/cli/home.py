"""Which Dagster instance a command works on: DAGSTER_HOME, or the project's own `.dagster_home`."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

VARIABLE = "DAGSTER_HOME"
DIRECTORY = ".dagster_home"
#: What makes a directory a project, looked for upwards from the working directory.
_MARKS = ("workspace.yaml", "dagster.yaml", "definitions.py", "pyproject.toml", ".git")


class BadHome(Exception):
    """DAGSTER_HOME names something that is no directory; the message says so."""


def dagster_home() -> Path:
    """The home, made and put into the environment when the project's own is used. Raises `BadHome`."""
    if told := os.environ.get(VARIABLE):
        home = Path(told).expanduser()
        if not home.is_absolute():
            raise BadHome(f"{VARIABLE} is {told!r}, which is not absolute; set it to the full path of a directory.")
        if not home.is_dir():
            raise BadHome(f"{VARIABLE} is {told}, which is no directory; create it or unset {VARIABLE}.")
        return home
    home = project_root() / DIRECTORY
    try:
        _make(home)
    except OSError as error:
        raise BadHome(
            f"{home} cannot be made: {error.strerror}; set {VARIABLE} to a directory you can write to."
        ) from error
    os.environ[VARIABLE] = str(home)
    click.echo(
        f"Using the project's own Dagster home; to use it elsewhere too: export {VARIABLE}={shlex.quote(str(home))}",
        err=True,
    )
    return home


def project_root() -> Path:
    """The nearest directory, from here upwards, that looks like a project; else the working directory."""
    here = Path.cwd()
    for directory in (here, *here.parents):
        if any((directory / mark).exists() for mark in _MARKS):
            return directory
    return here


def _make(home: Path) -> None:
    """Kept out of git by itself, and configured by the project's dagster.yaml, today's and tomorrow's."""
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
            settings.write_text("telemetry:\n  enabled: false\n")
