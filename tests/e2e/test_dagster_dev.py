"""Web server, daemon and orchestrator sensor as real processes: a want becomes a live month, and Dagster's UI in a real
browser shows partitions in each state, and the reasons (rules 6.1, 7.1, 8.1).

One server and one Chromium; each page is opened once, and its picture is left in the test's folder.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from databuild_dagster.bindings.display.partition_status import taint_run_id
from databuild_dagster.model.states import InstanceState
from tests.support.chromium import running_chromium

from .conftest import Dagster

pytestmark = [pytest.mark.long("Dagster's own pages in a browser"), pytest.mark.timeout(600)]

#: What a page may take to show what it is asked for, on two busy cores.
MAX_PAGE_SECONDS = 60

DEFINITIONS = """
import threading
from pathlib import Path

import dagster as dg
import pandas as pd

from databuild_dagster import BuildContext, DepMiss, build_definitions, databuild_asset

HERE = Path(__file__).parent
daily = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-06")


@databuild_asset(partitions_def=daily)
def orders(context: BuildContext) -> pd.DataFrame:
    day = context.partition_key
    if day == "2024-01-02":
        raise ValueError("the till was closed")
    if day in ("2024-01-03", "2024-01-05"):
        raise DepMiss("elsewhere@x")
    if day == "2024-01-04":
        for _ in range(60_000):
            if (HERE / "go").exists():
                break
            threading.Event().wait(0.01)
    return pd.DataFrame({"day": [day], "amount": [2.0]})


@databuild_asset(partitions_def=daily)
def stock(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"day": [context.partition_key]})


elsewhere = dg.AssetSpec("elsewhere", partitions_def=dg.StaticPartitionsDefinition(["x"]))
defs = build_definitions([orders, stock, elsewhere])
"""

MATERIALIZE = """
mutation($params: ExecutionParams!) { launchPipelineExecution(executionParams: $params) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""

STATUS = "query($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"

#: The colours of Dagster's dots, by the names of its style sheet.
GREEN, RED, BLUE, GRAY = "green", "red", "blue", "gray"

PARTITIONS = """
query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
    assetPartitionStatuses { ... on TimePartitionStatuses { ranges { status startKey endKey } } }
} } }"""

#: A process of its own for each step would only take its time.
IN_PROCESS: Mapping[str, Any] = {"execution": {"config": {"in_process": {}}}}


class Shop:
    """A running Dagster, and what is asked of it."""

    def __init__(self, dagster: Dagster) -> None:
        self.dagster = dagster

    def materialize(self, asset: str, first: str, last: str) -> str:
        """As the Materialize button does; returns the Dagster run."""
        ends = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
        tags = {"dagster/partition": first} if first == last else ends
        params = {
            "selector": {
                "repositoryLocationName": "definitions.py",
                "repositoryName": "__repository__",
                "pipelineName": "__ASSET_JOB",
                "assetSelection": [{"path": [asset]}],
            },
            "runConfigData": IN_PROCESS,
            "executionMetadata": {"tags": [{"key": key, "value": value} for key, value in tags.items()]},
        }
        answer = self.dagster.graphql(MATERIALIZE, params=params)["launchPipelineExecution"]
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return str(answer["run"]["runId"])

    def status(self, run_id: str) -> str:
        return str(self.dagster.graphql(STATUS, id=run_id)["runOrError"]["status"])

    def wait_for_run(self, run_id: str, *statuses: str) -> None:
        self.dagster.wait_until(lambda: self.status(run_id) in statuses, f"run {run_id} is {statuses}")

    def partitions(self, asset: str) -> dict[str, str]:
        """The status of the partitions of an asset, by key of the first one of each range."""
        found = self.dagster.graphql(PARTITIONS, key={"path": [asset]})["assetNodeOrError"]
        return {item["startKey"]: item["status"] for item in found["assetPartitionStatuses"]["ranges"]}


@dataclass(frozen=True)
class Runs:
    """The Dagster runs of a person, by what becomes of them."""

    failed: str
    building: str
    missed: str
    delegated: str


class Browser:
    """One page of a browser, as a person uses it."""

    def __init__(self, page: Page, shop: Shop, pictures: Path) -> None:
        self.page = page
        self.root = f"http://127.0.0.1:{shop.dagster.port}"
        self._pictures = pictures

    def open(self, path: str) -> None:
        self.page.goto(self.root + path)

    def sees(self, *texts: str) -> None:
        """Each of them is on the page, or comes onto it; then its picture is kept."""
        for text in texts:
            self.page.get_by_text(text).first.wait_for()
        self.page.screenshot(path=self._pictures / f"{len(list(self._pictures.iterdir())):02}.png")

    def sees_dots(self, colours: Mapping[str, str]) -> None:
        """The dot beside each partition key in the list of partitions has its colour, or gets it."""
        for key, colour in colours.items():
            dot = self.page.locator(f"[data-tooltip='{key}'] + div[style*='--color-accent-{colour})']")
            dot.first.wait_for(state="attached")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("browser")


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with running_chromium() as browser:
        page = browser.new_page(viewport={"width": 1500, "height": 1100})
        page.set_default_timeout(MAX_PAGE_SECONDS * 1000)
        # Dagster's invitation to its community has been answered.
        page.add_init_script("localStorage.setItem('communityNux', '1')")
        yield page


@pytest.fixture(scope="module")
def shop(folder: Path) -> Iterator[Shop]:
    with Dagster(folder, DEFINITIONS).running() as dagster:
        yield Shop(dagster)
        # Nothing has to wait when it is ended.
        (folder / "go").touch()


@pytest.fixture(scope="module")
def browser(page: Page, shop: Shop, folder: Path) -> Browser:
    pictures = folder / "pictures"
    pictures.mkdir()
    return Browser(page, shop, pictures)


@pytest.fixture(scope="module")
def over_at(shop: Shop) -> float:
    """A day of stock is live, and no want for it is open from the time returned."""
    return shop.dagster.build_and_want_no_more("stock@2024-01-01")


@pytest.fixture(scope="module")
def runs(shop: Shop, over_at: float) -> Runs:
    """One day of orders is live, one has failed, two wait for what is not there, and one is being built."""
    failed = shop.materialize("orders", "2024-01-01", "2024-01-03")
    building = shop.materialize("orders", "2024-01-04", "2024-01-04")
    missed = shop.materialize("orders", "2024-01-05", "2024-01-05")
    shop.wait_for_run(failed, "FAILURE")
    delegated = shop.materialize("orders", "2024-01-01", "2024-01-01")
    shop.wait_for_run(missed, "SUCCESS")
    shop.wait_for_run(delegated, "SUCCESS")
    shop.dagster.wait_until(
        lambda: shop.dagster.state("orders@2024-01-04") is InstanceState.BUILDING, "a day is being built"
    )
    return Runs(failed, building, missed, delegated)


def test_the_partitions_of_one_run_are_live_failed_waiting_and_in_progress(browser: Browser, runs: Runs) -> None:
    browser.open("/assets/orders?view=partitions&partition=2024-01-04")

    browser.sees("Failed (1)", "Materialized (1)", "Materializing (1)", "Missing (2)")
    browser.sees(f"Run {runs.building[:8]} that targets this partition has started")
    browser.sees_dots(
        {"2024-01-01": GREEN, "2024-01-02": RED, "2024-01-03": GRAY, "2024-01-04": BLUE, "2024-01-05": GRAY}
    )


def test_why_a_partition_has_failed_is_one_click_away(browser: Browser, runs: Runs) -> None:
    browser.open("/assets/orders?view=partitions&partition=2024-01-02")
    browser.sees(f"Run {runs.failed[:8]} failed, and did not materialize this asset.")

    browser.page.get_by_text("View logs").click()

    browser.sees("ValueError: the till was closed", "orders@2024-01-03 waits for elsewhere@x.")


def test_a_live_partition_shows_its_data_and_who_has_been_served_by_it(browser: Browser, runs: Runs) -> None:
    browser.open("/assets/orders?view=partitions&partition=2024-01-01")

    browser.sees("databuild/instance", "databuild/manifest", "dagster/row_count")
    link = browser.page.get_by_text("/databuild/partition?ref=orders%402024-01-01&instance=").first
    assert browser.page.request.get(f"{browser.root}{link.get_attribute('href')}").status == 200
    browser.sees("databuild/delegated", f"Observed in run {runs.delegated[:8]}")
    served_by = browser.page.get_by_text(runs.failed, exact=True).first
    assert served_by.get_attribute("href") == f"/runs/{runs.failed}"


def test_a_run_that_others_have_served_says_so_and_links_to_the_run_that_did(browser: Browser, runs: Runs) -> None:
    browser.open(f"/runs/{runs.delegated}")

    browser.sees("Success", "databuild/served_by")
    link = browser.page.get_by_text(runs.failed, exact=True).first
    assert link.get_attribute("href") == f"/runs/{runs.failed}"


def test_the_list_of_runs_marks_the_delegated_run_and_the_one_that_only_missed(browser: Browser, runs: Runs) -> None:
    browser.open("/runs")

    browser.sees("databuild/delegated: true", "databuild/outcome: waiting", "partitions: 2024-01-01..2024-01-03 (3)")
    assert browser.page.get_by_text("databuild_launch").count() == 0


def test_a_taint_is_shown_in_red_with_its_reason_until_it_is_taken_back(
    shop: Shop, browser: Browser, over_at: float
) -> None:
    """The want of the day is over by then, or it would be built again."""
    shop.dagster.wait_until(lambda: time.monotonic() > over_at, "the want of the day is over")
    taint_id = shop.dagster.databuild("taint", "stock@2024-01-01", "--reason", "counted twice")["taint_id"]
    shop.dagster.wait_until(lambda: shop.partitions("stock") == {"2024-01-01": "FAILED"}, "the taint is shown")

    browser.open("/assets/stock?view=partitions&partition=2024-01-01")
    browser.sees("Failed (1)", "failed, and did not materialize this asset.", "databuild/instance")
    browser.sees_dots({"2024-01-01": RED, "2024-01-02": GRAY})
    browser.page.get_by_text("View logs").click()
    browser.sees("stock@2024-01-01 was tainted by user", "counted twice", f"databuild untaint {taint_id}")
    run = taint_run_id(taint_id)[:8]
    browser.open("/runs")
    browser.sees("Success")
    assert browser.page.get_by_text(run, exact=True).count() == 0
    browser.page.get_by_text("Show runs within backfills").click()
    browser.sees(run)

    browser.open("/assets/stock?view=checks")
    browser.sees("no_tainted_partitions", "1 tainted: stock@2024-01-01.")

    shop.dagster.databuild("untaint", taint_id)
    shop.dagster.wait_until(lambda: shop.partitions("stock") == {"2024-01-01": "MATERIALIZED"}, "it is green again")
    browser.open("/assets/stock?view=partitions&partition=2024-01-01")
    browser.sees("Failed (0)", "Materialized (1)")
    browser.sees_dots({"2024-01-01": GREEN, "2024-01-02": GRAY})
