"""What an invoke on the meta storage writes and answers, and how much of its past may be forgotten (SPEC 9.1)."""

from __future__ import annotations

import msgspec

from databuild_dagster.model import commands as c
from databuild_dagster.model import events as e
from databuild_dagster.model.decide.context import Deciding
from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.model.meta_storage import WATCHERS, Draft, check_statements


class Watching(msgspec.Struct, frozen=True):
    """What a watcher says of itself, under its key: up to where it has seen everything, and until when it counts."""

    revision: int
    until: float


def invoke_meta(command: c.InvokeMeta, deciding: Deciding) -> list[e.Fact]:
    """Always one event, so that the answer is remembered with the command's id, and the revision rises."""
    if not command.statements:
        raise InvalidRequest(what="the list of statements", value=[], why="it names none")
    # All at once, for each is looked at by itself below.
    found = deciding.view.meta_entries(check_statements(command.statements))
    draft = Draft(found.get, deciding.view.seq + 1)
    answers = tuple(draft.run(statement) for statement in command.statements)
    removed = tuple(key for key, value in draft.writes.items() if value is None)
    puts = {key: value for key, value in draft.writes.items() if value is not None}
    return [e.MetaInvoked(answers=answers, cleared=tuple(draft.cleared), removed=removed, puts=puts)]


def compact_meta(command: c.CompactMeta, deciding: Deciding) -> list[e.Fact]:
    """Watchers whose lease has ended count no more, and their keys go with what they held back."""
    view = deciding.view
    watchers = {entry.key: _watching(entry.value) for entry in view.meta_under(WATCHERS)}
    lapsed = tuple(key for key, each in watchers.items() if each is None or each.until <= deciding.now)
    held = [each.revision for each in watchers.values() if each is not None and each.until > deciding.now]
    up_to = min(command.up_to, view.seq, *held)
    facts: list[e.Fact] = [e.MetaInvoked(answers=(), removed=lapsed)] if lapsed else []
    return [*facts, e.MetaCompacted(revision=up_to)] if up_to > view.meta_compacted() else facts


def _watching(value: bytes | None) -> Watching | None:
    """None for what nobody of ours has put there."""
    try:
        return msgspec.json.decode(value or b"", type=Watching)
    except msgspec.MsgspecError:
        return None
