"""The refs that a change of some refs can reach, directly or indirectly: the part of the state that a simulation needs.

From each reached ref the search follows declared inputs that are not live, refs that wait, wants, open job runs, and
arcs; a live input is only read, so the search ends there. Consumers by lineage are followed from the named refs only.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from databuild_dagster.model.datasets import ArcSpec, Catalog, DatasetKind, DatasetSpec, InputSpec
from databuild_dagster.model.errors import ReachesTooFar
from databuild_dagster.model.plan import MAX_REACHED
from databuild_dagster.model.refs import Ref, asset_of, make_ref, partition_key_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.wording import few_of, one_line
from databuild_dagster.store.excerpt import Surroundings


@dataclass
class Reached:
    """The refs that may change, and what is around them."""

    #: In the order in which they were found; the named refs first.
    refs: dict[Ref, None] = field(default_factory=dict)
    #: Refs that are read and cannot change.
    around: set[Ref] = field(default_factory=set)
    #: Instances that a downstream taint of the named refs covers, by row id.
    behind: dict[int, Ref] = field(default_factory=dict)
    #: The declared inputs of each ref.
    declared: dict[Ref, tuple[Ref, ...]] = field(default_factory=dict)
    #: The inputs of the canonical instance of each ref.
    read: dict[Ref, tuple[Ref, ...]] = field(default_factory=dict)
    #: Inputs of the last build of each ref that it does not declare: its function asked for them (rule 6.3).
    asked_for: dict[Ref, tuple[Ref, ...]] = field(default_factory=dict)
    #: Refs that need a named ref by their declared inputs, and are not live.
    needing: dict[Ref, Ref] = field(default_factory=dict)
    #: Refs whose inputs the recorded mapping does not give, and why.
    unknown: dict[Ref, str] = field(default_factory=dict)


class Reaching:
    """A search over a snapshot of the store."""

    def __init__(self, datasets: Iterable[DatasetSpec], catalog: Catalog, surroundings: Surroundings) -> None:
        self._datasets = {spec.asset: spec for spec in datasets}
        self._catalog = catalog
        self._surroundings = surroundings
        self._jobs: dict[str, list[str]] = defaultdict(list)
        for spec in self._datasets.values():
            self._jobs[spec.job].append(spec.asset)
        self._arcs = _readers((spec, _arc_sources(spec)) for spec in self._datasets.values())
        self._consumers = _readers((spec, spec.inputs) for spec in self._datasets.values() if spec.kind.is_built)

    def search(self, named: Iterable[Ref], *, built_from: bool = False, needed_by: bool = False) -> Reached:
        """Raises `ReachesTooFar`.

        With `built_from`, also what was built from the named refs; with `needed_by`, also what is not live and needs them.
        """
        refs = list(named)
        found = Reached()
        if built_from:
            found.behind = self._surroundings.behind(refs, MAX_REACHED + 1)
        level = dict.fromkeys([*refs, *found.behind.values()])
        if needed_by:
            found.needing = self._needing(refs)
            level |= dict.fromkeys(found.needing)
        while level:
            found.refs |= level
            if len(found.refs) > MAX_REACHED:
                raise ReachesTooFar(named=few_of(refs), most=MAX_REACHED)
            level = {ref: None for ref in self._next(list(level), found) if ref not in found.refs}
        found.around -= found.refs.keys()
        return found

    def _next(self, level: list[Ref], found: Reached) -> list[Ref]:
        read = self._surroundings.read_by(level)
        found.read |= read
        needs: set[Ref] = set()
        for ref in level:
            declared = found.declared[ref] = self._inputs(ref, found)
            found.around.update(read.get(ref, ()))
            assets = {asset_of(need) for need in declared}
            if extra := tuple(need for need in read.get(ref, ()) if asset_of(need) not in assets):
                found.asked_for[ref] = extra
            needs.update(declared, extra, self._siblings(ref))
        states = self._surroundings.states(needs)
        is_open = {need for need in needs if states.get(need) != InstanceState.LIVE}
        found.around |= needs - is_open
        return sorted({*is_open, *self._surroundings.next_to(level), *self._lots(level, found)})

    def is_like_no_other(self, ref: Ref) -> bool:
        """Whether its dataset has a dependency besides its inputs: an arc, further outputs of its job, other programs."""
        asset = asset_of(ref)
        spec = self._datasets.get(asset)
        return (
            spec is None
            or spec.kind is not DatasetKind.OURS
            or isinstance(spec.arc, ArcSpec)
            or asset in self._arcs
            or len(self._jobs[spec.job]) > 1
        )

    def absent(self, refs: Iterable[Ref]) -> set[Ref]:
        """The refs that are no partitions of their datasets any longer."""
        keys: dict[str, dict[str | None, Ref]] = defaultdict(dict)
        for ref in refs:
            keys[asset_of(ref)][partition_key_of(ref)] = ref
        known = [(self._datasets[asset], of_asset) for asset, of_asset in keys.items() if asset in self._datasets]
        return {of_asset[key] for spec, of_asset in known for key in self._catalog.absent(spec, of_asset)}

    def _siblings(self, ref: Ref) -> list[Ref]:
        """The other outputs of its job for the same key, which are launched with it if they are due."""
        spec = self._datasets.get(asset_of(ref))
        assets = [] if spec is None else self._jobs[spec.job]
        return [make_ref(asset, partition_key_of(ref)) for asset in assets if asset != asset_of(ref)]

    def _inputs(self, ref: Ref, found: Reached) -> tuple[Ref, ...]:
        spec = self._datasets.get(asset_of(ref))
        if spec is None or not spec.kind.is_built:
            return ()
        try:
            return self._catalog.inputs(spec, partition_key_of(ref))
        except Exception as error:  # The mapping of an author, which a tick sets aside too (rule 11.5).
            found.unknown[ref] = f"{type(error).__name__}: {one_line(error)}"
            return ()

    def _lots(self, level: list[Ref], found: Reached) -> Iterator[Ref]:
        """The lots of arcs that a new instance of any ref of the level wakes (rule 10.5)."""
        for ref in level:
            yield from self._woken(ref, self._arcs, found)

    def _woken(
        self, ref: Ref, readers: Mapping[str, list[tuple[DatasetSpec, InputSpec]]], found: Reached
    ) -> Iterator[Ref]:
        for dataset, source in readers.get(asset_of(ref), ()):
            try:
                keys = self._catalog.woken(dataset, source, partition_key_of(ref))
            except Exception as error:
                found.unknown[ref] = f"{type(error).__name__}: {one_line(error)}"
                continue
            yield from (make_ref(dataset.asset, key) for key in keys)

    def _needing(self, named: list[Ref]) -> dict[Ref, Ref]:
        """The refs that need a named ref by declared inputs and are not live, each with a ref that it needs."""
        needing: dict[Ref, Ref] = {}
        level, known = list(named), Reached()
        while level:
            following: dict[Ref, Ref] = {}
            for ref in level:
                for other in self._woken(ref, self._consumers, known):
                    if other not in needing and other not in following:
                        following[other] = ref
                if len(needing) + len(following) > 2 * MAX_REACHED:
                    raise ReachesTooFar(named=few_of(named), most=MAX_REACHED)
            states = self._surroundings.states(following)
            level = [ref for ref in following if states.get(ref) != InstanceState.LIVE and ref not in named]
            needing |= {ref: following[ref] for ref in level}
        return needing


def _arc_sources(spec: DatasetSpec) -> tuple[InputSpec, ...]:
    return spec.arc.sources if isinstance(spec.arc, ArcSpec) else ()


def _readers(
    specs: Iterable[tuple[DatasetSpec, Iterable[InputSpec]]],
) -> dict[str, list[tuple[DatasetSpec, InputSpec]]]:
    """Each asset with the datasets that read it, and as what."""
    readers: dict[str, list[tuple[DatasetSpec, InputSpec]]] = defaultdict(list)
    for spec, sources in specs:
        for source in sources:
            readers[source.asset].append((spec, source))
    return readers
