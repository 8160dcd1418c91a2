"""Conditions of Dagster's automation that ask the store, evaluated by Dagster's own evaluator and sensors.

What the assets answer are pandas frames: nothing here waits for Spark.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import msgspec
import pandas as pd
import pytest

from databuild_dagster import BuildContext, automation, build_definitions, databuild_asset
from databuild_dagster.bindings.adapter.keys import asset_key
from databuild_dagster.bindings.authoring.automation import AUTOMATION, MAX_ASSETS_PER_SENSOR
from databuild_dagster.bindings.declare.parameters import InvalidAsset
from databuild_dagster.data.environment import FILE_NAME, Environment
from databuild_dagster.model.commands import BorrowInstances, CancelWants, TaintPartitions
from databuild_dagster.model.events import Birth, ManifestFact
from databuild_dagster.model.refs import make_ref
from databuild_dagster.model.states import InstanceState

from ..conftest import Site, claim

daily = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-08")
DAYS = daily.get_partition_keys()
LAST = DAYS[-1]

Deploy = Callable[..., Site]

CONDITIONS = {
    "live": {"2024-01-01", "2024-01-02"},
    "leased": {"2024-01-03"},
    "tainted": {"2024-01-04"},
    "failed": {"2024-01-05"},
    "wanted": {"2024-01-03", "2024-01-06"},
    "never_built": {"2024-01-06", "2024-01-07"},
    "schedulable": {"2024-01-04", "2024-01-06", "2024-01-07"},
    "unclaimed": {"2024-01-04", "2024-01-07"},
    "stale": {"2024-01-02"},
}


@databuild_asset(partitions_def=daily)
def orders(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"day": [context.partition_key]})


def copies(condition: Any = None, *, fail_on: str = "") -> Any:
    @databuild_asset(partitions_def=daily, automation_condition=condition)
    def copy(context: BuildContext, orders: pd.DataFrame) -> pd.DataFrame:
        if context.partition_key == fail_on:
            raise ValueError("not today")
        return orders

    return copy


def lease(site: Site, ref: str) -> None:
    """Another Dagster run builds it."""
    claim(site.engine, ref, holder="another")
    assert site.state(ref) is InstanceState.BUILDING


def taint(site: Site, *refs: str) -> None:
    site.engine.handle(TaintPartitions(refs=refs, reason="wrong"))


def cancel(site: Site, ref: str) -> None:
    site.engine.handle(CancelWants(ids=tuple(want.id for want in site.engine.queries.wants.of_ref(ref))))


class Automation:
    """Tick after tick of Dagster's evaluator on one location."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.cursor: Any = None

    def tick(self, asset: str = "copy") -> set[str]:
        result = dg.evaluate_automation_conditions(
            dg.Definitions(assets=list(self.site.repository.assets_defs_by_key.values())),
            self.site.instance,
            cursor=self.cursor,
        )
        self.cursor = result.cursor
        return set(result.get_requested_partitions(asset_key(asset)) or set())


@pytest.fixture
def week(deploy: Deploy) -> Site:
    """A day in each state: live, stale, leased, tainted, failed, wanted, and one without a change."""
    site = deploy(orders, copies(fail_on=DAYS[4]))
    site.build(*(f"copy@{day}" for day in (DAYS[0], DAYS[1], DAYS[3], DAYS[4])))
    taint(site, f"orders@{DAYS[1]}", f"copy@{DAYS[3]}")
    # What was wanted within its TTL is wanted again when it is tainted (rule 5.3).
    cancel(site, f"copy@{DAYS[3]}")
    lease(site, f"copy@{DAYS[2]}")
    site.want(f"copy@{DAYS[5]}")
    return site


def test_a_condition_is_true_of_the_partitions_of_which_the_store_says_so(week: Site) -> None:
    """Rules 4.1, 4.4, 4.5, 4.6, 5.4"""
    assets = {name: copies(getattr(automation, name)()) for name in CONDITIONS}

    found = {
        name: dg.evaluate_automation_conditions([orders, asset], week.instance).get_requested_partitions(
            dg.AssetKey("copy")
        )
        for name, asset in assets.items()
    }

    assert found == CONDITIONS


def test_a_condition_asks_the_store_as_often_for_a_week_as_for_a_day(week: Site) -> None:
    """For states and wants, for pauses, and for the time; staleness has two questions of its own."""
    statements: dict[str, list[str]] = {name: [] for name in CONDITIONS}
    with week.engine.store.reading() as connection:
        pass

    for name, asked in statements.items():
        connection.set_trace_callback(asked.append)
        dg.evaluate_automation_conditions([orders, copies(getattr(automation, name)())], week.instance)
        connection.set_trace_callback(None)

    n_asked = {name: sum("SELECT" in statement for statement in asked) for name, asked in statements.items()}
    assert n_asked == {**dict.fromkeys(CONDITIONS, 3), "stale": 2}


def test_an_asset_without_partitions_is_asked_for_as_a_whole(deploy: Deploy) -> None:
    @databuild_asset(automation_condition=automation.unclaimed())
    def total() -> pd.DataFrame:
        return pd.DataFrame({"n": [1]})

    site = deploy(total)
    before = dg.evaluate_automation_conditions([total], site.instance).total_requested

    site.build("total")

    assert before == 1
    assert dg.evaluate_automation_conditions([total], site.instance).total_requested == 0


def test_the_keys_of_two_dimensions_are_those_of_refs(deploy: Deploy) -> None:
    both = dg.MultiPartitionsDefinition({"day": daily, "shop": dg.StaticPartitionsDefinition(["north", "south"])})

    @databuild_asset(partitions_def=both, automation_condition=automation.live())
    def sales() -> pd.DataFrame:
        return pd.DataFrame({"n": [1]})

    site = deploy(sales)
    site.build("sales@2024-01-01|south")

    result = dg.evaluate_automation_conditions([sales], site.instance)

    assert result.get_requested_partitions(dg.AssetKey("sales")) == {"2024-01-01|south"}


def test_eager_requests_the_latest_day_once_its_input_is_live_and_only_once(deploy: Deploy) -> None:
    site = deploy(orders, copies(automation.eager()))
    ticks = Automation(site)
    assert ticks.tick() == set(), "its input is missing"

    site.build(f"orders@{LAST}", f"orders@{DAYS[0]}")

    assert ticks.tick() == {LAST}
    assert ticks.tick() == set(), "it was requested"


@pytest.mark.parametrize(
    "held",
    [
        pytest.param(lambda site: site.want(f"copy@{LAST}"), id="wanted"),
        pytest.param(lambda site: lease(site, f"copy@{LAST}"), id="leased"),
    ],
)
def test_eager_does_not_request_what_others_have_taken_on(deploy: Deploy, held: Callable[[Site], None]) -> None:
    """Dagster's own would start a run that only delegates."""
    site = deploy(orders, copies(automation.eager() | dg.AutomationCondition.eager().with_label("theirs")))
    ours = deploy(orders, copies(automation.eager()))
    ticks, theirs = Automation(ours), Automation(site)
    assert (ticks.tick(), theirs.tick()) == (set(), set())
    ours.build(f"orders@{LAST}")

    held(ours)

    assert (ticks.tick(), theirs.tick()) == (set(), {LAST})


def test_eager_requests_what_was_tainted_when_its_input_is_live(deploy: Deploy) -> None:
    site = deploy(orders, copies(automation.eager()))
    site.build(f"copy@{LAST}")
    ticks = Automation(site)
    assert ticks.tick() == set()

    taint(site, f"orders@{LAST}", f"copy@{LAST}")
    cancel(site, f"copy@{LAST}")

    assert ticks.tick() == set(), "its input is tainted too"
    site.build(f"orders@{LAST}")
    assert ticks.tick() == {LAST}


def test_an_input_of_a_plain_asset_is_there_when_dagster_has_a_materialization_of_it(deploy: Deploy) -> None:
    @dg.asset(partitions_def=daily)
    def clicks() -> None: ...

    @databuild_asset(partitions_def=daily, deps=[clicks], automation_condition=automation.eager())
    def copy() -> pd.DataFrame:
        return pd.DataFrame({"n": [1]})

    site = deploy(clicks, copy)
    ticks = Automation(site)
    assert ticks.tick() == set()

    dg.materialize([clicks], instance=site.instance, partition_key=LAST)

    assert ticks.tick() == {LAST}


def test_on_missing_requests_a_new_day_that_no_want_names(deploy: Deploy) -> None:
    shops = dg.DynamicPartitionsDefinition(name="shops")

    @databuild_asset(partitions_def=shops, automation_condition=automation.on_missing())
    def copy() -> pd.DataFrame:
        return pd.DataFrame({"n": [1]})

    site = deploy(copy)
    site.instance.add_dynamic_partitions("shops", ["old"])
    ticks = Automation(site)
    ticks.tick()
    site.instance.add_dynamic_partitions("shops", ["north", "south", "west"])
    site.want("copy@south")
    site.build("copy@west")

    assert ticks.tick() == {"north"}
    assert ticks.tick() == set()


def test_the_sensor_for_our_conditions_runs_in_the_code_server() -> None:
    """And leaves conditions of Dagster's own to Dagster's sensor."""

    @databuild_asset(automation_condition=dg.AutomationCondition.eager())
    def theirs() -> pd.DataFrame:
        return pd.DataFrame({"n": [1]})

    repository = build_definitions([orders, copies(automation.eager()), theirs]).get_repository_def()

    sensor = repository.get_sensor_def(AUTOMATION)
    assert isinstance(sensor, dg.AutomationConditionSensorDefinition)
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    assert sensor.asset_selection.resolve(repository.asset_graph) == {dg.AssetKey("copy")}
    default = repository.get_sensor_def("default_automation_condition_sensor")
    assert dg.AssetKey("theirs") in default.asset_selection.resolve(repository.asset_graph)
    without_ours = build_definitions([orders, theirs]).get_repository_def()
    assert not without_ours.has_sensor_def(AUTOMATION)


def test_a_sensor_of_the_users_own_evaluates_our_conditions_if_it_can() -> None:
    sensor = dg.AutomationConditionSensorDefinition("mine", target="copy", use_user_code_server=True)

    repository = build_definitions([orders, copies(automation.eager())], sensors=[sensor]).get_repository_def()

    assert not repository.has_sensor_def(AUTOMATION)
    assert repository.has_sensor_def("mine")


def test_a_sensor_that_would_evaluate_our_conditions_in_the_daemon_is_refused() -> None:
    sensor = dg.AutomationConditionSensorDefinition("mine", target="copy")

    with pytest.raises(
        InvalidAsset, match=r"Sensor 'mine' evaluates .* of 'copy' .*; give the sensor use_user_code_server"
    ):
        build_definitions([orders, copies(automation.eager())], sensors=[sensor])


def test_more_assets_than_one_sensor_may_have_get_several() -> None:
    def asset(number: int) -> Any:
        @databuild_asset(name=f"asset_{number}", automation_condition=automation.eager())
        def numbered() -> pd.DataFrame:
            return pd.DataFrame({"n": [1]})

        return numbered

    assets = [asset(number) for number in range(MAX_ASSETS_PER_SENSOR + 1)]

    repository = build_definitions(assets).get_repository_def()

    selected = [
        repository.get_sensor_def(name).asset_selection.resolve(repository.asset_graph)
        for name in (AUTOMATION, f"{AUTOMATION}_2")
    ]
    assert [len(keys) for keys in selected] == [MAX_ASSETS_PER_SENSOR, 1]
    assert not selected[0] & selected[1]


def test_the_sensor_requests_a_dagster_run_for_what_is_to_be_built(deploy: Deploy) -> None:
    site = deploy(orders, copies(automation.eager()))

    first = evaluated(site, AUTOMATION, None)
    site.build(f"orders@{LAST}")
    second = evaluated(site, AUTOMATION, first.cursor)

    assert first.run_requests == []
    (request,) = second.run_requests
    assert request.asset_selection == [dg.AssetKey("copy")]
    assert request.partition_key == LAST


def evaluated(site: Site, sensor: str, cursor: str | None) -> Any:
    """One tick of a sensor, as the code server evaluates it."""
    context = dg.build_sensor_context(site.instance, cursor, repository_def=site.repository)
    return site.repository.get_sensor_def(sensor).evaluate_tick(context)


def test_a_borrowed_input_of_an_environment_is_no_update(
    deploy: Deploy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 16.13"""
    (tmp_path / FILE_NAME).write_bytes(msgspec.json.encode(Environment("branch", "base", "root")))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    condition = automation.eager()
    monkeypatch.undo()
    site = deploy(orders, copies(condition))
    automated = Automation(site)
    automated.tick()
    ref = make_ref("orders", LAST)

    birth = Birth(
        job_run_id=site.engine.new_id(), job="orders", ref=ref, manifest=ManifestFact("empty", "uri", 0, 0, 0)
    )
    site.engine.handle(BorrowInstances(births=(birth,)))
    site.instance.report_runless_asset_event(dg.AssetMaterialization("orders", partition=LAST))

    assert automated.tick() == set()
    taint(site, ref)
    site.build(ref)
    assert automated.tick() == {LAST}
