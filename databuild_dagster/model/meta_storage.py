"""The language of the meta storage: a statement, evaluated against entries, becomes writes and a value (rule 9.1).

Keys are texts, values bytes. A removed key is a tombstone: it has a revision and no value, and does not exist. The module does
not know where entries are.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, assert_never

import msgspec

from databuild_dagster.model.errors import Conflict, InvalidRequest
from databuild_dagster.model.machine import Label

#: Longest key: PostgreSQL's index takes at most 2,700 bytes.
MAX_KEY_BYTES = 2_048
#: Largest value; the storage is for agreements, not for data.
MAX_VALUE_BYTES = 16 * 1024 * 1024
#: Keys that an invoke may name; keys under a prefix that it clears are not counted.
MAX_KEYS = 100_000
#: Depth of conditions and statements within each other.
MAX_DEPTH = 50
#: Behind every key: none may hold it.
LAST = "\U0010ffff"
#: Prefix of the keys by which watchers report their progress.
WATCHERS = "metaWatch."

#: The result of a statement.
Value = bool | int | bytes | None


class CompactedRevision(Conflict):
    """Changes after revision {revision} are no longer available: they were compacted up to {compacted}."""

    hint = "Read the present entries, and watch from the revision of that answer."


class Entry(NamedTuple):
    """A key with its value; `value` None is a tombstone."""

    key: str
    value: bytes | None
    #: The revision of the last change; 0 for a key without any.
    revision: int

    @property
    def exists(self) -> bool:
        return self.value is not None


class Batch(NamedTuple):
    """The changes of a revision among the watched keys, by key."""

    revision: int
    entries: tuple[Entry, ...]


# Conditions


class Test(Label):
    """A test of a key alone."""

    #: It has a value.
    EXISTS = "exists"
    NOT_EXISTS = "not_exists"
    #: It had a value, which was removed.
    TOMBSTONE = "tombstone"
    NOT_TOMBSTONE = "not_tombstone"


class Compare(Label):
    """A comparison of a value, or of a revision."""

    EQ = "eq"
    NE = "ne"
    LT = "lt"
    LE = "le"
    GT = "gt"
    GE = "ge"


class Is(msgspec.Struct, frozen=True):
    """A test of a key."""

    key: str
    test: Test


class ValueIs(msgspec.Struct, frozen=True):
    """A key's value compared with bytes. A key without a value only passes `NE`."""

    key: str
    how: Compare
    operand: bytes


class RevisionIs(msgspec.Struct, frozen=True):
    """A key's revision compared with a number."""

    key: str
    how: Compare
    operand: int


class Both(msgspec.Struct, frozen=True):
    """True if all conditions hold; true without conditions."""

    conditions: tuple[Condition, ...]


class Either(msgspec.Struct, frozen=True):
    """True if any condition holds; false without conditions."""

    conditions: tuple[Condition, ...]


Condition = Is | ValueIs | RevisionIs | Both | Either


def exists(key: str) -> Is:
    return Is(key, Test.EXISTS)


def not_exists(key: str) -> Is:
    return Is(key, Test.NOT_EXISTS)


def tombstone(key: str) -> Is:
    return Is(key, Test.TOMBSTONE)


def not_tombstone(key: str) -> Is:
    return Is(key, Test.NOT_TOMBSTONE)


def both(*conditions: Condition) -> Both:
    return Both(conditions)


def either(*conditions: Condition) -> Either:
    return Either(conditions)


def value_is(key: str, how: str, operand: bytes) -> ValueIs:
    return ValueIs(key, Compare(how), operand)


def revision_is(key: str, how: str, operand: int) -> RevisionIs:
    return RevisionIs(key, Compare(how), operand)


def as_read(entry: Entry) -> Condition:
    """The condition that a key still has the value with which it was read, or still has none."""
    return not_exists(entry.key) if entry.value is None else value_is(entry.key, "eq", entry.value)


# Statements


class Put(msgspec.Struct, frozen=True):
    """Give a key a value."""

    key: str
    value: bytes


class Remove(msgspec.Struct, frozen=True):
    """Make a key a tombstone; a key without a value stays."""

    key: str


class RemovePrefix(msgspec.Struct, frozen=True):
    """Remove every key with the prefix, also keys that no invoke has read."""

    prefix: str


Op = Put | Remove | RemovePrefix


class Do(msgspec.Struct, frozen=True):
    """Operations in order, and the result."""

    ops: tuple[Op, ...] = ()
    yields: Value = None


class Iif(msgspec.Struct, frozen=True):
    """The statement `then` if the condition holds, else `otherwise`."""

    condition: Condition
    then: Statement
    otherwise: Statement


Statement = Do | Iif


def do(*ops: Op, yields: Value = None) -> Do:
    return Do(ops, yields)


def iif(condition: Condition, then: Statement | None = None, otherwise: Statement | None = None) -> Iif:
    """Without branches its result is the truth of the condition."""
    return Iif(
        condition, Do(yields=True) if then is None else then, Do(yields=False) if otherwise is None else otherwise
    )


# Evaluation


class Presence(Label):
    """The state of a key."""

    #: It has a value, and the revision of its put.
    PRESENT = "present"
    #: It has the revision of its removal.
    REMOVED = "removed"
    #: It never had a value, or is compacted: its revision is 0.
    UNKNOWN = "unknown"

    @classmethod
    def of(cls, entry: Entry | None) -> Presence:
        if entry is None:
            return cls.UNKNOWN
        return cls.REMOVED if entry.value is None else cls.PRESENT


#: The keys that pass each test.
TESTS = {
    Test.EXISTS: {Presence.PRESENT},
    Test.NOT_EXISTS: {Presence.REMOVED, Presence.UNKNOWN},
    Test.TOMBSTONE: {Presence.REMOVED},
    Test.NOT_TOMBSTONE: {Presence.PRESENT, Presence.UNKNOWN},
}
#: A value, and a revision, is compared with the operand in this way.
_COMPARES: dict[Compare, Callable[[Any, Any], bool]] = {
    Compare.EQ: operator.eq,
    Compare.NE: operator.ne,
    Compare.LT: operator.lt,
    Compare.LE: operator.le,
    Compare.GT: operator.gt,
    Compare.GE: operator.ge,
}


def holds(condition: Condition, look: Callable[[str], Entry | None]) -> bool:
    """Evaluate a condition; `look` gives the entry of a key, None for a key that never was."""
    match condition:
        case Is(key, test):
            return Presence.of(look(key)) in TESTS[test]
        case ValueIs(key, how, operand):
            entry = look(key)
            if entry is None or entry.value is None:
                return how is Compare.NE
            return _COMPARES[how](entry.value, operand)
        case RevisionIs(key, how, operand):
            found = look(key)
            return _COMPARES[how](0 if found is None else found.revision, operand)
        case Both(conditions):
            return all(holds(inner, look) for inner in conditions)
        case Either(conditions):
            return any(holds(inner, look) for inner in conditions)
    assert_never(condition)


class Draft:
    """The writes of an invoke while its statements are evaluated, each on the result of the statements before it.

    Keys that it has written have the revision that the invoke will get.
    """

    def __init__(self, look: Callable[[str], Entry | None], revision: int) -> None:
        self._look = look
        self._revision = revision
        #: Key to its value; None is removed.
        self.writes: dict[str, bytes | None] = {}
        self.cleared: list[str] = []

    def look(self, key: str) -> Entry | None:
        if key in self.writes:
            return Entry(key, self.writes[key], self._revision)
        entry = self._look(key)
        if entry is not None and entry.value is not None and any(key.startswith(prefix) for prefix in self.cleared):
            return Entry(key, None, self._revision)
        return entry

    def run(self, statement: Statement) -> Value:
        while isinstance(statement, Iif):
            statement = statement.then if holds(statement.condition, self.look) else statement.otherwise
        for op in statement.ops:
            self._apply(op)
        return statement.yields

    def _apply(self, op: Op) -> None:
        match op:
            case Put(key, value):
                self.writes[key] = value
            case Remove(key):
                entry = self.look(key)
                if entry is not None and entry.value is not None:
                    self.writes[key] = None
            case RemovePrefix(prefix):
                if prefix not in self.cleared:
                    self.cleared.append(prefix)
                for key in [key for key in self.writes if key.startswith(prefix)]:
                    before = self._look(key)
                    if before is None:
                        # A key that one invoke puts and removes never was.
                        del self.writes[key]
                    else:
                        self.writes[key] = None
            case _:
                assert_never(op)


# What may be asked for


def check_statements(statements: Iterable[Statement]) -> list[str]:
    """The keys that they name. Raises `InvalidRequest`."""
    keys = list(dict.fromkeys(key for statement in statements for key in _named(statement, 0)))
    if len(keys) > MAX_KEYS:
        raise InvalidRequest(what="the number of keys in one invoke", value=len(keys), why=f"at most {MAX_KEYS:,}")
    for key in keys:
        check_key(key)
    return keys


def check_key(key: str) -> str:
    """Raises `InvalidRequest`."""
    if not key or "\0" in key or LAST in key:
        raise InvalidRequest(what="a key", value=key, why="it must be a text without NUL and U+10FFFF")
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise InvalidRequest(what="a key", value=repr(key), why="it is not Unicode text") from None
    if size > MAX_KEY_BYTES:
        why = f"it has {size:,} bytes, and {MAX_KEY_BYTES:,} is the most"
        raise InvalidRequest(what="a key", value=f"{key[:60]}…", why=why)
    return key


def _named(part: Statement | Condition, depth: int) -> Iterator[str]:
    if depth > MAX_DEPTH:
        raise InvalidRequest(what="a statement", value="…", why=f"it is nested deeper than {MAX_DEPTH}")
    match part:
        case Is() | ValueIs() | RevisionIs():
            yield part.key
        case Both(conditions) | Either(conditions):
            for condition in conditions:
                yield from _named(condition, depth + 1)
        case Iif(asked, then, otherwise):
            for inner in (asked, then, otherwise):
                yield from _named(inner, depth + 1)
        case Do(ops):
            for op in ops:
                if isinstance(op, Put) and len(op.value) > MAX_VALUE_BYTES:
                    why = f"it has {len(op.value):,} bytes, and {MAX_VALUE_BYTES:,} is the most"
                    raise InvalidRequest(what=f"the value of {op.key}", value="…", why=why)
                yield op.prefix if isinstance(op, RemovePrefix) else op.key
        case _:
            assert_never(part)
