"""A code location's datasets are recorded when they change (rule 5.7).

Two versions of a location's code may run side by side: in a rolling deploy, in a forgotten container, in a second checkout over
the same home. Each would replace the datasets of the other at every tick. So an orchestrator does not bring earlier datasets
back while a different version of the code ticks: it leaves the assets that differ to that version. A
command beside an orchestrator adds assets, and neither removes nor changes an asset.

Where a dataset gets other partitions, instances whose key now means a different window of time are for no reader (rule 2.6). Before the
new definition is recorded, the builds of such partitions are canceled, and their instances tainted. A process that is killed in
between leaves the old definition, and the next process continues.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.orchestrator_notes import has_orchestrator, is_superseded, note_code
from databuild_dagster.model.commands import CancelJobRuns, RegisterDatasets, TaintPartitions
from databuild_dagster.model.datasets import DatasetSpec, Standing, standing_of
from databuild_dagster.model.errors import AssetTaken, JobRunEnded
from databuild_dagster.model.events import DatasetRegistered, names_of
from databuild_dagster.model.refs import Ref, partition_key_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.wording import counted, few_of, typed
from databuild_dagster.store.log import Head
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.queries import Queries

#: Builds that end while they are being canceled are looked at again so often.
_MAX_RACES = 5


class Definitions:
    """The partitions definitions that a dataset has had, by the seq of their registration."""

    def __init__(self, queries: Queries, asset: str) -> None:
        events = queries.events.named(names_of(DatasetRegistered), 0, queries.events.head().seq)
        found = [
            (event.seq, spec.partitions)
            for event in events
            if isinstance(event.fact, DatasetRegistered)
            for spec in event.fact.datasets
            if spec.asset == asset
        ]
        self._seqs = [seq for seq, _ in found]
        self._texts = [text for _, text in found]

    def __bool__(self) -> bool:
        return bool(self._texts)

    @property
    def last(self) -> str | None:
        """The last definition, also of a dataset that was removed since."""
        return self._texts[-1] if self._texts else None

    def at(self, seq: int) -> str | None:
        """The definition in force at a seq; before the first registration, the first definition."""
        return self._texts[max(bisect_right(self._seqs, seq) - 1, 0)] if self._texts else None

    def alike_since(self, is_alike: Callable[[str | None], bool]) -> int:
        """The seq of the first definition since which all are alike; 0 if all ever were."""
        for place in range(len(self._texts) - 1, -1, -1):
            if not is_alike(self._texts[place]):
                # The last one is not alike if the present code is not registered yet.
                return self._seqs[place + 1] if place + 1 < len(self._seqs) else self._seqs[place] + 1
        return 0


def unmoved_since(engine: Engine, spec: DatasetSpec, ref: Ref, definitions: Definitions) -> int:
    """The seq since which the key of a ref means what it means now (rule 2.6)."""
    key = partition_key_of(ref)
    return definitions.alike_since(lambda before: not engine.catalog.is_moved(spec, key, before))


def as_of(queries: Queries, spec: DatasetSpec, seq: int) -> DatasetSpec:
    """A dataset with the partitions that it had when `seq` was the last event."""
    definitions = Definitions(queries, spec.asset)
    return replace(spec, partitions=definitions.at(seq)) if definitions else spec


def why_moved(asset: str) -> str:
    """The reason of the taint."""
    return f"the key means another window of time since the partitions of {asset} changed"


def moved_of(
    engine: Engine, spec: DatasetSpec, canonical: Collection[Canonical], definitions: Definitions
) -> list[Canonical]:
    """The instances whose key meant a different window when they were begun."""
    born = engine.queries.instances.seqs_of([one.uuid for one in canonical if one.uuid is not None])
    return [
        one
        for one in canonical
        if one.uuid in born and engine.catalog.is_moved(spec, partition_key_of(one.ref), definitions.at(born[one.uuid]))
    ]


def end_moved(
    engine: Engine, specs: Iterable[DatasetSpec], registered: Iterable[DatasetSpec], head: Head, actor: str
) -> list[str]:
    """Make way for the definitions of `specs`, which are not registered yet; `head` is the end of the log, 0 if it was not read.

    Returns a sentence for each dataset with moved or vanished keys.
    """
    present = {spec.asset: spec for spec in registered}
    sentences: list[str] = []
    if not present and not head.seq:
        return sentences
    for spec in specs:
        if not spec.kind.is_built or not _may_change(engine, spec, present):
            continue
        definitions = Definitions(engine.queries, spec.asset)
        if not definitions or definitions.last == spec.partitions:
            continue
        n_moved, n_gone = _ended(engine, spec, definitions, actor)
        if n_moved or n_gone:
            sentences.append(
                f"The partitions of {spec.asset} changed: {counted(n_moved, 'instance')} whose key means another window of time "
                f"became tainted, and readers leave out {n_gone} whose keys are gone. "
                f"`databuild relocate {typed(spec.asset)}` carries over those whose windows exist under new keys."
            )
    return sentences


def _may_change(engine: Engine, spec: DatasetSpec, present: Mapping[str, DatasetSpec]) -> bool:
    if (now := present.get(spec.asset)) is not None:
        return now.partitions != spec.partitions
    # It may have been there before.
    return bool(engine.queries.canonical.states_of_dataset(spec.asset))


def _ended(engine: Engine, spec: DatasetSpec, definitions: Definitions, actor: str) -> tuple[int, int]:
    """Cancel and taint; the number of instances that readers lose by that, and by keys that are gone."""
    why = why_moved(spec.asset)
    for race in range(_MAX_RACES):
        canonical = engine.queries.canonical.of_dataset(spec.asset)
        gone = engine.catalog.left_out(spec, [partition_key_of(one.ref) for one in canonical])
        stay = [one for one in canonical if partition_key_of(one.ref) not in gone]
        moved = moved_of(engine, spec, stay, definitions)
        # One that waits for its inputs has no job run any more: the next one begins under the new definition.
        building = [one.job_run for one in moved if one.state is InstanceState.BUILDING and one.job_run is not None]
        if not building:
            break
        ids = tuple(dict.fromkeys(building))
        try:
            engine.handle(CancelJobRuns(job_run_ids=ids, reason=why, keep_wants=True), actor=actor)
        except JobRunEnded:
            if race == _MAX_RACES - 1:
                raise
    was_live = {one.uuid: one.state for one in moved if one.live_at is not None and one.uuid is not None}
    taints = engine.queries.instances.taints_in_force(was_live)
    live = [uuid for uuid, state in was_live.items() if state is InstanceState.LIVE]
    # Another taint may be taken back.
    marked = {uuid for uuid, found in taints.items() if why in {taint.reason for taint in found}}
    tainted = [uuid for uuid, state in was_live.items() if state is InstanceState.TAINTED and uuid not in marked]
    if live or tainted:
        engine.handle(TaintPartitions(seen=tuple(live), uuids=tuple(tainted), reason=why), actor=actor)
    left = [one for one in canonical if one.state is InstanceState.LIVE and partition_key_of(one.ref) in gone]
    return len(live), len(left)


#: The events that change what is registered.
_REGISTERING = names_of(DatasetRegistered)

#: Attempts to register while other locations register at the same time.
MAX_RACES = 3

_json = msgspec.json.Encoder()


class Registered(NamedTuple):
    """The datasets of the store after a location was registered."""

    #: Of every location, by row id.
    datasets: dict[int, DatasetSpec]
    #: A refusal for each location that owns assets of this location.
    taken: tuple[AssetTaken, ...] = ()
    #: The end of the log when `datasets` were read.
    head: Head = Head(0, 0.0)
    #: Assets of the location that a different version of its code has registered otherwise; this process leaves the assets to that version.
    left: tuple[str, ...] = ()
    #: The assets of `left` that the code of this process does not have.
    lacking: tuple[str, ...] = ()
    #: The version of the code that this process has.
    code: str = ""
    #: The version that it keeps registered: beside an orchestrator, the orchestrator's version with the assets that this process added.
    fingerprint: str = ""
    #: A sentence for each dataset whose partitions this registration changed (rule 2.6).
    redefined: tuple[str, ...] = ()

    def of(self, location: str) -> dict[int, DatasetSpec]:
        """The datasets of a location, by row id."""
        return {row_id: spec for row_id, spec in self.datasets.items() if spec.location == location}

    def left_in_words(self, location: str) -> str:
        """A sentence about the assets that a command leaves to the orchestrator; empty if there are none."""
        changing = [asset for asset in self.left if asset not in self.lacking]
        doings = {"lacks": self.lacking, "changes": changing}
        differences = " and ".join(f"{doing} {few_of(assets)}" for doing, assets in doings.items() if assets)
        if not differences:
            return ""
        return (
            f"This code of location {location!r} {differences}; the registered ones stay, because an orchestrator with other code is "
            "at work and builds them. Deploy this code there (`databuild dev`: reload the code location in Dagster), or stop the "
            "orchestrator."
        )

    @property
    def plannable(self) -> Mapping[int, DatasetSpec]:
        """The datasets without the assets that are left to a different version of the code."""
        if not self.left:
            return self.datasets
        return {row_id: spec for row_id, spec in self.datasets.items() if spec.asset not in self.left}


def register(
    engine: Engine,
    location: str,
    datasets: tuple[DatasetSpec, ...],
    *,
    building: Iterable[str] = (),
    is_current: bool = False,
    is_asked: bool = True,
) -> Registered:
    """Record the location's datasets, unless the store has them.

    A process that has registered them asks a single question: whether any location has registered since. With `is_current` it
    asks nothing. Assets that a different location owns are left out, and returned as `taken`. Without `is_asked`, for a tick of an
    orchestrator or for a step, an earlier version of the code records nothing while the present version is at work, unless assets
    among `building` differ. While an orchestrator is at work, other processes record only new assets and the assets among `building`.
    Raises `AssetTaken` if an asset of a different location is among `building`, because its owner may build it
    differently, and `LocationTaken` (rule 5.7).
    """
    kept: dict[str, tuple[tuple[DatasetSpec, ...], Registered]] = engine.memory.of(Registered, dict)
    declared, registered = kept.get(location, (None, Registered({})))
    needed = set(building)
    yields_for = None if is_asked else needed
    if declared is None or declared != datasets:
        registered = _register_own(engine, location, datasets, engine.queries.events.head(), yields_for)
    elif not is_current:
        head, is_news = engine.queries.events.news(_REGISTERING, registered.head.seq)
        # A log that ends earlier is another log; and the other version may have ended.
        is_news = is_news or head.seq < registered.head.seq or bool(registered.left)
        if is_news:
            registered = _register_own(engine, location, datasets, head, yields_for)
        else:
            registered = registered._replace(head=head)
    kept[location] = datasets, registered
    for refusal in registered.taken:
        if not needed.isdisjoint(refusal.facts["taken"]):
            raise refusal
    return registered


def _register_own(
    engine: Engine, location: str, datasets: tuple[DatasetSpec, ...], head: Head, yields_for: set[str] | None
) -> Registered:
    """`head` is the end of the log before the datasets are read.

    `yields_for` are the assets that are needed as declared; None if all are recorded in any case.
    """
    for races in range(1, MAX_RACES + 1):
        known = engine.queries.datasets.all()
        present = {spec.asset: spec for spec in known.values()}
        standings = {spec.asset: standing_of(spec, present.get(spec.asset)) for spec in datasets}
        own = {spec.asset: spec for spec in datasets if standings[spec.asset] is Standing.OWN}
        of_owner: dict[str, list[str]] = {}
        for asset, standing in standings.items():
            if standing is Standing.TAKEN:
                of_owner.setdefault(present[asset].location, []).append(asset)
        here = {asset: spec for asset, spec in present.items() if spec.location == location}
        left = () if yields_for is None else _left(engine, location, own, here, yields_for)
        recorded, kept = here if left else own, own
        if not left and own != here and (yields_for is None or yields_for) and has_orchestrator(engine, location):
            recorded = here | {asset: own[asset] for asset in own if asset not in here or asset in (yields_for or ())}
            left = tuple(sorted(asset for asset, spec in recorded.items() if own.get(asset) != spec))
            kept = recorded
        redefined: list[str] = []
        try:
            if recorded != here:
                known, head, redefined = _recorded(engine, location, recorded, known, head)
        except AssetTaken:
            if races < MAX_RACES:
                continue
            raise
        break
    taken = (
        AssetTaken(location=location, assets=few_of(assets), owner=owner, taken=tuple(assets))
        for owner, assets in of_owner.items()
    )
    lacking = tuple(asset for asset in left if asset not in own)
    return Registered(known, tuple(taken), head, left, lacking, _fingerprint(own), _fingerprint(kept), tuple(redefined))


def _left(
    engine: Engine, location: str, own: dict[str, DatasetSpec], present: dict[str, DatasetSpec], needed: set[str]
) -> tuple[str, ...]:
    """The assets that differ from the present version of the code, if the present version is at work."""
    differing = {asset for asset in own.keys() | present.keys() if own.get(asset) != present.get(asset)}
    if not differing or not needed.isdisjoint(differing):
        return ()
    if not is_superseded(engine, location, _fingerprint(own), _fingerprint(present)):
        return ()
    return tuple(sorted(differing))


def _fingerprint(datasets: Mapping[str, DatasetSpec]) -> str:
    return hashlib.sha256(_json.encode([datasets[asset] for asset in sorted(datasets)])).hexdigest()


def register_ad_hoc(engine: Engine, location: str, datasets: Iterable[DatasetSpec]) -> Registered:
    """Record assets that no deployed location declares: a `materialize([…])` in a script or a test.

    Assets that a code location has registered stay in it.
    """
    known = engine.queries.datasets.all()
    own = {spec.asset: spec for spec in known.values() if spec.location == location}
    of_others = {spec.asset for spec in known.values() if spec.location != location}
    new = {spec.asset: spec for spec in datasets if spec.asset not in of_others}
    known, _, _ = _recorded(engine, location, {**own, **new}, known, Head(0, 0.0))
    return Registered(known)


def _recorded(
    engine: Engine, location: str, own: dict[str, DatasetSpec], known: dict[int, DatasetSpec], head: Head
) -> tuple[dict[int, DatasetSpec], Head, list[str]]:
    """Record `own` as the datasets of a location. Returns the datasets of all locations, a head that they include, and the
    sentences of `end_moved`.

    `known` are the datasets at `head` or later. Raises `AssetTaken`, `LocationTaken`.
    """
    if own == {spec.asset: spec for spec in known.values() if spec.location == location}:
        return known, head, []
    # Before the event, so that no other version takes this one for one that has ended.
    note_code(engine, location, _fingerprint(own))
    actor = f"code location {location}"
    redefined = end_moved(engine, own.values(), known.values(), head, actor)
    events = engine.handle(RegisterDatasets(location=location, datasets=tuple(own.values())), actor=actor).events
    return engine.queries.datasets.all(), Head(events[-1].seq, events[-1].at) if events else head, redefined
