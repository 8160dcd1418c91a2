"""Two instances compared: inputs, code, configuration, libraries, rows, columns, taints (rules 15, 4.6).

The command line, the API and the pages answer in this shape. `a` is the earlier one and `b` the later one, as the asker has them:
what is added is in `b` alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypedDict, cast

from databuild_dagster.engine.why.want_report import who_asked
from databuild_dagster.model.errors import NotFound, Refused
from databuild_dagster.model.events import MadeWith
from databuild_dagster.model.fold.demands import DERIVATIVE
from databuild_dagster.model.refs import Ref
from databuild_dagster.shapes.contents import ColumnShape, ContentsShape, contents_of
from databuild_dagster.shapes.fields import picked, when
from databuild_dagster.shapes.history import one_before
from databuild_dagster.shapes.partitions import TaintShape
from databuild_dagster.store.queries.instances import Instance
from databuild_dagster.store.queries.queries import Queries

#: Inputs that are named, and other differences.
MAX_INPUTS: Final = 500
MAX_SETTINGS: Final = 500
#: Instances of a ref among which the one before is looked for.
MAX_BEFORE: Final = 100
#: People and programs that are named as those who asked.
MAX_ASKERS: Final = 3

Change = Literal["added", "removed", "changed"]


class NothingToCompare(Refused):
    """{ref} has no instance before {uuid}, so there is nothing to compare it with."""

    hint = "`databuild history {ref}` lists what it has; --from and --to name any two instances."


class NeverBuilt(Refused):
    """{ref} is missing: nothing has built it yet, so there is nothing to compare."""

    hint = "`databuild explain {ref}` says why."


class SideShape(TypedDict):
    """One of the two instances. `note` says why its columns are not known."""

    uuid: str
    ref: Ref
    state: str
    canonical: bool
    seq: int
    at: str
    live_since: str | None
    actor: str
    asked_by: list[str]
    job: str | None
    job_run: str
    dagster_run_id: str | None
    rows: int | None
    bytes: int | None
    n_files: int | None
    n_inputs: int
    taints: list[TaintShape]
    note: str | None


class InputChange(TypedDict):
    """A ref of which the two read different instances; `same_rows` if one is a compaction of the other."""

    ref: Ref
    change: Change
    a: str | None
    b: str | None
    same_rows: bool


class InputsDifference(TypedDict):
    """The inputs in which the two differ: the first of them by ref, and how many there are."""

    added: int
    removed: int
    changed: int
    same: int
    changes: list[InputChange]


class SettingChange(TypedDict):
    """A fact of the build that differs: `kind` is code, config, tag or version."""

    kind: str
    name: str
    a: Any
    b: Any


class ColumnChange(TypedDict):
    """A column of one alone, or with other types; a type ends with ` not null` where the column may have no nulls."""

    name: str
    change: Change
    a: str | None
    b: str | None


class DiffShape(TypedDict):
    """What differs between two instances."""

    a: SideShape
    b: SideShape
    inputs: InputsDifference
    settings: list[SettingChange]
    columns: list[ColumnChange]


def instances_to_compare(queries: Queries, ref: Ref, first: str | None, second: str | None) -> tuple[str, str]:
    """The whole uuids: `second` is by default the canonical instance of a ref, `first` the one before it.

    Raises `NeverBuilt`, `NothingToCompare`.
    """
    second = second or queries.canonical([ref])[ref].uuid
    if second is None:
        raise NeverBuilt(ref=ref)
    if first is None:
        history = queries.history(ref, MAX_BEFORE)
        first = one_before([(instance.uuid, instance.live_at is not None) for instance in history], second)
    if first is None:
        raise NothingToCompare(ref=ref, uuid=second)
    return first, second


def diff_of(queries: Queries, first: str, second: str) -> DiffShape:
    """The differences of two instances by their whole uuids. Raises `NotFound`."""
    both = (first, second)
    known = {instance.uuid: instance for instance in queries.instances_named(both)}
    for uuid in both:
        if uuid not in known:
            raise NotFound(kind="instance", name=uuid)
    contents = [contents_of(queries, uuid) for uuid in both]
    made_with = queries.made_with(both)
    a, b = (_side(queries, known[uuid], found) for uuid, found in zip(both, contents, strict=True))
    counts, pairs = queries.input_differences(first, second, MAX_INPUTS)
    has_columns = not any(found["note"] for found in contents)
    return {
        "a": a,
        "b": b,
        "inputs": {
            "added": counts.added,
            "removed": counts.removed,
            "changed": counts.replaced,
            "same": b["n_inputs"] - counts.added - counts.replaced,
            "changes": [
                {
                    "ref": pair.ref,
                    "change": _change(pair.first, pair.second),
                    "a": pair.first,
                    "b": pair.second,
                    "same_rows": pair.is_same_rows,
                }
                for pair in pairs
            ],
        },
        "settings": _settings(*(_code(known[uuid], made_with.get(uuid)) for uuid in both))[:MAX_SETTINGS],
        "columns": _columns(*(found["columns"] for found in contents)) if has_columns else [],
    }


def _side(queries: Queries, instance: Instance, contents: ContentsShape) -> SideShape:
    uuid = instance.uuid
    data = queries.data_facts([uuid])[uuid]
    job_run = queries.job_run(instance.job_run)
    askers = who_asked(queries, [uuid])[uuid]
    named = dict.fromkeys(asker.actor for asker in askers if asker.source != DERIVATIVE)
    found: dict[str, Any] = {
        **picked(instance, "uuid", "ref", "state", "canonical", "seq", "actor", "job_run"),
        "at": when(instance.at),
        "live_since": when(instance.live_at),
        "asked_by": list(named)[:MAX_ASKERS],
        "job": job_run.job if job_run else None,
        "dagster_run_id": job_run.dagster_run_id if job_run else None,
        "rows": data.rows,
        "bytes": data.bytes,
        "n_files": data.files,
        "n_inputs": queries.n_inputs_of([uuid]).get(uuid, 0),
        "taints": [
            picked(taint, "taint_id", "reason", "actor", "created_at")
            for taint in queries.taints_in_force([uuid]).get(uuid, ())
        ],
        "note": contents["note"],
    }
    return cast("SideShape", found)


#: A fact by its kind and its name.
_Settings = Mapping[tuple[str, str], Any]


def _code(instance: Instance, made_with: MadeWith | None) -> _Settings:
    found: dict[tuple[str, str], Any] = {("code", "version"): instance.code_version}
    if made_with is None:
        return found
    found["code", "fingerprint"] = made_with.code
    found |= {("config", name): value for name, value in _flat(made_with.config)}
    found |= {("tag", name): value for name, value in made_with.tags.items()}
    return found | {("version", name): value for name, value in made_with.versions.items()}


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a configuration, each with the way to it: `ops.orders.config.rate`."""
    if not isinstance(value, Mapping) or (name and not value):
        yield name, value
        return
    for key, inner in value.items():
        yield from _flat(inner, f"{name}.{key}" if name else str(key))


def _settings(first: _Settings, second: _Settings) -> list[SettingChange]:
    differing = [key for key in dict.fromkeys([*first, *second]) if first.get(key) != second.get(key)]
    return [
        {"kind": kind, "name": name, "a": first.get((kind, name)), "b": second.get((kind, name))}
        for kind, name in sorted(differing)
    ]


def _columns(first: Sequence[ColumnShape], second: Sequence[ColumnShape]) -> list[ColumnChange]:
    """In the order of the second instance; columns of the first one alone come last."""
    before, after = ({column["name"]: _type(column) for column in columns} for columns in (first, second))
    return [
        {
            "name": name,
            "change": _change(before.get(name), after.get(name)),
            "a": before.get(name),
            "b": after.get(name),
        }
        for name in dict.fromkeys([*after, *before])
        if before.get(name) != after.get(name)
    ]


def _type(column: ColumnShape) -> str:
    return column["type"] if column["nullable"] else f"{column['type']} not null"


def _change(first: object, second: object) -> Change:
    if first is None:
        return "added"
    return "removed" if second is None else "changed"
