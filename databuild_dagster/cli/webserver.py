"""`databuild webserver`: Dagster's web server with the pages of databuild inside, at /databuild."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import click

from databuild_dagster.cli.state import dagster_home
from databuild_dagster.data.home import project_root
from databuild_dagster.spark.pyspark_names import leave_proxies_out
from databuild_dagster.web.settings import settings_of_environment

# -h is the host, as for `dagster-webserver`.
_SETTINGS = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": ["--help"]}


@click.command(context_settings=_SETTINGS)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def webserver(arguments: tuple[str, ...]) -> None:
    """Open Dagster's web server alone, with databuild's pages.

    ARGUMENTS are those of `dagster-webserver`, such as -h HOST, -p PORT, --path-prefix and --read-only;
    `dagster-webserver --help` lists them. The pages of databuild are at /databuild, below the path prefix.

    The pages have no login: put a proxy with one in front of a server that others reach.
    DATABUILD_USER_HEADER names the header in which the proxy gives the user, DATABUILD_API_TOKEN or
    DATABUILD_API_TOKEN_FILE the token of programs that call actions.
    """
    # The web server takes a second to import.
    from databuild_dagster.bindings.adapter.dagster_web import run_webserver

    settings_of_environment()
    dagster_home()
    os.chdir(project_root())
    leave_proxies_out()
    run_webserver(arguments, _make_routes, _end_answers)


def _make_routes(instance: Any, path_prefix: str, is_read_only: bool) -> Sequence[Any]:
    # Starlette comes with Dagster's web server, which may not be installed.
    from databuild_dagster.web.application import pages_routes

    return pages_routes(instance, path_prefix, is_read_only=is_read_only)


def _end_answers() -> None:
    from databuild_dagster.web.state import end_all_states
    from databuild_dagster.web.streams import end_all_streams

    end_all_streams()
    end_all_states()
