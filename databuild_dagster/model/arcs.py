"""The state of a lot whose dataset subscribes to others (rule 10.5).

It is a view of the lot's canonical instance by a table of rules, and is stored nowhere.
"""

from __future__ import annotations

from typing import NamedTuple

from databuild_dagster.model.machine import Label
from databuild_dagster.model.states import InstanceState

#: The source of the wants that an arc makes (rule 5.1).
ARC = "arc"


class ArcState(Label):
    """The state of one lot of an arc."""

    #: It is being built, or its inputs are.
    RUNNING = "running"
    #: It is live, with rows or without.
    COMPLETE = "complete"
    #: It is not live, and data of an attempt exists.
    PARTIAL = "partial"
    #: It has no data.
    MISSING = "missing"


class Rule(NamedTuple):
    """A canonical state, with or without data, and the arc's state for it."""

    state: InstanceState | None
    #: None where it does not matter.
    has_data: bool | None
    is_then: ArcState
    why: str


_I, _A = InstanceState, ArcState

RULES: tuple[Rule, ...] = (
    Rule(None, None, _A.MISSING, "no build of it began"),
    Rule(_I.BUILDING, None, _A.RUNNING, "a job run has the lease"),
    Rule(_I.UPSTREAM_BUILDING, None, _A.RUNNING, "it waits, and keeps the lease"),
    Rule(_I.LIVE, None, _A.COMPLETE, "its manifest is complete, or empty on purpose"),
    Rule(_I.UP_FOR_RETRY, True, _A.PARTIAL, "the next attempt is to come"),
    Rule(_I.UP_FOR_RETRY, False, _A.MISSING, "the last attempt left nothing"),
    Rule(_I.FAILED, True, _A.PARTIAL, "what it stored before it failed is kept"),
    Rule(_I.FAILED, False, _A.MISSING, "it left nothing, or that was cleaned up"),
    Rule(_I.UPSTREAM_FAILED, True, _A.PARTIAL, "an attempt before it failed for its inputs"),
    Rule(_I.UPSTREAM_FAILED, False, _A.MISSING, "it was never called"),
    Rule(_I.TAINTED, True, _A.PARTIAL, "its data exists, and is marked as wrong"),
    Rule(_I.TAINTED, False, _A.MISSING, "it failed before, and left nothing"),
)


def arc_state(state: InstanceState | None, *, has_data: bool) -> ArcState:
    """The first rule that fits; there is one for every case."""
    return next(rule.is_then for rule in RULES if rule.state is state and rule.has_data in (None, has_data))
