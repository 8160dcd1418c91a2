"""The engine's `Foreign`: the state of plain and external assets, from Dagster's event log (rule 6.11).

A partition of such an asset is live if its latest materialization is newer than its latest failed attempt. The storage id
of the materialization identifies its data.
"""

from collections import defaultdict
from collections.abc import Iterable

from dagster import AssetKey, DagsterEventType, DagsterInstance, DagsterRunStatus, RunsFilter

from databuild_dagster.bindings.adapter.keys import asset_key
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.data.environment import environment_of
from databuild_dagster.engine.ports import Observation
from databuild_dagster.model.datasets import DatasetKind
from databuild_dagster.model.refs import Ref, asset_of, make_ref, partition_key_of
from databuild_dagster.model.states import InstanceState

#: Dagster runs per query.
RUNS_PER_QUERY = 200

#: A failed attempt: the run, and the storage id of its planned event.
_Attempt = tuple[str, int]


class ForeignAssets:
    """Observes plain Dagster assets and external assets."""

    def __init__(self, instance: DagsterInstance) -> None:
        self._instance = instance

    def observe(self, refs: tuple[Ref, ...]) -> dict[Ref, Observation]:
        """An observation per ref. The number of queries per asset does not depend on the number of partitions."""
        keys: dict[str, list[str | None]] = defaultdict(list)
        seen = self._of_base(refs) if environment_of(self._instance.root_directory) is not None else {}
        for ref in refs:
            if ref in seen:
                continue
            keys[asset_of(ref)].append(partition_key_of(ref))
        for asset, partition_keys in keys.items():
            partitions = {key for key in partition_keys if key is not None}
            if partitions:
                observed = self._partitions(asset_key(asset), partitions)
                seen.update((make_ref(asset, key), observation) for key, observation in observed.items())
            if None in partition_keys:
                seen[make_ref(asset, None)] = self._unpartitioned(asset_key(asset))
        return seen

    def _of_base(self, refs: tuple[Ref, ...]) -> dict[Ref, Observation]:
        """Sources in an environment, of which only its base knows news (rule 16.5)."""
        queries = engine_for(self._instance).queries
        sources = {spec.asset for spec in queries.datasets.all().values() if spec.kind is DatasetKind.SOURCE}
        known = queries.canonical.of([ref for ref in refs if asset_of(ref) in sources])
        why = "its base had no data of it"
        return {ref: Observation(one.state is InstanceState.LIVE, one.known_origin, why) for ref, one in known.items()}

    def _partitions(self, key: AssetKey, partitions: set[str]) -> dict[str, Observation]:
        log = self._instance.event_log_storage
        places = log.get_latest_storage_id_by_partition(key, DagsterEventType.ASSET_MATERIALIZATION, partitions)
        planned = log.get_latest_asset_partition_materialization_attempts_without_materializations(key)
        attempts = {partition: attempt for partition, attempt in planned.items() if partition in partitions}
        failed = self._failed({run_id for run_id, _ in attempts.values()})
        return {
            partition: _observation(places.get(partition), attempts.get(partition), failed) for partition in partitions
        }

    def _unpartitioned(self, key: AssetKey) -> Observation:
        log = self._instance.event_log_storage
        place = log.get_latest_materialization_storage_ids([key]).get(key)
        planned = log.get_latest_planned_materialization_info(key)
        attempt = None if planned is None else (planned.run_id, planned.storage_id)
        return _observation(place, attempt, self._failed({planned.run_id} if planned is not None else ()))

    def _failed(self, run_ids: Iterable[str]) -> set[str]:
        ids = list(run_ids)
        failed: set[str] = set()
        for start in range(0, len(ids), RUNS_PER_QUERY):
            filters = RunsFilter(run_ids=ids[start : start + RUNS_PER_QUERY], statuses=[DagsterRunStatus.FAILURE])
            failed.update(run.run_id for run in self._instance.get_runs(filters=filters))
        return failed


def _observation(place: int | None, attempt: _Attempt | None, failed: set[str]) -> Observation:
    if attempt is not None and attempt[0] in failed and (place is None or attempt[1] > place):
        return Observation(live=False, reason=f"Dagster run {attempt[0]} failed to materialize it")
    if place is None:
        return Observation(live=False, reason="Dagster has no materialization of it")
    return Observation(live=True, origin=f"dagster event {place}")
