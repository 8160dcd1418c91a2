"""Definitions that a command needs, or that its options name (rules 15)."""

from __future__ import annotations

import pytest

from tests.support.command_lines import commands
from tests.support.project import Project

from .sources import of_pandas

DAY = "orders@2024-01-29"


@pytest.mark.parametrize(
    "command",
    [
        ("build", DAY),
        ("plan", DAY),
        ("want", "create", DAY),
        ("explain", DAY),
        ("partitions", "orders"),
        ("show", DAY),
        ("history", DAY),
        ("read", DAY),
        ("taint", DAY, "--reason", "x"),
        ("retry", DAY),
        ("status",),
        ("admin", "tick"),
    ],
    ids=" ".join,
)
def test_a_project_that_cannot_be_imported_is_said_to_be_so(project: Project, command: tuple[str, ...]) -> None:
    project.define("import dagster\n\nITEMS = undefined_name\n")

    done = project.call(*command)

    said = "definitions.py cannot be loaded: NameError: name 'undefined_name' is not defined ("
    assert said in done.out + done.err
    assert "definitions.py, line 3)" in done.out + done.err


def test_each_command_takes_the_options_that_name_definitions() -> None:
    without = {
        path
        for path, command in commands()
        if not {"-m", "-f", "-w"} <= {name for option in command.params for name in option.opts}
    }

    assert without == {"dev", "dev --no-daemon"}


def test_an_unknown_asset_of_named_definitions_is_unknown(project: Project) -> None:
    done = project.call("history", "ordres@2024-01-29", "-f", "definitions.py", "--json")

    assert done.code == 2
    assert done.json["error"]["type"] == "UnknownAsset"


@pytest.mark.long("only a process of its own has the filters of warnings")
def test_a_command_that_loads_warns_of_no_job(project: Project) -> None:
    project.define(
        of_pandas("""
daily = dg.DailyPartitionsDefinition("2024-01-29")

@databuild_asset(partitions_def=daily)
def orders() -> pd.DataFrame:
    return pd.DataFrame({"n": [1]})

@dg.asset(partitions_def=daily, deps=[orders])
def report() -> None:
    pass

job = dg.define_asset_job("all", "*", op_retry_policy=dg.RetryPolicy(max_retries=3))
defs = build_definitions([orders, report], jobs=[job])
""")
    )

    done = project.run("plan", DAY)

    assert done.code == 0
    assert "arning" not in done.err
