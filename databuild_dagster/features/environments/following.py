"""What happened in the base to borrowed instances since the last look: taints, their ends, removals (rule 16.7).

A look compares the states in both logs, so that it needs no cursor in either: a process that is killed, and one that borrows an
instance while the base taints it, leave what they missed to the next look. A process looks again only after news in one of the logs.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from databuild_dagster.engine.engine import Engine
from databuild_dagster.features.environments.base import Base
from databuild_dagster.model import events as e
from databuild_dagster.model.commands import FollowBase

#: The actor of what the base did, in the log of an environment.
ACTOR: Final = "the base"
_NEWS_THERE = e.names_of(e.TaintCreated, e.TaintCanceled, e.CanonicalReverted, e.ManifestRemoved)
_NEWS_HERE = e.names_of(e.InstancesBorrowed)
_Fact = e.TaintCreated | e.TaintCanceled | e.CanonicalReverted | e.ManifestRemoved


@dataclass
class _Looked:
    """The ends of both logs at the last look of this process."""

    there: int
    here: int = 0


def follow(engine: Engine, base: Base) -> None:
    """Record what happened in the base to borrowed instances, in one command."""
    # All that a process borrows was good at the pin, so nothing before the pin is news.
    looked = engine.memory.of((_Looked, base.pin), lambda: _Looked(base.pin))
    there, has_news = base.queries.events.news(_NEWS_THERE, looked.there)
    here, has_borrowed = engine.queries.events.news(_NEWS_HERE, looked.here)
    if (has_news or has_borrowed) and (facts := _facts(engine, base)):
        engine.handle(FollowBase(facts=facts), actor=ACTOR)
    looked.there, looked.here = there.seq, here.seq


def _facts(engine: Engine, base: Base) -> tuple[_Fact, ...]:
    borrowed = {one.uuid: one for one in engine.queries.instances.borrowed()}
    there = {(link.uuid, link.taint_id): link for link in base.queries.instances.taint_links(borrowed)}
    removed = base.queries.instances.removed(one.uuid for one in borrowed.values() if not one.is_removed)
    facts: list[_Fact] = []
    if there:
        #: By instance and the base's id of a taint, the ids in force here.
        here: dict[tuple[str, str], set[str]] = defaultdict(set)
        carried: dict[str, set[str]] = defaultdict(set)
        for link in engine.queries.instances.taint_links(borrowed):
            is_whole = (link.uuid, link.taint_id) in there
            pair = link.uuid, link.taint_id if is_whole else link.taint_id.rpartition(".")[0]
            here[pair] |= {link.taint_id} if link.is_in_force else set()
            carried[link.uuid] |= here[pair]
        in_force = {taint_id for (_, taint_id), link in there.items() if link.is_in_force}
        new: dict[str, list[str]] = defaultdict(list)
        lifted: dict[str, set[str]] = defaultdict(set)
        ended: set[str] = set()
        for (uuid, taint_id), link in there.items():
            if link.is_in_force and (uuid, taint_id) not in here:
                new[taint_id].append(uuid)
            elif not link.is_in_force and (ids := here.get((uuid, taint_id))):
                lifted[uuid] |= ids
                ended |= ids if taint_id not in in_force else set()
        of = {taint_id: link for (_, taint_id), link in there.items()}
        facts += [
            e.TaintCreated(
                taint_id=taint_id,
                refs=(),
                reason=of[taint_id].reason,
                uuids=tuple(uuids),
                downstream=of[taint_id].downstream,
            )
            for taint_id, uuids in new.items()
        ]
        facts += [e.TaintCanceled(taint_id=taint_id) for taint_id in sorted(ended)]
        # A revert takes the taints of one instance, which others keep (rule 7.4).
        facts += [
            e.CanonicalReverted(ref=borrowed[uuid].ref, uuid=uuid)
            for uuid, ids in lifted.items()
            if ids - ended and ids == carried[uuid]
        ]
    return (*facts, *(_removals(base, removed) if removed else ()))


def _removals(base: Base, uuids: set[str]) -> Iterable[_Fact]:
    """The removals of instances, each with its reason."""
    for event in base.queries.events.named(e.names_of(e.ManifestRemoved), 0, base.queries.events.head().seq):
        if isinstance(event.fact, e.ManifestRemoved) and (ours := tuple(u for u in event.fact.uuids if u in uuids)):
            yield e.ManifestRemoved(uuids=ours, reason=event.fact.reason, erasure=event.fact.erasure)
