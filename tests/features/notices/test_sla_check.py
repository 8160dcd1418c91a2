"""A check that fails while an open want has missed its SLA, executed or reported by a tick (rule 5.5)."""

from typing import Any

import dagster as dg
import pandas as pd
import pytest

from databuild_dagster import BuildContext, build_sla_checks, databuild_asset
from databuild_dagster.bindings.adapter.dagster_private import IMPLICIT_ASSET_JOB_NAME
from databuild_dagster.bindings.claims.launcher import OrderCollector
from databuild_dagster.bindings.orchestration.orchestrator import run_tick
from databuild_dagster.engine.wording import when
from databuild_dagster.features.notices import sla_check
from databuild_dagster.features.notices.sla_check import SLA_CHECK
from databuild_dagster.model.commands import CancelWants, CreateWants

WARN, ERROR = dg.AssetCheckSeverity.WARN, dg.AssetCheckSeverity.ERROR


@databuild_asset
def sales(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"n": [1]})


@databuild_asset
def report(sales: pd.DataFrame) -> pd.DataFrame:
    return sales


def deployed(deploy: Any, severity: dg.AssetCheckSeverity = WARN) -> Any:
    return deploy(sales, report, asset_checks=build_sla_checks(assets=[sales, "report"], severity=severity))


def want(site: Any, *refs: str, is_late: bool = True) -> tuple[str, float]:
    """One want for all; its data is an hour old, and was to be there within a minute, unless it is not late yet."""
    sla_seconds = 60.0 if is_late else 7200.0
    began = site.engine.clock() - 3600
    command = CreateWants(wants=(refs,), sla_seconds=sla_seconds, data_timestamp=began)
    return site.engine.handle(command).want_ids[0], began + sla_seconds


def turn(site: Any) -> None:
    run_tick(site.instance, site.repository, site.deployment, OrderCollector(site.instance))


def execute(site: Any, *assets: str) -> dict[str, dg.AssetCheckEvaluation]:
    """The checks alone, in a Dagster run, as a person executes them."""
    checks = {dg.AssetCheckKey(dg.AssetKey(asset), SLA_CHECK) for asset in assets}
    job = site.repository.get_job(IMPLICIT_ASSET_JOB_NAME)
    job = job.get_subset(asset_selection=frozenset(), asset_check_selection=checks)
    result = job.execute_in_process(instance=site.instance)
    assert result.success
    return {check.asset_key.to_user_string(): check for check in result.get_asset_check_evaluations()}


def reported(site: Any, asset: str) -> list[dg.AssetCheckEvaluation]:
    """Dagster's evaluations of the check, the newest first."""
    key = dg.AssetCheckKey(dg.AssetKey(asset), SLA_CHECK)
    records = site.instance.event_log_storage.get_asset_check_execution_history(key, limit=100)
    return [record.event.dagster_event.event_specific_data for record in records if record.event is not None]


def lines(evaluation: dg.AssetCheckEvaluation) -> list[str]:
    return str(evaluation.metadata["databuild/refs"].value).splitlines()


@pytest.mark.parametrize("severity", [WARN, ERROR])
def test_the_check_fails_while_a_want_is_late_and_names_the_cause(deploy: Any, severity: Any) -> None:
    site = deployed(deploy, severity)
    assert execute(site, "report")["report"].passed

    _, deadline = want(site, "report")
    verdict = execute(site, "report", "sales")

    assert verdict["sales"].passed, "no want asks for it by a time"
    assert (verdict["report"].passed, verdict["report"].severity) == (False, severity)
    assert verdict["report"].metadata["databuild/late"].value == 1
    (line,) = lines(verdict["report"])
    assert line.startswith(f"report: late since {when(deadline)}; never built; it misses sales")
    assert verdict["report"].description == f"1 late. First: {line}."


def test_a_tick_tells_of_it_without_a_run_and_again_when_it_is_otherwise(deploy: Any) -> None:
    site = deployed(deploy)
    turn(site)
    assert [check.passed for check in reported(site, "report")] == [True]

    _, deadline = want(site, "report")
    turn(site)
    newest = reported(site, "report")[0]
    assert not newest.passed
    (line,) = lines(newest)
    assert line.startswith(f"report: late since {when(deadline)}; waits for sales, as job run ")
    assert "; sales: its lease is held by job run " in line
    n_reported = len(reported(site, "report"))
    turn(site)
    assert len(reported(site, "report")) == n_reported

    site.build("report")
    turn(site)
    assert [reported(site, asset)[0].passed for asset in ("report", "sales")] == [True, True]


def test_a_run_that_builds_what_was_late_says_so_itself(deploy: Any) -> None:
    site = deployed(deploy)
    want(site, "sales")

    run = site.launch(["sales"])

    (evaluation,) = reported(site, "sales")
    assert (run.status, evaluation.passed) == (dg.DagsterRunStatus.SUCCESS, True)


def test_only_an_open_want_is_late_and_only_for_what_is_not_live(deploy: Any) -> None:
    site = deployed(deploy)
    site.build("sales")
    want_id, _ = want(site, "sales", "report")
    want(site, "report", is_late=False)

    assert {asset: check.passed for asset, check in execute(site, "sales", "report").items()} == {
        "sales": True,
        "report": False,
    }
    site.engine.handle(CancelWants(ids=(want_id,)))
    assert execute(site, "report")["report"].passed


def test_many_late_refs_are_counted_and_the_first_are_named(deploy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sla_check, "MAX_NAMED", 2)
    monkeypatch.setattr(sla_check, "MAX_EXPLAINED", 1)

    @databuild_asset(partitions_def=dg.StaticPartitionsDefinition([*"abcde"]))
    def letters() -> pd.DataFrame:
        return pd.DataFrame({"n": [1]})

    site = deploy(letters, asset_checks=build_sla_checks(assets=[letters]))
    want(site, *(f"letters@{key}" for key in "abcde"))

    verdict = execute(site, "letters")["letters"]

    assert verdict.metadata["databuild/late"].value == 5
    first, second, more = lines(verdict)
    assert first.startswith("letters@a: late since ")
    assert "the next tick launches it" in first or "no orchestrator" in first
    assert second.startswith("letters@b: late since ")
    assert second.endswith("; never built")
    assert more == "3 more"


def test_checks_of_no_assets_are_refused() -> None:
    with pytest.raises(ValueError, match="build_sla_checks got no assets; name those that have deadlines"):
        build_sla_checks(assets=[])


def test_trouble_in_showing_does_not_stop_the_tick(
    deploy: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    site = deployed(deploy)
    monkeypatch.setattr(type(site.instance.event_log_storage), "get_latest_asset_check_execution_by_key", _broken)

    turn(site)

    assert "missed SLAs could not be shown in Dagster" in caplog.text


def _broken(*_: Any) -> Any:
    raise OSError("the disk is full")
