"""What happened in the base to instances of both logs since the last look: taints, their ends, removals (rule 16.8).

The instances of both logs are those that were borrowed, and those that the environment gave to its base.

A look compares the states in both logs, so that it needs no cursor in either: a process that is killed, and one that borrows an
instance while the base taints it, leave what they missed to the next look. A process looks again only after news in one of the logs.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from databuild_dagster.engine.engine import Engine
from databuild_dagster.features.environments.base import Base
from databuild_dagster.features.environments.records import given_uuids
from databuild_dagster.model import events as e
from databuild_dagster.model.commands import BaseFact, FollowBase
from databuild_dagster.model.refs import Ref, derive_partition_uuid
from databuild_dagster.store.queries.instances import TaintLink

#: The actor of what the base did, in the log of an environment.
ACTOR: Final = "the base"
_NEWS_THERE = e.names_of(
    e.TaintCreated,
    e.TaintCanceled,
    e.CanonicalReverted,
    e.InstancesReturned,
    e.InstancesPromoted,
    e.ManifestRemoved,
)
_NEWS_HERE = e.names_of(e.InstancesBorrowed)


@dataclass
class _Looked:
    """The ends of both logs at the last look of this process."""

    there: int
    here: int = 0


def follow(engine: Engine, base: Base) -> None:
    """Record what happened in the base to instances of both logs, in one command."""
    # All that a process borrows was good at the pin, so nothing before the pin is news.
    looked = engine.memory.of((_Looked, base.revision), lambda: _Looked(base.pin))
    there, has_news = base.queries.events.news(_NEWS_THERE, looked.there)
    here, has_borrowed = engine.queries.events.news(_NEWS_HERE, looked.here)
    if has_news or has_borrowed:
        _look(engine, base, None if looked.here == 0 else _named(engine, base, looked, there.seq, here.seq))
    looked.there, looked.here = there.seq, here.seq


def _named(engine: Engine, base: Base, looked: _Looked, there: int, here: int) -> set[str]:
    """The uuids of the instances that events since the last look name, and of the instances that have a taint of such an event."""
    uuids: set[str] = set()
    taints: set[str] = set()
    for event in base.queries.events.named(_NEWS_THERE, looked.there, there):
        match event.fact:
            case e.TaintCreated(taint_id=taint_id) | e.TaintCanceled(taint_id=taint_id):
                taints.add(taint_id)
            case e.CanonicalReverted(uuid=uuid):
                uuids.add(uuid)
            case e.InstancesReturned(returns=returns):
                uuids.update(_uuids_of(returns))
            case e.InstancesPromoted(births=births, returns=returns):
                uuids.update(_uuids_of((*births, *returns)))
            case e.ManifestRemoved(uuids=removed):
                uuids.update(removed)
    for event in engine.queries.events.named(_NEWS_HERE, looked.here, here):
        if isinstance(event.fact, e.InstancesBorrowed):
            uuids.update(_uuids_of(event.fact.births))
    return uuids | {link.uuid for link in base.queries.instances.links_of_taints(taints)}


def _uuids_of(births: Iterable[e.Birth | e.Return]) -> Iterator[str]:
    return (derive_partition_uuid(birth.job_run_id, birth.ref) for birth in births)


def _look(engine: Engine, base: Base, named: set[str] | None) -> None:
    """Compare the instances of both logs, all or those among `named`."""
    shared = _shared(engine, named)
    links_there = base.queries.instances.taint_links(shared)
    links_here = engine.queries.instances.taint_links(shared) if links_there else []
    removals = base.removals(shared.keys() - engine.queries.instances.removed(shared))
    acting = {link.taint_id for link in links_there if link.is_in_force}
    lifted = {link.taint_id for link in links_there if not link.is_in_force} - acting
    if named is not None and lifted:
        # A taint that was taken from one instance may be on others, which no event names.
        others = [link for link in base.queries.instances.links_of_taints(lifted) if link.is_in_force]
        ours = _shared(engine, {link.uuid for link in others})
        acting |= {link.taint_id for link in others if link.uuid in ours}
    news = _Taints(links_there, links_here, acting)
    gone = {uuid for removal in removals for uuid in removal.uuids}
    reverted = [e.CanonicalReverted(ref=shared[uuid], uuid=uuid) for uuid in news.reverted if uuid not in gone]
    # Removals before the ends of taints: an instance without data stays tainted.
    facts: tuple[BaseFact, ...] = (*news.created, *removals, *news.canceled, *reverted)
    if facts:
        engine.handle(FollowBase(facts=facts), actor=ACTOR)


def _shared(engine: Engine, named: set[str] | None) -> dict[str, Ref]:
    """The instances of both logs by uuid, all or those among `named`."""
    if named is not None and not named:
        return {}
    instances = engine.queries.instances
    given = given_uuids(engine.store)
    if named is None:
        return {one.uuid: one.ref for one in instances.borrowed()} | {
            one.uuid: one.ref for one in instances.named(given)
        }
    return {one.uuid: one.ref for one in instances.named(instances.borrowed_of(named) | (given & named))}


class _Taints:
    """How the taints of instances in the base differ from those in the environment that come from the base."""

    def __init__(self, there: list[TaintLink], here: list[TaintLink], acting: set[str]) -> None:
        """`acting` are the ids of taints that some instance of both logs has there."""
        self._there = {(link.uuid, link.taint_id): link for link in there}
        #: By instance and id of a taint in the base, the ids in force here.
        self._here: dict[tuple[str, str], set[str]] = defaultdict(set)
        in_force: dict[str, set[str]] = defaultdict(set)
        for link in here:
            is_first = (link.uuid, link.taint_id) in self._there
            # An instance that was borrowed too late has the taint by a further id.
            taint_id = link.taint_id if is_first else link.taint_id.rpartition(".")[0]
            self._here[link.uuid, taint_id] |= {link.taint_id} if link.is_in_force else set()
            in_force[link.uuid] |= {link.taint_id} if link.is_in_force else set()
        self.created = self._created()
        lifted, ended = self._lifted(acting)
        self.canceled = [e.TaintCanceled(taint_id=taint_id) for taint_id in sorted(ended)]
        #: A revert takes the taints of one instance, which others keep (rule 7.4).
        self.reverted = [uuid for uuid, ids in lifted.items() if ids - ended and ids == in_force[uuid]]

    def _created(self) -> list[e.TaintCreated]:
        """The taints that instances have there and never had here: one that was canceled here stays canceled."""
        found: dict[str, list[TaintLink]] = defaultdict(list)
        for pair, link in self._there.items():
            if link.is_in_force and pair not in self._here:
                found[link.taint_id].append(link)
        return [
            e.TaintCreated(
                taint_id=taint_id,
                refs=(),
                reason=links[0].reason,
                uuids=tuple(link.uuid for link in links),
                downstream=links[0].downstream,
                of_code=links[0].of_code,
            )
            for taint_id, links in found.items()
        ]

    def _lifted(self, acting: set[str]) -> tuple[dict[str, set[str]], set[str]]:
        """The ids here of taints that an instance has there no more, by instance; and those that no instance has there."""
        lifted: dict[str, set[str]] = defaultdict(set)
        ended: set[str] = set()
        for pair, link in self._there.items():
            ids = set() if link.is_in_force else self._here.get(pair, set())
            if ids:
                lifted[link.uuid] |= ids
                ended |= set() if link.taint_id in acting else ids
        return lifted, ended
