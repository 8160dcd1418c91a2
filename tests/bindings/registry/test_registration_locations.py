"""Several code locations on one Dagster instance: whose asset is whose, and building across them (decision 0011)."""

from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest
from msgspec.structs import replace

from databuild_dagster import BuildContext, databuild_asset
from databuild_dagster.bindings.authoring.location import load_code_locations
from databuild_dagster.bindings.building.deployment import deployment_of_repository
from databuild_dagster.bindings.orchestration.orchestrator import ORCHESTRATOR
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.bindings.registry.registration import datasets_of
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.registering import register
from databuild_dagster.model.errors import AssetTaken, LocationTaken
from databuild_dagster.model.states import InstanceState
from tests.support.questions import recorded_questions

LIVE = InstanceState.LIVE

daily = dg.DailyPartitionsDefinition(start_date="2013-01-01", end_date="2013-01-04")
monthly = dg.MonthlyPartitionsDefinition(start_date="2013-01-01", end_date="2013-02-01")


@databuild_asset(partitions_def=daily)
def numbers(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"n": [int(context.partition_key[-2:])]})


@databuild_asset
def other() -> pd.DataFrame:
    return pd.DataFrame({"n": [1]})


@databuild_asset(ins={"numbers": dg.AssetIn(partition_mapping=dg.TimeWindowPartitionMapping())}, partitions_def=monthly)
def total(numbers: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"n": [numbers.n.sum()]})


def numbers_of_another() -> Any:
    @databuild_asset(partitions_def=daily, name="numbers")
    def theirs() -> pd.DataFrame:
        return pd.DataFrame({"n": [-1]})

    return theirs


def owners(engine: Any) -> dict[str, str]:
    return {dataset.asset: dataset.location for dataset in engine.queries.datasets.all().values()}


def tick_summary(site: Any) -> str:
    """What the orchestrator's sensor says when it has nothing to launch."""
    sensor = site.repository.get_sensor_def(ORCHESTRATOR)
    with dg.build_sensor_context(instance=site.instance, repository_def=site.repository) as context:
        result = sensor(context)
    assert isinstance(result, dg.SensorResult)
    assert result.skip_reason is not None
    return str(result.skip_reason.skip_message)


# One asset, one owner


def test_an_asset_of_another_location_is_left_to_it_and_nothing_else_is_lost(deploy: Any) -> None:
    """Rule 5.7: its tick and its step name the owner."""
    first = deploy(numbers, location="first")
    second = deploy(numbers_of_another(), other, location="second")
    seq = second.engine.queries.events.head().seq

    for _ in range(2):
        first.build()
        second.build()

    assert owners(first.engine) == {"numbers": "first", "other": "second"}
    assert second.engine.queries.events.head().seq == seq, "loading again changes nothing"

    said = tick_summary(second)
    run = second.launch(["numbers"], ["2013-01-01"])
    others = second.launch(["other"])

    sentence = str(AssetTaken(location="second", assets="numbers", owner="first", taken=("numbers",)))
    assert said == f"Nothing is due. {sentence}"
    assert (run.status, others.status) == (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS)
    messages = [str(record.dagster_event) for record in second.instance.all_logs(run.run_id) if record.dagster_event]
    assert any(sentence in message for message in messages)
    assert (first.state("numbers@2013-01-01"), second.state("other")) == (None, LIVE)


def test_a_graph_is_read_once_and_a_known_location_costs_one_question(
    deploy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 5.7"""
    site = deploy(numbers, other, location="first")
    asked = recorded_questions(monkeypatch)

    datasets = datasets_of(site.repository.asset_graph, "first")
    registered = register(site.engine, "first", datasets)

    assert datasets_of(site.repository.asset_graph, "first") is datasets
    assert set(registered.of("first").values()) == set(datasets)
    assert (len(asked), registered.taken) == (1, ())
    assert register(site.engine, "first", datasets, is_current=True).datasets == registered.datasets
    assert len(asked) == 1, "what the process remembers is not looked at"


def test_a_process_that_remembers_a_location_sees_later_registrations(deploy: Any) -> None:
    """Rule 5.7"""
    site = deploy(numbers, other, location="first")
    datasets = datasets_of(site.repository.asset_graph, "first")
    by_asset = {spec.asset: spec for spec in datasets}
    elsewhere = Engine(site.engine.store, site.engine.catalog)

    # An older version of the location's code runs there, and `other` moves to another location.
    register(elsewhere, "first", (by_asset["numbers"],))
    register(elsewhere, "second", (replace(by_asset["other"], location="second"),))
    registered = register(site.engine, "first", datasets)

    assert owners(site.engine) == {"numbers": "first", "other": "second"}
    assert registered.datasets == site.engine.queries.datasets.all()
    assert [refusal.facts["owner"] for refusal in registered.taken] == ["second"]
    assert register(site.engine, "first", datasets) == registered


def test_who_can_build_it_goes_before_who_only_says_that_it_exists(deploy: Any) -> None:
    """An `AssetSpec` of another location's asset is how a plain Dagster user names it."""
    declaring = deploy(dg.AssetSpec("numbers", partitions_def=daily), total, location="declaring")
    building = deploy(numbers, location="building")

    for site in (declaring, building, declaring):
        assert tick_summary(site) == "Nothing is due."

    assert owners(building.engine) == {"numbers": "building", "total": "declaring"}


def test_what_a_script_materialized_is_no_claim(instance: dg.DagsterInstance, deploy: Any) -> None:
    dg.materialize([other], instance=instance)

    site = deploy(other, location="deployed")

    assert owners(site.engine) == {"other": "deployed"}


# One name, one location

DEFINITIONS = """
import pandas as pd
from databuild_dagster import build_definitions, databuild_asset

def an_asset(name):
    @databuild_asset(name=name)
    def asset() -> pd.DataFrame: ...
    return asset

defs = build_definitions([an_asset(name) for name in NAMES])
"""


def a_project(folder: Path, *names: str, file: str = "definitions.py") -> Any:
    """The repository of a folder with a `definitions.py`, as Dagster loads it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(DEFINITIONS.replace("NAMES", repr(names)))
    (location,) = load_code_locations(files=[str(folder / file)])
    return location.repository


def name_of(repository: Any) -> str:
    deployment = deployment_of_repository(repository)
    assert deployment is not None
    return deployment.location


def load(instance: dg.DagsterInstance, repository: Any) -> None:
    name = name_of(repository)
    register(engine_for(instance), name, datasets_of(repository.asset_graph, name))


def test_two_projects_whose_definitions_have_the_same_file_name_keep_their_datasets(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    shop, bank = a_project(tmp_path / "shop", "a", "b"), a_project(tmp_path / "bank", "c", "d")

    for repository in (shop, bank, shop):
        load(instance, repository)

    assert owners(engine_for(instance)) == {
        **dict.fromkeys("ab", "shop.definitions"),
        **dict.fromkeys("cd", "bank.definitions"),
    }


def test_a_file_in_a_package_has_the_name_that_it_is_imported_by(tmp_path: Path) -> None:
    package = tmp_path / "somewhere" / "shop" / "dagster"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package.parent / "__init__.py").touch()

    assert name_of(a_project(package, "a")) == "shop.dagster.definitions"
    assert name_of(a_project(package, "a", file="__init__.py")) == "shop.dagster"


def test_two_locations_of_one_name_do_not_erase_each_other(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    """Two containers may both have their code in `/app`."""
    load(instance, a_project(tmp_path / "here" / "app", "a", "b"))
    other_app = a_project(tmp_path / "there" / "app", "c", "d")

    with pytest.raises(
        LocationTaken, match=r"'app.definitions' has registered a, b, .*build_definitions\(…, location="
    ):
        load(instance, other_app)

    assert owners(engine_for(instance)) == dict.fromkeys("ab", "app.definitions")


# Across locations


def test_a_want_in_one_location_has_its_inputs_built_in_another(deploy: Any, tmp_path: Path) -> None:
    """Rule 5.7: a tick launches only its own location's jobs, and each location may have a warehouse of its own."""
    upstream = deploy(numbers, location="upstream", warehouse=tmp_path / "theirs")
    downstream = deploy(total, location="downstream", warehouse=tmp_path / "ours")
    downstream.want("total@2013-01-01")

    for _ in range(3):
        downstream.build()
        upstream.build()

    assert downstream.state("total@2013-01-01") is LIVE
    assert downstream.rows("total@2013-01-01") == [{"n": 1 + 2 + 3}]
    assert [run.status for run in upstream.runs + downstream.runs] == [dg.DagsterRunStatus.SUCCESS] * 2


# Beside plain Dagster


@dg.asset(partitions_def=daily)
def rates(context: dg.AssetExecutionContext) -> pd.DataFrame:
    return pd.DataFrame({"rate": [2.0]})


@databuild_asset(partitions_def=daily)
def prices(rates: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"price": rates.rate * 10})


def test_an_asset_of_a_plain_location_is_waited_for_and_read(instance: dg.DagsterInstance, deploy: Any) -> None:
    """Rule 6.11: that location knows nothing of us; it is named by an `AssetSpec`."""
    site = deploy(dg.AssetSpec("rates", partitions_def=daily), prices)
    site.build("prices@2013-01-01")
    before = site.state("prices@2013-01-01")

    dg.materialize([rates], partition_key="2013-01-01", instance=instance)
    site.build()

    assert before is InstanceState.UPSTREAM_BUILDING
    assert site.rows("prices@2013-01-01") == [{"price": 20.0}]
