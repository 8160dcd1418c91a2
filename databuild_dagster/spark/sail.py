"""Sail, a server of Spark Connect that is one program without Java (https://github.com/lakehq/sail).

A server of Sail asks its clients for no token. It listens on this machine alone, where any user may use it."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version

from databuild_dagster.spark.errors import SailMissing

#: The distribution with the program.
_PACKAGE = "pysail"
#: Not the program of `pysail` itself, which serves nothing beside a newer PySpark.
_SERVER = "databuild_dagster.spark.sail_server"


def sail_version() -> str:
    """The version of the installed Sail. Raises `SailMissing`."""
    try:
        return version(_PACKAGE)
    except PackageNotFoundError as error:
        raise SailMissing(python=sys.executable) from error


def sail_command(host: str, port: int) -> list[str]:
    """The command that serves at a port, in the interpreter of this process, which also runs the functions of users."""
    return [sys.executable, "-m", _SERVER, "spark", "server", "--ip", host, "--port", str(port)]
