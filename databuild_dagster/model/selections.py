"""Texts that select refs: `ASSET@FROM..TO`, `ASSET@*`, and states (rule 2.5)."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Protocol

from databuild_dagster.model.errors import Refused
from databuild_dagster.model.refs import Ref, partition_key_of
from databuild_dagster.model.states import InstanceState

RANGE = ".."
ALL = "*"
#: Separates the dimensions of a key, and of a selection.
DIMENSIONS = "|"

#: The word for the canonical state of a ref (rule 4.1). A ref without an instance is missing.
STATE_WORDS: dict[InstanceState | None, str] = {
    InstanceState.LIVE: "live",
    InstanceState.UPSTREAM_BUILDING: "waiting",
    InstanceState.UP_FOR_RETRY: "waiting",
    InstanceState.BUILDING: "building",
    InstanceState.FAILED: "failed",
    InstanceState.UPSTREAM_FAILED: "failed",
    InstanceState.TAINTED: "tainted",
    None: "missing",
}
#: Live, with an input that was tainted or replaced since (rule 4.6).
STALE = "stale"
#: The states that `--only` selects by.
SELECTABLE = ("missing", "failed", "tainted", STALE, "waiting", "live")


class InvalidSelection(Refused):
    """{text} selects no partition: {why}"""

    hint = "`databuild partitions {asset}` lists the partitions that exist."


def may_be_selection(ref: Ref) -> bool:
    """Whether the text may select several refs. Only the partitions definition knows whether it is a key."""
    key = partition_key_of(ref) or ""
    return RANGE in key or ALL in key.split(DIMENSIONS)


class Keys(Protocol):
    """The keys of a dimension in the order of the definition."""

    def place_of(self, key: str) -> float | None:
        """A number in the order of the keys, None if the key does not exist."""

    def between(self, first: float, last: float) -> Sequence[str]:
        """The keys from one place to another, both included."""

    def all(self) -> Sequence[str]: ...


class ListedKeys:
    """Keys that are in memory."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = keys

    @cached_property
    def _places(self) -> dict[str, int]:
        return {key: place for place, key in enumerate(self._keys)}

    def place_of(self, key: str) -> float | None:
        return self._places.get(key)

    def between(self, first: float, last: float) -> Sequence[str]:
        return self._keys[int(first) : int(last) + 1]

    def all(self) -> Sequence[str]:
        return self._keys


def keys_selected(text: str, keys: Keys, why_not: Callable[[str], str | None]) -> Sequence[str]:
    """The keys that a dimension of a text names, in the order of `keys`.

    A text that is a key is that key. `*` is all keys, and `FROM..TO` is inclusive. Raises `ValueError` with a sentence;
    `why_not` has the sentence for an end that is no key.
    """
    if keys.place_of(text) is not None:
        return [text]
    if text == ALL:
        return keys.all()
    # A key may contain the dots as well.
    starts = [at for at in range(len(text)) if text.startswith(RANGE, at)]
    ranges = [(text[:at], text[at + len(RANGE) :]) for at in starts] or [(text, text)]
    for ends in ranges:
        first, last = map(keys.place_of, ends)
        if first is None or last is None:
            continue
        if first > last:
            raise ValueError(f"{ends[0]} comes after {ends[1]}; write the earlier one first.")
        return keys.between(first, last)
    lacking = next(key for key in ranges[0] if keys.place_of(key) is None)
    raise ValueError(why_not(lacking) or f"{lacking!r} is not one of its partitions.")
