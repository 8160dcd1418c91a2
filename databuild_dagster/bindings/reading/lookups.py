"""The current state by the names of the design documents (rules 13), and the lots that became available.

The functions take a ref as text or `PartitionRef`, and the place to look: a `home`, by default that of DAGSTER_HOME or of
the project, or a Dagster `instance`. They read only the store, so they import neither Dagster nor Spark.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias

from databuild_dagster.data.home import existing_home, store_url_of_home
from databuild_dagster.data.read_plan import AsOf, moment_of, store_at
from databuild_dagster.engine.log_time import LogTime, StoreClock
from databuild_dagster.engine.publishing import Publication
from databuild_dagster.model.coordination import Answer, answer_of, while_paused, why_refused
from databuild_dagster.model.errors import DatabuildError, InvalidRequest
from databuild_dagster.model.pauses import why_refused as why_paused
from databuild_dagster.model.refs import AnyRef, Ref, asset_of, parse_ref
from databuild_dagster.model.states import LEASED, InstanceState
from databuild_dagster.store.backends.heartbeats import Heartbeats
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.instances import Instance
from databuild_dagster.store.queries.job_runs import JobRunView
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.queries.wants import WantView
from databuild_dagster.store.store import Store, open_store

if TYPE_CHECKING:
    from dagster import DagsterInstance


Home = str | Path | None
#: A Dagster instance, in place of a home.
Opened: TypeAlias = "DagsterInstance | None"


@dataclass(frozen=True, slots=True)
class BuildCoordination:
    """The answers that a Dagster run without a person would get for some refs now (rule 8.1). Looking takes no lease."""

    #: Refs that it would build.
    build: tuple[Ref, ...] = ()
    #: Ref to the job run that is building it, or its inputs.
    join: dict[Ref, str] = field(default_factory=dict)
    #: Ref to the live instance.
    reuse: dict[Ref, str] = field(default_factory=dict)
    #: Ref to the reason of its failure, or of its pause.
    refused: dict[Ref, str] = field(default_factory=dict)


def get_canonical_partition(ref: AnyRef, *, home: Home = None, instance: Opened = None) -> Canonical | None:
    """The instance that readers of a ref see; None when it is missing. Raises `InvalidRef`, `NothingBuilt`, `BadHome`."""
    named = parse_ref(ref)
    with opened_store(home, instance) as store:
        canonical = Queries(store).canonical.of([named])[named]
    return None if canonical.state is None else canonical


def get_canonical_partition_uuid(ref: AnyRef, *, home: Home = None, instance: Opened = None) -> str | None:
    """The uuid of the canonical instance; None when it is missing. Raises as `get_canonical_partition`."""
    canonical = get_canonical_partition(ref, home=home, instance=instance)
    return None if canonical is None else canonical.uuid


def get_latest_partition_status(ref: AnyRef, *, home: Home = None, instance: Opened = None) -> InstanceState | None:
    """The canonical state; None when it is missing. Raises as `get_canonical_partition`."""
    canonical = get_canonical_partition(ref, home=home, instance=instance)
    return None if canonical is None else canonical.state


def get_partition_by_uuid(
    uuid: str, *, as_of: AsOf | None = None, home: Home = None, instance: Opened = None
) -> Instance | None:
    """An instance, canonical or not; None where none has that uuid.

    With `as_of`, a time or a seq of the log, the instance as it was then: for example when a job run started. The log is
    folded up to there. Raises `NothingBuilt`, `BadHome`, `InvalidAsOf`, `BeforeAnything`.
    """
    with _queries_at(as_of, home, instance) as queries:
        return queries.instances.get(uuid)


def get_wants_for_partition(
    ref: AnyRef, *, as_of: AsOf | None = None, home: Home = None, instance: Opened = None
) -> list[WantView]:
    """Every want that ever named a ref, the oldest first (rule 5.6); with `as_of`, the wants and their states at that time.

    Raises as `get_canonical_partition`, `InvalidAsOf`, `BeforeAnything`.
    """
    named = parse_ref(ref)
    with _queries_at(as_of, home, instance) as queries:
        return queries.wants.of_ref(named)


@contextmanager
def _queries_at(as_of: AsOf | None, home: Home, instance: Opened) -> Iterator[Queries]:
    with opened_store(home, instance) as store:
        then = moment_of(Queries(store), as_of, datetime.now(UTC))
        with store_at(store, then) as earlier:
            yield Queries(earlier)


def get_build_request_for_available_partition(ref: AnyRef, *, home: Home = None, instance: Opened = None) -> str | None:
    """The Dagster run that built the live instance, or the launch that it came with; None when it is not live.

    `databuild history --requests --request ID` lists what it built. Raises as `get_canonical_partition`.
    """
    with opened_store(home, instance) as store:
        return Queries(store).canonical.build_request_of_live(parse_ref(ref))


def get_active_builds_for_partition(ref: AnyRef, *, home: Home = None, instance: Opened = None) -> list[JobRunView]:
    """The job run that holds the lease of a ref: at most one (I1). Raises as `get_canonical_partition`."""
    with opened_store(home, instance) as store:
        queries, named = Queries(store), parse_ref(ref)
        canonical = queries.canonical.of([named])[named]
        if canonical.state not in LEASED or canonical.job_run is None:
            return []
        job_run = queries.job_runs.get(canonical.job_run)
        return [] if job_run is None else [job_run]


def get_builds_for_partition(
    ref: AnyRef, *, home: Home = None, instance: "DagsterInstance | None" = None
) -> list[JobRunView]:
    """Every job run of a ref, also if ended, the oldest first; `instances` has what each built (rule 2.3).

    A job run that was skipped has no instance and is left out. Raises as `get_canonical_partition`.
    """
    with opened_store(home, instance) as store:
        queries = Queries(store)
        ids = [made.job_run for made in queries.instances.history(parse_ref(ref))]
        found = queries.job_runs.named(ids)
    return [found[id] for id in ids]


def check_build_coordination(
    refs: Iterable[AnyRef], *, home: Home = None, instance: Opened = None
) -> BuildCoordination:
    """Per ref exactly one of build, join, reuse and refused (rule 8.1), as a want or the run of a schedule gets it.

    It does not check that the partition key of a ref without an instance exists, because that needs Dagster. Raises as
    `get_canonical_partition`, and `UnknownAsset` for an asset that nothing builds.
    """
    asked = [parse_ref(ref) for ref in refs]
    with opened_store(home, instance) as store:
        queries = Queries(store)
        heartbeats = Heartbeats(store.database)
        clock = StoreClock(heartbeats, store.url)()
        now = LogTime(heartbeats, queries.events).now(queries.events.head().at, clock, monotonic())
        return coordination_of(queries, asked, now)


def coordination_of(queries: Queries, refs: Sequence[Ref], now: float) -> BuildCoordination:
    """The same at a time of the log. Raises `UnknownAsset` for an asset that nothing builds."""
    by_answer: dict[Answer, list[Canonical]] = {answer: [] for answer in Answer}
    paused = queries.planning.paused(refs, now)
    refused: dict[Ref, str] = {}
    for canonical in queries.canonical.of(refs).values():
        backs_off = canonical.retry_at is not None and canonical.retry_at > now
        answer = answer_of(canonical.state, backs_off=backs_off)
        if answer is Answer.REFUSE:
            refused[canonical.ref] = why_refused(canonical.ref, canonical.state, canonical.reason)
        elif canonical.ref in paused and while_paused(answer, canonical.state) is Answer.REFUSE:
            refused[canonical.ref] = why_paused(canonical.ref, paused[canonical.ref])
        else:
            by_answer[answer].append(canonical)
    for asset in dict.fromkeys(asset_of(canonical.ref) for canonical in by_answer[Answer.BUILD]):
        queries.datasets.known(asset)
    return BuildCoordination(
        build=tuple(canonical.ref for canonical in by_answer[Answer.BUILD]),
        join={canonical.ref: canonical.job_run or "" for canonical in by_answer[Answer.JOIN]},
        reuse={canonical.ref: canonical.uuid or "" for canonical in by_answer[Answer.REUSE]},
        refused=refused,
    )


def available_lots(
    after_seq: int = 0,
    *,
    dataset: str | None = None,
    follow: bool = False,
    home: Home = None,
    instance: Opened = None,
) -> Iterator[Publication]:
    """Each instance that became live, with rows or empty, in the order of the event log (rule 10.3).

    `databuild log events --kind lot-available` prints the same. A caller that keeps the `seq` of the last instance it processed
    misses none; several may have the same seq, because a single event can make many instances live. With `follow` the iterator
    waits for more and never ends. Raises `NothingBuilt`, `BadHome`.
    """
    with opened_store(home, instance) as store:
        # Lot ids need Dagster, and no other lookup does.
        from databuild_dagster.bindings.registry.lot_partitions import announced_lots

        announced = announced_lots(Queries(store), after_seq, follow=follow)
        yield from (found for found in announced if dataset in (None, found.dataset))


class NothingBuilt(DatabuildError):
    """Nothing was ever built in {home}: there is no {path}."""

    hint = "Name the home that has builds, by home= or DAGSTER_HOME, or build something: `databuild build REF`."


@contextmanager
def opened_store(home: str | Path | None, instance: "DagsterInstance | None") -> Iterator[Store]:
    """Open the store for the block only: a notebook is open for days, and its home may be created again meanwhile.

    Raises `NothingBuilt`, `BadHome`, and `InvalidRequest` when both are given.
    """
    if instance is not None:
        if home is not None:
            raise InvalidRequest(what="home", value=str(home), why="instance= has a home already; give one of them")
        from databuild_dagster.bindings.registry.instance import engine_for

        yield engine_for(instance).store
        return
    store = open_store(existing_store_url(existing_home(home)))
    try:
        yield store
    finally:
        store.close()


def existing_store_url(home: Path) -> str:
    """The URL of the store. Raises `NothingBuilt`, because opening a store that does not exist would create it."""
    url = store_url_of_home(home)
    if url is None:
        from databuild_dagster.bindings.registry.instance import open_instance, store_url

        url = store_url(open_instance(home))
    path = url.removeprefix("sqlite:///")
    if path != url and not os.path.exists(path):
        raise NothingBuilt(home=home, path=path)
    return url
