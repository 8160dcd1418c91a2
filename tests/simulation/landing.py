"""A landing folder, who drops files into it, and who watches it (rule 10.6). As `arrivals.watcher` does it, without files.

A file is a name and what it holds. A watcher lists the folder, asks the log what of it is recorded, and records the rest
as new instances of the lots, if those are still what it saw. Between any two of these it may die, and another may look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from databuild_dagster.model import commands as c
from databuild_dagster.model.errors import CanonicalMoved
from databuild_dagster.model.events import Arrival, CanonicalReverted, Event, LotArrived, ManifestFact
from databuild_dagster.model.refs import derive_partition_uuid
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.queries.canonical import Canonical

from .processes import Broken
from .scenario import Delivery

if TYPE_CHECKING:
    from .world import Member, World

WATCHER = "watcher"


@dataclass
class Landing:
    """What lies there by lot, and what each instance says that it has."""

    files: dict[str, dict[str, str]] = field(default_factory=dict)
    #: Instance's uuid to its files.
    manifests: dict[str, dict[str, str]] = field(default_factory=dict)


def deliver(me: Member, delivery: Delivery) -> None:
    """A sender, once; what it repeats is something that lies there."""
    lot = me.world.landing.files.setdefault(delivery.ref, {})
    new = f"file {delivery.number}"
    if delivery.what == "a file" or not lot:
        lot[new] = f"rows {delivery.number}"
    else:
        name = me.rng.choice(sorted(lot))
        match delivery.what:
            case "the same again":
                lot[name] = str(lot[name])
            case "a copy":
                lot[new] = lot[name]
            case "written again":
                lot[name] = f"rows {delivery.number}"
    me.tell(f"{delivery.what} lands for {delivery.ref}")


def supply(landing: Landing, ref: str, canonical: Canonical, when: str) -> None:
    """What has to come in the end, and other files if these were tainted."""
    lot = landing.files.get(ref, {})
    said_wrong = landing.manifests.get(canonical.uuid or "", {}).items() & lot.items()
    if canonical.state is not InstanceState.LIVE and (not lot or said_wrong):
        landing.files[ref] = {f"supplied at {when}": f"rows supplied at {when}"}


def watch(me: Member) -> None:
    """One watcher: it looks, and remembers nothing."""
    while True:
        _look(me)
        me.pause(me.rng.uniform(3.0, 12.0))


def _look(me: Member) -> None:
    world = me.world
    world.scheduler.step("before it lists the landing folder")
    world.port("the landing folder")
    listed = {ref: dict(files) for ref, files in sorted(world.landing.files.items())}
    canonical = me.queries.canonical.of(list(listed))
    news = {ref: files for ref, files in listed.items() if _mark(files) != (canonical[ref].known_origin or "")}
    if not news:
        return
    # To open them takes its time, and others go on.
    me.pause(me.rng.uniform(0.1, 10.0))
    world.scheduler.step("after it has seen files, and before it records them")
    grown = {ref: files for ref in news if (files := _grown(me, ref, news[ref], canonical[ref])) is not None}
    if not grown:
        return
    job_runs = {ref: me.engine.new_id() for ref in grown}
    for ref, files in grown.items():
        world.landing.manifests[derive_partition_uuid(job_runs[ref], ref)] = files
    world.scheduler.step("after it wrote manifests, and before it records them")
    arrivals = tuple(
        Arrival(job_run_id=job_runs[ref], ref=ref, origin=_mark(news[ref]), manifest=_manifest(files))
        for ref, files in grown.items()
    )
    try:
        me.engine.handle(c.ArriveLots(arrivals=arrivals, seen={ref: canonical[ref].uuid for ref in grown}))
    except CanonicalMoved:
        # Another one was faster; the next look sees what it did.
        return


def _grown(me: Member, ref: str, there: dict[str, str], now: Canonical) -> dict[str, str] | None:
    """`arrivals.arrival.grow`: the files of the lot's next instance, None where there is no news."""
    manifests, lies_there = me.world.landing.manifests, me.world.landing.files[ref]
    if not there.items() <= lies_there.items():
        return None  # A file that is gone, or was written again since it was listed, cannot be read as it was.
    instances = [manifests[instance.uuid] for instance in me.queries.instances.history(ref)]
    known = {identity for files in instances for identity in files.items()}
    unseen = {name: rows for name, rows in there.items() if (name, rows) not in known}
    if not unseen:
        return None
    listed = manifests.get(now.uuid or "", {})
    if now.state is InstanceState.LIVE or now.uuid is None:
        kept = {name: rows for name, rows in listed.items() if lies_there.get(name) == rows}
    elif listed.items() & there.items():
        return None  # What a taint has called wrong does not come back by itself.
    else:
        kept = {}
    grown = dict(kept)
    for name, rows in unseen.items():
        if rows not in grown.values():
            grown[name] = rows
    return None if grown == kept else grown


def _mark(files: dict[str, str]) -> str:
    return ", ".join(f"{name}: {rows}" for name, rows in sorted(files.items()))


def _manifest(files: dict[str, str]) -> ManifestFact:
    n = len(files)
    return ManifestFact(state="complete", uri="file:///landing", files=n, rows=10 * n, bytes=100 * n)


# What must hold


def unrecorded(world: World) -> list[str]:
    """Lots of which something that lies there is in no instance."""
    return [
        ref
        for ref, files in world.landing.files.items()
        if not set(files.values())
        <= {
            rows
            for at, listed, _ in _reports(world.onlooker.log, world.landing)
            if at == ref
            for rows in listed.values()
        }
    ]


def check_landed(world: World) -> None:
    """Nothing is forgotten, nothing counted twice, and no instance is recorded without news. Raises `Broken`."""
    for ref in unrecorded(world):
        raise Broken("arrival", f"{ref} lacks a file of {_mark(world.landing.files[ref])}")
    seen: dict[str, dict[str, str]] = {}
    for ref, listed, has_come in _reports(world.onlooker.log, world.landing):
        if len(set(listed.values())) < len(listed):
            raise Broken("arrival", f"{ref} has the same rows twice: {_mark(listed)}")
        # A file that was written again is left out; a copy of what it had before is news then.
        keeps_all = ref in seen and seen[ref].items() <= listed.items()
        if has_come and keeps_all and set(listed.values()) <= set(seen[ref].values()):
            raise Broken("arrival", f"{ref} got {_mark(listed)} without news, after {_mark(seen[ref])}")
        seen[ref] = listed
    reverted = {event.fact.ref for event in world.onlooker.log if isinstance(event.fact, CanonicalReverted)}
    for ref, canonical in world.queries.canonical.of(list(world.landing.files)).items():
        there, has = world.landing.files[ref], world.landing.manifests.get(canonical.uuid or "", {})
        if canonical.state is InstanceState.LIVE and ref not in reverted and set(has.values()) != set(there.values()):
            raise Broken("arrival", f"readers of {ref} see {_mark(has)}, and {_mark(there)} lies there")


def _reports(log: Iterable[Event], landing: Landing) -> Iterator[tuple[str, dict[str, str], bool]]:
    """What readers were given of lots, in the order of the log: ref, files, and whether it has come or was gone back to."""
    for event in log:
        match event.fact:
            case LotArrived(arrivals=arrivals):
                uuids = [(arrival.ref, derive_partition_uuid(arrival.job_run_id, arrival.ref)) for arrival in arrivals]
            case CanonicalReverted(ref=ref, uuid=uuid):
                uuids = [(ref, uuid)]
            case _:
                continue
        for ref, uuid in uuids:
            if uuid in landing.manifests:
                yield ref, landing.manifests[uuid], isinstance(event.fact, LotArrived)
