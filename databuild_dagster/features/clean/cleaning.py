"""Instances that no reader needs are planned for removal and, on request, removed (rule 10.8).

A plan changes nothing. Carrying it out has three steps, and a process may die at any line of a step: an event records the
removal, decided again in its transaction; the files are removed; an event records the end. The store finds removals
between the first and the last step, and the next clean-up finishes them.

`model.removals` decides which data may be removed. Files that an instance lists by their whole path belong to other programs.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import groupby
from typing import NamedTuple

from databuild_dagster.data.keepers import Keeper
from databuild_dagster.data.lost_run_output import WarehouseRemains, instances_of
from databuild_dagster.data.ownership import Ownership, warehouses_of
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import this_user
from databuild_dagster.features.clean.orphan_files import (
    Unlisted,
    files_listed,
    unlisted_in_attempts,
    unlisted_storage,
)
from databuild_dagster.model.commands import FinishRemovals, RemoveManifests
from databuild_dagster.model.errors import DatabuildError, UnknownAsset
from databuild_dagster.model.events import Erasure
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.removals import REMOVED, Reason, reason_of, why_kept
from databuild_dagster.model.states import InstanceState, JobRunState
from databuild_dagster.store.queries.job_runs import JobRunView
from databuild_dagster.store.removals import Removable, Removals, StoredInstance
from databuild_dagster.warehouse.errors import ManifestMissing
from databuild_dagster.warehouse.layout import (
    ATTEMPT,
    MANIFEST_NAME,
    Folder,
    Found,
    Warehouse,
    find_staged,
    find_stored,
)
from databuild_dagster.warehouse.manifest import file_paths, listed_in_attempts, read_manifest
from databuild_dagster.warehouse.removing import remove_from_attempts, take_away
from databuild_dagster.warehouse.storage import storage_at

#: Instances of an event: at most so many folders are half removed after a crash.
MAX_AT_ONCE = 200

#: States that other processes set: the process of the job run may not know, and may still write.
_ENDED_BY_OTHERS = frozenset({JobRunState.LOST, JobRunState.CANCELED})


class PlannedRemoval(NamedTuple):
    """An instance whose data is to be removed."""

    uuid: str
    ref: Ref
    reason: Reason
    files: int
    bytes: int
    warehouse: Warehouse


class KeptInstance(NamedTuple):
    """An instance whose data stays."""

    uuid: str
    ref: Ref
    why: str


@dataclass
class CleaningPlan:
    """The removals to carry out, and the instances that stay."""

    #: Whether tainted instances without a successor may be removed.
    tainted: bool = False
    going: list[PlannedRemoval] = field(default_factory=list)
    kept: list[KeptInstance] = field(default_factory=list)
    leftovers: list[Unlisted] = field(default_factory=list)
    #: Instances whose removal was begun and not ended.
    unfinished: list[StoredInstance] = field(default_factory=list)
    #: Each root, and why this store must leave it alone; None where it owns the root (rule 3.11).
    roots: dict[str, str | None] = field(default_factory=dict)
    #: Keepers forget what was replaced so long ago, such as snapshots of published tables, before anything is removed.
    older_than_seconds: float = 0.0
    #: The request by which rows of the instances are erased.
    erasure: Erasure | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.going or self.leftovers or self.unfinished)


@dataclass
class CleaningResult:
    """The removals that were carried out."""

    going: list[PlannedRemoval] = field(default_factory=list)
    finished: list[StoredInstance] = field(default_factory=list)
    leftovers: list[Unlisted] = field(default_factory=list)
    #: Instances that stay because their lot changed meanwhile.
    kept: list[KeptInstance] = field(default_factory=list)
    #: (ref or path, why): the next clean-up retries it.
    failed: list[tuple[str, str]] = field(default_factory=list)


class Cleaner:
    """Plans and carries out removals, over the store and every warehouse that the store knows."""

    def __init__(self, engine: Engine, warehouse: str, keepers: Sequence[Keeper] = ()) -> None:
        self._engine = engine
        self._default = warehouse
        self._keepers = keepers
        self._removals = Removals(engine.store)
        self._ownership = Ownership(engine.store)

    # Files of failed attempts

    def plan_clean(self, scope: Collection[str] = ()) -> CleaningPlan:
        """The files of attempts that never became live, of the datasets and refs of `scope` or of all. Raises `UnknownAsset`."""
        scope, assets = frozenset(scope), self._assets_of(scope)
        plan = self._new_plan(scope)
        seen = {stored.uuid for stored in plan.unfinished}
        for warehouse in self._own(self._warehouses):
            stored = find_stored(warehouse, assets)
            known = self._removals.of_uuids(folder.uuid for folder in stored.folders)
            remains = WarehouseRemains(self._engine, warehouse.root)
            listed = files_listed(warehouse, stored)
            size_of = {file.path: file.bytes for attempt in stored.attempts for file in attempt.files}
            for folder in stored.folders:
                found = known.get(folder.uuid)
                if found is None or not _is_of(found.ref, scope):
                    continue
                # Another folder may have its uuid, too.
                if warehouse.instance_dir(asset_of(found.ref), found.uuid) != folder.path:
                    continue
                if found.uuid not in seen:
                    in_attempts = [size_of[path] for path in listed.get(folder.path) or () if path in size_of]
                    self._take_in(plan, found, folder, warehouse, remains, in_attempts)
                seen.add(found.uuid)
            leftovers = self._in_attempts(warehouse, stored, listed, remains)
            plan.leftovers += [left for left in leftovers if not scope or (left.ref and _is_of(left.ref, scope))]
            if not scope:
                handled = set(_folders(plan.going))
                odd = [folder for folder in stored.folders if _is_odd(folder, known.get(folder.uuid))]
                now = self._engine.clock()
                some = stored._replace(folders=odd, attempts=[])
                unlisted = unlisted_storage(self._engine.queries, warehouse, now, some)
                staged = list(staged_by_the_dead(self._engine, warehouse, remains))
                plan.leftovers += staged
                plan.leftovers += _leftovers(unlisted, known, handled | {leftover.path for leftover in staged})
        # A restored log does not know the instances since its backup.
        plan.leftovers = [left for left in plan.leftovers if not (left.is_orphan and self._ownership.is_copy)]
        return plan

    def _in_attempts(
        self,
        warehouse: Warehouse,
        stored: Found,
        listed: Mapping[str, frozenset[str] | None],
        remains: WarehouseRemains,
    ) -> list[Unlisted]:
        if not stored.attempts:
            return []
        queries = self._engine.queries
        elsewhere = {path for _, paths in self._listed_outside(set()) for path in paths}

        def is_over(run: JobRunView) -> bool:
            return remains.is_over(run.launch_id, queries.job_runs.of_launch(run.launch_id))

        return unlisted_in_attempts(queries, warehouse, stored, listed, self._engine.clock(), is_over, elsewhere)

    def _new_plan(self, scope: Collection[str], *, tainted: bool = False) -> CleaningPlan:
        """A plan with the roots, and with the unfinished removals in roots that the store owns."""
        self._ownership = Ownership(self._engine.store)
        roots = {warehouse.root: self._ownership.why_not(warehouse) for warehouse in self._warehouses}
        unfinished = [stored for stored in self._unfinished(scope) if self._own(self._places_of(stored))]
        return CleaningPlan(tainted=tainted, unfinished=unfinished, roots=roots)

    def _own(self, warehouses: Iterable[Warehouse]) -> list[Warehouse]:
        return [warehouse for warehouse in warehouses if self._ownership.why_not(warehouse) is None]

    def _places_of(self, stored: StoredInstance) -> list[Warehouse]:
        """The warehouses that may have the files of an instance."""
        uri = stored.manifest_uri
        return self._warehouses if uri is None else [Warehouse.of_manifest(uri, asset_of(stored.ref))]

    def _take_in(
        self,
        plan: CleaningPlan,
        found: Removable,
        folder: Folder,
        warehouse: Warehouse,
        remains: WarehouseRemains,
        in_attempts: Sequence[int],
    ) -> None:
        """Take an attempt that never became live into the plan; `in_attempts` are the bytes of each file outside its folder."""
        files = [file for file in folder.files if file.path != f"{folder.path}/{MANIFEST_NAME}"]
        if found.held.manifest_state == REMOVED:
            # A process that was taken for dead has written after the removal.
            if files:
                plan.unfinished.append(StoredInstance(found.uuid, found.ref, f"{folder.path}/{MANIFEST_NAME}"))
            return
        if found.held.was_live:
            return
        why = why_kept(found.held)
        if why is None and found.job_run_state in _ENDED_BY_OTHERS:
            runs = self._engine.queries.job_runs.of_launch(found.launch_id)
            if not remains.is_over(found.launch_id, runs):
                why = "its job run was ended from outside, and its process may still be writing"
        if why is not None:
            plan.kept.append(KeptInstance(found.uuid, found.ref, why))
            return
        sizes = [*(file.bytes for file in files), *in_attempts]
        plan.going.append(PlannedRemoval(found.uuid, found.ref, Reason.PARTIAL, len(sizes), sum(sizes), warehouse))

    # Superseded instances

    def plan_gc(
        self, scope: Collection[str] = (), *, keep: int, older_than_seconds: float, tainted: bool = False
    ) -> CleaningPlan:
        """Superseded instances of the datasets and refs of `scope` or of all, without the newest `keep` of each ref and without
        instances that readers saw within `older_than_seconds`. With `tainted` also tainted instances without a successor.
        Raises `UnknownAsset`."""
        scope, assets = frozenset(scope), self._assets_of(scope)
        plan = self._new_plan(scope, tainted=tainted)
        now = self._engine.clock()
        leaving: dict[str, Removable] = {}
        for asset in assets:
            for ref, instances in groupby(self._removals.of_dataset(asset), key=lambda found: found.ref):
                if not _is_of(ref, scope):
                    continue
                n_earlier = 0
                for found in instances:
                    held = found.held
                    if not held.was_live or held.manifest_state == REMOVED:
                        continue
                    if held.is_canonical and (not tainted or held.state is not InstanceState.TAINTED):
                        continue
                    n_earlier += not held.is_canonical
                    why = why_kept(held, tainted=tainted)
                    if why is None and not held.is_canonical and n_earlier <= keep:
                        why = f"it is among the newest {keep}, which are kept"
                    if why is None and now - found.left_at < older_than_seconds:
                        why = "readers saw it too recently"
                    if why is None:
                        assert found.manifest_uri is not None, "or it would be kept"
                        place = Warehouse.of_manifest(found.manifest_uri, asset)
                        if (why_not := self._ownership.why_not(place)) is not None:
                            why = f"this build state does not own {place.root}: {why_not}"
                    if why is None:
                        going = PlannedRemoval(found.uuid, found.ref, reason_of(held), found.files, found.bytes, place)
                        plan.going.append(going)
                        leaving[found.uuid] = found
                    else:
                        plan.kept.append(KeptInstance(found.uuid, found.ref, why))
        plan.older_than_seconds = older_than_seconds
        self.keep_what_others_list(plan)
        for keeper in self._keepers:
            self._keep_for(keeper, plan, leaving)
        return plan

    def _keep_for(self, keeper: Keeper, plan: CleaningPlan, leaving: Mapping[str, Removable]) -> None:
        """Keep the instances for which a keeper has a reason, such as a snapshot of a table that lists their files (rule 10.10)."""
        left: list[PlannedRemoval] = []
        for asset, going_of_asset in groupby(plan.going, key=lambda going: asset_of(going.ref)):
            of_asset = list(going_of_asset)
            try:
                listed = keeper.files(asset, plan.older_than_seconds)
            except DatabuildError as error:
                why = f"{keeper.name} cannot be read: {error.message}"
                plan.kept += [KeptInstance(going.uuid, going.ref, why) for going in of_asset]
                continue
            kept = keeper.why_kept(leaving[going.uuid] for going in of_asset)
            for going in of_asset:
                if not listed.isdisjoint(_files_of(going) if listed else ()):
                    plan.kept.append(KeptInstance(going.uuid, going.ref, keeper.listed))
                elif going.uuid in kept:
                    plan.kept.append(KeptInstance(going.uuid, going.ref, kept[going.uuid]))
                else:
                    left.append(going)
        plan.going = left

    def _why_kept(self, uuids: Collection[str]) -> dict[str, str]:
        """Asked after the removal is recorded: none of them becomes canonical after that."""
        found = list(self._removals.of_uuids(uuids).values()) if self._keepers else []
        why: dict[str, str] = {}
        for keeper in self._keepers:
            why = keeper.why_kept(found) | why
        return why

    def keep_what_others_list(self, plan: CleaningPlan) -> None:
        """Keep files that a location adopted from a different location's warehouse; of its own, adoption is refused."""
        folders = _folders(plan.going)
        roots = {going.warehouse.root for going in plan.going}
        for lister, listed in self._listed_outside(roots) if plan.going else ():
            lists = {path.rpartition("/")[0] for path in listed} & folders.keys()
            if any(f"/{ATTEMPT}" in path for path in listed):
                lists |= {folder for folder, going in folders.items() if not listed.isdisjoint(_in_attempts(going))}
            for folder in lists:
                going = folders.pop(folder)
                plan.kept.append(
                    KeptInstance(going.uuid, going.ref, f"instance {lister.uuid} of {lister.ref} lists its files")
                )
        plan.going = list(folders.values())

    def _listed_outside(self, roots: Collection[str]) -> Iterator[tuple[StoredInstance, set[str]]]:
        """Each instance that lists files by their whole path, with its files; without instances of the only root of `roots`."""
        for lister in self._removals.outside():
            assert lister.manifest_uri is not None, "it is complete"
            asset = asset_of(lister.ref)
            place = Warehouse.of_manifest(lister.manifest_uri, asset)
            if roots and set(roots) <= {place.root}:
                continue
            with suppress(ManifestMissing):
                yield lister, set(file_paths(place, read_manifest(place, asset, lister.uuid)))

    # Carrying out

    def carry_out(self, plan: CleaningPlan, *, orphans: bool = False) -> CleaningResult:
        """Remove the planned instances that may still be removed; with `orphans` also files without an owner."""
        done = CleaningResult()
        # On a full disk, the log of the removals needs room first.
        self._engine.store.database.make_room()
        # Another store may have taken over since the plan.
        self._ownership = Ownership(self._engine.store)
        self._finish(plan.unfinished, done)
        going = self._without_unexpired(plan, done)
        for reason in Reason:
            of_reason = [one for one in going if one.reason is reason]
            for start in range(0, len(of_reason), MAX_AT_ONCE):
                self._remove(of_reason[start : start + MAX_AT_ONCE], reason, plan, done)
        for leftover in plan.leftovers:
            if leftover.is_orphan and (not orphans or self._ownership.is_copy):
                continue
            if _succeeds(leftover.path, partial(_remove_leftover, leftover), done):
                done.leftovers.append(leftover)
        return done

    def _without_unexpired(self, plan: CleaningPlan, done: CleaningResult) -> list[PlannedRemoval]:
        """Let keepers forget what may list the removed data; skip the instances of datasets where a keeper could not."""
        failed = set()
        for asset in sorted({asset_of(going.ref) for going in plan.going}):
            for keeper in self._keepers:
                if not _succeeds(asset, partial(keeper.expire, asset, plan.older_than_seconds), done):
                    failed.add(asset)
        return [going for going in plan.going if asset_of(going.ref) not in failed]

    def _remove(self, some: Sequence[PlannedRemoval], reason: Reason, plan: CleaningPlan, done: CleaningResult) -> None:
        some = [going for going in some if self._own([going.warehouse])]
        if not some:
            return
        uuids = tuple(going.uuid for going in some)
        command = RemoveManifests(uuids=uuids, reason=reason.value, tainted=plan.tainted, erasure=plan.erasure)
        events = self._engine.handle(command, actor=this_user()).events
        taken = {uuid for event in events for uuid in event.fact.uuids}  # type: ignore[attr-defined]
        gone = []
        waiting = self._why_kept(taken)
        for going in some:
            if going.uuid not in taken:
                done.kept.append(KeptInstance(going.uuid, going.ref, "it was used again meanwhile"))
            elif going.uuid in waiting:
                done.kept.append(KeptInstance(going.uuid, going.ref, waiting[going.uuid]))
            elif _succeeds(going.ref, partial(self._take_away_from, going.warehouse, going.ref, going.uuid), done):
                gone.append(going)
        self._record_end(going.uuid for going in gone)
        done.going += gone

    def _finish(self, unfinished: Sequence[StoredInstance], done: CleaningResult) -> None:
        for start in range(0, len(unfinished), MAX_AT_ONCE):
            some = unfinished[start : start + MAX_AT_ONCE]
            waiting = self._why_kept([stored.uuid for stored in some])
            done.kept += [
                KeptInstance(stored.uuid, stored.ref, waiting[stored.uuid]) for stored in some if stored.uuid in waiting
            ]
            some = [stored for stored in some if stored.uuid not in waiting]
            gone = [stored for stored in some if _succeeds(stored.ref, partial(self._take_away, stored), done)]
            self._record_end(stored.uuid for stored in gone)
            done.finished += gone

    def _take_away(self, stored: StoredInstance) -> None:
        for warehouse in self._own(self._places_of(stored)):
            self._take_away_from(warehouse, stored.ref, stored.uuid)

    def _take_away_from(self, warehouse: Warehouse, ref: Ref, uuid: str) -> None:
        take_away(warehouse, asset_of(ref), uuid, instances_of(self._engine.queries, [ref]))

    def _record_end(self, uuids: Iterable[str]) -> None:
        if gone := tuple(uuids):
            self._engine.handle(FinishRemovals(uuids=gone), actor=this_user())

    # Warehouses and datasets

    @cached_property
    def _warehouses(self) -> list[Warehouse]:
        return warehouses_of(self._engine.queries, self._default)

    def _unfinished(self, scope: Collection[str]) -> list[StoredInstance]:
        return [stored for stored in self._removals.unfinished() if _is_of(stored.ref, scope)]

    def _assets_of(self, scope: Collection[str]) -> list[str]:
        """The datasets of a scope of datasets and refs, or all. Raises `UnknownAsset`."""
        known = self._removals.assets()
        assets = sorted({asset_of(Ref(name)) for name in scope})
        for asset in assets:
            if asset not in known:
                raise UnknownAsset(asset=asset, names=known)
        return assets or known


def _folders(going: Iterable[PlannedRemoval]) -> dict[str, PlannedRemoval]:
    return {removal.warehouse.instance_dir(asset_of(removal.ref), removal.uuid): removal for removal in going}


def _in_attempts(going: PlannedRemoval) -> list[str]:
    """The files of attempts that an instance lists."""
    try:
        manifest = read_manifest(going.warehouse, asset_of(going.ref), going.uuid)
    except ManifestMissing:
        return []
    return listed_in_attempts(going.warehouse, manifest)


def _files_of(going: PlannedRemoval) -> list[str]:
    """The files that an instance lists."""
    try:
        return file_paths(going.warehouse, read_manifest(going.warehouse, asset_of(going.ref), going.uuid))
    except ManifestMissing:
        return []


def _succeeds(what: str, do: Callable[[], object], done: CleaningResult) -> bool:
    """Whether it could be removed; a failure is noted, and holds up no other removal."""
    try:
        do()
    except DatabuildError as error:
        done.failed.append((what, error.message))
        return False
    return True


def _is_of(ref: Ref, scope: Collection[str]) -> bool:
    return not scope or ref in scope or asset_of(ref) in scope


def _is_odd(folder: Folder, found: Removable | None) -> bool:
    """Whether a folder may hold files that no manifest lists; the store knows the number of most instances' files."""
    if found is None or not found.held.was_live:
        return True
    if [file.path for file in folder.files] == [f"{folder.path}/{MANIFEST_NAME}"]:
        # The files of an attempt are elsewhere.
        return False
    n_files = 0 if found.held.is_from_outside or found.held.manifest_state == REMOVED else found.files
    return len(folder.files) != n_files + len((MANIFEST_NAME,))


def staged_by_the_dead(engine: Engine, warehouse: Warehouse, remains: WarehouseRemains) -> Iterator[Unlisted]:
    """The staging folders here of job runs that no process works on."""
    staged = find_staged(warehouse)
    for name, run in engine.queries.job_runs.named(staged).items():
        if remains.is_over(run.launch_id, engine.queries.job_runs.of_launch(run.launch_id)):
            folder = staged[name]
            n_files = sum(file.path != folder.path for file in folder.files)
            why = f"job run {name}, which began it, has ended"
            yield Unlisted(folder.path, True, run.refs[0], None, n_files, folder.bytes, why)


def _leftovers(unlisted: Iterable[Unlisted], known: dict[str, Removable], handled: set[str]) -> Iterator[Unlisted]:
    """The unlisted files and folders, without items that are planned or removed with their instance."""
    for item in unlisted:
        owner = None if item.uuid is None else known.get(item.uuid)
        if owner is not None:
            goes_as_a_whole = not owner.held.was_live or owner.held.manifest_state == REMOVED
            if item.is_folder or goes_as_a_whole:
                continue
            item = item._replace(ref=owner.ref)
        if item.path not in handled:
            yield item


def _remove_leftover(leftover: Unlisted) -> None:
    storage = storage_at(leftover.path)
    if leftover.loose:
        remove_from_attempts(leftover.loose)
    elif leftover.is_folder:
        storage.remove_tree(leftover.path)
    else:
        storage.remove_files([leftover.path], within=leftover.path.rpartition("/")[0])
