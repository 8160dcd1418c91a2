"""What happened in the base to borrowed instances since the last look: taints, their ends, removals (rule 16.8).

A look compares the states in both logs, so that it needs no cursor in either: a process that is killed, and one that borrows an
instance while the base taints it, leave what they missed to the next look. A process looks again only after news in one of the logs.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from databuild_dagster.engine.engine import Engine
from databuild_dagster.features.environments.base import Base
from databuild_dagster.model import events as e
from databuild_dagster.model.commands import BaseFact, FollowBase
from databuild_dagster.store.queries.instances import TaintLink

#: The actor of what the base did, in the log of an environment.
ACTOR: Final = "the base"
_NEWS_THERE = e.names_of(e.TaintCreated, e.TaintCanceled, e.CanonicalReverted, e.ManifestRemoved)
_NEWS_HERE = e.names_of(e.InstancesBorrowed)


@dataclass
class _Looked:
    """The ends of both logs at the last look of this process."""

    there: int
    here: int = 0


def follow(engine: Engine, base: Base) -> None:
    """Record what happened in the base to borrowed instances, in one command."""
    # All that a process borrows was good at the pin, so nothing before the pin is news.
    looked = engine.memory.of((_Looked, base.pin), lambda: _Looked(base.pin))
    there, has_news = base.news(_NEWS_THERE, looked.there)
    here, has_borrowed = engine.queries.events.news(_NEWS_HERE, looked.here)
    if has_news or has_borrowed:
        borrowed = {one.uuid: one for one in engine.queries.instances.borrowed()}
        links_there = base.taint_links(borrowed)
        links_here = engine.queries.instances.taint_links(borrowed) if links_there else []
        removals = base.removals(one.uuid for one in borrowed.values() if not one.is_removed)
        news = _Taints(links_there, links_here)
        gone = {uuid for removal in removals for uuid in removal.uuids}
        reverted = [
            e.CanonicalReverted(ref=borrowed[uuid].ref, uuid=uuid) for uuid in news.reverted if uuid not in gone
        ]
        # Removals before the ends of taints: an instance without data stays tainted.
        facts: tuple[BaseFact, ...] = (*news.created, *removals, *news.canceled, *reverted)
        if facts:
            engine.handle(FollowBase(facts=facts), actor=ACTOR)
    looked.there, looked.here = there.seq, here.seq


class _Taints:
    """How the taints of instances in the base differ from those in the environment that come from the base."""

    def __init__(self, there: list[TaintLink], here: list[TaintLink]) -> None:
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
        lifted, ended = self._lifted()
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
            )
            for taint_id, links in found.items()
        ]

    def _lifted(self) -> tuple[dict[str, set[str]], set[str]]:
        """The ids here of taints that an instance has there no more, by instance; and those that no instance has there."""
        acting = {link.taint_id for link in self._there.values() if link.is_in_force}
        lifted: dict[str, set[str]] = defaultdict(set)
        ended: set[str] = set()
        for pair, link in self._there.items():
            ids = set() if link.is_in_force else self._here.get(pair, set())
            if ids:
                lifted[link.uuid] |= ids
                ended |= set() if link.taint_id in acting else ids
        return lifted, ended
