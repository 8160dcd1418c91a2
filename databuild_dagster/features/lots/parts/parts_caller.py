"""A lot in parts: one call of the function per part; the lot is published when all parts are done (rule 10.4)."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from threading import BoundedSemaphore

from databuild_dagster.bindings.building.call import Call, Leftovers, Stops, Tools
from databuild_dagster.bindings.building.outputs import Outputs, unwrapped
from databuild_dagster.bindings.building.provenance import code_digest
from databuild_dagster.bindings.claims.results import Attempt, Failed, Missed, Result
from databuild_dagster.bindings.declare.build_context import BuildContext, HostedRun
from databuild_dagster.bindings.declare.outcomes import EMPTY, BadResult, DepMiss
from databuild_dagster.bindings.registry.lot_partitions import lot_id_of
from databuild_dagster.data.inputs import Inputs
from databuild_dagster.features.lots.parts.lot_in_parts import LotInParts, Part
from databuild_dagster.features.lots.parts.lot_parts import PartSplit
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.redaction import traceback_of
from databuild_dagster.model.refs import Ref, asset_of, derive_partition_uuid
from databuild_dagster.model.wording import counted
from databuild_dagster.spark.failures import explain_failure, is_lost
from databuild_dagster.spark.staging import publish

#: Failed parts of one lot whose tracebacks are logged.
MAX_TRACEBACKS = 3


class PartsCaller:
    """Calls the function of one step for each part of a lot."""

    def __init__(
        self, split: PartSplit, tools: Tools, outputs: Outputs, stops: Stops, leftovers: Leftovers, *, threads: int
    ) -> None:
        self._split = split
        self._tools = tools
        self._body = tools.body
        self._frames = tools.frames
        self._outputs = outputs
        self._stops = stops
        self._leftovers = leftovers
        #: Parts built at the same time, of all lots together.
        self._parts_at_once = split.at_once or threads
        self._part_slots = BoundedSemaphore(self._parts_at_once)

    def call(self, call: Call, inputs: Mapping[Ref, Inputs], context: BuildContext, folder: str) -> Attempt:
        """One call per part. Finished parts stay if another part fails, and are removed if the lot fails (rule 10.4)."""
        split = self._split
        (run,), (ref,) = call.runs, call.refs
        asset = asset_of(ref)
        lot = LotInParts(
            ref,
            split,
            self._tools.arguments.split_input(split.input, run, inputs),
            uuid=derive_partition_uuid(run.id, ref),
            job_run=run.id,
            warehouse=self._frames.warehouse,
            code_version=self._tools.datasets[asset].code_version or code_digest(self._body.function),
            declared=call.used[ref],
            filters=self._body.filters,
            attempt=run.attempt,
            lot_id=lot_id_of(self._tools.datasets[asset], run.partition_key),
        )

        def call_part(part: Part) -> None:
            """Runs in its own thread, with its own tags in Spark, so that stopping the job run stops it too."""
            used = dict(call.used[ref])
            of_part = self._tools.build_context(call, [used])
            with self._frames.spark.interruptible(self._tools.launch_id, run.id), self._logging_failure_of(part, call):
                self._stops.raise_if_all(call)
                if self._body.uses_spark:
                    _ = self._frames.spark.session  # Tags of Spark work belong to a thread.
                given = {split.input: lot.input_of(part)}
                arguments = self._tools.arguments.of(call.runs, inputs, of_part, folder, given)
                answer = unwrapped(self._body.function(**arguments), self._tools.job, of_part)
                result = self._outputs.checked(answer, asset)
                self._stops.raise_if_all(call)
                frame = None if result is EMPTY else result
                place = os.path.join(folder, f"part-{part.number}")
                staged = self._frames.writer.stage(frame, place, ref, used, partial(self._outputs.known_columns, asset))
                if staged.files:  # A part without rows fits any columns.
                    self._outputs.check_columns(ref, staged)
                self._stops.raise_if_all(call)
                lot.publish(part, staged, used)
            context.add_output_metadata(of_part.output_metadata(ref))

        try:
            lot.find_parts()
            lot.take_over_kept(self._leftovers.attempts_before(run, ref), self._tools.arguments.are_current)
            self._tools.context.log.info(lot.announced())
            lot.build(call_part, self._part_slots, self._parts_at_once)
            self._stops.raise_if_all(call)
            if lot.failed or lot.missed:
                return Attempt((self._incomplete(run, lot),))
            call.used[ref].update(lot.inputs)
            call.children = lot.children
            call.whole, call.staged[ref] = lot.whole, lot.staged()
            self._outputs.check(call, asset, context)
            self._stops.raise_if_all(call)
        except BaseException:
            self._leftovers.discard(run)
            raise
        context.add_output_metadata({"databuild/parts": len(lot.parts), "databuild/parts_reused": len(lot.reused)})
        return Attempt(tuple(self._outputs.published(call, context, call.runs)))

    @contextmanager
    def _logging_failure_of(self, part: Part, call: Call) -> Iterator[None]:
        """Log the failure of a part at once, because the others may take long."""
        try:
            yield
        except DepMiss as miss:
            if miss.by_name:
                named = next(iter(miss.by_name))
                raise BadResult(
                    f"{self._tools.job} raised DepMiss for {named!r}, but builds one thing only; "
                    "name the missing refs alone, as in DepMiss(ref)."
                ) from miss
            raise
        except BaseException as error:
            if is_lost(error):
                self._frames.spark.forget_lost_session()
            if not self._stops.are_all(call.runs):
                self._tools.context.log.warning(f"Part {part.name} of {call.refs[0]} failed: {explain_failure(error)}")
            raise

    def _incomplete(self, run: HostedRun, lot: LotInParts) -> Result:
        """Some parts failed or missed inputs: the finished ones are kept for the next attempt."""
        why = lot.why_incomplete(explain_failure)
        try:
            kept = self._kept(run, lot, why)
        except DatabuildError as error:
            self._leftovers.discard(run)
            kept = f"The finished parts could not be kept: {error}"
        if not lot.failed:
            self._tools.context.log.info(f"{lot.ref}: {why} {kept}")
            return Missed(run, {lot.ref: lot.missing})
        details = [
            f"Part {part.name}:\n{traceback_of(error)}" for part, error in list(lot.failed.items())[:MAX_TRACEBACKS]
        ]
        transient = all(self._tools.is_transient(error) for error in lot.failed.values())
        first = next(iter(lot.failed.values()))
        return self._tools.owned(Failed(run, why, transient, "\n".join([*details, kept]), cause=first), first)

    def _kept(self, run: HostedRun, lot: LotInParts, why: str) -> str:
        """Keep the finished parts; returns a sentence with their place. Raises errors of writing."""
        if not lot.done:
            self._leftovers.discard(run)
            return ""
        publish(
            lot.staged(),
            lot.warehouse,
            ref=lot.ref,
            uuid=lot.uuid,
            job_run=lot.job_run,
            inputs=lot.inputs,
            state=lot.state,
            comment=why,
            children=lot.children,
            lot_id=lot.lot_id,
            attempt=lot.attempt,
        )
        uri = lot.warehouse.manifest_path(asset_of(lot.ref), lot.uuid)
        return f"The files of {counted(len(lot.done), 'part')} are kept in {uri}."
