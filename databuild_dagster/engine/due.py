"""The due refs that one level of planning looks at: a part of each asset's, so that none keeps another waiting (rule 11.6).

A part of which nothing can be launched, because its refs are set aside or wait for learned inputs, is followed by the next
part of the same asset at the next tick. The places are in the memory of the process: another one begins with the most urgent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.refs import Ref
from databuild_dagster.store.queries.planning import DueRef, urgency


class Look(NamedTuple):
    """One look at due refs."""

    #: The most urgent first.
    refs: list[DueRef]
    #: The datasets that may have further due refs, each with the number of refs up to here.
    passed: dict[int, int]


def built_here(datasets: Mapping[int, DatasetSpec], location: str) -> dict[int, DatasetSpec]:
    """The datasets whose refs an orchestrator of the location launches. It launches no ref of a source or a boundary."""
    return {id: spec for id, spec in datasets.items() if spec.location == location and spec.kind.is_built}


class Looks:
    """The place of each dataset in its due refs, where the next look begins. `name` is of those who look.

    With `serving`, they look only at these refs and what they need (rule 8.9).
    """

    def __init__(self, engine: Engine, name: str, serving: Collection[Ref] | None = None) -> None:
        queries = engine.queries
        self._due = queries.due_refs if serving is None else partial(queries.due_among, serving)
        self._places: dict[int, int] = engine.memory.of((Looks, name), dict)

    def look(self, dataset_ids: Iterable[int], now: float, most: int) -> Look:
        """Due refs of the datasets, at most `most`, as `PlanningQueries.due_refs` divides them."""
        by_place: dict[int, list[int]] = {}
        for id in dataset_ids:
            by_place.setdefault(self._places.get(id, 0), []).append(id)
        refs: list[DueRef] = []
        passed: dict[int, int] = {}
        for place, ids in by_place.items():
            found = self._due(ids, now, -(-most // len(by_place)), skipped=place)
            cut_off = found.cut_off
            refs += found.refs
            passed |= dict.fromkeys(cut_off, place + found.of_each)
            if place:
                # At the end the next look begins with the most urgent ones again.
                self.begin_again(id for id in ids if id not in cut_off)
        if len(by_place) > 1:
            refs.sort(key=urgency)
        return Look(refs, passed)

    def pass_over(self, look: Look, but: Collection[int] = ()) -> None:
        """The next look at these datasets begins after this one, but for the datasets named."""
        self._places.update((id, place) for id, place in look.passed.items() if id not in but)

    def begin_again(self, dataset_ids: Iterable[int]) -> None:
        """The next look at these datasets begins with the most urgent refs."""
        for id in dataset_ids:
            self._places.pop(id, None)
