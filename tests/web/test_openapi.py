"""The OpenAPI document describes every url of the API, and the answers are as it says."""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator
from starlette.testclient import TestClient

from databuild_dagster.web.actions import actions
from databuild_dagster.web.api import routes

API = "/api/v1"


def test_the_document_has_every_route_and_every_parameter(client: TestClient, document: dict[str, Any]) -> None:
    served = client.get(f"{API}/openapi.json").json()

    assert served == document
    assert list(served["paths"]) == [route.path for route in (*routes(), *actions())]
    for route in routes():
        described = served["paths"][route.path]["get"]["parameters"]
        assert [found["name"] for found in described] == [parameter.name for parameter in route.parameters]


def test_a_refusal_is_valid_by_the_schema_of_errors(client: TestClient, document: dict[str, Any]) -> None:
    schema = {"$ref": "#/components/schemas/Error", "components": document["components"]}

    refused = client.get(f"{API}/partition", params={"ref": "orders@nope"})

    Draft202012Validator(schema).validate(refused.json())
    assert refused.status_code == 404
