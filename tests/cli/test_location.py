"""`databuild status --locations` and `--forget`: code locations with registered assets (rule 5.7)."""

from databuild_dagster.bindings.registry.instance import engine_for, open_instance
from databuild_dagster.engine.orchestrator_notes import note_tick
from databuild_dagster.engine.tick_pass import TickLimits
from tests.support.project import Project

from .sources import of_pandas

SHOP = of_pandas("""
@databuild_asset
def orders() -> pd.DataFrame:
    return pd.DataFrame({"amount": [1.5, 2.5]})

defs = build_definitions([orders], location="shop")
""")


def test_an_asset_in_two_locations_is_a_warning(project: Project) -> None:
    project.define(SHOP)
    (project.folder / "bank.py").write_text(SHOP.replace("shop", "bank"))
    both = "load_from:\n  - python_file: definitions.py\n  - python_file: bank.py\n"
    (project.folder / "workspace.yaml").write_text(both)

    done = project.call("admin", "tick")

    (warning,) = [line for line in done.err.splitlines() if line.startswith("Warning")]
    assert "'bank' declares orders, which code location 'shop' has registered" in warning


def test_a_location_that_is_gone_is_forgotten_and_its_partitions_stay(project: Project) -> None:
    project.define(SHOP)
    project.build("orders")
    with project.own_process(), open_instance(project.home) as instance:
        note_tick(engine_for(instance), "shop", TickLimits(), interval_seconds=5.0)
    assert [(found["location"], found["assets"]) for found in project.ask("status", "--locations")] == [
        ("shop", ["orders"])
    ]

    refused = project.call("status", "--forget", "shop")
    done = project.call("status", "--forget", "shop", "--yes")
    again = project.call("status", "--forget", "shop")

    assert (refused.code, "Stop its code location first, or add --yes." in refused.err) == (2, True)
    assert "shop has no assets any more; it had 1 asset: orders." in done.out
    assert again.code == 2
    assert "There is no code location with registered assets 'shop'" in again.err
    assert project.queries.datasets.get("orders") is None
    assert project.queries.canonical.of(["orders"])["orders"].state is not None
    project.call("admin", "tick")
    assert project.queries.datasets.get("orders") is not None, "it was not gone"
