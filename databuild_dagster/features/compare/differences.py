"""Two instances compared: inputs, code, configuration, libraries, rows, columns, taints (rules 15, 4.6).

The command line, the API and the pages answer in this shape. `a` is the first instance and `b` the second, in the asker's order:
what is added is in `b` alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from databuild_dagster.calls.contents import Contents, contents_of
from databuild_dagster.engine.why.code import changed_parts, registered_codes
from databuild_dagster.engine.why.history import one_before
from databuild_dagster.engine.why.want_report import who_asked
from databuild_dagster.model.errors import NotFound, Refused
from databuild_dagster.model.events import MadeWith
from databuild_dagster.model.fold.demands import DERIVATIVE
from databuild_dagster.model.records import Time, extended
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.queries.instances import Instance, Taint
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.warehouse.manifest import Column

#: Inputs that are named, and other differences.
MAX_INPUTS: Final = 500
MAX_SETTINGS: Final = 500
#: Instances of a ref that are searched for the predecessor.
MAX_BEFORE: Final = 100
#: People and programs that are named as askers.
MAX_ASKERS: Final = 3

Change = Literal["added", "removed", "changed"]


class NothingToCompare(Refused):
    """{ref} has no instance before {uuid}, so there is nothing to compare it with."""

    hint = "`databuild history {ref}` lists what it has; --from and --to name any two instances."


class NeverBuilt(Refused):
    """{ref} is missing: nothing has built it yet, so there is nothing to compare."""

    hint = "`databuild explain {ref}` says why."


class Side(msgspec.Struct, frozen=True):
    """Either of the two instances. `note` says why its columns are not known."""

    uuid: str
    ref: Ref
    state: InstanceState
    canonical: bool
    seq: int
    actor: str
    job_run: str
    at: Time
    live_since: Time | None
    asked_by: list[str]
    job: str | None
    dagster_run_id: str | None
    rows: int | None
    bytes: int | None
    n_files: int | None
    n_inputs: int
    taints: Sequence[Taint]
    note: str | None


class InputChange(msgspec.Struct, frozen=True):
    """A ref of which the two sides read different instances; `same_rows` if they differ by compaction alone."""

    ref: Ref
    change: Change
    a: str | None
    b: str | None
    same_rows: bool


class InputsDifference(msgspec.Struct, frozen=True):
    """The inputs in which the two differ: the first of them by ref, and how many there are."""

    added: int
    removed: int
    changed: int
    same: int
    changes: list[InputChange]


class SettingChange(msgspec.Struct, frozen=True):
    """A fact of the build that differs: `kind` is code, config, tag or version. A function of the code is named with its file."""

    kind: str
    name: str
    a: Any
    b: Any


class ColumnChange(msgspec.Struct, frozen=True):
    """A column of a single side, or of different types; a type ends with ` not null` if the column may have no nulls."""

    name: str
    change: Change
    a: str | None
    b: str | None


class Difference(msgspec.Struct, frozen=True):
    """What differs between two instances."""

    a: Side
    b: Side
    inputs: InputsDifference
    settings: list[SettingChange]
    columns: list[ColumnChange]
    #: The rows are equal by the hashes that both builds recorded (rule 4.8); False if they differ, or are not known.
    equal_by_hash: bool


def instances_to_compare(queries: Queries, ref: Ref, first: str | None, second: str | None) -> tuple[str, str]:
    """The whole uuids: `second` is by default the canonical instance of a ref, `first` its predecessor.

    Raises `NeverBuilt`, `NothingToCompare`.
    """
    second = second or queries.canonical.of([ref])[ref].uuid
    if second is None:
        raise NeverBuilt(ref=ref)
    if first is None:
        history = queries.instances.history(ref, MAX_BEFORE)
        first = one_before([(instance.uuid, instance.live_at is not None) for instance in history], second)
    if first is None:
        raise NothingToCompare(ref=ref, uuid=second)
    return first, second


def diff_of(queries: Queries, first: str, second: str) -> Difference:
    """The differences of two instances by their whole uuids. Raises `NotFound`."""
    both = (first, second)
    known = {instance.uuid: instance for instance in queries.instances.named(both)}
    for uuid in both:
        if uuid not in known:
            raise NotFound(kind="instance", name=uuid)
    contents = [contents_of(queries, uuid) for uuid in both]
    made_with = queries.instances.made_with(both)
    a, b = (_side(queries, known[uuid], found) for uuid, found in zip(both, contents, strict=True))
    counts, pairs = queries.instances.input_differences(first, second, MAX_INPUTS)
    differing = [
        InputChange(pair.ref, _change(pair.first, pair.second), pair.first, pair.second, pair.is_same_rows)
        for pair in pairs
    ]
    n_same = b.n_inputs - counts.added - counts.replaced
    settings = _settings(*(_code(known[uuid], made_with.get(uuid)) for uuid in both))
    changed = _changed_code(queries, *((one.ref, made_with.get(one.uuid)) for one in (a, b)))
    columns = [] if any(found.note for found in contents) else column_changes(*(found.columns for found in contents))
    inputs = InputsDifference(counts.added, counts.removed, counts.replaced, n_same, differing)
    hashes = queries.instances.content_hashes(both)
    equal_by_hash = first in hashes and hashes[first] == hashes.get(second)
    return Difference(a, b, inputs, [*changed, *settings][:MAX_SETTINGS], columns, equal_by_hash)


def _side(queries: Queries, instance: Instance, contents: Contents) -> Side:
    uuid = instance.uuid
    data = queries.instances.data_facts([uuid])[uuid]
    job_run = queries.job_runs.get(instance.job_run)
    askers = who_asked(queries, [uuid])[uuid]
    named = dict.fromkeys(asker.actor for asker in askers if asker.source != DERIVATIVE)
    return extended(
        Side,
        instance,
        data,
        live_since=instance.live_at,
        asked_by=list(named)[:MAX_ASKERS],
        job=job_run.job if job_run else None,
        dagster_run_id=job_run.dagster_run_id if job_run else None,
        n_files=data.files,
        n_inputs=queries.instances.n_inputs_of([uuid]).get(uuid, 0),
        taints=queries.instances.taints_in_force([uuid]).get(uuid, ()),
        note=contents.note,
    )


#: A fact by its kind and its name.
_Settings = Mapping[tuple[str, str], Any]


def _code(instance: Instance, made_with: MadeWith | None) -> _Settings:
    found: dict[tuple[str, str], Any] = {("code", "version"): instance.code_version}
    if made_with is None:
        return found
    found["code", "digest"] = made_with.code
    found["code", "unknown"] = "; ".join(made_with.unknown) or None
    found |= {("config", name): value for name, value in _flat(made_with.config)}
    found |= {("tag", name): value for name, value in made_with.tags.items()}
    return found | {("version", name): value for name, value in made_with.versions.items()}


def _changed_code(
    queries: Queries, first: tuple[Ref, MadeWith | None], second: tuple[Ref, MadeWith | None]
) -> list[SettingChange]:
    """The functions, classes and constants that differ, as far as registrations have them."""
    old, new = ((asset_of(ref), made_with.code or "" if made_with else "") for ref, made_with in (first, second))
    if not old[1] or not new[1] or old == new:
        return []
    known = registered_codes(queries, {old[0], new[0]})
    before, after = known.get(old), known.get(new)
    if before is None or after is None:
        return []
    return [SettingChange("code", part, a, b) for part, a, b in changed_parts(before, after)]


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a configuration, each with the way to it: `ops.orders.config.rate`."""
    if not isinstance(value, Mapping) or (name and not value):
        yield name, value
        return
    for key, inner in value.items():
        yield from _flat(inner, f"{name}.{key}" if name else str(key))


def _settings(first: _Settings, second: _Settings) -> list[SettingChange]:
    differing = [key for key in dict.fromkeys([*first, *second]) if first.get(key) != second.get(key)]
    return [SettingChange(*key, first.get(key), second.get(key)) for key in sorted(differing)]


def column_changes(first: Sequence[Column], second: Sequence[Column]) -> list[ColumnChange]:
    """In the order of the second instance; columns of the first instance alone come last."""
    before, after = ({column.name: _type(column) for column in columns} for columns in (first, second))
    return [
        ColumnChange(name, _change(before.get(name), after.get(name)), before.get(name), after.get(name))
        for name in dict.fromkeys([*after, *before])
        if before.get(name) != after.get(name)
    ]


def _type(column: Column) -> str:
    return column.type if column.nullable else f"{column.type} not null"


def _change(first: object, second: object) -> Change:
    if first is None:
        return "added"
    return "removed" if second is None else "changed"
