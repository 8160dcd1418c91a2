"""One long story that records every event with every field, and a row in every table.

Tests that corrupt each table and the recording of a golden log run it.
"""

from __future__ import annotations

from msgspec.structs import replace

from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import ArcSpec, CodeSpec, DatasetKind, DatasetSpec, InputSpec
from databuild_dagster.model.events import Arrival, AsideFact, Erasure, MadeWith, OutputFact, RunSuccess
from databuild_dagster.model.meta_storage import Put, Remove, RemovePrefix, do, exists, iif

from .catalog import HERE, dataset
from .world import COMPLETE, EMPTY, World, instance_of

DAYS = ("2024-01-01", "2024-01-02", "2024-01-03")

DATASETS: tuple[DatasetSpec, ...] = (
    *(dataset(name) for name in "abcdefghijklm"),
    dataset("b2"),
    dataset("left", job="pair"),
    dataset("right", job="pair"),
    dataset("days", keys=DAYS, most=2, concurrency=1),
    dataset("months/total", ("days", "all"), code_version="v2 ü"),
    dataset("daily", keys=DAYS),
    dataset("report"),
    dataset("drop", kind=DatasetKind.SOURCE, location="elsewhere", code_version=None),
    dataset("gone"),
    *(dataset(f"source{number}") for number in range(8)),
    dataset("n"),
    dataset("plain", kind=DatasetKind.PLAIN),
    dataset("borrowed"),
    dataset("whole"),
    replace(dataset("returned", "whole"), deterministic=True, code=CodeSpec(digest="1:4f2a")),
    dataset("promoted"),
    dataset("after"),
    DatasetSpec(
        asset="filtered",
        job="filtered",
        location=HERE,
        inputs=(InputSpec(asset="source1", mapping="same", param="rows", where="x > 1"),),
        code_version="1",
        arc=ArcSpec((InputSpec(asset="source2", mapping="same", where="y = 'ü'"),)),
        version="2023-02",
    ),
    dataset("woken", "source0", keys=("one", "two"), subscribe=["source0", "drop"], follow_late=True),
)

#: The same after a person has edited code.
EDITED = tuple(replace(spec, code_version="2") if spec.asset == "returned" else spec for spec in DATASETS)

MADE_WITH = MadeWith(
    code="4f2a", config={"ops": {"days": {"limit": 10}}}, tags={"databuild/spark": "{}"}, versions={"python": "3.11"}
)

A_MINUTE = 60.0
AN_HOUR = 3600.0


def tell(world: World) -> None:
    """Everything once, in a fresh world of `DATASETS`; at its end some of it is still going on."""
    _builds(world)
    _misses(world)
    _failures(world)
    _taints(world)
    _removals(world)
    _delegations(world)
    _pauses(world)
    _compactions(world)
    _equal_rows(world)
    _erasures(world)
    _time_goes_by(world)
    _arcs(world)
    _borrowings(world)
    _returns(world)
    _promotions(world)
    _meta_storage(world)
    _registrations(world)
    _set_aside(world)
    _still_going_on(world)


def _turn(world: World) -> None:
    world.clock.turn(A_MINUTE)


def _builds(world: World) -> None:
    """Days in one launch, a pair in one job run, data from outside, an output without rows, a want for several refs."""
    days = [f"days@{day}" for day in DAYS]
    world.want(*days, "months/total", priority=3, ttl=None, sla=AN_HOUR)
    world.start(*days[:2])
    _turn(world)
    world.live(*days[:2])
    _start_with_everything_known(world, days[2])
    world.succeed(days[2], manifest=EMPTY)
    world.succeed("months/total", inputs=days, mean=1.5)
    _turn(world)
    world.start("left", "right", together=True)
    world.succeed("left", "right", inputs=["months/total"])
    world.arrive("drop", "file:///drop/1")
    _turn(world)
    world.arrive("drop", "file:///drop/2")
    arrival = Arrival(job_run_id=world.ids(), ref="j", origin="s3://bucket/j", manifest=EMPTY)
    world.handle(c.ArriveLots(arrivals=(arrival,)))
    output = OutputFact(ref="plain", code_version="1", origin="dagster-run:4711")
    world.handle(c.SucceedJobRuns(runs=(RunSuccess(world.job_run("plain"), (output,)),)))


def _start_with_everything_known(world: World, ref: str) -> None:
    start = c.StartLaunch(
        launch_id=world.buffer(ref), dagster_run_id="made-with", holder="somewhere", made_with=MADE_WITH
    )
    world.handle(start)


def _misses(world: World) -> None:
    """Derivative wants two levels deep, one that is not needed any more, a cycle, and what nothing can build."""
    world.want("a", priority=2, sla=AN_HOUR)
    world.miss("a", "b", "c")
    _turn(world)
    world.miss("b", "c")
    world.live("c", "b")
    world.succeed("a", inputs=["b", "c"])
    needless = world.want("d")
    world.miss("d", "e")
    world.cancel_want(needless)
    _turn(world)
    _found_missing(world, "m", "b2")
    world.live("b2", "m")
    world.taint("m")
    world.miss("f", "g")
    world.miss("g", "f")
    world.miss("h", "drop@2024-01-01")
    _found_late(world)


def _found_late(world: World) -> None:
    """A ref that was live by the time of the report that it is missing; and more than a sentence names."""
    world.start("n")
    world.live("source0")
    world.miss("n", "source0")
    world.clock.turn(AN_HOUR)
    others = [f"source{number}" for number in range(1, 8)]
    world.miss("n", *others)
    world.live(*others, "n")


def _found_missing(world: World, ref: str, missing: str) -> None:
    """The orchestrator finds it before anything is launched: two events of one command."""
    world.want(ref)
    launch = world.launch_of(ref)
    misses = (c.RunMiss(launch.runs[0].job_run_id, {ref: (missing,)}),)
    world.handle(
        c.BufferMissed(
            launch_id=launch.launch_id,
            job=launch.job,
            location=launch.location,
            owner=launch.owner,
            runs=launch.runs,
            misses=misses,
            code_version=launch.code_version,
        )
    )


def _failures(world: World) -> None:
    """Tried again and given up, lost, canceled by a person and for lack of a want, and repaired; what is kept meanwhile."""
    world.miss("e", "d")
    world.fail("d", kind="transient", error="executor lost")
    world.clock.turn(AN_HOUR)
    world.fail("d", error="division by zero")
    _turn(world)
    world.lose("i")
    world.clock.turn(AN_HOUR)
    world.start("i")
    world.cancel("i", keep_wants=True)
    world.clock.turn(AN_HOUR)
    world.buffer("i")
    world.handle(c.CancelJobRuns(job_run_ids=(world.canonical("i").job_run,), reason="not today"))
    world.handle(c.RetryRefs(refs=("d",), reason="the divisor is mended"))
    _turn(world)
    world.live("d")
    _kept(world)


def _kept(world: World) -> None:
    """One day of a month fails: one of the others is kept and built, and one until the request is withdrawn."""
    request = world.want("report", ttl=None)
    world.miss("report", *(f"daily@{day}" for day in DAYS))
    world.fail(f"daily@{DAYS[0]}", error="a bad day")
    world.succeed(f"daily@{DAYS[1]}")
    world.cancel_want(request)


def _taints(world: World) -> None:
    """Said and taken back, downstream, by uuid, met while it was being built, and gone back on."""
    taint_id = world.taint("c", "left", reason="looked wrong")
    world.handle(c.UntaintPartitions(taint_id=taint_id, reason="was right"))
    first = world.uuid("left")
    world.taint("left")
    world.live("left")
    world.handle(c.TaintPartitions(refs=("b",), reason="half of it is missing", downstream=True))
    _turn(world)
    world.live("b")
    world.handle(c.RevertCanonical(ref="left", uuid=first, reason="the first was right"))
    world.handle(c.TaintPartitions(uuids=(world.uuid("right"),), reason="this very one"))
    world.start("m")
    world.handle(c.TaintPartitions(refs=("c",), reason="with all that was built from it", downstream=True))
    world.succeed("m", inputs=["c"])
    world.handle(c.CreateWants(wants=(("c",),), rebuild=True, comment="once more, “please”"))
    _turn(world)
    world.live("c")


def _removals(world: World) -> None:
    """Replaced data is removed, and files of an attempt; of a tainted one the files are still there."""
    earlier = world.queries.instances.history("m")[0].uuid
    world.handle(c.RemoveManifests(uuids=(earlier,), reason="superseded"))
    world.handle(c.FinishRemovals(uuids=(earlier,)))
    world.taint("source7")
    world.handle(c.RemoveManifests(uuids=(world.uuid("source7"),), reason="tainted", tainted=True))


def _compactions(world: World) -> None:
    """Twice; what was built from the first of them is as good as before, until a taint goes on to it."""
    for _ in range(2):
        world.handle(c.ReplaceFiles(ref="left", uuid=world.uuid("left"), job_run_id=world.ids(), manifest=COMPLETE))


def _equal_rows(world: World) -> None:
    """Built twice; what was built from the first is not stale. Then other rows."""
    for sum_of_rows in ("2a", "2a", "2b"):
        world.taint("source5")
        world.succeed("source5", manifest=replace(COMPLETE, content_hash=f"arrow-1:10:{sum_of_rows}"))


def _erasures(world: World) -> None:
    """A row leaves a live instance, whose earlier data is removed by the same request."""
    earlier = world.uuid("source6")
    replace = c.ReplaceFiles(ref="source6", uuid=earlier, job_run_id=world.ids(), manifest=COMPLETE, erased=True)
    world.handle(replace)
    erasure = Erasure(where_sha256="9f86d081", reason="ticket 7")
    world.handle(c.RemoveManifests(uuids=(earlier,), reason="erased", erasure=erasure))
    world.handle(c.FinishRemovals(uuids=(earlier,)))


def _delegations(world: World) -> None:
    """Reused, joined and waited for until live, until failed, until enough; refused; and nothing to do at all."""
    world.claim("left", dagster_run_id="asks-for-what-is-live")
    world.claim("d", "e", dagster_run_id="asks-first")
    world.claim("d", "e", "b", dagster_run_id="asks-second")
    world.claim("d", "e", dagster_run_id="asks-third", by_person=False)
    _turn(world)
    world.handle(c.GiveUpDelegations(requester="asks-third", reason="waited for 60 s"))
    world.want("e")
    world.fail("e", error="no such file")
    world.claim("e", dagster_run_id="asks-a-schedule", by_person=False)
    world.taint("f")
    world.claim("f", dagster_run_id="builds")
    world.claim("f", dagster_run_id="joins")
    world.succeed("f")


def _pauses(world: World) -> None:
    """A queued job run ends with its pause; a pause of time, replaced after it; a whole asset, and one of its partitions."""
    world.taint("f")
    world.buffer("f")
    world.pause("f", until=world.clock.now + A_MINUTE)
    world.clock.turn(A_MINUTE)
    world.pause("f", "days", reason="the clock was wrong")
    world.pause("days@2024-01-01", reason="and this one looks odd")
    world.claim("f", dagster_run_id="is-refused")
    world.resume("f")
    world.live("f")
    world.resume("days")
    world.pause("days@2024-01-02", until=world.clock.now + A_MINUTE)


def _time_goes_by(world: World) -> None:
    """A want that expires, and one that misses its SLA."""
    world.want("a", "i", ttl=AN_HOUR, fail_fast=True)
    world.want("i", ttl=None, sla=A_MINUTE)
    world.clock.turn(2 * AN_HOUR)
    expiring, late = world.queries.wants.overdue(world.clock.now, 1000)
    world.handle(c.ExpireWants(want_ids=tuple(expiring)))
    world.handle(c.MissSlas(want_ids=tuple(late)))


def _arcs(world: World) -> None:
    """Woken by what came before, by data from outside, and by late data; one that leaves its code location comes below."""
    world.fire()
    world.arrive("drop", "file:///drop/3")
    world.fire()
    world.succeed("woken@one", inputs=["source0"])
    world.taint("source0")
    world.live("source0")
    world.fire()
    _turn(world)


def _borrowings(world: World) -> None:
    """An instance of a base, with an input that is known and an input that is not."""
    world.borrow("borrowed", source0=world.uuid("source0"), elsewhere=world.ids())


def _returns(world: World) -> None:
    """Built by code 2 and by code 1; then the code is 2 again, and the first instance comes back in place of a build."""
    world.live("whole")
    for code_version in ("2", "1"):
        world.handle(c.CreateWants(wants=(("returned",),), fresh=True))
        output = OutputFact(ref="returned", inputs={"whole": world.uuid("whole")}, code_version=code_version)
        output = replace(output, manifest=COMPLETE)
        world.handle(c.SucceedJobRuns(runs=(RunSuccess(world.job_run("returned"), (output,)),)))
    world.handle(c.RegisterDatasets(location=HERE, datasets=EDITED))
    world.handle(c.CreateWants(wants=(("returned",),), fresh=True))
    world.handle(c.ReturnInstances(refs=(c.Returnable("returned", ("whole",)),)))


def _promotions(world: World) -> None:
    """Two instances of a job run of an environment, one of which returns after a revert."""
    world.live("promoted")
    before = world.uuid("promoted")
    birth = world.birth("promoted", source1=world.uuid("source1"))
    world.handle(world.promotion(birth, replace(birth, ref="after", inputs={"promoted": instance_of(birth)})))
    world.handle(c.RevertCanonical(ref="promoted", uuid=before))
    world.handle(world.promotion(birth, environment="next"))
    _turn(world)


def _meta_storage(world: World) -> None:
    """Keys put, changed, removed one by one and by their beginning; an invoke that does nothing; a past that is forgotten."""
    world.invoke(do(Put("a.first", b"\x00\xff"), Put("a.second", b"2"), Put("b", b""), yields=b"put"))
    world.invoke(do(Remove("b")))
    world.compact_meta()
    world.invoke(iif(exists("b"), do(Put("never", b"1"))))
    world.invoke(do(Put("a.second", b"3")), iif(exists("a.second"), do(Put("c", b"4"), Put("d", b"5"), yields=1)))
    _turn(world)
    world.invoke(do(RemovePrefix("a."), Put("a.third", "ü".encode()), Remove("d")))


def _set_aside(world: World) -> None:
    """Two refs and an arc are set aside, and the arc is followed again."""
    refs = AsideFact(kind="ref", names=("a", "k"), reason="it raised")
    arc = AsideFact(kind="arc", names=("arc woken",), reason="it raised")
    world.handle(c.ChangeSetAside(location=HERE, changes=(refs, arc)))
    _turn(world)
    world.handle(c.ChangeSetAside(location=HERE, changes=(AsideFact(kind="arc", names=("arc woken",)),)))


def _registrations(world: World) -> None:
    """One asset leaves its code location; an arc leaves it too, and comes back."""
    for left in (("gone", "woken"), ("gone",)):
        stay = tuple(spec for spec in EDITED if spec.asset not in left)
        world.handle(c.RegisterDatasets(location=HERE, datasets=stay))


def _still_going_on(world: World) -> None:
    """Job runs that are queued, run, wait and have failed at the end; each has a requester that waits."""
    world.taint("a", "right", "h")
    world.want("a", "right", priority=5, sla=AN_HOUR)
    world.miss("right", "a")
    world.miss("a", "h")
    world.claim("right", "h", dagster_run_id="waits")
    world.taint("months/total")
    world.buffer("months/total")
    world.start("i")
    world.handle(
        c.CreateWants(wants=(("k",), ("l",)), priority=-1, data_timestamp=world.clock.now, sla_seconds=AN_HOUR)
    )
    world.lose("k")
    world.miss("l", "g")
    _turn(world)
