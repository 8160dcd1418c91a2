"""Partition keys and inputs, from registered datasets alone, as Dagster itself would say."""

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import DataFrame

from databuild_dagster import InvalidAsset, databuild_asset
from databuild_dagster.bindings.registry.catalog import DagsterCatalog, LateInstance, refs_of_dataset
from databuild_dagster.bindings.registry.registration import datasets_of
from databuild_dagster.model.datasets import DatasetKind, DatasetSpec

daily = dg.DailyPartitionsDefinition(start_date="2013-01-01", end_date="2014-01-01")
monthly = dg.MonthlyPartitionsDefinition(start_date="2013-01-01", end_date="2014-01-01")
regions = dg.StaticPartitionsDefinition(["eu", "us"])
both = dg.MultiPartitionsDefinition({"day": daily, "region": regions})
tails = dg.DynamicPartitionsDefinition(name="tails")
growing = dg.DailyPartitionsDefinition(start_date="2020-01-01")


def asset(
    name: str, partitions: Any = None, ins: dict[str, dg.AssetIn] | None = None, deps: tuple[str, ...] = ()
) -> Any:
    if ins:

        def read(x: DataFrame) -> DataFrame: ...  # type: ignore[empty-body]

        return databuild_asset(name=name, partitions_def=partitions, ins=ins, deps=deps)(read)

    def made() -> DataFrame: ...  # type: ignore[empty-body]

    return databuild_asset(name=name, partitions_def=partitions, deps=deps)(made)


def registered(*assets: Any) -> dict[str, DatasetSpec]:
    graph = dg.Definitions(assets=assets).resolve_asset_graph()
    return {dataset.asset: dataset for dataset in datasets_of(graph, "tests")}


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def catalog(instance: dg.DagsterInstance) -> DagsterCatalog:
    return DagsterCatalog(instance)


@pytest.mark.parametrize(
    ("partitions", "key", "why"),
    [
        (None, None, None),
        (None, "x", "has no partitions"),
        (daily, None, "is partitioned"),
        (daily, "2013-12-31", None),
        (daily, "2014-01-01", "its partitions end with 2013-12-31"),
        (daily, "2012-12-31", "its partitions begin with 2013-01-01"),
        (daily, "2013-02-30", "look like 2013-01-01"),
        (daily, "2013-1-1", "write 2013-01-01"),
        (monthly, "2013-01-15", "not the beginning of one"),
        (growing, "2999-01-01", "has not passed yet"),
        (regions, "eu", None),
        (regions, "asia", "not one of its partitions: eu, us"),
        (both, "2013-01-01|eu", None),
        (both, "2013-01-01|asia", "write day|region"),
        (both, "eu", "write day|region"),
        (tails, "N1", "not among the dynamic partitions 'tails'"),
    ],
)
def test_a_key_is_a_partition_or_one_sentence_says_why_not(
    catalog: DagsterCatalog, partitions: Any, key: str | None, why: str | None
) -> None:
    dataset = registered(asset("a", partitions))["a"]

    for _ in range(2):
        answer = catalog.why_not(dataset, key)
        assert answer is None if why is None else why in (answer or "")


def test_dynamic_partitions_come_and_go(instance: dg.DagsterInstance, catalog: DagsterCatalog) -> None:
    dataset = registered(asset("a", tails))["a"]

    instance.add_dynamic_partitions("tails", ["N1"])
    assert catalog.why_not(dataset, "N1") is None
    instance.delete_dynamic_partition("tails", "N1")
    assert catalog.why_not(dataset, "N1") is not None


def test_a_late_instance_is_opened_by_the_first_question_about_dynamic_partitions(instance: dg.DagsterInstance) -> None:
    instance.add_dynamic_partitions("tails", ["N1"])
    opened: list[dg.DagsterInstance] = []
    catalog = DagsterCatalog(LateInstance(lambda: opened.append(instance) or instance))

    assert catalog.why_not(registered(asset("a", daily))["a"], "2013-12-30") is None
    assert opened == []
    dataset = registered(asset("b", tails))["b"]
    assert (catalog.why_not(dataset, "N1"), catalog.why_not(dataset, "N2") is None) == (None, False)
    assert refs_of_dataset(dataset, LateInstance(lambda: instance)) == ["b@N1"]
    assert opened == [instance]


class OneByOne(LateInstance):
    def get_dynamic_partitions(self, partitions_def_name: str) -> list[str]:
        raise AssertionError("all keys are loaded")


def test_some_dynamic_keys_are_judged_without_a_list_of_all(instance: dg.DagsterInstance) -> None:
    instance.add_dynamic_partitions("tails", ["N1", "N2"])
    catalog = DagsterCatalog(OneByOne(lambda: instance))
    by_day = dg.MultiPartitionsDefinition({"day": daily, "tail": tails})
    dataset, of_two = (registered(asset("a", partitions))["a"] for partitions in (tails, by_day))

    assert catalog.absent(dataset, ["N1", "N2"]) == {}
    assert catalog.left_out(dataset, ["N1", "N3"]) == {"N3"}
    assert catalog.left_out(of_two, ["2013-12-30|N1", "2013-12-30|N3", "N1"]) == {"2013-12-30|N3", "N1"}
    assert catalog.launchable(dataset, ("N2",), 9) == (("N2",),)


YESTERDAY = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
IF_ANY = dg.TimeWindowPartitionMapping(allow_nonexistent_upstream_partitions=True)
later = dg.DailyPartitionsDefinition("2013-12-30", end_date="2014-01-03")


@pytest.mark.parametrize(
    ("upstream", "downstream", "mapping", "key", "inputs"),
    [
        (daily, daily, None, "2013-01-05", ["up@2013-01-05"]),
        (daily, daily, YESTERDAY, "2013-01-05", ["up@2013-01-04"]),
        (daily, daily, YESTERDAY, "2013-01-01", []),
        # As in Dagster, an input that does not exist is an error, unless the mapping allows it.
        (daily, later, None, "2014-01-01", ["up@2014-01-01"]),
        (daily, later, IF_ANY, "2014-01-01", []),
        (daily, daily, dg.TimeWindowPartitionMapping(start_offset=-1), "2013-01-01", ["up@2013-01-01"]),
        (daily, daily, dg.TimeWindowPartitionMapping(end_offset=1), "2013-12-31", ["up@2013-12-31"]),
        (None, daily, None, "2013-01-05", ["up"]),
        (None, None, None, None, ["up"]),
        (regions, None, None, None, ["up@eu", "up@us"]),
        (regions, daily, dg.SpecificPartitionsPartitionMapping(["us"]), "2013-01-05", ["up@us"]),
        (both, daily, None, "2013-01-05", ["up@2013-01-05|eu", "up@2013-01-05|us"]),
        (daily, both, None, "2013-01-05|eu", ["up@2013-01-05"]),
    ],
)
def test_inputs_go_through_the_partition_mappings(
    catalog: DagsterCatalog, upstream: Any, downstream: Any, mapping: Any, key: str | None, inputs: list[str]
) -> None:
    reader = asset("down", downstream, ins={"x": dg.AssetIn("up", partition_mapping=mapping)})
    dataset = registered(asset("up", upstream), reader)["down"]

    for _ in range(2):
        assert list(catalog.inputs(dataset, key)) == inputs


def test_the_first_day_has_no_yesterday_of_its_own(catalog: DagsterCatalog) -> None:
    """As API.md has it: a dependency on itself drops keys before the start."""
    dataset = registered(asset("a", daily, ins={"x": dg.AssetIn("a", partition_mapping=YESTERDAY)}))["a"]

    assert catalog.inputs(dataset, "2013-01-01") == ()
    assert catalog.inputs(dataset, "2013-01-02") == ("a@2013-01-01",)


def test_an_upstream_of_another_location_is_looked_up(catalog: DagsterCatalog) -> None:
    elsewhere = registered(asset("up", daily))
    dataset = registered(asset("down", monthly, ins={"x": dg.AssetIn("up")}))["down"]
    catalog.look_up_other_locations_with(elsewhere.get)

    assert len(catalog.inputs(dataset, "2013-02-01")) == 28


def test_keys_are_cut_into_ranges_in_the_order_of_the_definition(catalog: DagsterCatalog) -> None:
    datasets = registered(asset("days", daily), asset("cells", both), asset("one"))

    assert catalog.launchable(datasets["days"], ("2013-01-03", "2013-01-01", "2013-01-02"), 2) == (
        ("2013-01-01", "2013-01-02"),
        ("2013-01-03",),
    )
    cells = catalog.launchable(datasets["cells"], ("2013-01-02|eu", "2013-01-01|us", "2013-01-01|eu"), 9)
    assert sorted(cells) == [("2013-01-01|eu", "2013-01-02|eu"), ("2013-01-01|us",)]
    assert catalog.launchable(datasets["one"], (None,), 9) == ((None,),)


def test_plain_and_external_assets_are_registered_as_what_they_are() -> None:
    @dg.asset(deps=["ours"])
    def plain() -> None: ...

    datasets = registered(asset("ours", deps=("outside", "undeclared")), plain, dg.AssetSpec("outside"))

    assert {asset: dataset.kind for asset, dataset in datasets.items()} == {
        "ours": DatasetKind.OURS,
        "plain": DatasetKind.PLAIN,
        "outside": DatasetKind.SOURCE,
    }
    assert [spec.asset for spec in datasets["plain"].inputs] == ["ours"]
    assert [(spec.asset, spec.param) for spec in datasets["ours"].inputs] == [
        ("outside", None),
        ("undeclared", None),
    ]


def test_a_mapping_of_the_users_own_class_is_refused() -> None:
    class Mine(dg.IdentityPartitionMapping):
        pass

    with pytest.raises(InvalidAsset, match="uses Mine, which only its own code location could evaluate"):
        registered(asset("up", daily), asset("down", daily, ins={"x": dg.AssetIn("up", partition_mapping=Mine())}))
