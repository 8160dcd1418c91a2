"""Two instances compared, a receipt and a few rows as pages (rules 15)."""

from __future__ import annotations

import html
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from starlette.testclient import TestClient

from databuild_dagster.features.compare import pages
from databuild_dagster.model import commands as c
from databuild_dagster.web.application import make_application
from databuild_dagster.web.state import State
from tests.support.browser import Tags
from tests.support.catalog import HERE
from tests.support.pages_world import API, ATTRIBUTE, MARKUP, client, world
from tests.support.published import DELTA, PublishedWorld

__all__ = ["client", "world"]

DAY = "sales@2024-01-01"


@pytest.fixture
def sales(tmp_path: Path) -> Iterator[PublishedWorld]:
    """A store with real files, of which rows may be shown."""
    world = PublishedWorld(tmp_path / "home", DELTA)
    spec = msgspec.structs.replace(world.spec, sample=True)
    world.handle(c.RegisterDatasets(location=HERE, datasets=(spec,)))
    yield world
    world.close()


@pytest.fixture
def shop(sales: PublishedWorld) -> Iterator[TestClient]:
    with TestClient(make_application(State(lambda: sales.engine, None)), raise_server_exceptions=False) as client:
        yield client


def test_the_pages_say_what_equal_rows_cut_off(shop: TestClient, sales: PublishedWorld) -> None:
    """Rule 4.8"""
    first = sales.build("2024-01-01", {"n": [1]}, content_hash="x:1")
    reader = sales.build("2024-01-02", {"n": [1]}, inputs=["2024-01-01"])
    sales.taint(DAY)
    again = sales.build("2024-01-01", {"n": [1]}, content_hash="x:1")
    sales.clock.turn(10)
    sales.claim("sales@2024-01-02", dagster_run_id="late")

    receipt, now = (shop.get(f"/receipt?instance={uuid}").text for uuid in (reader, again))
    requests = shop.get("/delegations?requester=late").text
    calendar = shop.get("/calendar?dataset=sales&ref=sales@2024-01-02").text

    assert f"No build follows {DAY}, which got equal rows again." in receipt
    assert f'It has the rows of <span class="nowrap"><span class="mono" title="{first}">' in now
    assert f"equal rows again: {DAY}" in requests
    assert f"no build follows {DAY}, which got equal rows again" in html.unescape(calendar)


def test_two_instances_are_compared_from_the_page_of_a_partition(shop: TestClient, sales: PublishedWorld) -> None:
    first = sales.build("2024-01-01", {"n": [1, 2], "gone": ["x", "y"]})
    sales.taint(DAY, reason=ATTRIBUTE)
    second = sales.build("2024-01-01", {"n": [1], MARKUP: ["z"]})

    partition = Tags(shop.get(f"/partition?ref={DAY}").text).found
    compared = shop.get(f"/diff?a={first[-8:]}&b={second}")

    checked = [attrs for tag, attrs in partition if tag == "input" and "checked" in attrs]
    assert [(attrs["name"], attrs["value"]) for attrs in checked] == [("b", second), ("a", first)]
    assert compared.status_code == 200
    shown = html.unescape(compared.text)
    assert ATTRIBUTE in shown
    assert MARKUP in shown
    assert {attrs.get("src") for tag, attrs in Tags(compared.text).found if tag == "img"} == {
        "/databuild/static/icon.svg"
    }
    answer = shop.get(f"{API}/diff", params={"a": first, "b": second}).json()
    assert [(column["name"], column["change"]) for column in answer["columns"]] == [
        (MARKUP, "added"),
        ("gone", "removed"),
    ]


def test_the_page_of_two_instances_says_that_rows_are_equal_by_hash(shop: TestClient, sales: PublishedWorld) -> None:
    uuids = []
    for content_hash in ("x:1", "x:1", "x:2"):
        uuids.append(sales.build("2024-01-01", {"n": [1]}, content_hash=content_hash))
        sales.taint(DAY)

    shown = [shop.get(f"/diff?a={uuids[0]}&b={uuid}").text for uuid in uuids[1:]]

    assert ["equal by hash" in text for text in shown] == [True, False]


def test_a_receipt_is_a_page_and_a_file_to_download(shop: TestClient, sales: PublishedWorld) -> None:
    uuid = sales.build("2024-01-01", {"n": [1, 2]})

    page = shop.get(f"/receipt?instance={uuid}")
    links = [attrs for tag, attrs in Tags(page.text).found if tag == "a" and "download" in attrs]
    (link,) = links
    downloaded = shop.get(str(link["href"]).removeprefix("/databuild"))

    assert link["download"] == f"receipt-{uuid}.json"
    assert [entry["uuid"] for entry in downloaded.json()["instances"]] == [uuid]
    assert str(sales.home) not in page.text + downloaded.text


def test_rows_are_shown_by_a_click_alone_and_escaped(shop: TestClient, sales: PublishedWorld) -> None:
    sales.build("2024-01-01", {MARKUP: [ATTRIBUTE, None], "secret": ["a row", "another"]})

    partition = shop.get(f"/partition?ref={DAY}").text
    rows = shop.get(f"/sample?ref={DAY}")

    assert f'href="/databuild/sample?ref={DAY.replace("@", "%40")}"' in partition
    assert "a row" not in partition
    assert rows.status_code == 200
    assert "a row" in rows.text
    assert MARKUP not in rows.text
    assert ATTRIBUTE not in rows.text
    assert MARKUP in html.unescape(rows.text)
    assert ATTRIBUTE in html.unescape(rows.text)
    assert str(sales.home) not in rows.text


def test_an_event_does_not_read_rows_or_manifests_again(shop: TestClient, sales: PublishedWorld) -> None:
    uuid = sales.build("2024-01-01", {"n": [1]})
    paths = (f"/sample?ref={DAY}", f"/receipt?instance={uuid}", f"/partition?ref={DAY}")

    roots = [Tags(shop.get(path).text).found[0] for path in paths]

    assert [(tag, "data-still" in attrs) for tag, attrs in roots] == [("html", True), ("html", True), ("html", False)]


def test_too_many_samples_at_once_are_refused(shop: TestClient, sales: PublishedWorld) -> None:
    sales.build("2024-01-01", {"n": [1]})
    for _ in range(pages.MAX_SAMPLES):
        assert pages._sampling.acquire(blocking=False)

    refused = shop.get(f"{API}/sample", params={"ref": DAY})
    for _ in range(pages.MAX_SAMPLES):
        pages._sampling.release()

    assert (refused.status_code, refused.json()["error"]["type"]) == (503, "TooManySamples")
    assert shop.get(f"{API}/sample", params={"ref": DAY}).status_code == 200
