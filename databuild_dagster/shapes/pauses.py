"""Pauses that a command recorded or ended, as JSON has them (rules 15, 6.13)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, TypedDict

from databuild_dagster.engine.engine import Outcome
from databuild_dagster.model.commands import PausePartitions
from databuild_dagster.model.pauses import names_of
from databuild_dagster.model.refs import Ref
from databuild_dagster.shapes.fields import when
from databuild_dagster.store.queries.queries import Queries

#: Open job runs among which those of the paused refs are looked for.
MAX_OPEN_RUNS: Final = 10_000


class PausedShape(TypedDict):
    """A pause that was recorded: the job runs that it canceled, and the open ones of its refs."""

    refs: list[Ref]
    #: Null without an end.
    until: str | None
    canceled: list[str]
    running: list[str]


class ResumedShape(TypedDict):
    """The names whose pauses ended."""

    refs: list[Ref]


def paused(queries: Queries, command: PausePartitions, outcome: Outcome) -> PausedShape:
    """The outcome in the shape of `pause`."""
    return {
        "refs": list(command.refs),
        "until": when(command.until),
        "canceled": list(outcome.canceled),
        "running": open_job_runs_of(queries, command.refs),
    }


def resumed(outcome: Outcome) -> ResumedShape:
    """The outcome in the shape of `resume`."""
    return {"refs": list(outcome.resumed)}


def open_job_runs_of(queries: Queries, names: Collection[Ref]) -> list[str]:
    """The open job runs that build one of the refs, or of the assets, the newest first."""
    runs = queries.job_runs(open_only=True, most=MAX_OPEN_RUNS)
    return [run.id for run in runs if not set(names).isdisjoint(names_of(run.refs))]
