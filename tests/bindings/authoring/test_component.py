"""A `defs.yaml` of a dg project becomes definitions, in this process and by the `dg` commands as people call them.

What the assets answer are pandas frames: nothing here waits for Spark.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from itertools import count
from pathlib import Path
from typing import Literal

import dagster as dg
import pytest
import yaml

from databuild_dagster import DatabuildComponent
from databuild_dagster.bindings.adapter.dagster_private import ComponentTree
from databuild_dagster.bindings.adapter.keys import ORCHESTRATOR
from databuild_dagster.bindings.authoring.automation import AUTOMATION
from databuild_dagster.bindings.authoring.component import DatabuildScaffolder
from databuild_dagster.bindings.authoring.shared_location import deployment_of
from databuild_dagster.bindings.building.deployment import Deployment, deployment_of_repository
from databuild_dagster.bindings.declare.parameters import InvalidAsset
from databuild_dagster.bindings.reading.spark_resource import DatabuildSpark
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.bindings.registry.registration import register_deployed
from databuild_dagster.engine.tick_pass import TickLimits
from tests.support.dagster_files import fresh_instance

#: One `dg` command, on a busy machine.
MAX_SECONDS = 120

TYPE = "databuild_dagster.DatabuildComponent"

ASSETS = """
import dagster as dg
import pandas as pd

from databuild_dagster import BuildContext, databuild_asset

daily = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01")


@databuild_asset(partitions_def=daily)
def {name}(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({{"day": [context.partition_key]}})


@databuild_asset(partitions_def=daily, batched=True)
def {name}_counted({name}: pd.DataFrame) -> pd.DataFrame:
    return {name}.groupby("partition_key", as_index=False).size()


@dg.asset_check(asset={name})
def {name}_looked_at() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)


{name}_at_noon = dg.ScheduleDefinition(name="{name}_at_noon", cron_schedule="0 12 * * *", target="*")
"""

_numbers = count()


class Project:
    """A dg project in a folder; its package has a name of its own, since this process imports it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.package = f"dg_project_{next(_numbers)}"
        self.source = folder / "src" / self.package
        (self.source / "defs").mkdir(parents=True)
        for package in (self.source, self.source / "defs"):
            (package / "__init__.py").touch()
        (folder / "pyproject.toml").write_text(
            f'[tool.dg]\ndirectory_type = "project"\n\n[tool.dg.project]\nroot_module = "{self.package}"\n'
        )
        (self.source / "definitions.py").write_text(
            "from pathlib import Path\n\nfrom dagster import definitions, load_from_defs_folder\n\n\n"
            "@definitions\ndef defs():\n    return load_from_defs_folder(path_within_project=Path(__file__).parent)\n"
        )

    def component(self, name: str, attributes: str = "", *, type_: str = TYPE) -> Path:
        """A folder with a defs.yaml, and two assets called after it."""
        folder = self.source / "defs" / name
        folder.mkdir()
        (folder / "assets.py").write_text(ASSETS.format(name=name))
        listed = "" if "assets:" in attributes else "  assets: [assets.py]\n"
        (folder / "defs.yaml").write_text(f"type: {type_}\nattributes:\n{listed}{attributes}")
        return folder

    def load(self) -> dg.RepositoryDefinition:
        return dg.load_from_defs_folder(path_within_project=self.source).get_repository_def()

    def trouble(self) -> str:
        """The sentence with which it does not load."""
        with pytest.raises(Exception) as raised:  # noqa: PT011  Dagster puts layers of its own around ours.
            self.load()
        error: BaseException | None = raised.value
        while error is not None and not isinstance(error, InvalidAsset | ValueError):
            error = error.__cause__
        assert error is not None, raised.value
        return str(error)

    def dg(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        unset = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
        own = {"PYTHONPATH": str(self.folder / "src"), "DG_CLI_CONFIG": str(self.folder / "dg.toml"), "COLUMNS": "200"}
        return subprocess.run(
            [sys.executable, "-m", "dagster_dg_cli.cli", *arguments],
            cwd=self.folder,
            env=unset | own,
            capture_output=True,
            text=True,
            timeout=MAX_SECONDS,
            check=False,
        )


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    made = Project(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "src"))
    yield made
    for name in [name for name in sys.modules if name.partition(".")[0] == made.package]:
        del sys.modules[name]


def deployment(repository: dg.RepositoryDefinition) -> Deployment:
    found = deployment_of_repository(repository)
    assert found is not None
    return found


def test_the_contents_of_the_files_are_defined_with_an_orchestrator(project: Project) -> None:
    project.component("flights")

    repository = project.load()

    assert {key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()} == {
        "flights",
        "flights_counted",
    }
    assert repository.has_sensor_def(ORCHESTRATOR)
    assert repository.has_schedule_def("flights_at_noon")
    assert dg.AssetCheckKey(dg.AssetKey("flights"), "flights_looked_at") in repository.asset_graph.asset_check_keys
    assert deployment(repository).location == project.package


@pytest.mark.feature("notices")
def test_every_attribute_arrives(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from databuild_dagster import CommandAlert, WebhookAlert

    monkeypatch.setenv("FLIGHTS_WAREHOUSE", "/data/flights")
    monkeypatch.setenv("CHAT_TOKEN", "secret")
    project.component(
        "flights",
        """
  location: hangar
  warehouse: "{{ env('FLIGHTS_WAREHOUSE') }}"
  spark: {mode: remote, url: "sc://spark:15002", config: {spark.sql.shuffle.partitions: 8}, app_name: hangar}
  threads: 2
  interval_seconds: 20
  delegation_timeout_seconds: 60
  sample_rows: 0
  limits: {launches: 3, due_refs: 100}
  alerts:
    - {webhook: "https://chat.example/hooks/data", headers: {Authorization: "Bearer {{ env('CHAT_TOKEN') }}"}}
    - {command: [page-oncall, data]}
""",
    )

    repository = project.load()

    spark = deployment(repository).spark
    in_python = {
        "warehouse": "/data/flights",
        "spark": spark,
        "threads": 2,
        "delegation_timeout_seconds": 60,
        "sample_rows": 0,
        "limits": TickLimits(launches=3, due_refs=100),
        "interval_seconds": 20,
        "alerts": (
            WebhookAlert("https://chat.example/hooks/data", {"Authorization": "Bearer secret"}),
            CommandAlert(("page-oncall", "data")),
        ),
    }
    assert deployment(repository) == deployment_of("hangar", in_python, "the test")
    assert isinstance(spark, DatabuildSpark)
    assert (spark.mode, spark.url, spark.app_name) == ("remote", "sc://spark:15002", "hangar")
    assert spark.settings().config == {"spark.sql.shuffle.partitions": "8"}
    assert repository.get_sensor_def(ORCHESTRATOR).minimum_interval_seconds == 20


@pytest.mark.feature("tables")
def test_the_default_table_of_a_component_holds_for_its_assets(project: Project) -> None:
    from databuild_dagster.features.tables.publish import table_of

    project.component(
        "flights", "  publish: {format: iceberg, namespace: lake, partition_column: day, tainted: keep}\n"
    )

    graph = project.load().asset_graph

    table = table_of(graph.get(dg.AssetKey("flights")).metadata)
    assert table is not None
    assert (table.name, table.columns[0].name, table.keep_tainted) == ("lake.flights", "day", True)


@pytest.mark.feature("operations")
def test_operations_are_named_where_they_are(project: Project) -> None:
    """Rules 13"""
    from databuild_dagster.features.operations.operations import OPERATIONS

    (project.source / "quality.py").write_text(
        "from databuild_dagster import DistributedOperation\n\n\n"
        "class RowCount(DistributedOperation):\n    type_name = 'row_count'\n\n\n"
        "class Other(DistributedOperation):\n    type_name = 'other'\n\n\nother = Other()\n"
    )
    quality = f"{project.package}.quality"
    project.component("flights", f"  operations: [{quality}.RowCount, {quality}.other]\n")

    known = {operation.type_name for operation in OPERATIONS.of(deployment(project.load()))}

    assert {"row_count", "other", "validate"} <= known


def test_assets_look_as_the_translation_says(project: Project) -> None:
    project.component(
        "flights",
        """
  translation:
    key_prefix: [raw, ny]
    group_name: hangar
    owners: ["team:data"]
    tags: {tier: gold}
    metadata: {of: "{{ spec.key.path[-1] }}"}
""",
    )

    graph = project.load().asset_graph

    spec = graph.get(dg.AssetKey(["raw", "ny", "flights_counted"])).to_asset_spec()
    assert (spec.group_name, list(spec.owners), dict(spec.tags)) == ("hangar", ["team:data"], {"tier": "gold"})
    assert spec.metadata["of"] == "flights_counted"


def test_components_of_a_project_share_the_orchestrator_and_all_are_registered(project: Project) -> None:
    project.component("flights", "  threads: 2\n")
    project.component("weather", "  threads: 2\n")

    repository = project.load()

    assert repository.has_sensor_def(ORCHESTRATOR)
    with fresh_instance() as instance:
        engine = engine_for(instance)
        register_deployed(engine, project.package)
        assert {spec.asset for spec in engine.queries.datasets.all(project.package).values()} == {
            "flights",
            "flights_counted",
            "weather",
            "weather_counted",
        }


def test_two_components_in_one_file_have_different_names(project: Project) -> None:
    folder = project.component("flights")
    (folder / "more.py").write_text(ASSETS.format(name="planes"))
    text = (folder / "defs.yaml").read_text()
    (folder / "defs.yaml").write_text(f"{text}---\n{text.replace('assets.py', 'more.py')}")

    repository = project.load()

    assert repository.has_sensor_def(ORCHESTRATOR)
    assert repository.asset_graph.has(dg.AssetKey("planes_counted"))


def test_conditions_that_ask_the_store_are_evaluated_component_by_component(project: Project) -> None:
    for name in ("flights", "weather"):
        folder = project.component(name)
        text = (folder / "assets.py").read_text().replace("batched=True", "batched=True, automation_condition=eager()")
        (folder / "assets.py").write_text(f"from databuild_dagster.automation import eager\n{text}")

    repository = project.load()

    for name in ("flights", "weather"):
        sensor = repository.get_sensor_def(f"{AUTOMATION}_{name}")
        selected = sensor.asset_selection.resolve(repository.asset_graph)
        assert selected == {dg.AssetKey(f"{name}_counted")}


def test_a_translation_may_give_a_condition_that_asks_the_store(project: Project) -> None:
    project.component("flights", """  translation: {automation_condition: "{{ databuild.eager() }}"}\n""")

    repository = project.load()

    condition = repository.asset_graph.get(dg.AssetKey("flights_counted")).automation_condition
    assert condition is not None
    assert condition.get_label() == "databuild_eager"
    assert repository.has_sensor_def(f"{AUTOMATION}_flights")


def test_a_subclass_may_say_in_code_how_assets_look(project: Project) -> None:
    (project.source / "ours.py").write_text(
        "from databuild_dagster import DatabuildComponent\n\n\nclass Ours(DatabuildComponent):\n"
        "    def get_asset_spec(self, spec):\n"
        "        return super().get_asset_spec(spec).replace_attributes(group_name='ours')\n"
    )
    project.component("flights", "  translation: {tags: {tier: gold}}\n", type_=f"{project.package}.ours.Ours")

    spec = project.load().asset_graph.get(dg.AssetKey("flights")).to_asset_spec()

    assert (spec.group_name, spec.tags) == ("ours", {"tier": "gold"})


WRONG = [
    ("  assets: [asets.py]\n", "flights names the file 'asets.py', which is not there; write it beside the defs.yaml."),
    (
        "  assets: [no.such.module]\n",
        "flights names the module 'no.such.module', which cannot be imported; a file beside it ends with .py.",
    ),
    ("  assets: []\n", "flights names no assets; write files beside the defs.yaml, or modules."),
    ("  assets: [../../definitions.py]\n", "flights names the file '../../definitions.py' of another folder; "),
    ("  spark: {mode: sharde}\n", "flights gives spark the mode 'sharde'; there are shared, sail, classic, remote."),
    ("  threads: 0\n", "threads is 0; it must be at least 1."),
    ("  sample_rows: -1\n", "sample_rows is -1; it must be at least 0."),
    ("  limits: {launches: 0}\n", "limits.launches is 0; it must be at least 1."),
    ("  limits: {due_refs: 9999999999}\n", "limits.due_refs is 9999999999; it must be at most 2,147,483,647."),
    ("  delegation_timeout_seconds: -1\n", "delegation_timeout_seconds is -1.0; it must be at least 0."),
    ("  delegation_timeout_seconds: .nan\n", "delegation_timeout_seconds is nan; it must be at least 0."),
    ("  translation: {deps: [x]}\n", "The translation in flights changes the deps of 'flights"),
]
#: Settings of features.
WRONG_OF_FEATURES = {
    "notices": [
        (
            "  alerts: [{}]\n",
            "flights gives an alert that is not one webhook, with or without headers, or one command; ",
        ),
        ("  alerts: [{webhook: 'https://x', command: [y]}]\n", "flights gives an alert that is not one webhook"),
        ("  alerts: [{command: []}]\n", "flights gives an alert that is not one webhook"),
    ],
    "operations": [
        ("  operations: [no.such.Rows]\n", "flights names the operation 'no.such.Rows', which cannot be imported; "),
        ("  operations: [json.Rows]\n", "flights names the operation 'json.Rows', which cannot be imported; "),
        ("  operations: [Rows]\n", "flights names the operation 'Rows', which cannot be imported; "),
        (
            "  operations: [json.JSONDecoder]\n",
            "flights names the operation 'json.JSONDecoder', which is no DistributedOperation.",
        ),
    ],
    "tables": [
        ("  publish: {format: hudi}\n", "flights publishes as 'hudi'; the formats are iceberg, delta."),
        (
            "  publish: {format: delta, namespace: x}\n",
            "flights gives namespace to Delta, whose table is the folder of its ",
        ),
    ],
}


@pytest.mark.parametrize(
    ("attributes", "sentence"),
    [
        *WRONG,
        *(
            pytest.param(*wrong, marks=pytest.mark.feature(name))
            for name, found in WRONG_OF_FEATURES.items()
            for wrong in found
        ),
    ],
)
def test_an_impossible_setting_is_refused_in_a_sentence(project: Project, attributes: str, sentence: str) -> None:
    project.component("flights", attributes)

    assert project.trouble().startswith(sentence)


def test_a_file_with_definitions_of_its_own_is_refused(project: Project) -> None:
    folder = project.component("flights")
    with (folder / "assets.py").open("a") as file:
        file.write("\n\ndefs = dg.Definitions()\n")

    assert "which flights names, makes Definitions of its own (defs); leave only the assets" in project.trouble()


def test_components_that_say_different_things_of_what_they_share_are_refused(project: Project) -> None:
    project.component("flights", "  warehouse: /data/a\n")
    project.component("weather", "  warehouse: /data/b\n")

    assert "gives another warehouse than" in project.trouble()


def test_an_error_in_an_asset_s_file_goes_through_as_it_is(project: Project) -> None:
    folder = project.component("flights")
    (folder / "assets.py").write_text("raise ValueError('mine')\n")

    assert project.trouble() == "mine"


def scaffold(folder: Path, format_: Literal["yaml", "python"]) -> None:
    request = dg.ScaffoldRequest(
        type_name=TYPE, target_path=folder, scaffold_format=format_, project_root=None, params=None, append=False
    )
    DatabuildScaffolder().scaffold(request)


def test_scaffolding_again_leaves_what_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "new flights"
    folder.mkdir()
    (folder / "assets.py").write_text("mine = 1\n")

    scaffold(folder, "yaml")

    assert (folder / "assets.py").read_text() == "mine = 1\n"
    assert "def new_flights_2_by_day(new_flights_2_raw: pd.DataFrame)" in (folder / "assets_2.py").read_text()
    assert yaml.safe_load((folder / "defs.yaml").read_text()) == {
        "type": TYPE,
        "attributes": {"assets": ["assets_2.py"]},
    }


def test_what_is_scaffolded_is_loaded(project: Project) -> None:
    folder = project.source / "defs" / "flights"
    folder.mkdir()

    scaffold(folder, "yaml")

    repository = project.load()

    assert repository.asset_graph.has(dg.AssetKey("flights_raw"))
    assert repository.has_sensor_def(ORCHESTRATOR)


def test_scaffolding_what_dagster_would_load_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidAsset, match=r"is scaffolded as yaml: .*; leave --format out"):
        scaffold(tmp_path, "python")

    assert list(tmp_path.iterdir()) == []


def test_a_component_made_in_code_names_a_module(project: Project) -> None:
    (project.source / "planes.py").write_text(ASSETS.format(name="planes"))
    (project.source / "defs" / "planes.py").write_text(
        "import dagster as dg\n\nfrom databuild_dagster import DatabuildComponent\n\n\n@dg.component_instance\n"
        "def load(context: dg.ComponentLoadContext) -> DatabuildComponent:\n"
        f"    return DatabuildComponent(assets=['{project.package}.planes'])\n"
    )

    repository = project.load()

    assert repository.asset_graph.has(dg.AssetKey("planes_counted"))
    assert repository.has_sensor_def(ORCHESTRATOR)


def test_a_component_can_be_built_alone_in_a_test(project: Project) -> None:
    (project.source / "planes.py").write_text(ASSETS.format(name="planes"))

    component = DatabuildComponent(assets=[f"{project.package}.planes"])
    definitions = component.build_defs(ComponentTree.for_test().load_context)

    assert dg.AssetKey("planes") in definitions.resolve_all_asset_keys()


def test_the_installed_package_names_itself_to_dg() -> None:
    """`dg list components` and `dg scaffold defs` look for components there."""
    named = entry_points(group="dagster_dg_cli.registry_modules")

    assert "databuild_dagster" in [kind.value for kind in named]


@pytest.mark.long("the dg command is a process")
def test_dg_lists_the_definitions_of_the_component(project: Project) -> None:
    project.component("flights")

    loaded = project.dg("list", "defs", "--json")

    assert loaded.returncode == 0, (loaded.stdout, loaded.stderr)
    assert '"flights_counted"' in loaded.stdout
    assert f'"{ORCHESTRATOR}"' in loaded.stdout


@pytest.mark.feature("notices")
@pytest.mark.feature("tables")
def test_the_component_on_the_page_about_projects_loads(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "dagster-projects.md").read_text()
    (shown,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    monkeypatch.setenv("WAREHOUSE", str(tmp_path / "warehouse"))
    folder = project.component("flights")
    (folder / "defs.yaml").write_text(shown)

    repository = project.load()

    assert repository.asset_graph.has(dg.AssetKey(["raw", "flights_counted"]))
    assert deployment(repository).warehouse == str(tmp_path / "warehouse")
    assert set(yaml.safe_load(shown)["attributes"]) == set(DatabuildComponent.model_fields) - {"location", "operations"}
