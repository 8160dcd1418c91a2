"""A look at a landing folder records the files that have come for past intervals, batch by batch (rule 10.6).

No state of its own is stored. The folder is compared with the log: an arrival names the fingerprint of its lot's
listing (paths, sizes, versions). So a process may die at any line, and the next look finds the same. The object's
memory only avoids repeated questions.

A look costs a single listing, a bounded number of opened files, and an event per batch; the rest waits for the next look.
"""

import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import NamedTuple

from dagster import DagsterInstance, TimeWindowPartitionsDefinition

from databuild_dagster.bindings.registry.lot_partitions import lot_keys_if_any
from databuild_dagster.bindings.registry.registration import partitions_from
from databuild_dagster.bindings.registry.window_keys import Interval, Windows
from databuild_dagster.data.read_plan import neighbour
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.set_aside import record_files
from databuild_dagster.features.lots.arrivals.arrival import grow, instances_of
from databuild_dagster.features.lots.arrivals.boundaries import Boundary
from databuild_dagster.features.lots.arrivals.landing import LandingPattern, exists
from databuild_dagster.features.lots.arrivals.recording import (
    CannotRead,
    ColumnsDiffer,
    NoLandingFolder,
    OutsideInstance,
    OwnFiles,
    Recorder,
    SaidWrong,
    check_not_own,
)
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.errors import CanonicalMoved, Refused
from databuild_dagster.model.refs import Ref, make_ref
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.wording import counted, typed, utf8
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.warehouse.disk import Listed
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import FileEntry, TableSchema
from databuild_dagster.warehouse.threads import in_threads

#: Files opened in a look; a single lot may have more, because a lot is taken whole.
MAX_FILES_PER_LOOK = 10_000
#: Lots in an event.
MAX_LOTS_PER_BATCH = 1_000
#: Intervals that a look checks for emptiness.
MAX_INTERVALS_PER_LOOK = 20_000
#: Lots in a query.
MAX_LOTS_PER_QUERY = 5_000
#: Lots shown to Dagster in a look.
MAX_SHOWN_PER_LOOK = 500
#: A lot that could not be recorded is retried when its files change, or after this time.
HELD_SECONDS = 300.0
#: A modification time further ahead of the clock than this was set by a program after it wrote; clocks differ by less.
MAX_CLOCK_AHEAD_SECONDS = 300.0
#: Files and lots named in a message.
MAX_NAMED = 3


class ArrivedFiles(NamedTuple):
    """The files of a lot."""

    files: list[Listed]
    fingerprint: str


class HeldLot(NamedTuple):
    """A lot that could not be recorded."""

    #: Of its files; empty for a lot without files.
    fingerprint: str
    why: str
    retry_at: float


@dataclass(slots=True)
class Look:
    """The findings of a look, and what became of them."""

    #: Lots with news, the earliest first.
    news: dict[Interval, ArrivedFiles] = field(default_factory=dict)
    #: Past intervals without files.
    empty: list[Interval] = field(default_factory=list)
    #: The canonical instances of all lots above.
    canonical: dict[Ref, Canonical] = field(default_factory=dict)
    #: Files that match the pattern but name no time, or no time of a partition.
    strangers: list[str] = field(default_factory=list)
    #: Files whose name has a local time that the clocks show twice or never, and why their lot is not known.
    unclear: dict[str, str] = field(default_factory=dict)
    #: The intervals that the unclear files may belong to.
    doubtful: set[Interval] = field(default_factory=set)
    #: Lots that wait because a file of them is being written.
    unsettled: list[str] = field(default_factory=list)
    #: Whether the next look has more to do.
    more: bool = False
    recorded: list[OutsideInstance] = field(default_factory=list)
    #: Recorded lots that had been live before.
    late: list[Ref] = field(default_factory=list)
    #: Lots that could not be recorded, and why.
    held: dict[Ref, str] = field(default_factory=dict)


class Watcher:
    """Looks at the landing folder of a boundary. Not thread-safe."""

    def __init__(
        self, engine: Engine, instance: DagsterInstance, dataset: DatasetSpec, warehouse: Warehouse, boundary: Boundary
    ) -> None:
        partitions = partitions_from(dataset.partitions)
        assert isinstance(partitions, TimeWindowPartitionsDefinition), "refused when the boundary was declared"
        self._engine = engine
        self._dataset = dataset
        self._warehouse = warehouse
        self._boundary = boundary
        self._pattern: LandingPattern = boundary.pattern(dataset.asset, partitions)
        self._windows = Windows(partitions, lot_keys_if_any(dataset))
        self._recorder = Recorder(engine, instance, dataset, warehouse, actor=f"boundary {dataset.asset}")
        #: Each lot to the fingerprint that is recorded already.
        self._known: dict[Ref, str] = {}
        self._held: dict[Ref, HeldLot] = {}
        #: Lots that Dagster does not show yet; None for a lot that it may have shown before this process began.
        self._to_show: dict[Ref, tuple[OutsideInstance, str] | None] = {}
        #: Every interval that begins before this moment has an instance, or was passed over.
        self._none_empty_before = self._windows.start
        #: Intervals before that moment that had files, and no instance yet.
        self._passed_over: set[Interval] = set()

    def look(self, now: float) -> Look:
        """See, record, show. Raises `NoLandingFolder`, `OwnFiles`, and errors of listing."""
        look = self.record(self.see(now), now)
        record_files(
            self._engine,
            self._dataset,
            look.held,
            {
                **dict.fromkeys(look.strangers, "a file for no lot: no time of a partition is in its name"),
                **look.unclear,
            },
            self._recorder.actor,
            is_whole=not look.more,
        )
        self.show()
        return look

    # First step: compare the folder with the log

    def see(self, now: float) -> Look:
        """The news. Records nothing."""
        seen = Look()
        lots = self._lots(seen)
        closed: dict[Interval, ArrivedFiles] = {}
        for interval in sorted(lots):
            files = sorted(lots[interval])
            if interval.end + self._boundary.grace_seconds > now:
                continue
            if not self._is_settled(files, now):
                seen.unsettled.append(self._ref(interval))
                continue
            mark = _fingerprint(files)
            ref = self._ref(interval)
            if ref in self._held and self._held[ref].fingerprint != mark:
                del self._held[ref]
            if self._known.get(ref) != mark and not self._is_held(ref, mark, now):
                closed[interval] = ArrivedFiles(files, mark)
        there = {self._ref(interval) for interval in lots}
        self._known = {ref: mark for ref, mark in self._known.items() if ref in there}
        self._held = {ref: held for ref, held in self._held.items() if ref in there or not held.fingerprint}
        self._take_news(closed, seen)
        if self._boundary.empty:
            self._take_empty(lots.keys() | seen.doubtful, seen, now)
        return seen

    def _lots(self, seen: Look) -> dict[Interval, list[Listed]]:
        try:
            listed = self._pattern.listed()
        except FileNotFoundError as error:
            raise NoLandingFolder(folder=self._pattern.folder, asset=self._dataset.asset) from error
        lots: dict[Interval, list[Listed]] = {}
        for file in filter(self._pattern.is_meant, listed):
            times = self._pattern.times_of(file)
            found = [self._windows.at(at.timestamp()) for at in times]
            intervals = {interval for interval in found if interval is not None}
            if not intervals:
                seen.strangers.append(utf8(file.path))
            elif len(set(found)) == 1:
                lots.setdefault(intervals.pop(), []).append(file)
            elif not self._is_listed(file, intervals):
                seen.unclear[utf8(file.path)] = self._why_unclear(times[0])
                seen.doubtful |= intervals
        check_not_own((file.path for files in lots.values() for file in files), self._warehouse)
        return lots

    def _is_listed(self, file: Listed, intervals: Set[Interval]) -> bool:
        """Whether a person has named the lot of the file."""
        has = (instances_of(self._engine, self._dataset.asset, self._ref(interval)) for interval in intervals)
        return any(file.path == listed.uri for manifests in has for manifest in manifests for listed in manifest.files)

    def _why_unclear(self, at: datetime) -> str:
        shown = "show twice" if exists(at) else "skip"
        return (
            f"its name has the local time {at:%Y-%m-%d %H:%M}, which the clocks of {at.tzinfo} {shown}; write the offset into the "
            f"name (%z), or `databuild lot arrive {typed(self._dataset.asset)} LOT FILE` names its lot"
        )

    def _is_settled(self, files: Sequence[Listed], now: float) -> bool:
        """An object in an object store is complete; a file on a disk may still grow."""
        if self._pattern.is_object_store:
            return True
        ages = [now - file.modified for file in files]
        return all(age >= self._boundary.settle_seconds or age < -MAX_CLOCK_AHEAD_SECONDS for age in ages)

    def _is_held(self, ref: Ref, mark: str, now: float) -> bool:
        held = self._held.get(ref)
        return held is not None and held.fingerprint == mark and now < held.retry_at

    def _take_news(self, closed: Mapping[Interval, ArrivedFiles], seen: Look) -> None:
        """Take lots that the log does not have, as many as fit a look."""
        intervals = list(closed)
        n_files = 0
        for start in range(0, len(intervals), MAX_LOTS_PER_QUERY):
            some = intervals[start : start + MAX_LOTS_PER_QUERY]
            canonical = self._engine.queries.canonical.of([self._ref(interval) for interval in some])
            for interval in some:
                files, mark = closed[interval]
                ref = self._ref(interval)
                if mark in (canonical[ref].known_origin or ""):
                    self._known[ref] = mark
                    if canonical[ref].state is InstanceState.LIVE:
                        self._to_show.setdefault(ref, None)
                    continue
                n_files += len(files)
                if seen.news and n_files > MAX_FILES_PER_LOOK:
                    seen.more = True
                    return
                seen.news[interval] = closed[interval]
                seen.canonical[ref] = canonical[ref]

    def _take_empty(self, with_files: Set[Interval], seen: Look, now: float) -> None:
        """Past intervals without a file and without an instance."""
        by = now - self._boundary.grace_seconds
        passed = list(self._windows.ended_by(self._none_empty_before, by, MAX_INTERVALS_PER_LOOK))
        candidates = [interval for interval in (*sorted(self._passed_over), *passed) if interval not in with_files]
        canonical = self._engine.queries.canonical.of([self._ref(interval) for interval in candidates])
        missing = [interval for interval in candidates if canonical[self._ref(interval)].uuid is None]
        for interval in candidates:
            if canonical[self._ref(interval)].state is InstanceState.LIVE:
                self._to_show.setdefault(self._ref(interval), None)
        room = MAX_FILES_PER_LOOK
        seen.empty = missing[:room]
        seen.canonical.update({self._ref(interval): canonical[self._ref(interval)] for interval in seen.empty})
        seen.more = seen.more or len(missing) > room or len(passed) >= MAX_INTERVALS_PER_LOOK
        # An interval without an instance is checked again by the next look.
        self._passed_over = {interval for interval in (*self._passed_over, *passed) if interval in with_files} | set(
            missing
        )
        if passed:
            self._none_empty_before = passed[-1].end

    # Second step: one event for each batch

    def record(self, look: Look, now: float) -> Look:
        """Record the news of a look, if it is still new."""
        intervals = list(look.news)
        for start in range(0, len(intervals), MAX_LOTS_PER_BATCH):
            some = {interval: look.news[interval] for interval in intervals[start : start + MAX_LOTS_PER_BATCH]}
            self._record_batch(some, look, now)
        for start in range(0, len(look.empty), MAX_LOTS_PER_BATCH):
            refs = [self._ref(interval) for interval in look.empty[start : start + MAX_LOTS_PER_BATCH]]
            where = f"nothing arrived in {self._pattern.folder}"
            empty = self._recorder.empty(refs[0], where)
            self._commit([OutsideInstance(ref, (), empty.schema, where) for ref in refs], {}, look, now)
        self._held = {ref: held for ref, held in self._held.items() if now < held.retry_at}
        look.held = {ref: held.why for ref, held in self._held.items()}
        return look

    def _record_batch(self, some: Mapping[Interval, ArrivedFiles], look: Look, now: float) -> None:
        marks = {self._ref(interval): arrived.fingerprint for interval, arrived in some.items()}
        files = {self._ref(interval): arrived.files for interval, arrived in some.items()}
        grown: list[OutsideInstance] = []
        present = neighbour(self._engine.queries, self._dataset.asset)
        columns = None if present is None else (present.ref, present.schema)
        for ref, found in self._grown_each(files, marks, look.canonical).items():
            match found:
                case None:
                    self._known[ref] = marks[ref]
                case str():
                    self._held[ref] = HeldLot(marks[ref], found, now + HELD_SECONDS)
                case OutsideInstance():
                    if why := self._why_other_columns(found, columns):
                        self._held[ref] = HeldLot(marks[ref], why, now + HELD_SECONDS)
                        continue
                    columns = (ref, found.schema) if found.schema.columns else columns
                    grown.append(found)
                    self._held.pop(ref, None)
        for ref in self._commit(grown, marks, look, now):
            self._known[ref] = marks[ref]

    def _grown_each(
        self, files: Mapping[Ref, Sequence[Listed]], marks: Mapping[Ref, str], canonical: Mapping[Ref, Canonical]
    ) -> dict[Ref, OutsideInstance | str | None]:
        """Each lot's next instance, None if there is nothing new, or the reason why it cannot be recorded."""

        def origin(ref: Ref, entries: Sequence[FileEntry]) -> str:
            return f"arrived in {self._pattern.folder} ({counted(len(entries), 'file')}, {marks[ref]})"

        described = self._recorder.described_each(
            {ref: [(file.path, file.bytes) for file in some] for ref, some in files.items()}, origin
        )
        # Earlier manifests are read, and copies compared, in threads; a new lot of one file needs neither.
        waiting = [ref for ref in files if canonical[ref].uuid is not None or len(files[ref]) > 1]
        grown = dict(
            zip(waiting, in_threads(lambda ref: self._grown(described[ref], canonical[ref]), waiting), strict=True)
        )
        return {ref: grown[ref] if ref in grown else self._grown(described[ref], canonical[ref]) for ref in files}

    def _grown(self, there: OutsideInstance | Refused, now: Canonical) -> OutsideInstance | str | None:
        if isinstance(there, Refused):
            return there.message
        try:
            has = [] if now.uuid is None else instances_of(self._engine, self._dataset.asset, there.ref)
            return grow(there, now, has)
        except (CannotRead, ColumnsDiffer, OwnFiles, SaidWrong) as refused:
            return refused.message

    def _why_other_columns(self, outside: OutsideInstance, columns: tuple[Ref, TableSchema] | None) -> str | None:
        if self._boundary.allow_schema_change or columns is None:
            return None
        try:
            self._recorder.check_fits(outside, *columns)
        except ColumnsDiffer as refused:
            return refused.message
        return None

    def _commit(self, grown: Sequence[OutsideInstance], marks: Mapping[Ref, str], look: Look, now: float) -> list[Ref]:
        """Record the lots in a single event; returns the refs, none if a faster process was first: the next look sees its instances."""
        if not grown:
            return []
        try:
            uuids = self._recorder.record(grown, look.canonical)
        except CanonicalMoved:
            look.more = True
            return []
        except Refused as refused:
            if len(grown) > 1:
                # The event is all or none; halves isolate the lot that is refused.
                half = len(grown) // 2
                return [
                    *self._commit(grown[:half], marks, look, now),
                    *self._commit(grown[half:], marks, look, now),
                ]
            for outside in grown:
                mark = marks.get(outside.ref, "")
                self._held[outside.ref] = HeldLot(mark, refused.message, now + HELD_SECONDS)
            return []
        self._to_show.update({outside.ref: (outside, uuids[outside.ref]) for outside in grown})
        look.recorded += grown
        look.late += [outside.ref for outside in grown if look.canonical[outside.ref].uuid is not None]
        return [outside.ref for outside in grown]

    # Third step: green in Dagster, which takes some milliseconds for each lot

    def show(self) -> None:
        """Show some of the recorded lots, also of earlier processes; the rest in the next look."""
        if unsure := [ref for ref, recorded in self._to_show.items() if recorded is None]:
            shown = set(self._recorder.not_shown(unsure))
            self._to_show = {ref: it for ref, it in self._to_show.items() if it is not None or ref in shown}
        some = list(self._to_show.items())[:MAX_SHOWN_PER_LOOK]
        ours = [recorded for _, recorded in some if recorded is not None]
        others = [ref for ref, recorded in some if recorded is None]
        self._recorder.show([outside for outside, _ in ours], {outside.ref: uuid for outside, uuid in ours}, others)
        for ref, _ in some:
            del self._to_show[ref]

    def _ref(self, interval: Interval) -> Ref:
        return make_ref(self._dataset.asset, interval.key)


def _fingerprint(files: Sequence[Listed]) -> str:
    """A text that changes when a file comes, goes or is rewritten, as far as a listing shows it."""
    text = "\n".join(sorted(f"{file.path} {file.bytes} {file.version}" for file in files))
    return sha256(os.fsencode(text)).hexdigest()[:16]
