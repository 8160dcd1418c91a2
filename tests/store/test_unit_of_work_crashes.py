"""kill -9 between any two statements of a command leaves the state before it, or the state after it (rule 3.3)."""

from __future__ import annotations

import sqlite3
from contextlib import suppress

import pytest
from msgspec.structs import replace

from databuild_dagster.model import commands as c
from databuild_dagster.model import meta_storage as m
from databuild_dagster.model.datasets import CodeSpec
from databuild_dagster.model.errors import Refused
from databuild_dagster.model.events import (
    Arrival,
    AsideFact,
    Birth,
    BufferedRun,
    ManifestRemoved,
    OutputFact,
    RunSuccess,
    TaintCanceled,
    TaintCreated,
)
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store import schema
from databuild_dagster.store.rebuild import rebuild
from tests.store.tables import rows_of
from tests.support.arcs import fired_by
from tests.support.catalog import HERE, dataset
from tests.support.crashes import AT_STATEMENTS, MOST_STATEMENTS, fewest, killed_at
from tests.support.world import COMPLETE, World


def tables(world):
    return rows_of(world.store, schema.metadata.sorted_tables)


def a_bit_of_everything(world):
    """`a` waits for `b`, which is queued; `c` is live and was rebuilt, `d` tainted, `e` failed, `f` failed because of it.

    `asker` has joined `b`.
    """
    world.want("a")
    world.miss("a", "b")
    world.buffer("b")
    world.live("c")
    world.taint("c")
    world.live("c", "d")
    world.succeed("g", inputs=["c"])
    world.taint("d")
    world.want("f", sla=30)
    world.want("b", ttl=60)
    world.miss("f", "e")
    world.fail("e")
    world.claim("b", dagster_run_id="asker")
    edited_and_edited_back(world, "made", "late")
    world.fail("k")
    world.handle(c.RemoveManifests(uuids=(first(world, "k"),), reason="left by an attempt"))
    kept(world, "old", "other", "some/key", "some/other")


def edited_and_edited_back(world, *refs):
    for ref in refs:
        world.succeed(ref, inputs=["c"])
    for code_version in ("2", "1"):
        changed = (replace(spec, code_version=code_version) if spec.asset in refs else spec for spec in world.specs)
        world.handle(c.RegisterDatasets(location=HERE, datasets=tuple(changed)))
        world.handle(c.CreateWants(wants=(refs,), fresh=True))
        for ref in refs if code_version == "2" else ():
            output = OutputFact(ref=ref, inputs={"c": world.uuid("c")}, code_version="2", manifest=COMPLETE)
            world.handle(c.SucceedJobRuns(runs=(RunSuccess(world.job_run(ref), (output,)),)))


def kept(world, *keys):
    """Of the meta storage; a tombstone and a watcher of old beside them."""
    watching = m.WATCHERS + "gone", b'{"revision":1,"until":1}'
    world.handle(c.InvokeMeta(statements=(m.do(*(m.Put(key, b"0") for key in (*keys, "gone")), m.Put(*watching)),)))
    world.handle(c.InvokeMeta(statements=(m.do(m.Remove("gone")),)))


def running_job_run(world, ref="h"):
    """Started before, so that the command at hand is the only one that is killed."""
    return world.canonical(ref).job_run


def run(world, *refs):
    return (BufferedRun(world.ids(), refs, None),)


def launch(world, *refs):
    return {"launch_id": world.ids(), "job": refs[0], "location": HERE, "runs": run(world, *refs)}


def success(world, ref):
    return RunSuccess(running_job_run(world, ref), (OutputFact(ref=ref, inputs={}, manifest=COMPLETE),))


def first(world, ref):
    return world.queries.instances.history(ref)[0].uuid


#: Every command there is, made from the world above; `h` is running in it, `i` wanted, the clock stands an hour later.
COMMANDS = {
    c.RegisterDatasets: lambda w: c.RegisterDatasets(location=HERE, datasets=(*w.specs, dataset("new"))),
    c.CreateWants: lambda w: c.CreateWants(wants=(("a", "c"), ("d",), ("e",)), rebuild=True),
    c.CancelWants: lambda w: c.CancelWants(ids=tuple(want.id for want in w.open_wants("a"))),
    c.ExpireWants: lambda w: c.ExpireWants(want_ids=tuple(w.queries.wants.overdue(w.clock.now, 10)[0])),
    c.MissSlas: lambda w: c.MissSlas(want_ids=tuple(w.queries.wants.overdue(w.clock.now, 10)[1])),
    c.BufferLaunch: lambda w: c.BufferLaunch(owner="me", **launch(w, "i")),
    c.BufferMissed: lambda w: missed(w),
    c.StartLaunch: lambda w: c.StartLaunch(
        launch_id=w.queries.job_runs.get(w.canonical("b").job_run).launch_id, dagster_run_id="r", holder="h"
    ),
    c.ClaimRefs: lambda w: c.ClaimRefs(
        dagster_run_id="claimer", holder="h", rebuild_before=w.clock.now, **launch(w, "b", "c", "e", "i")
    ),
    c.GiveUpDelegations: lambda w: c.GiveUpDelegations(requester="asker", reason="enough"),
    c.SucceedJobRuns: lambda w: c.SucceedJobRuns(runs=(success(w, "h"),)),
    c.MissDeps: lambda w: c.MissDeps(misses=(c.RunMiss(running_job_run(w), {"h": ("i", "b")}),)),
    c.FailJobRuns: lambda w: c.FailJobRuns(failures=(c.RunFailure(running_job_run(w), "it raised"),)),
    c.CancelJobRuns: lambda w: c.CancelJobRuns(job_run_ids=(running_job_run(w),)),
    c.LoseLaunches: lambda w: c.LoseLaunches(
        launch_ids=tuple(launch.launch_id for launch in w.queries.launches.open()), reason="gone"
    ),
    c.TaintPartitions: lambda w: c.TaintPartitions(refs=("c", "e"), reason="wrong", downstream=True),
    c.UntaintPartitions: lambda w: c.UntaintPartitions(taint_id=w.queries.instances.taints_of(w.uuid("d"))[0].taint_id),
    c.RevertCanonical: lambda w: c.RevertCanonical(ref="c", uuid=first(w, "c"), force=True),
    c.RevertEvent: lambda w: c.RevertEvent(
        seq=1,
        reversals=(c.Reversal("c", w.uuid("c"), first(w, "c")), c.Reversal("g", w.uuid("g"), None)),
        force=True,
        reason="wrong",
    ),
    c.PausePartitions: lambda w: c.PausePartitions(refs=("c", "i"), reason="its source is wrong", terminate=True),
    c.ResumePartitions: lambda w: c.ResumePartitions(refs=("k",)),
    c.RemoveManifests: lambda w: c.RemoveManifests(
        uuids=(first(w, "c"), w.uuid("d"), w.uuid("e")), reason="enough of it", tainted=True
    ),
    c.FinishRemovals: lambda w: c.FinishRemovals(uuids=(first(w, "k"),)),
    c.RetryRefs: lambda w: c.RetryRefs(refs=("f",)),
    c.FireArcs: lambda w: c.FireArcs(
        up_to_seq=w.seq, published=(c.Published(w.uuid("c"), "c", w.seq), c.Published(w.uuid("g"), "g", w.seq))
    ),
    c.ArriveLots: lambda w: c.ArriveLots(arrivals=(Arrival(job_run_id=w.ids(), ref="i", origin="outside"),)),
    c.BorrowInstances: lambda w: c.BorrowInstances(
        births=tuple(Birth(w.ids(), "borrowed", ref, {"c": w.uuid("c")}, manifest=COMPLETE) for ref in ("a", "i"))
    ),
    c.FollowBase: lambda w: c.FollowBase(
        facts=(
            TaintCreated("of the base", (), "wrong", (w.uuid("c"),), True),
            TaintCanceled(w.queries.instances.taints_of(w.uuid("d"))[0].taint_id),
            ManifestRemoved((w.uuid("g"),), "erased"),
        )
    ),
    c.ReturnInstances: lambda w: c.ReturnInstances(refs=tuple(c.Returnable(ref, ("c",)) for ref in ("made", "late"))),
    c.PromoteInstances: lambda w: w.promotion(
        *(w.birth(ref, f"00000000-0000-7000-8000-00000000000{ref}", c=w.uuid("c")) for ref in ("e", "i")), w.birth("g")
    ),
    c.ReplaceFiles: lambda w: c.ReplaceFiles(ref="c", uuid=w.uuid("c"), job_run_id=w.ids(), manifest=COMPLETE),
    c.ChangeSetAside: lambda w: c.ChangeSetAside(
        location=HERE, changes=(AsideFact(kind="ref", names=("a", "c"), reason="it raised"),)
    ),
    c.InvokeMeta: lambda w: c.InvokeMeta(
        statements=(
            m.do(m.RemovePrefix("some/"), m.Put("new", b"1"), m.Put("old", b"2"), m.Remove("other")),
            m.iif(m.exists("new"), m.do(m.Put("some/key", b"3"))),
        )
    ),
    c.CompactMeta: lambda w: c.CompactMeta(up_to=w.seq),
}


def missed(world):
    bound = launch(world, "i")
    misses = (c.RunMiss(bound["runs"][0].job_run_id, {"i": ("b", "d")}),)
    return c.BufferMissed(owner="me", misses=misses, **bound)


def test_every_command_is_among_them():
    assert set(COMMANDS) == set(c.Command.__subclasses__())


@pytest.mark.parametrize("counter", AT_STATEMENTS)
@pytest.mark.parametrize("make", COMMANDS.values(), ids=[command.__name__ for command in COMMANDS])
def test_a_command_killed_at_any_statement_happened_or_did_not(shared_url, make, counter):
    """Rule 3.3: one transaction. The next process finds a state that checks clean, and can do the command."""
    arcs = [dataset("one", subscribe=["c", "g"]), dataset("other", subscribe=["g"], follow_late=True)]
    made = [
        replace(dataset(name, "c"), deterministic=True, code=CodeSpec(digest="1:4f2a")) for name in ("made", "late")
    ]
    world = World([*(dataset(name) for name in "abcdefghik"), *arcs, *made], url=shared_url)
    a_bit_of_everything(world)
    world.pause("k")
    world.start("h")
    world.clock.turn(3600)
    world.want("i")
    command, command_id = make(world), world.ids()
    untouched = tables(world)

    for statement in range(1, MOST_STATEMENTS):
        if not killed_at(world, statement, lambda world: world.handle(command, command_id=command_id), counter):
            break
        if tables(world) != untouched:
            break  # Killed behind its COMMIT.
        assert world.check() == [] if statement % 20 == 0 else True
    else:
        raise AssertionError(f"not done after {MOST_STATEMENTS} statements")

    assert statement > fewest(counter)
    assert tables(world) != untouched
    assert world.check() == []
    after = tables(world)
    assert world.handle(command, command_id=command_id).repeated, "it was acknowledged, so it never acts twice"
    assert tables(world) == after
    world.store.close()


@pytest.mark.parametrize("counter", AT_STATEMENTS)
def test_an_orchestrator_killed_at_any_statement_leaves_the_arc_to_the_next_one(shared_url, counter):
    """Rule 10.5: between availability and the want, and whichever of its statements was the last: one want."""
    world = World([dataset("source"), dataset("arc", "source", subscribe=["source"])], url=shared_url)
    world.live("source")
    untouched = tables(world)

    for statement in range(1, MOST_STATEMENTS):
        if not killed_at(world, statement, lambda world: world.fire(), counter) or tables(world) != untouched:
            break

    assert statement > fewest(counter)
    world.fire()
    assert [want.source_id for want in world.queries.wants.of_ref("arc")] == [world.uuid("source")]
    assert fired_by(world.store, "arc") == [world.uuid("source")]
    assert world.check() == []
    world.store.close()


@pytest.mark.parametrize("counter", AT_STATEMENTS)
def test_a_rebuild_killed_at_any_statement_happened_or_did_not(shared_url, counter):
    """Rule 3.4"""
    world = World([dataset(name) for name in "ab"], url=shared_url)
    world.miss("a", "b")
    with world.store.writing() as work:
        work.connection.execute("UPDATE databuild_refs SET misses = 7")
    broken = tables(world)

    for statement in range(1, MOST_STATEMENTS):
        if not killed_at(world, statement, lambda world: rebuild(world.store), counter):
            break
        if tables(world) != broken:
            break

    assert statement > fewest(counter)
    assert world.check() == []
    world.store.close()


def test_an_interrupted_statement_undoes_the_whole_command(tmp_path):
    """Rule 3.5: sqlite's progress handler stops a statement in its midst, wherever that may be."""
    world = World([dataset(name) for name in "abcde"], url=f"sqlite:///{tmp_path}/build.db")
    world.miss("a", "b")
    job_run = world.job_run("b")
    untouched = tables(world)
    command = c.MissDeps(misses=(c.RunMiss(job_run, {"b": ("c", "d")}),))
    connection = world.store._connection()

    interrupted = 0
    for steps in range(1, 4000, 11):
        left = [steps]

        def stop(left=left):
            left[0] -= 1
            return left[0] == 0

        connection.set_progress_handler(stop, 1)
        try:
            world.handle(command)
        except Refused:
            raise
        except Exception as error:
            connection.set_progress_handler(None, 0)
            assert "interrupted" in str(error)
            if tables(world) != untouched:
                break  # Stopped on the way back from its COMMIT.
            interrupted += 1
        else:
            break
    # A COMMIT that was interrupted may have closed it.
    with suppress(sqlite3.ProgrammingError):
        connection.set_progress_handler(None, 0)

    assert interrupted > 10
    assert world.state("b") is InstanceState.UPSTREAM_BUILDING
    assert world.check() == []
    world.store.close()
