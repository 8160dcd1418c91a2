"""Taking leases: launches of the orchestrator, and claims of Dagster runs that it did not launch (rules 6.2, 6.9, 8.1)."""

from databuild_dagster.model import commands as c
from databuild_dagster.model import events as e
from databuild_dagster.model.coordination import SKIPPED_MESSAGE, Answer
from databuild_dagster.model.decide.context import Claim, Deciding, no_duplicates
from databuild_dagster.model.decide.delegations import BY_DAGSTER_RUN, answer, delegated, joining, opened
from databuild_dagster.model.decide.misses import miss_facts
from databuild_dagster.model.errors import AlreadyStarted, InvalidRequest
from databuild_dagster.model.fold.react import CLAIMANT
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.rows import LaunchRow, RefRow
from databuild_dagster.model.states import OPEN_WANTS, InstanceState, JobRunState


def buffer_launch(command: c.BufferLaunch, deciding: Deciding) -> list[e.Fact]:
    """Lease the planned refs that are still due: a second orchestrator may have been faster, or a person paused a ref (rule 6.13)."""
    runs = _still_due(command, deciding)
    return _leased(command, runs, deciding) if runs else []


def buffer_missed(command: c.BufferMissed, deciding: Deciding) -> list[e.Fact]:
    """A lease and its dep miss in a single transaction: the orchestrator saw the inputs missing, no process starts (rule 6.3)."""
    impacted = {miss.job_run_id: miss.impacted for miss in command.misses}
    rows = deciding.view.refs(ref for miss in command.misses for refs in miss.impacted.values() for ref in refs)
    runs: list[e.BufferedRun] = []
    kept: list[c.RunMiss] = []
    for run in _still_due(command, deciding):
        # Another orchestrator may have taken one of several outputs.
        of_run = {ref: missing for ref, missing in impacted[run.job_run_id].items() if ref in run.refs}
        if missing := _still_missing(of_run, rows):
            runs.append(run)
            kept.append(c.RunMiss(job_run_id=run.job_run_id, impacted=missing))
    if not runs:
        return []
    outputs = {run.job_run_id: dict.fromkeys(run.refs, command.code_version) for run in runs}
    return [*_leased(command, runs, deciding), *miss_facts(kept, outputs, deciding)]


def _is_missing(row: RefRow | None) -> bool:
    return row is None or row.state is not InstanceState.LIVE


def _still_missing(impacted: dict[Ref, tuple[Ref, ...]], rows: dict[Ref, RefRow]) -> dict[Ref, tuple[Ref, ...]]:
    left = {ref: tuple(m for m in missing if _is_missing(rows.get(m))) for ref, missing in impacted.items()}
    return {ref: missing for ref, missing in left.items() if missing}


def _still_due(command: c.BufferLaunch | c.BufferMissed, deciding: Deciding) -> list[e.BufferedRun]:
    _check_launch(command, deciding)
    rows = deciding.view.refs(ref for run in command.runs for ref in run.refs)
    # The instances before these; a row that is missing stops the command (rule 3.5).
    deciding.view.instances_by_id(row.last_id for row in rows.values() if row.last_id is not None)
    paused = deciding.paused(rows)
    kept = []
    for run in command.runs:
        due = tuple(ref for ref in run.refs if ref in rows and rows[ref].due_at(deciding.now) and ref not in paused)
        if due:
            kept.append(e.BufferedRun(job_run_id=run.job_run_id, refs=due, partition_key=run.partition_key))
    return kept


def _check_launch(command: c.BufferLaunch | c.BufferMissed | c.ClaimRefs, deciding: Deciding) -> None:
    """No ref twice, and no identity that exists already (rule 2.2)."""
    runs = command.runs
    if not runs or not all(run.refs for run in runs):
        raise InvalidRequest(what="the launch", value=[], why="it names no ref")
    no_duplicates(ref for run in runs for ref in run.refs)
    deciding.check_new_identities([(run.job_run_id, run.refs[0]) for run in runs], command.launch_id)


def _leased(command: c.BufferLaunch | c.BufferMissed, runs: list[e.BufferedRun], deciding: Deciding) -> list[e.Fact]:
    leased = {ref: run.job_run_id for run in runs for ref in run.refs}
    return [_buffered(command, runs, command.owner), *joining(leased, deciding, for_first=True)]


def _buffered(
    command: c.BufferLaunch | c.BufferMissed | c.ClaimRefs, runs: list[e.BufferedRun], owner: str
) -> e.JobRunBuffered:
    return e.JobRunBuffered(
        launch_id=command.launch_id,
        job=command.job,
        location=command.location,
        owner=owner,
        runs=tuple(runs),
        code_version=command.code_version,
    )


def _started(command: c.StartLaunch | c.ClaimRefs, job_run_ids: tuple[str, ...]) -> e.JobRunStarted:
    return e.JobRunStarted(
        launch_id=command.launch_id,
        dagster_run_id=command.dagster_run_id,
        holder=command.holder,
        job_run_ids=job_run_ids,
        made_with=command.made_with,
    )


def start_launch(command: c.StartLaunch, deciding: Deciding) -> list[e.Fact]:
    """A launch starts once; its job runs that have ended stay ended (rule 6.9)."""
    named = [command.launch_id]
    launch = deciding.found(deciding.view.launches(named), named, LaunchRow)[command.launch_id]
    if launch.dagster_run_id is not None:
        raise AlreadyStarted(launch_id=command.launch_id, dagster_run_id=launch.dagster_run_id)
    runs = deciding.view.job_runs_of_launches([launch.id])
    queued = tuple(run.job_run_id for run in runs if run.state is JobRunState.QUEUED)
    return [_started(command, queued)] if queued else []


def claim_refs(command: c.ClaimRefs, deciding: Deciding) -> list[e.Fact]:
    """Per ref a single answer: build, join, reuse or refused; decision and lease share a transaction (rules 8.1, 8.4)."""
    _check_launch(command, deciding)
    job_run_of = {ref: run.job_run_id for run in command.runs for ref in run.refs}
    rows = deciding.existing_refs(job_run_of)
    answers = answer(
        rows,
        deciding,
        opens=command.by_person,
        rebuild_before=command.rebuild_before,
        paused=deciding.paused(job_run_of),
    )
    to_build, to_join = answers.given(Answer.BUILD), answers.given(Answer.JOIN)
    claim = deciding.claim = Claim(
        launch_id=command.launch_id,
        build={ref: job_run_of[ref] for ref in to_build},
        join={ref: answers.job_runs[ref] for ref in to_join},
        reuse={ref: answers.instances[ref].uuid for ref in answers.given(Answer.REUSE)},
        refused={ref: answers.why_refused(ref) for ref in answers.given(Answer.REFUSE)},
        paused=answers.paused,
    )
    if to_build and not command.may_build:
        return []
    facts = opened(answers, f"{BY_DAGSTER_RUN} {command.dagster_run_id}", deciding)
    facts += delegated(command.dagster_run_id, answers, deciding)
    asked = _asked_before(command.dagster_run_id, deciding)
    if wanted := [ref for ref in answers.by_ref if (ref in claim.build or ref in claim.join) and ref not in asked]:
        facts.append(_wants_of_claim(command, wanted, deciding))
    if claim.build:
        facts.extend(_claimed(command, claim))
        facts.extend(joining(claim.build, deciding))
    if skipped := [run for run in command.runs if all(ref in claim.reuse for ref in run.refs)]:
        facts.append(_skipped(command, skipped, deciding if claim.build else None))
    return facts


def _asked_before(dagster_run_id: str, deciding: Deciding) -> set[Ref]:
    """Refs that an open want of the same Dagster run names: it asks again after the foreign builds failed."""
    wants = [want for want in deciding.view.wants_of_requests([dagster_run_id]) if want.state in OPEN_WANTS]
    links = deciding.view.refs_of_wants([want.id for want in wants])
    return {row.ref for row in deciding.view.refs_by_id(ref_id for _, ref_id in links).values()}


def _wants_of_claim(command: c.ClaimRefs, refs: list[Ref], deciding: Deciding) -> e.WantCreated:
    """Wants of a Dagster run for refs that it cannot build; they outlast it (rule 8.1)."""
    return e.WantCreated(
        request_id=command.dagster_run_id,
        wants=tuple(e.WantFact(id=deciding.new_id(), refs=(ref,)) for ref in refs),
        source=CLAIMANT,
        source_id=command.dagster_run_id,
        ttl_seconds=c.CLAIM_TTL_SECONDS,
        expires_at=deciding.now + c.CLAIM_TTL_SECONDS,
    )


def _claimed(command: c.ClaimRefs, claim: Claim) -> list[e.Fact]:
    runs = []
    for run in command.runs:
        if mine := tuple(ref for ref in run.refs if ref in claim.build):
            runs.append(e.BufferedRun(job_run_id=run.job_run_id, refs=mine, partition_key=run.partition_key))
    started = _started(command, tuple(run.job_run_id for run in runs))
    return [_buffered(command, runs, command.dagster_run_id), started]


def _skipped(command: c.ClaimRefs, runs: list[e.BufferedRun], deciding: Deciding | None) -> e.JobRunSkipped:
    """A launch of its own where the claim's launch builds something, since a launch is born once."""
    return e.JobRunSkipped(
        launch_id=deciding.new_id() if deciding else command.launch_id,
        job=command.job,
        location=command.location,
        dagster_run_id=command.dagster_run_id,
        runs=tuple(
            e.SkippedRun(job_run_id=run.job_run_id, refs=run.refs, partition_key=run.partition_key) for run in runs
        ),
        message=SKIPPED_MESSAGE,
    )
