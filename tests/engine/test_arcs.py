"""Arcs: a live instance wakes its subscribers once, also when a process dies at any point (rule 10.5)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from databuild_dagster.engine import arcs as following
from databuild_dagster.model import commands as c
from databuild_dagster.model.events import OutputFact, RunSuccess
from databuild_dagster.model.states import InstanceState, WantState
from tests.support.arcs import fired_by
from tests.support.catalog import HERE, dataset
from tests.support.orchestrator import Orchestrator
from tests.support.world import COMPLETE, EMPTY

_I = InstanceState
DAYS = ["1", "2", "3"]


@pytest.fixture
def chain(make_world):
    """Files of a day arrive; `clean` follows them, and `report` what is clean."""
    return make_world(
        dataset("files", keys=DAYS),
        dataset("clean", "files", keys=DAYS, subscribe=["files"]),
        dataset("report", "clean", keys=DAYS, subscribe=["clean"]),
    )


@pytest.fixture
def late(make_world):
    """`clean` follows late data of `files`, and reads `names`, which does not wake it."""
    return make_world(
        dataset("files", keys=DAYS),
        dataset("names"),
        dataset("clean", "files", "names", keys=DAYS, subscribe=["files"], follow_late=True),
    )


@pytest.fixture
def delays(make_world):
    """A lot that subscribes to two sources."""
    return make_world(
        dataset("flights", keys=DAYS),
        dataset("weather", keys=DAYS),
        dataset("delays", "flights", "weather", keys=DAYS, subscribe=["flights", "weather"]),
    )


def arc_wants(world, ref):
    """(source instance, state) of the wants that an arc made for a lot."""
    return [(want.source_id, want.state) for want in world.queries.wants.of_ref(ref) if want.source == "arc"]


def launched(here):
    return [(order.job, order.partition_keys) for order in here.launcher.orders]


def rebuilt(world, ref, **options):
    """Another instance of a live ref; its uuid."""
    world.taint(ref)
    return world.succeed(ref, **options)


# What wakes an arc


def test_a_chain_runs_from_the_first_lot_to_the_last(chain):
    """Rule 10.5: what was built wakes as what arrived does, with rows or without."""
    here = Orchestrator(chain)
    chain.arrive("files@1", "file:///1")

    here.tick()
    chain.succeed("clean@1", inputs=["files@1"], manifest=EMPTY)
    here.tick()
    chain.succeed("report@1", inputs=["clean@1"])
    here.tick()

    assert chain.state("report@1") is _I.LIVE
    assert launched(here) == [("clean", ("1",)), ("report", ("1",))]


def test_a_source_instance_wakes_an_arc_once(chain):
    """Rule 10.5: neither the next tick nor its lot's end, nor what was live before and is again, is another reason."""
    chain.arrive("files@1", "file:///1")
    assert chain.fire() == ["clean@1"]
    taint_id = chain.taint("files@1")
    chain.untaint(taint_id)

    assert chain.fire() == []

    chain.succeed("clean@1", inputs=["files@1"])
    chain.taint("clean@1")
    assert chain.fire() == ["report@1"]
    assert chain.fire() == []
    assert fired_by(chain.store, "clean") == [chain.uuid("files@1")]
    assert len(arc_wants(chain, "clean@1")) == 1


@pytest.mark.parametrize(("share_of_ttl", "n_wants"), [(0.4, 1), (0.6, 2)], ids=["half is left", "half is over"])
def test_a_lot_that_waits_is_wanted_again_when_half_of_its_want_is_over(delays, share_of_ttl, n_wants):
    """Rule 10.5: a month of short lots has few wants, and its last data still has days in which the month can be built."""
    here = Orchestrator(delays)
    delays.arrive("weather@1", "file:///weather/1")
    here.tick()

    delays.clock.turn(share_of_ttl * c.DEFAULT_TTL_SECONDS)
    delays.arrive("weather@1", "file:///weather/2")
    assert here.tick().fired == ["delays@1"]

    assert len(arc_wants(delays, "delays@1")) == n_wants
    delays.clock.turn(0.4 * c.DEFAULT_TTL_SECONDS)
    delays.succeed("flights@1")
    assert launched(here)[:1] == [("flights", ("1",))]
    here.tick()
    assert ("delays", ("1",)) in launched(here)


def test_of_two_sources_either_wakes_the_lot_which_waits_for_the_other_and_runs_once(delays):
    """Rule 10.5"""
    here = Orchestrator(delays)
    delays.arrive("weather@1", "file:///weather/1")

    first = here.tick()
    assert (first.fired, first.missed) == (["delays@1"], ["delays@1"])
    assert delays.state("delays@1") is _I.UPSTREAM_BUILDING
    delays.succeed("flights@1")
    second = here.tick()
    here.tick()

    assert second.fired == ["delays@1"]
    assert launched(here) == [("flights", ("1",)), ("delays", ("1",))]
    assert [source for source, _ in arc_wants(delays, "delays@1")] == [delays.uuid("weather@1")]
    delays.succeed("delays@1", inputs=["flights@1", "weather@1"])
    here.tick()
    assert len(here.launcher.orders) == 2
    assert {state for _, state in arc_wants(delays, "delays@1")} == {WantState.SUCCESSFUL}


def test_the_lots_of_a_month_are_found_from_one_of_its_days(make_world):
    """Rule 10.5: the declared mapping, read backwards; a source without partitions wakes all."""
    world = make_world(
        dataset("days", keys=DAYS),
        dataset("names"),
        dataset("month", ("days", "all"), subscribe=[("days", "all")]),
        dataset("named", "names", keys=DAYS, subscribe=["names"]),
    )

    world.arrive("days@3", "file:///3")
    assert world.fire() == ["month"]
    world.arrive("names", "file:///names")
    assert world.fire() == ["named@1", "named@2", "named@3"]


def test_an_arc_of_another_location_is_fired_here_and_launched_there(make_world):
    """Rules 5.7, 11.1: the first location that ticks follows every arc."""
    world = make_world(dataset("files"))
    there = dataset("clean", "files", subscribe=["files"], location="there")
    world.catalog.datasets["clean"] = there
    world.handle(c.RegisterDatasets(location="there", datasets=(there,)))
    here, elsewhere = Orchestrator(world), Orchestrator(world, location="there")
    world.arrive("files", "file:///1")

    assert here.tick().fired == ["clean"]
    assert elsewhere.tick().fired == []

    assert (launched(here), launched(elsewhere)) == ([], [("clean", (None,))])


def test_what_is_no_partition_of_the_arc_is_not_wanted(make_world):
    """Rule 5.7: days without a report."""
    world = make_world(dataset("days", keys=DAYS), dataset("odd", "days", keys=["1", "3"], subscribe=["days"]))
    for day in DAYS:
        world.arrive(f"days@{day}", f"file:///{day}")

    assert world.fire() == ["odd@1", "odd@3"]


# Where an arc stands in the log


def test_an_arc_is_not_woken_by_what_was_live_before_it_was_declared(make_world):
    """Rule 10.5"""
    world = make_world(dataset("files", keys=DAYS))
    arc = dataset("clean", "files", keys=DAYS, subscribe=["files"])
    world.catalog.datasets["clean"] = arc
    world.arrive("files@1", "file:///1")
    world.handle(c.RegisterDatasets(location=HERE, datasets=(*world.specs, arc)))
    world.arrive("files@2", "file:///2")

    assert world.fire() == ["clean@2"]


def test_a_long_log_is_followed_in_portions_and_no_event_is_cut(chain, monkeypatch):
    """Rule 11.1: bounded work in a tick; what is left comes in the next."""
    monkeypatch.setattr(following, "MAX_SOURCES", 2)
    monkeypatch.setattr(following, "MAX_EVENTS", 4)
    monkeypatch.setattr(following, "MAX_STRETCHES", 2)
    for day in DAYS:
        chain.arrive(f"files@{day}", f"file:///{day}")
    for _ in range(9):
        chain.handle(c.CancelWants(ids=(chain.want("report@1"),)))
    chain.live("clean@1")

    fired = [chain.fire() for _ in range(6)]

    assert fired[0] == ["clean@2", "clean@3"]
    assert [lot for lots in fired for lot in lots] == ["clean@2", "clean@3", "report@1"]
    assert chain.log().count("ArcFired") > 3, "an empty stretch is said too"


# Arcs that come back


def register(world, *assets):
    """The location registers these of its datasets alone."""
    world.handle(
        c.RegisterDatasets(location=HERE, datasets=tuple(spec for spec in world.specs if spec.asset in assets))
    )


def test_an_arc_that_comes_back_is_woken_by_what_became_live_meanwhile(chain):
    """Rule 10.5: for a while older code without the arc was registered."""
    chain.arrive("files@1", "file:///1")
    assert chain.fire() == ["clean@1"]
    register(chain, "files", "report")
    chain.arrive("files@2", "file:///2")
    assert chain.fire() == []

    register(chain, "files", "clean", "report")

    assert chain.fire() == ["clean@2"]
    assert chain.fire() == []
    assert fired_by(chain.store, "clean") == [chain.uuid("files@1"), chain.uuid("files@2")]
    assert chain.check() == []


def test_an_arc_that_came_back_stays_for_a_process_that_has_not_followed_it(chain):
    """Rule 10.5: the process read the arcs before it came back, and the log after the place of the arc."""
    chain.arrive("files@1", "file:///1")
    chain.fire()
    register(chain, "files", "report")
    chain.arrive("files@2", "file:///2")
    register(chain, "files", "clean", "report")
    chain.arrive("files@3", "file:///3")
    third = c.Published(chain.uuid("files@3"), "files@3", chain.seq)
    report = next(arc for arc in chain.queries.datasets.arcs() if arc.asset == "report")

    chain.handle(c.FireArcs(up_to_seq=chain.seq, published=(third,), followed={"report": report.since, "clean": 1}))

    assert chain.fire() == ["clean@2", "clean@3"]


@pytest.mark.parametrize(("days", "woken"), [(6.9, ["clean@1"]), (7.1, [])])
def test_an_arc_begins_at_the_present_after_7_days(chain, days, woken):
    """Rule 10.5: a want of that time would have expired."""
    register(chain, "files", "report")
    chain.arrive("files@1", "file:///1")
    chain.clock.turn(days * 24 * 3600.0)

    register(chain, "files", "clean", "report")

    assert chain.fire() == woken
    chain.arrive("files@2", "file:///2")
    assert chain.fire() == ["clean@2"]


# Lots that have failed


@pytest.fixture(params=["chain", "late"])
def either(request):
    """With `follow_late` and without: it adds nothing for a lot that has failed."""
    world = request.getfixturevalue(request.param)
    if request.param == "late":
        world.live("names")
    return world


def test_new_data_opens_a_lot_that_had_failed_and_the_arc_wants_it(either):
    """Rule 10.5: bad files are sent again; once for each source instance."""
    either.arrive("files@1", "file:///1")
    either.fire()
    either.fail("clean@1")
    either.arrive("files@1", "file:///1 mended")
    before = either.seq

    either.fire()

    assert either.log(before) == ["ArcFired", "TaintCreated", "WantCreated"]
    assert either.state("clean@1") is _I.TAINTED
    (taint,) = either.queries.instances.taints_of(either.uuid("clean@1"))
    assert taint.reason == "late data: files@1 has a new instance"
    assert [state for _, state in arc_wants(either, "clean@1")] == [WantState.FAILED, WantState.IDLE]
    assert either.due() == ["clean@1"]
    either.fail("clean@1")
    assert either.fire() == []
    assert either.state("clean@1") is _I.FAILED


def test_a_compacted_source_a_revert_and_an_untaint_open_no_failed_lot(either):
    """Rules 9.8, 10.5: the rows are the same."""
    either.arrive("files@1", "file:///1")
    either.fire()
    either.fail("clean@1")
    first = either.uuid("files@1")
    either.handle(c.ReplaceFiles(ref="files@1", uuid=first, job_run_id=either.ids(), manifest=COMPLETE))
    either.fire()
    either.handle(c.RevertCanonical(ref="files@1", uuid=first))
    either.untaint(either.taint("files@1"))

    either.fire()

    assert either.state("clean@1") is _I.FAILED


def test_new_data_does_not_open_a_lot_that_a_person_canceled(chain):
    """Rules 6.10, 10.5"""
    chain.arrive("files@1", "file:///1")
    chain.fire()
    chain.miss("report@1", "clean@1")
    chain.start("clean@1")
    job_run = chain.canonical("clean@1").job_run
    chain.handle(c.CancelJobRuns(job_run_ids=(job_run,), reason="canceled by Zoë", fail_missed=True))
    assert chain.state("clean@1") is _I.FAILED
    chain.arrive("files@1", "file:///1 mended")

    chain.fire()

    assert chain.state("clean@1") is _I.FAILED
    assert chain.open_wants("clean@1") == []


@pytest.fixture
def of_two(make_world):
    """`clean` subscribes to `files`, and reads `names`, which is no source of it."""
    return make_world(
        dataset("files", keys=DAYS),
        dataset("names"),
        dataset("clean", "files", "names", keys=DAYS, subscribe=["files"]),
    )


def test_a_lot_that_failed_upstream_is_wanted_by_its_arc_when_it_is_open_again(of_two):
    """Rules 6.6, 10.5: new data came while another input had failed."""
    of_two.arrive("files@1", "file:///1")
    of_two.fire()
    of_two.miss("clean@1", "names")
    of_two.fail("names")
    of_two.arrive("files@1", "file:///1 more")
    of_two.fire()
    assert of_two.state("clean@1") is _I.UPSTREAM_FAILED
    assert of_two.open_wants("clean@1") == []

    of_two.taint("names")

    (want,) = of_two.open_wants("clean@1")
    assert (want.source, want.source_id, want.state) == ("arc", of_two.uuid("files@1"), WantState.IDLE)
    assert want.comment == "files@1 became live; no input has failed any more"
    of_two.cancel_want(want.id)
    assert of_two.open_wants("clean@1") == [], "a person's cancel stays"
    assert of_two.check() == []


def test_a_lot_that_failed_upstream_without_new_data_is_not_wanted_when_it_is_open(of_two):
    """Rule 6.6: wants that ended stay ended."""
    of_two.arrive("files@1", "file:///1")
    of_two.fire()
    of_two.miss("clean@1", "names")
    of_two.clock.turn(1.0)
    of_two.fail("names")

    of_two.taint("names")

    assert of_two.state("clean@1") is _I.UP_FOR_RETRY
    assert of_two.open_wants("clean@1") == []


# Late data


def test_an_arc_that_follows_late_data_rebuilds_its_lot_once(late):
    """Rule 10.5"""
    late.live("files@1", "names")
    late.fire()
    late.succeed("clean@1", inputs=["files@1", "names"])
    late.fire()
    late.arrive("files@1", "file:///late")

    assert late.fire() == ["clean@1"]

    assert late.state("clean@1") is _I.TAINTED
    (taint,) = late.queries.instances.taints_of(late.uuid("clean@1"))
    assert taint.reason == "late data: files@1 has a new instance"
    late.succeed("clean@1", inputs=["files@1", "names"])
    assert late.fire() == []
    assert late.state("clean@1") is _I.LIVE
    assert late.queries.instances.stale([late.uuid("clean@1")]) == set()


@pytest.mark.parametrize("looks_in_between", [True, False])
def test_data_that_came_while_the_lot_was_being_built_is_late_when_it_is_live(late, looks_in_between):
    """Rule 10.5: the job run had pinned the instance before, and keeps it."""
    late.live("files@1", "names")
    late.fire()
    pinned = late.uuid("files@1")
    late.job_run("clean@1")
    late.arrive("files@1", "file:///late")
    if looks_in_between:
        assert late.fire() == ["clean@1"]
    succeed_with(late, "clean@1", {"files@1": pinned, "names": late.uuid("names")})

    late.fire()

    assert late.state("clean@1") is _I.TAINTED
    assert late.due() == ["clean@1"]
    late.succeed("clean@1", inputs=["files@1", "names"])
    assert late.fire() == []
    assert late.state("clean@1") is _I.LIVE


def succeed_with(world, ref, inputs):
    output = OutputFact(ref=ref, inputs=inputs, code_version="1", manifest=COMPLETE)
    world.handle(c.SucceedJobRuns(runs=(RunSuccess(world.job_run(ref), (output,)),)))


@pytest.mark.parametrize("news", ["another input was rebuilt", "the source was reverted"])
def test_data_that_the_lot_was_built_from_or_that_is_no_source_is_not_late(late, news):
    """Rules 7.4, 10.5: `names` is an input and no source."""
    late.live("files@1", "names")
    late.succeed("clean@1", inputs=["files@1", "names"])
    late.fire()

    if news == "another input was rebuilt":
        rebuilt(late, "names")
    else:
        first = late.uuid("files@1")
        late.arrive("files@1", "file:///wrong")
        late.handle(c.RevertCanonical(ref="files@1", uuid=first))

    assert late.fire() == []
    assert late.state("clean@1") is _I.LIVE


@pytest.mark.parametrize("taint_comes", ["after the arc", "before the arc"])
def test_a_source_with_equal_rows_wakes_only_lots_with_other_rows(late, taint_comes):
    """Rule 4.8: data that was tainted before the arc looked must not be lost."""
    late.live("names")
    for content_hash in ("x:1", "x:2"):
        late.succeed("files@1", manifest=replace(COMPLETE, content_hash=content_hash))
        if content_hash == "x:1":
            late.succeed("clean@1", inputs=["files@1", "names"])
            late.fire()
        elif taint_comes == "after the arc":
            assert late.fire() == ["clean@1"]
            late.succeed("clean@1", inputs=["files@1", "names"])
            late.fire()
        late.taint("files@1")
    assert late.fire() == []

    late.succeed("files@1", manifest=replace(COMPLETE, content_hash="x:2"))

    assert late.fire() == ([] if taint_comes == "after the arc" else ["clean@1"])


def test_a_source_with_equal_rows_opens_no_failed_lot(chain):
    """Rule 4.8"""
    chain.succeed("files@1", manifest=replace(COMPLETE, content_hash="x:1"))
    chain.fire()
    chain.fail("clean@1")

    rebuilt(chain, "files@1", manifest=replace(COMPLETE, content_hash="x:1"))

    assert chain.fire() == []
    assert chain.state("clean@1") is _I.FAILED


def test_a_source_with_equal_rows_wants_a_lot_whose_want_expired_while_it_waited(chain):
    """Rules 4.8, 10.5: the lot missed the source that was tainted, and has no rows of it."""
    chain.succeed("files@1", manifest=replace(COMPLETE, content_hash="x:1"))
    chain.fire()
    chain.taint("files@1")
    chain.miss("clean@1", "files@1")
    chain.clock.turn(1.1 * c.DEFAULT_TTL_SECONDS)
    Orchestrator(chain).tick()

    chain.succeed("files@1", manifest=replace(COMPLETE, content_hash="x:1"))

    assert chain.fire() == ["clean@1"]
    assert chain.due() == ["clean@1"]


def test_late_data_opens_a_lot_and_the_one_that_failed_because_of_it(make_world):
    """Rules 6.6, 10.5: as soon as the first is open the second is free, and gets a want and no refusal."""
    world = make_world(
        dataset("files"),
        dataset("clean", "files", subscribe=["files"], follow_late=True),
        dataset("report", "clean", subscribe=["files"], follow_late=True),
    )
    world.arrive("files", "file:///bad")
    world.fire()
    world.fail("clean")
    world.miss("report", "clean")
    assert world.states("clean", "report") == [_I.FAILED, _I.UPSTREAM_FAILED]
    world.arrive("files", "file:///mended")
    before = world.seq

    assert world.fire() == ["clean", "report"]

    assert world.check() == []
    assert world.states("clean", "report") == [_I.TAINTED, _I.UP_FOR_RETRY]
    assert [want.source for want in world.open_wants("report")] == ["arc"]
    assert "PartitionDelegated" not in world.log(before)
    assert "clean" in world.due()
