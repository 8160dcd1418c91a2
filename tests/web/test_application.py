"""What the application refuses, and the headers of every answer."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount, Route
from starlette.testclient import TestClient

from databuild_dagster.bindings.registry.instance import UnsupportedInstance
from databuild_dagster.data.ownership import RootOfAnother
from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.spark.errors import RemoteUnreachable
from databuild_dagster.store.errors import NewerStore, NoDatabase, StoreBusy, StoreSilent, StoreUnusable
from databuild_dagster.warehouse.errors import DiskTrouble, ManifestDamaged
from databuild_dagster.web.application import HEADERS, WithoutSlash, make_application
from databuild_dagster.web.state import State

API = "/api/v1"
PLACE = "/srv/private/place"


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("/calendar?dataset=nope", 404, "UnknownAsset"),
        ("/partition?ref=orders@1999-01-01", 404, "UnknownPartition"),
        ("/partition?ref=@", 400, "InvalidRef"),
        ("/partition", 400, "MissingParameter"),
        ("/partition?ref=orders@2023-01-01&as_of=999999", 400, "InvalidAsOf"),
        ("/partition?ref=orders%00x", 400, "InvalidRequest"),
        ("/wants?in_state=odd", 400, "InvalidRequest"),
        ("/wants?limit=0", 400, "InvalidRequest"),
        ("/wants?open=maybe", 400, "InvalidRequest"),
        ("/wants?sate=Idle", 400, "UnknownParameter"),
        ("/wants?source=nope", 404, "NotFound"),
        ("/want?name=0123456789ab", 404, "NotFound"),
        ("/lineage?instance=%25", 404, "NotFound"),
        ("/events?before=99999999999999999999", 400, "InvalidRequest"),
        ("/nothing", 404, "NoSuchPage"),
    ],
)
def test_a_url_that_cannot_be_is_refused_by_one_sentence(client: TestClient, path: str, status: int, kind: str) -> None:
    refused = client.get(API + path)

    error = refused.json()["error"]
    assert (refused.status_code, error["type"]) == (status, kind)
    assert "\n" not in error["message"]


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        pytest.param("ref=" + "x" * 2_000, "InvalidRequest", id="a long value"),
        pytest.param("ref=" + "x" * 60_000, "QueryTooLong", id="a huge value"),
        pytest.param("&".join(f"a{n}=1" for n in range(900)), "QueryTooLong", id="many parameters"),
    ],
)
def test_a_huge_query_is_refused_and_not_repeated(client: TestClient, query: str, kind: str) -> None:
    refused = client.get(f"{API}/partition?{query}")

    assert (refused.status_code, refused.json()["error"]["type"]) == (400, kind)
    assert len(refused.content) < 1_000


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_nothing_can_be_written(client: TestClient, method: str) -> None:
    assert client.request(method, f"{API}/wants").status_code == 405
    refused = client.request(method, "/")
    assert refused.status_code == 405
    assert refused.headers["allow"] in ("GET, HEAD", "HEAD, GET")
    assert "only read" in refused.text


@pytest.mark.parametrize(
    "path",
    [
        "/static/../application.py",
        "/static/%2e%2e/application.py",
        "/static/..%2fapplication.py",
        "/static/%2e%2e%2f%2e%2e%2fversion.py",
        "/static//etc/passwd",
        "/static/vendor/../../api.py",
        "/static/",
        "/static/vendor",
    ],
)
def test_no_file_outside_of_the_static_folder_is_served(client: TestClient, path: str) -> None:
    answer = client.get(path)

    assert answer.status_code == 404
    assert "import" not in answer.text


@pytest.mark.parametrize("path", ["/", "/nothing", "/static/pages.css", f"{API}/head", f"{API}/nothing", "/partition"])
def test_every_answer_has_the_headers(client: TestClient, path: str) -> None:
    answer = client.get(path)

    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
    assert answer.headers["cache-control"] == ("no-cache" if path.startswith("/static") else "no-store")
    assert "unsafe" not in HEADERS["Content-Security-Policy"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "ODD"])
@pytest.mark.parametrize("path", ["", "/api", "/api/v1", "/api/v1/", "/api/v1/head", "/static/pages.css", "/partition"])
def test_a_method_that_cannot_be_is_refused_as_every_other_request(method: str, path: str) -> None:
    """The address without its slash, too, is ours."""
    client = TestClient(Starlette(routes=routes_of("/prefix")), raise_server_exceptions=False)

    answer = client.request(method, f"/prefix/databuild{path}", follow_redirects=False)

    assert answer.status_code in (404, 405)
    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
    assert answer.headers["content-type"].startswith("application/json" if path.startswith("/api") else "text/html")


def routes_of(prefix: str) -> list[BaseRoute]:
    state = State(lambda: pytest.fail("a refused method needs no engine"), None)
    mount = Mount(f"{prefix}/databuild", app=make_application(state, prefix))
    return [Route(mount.path, WithoutSlash(mount)), mount]


def test_the_address_without_its_slash_leads_to_the_first_page_of_the_same_host() -> None:
    client = TestClient(Starlette(routes=routes_of("")), raise_server_exceptions=False)

    answers = [client.request(method, "/databuild", follow_redirects=False) for method in ("GET", "HEAD")]

    assert [(answer.status_code, answer.headers["location"]) for answer in answers] == [(307, "/databuild/")] * 2
    assert all({name: answer.headers.get(name) for name in HEADERS} == HEADERS for answer in answers)


@pytest.mark.parametrize("path", ["/api", "/api/v1", "/wants/", "/static", "/api/v1/head/"])
def test_no_url_is_redirected_to_the_host_that_a_request_names(client: TestClient, path: str) -> None:
    answer = client.get(path, headers={"host": "evil.example"}, follow_redirects=False)

    assert answer.status_code == 404
    assert "evil.example" not in f"{answer.headers} {answer.text}"


def in_trouble(error: Exception) -> TestClient:
    """The pages of a server that cannot open its engine."""

    def no_engine() -> Engine:
        raise error

    return TestClient(make_application(State(no_engine, None)), raise_server_exceptions=False)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (StoreBusy(url=PLACE, why="it is locked"), "The build state beside this Dagster instance is busy"),
        (StoreSilent(url=PLACE, why="it is away"), "The build state beside this Dagster instance does not answer"),
        (
            NoDatabase(url=PLACE, path=PLACE, restore="a copy"),
            "The build state beside this Dagster instance is damaged (NoDatabase).",
        ),
        (NewerStore(url=PLACE, found=9, known=1), "The build state beside this Dagster instance cannot be used (Newer"),
        (ManifestDamaged(path=PLACE, why=PLACE), "the data in the warehouse cannot (ManifestDamaged)"),
        (DiskTrouble(path=PLACE, done="read", why="EIO"), "the data in the warehouse cannot (Disk"),
        (RootOfAnother(root=PLACE, why="it is new"), "the data in the warehouse cannot (RootOf"),
        (RemoteUnreachable(url=PLACE, host="h", port=1, why="no"), "Spark cannot (RemoteUnreachable)"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_error_that_names_a_place_says_what_is_in_trouble(error: DatabuildError, sentence: str) -> None:
    answer = in_trouble(error).get(f"{API}/head")

    assert sentence in answer.json()["error"]["message"]
    assert PLACE not in answer.text


def test_a_store_that_cannot_be_read_is_one_sentence() -> None:
    client = in_trouble(StoreUnusable(url="sqlite:///gone.db", why="it is locked"))

    as_json, as_page = client.get(f"{API}/head"), client.get("/")

    assert issubclass(StoreUnusable, DatabuildError)
    assert (as_json.status_code, as_page.status_code) == (503, 503)
    assert "StoreUnusable" in as_json.json()["error"]["message"]
    assert as_json.json()["error"]["hint"] == StoreUnusable.hint
    assert "gone.db" not in as_json.text + as_page.text
    assert "This cannot be shown" in as_page.text


def test_a_mistake_of_ours_shows_no_traceback() -> None:
    answer = in_trouble(RuntimeError("the secret is in /etc")).get("/")

    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "RuntimeError" in answer.text
    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
    assert answer.headers["cache-control"] == "no-store"


def test_an_instance_that_cannot_hold_the_store_is_one_sentence() -> None:
    answer = in_trouble(UnsupportedInstance("set DATABUILD_DB_URL")).get(f"{API}/head")

    assert answer.status_code == 503
    assert "UnsupportedInstance" in answer.json()["error"]["message"]
