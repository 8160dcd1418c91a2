"""The two records of an environment, as keys of the meta storage: in the log of the base, and in its own log (rule 16.1).

The revision of the key in the base is the pin: the event that opened the environment is the last event that the environment sees of its
base.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from databuild_dagster.data.environment import RECORDS, base_of_home
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import this_user
from databuild_dagster.model.commands import InvokeMeta
from databuild_dagster.model.errors import CommandIdUsed
from databuild_dagster.model.events import InstancesPromoted
from databuild_dagster.model.meta_storage import (
    Put,
    Remove,
    Statement,
    do,
    exists,
    iif,
    not_exists,
    revision_is,
    value_is,
)
from databuild_dagster.model.refs import Ref
from databuild_dagster.store.backends.sqlite import this_host
from databuild_dagster.store.meta_storage import MetaQueries
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.store import Store

#: Prefix of the keys, in the log of a base in PostgreSQL, of the environments whose root on a disk an orchestrator has read.
SEEN: Final = "environments.seen/"
#: The key in the log of an environment.
OPENING: Final = "environment"
#: Prefix of the keys, in the log of an environment, of the instances that it gave to its base (rule 16.11).
GIVEN: Final = "given/"
#: Between a command id and the number of an attempt, in such a key.
_ATTEMPT: Final = "@"


class Opened(msgspec.Struct, frozen=True, omit_defaults=True):
    """An environment in the log of its base. Times are seconds since 1970 UTC."""

    #: Of this opening: a name may be used again.
    id: str
    name: str
    home: str
    root: str
    opened_at: float
    keep_until: float
    opened_by: str
    #: It is being removed, and borrows nothing more.
    is_closing: bool = False
    #: The host of its home; empty in the log of an older version.
    host: str = ""
    #: Whether its base has this record, and keeps what it sees.
    is_pinned: bool = True
    #: The pin; 0 in the event that is the pin itself.
    pin: int = 0
    #: Pins from before, whose data the base keeps too (rule 16.9).
    earlier: tuple[int, ...] = ()

    @property
    def is_of_this_host(self) -> bool:
        """Whether the home of the environment is on this host, as far as the record says."""
        return self.host in ("", this_host())

    @property
    def is_moved(self) -> bool:
        """Whether the home of the base was moved, on this host, and the environment with it."""
        return self.is_of_this_host and not (base_of_home(self.home).exists() or Path(self.home).exists())


class Opening(msgspec.Struct, frozen=True, omit_defaults=True):
    """The base and the pin, in the log of an environment."""

    id: str
    name: str
    #: The id of the base's store.
    base_id: str
    pin: int
    #: Of the event at the pin.
    fingerprint: str
    #: The environment, if its base has no record of it.
    unpinned: Opened | None = None
    #: The pins from before, each with the event of the environment that recorded it, the oldest first.
    pins: tuple[tuple[int, int], ...] = ()


def opened_in(store: Store) -> dict[str, Opened]:
    """The environments of a base by name."""
    return {opened.name: opened for opened, _ in _entries(store)}


def _entries(store: Store) -> list[tuple[Opened, int]]:
    """The environments of a base, each with the revision of its key."""
    entries = MetaQueries(store).prefix(RECORDS).entries
    found = [(entry, msgspec.json.decode(entry.value, type=Opened)) for entry in entries if entry.value is not None]
    return [
        (opened if opened.pin else msgspec.structs.replace(opened, pin=entry.revision), entry.revision)
        for entry, opened in found
    ]


def open_in(engine: Engine, opened: Opened) -> None:
    """Record an environment in its base, unless its name is in use."""
    key = RECORDS + opened.name
    _invoke(engine, iif(not_exists(key), do(Put(key, msgspec.json.encode(opened)))))


def close_in(engine: Engine, opened: Opened) -> None:
    """Record in the base that an environment is being removed."""
    closing = msgspec.structs.replace(opened, is_closing=True)
    _invoke(engine, do(Put(RECORDS + opened.name, msgspec.json.encode(closing))))


def pin_again_in(engine: Engine, name: str) -> Opened | None:
    """Pin an environment at this moment, and keep its pins from before; None if it is gone, or is being removed.

    Another process may have done it at the same time, whose pin then counts.
    """
    opened = opened_in(engine.store).get(name)
    if opened is not None and not opened.is_closing:
        _replace(engine, opened, msgspec.structs.replace(opened, pin=0, earlier=(*opened.earlier, opened.pin)))
        opened = opened_in(engine.store).get(name)
    return None if opened is None or opened.is_closing else opened


def release_in(engine: Engine, opened: Opened, earlier: tuple[int, ...]) -> None:
    """Record in the base which pins from before it still keeps, unless the environment was pinned again meanwhile."""
    _replace(engine, opened, msgspec.structs.replace(opened, earlier=earlier))


def _replace(engine: Engine, opened: Opened, by: Opened) -> None:
    """Replace the record of an environment if it is as it was read."""
    for found, revision in _entries(engine.store):
        if found == opened != by:
            key = RECORDS + opened.name
            _invoke(engine, iif(revision_is(key, "eq", revision), do(Put(key, msgspec.json.encode(by)))))


def close_unpinned_in(own: Engine, opening: Opening) -> None:
    """Record in the log of an environment that it is being removed, if its base has no record of it."""
    if opening.unpinned is not None:
        closing = msgspec.structs.replace(opening.unpinned, is_closing=True)
        record_opening(own, msgspec.structs.replace(opening, unpinned=closing))


def forget_in(engine: Engine, name: str) -> None:
    """Record in the base that an environment is gone; its name is free."""
    _invoke(engine, do(Remove(RECORDS + name)), iif(exists(SEEN + name), do(Remove(SEEN + name))))


def note_seen(engine: Engine, opened: Opened) -> None:
    """Record in the base that an orchestrator of it has read the root of an environment."""
    key, id = SEEN + opened.name, opened.id.encode()
    _invoke(engine, iif(value_is(key, "ne", id), do(Put(key, id))))


def seen_in(store: Store) -> dict[str, str]:
    """By name, the id of the opening whose root an orchestrator has read."""
    entries = MetaQueries(store).prefix(SEEN).entries
    return {entry.key.removeprefix(SEEN): entry.value.decode() for entry in entries if entry.value is not None}


def opening_of(store: Store) -> Opening | None:
    """The opening in the log of an environment; None if the environment was not opened to the end."""
    return opening_at(store)[0]


def opening_at(store: Store) -> tuple[Opening | None, int]:
    """The opening in the log of an environment, and the revision of its key: each new pin changes it."""
    (entry,) = MetaQueries(store).get_all([OPENING]).entries
    return None if entry.value is None else msgspec.json.decode(entry.value, type=Opening), entry.revision


def pinned_at(store: Store) -> float | None:
    """When an environment recorded its pin; None if it was not opened to the end."""
    opening, revision = opening_at(store)
    return None if opening is None else Queries(store).events.time_of(revision)


def record_opening(engine: Engine, opening: Opening, before: Opening | None = None) -> None:
    """Record the base in the log of an environment; with `before`, unless another process has moved the pin meanwhile."""
    put = do(Put(OPENING, msgspec.json.encode(opening)))
    _invoke(engine, put if before is None else iif(value_is(OPENING, "eq", msgspec.json.encode(before)), put))


def pins_with(store: Store, opening: Opening) -> tuple[tuple[int, int], ...]:
    """The pins from before an opening, and its own."""
    return (*opening.pins, (opening_at(store)[1], opening.pin))


def earlier_pins(store: Store, seqs: Mapping[Ref, int]) -> dict[Ref, int]:
    """By ref, the pin at an event of an environment, if it is not the present pin; 0 for a pin that is not known."""
    opening, revision = opening_at(store)
    pins = () if opening is None else opening.pins
    return {
        ref: max((pin for begun, pin in pins if begun < seq), default=0) for ref, seq in seqs.items() if seq < revision
    }


def revision_of(store: Store, name: str) -> int:
    """The revision of the opening of an environment in its base: its closing changes it."""
    return MetaQueries(store).get_all([RECORDS + name]).entries[0].revision


def given_in(store: Store) -> dict[str, frozenset[str]]:
    """The uuids that an environment gave to its base, by the attempt at the promotion."""
    entries = MetaQueries(store).prefix(GIVEN).entries
    decode = msgspec.json.Decoder(frozenset[str]).decode
    return {entry.key.removeprefix(GIVEN): decode(entry.value) for entry in entries if entry.value is not None}


def given_uuids(store: Store) -> frozenset[str]:
    """The uuids of all that an environment gave to its base."""
    return frozenset[str]().union(*given_in(store).values())


def attempt_at(command_id: str, number: str) -> str:
    """The name of an attempt at a promotion whose caller chose the command id; any other attempt has the name of its command."""
    return f"{command_id}{_ATTEMPT}{number}"


def command_of(attempt: str) -> str:
    """The command id of an attempt at a promotion."""
    return attempt.partition(_ATTEMPT)[0]


def give(engine: Engine, attempt: str, uuids: Iterable[str], actor: str) -> None:
    """Record in an environment that it gives instances away: from here on it removes none of their files."""
    _invoke(engine, do(Put(GIVEN + attempt, msgspec.json.encode(sorted(uuids)))), actor=actor)


def take_back(engine: Engine, attempt: str, actor: str) -> None:
    """Record in an environment that its base did not take what it gave."""
    _invoke(engine, do(Remove(GIVEN + attempt)), actor=actor)


def use_up(engine: Engine, command_id: str, actor: str) -> bool:
    """Whether the base took what was given by a command id. If it did not, no promotion with that id is recorded later."""
    statement = do(Remove(GIVEN + command_id))
    try:
        outcome = engine.handle(InvokeMeta(statements=(statement,)), command_id=command_id, actor=actor)
    except CommandIdUsed:
        # The id names a different request by now.
        return False
    return isinstance(outcome.events[0].fact, InstancesPromoted)


def _invoke(engine: Engine, *statements: Statement, actor: str | None = None) -> None:
    engine.handle(InvokeMeta(statements=statements), actor=actor or this_user())
