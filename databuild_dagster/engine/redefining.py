"""A dataset gets other partitions: instances whose key means another window of time now are for no reader (rule 2.6).

Before the new definition is recorded, the builds of such partitions are canceled, and their instances tainted. A process
that is killed in between leaves the old definition, and the next one continues."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.commands import CancelJobRuns, TaintPartitions
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.errors import JobRunEnded
from databuild_dagster.model.events import DatasetRegistered, names_of
from databuild_dagster.model.refs import partition_key_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.wording import counted, typed
from databuild_dagster.store.log import Head
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.queries import Queries

#: Builds that end while they are being canceled are looked at again so often.
_MAX_RACES = 5


class Definitions:
    """The partitions definitions that a dataset has had, by the seq of their registration."""

    def __init__(self, queries: Queries, asset: str) -> None:
        events = queries.events_named(names_of(DatasetRegistered), 0, queries.head().seq)
        found = [
            (event.seq, spec.partitions)
            for event in events
            if isinstance(event.fact, DatasetRegistered)
            for spec in event.fact.datasets
            if spec.asset == asset
        ]
        self._seqs = [seq for seq, _ in found]
        self._texts = [text for _, text in found]

    def __bool__(self) -> bool:
        return bool(self._texts)

    @property
    def last(self) -> str | None:
        """The last one, also of a dataset that was removed since."""
        return self._texts[-1] if self._texts else None

    def at(self, seq: int) -> str | None:
        """The definition in force at a seq; before the first registration, the first one."""
        return self._texts[max(bisect_right(self._seqs, seq) - 1, 0)] if self._texts else None


def as_of(queries: Queries, spec: DatasetSpec, seq: int) -> DatasetSpec:
    """A dataset with the partitions that it had when `seq` was the last event."""
    definitions = Definitions(queries, spec.asset)
    return replace(spec, partitions=definitions.at(seq)) if definitions else spec


def why_moved(asset: str) -> str:
    """The reason of the taint."""
    return f"the key means another window of time since the partitions of {asset} changed"


def moved_of(
    engine: Engine, spec: DatasetSpec, canonical: Collection[Canonical], definitions: Definitions
) -> list[Canonical]:
    """Those of the instances whose key meant another window when they were begun."""
    born = engine.queries.seqs_of([one.uuid for one in canonical if one.uuid is not None])
    return [
        one
        for one in canonical
        if one.uuid in born and engine.catalog.is_moved(spec, partition_key_of(one.ref), definitions.at(born[one.uuid]))
    ]


def end_moved(
    engine: Engine, specs: Iterable[DatasetSpec], registered: Iterable[DatasetSpec], head: Head, actor: str
) -> list[str]:
    """Make way for the definitions of `specs`, which are not registered yet; `head` is the end of the log, 0 if it was not read.

    Returns a sentence for each dataset that needs one.
    """
    present = {spec.asset: spec for spec in registered}
    sentences: list[str] = []
    if not present and not head.seq:
        return sentences
    for spec in specs:
        if not spec.kind.is_built or not _may_change(engine, spec, present):
            continue
        definitions = Definitions(engine.queries, spec.asset)
        if not definitions or definitions.last == spec.partitions:
            continue
        n_moved, n_gone = _ended(engine, spec, definitions, actor)
        if n_moved or n_gone:
            sentences.append(
                f"The partitions of {spec.asset} changed: {counted(n_moved, 'instance')} whose key means another window of time "
                f"became tainted, and readers leave out {n_gone} whose keys are gone. "
                f"`databuild relocate {typed(spec.asset)}` carries over those whose windows exist under new keys."
            )
    return sentences


def _may_change(engine: Engine, spec: DatasetSpec, present: Mapping[str, DatasetSpec]) -> bool:
    if (now := present.get(spec.asset)) is not None:
        return now.partitions != spec.partitions
    # It may have been there before.
    return bool(engine.queries.states_of_dataset(spec.asset))


def _ended(engine: Engine, spec: DatasetSpec, definitions: Definitions, actor: str) -> tuple[int, int]:
    """Cancel and taint; the number of instances that readers lose by that, and by keys that are gone."""
    why = why_moved(spec.asset)
    for race in range(_MAX_RACES):
        canonical = engine.queries.canonical_of_dataset(spec.asset)
        gone = engine.catalog.left_out(spec, [partition_key_of(one.ref) for one in canonical])
        stay = [one for one in canonical if partition_key_of(one.ref) not in gone]
        moved = moved_of(engine, spec, stay, definitions)
        # One that waits for its inputs has no job run any more: the next one begins under the new definition.
        building = [one.job_run for one in moved if one.state is InstanceState.BUILDING and one.job_run is not None]
        if not building:
            break
        ids = tuple(dict.fromkeys(building))
        try:
            engine.handle(CancelJobRuns(job_run_ids=ids, reason=why, keep_wants=True), actor=actor)
        except JobRunEnded:
            if race == _MAX_RACES - 1:
                raise
    was_live = {one.uuid: one.state for one in moved if one.live_at is not None and one.uuid is not None}
    taints = engine.queries.taints_in_force(was_live)
    live = [uuid for uuid, state in was_live.items() if state is InstanceState.LIVE]
    # Another taint may be taken back.
    marked = {uuid for uuid, found in taints.items() if why in {taint.reason for taint in found}}
    tainted = [uuid for uuid, state in was_live.items() if state is InstanceState.TAINTED and uuid not in marked]
    if live or tainted:
        engine.handle(TaintPartitions(seen=tuple(live), uuids=tuple(tainted), reason=why), actor=actor)
    left = [one for one in canonical if one.state is InstanceState.LIVE and partition_key_of(one.ref) in gone]
    return len(live), len(left)
