"""`databuild dev`: `dagster dev` on the same home and definitions as every other command, with the pages of databuild."""

from __future__ import annotations

import os
import socket
import sys

import click

from databuild_dagster.cli.state import dagster_home
from databuild_dagster.data.home import project_root
from databuild_dagster.spark.java import temporary_folder
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

    ARGUMENTS are those of `dagster dev`, such as --verbose; `dagster dev --help` lists them.
    """
    # Refused here in one sentence, and not some seconds later by the web server.
    settings_of_environment()
    dagster_home()
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
    """Dagster's own port, or a free one if that is taken. Raises `click.UsageError`."""
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
