"""Arcs as JSON has them (rules 10.5, 15): chains of sources and subscribers, the lots of an arc, and late data."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from databuild_dagster.calls.calendar import CellShape, newest_cells
from databuild_dagster.calls.calendar_keys import keys_of
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.set_aside import arc_name
from databuild_dagster.model.datasets import ArcSpec, DatasetSpec
from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.model.records import Column, Time, extended, time_of
from databuild_dagster.model.refs import Ref, make_ref
from databuild_dagster.model.states import ArcState
from databuild_dagster.store.queries.queries import Firing, LateInput, Queries

#: The newest partitions of an arc and of each of its sources.
NEWEST: Final = 18
MAX_LATE: Final = 50

#: Asset and state to the number of refs.
Counts = Mapping[str, Mapping[str, int]]


class NoArc(InvalidRequest):
    """{asset} subscribes to nothing, so it is no arc."""

    hint = "`databuild lot list --subscriptions` lists the assets that are; @databuild_asset(subscribe=…) makes it one."


class ShownArcLot(msgspec.Struct, frozen=True):
    """A lot of an arc; `lot` is null where the partitions of the arc are no lots."""

    arc: Annotated[str, Column(wide_only=True)]
    lot: Annotated[str | None, Column()]
    ref: Annotated[Ref, Column()]
    state: Annotated[ArcState, Column()]
    uuid: Annotated[str | None, Column("instance")]
    reason: Annotated[str | None, Column(wide_only=True)]
    stale: Annotated[bool, Column()]
    sources: Annotated[list[str], Column(wide_only=True)]


class ShownSource(msgspec.Struct, frozen=True):
    """A dataset that an arc subscribes to, with its newest partitions."""

    asset: str
    kind: str | None
    #: Whether it is an arc too.
    is_arc: bool
    newest: list[CellShape]


class Woken(msgspec.Struct, frozen=True):
    """The newest source instance that woke an arc; `at` is the time of its data."""

    ref: Ref
    uuid: str
    at: Time | None
    seq: int


class ShownArc(msgspec.Struct, frozen=True):
    """An arc: its sources, its job and its own lots."""

    arc: str
    job: str
    location: str
    follow_late: bool
    sources: list[ShownSource]
    #: The number of partitions that exist now; of built partitions, by state.
    n: int
    states: dict[str, int]
    newest: list[CellShape]
    woken: Woken | None
    #: Why the arc is not followed now; null while it is.
    set_aside: str | None


class Chain(msgspec.Struct, frozen=True):
    """Arcs that are connected, sources first."""

    #: The assets by the number of arcs before them.
    levels: list[list[str]]
    arcs: list[ShownArc]


class ArcsPage(msgspec.Struct, frozen=True):
    """Chains by the names of their arcs; `n` counts the arcs of all chains."""

    n: int
    offset: int
    chains: list[Chain]


class Late(msgspec.Struct, frozen=True):
    """An input that got new data after a lot was built: the lot is stale."""

    ref: Ref
    uuid: str
    built_at: Time | None
    source: Ref
    source_uuid: str
    arrived_at: Time | None


class ArcDetail(msgspec.Struct, frozen=True):
    """An arc with some of its lots, the newest first, and their late data."""

    arc: ShownArc
    n: int
    offset: int
    lots: list[ShownArcLot]
    late: list[Late]


def sources_of(dataset: DatasetSpec) -> list[str]:
    """The assets that an arc subscribes to."""
    assert isinstance(dataset.arc, ArcSpec), "arcs in force are"
    return [source.asset for source in dataset.arc.sources]


def arcs_in_force(queries: Queries, arc: str | None = None) -> list[DatasetSpec]:
    """All arcs by name, or the arc `arc`. Raises `NoArc`, `UnknownAsset`."""
    found = [spec for arc_spec in queries.datasets.arcs() if (spec := queries.datasets.get(arc_spec.asset)) is not None]
    if arc is None:
        return sorted(found, key=lambda spec: spec.asset)
    chosen = [spec for spec in found if spec.asset == arc]
    if not chosen:
        raise NoArc(asset=queries.datasets.known(arc).asset)
    return chosen


class Arcs:
    """The arcs of a build state, for a single answer. `counts` counts its refs."""

    def __init__(self, engine: Engine, instance: Callable[[], Any], counts: Counts) -> None:
        self._engine = engine
        self._instance = instance
        self._counts = counts

    def chains(self, search: str | None, limit: int, offset: int) -> ArcsPage:
        """Chains with an arc whose name, or whose source's name, contains `search`."""
        chains = _chains(arcs_in_force(self._engine.queries))
        if search:
            chains = [chain for chain in chains if any(search.lower() in name.lower() for name in _names(chain))]
        arcs = [spec for chain in chains for spec in chain]
        shown = arcs[offset : offset + limit]
        shapes = {shape.arc: shape for shape in self._shapes(shown)}
        found: list[Chain] = []
        for chain in chains:
            of_chain = [shapes[spec.asset] for spec in chain if spec.asset in shapes]
            if of_chain:
                found.append(Chain(_levels(chain), of_chain))
        return ArcsPage(len(arcs), offset, found)

    def arc(self, name: str, limit: int, offset: int) -> ArcDetail:
        """An arc with its newest lots. Raises `NoArc`, `UnknownAsset`."""
        from databuild_dagster.features.lots.arc_lots import lots_of_arc

        queries = self._engine.queries
        (spec,) = arcs_in_force(queries, name)
        keys = keys_of(spec, self._instance, self._engine.clock())
        newest_first = keys[max(len(keys) - offset - limit, 0) : max(len(keys) - offset, 0)][::-1]
        refs = [make_ref(spec.asset, key) for key in newest_first]
        lots = list(lots_of_arc(queries, self._instance(), spec, refs))
        sources = sources_of(spec)
        late = queries.datasets.late_inputs([lot.uuid for lot in lots if lot.stale and lot.uuid is not None], MAX_LATE)
        shown = [extended(ShownArcLot, lot, sources=sources) for lot in lots]
        return ArcDetail(self._shapes([spec])[0], len(keys), offset, shown, [_late(found) for found in late])

    def _shapes(self, arcs: Sequence[DatasetSpec]) -> list[ShownArc]:
        queries, now = self._engine.queries, self._engine.clock()
        specs = {spec.asset: spec for spec in queries.datasets.all().values()}
        named = {name for spec in arcs for name in (spec.asset, *sources_of(spec)) if name in specs}
        newest = newest_cells(queries, [specs[name] for name in sorted(named)], self._instance, now, NEWEST)
        firings = queries.datasets.last_firings(spec.asset for spec in arcs)
        found = queries.planning.asides_of([arc_name(spec.asset) for spec in arcs])
        asides = {aside.name: aside.reason for aside in found}
        return [
            ShownArc(
                spec.asset,
                spec.job,
                spec.location,
                isinstance(spec.arc, ArcSpec) and spec.arc.follow_late,
                [_source(name, specs.get(name), newest.get(name, [])) for name in sources_of(spec)],
                len(keys_of(spec, self._instance, now)),
                dict(self._counts.get(spec.asset, {})),
                newest[spec.asset],
                _woken(firings.get(spec.asset)),
                asides.get(arc_name(spec.asset)),
            )
            for spec in arcs
        ]


def _late(found: LateInput) -> Late:
    built_at, arrived_at = time_of(found.built_at), time_of(found.arrived_at)
    return Late(found.built_ref, found.built_uuid, built_at, found.ref, found.uuid, arrived_at)


def _source(name: str, spec: DatasetSpec | None, newest: list[CellShape]) -> ShownSource:
    """An asset that is registered no longer has no kind."""
    is_arc = spec is not None and isinstance(spec.arc, ArcSpec)
    return ShownSource(name, None if spec is None else spec.kind.value, is_arc, newest)


def _woken(firing: Firing | None) -> Woken | None:
    return None if firing is None else Woken(firing.ref, firing.uuid, time_of(firing.live_at), firing.seq)


def _names(chain: Iterable[DatasetSpec]) -> list[str]:
    """The assets of a chain: each arc after its sources."""
    return list(dict.fromkeys(name for spec in chain for name in (*sources_of(spec), spec.asset)))


def _levels(chain: Iterable[DatasetSpec]) -> list[list[str]]:
    """The assets of a chain in its order, by the number of arcs before them."""
    depth: dict[str, int] = {}
    for spec in chain:
        sources = sources_of(spec)
        depth |= {source: 0 for source in sources if source not in depth}
        depth[spec.asset] = 1 + max(depth[source] for source in sources)
    return [[name for name, level in depth.items() if level == at] for at in sorted(set(depth.values()))]


def _chains(arcs: Sequence[DatasetSpec]) -> list[list[DatasetSpec]]:
    """Arcs that share an asset belong to the same chain, in which each arc follows the arcs among its sources."""
    chains: list[list[DatasetSpec]] = []
    for spec in arcs:
        own = {spec.asset, *sources_of(spec)}
        touching = [chain for chain in chains if own & set(_names(chain))]
        chains = [chain for chain in chains if chain not in touching]
        chains.append([spec, *(other for chain in touching for other in chain)])
    return sorted((_sources_first(chain) for chain in chains), key=lambda chain: [spec.asset for spec in chain])


def _sources_first(chain: Sequence[DatasetSpec]) -> list[DatasetSpec]:
    left = {spec.asset: spec for spec in sorted(chain, key=lambda spec: spec.asset)}
    ordered: list[DatasetSpec] = []
    while left:
        ready = [name for name, spec in left.items() if not (set(sources_of(spec)) - {name}) & left.keys()]
        # Dagster refuses rings; in an old registration one may be left.
        for name in ready or list(left)[:1]:
            ordered.append(left.pop(name))
    return ordered
