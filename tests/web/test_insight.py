"""Answers about one thing of any size have a bound; two instances, a receipt and rows are pages (rules 15)."""

from __future__ import annotations

import html
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from starlette.testclient import TestClient

from databuild_dagster.model import commands as c
from databuild_dagster.shapes.bounded import MAX_REFS
from databuild_dagster.web import insight
from databuild_dagster.web.application import make_application
from databuild_dagster.web.state import State
from tests.support.catalog import HERE
from tests.support.published import DELTA, PublishedWorld

from .conftest import ATTRIBUTE, MARKUP, PagesWorld
from .test_pages import Tags

API = "/api/v1"
MANY = [f"named@name {n:04}" for n in range(100, 100 + MAX_REFS + 50)]
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


def test_a_want_of_many_refs_is_listed_with_the_first_of_them(client: TestClient, world: PagesWorld) -> None:
    want = world.want(*MANY)

    wants = client.get(f"{API}/wants", params={"ref": MANY[-1]}).json()["wants"]
    listed = next(one for one in wants if one["id"] == want)
    (shown,) = client.get(f"{API}/want", params={"name": want}).json()["wants"]

    assert (listed["refs"], listed["n_refs"], listed["is_cut"]) == (MANY[:MAX_REFS], len(MANY), True)
    assert (len(shown["waits_for"]), shown["n_waits_for"]) == (MAX_REFS, len(MANY))
    few = client.get(f"{API}/wants", params={"ref": "orders@2023-01-07"}).json()["wants"]
    assert [(one["n_refs"], one["is_cut"]) for one in few] == [(1, False)]


def test_all_refs_of_a_want_come_in_pages_with_their_marks(client: TestClient, world: PagesWorld) -> None:
    want = world.want("orders@2023-01-01", *MANY)

    pages = [
        client.get(f"{API}/want_refs", params={"name": want, "offset": offset}).json() for offset in (0, 50, 100, 150)
    ]

    assert [one["ref"] for page in pages for one in page["refs"]] == ["orders@2023-01-01", *MANY]
    assert {page["n"] for page in pages} == {len(MANY) + 1}
    assert [one["mark"] for one in pages[0]["refs"][:2]] == ["live", "wanted"]
    second = client.get(f"/want?name={want}&offset=50").text
    assert "51 to 100 of 151" in second
    assert MANY[49] in second
    assert f"{MANY[99]}<" not in second


def test_a_job_run_of_many_refs_is_listed_with_the_first_of_them(client: TestClient, world: PagesWorld) -> None:
    refs = [f"named@name {n:04}" for n in range(400, 400 + MAX_REFS + 5)]
    world.start(*refs, together=True)

    builds = client.get(f"{API}/builds").json()

    run = next(build["job_run"] for build in builds if build["job_run"]["job"] == "named")
    assert (run["refs"], run["n_refs"], run["is_cut"]) == (refs[:MAX_REFS], len(refs), True)
    assert len(run["instances"]) == MAX_REFS
    assert client.get("/").status_code == 200


def test_the_history_names_some_refs_of_the_wants_behind_an_instance(client: TestClient, world: PagesWorld) -> None:
    refs = [f"named@name {n:04}" for n in range(700, 740)]
    world.want(*refs)
    world.start(refs[0])

    (instance,) = client.get(f"{API}/history", params={"ref": refs[0]}).json()

    (asker,) = instance["asked_by"]
    assert (len(asker["refs"]), asker["n_refs"], instance["n_asked_by"]) == (10, 40, 1)


def test_the_graph_of_an_earlier_event_is_a_page_with_a_slider(client: TestClient, world: PagesWorld) -> None:
    day = world.uuid("orders@2023-01-02")
    built = client.get(f"{API}/history", params={"ref": "revenue@2023-01-01"}).json()[0]["seq"]

    before = client.get(f"{API}/graph", params={"instance": day, "as_of": built}).json()
    now = client.get(f"{API}/graph", params={"instance": day}).json()
    page = client.get(f"/lineage?instance={day}&as_of={built}").text

    assert [(node["ref"], node["state"]) for node in before["nodes"]] == [("orders@2023-01-02", "Live")]
    assert (before["as_of"]["seq"], now["as_of"]) == (built, None)
    assert {node["ref"]: node["state"] for node in now["nodes"]}["orders@2023-01-02"] == "Tainted"
    assert "revenue@2023-01-01" in {node["ref"] for node in now["nodes"]}
    assert f"as of event {built}" in page
    assert "would have reached 0 other live partitions" in page
    too_early = client.get(f"{API}/graph", params={"instance": day, "as_of": before["made_seq"] - 1})
    assert (too_early.status_code, too_early.json()["error"]["type"]) == (400, "NotMadeYet")


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


def test_rows_that_the_author_has_not_allowed_are_refused(client: TestClient, world: PagesWorld) -> None:
    answer = client.get(f"{API}/sample", params={"ref": "orders@2023-01-01"})

    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (400, "SampleNotAllowed")
    assert error["message"] == "The pages show no rows of orders, because its author has not allowed it."
    assert "/sample" not in client.get("/partition?ref=orders@2023-01-01").text


def test_too_many_samples_at_once_are_refused(shop: TestClient, sales: PublishedWorld) -> None:
    sales.build("2024-01-01", {"n": [1]})
    for _ in range(insight.MAX_SAMPLES):
        assert insight._sampling.acquire(blocking=False)

    refused = shop.get(f"{API}/sample", params={"ref": DAY})
    for _ in range(insight.MAX_SAMPLES):
        insight._sampling.release()

    assert (refused.status_code, refused.json()["error"]["type"]) == (503, "TooManySamples")
    assert shop.get(f"{API}/sample", params={"ref": DAY}).status_code == 200
