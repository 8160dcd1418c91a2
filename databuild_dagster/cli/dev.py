"""`databuild dev`: `dagster dev` on the same home and definitions as every other command."""

from __future__ import annotations

import os
import sys

import click

from databuild_dagster.cli.state import dagster_home
from databuild_dagster.data.home import project_root


@click.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def dev(arguments: tuple[str, ...]) -> None:
    """Open Dagster: its web server and its daemon.

    ARGUMENTS are those of `dagster dev`.
    """
    dagster_home()
    os.chdir(project_root())
    has_host = any(argument.split("=")[0] in ("-h", "--host") for argument in arguments)
    host = () if has_host else ("--host", "127.0.0.1")
    # This process becomes Dagster's, so that Ctrl-C and the exit code are its own.
    os.execv(sys.executable, [sys.executable, "-m", "dagster", "dev", *host, *arguments])
