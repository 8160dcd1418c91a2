"""Data of an earlier partitions definition is carried over to the keys that stand for the same windows (rule 2.6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest

from databuild_dagster import BuildContext, databuild_asset, table
from databuild_dagster.features.relocate.relocating import Relocator
from databuild_dagster.model.states import InstanceState
from databuild_dagster.warehouse.layout import Warehouse
from tests.bindings.conftest import Site

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-04")
NUMBERS = dg.DailyPartitionsDefinition("20240101", end_date="20240104", fmt="%Y%m%d")
SHOPS = dg.StaticPartitionsDefinition(["north"])


def sales_by(partitions: dg.PartitionsDefinition) -> Any:
    @databuild_asset(partitions_def=partitions)
    def sales(context: BuildContext) -> pd.DataFrame:
        return pd.DataFrame({"built": [context.partition_key]})

    return sales


def relocator(site: Site) -> Relocator:
    dataset = site.engine.queries.datasets.get("sales")
    assert dataset is not None
    return Relocator(site.engine, site.instance, dataset)


def rows(site: Site) -> list[tuple[str, str]]:
    frame = table("sales", format="pandas", instance=site.instance)
    return sorted(zip(frame["partition_key"], frame["built"], strict=True))


def test_keys_of_another_form_take_over_what_has_their_window(deploy: Any) -> None:
    deploy(sales_by(DAYS)).build("sales@2024-01-01", "sales@2024-01-02")

    site = deploy(sales_by(NUMBERS))
    survey = relocator(site).survey()
    relocator(site).relocate(survey.moves)

    assert [(move.ref, move.to) for move in survey.moves] == [
        ("sales@2024-01-01", "sales@20240101"),
        ("sales@2024-01-02", "sales@20240102"),
    ]
    assert rows(site) == [("20240101", "2024-01-01"), ("20240102", "2024-01-02")]
    assert {"20240101", "20240102"} < set(site.materialized("sales"))
    assert relocator(site).survey().moves == []


def test_what_was_relocated_outlives_the_earlier_instance(deploy: Any) -> None:
    deploy(sales_by(DAYS)).build("sales@2024-01-01")
    site = deploy(sales_by(NUMBERS))
    (move,) = relocator(site).survey().moves
    relocator(site).relocate([move])

    uri = site.engine.queries.canonical.of([move.ref])[move.ref].manifest_uri
    Warehouse.of_manifest(str(uri), "sales").remove_instance("sales", move.uuid)

    assert rows(site) == [("20240101", "2024-01-01")]


def test_partitions_of_two_dimensions_are_carried_over(deploy: Any) -> None:
    deploy(sales_by(dg.MultiPartitionsDefinition({"day": DAYS, "shop": SHOPS}))).build("sales@2024-01-01|north")

    site = deploy(sales_by(dg.MultiPartitionsDefinition({"day": NUMBERS, "shop": SHOPS})))
    relocator(site).relocate(relocator(site).survey().moves)

    assert rows(site) == [("20240101|north", "2024-01-01|north")]


def test_a_definition_that_comes_back_gets_its_instances_back(deploy: Any) -> None:
    deploy(sales_by(DAYS)).build("sales@2024-01-01", "sales@2024-01-02")
    tokyo = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-04", timezone="Asia/Tokyo")
    site = deploy(sales_by(tokyo))
    assert site.state("sales@2024-01-01") is InstanceState.TAINTED

    site = deploy(sales_by(DAYS))
    relocator(site).relocate(relocator(site).survey().moves)

    assert rows(site) == [("2024-01-01", "2024-01-01"), ("2024-01-02", "2024-01-02")]


def test_what_no_partition_stands_for_stays(deploy: Any) -> None:
    deploy(sales_by(DAYS)).build("sales@2024-01-01")
    site = deploy(sales_by(dg.MonthlyPartitionsDefinition("2024-01-01", end_date="2024-02-01")))

    survey = relocator(site).survey()

    assert (survey.moves, survey.stay) == ([], {"sales@2024-01-01": "no partition has its window"})


def test_a_partition_that_was_built_again_is_not_replaced(deploy: Any) -> None:
    deploy(sales_by(DAYS)).build("sales@2024-01-01")
    site = deploy(sales_by(NUMBERS))
    site.build("sales@20240101")

    survey = relocator(site).survey()

    assert (survey.moves, survey.stay) == (
        [],
        {"sales@2024-01-01": "the partition with its window is live, or being built"},
    )


def test_a_command_that_ended_before_its_event_continues(deploy: Any, monkeypatch: Any) -> None:
    deploy(sales_by(DAYS)).build("sales@2024-01-01")
    site = deploy(sales_by(NUMBERS))
    moves = relocator(site).survey().moves

    def away(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted, pytest.raises(KeyboardInterrupt):
        interrupted.setattr(site.engine, "handle", away)
        relocator(site).relocate(moves)
    stay = relocator(site).relocate(relocator(site).survey().moves)

    assert stay == {}
    assert rows(site) == [("20240101", "2024-01-01")]


def test_lost_files_stay_and_the_others_are_carried_over(deploy: Any) -> None:
    deploy(sales_by(DAYS)).build("sales@2024-01-01", "sales@2024-01-02")
    site = deploy(sales_by(NUMBERS))
    moves = relocator(site).survey().moves
    uri = site.engine.queries.canonical.of([moves[0].ref])[moves[0].ref].manifest_uri
    for file in Path(str(uri)).parent.glob("part-*"):
        file.unlink()

    stay = relocator(site).relocate(moves)

    assert list(stay) == ["sales@2024-01-01"]
    assert rows(site) == [("20240102", "2024-01-02")]
