"""The output of lost launches and of failed attempts: finished job runs are adopted (rule 6.9), other files are removed.

A complete manifest is the last file that a build writes, and it holds all facts of the success. A build first creates a staging
folder named for the job run and removes it last: while the folder of a dead process exists, a clean-up is unfinished.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice, takewhile

import msgspec

from databuild_dagster.data.ownership import Ownership
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import surely_gone
from databuild_dagster.model.events import OutputFact, RunSuccess
from databuild_dagster.model.logs import log_failure, logger
from databuild_dagster.model.refs import Ref, asset_of, derive_partition_uuid
from databuild_dagster.model.states import InstanceState, JobRunState
from databuild_dagster.store.queries.job_runs import JobRunView
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.warehouse import removing
from databuild_dagster.warehouse.disk import remove_tree
from databuild_dagster.warehouse.errors import UNREADABLE_MANIFEST, DiskTrouble, StorageTrouble
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import (
    Manifest,
    ManifestState,
    UriType,
    is_in_attempt,
    manifest_fact,
    manifest_in,
    missing_files,
    read_manifest,
    write_manifest,
)

#: A process of a different host cannot be observed. It learns by its next heartbeat that its job run has ended.
LATE_SECONDS = 3600.0

#: Earlier attempts of a lot in parts that count; each takes over the parts that the attempt before it kept.
MOST_ATTEMPTS = 20

#: States that the building process does not set, so it may have left files; files of a failure stay for inspection.
_LEFT = frozenset({JobRunState.LOST, JobRunState.CANCELED})
_FINISHED = (ManifestState.COMPLETE, ManifestState.EMPTY)

_log = logger(__name__)


def attempts_before(queries: Queries, ref: Ref, uuid: str) -> list[str]:
    """The instances of a ref after its last live instance and before `uuid`, newest first; none of them was ever read."""
    history = queries.instances.history(ref)
    own = next((place for place, instance in enumerate(history) if instance.uuid == uuid), len(history))
    failed = takewhile(lambda instance: instance.live_at is None, reversed(history[:own]))
    return [instance.uuid for instance in islice(failed, MOST_ATTEMPTS)]


def remove_attempts_before(queries: Queries, warehouse: Warehouse, ref: Ref, uuid: str) -> None:
    """Remove the files of failed attempts at a lot in parts (rule 10.4). Raises `DiskTrouble`, `StorageTrouble`."""
    removing.remove_attempts(warehouse, asset_of(ref), attempts_before(queries, ref, uuid))


def instances_of(queries: Queries, refs: Iterable[Ref]) -> list[str]:
    """Every instance of `refs`: two instances may list the same file of an attempt."""
    return [instance.uuid for ref in refs for instance in queries.instances.history(ref)]


def adoptable(
    queries: Queries, warehouse: Warehouse, run_id: str, ref: Ref, inputs: Mapping[Ref, str], code_version: str | None
) -> Manifest | None:
    """The manifest of the ref's instance before this job run's, if a build of it now would make the same (rule 6.9).

    Its job run was lost after it had finished, under this code version, from inputs that readers see still. No want came since,
    because it may ask for a rebuild, and no taint.
    """
    attempts = attempts_before(queries, ref, derive_partition_uuid(run_id, ref))
    lost = next((instance for instance in queries.instances.history(ref) if instance.uuid in attempts[:1]), None)
    run = None if lost is None else queries.job_runs.get(lost.job_run)
    if lost is None or run is None or run.state is not JobRunState.LOST or lost.state is InstanceState.TAINTED:
        return None
    if code_version is None or lost.code_version != code_version:
        return None
    if any(want.created_at > (run.ended_at or 0.0) for want in queries.wants.of_ref(ref)):
        return None
    try:
        manifest = read_manifest(warehouse, asset_of(ref), lost.uuid)
        is_whole = manifest.state in _FINISHED and not manifest.children and not missing_files(warehouse, manifest)
    except UNREADABLE_MANIFEST:
        return None
    if not is_whole or manifest.uri_type is not UriType.PATH or not inputs.items() <= manifest.inputs.items():
        return None
    seen = queries.canonical.of(list(manifest.inputs))
    are_same = all(
        seen[read].uuid == uuid and seen[read].state is InstanceState.LIVE for read, uuid in manifest.inputs.items()
    )
    return manifest if are_same else None


def adopt(warehouse: Warehouse, manifest: Manifest, run_id: str, attempt: int) -> Manifest:
    """Give the finished files of a lost job run to the job run `run_id`; returns the new manifest.

    The files are linked, or copied in an object store, so that the clean-up of either instance leaves the other alone. Files
    of an attempt are listed by both manifests, and a clean-up removes them with the last manifest (`warehouse.removing`).
    Raises `DiskTrouble`, `StorageTrouble`, `ManifestConflict`.
    """
    asset, uuid = manifest.dataset, derive_partition_uuid(run_id, manifest.ref)
    source = warehouse.instance_dir(asset, manifest.instance_uuid)
    names = [file.uri for file in manifest.files if not is_in_attempt(file.uri)]
    removed = "another process removed it at the same time"
    try:
        warehouse.storage.share(source, warehouse.instance_dir(asset, uuid), names)
    except FileNotFoundError as error:
        raise StorageTrouble(path=source, done="adopted", why=removed) from error
    adopted = msgspec.structs.replace(
        manifest,
        instance_uuid=uuid,
        job_run=run_id,
        attempt=attempt,
        created_at=datetime.now(UTC),
        adopted_from=manifest.instance_uuid,
    )
    write_manifest(warehouse, adopted)
    if len(names) < len(manifest.files) and manifest_in(warehouse, source) != manifest:
        # Its clean-up has not seen the new manifest.
        raise StorageTrouble(path=source, done="adopted", why=removed)
    return adopted


class WarehouseRemains:
    """The engine's `Remains` over a warehouse."""

    def __init__(self, engine: Engine, warehouse: str) -> None:
        self._engine = engine
        self._warehouse = Warehouse(warehouse)

    def finished(self, job_runs: Sequence[JobRunView]) -> list[RunSuccess]:
        """The success of each job run whose outputs are all complete; none in a root that the store does not own."""
        found: list[RunSuccess] = []
        if not job_runs or not self._is_own():
            return found
        for run in job_runs:
            outputs = [self._output(run.id, ref) for ref in run.refs]
            if outputs and all(output is not None for output in outputs):
                found.append(RunSuccess(run.id, tuple(output for output in outputs if output is not None)))
        return found

    def clear(self, lost: Iterable[str] = ()) -> list[str]:
        """Remove the files of dead processes' builds that never became live; returns their launches.

        `lost` are launches just found dead; earlier dead launches are found by their staging folders. Cheap without any.
        A folder that cannot be removed is logged, and retried.
        """
        queries = self._engine.queries
        folders, lost = self._warehouse.staging_dirs(), list(lost)
        if not (folders or lost) or not self._is_own():
            return []
        named = queries.job_runs.named(folders)
        seen_to = []
        for launch_id in dict.fromkeys([*(run.launch_id for run in named.values()), *lost]):
            runs = queries.job_runs.of_launch(launch_id)
            if not self.is_over(launch_id, runs):
                continue
            try:
                for run in runs:
                    if run.state in _LEFT:
                        for ref in run.refs:
                            asset, uuid = asset_of(ref), derive_partition_uuid(run.id, ref)
                            removing.discard(self._warehouse, asset, uuid, instances_of(queries, [ref]))
                    elif run.state is JobRunState.SUCCEEDED and run.id in folders:
                        # The process may have died before it removed the earlier attempts.
                        for ref in run.refs:
                            uuid = derive_partition_uuid(run.id, ref)
                            remove_attempts_before(queries, self._warehouse, ref, uuid)
                self._clear_attempts(runs)
                for run in runs:
                    if run.id in folders:
                        remove_tree(folders[run.id])
            except (DiskTrouble, StorageTrouble) as error:
                log_failure(_log, f"the files of launch {launch_id} are not removed yet", error)
                continue
            seen_to.append(launch_id)
        return seen_to

    def _clear_attempts(self, runs: Sequence[JobRunView]) -> None:
        """Remove the files of a dead launch's attempts that no manifest lists. Costs one listing per dataset."""
        for asset in {asset_of(ref) for run in runs for ref in run.refs}:
            found = self._warehouse.attempt_files(asset, [run.id for run in runs])
            if not found:
                continue
            refs = [ref for run in runs for ref in run.refs if asset_of(ref) == asset]
            listed = removing.files_in_attempts(self._warehouse, asset, instances_of(self._engine.queries, refs))
            if listed is not None:
                removing.remove_from_attempts(
                    [file.path for file in found if file.path not in listed and not removing.is_mark(file.path)]
                )

    def _is_own(self) -> bool:
        return Ownership(self._engine.store).why_not(self._warehouse) is None

    def is_over(self, launch_id: str, runs: Sequence[JobRunView]) -> bool:
        """Whether no process can be working on the launch."""
        if any(run.ended_at is None for run in runs):
            return False
        launch = self._engine.queries.launches.get(launch_id)
        if launch is not None and launch.holder is not None and surely_gone(launch.holder):
            return True
        return all(self._engine.clock() - (run.ended_at or 0.0) > LATE_SECONDS for run in runs)

    def _output(self, job_run_id: str, ref: Ref) -> OutputFact | None:
        asset, uuid = asset_of(ref), derive_partition_uuid(job_run_id, ref)
        try:
            manifest = read_manifest(self._warehouse, asset, uuid)
            if manifest.state not in _FINISHED:
                return None
            if missing_files(self._warehouse, manifest):
                return None
        except (*UNREADABLE_MANIFEST, DiskTrouble, StorageTrouble):
            # Not finished: the launch is lost, and its folder stays for the clean-up.
            return None
        return OutputFact(
            ref=ref,
            inputs=manifest.inputs,
            code_version=self._engine.queries.canonical.of([ref])[ref].code_version,
            manifest=manifest_fact(manifest, self._warehouse.manifest_path(asset, uuid)),
        )
