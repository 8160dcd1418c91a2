"""Why a ref is, or is not, being built right now: each cause, followed to the first one (issue 4, rules 15)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from databuild_dagster.engine.holders import this_process
from databuild_dagster.engine.judge import LEASE_SECONDS
from databuild_dagster.engine.orchestrator_notes import MIN_SILENCE_SECONDS
from databuild_dagster.engine.why.explain import (
    MAX_CAUSES,
    MAX_FOLLOWED,
    Cause,
    OnlyLater,
    causes_of_each,
    explain,
    explain_as_of,
)
from databuild_dagster.engine.why.preview import Action, annotate
from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import DatasetKind
from databuild_dagster.model.errors import UnknownAsset
from databuild_dagster.model.plan import plan
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import InstanceState
from tests.support.catalog import HERE, dataset
from tests.support.orchestrator import Orchestrator
from tests.support.world import COMPLETE

DAYS = [str(day) for day in range(1, 6)]


def causes(world, name):
    return [(cause.ref, cause.why) for cause in explain(world.engine, name).causes]


def why(world, name):
    return [why for _, why in causes(world, name)]


def ticked(world):
    """An orchestrator that sees to the world's location, and has just done so."""
    orchestrator = Orchestrator(world)
    orchestrator.tick(interval_seconds=5)
    return orchestrator


# One ref, one cause


@pytest.mark.parametrize(
    ("happens", "sentences"),
    [
        pytest.param(
            lambda world: None,
            ["never built; no open want names it; `databuild want create a` records one"],
            id="no want",
        ),
        pytest.param(
            lambda world: world.live("a"),
            ["live since 2023-11-14T22:13:20Z, instance {uuid}: there is nothing to build"],
            id="live",
        ),
        pytest.param(
            lambda world: (world.want("a", ttl=60), world.clock.turn(61)),
            ["never built; outside the TTL of its wants, which ended at 2023-11-14T22:14:20Z: want it again"],
            id="outside its TTL",
        ),
        pytest.param(
            lambda world: world.want("a"),
            [
                "never built; wanted since 2023-11-14T22:13:20Z",
                "no orchestrator of location 'here' has ticked here, so nothing builds for it: `databuild dev` runs one",
            ],
            id="no orchestrator",
        ),
        pytest.param(
            lambda world: world.fail("a", kind="transient", error="the server is gone"),
            ["its backoff ends at 2023-11-14T22:13:25Z (attempt 1 of 3 failed), after: the server is gone"],
            id="backoff",
        ),
        pytest.param(
            lambda world: (
                world.want("a"),
                world.fail("a", kind="transient", error="the server is gone"),
                world.clock.turn(60),
                world.buffer("a"),
            ),
            [
                "its lease is held by job run {job_run} since 2023-11-14T22:14:20Z: launched by orchestrator, "
                "its Dagster run has not started yet",
                "attempt 2 of 3; the last one failed with: the server is gone",
            ],
            id="building again",
        ),
        pytest.param(
            lambda world: world.engine.beat([world.start("a")]),
            [
                "its lease is held by job run {job_run} (Dagster run run-of-{launch}, somewhere) "
                "since 2023-11-14T22:13:20Z"
            ],
            id="running",
        ),
        pytest.param(
            lambda world: world.buffer("a"),
            [
                "its lease is held by job run {job_run} since 2023-11-14T22:13:20Z: launched by orchestrator, "
                "its Dagster run has not started yet"
            ],
            id="not started",
        ),
    ],
)
def test_a_ref_is_explained_by_its_state_and_by_who_builds_it(world, happens, sentences):
    happens(world)
    canonical = world.canonical("a")
    run = world.queries.job_runs.get(canonical.job_run) if canonical.job_run else None
    names = {"uuid": canonical.uuid, "job_run": canonical.job_run, "launch": run and run.launch_id}

    assert why(world, "a") == [sentence.format(**names) for sentence in sentences]


def test_a_ref_whose_wants_have_ended_is_explained_so(world):
    want = world.want("a")
    world.cancel_want(want)

    assert why(world, "a") == [
        f"never built; no open want names it: the last want for it, {want}, is canceled; `databuild want create a` records one"
    ]


def test_its_orchestrator_has_not_ticked_for_long(world):
    ticked(world)
    world.want("a")
    world.clock.turn(MIN_SILENCE_SECONDS + 1)

    answer = why(world, "a")

    assert answer[-1].startswith("the orchestrator of location 'here' last ticked at 2023-11-14T22:13:20Z, 61 s ago")


def test_an_orchestrator_that_comes_seldom_is_not_taken_for_dead_in_between(world):
    orchestrator = Orchestrator(world)
    orchestrator.tick(interval_seconds=300)
    # A command ticks once in between, and does not come again.
    orchestrator.tick()
    world.want("a")

    world.clock.turn(600)
    assert why(world, "a") == ["never built; wanted since 2023-11-14T22:13:20Z: the next tick launches it"]
    world.clock.turn(1)

    assert why(world, "a")[-1].startswith(
        "the orchestrator of location 'here' last ticked at 2023-11-14T22:13:20Z, 601 s"
    )


@pytest.mark.parametrize(
    ("silent", "follows"),
    [
        (25.0, "its lease ends after 30 s"),
        (LEASE_SECONDS + 1, "a tick declares it lost once its process has watched for 30 s"),
    ],
)
def test_its_job_run_was_not_heard_of(world, silent, follows):
    world.engine.beat([world.start("a")])
    world.clock.turn(silent)

    answer = why(world, "a")

    assert answer[1:] == [
        f"it has sent no heartbeat for {silent:.0f} s, since 2023-11-14T22:13:20Z: {follows}",
        "no orchestrator of location 'here' has ticked here, so nothing builds for it: `databuild dev` runs one",
    ]


def test_the_process_that_builds_it_is_gone(world):
    ticked(world)
    launch = world.buffer("a")
    host, boot, namespace, _, start = this_process().split("/")
    world.start_launch(launch, holder=f"{host}/{boot}/{namespace}/999999999/{start}")

    answer = why(world, "a")

    assert f"process 999999999 on {host}" in answer[0]
    assert answer[1:] == ["that process is gone: the next tick declares the job run lost"]


def test_it_is_tainted_and_wanted(world):
    ticked(world)
    world.live("a")
    world.taint("a", reason="bad rows")

    assert why(world, "a") == [
        "tainted: bad rows by tester; wanted since 2023-11-14T22:13:20Z: the next tick launches it"
    ]


def test_no_build_follows_an_input_that_got_equal_rows_again(world):
    """Rule 4.8"""
    equal = replace(COMPLETE, content_hash="x:1")
    world.succeed("a", manifest=equal)
    world.succeed("b", inputs=["a"])
    before = why(world, "b")
    world.taint("a")
    while_tainted = why(world, "b")
    world.succeed("a", manifest=equal)

    assert why(world, "b") == [f"{before[0]}; no build follows a, which got equal rows again"]
    assert while_tainted == [f"{before[0]}; stale, for an input was tainted or replaced since"]

    uuid = world.uuid("a")
    world.handle(c.ReplaceFiles(ref=Ref("a"), uuid=uuid, job_run_id=world.ids(), manifest=COMPLETE, erased=True))
    assert "with the rows of" not in why(world, "a")[0], "an erasure has left fewer"


def test_a_waiting_ref_whose_partition_is_gone_is_unbuildable_as_in_the_plan(make_world):
    """Its inputs may become live, and nothing is built then (rule 6.12)."""
    raw, daily = dataset("raw", keys=DAYS), dataset("daily", "raw", keys=DAYS)
    report = dataset("report", ("daily", "1"))
    world = make_world(raw, daily, report)
    orchestrator = ticked(world)
    want = world.want("daily@1")
    orchestrator.tick()
    assert world.state("daily@1") is InstanceState.UPSTREAM_BUILDING
    daily = dataset("daily", "raw", keys=DAYS[1:])
    world.catalog.datasets["daily"] = daily
    world.handle(c.RegisterDatasets(location=HERE, datasets=(raw, daily, report)))

    (answer,) = why(world, "daily@1")
    datasets = {spec.asset: spec for spec in world.queries.datasets.all().values()}
    planned = annotate(world.engine, plan(["report"], datasets, world.catalog)).verdicts["daily@1"]

    assert "nothing can build it any more: there is no partition daily@1" in answer
    assert answer.endswith(f"; `databuild want cancel {want[-8:]}` ends what wants it")
    assert planned.action is Action.BLOCKED


def test_its_job_has_as_many_launches_out_as_it_may(make_world):
    world = make_world(dataset("days", keys=DAYS, concurrency=1))
    orchestrator = ticked(world)
    world.want("days@1")
    orchestrator.tick()
    orchestrator.start(orchestrator.launcher.last.launch_id)
    world.want("days@2")
    orchestrator.tick()

    answer = why(world, "days@2")

    run = f"run-of-{orchestrator.launcher.last.launch_id}"
    assert answer[1:] == [f"days may have 1 out at a time, and has them: Dagster run {run}"]


def test_a_command_that_ticks_in_between_keeps_the_orchestrators_limits(make_world):
    """Rule 11.1: the next tick is the orchestrator's, with any limits of `databuild build`."""
    world = make_world(dataset("a"), dataset("b"))
    orchestrator = Orchestrator(world)
    orchestrator.tick(interval_seconds=30, open_launches=1)
    world.want("a")
    orchestrator.tick(open_launches=100)
    world.want("b")

    answer = why(world, "b")

    assert answer[1:] == ["1 launch of location here is out, its limit is 1; its orchestrator waits for one to end"]


# Led to the first cause


def test_what_it_waits_for_failed(make_world):
    world = make_world(dataset("a"), dataset("b", "a"), dataset("c", "b"))
    world.miss("c", "b")
    world.miss("b", "a")
    world.fail("a", error="no rows")

    answer = causes(world, "c")

    assert [ref for ref, _ in answer] == ["c", "b", "a"]
    # One command opens all of it.
    assert answer[0][1] == "needs b, whose inputs failed; `databuild retry c` opens what failed first"
    assert answer[1][1] == "needs a, which failed"
    assert answer[-1][1] == f"failed in job run {world.canonical('a').job_run} with: no rows"
    assert [cause.depth for cause in explain(world.engine, "c").causes] == [0, 1, 2]


def test_of_a_month_with_one_failed_day_only_that_day_is_said_to_have_failed(make_world):
    """Rule 6.12: what failed, what waits and what was never built are counted apart."""
    keys = [f"{day:02}" for day in range(1, 32)]
    world = make_world(dataset("days", keys=keys), dataset("month", ("days", "all")))
    world.fail("days@07", error="no rows")
    world.start("days@08")
    world.miss("month", *(f"days@{key}" for key in keys))

    answer = [why for ref, why in causes(world, "month") if ref == "month"]

    assert answer == [
        "needs days@07, which failed; of its other missing inputs: 29 never built, 1 being built; `databuild retry month` opens "
        "what failed first",
        "and 21 more that it needs: 20 never built, 1 being built",
    ]


def test_explain_says_that_launches_of_its_job_come_first(make_world):
    """Rule 11.1: one launch fits, and the other day is as urgent and named later."""
    world = make_world(dataset("days", keys=DAYS, most=1, concurrency=1))
    ticked(world)
    world.want("days@1")
    world.want("days@2")

    assert why(world, "days@1") == ["never built; wanted since 2023-11-14T22:13:20Z: the next tick launches it"]
    assert why(world, "days@2")[1:] == ["days may have 1 out at a time; more urgent launches of it come first"]


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"launches": 1}, "one tick starts 1 launches at most; more urgent launches come first"),
        ({"open_launches": 1}, "0 launches of location here are out, its limit is 1; more urgent launches come first"),
    ],
)
def test_explain_says_which_limit_more_urgent_refs_reach_first(world, limits, words):
    """Rule 11.1: with the limits of the deployment."""
    Orchestrator(world).tick(interval_seconds=5, **limits)
    world.want("a", priority=1)
    world.want("b")

    assert why(world, "b")[1:] == [words]


def test_explain_says_that_more_urgent_refs_of_its_asset_fill_its_part_of_a_look(make_world):
    """Rule 11.6"""
    world = make_world(dataset("days", keys=DAYS))
    Orchestrator(world).tick(interval_seconds=5, due_refs=1)
    world.want("days@2", priority=1)
    world.want("days@1")

    answer = "one tick looks at 1 due refs at most, divided among the assets; more urgent refs of days come first"
    assert why(world, "days@1")[1:] == [answer]


def test_its_last_call_asked_for_what_is_being_built(world):
    ticked(world)
    world.miss("a", "b")
    world.live("b")
    world.taint("b")
    world.start("b")
    world.clock.turn(1000)

    answer = causes(world, "a")

    assert answer[0][1].endswith("its last call asked for b, which is to be there first")
    assert answer[1][0] == "b"
    assert ticked(world).launcher.orders == []


def test_the_worst_cause_is_first_and_of_many_only_some_are_shown(make_world):
    keys = [str(key) for key in range(MAX_FOLLOWED + 5)]
    world = make_world(dataset("days", keys=keys), dataset("sum", ("days", "all")))
    world.miss("sum", *(f"days@{key}" for key in keys))
    world.start("days@3")
    world.fail("days@7", kind="transient")

    answer = causes(world, "sum")

    assert answer[0][1].startswith("waits for days@0, days@1, days@10 and 12 more")
    assert answer[1] == ("sum", "and 5 more that it needs: 3 never built, 1 to be tried again, 1 being built")
    assert len(answer) >= 2 + MAX_FOLLOWED
    assert "days@3" not in [ref for ref, _ in answer], "what is on its way comes last"


def test_an_answer_is_bounded(make_world):
    keys = [str(key) for key in range(MAX_CAUSES + 50)]
    world = make_world(dataset("days", keys=keys))
    request = world.handle(c.CreateWants(wants=tuple((f"days@{key}",) for key in keys))).request_id

    answer = causes(world, request)

    assert len(answer) <= MAX_CAUSES + 2
    assert answer[-1][1] == "not explained here: 100 more (100 never built)"


# Wants and requests


def test_a_request_counts_its_wants(world):
    world.live("a")
    request = world.handle(c.CreateWants(wants=(("a",), ("b",), ("c",)))).request_id
    world.start("c")

    explanation = explain(world.engine, request)

    assert (explanation.state, explanation.wants) == ("mixed", {"Successful": 1, "Idle": 1, "Building": 1})
    assert explanation.causes[0] == Cause(request, "the want succeeded: everything asked for was live", 0)
    assert {cause.ref for cause in explanation.causes[1:]} == {"b", "c"}


@pytest.mark.parametrize("how", ["Canceled", "Failed"])
def test_a_want_that_ended_says_how(world, how):
    want = world.want("a")
    if how == "Canceled":
        world.cancel_want(want)
    else:
        world.fail("a")

    answer = causes(world, want)

    assert answer[0][1].startswith(f"the want ended {how.lower()}")
    assert [ref for ref, _ in answer[1:]] == ([] if how == "Canceled" else ["a"])


# Looking back


def test_what_it_says_of_then_is_what_it_said_then(make_world):
    """Rule 3.2: after each command of a story, of each ref and want in it."""
    world = make_world(dataset("raw", keys=DAYS), dataset("names"), dataset("report", ("raw", "all"), "names"))
    seen = []
    names = ["report", "names", "raw@1", "raw@2"]

    def note():
        world.clock.turn(7)
        for name in names:
            seen.append((name, world.seq, world.clock.now, explain(world.engine, name, from_log_alone=True)))

    def story():
        names.append(world.want("report", ttl=3600, sla=60))
        yield
        world.miss("report", "raw@1", "raw@2", "names")
        yield
        world.claim("names", dagster_run_id="R")
        yield
        world.job_run("raw@1")
        yield
        world.fail("raw@1", kind="transient")
        yield
        world.lose("names")
        yield
        world.succeed("raw@2")
        yield
        world.clock.turn(600)
        world.fail("raw@1", error="no such file")
        yield
        names.append(world.handle(c.RetryRefs(refs=("report",))).request_id)
        yield
        taint = world.taint("raw@2")
        yield
        world.untaint(taint)
        yield
        world.cancel_want(names[-1])
        yield

    for _ in story():
        note()

    answer = [(name, explain_as_of(world.engine, name, seq, at)) for name, seq, at, _ in seen]
    assert answer == [(name, then) for name, _, _, then in seen]
    assert len({explanation.causes for _, explanation in answer}) > len(names) * 3, "the story has turns"


def test_what_the_present_alone_can_tell_is_left_out_of_then(world):
    """Rule 3.2: the log tells neither who was alive nor who ticked."""
    world.want("a")
    assert any("no orchestrator" in item for item in why(world, "a"))

    then = explain_as_of(world.engine, "a", world.seq, world.clock.now)
    assert [cause.why for cause in then.causes] == [
        "never built; wanted since 2023-11-14T22:13:20Z: the next tick launches it"
    ]


def test_the_clock_stands_at_the_time_asked_for_and_not_at_the_last_event(world):
    """Rule 5.5: time alone ends a TTL."""
    world.want("a", ttl=60)
    seq = world.seq

    (then,) = explain_as_of(world.engine, "a", seq, world.clock.now + 61).causes

    assert then.why.startswith("never built; outside the TTL of its wants")


def test_what_came_later_was_not_there_then_and_what_never_was_is_a_wrong_name(world):
    before = world.seq
    want = world.want("a")

    with pytest.raises(OnlyLater, match=f"Nothing had been recorded of {want} as of 2023-11-14T22:13:20Z"):
        explain_as_of(world.engine, want, before, world.clock.now)
    with pytest.raises(OnlyLater):
        explain_as_of(world.engine, "a", 0, world.clock.now)
    with pytest.raises(UnknownAsset):
        explain_as_of(world.engine, "nowhere", before, world.clock.now)


def test_several_refs_are_explained_as_each_alone(make_world):
    """The next tick is planned once for all of them."""
    world = make_world(dataset("a", keys=DAYS), dataset("b", ("a", "all")), dataset("c", "b"))
    ticked(world)
    world.want("c", "a@1")
    refs = ["c", "b", "a@1", "c"]

    together = causes_of_each(world.engine, refs)

    assert together == {ref: explain(world.engine, ref).causes for ref in refs}


# Paused


def test_a_lot_of_an_arc_waits_for_the_source_that_has_not_arrived(make_world):
    """Rule 10.7: a want of a person would wait until its TTL ends."""
    raw = dataset("raw", keys=DAYS, kind=DatasetKind.BOUNDARY)
    world = make_world(raw, dataset("sink", "raw", keys=DAYS, subscribe=["raw"]))
    world.arrive("raw@1", "file:///landed")

    assert why(world, "sink@2") == [
        "never built; waiting for its source raw@2: its arc wants it when that is live",
        "never built; a lot of files from outside: it waits until they arrive",
    ]
    assert why(world, "sink@1") == ["never built; no open want names it; `databuild want create sink@1` records one"]


def test_a_paused_ref_names_the_person_the_time_the_reason_and_the_command(make_world):
    """Rule 6.13"""
    world = make_world(dataset("a", keys=DAYS), dataset("b", ("a", "all")))
    ticked(world)
    world.want("a@1")
    world.pause("a@1", reason="Rome sends\nhalf", until=world.clock.now + 3600)

    assert why(world, "a@1") == [
        "never built",
        "paused by tester since 2023-11-14T22:13:20Z until 2023-11-14T23:13:20Z: Rome sends half; "
        "`databuild resume a@1` ends the pause",
    ]
    world.pause("a")
    assert why(world, "a@1")[1].startswith("paused with all of a by tester since")
    assert why(world, "a@2")[0].startswith("never built; no open want names it")
    assert why(world, "a@2")[1].endswith("`databuild resume a` ends the pause")


def test_a_ref_paused_longer_than_its_whole_asset_advises_to_resume_the_asset(make_world):
    """Rule 6.13: a resume of the partition alone is refused while its whole asset is paused."""
    world = make_world(dataset("a", keys=DAYS))
    world.want("a@1")
    world.pause("a", until=world.clock.now + 60)
    world.pause("a@1", reason="Rome sends half")

    assert why(world, "a@1")[1] == (
        "paused by tester since 2023-11-14T22:13:20Z: Rome sends half; `databuild resume a` ends the pause"
    )

    world.resume("a")
    assert "paused" not in "".join(why(world, "a@1"))


def test_a_pause_of_then_is_explained_of_then(world):
    """Rules 6.13, 3.2"""
    world.want("a")
    world.pause("a", until=world.clock.now + 60)
    paused = world.seq, world.clock.now
    world.resume("a")

    then = [cause.why for cause in explain_as_of(world.engine, "a", *paused).causes]
    later = [cause.why for cause in explain_as_of(world.engine, "a", paused[0], paused[1] + 60).causes]

    assert [sum("paused by" in sentence for sentence in said) for said in (then, later, why(world, "a"))] == [1, 0, 0]
