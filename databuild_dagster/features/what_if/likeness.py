"""Which of the refs that a question reaches are alike, and the excerpt with one of each kind.

The appearance of a ref (`store.appearance`) has the ends of its wants apart: wants that were recorded at different times end at
different times, and a simulation mostly ends before all of them. So refs are first alike whenever their wants end. If wants end
meanwhile, or stay open, that answer is dropped, and more refs are separated.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property

from databuild_dagster.features.what_if.alike import Alike, find_alike
from databuild_dagster.features.what_if.reaching import Reached, Reaching
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.store.appearance import Appearance
from databuild_dagster.store.excerpt import InPlaceOf, Surroundings
from databuild_dagster.store.store import Store


@dataclass(frozen=True)
class Likeness:
    """The likeness of the refs that one question reaches, in one snapshot of a store."""

    searching: Reaching
    surroundings: Surroundings
    reached: Reached
    named: frozenset[Ref]
    #: Refs with something of their own that the store computes: they are stale, or paused.
    special: frozenset[Ref]

    @cached_property
    def _appearances(self) -> dict[Ref, Appearance]:
        return self.surroundings.appearances(self.reached.refs, self.reached.behind)

    def alike(self, horizon: float) -> Alike:
        """The refs with one future, if no want of theirs ends between the horizon and the end of the simulation."""
        absent = self.searching.absent(self.reached.refs)
        own = absent | self.special | self.reached.unknown.keys()

        def traits(ref: Ref, seen: Appearance) -> Hashable:
            if seen.is_special or ref in own or self.searching.is_like_no_other(ref):
                return None
            return (asset_of(ref), ref in self.named, seen.traits, seen.ends_by(horizon))

        known = {ref: traits(ref, seen) for ref, seen in self._appearances.items()}
        return find_alike(known, self.reached.declared, self.reached.read)

    def holds(self, alike: Alike, horizon: float, end: float, wanted: set[Ref]) -> bool:
        """Whether the refs that are alike by a horizon have one future until `end`, when these are still `wanted`."""
        for one in alike.n_others():
            expiries = {self._appearances[ref].expiries for ref in alike.all_of([one])}
            if len(expiries) > 1 and (one in wanted or any(horizon < at <= end for ends in expiries for at in ends)):
                return False
        return True

    def excerpt(self, alike: Alike) -> Store:
        """A copy of the refs that are simulated, and of what is around them. The caller closes it."""
        reached = self.reached
        if not alike.other:
            return self.surroundings.copy(reached.refs, reached.around, reached.behind)
        simulated = alike.simulated(reached.refs)
        around = reached.around - (self._next_to(alike.other) - self._next_to(simulated))
        behind = [row_id for row_id, ref in reached.behind.items() if ref not in alike.other]
        return self.surroundings.copy(simulated, around, behind, self._in_place_of(alike))

    def _next_to(self, refs: Iterable[Ref]) -> set[Ref]:
        declared, read = self.reached.declared, self.reached.read
        return {need for ref in refs for needs in (declared.get(ref, ()), read.get(ref, ())) for need in needs}

    def _in_place_of(self, alike: Alike) -> InPlaceOf:
        refs: dict[int, int] = {}
        instances: dict[int, int] = {}
        for ref, one in alike.other.items():
            left_out, kept = self._appearances[ref], self._appearances[one]
            if left_out.ref_id is not None and kept.ref_id is not None:
                refs[left_out.ref_id] = kept.ref_id
            if left_out.canonical_id is not None and kept.canonical_id is not None:
                instances[left_out.canonical_id] = kept.canonical_id
        return InPlaceOf(refs, instances)
