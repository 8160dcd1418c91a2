"""Looks at a log after each commit, and says what must not be: in the base, in an environment, and between them (rules 16).

It reads the events and the pointers of readers. What it knows of the other log it has seen itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from databuild_dagster.data.environment import RECORDS
from databuild_dagster.engine.why.explain import Cause
from databuild_dagster.features.environments.records import given_uuids, opened_in, opening_of
from databuild_dagster.model import commands as c
from databuild_dagster.model import events as e
from databuild_dagster.model.refs import Ref, asset_of, derive_partition_uuid
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store import log
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.queries.wants import WantFilter, WantView
from databuild_dagster.store.store import Store
from databuild_dagster.warehouse.layout import Warehouse
from tests.support.checking import check, violations

from .processes import Broken

if TYPE_CHECKING:
    from .two_stores import World

BASE = "the base"
REFS = [Ref(f"{asset}@{key}") for key in ("x", "y") for asset in ("raw", "clean", "other", "report")]
LIVE, TAINTED = InstanceState.LIVE, InstanceState.TAINTED
#: Commands of people that record something in the base about an environment.
_RECORDING = ("create", "refresh", "drop", "promote", "some")


#: The invariants of a log are asked after every so many commits, and at the end.
LOOKS_PER_CHECK = 10


class Watch:
    """One log."""

    def __init__(self, world: World, where: str, store: Store) -> None:
        self.world, self.where, self.store = world, where, store
        self.inode = os.stat(str(store.path)).st_ino
        self.queries = Queries(self.store)
        self.seq = 0
        self.changed_at = world.scheduler.now
        self.now: dict[Ref, Canonical] = {}
        #: The canonical instances after each look, with the last event by then.
        self._snapshots: list[tuple[int, dict[Ref, Canonical]]] = []
        self._events: list[e.Event] = []
        #: The inputs of each instance as its maker said; raw data has none.
        self.inputs: dict[str, dict[Ref, str]] = {}
        #: Instances of other files with the same rows, each with the instance whose rows they are.
        self.same: dict[str, str] = {}
        #: Instances without rows that were erased; instances whose data was removed, and those whose data `erase` removed.
        self.erased: set[str] = set()
        self.removed: set[str] = set()
        self.cleared: set[str] = set()
        #: The pin of the environment when the build of an instance was recorded.
        self.pinned: dict[str, int] = {}
        self._n_looks = 0
        self._was: dict[str, InstanceState] = {}
        #: Who canceled a taint, and who reverted to an instance.
        self._canceled: dict[str, str] = {}
        self._reverted: dict[str, str] = {}

    @property
    def _base(self) -> Watch:
        return self.world.watches[BASE]

    # After a commit

    def news(self) -> list[e.Event]:
        """The events since the last look."""
        with self.store.reading() as connection:
            self._events = log.events_after(connection, self.seq, 100_000)
        return self._events

    def look(self, who: str, command: c.Command | None) -> bool:
        """After the events of `news`: take them in, and check. Whether a clean-up, or a change of a pointer, was among them."""
        events = self._events
        if not events:
            return False
        before = self.now
        self.seq, self.changed_at = events[-1].seq, self.world.scheduler.now
        self.now = self.queries.canonical.of(REFS)
        for event in events:
            self._take_in(event)
        self._check_pointers(before, events)
        self._check_ends_of_taints(events)
        if self.where == BASE:
            self._check_writer(who, events)
            for event in events:
                if isinstance(event.fact, e.InstancesPromoted):
                    assert isinstance(command, c.PromoteInstances)
                    self._check_promotion(command, event.fact, before)
        else:
            for event in events:
                if isinstance(event.fact, e.InstancesBorrowed):
                    self._check_borrowed(event.fact)
        self._snapshots.append((self.seq, self.now))
        self._n_looks += 1
        if self._n_looks % LOOKS_PER_CHECK == 0:
            self.check_invariants()
        return self.now != before or any(isinstance(event.fact, e.RemovalFinished | e.MetaInvoked) for event in events)

    def _take_in(self, event: e.Event) -> None:
        match event.fact:
            case e.JobRunBuffered(runs=runs) if self.where != BASE:
                opening = opening_of(self.store)
                pin = 0 if opening is None else opening.pin
                self.pinned |= {derive_partition_uuid(run.job_run_id, ref): pin for run in runs for ref in run.refs}
            case e.JobRunSucceeded(runs=runs):
                for run in runs:
                    for output in run.outputs:
                        self.inputs[derive_partition_uuid(run.job_run_id, output.ref)] = output.inputs
            case e.LotArrived(arrivals=arrivals):
                for arrival in arrivals:
                    uuid = derive_partition_uuid(arrival.job_run_id, arrival.ref)
                    how, _, of = arrival.origin.partition(":")
                    self.inputs[uuid] = self.inputs.get(of, {})
                    if of:
                        self.same[uuid] = of
                        self.pinned[uuid] = self.pinned.get(of, 0)
                    if how == "erased":
                        self.erased.add(uuid)
            case e.InstancesPromoted(births=births) | e.InstancesBorrowed(births=births):
                for birth in births:
                    self.inputs[derive_partition_uuid(birth.job_run_id, birth.ref)] = birth.inputs
            case e.ManifestRemoved(uuids=uuids, erasure=erasure):
                self.removed.update(uuids)
                self.cleared.update(uuids if erasure is not None else ())
            case e.TaintCanceled(taint_id=taint_id):
                self._canceled[taint_id] = event.actor
            case e.CanonicalReverted(uuid=uuid):
                self._reverted[uuid] = event.actor

    def at(self, seq: int) -> dict[Ref, Canonical]:
        """The canonical instances at an event."""
        return next((found for at, found in reversed(self._snapshots) if at <= seq), {})

    def _check_pointers(self, before: dict[Ref, Canonical], events: Sequence[e.Event]) -> None:
        """A pointer moves by an event that names its ref."""
        named = {ref for event in events for ref in _refs_of(event.fact)}
        for ref, one in self.now.items():
            if before and before[ref].uuid != one.uuid and ref not in named:
                raise Broken("pointer", f"{ref} of {self.where} moved, and no event names it")

    def _check_ends_of_taints(self, events: Sequence[e.Event]) -> None:
        """What was tainted is live again because a person, or the base, or equal code ended the taint."""
        ends = (e.TaintCanceled, e.CanonicalReverted, e.InstancesReturned)
        for ref, one in self.now.items():
            uuid = str(one.uuid)
            if one.uuid is not None and one.state is LIVE:
                if uuid in self.removed:
                    raise Broken("removed", f"{ref} of {self.where} is live, and its data was removed")
                if self._was.get(uuid) is TAINTED and not any(isinstance(event.fact, ends) for event in events):
                    raise Broken("taint", f"{ref} of {self.where} is live again without a build or a person")
            if one.uuid is not None and one.state is not None:
                self._was[uuid] = one.state

    # The base

    def _check_writer(self, who: str, events: Sequence[e.Event]) -> None:
        """An environment writes nothing into its base but what its own commands record about it, and a promotion."""
        if BASE in who or who in ("the world", "supplier", "resumer"):
            return
        is_command = who.startswith(_RECORDING)
        for event in events:
            is_record = isinstance(event.fact, e.MetaInvoked) and all(
                key.startswith((RECORDS, "given/")) for key in (*event.fact.puts, *event.fact.removed)
            )
            is_promotion = isinstance(event.fact, e.InstancesPromoted) and who.startswith(("promote", "some"))
            if not (is_command and (is_record or is_promotion)):
                raise Broken("base", f"{who} recorded {type(event.fact).__name__} in the base")

    def _check_promotion(
        self, command: c.PromoteInstances, fact: e.InstancesPromoted, before: dict[Ref, Canonical]
    ) -> None:
        """Whole, given before, of live instances, on what the base has, over what the environment saw."""
        own = self.world.watch(command.environment)
        opened = opened_in(self.store).get(command.environment)
        assert own is not None
        assert opened is not None
        if opened.is_closing:
            raise Broken("promotion", f"{command.environment} is being removed")
        given = given_uuids(own.store)
        uuids = {birth.ref: derive_partition_uuid(birth.job_run_id, birth.ref) for birth in command.instances}
        for birth in command.instances:
            ref, uuid = birth.ref, uuids[birth.ref]
            if (self.now[ref].uuid, self.now[ref].state) != (uuid, LIVE):
                raise Broken("promotion", f"it is not whole: {ref} is {self.now[ref].state}")
            if (before[ref].uuid, before[ref].state) == (uuid, LIVE):
                continue
            if uuid not in given:
                raise Broken("promotion", f"{ref} was taken and not given")
            if self._was_never_live(own, ref, uuid):
                raise Broken("promotion", f"{ref} was taken, and was never live in the environment")
            if (why := self._why_not_moved(command, own, ref, uuid, before[ref])) is not None:
                raise Broken("promotion", f"{ref} was taken, and {why}")
            for used, of in birth.inputs.items():
                if (self.now[used].uuid, self.now[used].state) != (of, LIVE):
                    raise Broken("promotion", f"{ref} was taken without its input {used}")
            spec = self.queries.datasets.get(asset_of(ref))
            if spec is None or not (command.ahead or spec.is_of_this_code(birth.code_version, birth.code)):
                raise Broken("promotion", f"{ref} was taken, and its code is other code")

    def _was_never_live(self, own: Watch, ref: Ref, uuid: str) -> bool:
        return not any((found[ref].uuid, found[ref].state) == (uuid, LIVE) for _, found in own._snapshots)

    def _why_not_moved(
        self, command: c.PromoteInstances, own: Watch, ref: Ref, uuid: str, before: Canonical
    ) -> str | None:
        """Why the base must not take an instance in the place of the instance that it had before."""
        if before.uuid == uuid:
            return "the base had tainted it" if before.state is TAINTED else None
        if uuid in self.removed:
            return "the base had removed its data"
        if self.queries.instances.taints_in_force([uuid]):
            return "the base has a taint on it"
        opening = opening_of(own.store)
        assert opening is not None
        built = self.at(own.pinned.get(uuid, opening.pin))
        if built and built[ref].uuid != before.uuid:
            return "the base had a different instance when it was built"
        seen = self.at(opening.pin)
        if seen and (seen[ref].uuid, seen[ref].state) != (before.uuid, before.state):
            return f"the instance of the base was {seen[ref].state} at the pin, and was {before.state}"
        return None

    # An environment

    def _check_borrowed(self, fact: e.InstancesBorrowed) -> None:
        """Every borrowed edge is true in the log of the base, up to other files of the same rows."""
        opening = opening_of(self.store)
        assert opening is not None
        seen = self._base.at(opening.pin)
        for birth in fact.births:
            uuid = derive_partition_uuid(birth.job_run_id, birth.ref)
            if (seen[birth.ref].uuid, seen[birth.ref].state) != (uuid, LIVE):
                raise Broken("borrowed", f"{birth.ref} was not live in the base at the pin")
            there = self._base.inputs[uuid]
            if birth.inputs.keys() != there.keys():
                raise Broken("borrowed", f"{birth.ref} has the inputs {sorted(birth.inputs)} and not {sorted(there)}")
            for used, of in birth.inputs.items():
                if self._rows_of(of) != self._rows_of(there[used]):
                    raise Broken("borrowed", f"the input {used} of {birth.ref} has other rows than in the base")

    def _rows_of(self, uuid: str) -> str:
        """The first instance with these rows."""
        own, base = self.same, self._base.same
        while uuid not in self.erased | self._base.erased and (before := own.get(uuid) or base.get(uuid)):
            uuid = before
        return uuid

    def bad_in_base(self) -> tuple[dict[str, set[str]], set[str]]:
        """The instances of this log that the base has tainted, with the taints, and those whose data it has removed."""
        uuids = [one.uuid for one in self.now.values() if one.uuid is not None]
        links = self._base.queries.instances.taint_links(uuids)
        found: dict[str, set[str]] = {}
        for link in links:
            if link.is_in_force:
                found.setdefault(link.uuid, set()).add(link.taint_id)
        return found, {uuid for uuid in uuids if uuid in self._base.removed}

    def check_followed(self, before: tuple[dict[str, set[str]], set[str]]) -> None:
        """After a look at the base, no instance is live that was bad in the base before the look and is bad still."""
        tainted, removed = self.bad_in_base()
        for ref, one in self.now.items():
            uuid = str(one.uuid)
            if one.state is not LIVE or one.uuid is None:
                continue
            if uuid in before[1] & removed:
                raise Broken("followed", f"{ref} of {self.where} is live, and the base has removed its data")
            for taint_id in before[0].get(uuid, set()) & tainted.get(uuid, set()):
                if not self._is_pardoned(uuid, taint_id):
                    raise Broken("followed", f"{ref} of {self.where} is live, and the base has tainted it")

    def _is_pardoned(self, uuid: str, taint_id: str) -> bool:
        """Whether a person ended the taint here."""
        ids = [name for name in self._canceled if name == taint_id or name.startswith(f"{taint_id}.")]
        return any(self._canceled[name] != BASE for name in ids) or self._reverted.get(uuid, BASE) != BASE

    # Files

    def check_files(self) -> None:
        """Neither clean-up removes what the other can read."""
        opened = None
        if self.where != BASE:
            opened = opened_in(self._base.store).get(self.where)
            opening = opening_of(self.store)
            if opened is None or opened.is_closing or opening is None or opening.id != opened.id:
                return
            for ref, one in self._base.at(opening.pin).items():
                if one.state is LIVE and (why := self._why_lost(one)) is not None:
                    raise Broken("files", f"{ref}, which {self.where} sees at its pin: {why}")
        for ref, one in self.now.items():
            if one.state is LIVE and (why := self._why_lost(one)) is not None:
                raise Broken("files", f"{ref}, which is live in {self.where}: {why}")

    def why_unreadable(self, one: Canonical) -> str | None:
        """Why a job cannot read an instance, which was neither erased nor is of an environment that goes."""
        if self.where != BASE:
            opened = opened_in(self._base.store).get(self.where)
            if opened is None or opened.is_closing:
                return None
        return self._why_lost(one)

    def _why_lost(self, one: Canonical) -> str | None:
        if one.manifest_uri is None or one.manifest_state == REMOVED:
            return None
        uuid = str(one.uuid)
        # `erase` waits for nobody.
        if uuid in self._base.cleared or uuid in self.cleared:
            return None
        folder = Warehouse.of_manifest(one.manifest_uri, asset_of(one.ref)).instance_dir(asset_of(one.ref), uuid)
        missing = [name for name in ("rows.parquet", "manifest.json") if not os.path.exists(f"{folder}/{name}")]
        return f"{missing[0]} of {uuid} is gone" if missing else None

    # The end

    def open_wants(self) -> list[WantView]:
        return self.queries.wants.newest(WantFilter(open_only=True))

    def is_out_of_reach(self, causes: Iterable[Cause]) -> bool:
        """Whether no cause says that the next tick acts; an environment that is being removed has no ticks."""
        opened = opened_in(self._base.store).get(self.where)
        return opened is None or opened.is_closing or not any("the next tick" in cause.why for cause in causes)

    def check_invariants(self) -> None:
        with self.store.reading() as connection:
            for violation in violations(connection):
                raise Broken(violation.invariant, f"{self.where}: {violation.entity} {violation.detail}")

    def check_fold(self) -> None:
        for violation in check(self.store):
            raise Broken(violation.invariant, f"{self.where}: {violation.entity} {violation.detail}")


def _refs_of(fact: e.Fact) -> list[Ref]:
    """The refs whose pointers an event may move."""
    match fact:
        case e.JobRunSucceeded(runs=runs):
            return [output.ref for run in runs for output in run.outputs]
        case e.JobRunBuffered(runs=runs):
            return [ref for run in runs for ref in run.refs]
        case e.LotArrived(arrivals=arrivals):
            return [arrival.ref for arrival in arrivals]
        case e.CanonicalReverted(ref=ref):
            return [ref]
        case e.InstancesPromoted(births=births, returns=returns):
            return [one.ref for one in (*births, *returns)]
        case e.InstancesBorrowed(births=births):
            return [one.ref for one in births]
        case e.InstancesReturned(returns=returns):
            return [one.ref for one in returns]
    return []
