"""`validate`: which rows of a dataset's partitions offend constraints (SPEC 9.8).

A row that offends is what a job finds, and no failure of the job: so the report is of all partitions. A job fails where a
constraint cannot be asked, of values that an expression cannot divide by, say.
"""

import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from decimal import Decimal
from hashlib import sha256
from typing import Any

import msgspec
from msgspec.structs import replace

from databuild_dagster.bindings.building.operation_context import OperationContext, OperationResources
from databuild_dagster.data.read_plan import DataRemoved, NothingLive, manifests_in
from databuild_dagster.engine.operations.manager import Completion, DistributedOperation
from databuild_dagster.model.commands import TaintPartitions
from databuild_dagster.model.constraints import AnyConstraint
from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.model.operations.records import Mark
from databuild_dagster.model.refs import PartitionRef, derive_partition_uuid
from databuild_dagster.spark.validating import (
    SAMPLES,
    PartitionReport,
    check_constraints,
    columns_to_check,
    validate_instances,
)
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.warehouse.errors import ManifestDamaged, ManifestMissing, NewerManifest
from databuild_dagster.warehouse.manifest import Manifest

#: Partitions that the report names for each rule; it counts all of them.
MAX_PARTITIONS = 1000
#: Rows that may be shown of a rule and partition.
MAX_SAMPLES = 100
#: Those of them whose samples it keeps.
MAX_SAMPLED = 20
#: What its job tells of a partition, and what keeps nobody from looking at the others.
_UNREADABLE = (ManifestDamaged, ManifestMissing, NewerManifest)


class ValidateArg(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to hold, and what to do with partitions in which it does not."""

    constraints: tuple[AnyConstraint, ...]
    #: Taint the offending partitions, if readers still see what was looked at.
    taint: bool = False
    #: Offending rows that are shown of each rule and partition.
    samples: int = SAMPLES
    #: Of all partitions together, as Spark writes them; found out when the operation starts, and not to be given.
    columns: str = ""


class Validate(DistributedOperation[ValidateArg]):
    """Counts, and shows, rows that offend. Its report has `rules`, as SPEC 15 has them."""

    type_name = "validate"
    many = True
    batched = True
    arg_type = ValidateArg
    #: 2 has `columns`.
    version = 2

    def object_id(self, arg: ValidateArg) -> str | None:
        """The same constraints need not be looked at twice at once."""
        asked = {"constraints": arg.constraints, "taint": arg.taint, "samples": arg.samples}
        return sha256(msgspec.json.encode(asked)).hexdigest()[:8]

    def check_start(self, arg: ValidateArg, dataset: str, refs: list[PartitionRef], resources: Any) -> None:
        """Raises `InvalidRequest`."""
        if not arg.constraints:
            raise InvalidRequest(what="the list of constraints", value=[], why="there is nothing to check")
        if not 0 <= arg.samples <= MAX_SAMPLES:
            raise InvalidRequest(
                what="samples", value=arg.samples, why=f"it is a number of rows, {MAX_SAMPLES} at most"
            )

    def argument_to_keep(
        self, arg: ValidateArg, dataset: str, instances: Mapping[PartitionRef, str | None], resources: Any
    ) -> ValidateArg:
        """With the columns of all partitions, by which each is read: the report is the same however they are batched.

        Raises `BadConstraint` for what cannot be asked of these columns; `NothingLive`, `SchemasDiffer`.
        """
        manifests = [each for each in _manifests_of(dataset, instances, resources) if each.schema.columns]
        if not manifests:
            raise NothingLive(asset=dataset, verb="is", when=" with columns")
        columns = columns_to_check(manifests)
        check_constraints(resources.spark, columns, arg.constraints)
        return replace(arg, columns=columns)

    def start_or_resume_jobs(self, arg: ValidateArg, contexts: Sequence[Any]) -> None:
        """One Spark job, in one scan, for all of them."""
        first: OperationContext = contexts[0]
        found = []
        for context in contexts:
            try:
                found.append((context, context.manifest))
            except DataRemoved as gone:
                # Superseded since, and taken away: nobody reads what offends there.
                context.mark_job_complete(detail={"skipped": gone.message})
        if not found:
            return
        with first.folder() as folder:
            links = os.path.join(folder, "links")
            manifests = [manifest for _, manifest in found]
            reports = validate_instances(
                first.spark,
                first.warehouse,
                manifests,
                arg.constraints,
                links,
                # None where older code has started it: then each batch is read with its own.
                columns_text=arg.columns,
                samples=arg.samples,
            )
        for (context, _), report in zip(found, reports, strict=True):
            context.mark_job_complete(detail=msgspec.to_builtins(report))

    def cancel_job_and_cleanup(self, arg: ValidateArg, partition: PartitionRef, context: Any) -> None:
        context.remove_folders()

    def complete_operation(self, arg: ValidateArg, dataset: str, completion: Completion) -> Any:
        """The report; and the taint, under the operation's own command id, so that it is one however often this runs."""
        resources: OperationResources = completion.resources
        reports = [
            msgspec.convert(mark.detail, PartitionReport)
            for _, mark in sorted(completion.marks.items())
            if isinstance(mark.detail, dict) and "constraints" in mark.detail
        ]
        seen = resources.engine.queries.with_the_rows_of([each.instance_uuid for each in reports])
        outdated = [each.ref for each in reports if each.instance_uuid not in seen]
        offending = [each for each in reports if not each.holds]
        report = {
            # Of what was not looked at nobody can tell.
            "ok": completion.success and bool(reports) and not offending,
            "partitions": len(reports),
            "rows": sum(each.rows for each in reports),
            "rules": [_rule(constraint, place, reports) for place, constraint in enumerate(arg.constraints)],
            "offending_partitions": len(offending),
            "failed": sorted(completion.failed)[:MAX_PARTITIONS],
            # What they say is of the instance that was live when the operation began.
            "outdated": outdated[:MAX_PARTITIONS],
            "skipped": {
                key: mark.detail["skipped"] for key, mark in sorted(completion.marks.items()) if _is_skipped(mark)
            },
        }
        if arg.taint:
            report["tainted"] = _taint(offending, completion, resources)
        return report


def _is_skipped(mark: Mark) -> bool:
    return isinstance(mark.detail, dict) and "skipped" in mark.detail


def _manifests_of(
    dataset: str, instances: Mapping[PartitionRef, str | None], resources: OperationResources
) -> list[Manifest]:
    """Ordered by ref; without what is not ours, or gone, of which its job tells."""
    seen = resources.engine.queries.canonical([str(ref) for ref in instances])
    # Who was rebuilt since has other columns, maybe: its instance of before is read with those of the others.
    found = [seen[str(ref)] for ref, uuid in instances.items() if uuid is not None and seen[str(ref)].uuid == uuid]
    ours = sorted((each for each in found if each.manifest_uri is not None), key=lambda each: each.ref)
    try:
        return manifests_in(resources.warehouse, dataset, ours)
    except _UNREADABLE:
        return [manifest for each in ours for manifest in _if_there(dataset, each, resources)]


def _if_there(dataset: str, canonical: Canonical, resources: OperationResources) -> list[Manifest]:
    try:
        return manifests_in(resources.warehouse, dataset, [canonical])
    except _UNREADABLE:
        return []


def _rule(constraint: AnyConstraint, place: int, reports: Sequence[PartitionReport]) -> dict[str, Any]:
    found = [(each, each.constraints[place]) for each in reports if each.constraints[place].rows]
    return {
        "rule": constraint.text,
        "offending": sum(one.rows for _, one in found),
        "n_partitions": len(found),
        "partitions": [
            {
                "ref": each.ref,
                "uuid": each.instance_uuid,
                "offending": one.rows,
                "samples": [_shown(each) for each in one.samples] if at < MAX_SAMPLED else [],
            }
            for at, (each, one) in enumerate(found[:MAX_PARTITIONS])
        ],
        "samples": [_shown(each) for each in [sample for _, one in found for sample in one.samples][:SAMPLES]],
    }


def _shown(sample: str) -> Any:
    """A row as JSON has it. A number that JSON's readers would round stays text: it may be what offends."""
    return json.loads(sample, parse_int=_whole, parse_float=_decimal)


def _whole(text: str) -> int | str:
    return int(text) if -(2**63) <= int(text) < 2**64 else text


def _decimal(text: str) -> float | str:
    return float(text) if Decimal(repr(float(text))) == Decimal(text) else text


def _taint(offending: Sequence[PartitionReport], completion: Completion, resources: OperationResources) -> list[str]:
    """The refs that are tainted because of this operation; none whose instance readers see no more."""
    if not offending:
        return []
    by_rule: dict[str, int] = defaultdict(int)
    for report in offending:
        for each in report.constraints:
            by_rule[each.constraint] += bool(each.rows)
    broken = ", ".join(f"{rule} ({n})" for rule, n in by_rule.items() if n)
    taint_id = derive_partition_uuid(str(completion.id), "taint")
    command = TaintPartitions(
        seen=tuple(each.instance_uuid for each in offending),
        reason=f"{completion.id} found rows that offend: {broken}",
        taint_id=taint_id,
    )
    resources.engine.handle(command, actor=str(completion.id), command_id=derive_partition_uuid(taint_id, "command"))
    return list(resources.engine.queries.tainted_by(taint_id))
