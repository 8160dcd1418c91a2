"""Wants from Python: the resource of sensors and schedules, and the same object outside of Dagster (rules 5.11)."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from dagster import ConfigurableResource, DagsterInstance, InitResourceContext
from pydantic import Field, PrivateAttr

from databuild_dagster.bindings.registry.instance import engine_for, new_engine, open_instance
from databuild_dagster.bindings.registry.registration import register_deployed
from databuild_dagster.bindings.registry.selections import refs_of_names, select_names
from databuild_dagster.data.home import existing_home
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import USER, this_user
from databuild_dagster.engine.why.want_report import WantReport, find_wants, want_reports
from databuild_dagster.model import commands
from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.model.refs import AnyRef, parse_ref
from databuild_dagster.model.states import WantState
from databuild_dagster.store.queries.ids import IdKind
from databuild_dagster.store.queries.wants import WantFilter, WantView

Refs = Iterable[AnyRef]


class Wants(ConfigurableResource[Any]):
    """Records, finds and cancels wants: wanted refs get built, with everything they need.

    A resource for sensors and schedules; `open_wants` opens it elsewhere. An id may be its end, as tables print it.
    """

    location: str = Field(default="", description="The code location whose assets are wanted.")

    _opened: Engine | None = PrivateAttr(default=None)
    _instance: DagsterInstance | None = PrivateAttr(default=None)
    #: The source of its wants where a call names none.
    _source: str = PrivateAttr(default="sensor")

    def setup_for_execution(self, context: InitResourceContext) -> None:
        self._instance = context.instance

    def create(
        self,
        refs: Refs,
        *,
        comment: str = "",
        priority: int = 0,
        ttl_seconds: float | None = commands.DEFAULT_TTL_SECONDS,
        sla_seconds: float | None = None,
        data_timestamp: datetime | None = None,
        together: bool = False,
        rebuild: bool = False,
        fresh: bool = False,
        fail_fast: bool = False,
        source: str | None = None,
        source_id: str | None = None,
        command_id: str | None = None,
    ) -> str:
        """Create a want for each ref, or a single want for all `together`; returns the request's id.

        `sales@2024-01-01..2024-01-31` and `sales@*` are all refs of the range (rule 2.5).
        The SLA counts from `data_timestamp`, the time of the data, or else from now (rule 5.5). `rebuild`, `fresh` and
        `fail_fast` mean what they mean in `databuild want create`. `source` and `source_id` name the requester, such as a sensor.
        A second call with the same `command_id` returns the same request. Raises a subclass of `Refused`, as the command,
        and then creates none.
        """
        engine, source = self._engine(), source or self._source
        named = refs_of_names(engine.queries, lambda: self._instance, tuple(map(parse_ref, refs)))
        outcome = engine.handle(
            commands.CreateWants(
                wants=(named,) if together else tuple((ref,) for ref in named),
                source=source,
                source_id=source_id,
                comment=comment,
                priority=priority,
                ttl_seconds=ttl_seconds,
                sla_seconds=sla_seconds,
                data_timestamp=_seconds_since_1970(data_timestamp),
                rebuild=rebuild,
                fresh=fresh,
                fail_fast=fail_fast,
            ),
            command_id=command_id,
            actor=_actor(source, source_id),
        )
        assert outcome.request_id is not None
        return outcome.request_id

    def cancel(self, *ids: str, reason: str = "", terminate: bool = False) -> int:
        """Cancel wants, by want id or request id, and what is kept for failed wants; returns the number of wants that end.

        Raises `NotFound`, `AmbiguousId`, `WantEnded`.
        """
        engine = self._engine()
        names = tuple(engine.queries.ids.full(IdKind.WANT, id) for id in ids)
        command = commands.CancelWants(ids=names, reason=reason, terminate=terminate)
        return len(engine.handle(command, actor=_actor(self._source, None)).canceled_want_ids)

    def pause(
        self, refs: Refs, *, reason: str, until: datetime | timedelta | None = None, terminate: bool = False
    ) -> None:
        """Keep refs from being launched until they are resumed, or until a time (rule 6.13); their wants stay open.

        A name without a partition key is every present and future partition of its asset; ranges are written as for `create`.
        `terminate` cancels running job runs too. Raises a subclass of `Refused`, as `databuild pause`.
        """
        engine = self._engine()
        end = (
            engine.now() + until.total_seconds()
            if isinstance(until, timedelta)
            else _seconds_since_1970(until, "until")
        )
        names = select_names(engine.queries, lambda: self._instance, map(parse_ref, refs))
        command = commands.PausePartitions(refs=names, reason=reason, until=end, terminate=terminate)
        engine.handle(command, actor=_actor(self._source, None))

    def resume(self, refs: Refs, *, reason: str = "") -> None:
        """End the pauses of refs; an asset alone ends all of its pauses. Raises `NotPaused`, `PausedAsAWhole`, `UnknownAsset`."""
        engine = self._engine()
        names = select_names(engine.queries, lambda: self._instance, map(parse_ref, refs))
        engine.handle(commands.ResumePartitions(refs=names, reason=reason), actor=_actor(self._source, None))

    def status(self, name: str) -> Sequence[WantView]:
        """The wants of a request id, or the want of a want id; empty for an unknown id."""
        return self._engine().queries.wants.named(name)

    def find(
        self,
        *,
        ref: AnyRef | None = None,
        dataset: str | None = None,
        states: Iterable[WantState | str] = (),
        source: str | None = None,
        derivative: bool = False,
        ended: bool = False,
        limit: int = 100,
    ) -> list[WantView]:
        """The open wants, newest first, as `databuild want list` filters them; with `ended` or `states` also ended wants (rule 5.9).

        Raises `UnknownAsset`, `UnknownPartition`, and `NotFound` for a source that no want can have.
        """
        engine, among = self._engine(), tuple(WantState(state) for state in states)
        which = WantFilter(
            open_only=not ended and not among,
            derivative=derivative or source is not None,
            ref=None if ref is None else parse_ref(ref),
            asset=dataset,
            states=among,
            source=source,
        )
        return find_wants(engine.queries, engine.catalog, which, limit)

    def show(self, name: str) -> list[WantReport]:
        """The first wants of a want id or request id, with what they wait for (rule 5.10). Raises `NotFound`, `AmbiguousId`."""
        return want_reports(self._engine(), name)[1]

    def _engine(self) -> Engine:
        if self._opened is not None:
            return self._opened
        assert self._instance is not None, "Dagster sets the resource up before it is used"
        engine = engine_for(self._instance)
        register_deployed(engine, self.location)
        return engine


@contextmanager
def open_wants(home: str | Path | None = None, *, instance: DagsterInstance | None = None) -> Iterator[Wants]:
    """The wants of a Dagster home or instance, outside of Dagster; recorded wants have the source `user`.

    Without both, the home is that of DAGSTER_HOME, or else of the project. It never makes a home. The store knows the assets
    of each code location that was loaded there once. Raises `BadHome`, and `InvalidRequest` when both are given.
    """
    if instance is not None:
        if home is not None:
            raise InvalidRequest(what="home", value=str(home), why="instance= has a home already; give one of them")
        yield _wants_of(engine_for(instance), instance)
        return
    with open_instance(existing_home(home)) as opened:
        # An engine of its own: the home may be removed and made again while this process lives.
        engine = new_engine(opened)
        try:
            yield _wants_of(engine, opened)
        finally:
            engine.store.close()


def _wants_of(engine: Engine, instance: DagsterInstance) -> Wants:
    wants = Wants()
    wants._opened, wants._instance, wants._source = engine, instance, USER
    return wants


def _actor(source: str, source_id: str | None) -> str:
    if source_id is not None:
        return f"{source} {source_id}"
    return this_user() if source == USER else source


def _seconds_since_1970(at: object, what: str = "data_timestamp") -> float | None:
    """Raises `InvalidRequest`: a time without a zone names no moment."""
    if at is None:
        return None
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise InvalidRequest(what=what, value=at, why="it must be a datetime with a time zone")
    return at.timestamp()
