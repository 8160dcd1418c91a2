"""What follows from a supposition, as JSON has it (rules 8.10, 15)."""

from __future__ import annotations

from collections import Counter
from typing import TypedDict

from databuild_dagster.features.what_if.answers import Effect, WhatIf
from databuild_dagster.features.what_if.simulation import SimulatedLaunch
from databuild_dagster.model.refs import Ref
from databuild_dagster.shapes.plans import StageShape, rounded, stage_shape


class ChangeShape(TypedDict):
    """What follows for one ref; a state is null while the ref is missing."""

    ref: Ref
    job: str
    effect: str
    reason: str
    before: str | None
    after: str | None


class WhatIfShape(TypedDict):
    """What follows from a supposition; times as in a plan."""

    what: str
    refs: list[Ref]
    changes: list[ChangeShape]
    counts: dict[str, int]
    launches: int
    expected_seconds: float | None
    seconds: float | None
    without_history: list[str]
    stages: list[StageShape]
    #: Refs that were simulated.
    reached: int
    wants_reopened: int
    wants_open: int
    notes: list[str]


def what_if_shape(found: WhatIf) -> WhatIfShape:
    """The answer to a what-if as JSON has it."""
    counts = Counter(change.effect for change in found.changes)
    return {
        "what": found.question.value,
        "refs": list(found.named),
        "changes": [
            {
                "ref": change.ref,
                "job": change.job,
                "effect": change.effect.value,
                "reason": change.reason,
                "before": None if change.before is None else change.before.value,
                "after": None if change.after is None else change.after.value,
            }
            for change in found.changes
        ],
        "counts": {effect.value: counts[effect] for effect in Effect if counts[effect]},
        "launches": found.n_launches,
        "expected_seconds": rounded(found.seconds_of_all),
        "seconds": rounded(found.seconds),
        "without_history": list(found.without_history),
        "stages": [_simulated(launch) for launch in found.launches],
        "reached": len(found.reached),
        "wants_reopened": found.wants_reopened,
        "wants_open": found.wants_open,
        "notes": list(found.notes),
    }


def _simulated(launch: SimulatedLaunch) -> StageShape:
    begins, is_joined = launch.begins_after, launch.is_joined
    return stage_shape(launch.job, launch.refs, launch.n_launches, begins, launch.seconds, is_joined=is_joined)
