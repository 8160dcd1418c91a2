"""Operations as the API answers them: running ones apart from ended ones, each with its partitions."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from tests.support.pages_world import MARKUP, PagesWorld, client, get, refused, world

__all__ = ["client", "world"]


def test_operations_that_run_are_apart_from_those_that_ended(client: TestClient, world: PagesWorld) -> None:
    found = get(client, "/operations")

    assert [operation["id"] for operation in found["running"]] == [str(world.running)]
    assert [(operation["id"], operation["state"]) for operation in found["ended"]] == [
        ("orders.write.3", "success"),
        ("orders.write.2", "failed"),
        ("orders.write.1", "failed"),
    ]
    assert refused(client, "/operations", dataset="nope") == (404, "UnknownAsset")


def test_an_operation_shows_the_state_of_each_partition(client: TestClient, world: PagesWorld) -> None:
    found = get(client, "/operation", id=str(world.running))

    assert (found["state"], found["done"], found["total"]) == ("running", 1, found["grid"]["n"])
    assert found["grid"]["counts"] == {"live": 1, "missing": found["free"]}


@pytest.mark.parametrize("id", [MARKUP, "orders.write.99"])
def test_an_operation_that_is_not_there_is_not_found(client: TestClient, id: str) -> None:
    assert refused(client, "/operation", id=id) == (404, "NotFound")
