"""Inputs and launches that are computed without Dagster are those that Dagster computes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from databuild_dagster.bindings.registry.catalog import DagsterCatalog
from databuild_dagster.bindings.registry.plain_inputs import PlainPartitions
from databuild_dagster.bindings.registry.registration import mapping_text, partitions_text
from databuild_dagster.model.datasets import DatasetSpec, InputSpec

CRONS = ["*/20 * * * *", "0 * * * *", "0 */4 * * *", "0 0 * * *", "30 6 * * *", "0 9 * * 1-5", "0 0 * * 1", "0 0 1 * *"]
FMT = "%Y-%m-%d-%H:%M%z"
# Around the changes of the clock in Berlin and New York.
starts = st.datetimes(datetime(2024, 3, 1), datetime(2024, 3, 12)).map(lambda at: at.replace(second=0, microsecond=0))
moments = st.datetimes(datetime(2024, 3, 5), datetime(2024, 4, 15), timezones=st.just(UTC))
zones = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"])


@st.composite
def windows(draw, zone: str) -> dg.TimeWindowPartitionsDefinition:
    start = draw(starts)
    return dg.TimeWindowPartitionsDefinition(
        start=start,
        end=draw(st.none() | st.integers(1, 40).map(lambda n: start + timedelta(days=n))),
        cron_schedule=draw(st.sampled_from(CRONS)),
        timezone=zone,
        fmt=FMT,
        end_offset=draw(st.sampled_from([0, 0, 0, 1, 2, -1])),
        exclusions=draw(st.sampled_from([None, None, None, ["0 0 * * 3"]])),
    )


static = st.lists(st.sampled_from("badc"), min_size=1, max_size=3, unique=True).map(dg.StaticPartitionsDefinition)
offsets = st.integers(-3, 3)
of_time = st.none() | st.builds(dg.TimeWindowPartitionMapping, offsets, offsets, st.booleans())
of_keys = st.sampled_from(
    [None, dg.IdentityPartitionMapping(), dg.AllPartitionMapping(), dg.LastPartitionMapping()]
) | st.sampled_from("abcd").map(lambda key: dg.SpecificPartitionsPartitionMapping([key]))


@st.composite
def two_dimensions(draw, day: dg.TimeWindowPartitionsDefinition) -> dg.MultiPartitionsDefinition:
    return dg.MultiPartitionsDefinition({draw(st.sampled_from(["a_day", "z_day"])): day, "kind": draw(static)})


@st.composite
def edges(draw) -> tuple[Any, Any, Any]:
    """(Mapping, the partitions of the dataset, those of its input)."""
    zone = draw(zones)
    days = draw(windows(zone)), draw(windows(zone) | zones.flatmap(windows))
    kinds = draw(static), draw(static)
    shape = draw(st.sampled_from(["time", "time", "static", "none", "same", "to_many", "to_one"]))
    match shape:
        case "time":
            return draw(of_time | of_keys), *days
        case "static":
            return draw(of_keys), *kinds
        case "none":
            return draw(of_keys), None, draw(st.sampled_from([days[0], kinds[0], draw(two_dimensions(days[0]))]))
        case "same":
            both = draw(st.sampled_from([days[0], kinds[0], draw(two_dimensions(days[0]))]))
            return draw(of_keys), both, both
        case "to_many":
            many = draw(two_dimensions(days[1]))
            return draw(st.none() | st.just(dg.AllPartitionMapping())), draw(st.sampled_from([*days, *kinds])), many
        case _:
            many = draw(two_dimensions(days[0]))
            return draw(st.none() | st.just(dg.AllPartitionMapping())), many, draw(st.sampled_from([*days, *kinds]))


def dataset_of(mapping: Any, partitions: Any, upstream: Any) -> DatasetSpec:
    text = mapping_text(mapping, upstream, upstream_is_here=True, place="here")
    return DatasetSpec(
        asset="a", job="a", location="here", partitions=partitions_text(partitions), inputs=(InputSpec("b", text),)
    )


def at(now: datetime) -> Any:
    return dg.partition_loading_context(effective_dt=now)


@pytest.fixture(scope="module")
def catalog():
    with dg.DagsterInstance.ephemeral() as instance:
        yield lambda: DagsterCatalog(instance)


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=120, deadline=None)
@given(edges(), moments, st.data())
def test_the_inputs_of_a_key_are_those_of_dagster(catalog, edge, now, data):
    dataset, plain = dataset_of(*edge), PlainPartitions(now.timestamp(), {}.get)
    with at(now):
        keys = [None] if edge[1] is None else edge[1].get_partition_keys()
    assume(keys)
    key = data.draw(st.sampled_from([keys[0], keys[-1], *keys[:: max(1, len(keys) // 20)]]))

    found = plain.inputs(dataset, key)

    if found is not None:
        with at(now):
            assert found == catalog().inputs(dataset, key), key


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=60, deadline=None)
@given(edges(), moments, st.integers(1, 5), st.randoms(use_true_random=False))
def test_the_launches_of_keys_are_those_of_dagster(catalog, edge, now, most, chance):
    dataset, plain = dataset_of(*edge), PlainPartitions(now.timestamp(), {}.get)
    with at(now):
        keys = [None] if edge[1] is None else edge[1].get_partition_keys()[:50]
    chosen = tuple(chance.sample(keys, (len(keys) + 1) // 2))

    found = plain.launchable(dataset, chosen, most)

    if found is not None:
        with at(now):
            assert found == catalog().launchable(dataset, chosen, most)


def test_common_mappings_need_no_dagster():
    now = datetime(2024, 4, 10, tzinfo=UTC).timestamp()
    day = dg.DailyPartitionsDefinition("2024-01-01", timezone="Europe/Berlin")
    late = dg.DailyPartitionsDefinition("2024-02-28", timezone="Europe/Berlin")
    month = dg.MonthlyPartitionsDefinition("2024-01-01", timezone="Europe/Berlin")
    both = dg.MultiPartitionsDefinition({"day": day, "kind": dg.StaticPartitionsDefinition(["b", "a"])})
    before = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
    plain = PlainPartitions(now, {"b": DatasetSpec("b", "b", "there", partitions=partitions_text(day))}.get)
    elsewhere = InputSpec("b", mapping_text(None, None, upstream_is_here=False, place="here"))

    def inputs(mapping: Any, partitions: Any, upstream: Any, key: str | None) -> Any:
        return plain.inputs(dataset_of(mapping, partitions, upstream), key)

    assert inputs(None, month, day, "2024-02-01") == tuple(f"b@2024-02-{n:02}" for n in range(1, 30))
    assert inputs(None, month, late, "2024-02-01") == ("b@2024-02-28", "b@2024-02-29"), "no other day of it ever exists"
    assert inputs(before, day, day, "2024-03-31") == ("b@2024-03-30",)
    assert inputs(before, day, day, "2024-01-01") == ()
    assert inputs(None, both, day, "2024-02-01|a") == ("b@2024-02-01",)
    assert inputs(None, day, both, "2024-02-01") == ("b@2024-02-01|a", "b@2024-02-01|b")
    assert inputs(None, dg.DynamicPartitionsDefinition(name="d"), dg.DynamicPartitionsDefinition(name="d"), "x") == (
        "b@x",
    )
    assert plain.inputs(replace(dataset_of(None, day, day), inputs=(elsewhere,)), "2024-02-01") == ("b@2024-02-01",)
    many = dg.MultiPartitionsDefinition({"day": late, "kind": dg.StaticPartitionsDefinition(["b", "a"])})
    assert inputs(None, month, many, "2024-02-01") is None
    assert inputs(None, month, day, "2024-04-01") is None, "Dagster says why it does not exist"
