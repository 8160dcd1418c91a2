"""Ranges of partitions of registered datasets: inclusive, in the order of Dagster's definition (rule 2.5)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from databuild_dagster.bindings.registry.registration import partitions_text
from databuild_dagster.bindings.registry.selections import keys_named, n_missing, refs_named, select_refs
from databuild_dagster.model.datasets import DatasetKind, DatasetSpec
from databuild_dagster.model.errors import InvalidRequest, Refused, UnknownAsset, UnknownPartition
from databuild_dagster.model.refs import parse_ref
from databuild_dagster.model.selections import InvalidSelection
from tests.support.catalog import dataset
from tests.support.command_lines import HORRORS
from tests.support.world import World

daily = dg.DailyPartitionsDefinition("2024-02-27", end_date="2024-03-03")
hourly = dg.HourlyPartitionsDefinition("2024-11-02-22:00", end_date="2024-11-03-04:00")
#: Its clock is put back at 02:00, so that 01:00 begins twice.
new_york = dg.HourlyPartitionsDefinition("2024-11-02-22:00", end_date="2024-11-03-04:00", timezone="America/New_York")
regions = dg.StaticPartitionsDefinition(["us", "eu", "v1..v2", "asia"])
without_weekends = dg.TimeWindowPartitionsDefinition(
    start="2024-03-01", end="2024-03-12", fmt="%Y-%m-%d", cron_schedule="0 0 * * 1-5"
)
both = dg.MultiPartitionsDefinition({"region": regions, "day": daily})
ONE_DIMENSION = {
    "daily": daily,
    "hourly": hourly,
    "new_york": new_york,
    "regions": regions,
    "without_weekends": without_weekends,
}


def no_instance() -> Any:
    raise AssertionError("only dynamic partitions ask for an instance")


def registered(partitions: dg.PartitionsDefinition[Any] | None) -> DatasetSpec:
    return DatasetSpec(
        asset="a", job="a", location="tests", kind=DatasetKind.OURS, partitions=partitions_text(partitions), inputs=()
    )


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def selected(partitions: dg.PartitionsDefinition[Any] | None, text: str, instance: Any = None) -> list[str]:
    refs = refs_named(registered(partitions), parse_ref(f"a@{text}"), lambda: instance)
    return [ref.removeprefix("a@") for ref in refs]


def refusal(partitions: dg.PartitionsDefinition[Any] | None, text: str, instance: Any = None) -> Refused:
    with pytest.raises(Refused) as refused:
        selected(partitions, text, instance)
    return refused.value


@pytest.mark.parametrize("partitions", ONE_DIMENSION.values(), ids=ONE_DIMENSION)
@given(data=st.data())
def test_a_range_is_a_slice_of_the_definition(partitions: dg.PartitionsDefinition[Any], data: st.DataObject) -> None:
    keys = list(partitions.get_partition_keys())
    first = data.draw(st.integers(0, len(keys) - 1))
    last = data.draw(st.integers(first, len(keys) - 1))

    assert selected(partitions, f"{keys[first]}..{keys[last]}") == keys[first : last + 1]
    assert selected(partitions, "*") == keys
    assert selected(partitions, keys[first]) == [keys[first]]


@given(data=st.data())
def test_every_dimension_takes_a_range_of_its_own(data: st.DataObject) -> None:
    texts, slices = [], []
    for dimension in both.partitions_defs:
        keys = list(dimension.partitions_def.get_partition_keys())
        first = data.draw(st.integers(0, len(keys) - 1))
        last = data.draw(st.integers(first, len(keys) - 1))
        texts.append(f"{keys[first]}..{keys[last]}")
        slices.append(keys[first : last + 1])

    found = selected(both, "|".join(texts))

    assert found == ["|".join(keys) for keys in product(*slices)]
    assert found == [key for key in both.get_partition_keys() if key in found], "in the order of the definition"


def test_dimensions_mix_keys_ranges_and_stars() -> None:
    assert selected(both, "2024-02-28..2024-02-29|eu") == ["2024-02-28|eu", "2024-02-29|eu"]
    assert selected(both, "2024-02-28|*") == [f"2024-02-28|{region}" for region in ("us", "eu", "v1..v2", "asia")]
    assert selected(both, "2024-02-28|v1..v2") == ["2024-02-28|v1..v2"]
    assert selected(both, "*") == list(both.get_partition_keys())


@pytest.mark.parametrize(
    ("partitions", "text", "kind", "words"),
    [
        (daily, "2024-03-02..2024-02-28", InvalidSelection, "2024-03-02 comes after 2024-02-28"),
        (daily, "2024-2-28..2024-03-02", InvalidSelection, "2024-2-28"),
        (daily, "2024-02-28..2024-03-09", InvalidSelection, "2024-03-09"),
        (daily, "2024-02-28..", InvalidSelection, "which look like 2024-02-27"),
        (daily, "soon", UnknownPartition, "which look like 2024-02-27"),
        (regions, "us..asi", InvalidSelection, "did you mean asia?"),
        (both, "2024-02-28..2024-02-29", InvalidSelection, "its dimensions are day|region"),
        (both, "2024-02-28|eu..2024-02-29|eu", InvalidSelection, "its dimensions are day|region"),
        (None, "*", UnknownPartition, "a has no partitions"),
    ],
)
def test_what_names_no_partition_is_refused(
    partitions: dg.PartitionsDefinition[Any] | None, text: str, kind: type[Refused], words: str
) -> None:
    refused = refusal(partitions, text)

    assert type(refused) is kind
    assert words in refused.message


def test_dynamic_partitions_are_named_one_by_one_or_all_at_once(instance: dg.DagsterInstance) -> None:
    """Rule 2.5"""
    tails = dg.DynamicPartitionsDefinition(name="tails")
    instance.add_dynamic_partitions("tails", ["N1", "N1..N2"])

    assert selected(tails, "N1..N2", instance) == ["N1..N2"]
    assert selected(tails, "*", instance) == ["N1", "N1..N2"]
    assert "dynamic partitions have no order" in refusal(tails, "N1..N3", instance).message


def test_missing_partitions_are_those_that_exist_and_are_not_recorded(instance: dg.DagsterInstance) -> None:
    instance.add_dynamic_partitions("tails", ["N1", "N2", "N3"])

    recorded = [parse_ref("a@N2"), parse_ref("a@N7")]
    tails = dg.DynamicPartitionsDefinition(name="tails")
    assert n_missing(registered(tails), recorded, lambda: instance) == 2
    assert n_missing(registered(dg.StaticPartitionsDefinition(["N1", "N2"])), recorded, no_instance) == 1


def test_a_dimension_of_dynamic_partitions_takes_keys_and_all_and_the_others_ranges(
    instance: dg.DagsterInstance,
) -> None:
    """Rule 2.5"""
    instance.add_dynamic_partitions("tails", ["N1", "*", "N1..N2"])
    tails = dg.DynamicPartitionsDefinition(name="tails")
    by_day = dg.MultiPartitionsDefinition({"day": daily, "tail": tails})

    assert selected(by_day, "2024-02-27..2024-02-28|N1", instance) == ["2024-02-27|N1", "2024-02-28|N1"]
    assert selected(by_day, "2024-02-27|N1..N2", instance) == ["2024-02-27|N1..N2"]
    assert selected(by_day, "2024-02-27..2024-02-28|*", instance) == ["2024-02-27|*", "2024-02-28|*"]
    assert selected(by_day, "*", instance) == list(by_day.get_partition_keys(dynamic_partitions_store=instance))
    assert "dynamic partitions have no order" in refusal(by_day, "2024-02-27|N1..N3", instance).message
    assert "'N7' is not among the dynamic partitions" in refusal(by_day, "*|N7", instance).message


KINDS = {
    "static": dg.StaticPartitionsDefinition([*HORRORS]),
    "dynamic": dg.DynamicPartitionsDefinition(name="horrors"),
}


@pytest.mark.parametrize("partitions", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("key", HORRORS)
def test_a_key_wins_over_the_notation_that_it_looks_like(
    partitions: dg.PartitionsDefinition[Any], key: str, instance: dg.DagsterInstance
) -> None:
    """Rule 2.5"""
    instance.add_dynamic_partitions("horrors", [*HORRORS])
    named = keys_named("--partitions", registered(partitions), [key, f"a@{key}"], lambda: instance)

    assert selected(partitions, key, instance) == [key]
    assert named == [key, key]


def test_keys_have_commas_between_them_where_no_key_has_these(instance: dg.DagsterInstance) -> None:
    spec = registered(dg.StaticPartitionsDefinition(["a", "a,b", "b", "@x", "c,d", "a@a"]))

    def named(*texts: str) -> list[str]:
        return keys_named("--partitions", spec, texts, lambda: instance)

    assert named("a,b") == ["a,b"]
    assert named("b,a") == ["b", "a"]
    assert named("b,@x,a@b") == ["b", "@x", "b"]
    assert named("a,b..c,d") == ["a,b", "b", "@x", "c,d"], "a range between keys"
    assert named("a@a", "a@a@a") == ["a@a", "a@a"]
    assert named("unknown") == ["unknown"], "which may be live, from an earlier definition"
    with pytest.raises(InvalidRequest, match="it is no partition of a"):
        named("b@a")


def test_each_dimension_has_keys_that_look_like_notations() -> None:
    odd = dg.StaticPartitionsDefinition([key for key in HORRORS if not set("|[],") & set(key)])
    two = dg.MultiPartitionsDefinition({"x": odd, "y": odd})

    assert len(odd.get_partition_keys()) > 8
    assert all(selected(two, key) == [key] for key in two.get_partition_keys())
    assert selected(two, "*") == list(two.get_partition_keys())


def test_a_recorded_key_that_its_definition_has_not_any_more_wins_over_a_notation() -> None:
    """Rule 2.6"""
    world = World([dataset("sales", keys=["*", "a..b"])])
    world.live("sales@*", "sales@a..b")

    for ref in ("sales@*", "sales@a..b"):
        assert select_refs(world.queries, no_instance, [parse_ref(ref)]) == (ref,)


def test_an_open_ended_definition_ends_now(instance: dg.DagsterInstance) -> None:
    growing = dg.DailyPartitionsDefinition("2024-01-01")

    assert selected(growing, "*", instance) == list(growing.get_partition_keys())
    assert isinstance(refusal(growing, "2024-01-01..9999-01-01", instance), InvalidSelection)


NAMES = ("never_built", "source", "broken", "behind_broken", "distrusted", "outdated", "waits")


@pytest.fixture
def world() -> World:
    """An asset in each state that a selection may ask for. `outdated` is live, and its input was built again since."""
    inputs = {"behind_broken": ("broken",), "outdated": ("source",), "waits": ("never_built",)}
    world = World([dataset(name, *inputs.get(name, ())) for name in NAMES])
    world.live("source", "distrusted")
    world.fail("broken")
    world.miss("behind_broken", "broken")
    world.taint("distrusted")
    world.succeed("outdated", inputs=["source"])
    world.taint("source")
    world.live("source")
    world.miss("waits", "never_built")
    return world


@pytest.mark.parametrize(
    ("only", "refs"),
    [
        (["missing"], ["never_built"]),
        (["failed"], ["broken", "behind_broken"]),
        (["tainted"], ["distrusted"]),
        (["stale"], ["outdated"]),
        (["waiting"], ["waits"]),
        (["live"], ["source", "outdated"]),
        (["missing", "stale"], ["never_built", "outdated"]),
    ],
)
def test_only_keeps_the_refs_in_one_of_its_states(world: World, only: list[str], refs: list[str]) -> None:
    names = [parse_ref(name) for name in NAMES]

    assert select_refs(world.queries, no_instance, names, only) == tuple(refs)


def test_a_selection_of_nothing_is_refused(world: World) -> None:
    with pytest.raises(InvalidSelection) as refused:
        select_refs(world.queries, no_instance, [parse_ref("source"), parse_ref("waits")], ["failed", "missing"])

    assert refused.value.message == "source, waits selects no partition: none of 2 refs is failed or missing."


def test_every_ref_is_selected_once_and_an_unknown_name_is_refused(world: World) -> None:
    source = parse_ref("source")

    assert select_refs(world.queries, no_instance, [source, source]) == ("source",)
    with pytest.raises(UnknownAsset, match="Did you mean source?"):
        select_refs(world.queries, no_instance, [parse_ref("sourc@*")])
    with pytest.raises(UnknownPartition):
        select_refs(world.queries, no_instance, [parse_ref("source@1")])
