"""Alike refs have the same future, so an excerpt of the store, which is simulated, needs a single ref of each kind.

Refs begin as alike if they look alike by themselves (`store.excerpt`). Then refs are separated whose inputs or consumers are
not alike, until no more differ: the coarsest equitable partition of the graph, by the refinement of colours (Paige and Tarjan,
1987). Rules look at a ref and at its neighbours, whether all or any of them are live, and never count them; so refs of the same
colour move together.

The appearance of a ref has the ends of its wants apart: wants that were recorded at different times end at different times, and a
simulation mostly ends before all of them. So refs are first alike whenever their wants end. If wants end meanwhile, or stay open,
that answer is dropped, and more refs are separated.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from databuild_dagster.engine.why.reasons import KnownRefs
from databuild_dagster.features.what_if.reaching import Reached, Reaching
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.store.excerpt import Appearance, InPlaceOf, Surroundings
from databuild_dagster.store.store import Store

#: Rounds of the refinement, each a pass over all refs. A longer chain of builds is simulated ref by ref.
MAX_ROUNDS: Final = 20

#: The refs next to each ref.
Links = Mapping[Ref, Iterable[Ref]]


@dataclass(frozen=True)
class Alike:
    """Each ref of a simulation with the ref that is simulated for it."""

    #: Of the refs for which a different ref is simulated.
    other: Mapping[Ref, Ref] = field(default_factory=dict)

    def one_for(self, ref: Ref) -> Ref:
        """The ref that is simulated for `ref`."""
        return self.other.get(ref, ref)

    def ones_for(self, refs: Iterable[Ref]) -> tuple[Ref, ...]:
        """The refs that are simulated for `refs`, each once."""
        return tuple(dict.fromkeys(map(self.one_for, refs)))

    def simulated(self, refs: Iterable[Ref]) -> tuple[Ref, ...]:
        """The refs of `refs` that are simulated themselves."""
        return tuple(ref for ref in refs if ref not in self.other)

    @cached_property
    def _others_of(self) -> dict[Ref, list[Ref]]:
        found: dict[Ref, list[Ref]] = {}
        for ref, one in self.other.items():
            found.setdefault(one, []).append(ref)
        return found

    def all_of(self, simulated: Iterable[Ref]) -> tuple[Ref, ...]:
        """The simulated refs, each followed by the refs for which it is simulated."""
        return tuple(ref for one in simulated for ref in (one, *self._others_of.get(one, ())))

    def n_others(self) -> dict[Ref, int]:
        """The number of refs for which each ref is simulated beside itself; a number of 0 is left out."""
        return {one: len(others) for one, others in self._others_of.items()}


NOTHING_ALIKE: Final = Alike()


def find_alike(traits: Mapping[Ref, Hashable], *links: Links) -> Alike:
    """Separate refs by their traits and by the refs next to them, in the order of `traits`.

    A ref whose traits are None is like no other ref. Links lead from a ref to its inputs; links to refs outside of `traits` are ignored.
    """
    places = {ref: place for place, ref in enumerate(traits)}
    sides = [side for named in links for side in _both_sides(named, places)]
    colours = _numbered((place if trait is None else (trait,) for place, trait in enumerate(traits.values())))
    n_colours = len(set(colours))
    for _ in range(MAX_ROUNDS):
        if n_colours == len(colours):
            return NOTHING_ALIKE
        colours = _numbered(_separated(colours, sides))
        if len(set(colours)) == n_colours:
            return _first_of_each(places, colours)
        n_colours = len(set(colours))
    return NOTHING_ALIKE


def _both_sides(links: Links, places: Mapping[Ref, int]) -> tuple[list[list[int]], list[list[int]]]:
    """The places of the inputs of each ref, and of its consumers."""
    inputs: list[list[int]] = [[] for _ in places]
    consumers: list[list[int]] = [[] for _ in places]
    for ref, needs in links.items():
        if (user := places.get(ref)) is not None:
            for need in needs:
                if (used := places.get(need)) is not None:
                    inputs[user].append(used)
                    consumers[used].append(user)
    return inputs, consumers


def _numbered(keys: Iterable[Hashable]) -> list[int]:
    """A number for each key; equal keys have the same number."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def _separated(colours: list[int], sides: Sequence[list[list[int]]]) -> Iterable[Hashable]:
    of: Callable[[int], int] = colours.__getitem__
    for place, colour in enumerate(colours):
        yield (colour, *[frozenset(map(of, side[place])) for side in sides])


def _first_of_each(places: Mapping[Ref, int], colours: list[int]) -> Alike:
    first: dict[int, Ref] = {}
    ones = {ref: first.setdefault(colours[place], ref) for ref, place in places.items()}
    return Alike({ref: one for ref, one in ones.items() if one != ref})


def known_of_all(found: KnownRefs, before: KnownRefs, alike: Alike, inputs: Links) -> KnownRefs:
    """The facts about all refs, from the facts about the simulated refs and from the facts before the simulation."""
    canonical = dict(found.canonical)
    missing, pauses = dict(found.missing), dict(found.pauses)
    taints, job_runs = dict(found.taints), dict(found.job_runs)
    for ref, one in alike.other.items():
        then, now = before.canonical[one], found.canonical[one]
        uuid = before.canonical[ref].uuid if then.uuid == now.uuid else now.uuid
        canonical[ref] = now._replace(ref=ref, uuid=uuid)
        for facts in (taints, job_runs, pauses):
            if one in facts:
                facts[ref] = facts[one]  # type: ignore[assignment]
        if one in found.missing:
            missed = set(found.missing[one])
            missing[ref] = tuple(need for need in inputs.get(ref, ()) if alike.one_for(need) in missed)
    states = {need: canonical[need].state for needs in missing.values() for need in needs if need in canonical}
    return replace(
        found,
        canonical=canonical,
        missing=missing,
        pauses=pauses,
        taints=taints,
        job_runs=job_runs,
        states={**found.states, **states},
    )


@dataclass(frozen=True)
class Likeness:
    """The likeness of the refs that a question reaches, in a snapshot of a store."""

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
        """The refs with the same future, if no want of theirs ends between the horizon and the end of the simulation."""
        absent = self.searching.absent(self.reached.refs)
        own = absent | self.special | self.reached.unknown.keys()

        def traits(ref: Ref, seen: Appearance) -> Hashable:
            if seen.is_special or ref in own or self.searching.is_like_no_other(ref):
                return None
            return (asset_of(ref), ref in self.named, seen.traits, seen.ends_by(horizon))

        known = {ref: traits(ref, seen) for ref, seen in self._appearances.items()}
        return find_alike(known, self.reached.declared, self.reached.read)

    def holds(self, alike: Alike, horizon: float, end: float, wanted: set[Ref]) -> bool:
        """Whether the refs that are alike by a horizon have the same future until `end`, when the refs of `wanted` are still wanted."""
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
