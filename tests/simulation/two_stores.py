"""A storm over a base and its environments: two stores, whose commands stop at every use of either (rules 16).

The base, its environments, their homes, files and records are real. Only time, processes and Dagster are simulated, and a job
writes a file of four bytes. `Watch` reads both logs after each commit, and says what must not be.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import cast
from unittest.mock import patch

from databuild_dagster.data.environment import environment_of, home_of
from databuild_dagster.data.home import DATABASE_NAME, sqlite_url
from databuild_dagster.engine import log_time
from databuild_dagster.engine.engine import Engine, Outcome
from databuild_dagster.engine.judge import Judge
from databuild_dagster.engine.ports import DagsterRunState, DagsterRunStatus, Foreign, LaunchOrder
from databuild_dagster.engine.tick import tick
from databuild_dagster.engine.tick_pass import Pass
from databuild_dagster.engine.why.explain import explain
from databuild_dagster.features.clean.cleaning import Cleaner, CleaningPlan, PlannedRemoval
from databuild_dagster.features.environments import base as base_module
from databuild_dagster.features.environments import errors as errors_here
from databuild_dagster.features.environments.borrowing import provide
from databuild_dagster.features.environments.environments import Environments
from databuild_dagster.features.environments.errors import NothingBuilt
from databuild_dagster.features.environments.keeping import Given, Pins
from databuild_dagster.features.environments.promoting import promote
from databuild_dagster.model import commands as c
from databuild_dagster.model import errors as errors_of_model
from databuild_dagster.model.datasets import Catalog, CodeSpec, DatasetSpec
from databuild_dagster.model.errors import AlreadyStarted, DatabuildError, JobRunEnded, StaleJobRun
from databuild_dagster.model.events import Arrival, Erasure, MadeWith, ManifestFact, OutputFact, RunSuccess
from databuild_dagster.model.refs import Ref, asset_of, derive_partition_uuid, partition_key_of
from databuild_dagster.model.removals import Reason
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.backends.heartbeats import FileAside, Heartbeats
from databuild_dagster.store.format import PREFIX
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.store import Store
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import FileEntry, TableSchema, manifest_fact, write_manifest
from tests.features.environments.conftest import RAW, coded
from tests.support.catalog import HERE, SmallCatalog
from tests.support.clock import NOON, Ids
from tests.support.parquet_rows import make_manifest
from tests.support.ports import HandForeign

from .processes import Broken, Process, Scheduler, Trouble, Turns
from .shrinking import smallest, without_some
from .simulate import Failure, Result
from .stepped import TABLES, SteppedStore
from .two_stores_watch import BASE, REFS, Watch
from .wording import happened, said

#: Deeds come within this time; then trouble ends.
STORM_SECONDS = 240.0
#: Within this time of calm, everything that can be built is.
CALM_SECONDS = 900.0
#: Who promotes.
PERSON = "user:kate"
#: Where files cost no disk.
MEMORY = "/dev/shm"
#: How many stories end with a second fold of each log.
FOLDED = 0.1
#: Simulations that the shrinking of a story may cost.
MOST_RUNS = 150
#: Of each ref, its inputs; the functions of a branch have other code.
INPUTS = {"clean": ("raw",), "other": ("raw",), "report": ("clean", "other")}
#: What people do in the base, and in an environment; a deed that is named more often happens more often.
IN_BASE = [
    "arrive",
    "arrive",
    "taint",
    "taint",
    "untaint",
    "revert",
    "want",
    "rebuild",
    "compact",
    "erase",
    "gc",
    "gc",
    "pause",
    "deploy",
]
IN_ENVIRONMENT = [
    "want",
    "want",
    "want",
    "taint",
    "untaint",
    "revert",
    "rebuild",
    "compact",
    "erase",
    "gc",
    "refresh",
    "refresh",
    "promote",
    "promote",
    "promote",
    "some",
    "drop",
    "deploy",
]


@dataclass(frozen=True)
class Deed:
    """What a person does, once."""

    number: int
    what: str
    #: The base, or the name of an environment.
    where: str
    after: float

    @property
    def name(self) -> str:
        return f"{self.what} {self.number} in {self.where}"


@dataclass(frozen=True)
class Story:
    """A seed, and what is left of its story."""

    seed: int
    deeds: tuple[Deed, ...]
    trouble: Trouble
    muted: frozenset[str] = frozenset()


def story_of(seed: int) -> Story:
    rng = random.Random(f"two stores {seed}")
    names = ["one", "two"][: 1 + (rng.random() < 0.4)]
    deeds = [Deed(number, "create", name, rng.uniform(0.0, 10.0)) for number, name in enumerate(names)]
    deeds += [Deed(10 + number, "want", name, rng.uniform(10.0, 60.0)) for number, name in enumerate(names)]
    for number in range(20, 20 + rng.randint(6, 18)):
        where = rng.choice([BASE, *names, *names])
        what = rng.choice(IN_BASE if where == BASE else IN_ENVIRONMENT)
        deeds.append(Deed(number, what, where, rng.uniform(5.0, STORM_SECONDS)))
    # After a drop the name is used again.
    again = [
        replace(one, number=100 + one.number, what="create", after=one.after + 30)
        for one in deeds
        if one.what == "drop"
    ]
    is_hostile = rng.random() < 0.7
    trouble = Trouble(
        crash=rng.choice([0.0, 0.002, 0.01]) * is_hostile,
        blackout=rng.choice([0.0, 0.0005]) * is_hostile,
        delay=rng.choice([0.0, 0.02, 0.1]) * is_hostile,
        freeze=rng.choice([0.0, 0.005]) * is_hostile,
        jump=rng.choice([0.0, 0.005]) * is_hostile,
        skew_seconds=rng.choice([0.0, 30.0]) * is_hostile,
    )
    return Story(seed, tuple(sorted((*deeds, *again), key=lambda deed: deed.after)), trouble)


class _Store(SteppedStore):
    """A connection that goes on to the next process: what it has compiled is kept."""

    world: World | None = None

    def close(self) -> None:
        if self.world is None:
            super().close()
        else:
            self.world.give_back(self)


class _BaseStore(base_module._BaseStore, _Store):
    """The store of a base as an environment opens it, stopping too."""


#: Connections by their class and file.
Free = dict[tuple[type[_Store], str, int], list[_Store]]


class _Lock(Turns):
    """The write lock of a store, without a file."""

    def give_back_reserve(self) -> None:
        """There is none."""


class StoryEngine(Engine):
    """Tells the story."""

    world: World

    def handle(self, command: c.Command, *, command_id: str | None = None, actor: str = "databuild") -> Outcome:
        world = self.world
        world.asked[world.scheduler.current] = command
        try:
            return super().handle(command, command_id=command_id, actor=actor)
        except DatabuildError as refused:
            world.scheduler.tell(f"{said(command, world.refs_of)} is refused: {refused.message}")
            raise
        finally:
            world.asked.pop(world.scheduler.current, None)


class Place:
    """A folder with a base in which everything is built, copied for each story."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(
            prefix="databuild-two-stores-", dir=MEMORY if os.path.isdir(MEMORY) else None
        )
        self.home = Path(self._folder.name, "base")
        self._first = Path(self._folder.name, "first")
        self.home.mkdir()
        #: Connections to the base, for any story.
        self.free: Free = {}
        self.watching = Store(sqlite_url(self.home))
        world = World(Story(0, (), Trouble()), self)
        world.scheduler.is_calm = True
        world.come_to_rest()
        world.end()
        connection = self.watching._connection()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        shutil.copytree(self.home, self._first)
        connection.execute("ATTACH ? AS first", (str(self._first / DATABASE_NAME),))

    def emptied(self) -> None:
        """The base is as it was first; the file and its connections stay."""
        shutil.rmtree(self.home.with_name(f"{self.home.name}.environments"), ignore_errors=True)
        if not self._first.exists():
            return
        shutil.rmtree(self.home / "warehouse")
        shutil.copytree(self._first / "warehouse", self.home / "warehouse")
        connection = self.watching._connection()
        connection.execute("BEGIN IMMEDIATE")
        # That the log refuses it is tested elsewhere.
        guard = f"{PREFIX}events_no_delete"
        ((again,),) = connection.execute("SELECT sql FROM main.sqlite_master WHERE name = ?", (guard,)).fetchall()
        connection.execute(f"DROP TRIGGER {guard}")
        for table in TABLES:
            connection.execute(f"DELETE FROM {table}")
            connection.execute(f"INSERT INTO {table} SELECT * FROM first.{table}")
        connection.execute(again)
        connection.execute("COMMIT")
        self.watching.accept()


@cache
def place() -> Place:
    """This process's."""
    return Place()


class World:
    """What all processes share."""

    def __init__(self, story: Story, place: Place) -> None:
        place.emptied()
        self.story, self.home = story, place.home
        self.scheduler = Scheduler(story.seed, story.trouble, story.muted)
        self.ids = Ids(1_000_000 if story.deeds else 1)
        self.rng = random.Random(f"world {story.seed}")
        self.foreign = HandForeign()
        self.heartbeats = Heartbeats(FileAside(None))
        self.asked: dict[Process | None, c.Command] = {}
        #: The version of the code of each asset, by base or environment.
        self.code: dict[str, dict[str, int]] = {BASE: dict.fromkeys(INPUTS, 1)}
        self.runs: dict[str, Runs] = {}
        self.broken: Broken | None = None
        self._turns: dict[str, _Lock] = {}
        self._stores: list[_Store] = []
        self._free = place.free.copy()
        self._place = place
        self._refs: dict[str, tuple[str, ...]] = {}
        self.watches: dict[str, Watch] = {}
        self._patch = patch.object(base_module, "_BaseStore", self.base_store)
        self._patch.start()
        # A process warns once for each store, and reads the log for that.
        for where in {BASE, *(deed.where for deed in story.deeds)}:
            log_time._warned.add(sqlite_url(self.home_of(where)))
        with self.opened(self.home) as engine:
            register(engine, self.specs(BASE))
        self.orchestrate(BASE)

    # Stores

    def _take(self, kind: type[_Store], path: Path, make: Callable[[], _Store]) -> _Store:
        """A store that stops at every use."""
        free = self._free.get((kind, *_file(path)))
        store = free.pop() if free else make()
        store.world, store.scheduler = self, self.scheduler
        store.database._lock = self._turns.setdefault(str(path), _Lock(self.scheduler))  # type: ignore[attr-defined]
        store.committed = lambda: self.committed(str(path))
        self._stores.append(store)
        return store

    def give_back(self, store: _Store) -> None:
        free = self._free.setdefault((type(store), *_file(Path(str(store.path)))), [])
        if store not in free:
            store.accept()
            free.append(store)

    def base_store(self, url: str, environment: str) -> _Store:
        """The store of the base for an environment's process."""
        store = self._take(_BaseStore, self.home / DATABASE_NAME, lambda: _BaseStore(url, environment))
        assert isinstance(store, _BaseStore)
        store._environment = environment
        cast(Process, self.scheduler.current).at_end.append(lambda crashed: self.give_back(store))
        return store

    def open(self, home: Path) -> Engine:
        store = self._take(_Store, home / DATABASE_NAME, lambda: _Store(sqlite_url(home)))
        process = self.scheduler.current
        clock = (lambda: self.scheduler.now) if process is None else self.scheduler.clock_of(process)
        catalog = cast(Catalog, SmallCatalog(self.specs(BASE)))
        engine = StoryEngine(
            store, catalog, heartbeats=self.heartbeats, clock=clock, steady=lambda: self.scheduler.now, new_id=self.ids
        )
        engine.world = self
        return engine

    @contextmanager
    def opened(self, home: Path) -> Iterator[Engine]:
        engine = self.open(home)
        try:
            yield engine
        finally:
            engine.store.close()

    @property
    def environments(self) -> Environments:
        return Environments(self.home, self.open)

    def home_of(self, where: str) -> Path:
        return self.home if where == BASE else home_of(self.home, where)

    def is_there(self, where: str) -> bool:
        home = self.home_of(where)
        return (home / DATABASE_NAME).exists() and (where == BASE or environment_of(home) is not None)

    def root_of(self, where: str) -> str:
        environment = environment_of(self.home_of(where))
        return str(self.home / "warehouse") if environment is None else environment.root

    def specs(self, where: str) -> tuple[DatasetSpec, ...]:
        code = self.code[where]
        return (RAW, *(coded(asset, *needs, code=str(code[asset])) for asset, needs in INPUTS.items()))

    def watch(self, where: str) -> Watch | None:
        """The watch over the log that is there now."""
        path = self.home_of(where) / DATABASE_NAME
        found = self.watches.get(where)
        if not path.exists():
            return None
        if found is None or found.inode != path.stat().st_ino:
            store = self._place.watching if where == BASE else None
            found = self.watches[where] = Watch(self, where, store or Store(sqlite_url(path.parent)))
        return found

    def refs_of(self, job_run_id: str) -> tuple[str, ...]:
        return self._refs.get(job_run_id, (job_run_id,))

    def committed(self, path: str) -> None:
        where = next(iter(name for name in (BASE, *self.code) if str(self.home_of(name) / DATABASE_NAME) == path))
        watch = self.watch(where)
        if watch is None:
            return
        process = self.scheduler.current
        command = self.asked.get(process)
        for event in watch.news():
            self._refs |= {run.job_run_id: run.refs for run in getattr(event.fact, "runs", ()) if hasattr(run, "refs")}
            self.scheduler.tell(f"[{where}] {happened(event, self.refs_of)}")
        try:
            if watch.look(process.name if process is not None else "the world", command):
                self.check_files()
        except Broken as broken:
            # A tick sets aside what raises.
            self.broken = self.broken or broken
            raise

    def check_files(self) -> None:
        for where in list(self.watches):
            if (watch := self.watch(where)) is not None:
                watch.check_files()

    # Processes

    def start(self, name: str, main: Callable[[], None], *, after: float = 0.0) -> Process:
        """A process, which an error that a command may raise ends."""

        def body(process: Process) -> None:
            try:
                main()
            except DatabuildError as error:
                self.scheduler.tell(f"ends: {error.message}")

        return self.scheduler.start(name, body, after=after)

    def orchestrate(self, where: str, incarnation: int = 1) -> None:
        name = f"orchestrator of {where}" + (f", again {incarnation}" if incarnation > 1 else "")

        def main() -> None:
            while not self.is_there(where):
                self.scheduler.sleep(5.0)
            with self.opened(self.home_of(where)) as engine:
                judge = Judge(gone=lambda holder: False)
                registered: tuple[DatasetSpec, ...] = ()
                while True:
                    registered = self._tick(where, engine, judge, registered)
                    self.scheduler.sleep(self.scheduler.current.rng.uniform(10.0, 30.0))  # type: ignore[union-attr]

        process = self.start(name, main, after=0.0 if incarnation == 1 else 5.0)

        def ended(crashed: bool) -> None:
            if not self.scheduler.is_over:
                self.orchestrate(where, incarnation + 1)

        process.at_end.append(ended)

    def _tick(
        self, where: str, engine: Engine, judge: Judge, registered: tuple[DatasetSpec, ...]
    ) -> tuple[DatasetSpec, ...]:
        is_base = where == BASE
        watch = self.watch(where)
        before = None if is_base or watch is None else watch.bad_in_base()
        specs = self.specs(where)
        engine.catalog = cast(Catalog, SmallCatalog(specs))
        if specs != registered:
            register(engine, specs)
        assert self.scheduler.current is not None
        report = tick(
            Pass(
                engine,
                location=HERE,
                launcher=self.runs.setdefault(where, Runs(self, where)),
                foreign=cast(Foreign, self.foreign),
                judge=judge,
                owner=self.scheduler.current.name,
                interval_seconds=8.0,
                providers=[] if is_base else [provide],
                fires_arcs=is_base,
            )
        )
        for name, reason in report.set_aside.items():
            self.scheduler.tell(f"sets aside {name}: {reason}")
            if not hasattr(errors_of_model, kind := reason.partition(":")[0]) and not hasattr(errors_here, kind):
                raise Broken("tick", f"a tick of {where} sets aside {name}: {reason}")
        if before is not None and watch is not None and watch is self.watches.get(where) and not report.set_aside:
            watch.check_followed(before)
        return specs

    def do(self, deed: Deed) -> None:
        process = self.start(deed.name, partial(self._do, deed), after=deed.after)
        if deed.what in ("create", "drop", "refresh", "promote", "some"):

            def ended(crashed: bool) -> None:
                # A person repeats what was killed.
                if crashed and not self.scheduler.is_over:
                    self.do(replace(deed, number=deed.number + 1000, after=20.0))

            process.at_end.append(ended)

    def _do(self, deed: Deed) -> None:
        rng = cast(Process, self.scheduler.current).rng
        match deed.what:
            case "create":
                self.environments.create(deed.where)
            case "refresh":
                self.environments.refresh(deed.where)
            case "promote":
                promote(self.environments, deed.where, actor=PERSON, ahead=rng.random() < 0.5)
            case "promote-x":
                promote(self.environments, deed.where, [Ref("clean@x"), Ref("report@x")], actor=PERSON, ahead=True)
            case "some":
                promote(self.environments, deed.where, [Ref(rng.choice([*INPUTS, *REFS]))], actor=PERSON, ahead=True)
            case "drop":
                self.environments.drop(deed.where)
            case _ if self.is_there(deed.where):
                with self.opened(self.home_of(deed.where)) as engine:
                    engine.catalog = cast(Catalog, SmallCatalog(self.specs(deed.where)))
                    Person(self, deed.where, engine).act(deed.what)

    # The end

    def begin(self, changed: Iterable[str] | None = None) -> None:
        """All deeds come at their time. `changed` are the assets that branches change, by chance if it is None."""
        for name in sorted({deed.where for deed in self.story.deeds} - {BASE}):
            edited = changed or {self.rng.choice(list(INPUTS)), self.rng.choice(["clean", "report"])}
            self.code[name] = {asset: 2 if asset in edited else 1 for asset in INPUTS}
            self.orchestrate(name)
        for deed in self.story.deeds:
            self.do(deed)

    def storm(self) -> None:
        """Trouble, then calm until nothing is left to do, then everything that must hold."""
        self.begin()
        self.scheduler.run_until(NOON + STORM_SECONDS + 60)
        self.scheduler.is_calm = True
        self.scheduler.tell("trouble ends", who="the world")
        self._until(lambda: not self._busy(), "processes of people")
        self._finally("resumer", self._resume)
        self.come_to_rest()
        for name in list(self.code):
            if name != BASE:
                self._finally(f"refresh finally in {name}", partial(self.environments.refresh, name))
                self._until(partial(self.is_at_rest, name), f"an open want in {name}")
                self._finally(f"promote finally in {name}", partial(self._promote_all, name))
        is_folded = self.rng.random() < FOLDED
        for watch in [watch for where in list(self.watches) if (watch := self.watch(where)) is not None]:
            watch.check_invariants()
            if is_folded:
                watch.check_fold()
        if self.rng.random() < 0.5:
            for name in list(self.code):
                if name != BASE:
                    self._finally(f"drop finally in {name}", partial(self.environments.drop, name))
            self.check_files()

    def _promote_all(self, name: str) -> None:
        with suppress(NothingBuilt):
            promote(self.environments, name, actor=PERSON, ahead=True)

    def _finally(self, name: str, main: Callable[[], object]) -> None:
        def alone() -> None:
            main()

        self.start(name, alone)
        self._until(lambda: not self._busy(), "processes of people")

    def _busy(self) -> list[str]:
        return [name for name in self.scheduler.processes if not name.startswith(("orchestrator", "build"))]

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        until = self.scheduler.now + CALM_SECONDS
        while not holds():
            if self.broken is not None:
                raise self.broken
            if self.scheduler.now > until:
                raise Broken("rest", f"after {CALM_SECONDS:.0f} s of calm there is still {what}: {self._open()}")
            self.scheduler.run_until(self.scheduler.now + 15)

    def _open(self) -> list[str]:
        found = []
        for watch in self.watches.values():
            found += [f"{watch.where}: {want.refs} {want.state}" for want in watch.open_wants()]
            found += [f"{watch.where}: {ref} {one.state}" for ref, one in watch.now.items()]
        return [*found, *self.scheduler.processes]

    def _resume(self) -> None:
        with self.opened(self.home) as engine:
            pauses = engine.queries.planning.pauses_in_force(engine.now())
            for asset in sorted({asset_of(pause.ref) for pause in pauses}):
                engine.handle(c.ResumePartitions(refs=(Ref(asset),)))

    def come_to_rest(self) -> None:
        """The base has all its data, and no open want."""
        for _ in range(3):
            self._finally("supplier", self._supply)
            self._until(partial(self.is_at_rest, BASE), "an open want in the base")
            if self._is_supplied():
                return
        raise Broken("rest", f"the base has no live data: {self._open()}")

    def _is_supplied(self) -> bool:
        watch = self.watch(BASE)
        return watch is not None and all(one.state is InstanceState.LIVE for one in watch.now.values())

    def _supply(self) -> None:
        with self.opened(self.home) as engine:
            person = Person(self, BASE, engine)
            for ref, one in engine.queries.canonical.of(REFS).items():
                if asset_of(ref) == "raw" and one.state is not InstanceState.LIVE:
                    person.arrive(ref)
            engine.handle(c.CreateWants(wants=tuple((ref,) for ref in REFS)))

    def is_at_rest(self, where: str) -> bool:
        watch = self.watch(where)
        if watch is None:
            return True
        if watch.queries.launches.open():
            return False
        return all(where != BASE and self._is_explained(watch, want.id) for want in watch.open_wants())

    def _is_explained(self, watch: Watch, want_id: str) -> bool:
        """Whether nothing can happen to the want by itself, and `explain` says why."""
        if self.scheduler.now - watch.changed_at < 60.0:
            return False
        catalog = cast(Catalog, SmallCatalog(self.specs(watch.where)))
        engine = Engine(watch.store, catalog, heartbeats=self.heartbeats, clock=lambda: self.scheduler.now)
        causes = explain(engine, want_id).causes
        if not causes:
            raise Broken("explain", f"a want in {watch.where} has no cause")
        return watch.is_out_of_reach(causes)

    def end(self) -> None:
        self.scheduler.end()
        self._patch.stop()
        for watch in self.watches.values():
            if watch.where != BASE:
                watch.store.close()
        for store in dict.fromkeys(self._stores):
            self.give_back(store)
            store.world = store.scheduler = None
            if store.path == str(self.home / DATABASE_NAME):
                continue
            with suppress(DatabuildError):
                store.close()
        base = {key: free for key, free in self._free.items() if key[1] == str(self.home / DATABASE_NAME)}
        self._place.free.update(base)


def register(engine: Engine, specs: tuple[DatasetSpec, ...]) -> None:
    engine.handle(c.RegisterDatasets(location=HERE, datasets=specs))


def _file(path: Path) -> tuple[str, int]:
    """The file that is there now: an environment of the same name has another."""
    return str(path), path.stat().st_ino if path.exists() else 0


class Person:
    """A person, and the command that the person runs in the base or in an environment."""

    def __init__(self, world: World, where: str, engine: Engine) -> None:
        self.world, self.where, self.engine = world, where, engine
        process = world.scheduler.current
        self.rng = world.rng if process is None else process.rng

    def act(self, what: str) -> None:
        getattr(self, what)()

    def ref(self) -> Ref:
        return self.rng.choice(REFS)

    def want(self) -> None:
        refs = self.rng.sample(REFS, self.rng.randint(1, 4))
        if self.where != BASE:
            provide(self.engine, refs)
        self.engine.handle(c.CreateWants(wants=tuple((ref,) for ref in refs)))

    def build(self) -> None:
        self.engine.handle(c.CreateWants(wants=((Ref("clean@x"), Ref("report@x")),)))

    def rebuild(self) -> None:
        self.engine.handle(c.CreateWants(wants=((self.ref(),),), rebuild=True))

    def arrive(self, ref: Ref | None = None) -> None:
        ref = ref or self.rng.choice([one for one in REFS if asset_of(one) == "raw"])
        origin = f"came as {self.engine.new_id()}"
        self.engine.handle(c.ArriveLots(arrivals=(Arrival(self.engine.new_id(), ref, origin),)))

    def taint(self) -> None:
        self.engine.handle(
            c.TaintPartitions(refs=(self.ref(),), reason="it is wrong", downstream=self.rng.random() < 0.6)
        )

    def untaint(self) -> None:
        found = self.engine.queries.canonical.of(REFS)
        uuids = [one.uuid for one in found.values() if one.uuid is not None]
        ids = sorted({link.taint_id for link in self.engine.queries.instances.taint_links(uuids) if link.is_in_force})
        if ids:
            self.engine.handle(c.UntaintPartitions(taint_id=self.rng.choice(ids)))

    def revert(self) -> None:
        ref = self.ref()
        earlier = [one for one in self.engine.queries.instances.history(ref) if one.live_at is not None]
        if earlier:
            self.engine.handle(c.RevertCanonical(ref=ref, uuid=self.rng.choice(earlier).uuid))

    def pause(self) -> None:
        until = self.rng.choice([None, self.world.scheduler.now + 60])
        self.engine.handle(c.PausePartitions(refs=(self.ref(),), reason="later", until=until))

    def deploy(self) -> None:
        """Merge a branch into the base, or edit the code of an environment."""
        world, code = self.world, self.world.code[self.where]
        names = [name for name in world.code if name != self.where]
        if self.where == BASE and names:
            code |= world.code[self.rng.choice(names)]
        else:
            code[self.rng.choice(list(INPUTS))] = self.rng.randint(1, 3)
        register(self.engine, world.specs(self.where))

    def compact(self) -> Canonical | None:
        return self._replace(erased=False)

    def erase(self) -> None:
        """As `databuild erase`: write the instance again without some rows, then remove the data of the earlier instance."""
        if (before := self._replace(erased=True)) is None:
            return
        place = Warehouse.of_manifest(str(before.manifest_uri), asset_of(before.ref))
        going = PlannedRemoval(str(before.uuid), before.ref, Reason.ERASED, 1, 4, place)
        plan = CleaningPlan(going=[going], erasure=Erasure("0" * 64, "a person asked"))
        Cleaner(self.engine, self.world.root_of(self.where), [Given(self.engine)]).carry_out(plan)

    def _replace(self, *, erased: bool) -> Canonical | None:
        ref = self.rng.choice([one for one in REFS if asset_of(one) != "raw"])
        before = self.engine.queries.canonical.of([ref])[ref]
        if before.state is not InstanceState.LIVE or before.manifest_uri is None:
            return None
        job_run = self.engine.new_id()
        manifest = write(self.world.root_of(self.where), ref, job_run)
        self.engine.handle(
            c.ReplaceFiles(ref=ref, uuid=str(before.uuid), job_run_id=job_run, manifest=manifest, erased=erased)
        )
        return before

    def gc(self) -> None:
        cleaner = Cleaner(self.engine, self.world.root_of(self.where), [Pins(self.engine), Given(self.engine)])
        plan = cleaner.plan_gc(keep=0, older_than_seconds=0, tainted=self.rng.random() < 0.5)
        cleaner.carry_out(plan)
        if self.rng.random() < 0.3:
            cleaner.carry_out(cleaner.plan_clean(), orphans=True)


def write(root: str, ref: Ref, job_run: str) -> ManifestFact:
    """The data of an instance: a file of four bytes, and its manifest."""
    warehouse = Warehouse(root)
    folder = Path(warehouse.instance_dir(asset_of(ref), derive_partition_uuid(job_run, ref)))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rows.parquet").write_bytes(b"rows")
    manifest = make_manifest(ref, job_run, (FileEntry("rows.parquet", 4, 1, "sha256:0"),), TableSchema(()))
    return manifest_fact(manifest, write_manifest(warehouse, manifest))


class Runs:
    """`engine.ports.Launcher`: the Dagster runs of the base or of an environment."""

    def __init__(self, world: World, where: str) -> None:
        self._world, self._where = world, where
        self._states: dict[str, DagsterRunStatus] = {}

    def launch(self, order: LaunchOrder) -> None:
        if order.launch_id in self._states:
            return
        self._states[order.launch_id] = DagsterRunStatus.QUEUED
        name = f"build of {order.assets[0]} in {self._where} {order.launch_id[-6:]}"
        main = partial(self._build, order.launch_id)
        process = self._world.start(name, main, after=self._world.scheduler.current.rng.uniform(0.5, 6.0))  # type: ignore[union-attr]
        process.at_end.append(lambda crashed: self._ended(order.launch_id))

    def _ended(self, launch_id: str) -> None:
        if not self._states[launch_id].ended:
            self._states[launch_id] = DagsterRunStatus.FAILED

    def dagster_runs(self, launches: dict[str, str | None]) -> dict[str, DagsterRunState]:
        known = {id: self._states[id] for id in launches if id in self._states}
        return {id: DagsterRunState(f"run {id}", state) for id, state in known.items()}

    def fail_dagster_run(self, dagster_run_id: str, message: str) -> None:
        """Its process ends by itself."""

    def _build(self, launch_id: str) -> None:
        world, where = self._world, self._where
        self._states[launch_id] = DagsterRunStatus.RUNNING
        if not world.is_there(where):
            return
        with world.opened(world.home_of(where)) as engine:
            # The code as it is loaded when the process begins.
            specs = {spec.asset: spec for spec in world.specs(where)}
            engine.catalog = cast(Catalog, SmallCatalog(specs.values()))
            runs = engine.queries.job_runs.of_launch(launch_id)
            spec = specs[asset_of(runs[0].refs[0])]
            code = spec.code.digest if isinstance(spec.code, CodeSpec) else None
            start = c.StartLaunch(
                launch_id=launch_id,
                dagster_run_id=f"run {launch_id}",
                holder="a process",
                made_with=MadeWith(code=code),
            )
            with suppress(AlreadyStarted, JobRunEnded, StaleJobRun):
                for job_run_id in engine.handle(start).job_run_ids:
                    run = engine.queries.job_runs.get(job_run_id)
                    if run is not None:
                        self._build_one(engine, spec, job_run_id, run.refs[0])
        self._states[launch_id] = DagsterRunStatus.SUCCEEDED

    def _build_one(self, engine: Engine, spec: DatasetSpec, job_run_id: str, ref: Ref) -> None:
        world, where = self._world, self._where
        needed = [Ref(one) for one in engine.catalog.inputs(spec, partition_key_of(ref))]
        if where != BASE:
            provide(engine, needed)
        found = engine.queries.canonical.of(needed)
        if missing := tuple(one for one in needed if found[one].state is not InstanceState.LIVE):
            engine.handle(c.MissDeps(misses=(c.RunMiss(job_run_id, {ref: missing}),)))
            return
        rng = world.scheduler.current.rng  # type: ignore[union-attr]
        world.scheduler.sleep(rng.uniform(0.5, 20.0))
        if not world.is_there(where):
            return
        watch = world.watch(where)
        for one in found.values():
            if watch is not None and (why := watch.why_unreadable(one)):
                raise Broken("files", f"a build of {ref} in {where} reads {one.ref}: {why}")
        manifest = write(world.root_of(where), ref, job_run_id)
        inputs = {one.ref: str(one.uuid) for one in found.values()}
        output = OutputFact(ref, inputs, None, manifest)
        engine.handle(c.SucceedJobRuns(runs=(RunSuccess(job_run_id, (output,)),)))


# Running and shrinking


def simulate(story: Story) -> Result[Story]:
    """A storm, and what was wrong, if anything was. The same for ever."""
    world, failure = World(story, place()), None
    scheduler = world.scheduler

    def failed(kind: str, detail: str) -> Failure[Story]:
        return Failure(kind, detail, story, tuple(scheduler.incidents), tuple(scheduler.story))

    try:
        world.storm()
        if world.broken is not None:
            raise world.broken
    except Broken as broken:
        failure = failed(broken.kind, str(broken))
    except Exception as error:
        # Only refusals are expected: a process that ends by an error is a finding like any other.
        failure = failed(type(error).__name__, "".join(traceback.format_exception(error, limit=-6)).rstrip())
    finally:
        world.end()
    n_events = sum(watch.seq for watch in world.watches.values())
    fingerprint = sha256("\n".join(scheduler.story).encode()).hexdigest()
    return Result(failure, n_events, scheduler.n_steps, len(scheduler.incidents), fingerprint)


def simulate_seeds(seeds: Iterable[int]) -> list[Result[Story]]:
    return [simulate(story_of(seed)) for seed in seeds]


def shrunk(failure: Failure[Story], most_runs: int = MOST_RUNS) -> Failure[Story]:
    """The smallest failure of the same kind that was found."""
    return smallest(failure, _smaller, lambda story: simulate(story).failure, most_runs)


def _smaller(failure: Failure[Story]) -> Iterator[Story]:
    story = failure.scenario
    if story.trouble != Trouble():
        yield replace(story, trouble=Trouble())
    for deeds in without_some(story.deeds):
        yield replace(story, deeds=deeds)
    for kept in without_some(failure.incidents):
        yield replace(story, muted=story.muted | (set(failure.incidents) - set(kept)))


def described(failure: Failure[Story]) -> str:
    """The story of a failure, to be read by a person."""
    seed = failure.scenario.seed
    lines = [f"Seed {seed} fails: {failure.detail}", "", *(f"  {line}" for line in failure.story), ""]
    return "\n".join([*lines, f"  Once more: make simulate FIRST={seed} SEEDS=1 ARGS=--two-stores"])
