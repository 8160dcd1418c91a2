"""Ends of job runs: success, failure, cancellation, loss (rules 6.8-6.10)."""

from collections import Counter

from databuild_dagster.model import commands as c
from databuild_dagster.model import events as e
from databuild_dagster.model.decide.context import MAX_ATTEMPTS, Deciding
from databuild_dagster.model.decide.same_data import with_same_data
from databuild_dagster.model.decide.wants import open_wants
from databuild_dagster.model.errors import InvalidRequest, JobRunEnded
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.rows import InstanceRow, LaunchRow, RefRow
from databuild_dagster.model.states import OPEN_JOB_RUNS, InstanceState
from databuild_dagster.model.surroundings import LOSS_COUNTS, MAX_LOSSES, MAX_OUTAGES, Fate, Surrounding


def succeed_job_runs(command: c.SucceedJobRuns, deciding: Deciding) -> list[e.Fact]:
    """Fencing: only a running job run may succeed, with exactly its outputs, their manifests, and inputs that exist."""
    job_runs = deciding.running_job_runs(run.job_run_id for run in command.runs)
    outputs = deciding.outputs(job_runs.values())
    _check_inputs([output for run in command.runs for output in run.outputs], deciding)
    for run in command.runs:
        expected = {ref.ref for ref, _ in outputs[job_runs[run.job_run_id].id]}
        reported = [output.ref for output in run.outputs]
        if set(reported) != expected or len(reported) != len(expected):
            why = f"its outputs are {', '.join(sorted(expected))}"
            raise InvalidRequest(what=f"success of job run {run.job_run_id}", value=reported, why=why)
        for output in run.outputs:
            if output.manifest is None and output.origin is None:
                raise InvalidRequest(
                    what=f"the manifest of {output.ref}", value=None, why="it is needed to find the data"
                )
            check_manifest(output.ref, output.manifest)
    built = [output for of_run in outputs.values() for output in of_run]
    return [e.JobRunSucceeded(runs=with_same_data(command.runs, built, deciding))]


def _check_inputs(outputs: list[e.OutputFact], deciding: Deciding) -> None:
    """Lineage names instances of the very refs that were read (rule 4.6)."""
    uuids = {uuid for output in outputs for uuid in output.inputs.values()}
    known = deciding.found(deciding.view.instances_by_uuid(uuids), uuids, InstanceRow)
    refs = deciding.view.refs({ref for output in outputs for ref in output.inputs})
    for output in outputs:
        for ref, uuid in output.inputs.items():
            if ref not in refs or refs[ref].id != known[uuid].ref_id:
                raise InvalidRequest(what=f"an input of {output.ref}", value=uuid, why=f"it is no instance of {ref}")


def check_manifest(ref: Ref, manifest: e.ManifestFact | None) -> None:
    """A manifest of a live instance is complete, or empty on purpose (I7)."""
    if manifest is not None and manifest.state not in ("complete", "empty"):
        raise InvalidRequest(what=f"the manifest of {ref}", value=manifest.state, why="it must be complete or empty")


def fail_job_runs(command: c.FailJobRuns, deciding: Deciding) -> list[e.Fact]:
    """A hard failure is final; a transient failure is retried until the attempts are used up (rule 6.8)."""
    job_runs = deciding.running_job_runs(failure.job_run_id for failure in command.failures)
    for failure in command.failures:
        if failure.kind not in ("hard", "transient"):
            raise InvalidRequest(what="the kind of failure", value=failure.kind, why="it must be 'hard' or 'transient'")
    outputs = deciding.outputs(job_runs.values())
    return [
        e.JobRunFailed(
            failures=tuple(
                _failed(failure, [ref for ref, _ in outputs[job_runs[failure.job_run_id].id]], deciding)
                for failure in command.failures
            )
        )
    ]


def _failed(failure: c.RunFailure, refs: list[RefRow], deciding: Deciding) -> e.RunFailureFact:
    if failure.kind == "hard":
        return e.RunFailureFact(job_run_id=failure.job_run_id, error=failure.error)
    spared = [ref for ref in refs if failure.owner is not None and ref.outages < MAX_OUTAGES]
    retried = [ref for ref in refs if ref in spared or ref.attempts + 1 < MAX_ATTEMPTS]
    return e.RunFailureFact(
        job_run_id=failure.job_run_id,
        error=failure.error,
        retries={ref.ref: deciding.backoff(ref.attempts + ref.outages + 1) for ref in retried},
        owner=failure.owner,
        spared=tuple(ref.ref for ref in spared),
    )


def lose_launches(command: c.LoseLaunches, deciding: Deciding) -> list[e.Fact]:
    """Record every open job run of the launches as lost, queued job runs included (rule 6.9). No fact for a launch that is lost already."""
    launches = deciding.found(deciding.view.launches(command.launch_ids), command.launch_ids, LaunchRow)
    runs = deciding.view.job_runs_of_launches(launch.id for launch in launches.values())
    lost = [run for run in runs if run.state in OPEN_JOB_RUNS]
    if not lost:
        return []
    outputs = deciding.outputs(lost)
    n_hosted = Counter(run.launch_id for run in runs)
    return [
        e.JobRunLost(
            failures=tuple(
                _lost(
                    run.job_run_id,
                    command,
                    [ref for ref, _ in outputs[run.id]],
                    deciding,
                    is_alone=n_hosted[run.launch_id] == 1,
                )
                for run in lost
            )
        )
    ]


def _lost(
    job_run_id: str, command: c.LoseLaunches, refs: list[RefRow], deciding: Deciding, *, is_alone: bool
) -> e.RunFailureFact:
    """The first loss is retried at once, because the lease was delay enough."""
    counts = LOSS_COUNTS[command.fate, is_alone]
    spared = [ref for ref in refs if not counts and ref.losses + 1 < MAX_LOSSES]
    retried = [ref for ref in refs if ref in spared or (counts and ref.attempts + 1 < MAX_ATTEMPTS)]
    error = command.reason
    if len(retried) < len(refs):
        error += f" (attempt {MAX_ATTEMPTS} of {MAX_ATTEMPTS}" if counts else f" (loss {MAX_LOSSES} of {MAX_LOSSES}"
        error += ", and its process built nothing else)" if command.fate is Fate.CRASHED and counts else ")"
    return e.RunFailureFact(
        job_run_id=job_run_id,
        error=error,
        retries={
            ref.ref: deciding.backoff(n + 1) if (n := ref.attempts + ref.losses) else deciding.now for ref in retried
        },
        owner=None if command.fate is Fate.RAISED else Surrounding.PROCESS,
        spared=tuple(ref.ref for ref in spared),
    )


def cancel_job_runs(command: c.CancelJobRuns, deciding: Deciding) -> list[e.Fact]:
    """The open wants of a canceled job run are canceled with it, unless the command keeps them (rule 6.10).

    With `fail_missed` the outputs that a waiting ref misses fail, and their wants with them.
    """
    rows = deciding.job_runs(command.job_run_ids)
    for row in rows.values():
        if row.state not in OPEN_JOB_RUNS:
            raise JobRunEnded(job_run_id=row.job_run_id, state=row.state.value)
    outputs = [ref for of_run in deciding.outputs(rows.values()).values() for ref, _ in of_run]
    failed = _missed(outputs, deciding) if command.fail_missed else set[int]()
    facts: list[e.Fact] = []
    if not command.keep_wants and (
        want_ids := open_wants([ref.id for ref in outputs if ref.id not in failed], deciding)
    ):
        facts.append(e.WantCanceled(want_ids=want_ids, reason=command.reason or "its job run was canceled"))
    names = tuple(sorted(ref.ref for ref in outputs if ref.id in failed))
    return [*facts, e.JobRunCanceled(job_run_ids=tuple(rows), reason=command.reason, failed=names)]


def _missed(refs: list[RefRow], deciding: Deciding) -> set[int]:
    """The refs that a waiting ref misses; a waiting ref has an open want, else its lease has ended (rule 6.4)."""
    view = deciding.view
    pairs = view.waiters(ref.id for ref in refs)
    waiting = view.instances_by_id(instance_id for _, instance_id in pairs)
    return {ref_id for ref_id, instance_id in pairs if waiting[instance_id].state is InstanceState.UPSTREAM_BUILDING}
