"""Definitions of one location in several modules: `Definitions.merge` joins them, with one orchestrator (rule 5.7)."""

import textwrap
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest
from dagster._core.errors import DagsterInvariantViolationError

from databuild_dagster import DatabuildTranslator, SharedLocation, build_definitions, databuild_asset
from databuild_dagster.automation import eager
from databuild_dagster.bindings.adapter.keys import WANTS
from databuild_dagster.bindings.authoring.location import load_code_locations, the_code_location
from databuild_dagster.bindings.building.deployment import deployment_of_repository
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.bindings.registry.registration import datasets_of
from databuild_dagster.engine.registering import register
from databuild_dagster.feature import built_in
from tests.bindings.conftest import Site


@databuild_asset(automation_condition=eager())
def orders() -> pd.DataFrame:
    return pd.DataFrame({"amount": [1, 2]})


@databuild_asset(automation_condition=eager())
def totals(orders: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"total": [orders.amount.sum()]})


@pytest.fixture
def shop() -> SharedLocation:
    return SharedLocation("shop")


def merged(shop: SharedLocation) -> dg.Definitions:
    return dg.Definitions.merge(
        build_definitions([orders], location=shop),
        build_definitions([totals], location=shop),
        dg.Definitions(assets=[dg.AssetSpec("weather")]),
    )


def test_merged_definitions_build_with_one_orchestrator(instance: dg.DagsterInstance, shop: SharedLocation) -> None:
    repository = merged(shop).get_repository_def()
    deployment = deployment_of_repository(repository)
    assert deployment is not None
    site = Site(instance, repository, deployment, engine_for(instance))
    register(site.engine, deployment.location, datasets_of(repository.asset_graph, deployment.location))

    site.build("totals")

    assert site.rows("totals") == [{"total": 3}]
    assert {spec.location for spec in site.engine.queries.datasets.all().values()} == {"shop"}
    of_features = ["databuild_operations"] if "operations" in {feature.name for feature in built_in()} else []
    assert sorted(sensor.name for sensor in repository.sensor_defs) == [
        "databuild_automation",
        "databuild_automation_authoring_test_shared_location",
        *of_features,
        "databuild_orchestrator",
    ]


def test_a_want_of_a_sensor_knows_the_assets_of_all_the_modules(
    instance: dg.DagsterInstance, shop: SharedLocation
) -> None:
    definitions = merged(shop)
    assert definitions.resources is not None

    with dg.build_resources({WANTS: definitions.resources[WANTS]}, instance=instance) as resources:
        resources.wants.create(["totals"])

    known = engine_for(instance).queries.datasets.all().values()
    assert {spec.asset for spec in known} == {"orders", "totals"}


def test_definitions_of_two_locations_do_not_merge() -> None:
    with pytest.raises(DagsterInvariantViolationError, match="different resources with same key 'databuild_location'"):
        dg.Definitions.merge(build_definitions([orders], location="a"), build_definitions([totals], location="b"))


@pytest.mark.parametrize(
    "setting",
    [{"threads": 2}, {"warehouse": "elsewhere"}, {"interval_seconds": 60}, {"sample_rows": 3}],
    ids=lambda setting: next(iter(setting)),
)
def test_a_setting_beside_a_shared_location_is_refused(shop: SharedLocation, setting: dict[str, Any]) -> None:
    (name,) = setting

    with pytest.raises(
        ValueError, match=f"{name}= is a setting of all definitions of location 'shop'; give it to Shared"
    ):
        build_definitions([orders], location=shop, **setting)


def test_a_shared_location_needs_a_name() -> None:
    with pytest.raises(ValueError, match="The name of a location is empty"):
        SharedLocation("")


def test_a_module_that_is_loaded_again_replaces_its_definitions(shop: SharedLocation) -> None:
    class Raw(DatabuildTranslator):
        def get_asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
            return spec.replace_attributes(description="raw")

    merged(shop)
    build_definitions([orders], location=shop, translator=Raw())

    graph = shop.asset_graph()
    assert graph.get(dg.AssetKey("orders")).description == "raw"
    assert graph.has(dg.AssetKey("totals"))


PACKAGE = "shared_shop"
TEAM = """
    import dagster as dg
    import pandas as pd
    from databuild_dagster import build_definitions, databuild_asset
    from {package}.place import shop

    @databuild_asset
    def {name}({inputs}) -> pd.DataFrame: ...

    @dg.definitions
    def defs() -> dg.Definitions:
        return build_definitions([{name}], location=shop)
"""
FILES = {
    "place.py": """
        from databuild_dagster import SharedLocation

        shop = SharedLocation("shop")
    """,
    "defs/sales.py": TEAM.format(package=PACKAGE, name="orders", inputs=""),
    "defs/finance.py": TEAM.format(package=PACKAGE, name="totals", inputs="orders: pd.DataFrame"),
    "definitions.py": """
        from pathlib import Path
        import dagster as dg

        @dg.definitions
        def defs() -> dg.Definitions:
            return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
    """,
}


def test_a_folder_of_definitions_is_one_location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, source in FILES.items():
        file = tmp_path / PACKAGE / name
        file.parent.mkdir(parents=True, exist_ok=True)
        (file.parent / "__init__.py").touch()
        file.write_text(textwrap.dedent(source))
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "{PACKAGE}"\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)

    location = the_code_location(load_code_locations(modules=[f"{PACKAGE}.definitions"]))

    assert location.deployment is not None
    assert location.deployment.location == "shop"
    assert {key.to_user_string() for key in location.repository.asset_graph.get_all_asset_keys()} == {
        "orders",
        "totals",
    }
    assert [sensor.name for sensor in location.repository.sensor_defs].count("databuild_orchestrator") == 1
