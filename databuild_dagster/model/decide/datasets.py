"""Registrations, and data from outside (rules 5.7, 4.2, 6.11)."""

from __future__ import annotations

import msgspec

from databuild_dagster.model import commands as c
from databuild_dagster.model import events as e
from databuild_dagster.model.datasets import AD_HOC_LOCATION, ArcSpec, DatasetSpec, Standing, standing_of
from databuild_dagster.model.decide.context import Deciding, no_duplicates, spec_of
from databuild_dagster.model.decide.job_runs import check_manifest
from databuild_dagster.model.decide.wants import being_built
from databuild_dagster.model.errors import AssetTaken, CanonicalMoved, LocationTaken
from databuild_dagster.model.refs import PartitionRef, Ref
from databuild_dagster.model.rows import RefRow
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.wording import few_of

#: Datasets that do not vanish together by the renaming of one.
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
    """The datasets that the location owns. Raises `AssetTaken`, of one owner at a time."""
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
    arrival = e.Arrival(
        job_run_id=command.job_run_id,
        ref=command.ref,
        origin=f"{'erased' if command.erased else 'compacted'}:{command.uuid}",
        manifest=command.manifest,
        same_as=command.uuid,
    )
    return [e.LotArrived(arrivals=(arrival,))]


def _check_seen(seen: dict[Ref, str | None], rows: dict[Ref, RefRow | None], deciding: Deciding) -> None:
    """Raises `CanonicalMoved` when a ref has another canonical instance than the caller saw."""
    ids = {ref: row.canonical_id for ref in seen if (row := rows.get(ref)) is not None}
    instances = deciding.view.instances_by_id(found for found in ids.values() if found is not None)
    for ref, uuid in seen.items():
        found = ids.get(ref)
        if (None if found is None else instances[found].uuid) != uuid:
            raise CanonicalMoved(ref=ref)
