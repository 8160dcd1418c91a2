"""`databuild dev`, also with `--no-daemon`: Dagster's own commands on the home and definitions of every other command.

Dagster's web server has the pages of databuild inside, at /databuild.
"""

import os
import socket
import sys
from collections.abc import Sequence
from typing import Any

import click

from databuild_dagster.cli.state import home_to_write
from databuild_dagster.data.home import project_root
from databuild_dagster.spark.installed import temporary_folder
from databuild_dagster.spark.pyspark_names import leave_proxies_out
from databuild_dagster.web.settings import settings_of_environment

#: The port of Dagster's pages, unless it is taken.
DAGSTERS_PORT = 3000
#: By which `dagster dev` and its web server know the port.
PORT_VARIABLES = ("DAGSTER_CLI_DEV_PORT", "DAGSTER_WEBSERVER_PORT")


@click.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@click.option(
    "-h", "--host", "--dagit-host", default="127.0.0.1", help="Where Dagster's pages are.  [default: 127.0.0.1]"
)
@click.option(
    "-p",
    "--port",
    "--dagit-port",
    type=click.IntRange(0, 65535),
    envvar=PORT_VARIABLES,
    help="Their port.  [default: 3000, or a free one]",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def dev(host: str, port: int | None, arguments: tuple[str, ...]) -> None:
    """Open Dagster: its web server and its daemon.

    The pages of databuild are at /databuild of the same address.

    ARGUMENTS, such as --verbose, go to `dagster dev`; `dagster dev --help` lists them.
    """
    # Refused here in one sentence, and not some seconds later by the web server.
    settings_of_environment()
    home_to_write()
    temporary_folder()
    os.chdir(project_root())
    # Dagster asks code servers of this machine by gRPC, and a proxy of a company does not know the loopback.
    leave_proxies_out()
    port = _free_port(host) if port is None else _checked_port(host, port)
    prefix = os.environ.get("DAGSTER_WEBSERVER_PATH_PREFIX", "")
    shown_host = f"[{host}]" if ":" in host else host
    pages = f"http://{shown_host}:{port}{prefix}/databuild"
    # This process becomes Dagster's, so that Ctrl-C and the exit code are its own.
    module = "databuild_dagster.bindings.adapter.dagster_web"
    os.execv(sys.executable, [sys.executable, "-m", module, pages, "--host", host, "--port", str(port), *arguments])


def _free_port(host: str) -> int:
    """Dagster's own port, or a free port if it is taken. Raises `click.UsageError`."""
    try:
        return _bound(host, DAGSTERS_PORT)
    except OSError:
        return _checked_port(host, 0)


def _bound(host: str, port: int) -> int:
    """The port, or any that is free for 0. Raises `OSError`."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        return int(probe.getsockname()[1])


def _checked_port(host: str, port: int) -> int:
    """The port, if it is free. Raises `click.UsageError`.

    Before the daemon starts: Dagster's web server finds a taken port after some seconds of orchestration.
    """
    try:
        return _bound(host, port)
    except OSError as error:
        raise click.UsageError(
            f"Dagster's pages cannot be on port {port} of {host}: {error.strerror}. Name another one: "
            "`databuild dev -p PORT`. Without -p a free one is found."
        ) from error


# -h is the host, as for `dagster-webserver`.
_SETTINGS = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": ["--help"]}


@click.command(context_settings=_SETTINGS)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def webserver(arguments: tuple[str, ...]) -> None:
    """Open Dagster's web server alone, with databuild's pages.

    ARGUMENTS, such as -h HOST, -p PORT, --path-prefix and --read-only, go to `dagster-webserver`;
    `dagster-webserver --help` lists them. The pages of databuild are at /databuild, below the path prefix.

    The pages have no login: put a proxy with a login in front of a server that other people reach.
    DATABUILD_USER_HEADER names the header in which the proxy gives the user, DATABUILD_API_TOKEN or
    DATABUILD_API_TOKEN_FILE the token of programs that call actions, DATABUILD_HOSTS the names of this server under which
    people act on its pages.
    """
    # The web server takes a second to import.
    from databuild_dagster.bindings.adapter.dagster_web import run_webserver

    settings_of_environment()
    home_to_write()
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
