"""What follows from a supposition, as JSON has it (rules 8.10, 15)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from databuild_dagster.features.what_if.answers import Change, Effect, WhatIf
from databuild_dagster.features.what_if.simulation import SimulatedLaunch
from databuild_dagster.model.refs import Ref
from databuild_dagster.shapes.plans import Stage, rounded, stage_shape


class ShownWhatIf(msgspec.Struct, frozen=True):
    """What follows from a supposition; times as in a plan."""

    what: str
    refs: Sequence[Ref]
    changes: Sequence[Change]
    counts: dict[str, int]
    launches: int
    expected_seconds: float | None
    seconds: float | None
    without_history: Sequence[str]
    stages: list[Stage]
    #: Refs that were simulated.
    reached: int
    wants_reopened: int
    wants_open: int
    notes: Sequence[str]


def what_if_shape(found: WhatIf) -> ShownWhatIf:
    """The answer to a what-if as JSON has it."""
    counts = Counter(change.effect for change in found.changes)
    return ShownWhatIf(
        found.question.value,
        found.named,
        found.changes,
        {effect.value: counts[effect] for effect in Effect if counts[effect]},
        found.n_launches,
        rounded(found.seconds_of_all),
        rounded(found.seconds),
        found.without_history,
        [_simulated(launch) for launch in found.launches],
        len(found.reached),
        found.wants_reopened,
        found.wants_open,
        found.notes,
    )


def _simulated(launch: SimulatedLaunch) -> Stage:
    begins, is_joined = launch.begins_after, launch.is_joined
    return stage_shape(launch.job, launch.refs, launch.n_launches, begins, launch.seconds, is_joined=is_joined)
