"""What exists, and what came from outside (SPEC 5.7, 4.2, 6.11)."""

from __future__ import annotations

import msgspec

from databuild_dagster.model import commands as c
from databuild_dagster.model import events as e
from databuild_dagster.model.decide.context import Deciding, no_duplicates
from databuild_dagster.model.decide.job_runs import check_manifest
from databuild_dagster.model.errors import BeingBuilt
from databuild_dagster.model.refs import PartitionRef

_json = msgspec.json.Encoder()


def register_datasets(command: c.RegisterDatasets, deciding: Deciding) -> list[e.Fact]:
    """Only what changed since the location last told is a fact."""
    for dataset in command.datasets:
        PartitionRef(dataset.asset)
    known = deciding.view.datasets(dataset.asset for dataset in command.datasets)
    changed = tuple(
        dataset
        for dataset in command.datasets
        if (row := known.get(dataset.asset)) is None or row.removed or row.spec != _json.encode(dataset).decode()
    )
    told = {dataset.asset for dataset in command.datasets}
    before = deciding.view.datasets_of_location(command.location)
    removed = tuple(row.asset for row in before if row.asset not in told and not row.removed)
    if not changed and not removed:
        return []
    return [e.DatasetRegistered(location=command.location, datasets=changed, removed=removed)]


def arrive_lots(command: c.ArriveLots, deciding: Deciding) -> list[e.Fact]:
    """The same arrival twice is recorded once; a ref that is being built here takes none."""
    no_duplicates(arrival.ref for arrival in command.arrivals)
    deciding.check_new_identities((arrival.job_run_id, arrival.ref) for arrival in command.arrivals)
    rows = deciding.existing_refs(arrival.ref for arrival in command.arrivals)
    fresh = []
    for arrival in command.arrivals:
        check_manifest(arrival.ref, arrival.manifest)
        row = rows[arrival.ref]
        if row is not None and row.leased and row.canonical_id is not None:
            instance = deciding.view.instances_by_id([row.canonical_id])[row.canonical_id]
            job_run = deciding.view.job_runs_by_id([instance.job_run_id])[instance.job_run_id]
            raise BeingBuilt(ref=arrival.ref, job_run=job_run.job_run_id)
        if row is None or row.origin != arrival.origin:
            fresh.append(arrival)
    return [e.LotArrived(arrivals=tuple(fresh))] if fresh else []
