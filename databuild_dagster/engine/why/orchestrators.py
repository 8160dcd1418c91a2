"""The orchestrators of code locations, outages and holds, with what waits behind them, as JSON has them (rules 15, 11.4, 6.17)."""

from collections.abc import Iterable, Sequence

import msgspec

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.orchestrator_notes import CodeAtWork, absence_of, code_at_work, last_tick
from databuild_dagster.engine.outages import in_words, needs_of, outages
from databuild_dagster.engine.wording import when
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.decide.context import MAX_BACKOFF_SECONDS
from databuild_dagster.model.records import Time, time_of
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


class Orchestrator(msgspec.Struct, frozen=True):
    """The orchestrator of a location, as far as the store can tell; `why_not` is null while it ticks."""

    location: str
    ticks: bool
    last_tick_at: Time | None
    why_not: str | None
    #: Which hosts had which code in the last day, if it differs.
    versions: str | None
    #: A sentence for each outage and hold that keeps launches of the location back (rule 6.17).
    outages: list[str]

    @property
    def sentence(self) -> str:
        versions = "" if self.versions is None else f" Warning: {self.versions}."
        if self.why_not is not None:
            return f"Warning: {self.why_not}.{versions}"
        return f"The orchestrator of {self.location} ticks, last at {when(self.last_tick_at)}.{versions}"


def differing_versions(location: str, code: Sequence[CodeAtWork]) -> str | None:
    """Which hosts have which code, if it differs."""
    if len({(host.version, host.fingerprint) for host in code}) <= 1:
        return None
    return (
        f"the code of location {location!r} differs: {'; '.join(host.in_words for host in code)}; "
        "reload the code location in Dagster, or restart the process with the older code"
    )


def _orchestrator(engine: Engine, location: str, outages: list[str]) -> Orchestrator:
    last, absence, code = last_tick(engine, location), absence_of(engine, location), code_at_work(engine, location)
    why_not = None if absence is None else absence.sentence
    versions = differing_versions(location, code)
    return Orchestrator(location, absence is None, time_of(last and last.at), why_not, versions, outages)


def orchestrators_of(engine: Engine, datasets: Iterable[DatasetSpec]) -> list[Orchestrator]:
    """The orchestrators of the locations that build something, by name."""
    locations = sorted({spec.location for spec in datasets if spec.kind.is_built})
    held: dict[str, list[str]] = {}
    for outage in outages_with_refs(engine):
        held.setdefault(outage.location, []).append(outage.sentence)
    return [_orchestrator(engine, name, held.get(name, [])) for name in locations]
