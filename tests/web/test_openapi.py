"""The OpenAPI document describes every url of the API, and the answers are as it says."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator
from starlette.testclient import TestClient

from databuild_dagster.web.actions import actions
from databuild_dagster.web.api import routes
from databuild_dagster.web.openapi import openapi_document
from databuild_dagster.web.routes import ApiRoute
from tests.support.pages_world import PagesWorld

from .test_api import API, PLAIN, calls_of


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return openapi_document()


def test_the_document_has_every_route_and_every_parameter(client: TestClient, document: dict[str, Any]) -> None:
    served = client.get(f"{API}/openapi.json").json()

    assert served == document
    assert list(served["paths"]) == [route.path for route in (*routes(), *actions())]
    for route in routes():
        described = served["paths"][route.path]["get"]["parameters"]
        assert [found["name"] for found in described] == [parameter.name for parameter in route.parameters]


@pytest.mark.parametrize("route", PLAIN, ids=lambda route: route.path)
def test_an_answer_is_valid_by_the_schema_of_its_route(
    client: TestClient, world: PagesWorld, document: dict[str, Any], route: ApiRoute
) -> None:
    schema = document["paths"][route.path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    validator = Draft202012Validator({**schema, "components": document["components"]})

    answers = [client.get(API + route.path, params=query).json() for query in calls_of(route, world)]

    assert answers
    for answer in answers:
        validator.validate(answer)


def test_a_refusal_is_valid_by_the_schema_of_errors(client: TestClient, document: dict[str, Any]) -> None:
    schema = {"$ref": "#/components/schemas/Error", "components": document["components"]}

    refused = client.get(f"{API}/partition", params={"ref": "orders@nope"})

    Draft202012Validator(schema).validate(refused.json())
    assert refused.status_code == 404
