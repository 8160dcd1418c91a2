"""One lot in parts: a call of the function for each part, and the whole published when all are there (SPEC 10.4)."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import BoundedSemaphore

from databuild_dagster.bindings.building.call import Call, Leftovers, Stops, Tools, traceback_of
from databuild_dagster.bindings.building.lot_in_parts import LotInParts, Part, SplitInput, counted_parts
from databuild_dagster.bindings.building.outputs import Outputs
from databuild_dagster.bindings.building.provenance import code_digest
from databuild_dagster.bindings.claims.claims import HostedRun
from databuild_dagster.bindings.claims.results import Attempt, Failed, Missed, Result
from databuild_dagster.bindings.declare.build_context import BuildContext
from databuild_dagster.bindings.declare.lot_parts import Split
from databuild_dagster.bindings.declare.outcomes import EMPTY, BadResult, DepMiss
from databuild_dagster.data.inputs import Inputs
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.refs import asset_of, derive_partition_uuid
from databuild_dagster.spark.failures import explain_failure, is_lost

#: Failed parts of one lot whose tracebacks are logged.
MAX_TRACEBACKS = 3


class PartsCaller:
    """Calls the function of one step for each part of a lot."""

    def __init__(self, tools: Tools, outputs: Outputs, stops: Stops, leftovers: Leftovers, *, threads: int) -> None:
        self._tools = tools
        self._body = tools.body
        self._frames = tools.frames
        self._outputs = outputs
        self._stops = stops
        self._leftovers = leftovers
        at_once = self._body.parts.at_once if self._body.parts is not None else None
        #: Parts that are built at the same time, of all lots together.
        self._parts_at_once = at_once or threads
        self._part_slots = BoundedSemaphore(self._parts_at_once)

    def call(
        self, call: Call, split: Split, inputs: Mapping[str, Inputs], context: BuildContext, folder: str
    ) -> Attempt:
        """One call per part (SPEC 10.4). What there is of the lot stays if a part fails, and goes if the lot does."""
        (run,), (ref,) = call.runs, call.refs
        asset = asset_of(ref)
        lot = LotInParts(
            split,
            SplitInput(self._tools.arguments, split.input, run, inputs),
            asset=self._tools.arguments.upstream_of(split.input),
            ref=ref,
            uuid=derive_partition_uuid(run.id, ref),
            job_run=run.id,
            warehouse=self._frames.warehouse,
            code_version=self._tools.datasets[asset].code_version or code_digest(self._body.function),
            declared=call.used[ref],
            filters=self._body.filters,
        )

        def call_part(part: Part) -> None:
            """In a thread of its own, which Spark tells apart: what stops the job run stops it there too."""
            used = dict(call.used[ref])
            of_part = self._tools.build_context(call, [used])
            with self._frames.spark.interruptible(self._tools.launch_id, run.id), self._logging_failure_of(part, call):
                self._stops.raise_if_all(call)
                if self._body.uses_spark:
                    _ = self._frames.spark.session  # A frame made in another thread does not tag what this one runs.
                given = {split.input: lot.input_of(part)}
                arguments = self._tools.arguments.of(call.runs, inputs, of_part, folder, given)
                result = self._outputs.checked(self._body.function(**arguments), asset)
                self._stops.raise_if_all(call)
                frame = None if result is EMPTY else result
                staged = self._frames.writer.stage(frame, os.path.join(folder, f"part-{part.number}"), ref, used)
                if staged.files:  # What has no rows has no say about columns.
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
            has_gates = bool(self._body.gates.get(self._tools.names[asset]))
            call.staged[ref] = lot.staged(os.path.join(folder, "whole") if has_gates else None)
            self._outputs.check(call, asset, context)
            self._stops.raise_if_all(call)
        except BaseException:
            self._leftovers.discard(run)
            raise
        context.add_output_metadata({"databuild/parts": len(lot.parts), "databuild/parts_reused": len(lot.reused)})
        return Attempt(tuple(self._outputs.published(call, context)))

    @contextmanager
    def _logging_failure_of(self, part: Part, call: Call) -> Iterator[None]:
        """Log the failure of a part at once: the others may take a while."""
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
        """Some parts failed, or miss something: what the others wrote is kept for the next attempt."""
        why = lot.why_incomplete(explain_failure)
        try:
            kept = self._kept(run, lot, why)
        except DatabuildError as error:
            self._leftovers.discard(run)
            kept = f"What the others wrote could not be kept: {error}"
        if not lot.failed:
            self._tools.context.log.info(f"{lot.ref}: {why} {kept}")
            return Missed(run, {lot.ref: lot.missing})
        told = [
            f"Part {part.name}:\n{traceback_of(error)}" for part, error in list(lot.failed.items())[:MAX_TRACEBACKS]
        ]
        transient = all(self._tools.is_transient(error) for error in lot.failed.values())
        return Failed(run, why, transient, "\n".join([*told, kept]))

    def _kept(self, run: HostedRun, lot: LotInParts, why: str) -> str:
        """Where, for people. Raises what writing raises."""
        if not lot.done:
            self._leftovers.discard(run)
            return ""
        instance = self._frames.writer.publish(
            lot.staged(), run.id, lot.ref, lot.inputs, state=lot.state, comment=why, children=lot.children
        )
        return f"What {counted_parts(len(lot.done))} wrote is kept in {instance.uri}."
