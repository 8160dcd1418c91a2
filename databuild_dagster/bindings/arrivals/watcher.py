"""A look at a landing folder: what has come for intervals that have passed is recorded, batch by batch (SPEC 10.6).

Nothing is kept on what was seen. The log says what was recorded, and what lies there is compared with it: an arrival
names the fingerprint of its lot's listing (paths, sizes, versions). So a process may die at any line, and the next look
finds the same. What this object remembers, it remembers only so as not to ask twice, and another one begins without.

One look is one listing, a bounded number of files opened, and one event for each batch; what is left waits for the next.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from dagster import DagsterInstance, TimeWindowPartitionsDefinition

from databuild_dagster.bindings.arrivals.arrival import check_not_own, grow, instances_of
from databuild_dagster.bindings.arrivals.recording import Outside, Recorder, counted
from databuild_dagster.bindings.declare.boundaries import Boundary
from databuild_dagster.bindings.registry.lot_partitions import has_lots, lot_keys_of
from databuild_dagster.bindings.registry.registration import partitions_from
from databuild_dagster.bindings.registry.windows import Interval, Windows
from databuild_dagster.data.adoption_errors import CannotRead, ColumnsDiffer, OwnFiles
from databuild_dagster.data.arrival_errors import NoLandingFolder, SaidWrong
from databuild_dagster.data.landing import Kind, LandingPattern
from databuild_dagster.data.read_plan import neighbour
from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.errors import CanonicalMoved, Refused
from databuild_dagster.model.refs import make_ref
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.warehouse.disk import Listed
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import FileEntry, TableSchema
from databuild_dagster.warehouse.threads import in_threads

#: Files opened in one look; a lot is taken whole, so one alone may have more.
MAX_FILES_PER_LOOK = 10_000
#: Lots of one event.
MAX_LOTS_PER_BATCH = 1_000
#: Intervals looked at for emptiness in one look.
MAX_INTERVALS_PER_LOOK = 20_000
#: Lots asked for in one query.
MAX_LOTS_PER_QUERY = 5_000
#: Lots shown to Dagster in one look.
MAX_SHOWN_PER_LOOK = 500
#: A lot that could not be recorded is tried again when its files change, or after so long.
HELD_SECONDS = 300.0
#: Files and lots named in one message.
MAX_NAMED = 3


@dataclass(slots=True)
class Seen:
    """What a look has found, before anything is opened or recorded."""

    #: Lots with news, the earliest first, with their files and the fingerprint of those.
    news: dict[Interval, tuple[list[Listed], str]] = field(default_factory=dict)
    #: Intervals that have passed with nothing.
    empty: list[Interval] = field(default_factory=list)
    #: What readers see of all these.
    canonical: dict[str, Canonical] = field(default_factory=dict)
    #: Files that would be meant, if their names told a time, or one of a partition.
    strangers: list[str] = field(default_factory=list)
    #: Lots left alone, for a file of them is being written.
    unsettled: list[str] = field(default_factory=list)
    #: There is more than one look takes.
    more: bool = False


@dataclass(slots=True)
class Look:
    """What a look has done."""

    recorded: list[Outside] = field(default_factory=list)
    #: Those of them that had been live before.
    late: list[str] = field(default_factory=list)
    #: Lots that could not be recorded, and why.
    held: dict[str, str] = field(default_factory=dict)
    strangers: list[str] = field(default_factory=list)
    unsettled: list[str] = field(default_factory=list)
    more: bool = False


class Watcher:
    """Looks at the landing folder of one boundary. Not made for several threads."""

    def __init__(
        self,
        engine: Engine,
        instance: DagsterInstance,
        dataset: DatasetSpec,
        warehouse: Warehouse,
        boundary: Boundary,
    ) -> None:
        partitions = partitions_from(dataset.partitions)
        assert isinstance(partitions, TimeWindowPartitionsDefinition), "refused when the boundary was declared"
        self._engine = engine
        self._dataset = dataset
        self._warehouse = warehouse
        self._boundary = boundary
        self._pattern: LandingPattern = boundary.pattern(dataset.asset, partitions)
        self._windows = Windows(partitions, lot_keys_of(dataset) if has_lots(dataset) else None)
        self._recorder = Recorder(engine, instance, dataset, warehouse, actor=f"boundary {dataset.asset}")
        #: Each lot to the fingerprint that needs no second look.
        self._known: dict[str, str] = {}
        #: Each lot that could not be recorded: the fingerprint, why, and when it is tried again.
        self._held: dict[str, tuple[str, str, float]] = {}
        #: What Dagster does not show yet; None for what it may have been shown before this process began.
        self._to_show: dict[str, tuple[Outside, str] | None] = {}
        #: Every interval that begins before this moment has an instance, or is among those passed over.
        self._none_empty_before = self._windows.start
        #: Intervals before that moment that had files, and no instance as yet.
        self._passed_over: set[Interval] = set()

    def look(self, now: float) -> Look:
        """See, record, show. Raises `NoLandingFolder`, `OwnFiles`, and what listing raises."""
        look = self.record(self.see(now), now)
        self.show()
        return look

    # First step: what is there, and is not recorded

    def see(self, now: float) -> Seen:
        """What has come. Records nothing."""
        seen = Seen()
        lots = self._lots(seen)
        closed: dict[Interval, tuple[list[Listed], str]] = {}
        for interval in sorted(lots):
            files = sorted(lots[interval])
            if interval.end + self._boundary.grace_seconds > now:
                continue
            if not self._is_settled(files, now):
                seen.unsettled.append(self._ref(interval))
                continue
            mark = _fingerprint(files)
            ref = self._ref(interval)
            if self._known.get(ref) != mark and not self._is_held(ref, mark, now):
                closed[interval] = files, mark
        there = {self._ref(each) for each in lots}
        self._known = {ref: mark for ref, mark in self._known.items() if ref in there}
        self._take_news(closed, seen)
        if self._boundary.empty:
            self._take_empty(lots, seen, now)
        return seen

    def _lots(self, seen: Seen) -> dict[Interval, list[Listed]]:
        try:
            listed = self._pattern.listed()
        except FileNotFoundError as error:
            raise NoLandingFolder(folder=self._pattern.folder, asset=self._dataset.asset) from error
        lots: dict[Interval, list[Listed]] = {}
        for file in listed:
            kind, at = self._pattern.kind_and_time(file)
            if kind is Kind.OTHER:
                continue
            interval = None if at is None else self._windows.at(at.timestamp())
            if interval is None:
                seen.strangers.append(file.path)
            else:
                lots.setdefault(interval, []).append(file)
        check_not_own((file.path for files in lots.values() for file in files), self._warehouse)
        return lots

    def _is_settled(self, files: Sequence[Listed], now: float) -> bool:
        """What lies in an object store is whole; a file on a disk may still be growing."""
        if self._pattern.is_object_store:
            return True
        return all(file.modified + self._boundary.settle_seconds <= now for file in files)

    def _is_held(self, ref: str, mark: str, now: float) -> bool:
        held = self._held.get(ref)
        return held is not None and held[0] == mark and now < held[2]

    def _take_news(self, closed: Mapping[Interval, tuple[list[Listed], str]], seen: Seen) -> None:
        """Those that the log does not know, as many as one look takes."""
        intervals = list(closed)
        n_files = 0
        for start in range(0, len(intervals), MAX_LOTS_PER_QUERY):
            some = intervals[start : start + MAX_LOTS_PER_QUERY]
            canonical = self._engine.queries.canonical([self._ref(each) for each in some])
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
                seen.news[interval] = files, mark
                seen.canonical[ref] = canonical[ref]

    def _take_empty(self, lots: Mapping[Interval, Sequence[Listed]], seen: Seen, now: float) -> None:
        """Intervals that have passed, have no file and no instance."""
        by = now - self._boundary.grace_seconds
        passed = list(self._windows.ended_by(self._none_empty_before, by, MAX_INTERVALS_PER_LOOK))
        candidates = [each for each in (*sorted(self._passed_over), *passed) if each not in lots]
        canonical = self._engine.queries.canonical([self._ref(each) for each in candidates])
        missing = [each for each in candidates if canonical[self._ref(each)].uuid is None]
        for each in candidates:
            if canonical[self._ref(each)].state is InstanceState.LIVE:
                self._to_show.setdefault(self._ref(each), None)
        room = MAX_FILES_PER_LOOK
        seen.empty = missing[:room]
        seen.canonical.update({self._ref(each): canonical[self._ref(each)] for each in seen.empty})
        seen.more = seen.more or len(missing) > room or len(passed) >= MAX_INTERVALS_PER_LOOK
        # All that is not said to be there is looked at again.
        self._passed_over = {each for each in (*self._passed_over, *passed) if each in lots} | set(missing)
        if passed:
            self._none_empty_before = passed[-1].end

    # Second step: what it holds, and one event for each batch

    def record(self, seen: Seen, now: float) -> Look:
        """Record what was seen, if it is still so."""
        look = Look(strangers=seen.strangers, unsettled=seen.unsettled, more=seen.more)
        intervals = list(seen.news)
        for start in range(0, len(intervals), MAX_LOTS_PER_BATCH):
            some = {each: seen.news[each] for each in intervals[start : start + MAX_LOTS_PER_BATCH]}
            self._record_batch(some, seen.canonical, look, now)
        for start in range(0, len(seen.empty), MAX_LOTS_PER_BATCH):
            refs = [self._ref(each) for each in seen.empty[start : start + MAX_LOTS_PER_BATCH]]
            where = f"nothing arrived in {self._pattern.folder}"
            empty = self._recorder.empty(refs[0], where)
            self._commit([Outside(ref, (), empty.schema, where) for ref in refs], seen.canonical, {}, look, now)
        self._held = {ref: held for ref, held in self._held.items() if now < held[2]}
        look.held = {ref: why for ref, (_, why, _) in self._held.items()}
        return look

    def _record_batch(
        self,
        some: Mapping[Interval, tuple[list[Listed], str]],
        canonical: Mapping[str, Canonical],
        look: Look,
        now: float,
    ) -> None:
        marks = {self._ref(interval): mark for interval, (_, mark) in some.items()}
        files = {self._ref(interval): files for interval, (files, _) in some.items()}
        grown: list[Outside] = []
        present = neighbour(self._engine.queries, self._dataset.asset)
        columns = None if present is None else (present.ref, present.schema)
        for ref, found in self._grown_each(files, marks, canonical).items():
            match found:
                case None:
                    self._known[ref] = marks[ref]
                case str():
                    self._held[ref] = marks[ref], found, now + HELD_SECONDS
                case Outside():
                    if why := self._why_other_columns(found, columns):
                        self._held[ref] = marks[ref], why, now + HELD_SECONDS
                        continue
                    columns = (ref, found.schema) if found.schema.columns else columns
                    grown.append(found)
                    self._held.pop(ref, None)
        for each in self._commit(grown, canonical, marks, look, now):
            self._known[each] = marks[each]

    def _grown_each(
        self, files: Mapping[str, Sequence[Listed]], marks: Mapping[str, str], canonical: Mapping[str, Canonical]
    ) -> dict[str, Outside | str | None]:
        """Each lot's next instance, None where there is no news, or why it cannot be."""

        def origin(ref: str, entries: Sequence[FileEntry]) -> str:
            return f"arrived in {self._pattern.folder} ({counted(len(entries))}, {marks[ref]})"

        described = self._recorder.described_each(
            {ref: [(file.path, file.bytes) for file in some] for ref, some in files.items()}, origin
        )
        # What lots had before has to be read, and copies compared, in threads; a new lot of one file asks for nothing.
        waiting = [ref for ref in files if canonical[ref].uuid is not None or len(files[ref]) > 1]
        grown = dict(
            zip(waiting, in_threads(lambda ref: self._grown(described[ref], canonical[ref]), waiting), strict=True)
        )
        return {ref: grown[ref] if ref in grown else self._grown(described[ref], canonical[ref]) for ref in files}

    def _grown(self, there: Outside | Refused, now: Canonical) -> Outside | str | None:
        if isinstance(there, Refused):
            return there.message
        try:
            has = [] if now.uuid is None else instances_of(self._engine, self._dataset.asset, there.ref)
            return grow(there, now, has)
        except (CannotRead, ColumnsDiffer, OwnFiles, SaidWrong) as refused:
            return refused.message

    def _why_other_columns(self, each: Outside, columns: tuple[str, TableSchema] | None) -> str | None:
        if self._boundary.allow_schema_change or columns is None:
            return None
        try:
            self._recorder.check_fits(each, *columns)
        except ColumnsDiffer as refused:
            return refused.message
        return None

    def _commit(
        self,
        grown: Sequence[Outside],
        canonical: Mapping[str, Canonical],
        marks: Mapping[str, str],
        look: Look,
        now: float,
    ) -> list[str]:
        """One event; returns the refs. None where somebody else was faster: the next look sees what they did."""
        if not grown:
            return []
        try:
            uuids = self._recorder.record(grown, canonical)
        except CanonicalMoved:
            look.more = True
            return []
        except Refused as refused:
            if len(grown) > 1:
                # All or none: in halves, so that the one which it is about holds back no other.
                half = len(grown) // 2
                return [
                    *self._commit(grown[:half], canonical, marks, look, now),
                    *self._commit(grown[half:], canonical, marks, look, now),
                ]
            self._held.update(
                {each.ref: (marks.get(each.ref, ""), refused.message, now + HELD_SECONDS) for each in grown}
            )
            return []
        self._to_show.update({each.ref: (each, uuids[each.ref]) for each in grown})
        look.recorded += grown
        look.late += [each.ref for each in grown if canonical[each.ref].uuid is not None]
        return [each.ref for each in grown]

    # Third step, of less weight: green in Dagster, which takes some milliseconds for each lot

    def show(self) -> None:
        """Show some of what is recorded, by an earlier process too; the rest in the next look."""
        if unsure := [ref for ref, what in self._to_show.items() if what is None]:
            shown = set(self._recorder.not_shown(unsure))
            self._to_show = {ref: what for ref, what in self._to_show.items() if what is not None or ref in shown}
        some = list(self._to_show.items())[:MAX_SHOWN_PER_LOOK]
        ours = [what for _, what in some if what is not None]
        others = [ref for ref, what in some if what is None]
        self._recorder.show([each for each, _ in ours], {each.ref: uuid for each, uuid in ours}, others)
        for ref, _ in some:
            del self._to_show[ref]

    def _ref(self, interval: Interval) -> str:
        return make_ref(self._dataset.asset, interval.key)


def _fingerprint(files: Sequence[Listed]) -> str:
    """Another one as soon as a file comes, goes or is written again, as far as a listing tells."""
    told = "\n".join(sorted(f"{file.path} {file.bytes} {file.version}" for file in files))
    return sha256(told.encode()).hexdigest()[:16]
