"""Launches that wait while Spark or the warehouse of their location is out of reach (rule 6.17).

An outage begins with a job run that failed by it, and ends with a probe that passes. A person may hold launches back in the same
way. Both are subjects that are set aside (rule 11.7), so the log, `status`, `explain` and the pages know them.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.wording import when
from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import DatasetKind, DatasetSpec
from databuild_dagster.model.events import AsideFact
from databuild_dagster.model.set_aside import Subject
from databuild_dagster.model.surroundings import PROBED, Surrounding
from databuild_dagster.model.wording import one_line, typed
from databuild_dagster.store.queries.planning import AsideSubject

#: For so long after the end of an outage, a tick starts few launches: the next failure of it costs no more.
CAREFUL_SECONDS: Final = 15.0
CAREFUL_LAUNCHES: Final = 3

_NAMES: Final = {
    Subject.OUTAGE: {f"outage of {what}": what for what in PROBED},
    Subject.HOLD: {f"hold on {what}": what for what in PROBED},
}


def needs_of(spec: DatasetSpec) -> frozenset[Surrounding]:
    """The surroundings that the launches of a dataset need. For a plain asset none are known."""
    if spec.kind is not DatasetKind.OURS:
        return frozenset()
    return frozenset(PROBED if spec.spark is True else (Surrounding.WAREHOUSE,))


def out_of_reach(reasons: Mapping[str, tuple[Subject, str]]) -> frozenset[Surrounding]:
    """The surroundings that launches have to wait for, by the reasons of a location."""
    kinds = ((name, kind) for name, (kind, _) in reasons.items() if kind in _NAMES)
    return frozenset(_NAMES[kind][name] for name, kind in kinds if name in _NAMES[kind])


def outages(engine: Engine, location: str | None = None) -> list[tuple[Surrounding, AsideSubject]]:
    """The open outages and holds of a location, or of all, the oldest first."""
    return [
        (_NAMES[aside.kind][aside.name], aside)
        for aside in engine.queries.planning.set_aside()
        if location in (None, aside.location) and aside.name in _NAMES.get(aside.kind, ())
    ]


def begin_outage(engine: Engine, location: str, what: Surrounding, why: str, actor: str) -> None:
    """Hold back the launches of a location that need it, until a probe passes. An open outage keeps its begin and its reason."""
    if (what, Subject.OUTAGE) in [(known, aside.kind) for known, aside in outages(engine, location)]:
        return
    _change(engine, location, [(Subject.OUTAGE, what)], why, actor)


def end_outage(engine: Engine, location: str, what: Surrounding, actor: str) -> None:
    """Launch again what needs it. Of many launches that waited, a few come first."""
    _change(engine, location, [(Subject.OUTAGE, what)], None, actor)


def hold(engine: Engine, location: str, what: Surrounding, why: str, actor: str) -> None:
    """Hold back the launches of a location that need it, until a person ends that."""
    _change(engine, location, [(Subject.HOLD, what)], why, actor)


def release(engine: Engine, location: str, what: Surrounding, actor: str) -> None:
    """End a hold and an outage, whatever the probe says; a job run that fails by it begins the outage again."""
    _change(engine, location, [(Subject.HOLD, what), (Subject.OUTAGE, what)], None, actor)


def _change(
    engine: Engine, location: str, of: Iterable[tuple[Subject, Surrounding]], why: str | None, actor: str
) -> None:
    reason = None if why is None else one_line(why)
    changes = tuple(AsideFact(kind=kind, names=(_name(kind, what),), reason=reason) for kind, what in of)
    engine.handle(c.ChangeSetAside(location=location, changes=changes), actor=actor)


def _name(kind: Subject, what: Surrounding) -> str:
    return next(name for name, named in _NAMES[kind].items() if named is what)


def n_launches(engine: Engine, location: str, missing: Collection[Surrounding], most: int) -> int:
    """How many launches a tick may start: few, shortly after the end of an outage that this process has seen."""
    key, now = (n_launches, location), engine.clock()
    before, ended = engine.memory.of(key, lambda: (frozenset[Surrounding](), float("-inf")))
    if before - set(missing):
        ended = now
    engine.memory.put(key, (frozenset(missing), ended))
    return min(most, CAREFUL_LAUNCHES) if 0 <= now - ended < CAREFUL_SECONDS else most


def in_words(what: Surrounding, aside: AsideSubject) -> str:
    """A sentence about an outage or a hold, without its full stop."""
    location, since = aside.location, when(aside.since)
    release = (
        f"`databuild resume --needs spark --location {typed(location)}`"
        if what is Surrounding.SPARK
        else f"`databuild resume --needs warehouse --location {typed(location)}`"
    )
    if aside.kind is Subject.HOLD:
        return f"launches of {location} that need {what.in_words} are held since {since}: {aside.reason}; {release} ends that"
    return (
        f"{what.in_words} is out of reach for {location} since {since}: {aside.reason.rstrip('.')}; the orchestrator asks it every "
        f"15 s and launches what waits when it answers, and {release} launches it at once"
    )
