"""Registered datasets, lots that arrived, pauses, subjects that are set aside, and the meta storage (rules 5.7, 6.13, 9.1, 10, 11.7)."""

from collections.abc import Collection, Iterable

import msgspec
from msgspec.structs import replace

from databuild_dagster.model import commands as c
from databuild_dagster.model import errors
from databuild_dagster.model import events as e
from databuild_dagster.model.datasets import AD_HOC_LOCATION, ArcSpec, DatasetSpec, Standing, standing_of
from databuild_dagster.model.decide.context import Deciding, no_duplicates, spec_of
from databuild_dagster.model.decide.job_runs import check_manifest
from databuild_dagster.model.decide.wants import being_built
from databuild_dagster.model.errors import AssetTaken, CanonicalMoved, InvalidRequest, LocationTaken
from databuild_dagster.model.meta_storage import WATCHERS, Draft, check_statements
from databuild_dagster.model.pauses import is_whole, whole
from databuild_dagster.model.refs import PartitionRef, Ref, asset_of, parse_ref
from databuild_dagster.model.rows import DatasetRow, PauseRow, RefRow
from databuild_dagster.model.set_aside import same_reason, subject_of
from databuild_dagster.model.states import InstanceState, JobRunState
from databuild_dagster.model.wording import few_of, has_date

#: Datasets that do not vanish together when a single dataset is renamed.
MIN_VANISHED = 2
#: An arc that was removed for longer begins at the present: a want for a lot of that time would have expired by now (rule 10.5).
MAX_ABSENCE_SECONDS = c.DEFAULT_TTL_SECONDS

_json = msgspec.json.Encoder()


def register_datasets(command: c.RegisterDatasets, deciding: Deciding) -> list[e.Fact]:
    """Only changes since the last registration of the location are facts. Raises `AssetTaken`, `LocationTaken`."""
    for dataset in command.datasets:
        PartitionRef(dataset.asset)
    own = _own(command, deciding)
    known = deciding.view.datasets(own)
    changed = tuple(
        dataset
        for asset, dataset in own.items()
        if (row := known.get(asset)) is None or row.removed or row.spec != _json.encode(dataset).decode()
    )
    before = [row.asset for row in deciding.view.datasets_of_location(command.location) if not row.removed]
    removed = tuple(asset for asset in before if asset not in own)
    if own and len(removed) == len(before) >= MIN_VANISHED and command.location != AD_HOC_LOCATION:
        # Two locations of one name would erase each other by turns (decision 0011).
        raise LocationTaken(location=command.location, assets=few_of(removed))
    if not changed and not removed:
        return []
    arcs = deciding.view.arcs(dataset.asset for dataset in changed if isinstance(dataset.arc, ArcSpec))
    earliest = deciding.now - MAX_ABSENCE_SECONDS
    resumed = tuple(asset for asset, arc in arcs.items() if arc.removed and (arc.removed_at or 0.0) >= earliest)
    return [e.DatasetRegistered(location=command.location, datasets=changed, removed=removed, resumed=resumed)]


def _own(command: c.RegisterDatasets, deciding: Deciding) -> dict[str, DatasetSpec]:
    """The datasets that the location owns. Raises `AssetTaken`, for a single owner at a time."""
    rows = deciding.view.datasets(dataset.asset for dataset in command.datasets)
    present = {asset: spec_of(row) for asset, row in rows.items() if not row.removed}
    standings = {dataset.asset: standing_of(dataset, present.get(dataset.asset)) for dataset in command.datasets}
    taken = [asset for asset, standing in standings.items() if standing is Standing.TAKEN]
    if taken:
        owner = present[taken[0]].location
        of_owner = [asset for asset in taken if present[asset].location == owner]
        raise AssetTaken(location=command.location, assets=few_of(of_owner), owner=owner)
    return {dataset.asset: dataset for dataset in command.datasets if standings[dataset.asset] is Standing.OWN}


def arrive_lots(command: c.ArriveLots, deciding: Deciding) -> list[e.Fact]:
    """The same arrival twice is recorded once. Raises `BeingBuilt` for a leased ref."""
    no_duplicates(arrival.ref for arrival in command.arrivals)
    deciding.check_new_identities((arrival.job_run_id, arrival.ref) for arrival in command.arrivals)
    rows = deciding.existing_refs(arrival.ref for arrival in command.arrivals)
    fresh = []
    for arrival in command.arrivals:
        check_manifest(arrival.ref, arrival.manifest)
        row = rows[arrival.ref]
        if row is not None and row.leased:
            raise being_built(row, deciding)
        if row is None or row.origin != arrival.origin:
            fresh.append(arrival)
    _check_seen(command.seen, rows, deciding)
    return [e.LotArrived(arrivals=tuple(fresh))] if fresh else []


def replace_files(command: c.ReplaceFiles, deciding: Deciding) -> list[e.Fact]:
    """An arrival replaces exactly the instance whose rows it has."""
    deciding.check_new_identities([(command.job_run_id, command.ref)])
    check_manifest(command.ref, command.manifest)
    row = deciding.existing_refs([command.ref])[command.ref]
    _check_seen({command.ref: command.uuid}, {command.ref: row}, deciding)
    if row is None or row.state is not InstanceState.LIVE:
        raise CanonicalMoved(ref=command.ref)
    # Other files have the rows' hash; an erasure has left fewer rows.
    seen = deciding.view.instances_by_uuid([command.uuid])[command.uuid]
    content_hash = None if command.erased else seen.content_hash
    arrival = e.Arrival(
        job_run_id=command.job_run_id,
        ref=command.ref,
        origin=f"{'erased' if command.erased else 'compacted'}:{command.uuid}",
        manifest=replace(command.manifest, content_hash=content_hash),
        same_as=command.uuid,
    )
    return [e.LotArrived(arrivals=(arrival,))]


def _check_seen(seen: dict[Ref, str | None], rows: dict[Ref, RefRow | None], deciding: Deciding) -> None:
    """Raises `CanonicalMoved` when a ref's canonical instance is not the instance that the caller saw."""
    ids = {ref: row.canonical_id for ref in seen if (row := rows.get(ref)) is not None}
    instances = deciding.view.instances_by_id(found for found in ids.values() if found is not None)
    for ref, uuid in seen.items():
        found = ids.get(ref)
        if (None if found is None else instances[found].uuid) != uuid:
            raise CanonicalMoved(ref=ref)


class Watching(msgspec.Struct, frozen=True):
    """The value of a watcher's key: the revision up to which it has seen all changes, and the time until which it counts."""

    revision: int
    until: float


def invoke_meta(command: c.InvokeMeta, deciding: Deciding) -> list[e.Fact]:
    """Always an event, so that the answer is remembered with the command's id, and the revision rises."""
    if not command.statements:
        raise InvalidRequest(what="the list of statements", value=[], why="it names none")
    # Loaded together, because the statements read them one by one.
    found = deciding.view.meta_entries(check_statements(command.statements))
    draft = Draft(found.get, deciding.view.seq + 1)
    answers = tuple(draft.run(statement) for statement in command.statements)
    removed = tuple(key for key, value in draft.writes.items() if value is None)
    puts = {key: value for key, value in draft.writes.items() if value is not None}
    return [e.MetaInvoked(answers=answers, cleared=tuple(draft.cleared), removed=removed, puts=puts)]


def compact_meta(command: c.CompactMeta, deciding: Deciding) -> list[e.Fact]:
    """A watcher whose lease has ended does not count, and its key is removed."""
    view = deciding.view
    watchers = {entry.key: _watching(entry.value) for entry in view.meta_under(WATCHERS)}
    lapsed = tuple(key for key, watcher in watchers.items() if watcher is None or watcher.until <= deciding.now)
    held = [watcher.revision for key, watcher in watchers.items() if watcher is not None and key not in lapsed]
    up_to = min(command.up_to, view.seq, *held)
    facts: list[e.Fact] = [e.MetaInvoked(answers=(), removed=lapsed)] if lapsed else []
    return [*facts, e.MetaCompacted(revision=up_to)] if up_to > view.meta_compacted() else facts


def _watching(value: bytes | None) -> Watching | None:
    """The watching that a value holds; None for a value of a foreign program."""
    try:
        return msgspec.json.decode(value or b"", type=Watching)
    except msgspec.MsgspecError:
        return None


def pause_partitions(command: c.PausePartitions, deciding: Deciding) -> list[e.Fact]:
    """A list is all or nothing. Queued job runs are canceled, running job runs only with `terminate`; their outputs are retried later.

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
    """The registered assets of refs; with `removed`, also assets that were registered once. Raises `UnknownAsset`."""
    assets = [asset_of(ref) for ref in refs]
    rows = deciding.view.datasets(assets)
    for asset in assets:
        if asset not in rows or (rows[asset].removed and not removed):
            raise errors.UnknownAsset(asset=asset, names=deciding.view.asset_names())
    return rows


def _acting(names: Collection[Ref], deciding: Deciding) -> dict[Ref, PauseRow]:
    """The pauses of exactly the given names whose time has not passed, in the order of the names."""
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
    """Only new reasons are facts: a concurrent tick may have recorded the same."""
    changes = []
    for change in command.changes:
        subjects = {name: subject_of(command.location, change.kind, name) for name in change.names}
        known = deciding.view.asides(subjects.values())
        reasons = {name: row.reason for name, key in subjects.items() if (row := known.get(key)) is not None}
        if names := tuple(name for name in subjects if not same_reason(reasons.get(name), change.reason)):
            changes.append(e.AsideFact(kind=change.kind, names=names, reason=change.reason))
    return [e.SetAsideChanged(location=command.location, changes=tuple(changes))] if changes else []
