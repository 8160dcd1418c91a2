"""`validate`, `build_index` and `compact` as operations, over real partitions on real Spark (rule 9.8)."""

import logging
import os
from collections.abc import Callable, Iterator
from copy import copy
from typing import Any

import dagster as dg
import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession

from databuild_dagster import BuildContext, Completion, ValidateArg, databuild_asset, read
from databuild_dagster.constraints import NotNull, Range
from databuild_dagster.features.clean.cleaning import Cleaner
from databuild_dagster.features.clean.orphan_files import unlisted_storage
from databuild_dagster.features.operations.operation_context import OperationContext
from databuild_dagster.features.operations.operations import operation_resources
from databuild_dagster.features.operations.provided import Validate
from databuild_dagster.features.operations.provided import build_index as index_module
from databuild_dagster.features.operations.provided import compact as compact_module
from databuild_dagster.features.operations.spark.compacting import compact_instance
from databuild_dagster.features.operations.spark.indexing import file_figures
from databuild_dagster.model.commands import TaintPartitions
from databuild_dagster.model.operations.states import OperationState
from databuild_dagster.model.states import InstanceState
from databuild_dagster.warehouse.file_index import FileIndex, index_path, read_index
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Manifest, read_manifest
from tests.bindings.conftest import Site
from tests.bindings.module_site import module_site
from tests.support.checking import check
from tests.support.dagster_files import fresh_instance

from .running import Running

pytestmark = pytest.mark.long("only Spark evaluates rules and rewrites files")

KEYS = ["mon", "tue", "wed"]
DAYS = dg.StaticPartitionsDefinition(KEYS)
#: Files of each partition of `orders`, with two rows each.
FILES = 4
ALL = [f"orders@{key}" for key in KEYS]

#: Rows of a partition without a `who`, by day; a test may change it and build again.
WITHOUT: dict[str, int] = {}


@databuild_asset(partitions_def=DAYS)
def orders(context: BuildContext) -> DataFrame:
    first = 10 * KEYS.index(context.partition_key)
    who = f"if(id < {first + WITHOUT[context.partition_key]}, null, 'x')"
    spark: SparkSession = context.spark
    return spark.range(first, first + 2 * FILES, 1, FILES).selectExpr("id AS n", f"{who} AS who")


@databuild_asset(partitions_def=DAYS)
def report(orders: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"rows": [len(orders)]})


@databuild_asset(partitions_def=DAYS)
def grown(context: BuildContext) -> pd.DataFrame:
    """Has a column more since tue."""
    rows = pd.DataFrame({"n": [1, 2]})
    return rows if context.partition_key == "mon" else rows.assign(extra=["x", None])


ASSETS = (orders, report, grown)


@pytest.fixture(scope="module")
def given_site(spark_home: str) -> Iterator[Site]:
    """Where the orders and what has grown are live; no test changes that."""
    WITHOUT.update(mon=0, tue=2, wed=1)
    with module_site(spark_home, *ASSETS) as site:
        site.build(*ALL, "grown@mon")
        site.build("grown@tue", "grown@wed")
        yield site


@pytest.fixture
def instance(given_site: Site) -> Iterator[dg.DagsterInstance]:
    with fresh_instance(given_site.instance.root_directory) as instance:
        yield instance


@pytest.fixture
def site(deploy: Callable[..., Site]) -> Site:
    """A copy, for what changes the orders."""
    WITHOUT.update(mon=0, tue=2, wed=1)
    return deploy(*ASSETS)


class Killed(BaseException):
    """A process dies here."""


def warehouse_of(site: Site) -> Warehouse:
    return operation_resources(site.instance, site.deployment).warehouse


def uuid_of(site: Site, ref: str) -> str:
    uuid = site.engine.queries.canonical.of([ref])[ref].uuid
    assert uuid is not None
    return uuid


def manifest_of(site: Site, ref: str) -> Manifest:
    return read_manifest(warehouse_of(site), ref.partition("@")[0], uuid_of(site, ref))


def rows_of(site: Site, ref: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in site.rows(ref))


def taint(site: Site, ref: str) -> None:
    site.engine.handle(TaintPartitions(refs=(ref,), reason="wrong"))


def rebuild(site: Site, ref: str) -> None:
    taint(site, ref)
    site.build(ref)


def remove_what_is_superseded(site: Site) -> None:
    cleaner = Cleaner(site.engine, warehouse_of(site).root)
    done = cleaner.carry_out(cleaner.plan_gc(keep=0, older_than_seconds=0.0))
    assert done.going
    assert done.failed == []


def left_over(site: Site) -> list[Any]:
    """The findings of `log check` and `gc --leftovers`: rules, unlisted storage, and files that a clean-up would remove."""
    warehouse = warehouse_of(site)
    # As on the next day: young files may belong to a running process.
    tomorrow = site.engine.clock() + 86_400
    plan = Cleaner(site.engine, warehouse.root).plan_clean()
    return [
        *check(site.engine.store, deep=True),
        *unlisted_storage(site.engine.queries, warehouse, tomorrow),
        *plan.going,
        *plan.leftovers,
    ]


# validate


def validate(site: Site, *, taint: bool = False) -> Running:
    rules = (NotNull("who"), Range("n", low=0, high=26))
    return Running(site, "validate", ValidateArg(constraints=rules, taint=taint))


def test_offending_rows_are_counted_and_shown_by_rule_and_partition(given_site: Site) -> None:
    """Rule 9.8, 15: rules from code; those of the other tests are JSON"""
    view = validate(given_site).end()

    assert (view.state, view.done) == (OperationState.FAILED, 1)
    assert {key: detail["error"] for key, detail in view.failed.items()} == {
        "tue": "it has rows that offend: who is not null (2)",
        "wed": "it has rows that offend: who is not null (1), 0 <= n <= 26 (1)",
    }
    found = view.report
    assert found["failed"] == [], "all were checked"
    assert (found["ok"], found["partitions"], found["rows"], found["offending_partitions"]) == (False, 3, 24, 2)
    assert (found["outdated"], "tainted" in found) == ([], False)
    nulls, range_ = found["rules"]
    assert (nulls["rule"], nulls["offending"], nulls["n_partitions"]) == ("who is not null", 3, 2)
    assert [(partition["ref"], partition["uuid"], partition["offending"]) for partition in nulls["partitions"]] == [
        ("orders@tue", uuid_of(given_site, "orders@tue"), 2),
        ("orders@wed", uuid_of(given_site, "orders@wed"), 1),
    ]
    assert [row["n"] for row in nulls["samples"]] == [10, 11, 20]
    assert nulls["partitions"][0]["samples"] == [{"n": 10, "who": None}, {"n": 11, "who": None}]
    assert (range_["rule"], range_["offending"]) == ("0 <= n <= 26", 1)
    assert [partition["ref"] for partition in range_["partitions"]] == ["orders@wed"]
    assert [given_site.state(ref) for ref in ALL] == [InstanceState.LIVE] * 3
    assert left_over(given_site) == []


def test_the_report_is_the_same_however_the_partitions_are_batched(given_site: Site) -> None:
    """Rules 9.5, 9.8: who is killed changes the batches. A column that a partition lacks is null there."""
    arg = {"constraints": [{"rule": "not_null", "column": "extra"}, {"rule": "expression", "sql": "extra = 'y'"}]}
    reports = []
    for most in (1, 2, 100):
        running = Running(given_site, "validate", arg, "grown")
        running.run_jobs(most)
        reports.append(running.complete().report)

    assert reports[0] == reports[1] == reports[2]
    nulls, expression = reports[0]["rules"]
    assert [(partition["ref"], partition["offending"]) for partition in nulls["partitions"]] == [
        ("grown@mon", 2),
        ("grown@tue", 1),
        ("grown@wed", 1),
    ]
    assert nulls["samples"][0] == {"n": 1, "extra": None}
    assert expression["offending"] == 2


def test_a_partition_that_was_rebuilt_meanwhile_is_said_to_be_and_is_not_tainted(site: Site) -> None:
    """Rule 9.8: what was found is of the instance before"""
    running = validate(site, taint=True)
    before = uuid_of(site, "orders@tue")
    running.run_jobs()
    WITHOUT["tue"] = 0
    rebuild(site, "orders@tue")

    view = running.complete()

    assert view.report["outdated"] == ["orders@tue"]
    assert view.report["tainted"] == ["orders@wed"]
    assert view.report["rules"][0]["partitions"][0]["uuid"] == before
    assert site.state("orders@tue") is InstanceState.LIVE


def test_the_offending_partitions_are_tainted_once_though_the_completion_runs_twice(site: Site) -> None:
    """Rules 7.1, 9.6, 9.8"""
    running = validate(site, taint=True)
    running.run_jobs()
    completion = running.manager.read(running.id).completion()._replace(resources=running.resources)
    arg = running.manager.arg_for(running.id, running.manager.meta.get(running.id.arg).value or b"")

    first = Validate().complete_operation(arg, "orders", completion)
    seq = site.engine.queries.events.head().seq
    second = Validate().complete_operation(arg, "orders", completion)

    assert site.engine.queries.events.head().seq == seq
    assert first == second == running.complete().report
    assert first["tainted"] == ["orders@tue", "orders@wed"]
    assert [site.state(ref) for ref in ALL] == [InstanceState.LIVE, InstanceState.TAINTED, InstanceState.TAINTED]
    (taint,) = site.engine.queries.instances.taints_of(uuid_of(site, "orders@tue"))
    assert taint.reason == f"{running.id} found rows that offend: who is not null (2), 0 <= n <= 26 (1)"
    assert taint.actor == str(running.id)


def test_the_instances_of_a_running_operation_stay_until_it_has_ended(site: Site) -> None:
    """Rules 9.2, 10.8: its partitions are fixed as it starts, with the instances that they have then."""
    running = validate(site)
    before = uuid_of(site, "orders@tue")
    rebuild(site, "orders@tue")
    kept = Cleaner(site.engine, warehouse_of(site).root).plan_gc(keep=0, older_than_seconds=0.0).kept

    view = running.end()

    assert {instance.uuid: instance.why for instance in kept}[before] == "a running operation works on it"
    assert (view.done + len(view.failed), view.report["partitions"]) == (3, 3)
    remove_what_is_superseded(site)


def test_data_that_gc_has_removed_is_skipped_and_named(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules 9.5, 10.8: removed when the operation had looked at what is live, and was not recorded yet."""
    asked = Validate.argument_to_keep

    def removed_meanwhile(self: Validate, *arguments: Any) -> Any:
        rebuild(site, "orders@tue")
        remove_what_is_superseded(site)
        return asked(self, *arguments)

    monkeypatch.setattr(Validate, "argument_to_keep", removed_meanwhile)

    view = validate(site).end()

    assert (view.state, view.done, list(view.failed)) == (OperationState.FAILED, 2, ["wed"])
    assert "its data was removed since, by `databuild gc`" in view.report["skipped"]["tue"]
    assert (view.report["partitions"], view.report["rules"][0]["offending"]) == (2, 1)


def test_a_rule_that_cannot_be_asked_of_a_row_is_that_partitions_failure(given_site: Site) -> None:
    """Rule 9.5"""
    rules = [{"rule": "expression", "sql": "assert_true(n <> 10) IS NULL"}]

    view = Running(given_site, "validate", {"constraints": rules}).end()

    assert (view.state, view.done, list(view.failed)) == (OperationState.FAILED, 2, ["tue"])
    assert view.report["partitions"] == 2
    assert "is not true" in view.failed["tue"]["error"]
    assert "org.apache" not in view.failed["tue"]["error"], "no stack of Java"
    assert (view.report["ok"], view.report["failed"]) == (False, ["tue"])


class ThenIndexed(Validate):
    """Starts an index of what is right."""

    type_name = "then_indexed"

    def complete_operation(self, arg: ValidateArg, dataset: str, completion: Completion) -> Any:
        if completion.success:
            completion.start("build_index", dataset, {"columns": ["n"]})
        return super().complete_operation(arg, dataset, completion)


def test_what_follows_a_success_does_not_start_where_rows_offend(deploy: Callable[..., Site]) -> None:
    """Rules 9.6, 9.8"""
    WITHOUT.update(mon=0, tue=2)
    site = deploy(*ASSETS, operations=[ThenIndexed()])
    site.build("orders@mon", "orders@tue")
    rules = {"constraints": [{"rule": "not_null", "column": "who"}]}

    wrong, right = [Running(site, "then_indexed", rules, "orders", [key]).end() for key in ("tue", "mon")]

    assert [follow_up.type for follow_up in right.follow_ups] == ["build_index"]
    assert (wrong.state, wrong.follow_ups) == (OperationState.FAILED, ())


# build_index


def build_index(site: Site, *columns: str) -> Running:
    return Running(site, "build_index", {"columns": columns})


def test_after_an_index_a_read_with_a_filter_reads_fewer_files_and_the_same_rows(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """Rule 9.8"""
    before = rows_of(site, "orders@tue")

    view = build_index(site).end()

    assert (view.state, view.report["ok"]) == (OperationState.SUCCESS, True)
    assert (view.report["files"], view.report["columns"]) == (3 * FILES, ["n", "who"])
    with caplog.at_level(logging.INFO):
        found = read("orders@tue", where="n = 13", format="pandas", instance=site.instance)
    assert found["n"].tolist() == [13]
    assert f"1 of {FILES} files are read where n = 13" in caplog.text
    assert rows_of(site, "orders@tue") == before
    session = operation_resources(site.instance, site.deployment).spark
    frame = read("orders@tue", where="n > 13 OR who IS NULL", instance=site.instance, spark=session)
    assert sorted(row["n"] for row in frame.collect()) == [10, 11, 14, 15, 16, 17]


def test_an_index_lies_beside_its_manifest_and_belongs_there(site: Site) -> None:
    """Rule 10.8"""
    build_index(site, "n").end()

    for ref in ALL:
        manifest = manifest_of(site, ref)
        index = read_index(warehouse_of(site), "orders", manifest.instance_uuid)
        assert index is not None
        assert list(index.files) == [file.uri for file in manifest.files]
        assert index.types == {"n": "long"}
    assert left_over(site) == []

    build_index(site, "who").end()

    index = read_index(warehouse_of(site), "orders", uuid_of(site, "orders@mon"))
    assert index is not None
    assert sorted(index.types) == ["n", "who"], "another column's index is kept"
    assert all(sorted(file.columns) == ["n", "who"] for file in index.files.values())

    gone = uuid_of(site, "orders@tue")
    rebuild(site, "orders@tue")
    remove_what_is_superseded(site)
    assert not os.path.exists(index_path(warehouse_of(site), "orders", gone))
    assert left_over(site) == []


def test_files_that_were_looked_at_are_not_looked_at_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 9.5: the executor is lost half-way, and another goes on from what it has saved"""
    looked_at: list[str] = []
    killed: list[bool] = []

    def figures(spark: Any, warehouse: Any, parts: Any, types: Any) -> dict[str, dict[str, FileIndex]]:
        if len(looked_at) == 5 and not killed:
            killed.append(True)
            raise Killed
        looked_at.extend(file.uri for part in parts for file in part.files)
        return file_figures(spark, warehouse, parts, types)

    monkeypatch.setattr(index_module, "FILES_AT_ONCE", 5)
    monkeypatch.setattr(index_module, "file_figures", figures)
    running = build_index(site)
    with pytest.raises(Killed):
        running.run_jobs()

    assert len(looked_at) == 5
    view = running.end()

    assert (view.state, view.report["files"]) == (OperationState.SUCCESS, 3 * FILES)
    assert len(looked_at) == len(set(looked_at)) == 3 * FILES
    for ref in ALL:
        index = read_index(warehouse_of(site), "orders", uuid_of(site, ref))
        assert index is not None
        assert len(index.files) == FILES


def test_it_ends_although_data_is_gone(site: Site) -> None:
    """Rule 9.4: it cannot fail, and must not be tried without end"""
    running = build_index(site)
    warehouse_of(site).remove_instance("orders", uuid_of(site, "orders@tue"))

    view = running.end()

    assert (view.state, view.done, view.failed) == (OperationState.SUCCESS, 3, {})
    assert view.report["files"] == 2 * FILES
    assert (view.report["partitions"], view.report["n_skipped"]) == (2, 1)
    assert [(key, "orders@tue" in why) for key, why in view.report["skipped"].items()] == [("tue", True)]


# compact


def compact(site: Site) -> Running:
    return Running(site, "compact", {})


def test_many_files_become_one_with_the_same_rows(site: Site) -> None:
    """Rule 9.8"""
    site.build("report@tue")
    before = {ref: (rows_of(site, ref), uuid_of(site, ref)) for ref in ALL}

    view = compact(site).end()

    assert view.state is OperationState.SUCCESS
    assert view.report == {
        "ok": True,
        "partitions": 3,
        "compacted": 3,
        "files_before": 3 * FILES,
        "files_after": 3,
        "moved": [],
        "skipped": {},
    }
    for ref, (rows, uuid) in before.items():
        assert (rows_of(site, ref), site.state(ref)) == (rows, InstanceState.LIVE)
        assert uuid_of(site, ref) != uuid
        assert len(manifest_of(site, ref).files) == 1
    report = uuid_of(site, "report@tue")
    assert site.engine.queries.instances.stale([report]) == set()
    assert {instance.uuid for instance in site.engine.queries.instances.lineage(report)} == {
        report,
        before["orders@tue"][1],
    }
    assert left_over(site) == []
    uuids = [uuid_of(site, ref) for ref in ALL]

    again = compact(site).end().report

    assert (again["compacted"], again["files_before"], again["files_after"]) == (0, 3, 3), "what is compacted stays"
    assert [uuid_of(site, ref) for ref in ALL] == uuids


def test_a_partition_that_is_rebuilt_meanwhile_keeps_its_instance_and_no_file_stays(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 9.8: the pointer is swung only if the canonical has not moved"""
    running = compact(site)

    def while_another_builds(spark: Any, warehouse: Any, manifest: Manifest, folder: str, **options: Any) -> Manifest:
        written = compact_instance(spark, warehouse, manifest, folder, **options)
        if manifest.ref == "orders@tue":
            rebuild(site, "orders@tue")
        return written

    monkeypatch.setattr(compact_module, "compact_instance", while_another_builds)

    view = running.end()

    assert (view.state, view.report["moved"], view.report["compacted"]) == (OperationState.SUCCESS, ["tue"], 2)
    assert site.state("orders@tue") is InstanceState.LIVE
    assert len(manifest_of(site, "orders@tue").files) == FILES
    assert left_over(site) == []


def test_killed_between_the_event_and_the_mark_it_is_counted_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 9.5"""

    def killed(*arguments: Any) -> None:
        monkeypatch.undo()
        raise Killed

    running = compact(site)
    monkeypatch.setattr(compact_module, "_complete", killed)
    with pytest.raises(Killed):
        running.run_jobs()
    uuids = {uuid_of(site, ref) for ref in ALL}

    view = running.end()

    assert (view.report["compacted"], view.report["files_before"], view.report["files_after"]) == (3, 3 * FILES, 3)
    assert len(uuids & {uuid_of(site, ref) for ref in ALL}) == 3 - 2, "the one that was swung, and not again"
    assert left_over(site) == []


def test_canceled_after_it_was_written_nothing_of_it_is_left(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 9.7"""
    running = compact(site)

    def canceled(spark: Any, warehouse: Any, manifest: Manifest, folder: str, **options: Any) -> Manifest:
        written = compact_instance(spark, warehouse, manifest, folder, **options)
        running.manager.cancel(running.id)
        return written

    monkeypatch.setattr(compact_module, "compact_instance", canceled)
    before = [uuid_of(site, ref) for ref in ALL]

    running.run_jobs()

    assert running.complete().state is OperationState.CANCELED
    assert [uuid_of(site, ref) for ref in ALL] == before
    assert left_over(site) == []


def test_an_executor_that_was_thought_dead_swings_nothing_any_more(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 9.5: suspended after its last look at its lease, it wakes when its files were cleaned away"""
    running = compact(site)
    asleep: list[OperationContext] = []
    real = compact_module.Compact._swing

    def late(self: Any, manifest: Manifest, fact: Any, job: OperationContext) -> Any:
        if not asleep:
            asleep.append(job)
            running.manager.cancel(running.id)
            cleaner = copy(job)
            cleaner.is_stopped = True
            self.cancel_job_and_cleanup(None, job.ref, cleaner)
        return real(self, manifest, fact, job)

    monkeypatch.setattr(compact_module.Compact, "_swing", late)
    before = {ref: (rows_of(site, ref), uuid_of(site, ref)) for ref in ALL}

    running.run_jobs()

    assert len(asleep) == 1
    assert {ref: (rows_of(site, ref), uuid_of(site, ref)) for ref in ALL} == before
    assert left_over(site) == []
