"""What a tick sets aside, and why: one ref, arc or launch that raises delays nothing else (rule 11.5).

No want ends for it, and a later tick tries it again. A new reason is an event; the tries, and the pause before the next one, are
beside the heartbeats (rule 11.7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.errors import IllegalMove, MissingRow
from databuild_dagster.model.logs import logger
from databuild_dagster.model.refs import Ref, partition_key_of
from databuild_dagster.model.set_aside import Subject
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.wording import few_of, one_line, utf8
from databuild_dagster.store.errors import NewerStore, StoreUnusable
from databuild_dagster.store.queries.planning import DueRef

#: Without the store nothing of a tick can be done, and an impossible event stops loudly; a missing row concerns a ref.
_OF_THE_WHOLE_TICK = (StoreUnusable, NewerStore, IllegalMove)

_log = logger(__name__)

T = TypeVar("T")


class SetAside(dict[str, str]):
    """The name of each ref, arc and launch that is set aside, with the reason."""

    def __init__(self, resting: Mapping[str, str] = MappingProxyType({})) -> None:
        """`resting` are refs and arcs that this tick does not try, with their last reason."""
        super().__init__()
        self.resting = resting
        #: The kinds of those that are not refs.
        self.kinds: dict[str, Subject] = {}
        #: Refs that were tried, and are not set aside for what precedes their launch.
        self.planned: set[str] = set()

    @contextmanager
    def guard(self, *names: str, kind: Subject = Subject.REF) -> Iterator[None]:
        """Set these aside if the block raises. Raises errors of the store, and `IllegalMove`."""
        try:
            yield
        except Exception as error:
            self.because_of(error, *names, kind=kind)

    def because_of(self, error: Exception, *names: str, kind: Subject = Subject.REF) -> None:
        """Set these aside for an error, whose traceback is logged at the level DEBUG. Raises as `guard` does."""
        if isinstance(error, _OF_THE_WHOLE_TICK) and not isinstance(error, MissingRow):
            raise error
        _log.debug("databuild: a tick sets aside %s", names, exc_info=error)
        self.update(dict.fromkeys(names, f"{type(error).__name__}: {utf8(one_line(error))}"))
        if kind is not Subject.REF:
            self.kinds.update(dict.fromkeys(names, kind))

    def rests(self, name: str) -> bool:
        """Whether this tick does not try it; if so, it is set aside for its last reason."""
        why = self.resting.get(name)
        if why is not None:
            self[name] = why
        return why is not None

    def in_parts(
        self,
        items: Sequence[T],
        handle: Callable[[Sequence[T]], list[str]],
        names: Callable[[T], Iterable[str]],
        kind: Subject = Subject.REF,
    ) -> list[str]:
        """The results of `handle` for the items, in one call, or in halves around a missing row (rule 3.5).

        Of a call that raises `MissingRow` nothing is recorded; an item that still raises alone is set aside by its names.
        """
        try:
            return handle(items)
        except MissingRow as missing:
            if len(items) < 2:
                self.because_of(missing, *(name for item in items for name in names(item)), kind=kind)
                return []
            half = len(items) // 2
            halves = items[:half], items[half:]
            return [done for part in halves for done in self.in_parts(part, handle, names, kind)]

    def sentences(self) -> list[str]:
        """One for each reason, with the first names."""
        names: dict[str, list[str]] = {}
        for name, why in self.items():
            names.setdefault(why, []).append(name)
        return [f"Set aside for now: {few_of(of_why)}: {why}" for why, of_why in names.items()]


def arc_name(asset: str) -> str:
    """The name of an asset's arc. The asset itself may be a ref."""
    return f"arc {asset}"


def launch_name(launch_id: str) -> str:
    return f"launch {launch_id}"


class Plannable(NamedTuple):
    """The due refs that can be planned, and the declared inputs of each."""

    due: list[DueRef]
    inputs: Mapping[Ref, tuple[Ref, ...]]

    def with_states(self, engine: Engine, aside: SetAside) -> tuple[list[DueRef], dict[Ref, InstanceState | None]]:
        """The states of the inputs, and the due refs without those that have a live input whose row is missing (rule 3.5)."""
        states, damaged = engine.queries.input_states(dict.fromkeys(chain.from_iterable(self.inputs.values())))
        if not damaged:
            return self.due, states
        for ref in self.due:
            lost = next((need for need in self.inputs[ref.ref] if need in damaged), None)
            if lost is not None:
                aside.because_of(damaged[lost], ref.ref)
        return [ref for ref in self.due if ref.ref not in aside], states


def plannable(engine: Engine, datasets: Mapping[int, DatasetSpec], due: list[DueRef], aside: SetAside) -> Plannable:
    """Leave out the refs whose partition does not exist any longer, or whose inputs the mapping does not tell."""
    if aside.resting:
        due = [ref for ref in due if not aside.rests(ref.ref)]
    keys = {ref.ref: partition_key_of(ref.ref) for ref in due}
    by_dataset: dict[int, list[DueRef]] = {}
    for ref in due:
        by_dataset.setdefault(ref.dataset_id, []).append(ref)
    for dataset_id, refs in by_dataset.items():
        # No guard, here and below: it costs more than most answers, which are remembered.
        try:
            absent = engine.catalog.absent(datasets[dataset_id], [keys[ref.ref] for ref in refs])
        except Exception as error:
            aside.because_of(error, *(ref.ref for ref in refs))
        else:
            if absent:
                aside.update({ref.ref: absent[keys[ref.ref]] for ref in refs if keys[ref.ref] in absent})
    inputs = _inputs_of(engine, datasets, [ref for ref in due if ref.ref not in aside], keys, aside)
    return Plannable(due if len(inputs) == len(due) else [ref for ref in due if ref.ref in inputs], inputs)


def _inputs_of(
    engine: Engine,
    datasets: Mapping[int, DatasetSpec],
    due: Iterable[DueRef],
    keys: Mapping[Ref, str | None],
    aside: SetAside,
) -> dict[Ref, tuple[Ref, ...]]:
    inputs: dict[Ref, tuple[Ref, ...]] = {}
    for ref in due:
        try:
            inputs[ref.ref] = engine.catalog.inputs(datasets[ref.dataset_id], keys[ref.ref])
        except Exception as error:
            aside.because_of(error, ref.ref)
    return inputs
