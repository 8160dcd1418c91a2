"""What an environment has built, compared with what its base has now (rule 16.7).

Rows are compared as `databuild diff` compares them, by the hashes that the builds recorded first, and then by the files. The instances
are in two logs, and each is read where it is.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from msgspec.structs import replace

from databuild_dagster.features.compare.differences import ColumnChange
from databuild_dagster.features.compare.ranges import (
    Counts,
    NoSuchKey,
    Outcome,
    Pair,
    PartitionDifference,
    RangeDifference,
    Span,
    ValueChange,
    compared,
    summed,
)
from databuild_dagster.model.datasets import ArcSpec, DatasetSpec
from databuild_dagster.model.records import extended
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.wording import state_in_words
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.queries import Queries

#: The outcome of a ref that the base has not.
_NEW: Final[Outcome] = "new"


class ValuesChange(ValueChange, frozen=True):
    """A column whose values differ, over all partitions of a dataset that differ in it."""

    partitions: int


class DatasetDifference(RangeDifference, frozen=True, kw_only=True):
    """What the environment built of a dataset. The sums are over the partitions that differ; None without any, and without a key."""

    dataset: str
    rows_a: int | None
    rows_b: int | None
    added: int | None
    removed: int | None
    changed: int | None
    columns: list[ColumnChange]
    values: list[ValuesChange]
    #: The datasets that read it by the registrations of the base, if any row of it differs.
    consumers: list[str]


class EnvironmentDifference(Counts, frozen=True, kw_only=True):
    """What an environment built, by dataset. `a` is of the base, and `b` of the environment."""

    environment: str
    #: The last event of the base that was seen.
    seq: int
    datasets: list[DatasetDifference]
    #: Of what was compared.
    tainted: list[Ref]
    tainted_in_base: list[Ref]
    #: Datasets without a column of the key, whose rows are not counted by it.
    without_key: list[str]
    #: Refs that were asked for and are not built here.
    not_built: int


def compare(
    name: str, base: Queries, own: Queries, refs: Sequence[Ref] | None, key: Sequence[str]
) -> EnvironmentDifference:
    """The differences of refs that are built in an environment; None for all of them. Raises `NoSuchKey` if no dataset has the key."""
    seq = base.events.head().seq
    built = own.instances.refs_built()
    asked = sorted(built if refs is None else set(refs).intersection(built))
    here, there = own.canonical.of(asked), base.canonical.of(asked)
    consumers = _consumers(base.datasets.all().values())
    datasets: list[DatasetDifference] = []
    without_key: list[str] = []
    refused: NoSuchKey | None = None
    differences: list[PartitionDifference] = []
    for dataset, group in groupby(asked, asset_of):
        pairs = [Pair(ref, _uuid(there[ref]), _uuid(here[ref])) for ref in group]
        try:
            found = list(compared(pairs, base, own, key))
        except NoSuchKey as error:
            found, refused = list(compared(pairs, base, own, ())), error
            without_key.append(dataset)
        found = [_of_environment(difference, there[difference.ref]) for difference in found]
        differences += found
        datasets.append(_of_dataset(dataset, found, consumers.get(dataset, [])))
    if refused is not None and len(without_key) == len(datasets):
        raise refused
    return extended(
        EnvironmentDifference,
        summed(differences),
        environment=name,
        seq=seq,
        datasets=datasets,
        tainted=_tainted(here.values()),
        tainted_in_base=_tainted(there.values()),
        without_key=without_key,
        not_built=0 if refs is None else len(set(refs).difference(built)),
    )


def _uuid(canonical: Canonical) -> str | None:
    return canonical.uuid if canonical.live_at is not None else None


def _tainted(canonical: Iterable[Canonical]) -> list[Ref]:
    return [one.ref for one in canonical if one.state is InstanceState.TAINTED]


def _of_environment(found: PartitionDifference, there: Canonical) -> PartitionDifference:
    """A ref is new if the base has no rows of it, and a note says what the base has instead."""
    if found.outcome != "added":
        return found
    note = None if there.state is None else f"In the base it is {state_in_words(there.state)}."
    return replace(found, outcome=_NEW, note=note)


def _of_dataset(dataset: str, found: Sequence[PartitionDifference], consumers: list[str]) -> DatasetDifference:
    total = summed(found)
    differing = [of for of in total.partitions if of.outcome == "different"]
    columns = dict.fromkeys(column for of in differing for column in of.columns)
    return extended(
        DatasetDifference,
        total,
        dataset=dataset,
        rows_a=_sum(of.rows_a for of in differing),
        rows_b=_sum(of.rows_b for of in differing),
        added=_sum(of.added for of in differing),
        removed=_sum(of.removed for of in differing),
        changed=_sum(of.changed for of in differing),
        columns=list(columns),
        values=_values(differing),
        consumers=consumers if differing else [],
    )


def _values(differing: Iterable[PartitionDifference]) -> list[ValuesChange]:
    by_name: dict[str, list[ValueChange]] = defaultdict(list)
    for difference in differing:
        for value in difference.values:
            by_name[value.name].append(value)
    return [
        ValuesChange(
            name=name,
            rows=_sum(value.rows for value in values),
            a=_united([value.a for value in values]),
            b=_united([value.b for value in values]),
            partitions=len(values),
        )
        for name, values in by_name.items()
    ]


def _united(spans: Sequence[Span]) -> Span:
    least = [span.least for span in spans if span.least is not None]
    greatest = [span.greatest for span in spans if span.greatest is not None]
    nulls = sum(span.nulls for span in spans)
    # Files of one dataset may have numbers in some partitions, and times in others.
    if not least or len({isinstance(end, str) for end in (*least, *greatest)}) > 1:
        return Span(nulls, None, None)
    return Span(nulls, min(least), max(greatest))


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _consumers(datasets: Iterable[DatasetSpec]) -> dict[str, list[str]]:
    """Each dataset with the others that read it, or that its new instances wake."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for spec in datasets:
        sources = spec.arc.sources if isinstance(spec.arc, ArcSpec) else ()
        for used in (*spec.inputs, *sources):
            if used.asset != spec.asset:
                found[used.asset][spec.asset] = None
    return {asset: sorted(readers) for asset, readers in found.items()}
