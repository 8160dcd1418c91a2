"""The orchestrators of code locations as JSON has them (rules 15, 11.4)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypedDict

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.orchestrator_notes import (
    Absence,
    CodeAtWork,
    LastTick,
    absence_of,
    code_at_work,
    last_tick,
)
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.shapes.fields import when
from databuild_dagster.shapes.outages import outages_with_refs


class OrchestratorShape(TypedDict):
    """The orchestrator of a location; `why_not` is null while it ticks.

    `versions` says which hosts had which code in the last day, if it differs.
    """

    location: str
    ticks: bool
    last_tick_at: str | None
    why_not: str | None
    versions: str | None
    #: A sentence for each outage and hold that keeps launches of the location back (rule 6.17).
    outages: list[str]


class Orchestrator(NamedTuple):
    """The orchestrator of a location, as far as the store can tell."""

    location: str
    last_tick: LastTick | None
    absence: Absence | None
    code: list[CodeAtWork]
    outages: list[str]

    @property
    def sentence(self) -> str:
        versions = "" if self.versions is None else f" Warning: {self.versions}."
        if self.absence is not None:
            return f"Warning: {self.absence.sentence}.{versions}"
        assert self.last_tick is not None, "it ticks"
        return f"The orchestrator of {self.location} ticks, last at {when(self.last_tick.at)}.{versions}"

    @property
    def versions(self) -> str | None:
        """The code of each host, if it differs."""
        if len({(code.version, code.fingerprint) for code in self.code}) < 2:
            return None
        return f"the code of location {self.location!r} differs: {'; '.join(code.in_words for code in self.code)}"

    def shape(self) -> OrchestratorShape:
        """The orchestrator in the shape of `status`."""
        return {
            "location": self.location,
            "ticks": self.absence is None,
            "last_tick_at": None if self.last_tick is None else when(self.last_tick.at),
            "why_not": None if self.absence is None else self.absence.sentence,
            "versions": self.versions,
            "outages": self.outages,
        }


def orchestrators_of(engine: Engine, datasets: Iterable[DatasetSpec]) -> list[Orchestrator]:
    """The orchestrators of the locations that build something, by name."""
    locations = sorted({spec.location for spec in datasets if spec.kind.is_built})
    held: dict[str, list[str]] = {}
    for outage in outages_with_refs(engine):
        held.setdefault(outage.aside.location, []).append(outage.sentence)
    return [
        Orchestrator(
            name, last_tick(engine, name), absence_of(engine, name), code_at_work(engine, name), held.get(name, [])
        )
        for name in locations
    ]
