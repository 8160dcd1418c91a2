"""What nobody will read again is found, told, and, when somebody says so, taken away (SPEC 10.8).

A plan looks and changes nothing. Carrying it out has three steps, and a process may die at any line of them: an event says
that nobody reads these instances any more, decided anew in its transaction; their files go; an event says that they are
gone. What is between the first and the last is found by the store, and finished by whoever cleans up next.

Whose data may go at all, `model.removals` says. Files that an instance lists by their whole path are somebody else's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import groupby
from typing import NamedTuple

from databuild_dagster.data.lost_run_output import WarehouseRemains
from databuild_dagster.data.orphan_files import Unlisted, unlisted_storage, warehouses_of
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.who import this_user
from databuild_dagster.model.commands import FinishRemovals, RemoveManifests
from databuild_dagster.model.errors import DatabuildError, UnknownAsset
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.removals import REMOVED, Reason, reason_of, why_kept
from databuild_dagster.model.states import InstanceState, JobRunState
from databuild_dagster.store.removals import Removable, Removals, Stored
from databuild_dagster.warehouse.errors import ManifestMissing
from databuild_dagster.warehouse.found import Folder, find_staged, find_stored
from databuild_dagster.warehouse.layout import MANIFEST_NAME, Warehouse
from databuild_dagster.warehouse.manifest import file_paths, read_manifest, take_away
from databuild_dagster.warehouse.storage import storage_at

#: Instances of one event: so many folders are half-way at most when somebody pulls the plug.
MAX_AT_ONCE = 200

#: Who was ended by others may not have heard of it, and may be writing still.
_ENDED_BY_OTHERS = frozenset({JobRunState.LOST, JobRunState.CANCELED})


class Going(NamedTuple):
    """An instance whose data is to go."""

    uuid: str
    ref: Ref
    reason: Reason
    files: int
    bytes: int
    warehouse: Warehouse


class Kept(NamedTuple):
    """An instance whose data was looked at, and stays."""

    uuid: str
    ref: Ref
    why: str


class Leftover(NamedTuple):
    """What lies there and is no instance's data."""

    path: str
    is_folder: bool
    files: int
    bytes: int
    why: str
    #: No instance is known whose it could be: another Dagster instance that writes there may know one.
    is_nobodys: bool


@dataclass
class Plan:
    """What would go, and what stays."""

    #: Whether what has no successor may go for being tainted.
    tainted: bool = False
    going: list[Going] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    leftovers: list[Leftover] = field(default_factory=list)
    #: What somebody has begun to take away.
    unfinished: list[Stored] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.going or self.leftovers or self.unfinished)


@dataclass
class Done:
    """What has gone."""

    going: list[Going] = field(default_factory=list)
    finished: list[Stored] = field(default_factory=list)
    leftovers: list[Leftover] = field(default_factory=list)
    #: What had to stay in the end, for somebody had changed its lot meanwhile.
    kept: list[Kept] = field(default_factory=list)
    #: (ref or path, why): it is tried again by the next clean-up.
    failed: list[tuple[str, str]] = field(default_factory=list)


class Cleaner:
    """Plans, and carries out, over the store and every warehouse that it knows of."""

    def __init__(self, engine: Engine, warehouse: str) -> None:
        self._engine = engine
        self._default = warehouse
        self._removals = Removals(engine.store)

    # What attempts left

    def plan_clean(self, assets: Sequence[str] = ()) -> Plan:
        """What attempts have left that came to nothing, of these datasets or of all. Raises `UnknownAsset`."""
        self._check_known(assets)
        plan = Plan(unfinished=self._unfinished(assets))
        seen = {each.uuid for each in plan.unfinished}
        for warehouse in self._warehouses:
            stored = find_stored(warehouse, assets or self._removals.assets())
            known = self._removals.of_uuids(folder.uuid for folder in stored.folders)
            remains = WarehouseRemains(self._engine, warehouse.root)
            for folder in stored.folders:
                each = known.get(folder.uuid)
                if each is None or not _is_of(each.ref, assets) or not _is_its(folder, warehouse, each):
                    continue
                if each.uuid not in seen:
                    self._take_in(plan, each, folder, warehouse, remains)
                seen.add(each.uuid)
            if not assets:
                handled = {each.warehouse.instance_dir(asset_of(each.ref), each.uuid) for each in plan.going}
                odd = [folder for folder in stored.folders if _is_odd(folder, known.get(folder.uuid))]
                now = self._engine.clock()
                unlisted = unlisted_storage(self._engine.queries, warehouse, now, stored._replace(folders=odd))
                staged = list(_staged_by_the_dead(self._engine, warehouse, remains))
                told = {each.path for each in staged}
                plan.leftovers += staged
                plan.leftovers += _leftovers(unlisted, known, handled | told)
        return plan

    def _take_in(
        self, plan: Plan, each: Removable, folder: Folder, warehouse: Warehouse, remains: WarehouseRemains
    ) -> None:
        files = [file for file in folder.files if file.path != f"{folder.path}/{MANIFEST_NAME}"]
        if each.held.manifest_state == REMOVED:
            # It was finished, and somebody who was long dead to us has written once more.
            if files:
                plan.unfinished.append(Stored(each.uuid, each.ref, f"{folder.path}/{MANIFEST_NAME}"))
            return
        if each.held.was_live:
            return
        why = why_kept(each.held)
        if why is None and each.job_run_state in _ENDED_BY_OTHERS:
            runs = self._engine.queries.job_runs_of_launch(each.launch_id)
            if not remains.is_over(each.launch_id, runs):
                why = "its job run was ended by others, and may not have heard of it"
        if why is not None:
            plan.kept.append(Kept(each.uuid, each.ref, why))
            return
        size_bytes = sum(file.bytes for file in files)
        plan.going.append(Going(each.uuid, each.ref, Reason.PARTIAL, len(files), size_bytes, warehouse))

    # What is superseded

    def plan_gc(
        self, assets: Sequence[str] = (), *, keep: int, older_than_seconds: float, tainted: bool = False
    ) -> Plan:
        """Instances that another one has taken the place of: but for the newest `keep` of each ref, and for those that
        readers saw not longer ago than that. With `tainted` also what is tainted and has no successor.

        Raises `UnknownAsset`.
        """
        self._check_known(assets)
        plan = Plan(tainted=tainted, unfinished=self._unfinished(assets))
        now = self._engine.clock()
        for asset in assets or self._removals.assets():
            for _, instances in groupby(self._removals.of_dataset(asset), key=lambda each: each.ref):
                n_earlier = 0
                for each in instances:
                    held = each.held
                    if not held.was_live or held.manifest_state == REMOVED:
                        continue
                    if held.is_canonical and (not tainted or held.state is not InstanceState.TAINTED):
                        continue
                    n_earlier += not held.is_canonical
                    why = why_kept(held, tainted=tainted)
                    if why is None and not held.is_canonical and n_earlier <= keep:
                        why = "it is among the newest, of which so many are kept"
                    if why is None and now - each.left_at < older_than_seconds:
                        why = "readers saw it not long enough ago"
                    if why is None:
                        assert each.manifest_uri is not None, "or it would be kept"
                        place = Warehouse.of_manifest(each.manifest_uri, asset)
                        plan.going.append(Going(each.uuid, each.ref, reason_of(held), each.files, each.bytes, place))
                    else:
                        plan.kept.append(Kept(each.uuid, each.ref, why))
        self._keep_what_others_list(plan)
        return plan

    def _keep_what_others_list(self, plan: Plan) -> None:
        """A location may have adopted what lies in another one's warehouse; in its own that is refused."""
        outside = self._removals.outside() if plan.going else []
        folders = {each.warehouse.instance_dir(asset_of(each.ref), each.uuid): each for each in plan.going}
        roots = {each.warehouse.root for each in plan.going}
        for lister in outside:
            assert lister.manifest_uri is not None, "it is complete"
            asset = asset_of(lister.ref)
            place = Warehouse.of_manifest(lister.manifest_uri, asset)
            if roots <= {place.root}:
                continue
            try:
                listed = file_paths(place, read_manifest(place, asset, lister.uuid))
            except ManifestMissing:
                continue
            for folder in {path.rpartition("/")[0] for path in listed} & folders.keys():
                each = folders.pop(folder)
                plan.kept.append(Kept(each.uuid, each.ref, f"instance {lister.uuid} of {lister.ref} lists its files"))
        plan.going = list(folders.values())

    # Carrying out

    def carry_out(self, plan: Plan, *, orphans: bool = False) -> Done:
        """What is in the plan, and may still go. `orphans` takes along what is known to nobody."""
        done = Done()
        self._finish(plan.unfinished, done)
        for reason in Reason:
            of_reason = [each for each in plan.going if each.reason is reason]
            for start in range(0, len(of_reason), MAX_AT_ONCE):
                self._remove(of_reason[start : start + MAX_AT_ONCE], reason, plan.tainted, done)
        for each in plan.leftovers:
            if (orphans or not each.is_nobodys) and _succeeds(each.path, partial(_remove_leftover, each), done):
                done.leftovers.append(each)
        return done

    def _remove(self, some: Sequence[Going], reason: Reason, tainted: bool, done: Done) -> None:
        uuids = tuple(each.uuid for each in some)
        command = RemoveManifests(uuids=uuids, reason=reason.value, tainted=tainted)
        events = self._engine.handle(command, actor=this_user()).events
        taken = {uuid for event in events for uuid in event.fact.uuids}  # type: ignore[attr-defined]
        gone = []
        for each in some:
            if each.uuid not in taken:
                done.kept.append(Kept(each.uuid, each.ref, "somebody has come back to it meanwhile"))
            elif _succeeds(each.ref, partial(take_away, each.warehouse, asset_of(each.ref), each.uuid), done):
                gone.append(each)
        self._say_finished(each.uuid for each in gone)
        done.going += gone

    def _finish(self, unfinished: Sequence[Stored], done: Done) -> None:
        for start in range(0, len(unfinished), MAX_AT_ONCE):
            some = unfinished[start : start + MAX_AT_ONCE]
            gone = [each for each in some if _succeeds(each.ref, partial(self._take_away, each), done)]
            self._say_finished(each.uuid for each in gone)
            done.finished += gone

    def _take_away(self, each: Stored) -> None:
        asset = asset_of(each.ref)
        if each.manifest_uri is not None:
            take_away(Warehouse.of_manifest(each.manifest_uri, asset), asset, each.uuid)
            return
        for warehouse in self._warehouses:
            take_away(warehouse, asset, each.uuid)

    def _say_finished(self, uuids: Iterable[str]) -> None:
        if gone := tuple(uuids):
            self._engine.handle(FinishRemovals(uuids=gone), actor=this_user())

    # Where, and of what

    @cached_property
    def _warehouses(self) -> list[Warehouse]:
        return warehouses_of(self._engine.queries, self._default)

    def _unfinished(self, assets: Sequence[str]) -> list[Stored]:
        return [each for each in self._removals.unfinished() if _is_of(each.ref, assets)]

    def _check_known(self, assets: Sequence[str]) -> None:
        known = self._removals.assets() if assets else []
        for asset in assets:
            if asset not in known:
                raise UnknownAsset(asset=asset, names=known)


def _succeeds(what: str, do: Callable[[], None], done: Done) -> bool:
    """One that cannot be removed holds up no other."""
    try:
        do()
    except DatabuildError as error:
        done.failed.append((what, error.message))
        return False
    return True


def _is_of(ref: Ref, assets: Sequence[str]) -> bool:
    return not assets or asset_of(ref) in assets


def _is_its(folder: Folder, warehouse: Warehouse, each: Removable) -> bool:
    """A folder elsewhere that has its uuid is not its own."""
    return warehouse.instance_dir(asset_of(each.ref), each.uuid) == folder.path


def _is_odd(folder: Folder, each: Removable | None) -> bool:
    """Whether a folder may hold what no manifest lists; of most the store knows how many files there are to be."""
    if each is None or not each.held.was_live:
        return True
    n_files = 0 if each.held.is_from_outside or each.held.manifest_state == REMOVED else each.files
    return len(folder.files) != n_files + len((MANIFEST_NAME,))


def _staged_by_the_dead(engine: Engine, warehouse: Warehouse, remains: WarehouseRemains) -> Iterator[Leftover]:
    """What is being written here by job runs that nobody can be at work on."""
    staged = find_staged(warehouse)
    for name, run in engine.queries.job_runs_named(staged).items():
        if remains.is_over(run.launch_id, engine.queries.job_runs_of_launch(run.launch_id)):
            folder = staged[name]
            n_files = sum(file.path != folder.path for file in folder.files)
            why = f"job run {name}, which began it, has ended"
            yield Leftover(folder.path, True, n_files, folder.bytes, why, is_nobodys=False)


def _leftovers(unlisted: Iterable[Unlisted], known: dict[str, Removable], handled: set[str]) -> Iterator[Leftover]:
    """But for what is planned already, or waits for its turn as an instance."""
    for each in unlisted:
        of = None if each.uuid is None else known.get(each.uuid)
        if each.path in handled or (of is not None and (each.is_folder or _goes_as_a_whole(of))):
            continue
        is_nobodys = of is None and each.ref is None
        yield Leftover(each.path, each.is_folder, each.n_files, each.bytes, each.why, is_nobodys=is_nobodys)


def _goes_as_a_whole(each: Removable) -> bool:
    return not each.held.was_live or each.held.manifest_state == REMOVED


def _remove_leftover(each: Leftover) -> None:
    storage = storage_at(each.path)
    if each.is_folder:
        storage.remove_tree(each.path)
    else:
        storage.remove_files([each.path], within=each.path.rpartition("/")[0])
