"""A key wins over every notation, in every option and argument that takes keys (rule 2.5).

Each command runs on static partitions with keys that look like notations: lists, ranges, refs, JSON, options.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import click
import pandas as pd
import pytest

from databuild_dagster.cli.options import REF
from tests.cli.sources import of_pandas
from tests.support.command_lines import HORRORS, commands
from tests.support.feature_commands import is_there
from tests.support.project import Done, Project

KEYS = HORRORS[:11]
REFS = [f"sales@{key}" for key in KEYS]
#: A lot whose key has a comma, a range and a ref in it.
LOT = "2024,01..01@x"
DEFINITIONS = of_pandas(f"""
from databuild_dagster import databuild_boundary

@databuild_asset(partitions_def=dg.StaticPartitionsDefinition({list(KEYS)}))
def sales(context: BuildContext) -> pd.DataFrame:
    raise ValueError(f"no sales of {{context.partition_key}}")

landed = databuild_boundary(
    "landed", partitions_def=dg.DailyPartitionsDefinition({LOT!r}, end_date="2024,01..03@x", fmt="%Y,%m..%d@x")
)

defs = build_definitions([sales, landed])
""")

#: Commands that take many refs, in an order in which each has something to do; with the other arguments that they need.
OF_MANY: dict[str, list[str]] = {
    "plan": [],
    "show": [],
    "history": [],
    "read": ["--limit", "1"],
    "show --full": [],
    "explain": [],
    "plan --if-tainted": [],
    "gc": [],
    "pause": ["--reason", "r"],
    "resume": [],
    "taint": ["--reason", "r"],
    "want create": [],
    "build": [],
    "retry": [],
}
OF_ONE = {
    "partitions": ["{ref}"],
    "diff": ["{ref}"],
    "show --manifest": ["{ref}"],
    "want list": ["--ref", "{ref}", "--all"],
    "history --job-runs": ["--ref", "{ref}"],
    "history --requests": ["--ref", "{ref}"],
    "revert": ["{ref}", "--to", "{first}"],
}
#: Commands with options for keys or lots, and one that asks about refs that are not live.
OF_KEYS = {
    "adopt",
    "lot arrive",
    "lot gaps",
    "operation run TYPE",
    "operation run build_index",
    "operation run compact",
    "operation run validate",
    "plan --if-missing",
}


def test_the_tables_of_this_file_have_each_command_that_takes_refs_or_keys() -> None:
    taking = {
        path
        for path, command in commands()
        for param in command.params
        if param.type is REF or re.search(r"\b(KEY|LOT|REF)\b", param.make_metavar(click.Context(command)))
    }

    assert taking == {path for path in {*OF_MANY, *OF_ONE, *OF_KEYS} if is_there(path.split())}


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for inner in value.values() for text in texts(inner))
    elif isinstance(value, list):
        yield from (text for inner in value for text in texts(inner))


def answers(done: Done, *codes: int) -> list[Any]:
    assert done.code in (codes or (0,)), done
    return [json.loads(line) for line in done.out.splitlines()]


@pytest.mark.feature("clean")
@pytest.mark.feature("compare")
@pytest.mark.feature("lots")
@pytest.mark.feature("operations")
@pytest.mark.feature("what_if")
def test_each_command_takes_keys_that_look_like_notations(project: Project) -> None:
    project.define(DEFINITIONS)
    folder = project.folder / "outside"
    folder.mkdir()
    options = [option for key in KEYS for option in ("--partitions", key)]

    def adopt(amount: float, *more: str) -> Any:
        for key in KEYS:
            pd.DataFrame({"amount": [amount], "of": [key]}).to_parquet(folder / f"{key}.parquet")
        return project.ask("adopt", "sales", "--files", "outside/{partition_key}.parquet", *options, *more)

    missing = project.ask("plan", "--if-missing", *REFS)
    assert {*REFS} <= {*texts(missing)}
    assert [entry["ref"] for entry in adopt(1.0)["recorded"]] == REFS
    first = {ref: project.ask("show", ref)["canonical"]["uuid"] for ref in REFS}
    assert [entry["ref"] for entry in adopt(2.0, "--live", "replace")["recorded"]] == REFS
    second = {ref: project.ask("show", ref)["canonical"]["uuid"] for ref in REFS}

    started = project.ask("operation", "run", "compact", "sales", "--no-wait", *options)
    assert project.ask("operation", "show", started["operation"])["total"] == len(KEYS)

    for command, arguments in OF_ONE.items():
        for ref in REFS:
            filled = [argument.replace("{ref}", ref).replace("{first}", first[ref]) for argument in arguments]
            done = project.call(*command.split(), *filled, "--json")
            assert done.code == 0, (command, ref, done)

    known = {"read": {*KEYS}, "history": {*second.values()}, "gc": set(), "resume": set()}
    for command, more in OF_MANY.items():
        done = project.call(*command.split(), *more, *REFS, "--json")
        found = {text for answer in answers(done, 0, 1) for text in texts(answer)}
        assert known.get(command, {*REFS}) <= found, (command, found)

    assert project.ask("lot", "arrive", "landed", LOT, "--empty")["ref"] == f"landed@{LOT}"
    assert project.ask("lot", "gaps", "landed", "--from", LOT, "--to", "2024,01..02@x")["expected"] == 1
