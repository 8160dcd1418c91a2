"""Rows that results of operations show, such as those of `validate` (rule 10.11).

They are in the meta storage, from which they are taken out, and in the events that wrote them there, which are only named: the log
is never edited.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import this_user
from databuild_dagster.features.erase.erasing_leftovers import Named
from databuild_dagster.features.erase.rewriting import Condition
from databuild_dagster.model.commands import CompactMeta, InvokeMeta
from databuild_dagster.model.events import MetaInvoked, names_of
from databuild_dagster.model.meta_storage import Put, do
from databuild_dagster.model.operations.keys import HISTORY, ROOT, SEPARATOR, escape
from databuild_dagster.store.meta_storage import MetaQueries
from databuild_dagster.store.queries.queries import Queries

#: The field of a result that has rows.
_SAMPLES: Final = "samples"
#: Events that are decoded at once.
PORTION: Final = 10_000


def sampled(queries: Queries, meta: MetaQueries, asset: str, condition: Condition) -> Iterator[Named]:
    """Each event of the log with a row of a dataset that an operation showed, and that matches."""
    beginnings = tuple(f"{root}{SEPARATOR}{escape(asset)}{SEPARATOR}" for root in (ROOT, HISTORY))
    if not any(meta.prefix(beginning).entries for beginning in beginnings):
        return
    head = queries.head().seq
    for start in range(0, head, PORTION):
        for event in queries.events_named(names_of(MetaInvoked), start, min(start + PORTION, head)):
            assert isinstance(event.fact, MetaInvoked), "of this type alone"
            values = (value for key, value in event.fact.puts.items() if key.startswith(beginnings))
            if any(_with_samples(value, condition, list) is not None for value in values):
                why = "it has a row that an operation showed, and the log is never edited"
                yield Named(f"event {event.seq} of the log", why)


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
        engine.handle(CompactMeta(up_to=engine.queries.head().seq), actor=this_user())


def _with_samples(value: bytes, condition: Condition, becomes: Callable[[list[Any]], list[Any]]) -> bytes | None:
    """The value with other lists of rows in the places of those with a match; None if there is none."""
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
