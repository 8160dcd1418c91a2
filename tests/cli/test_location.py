"""One workspace of several code locations, one of them plain Dagster, on the command line."""

from pathlib import Path

import dagster as dg
import pytest

from databuild_dagster.bindings.registry.instance import engine_for, open_instance
from databuild_dagster.engine.orchestrator_notes import note_tick
from databuild_dagster.engine.tick_pass import TickLimits
from tests.support.project import Project

from .sources import of_pandas

SHOP = of_pandas("""
@databuild_asset
def orders() -> pd.DataFrame:
    return pd.DataFrame({"amount": [1.5, 2.5]})

defs = build_definitions([orders])
""")

BANK = of_pandas("""
@databuild_asset(deps=[dg.AssetKey("rates")])
def revenue(orders: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"revenue": [orders.amount.sum()]})

MORE = []
defs = build_definitions([revenue, dg.AssetSpec("rates"), *MORE])
""")

BANK_WITH_ORDERS = BANK.replace(
    "MORE = []",
    """
@databuild_asset
def orders() -> pd.DataFrame:
    return pd.DataFrame({"amount": [100.0]})

MORE = [orders]
""",
)

PLAIN = """
import dagster as dg

@dg.asset
def rates() -> None: ...

defs = dg.Definitions([rates])
"""

WORKSPACE = """
load_from:
  - python_file: {relative_path: bank/definitions.py, location_name: bank}
  - python_file: {relative_path: shop/definitions.py, location_name: shop}
  - python_file: {relative_path: plain/definitions.py, location_name: plain}
"""


@pytest.fixture
def workspace(project: Project) -> Project:
    for name, source in (("shop", SHOP), ("bank", BANK), ("plain", PLAIN)):
        write(project, name, source)
    (project.folder / "workspace.yaml").write_text(WORKSPACE)
    return project


def write(project: Project, name: str, source: str) -> None:
    path = Path(project.folder / name / "definitions.py")
    path.parent.mkdir(exist_ok=True)
    path.write_text(source)


def materialize_plain(project: Project) -> None:
    """Materialize the asset of the plain location by Dagster alone."""

    @dg.asset
    def rates() -> None: ...

    with open_instance(project.home) as instance:
        assert dg.materialize([rates], instance=instance).success


def test_a_build_goes_across_locations_and_takes_inputs_from_a_plain_one(workspace: Project) -> None:
    """Rules 5.7, 6.11"""
    waiting = workspace.call("build", "revenue", "--json")
    materialize_plain(workspace)

    built = workspace.build("revenue")

    assert (waiting.code, waiting.json["refs"]) == (1, {"live": 0, "failed": 1})
    assert built["refs"] == {"live": 1, "failed": 0}
    assert workspace.ask("read", "revenue") == [{"revenue": 4.0}]
    assert {location["location"]: location["assets"] for location in workspace.ask("location", "list")} == {
        "bank.definitions": ["rates", "revenue"],
        "shop.definitions": ["orders"],
    }
    assert workspace.is_sound()


def test_an_asset_in_two_locations_is_a_warning_and_goes_to_the_one_that_keeps_it(workspace: Project) -> None:
    workspace.build("orders")
    write(workspace, "bank", BANK_WITH_ORDERS)

    answer = workspace.call("tick")
    write(workspace, "shop", SHOP.replace("build_definitions([orders])", "build_definitions([])"))
    moved = workspace.call("tick")

    (warning,) = [line for line in answer.err.splitlines() if line.startswith("Warning")]
    assert "'bank.definitions' declares orders, which code location 'shop.definitions' has registered" in warning
    assert "Warning" not in moved.err, "bank is loaded before shop, and asked again"
    assert {location["location"]: location["assets"] for location in workspace.ask("location", "list")} == {
        "bank.definitions": ["orders", "rates", "revenue"],
    }


def test_a_location_that_is_gone_is_forgotten_and_its_partitions_stay(workspace: Project) -> None:
    workspace.build("orders")
    with workspace.own_process(), open_instance(workspace.home) as instance:
        note_tick(engine_for(instance), "shop.definitions", TickLimits(), interval_seconds=5.0)

    refused = workspace.call("location", "forget", "shop.definitions")
    done = workspace.call("location", "forget", "shop.definitions", "--yes")
    again = workspace.call("location", "forget", "shop.definitions")

    assert (refused.code, "Stop its code location first, or add --yes." in refused.err) == (2, True)
    assert "shop.definitions has no assets any more; it had 1 asset: orders." in done.out
    assert again.code == 2
    assert "There is no code location with registered assets 'shop.definitions'" in again.err
    assert workspace.queries.dataset("orders") is None
    assert workspace.queries.canonical(["orders"])["orders"].state is not None
    workspace.call("tick")
    assert workspace.queries.dataset("orders") is not None, "it was not gone"
