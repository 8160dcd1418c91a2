"""The present and the absent lots of a range, each absent lot with a cause (rule 10.7).

The cadence gives the expected lots, a single read of the store the recorded lots. A lot counts once, by its ref's canonical
instance. `_OF_REASON` gives its cause from the row of `model.need`; a tainted ref and an unwanted ref have causes of their
own. A waiting ref leads to its missing inputs, a never wanted lot of an arc to its sources and, in a chain, an unwanted or due lot
to its declared inputs. Causes are followed to the first cause level by level, all lots at once, each ref once.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from databuild_dagster.engine.arcs import sources_of
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.why.reasons import KnownRefs, look_up
from databuild_dagster.engine.wording import pause_in_words, when
from databuild_dagster.model.datasets import ArcSpec, DatasetSpec
from databuild_dagster.model.lots import Expected
from databuild_dagster.model.machine import Label
from databuild_dagster.model.need import DATA_OF_STATE, MAKER_OF_KIND, Data, Maker, Reason, need_of, wanted_as
from databuild_dagster.model.pauses import PauseInForce
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of
from databuild_dagster.model.states import InstanceState, WantState
from databuild_dagster.store.queries.canonical import RecordedOfDataset, RecordedRef
from databuild_dagster.store.queries.wants import LastWant

_S = InstanceState

#: Declared inputs of a lot that a chain follows; a day has 288 lots at most.
MAX_INPUTS = 1_000
#: Refs that are followed besides the lots of the report, and steps from the lots.
MAX_FOLLOWED = 200_000
MAX_STEPS = 100


class GapCause(Label):
    """Why a lot is absent, the worst first: of several causes the worst is followed."""

    #: Its build failed for good.
    FAILED = "failed"
    #: An input failed.
    FAILED_UPSTREAM = "failed upstream"
    #: No job builds it, and it has not arrived.
    NEVER_ARRIVED = "never arrived"
    #: It is wanted and paused.
    PAUSED = "paused"
    #: Its last want is past its TTL.
    EXPIRED = "want expired"
    #: Its last want was canceled, or a different ref of the want failed.
    WANT_ENDED = "want ended"
    #: It never had a want, because a source of its arc is absent.
    NO_SOURCE = "waiting for its source"
    #: It never had a want.
    NEVER_WANTED = "never wanted"
    #: Its data is marked as wrong.
    TAINTED = "tainted"
    #: It is retried when its backoff has passed.
    BACKING_OFF = "backing off"
    #: The next tick may launch it.
    DUE = "wanted and due"
    #: It waits for inputs.
    WAITING = "waiting for upstream"
    #: A job run builds it.
    BUILDING = "building"


_WORST_FIRST = {cause: place for place, cause in enumerate(GapCause)}
#: By the reason of the next tick. A tainted ref has its taint for a cause; a ref without an open want, or without a job
#: that builds it, its last want, if any.
_OF_REASON = {
    Reason.BUILDING: GapCause.BUILDING,
    Reason.FAILED: GapCause.FAILED,
    Reason.WAITING: GapCause.WAITING,
    Reason.FAILED_UPSTREAM: GapCause.FAILED_UPSTREAM,
    Reason.SOURCE: None,
    Reason.NOT_ARRIVED: None,
    Reason.UNWANTED: None,
    Reason.EXPIRED: GapCause.EXPIRED,
    Reason.PAUSED: GapCause.PAUSED,
    Reason.BACKING_OFF: GapCause.BACKING_OFF,
    Reason.DUE: GapCause.DUE,
}
#: By the state alone, where it decides; a report may hold tens of thousands of such lots.
_OF_STATE = {
    state: _OF_REASON[need_of(data).reason]
    for state, data in DATA_OF_STATE.items()
    if data not in (Data.OPEN, Data.LIVE)
}
#: Causes that name the ref that they lead to.
_NAMES_UPSTREAM = frozenset({GapCause.WAITING, GapCause.FAILED_UPSTREAM})
#: The declared inputs of a lot with such a cause may explain it.
_MAY_LACK_INPUTS = frozenset({GapCause.NEVER_WANTED, GapCause.EXPIRED, GapCause.WANT_ENDED, GapCause.DUE})


class Absent(NamedTuple):
    """An absent lot."""

    lot: str
    ref: Ref
    cause: GapCause
    #: The input that it waits for, or that failed.
    upstream: str | None
    #: The ref with the first cause, which may be itself.
    first_ref: Ref
    first_cause: GapCause
    first_why: str

    @property
    def shown(self) -> str:
        return self.cause.value if self.upstream is None else f"{self.cause.value} {self.upstream}"

    @property
    def first_shown(self) -> str:
        return f"{self.first_ref}: {self.first_why}"


@dataclass(frozen=True)
class GapReport:
    """A dataset over a range."""

    expected: Expected
    #: Lots that are live without data, on purpose.
    empty: tuple[str, ...]
    absent: tuple[Absent, ...]

    @property
    def asset(self) -> str:
        return self.expected.asset

    @property
    def n_expected(self) -> int:
        return len(self.expected.ids)

    @property
    def n_present(self) -> int:
        """Complete or empty (rule 10.3)."""
        return self.n_expected - len(self.absent)


#: The expected lots of a dataset over the range of the report; None if it has no lots.
ExpectedOf = Callable[[DatasetSpec], Expected | None]


def gap_report(engine: Engine, expected: Expected) -> GapReport:
    """The report on a dataset. Waits, absent sources of arcs and upstream failures are followed to their first cause."""
    return _reports(engine, [expected], follow_inputs=False)[0]


def chain_of_gaps(
    engine: Engine, dataset: DatasetSpec, expected_of: ExpectedOf
) -> tuple[tuple[GapReport, ...], tuple[str, ...]]:
    """The reports on a dataset and on everything upstream, sources first; and the assets without lots.

    Unwanted lots are followed through their declared inputs, too: an arc wants a lot when its source arrives, so an absent
    source explains a lot that was never wanted.
    """
    datasets = {spec.asset: spec for spec in engine.queries.datasets.all().values()}
    expected, without = [], []
    for spec in _sources_first(dataset, datasets):
        found = expected_of(spec)
        if found is None:
            without.append(spec.asset)
        else:
            expected.append(found)
    return tuple(_reports(engine, expected, follow_inputs=True)), tuple(without)


def _sources_first(dataset: DatasetSpec, datasets: dict[str, DatasetSpec]) -> list[DatasetSpec]:
    """A dataset and everything upstream of it, each after its inputs."""
    done: dict[str, DatasetSpec] = {}
    entered = set()
    stack = [dataset]
    while stack:
        spec = stack[-1]
        inputs = [datasets[given.asset] for given in spec.inputs if given.asset in datasets]
        fresh = [needed for needed in inputs if needed.asset not in entered] if spec.asset not in entered else []
        entered.add(spec.asset)
        if fresh:
            stack += fresh
            continue
        stack.pop()
        done.setdefault(spec.asset, spec)
    return list(done.values())


def _reports(engine: Engine, expected: Sequence[Expected], *, follow_inputs: bool) -> list[GapReport]:
    following = _Following(engine, follow_inputs=follow_inputs)
    sorted_out = []
    for lots in expected:
        live, others = _recorded(engine, lots)
        empty_refs = {ref for ref, manifest_state in live.items() if manifest_state == "empty"}
        empty = tuple([lot for lot, ref in zip(lots.ids, lots.refs, strict=True) if ref in empty_refs])
        # By place: a hundred thousand pairs would be as many objects for the garbage collector.
        absent = [place for place, ref in enumerate(lots.refs) if ref not in live]
        refs = [lots.refs[place] for place in absent]
        look_at_all = follow_inputs or following.is_arc(lots.asset)
        following.look_at({ref: others.get(ref) for ref in refs if look_at_all or ref in others})
        sorted_out.append((lots, empty, absent))
    following.follow()
    return [GapReport(lots, empty, tuple(following.absent(lots, absent))) for lots, empty, absent in sorted_out]


def _recorded(engine: Engine, expected: Expected) -> RecordedOfDataset:
    if not expected.refs:
        return RecordedOfDataset({}, {})
    # The order of texts is not always that of times: 02:00+0100 is the hour after 02:45.
    return engine.queries.canonical.recorded_between(min(expected.refs), max(expected.refs))


@dataclass(slots=True)
class _Node:
    """An absent ref, and the refs that it leads to."""

    cause: GapCause
    why: str
    leads_to: tuple[Ref, ...] = ()
    #: The sources of the arc of a lot that was never wanted.
    sources: tuple[Ref, ...] = ()


@dataclass
class _Following:
    """The way from absent refs to their first causes."""

    engine: Engine
    follow_inputs: bool
    _nodes: dict[Ref, _Node | None] = field(default_factory=dict)
    _firsts: dict[Ref, Ref] = field(default_factory=dict)
    #: Refs that were found and not looked at yet.
    _next: dict[Ref, None] = field(default_factory=dict)
    _pauses: dict[Ref, PauseInForce] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._now = self.engine.now()
        self._datasets = {spec.asset: spec for spec in self.engine.queries.datasets.all().values()}

    def is_arc(self, asset: str) -> bool:
        """Whether a source wakes the lots of an asset."""
        return asset in self._datasets and isinstance(self._datasets[asset].arc, ArcSpec)

    def look_at(self, recorded: dict[Ref, RecordedRef | None]) -> None:
        """Find the cause of each ref from its record; None for a ref that the store does not have."""
        known_rows = {ref: row for ref, row in recorded.items() if row is not None}
        stuck = [ref for ref, row in known_rows.items() if row.state is not None and row.state is not _S.LIVE]
        known = look_up(self.engine.queries, stuck, self._now) if stuck else None
        self._pauses |= self.engine.queries.planning.paused(known_rows, self._now) if known_rows else {}
        unwanted = [
            ref
            for ref, row in known_rows.items()
            if DATA_OF_STATE[row.state] is Data.OPEN and row.state is not _S.TAINTED and not row.n_open_wants
        ]
        last_wants = self.engine.queries.wants.last_of(unwanted) if unwanted else {}
        for ref, row in recorded.items():
            if row is None:
                node: _Node | None = self._with_inputs(ref, self._of_unwanted(asset_of(ref), None))
            elif row.state is _S.LIVE:
                node = None
            else:
                node = self._of_recorded(row, known, last_wants.get(ref))
            self._nodes[ref] = node
            if node is not None:
                self._next.update(dict.fromkeys(node.leads_to))

    def follow(self) -> None:
        """Look at the refs that the absent lots lead to, and further, within the bounds."""
        n_followed = 0
        for _ in range(MAX_STEPS):
            level = [ref for ref in self._next if ref not in self._nodes][: MAX_FOLLOWED - n_followed]
            if not level:
                return
            n_followed += len(level)
            self._next.clear()
            recorded = self.engine.queries.canonical.recorded(level)
            self.look_at({ref: recorded.get(ref) for ref in level})

    def absent(self, expected: Expected, places: Sequence[int]) -> list[Absent]:
        """The absent lots of a dataset, by their places among the expected lots."""
        unknown = self._of_unwanted(expected.asset, None)
        ids, refs, nodes = expected.ids, expected.refs, self._nodes
        # Most lots of a future year are unknown: they are made without a call for each.
        cause, why, make = unknown.cause, unknown.why, Absent._make
        return [
            make((ids[place], ref, cause, None, ref, cause, why))
            if (node := nodes.get(ref := refs[place])) is None
            else self._absent(ids[place], ref, node)
            for place in places
        ]

    def _absent(self, lot: str, ref: Ref, node: _Node) -> Absent:
        if not node.leads_to:
            return Absent(lot, ref, node.cause, None, ref, node.cause, node.why)
        first = self._first(ref)
        its = self._node(first)
        if (source := self._worst(node.sources)) is not None:
            return Absent(lot, ref, GapCause.NO_SOURCE, source, first, its.cause, its.why)
        upstream = self._worst(node.leads_to) if node.cause in _NAMES_UPSTREAM else None
        return Absent(lot, ref, node.cause, upstream, first, its.cause, its.why)

    def _node(self, ref: Ref) -> _Node:
        node = self._nodes[ref]
        assert node is not None, "only absent refs are walked to"
        return node

    def _first(self, ref: Ref) -> Ref:
        """Follow the worst cause of each ref to its end; a ring of waits ends where it closes."""
        passed: dict[Ref, None] = {}
        at = ref
        while at not in self._firsts:
            passed[at] = None
            ahead = self._worst(self._node(at).leads_to, but=passed)
            if ahead is None:
                self._firsts[at] = at
            else:
                at = ahead
        first = self._firsts[at]
        self._firsts.update(dict.fromkeys(passed, first))
        return first

    def _worst(self, refs: Sequence[Ref], *, but: Collection[Ref] = ()) -> Ref | None:
        """The ref with the worst cause, without refs that are live by now."""
        ahead = [
            (_WORST_FIRST[found.cause], ref)
            for ref in refs
            if ref not in but and (found := self._nodes.get(ref)) is not None
        ]
        return min(ahead)[1] if ahead else None

    def _of_recorded(self, row: RecordedRef, known: KnownRefs | None, last_want: LastWant | None) -> _Node:
        standing = known.why(row.ref, self._now) if known is not None and row.ref in known.canonical else ""
        if row.ref in self._pauses:
            standing = _sentence(standing, pause_in_words(row.ref, self._pauses[row.ref]))
        if row.state is _S.TAINTED:
            return _Node(GapCause.TAINTED, standing)
        if (cause := _OF_STATE.get(row.state)) is None:
            wanted = wanted_as(row.n_open_wants, row.wanted_until, row.retry_at, self._now)
            maker = self._maker(asset_of(row.ref))
            maker = Maker.PAUSED if maker is Maker.JOB and row.ref in self._pauses else maker
            cause = _OF_REASON[need_of(Data.OPEN, maker, wanted).reason]
        if cause is None:
            return self._with_inputs(row.ref, self._of_unwanted(asset_of(row.ref), last_want, standing))
        if cause is GapCause.EXPIRED:
            standing = _sentence(standing, f"outside the TTL of its wants, which ended at {when(row.wanted_until)}")
        elif cause is GapCause.DUE:
            standing = _sentence(standing, f"wanted since {when(row.wanted_since)}, and not launched yet")
        leads_to = known.missing.get(row.ref, ()) if known is not None else ()
        return self._with_inputs(row.ref, _Node(cause, standing, leads_to))

    def _of_unwanted(self, asset: str, last_want: LastWant | None, standing: str = "") -> _Node:
        if self._maker(asset) is not Maker.JOB:
            return _Node(
                GapCause.NEVER_ARRIVED, _sentence(standing, "no data has arrived for it, and no job builds it")
            )
        if last_want is None:
            return _Node(GapCause.NEVER_WANTED, _sentence(standing, "it was never wanted"))
        cause = GapCause.EXPIRED if last_want.state is WantState.EXPIRED else GapCause.WANT_ENDED
        why = f"the last want for it, {last_want.want_id}, is {last_want.state.in_words}"
        return _Node(cause, _sentence(standing, why))

    def _maker(self, asset: str) -> Maker:
        """The maker of an asset; an asset that is registered no longer counts as built, so that its wants explain it."""
        spec = self._datasets.get(asset)
        return Maker.JOB if spec is None else MAKER_OF_KIND[spec.kind]

    def _with_inputs(self, ref: Ref, node: _Node) -> _Node:
        spec = self._datasets.get(asset_of(ref)) if node.cause in _MAY_LACK_INPUTS else None
        if spec is None:
            return node
        key = partition_key_of(ref)
        sources = sources_of(self.engine, spec, key) if node.cause is GapCause.NEVER_WANTED else ()
        inputs = self.engine.catalog.inputs(spec, key) if self.follow_inputs else ()
        return _Node(node.cause, node.why, tuple(dict.fromkeys([*sources, *inputs]))[:MAX_INPUTS], sources[:MAX_INPUTS])


def _sentence(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
