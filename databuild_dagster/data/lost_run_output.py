"""What a lost launch has left behind: job runs that had finished but could not say so are adopted, not built again
(SPEC 6.9), and of the others the files are removed.

A complete manifest is the last thing that a build writes, and it says everything that its success would have said.
The first thing is a staging folder with its job run's name, and it is removed last: while there is one of a process
that is gone, something may be left to clean up, whoever else dies while doing it.
"""

import logging
from collections.abc import Iterable, Sequence

from databuild_dagster.data.part_attempts import remove_attempts_before
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import surely_gone
from databuild_dagster.model.events import OutputFact, RunSuccess
from databuild_dagster.model.refs import Ref, asset_of, derive_partition_uuid
from databuild_dagster.model.states import JobRunState
from databuild_dagster.store.queries.job_runs import JobRunView
from databuild_dagster.warehouse.disk import remove_tree
from databuild_dagster.warehouse.errors import DiskTrouble, ManifestMissing, StorageTrouble
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import ManifestState, manifest_fact, missing_files, read_manifest

#: Of a process on another host nobody knows when it is gone. It hears that its job run has ended by its next heartbeat.
LATE_SECONDS = 3600.0

#: Ended by others than the process that built, which then may have left files; a failure's may be there to be looked at.
_LEFT = frozenset({JobRunState.LOST, JobRunState.CANCELED})

_log = logging.getLogger(__name__)


class WarehouseRemains:
    """The engine's `Remains` over one warehouse."""

    def __init__(self, engine: Engine, warehouse: str) -> None:
        self._engine = engine
        self._warehouse = Warehouse(warehouse)

    def finished(self, job_runs: Sequence[JobRunView]) -> list[RunSuccess]:
        """The success of each job run all of whose outputs lie there complete."""
        found = []
        for run in job_runs:
            outputs = [self._output(run.id, ref) for ref in run.refs]
            if outputs and all(output is not None for output in outputs):
                found.append(RunSuccess(run.id, tuple(output for output in outputs if output is not None)))
        return found

    def clear(self, lost: Iterable[str] = ()) -> list[str]:
        """Remove what dead processes have left of builds that never became live; the launches that it was left of.

        `lost` are launches that were found dead just now; what earlier ones left is found by the staging folders.
        Cheap when there are none. What cannot be removed is logged, and tried again.
        """
        queries = self._engine.queries
        folders, lost = self._warehouse.staging_dirs(), list(lost)
        if not folders and not lost:
            return []
        named = queries.job_runs_named(folders)
        seen_to = []
        for launch_id in dict.fromkeys([*(run.launch_id for run in named.values()), *lost]):
            runs = queries.job_runs_of_launch(launch_id)
            if not self.is_over(launch_id, runs):
                continue
            try:
                for run in runs:
                    if run.state in _LEFT:
                        for ref in run.refs:
                            self._warehouse.remove_instance(asset_of(ref), derive_partition_uuid(run.id, ref))
                    elif run.state is JobRunState.SUCCEEDED and run.id in folders:
                        # It may have died between its end and that of what earlier attempts had kept for it.
                        for ref in run.refs:
                            uuid = derive_partition_uuid(run.id, ref)
                            remove_attempts_before(queries, self._warehouse, ref, uuid)
                for run in runs:
                    if run.id in folders:
                        remove_tree(folders[run.id])
            except (DiskTrouble, StorageTrouble):
                _log.warning("databuild: what launch %s has left is not removed yet", launch_id, exc_info=True)
                continue
            seen_to.append(launch_id)
        return seen_to

    def is_over(self, launch_id: str, runs: Sequence[JobRunView]) -> bool:
        """Whether nobody can be at work on any of it."""
        if any(run.ended_at is None for run in runs):
            return False
        launch = self._engine.queries.launch(launch_id)
        if launch is not None and launch.holder is not None and surely_gone(launch.holder):
            return True
        return all(self._engine.clock() - (run.ended_at or 0.0) > LATE_SECONDS for run in runs)

    def _output(self, job_run_id: str, ref: Ref) -> OutputFact | None:
        asset, uuid = asset_of(ref), derive_partition_uuid(job_run_id, ref)
        try:
            manifest = read_manifest(self._warehouse, asset, uuid)
            if manifest.state not in (ManifestState.COMPLETE, ManifestState.EMPTY):
                return None
            if missing_files(self._warehouse, manifest):
                return None
        except (ManifestMissing, StorageTrouble):
            return None
        return OutputFact(
            ref=ref,
            inputs=manifest.inputs,
            code_version=self._engine.queries.canonical([ref])[ref].code_version,
            manifest=manifest_fact(manifest, self._warehouse.manifest_path(asset, uuid)),
        )
