"""Arcs fire: the log is followed from each arc's cursor, and new live instances wake the subscribing lots (rule 10.5).

An arc's cursor is recorded with the wants that it made, in the same transaction, so that each source instance wakes it once,
with any number of orchestrators and crashes. A process also remembers its own place in the log, so that an idle tick asks
a single question; and the arcs that it followed there, because an arc that comes back continues from its own place.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.follower import MAX_EVENTS, Cursor, LogFollower
from databuild_dagster.engine.publishing import PUBLISHING, Publication, published_by
from databuild_dagster.engine.set_aside import SetAside, arc_name
from databuild_dagster.model import commands as c
from databuild_dagster.model import events as e
from databuild_dagster.model.datasets import ArcSpec, DatasetSpec, InputSpec
from databuild_dagster.model.errors import Refused
from databuild_dagster.model.refs import Ref, partition_key_of
from databuild_dagster.model.set_aside import Subject
from databuild_dagster.store.queries.queries import ArcView

#: Stretches of `MAX_EVENTS` events that a tick follows: a process that begins may be far behind.
MAX_STRETCHES = 10
#: Source instances of a command, unless a single event has more.
MAX_SOURCES = 1_000


class ArcsCursor(Cursor, frozen=True, kw_only=True):
    """The place of a process in the log, and the arcs that it has followed as far, each with its registration."""

    followed: frozenset[tuple[str, int]] = frozenset()


def fire_arcs(engine: Engine, actor: str, aside: SetAside | None = None, *, head: int | None = None) -> list[Ref]:
    """Want the lots whose arcs have a new live source; returns them. `head` is as for `LogFollower`.

    `aside` gets the arcs whose mapping raises; they are followed from the same place by the next tick.
    """
    aside = SetAside() if aside is None else aside
    follower = LogFollower(engine, "arcs", ArcsCursor, head=head)
    kept = follower.load() or ArcsCursor()
    head, followed = follower.head, kept.seq
    if head == followed:
        return []
    wanted: list[Ref] = []
    # Read after the head, so that each arc that was registered by then is among them.
    if arcs := engine.queries.datasets.arcs():
        start = min(max(followed, arc.seq) if (arc.asset, arc.since) in kept.followed else arc.seq for arc in arcs)
        for after in range(start, min(head, start + MAX_STRETCHES * MAX_EVENTS), MAX_EVENTS):
            followed = min(head, after + MAX_EVENTS)
            wanted += _follow(engine, arcs, after, followed, actor, aside)
        if not aside.keys().isdisjoint(arc_name(arc.asset) for arc in arcs):
            # The process reads on from the place of the arcs that stay behind.
            return list(dict.fromkeys(wanted))
    else:
        followed = head
    follower.keep(ArcsCursor(followed, followed=frozenset((arc.asset, arc.since) for arc in arcs)))
    # Each once, because a lot of two sources is wanted for each of them.
    return list(dict.fromkeys(wanted))


def _follow(
    engine: Engine, arcs: list[ArcView], after_seq: int, last_seq: int, actor: str, aside: SetAside
) -> list[Ref]:
    names = {arc.asset for arc in arcs}
    subscribers = _Subscribers(spec for spec in engine.queries.datasets.all().values() if spec.asset in names)
    wanted: list[Ref] = []
    for up_to_seq, published in _portions(engine, subscribers, after_seq, last_seq, aside):
        known = [arc for arc in arcs if arc_name(arc.asset) not in aside]
        fire = partial(_fire, engine, up_to_seq, published, actor)
        wanted += aside.in_parts(known, fire, lambda arc: [arc_name(arc.asset)], Subject.ARC)
    return wanted


def _fire(
    engine: Engine, up_to_seq: int, published: tuple[c.Published, ...], actor: str, arcs: Sequence[ArcView]
) -> list[Ref]:
    followed = {arc.asset: arc.since for arc in arcs}
    command = c.FireArcs(up_to_seq=up_to_seq, published=published, followed=followed)
    facts = [event.fact for event in engine.handle(command, actor=actor).events]
    return [lot for fact in facts if isinstance(fact, e.ArcFired) for firing in fact.firings for lot in firing.lots]


def sources_of(engine: Engine, dataset: DatasetSpec, partition_key: str | None) -> tuple[Ref, ...]:
    """The source partitions that wake a lot of an arc; none for a dataset that is no arc, or a mapping without an answer."""
    if not isinstance(dataset.arc, ArcSpec):
        return ()
    try:
        return engine.catalog.inputs(replace(dataset, inputs=dataset.arc.sources), partition_key)
    except Refused:
        return ()


class _Subscribers:
    """The subscriptions of arcs."""

    def __init__(self, datasets: Iterable[DatasetSpec]) -> None:
        #: Source to the arcs that it wakes, each with its input.
        self.of: dict[str, list[tuple[DatasetSpec, InputSpec]]] = defaultdict(list)
        #: Arcs that follow their own lots, too.
        self.late: set[str] = set()
        for dataset in datasets:
            if isinstance(dataset.arc, ArcSpec):
                for source in dataset.arc.sources:
                    self.of[source.asset].append((dataset, source))
                if dataset.arc.follow_late:
                    self.late.add(dataset.asset)

    def matters(self, asset: str) -> bool:
        return asset in self.of or asset in self.late


def _portions(
    engine: Engine, subscribers: _Subscribers, after_seq: int, last_seq: int, aside: SetAside
) -> Iterator[tuple[int, tuple[c.Published, ...]]]:
    """Pairs of the last event of a portion and its new live instances; an event is never divided."""
    portion: list[c.Published] = []
    for event in engine.queries.events.named(PUBLISHING, after_seq, last_seq):
        found = [publication for publication in published_by(event) if subscribers.matters(publication.dataset)]
        if portion and len(portion) + len(found) > MAX_SOURCES:
            yield event.seq - 1, tuple(portion)
            portion = []
        portion += [_published(engine, subscribers, publication, aside) for publication in found]
    # A whole stretch is recorded even if it is empty, so that the next process need not read it again.
    if portion or last_seq - after_seq == MAX_EVENTS:
        yield last_seq, tuple(portion)


def _published(engine: Engine, subscribers: _Subscribers, publication: Publication, aside: SetAside) -> c.Published:
    key = partition_key_of(publication.ref)
    woken: dict[str, tuple[str | None, ...]] = {}
    for dataset, source in subscribers.of.get(publication.dataset, ()):
        name = arc_name(dataset.asset)
        if aside.rests(name):
            continue
        with aside.guard(name, kind=Subject.ARC):
            woken[dataset.asset] = engine.catalog.woken(dataset, source, key)
    return c.Published(publication.uuid, publication.ref, publication.seq, woken)
