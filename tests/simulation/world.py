"""One storm over one store: who is there, what they share, and what must hold when it is over (rules 12)."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress

from databuild_dagster.engine.engine import Engine, Outcome
from databuild_dagster.engine.ports import Observation
from databuild_dagster.engine.publishing import published_by
from databuild_dagster.model import commands as c
from databuild_dagster.model.command_ids import bare
from databuild_dagster.model.datasets import ArcSpec, DatasetKind
from databuild_dagster.model.errors import MissingRow, NotPaused
from databuild_dagster.model.events import (
    ArcFired,
    Event,
    JobRunDepMissed,
    RunSuccess,
    WantCreated,
)
from databuild_dagster.model.operations.keys import OperationId
from databuild_dagster.model.operations.records import ended_of
from databuild_dagster.model.operations.states import OperationState
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.states import ARC, InstanceState
from databuild_dagster.model.surroundings import Surrounding
from databuild_dagster.model.wording import utf8
from databuild_dagster.store.backends.heartbeats import FileAside, Heartbeats
from databuild_dagster.store.format import PREFIX
from databuild_dagster.store.meta_storage import MetaQueries
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.queries.wants import WantFilter
from tests.support.arcs import fired_by
from tests.support.catalog import HERE
from tests.support.checking import violations
from tests.support.clock import NOON, Ids
from tests.support.ports import HandForeign

from .deploying import THERE, Definitions
from .landing import WATCHER, Landing, check_landed, supply, unrecorded
from .onlooker import Onlooker
from .processes import Broken, Crashed, Process, Scheduler, Turns
from .scenario import AWAY, STORM_SECONDS, Scenario
from .stepped import Deck, SteppedEngine
from .tainted import Tainted
from .truth import Answers
from .wording import happened, said

#: After the storm everything has to come to rest within this time: more than the backoffs and timeouts there are.
CALM_SECONDS = 1800.0
#: The invariants are asked after every so many commits, and at the end.
COMMITS_PER_LOOK = 10
#: `explain` is asked about one want after every so many.
COMMITS_PER_QUESTION = 4


class PortTrouble(Exception):
    """A call of a port raised. A tick has to survive it; every other process may fail of it."""


class Foreign(HandForeign):
    """`engine.ports.Foreign`, with trouble."""

    def __init__(self, asked: Callable[[str], None]) -> None:
        super().__init__()
        self._asked = asked

    def observe(self, refs: tuple[str, ...]) -> dict[str, Observation]:
        self._asked("the state of assets in Dagster")
        return super().observe(refs)


class Member:
    """A virtual process with an engine of its own, and a clock that may be wrong."""

    def __init__(self, world: World, process: Process, engine: SteppedEngine) -> None:
        self.world = world
        self.process = process
        self.engine = engine
        self.rng: random.Random = process.rng

    @property
    def name(self) -> str:
        return self.process.name

    @property
    def queries(self) -> Queries:
        return self.engine.queries

    def pause(self, seconds: float) -> None:
        self.world.scheduler.sleep(seconds)

    def tell(self, what: str) -> None:
        self.world.scheduler.tell(what)

    def happens(self, what: str, probability: float) -> bool:
        return self.world.scheduler.happens(what, probability)


class World:
    """What the members share: the file, the lock, time, ids, heartbeats, and what Dagster knows."""

    def __init__(self, scenario: Scenario, deck: Deck) -> None:
        deck.emptied()
        self.scenario = scenario
        self.deck = deck
        self.scheduler = Scheduler(scenario.seed, scenario.trouble, scenario.muted)
        self.catalog = Definitions({}, list(scenario.dynamic), asked=self.port)
        self.ids = Ids()
        self.heartbeats = Heartbeats(FileAside(None))
        self.foreign = Foreign(self.port)
        self.landing = Landing()
        #: Complete manifests, by the job run that wrote them.
        self.written: dict[str, RunSuccess] = {}
        self.onlooker = Onlooker(self.written)
        self._tainted = Tainted()
        self.lock = Turns(self.scheduler)
        self.queries = Queries(deck.onlooker)
        #: Every outcome that a caller heard of.
        self.answers: list[Outcome] = []
        self.machine_of: dict[str, str] = {}
        #: What jobs of operations have written: (operation, partition) to the tokens under which it lies there.
        self.lake: dict[tuple[str, str], set[str]] = {}
        #: Who started an operation, to the outcome that its completion code got; and operations, to who started them.
        self.completing: dict[str, bool] = {}
        self.names: dict[str, str] = {}
        self.n_executors = 0
        #: What each asset subscribed to at first, and the arcs that a deploy changed: those begin anywhere in the log.
        self._arcs: dict[str, object] = {}
        self.changed_arcs: set[str] = set()
        #: The code of each location, as the last deploy left it; a process has loaded it, or an earlier one.
        self.deployed = {location: scenario.of_location(location) for location in (HERE, THERE)}
        #: Refs that a want has named, and assets that have been registered.
        self.wanted: set[str] = set()
        self.assets: set[str] = set()
        #: Locations with an orchestrator that has begun a tick, and that has ended one.
        self.ticking: set[str] = set()
        self.ticked: set[str] = set()
        #: The errors of ports, as a tick records them.
        self.raised: set[str] = set()
        #: A row of the tables is missing: who meets it dies of the error, and records nothing.
        self.is_damaged = self.was_damaged = False
        self._n_commits = 0
        self._engine = Engine(
            deck.onlooker,
            # Knows the same definitions, and has no trouble.
            Definitions(self.catalog.datasets, self.catalog.dynamic),
            heartbeats=self.heartbeats,
            clock=lambda: self.scheduler.now,
            steady=lambda: self.scheduler.now,
            new_id=self.ids,
        )
        self.explained = Answers(self._engine, self)
        for location in (HERE, THERE):
            datasets = scenario.of_location(location)
            if self._engine.handle(c.RegisterDatasets(location=location, datasets=datasets), actor="the world").events:
                self.committed()

    def port(self, what: str) -> None:
        """A call of a port that a process of the storm makes."""
        process, mishaps = self.scheduler.current, self.scenario.mishaps
        if self.lock.is_mine():
            raise Broken("rule 3.3", f"{what} is asked for by the holder of the write lock")
        if process is None or self.scheduler.is_calm:
            return
        if mishaps.port_raises and self.scheduler.happens(f"{what} raises", mishaps.port_raises):
            self.scheduler.tell(f"asks for {what}, which raises")
            trouble = PortTrouble(f"{what} is away: caf\udce9")
            self.raised.add(f"PortTrouble: {utf8(str(trouble))}")
            raise trouble
        if mishaps.port_hangs and self.scheduler.happens(f"{what} hangs", mishaps.port_hangs):
            seconds = process.rng.uniform(40.0, 200.0)
            self.scheduler.tell(f"asks for {what}, which hangs for {seconds:.0f} s")
            self.scheduler.sleep(seconds)

    @property
    def refs(self) -> list[str]:
        """What people know: the refs of the beginning, and those that are registered now."""
        now = [ref for spec in self.catalog.datasets.values() for ref in self.catalog.refs_of(spec)]
        return list(dict.fromkeys([*self.scenario.refs, *now]))

    def start(self, name: str, main: Callable[[Member], None], *, after: float = 0.0) -> Process:
        store = self.deck.take()
        store.scheduler = self.scheduler
        store.committed = self.committed  # type: ignore[method-assign]
        store.database._lock = self.lock  # type: ignore[assignment]

        def body(process: Process) -> None:
            engine = SteppedEngine(
                store,
                self.catalog,
                scheduler=self.scheduler,
                process=process,
                heartbeats=self.heartbeats,
                new_id=self.ids,
                answered=self.answers.append,
                wording=lambda command: said(command, self.refs_of_job_run),
            )
            try:
                main(Member(self, process, engine))
            except PortTrouble as trouble:
                self.scheduler.tell(f"fails: {utf8(str(trouble))}")
            except MissingRow as met:
                if not self.was_damaged:
                    raise
                self.scheduler.tell(f"dies: {met.message}")
                raise Crashed from None

        process = self.scheduler.start(name, body, after=after)
        process.at_end.append(lambda crashed: self.deck.give_back(store))
        self.machine_of[name] = process.machine
        return process

    def gone(self, looker: Process) -> Callable[[str], bool]:
        """Whether a process is known to be gone: it can be proven on one's own machine only (`holders.surely_gone`)."""

        def is_gone(holder: str) -> bool:
            return self.machine_of.get(holder) == looker.machine and holder not in self.scheduler.processes

        return is_gone

    def refs_of_job_run(self, job_run_id: str) -> tuple[str, ...]:
        return self.onlooker.refs.get(job_run_id, (job_run_id,))

    def committed(self) -> None:
        """After each commit: the log continues, folds, and no lease is given twice."""
        events = self.deck.events_after(len(self.onlooker.log))
        for event in events:
            self.catalog.see(event)
            for spec in self.catalog.datasets.values():
                if self._arcs.setdefault(spec.asset, spec.arc) != spec.arc:
                    self.changed_arcs.add(spec.asset)
            self.assets.update(self.catalog.datasets)
            self._check_unbuildable(event)
            self.onlooker.see_refs(event)
            self.scheduler.tell(happened(event, self.refs_of_job_run))
        self.onlooker.see(events)
        self._tainted.see(events)
        self.deck.fold_on(events)
        self._n_commits += 1
        if self.is_damaged:
            return
        self._tainted.look(self.queries.canonical.of(self.refs))
        if self._n_commits % COMMITS_PER_LOOK == 0:
            self.check_invariants()
        if self._n_commits % COMMITS_PER_QUESTION == 0:
            self.explained.one()

    def _check_unbuildable(self, event: Event) -> None:
        """A dep miss does not fail a ref for good while every missing ref is only away (rule 6.3)."""
        match event.fact:
            case WantCreated(wants=wants):
                self.wanted.update(ref for want in wants for ref in want.refs)
            case JobRunDepMissed(misses=misses):
                for impact in [impact for miss in misses for impact in miss.impacted]:
                    if impact.verdict == "unbuildable" and all(map(self._may_come, impact.missing)):
                        raise Broken("rule 6.3", f"{impact.ref} failed: {impact.reason}")

    def _may_come(self, ref: str) -> bool:
        asset = asset_of(Ref(ref))
        is_away = asset in self.assets - self.catalog.datasets.keys()
        return is_away or ref in self.wanted or self.catalog.exists(ref)

    def check_invariants(self) -> None:
        with self.deck.onlooker.reading() as connection:
            for violation in violations(connection):
                raise Broken(violation.invariant, f"{violation.entity} {violation.detail}")

    # After the storm

    def storm(self) -> None:
        """Trouble, then calm until nothing is left to do, then everything that must hold."""
        self.scheduler.run_until(NOON + STORM_SECONDS)
        self.scheduler.is_calm = True
        while self.is_damaged:
            self.scheduler.run_until(self.scheduler.now + 1)
        self.scheduler.tell("trouble ends; from now on every job succeeds", who="the world")
        self._come_to_rest()
        if self._resume() or self.scenario.has_deploys:
            self._put_the_code_back()
            self._come_to_rest()
        self.check()

    def _come_to_rest(self) -> None:
        until = self.scheduler.now + CALM_SECONDS
        while not self.is_at_rest():
            self._supply()
            if self.scheduler.now > until:
                raise Broken("I11", f"after {CALM_SECONDS:.0f} s of calm there is still {self._what_is_open()}")
            self.scheduler.run_until(self.scheduler.now + 15)

    def _resume(self) -> bool:
        """All pauses end; whether there were any."""
        assets = sorted(
            {asset_of(pause.ref) for pause in self._engine.queries.planning.pauses_in_force(self._engine.now())}
        )
        self._do([c.ResumePartitions(refs=(Ref(asset),)) for asset in assets])
        return bool(assets)

    def _put_the_code_back(self) -> None:
        """The definitions are those of the beginning: what waits for one of them goes on."""
        self.scheduler.tell("the code and the keys are those of the beginning again", who="the world")
        self.catalog.dynamic[:] = self.scenario.dynamic
        self.deployed = {location: self.scenario.of_location(location) for location in (HERE, THERE)}
        original = {spec.asset: spec for spec in self.scenario.of_location(HERE)}
        present = {asset: spec for asset, spec in self.catalog.datasets.items() if spec.location == HERE}
        # In two steps: a location whose assets are all others is taken for another one of that name.
        codes = (
            (THERE, self.scenario.of_location(THERE)),
            (HERE, {**present, **original}.values()),
            (HERE, original.values()),
        )
        self._do([c.RegisterDatasets(location=location, datasets=tuple(specs)) for location, specs in codes])

    def _do(self, commands: Iterable[c.Command]) -> None:
        """By a process of its own, because another one may be in a transaction; a pause may end meanwhile."""

        def main(me: Member) -> None:
            for command in commands:
                with suppress(NotPaused):
                    me.engine.handle(command)

        process = self.start("the world", main)
        while not process.is_dead:
            self.scheduler.run_until(self.scheduler.now + 1)

    def _supply(self) -> None:
        """What comes from outside comes in the end, and again if it was tainted."""
        sources = [spec for spec in self.catalog.datasets.values() if spec.kind is DatasetKind.SOURCE]
        refs = [ref for spec in sources for ref in self.catalog.refs_of(spec)]
        for ref, canonical in self.queries.canonical.of(refs).items():
            # After a revert, the last that came is no longer canonical, and it is news to nobody.
            known = {None, *(instance.origin for instance in self.queries.instances.history(ref))}
            if canonical.state is not InstanceState.LIVE and self.foreign.origins.get(ref) in known:
                self.foreign.materialize(ref, f"came at {self.scheduler.now - NOON:.0f} s")
        for ref, canonical in self.queries.canonical.of(self.scenario.landed).items():
            supply(self.landing, ref, canonical, f"{self.scheduler.now - NOON:.0f} s")

    def is_at_rest(self) -> bool:
        """Only orchestrators are there, they have nothing to do but what `explain` says is impossible, and no one waits."""
        busy = any(not name.startswith(("orchestrator", WATCHER)) for name in self.scheduler.processes)
        if busy or self.queries.launches.open() or self._unfired() or unrecorded(self) or self._operating():
            return False
        wants = self.queries.wants.newest(WantFilter(open_only=True))
        return self.explained.are_blocked(wants) and not self._waiting()

    def _what_is_open(self) -> str:
        wants = [
            f"a want for {', '.join(w.refs)} ({w.state.value}, {w.source})"
            for w in self.queries.wants.newest(WantFilter(open_only=True))
        ]
        launches = [f"a launch of {launch.job}" for launch in self.queries.launches.open()]
        others = [name for name in self.scheduler.processes if not name.startswith(("orchestrator", WATCHER))]
        states = {ref: str(state) for ref, state in self.queries.canonical.states(self.refs).items()}
        waiting = [f"{requester} said to wait for {ref}" for requester, ref, _ in self._waiting()]
        operations = [f"{key} of an operation" for key in self._operating()[:5]]
        unfired = [f"{arc} was not woken by {uuid}" for arc, uuid in self._unfired()]
        landed = [f"{ref} has files that were not recorded" for ref in unrecorded(self)]
        answer = [*wants, *launches, *others, *waiting, *unfired, *landed, *operations]
        return f"{'; '.join(answer)}, with {states}"

    def _operating(self) -> list[str]:
        """Keys of operations that run, or that were not cleaned up after (rule 9.6)."""
        meta = MetaQueries(self.deck.onlooker)
        under = [entry.key for entry in meta.prefix("distOp.").entries if not entry.key.endswith(".nextInstanceId")]
        return under + [entry.key for kind in ("Unclean", "Start") for entry in meta.prefix(f"distOp{kind}.").entries]

    def _check_operations(self) -> None:
        """What succeeded lies there, written by who was believed; and the completion code got the true outcome."""
        for entry in MetaQueries(self.deck.onlooker).prefix("distOpHistory.").entries:
            name = entry.key.removeprefix("distOpHistory.")
            ended = ended_of(OperationId.parse(name), entry.value or b"")
            if ended.outcome is not OperationState.CANCELED:
                if any(f.operation is None and not f.refused for f in ended.follow_ups):
                    raise Broken("follow-up", f"{name} has a follow-up that was neither started nor refused")
                heard = self.completing.get(ended.arg.arg["name"])
                if heard is not (ended.outcome is OperationState.SUCCESS):
                    raise Broken("completion", f"{name} ended {ended.outcome.value}, its code heard {heard}")
            for (operation, partition), tokens in self.lake.items():
                token = self.onlooker.marks.tokens.get(f"distOp.{name}.{partition}")
                if operation == name and token is None and tokens:
                    raise Broken("left behind", f"{name} has ended, and of {partition} there still is {tokens}")
                if operation == name and ended.outcome is OperationState.SUCCESS and token not in tokens:
                    raise Broken("lost work", f"{name}: what {token} wrote of {partition} is gone")

    def _unfired(self) -> list[tuple[str, str]]:
        """(arc, source instance) of what became live and has not woken who subscribes to it (rule 10.5).

        Equal rows wake only lots that have none yet (rule 4.8).
        """
        published = [
            item
            for event in self.onlooker.log
            for item in published_by(event)
            if not self._tainted.has_rows_of_before(item.uuid)
        ]
        found = []
        for spec in self.scenario.datasets:
            registered = self.catalog.datasets.get(spec.asset)
            is_in_force = registered is not None and registered.arc == spec.arc
            if isinstance(spec.arc, ArcSpec) and is_in_force and spec.asset not in self.changed_arcs:
                sources = {source.asset for source in spec.arc.sources}
                fired = set(fired_by(self.deck.onlooker, spec.asset))
                found += [
                    (spec.asset, instance.uuid)
                    for instance in published
                    if instance.dataset in sources and instance.uuid not in fired
                ]
        return found

    def _fired_twice(self) -> list[tuple[str, str]]:
        """(arc, source instance) that the log has more than once."""
        facts = [event.fact for event in self.onlooker.log if isinstance(event.fact, ArcFired)]
        times = Counter((firing.arc, firing.source) for fact in facts for firing in fact.firings)
        return [time for time, n in times.items() if n > 1]

    def _fired_without_a_want(self) -> list[tuple[str, str]]:
        """(lot, source instance) that an arc was woken for without a want of the arc's for the lot with half of its TTL left."""
        facts = [(event.at, event.fact) for event in self.onlooker.log]
        #: The times at which each lot was wanted. The events of one command have one time.
        wanted: dict[str, list[float]] = defaultdict(list)
        for at, fact in facts:
            if isinstance(fact, WantCreated) and fact.source == ARC:
                for want in fact.wants:
                    wanted[want.refs[0]].append(at)
        fired = [(at, firing) for at, fact in facts if isinstance(fact, ArcFired) for firing in fact.firings]
        half = c.DEFAULT_TTL_SECONDS / 2
        return [
            (lot, firing.source)
            for at, firing in fired
            for lot in firing.lots
            if not any(at - half <= wanted_at <= at for wanted_at in wanted[lot])
        ]

    def check(self) -> None:
        self.check_invariants()
        for difference in self.deck.differences():
            raise Broken("I5", difference)
        by_seq = {event.seq: event for event in self.onlooker.log}
        for outcome in self.answers:
            for event in outcome.events:
                if by_seq.get(event.seq) != event:
                    raise Broken("lost command", f"{event} was acknowledged and is not in the log")
        last_of: dict[str, int] = {}
        for event in self.onlooker.log:
            command_id = bare(event.command_id)
            if last_of.setdefault(command_id, event.seq - 1) != event.seq - 1:
                raise Broken("acted twice", f"command {command_id} did something again at seq {event.seq}")
            last_of[command_id] = event.seq
        for job_run_id in self.onlooker.succeeded - self.written.keys():
            raise Broken("lost data", f"{job_run_id} succeeded, and what it wrote was removed")
        for arc, uuid in self._fired_twice():
            raise Broken("arc", f"{arc} was woken by {uuid} more than once")
        for lot, uuid in self._fired_without_a_want():
            raise Broken("arc", f"{lot} was to be wanted because of {uuid}, and is not")
        for ref, canonical in self.queries.canonical.of(self.refs).items():
            if canonical.state is InstanceState.FAILED and canonical.reason == AWAY:
                raise Broken("outage", f"{ref} failed, because something was away that came back")
        check_landed(self)
        self._check_operations()
        for requester, ref, state in self._waiting():
            raise Broken("delegation", f"{requester} waits for {ref}, which is {state}")

    def is_away(self, what: Surrounding) -> bool:
        """Whether a probe of it fails now (rule 6.17)."""
        now = self.scheduler.now - NOON
        return not self.scheduler.is_calm and any(
            outage.what is what and outage.after <= now < outage.after + outage.lasts
            for outage in self.scenario.outages
        )

    def _waiting(self) -> list[tuple[str, str, str | None]]:
        """(requester, ref, the ref's state) of each delegation that has not ended (rule 8.3), but for what is blocked."""
        with self.deck.onlooker.reading() as connection:
            found = connection.execute(
                f"""SELECT d.requester, r.ref, r.state FROM {PREFIX}delegations d
                JOIN {PREFIX}refs r ON r.id = d.ref_id WHERE d.outcome = 'waiting'"""
            ).fetchall()
        return [waiting for waiting in found if waiting[1] not in self.explained.blocked]
