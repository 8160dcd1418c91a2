"""`validate`: which rows of a dataset's partitions offend constraints (SPEC 9.8).

A row that offends is what a job finds, and no failure of the job: so the report is of all partitions. A job fails where a
constraint cannot be asked, of values that an expression cannot divide by, say.
"""

import os
from collections import defaultdict
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec

from databuild_dagster.bindings.operation_context import OperationContext, OperationResources
from databuild_dagster.bindings.readable import DataRemoved, NothingLive, neighbour
from databuild_dagster.engine.operations import Completion, DistributedOperation
from databuild_dagster.model.commands import TaintPartitions
from databuild_dagster.model.constraints import AnyConstraint
from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.model.operations import Mark
from databuild_dagster.model.refs import PartitionRef, derive_partition_uuid
from databuild_dagster.spark.validating import SAMPLES, PartitionReport, check_constraints, validate_instances

#: Partitions that the report names for each rule; it counts all of them.
MAX_PARTITIONS = 1000
#: Rows that may be shown of a rule and partition.
MAX_SAMPLES = 100
#: Those of them whose samples it keeps.
MAX_SAMPLED = 20


class ValidateArg(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to hold, and what to do with partitions in which it does not."""

    constraints: tuple[AnyConstraint, ...]
    #: Taint the offending partitions, if readers still see what was looked at.
    taint: bool = False
    #: Offending rows that are shown of each rule and partition.
    samples: int = SAMPLES


class Validate(DistributedOperation[ValidateArg]):
    """Counts, and shows, rows that offend. Its report has `rules`, as SPEC 15 has them."""

    type_name = "validate"
    many = True
    batched = True
    arg_type = ValidateArg

    def object_id(self, arg: ValidateArg) -> str | None:
        """The same constraints need not be looked at twice at once."""
        return sha256(msgspec.json.encode(arg)).hexdigest()[:8]

    def check_start(self, arg: ValidateArg, dataset: str, refs: list[PartitionRef], resources: Any) -> None:
        """Against the columns of the instance that was made last. Raises `BadConstraint`, `InvalidRequest`, `NothingLive`."""
        if not arg.constraints:
            raise InvalidRequest(what="the list of constraints", value=[], why="there is nothing to check")
        if not 0 <= arg.samples <= MAX_SAMPLES:
            raise InvalidRequest(
                what="samples", value=arg.samples, why=f"it is a number of rows, {MAX_SAMPLES} at most"
            )
        columns = _columns_of(dataset, resources)
        check_constraints(resources.spark, columns, arg.constraints)

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
                first.spark, first.warehouse, manifests, arg.constraints, links, samples=arg.samples
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
            "ok": not offending,
            "partitions": len(reports),
            "rows": sum(each.rows for each in reports),
            "rules": [_rule(constraint, place, reports) for place, constraint in enumerate(arg.constraints)],
            "offending_partitions": len(offending),
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


def _columns_of(dataset: str, resources: OperationResources) -> Any:
    newest = neighbour(resources.engine.queries, dataset)
    if newest is None:
        raise NothingLive(asset=dataset, verb="is", when=" with columns")
    return newest.schema


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
                "samples": list(one.samples) if at < MAX_SAMPLED else [],
            }
            for at, (each, one) in enumerate(found[:MAX_PARTITIONS])
        ],
        "samples": [sample for _, one in found for sample in one.samples][:SAMPLES],
    }


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
