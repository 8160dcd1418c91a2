"""`databuild pause` and `resume`, and the commands that say that something is paused (rule 6.13)."""

import pytest

from databuild_dagster.engine.holders import this_user
from tests.support.project import Project

DAYS = [f"orders@2024-01-{day}" for day in (29, 30, 31)]
DAY = DAYS[0]


def test_a_pause_shows_wherever_a_state_is_shown_until_it_is_resumed(project: Project) -> None:
    project.call("admin", "tick")
    project.call("want", "create", DAY)

    paused = project.call("pause", f"{DAY}..2024-01-30", "--reason", "the till sends half")

    assert f"Selected 2 refs: {DAY}, {DAYS[1]}." in paused.err
    assert f"Paused {DAY}, {DAYS[1]} until `databuild resume {DAY}..2024-01-30`." in paused.out
    sentence = f"paused by {this_user()} since "
    for command in (("explain", DAY), ("plan", DAY), ("show", DAY), ("partitions", DAY), ("status",)):
        said = " ".join(project.call(*command).out.split())
        assert "paused" in said, command
        assert "the till sends half" in said, command
    assert sentence in project.call("explain", DAY).out
    assert f"{DAY}, {DAYS[1]}: {sentence}" in project.call("status").out
    (of_status,) = project.ask("status")["paused"]
    assert (of_status["asset"], of_status["refs"], of_status["until"]) == ("orders", DAYS[:2], None)
    assert project.ask("show", DAY)["paused"]["reason"] == "the till sends half"
    assert [row["paused"] is None for row in project.ask("partitions", f"{DAY}..2024-01-31")] == [False, False, True]
    before = project.queries.events.head().seq

    assert "Resumed orders@2024-01-29, orders@2024-01-30." in project.call("resume", "orders").out

    assert project.ask("show", DAY)["paused"] is None
    assert project.ask("show", DAY, "--as-of", str(before))["paused"]["actor"] == this_user()
    assert project.ask("status")["paused"] == []


def test_a_build_of_a_paused_partition_names_the_pause_and_keeps_its_want(project: Project) -> None:
    project.call("admin", "tick")
    project.call("pause", "orders", "--reason", "the till sends half", "--until", "12h")

    done = project.call("build", DAY)

    assert "`databuild resume orders`" in done.out + done.err
    (want,) = project.ask("want", "list")
    assert (want["refs"], want["state"]) == ([DAY], "Idle")
    project.call("resume", "orders", "--reason", "the till is mended")
    project.build(DAY)


def test_a_pause_names_the_running_job_runs_of_its_own_refs(project: Project) -> None:
    project.call("admin", "tick")
    project.claim(DAYS[0])
    project.claim(DAYS[1])
    runs = {run["refs"][0]: run["id"] for run in project.ask("history", "--job-runs", "--open")}
    assert project.ask("pause", DAYS[0], "--reason", "wrong")["running"] == [runs[DAYS[0]]]

    second = project.call("pause", DAYS[1], "--reason", "wrong")

    assert f"1 job run continues: {runs[DAYS[1]]}." in second.out
    assert f"`databuild want cancel --job-runs --retry {runs[DAYS[1]]}` cancels the first." in second.out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("orders", "--reason", " "), "A pause needs a reason, and this one is empty: others read it"),
        (
            ("orders", "--reason", "wrong", "--until", "2020-01-01T00:00:00Z"),
            "'2020-01-01T00:00:00Z' has passed; it must be later than now.",
        ),
        (
            ("orders", "--reason", "wrong", "--until", "soon"),
            "'soon' is no time; write 2026-11-21T14:00:00Z, or 90s, 15m, 12h, 7d.",
        ),
    ],
)
def test_a_wrong_pause_is_refused(known_project: Project, options: tuple[str, ...], words: str) -> None:
    done = known_project.call("pause", *options)

    assert done.code == 2
    assert words in " ".join(done.err.split())
