"""A search finds what a person has in hand: a part of a name, a key, an id or its end."""

from __future__ import annotations

from starlette.testclient import TestClient

from tests.support.pages_world import PagesWorld, get


def found(client: TestClient, text: str) -> list[tuple[str, str]]:
    return [(one["kind"], one["name"]) for one in get(client, "/search", q=text)["found"]]


def test_an_asset_is_found_by_a_part_of_its_name_the_whole_name_first(client: TestClient) -> None:
    assert found(client, "ORDER") == [("asset", "orders")]
    assert found(client, "m") == [("asset", "mirror"), ("asset", "named"), ("asset", "summary")]
    assert found(client, "nothing of the kind") == []


def test_a_partition_is_found_by_its_ref_a_part_of_its_key_or_its_key_alone(client: TestClient) -> None:
    exact, part = found(client, "orders@2023-01-05"), found(client, "orders@01-3")
    alone = get(client, "/search", q="2023-01-05")["found"]

    assert exact == [("partition", "orders@2023-01-05")]
    assert part == [("partition", "orders@2023-01-30"), ("partition", "orders@2023-01-31")]
    assert [(one["name"], one["mark"]) for one in alone] == [("orders@2023-01-05", "failed")]


def test_a_thing_with_an_id_is_found_by_the_id_its_end_and_its_beginning(
    own_world: PagesWorld, acting: TestClient
) -> None:
    want = own_world.want("orders@2023-01-01")
    own_world.live("orders@2023-01-01")
    own_world.want("orders@2023-01-06")
    launch = own_world.buffer("orders@2023-01-06")
    taint = own_world.taint("orders@2023-01-01")
    uuid, job_run = own_world.uuid("orders@2023-01-01"), own_world.canonical("orders@2023-01-01").job_run

    assert ("want", want) in found(acting, want)
    assert ("want", want) in found(acting, want[-8:])
    assert found(acting, launch) == [("Dagster run or launch", launch)]
    assert ("taint", taint) in found(acting, taint)
    assert ("instance", uuid) in found(acting, uuid[:13])
    assert ("job run", job_run) in found(acting, str(job_run))
    assert f"/databuild/partition?ref=orders%402023-01-01&amp;instance={uuid}" in acting.get(f"/search?q={uuid}").text
