"""`build_index`: what values the files of each partition hold, so that readers with a filter pass files over (SPEC 9.8).

It cannot fail: an index that is not there costs time, and no answer. What it has found out is kept file by file, so that
whoever goes on with a job looks at no file again.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from databuild_dagster.bindings.operation_context import OperationContext
from databuild_dagster.bindings.readable import DataRemoved, NothingLive, NotOurs, neighbour
from databuild_dagster.engine.operations import Completion, DistributedOperation
from databuild_dagster.model.refs import PartitionRef
from databuild_dagster.spark.indexing import file_figures, indexable
from databuild_dagster.warehouse import Manifest, UriType
from databuild_dagster.warehouse.file_index import FileIndex, InstanceIndex, read_index, write_index

#: Files that one Spark job looks at.
FILES_AT_ONCE = 64


class BuildIndexArg(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of which columns; none for all whose values have an order."""

    columns: tuple[str, ...] = ()


class BuildIndex(DistributedOperation[BuildIndexArg]):
    """Keeps the smallest and the largest value, nulls and distinct values of columns, per file, beside the manifest."""

    type_name = "build_index"
    can_fail = False
    resumable = True
    apart_from = frozenset({"compact"})
    arg_type = BuildIndexArg

    def check_start(self, arg: BuildIndexArg, dataset: str, refs: list[PartitionRef], resources: Any) -> None:
        """Raises `CannotIndex`, `NothingLive`."""
        newest = neighbour(resources.engine.queries, dataset)
        if newest is None:
            raise NothingLive(asset=dataset, verb="is", when=" with columns")
        indexable(newest, arg.columns)

    def start_or_resume_job(self, arg: BuildIndexArg, partition: PartitionRef, context: Any) -> None:
        job: OperationContext = context
        try:
            manifest = job.manifest
        except (DataRemoved, NotOurs) as gone:
            # It could be tried for ever, and nobody reads it.
            job.mark_job_complete(detail={"files": 0, "skipped": gone.message})
            return
        if manifest.uri_type is UriType.IDENTIFIER or not manifest.files:
            job.mark_job_complete(detail={"files": 0, "skipped": "it has no files of its own"})
            return
        # Earlier partitions may have fewer columns.
        named = [column for column in arg.columns if any(own.name == column for own in manifest.schema.columns)]
        types = indexable(manifest, named) if named or not arg.columns else {}
        found = _kept(job.progress)
        for some in _portions(manifest, found):
            found |= file_figures(job.spark, job.warehouse, some, types)
            job.save_progress(msgspec.json.encode(found))
        job.check()
        index = _beside(read_index(job.warehouse, manifest.dataset, manifest.instance_uuid), manifest, types, found)
        write_index(job.warehouse, manifest.dataset, index)
        job.mark_job_complete(detail={"files": len(found), "columns": sorted(types)})

    def complete_operation(self, arg: BuildIndexArg, dataset: str, completion: Completion) -> Any:
        details = {key: mark.detail for key, mark in sorted(completion.marks.items()) if isinstance(mark.detail, dict)}
        return {
            "ok": True,
            "partitions": len(details),
            "files": sum(each.get("files", 0) for each in details.values()),
            "columns": sorted({column for each in details.values() for column in each.get("columns", ())}),
            "skipped": {key: each["skipped"] for key, each in details.items() if "skipped" in each},
        }


def _kept(progress: bytes | None) -> dict[str, FileIndex]:
    return {} if progress is None else msgspec.json.decode(progress, type=dict[str, FileIndex])


def _portions(manifest: Manifest, known: dict[str, FileIndex]) -> Iterator[Manifest]:
    left = [file for file in manifest.files if file.uri not in known]
    for start in range(0, len(left), FILES_AT_ONCE):
        yield msgspec.structs.replace(manifest, files=tuple(left[start : start + FILES_AT_ONCE]))


def _beside(
    before: InstanceIndex | None, manifest: Manifest, types: dict[str, str], found: dict[str, FileIndex]
) -> InstanceIndex:
    """With what is known of other columns of the same files."""
    if before is None:
        return InstanceIndex(instance_uuid=manifest.instance_uuid, types=types, files=found)
    files = dict(before.files)
    for uri, each in found.items():
        known = before.files.get(uri)
        columns = known.columns if known is not None and known.checksum == each.checksum else {}
        files[uri] = msgspec.structs.replace(each, columns={**columns, **each.columns})
    return InstanceIndex(instance_uuid=manifest.instance_uuid, types={**before.types, **types}, files=files)
