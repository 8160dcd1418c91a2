"""Equal rows have one recorded hash, whichever kind of call built them (rule 4.8)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest

from databuild_dagster import (
    BuildContext,
    ByFile,
    Transient,
    databuild_asset,
    databuild_boundary,
    databuild_multi_asset,
)
from databuild_dagster.bindings.registry.instance import warehouse_of
from databuild_dagster.features.compare.content_hash import hash_of
from databuild_dagster.model.commands import LoseLaunches
from databuild_dagster.model.refs import derive_partition_uuid
from databuild_dagster.model.states import InstanceState
from databuild_dagster.warehouse.layout import Warehouse
from tests.bindings.conftest import Site, claim
from tests.support.dead_process import dead_process
from tests.support.instances import write_instance

daily = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-01-05")
DAY = "2013-01-01"
DAYS = daily.get_partition_keys()
ROWS = pd.DataFrame({"n": range(40)})
HASH = str(hash_of(pa.Table.from_pandas(ROWS).to_batches()))


@databuild_asset(partitions_def=daily, same_data="keep", code_version="7")
def alone() -> pd.DataFrame:
    return ROWS


@databuild_asset(partitions_def=daily, batched=True, same_data="keep")
def halved(context: BuildContext) -> pd.DataFrame:
    """Built only when its batch is halved to single days."""
    if len(context.partition_keys) > 1:
        raise Transient("too much at once")
    return ROWS.assign(partition_key=context.partition_keys[0])


@databuild_multi_asset(
    outs={name: dg.AssetSpec(name) for name in ("left", "right")}, partitions_def=daily, same_data="keep"
)
def both() -> dict[str, pd.DataFrame]:
    return {"left": ROWS, "right": ROWS[::-1]}


def hashes(site: Site, *refs: str) -> set[str | None]:
    uuids = [known.uuid or "" for known in site.engine.queries.canonical.of(list(refs)).values()]
    found = site.engine.queries.instances.content_hashes(uuids)
    return {found.get(uuid) for uuid in uuids}


def build_after_backoffs(site: Site, refs: list[str]) -> None:
    clock = site.engine.clock
    site.build(*refs)
    for hour in range(1, 6):
        site.engine.clock = lambda hour=hour: clock() + 3600 * hour  # type: ignore[misc]
        site.build()
    assert set(site.engine.queries.canonical.states(refs).values()) == {InstanceState.LIVE}


def test_a_batch_its_halves_and_several_outputs_record_the_hash_of_their_rows(deploy: Any) -> None:
    site: Site = deploy(alone, halved, both)
    refs = [*(f"{asset}@{DAY}" for asset in ("alone", "left", "right")), *(f"halved@{day}" for day in DAYS)]

    build_after_backoffs(site, refs)

    assert hashes(site, *refs) == {HASH}


@pytest.mark.feature("lots")
def test_a_lot_in_parts_records_the_hash_of_all_its_rows_and_a_boundary_none(deploy: Any, tmp_path: Path) -> None:
    from databuild_dagster.features.lots.arrivals.arrival import Arriver

    landed = databuild_boundary("landed", partitions_def=daily)

    @databuild_asset(partitions_def=daily, parts=ByFile("landed", parts=2), same_data="keep")
    def in_parts(landed: pd.DataFrame) -> pd.DataFrame:
        return landed

    site: Site = deploy(landed, in_parts)
    for half in (0, 20):
        ROWS[half : half + 20].to_parquet(tmp_path / f"{half}.parquet", index=False)
    dataset = site.engine.queries.datasets.known("landed")
    warehouse = Warehouse(warehouse_of(site.instance))
    Arriver(site.engine, site.instance, dataset, warehouse).arrive(DAY, [str(tmp_path)])

    site.build(f"in_parts@{DAY}")

    assert hashes(site, f"in_parts@{DAY}") == {HASH}
    assert hashes(site, f"landed@{DAY}") == {None}


@pytest.mark.parametrize(("is_lost", "expected"), [(True, HASH), (False, None)], ids=["by a retry", "by a tick"])
def test_files_of_a_dead_process_have_a_hash_if_a_retry_adopts_them(
    deploy: Any, is_lost: bool, expected: str | None
) -> None:
    """A tick reads no rows."""
    site: Site = deploy(alone)
    ref = f"alone@{DAY}"
    (job_run,) = claim(site.engine, ref, holder=dead_process(), code_version="7")
    uuid = derive_partition_uuid(job_run, ref)
    write_instance(ROWS, Warehouse(warehouse_of(site.instance)), ref=ref, uuid=uuid, job_run=job_run)
    if is_lost:
        launches = tuple(launch.launch_id for launch in site.engine.queries.launches.open())
        site.engine.handle(LoseLaunches(launch_ids=launches, reason="its process is gone"))
        site.engine.clock = lambda: time.time() + 3600.0

    site.build()

    assert site.state(ref) is InstanceState.LIVE
    assert len(site.engine.queries.instances.history(ref)) == 1 + is_lost
    assert hashes(site, ref) == {expected}
