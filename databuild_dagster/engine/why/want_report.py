"""Wants by filter, and a want with what it waits for (rules 5.9, 5.10)."""

from __future__ import annotations

from typing import NamedTuple

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.why.explain import Cause, explain
from databuild_dagster.model.datasets import Catalog
from databuild_dagster.model.errors import UnknownPartition
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of
from databuild_dagster.model.states import OPEN_WANTS, InstanceState
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.queries.wants import WantFilter, WantView

#: Wants of one request whose causes are looked for.
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
    found = queries.wants(which, most=most)
    if not found:
        check_names(queries, catalog, which)
    return found


def check_names(queries: Queries, catalog: Catalog, which: WantFilter) -> None:
    """Raises `UnknownAsset`, `UnknownPartition`, and `NotFound` for a source: a misspelled name has no wants either."""
    if which.ref is not None:
        check_partition(queries, catalog, which.ref)
    if which.asset is not None:
        queries.known_dataset(which.asset)
    if which.source is not None:
        queries.check_source(which.source)


def check_partition(queries: Queries, catalog: Catalog, ref: Ref) -> None:
    """Raises `UnknownAsset`, and `UnknownPartition` for a key without an instance that is no key of the asset."""
    asset = asset_of(ref)
    dataset = queries.known_dataset(asset)
    if queries.states([ref])[ref] is None and (why := catalog.why_not(dataset, partition_key_of(ref))):
        raise UnknownPartition(ref=ref, why=why, asset=asset)


def want_reports(engine: Engine, name: str) -> tuple[list[WantView], list[WantReport]]:
    """The wants of a want id or request id, and the reports on the first of them. Raises as `full_id`."""
    wants = engine.queries.known_wants(name)
    return wants, [_report(engine, want) for want in wants[:MAX_EXPLAINED]]


def _report(engine: Engine, want: WantView) -> WantReport:
    causes = explain(engine, want.id).causes
    states = engine.queries.states(want.refs) if want.state in OPEN_WANTS else {}
    needed = {Ref(cause.ref) for cause in causes} - {want.id, *want.refs}
    waits_for = tuple(ref for ref, state in states.items() if state is not InstanceState.LIVE)
    return WantReport(want, waits_for, causes, tuple(engine.queries.derivative_wants(sorted(needed))))
