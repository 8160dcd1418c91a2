"""`build_index`: an index of the values in each partition's files, by which filtered reads skip files (rule 9.8).

It cannot fail: a missing index costs time and changes no result. Its findings are saved file by file, so that the next
executor of a job reads no file again.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from databuild_dagster.data.read_plan import DataRemoved, NothingLive, NotOurs, neighbour
from databuild_dagster.features.operations.manager import DistributedOperation
from databuild_dagster.features.operations.operation_context import OperationContext
from databuild_dagster.features.operations.seen import Completion
from databuild_dagster.features.operations.spark.indexing import file_figures, indexable
from databuild_dagster.model.refs import PartitionRef
from databuild_dagster.warehouse.file_index import FileIndex, InstanceIndex, read_index, write_index
from databuild_dagster.warehouse.manifest import FileEntry, Manifest, UriType

#: Size of the saved progress of a partition.
MAX_PROGRESS_BYTES = 1024 * 1024
#: Files that a Spark job reads.
FILES_AT_ONCE = 64


class BuildIndexArg(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The columns to index; none for all whose values have an order."""

    columns: tuple[str, ...] = ()


class _Progress(msgspec.Struct, frozen=True):
    """The files that were read, by uri, and the types of the columns."""

    files: dict[str, FileIndex] = {}
    types: dict[str, str] = {}


class BuildIndex(DistributedOperation[BuildIndexArg]):
    """Records minimum, maximum, nulls and distinct values of columns, per file, beside the manifest."""

    type_name = "build_index"
    can_fail = False
    resumable = True
    batched = True
    apart_from = frozenset({"compact"})
    arg_type = BuildIndexArg

    def check_start(self, arg: BuildIndexArg, dataset: str, refs: list[PartitionRef], resources: Any) -> None:
        """Raises `CannotIndex`, `NothingLive`."""
        newest = neighbour(resources.engine.queries, dataset)
        if newest is None:
            raise NothingLive(asset=dataset, verb="is", when=" with columns")
        indexable([newest], arg.columns)

    def start_or_resume_jobs(self, arg: BuildIndexArg, contexts: Sequence[Any]) -> None:
        """Run a Spark job for every `FILES_AT_ONCE` files, of any partitions."""
        jobs = [_Job(context) for context in contexts]
        of_uuid = {job.manifest.instance_uuid: job for job in jobs if job.manifest is not None}
        left = [(job, file) for job in of_uuid.values() for file in job.left()]
        for start in range(0, len(left), FILES_AT_ONCE):
            some: dict[str, list[FileEntry]] = {}
            for job, file in left[start : start + FILES_AT_ONCE]:
                some.setdefault(job.uuid, []).append(file)
            parts = [replace(of_uuid[uuid].its_manifest, files=tuple(files)) for uuid, files in some.items()]
            types = self._types(arg, parts)
            first: OperationContext = contexts[0]
            for uuid, found in file_figures(first.spark, first.warehouse, parts, types).items():
                of_uuid[uuid].keep(found, types)
        for job in of_uuid.values():
            job.finish()

    def _types(self, arg: BuildIndexArg, manifests: Sequence[Manifest]) -> dict[str, str]:
        """Earlier partitions may have fewer columns."""
        present = {column.name for manifest in manifests for column in manifest.schema.columns}
        named = [column for column in arg.columns if column in present]
        return indexable(manifests, named) if named or not arg.columns else {}

    def complete_operation(self, arg: BuildIndexArg, dataset: str, completion: Completion) -> Any:
        details = {key: mark.detail for key, mark in sorted(completion.marks.items()) if isinstance(mark.detail, dict)}
        skipped = {key: detail["skipped"] for key, detail in details.items() if "skipped" in detail}
        return {
            "ok": True,
            "partitions": len(details) - len(skipped),
            "n_skipped": len(skipped),
            "files": sum(detail.get("files", 0) for detail in details.values()),
            "columns": sorted({column for detail in details.values() for column in detail.get("columns", ())}),
            "skipped": skipped,
        }


class _Job:
    """The job of a partition."""

    def __init__(self, context: OperationContext) -> None:
        self._context = context
        self._found = _Progress() if context.progress is None else msgspec.json.decode(context.progress, type=_Progress)
        self.manifest: Manifest | None = None
        try:
            manifest = context.manifest
        except (DataRemoved, NotOurs) as gone:
            # A retry would not help, and no reader reads it.
            context.mark_job_complete(detail={"files": 0, "skipped": gone.message})
            return
        if manifest.uri_type is UriType.IDENTIFIER:
            context.mark_job_complete(
                detail={"files": 0, "skipped": "its files were adopted, or are in another warehouse"}
            )
        elif not manifest.files:
            context.mark_job_complete(detail={"files": 0, "skipped": "it has no files"})
        else:
            self.manifest = manifest

    @property
    def its_manifest(self) -> Manifest:
        assert self.manifest is not None, "a skipped partition has no further steps"
        return self.manifest

    @property
    def uuid(self) -> str:
        return self.its_manifest.instance_uuid

    def left(self) -> list[FileEntry]:
        return [file for file in self.its_manifest.files if file.uri not in self._found.files]

    def keep(self, found: dict[str, FileIndex], types: dict[str, str]) -> None:
        self._found = _Progress({**self._found.files, **found}, {**self._found.types, **types})
        progress = msgspec.json.encode(self._found)
        if len(progress) <= MAX_PROGRESS_BYTES:
            # Beyond that size the next executor of the job reads some files again.
            self._context.save_progress(progress)

    def finish(self) -> None:
        warehouse, asset = self._context.warehouse, self.its_manifest.dataset
        self._context.check()
        write_index(warehouse, asset, self._beside(read_index(warehouse, asset, self.uuid)))
        self._context.mark_job_complete(detail={"files": len(self._found.files), "columns": sorted(self._found.types)})

    def _beside(self, before: InstanceIndex | None) -> InstanceIndex:
        """Together with what is known of other columns of the same files."""
        found = self._found
        if before is None:
            return InstanceIndex(instance_uuid=self.uuid, types=found.types, files=found.files)
        files = dict(before.files)
        for uri, index in found.files.items():
            known = before.files.get(uri)
            columns = known.columns if known is not None and known.checksum == index.checksum else {}
            files[uri] = replace(index, columns={**columns, **index.columns})
        return InstanceIndex(instance_uuid=self.uuid, types={**before.types, **found.types}, files=files)
