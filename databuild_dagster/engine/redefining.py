"""A dataset gets other partitions: instances whose key means another window of time now are for no reader (rule 2.6).

Before the new definition is recorded, the builds of such partitions are canceled, and their live instances tainted. A process
that is killed in between leaves the old definition, and the next one continues."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from msgspec.structs import replace

from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.commands import CancelJobRuns, TaintPartitions
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.events import DatasetRegistered, names_of
from databuild_dagster.model.refs import partition_key_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.wording import counted
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.queries import Queries

_BEING_BUILT = (InstanceState.BUILDING, InstanceState.UPSTREAM_BUILDING)


class Definitions:
    """The partitions definitions that a dataset has had, by the time of their registration."""

    def __init__(self, queries: Queries, asset: str, now: str | None) -> None:
        events = queries.events_named(names_of(DatasetRegistered), 0, queries.head().seq)
        found = [
            (event.at, spec.partitions)
            for event in events
            if isinstance(event.fact, DatasetRegistered)
            for spec in event.fact.datasets
            if spec.asset == asset
        ]
        self._times = [at for at, _ in found]
        self._texts = [text for _, text in found] or [now]

    def of(self, canonical: Canonical) -> str | None:
        """The definition under which an instance became live; of one that is being built, the last one."""
        return self._texts[-1] if canonical.live_at is None else self.at(canonical.live_at)

    def at(self, time: float) -> str | None:
        """The definition in force at a time; before the first registration, the first one."""
        return self._texts[max(bisect_right(self._times, time) - 1, 0)]


def as_of(queries: Queries, spec: DatasetSpec, seq: int) -> DatasetSpec:
    """A dataset with the partitions that it had when `seq` was the last event."""
    at = queries.time_of(seq)
    return spec if at is None else replace(spec, partitions=Definitions(queries, spec.asset, spec.partitions).at(at))


def why_moved(asset: str) -> str:
    """The reason of the taint."""
    return f"the key means another window of time since the partitions of {asset} changed"


def end_moved(engine: Engine, specs: Iterable[DatasetSpec], registered: Iterable[DatasetSpec], actor: str) -> list[str]:
    """Make way for the definitions of `specs`, which are not registered yet. Returns a sentence for each dataset that needs one."""
    present = {spec.asset: spec for spec in registered}
    sentences = []
    for spec in specs:
        now = present.get(spec.asset)
        if now is None or now.partitions == spec.partitions or not spec.kind.is_built:
            continue
        canonical = engine.queries.canonical_of_dataset(spec.asset)
        gone = engine.catalog.left_out(spec, [partition_key_of(one.ref) for one in canonical])
        definitions = Definitions(engine.queries, spec.asset, now.partitions)
        stay = [one for one in canonical if partition_key_of(one.ref) not in gone]
        moved = [one for one in stay if engine.catalog.is_moved(spec, partition_key_of(one.ref), definitions.of(one))]
        why = why_moved(spec.asset)
        if building := [one.job_run for one in moved if one.state in _BEING_BUILT and one.job_run is not None]:
            ids = tuple(dict.fromkeys(building))
            engine.handle(CancelJobRuns(job_run_ids=ids, reason=why, keep_wants=True), actor=actor)
        live = [one.uuid for one in moved if one.state is InstanceState.LIVE and one.uuid is not None]
        if live:
            engine.handle(TaintPartitions(seen=tuple(live), reason=why), actor=actor)
        left = [one for one in canonical if one.state is InstanceState.LIVE and partition_key_of(one.ref) in gone]
        if live or left:
            sentences.append(
                f"The partitions of {spec.asset} changed: {counted(len(live), 'instance')} whose key means another window of time "
                f"became tainted, and readers leave out {len(left)} whose keys are gone. "
                f"databuild relocate {spec.asset} carries over those whose windows exist under new keys."
            )
    return sentences
