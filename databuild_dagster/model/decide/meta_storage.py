"""Invokes on the meta storage, and the compaction of its past (rule 9.1)."""

from __future__ import annotations

import msgspec

from databuild_dagster.model import commands as c
from databuild_dagster.model import events as e
from databuild_dagster.model.decide.context import Deciding
from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.model.meta_storage import WATCHERS, Draft, check_statements


class Watching(msgspec.Struct, frozen=True):
    """The value of a watcher's key: the revision up to which it has seen all changes, and the time until which it counts."""

    revision: int
    until: float


def invoke_meta(command: c.InvokeMeta, deciding: Deciding) -> list[e.Fact]:
    """Always one event, so that the answer is remembered with the command's id, and the revision rises."""
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
    """None for a value of another program."""
    try:
        return msgspec.json.decode(value or b"", type=Watching)
    except msgspec.MsgspecError:
        return None
