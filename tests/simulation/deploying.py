"""Deploys in a storm: the definitions of code locations change, and partition keys have names that others chose (rule 11.5).

`Definitions` answers from what is registered, as `bindings.registry.catalog` does: an upstream is looked up by its name, a
ref that no key can name raises, and a key that is not there any longer has no place in the order of a launch.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from databuild_dagster.model.commands import RegisterDatasets
from databuild_dagster.model.datasets import ArcSpec, DatasetKind, DatasetSpec, InputSpec
from databuild_dagster.model.events import DatasetRegistered, Event
from databuild_dagster.model.refs import Ref, asset_of, make_ref, partition_key_of, ref_or_none
from databuild_dagster.model.wording import one_line, utf8
from tests.support.catalog import HERE, SmallCatalog, dataset

#: The second location, which has no orchestrator where the scenario does not say so.
THERE = "there"
#: The partitions of a dataset whose keys are added and deleted while it is registered.
DYNAMIC = "dynamic"

#: Keys of files and customers that a ref can name.
ODD_KEYS = (
    "a|b",
    "..",
    "a/../b",
    "x@y",
    "CON",
    "caf\u00e9",
    "cafe\u0301",
    "it's",
    '"; DROP TABLE databuild_events; --',
    "$(rm -rf ~)",
    " ",
    "%2e%2e",
    "\u202egnp",
    "\U0001f4a5",
    "null",
    "n" * 900,
)
#: Keys that Dagster takes, and that no ref can name (rule 2.1).
UNNAMEABLE_KEYS = ("", "two\nlines", "\x00", "\x7f", "half \udce9", "k" * 1100)

#: What a person deploys, the frequent more often.
DEPLOYS = (
    *["remove an asset"] * 2,
    "add an asset",
    "rename an asset",
    *["repartition"] * 2,
    "change a mapping",
    "move the start",
    "move the end",
    *["put the code back"] * 2,
    *["old and new code in turns"] * 2,
    "another location claims",
    "add a key",
    "delete a key",
)
#: How often old and new code are registered in turns, and the seconds between.
TURNS, TURN_SECONDS = 6, 5.0


class Definitions(SmallCatalog):
    """`model.datasets.Catalog` over the registered datasets of all locations, which change while it is asked."""

    def __init__(
        self, datasets: dict[str, DatasetSpec], dynamic: list[str], asked: Callable[[str], None] = lambda what: None
    ) -> None:
        self.datasets = datasets
        self.dynamic = dynamic
        #: Called before each answer; it may raise, and take its time.
        self._asked = asked
        #: The reasons that it gave for absent partitions, and its errors, as the log has them.
        self.reasons: set[str] = set()

    def keys_of(self, dataset: DatasetSpec) -> list[str | None]:
        return [*self.dynamic] if dataset.partitions == DYNAMIC else super().keys_of(dataset)

    def why_not(self, dataset: DatasetSpec, partition_key: str | None) -> str | None:
        self._asked("the definition of partitions")
        return super().why_not(dataset, partition_key)

    def absent(self, dataset: DatasetSpec, partition_keys: Iterable[str | None]) -> dict[str | None, str]:
        self._asked("the definition of partitions")
        absent = {key: why for key in partition_keys if (why := super(Definitions, self).why_not(dataset, key))}
        # The log has no NUL.
        self.reasons.update(utf8(why).replace("\0", "\ufffd") for why in absent.values())
        return absent

    def inputs(self, dataset: DatasetSpec, partition_key: str | None) -> tuple[str, ...]:
        self._asked("the mapping")
        with self._noting():
            return super().inputs(dataset, partition_key)

    def woken(self, dataset: DatasetSpec, source: InputSpec, partition_key: str | None) -> tuple[str | None, ...]:
        self._asked("the mapping")
        ref = ref_or_none(source.asset, partition_key)
        return tuple(key for key in self.keys_of(dataset) if ref in self._named(source, key))

    def launchable(
        self, dataset: DatasetSpec, partition_keys: tuple[str | None, ...], most: int
    ) -> tuple[tuple[str | None, ...], ...]:
        self._asked("the order of partitions")
        with self._noting():
            return super().launchable(dataset, partition_keys, most)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.reasons.add(f"{type(error).__name__}: {utf8(one_line(error))}")
            raise

    def _mapped(self, need: InputSpec, partition_key: str | None) -> list[str]:
        return [make_ref(need.asset, key) for key in self._mapped_keys(need, partition_key)]

    def _named(self, need: InputSpec, partition_key: str | None) -> list[Ref | None]:
        return [ref_or_none(need.asset, key) for key in self._mapped_keys(need, partition_key)]

    def _mapped_keys(self, need: InputSpec, partition_key: str | None) -> list[str | None]:
        upstream = self.datasets.get(need.asset)
        keys = [None] if upstream is None else self.keys_of(upstream)
        if keys == [None] or need.mapping == "all" or (need.mapping == "same" and partition_key is None):
            return keys
        return [partition_key if need.mapping == "same" else need.mapping]

    # What a storm asks of it

    def exists(self, ref: str) -> bool:
        spec = self.datasets.get(asset_of(Ref(ref)))
        return spec is not None and partition_key_of(Ref(ref)) in self.keys_of(spec)

    def refs_of(self, spec: DatasetSpec) -> list[str]:
        """Those that have a name."""
        return [ref for key in self.keys_of(spec) if (ref := ref_or_none(spec.asset, key)) is not None]

    def see(self, event: Event) -> None:
        """A registration."""
        if isinstance(event.fact, DatasetRegistered):
            for asset in event.fact.removed:
                self.datasets.pop(asset, None)
            self.datasets.update((spec.asset, spec) for spec in event.fact.datasets)

    def as_now(self) -> Definitions:
        """A copy: the code that a process has loaded."""
        return Definitions(dict(self.datasets), list(self.dynamic))


@dataclass(frozen=True)
class Change:
    """The surroundings of one deploy: what is registered for the location, and what was there in the beginning."""

    found: dict[str, DatasetSpec]
    original: tuple[DatasetSpec, ...]
    rng: random.Random
    #: A name for what is new.
    name: str

    def some(self) -> DatasetSpec | None:
        """An asset that a deploy may take away: a landing folder keeps its watchers."""
        names = [asset for asset, spec in self.found.items() if spec.kind is not DatasetKind.BOUNDARY]
        return self.found[self.rng.choice(names)] if names else None

    def replace(self, spec: DatasetSpec, **fields: object) -> None:
        self.found[spec.asset] = msgspec.structs.replace(spec, **fields)

    def repartition(self, spec: DatasetSpec, partitions: str | None) -> None:
        """With the other outputs of its job."""
        for output in [output for output in self.found.values() if output.job == spec.job]:
            self.replace(output, partitions=partitions)


def deployed(what: str, change: Change) -> RegisterDatasets:
    """The registration of the changed code; a change for which there is nothing is none."""
    spec = change.some()
    if spec is not None:
        _CHANGES[what](change, spec)
    return RegisterDatasets(location=HERE, datasets=tuple(change.found.values()))


def claimed(change: Change, present: Iterable[DatasetSpec], own: Iterable[DatasetSpec]) -> RegisterDatasets:
    """The other location says that it can build, or reads, an asset that this location may have."""
    datasets = {spec.asset: spec for spec in own}
    others = [spec for spec in present if spec.asset not in datasets]
    if others:
        kind = change.rng.choice([DatasetKind.OURS, DatasetKind.SOURCE])
        chosen = change.rng.choice(others)
        datasets[chosen.asset] = dataset(chosen.asset, location=THERE, kind=kind)
    return RegisterDatasets(location=THERE, datasets=tuple(datasets.values()))


def _remove(change: Change, spec: DatasetSpec) -> None:
    if len(change.found) > 1:
        del change.found[spec.asset]


def _add(change: Change, spec: DatasetSpec) -> None:
    keys = () if spec.partitions is None or spec.partitions == DYNAMIC else spec.partitions.split(",")
    change.found[change.name] = dataset(change.name, spec.asset, keys=keys)


def _rename(change: Change, spec: DatasetSpec) -> None:
    """With the names in the code that reads it."""

    def named(inputs: tuple[InputSpec, ...]) -> tuple[InputSpec, ...]:
        return tuple(
            msgspec.structs.replace(need, asset=change.name) if need.asset == spec.asset else need for need in inputs
        )

    job = change.name if spec.job == spec.asset else spec.job
    del change.found[spec.asset]
    change.found[change.name] = msgspec.structs.replace(spec, asset=change.name, job=job)
    for reader in list(change.found.values()):
        arc = reader.arc
        if isinstance(arc, ArcSpec):
            arc = msgspec.structs.replace(arc, sources=named(arc.sources))
        change.replace(reader, inputs=named(reader.inputs), arc=arc)


def _repartition(change: Change, spec: DatasetSpec) -> None:
    odd = ",".join(change.rng.sample(ODD_KEYS, 2))
    change.repartition(spec, change.rng.choice([None, "1", "1,2", "2,3", odd, DYNAMIC]))


def _remap(change: Change, spec: DatasetSpec) -> None:
    mapping = change.rng.choice(["same", "all", "1", "nowhere"])
    change.replace(spec, inputs=tuple(msgspec.structs.replace(need, mapping=mapping) for need in spec.inputs))


def _move(change: Change, spec: DatasetSpec, place: int) -> None:
    """The first key or the last: another one beyond it, or without it."""
    if spec.partitions is None or spec.partitions == DYNAMIC:
        return
    keys = spec.partitions.split(",")
    if len(keys) > 1 and change.rng.random() < 0.5:
        del keys[place]
    else:
        keys.insert(0 if place == 0 else len(keys), f"moved {change.name}")
    change.repartition(spec, ",".join(keys))


def _put_back(change: Change, spec: DatasetSpec) -> None:
    change.found.clear()
    change.found.update((original.asset, original) for original in change.original)


_CHANGES: dict[str, Callable[[Change, DatasetSpec], None]] = {
    "remove an asset": _remove,
    "add an asset": _add,
    "rename an asset": _rename,
    "repartition": _repartition,
    "change a mapping": _remap,
    "move the start": lambda change, spec: _move(change, spec, 0),
    "move the end": lambda change, spec: _move(change, spec, -1),
    "put the code back": _put_back,
}
#: The changes of a new version that is registered in turns with the old one.
OF_A_VERSION = ("remove an asset", "add an asset", "rename an asset", "repartition", "change a mapping")
