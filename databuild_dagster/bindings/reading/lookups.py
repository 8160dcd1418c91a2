"""Current state, asked for by the names that the design documents gave (SPEC 13).

Each takes a ref as text or `PartitionRef`, and where to look: the `home`, by default that of DAGSTER_HOME or of the
project, or a Dagster `instance`. They read the store alone, so they cost neither Dagster nor Spark.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from databuild_dagster.bindings.reading.open_store import opened_store
from databuild_dagster.data.read_plan import unknown_asset
from databuild_dagster.model.coordination import ANSWERS, Answer
from databuild_dagster.model.refs import AnyRef, asset_of, parse_ref
from databuild_dagster.model.states import LEASED, InstanceState
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.instances import Instance
from databuild_dagster.store.queries.job_runs import JobRunView
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.queries.wants import WantView

if TYPE_CHECKING:
    from dagster import DagsterInstance


@dataclass(frozen=True, slots=True)
class BuildCoordination:
    """What a request for some refs would get right now (SPEC 8.1). Looking takes no lease."""

    #: Refs that it would build.
    build: tuple[str, ...] = ()
    #: Ref to the job run that is building it, or whose inputs are.
    join: dict[str, str] = field(default_factory=dict)
    #: Ref to the live instance.
    reuse: dict[str, str] = field(default_factory=dict)
    #: Ref to why it failed.
    refused: dict[str, str] = field(default_factory=dict)


def get_canonical_partition(
    ref: AnyRef, *, home: str | Path | None = None, instance: "DagsterInstance | None" = None
) -> Canonical | None:
    """What readers of a ref see; None when it is missing. Raises `InvalidRef`, `NothingBuilt`, `BadHome`."""
    return _canonical([ref], home, instance)[0]


def get_canonical_partition_uuid(
    ref: AnyRef, *, home: str | Path | None = None, instance: "DagsterInstance | None" = None
) -> str | None:
    """The uuid of the canonical instance; None when it is missing. Raises as `get_canonical_partition`."""
    canonical = get_canonical_partition(ref, home=home, instance=instance)
    return None if canonical is None else canonical.uuid


def get_partition_by_uuid(
    uuid: str, *, home: str | Path | None = None, instance: "DagsterInstance | None" = None
) -> Instance | None:
    """An instance, canonical or not; None where there is none of that uuid. Raises `NothingBuilt`, `BadHome`."""
    with opened_store(home, instance) as store:
        return Queries(store).instance(uuid)


def get_wants_for_partition(
    ref: AnyRef, *, home: str | Path | None = None, instance: "DagsterInstance | None" = None
) -> list[WantView]:
    """Every want that ever named a ref, the oldest first (SPEC 5.6). Raises as `get_canonical_partition`."""
    with opened_store(home, instance) as store:
        return Queries(store).wants_of_ref(parse_ref(ref))


def get_latest_partition_status(
    ref: AnyRef, *, home: str | Path | None = None, instance: "DagsterInstance | None" = None
) -> InstanceState | None:
    """The canonical state; None when it is missing. Raises as `get_canonical_partition`."""
    canonical = get_canonical_partition(ref, home=home, instance=instance)
    return None if canonical is None else canonical.state


def get_build_request_for_available_partition(
    ref: AnyRef, *, home: str | Path | None = None, instance: "DagsterInstance | None" = None
) -> str | None:
    """The Dagster run that built the live instance, or the launch that it came with; None when it is not live.

    Raises as `get_canonical_partition`.
    """
    with opened_store(home, instance) as store:
        return Queries(store).build_request_of_live(parse_ref(ref))


def get_active_builds_for_partition(
    ref: AnyRef, *, home: str | Path | None = None, instance: "DagsterInstance | None" = None
) -> list[JobRunView]:
    """The job run that holds the lease of a ref: one, or none (I1). Raises as `get_canonical_partition`."""
    with opened_store(home, instance) as store:
        queries, named = Queries(store), parse_ref(ref)
        canonical = queries.canonical([named])[named]
        if canonical.state not in LEASED or canonical.job_run is None:
            return []
        job_run = queries.job_run(canonical.job_run)
        return [] if job_run is None else [job_run]


def check_build_coordination(
    refs: Iterable[AnyRef], *, home: str | Path | None = None, instance: "DagsterInstance | None" = None
) -> BuildCoordination:
    """Per ref exactly one of build, join, reuse and refused (SPEC 8.1).

    Whether a partition key exists that nothing was built for is not looked at: that would cost Dagster. Raises as
    `get_canonical_partition`, and `UnknownAsset` for what nothing builds.
    """
    asked = [parse_ref(ref) for ref in refs]
    with opened_store(home, instance) as store:
        queries = Queries(store)
        canonical = queries.canonical(asked)
        to_build = [ref for ref, each in canonical.items() if ANSWERS[each.state] is Answer.BUILD]
        for asset in dict.fromkeys(asset_of(ref) for ref in to_build):
            if queries.dataset(asset) is None:
                raise unknown_asset(queries, asset)
    by_answer: dict[Answer, list[Canonical]] = {answer: [] for answer in Answer}
    for each in canonical.values():
        by_answer[ANSWERS[each.state]].append(each)
    return BuildCoordination(
        build=tuple(each.ref for each in by_answer[Answer.BUILD]),
        join={each.ref: each.job_run or "" for each in by_answer[Answer.JOIN]},
        reuse={each.ref: each.uuid or "" for each in by_answer[Answer.REUSE]},
        refused={each.ref: each.reason or "its build failed" for each in by_answer[Answer.REFUSE]},
    )


def _canonical(
    refs: Iterable[AnyRef], home: str | Path | None, instance: "DagsterInstance | None"
) -> list[Canonical | None]:
    asked = [parse_ref(ref) for ref in refs]
    with opened_store(home, instance) as store:
        found = Queries(store).canonical(asked)
    return [None if found[ref].state is None else found[ref] for ref in asked]
