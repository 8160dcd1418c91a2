"""From a url to the kind of Spark that it names, and to the endpoints where it listens.

`sc://…` is a Spark Connect server, whose client has no JVM; every other url is a master, the cluster of a session in a
JVM of this process."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from databuild_dagster.spark.errors import BadSparkUrl

#: Spark Connect's port where the url names none.
CONNECT_PORT: Final = 15002

_HOST_AND_PORT = re.compile(r"^(?P<host>\[[0-9A-Fa-f:.]+\]|[^:/\s\[\]]+)(?::(?P<port>\d{1,5}))?$")


@dataclass(frozen=True, slots=True)
class RemoteSpark:
    """A Spark that others run."""

    url: str
    is_connect: bool
    #: It listens at any of these; empty if only Spark itself can find them (`yarn`).
    endpoints: tuple[tuple[str, int], ...] = ()
    #: The parameters of a Connect url: token, user_id, use_ssl, and the like.
    parameters: tuple[tuple[str, str], ...] = ()

    @property
    def shown(self) -> str:
        """The url for messages, without the token."""
        return self.url.partition("/;")[0] if self.is_connect else self.url


def parse_url(url: str | None) -> RemoteSpark:
    """Parse a url. Raises `BadSparkUrl`, whose message holds no token."""
    if not url or not url.strip():
        raise BadSparkUrl(url=url or "", why="mode='remote' needs a url")
    url = url.strip()
    scheme, separator, rest = url.partition("://")
    if url == "yarn" or re.fullmatch(r"local(\[[^\]]*\]|-cluster\[[^\]]*\])?", url):
        return RemoteSpark(url, is_connect=False)
    if not separator:
        raise BadSparkUrl(url=url.partition(";")[0], why="it has no scheme such as sc:// or spark://")
    match scheme:
        case "sc":
            return _connect(url, rest)
        case "spark":
            hosts = tuple(_endpoint(host, None, url) for host in rest.rstrip("/").split(","))
            return RemoteSpark(url, is_connect=False, endpoints=hosts)
        case "k8s":
            scheme, separator, api = rest.rpartition("://")
            place = api.partition("/")[0]
            return RemoteSpark(
                url, is_connect=False, endpoints=(_endpoint(place, 80 if scheme == "http" else 443, url),)
            )
        case _:
            raise BadSparkUrl(url=url.partition(";")[0], why=f"{scheme}:// is not a scheme of Spark's")


def _connect(url: str, rest: str) -> RemoteSpark:
    place, _, parameters = rest.partition("/")
    shown = f"sc://{place}"
    if parameters and not parameters.startswith(";"):
        raise BadSparkUrl(url=shown, why="after the port only /;key=value;key=value may follow")
    pairs = [parameter.partition("=") for parameter in parameters.split(";") if parameter]
    if not all(key and separator for key, separator, _ in pairs):
        raise BadSparkUrl(url=shown, why="its parameters are not of the form key=value")
    return RemoteSpark(
        url,
        is_connect=True,
        endpoints=(_endpoint(place, CONNECT_PORT, shown),),
        parameters=tuple((key, value) for key, _, value in pairs),
    )


def _endpoint(place: str, default_port: int | None, url: str) -> tuple[str, int]:
    match = _HOST_AND_PORT.match(place)
    if match is None:
        raise BadSparkUrl(url=url, why=f"{place!r} is not host:port")
    port = int(match["port"]) if match["port"] else default_port
    if port is None or not 0 < port < 65536:
        raise BadSparkUrl(url=url, why=f"{place!r} has no port" if port is None else f"{port} is not a port")
    return match["host"].strip("[]"), port
