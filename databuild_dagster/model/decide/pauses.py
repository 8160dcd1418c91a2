"""Refs that are not launched for now: pauses of refs and of whole assets, and reasons to set aside (rules 6.13, 11.7)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from databuild_dagster.model import commands as c
from databuild_dagster.model import errors
from databuild_dagster.model import events as e
from databuild_dagster.model.decide.context import Deciding, no_duplicates, spec_of
from databuild_dagster.model.pauses import is_whole, whole
from databuild_dagster.model.refs import Ref, asset_of, parse_ref
from databuild_dagster.model.rows import DatasetRow, PauseRow, RefRow
from databuild_dagster.model.set_aside import same_reason, subject_of
from databuild_dagster.model.states import InstanceState, JobRunState
from databuild_dagster.model.wording import has_date


def pause_partitions(command: c.PausePartitions, deciding: Deciding) -> list[e.Fact]:
    """A list is all or nothing. Queued job runs end with it, running ones with `terminate`; their outputs are retried later.

    Raises `NothingToPause` for an asset that no job here builds, `AlreadyPaused`, `InvalidRequest` for an empty reason and
    for an end that is not later than now, and as `check_wantable`.
    """
    _check_names(command.refs)
    if not command.reason.strip():
        raise errors.NoReason(what="pause", why="others read it to know when to resume")
    if command.until is not None and not (deciding.now < command.until and has_date(command.until)):
        why = "it must be later than now, and before the year 10000"
        raise errors.InvalidRequest(what="the end of a pause", value=command.until, why=why)
    datasets = _datasets(command.refs, deciding)
    for row in datasets.values():
        if not (kind := spec_of(row).kind).is_built:
            raise errors.NothingToPause(asset=row.asset, kind=kind.value)
    deciding.existing_refs(ref for ref in command.refs if not is_whole(ref))
    for pause in _acting(command.refs, deciding).values():
        raise errors.AlreadyPaused(ref=pause.ref, actor=pause.actor, reason=pause.reason)
    facts: list[e.Fact] = [e.PartitionsPaused(refs=command.refs, reason=command.reason, until=command.until)]
    ends = {JobRunState.QUEUED, JobRunState.RUNNING} if command.terminate else {JobRunState.QUEUED}
    if ids := _job_runs_of(_being_built(command.refs, datasets, deciding), ends, deciding):
        facts.append(e.JobRunCanceled(job_run_ids=ids, reason=f"paused: {command.reason}"))
    return facts


def resume_partitions(command: c.ResumePartitions, deciding: Deciding) -> list[e.Fact]:
    """A list is all or nothing; a name without a partition key ends all pauses of its asset.

    Raises `NotPaused`, `UnknownAsset`; `PausedAsAWhole` for a partition of an asset that is paused as a whole.
    """
    _check_names(command.refs)
    datasets = _datasets(command.refs, deciding, removed=True)
    wholes = _acting({whole(ref) for ref in command.refs}, deciding)
    own = _acting(command.refs, deciding)
    ended: dict[Ref, None] = {}
    for ref in command.refs:
        if is_whole(ref):
            pauses = deciding.view.pauses_of_datasets([datasets[asset_of(ref)].id])
            of_ref = [pause.ref for pause in pauses if deciding.now < pause.until]
        elif whole(ref) in wholes and whole(ref) not in command.refs:
            pause = wholes[whole(ref)]
            raise errors.PausedAsAWhole(ref=ref, asset=pause.ref, actor=pause.actor, reason=pause.reason)
        else:
            of_ref = [ref] if ref in own else []
        if not of_ref:
            raise errors.NotPaused(ref=ref)
        ended.update(dict.fromkeys(of_ref))
    return [e.PartitionsResumed(refs=tuple(ended), reason=command.reason)]


def _check_names(refs: tuple[Ref, ...]) -> None:
    if not refs:
        raise errors.InvalidRequest(what="the list of refs", value=[], why="it names none")
    for ref in refs:
        parse_ref(ref)
    no_duplicates(refs)


def _datasets(refs: Iterable[Ref], deciding: Deciding, *, removed: bool = False) -> dict[str, DatasetRow]:
    """The registered assets of refs; with `removed` those that were registered once. Raises `UnknownAsset`."""
    assets = [asset_of(ref) for ref in refs]
    rows = deciding.view.datasets(assets)
    for asset in assets:
        if asset not in rows or (rows[asset].removed and not removed):
            raise errors.UnknownAsset(asset=asset, names=deciding.view.asset_names())
    return rows


def _acting(names: Collection[Ref], deciding: Deciding) -> dict[Ref, PauseRow]:
    """The pauses of exactly these names whose time has not passed, in the order of the names."""
    pauses = deciding.view.pauses(names)
    return {name: pauses[name] for name in names if name in pauses and deciding.now < pauses[name].until}


def _being_built(refs: Iterable[Ref], datasets: dict[str, DatasetRow], deciding: Deciding) -> list[RefRow]:
    named = list(refs)
    of_wholes = deciding.view.refs_being_built(datasets[asset_of(ref)].id for ref in named if is_whole(ref))
    others = [row for row in deciding.view.refs(named).values() if row.state is InstanceState.BUILDING]
    return list({row.id: row for row in (*of_wholes, *others)}.values())


def _job_runs_of(refs: list[RefRow], states: set[JobRunState], deciding: Deciding) -> tuple[str, ...]:
    instances = deciding.view.instances_by_id(row.canonical_id for row in refs if row.canonical_id is not None)
    job_runs = deciding.view.job_runs_by_id(instance.job_run_id for instance in instances.values())
    return tuple(row.job_run_id for row in job_runs.values() if row.state in states)


def change_set_aside(command: c.ChangeSetAside, deciding: Deciding) -> list[e.Fact]:
    """Only new reasons are facts: another tick may have recorded the same."""
    changes = []
    for change in command.changes:
        subjects = {name: subject_of(command.location, change.kind, name) for name in change.names}
        known = deciding.view.asides(subjects.values())
        reasons = {name: row.reason for name, key in subjects.items() if (row := known.get(key)) is not None}
        if names := tuple(name for name in subjects if not same_reason(reasons.get(name), change.reason)):
            changes.append(e.AsideFact(kind=change.kind, names=names, reason=change.reason))
    return [e.SetAsideChanged(location=command.location, changes=tuple(changes))] if changes else []
