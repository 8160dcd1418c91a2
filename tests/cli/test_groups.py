"""Every command is a row of a table, its help fits a terminal, and a mistyped name proposes the right one (rules 15)."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout

import click
import pytest
from click.shell_completion import get_completion_class

from databuild_dagster.cli.groups import FORM, RENAMED, Branch, Leaf, TableGroup, inserted
from databuild_dagster.cli.main import cli, run, with_features
from databuild_dagster.feature import Command, InvalidFeature, built_in
from databuild_dagster.version import __version__
from tests.support.feature_commands import feature_of

MOST_CHARACTERS = 60
MOST_COMMANDS = 52
TERMINAL_WIDTH = 80
VERBS = [
    "Bring",
    "Build",
    "Cancel",
    "Check",
    "Compare",
    "Continue",
    "Copy",
    "Count",
    "Create",
    "End",
    "Erase",
    "Explain",
    "Find",
    "Follow",
    "Hold",
    "Index",
    "Keep",
    "Launch",
    "List",
    "Make",
    "Mark",
    "Open",
    "Print",
    "Read",
    "Recompute",
    "Record",
    "Remove",
    "Retry",
    "Revert",
    "Rewrite",
    "Run",
    "Show",
    "Stop",
    "Verify",
]


def rows_below(
    path: tuple[str, ...], rows: dict[str, Leaf | Branch]
) -> Iterator[tuple[tuple[str, ...], Leaf | Branch]]:
    for name, row in rows.items():
        yield (*path, name), row
        if isinstance(row, Branch):
            yield from rows_below((*path, name), dict(row.rows))


ROWS = [found for rows in with_features().values() for found in rows_below((), dict(rows))]
HAS_OPERATIONS = "operations" in [feature.name for feature in built_in()]
if HAS_OPERATIONS:
    from databuild_dagster.features.operations.commands.operation_run import TYPES

    ROWS += [found for rows in TYPES.values() for found in rows_below(("operation", "run"), rows)]
IDS = [" ".join(path) for path, _ in ROWS]


def command_at(path: tuple[str, ...]) -> click.Command:
    command: click.Command = cli
    for name in path:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    return command


def databuild(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(list(arguments))
    return code, out.getvalue(), err.getvalue()


@pytest.mark.parametrize(("path", "row"), ROWS, ids=IDS)
def test_a_help_line_is_short_starts_with_a_verb_and_is_the_first_sentence(
    path: tuple[str, ...], row: Leaf | Branch
) -> None:
    assert len(row.summary) <= MOST_CHARACTERS
    assert row.summary.split()[0].rstrip(",") in VERBS
    assert row.summary.endswith(".")
    if path[-1] != "TYPE":
        text = command_at(path).help
        assert text is not None
        assert text.split("\n\n")[0] == row.summary


@pytest.mark.parametrize(
    "path",
    [(), *(path for path, row in ROWS if isinstance(row, Branch)), *([("operation", "run")] if HAS_OPERATIONS else [])],
)
def test_no_help_line_of_a_group_is_cut_off_or_folded_at_80_columns(path: tuple[str, ...]) -> None:
    """findings/first-use.md 25"""
    group = command_at(path)
    assert isinstance(group, click.Group)

    text = group.get_help(click.Context(group, info_name="databuild", terminal_width=TERMINAL_WIDTH))

    for name, row in ROWS:
        if name[:-1] == path and FORM not in name[-1]:
            assert f"{row.summary}\n" in f"{text}\n"
    assert max(map(len, text.splitlines())) <= TERMINAL_WIDTH


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("histroy", "`databuild history`"),
        pytest.param("lots", "`databuild lot list`", marks=pytest.mark.feature("lots")),
        ("job-runs", "`databuild history --job-runs`"),
        ("delegations", "`databuild history --requests`"),
        pytest.param("clean", "`databuild gc --leftovers`", marks=pytest.mark.feature("clean")),
        pytest.param("gaps", "`databuild lot gaps`", marks=pytest.mark.feature("lots")),
        ("check", "`databuild log check`"),
        pytest.param("operation lst", "`databuild operation list`", marks=pytest.mark.feature("operations")),
    ],
)
def test_a_mistyped_command_proposes_the_near_one(typed: str, meant: str) -> None:
    code, out, err = databuild(*typed.split())

    assert (code, out) == (2, "")
    assert f"There is no command `databuild {typed}`. Did you mean {meant}?" in err


def test_there_are_at_most_52_commands() -> None:
    """findings/first-use.md F. A form of a command is a flag of it."""
    commands = [path for path, row in ROWS if path[:2] != ("operation", "run") and not isinstance(row, Branch)]

    assert len([path for path in commands if FORM not in path[-1]]) <= MOST_COMMANDS


def test_an_earlier_name_of_a_command_answers_with_the_new_name() -> None:
    paths = {" ".join(path) for path, _ in ROWS}

    for old, new in RENAMED.items():
        code, out, err = databuild(*old.split(), "--help")
        assert (code, out) == (2, ""), old
        assert err.startswith(f"Error: `databuild {old}` is now `databuild {new}`."), err
        assert old not in paths
        assert new in paths or feature_of(new.split()) is not None
    assert databuild("ledger")[2].startswith(
        "Error: `databuild ledger list` is now `databuild history --requests`, and `databuild ledger metrics` is now "
    )


def test_earlier_names_are_gone_with_version_0_2() -> None:
    assert not RENAMED or tuple(int(part) for part in __version__.split(".")[:2]) < (0, 2)


def test_help_is_a_word_too_and_has_the_forms_of_a_command() -> None:
    assert databuild("help") == databuild("--help")
    assert databuild("log", "help") == databuild("help", "log") == databuild("log", "--help")
    assert databuild("help", "show") == databuild("show", "--help")
    assert "--manifest-schema Print the JSON schema of manifests;" in " ".join(databuild("help", "show")[1].split())
    assert "--ref" in databuild("help", "history", "--requests")[1]
    assert "--manifest" not in databuild("--help")[1]


def test_a_form_is_named_by_its_flag_wherever_it_stands() -> None:
    alone = databuild("show", "--manifest-schema", "--json")

    assert alone[0] == 0
    assert databuild("show", "--json", "--manifest-schema") == alone
    # After two dashes there are no options.
    assert "No asset is named" not in databuild("show", "--", "--manifest-schema")[1]
    assert "--manifest-schema" in databuild("show", "--manifets", "x")[2]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_options_and_forms(shell: str) -> None:
    of_shell = get_completion_class(shell)
    assert of_shell is not None
    completion = of_shell(cli, {}, "databuild", "_DATABUILD_COMPLETE")

    def completed(*words: str) -> list[str]:
        *before, last = words
        return [item.value for item in completion.get_completions(before, last)]

    assert "_DATABUILD_COMPLETE" in completion.source()
    assert completed("hi") == ["history"]
    assert completed("want", "") == ["create", "list", "show", "cancel"]
    assert completed("show", "--m") == ["--module-name", "--manifest", "--manifest-schema"]
    assert completed("history", "--requests", "--re") == ["--request", "--ref"]
    assert completed("want", "list", "--state", "F") == ["failed"]


@pytest.mark.parametrize(
    ("typed", "right"),
    [
        ("--wide status", "status --wide"),
        ("want --limit 5 list", "want list --limit"),
        pytest.param(
            "--samples 3 operation run validate orders",
            "operation run validate --samples",
            marks=pytest.mark.feature("operations"),
        ),
    ],
)
def test_an_option_before_its_command_is_refused_with_the_right_place(typed: str, right: str) -> None:
    code, out, err = databuild(*typed.split())

    assert (code, out) == (2, "")
    assert f"is an option of the command. Write it after the command: `databuild {right}`." in err


def test_an_option_that_the_command_has_not_is_unknown() -> None:
    assert "No such option '--samples'" in databuild("--samples", "3", "status")[2]


def test_another_word_for_an_option_proposes_the_option() -> None:
    assert "--sla" in databuild("want", "create", "--deadline", "3h")[2]
    assert "--sla" not in databuild("status", "--deadline", "3h")[2]


def test_a_name_like_no_command_is_refused_in_json_too() -> None:
    code, out, _ = databuild("xyzzy", "--json")

    assert code == 2
    assert json.loads(out)["error"] == {
        "type": "UsageError",
        "message": "There is no command `databuild xyzzy`.",
        "hint": "`databuild --help` shows how to use it.",
    }


@pytest.mark.feature("clean")
def test_leftovers_and_the_options_of_replaced_data_exclude_each_other() -> None:
    both = databuild("gc", "--leftovers", "--keep", "2")
    orphans = databuild("gc", "--orphans")

    assert (both[0], orphans[0]) == (2, 2)
    assert "--leftovers excludes --keep; give one of them." in both[2]
    assert "--orphans needs --leftovers." in orphans[2]


CORE = {"Start": {"first": Leaf("a:b", "Show one."), "last": Branch("Show more.", {"list": Leaf("a:c", "List them.")})}}


def feature_command(name: str, after: str = "", section: str = "Start") -> Command:
    return Command(name, "shop.commands:show", "Show something.", section, after, group="Show a group.")


@pytest.mark.parametrize(
    ("after", "names"),
    [
        ("first", ["first", "own", "last"]),
        ("Start", ["own", "first", "last"]),
        ("", ["first", "last", "own"]),
        ("gone", ["first", "last", "own"]),
    ],
)
def test_a_command_of_a_feature_is_at_the_place_that_its_row_names(after: str, names: list[str]) -> None:
    found = inserted(CORE, [feature_command("own", after)])

    assert list(found["Start"]) == names
    assert list(CORE["Start"]) == ["first", "last"]


def test_features_add_to_groups_of_the_core_and_bring_groups_and_sections() -> None:
    found = inserted(
        CORE,
        [feature_command("last clear", "list"), feature_command("own add", "first"), feature_command("odd", "", "Odd")],
    )

    groups = {name: list(row.rows) for name, row in found["Start"].items() if isinstance(row, Branch)}
    assert groups == {"own": ["add"], "last": ["list", "clear"]}
    assert list(found) == ["Start", "Odd"]


@pytest.mark.parametrize("name", ["first", "last", "last list", "first list"])
def test_a_command_whose_name_is_taken_is_refused(name: str) -> None:
    with pytest.raises(InvalidFeature, match=f"`{name}`"):
        inserted(CORE, [feature_command(name)])


def test_the_later_table_is_asked_only_for_a_command_that_the_earlier_one_lacks() -> None:
    asked: list[str] = []

    def all_rows() -> dict[str, dict[str, Leaf | Branch]]:
        asked.append("all")
        return {"Start": {"status": Leaf("databuild_dagster.cli.status:status", ""), "more": Branch("", {})}}

    group = TableGroup(
        "databuild", tables=(lambda: {"Start": {"init": Leaf("databuild_dagster.cli.init:init", "")}}, all_rows)
    )
    context = click.Context(group)

    assert group.get_command(context, "init") is not None
    assert asked == []
    assert group.get_command(context, "status") is not None
    assert group.get_command(context, "gone") is None
    assert asked == ["all", "all"]
