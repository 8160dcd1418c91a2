"""An engine over a real store, with words for what happens to it.

Everything goes through commands and queries. A word that makes a job run do something names the ref that it builds;
what a word needs first (a want, a lease, a start) it does first, so that a story tells only what matters in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from databuild_dagster.engine.arcs import fire_arcs
from databuild_dagster.engine.engine import Engine, Outcome
from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.events import Arrival, Birth, BufferedRun, ManifestFact, OutputFact, RunSuccess
from databuild_dagster.model.meta_storage import Put, Statement, do
from databuild_dagster.model.refs import Ref, asset_of, derive_partition_uuid, partition_key_of
from databuild_dagster.model.states import LEASED, InstanceState, JobRunState, WantState
from databuild_dagster.model.surroundings import Fate, Surrounding
from databuild_dagster.store.format import META
from databuild_dagster.store.invariants import Violation
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.wants import WantView
from databuild_dagster.store.store import Store, open_store
from tests.support.checking import check, violations

from .catalog import HERE, SmallCatalog
from .clock import Clock, Ids

COMPLETE = ManifestFact(state="complete", uri="file:///data", files=1, rows=10, bytes=100)
EMPTY = ManifestFact(state="empty", uri="file:///data")


class _Worlds:
    """The place of worlds that name none: the fixture `database` sets it."""

    @staticmethod
    def in_memory() -> str:
        return "sqlite://"

    def __init__(self) -> None:
        self.new_url: Callable[[], str] = self.in_memory
        self._opened: list[Store] = []

    def opened(self, url: str | None) -> Store:
        store = open_store(self.new_url() if url is None else url)
        self._opened.append(store)
        return store

    def close_all(self) -> None:
        """A server has but so many connections."""
        while self._opened:
            self._opened.pop().close()


worlds = _Worlds()


def instance_of(birth: Birth) -> str:
    """The uuid of an instance of a different log."""
    return derive_partition_uuid(birth.job_run_id, birth.ref)


class World:
    """One store, one engine, one clock."""

    def __init__(self, datasets: Iterable[DatasetSpec] = (), *, url: str | None = None, first_id: int = 1) -> None:
        self.specs = tuple(datasets)
        self.clock = Clock()
        self.ids = Ids(first_id)
        self.catalog = SmallCatalog(self.specs)
        self.store: Store = worlds.opened(url)
        self.engine = self.process()
        self.queries = self.engine.queries
        self.ledger = self.engine.ledger
        self._openings: dict[str, int] = {}
        if self.specs:
            self.handle(c.RegisterDatasets(location=HERE, datasets=self.specs))

    def process(self) -> Engine:
        """An engine of another process on the same machine."""
        return Engine(self.store, self.catalog, clock=self.clock, steady=self.clock.steady, new_id=self.ids)

    def handle(self, command: c.Command, *, command_id: str | None = None, actor: str = "tester") -> Outcome:
        return self.engine.handle(command, command_id=command_id, actor=actor)

    def set_meta(self, key: str, value: object) -> None:
        """Change what the database says of itself, as another version does."""
        database = self.store.database
        connection = database.connection()
        database.begin(connection)
        try:
            connection.execute(f"UPDATE {META} SET value = ? WHERE key = ?", (str(value), key))
            database.commit(connection)
        finally:
            database.end(connection)

    # Wants

    def want(
        self,
        *refs: str,
        priority: int = 0,
        ttl: float | None = c.DEFAULT_TTL_SECONDS,
        sla: float | None = None,
        fail_fast: bool = False,
    ) -> str:
        """One want for all of the refs; its id."""
        command = c.CreateWants(wants=(refs,), priority=priority, ttl_seconds=ttl, sla_seconds=sla, fail_fast=fail_fast)
        return self.handle(command).want_ids[0]

    def cancel_want(self, *ids: str, terminate: bool = False) -> Outcome:
        return self.handle(c.CancelWants(ids=ids, terminate=terminate))

    def want_state(self, want_id: str) -> WantState:
        return self.want_view(want_id).state

    def want_view(self, want_id: str) -> WantView:
        (view,) = self.queries.wants.named(want_id)
        return view

    def open_wants(self, ref: str) -> list[WantView]:
        ended = {
            WantState.SUCCESSFUL,
            WantState.FAILED,
            WantState.UPSTREAM_FAILED,
            WantState.CANCELED,
            WantState.EXPIRED,
        }
        return [want for want in self.queries.wants.of_ref(ref) if want.state not in ended]

    def derivative_wants(self, ref: str) -> list[WantView]:
        """The open wants that dep misses made for a ref."""
        return [want for want in self.open_wants(ref) if want.source == "job run"]

    # Building

    def buffer(self, *refs: str, together: bool = False) -> str:
        """Lease refs as the orchestrator does, wanting what has no want yet; the launch id. `together`: as one job run."""
        for ref in refs:
            if not self.open_wants(ref):
                self.want(ref)
        outcome = self.handle(self.launch_of(*refs, together=together))
        assert outcome.events, f"nothing of {refs} is due"
        return outcome.events[0].fact.launch_id

    def launch_of(self, *refs: str, together: bool = False) -> c.BufferLaunch:
        groups = [refs] if together else [(ref,) for ref in refs]
        runs = tuple(BufferedRun(self.ids(), tuple(group), partition_key_of(group[0])) for group in groups)
        return c.BufferLaunch(
            launch_id=self.ids(),
            job=asset_of(refs[0]),
            location=HERE,
            owner="orchestrator",
            runs=runs,
            code_version="1",
        )

    def start(self, *refs: str, together: bool = False) -> str:
        """A Dagster run that builds the refs, each in a job run of its own; the launch id."""
        launch_id = self.buffer(*refs, together=together)
        self.start_launch(launch_id)
        return launch_id

    def start_launch(self, launch_id: str, *, holder: str = "somewhere") -> Outcome:
        return self.handle(c.StartLaunch(launch_id=launch_id, dagster_run_id=f"run-of-{launch_id}", holder=holder))

    def job_run(self, ref: str) -> str:
        """The job run that builds a ref now, started if it has to be."""
        canonical = self.canonical(ref)
        if canonical.state not in LEASED:
            self.start(ref)
            canonical = self.canonical(ref)
        assert canonical.job_run is not None
        view = self.queries.job_runs.get(canonical.job_run)
        assert view is not None
        if view.state is JobRunState.QUEUED:
            self.start_launch(view.launch_id)
        return canonical.job_run

    def succeed(
        self, *refs: str, inputs: Iterable[str] = (), manifest: ManifestFact = COMPLETE, **numbers: float
    ) -> str:
        """The job run of the refs writes its data, read from the live instances of the inputs; the uuid of the first."""
        job_run = self.job_run(refs[0])
        read = {ref: self.uuid(ref) for ref in inputs}
        made = OutputFact(ref=Ref(""), inputs=read, code_version="1", manifest=manifest, numbers=numbers)
        outputs = tuple(msgspec.structs.replace(made, ref=Ref(ref)) for ref in refs)
        self.handle(c.SucceedJobRuns(runs=(RunSuccess(job_run, outputs),)))
        return self.uuid(refs[0])

    def fail(
        self, ref: str, *, kind: str = "hard", error: str = "it raised", owner: Surrounding | None = None
    ) -> Outcome:
        """The job run of the ref fails, transiently if something else is the owner."""
        failure = c.RunFailure(self.job_run(ref), error, "transient" if owner else kind, owner)
        return self.handle(c.FailJobRuns(failures=(failure,)))

    def miss(self, ref: str, *missing: str) -> Outcome:
        return self.handle(c.MissDeps(misses=(c.RunMiss(self.job_run(ref), {ref: missing}),)))

    def lose(self, ref: str, fate: Fate = Fate.KILLED) -> Outcome:
        view = self.queries.job_runs.get(self.job_run(ref))
        assert view is not None
        return self.handle(c.LoseLaunches(launch_ids=(view.launch_id,), reason="its process is gone", fate=fate))

    def cancel(self, ref: str, *, keep_wants: bool = False) -> Outcome:
        job_run = self.canonical(ref).job_run
        assert job_run is not None
        return self.handle(c.CancelJobRuns(job_run_ids=(job_run,), keep_wants=keep_wants))

    def arrive(self, ref: str, origin: str) -> Outcome:
        return self.handle(c.ArriveLots(arrivals=(Arrival(job_run_id=self.ids(), ref=ref, origin=origin),)))

    def borrow(self, ref: str, **inputs: str) -> Outcome:
        """Use an instance of a base, which was built from other instances of the base."""
        birth = Birth(job_run_id=self.ids(), job=asset_of(ref), ref=ref, inputs=inputs, code="4f2a", manifest=COMPLETE)
        return self.handle(c.BorrowInstances(births=(birth,)))

    def promotion(self, *births: Birth, environment: str = "branch", **options: Any) -> c.PromoteInstances:
        """The command that takes instances of an environment, which is opened here if it has to be."""
        key = f"environments/{environment}"
        if key not in (known := self._openings):
            known[key] = self.invoke(do(Put(key, b"{}"))).events[0].seq
        options = {"pin": known[key], "revision": known[key], **options}
        return c.PromoteInstances(environment=environment, opening=key, instances=births, **options)

    def birth(self, ref: str, job_run_id: str | None = None, **inputs: str) -> Birth:
        """An instance of a different log."""
        run = job_run_id or self.ids()
        return Birth(run, asset_of(ref), ref, inputs=inputs, code_version="1", code="4f2a", manifest=COMPLETE)

    def fire(self) -> list[str]:
        """The orchestrator follows the arcs; the lots that they want."""
        return fire_arcs(self.engine, "orchestrator")

    def invoke(self, *statements: Statement) -> Outcome:
        """On the meta storage."""
        return self.handle(c.InvokeMeta(statements=statements))

    def compact_meta(self) -> Outcome:
        return self.handle(c.CompactMeta(up_to=self.seq))

    def taint(self, *refs: str, reason: str = "it looks wrong") -> str:
        taint_id = self.handle(c.TaintPartitions(refs=refs, reason=reason)).taint_id
        assert taint_id is not None
        return taint_id

    def untaint(self, taint_id: str) -> Outcome:
        return self.handle(c.UntaintPartitions(taint_id=taint_id))

    def pause(
        self, *refs: str, reason: str = "its source is wrong", until: float | None = None, terminate: bool = False
    ) -> Outcome:
        return self.handle(c.PausePartitions(refs=refs, reason=reason, until=until, terminate=terminate))

    def resume(self, *refs: str) -> Outcome:
        return self.handle(c.ResumePartitions(refs=refs))

    def claim(
        self, *refs: str, by_person: bool = True, dagster_run_id: str = "run-by-hand", together: bool = False
    ) -> Outcome:
        """A Dagster run that is not a launch asks for refs."""
        groups = [refs] if together else [(ref,) for ref in refs]
        return self.handle(
            c.ClaimRefs(
                launch_id=self.ids(),
                job=asset_of(refs[0]),
                location=HERE,
                dagster_run_id=dagster_run_id,
                holder="somewhere",
                runs=tuple(BufferedRun(self.ids(), tuple(group), partition_key_of(group[0])) for group in groups),
                by_person=by_person,
                code_version="1",
            )
        )

    def live(self, *refs: str) -> None:
        """Each ref built, one after another."""
        for ref in refs:
            self.succeed(ref)

    # Looking

    def canonical(self, ref: str) -> Canonical:
        return self.queries.canonical.of([ref])[ref]

    def state(self, ref: str) -> InstanceState | None:
        return self.canonical(ref).state

    def states(self, *refs: str) -> list[InstanceState | None]:
        return list(self.queries.canonical.states(refs).values())

    def uuid(self, ref: str) -> str:
        uuid = self.canonical(ref).uuid
        assert uuid is not None, f"{ref} is missing"
        return uuid

    def due(self) -> list[str]:
        """The due refs, the most urgent first."""
        return [
            ref.ref for ref in self.queries.planning.due_refs(self.queries.datasets.all(), self.clock.now, 10_000).refs
        ]

    @property
    def seq(self) -> int:
        return self.queries.events.head().seq

    def log(self, after_seq: int = 0) -> list[str]:
        """The types of the events."""
        return [str(row[2]) for row in self.queries.events.raw(after_seq, 1_000_000)]

    def broken(self) -> list[Violation]:
        """The violations of the invariants, without a fold of the log."""
        with self.store.reading() as connection:
            return violations(connection)

    def check(self) -> list[Any]:
        """All that `check` finds, the fold of the log beside the tables included."""
        return list(check(self.store))

    def close(self) -> None:
        self.store.close()
