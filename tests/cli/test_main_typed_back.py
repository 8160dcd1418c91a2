"""Every command and option that a message, a page or help prints can be typed back (rule 2.7).

Commands are taken from the source: from its strings, f-strings, templates and help. In each place of a name stand names that look
like a notation or an option, as the code writes them; the real parser takes the command, and returns these names.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import click
import pytest

import databuild_dagster
from databuild_dagster.calls.streams import print_for, printing_data, say
from databuild_dagster.cli.main import cli, run
from databuild_dagster.cli.process import guard_streams
from databuild_dagster.model.wording import filled, in_environment, typed
from tests.support.command_lines import HORRORS, commands, parsed, why_not_typed

ROOT = Path(databuild_dagster.__file__).parent
NAMES = (*(f"shop/sales@{key}" for key in HORRORS), "-sales@2024-01-01")
GROUPS_AND_COMMANDS = cli.list_commands(click.Context(cli))
#: Options of other programs that sentences name.
FOREIGN = {"--add-modules", "--format", "--help", "--path-prefix", "--port", "--read-only", "--upgrade", "--verbose"}
#: Modules whose templates are filled by `filled`, besides the hints and docstrings of errors.
FILLING = {"data/read_plan.py", "features/tables/keeping.py"}


class Text(NamedTuple):
    """A text of the source; of an f-string its fields are in braces."""

    place: str
    text: str
    is_template: bool
    is_of_error: bool


@cache
def source_texts() -> tuple[Text, ...]:
    return tuple(found for path in sorted(ROOT.rglob("*.py")) for found in _texts_of(path))


def _texts_of(path: Path) -> Iterator[Text]:
    tree = ast.parse(path.read_text())
    left_out = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    left_out |= {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "name"
    }  # Of threads.
    of_errors = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.Expr | ast.Assign)
        for inner in ast.walk(statement)
    }
    name = str(path.relative_to(ROOT))
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield Text(f"{name}:{node.lineno}", node.value, False, id(node) in of_errors or name == "model/errors.py")
        elif isinstance(node, ast.JoinedStr):
            parts = [
                part.value if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}"
                for part in node.values
                if isinstance(part, ast.Constant | ast.FormattedValue)
            ]
            yield Text(f"{name}:{node.lineno}", "".join(map(str, parts)), True, id(node) in of_errors)


def printed_in(text: str) -> Iterator[str]:
    """The commands in a text, without `databuild`: between backticks, or the whole text."""
    yield from re.findall(r"`databuild ([^`[][^`]*)`", text)
    whole = re.fullmatch(r"(?:.*: )?databuild (([a-z-]+)\b.*)", text)
    if whole and whole[2] in GROUPS_AND_COMMANDS and "`" not in text:
        yield whole[1]


def test_each_command_in_a_text_of_the_source_can_be_typed() -> None:
    found = [(text.place, command) for text in source_texts() for command in printed_in(text.text)]

    assert len(found) > 150
    assert [
        (place, why) for place, command in found if (why := why_not_typed(command, NAMES, of_code=True)) is not None
    ] == []


def test_each_name_in_a_command_of_the_source_is_quoted_by_typed() -> None:
    fields = [
        (text, field)
        for text in source_texts()
        for command in printed_in(text.text)
        for field in re.findall(r"\{([^{}]+)\}", command)
    ]

    assert len(fields) > 50
    assert [
        (text.place, field)
        for text, field in fields
        if not (
            field.startswith("typed(")
            if text.is_template and not text.is_of_error
            else text.is_of_error or text.place.split(":")[0] in FILLING
        )
    ] == []


TEMPLATES = sorted(ROOT.rglob("templates/**/*.html"))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_each_command_of_a_page_is_quoted_and_can_be_typed(path: Path) -> None:
    text = path.read_text()
    found = re.findall(r"<code>(?:{{ databuild }}|databuild(?= env )) ([^<]+)</code>", text)

    assert re.search("<code>databuild (?!env )", text) is None, "the page of an environment names it"
    # That of the page Plan, which `typed` has made.
    found = [command for command in found if command != "{{ command }}"]
    assert [
        field for command in found for field in re.findall(r"\{\{ (.*?) \}\}", command) if not field.endswith("|typed")
    ] == []
    assert [why for command in found if (why := why_not_typed(command, NAMES, of_code=True)) is not None] == []


def test_each_command_of_a_new_projects_readme_can_be_typed() -> None:
    found = [
        line
        for path in ROOT.rglob("templates/**/*.txt")
        for line in re.findall(r"(?:^\$ |`)databuild ([^`\n]+)", path.read_text(), re.MULTILINE)
    ]

    assert len(found) > 5
    assert [why for line in found if (why := why_not_typed(line)) is not None] == []


def sentences(text: str) -> list[str]:
    return re.split(r"(?<=[.;:?!])\s", " ".join(text.split()))


def options_in(sentence: str) -> set[str]:
    others = re.sub(r"`(?:dagster|python|pip)[^`]*`|pip install .*", "", sentence)
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", others)) - FOREIGN


@cache
def options_of(path: str) -> frozenset[str]:
    """The options of commands, also those before a command, and the flags that name their forms."""
    return frozenset(
        option
        for name, command in (*commands(), (path, cli))
        if f"{name} ".startswith(f"{path} ".lstrip())
        for option in (*name.split(), *(option for param in command.params for option in param.opts))
    )


def test_each_option_that_a_sentence_names_exists() -> None:
    known = options_of("")
    found = [
        (text.place, option)
        for text in source_texts()
        for sentence in sentences(text.text)
        for option in options_in(sentence)
        # A prefix of an option that a field ends.
        if not re.fullmatch(r"-[-\w]+(/-[-\w]+)?", text.text) and f"{option}{{" not in text.text
    ]

    assert len(found) > 80
    assert [(place, option) for place, option in found if option not in known] == []


def test_each_option_in_a_help_is_of_its_command_or_of_one_that_the_sentence_names() -> None:
    wrong = []
    for path, command in commands():
        helps = [command.help or "", *(param.help or "" for param in command.params if isinstance(param, click.Option))]
        for sentence in (sentence for text in helps for sentence in sentences(text)):
            named = [name for name, _ in commands() if f"`{name}" in sentence or f"`databuild {name}" in sentence]
            known = {option for name in (path, *named) for option in options_of(name)}
            wrong += [(path, option) for option in options_in(sentence) if option not in known]

    assert wrong == []


@pytest.mark.parametrize("name", NAMES)
def test_a_name_in_a_command_is_read_back_by_shell_and_parser(name: str) -> None:
    by_python = f"retry --only failed {typed(name, 'sales')}"
    by_template = filled("See {ref}, then `databuild retry --only failed {ref}`.", {"ref": name})

    assert parsed(shlex.split(by_python)).params["refs"] == (name, "sales")
    assert by_template.startswith(f"See {name}, then `databuild retry")
    command = by_template.removeprefix(f"See {name}, then `databuild ").removesuffix("`.")
    assert parsed(shlex.split(command)).params["refs"] == (name,)


def test_each_command_of_the_source_is_printed_in_a_form_that_gets_the_option_env() -> None:
    found = [
        (text.place, command)
        for text in source_texts()
        for command in printed_in(text.text)
        if "`" in text.text and not command.startswith(("env ", "--"))
        if f"databuild --env x {command}" not in in_environment(text.text, "x")
    ]

    assert found == []


def printed_by(act: Callable[[], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines on stdout, then those on stderr, of a process that does so."""
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, (tmp_path / name).open("w"))
    guard_streams()
    try:
        act()
    finally:
        print_for(None)
        sys.stdout.close()
        sys.stderr.close()
        monkeypatch.undo()
    return [*(tmp_path / "stdout").read_text().splitlines(), *(tmp_path / "stderr").read_text().splitlines()]


def test_a_command_names_the_environment_of_the_option_in_all_but_json_and_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def act() -> None:
        print_for("x")
        click.echo("`databuild status` shows it")
        click.echo(json.dumps({"hint": "`databuild status`"}))
        with printing_data():
            click.echo("`databuild status`")
        say("To continue: databuild build a")

    assert printed_by(act, tmp_path, monkeypatch) == [
        "`databuild --env x status` shows it",
        '{"hint": "`databuild status`"}',
        "`databuild status`",
        "To continue: databuild --env x build a",
    ]


@pytest.mark.parametrize(
    ("options", "command"), [(["--env", "x"], "databuild --env x show --help"), ([], "databuild show --help")]
)
def test_a_hint_names_the_environment_of_the_option_alone(
    options: list[str], command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shell knows that of DATABUILD_ENV."""
    monkeypatch.setenv("DATABUILD_ENV", "x")

    (line,) = printed_by(lambda: run([*options, "show", "--nope"]), tmp_path, monkeypatch)

    assert f"`{command}` shows how to use it" in line
