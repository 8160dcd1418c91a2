"""A small state with a partition in each state, and the application over it, called without a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from databuild_dagster import BuildContext, build_definitions, databuild_asset
from databuild_dagster.bindings.registry.catalog import DagsterCatalog
from databuild_dagster.bindings.registry.registration import datasets_of
from databuild_dagster.engine.registering import register
from databuild_dagster.model.commands import CreateWants
from databuild_dagster.model.operations.keys import OperationId
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.web.application import make_application
from databuild_dagster.web.pages import page_paths
from databuild_dagster.web.settings import DEFAULTS, Settings
from databuild_dagster.web.state import State
from tests.support.catalog import HERE
from tests.support.parquet_rows import written_fact
from tests.support.world import EMPTY, World

#: Texts that are markup, or end an attribute or a script.
MARKUP = "<script>alert(1)</script>"
ATTRIBUTE = "\"'><img src=x onerror=alert(1)>"
#: Of callers that are no pages.
TOKEN = "a-token-of-a-program-1234"
BEARER = {"authorization": f"Bearer {TOKEN}"}
API = "/api/v1"
#: Partitions of the definitions below.
DAY, OTHER_DAY, MONTH = "orders@2023-01-01", "orders@2023-01-02", "revenue@2023-01-01"

daily = dg.DailyPartitionsDefinition("2023-01-01", end_date="2023-02-01")
monthly = dg.MonthlyPartitionsDefinition("2023-01-01", end_date="2023-02-01")
five_minutes = dg.TimeWindowPartitionsDefinition(
    start="2022-01-01-00:00", end="2023-01-01-00:00", cron_schedule="*/5 * * * *", fmt="%Y-%m-%d-%H:%M"
)
names = dg.StaticPartitionsDefinition([MARKUP, ATTRIBUTE, "plain", *(f"name {n:04}" for n in range(2_000))])


@databuild_asset(partitions_def=daily)
def orders(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame()


@databuild_asset(partitions_def=monthly, group_name="shop", owners=["team:shop", "kate@shop.com"])
def revenue(orders: pd.DataFrame) -> pd.DataFrame:
    return orders


@databuild_asset(partitions_def=five_minutes)
def ticks(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame()


@databuild_asset(partitions_def=names)
def named(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame()


@databuild_asset
def whole() -> pd.DataFrame:
    return pd.DataFrame()


@databuild_asset(**({"sample": True} if "/sample" in page_paths() else {}))
def shown() -> pd.DataFrame:
    return pd.DataFrame()


@databuild_asset(partitions_def=daily, subscribe="orders")
def mirror(orders: pd.DataFrame) -> pd.DataFrame:
    return orders


@databuild_asset(partitions_def=monthly, subscribe="mirror", follow_late=True)
def summary(mirror: pd.DataFrame) -> pd.DataFrame:
    return mirror


defs = build_definitions([orders, revenue, ticks, named, whole, shown, mirror, summary])


class PagesWorld(World):
    """A world whose partitions are those of Dagster definitions."""

    def __init__(self, url: str | None = None) -> None:
        super().__init__(url=url)
        #: The operation that runs; None without operations.
        self.running: OperationId | None = None
        self.instance = dg.DagsterInstance.ephemeral()
        self.catalog = DagsterCatalog(self.instance)  # type: ignore[assignment]
        self.engine = self.process()
        self.queries = self.engine.queries
        register(self.engine, HERE, datasets_of(defs.get_repository_def().asset_graph, HERE))

    def build(self, warehouse: Warehouse, ref: str, rows: dict[str, list[Any]]) -> str:
        """An instance with a real file; its uuid."""
        return self.succeed(ref, manifest=written_fact(warehouse, ref, self.job_run(ref), rows))

    def state_behind_pages(self) -> State:
        return State(lambda: self.engine, self.instance)

    def flow(self) -> None:
        """A lot that was built before its source got new data, delegations, and operations if there are any."""
        self.live("orders@2023-01-21", "mirror@2023-01-19")
        self.succeed("mirror@2023-01-21", inputs=["orders@2023-01-21"])
        self.taint("orders@2023-01-21")
        self.live("orders@2023-01-21")
        self.handle(CreateWants(wants=(("orders@2023-01-03",),), comment=MARKUP))
        self.claim("orders@2023-01-03", "orders@2023-01-06", dagster_run_id=ATTRIBUTE)
        if "/operations" in page_paths():
            self.operate()

    def operate(self) -> None:
        # Inside, because the feature may be left out.
        from tests.support.operations import Operations

        self.operations = Operations(self)
        for arg in ({"2023-01-01": "raise"}, {"2023-01-01": "say"}, None):
            self.operations.run_all(self.operations.manager.start("write", "orders", arg))
        self.running = self.operations.manager.start("many", "orders", {"about": MARKUP})
        self.operations.executor(MARKUP).step(self.running, 1)


def filled(folder: Path, url: str | None = None) -> PagesWorld:
    """A state with a partition in each state; its files are in the folder."""
    world = PagesWorld(url)
    warehouse = Warehouse(str(folder))
    world.build(warehouse, "shown", {"n": [1], MARKUP: [ATTRIBUTE]})
    world.taint("shown", reason=MARKUP)
    world.build(warehouse, "shown", {"n": [1, 2], ATTRIBUTE: [MARKUP, None]})
    world.live("orders@2023-01-01", "orders@2023-01-02", "orders@2023-01-03", "whole")
    world.succeed("orders@2023-01-04", manifest=EMPTY)
    world.fail("orders@2023-01-05", error=MARKUP)
    world.succeed("revenue@2023-01-01", inputs=["orders@2023-01-01", "orders@2023-01-02"])
    world.taint("orders@2023-01-02", reason=ATTRIBUTE)
    world.start("orders@2023-01-06")
    world.want("orders@2023-01-07")
    world.pause("orders@2023-01-08", reason=MARKUP)
    world.live(f"named@{MARKUP}", f"named@{ATTRIBUTE}")
    world.live("ticks@2022-03-04-00:05")
    world.fail("ticks@2022-03-05-00:00")
    world.flow()
    return world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PagesWorld]:
    world = filled(tmp_path_factory.mktemp("warehouse"))
    yield world
    world.close()


@pytest.fixture
def client(world: PagesWorld) -> Iterator[TestClient]:
    application = make_application(world.state_behind_pages())
    with TestClient(application, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def own_world() -> Iterator[PagesWorld]:
    """A state that the test changes."""
    world = PagesWorld()
    yield world
    world.close()


@pytest.fixture
def acting(own_world: PagesWorld) -> Iterator[TestClient]:
    """The pages over it, with a token for callers that are no pages."""
    with mounted(own_world, Settings(token=TOKEN)) as client:
        yield client


def mounted(
    world: PagesWorld, settings: Settings = DEFAULTS, prefix: str = "", host: str = "http://testserver"
) -> TestClient:
    """The pages where Dagster's web server has them, so that a browser sends their cookies."""
    root = f"{prefix}/databuild"
    application = make_application(world.state_behind_pages(), prefix, settings)
    routes = [Mount(root, app=application)]
    return TestClient(Starlette(routes=routes), host + root, raise_server_exceptions=False)


def call(client: TestClient, action: str, fields: dict[str, Any], **headers: str) -> Any:
    """The answer to a program that calls an action."""
    return client.post(f"{API}/actions/{action}", json={"actor": "nightly", **fields}, headers={**BEARER, **headers})


def get(client: TestClient, path: str, **query: Any) -> Any:
    """What a url of the API answers."""
    answer = client.get(API + path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(client: TestClient, path: str, **query: Any) -> tuple[int, str]:
    """The status and the type of the error with which a url of the API refuses."""
    answer = client.get(API + path, params=query)
    return answer.status_code, answer.json()["error"]["type"]
