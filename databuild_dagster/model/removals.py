"""Which instance's data may be taken away, as a table of what holds each of them (SPEC 10.8).

An instance that nobody will read again is of one of three kinds: what an attempt left that came to nothing, what another
live instance has superseded, what is tainted. The first rule that fits says why it stays. Which of those that may go
really go (how many are kept, how long) is for who asks. It is decided anew in the transaction that records it: since it
was looked at, somebody may have gone back to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from databuild_dagster.model.machine import Label
from databuild_dagster.model.states import LEASED, InstanceState

#: The manifest state of what was taken away (SPEC 10.2).
REMOVED = "removed"


class Reason(Label):
    """Why data goes."""

    #: An attempt left it that never became live.
    PARTIAL = "left by an attempt"
    #: Another instance is live in its place.
    SUPERSEDED = "superseded"
    #: Somebody said that it is wrong, and that it may go before anything takes its place.
    TAINTED = "tainted"


class Held(NamedTuple):
    """What is known of an instance, as far as it matters here."""

    state: InstanceState
    #: Of its ref.
    canonical_state: InstanceState | None
    is_canonical: bool
    was_live: bool
    manifest_state: str | None
    #: It is known where its data is.
    has_manifest: bool
    #: It came from outside: its files are listed where they lie, and belong to somebody else.
    is_from_outside: bool
    job_run_has_ended: bool
    #: Open wants of its ref.
    is_wanted: bool
    #: An operation that runs is about it, and has a job that looks at it, or has done so.
    is_operated_on: bool
    #: The event since which nobody begins to read it, if nobody does (`left_by`).
    left_seq: int
    #: The event that buffered the oldest job run which has not ended.
    building_since: int | None


class Rule(NamedTuple):
    """What stays, and why."""

    holds: Callable[[Held], bool]
    why: str


_I = InstanceState

_ALWAYS: tuple[Rule, ...] = (
    Rule(lambda it: it.manifest_state == REMOVED, "its data is removed already"),
    Rule(lambda it: it.state in LEASED or not it.job_run_has_ended, "it is being built"),
    Rule(lambda it: it.is_from_outside, "its files came from outside, and belong to somebody else"),
)
_NEVER_LIVE: tuple[Rule, ...] = (
    *_ALWAYS,
    # The next attempt builds only the parts that are not there (10.4).
    Rule(lambda it: it.canonical_state is _I.BUILDING, "the next attempt is being built, and may go on from it"),
    Rule(
        lambda it: it.is_canonical and it.state is _I.UP_FOR_RETRY and it.is_wanted,
        "the next attempt is to come, and may go on from it",
    ),
)
_LIVE_ONCE: tuple[Rule, ...] = (
    *_ALWAYS,
    Rule(lambda it: not it.has_manifest, "its data is in a place of its own, which is not ours"),
    Rule(lambda it: it.is_canonical and it.state is not _I.TAINTED, "readers see it"),
    Rule(lambda it: it.is_operated_on, "an operation that runs is about it"),
    # Whatever was live before may be wanted back.
    Rule(
        lambda it: not it.is_canonical and it.canonical_state is not _I.LIVE, "nothing that is live has taken its place"
    ),
    Rule(
        lambda it: it.building_since is not None and it.left_seq > it.building_since,
        "a job run that has not ended began while readers saw it, and may be reading it",
    ),
)
_TAINT_FIRST = "it is tainted, and has no successor"


def why_kept(held: Held, *, tainted: bool = False) -> str | None:
    """What holds the data of an instance; None when it may go. `tainted` lets tainted data go that has no successor."""
    rules = _LIVE_ONCE if held.was_live else _NEVER_LIVE
    why = next((rule.why for rule in rules if rule.holds(held)), None)
    if why is None and held.was_live and held.is_canonical and not tainted:
        return _TAINT_FIRST
    return why


def reason_of(held: Held) -> Reason:
    """Of what may go."""
    if not held.was_live:
        return Reason.PARTIAL
    return Reason.TAINTED if held.is_canonical else Reason.SUPERSEDED


def left_by(instance_id: int, pointings: Iterable[tuple[int, int]], moved_by: int) -> int:
    """The event since which nobody begins to read an instance: the canonical pointer left it, or its state did.

    `pointings` are (seq, instance) of its ref, in order.
    """
    left = moved_by
    there = False
    for seq, pointed_at in pointings:
        if there and pointed_at != instance_id:
            left = seq
        there = pointed_at == instance_id
    return moved_by if there else left
