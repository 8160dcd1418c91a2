"""The subjects that a tick sets aside, and why: a ref, arc or launch that raises delays nothing else (rule 11.5).

No want ends for it, and a later tick tries it again. The reasons of a location's ticks, landing folders and published tables
become events when they change; the tries, and the pause before the next try, are beside the heartbeats (rule 11.7).

A ref or an arc that raised several times in a row rests for a growing time, so that many of them cost a tick little. A process
that begins, or that sees a new registration, tries all of them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple, TypeVar, assert_never

from databuild_dagster.engine.engine import Engine
from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import DatasetKind, DatasetSpec
from databuild_dagster.model.errors import IllegalMove, MissingRow
from databuild_dagster.model.events import AsideFact
from databuild_dagster.model.logs import logger
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of
from databuild_dagster.model.set_aside import Subject, same_reason
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.wording import few_of, one_line, utf8
from databuild_dagster.store.backends.heartbeats import Tries
from databuild_dagster.store.errors import NewerStore, StoreUnusable
from databuild_dagster.store.queries.planning import DueRef

#: Without the store nothing of a tick can be done, and an impossible event stops loudly; a missing row concerns a ref.
_OF_THE_WHOLE_TICK = (StoreUnusable, NewerStore, IllegalMove)
#: The question that a tick asks before it looks at single launches.
OF_LAUNCHES = "the Dagster runs of open launches"
#: The tries in a row after which the next tick tries again.
TRIES_WITHOUT_PAUSE = 2
#: The pause after the try that follows; each further try doubles the pause.
FIRST_PAUSE_SECONDS = 5.0
MAX_PAUSE_SECONDS = 60.0
#: Doublings until the longest pause.
_MOST_DOUBLINGS = 4
#: The kinds of subjects that a tick may leave untried.
_RESTING = (Subject.REF, Subject.ARC)
#: Lots and files of a landing folder.
MAX_OF_FOLDER = 1_000

_log = logger(__name__)

T = TypeVar("T")
Done = TypeVar("Done", bound=str)


class SetAside(dict[str, str]):
    """The name of each ref, arc and launch that is set aside, with the reason."""

    def __init__(self, resting: Mapping[str, str] = MappingProxyType({})) -> None:
        """`resting` are refs and arcs that this tick does not try, with their last reason."""
        super().__init__()
        self.resting = resting
        #: The kinds of the subjects that are not refs.
        self.kinds: dict[str, Subject] = {}
        #: Refs that were tried, and are not set aside for what precedes their launch.
        self.planned: set[str] = set()

    @contextmanager
    def guard(self, *names: str, kind: Subject = Subject.REF) -> Iterator[None]:
        """Set `names` aside if the block raises. Raises errors of the store, and `IllegalMove`."""
        try:
            yield
        except Exception as error:
            self.because_of(error, *names, kind=kind)

    def because_of(self, error: Exception, *names: str, kind: Subject = Subject.REF) -> None:
        """Set `names` aside for an error, whose traceback is logged at the level DEBUG. Raises as `guard` does."""
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
        handle: Callable[[Sequence[T]], list[Done]],
        names: Callable[[T], Iterable[str]],
        kind: Subject = Subject.REF,
    ) -> list[Done]:
        """The results of `handle` for the items, in a single call, or in halves around a missing row (rule 3.5).

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
        """A sentence for each reason, with the first names."""
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
        """The states of the inputs, and the due refs without the refs that have a live input whose row is missing (rule 3.5)."""
        inputs = dict.fromkeys(chain.from_iterable(self.inputs.values()))
        states, damaged = engine.queries.canonical.input_states(inputs)
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


class AsideReasons:
    """The subjects that the ticks of a location have set aside, as a tick finds them."""

    def __init__(self, engine: Engine, location: str, datasets: Mapping[int, DatasetSpec]) -> None:
        self._engine, self._location, self._datasets = engine, location, datasets
        self._known = engine.queries.planning.reasons(location)
        #: For the tick.
        self.aside = SetAside({} if self._is_new(datasets) else self._resting())

    @property
    def known(self) -> Mapping[str, tuple[Subject, str]]:
        """The kind and the reason of each subject before the tick."""
        return self._known

    def _is_new(self, datasets: Mapping[int, DatasetSpec]) -> bool:
        """Whether this process has not ticked with the given definitions."""
        key = (AsideReasons, self._location)
        before = self._engine.memory.of(key, dict[int, DatasetSpec])
        self._engine.memory.put(key, datasets)
        return before != datasets

    def _resting(self) -> dict[str, str]:
        known = self._known
        names = _resting(self._engine, self._location) if known else []
        return {name: known[name][1] for name in names if name in known and known[name][0] in _RESTING}

    def record(self, actor: str) -> None:
        """Record the changes since the last tick, and note the tries of this tick."""
        aside, known = self.aside, self._known
        tried = [name for name in aside if name not in aside.resting]
        left = {name: kind for name, (kind, _) in known.items() if name not in aside and name not in aside.planned}
        refs = [Ref(name) for name, kind in left.items() if kind is Subject.REF]
        due = self._engine.queries.planning.marked_due(refs) if refs else set()
        kept = {name for name, kind in left.items() if not self._is_over(kind, name, due)}
        ended = sorted(name for name in known if name not in aside and name not in kept)
        found = {name: (aside.kinds.get(name, Subject.REF), aside[name]) for name in tried}
        _record(self._engine, self._location, known, found, ended, actor)
        if tried or ended:
            _note_tries(self._engine, self._location, tried, ended, is_first=not known)

    def _is_over(self, kind: Subject, name: str, due: set[Ref]) -> bool:
        """Whether a subject that this tick neither planned nor set aside is set aside no longer."""
        match kind:
            case Subject.REF:
                # A tick may look at some due refs only.
                return name not in due
            case Subject.LAUNCH:
                return OF_LAUNCHES not in self.aside
            case Subject.LOT | Subject.FILE:
                # The arrival sensor of its boundary tries it.
                return asset_of(Ref(name)) not in self._boundaries
            case Subject.TABLE | Subject.OUTAGE | Subject.HOLD:
                # The duty that publishes tries it, a probe, or a person.
                return False
            case Subject.ARC | Subject.WANT | Subject.JOB_RUN | Subject.QUESTION:
                return True
        assert_never(kind)

    @cached_property
    def _boundaries(self) -> set[str]:
        specs = self._datasets.values()
        return {spec.asset for spec in specs if (spec.kind, spec.location) == (DatasetKind.BOUNDARY, self._location)}


def record_files(
    engine: Engine,
    boundary: DatasetSpec,
    lots: Mapping[Ref, str],
    files: Mapping[str, str],
    actor: str,
    *,
    is_whole: bool,
) -> None:
    """Record the changes since the last look at a boundary's landing folder: reasons of lots by ref, of other files by path.

    A look that is not whole ends no reason. Of more than `MAX_OF_FOLDER` the first are recorded.
    """
    found = {str(ref): (Subject.LOT, one_line(lots[ref])) for ref in sorted(lots)}
    found |= {f"{boundary.asset}@{one_line(path, None)}": (Subject.FILE, files[path]) for path in sorted(files)}
    found = dict(list(found.items())[:MAX_OF_FOLDER])
    of_boundary = engine.queries.planning.set_aside_of_boundary(boundary.asset)
    known = {aside.name: (aside.kind, aside.reason) for aside in of_boundary if aside.location == boundary.location}
    ended = [name for name in known if name not in found] if is_whole else []
    _record(engine, boundary.location, known, found, ended, actor)


class TableReasons:
    """The tables of a location that could not be published, which rest for a growing time."""

    def __init__(self, engine: Engine, location: str) -> None:
        self._engine, self._location = engine, location
        reasons = engine.queries.planning.reasons(location)
        self._known = {name: found for name, found in reasons.items() if found[0] is Subject.TABLE}
        self._resting = set(_resting(engine, location)) if self._known else set()

    def rests(self, asset: str) -> bool:
        return table_name(asset) in self._known and table_name(asset) in self._resting

    def record(self, failed: Mapping[str, Exception], done: Collection[str], actor: str) -> None:
        """Record the changes of this look: by asset the errors, and the assets whose tables are up to date or gone."""
        found = {
            table_name(asset): (Subject.TABLE, f"{type(error).__name__}: {utf8(one_line(error))}")
            for asset, error in failed.items()
        }
        ended = [name for name in map(table_name, done) if name in self._known]
        _record(self._engine, self._location, self._known, found, ended, actor)
        if found or ended:
            _note_tries(self._engine, self._location, found, ended)


def table_name(asset: str) -> str:
    """The name of an asset's table. The asset itself may be a ref."""
    return f"table of {asset}"


def _record(
    engine: Engine,
    location: str,
    known: Mapping[str, tuple[Subject, str]],
    found: Mapping[str, tuple[Subject, str]],
    ended: Iterable[str],
    actor: str,
) -> None:
    """Record an event of the reasons that are new, and of the subjects that are no longer set aside."""
    changes: dict[tuple[Subject, str | None], list[str]] = {}
    for name, (kind, why) in found.items():
        if name not in known or not same_reason(known[name][1], why):
            changes.setdefault((kind, why), []).append(name)
    for name in ended:
        changes.setdefault((known[name][0], None), []).append(name)
    if changes:
        facts = tuple(AsideFact(kind=kind, names=tuple(names), reason=why) for (kind, why), names in changes.items())
        engine.handle(c.ChangeSetAside(location=location, changes=facts), actor=actor)


def _resting(engine: Engine, location: str) -> list[str]:
    """The subjects whose next try is later. A rest that ends later than any could was noted while the clock ran ahead."""
    now = engine.clock()
    return engine.heartbeats.resting(location, now, now + MAX_PAUSE_SECONDS)


def _note_tries(
    engine: Engine, location: str, tried: Iterable[str], ended: Iterable[str], *, is_first: bool = False
) -> None:
    """Note a further try of each subject; `is_first` if none was noted before."""
    noted, now = {} if is_first else engine.heartbeats.tries(location), engine.clock()
    numbers = {name: 1 + (noted[name].n if name in noted else 0) for name in tried}
    tries = [Tries(name, n, now, now + pause_after(n)) for name, n in numbers.items()]
    engine.heartbeats.note_tries(location, tries, ended)


def pause_after(n_tries: int) -> float:
    """The seconds until a subject is tried again, after so many tries in a row."""
    doublings = n_tries - TRIES_WITHOUT_PAUSE - 1
    return (
        0.0 if doublings < 0 else min(MAX_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(doublings, _MOST_DOUBLINGS))
    )
