"""An error that names the place of a file or of a database, as one for a page, which says what is in trouble and not where."""

from __future__ import annotations

from databuild_dagster.bindings.registry.instance import UnsupportedInstance
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.logs import logger
from databuild_dagster.store.errors import HeartbeatsUnusable, StoreBusy, StoreDamaged, StoreSilent
from databuild_dagster.web.refusals import names_a_place

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
    "erase": NoWarehouse,
    "lots": NoWarehouse,
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
