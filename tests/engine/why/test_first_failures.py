"""The failures behind refs, and the command that opens all of them (rule 6.15)."""

from __future__ import annotations

import shlex

from databuild_dagster.engine.why.first_failures import MAX_NAMED, first_failures
from databuild_dagster.model import commands as c
from tests.support.catalog import dataset

KEYS = [f"{number:02}" for number in range(1, 9)]
DAYS = [f"day@{key}" for key in KEYS]


def test_refs_that_have_not_failed_name_no_failure(make_world):
    world = make_world(dataset("day", keys=KEYS), dataset("month"))
    world.miss("month", DAYS[0])

    assert first_failures(world.engine, ["month", DAYS[1]]) is None


def test_a_failure_is_named_with_its_reason_and_what_waits_and_its_command_opens_it(make_world):
    world = make_world(dataset("day", keys=KEYS), dataset("month"), dataset("year"))
    world.miss("year", "month")
    world.miss("month", DAYS[0], DAYS[1])
    world.fail(DAYS[0], error="no such\nfile")

    failures = first_failures(world.engine, ["year"])

    assert failures is not None
    assert failures.sentences == [
        "day@01 failed first, and 2 refs wait for it: no such file",
        "Once that is repaired, this opens all of it: databuild retry day@01",
    ]
    world.handle(c.RetryRefs(refs=(failures.named[0].ref,)))
    assert first_failures(world.engine, ["year", "month"]) is None


def test_refs_that_failed_alike_are_named_together_with_all_that_waits(make_world):
    world = make_world(dataset("day", keys=KEYS), dataset("month"))
    world.miss("month", *DAYS[:4])
    for day, key in zip(DAYS[:3], KEYS, strict=False):
        world.fail(day, error=f"no file {key}.csv")
    world.fail(DAYS[3], error="no memory")

    failures = first_failures(world.engine, ["month"])

    assert failures is not None
    assert failures.sentences[:2] == [
        "day@01, day@02 and 1 more failed first and alike, and 1 ref waits for them: no file 01.csv",
        "day@04 failed first, and 1 ref waits for it: no memory",
    ]


def test_beside_a_table_only_failures_with_refs_behind_them_are_repeated(make_world):
    world = make_world(dataset("day", keys=KEYS), dataset("month"))
    world.miss("month", DAYS[0])
    for day in DAYS[:2]:
        world.fail(day, error=f"unlike {'x' if day == DAYS[0] else 'y'}")

    failures = first_failures(world.engine, DAYS[:2])

    assert failures is not None
    assert [sentence.split(" failed")[0] for sentence in failures.beside(DAYS[:2])[:-1]] == [DAYS[0]]


def test_many_failures_are_counted_and_opened_by_their_asset(make_world):
    world = make_world(dataset("day", keys=KEYS))
    for day in DAYS:
        world.fail(day)

    failures = first_failures(world.engine, DAYS)

    assert failures is not None
    assert [failure.ref for failure in failures.named] == DAYS[:MAX_NAMED]
    assert "3 more refs failed by themselves." in failures.sentences
    assert failures.command == "databuild retry --only failed 'day@*'"


def test_failures_of_an_asset_with_the_key_star_are_opened_one_by_one(make_world):
    """Rule 2.5: the key wins."""
    days = [*DAYS, "day@*"]
    world = make_world(dataset("day", keys=[*KEYS, "*"]))
    for day in days:
        world.fail(day)

    failures = first_failures(world.engine, days)

    assert failures is not None
    assert sorted(shlex.split(failures.command)[4:]) == sorted(days)
