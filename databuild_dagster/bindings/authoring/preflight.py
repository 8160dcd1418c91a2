"""Checks of this machine before wants are recorded, while a person waits for the answer.

Without Java, or without a writable warehouse, a build would record job runs only to fail them, attempt after attempt.
"""

from collections.abc import Iterable, Mapping

from dagster import DagsterInstance

from databuild_dagster.bindings.adapter.keys import asset_text
from databuild_dagster.bindings.authoring.location import CodeLocation
from databuild_dagster.bindings.declare.asset_spec import AssetBody, body_of
from databuild_dagster.bindings.declare.settings import asset_settings
from databuild_dagster.bindings.reading.spark_resource import DatabuildSpark, open_ahead, open_now
from databuild_dagster.bindings.registry.instance import engine_for, warehouse_of
from databuild_dagster.data.ownership import Ownership
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.logs import logger
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.spark.errors import SparkRunsNoJob
from databuild_dagster.spark.reach import MAX_START_SECONDS, check_reach
from databuild_dagster.spark.session import check_startable
from databuild_dagster.warehouse.layout import Warehouse

#: A person waits for the answer. The step of the build waits longer, as a cluster may start its first workers for it.
MAX_FIRST_JOB_SECONDS = 8.0

_log = logger(__name__)


def prepare_machine(
    instance: DagsterInstance,
    locations: Iterable[CodeLocation],
    datasets: Iterable[DatasetSpec],
    refs: Iterable[Ref],
    *,
    rebuild: bool = False,
) -> None:
    """Check that this machine can build `refs` and their inputs, and open Spark while wants are recorded.

    `datasets` are the registered datasets of all locations. Nothing is checked when all refs are live, unless `rebuild`.
    Raises `JavaMissing`, `SailMissing`, `SparkUnreachable`, `WarehouseOutOfReach`, `ReadOnlyWarehouse`, `DiskFull`, `StorageTrouble`
    or `RootOfAnother`, and what the settings of features refuse.
    """
    states = engine_for(instance).queries.canonical.states(refs)
    wanted = {asset_of(ref) for ref, state in states.items() if rebuild or state is not InstanceState.LIVE}
    by_asset = {spec.asset: spec for spec in datasets}
    needed = _with_upstreams(by_asset, wanted)
    for asset in sorted(needed & by_asset.keys()):
        for setting in asset_settings().values():
            setting.check_ready(by_asset[asset], warehouse_of(instance))
    to_claim: list[Warehouse] = []
    to_open: list[tuple[DatabuildSpark, Warehouse]] = []
    for location in locations:
        if location.deployment is None or not (bodies := _bodies(location, needed)):
            continue
        warehouse = Warehouse(location.deployment.warehouse or warehouse_of(instance))
        if any(body.uses_spark for body in bodies) and isinstance(spark := location.deployment.spark, DatabuildSpark):
            check_startable(spark.settings_at(instance.root_directory))
            to_open.append((spark, warehouse))
        Ownership(engine_for(instance).store).check(warehouse)
        warehouse.check_usable()
        to_claim.append(warehouse)
    # A Spark elsewhere starts here, and writes into the warehouse: no location may be refused for its root after that.
    for spark, warehouse in to_open:
        if spark.settings_at(instance.root_directory).remote is not None:
            _check_reach(spark, instance, warehouse)
    # Last: a build that is refused leaves no mark of this store in a warehouse. Meanwhile another process may have left one.
    for warehouse in to_claim:
        Ownership(engine_for(instance).store).claim(warehouse)
    for spark, _ in to_open:
        open_ahead(spark, instance.root_directory)


def _check_reach(spark: DatabuildSpark, instance: DagsterInstance, warehouse: Warehouse) -> None:
    """Check that Spark sees the warehouse. A Spark that runs no job yet is left to the check of the step."""
    try:
        check_reach(open_now(spark, instance.root_directory), warehouse, start_seconds=MAX_FIRST_JOB_SECONDS)
    except SparkRunsNoJob as error:
        _log.warning(
            "databuild: %s The build waits up to %.0f s for its first job, and then checks that it sees %s.",
            error.message,
            MAX_START_SECONDS,
            warehouse.root,
        )


def _bodies(location: CodeLocation, needed: set[str]) -> list[AssetBody]:
    """The functions of a location's assets that are needed."""
    return [
        body
        for assets_def in location.repository.asset_graph.assets_defs
        if not needed.isdisjoint(asset_text(key) for key in assets_def.keys)
        and (body := body_of(assets_def)) is not None
    ]


def _with_upstreams(datasets: Mapping[str, DatasetSpec], assets: set[str]) -> set[str]:
    needed: set[str] = set()
    left = set(assets)
    while left:
        needed |= left
        left = {source.asset for asset in left if asset in datasets for source in datasets[asset].inputs} - needed
    return needed
