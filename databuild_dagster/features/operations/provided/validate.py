"""`validate`: counts the rows of a dataset's partitions that violate constraints (rule 9.8).

The job of a partition with a violating row fails, and so does the operation; all jobs run, so the report covers all partitions.
A job also fails where a constraint cannot be evaluated, for example an expression that divides by zero: it has no part in the report.
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

from databuild_dagster.data.read_plan import DataRemoved, NothingLive, manifests_in
from databuild_dagster.features.operations.manager import DistributedOperation
from databuild_dagster.features.operations.operation_context import OperationContext, OperationResources
from databuild_dagster.features.operations.seen import Completion
from databuild_dagster.features.operations.spark.validating import (
    SAMPLES,
    PartitionReport,
    check_constraints,
    columns_to_check,
    validate_instances,
)
from databuild_dagster.model.commands import TaintPartitions
from databuild_dagster.model.constraints import AnyConstraint
from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.model.refs import PartitionRef, derive_partition_uuid, parse_ref
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.warehouse.errors import ManifestDamaged, ManifestMissing, NewerManifest
from databuild_dagster.warehouse.manifest import Manifest

#: Partitions that the report names for each rule; it counts all of them.
MAX_PARTITIONS = 1000
#: Largest number of sample rows per rule and partition.
MAX_SAMPLES = 100
#: Named partitions of a rule that have samples.
MAX_SAMPLED = 20
#: Errors of a partition that its own job reports, without affecting other jobs.
_UNREADABLE = (ManifestDamaged, ManifestMissing, NewerManifest)


class ValidateArg(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The constraints, and what happens to partitions that violate them."""

    constraints: tuple[AnyConstraint, ...]
    #: Taint the violating partitions, if readers still see the checked instance.
    taint: bool = False
    #: Sample rows per rule and partition.
    samples: int = SAMPLES
    #: The columns of all partitions as Spark writes them; set when the operation starts, and not to be given.
    columns: str = ""


class Validate(DistributedOperation[ValidateArg]):
    """Counts violating rows and shows samples. Its report has `rules`, as in rules 15."""

    type_name = "validate"
    many = True
    batched = True
    arg_type = ValidateArg
    #: 2 has `columns`.
    version = 2

    def object_id(self, arg: ValidateArg) -> str | None:
        """The same constraints are not checked twice at the same time."""
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
        """With the columns of all partitions, by which each is read, so that batches do not change the report.

        Raises `BadConstraint` for a constraint that does not fit the columns; `NothingLive`, `SchemasDiffer`.
        """
        manifests = [manifest for manifest in _manifests_of(dataset, instances, resources) if manifest.schema.columns]
        if not manifests:
            raise NothingLive(asset=dataset, verb="is", when=" with columns")
        columns = columns_to_check(manifests)
        check_constraints(resources.spark, columns, arg.constraints)
        return replace(arg, columns=columns)

    def start_or_resume_jobs(self, arg: ValidateArg, contexts: Sequence[Any]) -> None:
        """Validate all partitions in a single Spark job with a single scan."""
        first: OperationContext = contexts[0]
        found = []
        for context in contexts:
            try:
                found.append((context, context.manifest))
            except DataRemoved as gone:
                # Superseded and removed since: no reader sees its rows.
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
                columns_text=arg.columns,
                samples=arg.samples,
            )
        for (context, _), report in zip(found, reports, strict=True):
            detail = msgspec.to_builtins(report)
            if not report.holds:
                broken = [f"{rule.constraint} ({rule.rows})" for rule in report.constraints if rule.rows]
                detail["error"] = f"it has rows that offend: {', '.join(broken)}"
            context.mark_job_complete(report.holds, detail)

    def cancel_job_and_cleanup(self, arg: ValidateArg, partition: PartitionRef, context: Any) -> None:
        context.remove_folders()

    def complete_operation(self, arg: ValidateArg, dataset: str, completion: Completion) -> Any:
        """The report, and the taint under a command id of the operation, so that a repetition taints once."""
        resources: OperationResources = completion.resources
        found = [
            (key, msgspec.convert(mark.detail, PartitionReport))
            for key, mark in sorted(completion.marks.items())
            if isinstance(mark.detail, dict) and "constraints" in mark.detail
        ]
        reports = [report for _, report in found]
        seen = resources.engine.queries.instances.with_the_rows_of([report.instance_uuid for report in reports])
        outdated = [report.ref for report in reports if report.instance_uuid not in seen]
        offending = [report for report in reports if not report.holds]
        summary = {
            # Not ok if a partition was not checked.
            "ok": completion.success and bool(reports),
            "partitions": len(reports),
            "rows": sum(report.rows for report in reports),
            "rules": [_rule(constraint, place, reports) for place, constraint in enumerate(arg.constraints)],
            "offending_partitions": len(offending),
            # Not checked; the jobs of offending partitions failed, too.
            "failed": sorted(completion.failed.keys() - {checked for checked, _ in found})[:MAX_PARTITIONS],
            # Their findings are about the instance that was live when the operation began.
            "outdated": outdated[:MAX_PARTITIONS],
            "skipped": {
                key: mark.detail["skipped"]
                for key, mark in sorted(completion.marks.items())
                if isinstance(mark.detail, dict) and "skipped" in mark.detail
            },
        }
        if arg.taint:
            summary["tainted"] = _taint(offending, completion, resources)
        return summary


def _manifests_of(
    dataset: str, instances: Mapping[PartitionRef, str | None], resources: OperationResources
) -> list[Manifest]:
    """Ordered by ref; without partitions whose data is not ours or is removed, which their jobs report."""
    pinned = {parse_ref(ref): uuid for ref, uuid in instances.items()}
    seen = resources.engine.queries.canonical.of(list(pinned))
    # A rebuilt partition may have other columns; its earlier instance is read with those of the others.
    found = [seen[ref] for ref, uuid in pinned.items() if uuid is not None and seen[ref].uuid == uuid]
    ours = sorted((one for one in found if one.manifest_uri is not None), key=lambda one: one.ref)
    try:
        return manifests_in(resources.warehouse, dataset, ours)
    except _UNREADABLE:
        return [manifest for one in ours for manifest in _if_there(dataset, one, resources)]


def _if_there(dataset: str, canonical: Canonical, resources: OperationResources) -> list[Manifest]:
    try:
        return manifests_in(resources.warehouse, dataset, [canonical])
    except _UNREADABLE:
        return []


def _rule(constraint: AnyConstraint, place: int, reports: Sequence[PartitionReport]) -> dict[str, Any]:
    found = [(report, report.constraints[place]) for report in reports if report.constraints[place].rows]
    return {
        "rule": constraint.text,
        "offending": sum(of_rule.rows for _, of_rule in found),
        "n_partitions": len(found),
        "partitions": [
            {
                "ref": report.ref,
                "uuid": report.instance_uuid,
                "offending": of_rule.rows,
                "samples": [_shown(sample) for sample in of_rule.samples] if at < MAX_SAMPLED else [],
            }
            for at, (report, of_rule) in enumerate(found[:MAX_PARTITIONS])
        ],
        "samples": [
            _shown(sample) for sample in [sample for _, of_rule in found for sample in of_rule.samples][:SAMPLES]
        ],
    }


def _shown(sample: str) -> Any:
    """A row as JSON. A number that JSON readers would round stays text, because it may be the violating value."""
    return json.loads(sample, parse_int=_whole, parse_float=_decimal)


def _whole(text: str) -> int | str:
    return int(text) if -(2**63) <= int(text) < 2**64 else text


def _decimal(text: str) -> float | str:
    return float(text) if Decimal(repr(float(text))) == Decimal(text) else text


def _taint(offending: Sequence[PartitionReport], completion: Completion, resources: OperationResources) -> list[str]:
    """The refs tainted by this operation; none whose checked instance is no longer canonical."""
    if not offending:
        return []
    by_rule: dict[str, int] = defaultdict(int)
    for report in offending:
        for of_rule in report.constraints:
            by_rule[of_rule.constraint] += bool(of_rule.rows)
    broken = ", ".join(f"{rule} ({n})" for rule, n in by_rule.items() if n)
    taint_id = derive_partition_uuid(str(completion.id), "taint")
    command = TaintPartitions(
        seen=tuple(report.instance_uuid for report in offending),
        reason=f"{completion.id} found rows that offend: {broken}",
        taint_id=taint_id,
    )
    resources.engine.handle(command, actor=str(completion.id), command_id=derive_partition_uuid(taint_id, "command"))
    return list(resources.engine.queries.instances.tainted_by(taint_id))
