"""Wants by filter, a want with what it waits for, and the wants that had an instance built (rules 5.9, 5.10).

The wants of an instance are those open for its ref when it came, back to wants that people recorded. A derivative want (rule 6.4)
names only the job run that missed an input, so the wants behind that job run are added. Runs that joined later had nothing built:
the ledger has them (rule 8.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.why.explain import Cause, explain
from databuild_dagster.model.datasets import Catalog
from databuild_dagster.model.errors import UnknownPartition
from databuild_dagster.model.fold.demands import DERIVATIVE
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of
from databuild_dagster.model.states import OPEN_WANTS, InstanceState
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.queries.wants import Asker, WantFilter, WantView

#: Wants of a request whose causes are looked for.
MAX_EXPLAINED = 10


class WantReport(NamedTuple):
    """A want, and what it waits for, down to the first cause."""

    want: WantView
    #: Its refs that are not live, while it is open.
    waits_for: tuple[Ref, ...]
    causes: tuple[Cause, ...]
    #: The wants that job runs recorded for refs among the causes.
    derivative_wants: tuple[WantView, ...]


def find_wants(queries: Queries, catalog: Catalog, which: WantFilter, most: int) -> list[WantView]:
    """The newest wants of a filter, the newest first. Raises as `check_names` if there are none."""
    found = queries.wants.newest(which, most=most)
    if not found:
        check_names(queries, catalog, which)
    return found


def check_names(queries: Queries, catalog: Catalog, which: WantFilter) -> None:
    """Raises `UnknownAsset`, `UnknownPartition`, and `NotFound` for a source: a misspelled name has no wants either."""
    if which.ref is not None:
        check_partition(queries, catalog, which.ref)
    if which.asset is not None:
        queries.datasets.known(which.asset)
    if which.source is not None:
        queries.wants.check_source(which.source)


def check_partition(queries: Queries, catalog: Catalog, ref: Ref) -> None:
    """Raises `UnknownAsset`, and `UnknownPartition` for a key without an instance that is no key of the asset."""
    asset = asset_of(ref)
    dataset = queries.datasets.known(asset)
    if queries.canonical.states([ref])[ref] is None and (why := catalog.why_not(dataset, partition_key_of(ref))):
        raise UnknownPartition(ref=ref, why=why, asset=asset)


def want_reports(engine: Engine, name: str) -> tuple[list[WantView], list[WantReport]]:
    """The wants of a want id or request id, and the reports on the first of them. Raises as `IdQueries.full`."""
    wants = engine.queries.wants.known(name)
    return wants, [_report(engine, want) for want in wants[:MAX_EXPLAINED]]


def _report(engine: Engine, want: WantView) -> WantReport:
    causes = explain(engine, want.id).causes
    states = engine.queries.canonical.states(want.refs) if want.state in OPEN_WANTS else {}
    needed = {Ref(cause.ref) for cause in causes} - {want.id, *want.refs}
    waits_for = tuple(ref for ref, state in states.items() if state is not InstanceState.LIVE)
    return WantReport(want, waits_for, causes, tuple(engine.queries.wants.derivative(sorted(needed))))


#: Levels of inputs between an instance and a want that are followed.
MOST_LEVELS = 100


def who_asked(queries: Queries, uuids: Iterable[str]) -> dict[str, tuple[Asker, ...]]:
    """The wants of each instance: its own first, then the wants behind them, each once."""
    asked = list(uuids)
    found: dict[str, tuple[Asker, ...]] = {}
    behind: dict[str, Sequence[str]] = {}
    level = set(asked)
    for _ in range(MOST_LEVELS):
        found |= dict.fromkeys(level, ()) | queries.wants.askers(level)
        new = {asker.source_id for uuid in level for asker in found[uuid] if _is_derived(asker)} - behind.keys()
        job_runs = queries.job_runs.named(id_ for id_ in new if id_ is not None)
        behind |= {run.id: run.instances for run in job_runs.values()}
        level = {uuid for run_id in job_runs for uuid in behind[run_id]} - found.keys()
        if not level:
            break
    return {uuid: _all_of(uuid, found, behind) for uuid in asked}


def _is_derived(asker: Asker) -> bool:
    return asker.source == DERIVATIVE and asker.source_id is not None


def _all_of(
    uuid: str, found: Mapping[str, tuple[Asker, ...]], behind: Mapping[str, Sequence[str]]
) -> tuple[Asker, ...]:
    askers: dict[str, Asker] = {}
    left, seen = [uuid], {uuid}
    for instance in left:
        for asker in found.get(instance, ()):
            askers.setdefault(asker.want, asker)
            if _is_derived(asker):
                new = [other for other in behind.get(asker.source_id or "", ()) if other not in seen]
                left += new
                seen.update(new)
    return tuple(askers.values())
