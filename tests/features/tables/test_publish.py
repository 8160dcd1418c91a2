"""`publish=` says at import what cannot work, and makes a typed column of each partitions definition (rule 10.10)."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from databuild_dagster import Delta, Iceberg, InvalidAsset
from databuild_dagster.features.tables.live_files import values_of
from databuild_dagster.features.tables.publish import (
    check_publish,
    publish_metadata,
    publish_of,
    table_metadata,
    table_of,
    table_spec,
)
from databuild_dagster.model.datasets import PartitionColumn, PartitionType, TableFormat

DAILY = dg.DailyPartitionsDefinition("2024-01-01", timezone="Europe/Berlin")
HOURLY = dg.HourlyPartitionsDefinition("2024-10-27-00:00", end_date="2024-10-28-00:00", timezone="Europe/Berlin")
SHOPS = dg.StaticPartitionsDefinition(["eu", "us"])
DATE, TIMESTAMP = PartitionType.DATE, PartitionType.TIMESTAMP


@pytest.mark.parametrize(
    ("partitions", "columns"),
    [
        (None, ()),
        (DAILY, (PartitionColumn("partition_key", DATE, "%Y-%m-%d", "Europe/Berlin"),)),
        (
            dg.MonthlyPartitionsDefinition("2024-01-01"),
            (PartitionColumn("partition_key", DATE, "%Y-%m-%d"),),
        ),
        (HOURLY, (PartitionColumn("partition_key", TIMESTAMP, "%Y-%m-%d-%H:%M", "Europe/Berlin"),)),
        (SHOPS, (PartitionColumn("partition_key"),)),
        (dg.DynamicPartitionsDefinition(name="shops"), (PartitionColumn("partition_key"),)),
        (
            dg.MultiPartitionsDefinition({"shop": SHOPS, "day": DAILY}),
            (PartitionColumn("day", DATE, "%Y-%m-%d", "Europe/Berlin"), PartitionColumn("shop")),
        ),
    ],
    ids=["none", "days", "months", "hours", "names", "dynamic", "two dimensions"],
)
def test_the_type_of_a_column_follows_the_partitions(partitions: Any, columns: tuple[PartitionColumn, ...]) -> None:
    assert table_spec("sales", partitions, Iceberg(), None).columns == columns


@pytest.mark.parametrize("partitions", [DAILY, HOURLY, SHOPS], ids=["days", "hours", "names"])
def test_each_key_of_a_definition_has_a_value_of_its_own(partitions: Any) -> None:
    columns = table_spec("sales", partitions, Iceberg(), None).columns
    keys = list(partitions.get_partition_keys())[:40]

    values = {values_of("sales", columns, key) for key in keys}

    assert len(values) == len(keys)


def test_the_options_survive_the_metadata_of_an_asset() -> None:
    options = [Iceberg(table="shop.sales", catalog="prod", tainted="keep"), Delta(on_conflict="rebase"), False, None]

    read = [publish_of(dg.AssetSpec("sales", metadata=publish_metadata("sales", option))) for option in options]

    assert read == options


def test_the_registration_survives_the_metadata_of_an_asset() -> None:
    table = table_spec("shop/sales", DAILY, Iceberg(namespace="lake", catalog="prod"), "s3://bucket/here")

    spec = dg.AssetSpec("sales", metadata=table_metadata("shop/sales", table))

    assert table_of(spec.metadata) == table
    assert (table.format, table.name, table.catalog) == (TableFormat.ICEBERG, "lake.shop_sales", "prod")
    assert spec.metadata["dagster/table_name"] == "lake.shop_sales"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"table": "sales"}, r"table of Iceberg\(…\) is 'sales'; it has to be a namespace and a name"),
        ({"tainted": "drop"}, r"tainted of Iceberg\(…\) is 'drop'; it is one of 'keep', 'remove'"),
        ({"on_conflict": "win"}, r"on_conflict of Iceberg\(…\) is 'win'"),
        ({"partition_type": "int"}, r"partition_type of Iceberg\(…\) is 'int'"),
        ({"partition_column": "a day"}, r"partition_column of Iceberg\(…\) is 'a day'"),
        ({"namespace": ""}, r"namespace of Iceberg\(…\) is ''"),
    ],
)
def test_an_option_that_cannot_work_is_one_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidAsset, match=sentence):
        Iceberg(**options)


def test_a_catalog_that_is_an_address_is_refused_without_a_word_of_it() -> None:
    with pytest.raises(InvalidAsset, match="put the catalog's address into pyiceberg's configuration") as refused:
        Iceberg(catalog="postgresql://user:secret@host/catalog")

    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("partitions", "type", "sentence"),
    [
        (SHOPS, "date", "StaticPartitionsDefinition has keys that are no times"),
        (HOURLY, "date", "several of its partitions may have one date; write 'timestamp'"),
        (None, "string", "the asset has no partitions; leave it out"),
    ],
)
def test_a_type_that_the_partitions_cannot_have_is_one_sentence(partitions: Any, type: Any, sentence: str) -> None:
    with pytest.raises(InvalidAsset, match=sentence):
        table_spec("sales", partitions, Iceberg(partition_type=type), None)


def test_another_value_is_no_option() -> None:
    with pytest.raises(
        InvalidAsset, match=r"publish of asset 'sales' is 'iceberg'; write Iceberg\(…\), Delta\(…\) or False"
    ):
        check_publish("asset 'sales'", "iceberg")
