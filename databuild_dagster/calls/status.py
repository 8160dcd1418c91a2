"""`status`: what `databuild status` does, in a script or a notebook.

It loads no user code. Dagster is asked only to count the partitions of an unusual definition, such as a dynamic one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from databuild_dagster.bindings.local.result import Result, Screen
from databuild_dagster.bindings.registry.selections import n_missing
from databuild_dagster.calls.place import opened
from databuild_dagster.engine.engine import Engine
from databuild_dagster.feature import rows
from databuild_dagster.model.datasets import DatasetKind, DatasetSpec
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of
from databuild_dagster.model.rows import PauseRow
from databuild_dagster.model.selections import STATE_WORDS
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.wording import counted
from databuild_dagster.shapes.contributions import Shown
from databuild_dagster.shapes.orchestrators import Orchestrator, orchestrators_of
from databuild_dagster.store.queries.planning import AsideSubject
from databuild_dagster.store.queries.wants import WantFilter, WantView

if TYPE_CHECKING:
    from dagster import DagsterInstance

#: The columns.
NAMES = tuple(dict.fromkeys(STATE_WORDS.values()))
MAX_WANTS = 8
#: Refs that no open want names, in the command that continues with them.
MAX_UNWANTED = 3
#: The open wants that no job run recorded for its inputs (rule 6.4).
ASKED_WANTS = WantFilter(open_only=True, derivative=False)


@dataclass(frozen=True)
class AssetStatus:
    """The partitions of one asset, counted by column."""

    asset: str
    counts: Counter[str]
    #: Live partitions whose keys the definition does not have any more; they are not among the counted.
    n_gone: int

    @property
    def is_all_live(self) -> bool:
        return set(+self.counts) <= {"live"}

    def as_dict(self) -> dict[str, object]:
        return {"asset": self.asset, **{name: self.counts[name] for name in NAMES}, "gone": self.n_gone}


@dataclass(frozen=True, kw_only=True, repr=False)
class Status(Result):
    """How many partitions of each asset are in which state, who waits, and whether orchestrators tick."""

    assets: Sequence[AssetStatus]
    #: The number of open wants that no job run recorded for its inputs.
    open_wants: int
    #: The first of them.
    wants: Sequence[WantView]
    orchestrators: Sequence[Orchestrator]
    #: One group for each command and asset.
    paused: Sequence[Sequence[PauseRow]]
    #: The number of waiting refs that no open want names.
    n_unwanted: int
    #: The first of them.
    unwanted: Sequence[Ref]
    set_aside: Sequence[AsideSubject]
    #: What features add.
    parts: Mapping[str, Shown]

    def shown(self) -> Screen:
        live = sum(asset.counts["live"] for asset in self.assets)
        refs = sum(sum(asset.counts.values()) for asset in self.assets)
        of = f"{counted(refs, 'partition')} of {counted(len(self.assets), 'asset')}"
        head = f"{live} of {of} live; {counted(self.open_wants, 'open want')}."
        table = [(asset.asset, *(asset.counts[name] or None for name in NAMES)) for asset in self.assets]
        outages = chain.from_iterable(orchestrator.outages for orchestrator in self.orchestrators)
        return Screen(head, ("asset", *NAMES), table, [*outages, *(found.sentence for found in self.orchestrators)])


def status(*, home: str | Path | None = None, instance: DagsterInstance | None = None) -> Status:
    """Show all assets by state, open wants and orchestrators, as `databuild status`; `home` and `instance` as in `build`."""
    with opened(instance, home) as place:
        return status_of(place.engine, lambda: place.instance)


def status_of(engine: Engine, instance: Callable[[], Any]) -> Status:
    """The status of a store. `instance` opens the Dagster instance."""
    datasets = sorted(engine.queries.datasets().values(), key=lambda spec: spec.asset)
    n_unwanted, unwanted = engine.queries.unwanted(MAX_UNWANTED)
    return Status(
        assets=[_count(engine, spec, instance) for spec in datasets],
        open_wants=engine.queries.n_wants(ASKED_WANTS),
        wants=engine.queries.wants(ASKED_WANTS, most=MAX_WANTS),
        orchestrators=orchestrators_of(engine, datasets),
        paused=_grouped(engine.queries.pauses_in_force(engine.now())),
        n_unwanted=n_unwanted,
        unwanted=unwanted,
        set_aside=engine.queries.set_aside(),
        parts={row.field: row.show(datasets, instance) for row in rows(lambda feature: feature.status_parts)},
    )


def _grouped(pauses: list[PauseRow]) -> list[list[PauseRow]]:
    """One group for each command and asset."""
    groups: dict[tuple[int, str, int], list[PauseRow]] = {}
    for pause in pauses:
        groups.setdefault((pause.seq, asset_of(pause.ref), pause.is_whole), []).append(pause)
    return list(groups.values())


def _count(engine: Engine, spec: DatasetSpec, instance: Callable[[], Any]) -> AssetStatus:
    states = engine.queries.states_of_dataset(spec.asset)
    live = [ref for ref, state in states.items() if state is InstanceState.LIVE]
    gone = engine.catalog.left_out(spec, [partition_key_of(ref) for ref in live])
    counts = Counter(STATE_WORDS[state] for state in states.values())
    counts[STATE_WORDS[InstanceState.LIVE]] -= len(gone)
    if spec.kind is not DatasetKind.SOURCE:
        counts[STATE_WORDS[None]] = n_missing(spec, states.keys(), instance)
    return AssetStatus(spec.asset, counts, len(gone))
