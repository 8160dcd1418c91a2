"""A world of the model alone: decide, fold, follow-ups over dictionaries, in the words of `World`.

It does what `Engine.handle` does in a transaction, without one. After a refusal the log is folded again, so a decision
that changed anything before it refused would be found by the comparison at the end of the test.
"""

from __future__ import annotations

from collections.abc import Iterable

from databuild_dagster.engine.arcs import fire_arcs
from databuild_dagster.engine.engine import Outcome, ProcessMemory
from databuild_dagster.model import commands as c
from databuild_dagster.model import events as e
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.decide import Deciding, decide
from databuild_dagster.model.decide.context import CatalogAnswers, answered
from databuild_dagster.model.errors import Refused
from databuild_dagster.model.fold.evolve import fold
from databuild_dagster.model.fold.standing import follow_ups

from .catalog import HERE, SmallCatalog
from .clock import Clock, Ids
from .memory_invariants import violations
from .memory_queries import MemoryLedger, MemoryQueries
from .memory_view import MemoryView
from .world import World

#: Longest chain of derivative wants that one command of a test sets going.
MAX_FOLLOW_UPS = 1_000


class ModelWorld(World):
    """`World` without engine and store."""

    def __init__(self, datasets: Iterable[DatasetSpec] = (), *, first_id: int = 1) -> None:
        self.specs = tuple(datasets)
        self.clock = Clock()
        self.ids = Ids(first_id)
        self.catalog = SmallCatalog(self.specs)
        self.memory = ProcessMemory()
        self.events: list[e.Event] = []
        self._outcomes: dict[str, Outcome] = {}
        self.view = MemoryView()
        self.queries = MemoryQueries(lambda: self.view, self.events)
        self.ledger = MemoryLedger(self.queries)
        if self.specs:
            self.handle(c.RegisterDatasets(location=HERE, datasets=self.specs))

    def handle(self, command: c.Command, *, command_id: str | None = None, actor: str = "tester") -> Outcome:
        if command_id in self._outcomes:
            return Outcome(self._outcomes[command_id].events, repeated=True)
        command_id = command_id or self.ids()

        def attempt(answers: CatalogAnswers) -> tuple[list[e.Fact], Deciding]:
            deciding = Deciding(self.view, self._now(), self.ids, answers)
            return decide(command, deciding), deciding

        try:
            facts, deciding = answered(self.catalog, CatalogAnswers(), attempt)
        except Refused:
            self.view = self.folded()
            raise
        return self._recorded(facts, deciding, command_id, actor)

    def _recorded(self, facts: list[e.Fact], deciding: Deciding, command_id: str, actor: str) -> Outcome:
        begin = len(self.events)
        for _ in range(MAX_FOLLOW_UPS):
            for fact in facts:
                place = len(self.events) - begin
                own_id = command_id if place == 0 else f"{command_id}#{place}"
                event = e.Event(len(self.events) + 1, deciding.now, fact, own_id, actor)
                fold(self.view, event)
                self.events.append(event)
            facts = follow_ups(self.view, deciding.now, self.ids)
            if not facts:
                outcome = Outcome(tuple(self.events[begin:]), claim=deciding.claim)
                self._outcomes[command_id] = outcome
                return outcome
        raise AssertionError(f"the follow-ups of {facts} come to no end")

    def fire(self) -> list[str]:
        """`fire_arcs` asks its engine for queries, catalog, memory and commands, which are here too."""
        return fire_arcs(self, "orchestrator")  # type: ignore[arg-type]

    def _now(self) -> float:
        return max(self.clock.now, self.events[-1].at if self.events else 0.0)

    def log(self, after_seq: int = 0) -> list[str]:
        return [type(event.fact).__name__ for event in self.events[after_seq:]]

    def folded(self) -> MemoryView:
        """The state as the log alone gives it."""
        view = MemoryView()
        for event in self.events:
            fold(view, event)
            view.unsettled.clear()
            view.failed_upstream.clear()
        view.seq = len(self.events)
        return view

    def check(self) -> list[str]:
        """Every invariant, and the fold of the log beside the state (I5)."""
        return violations(self.view, self.events) + differences(self.view.tables(), self.folded().tables())

    def close(self) -> None:
        """There is nothing to close."""


def differences(one: dict[str, set[tuple]], other: dict[str, set[tuple]]) -> list[str]:
    """The rows that two states do not share, by table."""
    return [
        f"I5: {name} differs in {sorted(rows ^ other[name], key=repr)}"
        for name, rows in one.items()
        if rows != other[name]
    ]
