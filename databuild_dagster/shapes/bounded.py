"""Records with the first of their refs, for answers whose size has a bound: a want may name ten thousand (rules 15).

The fields that are shortened keep their names. Beside them are the whole numbers, and whether anything is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from databuild_dagster.engine.why.explain import Cause
from databuild_dagster.engine.why.want_report import WantReport
from databuild_dagster.model.refs import Ref
from databuild_dagster.shapes.fields import extended
from databuild_dagster.shapes.history import AskerShape, InstanceShape, history_of
from databuild_dagster.shapes.job_runs import BuildShape, JobRunReportShape, JobRunShape, OutputShape
from databuild_dagster.shapes.partitions import CanonicalShape, canonical_shape
from databuild_dagster.shapes.wants import DerivativeWant
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.queries.wants import CutWant

#: Refs, or inputs, of one record.
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


class BoundedJobRun(JobRunShape):
    """A job run with the first `MAX_REFS` of its refs and instances."""

    n_refs: int
    is_cut: bool


class BoundedBuild(BuildShape):
    """A job run with the first of its refs."""

    job_run: BoundedJobRun  # type: ignore[misc]  # Narrower, and only read.


class BoundedJobRunReport(BoundedJobRun, JobRunReportShape):
    """A job run with the first `MAX_REFS` of its outputs, each with the first of the inputs that it missed."""


class BoundedAsker(AskerShape):
    """A want behind an instance, with the first `MAX_REFS_OF_ASKER` of its refs."""

    n_refs: int


class BoundedInstance(InstanceShape):
    """A build with the first of its inputs, and of the wants behind it."""

    asked_by: list[BoundedAsker]  # type: ignore[misc]  # Narrower, and only read.
    n_inputs: int
    n_asked_by: int


class BoundedCanonical(CanonicalShape):
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


def bounded_build(build: BuildShape) -> BoundedBuild:
    """A job run with who asked for it."""
    return {**build, "job_run": _bounded_job_run(build["job_run"])}


def _bounded_job_run(run: JobRunShape) -> BoundedJobRun:
    refs: Sequence[Ref] = run["refs"]
    return {
        **run,
        "refs": refs[:MAX_REFS],
        "instances": run["instances"][:MAX_REFS],
        "n_refs": len(refs),
        "is_cut": len(refs) > MAX_REFS,
    }


def bounded_job_run_report(found: JobRunReportShape) -> BoundedJobRunReport:
    """A job run in the shape of `job-run show`."""
    cut = found["outputs"][:MAX_REFS]
    outputs: list[OutputShape] = [{**output, "missed": output["missed"][:MAX_REFS]} for output in cut]
    return {**found, **_bounded_job_run(found), "outputs": outputs}


def bounded_history(queries: Queries, ref: Ref, most: int) -> list[BoundedInstance]:
    """The newest instances of a ref, the oldest first."""
    found = [instance.shape() for instance in history_of(queries, ref, most, MAX_REFS + 1)]
    cut = queries.n_inputs_of(instance["uuid"] for instance in found if len(instance["inputs"]) > MAX_REFS)
    return [bounded_instance(instance, cut.get(instance["uuid"])) for instance in found]


def bounded_instance(instance: InstanceShape, n_inputs: int | None = None) -> BoundedInstance:
    """An instance in the shape of `history`; `n_inputs` is the number of its inputs if it does not have all of them."""
    inputs, askers = instance["inputs"], instance["asked_by"]
    return {
        **instance,
        "inputs": inputs[:MAX_REFS],
        "n_inputs": n_inputs or len(inputs),
        "asked_by": [
            {**asker, "refs": asker["refs"][:MAX_REFS_OF_ASKER], "n_refs": len(asker["refs"])}
            for asker in askers[:MAX_ASKERS]
        ],
        "n_asked_by": len(askers),
    }


def bounded_canonical(queries: Queries, found: Canonical, seq: int | None) -> BoundedCanonical:
    """The canonical instance of a ref, which must not be missing, without the place of data from outside, which is a path."""
    canonical = canonical_shape(queries, found, seq, most_inputs=MAX_REFS + 1)
    uuid = canonical["uuid"]
    n_inputs = len(canonical["inputs"])
    if n_inputs > MAX_REFS:
        n_inputs = queries.n_inputs_of([uuid])[uuid]
    inputs, waits_for = canonical["inputs"], canonical["waits_for"]
    return {
        **canonical,
        "origin": canonical["origin"] and "outside",
        "inputs": inputs[:MAX_REFS],
        "n_inputs": n_inputs,
        "waits_for": waits_for[:MAX_REFS],
        "n_waits_for": len(waits_for),
    }
