"""`databuild operation run validate`, `build_index` and `compact`: their options, and what the end of a validation looks like."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from databuild_dagster.cli.options import MAX_COUNT
from databuild_dagster.data.home import BadYaml, read_yaml
from databuild_dagster.features.operations.commands.operation_run import How, operation_command, run_operation
from databuild_dagster.model.constraints import FORMS, listed_constraints, typed_constraint
from databuild_dagster.model.errors import InvalidRequest, Refused

F = TypeVar("F", bound=Callable[..., Any])

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]?)i?b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


class BadRulesFile(Refused):
    """{path} cannot be read as rules: {why}."""

    hint = "Write YAML: a list below `rules:`, as in `- not_null: carrier`."


def _rules(function: F) -> F:
    """An option for each rule; any of them may be given several times."""
    for rule, (form, _) in reversed(FORMS.items()):
        option = f"--{rule.replace('_', '-')}"
        function = click.option(option, rule, multiple=True, metavar=form, help=_HELP[rule])(function)
    return function


_HELP = {
    "not_null": "No row is null there.",
    "unique": "Within a partition no two rows have the same values there, null aside.",
    "range": "Both ends belong to it; one that is left out is open.",
    "regex": "The text has a match somewhere.",
    "accepted_values": "The value is one of these.",
    "expression": "A condition of Spark's SQL that is not false.",
    "narrow_type": "Every value is the same in the narrower type.",
}


@click.command()
@_rules
@click.option("--rules", "path", metavar="FILE", default=None, help="A YAML file with a list of rules.")
@click.option(
    "--samples", type=click.IntRange(0, 100), default=5, show_default=True, help="Number of rows to show per rule."
)
@click.option("--taint", is_flag=True, help="Taint the partitions that violate a rule.")
@operation_command
def validate(path: str | None, samples: int, taint: bool, how: How, **typed: tuple[str, ...]) -> None:
    """Find rows of DATASET that violate rules.

    Exit code 1 says that there are some.
    """
    constraints = [typed_constraint(rule, text) for rule in FORMS for text in typed[rule]]
    if path is not None:
        constraints += _from_file(path)
    if not constraints:
        raise click.UsageError("No rule was given. Give at least one, such as --not-null COLUMN, or --rules FILE.")
    run_operation("validate", {"constraints": constraints, "taint": taint, "samples": samples}, how)


@click.command("build_index")
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME,…",
    help="Only these columns. Repeatable. Default: all columns whose values have an order.",
)
@operation_command
def build_index(columns: tuple[str, ...], how: How) -> None:
    """Index the values in DATASET's files, for filters.

    A read with a filter then skips files in which no row can match.
    """
    named = [name for text in columns for name in text.split(",") if name]
    run_operation("build_index", {"columns": named}, how)


@click.command()
@click.option(
    "--target", default="128MB", show_default=True, metavar="SIZE", help="The size of a file after compaction."
)
@operation_command
def compact(target: str, how: How) -> None:
    """Rewrite many small files of DATASET as few large ones.

    The rows stay the same, and nothing built from them becomes stale.
    """
    run_operation("compact", {"target_bytes": _bytes(target)}, how)


def _from_file(path: str) -> list[Any]:
    try:
        entries = read_yaml(Path(path))
    except (OSError, BadYaml) as error:
        raise BadRulesFile(path=path, why=getattr(error, "strerror", None) or error) from None
    return list(listed_constraints(entries, path))


def _bytes(text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    if found is None or not float(found[1]):
        raise InvalidRequest(what="--target", value=text, why="it is no size; write 64MB, or a number of bytes")
    size = float(found[1]) * _UNITS[found[2].lower()]
    if size > MAX_COUNT:
        raise InvalidRequest(what="--target", value=text, why="it is too large; write 64MB, or a number of bytes")
    return int(size)
