"""Records with the first of their refs, for answers whose size has a bound: a want may name ten thousand (rules 15).

The fields that are shortened keep their names. Beside them are the whole numbers, and whether anything is left out.
"""

from collections.abc import Sequence
from typing import Final, TypeVar

from msgspec.structs import replace

from databuild_dagster.engine.why.explain import Cause
from databuild_dagster.engine.why.history import ShownInstance, history_of
from databuild_dagster.engine.why.job_runs import Build, JobRun, JobRunReport
from databuild_dagster.engine.why.partitions import ShownCanonical, canonical_shape
from databuild_dagster.engine.why.want_report import DerivativeWant, WantReport
from databuild_dagster.model.records import extended
from databuild_dagster.model.refs import Ref
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.queries.wants import Asker, CutWant

T = TypeVar("T")
#: Refs, or inputs, of a record.
MAX_REFS: Final = 100
#: Wants behind an instance, and refs of each.
MAX_ASKERS: Final = 20
MAX_REFS_OF_ASKER: Final = 10


class BoundedReport(CutWant, frozen=True):
    """A want with what it waits for: the first `MAX_REFS` of `n_waits_for`."""

    waits_for: Sequence[Ref]
    causes: Sequence[Cause]
    derivative_wants: list[DerivativeWant]
    n_waits_for: int


class BoundedJobRun(JobRun, frozen=True):
    """A job run with the first `MAX_REFS` of its refs and instances."""

    n_refs: int
    is_cut: bool


class BoundedBuild(Build, frozen=True):
    """A job run with the first of its refs."""

    job_run: BoundedJobRun


class BoundedJobRunReport(JobRunReport, frozen=True):
    """A job run with the first `MAX_REFS` of its outputs, each with the first of the inputs that it missed."""

    n_refs: int
    is_cut: bool


class BoundedAsker(Asker, frozen=True):
    """A want behind an instance, with the first `MAX_REFS_OF_ASKER` of its refs."""

    n_refs: int


class BoundedInstance(ShownInstance, frozen=True):
    """A build with the first of its inputs, and of the wants behind it."""

    asked_by: Sequence[BoundedAsker]
    n_inputs: int
    n_asked_by: int


class BoundedCanonical(ShownCanonical, frozen=True):
    """A canonical instance with the first `MAX_REFS` of its inputs and of the refs that it waits for."""

    n_inputs: int
    n_waits_for: int


def bounded_report(report: WantReport) -> BoundedReport:
    """A want in the shape of `want show`."""
    want = report.want
    return extended(
        BoundedReport,
        want,
        refs=want.refs[:MAX_REFS],
        n_refs=len(want.refs),
        is_cut=len(want.refs) > MAX_REFS,
        waits_for=report.waits_for[:MAX_REFS],
        causes=report.causes,
        derivative_wants=[
            DerivativeWant(found.id, found.refs[:MAX_REFS], found.state) for found in report.derivative_wants
        ],
        n_waits_for=len(report.waits_for),
    )


def bounded_build(build: Build) -> BoundedBuild:
    """A job run with who asked for it."""
    return extended(BoundedBuild, build, job_run=_bounded(BoundedJobRun, build.job_run))


def bounded_job_run_report(found: JobRunReport) -> BoundedJobRunReport:
    """A job run in the shape of `show --job-run`."""
    outputs = [replace(output, missed=output.missed[:MAX_REFS]) for output in found.outputs[:MAX_REFS]]
    return _bounded(BoundedJobRunReport, found, outputs=outputs)


def _bounded(kind: type[T], run: JobRun, **others: object) -> T:
    refs, instances = run.refs[:MAX_REFS], run.instances[:MAX_REFS]
    n_refs = len(run.refs)
    return extended(kind, run, refs=refs, instances=instances, n_refs=n_refs, is_cut=n_refs > MAX_REFS, **others)


def bounded_history(queries: Queries, ref: Ref, most: int) -> list[BoundedInstance]:
    """The newest instances of a ref, the oldest first."""
    found = history_of(queries, ref, most, MAX_REFS + 1)
    cut = queries.instances.n_inputs_of(instance.uuid for instance in found if len(instance.inputs) > MAX_REFS)
    return [bounded_instance(instance, cut.get(instance.uuid)) for instance in found]


def bounded_instance(instance: ShownInstance, n_inputs: int | None = None) -> BoundedInstance:
    """An instance in the shape of `history`; `n_inputs` is the number of its inputs if it does not have all of them."""
    askers = [
        extended(BoundedAsker, asker, refs=asker.refs[:MAX_REFS_OF_ASKER], n_refs=len(asker.refs))
        for asker in instance.asked_by[:MAX_ASKERS]
    ]
    n_inputs, n_askers = n_inputs or len(instance.inputs), len(instance.asked_by)
    inputs = instance.inputs[:MAX_REFS]
    return extended(BoundedInstance, instance, inputs=inputs, n_inputs=n_inputs, asked_by=askers, n_asked_by=n_askers)


def bounded_canonical(queries: Queries, found: Canonical, seq: int | None) -> BoundedCanonical:
    """The canonical instance of a ref, which must not be missing, without the place of data from outside, which is a path."""
    canonical = canonical_shape(queries, found, seq, most_inputs=MAX_REFS + 1)
    n_inputs = len(canonical.inputs)
    return extended(
        BoundedCanonical,
        canonical,
        origin=canonical.origin and "outside",
        inputs=canonical.inputs[:MAX_REFS],
        n_inputs=queries.instances.n_inputs_of([canonical.uuid])[canonical.uuid] if n_inputs > MAX_REFS else n_inputs,
        waits_for=canonical.waits_for[:MAX_REFS],
        n_waits_for=len(canonical.waits_for),
    )
