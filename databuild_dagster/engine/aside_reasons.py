"""The reasons of a location's ticks become events when they change; the tries and pauses are noted beside the heartbeats (rule 11.7).

A ref or an arc that raised several times in a row rests for a growing time, so that many of them cost a tick little. A process
that begins, and one that sees another registration, tries all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import assert_never

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.set_aside import SetAside
from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.events import AsideFact
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.set_aside import Subject, same_reason
from databuild_dagster.store.backends.heartbeats import Tries
from databuild_dagster.store.queries.set_aside import Aside

#: The question that a tick asks before it looks at single launches.
OF_LAUNCHES = "the Dagster runs of open launches"
#: The tries in a row after which the next tick tries again.
TRIES_WITHOUT_PAUSE = 2
#: The pause after the one that follows; each further one doubles it.
FIRST_PAUSE_SECONDS = 5.0
MAX_PAUSE_SECONDS = 60.0
#: Doublings until the longest pause.
_MOST_DOUBLINGS = 4


class AsideReasons:
    """The subjects that the ticks of a location have set aside, as one tick finds them."""

    def __init__(self, engine: Engine, location: str, datasets: Mapping[int, DatasetSpec]) -> None:
        self._engine, self._location = engine, location
        self._known: dict[str, Aside] = {aside.name: aside for aside in engine.queries.set_aside(location)}
        self._tries: dict[str, Tries] = engine.heartbeats.tries(location) if self._known else {}
        #: For the tick.
        self.aside = SetAside({} if self._is_new(datasets) else self._resting())

    def _is_new(self, datasets: Mapping[int, DatasetSpec]) -> bool:
        """Whether this process has not ticked with these definitions."""
        key = (AsideReasons, self._location)
        before = self._engine.memory.of(key, dict[int, DatasetSpec])
        self._engine.memory.put(key, datasets)
        return before != datasets

    def _resting(self) -> dict[str, str]:
        now = self._engine.clock()
        return {
            name: known.reason
            for name, known in self._known.items()
            if known.kind in (Subject.REF, Subject.ARC) and (tries := self._tries.get(name)) and now < tries.again_at
        }

    def record(self, actor: str) -> None:
        """Record the changes since the last tick, and note the tries of this one."""
        aside, known = self.aside, self._known
        tried = [name for name in aside if name not in aside.resting]
        left = [before for name, before in known.items() if name not in aside and name not in aside.planned]
        due = self._engine.queries.marked_due([Ref(before.name) for before in left]) if left else set()
        kept = {before.name for before in left if not self._is_over(before, due)}
        ended = [name for name in known if name not in aside and name not in kept]
        changes: dict[tuple[Subject, str | None], list[str]] = {}
        for name in tried:
            if name not in known or not same_reason(known[name].reason, aside[name]):
                changes.setdefault((aside.kinds.get(name, Subject.REF), aside[name]), []).append(name)
        for name in ended:
            changes.setdefault((known[name].kind, None), []).append(name)
        if changes:
            facts = tuple(
                AsideFact(kind=kind, names=tuple(names), reason=why) for (kind, why), names in changes.items()
            )
            self._engine.handle(c.ChangeSetAside(location=self._location, changes=facts), actor=actor)
        if tried or ended:
            self._engine.heartbeats.note_tries(self._location, self._after(tried), ended)

    def _is_over(self, before: Aside, due: set[Ref]) -> bool:
        """Whether a subject that this tick neither planned nor set aside is set aside no longer."""
        match before.kind:
            case Subject.REF:
                # A tick may look at some due refs only.
                return before.name not in due
            case Subject.LAUNCH:
                return OF_LAUNCHES not in self.aside
            case Subject.ARC | Subject.WANT | Subject.JOB_RUN | Subject.QUESTION:
                return True
        assert_never(before.kind)

    def _after(self, tried: Iterable[str]) -> list[Tries]:
        now = self._engine.clock()
        numbers = {name: 1 + (self._tries[name].n if name in self._tries else 0) for name in tried}
        return [Tries(name, n, now, now + pause_after(n)) for name, n in numbers.items()]


def pause_after(n_tries: int) -> float:
    """The seconds until a subject is tried again, after so many tries in a row."""
    doublings = n_tries - TRIES_WITHOUT_PAUSE - 1
    return (
        0.0 if doublings < 0 else min(MAX_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(doublings, _MOST_DOUBLINGS))
    )
