"""A call of an asset's function: its job runs, its results so far, and the tools that all calls of a step share."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from dagster import AssetExecutionContext, RetryRequested

from databuild_dagster.bindings.building.arguments import Arguments
from databuild_dagster.bindings.building.owners import Owners
from databuild_dagster.bindings.claims.results import Failed
from databuild_dagster.bindings.declare.asset_spec import AssetBody
from databuild_dagster.bindings.declare.build_context import BuildContext, HostedRun
from databuild_dagster.bindings.declare.gates import Verdict
from databuild_dagster.bindings.declare.outcomes import MAY_RETRY
from databuild_dagster.bindings.reading.frames import Frames
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.data.lost_run_output import attempts_before, instances_of, remove_attempts_before
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.redaction import traceback_of
from databuild_dagster.model.refs import Ref, asset_of, derive_partition_uuid
from databuild_dagster.model.wording import counted, few_of
from databuild_dagster.spark.failures import explain_failure, is_transient
from databuild_dagster.spark.staging import Staged
from databuild_dagster.warehouse import disk, errors, manifest, removing
from databuild_dagster.warehouse.layout import Warehouse


@dataclass
class Call:
    """A call of the function and its results so far."""

    runs: tuple[HostedRun, ...]
    #: Ref to input ref to the uuid that was read.
    used: dict[Ref, dict[Ref, str]]
    staged: dict[Ref, Staged] = field(default_factory=dict)
    verdicts: dict[Ref, list[Verdict]] = field(default_factory=dict)
    #: The manifests of a lot's parts, which are in place already.
    children: tuple[str, ...] = ()
    #: The files of all parts together.
    whole: manifest.Manifest | None = None

    @property
    def refs(self) -> list[Ref]:
        return [ref for run in self.runs for ref in run.refs]

    @property
    def keys(self) -> list[str | None]:
        return [run.partition_key for run in self.runs]

    def refs_of(self, asset: str) -> list[Ref]:
        return [ref for run in self.runs for ref in run.refs if asset_of(ref) == asset]

    def closed(self, run: HostedRun) -> str | None:
        """The blocking verdicts on a job run, as a single text."""
        against = [
            f"check {verdict.gate} of {ref}: {verdict.why}"
            for ref in run.refs
            for verdict in self.verdicts.get(ref, ())
            if verdict.blocks
        ]
        return "; ".join(against) or None


@dataclass(frozen=True)
class Tools:
    """The tools that every call of a step uses."""

    context: AssetExecutionContext
    body: AssetBody
    datasets: Mapping[str, DatasetSpec]
    frames: Frames
    arguments: Arguments
    #: Asset to the author's name of the output.
    names: Mapping[str, str | None]
    owners: Owners
    #: The launch whose job runs are built.
    launch_id: str = ""

    @property
    def job(self) -> str:
        """The name of the function in error messages."""
        return next(iter(self.datasets.values())).job

    def build_context(self, call: Call, used: Collection[dict[Ref, str]]) -> BuildContext:
        """Refs that the function reads at run time are added to `used`."""
        return BuildContext(
            dagster_context=self.context,
            runs=call.runs,
            output_names=self.names,
            is_batched=self.body.is_batched,
            session=lambda: self.frames.spark.session,
            read=lambda refs: self.arguments.read(refs, used),
        )

    def failed(self, run: HostedRun, error: BaseException) -> Failed:
        """The result of a job run that this error ended."""
        why = explain_failure(_reason_of(error))
        return self.owned(Failed(run, why, self.is_transient(error), traceback_of(error), cause=error), error)

    def owned(self, failed: Failed, error: BaseException) -> Failed:
        """The failure with the owner of its error, if that is not the partition itself (rule 6.17)."""
        owned = self.owners.of(_reason_of(error))
        return failed if owned is None else replace(failed, owner=owned.owner, why_out_of_reach=owned.why)

    def is_transient(self, error: BaseException) -> bool:
        """Whether the same call may succeed later."""
        return isinstance(error, MAY_RETRY) or is_transient(error)


def _reason_of(error: BaseException) -> BaseException:
    """The error to judge: the cause of a retry that the author requested, if it has a cause, else `error`."""
    return error.__cause__ if isinstance(error, RetryRequested) and error.__cause__ is not None else error


class Stops:
    """The job runs of a step that were stopped from outside, and the calls that stop with them. Thread-safe."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        #: Job run to the reason of its stop.
        self._why: dict[str, str] = {}
        #: Job run to all job runs of its call.
        self._together: dict[str, tuple[HostedRun, ...]] = {}

    def begin(self, runs: tuple[HostedRun, ...]) -> None:
        """Record that a single call builds the job runs."""
        self._together.update((run.id, runs) for run in runs)

    def stop(self, job_run_id: str, why: str) -> None:
        """Stop a job run: its result will not count.

        Its Spark work is interrupted once no job run of the same call is left.
        """
        self._why[job_run_id] = why
        together = self._together.get(job_run_id, ())
        if together and self.are_all(together):
            self._frames.spark.begin_to_interrupt(together[0].id)

    def why(self, run: HostedRun) -> str | None:
        """The reason of its stop; None while it runs."""
        return self._why.get(run.id)

    def are_all(self, runs: Sequence[HostedRun]) -> bool:
        """Whether all of them are stopped."""
        return all(run.id in self._why for run in runs)

    def raise_if_all(self, call: Call) -> None:
        """Called between two phases of a call. Raises `StoppedEarly`."""
        if self.are_all(call.runs):
            raise StoppedEarly


class StoppedEarly(Exception):
    """All job runs of a call were stopped from outside."""


class Leftovers:
    """Files of this step's job runs, and of earlier attempts at their lots, that may have to be removed."""

    def __init__(self, context: AssetExecutionContext, warehouse: Warehouse) -> None:
        self._context = context
        self._queries = engine_for(context.instance).queries
        self._warehouse = warehouse
        #: Job run to the folder that marks files of earlier attempts.
        self._unsettled: dict[str, str] = {}

    def attempts_before(self, run: HostedRun, ref: Ref) -> list[str]:
        """Instances whose kept parts this job run may reuse; they are removed once it has ended."""
        attempts = attempts_before(self._queries, ref, derive_partition_uuid(run.id, ref))
        if attempts:
            # It stays empty. Without its process, it shows that the job run left files (`data.lost_run_output`).
            folder = self._unsettled[run.id] = self._warehouse.new_staging_dir(run.id)
            disk.make_dirs(folder)
        return attempts

    def settle(self, run: HostedRun) -> None:
        """The engine recorded the end of a job run: what earlier attempts kept is in it or useless, and is removed."""
        folder = self._unsettled.pop(run.id, None)
        if folder is None:
            return
        try:
            for ref in run.refs:
                remove_attempts_before(self._queries, self._warehouse, ref, derive_partition_uuid(run.id, ref))
            disk.remove_tree(folder)
        except (errors.DiskTrouble, errors.StorageTrouble) as error:
            # While the folder exists, the orchestrator retries after this process has ended.
            self._context.log.warning(f"Files of earlier attempts at {few_of(run.refs)} are not removed yet: {error}")

    def discard(self, run: HostedRun) -> None:
        """The engine rejected the result: its files are removed, and files that earlier attempts kept stay."""
        if (folder := self._unsettled.pop(run.id, None)) is not None:
            with suppress(errors.DiskTrouble):
                disk.remove_tree(folder)
        for ref in run.refs:
            try:
                uuid, others = derive_partition_uuid(run.id, ref), instances_of(self._queries, [ref])
                removing.discard(self._warehouse, asset_of(ref), uuid, others)
            except DatabuildError as error:
                self._context.log.warning(f"The files of {ref} could not be removed: {error}")

    def drop(self, staged: Iterable[Staged]) -> None:
        """Remove the files that Spark wrote into the warehouse for results that no manifest will list."""
        paths = {path for result in staged if result.reach is not None for path in result.paths}
        try:
            removing.remove_from_attempts(paths)
        except DatabuildError as error:
            self._context.log.warning(f"{counted(len(paths), 'file')} without a manifest could not be removed: {error}")
