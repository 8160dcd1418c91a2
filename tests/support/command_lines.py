"""Commands that messages, pages and docs print, as the real parser takes them; nothing runs."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import product
from typing import Any

import click

from databuild_dagster.cli.main import cli
from databuild_dagster.model.wording import typed

#: Keys that look like a notation of the command line, of a shell or of Python, and are legal.
HORRORS = (
    "a,b",
    "a..b",
    "*",
    "@x",
    '["a"]',
    "{}",
    " a",
    "-a",
    "--only",
    "2024-01-01..2024-01-02",
    "a|b",
    "it's",
    'say "a"',
    "`date`",
    "$HOME; #",
    "Київ\\ü",
)


def parsed(words: list[str]) -> click.Context:
    """The context of the command that words name, with its parameters. Raises `click.ClickException`."""
    command: click.Command = cli
    context = cli.make_context("databuild", words)
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        command, context = found, found.make_context(name, rest, parent=context)
    return context


def texts(context: click.Context) -> list[str]:
    """The texts among the parameters."""
    return list(_texts(context.params))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, tuple | list | frozenset):
        for inner in value:
            yield from _texts(inner)


@cache
def commands() -> tuple[tuple[str, click.Command], ...]:
    """Every command that is no group, with its path."""
    return tuple(_commands(click.Context(cli)))


def _commands(context: click.Context) -> Iterator[tuple[str, click.Command]]:
    command = context.command
    if not isinstance(command, click.Group):
        yield context.command_path.strip(), command
        return
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from _commands(click.Context(inner, parent=context, info_name=name))


#: Words in capitals that stand for no name, each with an example.
EXAMPLES = {
    "AGE": "7d",
    "FILE": __file__,
    "LOT": "2024-01-01",
    "N": "3",
    "PORT": "3000",
    "SEQ": "9",
    "TIME": "2024-01-01T00:00:00Z",
    "URI": "a.parquet",
}
_PLACE = re.compile(r"\{+(?P<field>[^{}]+)\}+|\[?\b(?P<word>[A-Z]+)(?:\|[A-Z]+)*\b\]?(?:…|\.\.\.)?")


@cache
def _takes_value(option: str) -> bool:
    options = [param for _, command in commands() for param in command.params if option in param.opts]
    return bool(options) and not any(isinstance(param, click.Option) and param.is_flag for param in options)


def why_not_typed(printed: str, names: Iterable[str] = ("sales@2024-01-01",), *, of_code: bool = False) -> str | None:
    """Why a command that is printed, after `databuild`, cannot be typed; None if the parser takes it and returns the names.

    Each name stands in turn for REF and the like, and in code for the fields of a template. A command that is only mentioned,
    with options and without a name, may lack arguments. `a|b` are two commands.
    """
    line = re.sub(r" --(help|version)\b", "", " ".join(re.sub(" #.*", "", printed).split()))
    # It stands before the command, and takes no name of a partition.
    line = re.sub(r"^--env \S+ ", "", line)
    path, *rest = re.split(r" (?![a-z])", line, maxsplit=1)
    if path in ("…", "--help"):
        return None
    # Each type of operations is a command.
    several = [word.split("|") if re.fullmatch(r"[a-z|-]+", word) else [word] for word in path.split()]
    several += [["TYPE"]] if path == "operation run" and rest and not rest[0].startswith("TYPE") else []
    for name in names:
        arguments, has_name = _with_name(rest[0] if rest else "", name, of_code=of_code)
        for words in product(*several):
            if why := _why_not([*words], arguments, name if has_name else None):
                return why
        if not has_name:
            break
    return None


def _with_name(text: str, name: str, *, of_code: bool) -> tuple[str, bool]:
    """The arguments of a command with examples in their places; whether the name is among these."""
    has_name = False

    def example(found: re.Match[str]) -> str:
        nonlocal has_name
        if found["word"] in EXAMPLES:
            return EXAMPLES[found["word"]]
        if found["field"] == "seq":
            return EXAMPLES["SEQ"]
        if found["field"] and not of_code:
            return found[0]
        if _takes_value((["", *text[: found.start()].split()])[-1]):
            return "7"
        has_name = True
        n = len(called.args) if isinstance(called := _expression(found["field"]), ast.Call) else 1
        return typed(*[name] * n)

    return _PLACE.sub(example, text), has_name


def _expression(field: str | None) -> ast.expr | None:
    try:
        return ast.parse(field or "None", mode="eval").body
    except SyntaxError:
        return None


def _why_not(path: list[str], arguments: str, name: str | None) -> str | None:
    line = " ".join([*path, arguments]).strip()
    try:
        # An ellipsis in the place of all arguments.
        words = shlex.split(arguments.removeprefix("…"))
        given = texts(parsed([*path, *words]))
    except (click.MissingParameter, click.BadOptionUsage, click.exceptions.NoArgsIsHelpError) as error:
        is_mention = name is None and not isinstance(error, click.NoSuchOption)
        return None if is_mention else f"{line}: {error.format_message()}"
    except (click.ClickException, ValueError) as error:
        return f"{line}: {getattr(error, 'message', error)}"
    return None if name is None or name in given else f"{line}: {name!r} arrives as {given}"
