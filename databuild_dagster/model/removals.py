"""The instances whose data may be removed, as a table of reasons to keep it (rule 10.8).

Three kinds of data have no reader: the rest of an attempt without result, an instance that a live instance has superseded,
and tainted data. The first rule that fits is the reason why an instance stays. The caller decides which of the other instances go, by
number and age. The transaction that records a removal applies the rules again, because a revert may have come since.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from databuild_dagster.model.machine import Label
from databuild_dagster.model.states import LEASED, InstanceState

#: The manifest state of removed data (rule 10.2).
REMOVED = "removed"


class Reason(Label):
    """The reason of a removal."""

    #: Left by an attempt that never became live.
    PARTIAL = "left by an attempt"
    #: A different instance is live in its place.
    SUPERSEDED = "superseded"
    #: Marked as wrong, and released for removal before it has a successor.
    TAINTED = "tainted"
    #: It held rows that a person asked to erase.
    ERASED = "erased"


class RemovalFacts(NamedTuple):
    """The facts about an instance that the rules read."""

    state: InstanceState
    #: The canonical state of its ref.
    canonical_state: InstanceState | None
    is_canonical: bool
    was_live: bool
    manifest_state: str | None
    #: The place of its data is known.
    has_manifest: bool
    #: It came from outside: its files are listed in place and belong to a foreign program.
    is_from_outside: bool
    job_run_has_ended: bool
    #: Its ref has an open want.
    is_wanted: bool
    #: A running operation has a job on it.
    is_operated_on: bool
    #: The event since which no reader begins with it (`left_by`).
    left_seq: int
    #: The event that buffered the oldest job run which has not ended.
    building_since: int | None


class KeepingRule(NamedTuple):
    """A condition under which data stays, and why."""

    holds: Callable[[RemovalFacts], bool]
    why: str


_I = InstanceState

_REMOVED = KeepingRule(lambda it: it.manifest_state == REMOVED, "its data is removed already")
_IN_WORK = KeepingRule(lambda it: it.state in LEASED or not it.job_run_has_ended, "it is being built")
_OPERATED_ON = KeepingRule(lambda it: it.is_operated_on, "a running operation works on it")
_PERHAPS_READ = KeepingRule(
    lambda it: it.building_since is not None and it.left_seq > it.building_since,
    "a job run that has not ended began while readers saw it, and may be reading it",
)

_ALWAYS: tuple[KeepingRule, ...] = (
    _REMOVED,
    _IN_WORK,
    KeepingRule(lambda it: it.is_from_outside, "its files came from outside and belong to another program"),
)
_NEVER_LIVE: tuple[KeepingRule, ...] = (
    *_ALWAYS,
    # The next attempt builds only the parts that are not there (rule 10.4).
    KeepingRule(
        lambda it: it.canonical_state is _I.BUILDING, "the next attempt is being built, and may continue from it"
    ),
    KeepingRule(
        lambda it: it.is_canonical and it.state is _I.UP_FOR_RETRY and it.is_wanted,
        "the next attempt is to come, and may continue from it",
    ),
)
_LIVE_ONCE: tuple[KeepingRule, ...] = (
    *_ALWAYS,
    KeepingRule(lambda it: not it.has_manifest, "its data is in a place that is not ours"),
    KeepingRule(lambda it: it.is_canonical and it.state is not _I.TAINTED, "readers see it"),
    _OPERATED_ON,
    # A revert may choose any instance that was live.
    KeepingRule(
        lambda it: not it.is_canonical and it.canonical_state is not _I.LIVE, "no live instance has taken its place"
    ),
    _PERHAPS_READ,
)
#: Of data with rows to erase: a revert gives no reason to keep it, and of files from outside the listing alone goes.
_ERASED: tuple[KeepingRule, ...] = (
    _REMOVED,
    _IN_WORK,
    KeepingRule(lambda it: it.is_canonical and it.state is _I.LIVE, "readers see it"),
    _OPERATED_ON,
    _PERHAPS_READ,
)
_TAINT_FIRST = "it is tainted, and has no successor"


def why_kept(held: RemovalFacts, *, tainted: bool = False) -> str | None:
    """The reason to keep the data of an instance; None when it may go. `tainted` releases tainted data without a successor."""
    rules = _LIVE_ONCE if held.was_live else _NEVER_LIVE
    why = next((rule.why for rule in rules if rule.holds(held)), None)
    if why is None and held.was_live and held.is_canonical and not tainted:
        return _TAINT_FIRST
    return why


def why_not_erased(held: RemovalFacts) -> str | None:
    """The reason to keep the data of an instance with rows to erase for now; None when it may go."""
    return next((rule.why for rule in _ERASED if rule.holds(held)), None)


def reason_of(held: RemovalFacts) -> Reason:
    """The reason to remove data that no rule keeps."""
    if not held.was_live:
        return Reason.PARTIAL
    return Reason.TAINTED if held.is_canonical else Reason.SUPERSEDED


def left_by(instance_id: int, pointings: Iterable[tuple[int, int]], moved_by: int) -> int:
    """The event since which no reader begins with an instance: the canonical pointer moved away, or its state changed.

    `pointings` are (seq, instance) of its ref, in order.
    """
    left = moved_by
    there = False
    for seq, pointed_at in pointings:
        if there and pointed_at != instance_id:
            left = seq
        there = pointed_at == instance_id
    return moved_by if there else left
