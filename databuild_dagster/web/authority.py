"""Who may act, and the name that the log records: a page of this server with its token, or a caller with the bearer token.

A page's token belongs to a cookie that the browser sends to no other site (SameSite=Strict), and is made with a secret of this
process: another site can neither read it nor guess it. The request must come from the same origin besides, and from a known
host: for a browser, a page that lets its own name lead to this server has the same origin.
"""

import hmac
import secrets
import socket
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from databuild_dagster.web import refusals
from databuild_dagster.web.settings import Settings

SESSION_COOKIE: Final = "databuild_session"
NAME_COOKIE: Final = "databuild_name"
#: The name that a person typed is kept so long.
NAME_SECONDS: Final = 365 * 24 * 3600
MAX_NAME: Final = 100
#: Behind the name of a person or program that no login has confirmed.
UNVERIFIED: Final = "(unverified)"
_BEARER: Final = "bearer "
#: A name with a parenthesis could imitate the mark of another name.
_NOT_IN_NAMES: Final = "()"


@dataclass(frozen=True)
class Actor:
    """The actor of a command; `typed` is the name to keep in a cookie."""

    text: str
    typed: str | None = None


class Authority:
    """Decides over the actions of a web server."""

    def __init__(self, settings: Settings, path: str) -> None:
        self._settings = settings
        #: The path of the cookies.
        self._path = path
        self._secret = secrets.token_bytes(32)

    @property
    def is_read_only(self) -> bool:
        return self._settings.read_only

    @property
    def asks_for_names(self) -> bool:
        """Whether a person types his name, because no proxy gives it."""
        return self._settings.user_header is None

    def check_writable(self) -> None:
        """Raises `ReadOnlyServer`."""
        if self._settings.read_only:
            raise refusals.ReadOnlyServer

    def actor(self, request: Request, csrf: str | None, name: str | None) -> Actor:
        """The actor of a request that may act. Raises a subclass of `ActionRefused`."""
        if csrf is not None:
            self._check_page(request, csrf)
            return self.actor_of_page(request, name)
        self._check_bearer(request)
        if not name:
            raise refusals.NoName
        return Actor(f"api:{checked_name(name)} {UNVERIFIED}")

    def actor_of_page(self, request: Request, name: str | None = None) -> Actor:
        """The user that the proxy names, or else the typed name, or the name typed before. Raises `ActionRefused`."""
        header = self._settings.user_header
        if header is not None:
            users = request.headers.getlist(header)
            # Two of them: one may be the client's own, which the proxy has left there.
            if len(users) != 1 or not users[0].strip():
                raise refusals.NoUserOfProxy(header=header)
            return Actor(f"web:{checked_name(_utf8(users[0]))}")
        typed = name or self.typed_name(request)
        if not typed:
            raise refusals.NoName
        typed = checked_name(typed)
        return Actor(f"web:{typed} {UNVERIFIED}", typed)

    def typed_name(self, request: Request) -> str:
        """The name in the cookie; empty if it is missing or not a valid name."""
        try:
            return checked_name(unquote(cookie_of(request, NAME_COOKIE), errors="strict"))
        except (refusals.BadName, UnicodeDecodeError):
            return ""

    # The token of a page

    def page_token(self, request: Request) -> tuple[str, str]:
        """The session of the browser, new for a browser without a session, and the token for its forms."""
        session = cookie_of(request, SESSION_COOKIE)
        if not (len(session) == 43 and session.isascii() and session.isprintable()):
            session = secrets.token_urlsafe(32)
        return session, self._token_of(session)

    def keep_session(self, request: Request, response: Response, session: str) -> None:
        self._set_cookie(request, response, SESSION_COOKIE, session, None)

    def keep_name(self, request: Request, response: Response, name: str) -> None:
        self._set_cookie(request, response, NAME_COOKIE, quote(name, safe=""), NAME_SECONDS)

    def _set_cookie(self, request: Request, response: Response, name: str, value: str, seconds: int | None) -> None:
        response.set_cookie(
            name,
            value,
            max_age=seconds,
            path=self._path,
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )

    def _token_of(self, session: str) -> str:
        return hmac.new(self._secret, session.encode(), "sha256").hexdigest()

    def _check_page(self, request: Request, csrf: str) -> None:
        """Raises `OtherOrigin`, `UnknownHost`, `StalePage`."""
        host = check_origin(request)
        # The login of a proxy is a cookie of the proxy's own name, which a browser sends to no other one.
        if self._settings.user_header is None and not is_known_host(host, self._settings.hosts):
            raise refusals.UnknownHost(host=host[:MAX_NAME])
        session = cookie_of(request, SESSION_COOKIE)
        if not session or not hmac.compare_digest(self._token_of(session).encode(), csrf.encode("utf-8", "replace")):
            raise refusals.StalePage

    def _check_bearer(self, request: Request) -> None:
        """Raises `NoCredentials`, `NoTokenConfigured`, `WrongToken`."""
        given = request.headers.get("authorization", "")
        if not given.lower().startswith(_BEARER):
            raise refusals.NoCredentials
        if self._settings.token is None:
            raise refusals.NoTokenConfigured
        token = given[len(_BEARER) :].strip()
        if not hmac.compare_digest(self._settings.token.encode(), token.encode("utf-8", "replace")):
            raise refusals.WrongToken


def check_origin(request: Request) -> str:
    """The host of the page that acts. A browser names the origin of a request that changes something, and no page can change that.

    Raises `OtherOrigin`.
    """
    site = request.headers.get("sec-fetch-site")
    if site not in (None, "same-origin"):
        raise refusals.OtherOrigin(why=f"the browser calls it {site[:20]}")
    origin = request.headers.get("origin")
    if origin is None:
        if site is None:
            raise refusals.OtherOrigin(why="it names no origin")
        return _host_of(request.headers.get("host", ""))
    # A page of another site cannot set the second header, which a proxy sets that replaces the first.
    hosts = {request.headers.get("host"), request.headers.get("x-forwarded-host")} - {None, ""}
    try:
        place = urlsplit(origin).netloc
    except ValueError:
        place = ""
    if place not in hosts:
        raise refusals.OtherOrigin(why="its origin is not the host of this server")
    return _host_of(place)


def _host_of(place: str) -> str:
    """The host without its port, in small letters; empty for no host."""
    try:
        return (urlsplit(f"//{place}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def is_known_host(host: str, configured: Collection[str]) -> bool:
    """Whether no stranger can let the host lead to this server: an address, a name without a dot, or a name of this server.

    Only a name that its owner publishes can lead first to one machine and later to a different machine, and such a name has a dot.
    """
    try:
        ip_address(host)
    except ValueError:
        is_private = host != "" and ("." not in host or host.endswith(".localhost"))
        return is_private or host in configured or host == socket.gethostname().lower()
    return True


def check_is_opened(request: Request) -> None:
    """A confirmation takes the lock of writers for a moment, so a foreign page may link to it and not load it as an image
    or by a script. Raises `OtherOrigin`."""
    is_opened = request.headers.get("sec-fetch-mode") in (None, "navigate")
    if request.headers.get("sec-fetch-site") in ("cross-site", "same-site") and not is_opened:
        raise refusals.OtherOrigin(why="a page of it loads this one without opening it")


def cookie_of(request: Request, name: str) -> str:
    """The value of a cookie; empty if the cookie is missing or sent twice: a second one may come from a different program."""
    found = []
    for header in request.headers.getlist("cookie"):
        for part in header.split(";"):
            key, is_pair, value = part.strip().partition("=")
            if is_pair and key == name:
                found.append(value)
    return found[0] if len(found) == 1 else ""


def _utf8(value: str) -> str:
    """A header's value, which Starlette reads as Latin-1."""
    try:
        return value.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return value


def checked_name(name: str) -> str:
    """The name of a person or program as the log has it. Raises `BadName`."""
    found = name.strip()
    if not found or len(found) > MAX_NAME or not found.isprintable():
        raise refusals.BadName(name=found[:MAX_NAME], why=f"it must be 1 to {MAX_NAME} printable characters")
    if any(sign in found for sign in _NOT_IN_NAMES):
        raise refusals.BadName(name=found, why="it must have no brackets")
    return found
