"""Which lots are absent, and why, back to the first cause (rule 10.7)."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatch
from itertools import pairwise

import pytest

from databuild_dagster.features.lots import gaps
from databuild_dagster.features.lots.gaps import GapCause, GapReport, chain_of_gaps, gap_report
from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import DatasetKind
from databuild_dagster.model.lots import UNITS, Cadence, Expected, Lot, lots_between
from tests.support.catalog import dataset
from tests.support.world import EMPTY, World

DAYS = [f"2024-02-{day:02}" for day in range(27, 30)]
FIRST = Lot.parse("20240227P1D000").start


def expected(asset: str, days: int = 3) -> Expected:
    lots = lots_between(FIRST, FIRST + days * 86_400, UNITS["P1D"])
    refs = [f"{asset}@{day}" for day in DAYS[:days]]
    starts = [lot.start for lot in lots]
    return Expected(asset, Cadence("P1D", 86_400), lots.start, lots.end, list(lots.ids()), refs, starts)


def report(world: World, asset: str) -> GapReport:
    return gap_report(world.engine, expected(asset))


def absent(world: World, asset: str) -> list[tuple[str, str]]:
    return [(item.lot, item.shown) for item in report(world, asset).absent]


def only(world: World, asset: str = "a") -> tuple[str, str]:
    """The cause of the first day, and its first cause."""
    first = report(world, asset).absent[0]
    assert first.lot == "20240227P1D000"
    return first.shown, first.first_shown


@pytest.fixture
def days(make_world):  # type: ignore[no-untyped-def]
    """b is made of a, which is made of raw, which comes from outside."""
    return make_world(
        dataset("raw", keys=DAYS, kind=DatasetKind.SOURCE),
        dataset("a", "raw", keys=DAYS),
        dataset("b", "a", keys=DAYS),
        dataset("c", "b", keys=DAYS),
    )


# What is there


def test_complete_and_empty_lots_are_there_and_the_others_are_named(days):
    days.arrive("raw@2024-02-27", "file:///landed")
    days.succeed("a@2024-02-27")
    days.succeed("a@2024-02-29", manifest=EMPTY)

    found = report(days, "a")

    assert (found.n_expected, found.n_present, found.empty) == (3, 2, ("20240229P1D000",))
    assert [item.lot for item in found.absent] == ["20240228P1D000"]


def test_keys_that_do_not_sort_as_their_times_do_are_found_too(days):
    days.live("a@2024-02-27", "a@2024-02-29")
    in_time = expected("a")
    shuffled = [in_time.refs[place] for place in (1, 2, 0)]

    found = gap_report(days.engine, replace(in_time, refs=shuffled))

    assert [item.ref for item in found.absent] == ["a@2024-02-28"]


def test_nothing_expected_is_nothing_absent(days):
    found = gap_report(days.engine, expected("a", days=0))

    assert (found.n_expected, found.n_present, found.absent) == (0, 0, ())


# Each cause

A = "a@2024-02-27"


@pytest.mark.parametrize(
    ("happens", "cause", "first"),
    [
        (lambda days: None, "never wanted", "it was never wanted"),
        (lambda days: days.pause("a"), "never wanted", "it was never wanted"),
        (lambda days: days.want(A), "wanted and due", "wanted since 2023-11-14T22:13:20Z, and not launched yet"),
        (lambda days: days.start(A), "building", "being built by job run {job_run} since *"),
        (lambda days: days.fail(A, error="the disk is full"), "failed", "* with: the disk is full"),
        (lambda days: days.fail(A, kind="transient"), "backing off", "*retry at 2023-11-14T22:13:25Z*"),
        (
            lambda days: [days.live(A), days.taint(A, reason="twice the rows")],
            "tainted",
            "tainted: twice the rows by tester",
        ),
        (lambda days: [days.want(A), days.pause("a")], "paused", "paused with all of a by tester since *"),
    ],
)
def test_an_absent_lot_says_what_happened_to_it(days, happens, cause, first):
    """Rule 6.13: an unwanted lot of a paused dataset is absent because no want names it."""
    happens(days)

    shown, first_shown = only(days)

    assert shown == cause
    assert fnmatch(first_shown, f"{A}: {first}".format(job_run=days.canonical(A).job_run))


def test_a_wanted_lot_of_a_boundary_is_awaited_and_not_due(make_world):
    """Rules 10.6, 10.7: nothing here could launch it, so the next tick is not to blame."""
    world = make_world(dataset("landed", keys=DAYS, kind=DatasetKind.BOUNDARY), dataset("a", "landed", keys=DAYS))

    world.want(A)
    world.miss(A, "landed@2024-02-27")

    answer = "landed@2024-02-27: no data has arrived for it, and no job builds it"
    assert only(world, "landed") == ("never arrived", answer)
    assert only(world, "a") == ("waiting for upstream landed@2024-02-27", answer)


def test_its_wants_have_expired(days):
    want = days.want(A, ttl=60)
    days.clock.turn(61)
    assert only(days)[0] == "want expired"

    days.handle(c.ExpireWants(want_ids=(want,)))

    assert only(days) == ("want expired", f"{A}: the last want for it, {want}, is expired")


def test_its_want_was_canceled(days):
    want = days.want(A)
    days.cancel_want(want)

    assert only(days) == ("want ended", f"{A}: the last want for it, {want}, is canceled")


def test_a_failure_upstream_is_followed_to_the_first_cause(days):
    days.miss("c@2024-02-27", "b@2024-02-27")
    days.miss("b@2024-02-27", "a@2024-02-27")
    days.fail("a@2024-02-27", error="the disk is full")

    cause, first = only(days, "c")

    assert cause == "failed upstream b@2024-02-27"
    assert first.startswith("a@2024-02-27: failed in job run ")


def test_of_several_that_it_waits_for_the_worst_is_to_blame(days):
    days.miss("c@2024-02-27", "a@2024-02-28", "b@2024-02-27", "raw@2024-02-29")
    days.start("a@2024-02-28")

    assert only(days, "c") == (
        "waiting for upstream raw@2024-02-29",
        "raw@2024-02-29: no data has arrived for it, and no job builds it",
    )


# A chain


def chain(world: World, asset: str) -> tuple[dict[str, GapReport], tuple[str, ...]]:
    spec = world.engine.queries.datasets.get(asset)
    reports, without = chain_of_gaps(
        world.engine, spec, lambda spec: expected(spec.asset) if spec.partitions is not None else None
    )
    assert reports[-1].asset == asset
    return {item.asset: item for item in reports}, without


def test_a_chain_reports_sources_first_and_finds_the_cause_of_unwanted_lots(days):
    days.arrive("raw@2024-02-27", "file:///landed")
    days.live("a@2024-02-27", "b@2024-02-27", "c@2024-02-27")

    reports, _ = chain(days, "c")

    assert list(reports) == ["raw", "a", "b", "c"]
    assert [(item.shown, item.first_ref, item.first_cause) for item in reports["c"].absent] == [
        ("never wanted", "raw@2024-02-28", GapCause.NEVER_ARRIVED),
        ("never wanted", "raw@2024-02-29", GapCause.NEVER_ARRIVED),
    ]


def test_a_lot_of_an_arc_names_the_source_that_never_arrived_without_a_chain(make_world):
    world = make_world(
        dataset("raw", keys=DAYS, kind=DatasetKind.BOUNDARY),
        dataset("sink", "raw", keys=DAYS, subscribe=["raw"]),
        dataset("down", "sink", keys=DAYS, subscribe=["sink"]),
    )
    world.arrive("raw@2024-02-27", "file:///landed")

    found = {asset: report(world, asset).absent for asset in ("sink", "down")}

    why = "no data has arrived for it, and no job builds it"
    assert [(lot.shown, lot.first_shown) for lot in found["sink"]] == [
        ("never wanted", "sink@2024-02-27: it was never wanted"),
        ("waiting for its source raw@2024-02-28", f"raw@2024-02-28: {why}"),
        ("waiting for its source raw@2024-02-29", f"raw@2024-02-29: {why}"),
    ]
    assert [(lot.shown, lot.first_ref) for lot in found["down"]] == [
        ("waiting for its source sink@2024-02-27", "sink@2024-02-27"),
        ("waiting for its source sink@2024-02-28", "raw@2024-02-28"),
        ("waiting for its source sink@2024-02-29", "raw@2024-02-29"),
    ]


def test_a_chain_says_who_has_no_lots(make_world):
    world = make_world(dataset("rates"), dataset("a", "rates", keys=DAYS))

    reports, without = chain(world, "a")

    assert (list(reports), without) == (["a"], ("rates",))
    assert {item.first_ref for item in reports["a"].absent} == {"rates"}


def test_inputs_in_a_ring_end_where_the_ring_closes(make_world):
    world = make_world(dataset("x", "y", keys=DAYS), dataset("y", "x", keys=DAYS))

    reports, _ = chain(world, "x")

    assert {item.first_ref for item in reports["x"].absent} <= {f"y@{day}" for day in DAYS} | {
        f"x@{day}" for day in DAYS
    }


def test_waits_beyond_the_bound_name_the_last_that_was_looked_at(make_world, monkeypatch):
    monkeypatch.setattr(gaps, "MAX_STEPS", 1)
    names = [f"d{n}" for n in range(4)]
    world = make_world(dataset(names[0], keys=DAYS), *(dataset(b, a, keys=DAYS) for a, b in pairwise(names)))
    for a, b in reversed(list(pairwise(names))):
        world.miss(f"{b}@2024-02-27", f"{a}@2024-02-27")

    assert only(world, "d3")[1].startswith("d2@2024-02-27: waits for d1@2024-02-27")
