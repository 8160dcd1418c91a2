"""Texts that select refs: `ASSET@FROM..TO`, `ASSET@*`, and states (rule 2.5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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


def keys_selected(text: str, keys: Sequence[str], why_not: Callable[[str], str | None]) -> Sequence[str]:
    """The keys that a dimension of a text names, in the order of `keys`.

    A text that is a key is that key. `*` is all keys, and `FROM..TO` is inclusive. Raises `ValueError` with a sentence;
    `why_not` has the sentence for an end that is no key.
    """
    places = {key: place for place, key in enumerate(keys)}
    if text in places:
        return [text]
    if text == ALL:
        return keys
    # A key may contain the dots as well.
    starts = [at for at in range(len(text)) if text.startswith(RANGE, at)]
    ranges = [(text[:at], text[at + len(RANGE) :]) for at in starts] or [(text, text)]
    first, last = next((ends for ends in ranges if places.keys() >= {*ends}), ranges[0])
    for key in (first, last):
        if key not in places:
            raise ValueError(why_not(key) or f"{key!r} is not one of its partitions.")
    if places[first] > places[last]:
        raise ValueError(f"{first} comes after {last}; write the earlier one first.")
    return keys[places[first] : places[last] + 1]
