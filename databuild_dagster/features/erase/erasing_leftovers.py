"""Rows to erase outside of the data of instances: in files that no instance lists, and in results of operations (rule 10.11).

The rest of attempts is removed whole. A folder of no known instance may belong to a different store: it is named if rows in it
match. The folders of killed rewrites hold no such rows, and the next rewrite clears them. Rows that operations such as `validate`
showed are removed from the meta storage. The events that wrote the rows there are only named: the log is never edited.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from databuild_dagster.data.lost_run_output import WarehouseRemains
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import this_user
from databuild_dagster.features.clean.cleaning import Cleaner, CleaningPlan, staged_by_the_dead
from databuild_dagster.features.clean.orphan_files import Unlisted, unlisted_storage
from databuild_dagster.features.erase.rewriting import Condition
from databuild_dagster.model.commands import CompactMeta, InvokeMeta
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.events import MetaInvoked, names_of
from databuild_dagster.model.meta_storage import Put, do
from databuild_dagster.model.operations.keys import HISTORY, ROOT, SEPARATOR, escape
from databuild_dagster.model.refs import Ref, asset_of, derive_partition_uuid
from databuild_dagster.store.meta_storage import MetaQueries
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.warehouse import disk
from databuild_dagster.warehouse.formats import READABLE, WRITTEN
from databuild_dagster.warehouse.layout import Found, Warehouse, find_staged, find_stored
from databuild_dagster.warehouse.removing import discard

#: The beginning of the names of staging folders.
_STAGED: Final = "erase-"
_UUID_LENGTH: Final = 36


class NamedPlace(msgspec.Struct, frozen=True):
    """A ref or a path that is not done, or is gone, and why."""

    what: str
    why: str


@dataclass
class Leftovers:
    """The rest of attempts of a dataset, to be removed, and the places that stay."""

    plan: CleaningPlan = field(default_factory=CleaningPlan)
    named: list[NamedPlace] = field(default_factory=list)

    @classmethod
    def of(
        cls, engine: Engine, cleaner: Cleaner, asset: str, places: Sequence[Warehouse], condition: Condition
    ) -> Leftovers:
        """Lists the folders of the dataset. Raises `DiskTrouble`, `StorageTrouble`."""
        plan = cleaner.plan_clean((asset,))
        # Finished by the removal of superseded data.
        plan.unfinished = []
        seen = {going.warehouse.instance_dir(asset, going.uuid) for going in plan.going}
        seen |= {left.path for left in plan.leftovers}
        found = cls(plan, [NamedPlace(kept.ref, f"the rest of an attempt: {kept.why}") for kept in plan.kept])
        for warehouse in places:
            staged = staged_by_the_dead(engine, warehouse, WarehouseRemains(engine, warehouse.root))
            plan.leftovers += [left for left in staged if left.ref is not None and asset_of(left.ref) == asset]
            seen |= {left.path for left in plan.leftovers}
            found.named += _staged_just_now(engine, warehouse, asset, seen)
            stored = _of_dataset(find_stored(warehouse, [asset]), f"{warehouse.dataset_dir(asset)}/data/")
            for item in unlisted_storage(engine.queries, warehouse, engine.clock(), stored):
                if item.path in seen:
                    continue
                if item.ref is not None and asset_of(item.ref) == asset:
                    plan.leftovers.append(item)
                elif item.ref is None and item.path.startswith(f"{warehouse.dataset_dir(asset)}/data/"):
                    found.named += _matching(warehouse, asset, item, condition)
        return found

    @property
    def listed(self) -> list[NamedPlace]:
        """The rests that `remove` removes."""
        gone = [NamedPlace(going.ref, f"instance {going.uuid}, {going.reason.value}") for going in self.plan.going]
        return [*gone, *(NamedPlace(left.path, left.why) for left in self.plan.leftovers if not left.is_orphan)]

    def remove(self, cleaner: Cleaner) -> list[NamedPlace]:
        """Remove the rest of attempts; returns what is gone. A failure is named."""
        done = cleaner.carry_out(self.plan)
        self.named += [NamedPlace(what, why) for what, why in done.failed]
        self.named += [NamedPlace(kept.ref, f"the rest of an attempt: {kept.why}") for kept in done.kept]
        self.plan = CleaningPlan(going=done.going, leftovers=done.leftovers)
        return self.listed


def _of_dataset(stored: Found, folder: str) -> Found:
    return Found(
        [one for one in stored.folders if one.path.startswith(folder)],
        [one for one in stored.attempts if one.path.startswith(folder)],
        stored.strays,
    )


def _staged_just_now(engine: Engine, warehouse: Warehouse, asset: str, seen: Collection[str]) -> Iterator[NamedPlace]:
    """Staging folders of job runs that have ended, whose process may not have."""
    found = find_staged(warehouse).items()
    folders = {name: folder.path for name, folder in found if folder.files[0].path != folder.path}
    for name, run in engine.queries.job_runs.named(folders).items():
        if run.ended_at is not None and folders[name] not in seen and asset in map(asset_of, run.refs):
            yield NamedPlace(
                folders[name], f"job run {name}, which began it, has ended, but its process may be writing there"
            )


def _matching(warehouse: Warehouse, asset: str, item: Unlisted, condition: Condition) -> Iterator[NamedPlace]:
    """An orphan if it has matching rows or cannot be read."""
    suffixes = tuple(data_format.suffix for data_format in READABLE.values())
    paths = item.loose or ([file.path for file in warehouse.all_files(item.path)] if item.is_folder else [item.path])
    advice = "`databuild gc --leftovers --orphans --yes` removes it"
    for path in paths:
        if not path.endswith(suffixes):
            continue
        try:
            matched = condition.count(path, Ref(asset), WRITTEN.name).matched
        except DatabuildError as error:
            yield NamedPlace(path, f"{item.why}, and it cannot be read: {error.message.rstrip('.')}; {advice}")
            continue
        if matched or condition.needs_key:
            yield NamedPlace(path, f"{item.why}, and rows in it {'may ' if condition.needs_key else ''}match; {advice}")


# Killed rewrites


def staging_name(uuid: str, job_run: str) -> str:
    """The name of the staging folder of a rewrite: the instance that it replaces, and its job run."""
    return f"{_STAGED}{uuid}-{job_run}"


def command_of(job_run: str) -> str:
    """The id of the command that moves the pointer to a rewrite."""
    return derive_partition_uuid(job_run, "command")


def clear_killed(engine: Engine, asset: str, places: Sequence[Warehouse]) -> None:
    """Remove the files of rewrites of a dataset that never became an instance, as far as this machine has begun them.

    Their process may only be asleep before its command. So the command's id is used up first, and the command has no effect any
    more (decision 0050).
    """
    for warehouse in places:
        for name, folder in warehouse.staging_dirs().items():
            if not name.startswith(_STAGED):
                continue
            named = name.removeprefix(_STAGED)
            replaced, job_run = engine.queries.instances.get(named[:_UUID_LENGTH]), named[_UUID_LENGTH + 1 :]
            if replaced is None or asset_of(replaced.ref) != asset:
                continue
            uuid = derive_partition_uuid(job_run, replaced.ref)
            engine.handle(InvokeMeta(statements=(do(),)), actor=this_user(), command_id=command_of(job_run))
            if engine.queries.instances.get(uuid) is None:
                discard(warehouse, asset, uuid)
            disk.remove_tree(folder)


#: The field of a result that has rows.
_SAMPLES: Final = "samples"
#: Events that are decoded at once.
PORTION: Final = 10_000


def sampled(queries: Queries, meta: MetaQueries, asset: str, condition: Condition) -> Iterator[NamedPlace]:
    """Each event of the log with a row of a dataset that an operation showed, and that matches."""
    beginnings = tuple(f"{root}{SEPARATOR}{escape(asset)}{SEPARATOR}" for root in (ROOT, HISTORY))
    if not any(meta.prefix(beginning).entries for beginning in beginnings):
        return
    head = queries.events.head().seq
    for start in range(0, head, PORTION):
        for event in queries.events.named(names_of(MetaInvoked), start, min(start + PORTION, head)):
            assert isinstance(event.fact, MetaInvoked), "of this type alone"
            values = (value for key, value in event.fact.puts.items() if key.startswith(beginnings))
            if any(_with_samples(value, condition, list) is not None for value in values):
                why = "it has a row that an operation showed, and the log is never edited"
                yield NamedPlace(f"event {event.seq} of the log", why)


def clear_samples(engine: Engine, meta: MetaQueries, asset: str, condition: Condition) -> None:
    """Take the lists with a matching row out of the results of ended operations on a dataset."""
    beginning = f"{HISTORY}{SEPARATOR}{escape(asset)}{SEPARATOR}"
    cleared = {
        entry.key: found
        for entry in meta.prefix(beginning).entries
        if entry.value is not None and (found := _with_samples(entry.value, condition, lambda rows: [])) is not None
    }
    if cleared:
        puts = tuple(Put(key, value) for key, value in cleared.items())
        engine.handle(InvokeMeta(statements=(do(*puts),)), actor=this_user())
        # The changes of a key keep its earlier values.
        engine.handle(CompactMeta(up_to=engine.queries.events.head().seq), actor=this_user())


def _with_samples(value: bytes, condition: Condition, becomes: Callable[[list[Any]], list[Any]]) -> bytes | None:
    """The value with each list of rows that has a match replaced by `becomes`; None if no list has a match."""
    if f'"{_SAMPLES}"'.encode() not in value:
        return None
    try:
        found = json.loads(value)
    except ValueError:
        return None
    is_changed = False

    def changed(part: Any) -> Any:
        nonlocal is_changed
        if isinstance(part, list):
            return [changed(item) for item in part]
        if not isinstance(part, dict):
            return part
        rows = part.get(_SAMPLES)
        if isinstance(rows, list) and any(condition.may_match(_row(row)) for row in rows):
            is_changed = True
            part = {**part, _SAMPLES: becomes(rows)}
        return {name: item if name == _SAMPLES else changed(item) for name, item in part.items()}

    other = changed(found)
    return json.dumps(other, ensure_ascii=False, separators=(",", ":")).encode() if is_changed else None


def _row(shown: Any) -> Any:
    try:
        return json.loads(shown) if isinstance(shown, str) else shown
    except ValueError:
        return None
