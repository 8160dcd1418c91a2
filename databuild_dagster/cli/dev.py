"""`databuild dev`: `dagster dev` on the same home and definitions as every other command."""

from __future__ import annotations

import os
import socket
import sys

import click

from databuild_dagster.cli.state import dagster_home
from databuild_dagster.data.home import project_root
from databuild_dagster.spark.pyspark_names import leave_proxies_out
from databuild_dagster.spark.temporary_folder import temporary_folder


@click.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@click.option(
    "-h", "--host", "--dagit-host", default="127.0.0.1", help="Where Dagster's pages are.  [default: 127.0.0.1]"
)
@click.option(
    "-p", "--port", "--dagit-port", type=click.IntRange(0, 65535), help="Their port.  [default: 3000, or a free one]"
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def dev(host: str, port: int | None, arguments: tuple[str, ...]) -> None:
    """Open Dagster: its web server and its daemon.

    ARGUMENTS are those of `dagster dev`.
    """
    dagster_home()
    temporary_folder()
    os.chdir(project_root())
    chosen = ["--host", host]
    if port is not None:
        _check_free(host, port)
        chosen += ["--port", str(port)]
    # Dagster asks code servers of this machine by gRPC, and a proxy of a company does not know the loopback.
    leave_proxies_out()
    # This process becomes Dagster's, so that Ctrl-C and the exit code are its own.
    os.execv(sys.executable, [sys.executable, "-m", "dagster", "dev", *chosen, *arguments])


def _check_free(host: str, port: int) -> None:
    """Before the daemon starts: Dagster's web server finds a taken port after some seconds of orchestration.

    Raises `click.UsageError`.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise click.UsageError(
            f"Dagster's pages cannot be on port {port} of {host}: {error.strerror}. Name another one: "
            "`databuild dev -p PORT`. Without -p a free one is found."
        ) from error
