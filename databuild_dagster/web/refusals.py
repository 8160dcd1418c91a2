"""Errors as answers: the status of each, what an action is refused for before the engine sees it, and errors without places.

An error that names the place of a file or of a database is replaced for a page: the page says what is in trouble and not where."""

from http import HTTPStatus
from typing import ClassVar, Final

from starlette.exceptions import HTTPException

from databuild_dagster.bindings.registry.instance import UnsupportedInstance
from databuild_dagster.model.errors import (
    CommandIdUsed,
    Conflict,
    DatabuildError,
    NotFound,
    Refused,
    UnknownAsset,
    UnknownPartition,
)
from databuild_dagster.model.logs import logger
from databuild_dagster.store.errors import HeartbeatsUnusable, StoreBusy, StoreDamaged, StoreSilent, StoreUnusable

#: Facts of errors that are the place of a file or of a database.
_PLACES: Final = {"url", "path", "root", "folder", "home", "base"}


def names_a_place(error: Exception) -> bool:
    """Whether a page must not show its message: a part of a page that fails so is the failure of the whole page."""
    return isinstance(error, DatabuildError) and bool(_PLACES & error.facts.keys())


class ActionRefused(Refused):
    """The action was refused."""

    status: ClassVar[HTTPStatus] = HTTPStatus.FORBIDDEN


class OnlyRead(ActionRefused):
    """{place!r} cannot be changed by {method}: it is only read."""

    status = HTTPStatus.METHOD_NOT_ALLOWED
    hint = "Use GET; /databuild/api/v1/openapi.json describes the actions, which change the build state."


class OnlyPosted(ActionRefused):
    """{place!r} is an action: POST calls it, and {method} changes nothing."""

    status = HTTPStatus.METHOD_NOT_ALLOWED
    hint = "Use POST; /databuild/api/v1/openapi.json describes its fields."


class ReadOnlyServer(ActionRefused):
    """This web server was started with --read-only, so it changes nothing."""

    hint = "Use the command line, or a web server without --read-only."


class WrongMediaType(ActionRefused):
    """The body of an action is a form or JSON, and this one is {given!r}."""

    status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    hint = "Send it as application/x-www-form-urlencoded or application/json."


class BodyTooLarge(ActionRefused):
    """The body of this action is too large: at most {most:,} bytes are read."""

    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    hint = "Name fewer refs; a range such as sales@2024-01-01..2024-01-31 names many."


class BadBody(ActionRefused):
    """The body of this action cannot be read: {why}."""

    status = HTTPStatus.BAD_REQUEST


class TooManyRefs(ActionRefused):
    """{n:,} partitions are more than a page or the API takes at once: at most {most:,}."""

    status = HTTPStatus.BAD_REQUEST
    hint = "Name fewer partitions; the command line has no such limit."


class OtherOrigin(ActionRefused):
    """The request comes from another site: {why}."""

    hint = "Act on a page of this server. A proxy in between must pass the header Host on as the browser sends it."


class UnknownHost(ActionRefused):
    """The pages change nothing under the host name {host!r}, because this server does not know that name as its own."""

    hint = "If the name is this server's, start it with the name in DATABUILD_HOSTS, such as DATABUILD_HOSTS=pages.example."


class StalePage(ActionRefused):
    """The page has no valid token of this web server, so nothing was done."""

    hint = "Load the page again, and allow cookies for it; a token ends with the web server that made it."


class NoCredentials(ActionRefused):
    """An action needs the form of a page, or the header `Authorization: Bearer TOKEN`."""

    status = HTTPStatus.UNAUTHORIZED


class NoTokenConfigured(ActionRefused):
    """This web server has no token for callers that are no pages."""

    hint = "Start it with DATABUILD_API_TOKEN or DATABUILD_API_TOKEN_FILE, or act on a page."


class WrongToken(ActionRefused):
    """The token of the request is not the one of this web server."""

    status = HTTPStatus.UNAUTHORIZED


class NoName(ActionRefused):
    """A command needs the name of the person or program that gives it."""

    status = HTTPStatus.BAD_REQUEST
    hint = "Type your name; a program gives it as the field actor."


class BadName(ActionRefused):
    """{name!r} is no name for the event log: {why}."""

    status = HTTPStatus.BAD_REQUEST


class NoUserOfProxy(ActionRefused):
    """The proxy in front of this web server names no user in the header {header}, so nothing was done."""

    hint = "Log in at the proxy, and have it set the header for every request."


def status_of(error: Exception) -> int:
    match error:
        case HTTPException(status_code=status):
            return status
        case NotFound() | UnknownAsset() | UnknownPartition():
            return HTTPStatus.NOT_FOUND
        case ActionRefused():
            return error.status
        case Conflict() | CommandIdUsed():
            return HTTPStatus.CONFLICT
        case StoreUnusable():
            return HTTPStatus.SERVICE_UNAVAILABLE
        case Refused():
            return HTTPStatus.BAD_REQUEST
        case DatabuildError() | UnsupportedInstance():
            return HTTPStatus.SERVICE_UNAVAILABLE
        case _:
            return HTTPStatus.INTERNAL_SERVER_ERROR


_logger = logger(__name__)


class NoAnswer(DatabuildError):
    """The web server cannot answer this ({kind})."""

    hint = "{advice}"


class NoBuildState(NoAnswer):
    """The build state beside this Dagster instance cannot be used ({kind})."""


class BuildStateBusy(NoBuildState):
    """The build state beside this Dagster instance is busy with another process ({kind})."""


class BuildStateSilent(NoBuildState):
    """The build state beside this Dagster instance does not answer ({kind})."""


class BuildStateDamaged(NoBuildState):
    """The build state beside this Dagster instance is damaged ({kind})."""


class NoHeartbeats(NoBuildState):
    """The heartbeats beside the build state cannot be used ({kind})."""


class NoWarehouse(NoAnswer):
    """The build state can be used, but the data in the warehouse cannot ({kind})."""


class NoTable(NoAnswer):
    """The build state can be used, but the published table cannot ({kind})."""


class NoBase(NoAnswer):
    """The build state of this environment can be used, but its base cannot ({kind})."""


class NoSpark(NoAnswer):
    """The build state can be used, but Spark cannot ({kind})."""


#: By the package of an error, or by the feature.
_IN_TROUBLE = {
    "store": NoBuildState,
    "bindings": NoBuildState,
    "warehouse": NoWarehouse,
    "data": NoWarehouse,
    "spark": NoSpark,
    "clean": NoWarehouse,
    "environments": NoBase,
    "erase": NoWarehouse,
    "lots": NoWarehouse,
    "migrate": NoBuildState,
    "notices": NoBuildState,
    "operations": NoSpark,
    "tables": NoTable,
}


def without_place(error: Exception, url: str) -> Exception:
    """The error without the places of files; an error that names some is written to the log of the web server."""
    if not isinstance(error, UnsupportedInstance) and not names_a_place(error):
        return error
    _logger.warning("%s: %s", url, error)
    hint = error.hint if isinstance(error, DatabuildError) else ""
    found = _class_for(error)
    # A hint with a fact may name the place.
    advice = hint if hint and "{" not in hint else _where_the_message_is(found)
    return found(kind=type(error).__name__, advice=advice)


def _class_for(error: Exception) -> type[NoAnswer]:
    match error:
        case StoreBusy():
            return BuildStateBusy
        case StoreSilent():
            return BuildStateSilent
        case StoreDamaged():
            return BuildStateDamaged
        case HeartbeatsUnusable():
            return NoHeartbeats
        case _:
            package, *rest = type(error).__module__.split(".")[1:]
            return _IN_TROUBLE.get(rest[0] if package == "features" else package, NoAnswer)


def _where_the_message_is(found: type[NoAnswer]) -> str:
    of_status = ", and `databuild status` prints it" if issubclass(found, NoBuildState) else ""
    return f"The log of the web server has the whole message{of_status}."
