"""Which Dagster instance a command works on: DAGSTER_HOME, or the project's own `.dagster_home`."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from databuild_dagster.data.home import HOME_VARIABLE, BadHome, named_home, project_home


def dagster_home() -> Path:
    """The home, made and put into the environment when the project's own is used. Raises `BadHome`."""
    if (named := named_home()) is not None:
        return named
    home = project_home()
    try:
        _make(home)
    except OSError as error:
        raise BadHome(
            f"{home} cannot be made: {error.strerror}; set {HOME_VARIABLE} to a directory you can write to."
        ) from error
    os.environ[HOME_VARIABLE] = str(home)
    shown = shlex.quote(str(home))
    click.echo(
        f"Using the project's own Dagster home; to use it elsewhere too: export {HOME_VARIABLE}={shown}", err=True
    )
    return home


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
