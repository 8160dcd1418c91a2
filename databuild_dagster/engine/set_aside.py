"""What a tick sets aside, and why: one ref, arc or launch that raises delays nothing else (rule 11.5).

Nothing is recorded about it, no want ends for it, and the next tick tries it again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.errors import IllegalMove, MissingRow
from databuild_dagster.model.refs import Ref, partition_key_of
from databuild_dagster.model.wording import few_of, one_line, utf8
from databuild_dagster.store.errors import NewerStore, StoreUnusable
from databuild_dagster.store.queries.planning import DueRef

#: Without the store nothing of a tick can be done, and an impossible event stops loudly; a missing row concerns a ref.
_OF_THE_WHOLE_TICK = (StoreUnusable, NewerStore, IllegalMove)

_log = logging.getLogger(__name__)

T = TypeVar("T")


class SetAside(dict[str, str]):
    """The name of each ref, arc and launch that is set aside, with the reason."""

    @contextmanager
    def guard(self, *names: str) -> Iterator[None]:
        """Set these aside if the block raises. Raises errors of the store, and `IllegalMove`."""
        try:
            yield
        except Exception as error:
            self.because_of(error, *names)

    def because_of(self, error: Exception, *names: str) -> None:
        """Set these aside for an error, whose traceback is logged at the level DEBUG. Raises as `guard` does."""
        if isinstance(error, _OF_THE_WHOLE_TICK) and not isinstance(error, MissingRow):
            raise error
        _log.debug("databuild: a tick sets aside %s", names, exc_info=error)
        self.update(dict.fromkeys(names, f"{type(error).__name__}: {utf8(one_line(error))}"))

    def in_parts(
        self, items: Sequence[T], handle: Callable[[Sequence[T]], list[str]], names: Callable[[T], Iterable[str]]
    ) -> list[str]:
        """What `handle` returns for the items, in one call, or in halves around a missing row (rule 3.5).

        Of a call that raises `MissingRow` nothing is recorded; an item that still raises alone is set aside by its names.
        """
        try:
            return handle(items)
        except MissingRow as missing:
            if len(items) < 2:
                self.because_of(missing, *(name for item in items for name in names(item)))
                return []
            half = len(items) // 2
            return self.in_parts(items[:half], handle, names) + self.in_parts(items[half:], handle, names)

    def sentences(self) -> list[str]:
        """One for each reason, with the first names."""
        names: dict[str, list[str]] = {}
        for name, why in self.items():
            names.setdefault(why, []).append(name)
        return [f"Set aside until the next tick: {few_of(of_why)}: {why}" for why, of_why in names.items()]


class Plannable(NamedTuple):
    """The due refs that can be planned, and the declared inputs of each."""

    due: list[DueRef]
    inputs: Mapping[Ref, tuple[Ref, ...]]


def plannable(engine: Engine, datasets: Mapping[int, DatasetSpec], due: list[DueRef], aside: SetAside) -> Plannable:
    """Leave out the refs whose partition does not exist any longer, or whose inputs the mapping does not tell."""
    keys = {ref.ref: partition_key_of(ref.ref) for ref in due}
    by_dataset: dict[int, list[DueRef]] = {}
    for ref in due:
        by_dataset.setdefault(ref.dataset_id, []).append(ref)
    for dataset_id, refs in by_dataset.items():
        with aside.guard(*(ref.ref for ref in refs)):
            absent = engine.catalog.absent(datasets[dataset_id], [keys[ref.ref] for ref in refs])
            if absent:
                aside.update({ref.ref: absent[keys[ref.ref]] for ref in refs if keys[ref.ref] in absent})
    inputs = _inputs_of(engine, datasets, (ref for ref in due if ref.ref not in aside), keys, aside)
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
        # No guard: it costs more than most answers, which are remembered.
        try:
            inputs[ref.ref] = engine.catalog.inputs(datasets[ref.dataset_id], keys[ref.ref])
        except Exception as error:
            aside.because_of(error, ref.ref)
    return inputs
