"""Refs that are alike have one future, so a simulation needs one of each kind.

Refs begin as alike if they look alike by themselves (`store.appearance`). Then those are separated whose inputs or consumers are
not alike, until no more differ: the coarsest equitable partition of the graph, by the refinement of colours (Paige and Tarjan,
1987). Rules look at a ref and at those next to it, whether all or any of them are live, and never count them; so refs of one
colour move together.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from databuild_dagster.engine.why.reasons import Known
from databuild_dagster.model.refs import Ref

#: Rounds of the refinement, each a pass over all refs. A longer chain of builds is simulated ref by ref.
MAX_ROUNDS: Final = 20

#: The refs next to each ref.
Links = Mapping[Ref, Iterable[Ref]]


@dataclass(frozen=True)
class Alike:
    """Each ref of a simulation with the one that is simulated for it."""

    #: Of the refs for which another one is simulated.
    other: Mapping[Ref, Ref] = field(default_factory=dict)

    def one_for(self, ref: Ref) -> Ref:
        """The ref that is simulated for this one."""
        return self.other.get(ref, ref)

    def ones_for(self, refs: Iterable[Ref]) -> tuple[Ref, ...]:
        """The refs that are simulated for these, each once."""
        return tuple(dict.fromkeys(map(self.one_for, refs)))

    def simulated(self, refs: Iterable[Ref]) -> tuple[Ref, ...]:
        """Those of these refs that are simulated themselves."""
        return tuple(ref for ref in refs if ref not in self.other)

    @cached_property
    def _others_of(self) -> dict[Ref, list[Ref]]:
        found: dict[Ref, list[Ref]] = {}
        for ref, one in self.other.items():
            found.setdefault(one, []).append(ref)
        return found

    def all_of(self, simulated: Iterable[Ref]) -> tuple[Ref, ...]:
        """The refs for which these are simulated, with these."""
        return tuple(ref for one in simulated for ref in (one, *self._others_of.get(one, ())))

    def n_others(self) -> dict[Ref, int]:
        """The number of refs for which each ref is simulated beside itself; those for none are left out."""
        return {one: len(others) for one, others in self._others_of.items()}


NOTHING_ALIKE: Final = Alike()


def find_alike(traits: Mapping[Ref, Hashable], *links: Links) -> Alike:
    """Separate refs by their traits and by the refs next to them, in the order of `traits`.

    A ref whose traits are None is like no other. Links lead from a ref to its inputs; those to other refs are passed over.
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
    """A number for each key; equal ones have the same."""
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


def known_of_all(found: Known, before: Known, alike: Alike, inputs: Links) -> Known:
    """The facts about all refs, from those about the simulated ones and from those before the simulation."""
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
