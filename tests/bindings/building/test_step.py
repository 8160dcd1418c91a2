"""A Dagster run over our assets: started by a person or a launch, per partition, and with the steps after it."""

import logging
from typing import Any

import dagster as dg
import pandas as pd
import pytest

from databuild_dagster import BuildContext, DepMiss, NotBuilt, Transient, databuild_asset
from databuild_dagster.bindings.adapter.run_tags import OUTCOME_TAG
from databuild_dagster.bindings.registry.instance import warehouse_of
from databuild_dagster.model.commands import TaintPartitions
from databuild_dagster.model.states import InstanceState
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import read_manifest

LIVE, FAILED, WAITING = InstanceState.LIVE, InstanceState.FAILED, InstanceState.UPSTREAM_BUILDING
SUCCESS, FAILURE = dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE

daily = dg.DailyPartitionsDefinition(start_date="2013-01-01", end_date="2014-01-01")
DAYS = [f"2013-01-0{day}" for day in range(1, 6)]


@databuild_asset(partitions_def=daily)
def numbers(context: BuildContext) -> pd.DataFrame:
    """Without Spark: the day and its number."""
    return pd.DataFrame({"day": [context.partition_key], "n": [int(context.partition_key[-2:])]})


@databuild_asset(partitions_def=daily)
def doubled(numbers: pd.DataFrame) -> pd.DataFrame:
    return numbers.assign(n=numbers.n * 2)


@databuild_asset(partitions_def=daily)
def broken(context: BuildContext) -> pd.DataFrame:
    raise ValueError("no such file")


@databuild_asset(partitions_def=daily)
def after(broken: pd.DataFrame) -> pd.DataFrame:
    return broken


@dg.asset(partitions_def=daily, deps=["doubled"])
def plain(context: dg.AssetExecutionContext) -> None:
    context.log.info("built")


@dg.asset_check(asset="numbers")
def there_are_numbers() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)


def test_several_steps_of_one_run_all_execute_with_checks_and_plain_assets(deploy: Any) -> None:
    site = deploy(numbers, doubled, plain, asset_checks=[there_are_numbers])

    run = site.launch(["numbers", "doubled", "plain"], DAYS[:2])

    assert run.status is SUCCESS
    assert site.steps == dict.fromkeys(["numbers", "numbers_there_are_numbers", "doubled", "plain"], "success")
    assert site.materialized("plain") == DAYS[:2]


def test_steps_after_a_missed_input_do_not_execute(deploy: Any) -> None:
    @databuild_asset(partitions_def=daily)
    def source(context: BuildContext) -> pd.DataFrame:
        raise DepMiss("numbers@2013-01-01")

    @databuild_asset(partitions_def=daily)
    def next_one(source: pd.DataFrame) -> pd.DataFrame:
        return source

    @dg.asset(partitions_def=daily, deps=["next_one"])
    def last() -> None:
        """Plain."""

    @dg.asset_check(asset="source")
    def good() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    site = deploy(numbers, source, next_one, last, asset_checks=[good])

    run = site.launch(["source", "next_one", "last"], DAYS[:1])

    assert run.status is SUCCESS
    assert run.tags[OUTCOME_TAG] == "waiting"
    assert site.steps == {
        "source": "success",
        "source_good": "skipped",
        "next_one": "skipped",
        "last": "skipped",
    }
    assert site.materialized("source") == []
    assert site.state("source@2013-01-01") is WAITING


def test_one_bad_day_fails_alone_and_only_it_is_red(deploy: Any) -> None:
    """Rule 6.2: also if its message quotes the name of a file in Latin-1."""

    @databuild_asset(partitions_def=daily)
    def picky(numbers: pd.DataFrame) -> pd.DataFrame:
        if numbers["n"][0] == 3:
            raise ValueError("cannot read caf\udce9.csv")
        return numbers

    site = deploy(numbers, picky)

    site.build(*(f"picky@{day}" for day in DAYS))

    assert site.runs[-1].status is FAILURE
    assert site.failure().startswith("1 of 5 partitions failed: 2013-01-03. First: ValueError: cannot read caf")
    assert site.materialized("picky") == [day for day in DAYS if day != "2013-01-03"]
    assert site.red("picky") == ["2013-01-03"]
    bad = site.engine.queries.canonical.of(["picky@2013-01-03"])["picky@2013-01-03"]
    assert bad.state is FAILED
    assert "caf\\udce9.csv" in str(bad.reason)


def test_days_that_missed_are_not_painted_red_by_one_that_failed(deploy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    @databuild_asset(partitions_def=daily)
    def mixed(context: BuildContext) -> pd.DataFrame:
        if context.partition_key == DAYS[0]:
            raise DepMiss("numbers@2013-05-05")
        raise ValueError("bad")

    site = deploy(numbers, mixed)
    monkeypatch.delenv("DAGSTER_EMIT_PARTITION_SUBSET_IN_PLANNED_EVENTS", raising=False)

    run = site.launch(["mixed"], DAYS[:2])

    assert run.status is FAILURE
    assert site.red("mixed") == [DAYS[1]]


def test_a_person_opens_what_has_failed_and_a_schedule_is_refused(deploy: Any) -> None:
    broken = [True]

    @databuild_asset
    def fragile() -> pd.DataFrame:
        if broken[0]:
            raise ValueError("not today")
        return pd.DataFrame({"n": [1]})

    site = deploy(fragile)
    site.build("fragile")
    broken[0] = False

    refused = site.launch(["fragile"], tags={"dagster/schedule_name": "nightly"})
    assert (refused.status, refused.tags[OUTCOME_TAG]) == (FAILURE, "denied")
    assert site.failure().startswith("fragile was refused. fragile is failed: ValueError: not today")
    errors = [entry.user_message for entry in site.instance.all_logs(refused.run_id) if entry.level == logging.ERROR]
    assert any("fragile is failed" in error for error in errors)
    assert site.state("fragile") is FAILED

    site.launch(["fragile"])
    assert site.state("fragile") is LIVE


def test_a_manifest_has_the_number_of_its_attempt(deploy: Any) -> None:
    """Rule 10.2: a taint that opens a failed ref goes on counting, and a ref that was live begins again."""
    calls = iter([Transient("the service is down"), ValueError("a bad row"), Transient("still down")])

    @databuild_asset
    def shaky() -> pd.DataFrame:
        for error in calls:
            raise error
        return pd.DataFrame({"n": [1]})

    site = deploy(shaky)
    for _ in range(2):
        site.launch(["shaky"])
    site.engine.handle(TaintPartitions(refs=("shaky",), reason="mended"))
    for _ in range(2):
        site.launch(["shaky"])
    fourth = attempt_of(site, "shaky")
    site.engine.handle(TaintPartitions(refs=("shaky",), reason="wrong"))
    site.launch(["shaky"])

    assert (fourth, attempt_of(site, "shaky")) == (4, 1)


def attempt_of(site: Any, ref: str) -> int:
    canonical = site.engine.queries.canonical.of([ref])[ref]
    assert canonical.state is LIVE
    return read_manifest(Warehouse(warehouse_of(site.instance)), ref, canonical.uuid).attempt


def test_resources_and_config_are_given_by_annotation(deploy: Any) -> None:
    class Greeting(dg.ConfigurableResource):  # type: ignore[type-arg]
        word: str

    class Settings(dg.Config):
        times: int = 1

    @databuild_asset
    def greeted(greeting: Greeting, config: Settings, context: BuildContext) -> pd.DataFrame:
        context.add_output_metadata({"times": config.times})
        return pd.DataFrame({"said": [greeting.word * config.times]})

    site = deploy(greeted, resources={"greeting": Greeting(word="ho")})

    site.launch(["greeted"], run_config={"ops": {"greeted": {"config": {"times": 3}}}})

    assert site.rows("greeted") == [{"said": "hohoho"}]
    event = site.instance.get_latest_materialization_event(dg.AssetKey("greeted"))
    assert event is not None
    materialization = event.asset_materialization
    assert materialization is not None
    assert materialization.metadata["times"].value == 3
    assert (materialization.tags or {})["dagster/data_version"] == materialization.metadata["databuild/instance"].value


def test_a_run_whose_refs_wait_warns_with_their_causes_and_wants(deploy: Any) -> None:
    """Rule 8.8: a launch builds the inputs; the run itself is green, and its partitions are neither green nor red."""
    site = deploy(numbers, doubled)

    run = site.launch(["doubled"], DAYS[:1])

    (cause,), (own,) = (site.engine.queries.wants.of_ref(f"{asset}@{DAYS[0]}") for asset in ("numbers", "doubled"))
    sentence = (
        f"doubled@{DAYS[0]} waits for numbers@{DAYS[0]} (want {cause.id}); want {own.id} builds it. "
        f"`databuild explain doubled@{DAYS[0]}` shows its progress."
    )
    warnings = [entry.user_message for entry in site.instance.all_logs(run.run_id) if entry.level == logging.WARNING]
    assert (run.status, run.tags[OUTCOME_TAG], warnings) == (SUCCESS, "waiting", [sentence])
    (observed,) = site.instance.fetch_observations(dg.AssetKey("doubled"), limit=5).records
    assert (observed.partition_key, observed.asset_observation.description) == (DAYS[0], sentence)
    assert observed.asset_observation.metadata["databuild/wants"].value == [cause.id, own.id]
    assert site.colours("doubled") == {}


def test_a_run_whose_input_has_failed_fails_and_shows_the_cause(deploy: Any) -> None:
    """Rule 8.8: its dep miss is judged at once, so its ref is UpstreamFailed and does not wait (rule 6.5)."""
    site = deploy(broken, after)
    site.launch(["broken"], DAYS[:1])

    run = site.launch(["after"], DAYS[:1])

    assert (run.status, run.tags[OUTCOME_TAG]) == (FAILURE, "denied")
    assert f"after@{DAYS[0]}: needs broken@{DAYS[0]}, which failed" in site.failure()
    assert f"`databuild retry after@{DAYS[0]}`" in site.failure()
    assert site.red("after") == DAYS[:1]


def test_a_ref_that_failed_upstream_of_a_launch_is_red_by_the_run_of_its_cause(deploy: Any) -> None:
    """Rule 8.8: no Dagster run of its own has failed."""
    site = deploy(broken, after)

    site.build(f"after@{DAYS[0]}")

    assert site.state(f"after@{DAYS[0]}") is InstanceState.UPSTREAM_FAILED
    assert (site.red("broken"), site.red("after")) == (DAYS[:1], DAYS[:1])
    log = site.instance.event_log_storage
    shown = log.get_latest_asset_partition_materialization_attempts_without_materializations(dg.AssetKey("after"))
    assert shown[DAYS[0]][0] == site.runs[-1].run_id


def test_materialize_raises_not_built_for_a_ref_that_waits(instance: dg.DagsterInstance) -> None:
    """Rule 8.8: a test that builds nothing is not green; findings/first-use.md 1."""
    with pytest.raises(NotBuilt, match=r"doubled@2013-01-01 is not live .* waits for numbers@2013-01-01") as raised:
        dg.materialize([numbers, doubled], selection=["doubled"], partition_key=DAYS[0], instance=instance)

    assert raised.value.refs == (f"doubled@{DAYS[0]}",)
    assert raised.value.allow_retries is False
