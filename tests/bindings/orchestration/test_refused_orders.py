"""What Dagster refuses before a run exists fails the refs that need it alone, and leaves no lease (rule 6.8)."""

from typing import Any

import dagster as dg
import pandas as pd
import pytest

from databuild_dagster import databuild_asset
from databuild_dagster.bindings.claims.launcher import OrderCollector
from databuild_dagster.bindings.orchestration.orchestrator import run_tick
from databuild_dagster.model.commands import RetryRefs
from databuild_dagster.model.states import InstanceState

LIVE, FAILED, UPSTREAM_FAILED = InstanceState.LIVE, InstanceState.FAILED, InstanceState.UPSTREAM_FAILED
FRAME = pd.DataFrame({"x": [1]})


class Settings(dg.Config):
    since: int


class Shop(dg.ConfigurableResource):  # type: ignore[type-arg]
    url: str


@databuild_asset
def configured(config: Settings) -> pd.DataFrame:
    return FRAME


@databuild_asset
def launched(shop: Shop) -> pd.DataFrame:
    return FRAME


@databuild_asset(pool="closed")
def pooled() -> pd.DataFrame:
    return FRAME


class Till(Shop):
    """Another kind of resource."""


@databuild_asset
def of_environment(till: Till) -> pd.DataFrame:
    return FRAME


@dg.asset
def foreign(config: Settings) -> None:
    """Plain."""


@databuild_asset(deps=["foreign"])
def after() -> pd.DataFrame:
    return FRAME


@databuild_asset
def plain() -> pd.DataFrame:
    return FRAME


@pytest.fixture
def site(deploy: Any) -> Any:
    site = deploy(
        configured,
        launched,
        pooled,
        of_environment,
        foreign,
        after,
        plain,
        resources={"shop": Shop.configure_at_launch(), "till": Till(url=dg.EnvVar("NO_SUCH_VARIABLE"))},
    )
    site.instance.event_log_storage.set_concurrency_slots("closed", 0)
    return site


@pytest.mark.parametrize(
    ("asset", "why"),
    [
        ("configured", "{'configured': {'config': {'since': 0}}}"),
        ("launched", "{'shop': {'config': {'url': '...'}}}"),
        ("of_environment", 'fetch the environment variable "NO_SUCH_VARIABLE" which is not set'),
        ("pooled", "its pool 'closed' has the limit 0. `dagster instance concurrency set closed 1` raises it."),
    ],
)
def test_a_ref_whose_run_dagster_refuses_fails_with_a_sentence_and_others_are_built(
    site: Any, asset: str, why: str
) -> None:
    site.build(asset, "plain")

    assert (site.state(asset), site.state("plain")) == (FAILED, LIVE)
    error = site.engine.queries.canonical.of([asset])[asset].reason
    assert error.startswith(f"Dagster starts no run of {asset}: ")
    assert why in error
    assert site.engine.queries.launches.open() == []


def test_a_plain_asset_whose_run_dagster_refuses_fails_what_waits_for_it(site: Any) -> None:
    site.build("after", "plain")

    assert [site.state(ref) for ref in ("foreign", "after", "plain")] == [FAILED, UPSTREAM_FAILED, LIVE]


def test_dagster_shows_the_run_that_it_refused_as_failed_with_the_sentence(site: Any) -> None:
    site.build("configured")

    (run,) = site.instance.get_runs()
    job_run = site.engine.queries.canonical.of(["configured"])["configured"].job_run
    assert site.engine.queries.job_runs.named([job_run])[job_run].dagster_run_id == run.run_id
    assert (run.status, run.asset_selection) == (dg.DagsterRunStatus.FAILURE, {dg.AssetKey("configured")})


def test_a_tick_reports_what_dagster_refuses_and_orders_the_rest(site: Any) -> None:
    site.want("configured", "pooled", "plain")
    launcher, problems = OrderCollector(site.instance), list[str]()

    run_tick(site.instance, site.repository, site.deployment, launcher, report_problem=problems.append)

    assert [order.assets for order in launcher.take_orders()] == [("plain",)]
    assert len(problems) == 2


def test_a_ref_that_dagster_refused_is_built_by_a_retry_once_its_cause_is_gone(site: Any) -> None:
    site.build("pooled")
    site.instance.event_log_storage.set_concurrency_slots("closed", 1)
    site.engine.handle(RetryRefs(refs=("pooled",), reason="repaired"))

    site.build()

    assert site.state("pooled") is LIVE
