"""Whether something listens at a host and port, and answers; each question has a bound in seconds."""

import socket
from contextlib import ExitStack, suppress

from databuild_dagster.spark.errors import SparkUnreachable
from databuild_dagster.spark.settings import LOOPBACK

CONNECT_SECONDS = 2.0
#: As long as gRPC waits for the same answer.
ANSWER_SECONDS = 20.0

#: The first bytes of a client of HTTP/2, with empty settings; a server answers with its own settings.
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
_TLS = "it speaks TLS, and the url lacks /;use_ssl=true"
#: The first byte of answers of other servers: HTTP 1 with and without its head, and an alert or a handshake of TLS.
_WEB = "a web server answers there, and no Spark Connect"
_OTHERS = {b"H": _WEB, b"<": _WEB, b"\x15": _TLS, b"\x16": _TLS}


def check_reachable(host: str, port: int) -> str:
    """This machine's address on the way there. Raises `SparkUnreachable`, where PySpark would try for ten minutes."""
    try:
        with socket.create_connection((host, port), timeout=CONNECT_SECONDS) as connection:
            return str(connection.getsockname()[0])
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise SparkUnreachable(host=host, port=port, why=why) from error


def accepts(host: str, port: int) -> bool:
    """Whether something accepts connections there."""
    with suppress(SparkUnreachable):
        check_reachable(host, port)
        return True
    return False


def check_answers(host: str, port: int, seconds: float | None = None) -> None:
    """Raise `SparkUnreachable` if what accepts connections there is silent for so long, or is no gRPC server without TLS.

    The kernel accepts connections for a frozen server, and PySpark's error says that the server was lost. PySpark retries
    without end at a server that is no gRPC server.
    """
    seconds = ANSWER_SECONDS if seconds is None else seconds
    try:
        with socket.create_connection((host, port), timeout=CONNECT_SECONDS) as connection:
            connection.settimeout(seconds)
            connection.sendall(_HELLO)
            first = connection.recv(1)
    except TimeoutError as error:
        why = f"it accepts connections and has been silent for {seconds:.0f} s"
        raise SparkUnreachable(host=host, port=port, why=why) from error
    except OSError:
        # A server that closes the connection runs; the session's own error says more.
        return
    if (other := _OTHERS.get(first)) is not None:
        raise SparkUnreachable(host=host, port=port, why=other)


def free_ports(n: int) -> list[int]:
    """Different free ports of this machine: each is held until all are found."""
    with ExitStack() as probes:
        found = [probes.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) for _ in range(n)]
        for probe in found:
            probe.bind((LOOPBACK, 0))
        return [int(probe.getsockname()[1]) for probe in found]
