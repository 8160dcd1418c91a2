"""Instances of an earlier partitions definition become instances of the keys that stand for the same windows now (rule 2.6).

Each becomes a new instance, with links to the files of the old instance, or copies in an object store; the old instance is unchanged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import dagster as dg
import msgspec

from databuild_dagster.bindings.display.materialization import LiveRef, report_live
from databuild_dagster.bindings.registry.catalog import windows_of
from databuild_dagster.bindings.registry.lot_partitions import lot_id_of
from databuild_dagster.bindings.registry.registration import partitions_from
from databuild_dagster.data.arrival_ids import arrival_id
from databuild_dagster.data.ownership import Ownership
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import this_user
from databuild_dagster.engine.registering import Definitions, why_moved
from databuild_dagster.model.commands import ArriveLots
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.events import Arrival
from databuild_dagster.model.refs import Ref, derive_partition_uuid, make_ref, partition_key_of
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.warehouse.errors import ListedFileLost
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import (
    Manifest,
    UriType,
    is_in_attempt,
    manifest_fact,
    missing_files,
    read_manifest,
    write_manifest,
)

_BUSY = (InstanceState.LIVE, InstanceState.BUILDING, InstanceState.UPSTREAM_BUILDING)


class Move(NamedTuple):
    """An instance, and the ref that stands for its window now."""

    ref: Ref
    to: Ref
    uuid: str


class Survey(NamedTuple):
    """What can be carried over, and why the rest stays."""

    moves: list[Move]
    #: By ref.
    stay: dict[Ref, str]


@dataclass(frozen=True)
class Relocator:
    """Carries over the instances of a dataset."""

    engine: Engine
    instance: dg.DagsterInstance
    dataset: DatasetSpec

    def survey(self) -> Survey:
        """The canonical instances that readers leave out because the definition has changed. Changes nothing."""
        queries, asset = self.engine.queries, self.dataset.asset
        canonical = queries.canonical.of_dataset(asset)
        gone = self.engine.catalog.left_out(self.dataset, [partition_key_of(one.ref) for one in canonical])
        definitions = Definitions(queries, asset)
        born = queries.instances.seqs_of([one.uuid for one in canonical if one.uuid is not None])
        taints = queries.instances.taints_in_force([one.uuid for one in canonical if one.uuid is not None])
        moved = {uuid for uuid, found in taints.items() if {taint.reason for taint in found} == {why_moved(asset)}}
        left = [one for one in canonical if _is_left_out(one, gone, moved)]
        targets = {one.ref: self._same_window(one, definitions.at(born[str(one.uuid)])) for one in left}
        now = queries.canonical.of([ref for ref in targets.values() if ref is not None])
        moves: dict[Ref, Move] = {}
        stay: dict[Ref, str] = {}
        for one in left:
            assert one.uuid is not None, "it has been live"
            to = targets[one.ref]
            if to is None:
                stay[one.ref] = "no partition has its window"
            elif now[to].state in _BUSY:
                stay[one.ref] = "the partition with its window is live, or being built"
            elif to in moves:
                stay[one.ref] = "another instance has the same window"
            else:
                moves[to] = Move(one.ref, to, one.uuid)
        return Survey(list(moves.values()), stay)

    def relocate(self, moves: Sequence[Move]) -> dict[Ref, str]:
        """Make the new instances live, each by an event of its own; returns why the remaining instances stay.

        A killed command continues with what is left.
        """
        canonical = self.engine.queries.canonical.of([ref for move in moves for ref in (move.ref, move.to)])
        stay: dict[Ref, str] = {}
        for move in moves:
            try:
                self._relocate_one(move, canonical)
            except DatabuildError as error:
                stay[move.ref] = error.message.rstrip(".")
        return stay

    def _same_window(self, one: Canonical, before: str | None) -> Ref | None:
        key, earlier, now = partition_key_of(one.ref), partitions_from(before), partitions_from(self.dataset.partitions)
        if key is None or earlier is None or now is None:
            return None
        windows = windows_of(earlier, key)
        found = None if windows is None else _key_of(now, windows)
        if found is None or windows_of(now, found) != windows or self.engine.catalog.why_not(self.dataset, found):
            return None
        return make_ref(self.dataset.asset, found)

    def _relocate_one(self, move: Move, canonical: Mapping[Ref, Canonical]) -> None:
        asset, uri = self.dataset.asset, canonical[move.ref].manifest_uri
        assert uri is not None, "it has been live"
        warehouse = Warehouse.of_manifest(uri, asset)
        Ownership(self.engine.store).claim(warehouse)
        old = read_manifest(warehouse, asset, move.uuid)
        bare = msgspec.structs.replace(
            old,
            ref=move.to,
            lot_id=lot_id_of(self.dataset, partition_key_of(move.to)),
            children=(),
            adopted_from=None,
            attempt=1,
            comment=f"Relocated: instance {move.uuid} of {move.ref}.",
        )
        job_run = arrival_id(self.engine.queries.events.beginning(), bare, canonical[move.to].uuid)
        uuid = derive_partition_uuid(job_run, move.to)
        new = msgspec.structs.replace(bare, job_run=job_run, instance_uuid=uuid)
        for lost in missing_files(warehouse, old):
            raise ListedFileLost(path=lost, why="it is not there, or has another size")
        if names := _own_files(old):
            warehouse.storage.share(
                warehouse.instance_dir(asset, old.instance_uuid), warehouse.instance_dir(asset, uuid), names
            )
        arrival = Arrival(
            job_run_id=job_run,
            ref=move.to,
            origin=f"relocated:{move.uuid}",
            manifest=manifest_fact(new, write_manifest(warehouse, new)),
        )
        seen = {move.to: canonical[move.to].uuid}
        self.engine.handle(ArriveLots(arrivals=(arrival,), seen=seen), actor=this_user())
        report_live(self.instance, [self.dataset], [LiveRef(move.to, uuid, new.rows, new.comment)])


def _is_left_out(one: Canonical, gone: frozenset[str | None], moved: set[str]) -> bool:
    if one.manifest_uri is None or one.live_at is None or one.manifest_state == REMOVED:
        return False
    is_gone = one.state is InstanceState.LIVE and partition_key_of(one.ref) in gone
    return is_gone or (one.state is InstanceState.TAINTED and one.uuid in moved)


def _own_files(manifest: Manifest) -> list[str]:
    """The names of files in the instance's folder; files elsewhere stay where they are."""
    if manifest.uri_type is UriType.IDENTIFIER:
        return []
    return [file.uri for file in manifest.files if not is_in_attempt(file.uri)]


def _key_of(partitions: dg.PartitionsDefinition, windows: Sequence[tuple[float, float] | str]) -> str | None:
    """The key that may stand for the windows; the caller compares."""
    match partitions:
        case dg.MultiPartitionsDefinition() if len(partitions.partitions_defs) == len(windows):
            pairs = zip(partitions.partitions_defs, windows, strict=True)
            found = {one.name: _key_of(one.partitions_def, [window]) for one, window in pairs}
            keys = {name: key for name, key in found.items() if key is not None}
            return str(dg.MultiPartitionKey(keys)) if len(keys) == len(found) else None
        case dg.TimeWindowPartitionsDefinition() if not isinstance(windows[0], str):
            return partitions.get_partition_key_for_timestamp(windows[0][0])
        case _ if isinstance(windows[0], str):
            return windows[0]
    return None
