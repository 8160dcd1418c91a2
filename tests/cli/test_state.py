"""A command imports what its answer needs, and Dagster only where Dagster has to be asked (rules 15)."""

import subprocess
import sys
from pathlib import Path

import pytest
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.scheduler.instigation import TickStatus

from databuild_dagster.bindings.registry.instance import open_instance
from databuild_dagster.cli import init
from databuild_dagster.data.home import SETTINGS as SETTINGS_OF_A_HOME
from databuild_dagster.feature import built_in
from tests.support.project import DEFINITIONS, Project

DAY = "orders@2024-01-29"

SCRIPT = """
import sys
from databuild_dagster.cli.main import run

code = run(sys.argv[1:])
names = ("dagster", "deltalake", "pandas", "pyiceberg", "pyspark", "rich", "sqlalchemy")
print(code, [name for name in names if name in sys.modules])
"""


DYNAMIC = """
@databuild_asset(partitions_def=dg.DynamicPartitionsDefinition(name="stores"))
def sales_of() -> pd.DataFrame:
    return pd.DataFrame({"sales": [1.0]})


defs = build_definitions([sales_of, """


def imported_by(project: Project, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        cwd=project.folder,
        env=project.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()[-1]


@pytest.mark.long("only a new process shows what a command imports")
def test_a_command_on_what_is_recorded_imports_no_dagster_and_no_sqlalchemy(project: Project) -> None:
    project.define(DEFINITIONS.replace("defs = build_definitions([", DYNAMIC))
    project.build(DAY)
    with open_instance(project.home) as instance:
        instance.add_dynamic_partitions("stores", ["north"])

    assert imported_by(project, "--help") == "0 []"
    for command in (
        ["show", DAY],
        ["explain", DAY],
        ["explain", "revenue@2024-02-01"],
        ["want", "list"],
        ["want", "create", DAY],
        ["status"],
        ["want", "create", "sales_of@north"],
        ["history", "--job-runs"],
        *([["gc"]] if "clean" in {feature.name for feature in built_in()} else []),
    ):
        assert imported_by(project, *command) == "0 []", command
    assert imported_by(project, "plan", "revenue@2024-02-01") == "0 ['rich']"
    # `log` also makes tables.
    assert imported_by(project, "log", "events") == "0 ['sqlalchemy']"


@pytest.mark.parametrize("command", [["explain"], ["want", "create"]])
def test_a_key_that_no_partition_has_is_refused_by_dagsters_catalog(known_project: Project, command: list[str]) -> None:
    done = known_project.call(*command, "orders@2024-02-99")

    assert done.code == 2
    assert "2024-02-99" in done.err


SETTINGS = [
    pytest.param(SETTINGS_OF_A_HOME, id="home"),
    pytest.param((Path(init.__file__).parent / "templates/project/dagster.yaml.txt").read_text(), id="init"),
    pytest.param((Path(__file__).parents[2] / "dagster.yaml").read_text(), id="example"),
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_dagster_reports_nothing_and_opens_no_newsletter_dialog(tmp_path: Path, settings: str) -> None:
    (tmp_path / "dagster.yaml").write_text(settings)

    with open_instance(tmp_path) as instance:
        assert (instance.telemetry_enabled, instance.nux_enabled) == (False, False)


@pytest.mark.parametrize("settings", SETTINGS[:2])
def test_the_settings_of_a_new_home_keep_skipped_ticks_of_sensors_for_a_day(tmp_path: Path, settings: str) -> None:
    """Idle sensors write one every 5 seconds."""
    (tmp_path / "dagster.yaml").write_text(settings)

    with open_instance(tmp_path) as instance:
        kept = instance.get_tick_retention_settings(InstigatorType.SENSOR)

    assert kept[TickStatus.SKIPPED] == 1
