"""Refs become the graph of the jobs that a request for them needs (rule 8.6).

Only registrations decide: the same refs give the same graph for any state of the store. Each job is in it once for each
partition key, after all its inputs. `engine.why.preview` says which of the jobs have to run.

A job with several outputs may be between other jobs: an output is an input of an input of a second output. Such a job is in
the graph once for each level, since a single job run could not build both.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from databuild_dagster.model.datasets import Catalog, DatasetSpec
from databuild_dagster.model.decide.context import check_wantable, no_duplicates, why_no_input
from databuild_dagster.model.errors import CyclicInputs, InvalidRequest, PlanTooLarge, Refused
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of

T = TypeVar("T")

#: Refs of a graph. A year of a dozen daily assets is a fiftieth of it.
MAX_PLANNED_REFS = 250_000
#: Inputs of all its refs together: a few refs that read all partitions of each other would exceed the memory.
MAX_PLANNED_INPUTS = 5_000_000
#: Refs of a simulation, and of a plan on a page. If all of them are built again, a simulation takes seconds.
MAX_REACHED = 10_000


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job for a partition key."""

    job: str
    #: The code location that launches it; None for a ref that nothing can build.
    location: str | None
    partition_key: str | None
    #: Its outputs that are asked for, or that a job of the graph reads.
    produces: tuple[Ref, ...]
    #: The places of the jobs that make its inputs. They are before it.
    after: tuple[int, ...]


@dataclass(frozen=True)
class JobGraph:
    """All jobs that a request needs, inputs before outputs."""

    #: The refs asked for, in order.
    wanted: tuple[Ref, ...]
    jobs: tuple[PlannedJob, ...]
    #: The declared inputs of every ref of the graph.
    inputs: Mapping[Ref, tuple[Ref, ...]] = field(repr=False)
    #: Inputs that nothing can build, and why.
    unbuildable: Mapping[Ref, str]
    #: The registrations of its assets.
    datasets: Mapping[str, DatasetSpec] = field(repr=False)

    def dataset_of(self, ref: Ref) -> DatasetSpec | None:
        return self.datasets.get(asset_of(ref))


def plan(
    refs: Sequence[Ref],
    datasets: Mapping[str, DatasetSpec],
    catalog: Catalog,
    *,
    most_refs: int = MAX_PLANNED_REFS,
) -> JobGraph:
    """The whole job graph of a request (rule 8.6). `datasets` are the registered datasets, by asset.

    Raises the errors of `CreateWants` for refs that cannot be wanted; `CyclicInputs`; `PlanTooLarge`.
    """
    if not refs:
        raise InvalidRequest(what="the request", value=[], why="it names no ref")
    no_duplicates(refs)
    for ref in refs:
        check_wantable(ref, datasets.get, datasets.keys, catalog.why_not)
    inputs, unbuildable = _inputs(refs, datasets, catalog, most_refs)
    levels = _levels(inputs)
    return JobGraph(
        wanted=tuple(refs),
        jobs=_jobs(inputs, levels, datasets),
        inputs=inputs,
        unbuildable=unbuildable,
        datasets={asset: datasets[asset] for asset in sorted({asset_of(ref) for ref in inputs}) if asset in datasets},
    )


def outputs_by_key(refs: Iterable[Ref]) -> dict[str | None, tuple[Ref, ...]]:
    """Refs of a job as its job runs have them: together for each partition key (rule 6.1)."""
    by_key: dict[str | None, list[Ref]] = defaultdict(list)
    for ref in refs:
        by_key[partition_key_of(ref)].append(ref)
    return {key: tuple(outputs) for key, outputs in by_key.items()}


def launch_sets(catalog: Catalog, spec: DatasetSpec, refs: Iterable[Ref]) -> list[dict[str | None, tuple[Ref, ...]]]:
    """Refs of a job that are ready at the same time, as the launches that build them (rules 6.2, 11.2).

    The tick launches exactly the returned sets, and a plan counts them.
    """
    by_key = outputs_by_key(refs)
    sets = catalog.launchable(spec, tuple(by_key), spec.max_partitions_per_launch)
    return [{key: by_key[key] for key in keys} for keys in sets]


def _inputs(
    refs: Sequence[Ref], datasets: Mapping[str, DatasetSpec], catalog: Catalog, most_refs: int
) -> tuple[dict[Ref, tuple[Ref, ...]], dict[Ref, str]]:
    """The inputs of each ref, followed to refs without any; and the refs that nothing can build."""
    inputs: dict[Ref, tuple[Ref, ...]] = {}
    unbuildable: dict[Ref, str] = {}
    found = dict.fromkeys(refs)
    level = list(found)
    n_inputs = 0
    while level:
        # With the first ref that needs it.
        following: dict[Ref, Ref] = {}
        for ref in level:
            inputs[ref] = () if ref in unbuildable else _inputs_of(ref, datasets, catalog)
            n_inputs += len(inputs[ref])
            if n_inputs > MAX_PLANNED_INPUTS:
                raise PlanTooLarge(wanted=len(refs), most=MAX_PLANNED_INPUTS, what="inputs")
            for needed in inputs[ref]:
                if needed not in found:
                    following.setdefault(needed, ref)
        found.update(dict.fromkeys(following))
        if len(found) > most_refs:
            raise PlanTooLarge(wanted=len(refs), most=most_refs, what="refs")
        for ref, needed_by in following.items():
            try:
                check_wantable(ref, datasets.get, datasets.keys, catalog.why_not)
            except Refused as refused:
                unbuildable[ref] = why_no_input(ref, needed_by, refused)
        level = list(following)
    return inputs, unbuildable


def _inputs_of(ref: Ref, datasets: Mapping[str, DatasetSpec], catalog: Catalog) -> tuple[Ref, ...]:
    spec = datasets[asset_of(ref)]
    # The maker of a source does not ask us for its inputs.
    return catalog.inputs(spec, partition_key_of(ref)) if spec.kind.is_built else ()


def _levels(inputs: Mapping[Ref, tuple[Ref, ...]]) -> dict[Ref, int]:
    """The length of the longest chain of inputs of each ref. Raises `CyclicInputs`."""
    levels: dict[Ref, int] = {}
    for ref in _in_order(inputs):
        levels[ref] = 1 + max((levels[needed] for needed in inputs[ref]), default=-1)
    if len(levels) < len(inputs):
        raise CyclicInputs(cycle=" → ".join(_cycle({ref: inputs[ref] for ref in inputs if ref not in levels})))
    return levels


def _in_order(needs: Mapping[T, Iterable[T]]) -> list[T]:
    """The nodes whose needs can all come first, needs first; nodes of a cycle, and nodes that need a cycle, are left out.

    Kahn's algorithm. `graphlib` takes half as long again, because it looks for the cycle first.
    """
    open_needs: dict[T, int] = {}
    needed_by: dict[T, list[T]] = defaultdict(list)
    for node, its_needs in needs.items():
        distinct = set(its_needs)
        open_needs[node] = len(distinct)
        for need in distinct:
            needed_by[need].append(node)
    order = [node for node, n in open_needs.items() if n == 0]
    for node in order:
        for other in needed_by[node]:
            open_needs[other] -= 1
            if open_needs[other] == 0:
                order.append(other)
    return order


def _cycle(left: Mapping[Ref, tuple[Ref, ...]]) -> list[Ref]:
    """A cycle among the remaining refs, each of which needs a remaining ref."""
    way: dict[Ref, None] = {}
    ref = min(left)
    while ref not in way:
        way[ref] = None
        ref = next(needed for needed in left[ref] if needed in left)
    round_trip = list(way)[list(way).index(ref) :]
    return [*round_trip, ref]


#: Job, location and partition key; for a job that has to be split, with the level of its outputs, else with 0.
_Group = tuple[str, str | None, str | None, int]


def _jobs(
    inputs: Mapping[Ref, tuple[Ref, ...]], levels: Mapping[Ref, int], datasets: Mapping[str, DatasetSpec]
) -> tuple[PlannedJob, ...]:
    """Lower levels first, then by name, so that the order of the request does not matter."""
    group_of = _grouped(inputs, levels, datasets)
    outputs: dict[_Group, list[Ref]] = defaultdict(list)
    for ref in sorted(inputs):
        outputs[group_of[ref]].append(ref)
    needs = {group: {group_of[needed] for ref in refs for needed in inputs[ref]} for group, refs in outputs.items()}
    depth: dict[_Group, int] = {}
    for group in _in_order(needs):
        depth[group] = 1 + max((depth[needed] for needed in needs[group]), default=-1)
    assert len(depth) == len(outputs), "levels put every split job after its inputs"
    ordered = sorted(outputs, key=lambda group: (depth[group], group[0], outputs[group]))
    place = {group: at for at, group in enumerate(ordered)}
    return tuple(
        PlannedJob(*group[:3], tuple(outputs[group]), tuple(sorted(place[needed] for needed in needs[group])))
        for group in ordered
    )


def _grouped(
    inputs: Mapping[Ref, tuple[Ref, ...]], levels: Mapping[Ref, int], datasets: Mapping[str, DatasetSpec]
) -> dict[Ref, _Group]:
    """The job of each ref."""
    group_of: dict[Ref, _Group] = {}
    for ref in inputs:
        asset, key = asset_of(ref), partition_key_of(ref)
        spec = datasets.get(asset)
        group_of[ref] = (asset, None, key, 0) if spec is None else (spec.job, spec.location, key, 0)
    if len(set(group_of.values())) == len(group_of):
        return group_of
    needs: dict[_Group, set[_Group]] = defaultdict(set)
    for ref, its_inputs in inputs.items():
        needs[group_of[ref]].update(group_of[needed] for needed in its_inputs)
    split = _between_cycles(needs)
    return {ref: (*group[:3], levels[ref]) if group in split else group for ref, group in group_of.items()}


def _between_cycles(needs: Mapping[_Group, set[_Group]]) -> set[_Group]:
    """The groups on a cycle of needs, and the groups between two cycles."""
    left = needs.keys() - set(_in_order(needs))
    needed_by: dict[_Group, set[_Group]] = {group: set() for group in left}
    for group in left:
        for need in needs[group] & left:
            needed_by[need].add(group)
    free = _in_order(needed_by)
    return left - set(free)
