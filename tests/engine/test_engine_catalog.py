"""No transaction waits for the catalog, which is Dagster (rule 3.3): a Dagster that hangs delays only its own caller."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import suppress

import pytest

from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import DatasetKind
from databuild_dagster.model.errors import Refused, UnknownPartition
from databuild_dagster.model.events import Arrival, Birth, BufferedRun
from tests.support.catalog import HERE, SmallCatalog, dataset
from tests.support.world import COMPLETE

KEYS = ("1", "2")


class Slow(SmallCatalog):
    """Something happens at each question."""

    def __init__(self, datasets, happens):
        super().__init__(datasets)
        self.happens = happens
        self.n_asked = 0

    def why_not(self, dataset, partition_key):
        self._asked()
        return super().why_not(dataset, partition_key)

    def woken(self, dataset, source, partition_key):
        self._asked()
        return super().woken(dataset, source, partition_key)

    def _asked(self):
        self.n_asked += 1
        self.happens()


def slow(world, happens):
    """The catalog of the world's engine from now on."""
    world.engine.catalog = Slow(world.specs, happens)
    return world.engine.catalog


def run(world, ref):
    return BufferedRun(world.ids(), (ref,), None)


def launch(world):
    return {"launch_id": world.ids(), "job": "a", "location": HERE}


def missed(world):
    """A tick found an input of `a` missing."""
    world.want("a")
    runs = (run(world, "a"),)
    misses = (c.RunMiss(runs[0].job_run_id, {"a": ("sales@1",)}),)
    return c.BufferMissed(owner="me", runs=runs, misses=misses, **launch(world))


def fired(world):
    world.arrive("files@2", "file:///2")
    return c.FireArcs(up_to_seq=world.seq, published=(c.Published(world.uuid("files@2"), "files@2", world.seq),))


#: The commands whose decisions ask the catalog, as a rule about a ref without a row.
ASKING = {
    c.CreateWants: lambda w: c.CreateWants(wants=(("sales@1",),)),
    c.MissDeps: lambda w: c.MissDeps(misses=(c.RunMiss(w.job_run("a"), {"a": ("sales@1",)}),)),
    c.BufferMissed: missed,
    c.ClaimRefs: lambda w: c.ClaimRefs(dagster_run_id="r", holder="h", runs=(run(w, "sales@1"),), **launch(w)),
    c.TaintPartitions: lambda w: c.TaintPartitions(refs=("sales@1",), reason="wrong"),
    c.RevertCanonical: lambda w: c.RevertCanonical(ref="sales@1", uuid=w.ids()),
    c.PausePartitions: lambda w: c.PausePartitions(refs=("sales@1",), reason="wrong"),
    c.RetryRefs: lambda w: c.RetryRefs(refs=("sales@1",)),
    c.ArriveLots: lambda w: c.ArriveLots(arrivals=(Arrival(job_run_id=w.ids(), ref="files@1", origin="outside"),)),
    c.BorrowInstances: lambda w: c.BorrowInstances(births=(Birth(w.ids(), "sales", "sales@1", manifest=COMPLETE),)),
    c.PromoteInstances: lambda w: w.promotion(w.birth("sales@1")),
    c.ReplaceFiles: lambda w: c.ReplaceFiles(ref="files@1", uuid=w.ids(), job_run_id=w.ids(), manifest=COMPLETE),
    c.FireArcs: fired,
}
#: The commands that name job runs, wants, instances, taints and pauses that are recorded.
NOT_ASKING = {
    c.RegisterDatasets,
    c.CancelWants,
    c.ExpireWants,
    c.MissSlas,
    c.BufferLaunch,
    c.StartLaunch,
    c.GiveUpDelegations,
    c.SucceedJobRuns,
    c.FailJobRuns,
    c.CancelJobRuns,
    c.LoseLaunches,
    c.UntaintPartitions,
    c.RevertEvent,
    c.FollowBase,
    c.ResumePartitions,
    c.RemoveManifests,
    c.FinishRemovals,
    c.ReturnInstances,
    c.ChangeSetAside,
    c.InvokeMeta,
    c.CompactMeta,
}


@pytest.fixture
def busy(make_world):
    return make_world(
        dataset("a"),
        dataset("other"),
        dataset("sales", keys=KEYS),
        dataset("files", keys=KEYS, kind=DatasetKind.BOUNDARY),
        dataset("lots", keys=KEYS, subscribe=["files"]),
    )


def test_each_command_is_known_to_ask_or_not():
    assert ASKING.keys() | NOT_ASKING == set(c.Command.__subclasses__())


@pytest.mark.parametrize("is_preview", [False, True], ids=["handled", "previewed"])
@pytest.mark.parametrize("make", ASKING.values(), ids=[command.__name__ for command in ASKING])
def test_no_transaction_is_open_while_the_catalog_is_asked(busy, make, is_preview):
    """The catalog writes to the log before each answer, by the connection of the command that asks."""
    command = make(busy)
    other = busy.process()
    catalog = slow(busy, lambda: other.handle(c.CreateWants(wants=(("other",),))))

    with suppress(Refused):
        busy.engine.preview(command) if is_preview else busy.handle(command)

    assert len(busy.open_wants("other")) == catalog.n_asked > 0


@pytest.mark.parametrize("is_first", [True, False], ids=["first command", "later command"])
def test_another_command_goes_through_while_the_catalog_hangs(busy, is_first):
    hangs, ends = threading.Event(), threading.Event()

    def hang():
        hangs.set()
        assert ends.wait(250)

    other = busy.process()
    if not is_first:
        busy.want("sales@2")
    slow(busy, hang)
    thread = threading.Thread(target=busy.want, args=("sales@1",))
    thread.start()
    try:
        assert hangs.wait(250)

        other.handle(c.CreateWants(wants=(("other",),)))

        assert len(busy.open_wants("other")) == 1
        assert busy.open_wants("sales@1") == []
    finally:
        ends.set()
        thread.join(250)
    assert len(busy.open_wants("sales@1")) == 1


def test_a_later_want_asks_once_and_begins_one_transaction(busy, monkeypatch):
    """It costs no second decision when the process has met the registration before."""
    busy.want("sales@2")
    catalog = slow(busy, lambda: None)
    began = []
    begin = busy.store.database.begin
    monkeypatch.setattr(busy.store.database, "begin", lambda *arguments: (began.append(1), begin(*arguments)))

    busy.want("sales@1")

    assert (catalog.n_asked, len(began)) == (1, 1)


@pytest.mark.parametrize("is_first", [True, False], ids=["first command", "later command"])
def test_an_error_of_dagsters_database_is_not_taken_for_one_of_the_store(busy, is_first):
    """It would end a tick, as an error of the store does (rule 11.5)."""
    if not is_first:
        busy.want("sales@2")

    def fail():
        raise sqlite3.OperationalError("database is locked")

    catalog = slow(busy, fail)

    with pytest.raises(sqlite3.OperationalError):
        busy.want("sales@1")

    assert catalog.n_asked == 1


def test_a_deploy_by_another_process_counts_for_the_next_command(busy):
    """Rule 5.7: the registration that this process remembers is not the present one."""
    busy.want("sales@1")
    sales = dataset("sales", keys=("2", "3"))
    specs = tuple(sales if spec.asset == "sales" else spec for spec in busy.specs)

    busy.process().handle(c.RegisterDatasets(location=HERE, datasets=specs))

    busy.want("sales@3")
    with pytest.raises(UnknownPartition, match="sales@1"):
        busy.want("sales@1")
