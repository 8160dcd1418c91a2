"""`/databuild/health/live` and `/ready`: what Kubernetes asks a web server (rule 11.8)."""

import asyncio
from concurrent.futures import Future
from http import HTTPStatus
from typing import Final

from databuild_dagster.features.health.checks import (
    Finding,
    Health,
    SlowStore,
    Status,
    failed,
    look,
    worst,
)
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.logs import logger
from databuild_dagster.store.errors import LogWentBack, StoreReplaced
from databuild_dagster.warehouse.threads import in_own_thread
from databuild_dagster.web.refusals import without_place
from databuild_dagster.web.routes import Probe
from databuild_dagster.web.state import State

_logger = logger(__name__)

#: The bounds of the answers. A probe of Kubernetes waits for 1 s unless it says more.
READY_SECONDS: Final = 2.0
LIVE_SECONDS: Final = 0.5


class _Looks:
    """One look at a time, in a thread of its own: a log that is away keeps one thread, however often it is asked for."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._looking: Future[list[Finding]] | None = None

    async def found(self, seconds: float) -> list[Finding]:
        """The findings of a look that begins now, or that has not ended yet. Raises what it raises, and `SlowStore`."""
        if self._looking is None or self._looking.done():
            self._looking = in_own_thread(lambda: look(self._state.engine), "databuild health")
        try:
            # The look continues when a request stops waiting for it.
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(self._looking)), seconds)
        except TimeoutError:
            raise SlowStore(seconds=seconds) from None


async def _ready(state: State) -> tuple[Health, HTTPStatus]:
    """Whether the log can be used now. What a person has to do is in the answer, and fails nothing."""
    try:
        found = await state.made_once(_Looks).found(READY_SECONDS)
    except Exception as error:  # Dagster's own storage may raise anything.
        return _failed(error)
    return Health(worst(found), found), HTTPStatus.OK


async def _live(state: State) -> tuple[Health, HTTPStatus]:
    """Whether a restart would help nothing.

    It helps after the log was replaced or taken over. A log that went back is a person's to judge, and a process that is started
    again may not know of it (decision 0064).
    """
    try:
        await state.made_once(_Looks).found(LIVE_SECONDS)
    except Exception as error:
        if isinstance(error, StoreReplaced) and not isinstance(error, LogWentBack):
            return _failed(error)
    return Health(Status.OK, []), HTTPStatus.OK


def _failed(error: Exception) -> tuple[Health, HTTPStatus]:
    """The log of the web server has the places of files, and the answer has not."""
    found = without_place(error, "/health")
    if isinstance(found, DatabuildError):
        says = str(found)
    else:
        _logger.error("The build state cannot be opened.", exc_info=error)
        says = (
            f"The build state cannot be opened ({type(error).__name__}); the log of the web server has the traceback."
        )
    return Health(Status.FAILED, failed(error, says)), HTTPStatus.SERVICE_UNAVAILABLE


PROBES: Final = (Probe("/health/live", _live), Probe("/health/ready", _ready))
