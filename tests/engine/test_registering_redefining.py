"""Partitions are redefined: what readers see is what was built for the windows that its keys stand for now (rule 2.6)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

import dagster as dg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from databuild_dagster.bindings.registry.catalog import DagsterCatalog, LateInstance
from databuild_dagster.bindings.registry.registration import partitions_text
from databuild_dagster.calls.taints import untaint_command
from databuild_dagster.engine.registering import register, why_moved
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.errors import CannotRevert
from databuild_dagster.model.refs import make_ref, partition_key_of
from databuild_dagster.model.states import InstanceState, JobRunState
from tests.support.world import World

TOKYO = ZoneInfo("Asia/Tokyo")
FIRST, END = "2023-12-31", "2024-01-21"


def day(key: str, zone: object = UTC, form: str = "%Y-%m-%d", days: int = 1) -> object:
    """The window of a key, in plain arithmetic."""
    start = datetime.strptime(key, form).replace(tzinfo=zone)  # type: ignore[arg-type]
    return start.timestamp(), (start + timedelta(days=days)).timestamp()


class Partitions(NamedTuple):
    """A definition, and the plain meaning of its keys."""

    defined: dg.PartitionsDefinition | None
    keys: tuple[str | None, ...]
    meaning: Callable[[str], object]

    def of(self, key: str | None) -> object:
        return None if key is None else self.meaning(key)


DEFINITIONS = {
    "days": Partitions(dg.DailyPartitionsDefinition(FIRST, end_date=END), (FIRST, "2024-01-03", "2024-01-07"), day),
    "later days": Partitions(
        dg.DailyPartitionsDefinition("2024-01-02", end_date=END), ("2024-01-03", "2024-01-07"), day
    ),
    "days of Tokyo": Partitions(
        dg.DailyPartitionsDefinition(FIRST, end_date=END, timezone="Asia/Tokyo"),
        (FIRST, "2024-01-07"),
        lambda key: day(key, TOKYO),
    ),
    "weeks": Partitions(
        dg.WeeklyPartitionsDefinition(FIRST, end_date=END), (FIRST, "2024-01-07"), lambda key: day(key, days=7)
    ),
    "days as numbers": Partitions(
        dg.DailyPartitionsDefinition("20231231", end_date="20240121", fmt="%Y%m%d"),
        ("20231231", "20240103"),
        lambda key: day(key, form="%Y%m%d"),
    ),
    "names": Partitions(dg.StaticPartitionsDefinition([FIRST, "north"]), (FIRST, "north"), str),
    "fewer names": Partitions(dg.StaticPartitionsDefinition(["north"]), ("north",), str),
    "shops": Partitions(
        dg.MultiPartitionsDefinition(
            {
                "day": dg.DailyPartitionsDefinition(FIRST, end_date=END),
                "shop": dg.StaticPartitionsDefinition(["north", "south"]),
            }
        ),
        ("2023-12-31|north", "2024-01-07|south"),
        lambda key: (day(key.partition("|")[0]), key.partition("|")[2]),
    ),
    "none": Partitions(None, (None,), str),
}


class Deployed:
    """An asset whose partitions change."""

    def __init__(self) -> None:
        self.world = World()
        self.world.catalog = DagsterCatalog(LateInstance(dg.DagsterInstance.ephemeral))  # type: ignore[assignment]
        self.world.engine = self.world.process()
        self.now = DEFINITIONS["none"]
        self.sentences: tuple[str, ...] = ()

    def define(self, name: str) -> None:
        self.world.clock.turn(60)
        self.now = DEFINITIONS[name]
        spec = DatasetSpec(asset="sales", job="sales", location="here", partitions=partitions_text(self.now.defined))
        self.sentences = register(self.world.engine, "here", (spec,)).redefined

    def build(self, key: str | None) -> str:
        self.world.clock.turn(60)
        ref = make_ref("sales", key)
        if self.world.state(ref) is not InstanceState.LIVE:
            self.world.live(ref)
        return ref

    def seen(self) -> set[str | None]:
        """The keys of what readers of the whole dataset see."""
        spec = self.world.queries.datasets.get("sales")
        assert spec is not None
        live = [
            partition_key_of(one.ref)
            for one in self.world.queries.canonical.of_dataset("sales")
            if one.state is InstanceState.LIVE
        ]
        return set(live) - self.world.engine.catalog.left_out(spec, live)


steps = st.lists(st.one_of(st.sampled_from(list(DEFINITIONS)), st.integers(0, 2)), min_size=2, max_size=14)


@settings(max_examples=40)
@given(steps)
def test_readers_never_take_an_instance_for_another_window(steps: list[str | int]) -> None:
    """The model: for each key the meaning that it had when it was built, forgotten once the key means something else."""
    deployed, built = Deployed(), dict[str | None, object]()
    deployed.define("days")
    for step in steps:
        if isinstance(step, int):
            key = deployed.now.keys[step % len(deployed.now.keys)]
            deployed.build(key)
            built[key] = deployed.now.of(key)
            continue
        deployed.define(step)
        built = {
            key: meaning
            for key, meaning in built.items()
            if key not in deployed.now.keys or deployed.now.of(key) == meaning
        }

        assert deployed.seen() == {key for key in built if key in deployed.now.keys}
    deployed.world.check()


def test_a_build_of_another_window_ends_and_its_want_stays() -> None:
    deployed = Deployed()
    deployed.define("days")
    deployed.world.start("sales@2024-01-07")
    job_run = deployed.world.job_run("sales@2024-01-07")

    deployed.define("weeks")

    assert deployed.world.queries.job_runs.named([job_run])[job_run].state is JobRunState.CANCELED
    assert [want.refs for want in deployed.world.open_wants("sales@2024-01-07")] == [("sales@2024-01-07",)]


def test_a_partition_that_waits_for_its_inputs_goes_on_waiting() -> None:
    """Its job run has ended, so there is nothing to cancel."""
    deployed = Deployed()
    deployed.define("days")
    deployed.world.start("sales@2024-01-07")
    deployed.world.miss("sales@2024-01-07", "sales@2024-01-03")

    deployed.define("days of Tokyo")

    assert deployed.world.state("sales@2024-01-07") is InstanceState.UPSTREAM_BUILDING
    assert deployed.sentences == ()


def test_one_sentence_says_what_becomes_of_earlier_instances() -> None:
    deployed = Deployed()
    deployed.define("days")
    for key in ("2024-01-03", "2024-01-07"):
        deployed.build(key)

    deployed.define("weeks")

    (sentence,) = deployed.sentences
    assert "sales changed: 1 instance whose key means another window of time became tainted" in sentence
    assert "leave out 1 whose keys are gone" in sentence
    uuid = deployed.world.uuid("sales@2024-01-07")
    assert [taint.reason for taint in deployed.world.queries.instances.taints_of(uuid)] == [why_moved("sales")]


@pytest.mark.parametrize("name", ["days", "later days"])
def test_partitions_that_only_begin_later_need_no_sentence_about_windows(name: str) -> None:
    deployed = Deployed()
    deployed.define("days")
    deployed.build("2024-01-07")

    deployed.define(name)

    assert deployed.sentences == ()
    assert deployed.seen() == {"2024-01-07"}


def test_the_window_is_that_of_the_beginning_of_a_build() -> None:
    """The key is gone in between, so nothing cancels the build; it ends under a definition that it does not know."""
    deployed = Deployed()
    deployed.define("days")
    deployed.world.start("sales@2023-12-31")
    deployed.define("later days")
    deployed.world.succeed("sales@2023-12-31")

    deployed.define("days of Tokyo")

    assert deployed.world.state("sales@2023-12-31") is InstanceState.TAINTED


def test_a_definition_in_between_without_the_key_changes_nothing() -> None:
    deployed = Deployed()
    deployed.define("days")
    deployed.build("2024-01-07")

    deployed.define("names")
    deployed.define("days")

    assert deployed.seen() == {"2024-01-07"}


def test_an_asset_that_comes_back_with_other_partitions_is_compared() -> None:
    deployed = Deployed()
    other = DatasetSpec(asset="other", job="other", location="here")
    deployed.define("days")
    deployed.build("2024-01-07")
    register(deployed.world.engine, "here", (other,))

    deployed.define("weeks")

    assert deployed.seen() == set()
    assert len(deployed.sentences) == 1


def test_the_taint_of_a_window_is_not_taken_back_while_it_is_another() -> None:
    deployed = Deployed()
    deployed.define("days")
    ref = deployed.build("2024-01-07")
    deployed.define("weeks")
    (taint,) = deployed.world.queries.instances.taints_of(deployed.world.uuid(ref))

    with pytest.raises(CannotRevert, match="its key means another window of time now"):
        untaint_command(deployed.world.engine, taint.taint_id, "")

    deployed.define("days")
    deployed.world.handle(untaint_command(deployed.world.engine, taint.taint_id, ""))
    assert deployed.seen() == {"2024-01-07"}


def test_an_earlier_taint_that_is_taken_back_shows_no_other_window() -> None:
    deployed = Deployed()
    deployed.define("days")
    ref = deployed.build("2024-01-07")
    taint_id = deployed.world.taint(ref, reason="maybe wrong")
    deployed.define("weeks")

    deployed.world.untaint(taint_id)

    assert deployed.world.state(ref) is InstanceState.TAINTED
