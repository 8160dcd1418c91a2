"""Selections on the command line: ranges, `*` and `--only`, in every command that takes refs (rule 2.5)."""

import json
from collections.abc import Iterator
from typing import Any

import click
import pytest

from databuild_dagster.cli.groups import Branch
from databuild_dagster.cli.main import cli, with_features
from databuild_dagster.cli.options import REF
from tests.support.feature_commands import is_there
from tests.support.project import Done, Project

DAYS = [f"orders@2024-01-{day}" for day in (29, 30, 31)]
RANGE = "orders@2024-01-29..2024-01-31"

#: Command to the option or argument by which it takes a ref; one alone, for the reason given.
ONE_REF = {
    "revert": "an instance belongs to one ref",
    "want list": "a filter",
    "history --requests": "a filter",
    "history --job-runs": "a filter",
    "gc": "names of datasets and ranges, by arguments of its own",
    "partitions": "a dataset or a range, by an argument of its own",
    "pause": "refs or whole assets, and no state, which changes while they are paused",
    "resume": "refs or whole assets, and no state, which changes while they are paused",
}


def commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(cli)
    for entries in with_features().values():
        for name, entry in entries.items():
            command = cli.get_command(context, name)
            assert command is not None
            if not isinstance(entry, Branch):
                yield name, command
                continue
            assert isinstance(command, click.Group)
            for lower in command.list_commands(context):
                below = command.get_command(context, lower)
                assert below is not None
                yield f"{name} {lower}", below


def test_every_command_that_takes_refs_takes_selections() -> None:
    """findings/first-use.md 2"""
    taking: dict[str, list[click.Parameter]] = {}
    for name, command in commands():
        if refs := [parameter for parameter in command.params if parameter.type is REF]:
            taking[name] = refs
    with_only = {name for name, command in commands() if any("--only" in option.opts for option in command.params)}

    assert taking.keys() - ONE_REF.keys() == with_only
    every = "build, want create, plan, plan --if-tainted, plan --if-missing, explain, show, show --full, history, read, taint, retry, diff"
    assert with_only == {name for name in every.split(", ") if is_there(name.split())}


def lines(done: Done) -> list[Any]:
    assert done.code == 0, done
    return [json.loads(line) for line in done.out.splitlines()]


def selected(done: Done) -> str:
    (line,) = [line for line in done.err.splitlines() if line.startswith("Selected ")]
    return line


def test_a_range_is_built_corrected_and_wanted_by_state(project: Project) -> None:
    project.fail("2024-01-30")

    built = project.call("build", RANGE, "--json")
    assert (built.code, built.json["refs"]) == (1, {"live": 2, "failed": 1})
    assert selected(built) == f"Selected 3 refs: {', '.join(DAYS)}."

    tainted = project.call("taint", RANGE, "--only", "live", "--reason", "wrong", "--json")
    assert tainted.json["refs"] == [DAYS[0], DAYS[2]]
    retried = project.call("retry", "orders@*", "--only", "failed", "--json")
    assert retried.json["opened"] == [DAYS[1]]
    wanted = project.call("want", "create", "orders@*", "--only", "missing,tainted", "--json")
    assert len(wanted.json) == 32
    assert selected(wanted).endswith("orders@2024-02-01, orders@2024-02-02 and 27 more.")

    with project.recording_nothing():
        none = project.call("want", "create", RANGE, "--only", "stale", "--json")
        assert (none.code, none.json["error"]["type"]) == (2, "InvalidSelection")


@pytest.mark.feature("compare")
def test_commands_that_look_answer_for_each_ref_of_a_range(project: Project) -> None:
    project.build(RANGE)

    with project.recording_nothing():
        shown = lines(project.call("show", RANGE, "--json"))
        assert [answer["ref"] for answer in shown] == DAYS
        assert [answer["ref"] for answer in lines(project.call("show", "--full", RANGE, "--json"))] == DAYS
        assert [answer["ref"] for answer in lines(project.call("explain", RANGE, "--json"))] == DAYS
        histories = lines(project.call("history", RANGE, "--json"))
        assert [instance["uuid"] for (instance,) in histories] == [answer["canonical"]["uuid"] for answer in shown]
        assert [partition["ref"] for partition in project.ask("partitions", RANGE)] == DAYS
        rows = lines(project.call("read", RANGE, "--limit", "1", "--json"))
        assert [row["day"] for (row,) in rows] == [ref.removeprefix("orders@") for ref in DAYS]
        planned = project.call("plan", "orders@2024-01-31..2024-02-01", "--only", "missing", "--json")
        assert [job["ref"] for job in planned.json["jobs"]] == ["orders@2024-02-01"]

        text = project.call("history", RANGE).out
        assert [line for line in text.splitlines() if line.startswith("orders@")] == DAYS
        assert project.call("show", RANGE).out.count("\n\n") == 2


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        (["orders@2024-01-31..2024-01-29"], "InvalidSelection", "orders@2024-01-31..2024-01-29"),
        (["orders@*", "--only", "broken"], "BadParameter", "'broken' is no state; write one or more of missing,failed"),
    ],
)
@pytest.mark.parametrize(
    "command",
    [["build"], ["want", "create"], ["plan"], ["show"], ["explain"], ["taint", "--reason", "wrong"], ["retry"]],
    ids=" ".join,
)
def test_a_wrong_selection_is_refused_before_anything_is_recorded(
    known_project: Project, command: list[str], arguments: list[str], kind: str, words: str
) -> None:
    done = known_project.call(*command, *arguments, "--json")

    assert (done.code, done.json["error"]["type"]) == (2, kind)
    assert words in done.json["error"]["message"]


@pytest.mark.parametrize("command", [["history", "--requests", "--ref"], ["show", "--manifest"]], ids=" ".join)
def test_a_command_of_one_ref_refuses_a_range_and_says_so(known_project: Project, command: list[str]) -> None:
    done = known_project.call(*command, RANGE)

    assert (done.code, done.out) == (2, "")
    assert "This command takes one partition." in done.err
