"""`status`: what `databuild status` does, in a script or a notebook.

It loads no user code. Dagster is asked only to count the partitions of an unusual definition, such as a dynamic one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from databuild_dagster.bindings.local.result import Result, Screen
from databuild_dagster.bindings.registry.selections import n_missing
from databuild_dagster.calls.contributions import Shown
from databuild_dagster.calls.place import opened
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.why.orchestrators import Orchestrator, Outage, orchestrators_of, outages_with_refs
from databuild_dagster.engine.why.partitions import shown_pause
from databuild_dagster.feature import rows
from databuild_dagster.model.datasets import DatasetKind, DatasetSpec
from databuild_dagster.model.records import Time, extended, time_of
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of
from databuild_dagster.model.rows import PauseRow
from databuild_dagster.model.selections import STATE_WORDS
from databuild_dagster.model.set_aside import Subject
from databuild_dagster.model.states import InstanceState, WantState
from databuild_dagster.model.wording import counted
from databuild_dagster.store.queries.wants import WantFilter

if TYPE_CHECKING:
    from dagster import DagsterInstance

#: The columns.
NAMES = tuple(dict.fromkeys(STATE_WORDS.values()))
MAX_WANTS = 8
#: Refs that no open want names, in the command that continues with them.
MAX_UNWANTED = 3
#: The open wants that no job run recorded for its inputs (rule 6.4).
ASKED_WANTS = WantFilter(open_only=True, derivative=False)


class AssetStatus(msgspec.Struct, frozen=True):
    """The partitions of one asset, counted by state."""

    asset: str
    live: int
    waiting: int
    building: int
    failed: int
    tainted: int
    missing: int
    #: Live partitions whose keys the definition does not have any more; they are not among the others.
    gone: int

    @property
    def counts(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in NAMES}

    @property
    def is_all_live(self) -> bool:
        return self.live == sum(self.counts.values())

    @property
    def row(self) -> tuple[str | int | None, ...]:
        """For a table with the columns `NAMES`."""
        return self.asset, *(n or None for n in self.counts.values())


class OpenWant(msgspec.Struct, frozen=True):
    """An open want that no job run recorded for its inputs."""

    id: str
    refs: Sequence[Ref]
    state: WantState
    source: str
    deadline: Time | None


class Unwanted(msgspec.Struct, frozen=True):
    """The number of waiting refs that no open want names, and the first of the refs."""

    count: int
    refs: Sequence[Ref]


class PausedAsset(msgspec.Struct, frozen=True):
    """The pause of one command and asset; `refs` is null for all partitions, present and future."""

    asset: str
    refs: Sequence[Ref] | None
    reason: str
    actor: str
    paused_at: Time
    until: Time | None


class ShownAside(msgspec.Struct, frozen=True):
    """A subject that is set aside, with its tries in a row and the time of the next try, if they are known."""

    kind: Subject
    name: str
    location: str
    reason: str
    since: Time
    tries: int | None
    again_at: Time | None


class Status(Result, msgspec.Struct, frozen=True, kw_only=True):
    """How many partitions of each asset are in which state, who waits, and whether orchestrators tick."""

    assets: list[AssetStatus]
    open_wants: int
    #: The first of them.
    wants: list[OpenWant]
    orchestrators: list[Orchestrator]
    unwanted: Unwanted
    paused: list[PausedAsset]
    set_aside: list[ShownAside]
    outages: list[Outage]

    def shown(self) -> Screen:
        live = sum(asset.live for asset in self.assets)
        refs = sum(sum(asset.counts.values()) for asset in self.assets)
        of = f"{counted(refs, 'partition')} of {counted(len(self.assets), 'asset')}"
        head = f"{live} of {of} live; {counted(self.open_wants, 'open want')}."
        table = [asset.row for asset in self.assets]
        outages = chain.from_iterable(orchestrator.outages for orchestrator in self.orchestrators)
        return Screen(head, ("asset", *NAMES), table, [*outages, *(found.sentence for found in self.orchestrators)])


def status(*, home: str | Path | None = None, instance: DagsterInstance | None = None) -> Status:
    """Show all assets by state, open wants and orchestrators, as `databuild status`; `home` and `instance` as in `build`."""
    with opened(instance, home) as place:
        return status_of(place.engine, lambda: place.instance)[0]


def status_of(engine: Engine, instance: Callable[[], Any]) -> tuple[Status, dict[str, Shown]]:
    """The status of a store, and what features add. `instance` opens the Dagster instance."""
    queries = engine.queries
    datasets = sorted(queries.datasets.all().values(), key=lambda spec: spec.asset)
    found = Status(
        assets=[_count(engine, spec, instance) for spec in datasets],
        open_wants=queries.wants.count(ASKED_WANTS),
        wants=[extended(OpenWant, want) for want in queries.wants.newest(ASKED_WANTS, most=MAX_WANTS)],
        orchestrators=orchestrators_of(engine, datasets),
        unwanted=Unwanted(*queries.canonical.unwanted(MAX_UNWANTED)),
        paused=_paused(queries.planning.pauses_in_force(engine.now())),
        set_aside=_set_aside(engine),
        outages=outages_with_refs(engine),
    )
    return found, {row.field: row.show(datasets, instance) for row in rows(lambda feature: feature.status_parts)}


def _paused(pauses: list[PauseRow]) -> list[PausedAsset]:
    groups: dict[tuple[int, str, int], list[PauseRow]] = {}
    for pause in pauses:
        groups.setdefault((pause.seq, asset_of(pause.ref), pause.is_whole), []).append(pause)
    return [
        extended(PausedAsset, shown_pause(group[0]), asset=asset, refs=None if whole else [row.ref for row in group])
        for (_, asset, whole), group in groups.items()
    ]


def _set_aside(engine: Engine) -> list[ShownAside]:
    asides = engine.queries.planning.set_aside()
    noted = {location: engine.heartbeats.tries(location) for location in {aside.location for aside in asides}}
    tries = [noted[aside.location].get(aside.name) for aside in asides]
    return [
        ShownAside(*aside, found and found.n, time_of(found and found.again_at))
        for aside, found in zip(asides, tries, strict=True)
    ]


def _count(engine: Engine, spec: DatasetSpec, instance: Callable[[], Any]) -> AssetStatus:
    states = engine.queries.canonical.states_of_dataset(spec.asset)
    live = [ref for ref, state in states.items() if state is InstanceState.LIVE]
    gone = engine.catalog.left_out(spec, [partition_key_of(ref) for ref in live])
    counts = Counter(STATE_WORDS[state] for state in states.values())
    counts[STATE_WORDS[InstanceState.LIVE]] -= len(gone)
    if spec.kind is not DatasetKind.SOURCE:
        counts[STATE_WORDS[None]] = n_missing(spec, states.keys(), instance)
    return AssetStatus(spec.asset, **{name: counts[name] for name in NAMES}, gone=len(gone))
