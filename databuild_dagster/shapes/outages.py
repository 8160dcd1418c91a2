"""Outages and holds as JSON has them (rules 15, 6.17), with what waits behind them: the wanted refs whose launches need what is away."""

from __future__ import annotations

import msgspec

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.outages import in_words, needs_of, outages
from databuild_dagster.model.decide.context import MAX_BACKOFF_SECONDS
from databuild_dagster.model.records import Time
from databuild_dagster.model.set_aside import Subject
from databuild_dagster.model.surroundings import Surrounding
from databuild_dagster.model.wording import counted
from databuild_dagster.store.queries.planning import AsideSubject

#: Wanted refs that are counted, also those whose backoff has not passed; more of them are as many.
MAX_COUNTED = 10_000


class Outage(msgspec.Struct, frozen=True):
    """An outage, or a hold, and how many wanted refs wait for its end."""

    what: Surrounding
    location: str
    kind: Subject
    reason: str
    since: Time
    waiting: int

    @property
    def sentence(self) -> str:
        why = in_words(self.what, AsideSubject(self.kind, "", self.location, self.reason, self.since))
        return f"{why[0].upper()}{why[1:]}. {counted(self.waiting, 'wanted ref')} behind it."


def outages_with_refs(engine: Engine) -> list[Outage]:
    """The open outages and holds, the oldest first."""
    return [
        Outage(what, aside.location, aside.kind, aside.reason, aside.since, _n_waiting(engine, what, aside.location))
        for what, aside in outages(engine)
    ]


def _n_waiting(engine: Engine, what: Surrounding, location: str) -> int:
    datasets = [id for id, spec in engine.queries.datasets.all(location).items() if what in needs_of(spec)]
    return len(engine.queries.planning.due_refs(datasets, engine.now() + MAX_BACKOFF_SECONDS, MAX_COUNTED).refs)
