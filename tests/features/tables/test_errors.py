"""Errors about published tables, as the pages show them."""

from __future__ import annotations

from starlette.testclient import TestClient

from databuild_dagster.engine.engine import Engine
from databuild_dagster.features.tables.errors import TableElsewhere
from databuild_dagster.web.application import make_application
from databuild_dagster.web.state import State

PLACE = "/srv/private/place"


def test_a_page_about_a_table_that_is_elsewhere_does_not_show_the_place() -> None:
    def broken() -> Engine:
        raise TableElsewhere(table="t", asset="a", folder=PLACE)

    client = TestClient(make_application(State(broken, None)), raise_server_exceptions=False)

    answer = client.get("/api/v1/head")

    assert "the published table cannot (Table" in answer.json()["error"]["message"]
    assert PLACE not in answer.text
