"""The results of a function become instances: staged out of readers' sight, checked by gates, published.

Publishing handles each job run of a batch separately.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

from dagster import MaterializeResult, Output
from msgspec import structs

from databuild_dagster.bindings.building.call import Call, Leftovers, Stops, Tools
from databuild_dagster.bindings.claims.results import Built, BuiltOutput, Failed, Result, Stopped
from databuild_dagster.bindings.declare.build_context import BuildContext, HostedRun
from databuild_dagster.bindings.declare.gates import Gate, GateClosed, Verdict, described, verdict_of
from databuild_dagster.bindings.declare.outcomes import (
    EMPTY,
    MAY_RETRY,
    BadResult,
    DepMiss,
    Empty,
    numbers_of,
    storable,
)
from databuild_dagster.bindings.declare.parameters import STAYS_PLAIN, kind_of
from databuild_dagster.bindings.declare.settings import content_hash_of
from databuild_dagster.bindings.registry.lot_partitions import lot_id_of
from databuild_dagster.model.events import OutputFact
from databuild_dagster.model.refs import Ref, asset_of, derive_partition_uuid, partition_key_of
from databuild_dagster.spark.failures import explain_failure, is_transient
from databuild_dagster.spark.frames import read_arrow, read_instances
from databuild_dagster.spark.memory_frames import FrameKind, from_arrow
from databuild_dagster.spark.reach import in_place
from databuild_dagster.spark.schemas import Columns, check_schema
from databuild_dagster.spark.staging import Staged, put_files, read_staged
from databuild_dagster.warehouse.manifest import (
    Manifest,
    ManifestState,
    TableSchema,
    manifest_fact,
    write_ahead,
    write_manifest,
)
from databuild_dagster.warehouse.threads import in_threads


class _Draft(NamedTuple):
    """A job run whose files are in place, and whose manifests are not written yet."""

    run: HostedRun
    #: The blocking verdicts on it.
    closed: str | None
    #: In the order of its refs.
    manifests: list[Manifest]
    #: Of each manifest, the content hash of its rows; None where that is off or unknown (rule 4.8).
    content_hashes: list[str | None]


class Outputs:
    """The outputs of all calls of a step."""

    def __init__(self, tools: Tools, stops: Stops, leftovers: Leftovers) -> None:
        self._tools = tools
        self._body = tools.body
        self._frames = tools.frames
        self._stops = stops
        self._leftovers = leftovers
        #: Asset to the instance whose columns the next instance has to fit.
        self._columns: dict[str, Columns | None] = {}
        self._columns_lock = Lock()

    def by_asset(self, answer: Any, call: Call) -> dict[str, Any]:
        """The result of each requested output; other results are discarded (rule 6.2)."""
        wanted = [asset for asset in self._tools.names if call.refs_of(asset)]
        if None in self._tools.names.values():
            return {wanted[0]: self.checked(answer, wanted[0])}
        names = list(self._body.outputs)
        if answer is EMPTY:
            return dict.fromkeys(wanted, EMPTY)
        if not isinstance(answer, Mapping):
            raise BadResult(
                f"{self._tools.job} returned {described(answer)}; return a dict with a DataFrame or EMPTY "
                f"for each of {_listed(names)}, or raise DepMiss or Transient."
            )
        if unknown := [name for name in answer if name not in names]:
            raise BadResult(
                f"{self._tools.job} returned {unknown[0]!r}, which is none of its outputs {_listed(names)}."
            )
        if missing := [self._tools.names[asset] for asset in wanted if self._tools.names[asset] not in answer]:
            raise BadResult(
                f"{self._tools.job} returned nothing for its output {missing[0]!r}; return EMPTY if it has no rows."
            )
        return {asset: self.checked(answer[self._tools.names[asset]], asset) for asset in wanted}

    def checked(self, result: Any, asset: str) -> Any:
        """The result itself. Raises `BadResult` unless it is a frame or `EMPTY`."""
        kind = kind_of(type(result))
        if isinstance(result, Empty) or (kind is not None and kind.is_input):
            return result
        raise BadResult(
            f"{asset} returned {described(result)}; "
            "return a frame of Spark, pandas, Polars or Arrow, or EMPTY, or raise DepMiss or Transient."
            f"{STAYS_PLAIN if result is None else ''}"
        )

    def stage(self, call: Call, asset: str, result: Any, folder: str) -> None:
        """Write a result out of readers' sight. Raises `SchemaChanged` for columns that do not fit earlier instances."""
        refs = call.refs_of(asset)
        frame = None if result is EMPTY else result
        if self._body.is_batched:
            keys = [key for key in call.keys if key is not None]
            inputs = {key: call.used[ref] for ref in refs if (key := partition_key_of(ref)) is not None}
            by_key = self._frames.writer.stage_batch(
                frame, folder, asset, keys, inputs, partial(self.known_columns, asset)
            )
            staged = {ref: by_key[partition_key_of(ref) or ""] for ref in refs}
        else:
            known = partial(self.known_columns, asset)
            staged = {ref: self._frames.writer.stage(frame, folder, ref, call.used[ref], known) for ref in refs}
        call.staged.update(staged)
        for ref, result_of_ref in staged.items():
            self.check_columns(ref, result_of_ref)

    def check_columns(self, ref: Ref, staged: Staged, *, from_now_on: bool = False) -> None:
        """Compare with the newest live instance, and with instances of this step. Raises `SchemaChanged`, `ColumnsAlike`."""
        asset = asset_of(ref)
        with self._columns_lock:
            check_schema(staged.schema, ref, self._columns_of(asset), may_change=self._body.allow_schema_change)
            if from_now_on and staged.schema.columns:
                self._columns[asset] = Columns(ref, staged.schema)

    def known_columns(self, asset: str) -> TableSchema | None:
        """The columns of the newest live instance, or of this step's; None if there are none."""
        with self._columns_lock:
            before = self._columns_of(asset)
        return None if before is None else before.schema

    def _columns_of(self, asset: str) -> Columns | None:
        if asset not in self._columns:
            self._columns[asset] = self._frames.writer.columns_of(asset)
        return self._columns[asset]

    def check(self, call: Call, asset: str, context: BuildContext) -> None:
        """Run the gates. Raises `GateClosed` for a verdict on a whole batch."""
        refs = {partition_key_of(ref): ref for ref in call.refs_of(asset)}
        staged = {key: call.staged[ref] for key, ref in refs.items()}
        if not any(result.schema.columns for result in staged.values()):
            return  # All are EMPTY, and so were all instances before.
        for gate in self._body.gates.get(self._tools.names[asset], ()):
            found = self._ask(gate, staged, call, context)
            if isinstance(found, Verdict):
                if found.blocks and len(refs) > 1:
                    raise GateClosed(f"Check {gate.name} of {len(refs)} partitions: {found.why}")
                found = dict.fromkeys(refs, found)
            for key, verdict in found.items():
                call.verdicts.setdefault(refs[key], []).append(verdict)

    def _ask(
        self, gate: Gate, staged: Mapping[str | None, Staged], call: Call, context: BuildContext
    ) -> Verdict | Mapping[str | None, Verdict]:
        """A verdict on all partitions together, or a verdict per key. An error of a gate is a verdict too."""
        is_batched = self._body.is_batched
        try:
            arguments = {
                parameter.name: self._frame(call, staged, kind)
                if (kind := parameter.kind.frame) is not None
                else self._tools.arguments.tool(parameter, context)
                for parameter in gate.parameters
            }
            return verdict_of(gate, gate.function(**arguments), list(staged), is_batched=is_batched)
        except (BadResult, DepMiss, *MAY_RETRY):
            raise
        except Exception as error:
            if self._stops.are_all(call.runs) or is_transient(error):
                raise
            return Verdict(gate.name, passed=False, why=f"it raised {explain_failure(error)}")

    def _frame(self, call: Call, staged: Mapping[str | None, Staged], kind: FrameKind) -> Any:
        """The rows that a gate judges, before any reader sees them."""
        warehouse, session = self._frames.warehouse, None
        if kind is FrameKind.SPARK:
            session = self._frames.spark.session
        if call.whole is None:
            is_elsewhere = session is not None and in_place(session, warehouse) is not None
            return read_staged(session, staged, by_key=self._body.is_batched, kind=kind, is_elsewhere=is_elsewhere)
        whole = [call.whole]
        if session is None:
            return from_arrow(read_arrow(warehouse, whole), kind)
        return read_instances(session, warehouse, whole)

    def published(self, call: Call, context: BuildContext, runs: Sequence[HostedRun]) -> list[Result]:
        """The result of each job run by itself: after the first file is in place the function is not called again."""
        put = in_threads(lambda run: self._put_or_fail(call, run), runs)
        drafts = [draft for draft in put if isinstance(draft, _Draft)]
        written = write_ahead(self._frames.warehouse, [found for draft in drafts for found in draft.manifests])

        def publish(draft: _Draft | Result) -> Result:
            return self._publish_or_fail(call, draft, context, written) if isinstance(draft, _Draft) else draft

        if len(written) == sum(len(draft.manifests) for draft in drafts):
            return [publish(draft) for draft in put]
        # What is left is written again: a store that does not answer takes the client's retries for each.
        return in_threads(publish, put)

    def _put_or_fail(self, call: Call, run: HostedRun) -> _Draft | Result:
        try:
            draft = self._put(call, run)
        except Exception as error:
            return self.not_published(call, run, error)
        if isinstance(draft, Stopped):
            self._leftovers.drop(call.staged[ref] for ref in run.refs)
        return draft

    def _publish_or_fail(self, call: Call, draft: _Draft, context: BuildContext, written: Collection[str]) -> Result:
        try:
            for manifest in draft.manifests:
                if manifest.instance_uuid not in written:
                    write_manifest(self._frames.warehouse, manifest)
            return self._result(call, draft, context)
        except Exception as error:
            return self.not_published(call, draft.run, error)

    def not_published(self, call: Call, run: HostedRun, error: Exception) -> Result:
        """The result of a job run that this error ended; its files are removed."""
        self._leftovers.discard(run)
        self._leftovers.drop(call.staged[ref] for ref in run.refs)
        return self._tools.failed(run, error)

    def _put(self, call: Call, run: HostedRun) -> _Draft | Stopped:
        """Put the files of a job run in place."""
        if (why := self._stops.why(run)) is not None:
            if call.children:
                self._leftovers.discard(run)  # Its parts are in place before the lot is.
            return Stopped(run, why)
        closed = call.closed(run)
        state = ManifestState.PARTIAL if closed else None
        if closed is None:
            # Checked again, because another call may have published other columns meanwhile.
            for ref in run.refs:
                self.check_columns(ref, call.staged[ref], from_now_on=True)
        manifests = [self._put_files(call, run, ref, closed, state) for ref in run.refs]
        return _Draft(run, closed, manifests, [None if closed else self._content_hash(put) for put in manifests])

    def _content_hash(self, manifest: Manifest) -> str | None:
        return content_hash_of(self._tools.datasets[manifest.dataset], self._frames.warehouse, manifest)

    def _put_files(
        self, call: Call, run: HostedRun, ref: Ref, closed: str | None, state: ManifestState | None
    ) -> Manifest:
        return put_files(
            call.staged[ref],
            self._frames.warehouse,
            ref=ref,
            uuid=derive_partition_uuid(run.id, ref),
            job_run=run.id,
            inputs=call.used[ref],
            state=state,
            comment=closed or "",
            children=call.children,
            lot_id=lot_id_of(self._tools.datasets[asset_of(ref)], run.partition_key),
            attempt=run.attempt,
        )

    def _result(self, call: Call, draft: _Draft, context: BuildContext) -> Result:
        """The result of a job run whose manifests are written."""
        run, closed = draft.run, draft.closed
        outputs = []
        for ref, manifest, content_hash in zip(run.refs, draft.manifests, draft.content_hashes, strict=True):
            uri = self._frames.warehouse.manifest_path(manifest.dataset, manifest.instance_uuid)
            version = self._tools.datasets[manifest.dataset].code_version
            summary = structs.replace(manifest_fact(manifest, uri), content_hash=content_hash)
            passed = tuple(call.verdicts.get(ref, ()))
            # Checked again, because the function may have changed a value since.
            metadata = storable(context.output_metadata(ref), ref)
            numbers = numbers_of(metadata)
            fact = OutputFact(ref=ref, inputs=call.used[ref], code_version=version, manifest=summary, numbers=numbers)
            if read := self._tools.arguments.files_read.get(run.partition_key):
                metadata = {"databuild/files_read": dict(sorted(read.items())), **metadata}
            outputs.append(BuiltOutput(fact, manifest, uri, passed, metadata))
        if closed:
            details = f"Its files are kept in {outputs[0].uri}."
            return Failed(run, _sentence(closed), False, details, {o.fact.ref: o.verdicts for o in outputs})
        return Built(run, tuple(outputs))


def _listed(names: Sequence[Any]) -> str:
    return ", ".join(repr(name) for name in names)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


#: Parts of Dagster's own results, as functions written for `@asset` return them, and what to write instead.
REFUSED_PARTS: Mapping[str, str] = {
    "data_version": "databuild gives each instance an identity of its own; leave it out",
    "tags": "give tags= to the decorator",
    "check_results": "write a separate @asset_check, or give blocking_checks= to the decorator",
}


def unwrapped(answer: Any, job: str, context: BuildContext) -> Any:
    """What a function returned, with the frame in place of Dagster's result around it; its metadata go to the materialization.

    A multi-asset's dict may have such a result for each output. Raises `BadResult` for a part that has no meaning here.
    """
    if not isinstance(answer, Mapping):
        return _frame_of(answer, job, context, None)
    return {name: _frame_of(value, job, context, name) for name, value in answer.items()}


def _frame_of(value: Any, job: str, context: BuildContext, output_name: str | None) -> Any:
    if not isinstance(value, (Output, MaterializeResult)):
        return value
    kind = type(value).__name__
    for name, instead in REFUSED_PARTS.items():
        if getattr(value, name, None):
            raise BadResult(f"{job} returned dagster.{kind} with {name}=; {instead}.")
    if isinstance(value, MaterializeResult) and not _has_value(value):
        raise BadResult(
            f"{job} returned dagster.MaterializeResult without a value; give it the frame, as in "
            f"MaterializeResult(value=frame, metadata=…), or return the frame.{STAYS_PLAIN}"
        )
    if value.metadata:
        context.add_output_metadata(value.metadata, output_name=output_name)
    return value.value


def _has_value(result: MaterializeResult[Any]) -> bool:
    """Dagster marks a result without a value by a class of its own."""
    return getattr(getattr(result, "value", None), "__name__", None) != "NoValueSentinel"
