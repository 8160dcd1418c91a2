"""`compact`: partitions in many small files get few large files with the same rows (rule 9.8).

A job writes a new instance, verifies that its rows equal the rows of the old instance, and moves the pointer if readers
still see the old instance. The job's fence token is the job run of the new instance, so all files of a job can be found by it.
"""

from typing import Any

import msgspec

from databuild_dagster.data.ownership import Ownership
from databuild_dagster.data.read_plan import DataRemoved, NotOurs
from databuild_dagster.features.operations.manager import DistributedOperation
from databuild_dagster.features.operations.operation_context import OperationContext
from databuild_dagster.features.operations.seen import Completion
from databuild_dagster.features.operations.spark.compacting import TARGET_BYTES, compact_instance, files_after
from databuild_dagster.model.commands import InvokeMeta, ReplaceFiles
from databuild_dagster.model.errors import InvalidRequest, Refused
from databuild_dagster.model.events import LotArrived, ManifestFact
from databuild_dagster.model.meta_storage import do
from databuild_dagster.model.refs import PartitionRef, derive_partition_uuid, parse_ref
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Manifest, UriType, manifest_fact
from databuild_dagster.warehouse.removing import discard, remove_from_attempts

#: More than any file of Parquet that a reader opens.
MAX_TARGET_BYTES = 2**40


class CompactArg(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The target size of a file, in bytes."""

    target_bytes: int = TARGET_BYTES


class Compact(DistributedOperation[CompactArg]):
    """Rewrites small files as large files. Instances built from the old instance stay fresh."""

    type_name = "compact"
    apart_from = frozenset({"build_index"})
    arg_type = CompactArg

    def check_start(self, arg: CompactArg, dataset: str, refs: list[PartitionRef], resources: Any) -> None:
        """Raises `InvalidRequest`; `NotOurs` for a dataset without data of ours."""
        if arg.target_bytes < 1:
            raise InvalidRequest(what="target_bytes", value=arg.target_bytes, why="a file has at least one byte")
        if arg.target_bytes > MAX_TARGET_BYTES:
            raise InvalidRequest(what="target_bytes", value=arg.target_bytes, why="a file has at most 1 TiB")
        spec = resources.engine.queries.datasets.get(dataset)
        if spec is not None and spec.kind.is_foreign:
            raise NotOurs(ref=dataset)

    def start_or_resume_job(self, arg: CompactArg, partition: PartitionRef, context: Any) -> None:
        job: OperationContext = context
        ref = parse_ref(partition)
        try:
            manifest = job.manifest
        except (DataRemoved, NotOurs) as gone:
            job.mark_job_complete(detail={"skipped": gone.message})
            return
        seen = job.engine.queries.canonical.of([ref])[ref]
        if seen.uuid != manifest.instance_uuid:
            if job.engine.queries.instances.with_the_rows_of([manifest.instance_uuid]):
                # Compacted by a process that was killed before its report.
                _complete(job, manifest, seen.files or 0)
            else:
                job.mark_job_complete(detail={"moved": True})
            return
        n_files = len(manifest.files)
        if manifest.uri_type is UriType.IDENTIFIER:
            skipped = "its files were adopted, or are in another warehouse"
            job.mark_job_complete(detail={"skipped": skipped, "files_before": n_files, "files_after": n_files})
        elif files_after(manifest, arg.target_bytes) >= n_files:
            job.mark_job_complete(detail={"files_before": n_files, "files_after": n_files})
        else:
            self._compact(arg, manifest, job)

    def _compact(self, arg: CompactArg, manifest: Manifest, job: OperationContext) -> None:
        uuid = derive_partition_uuid(job.token, manifest.ref)
        Ownership(job.engine.store).claim(job.warehouse)
        with job.folder() as folder:
            compacted = compact_instance(
                job.spark, job.warehouse, manifest, folder, uuid=uuid, job_run=job.token, target_bytes=arg.target_bytes
            )
        fact = manifest_fact(compacted, job.warehouse.manifest_path(compacted.dataset, uuid))
        job.check()
        try:
            self._swing(manifest, fact, job)
        except Refused as refused:
            # Rebuilt, tainted or being built by now: readers no longer see the compacted instance.
            self.cancel_job_and_cleanup(arg, job.ref, job)
            job.mark_job_complete(detail={"moved": True, "why": refused.message})
            return
        _complete(job, manifest, len(compacted.files))

    def _swing(self, manifest: Manifest, fact: ManifestFact, job: OperationContext) -> None:
        """Move the pointer. Raises `LeaseLost` if a process has cleaned up after this job, and refusals of the command."""
        outcome = job.engine.handle(
            ReplaceFiles(ref=manifest.ref, uuid=manifest.instance_uuid, job_run_id=job.token, manifest=fact),
            actor=str(job.operation),
            command_id=_command_of(job.token),
        )
        if not isinstance(outcome.events[0].fact, LotArrived):
            job.check()

    def cancel_job_and_cleanup(self, arg: CompactArg, partition: PartitionRef, context: Any) -> None:
        """Remove files that never became an instance.

        Their writer may only be asleep between its lease check and its command. So the command's id is used up first,
        and the command has no effect any more.
        """
        job: OperationContext = context
        uuid, asset = derive_partition_uuid(job.token, str(partition)), partition.asset
        if job.is_stopped and _is_written(job.warehouse, asset, uuid):
            job.engine.handle(
                InvokeMeta(statements=(do(),)), actor=str(job.operation), command_id=_command_of(job.token)
            )
        if job.engine.queries.instances.get(uuid) is None:
            discard(job.warehouse, asset, uuid)
            remove_from_attempts([file.path for file in job.warehouse.attempt_files(asset, [job.token])])
        job.remove_folders()

    def complete_operation(self, arg: CompactArg, dataset: str, completion: Completion) -> Any:
        details = {key: mark.detail for key, mark in sorted(completion.marks.items()) if isinstance(mark.detail, dict)}
        return {
            "ok": True,
            "partitions": len(details),
            "compacted": sum(bool(detail.get("compacted")) for detail in details.values()),
            "files_before": sum(detail.get("files_before", 0) for detail in details.values()),
            "files_after": sum(detail.get("files_after", 0) for detail in details.values()),
            # Rebuilt, tainted or being built meanwhile, and left unchanged.
            "moved": [key for key, detail in details.items() if detail.get("moved")],
            "skipped": {key: detail["skipped"] for key, detail in details.items() if "skipped" in detail},
        }


def _is_written(warehouse: Warehouse, asset: str, uuid: str) -> bool:
    try:
        warehouse.storage.read_bytes(warehouse.manifest_path(asset, uuid))
    except FileNotFoundError:
        return False
    return True


def _command_of(token: str) -> str:
    return derive_partition_uuid(token, "command")


def _complete(job: OperationContext, manifest: Manifest, n_files: int) -> None:
    job.mark_job_complete(detail={"compacted": True, "files_before": len(manifest.files), "files_after": n_files})
