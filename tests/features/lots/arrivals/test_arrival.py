"""Files from outside are a lot at once, or are refused and nothing is recorded (rule 10.6)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow.parquet as pq
import pytest

from databuild_dagster import databuild_asset, databuild_boundary
from databuild_dagster.bindings.registry.lot_partitions import NoLotKey
from databuild_dagster.features.lots.arrivals.arrival import Arrived, Arriver
from databuild_dagster.features.lots.arrivals.recording import (
    CannotRead,
    ColumnsDiffer,
    FilesAndEmpty,
    HasDataAlready,
    NoSuchFile,
    NoSuchLot,
    NotABoundary,
    NothingGiven,
    SaidWrong,
)
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.lots import InvalidLot
from tests.features.lots.arrivals.outside_files import OutsideFiles

LOT = "2024-01-29-05:00"
REF = f"clicks@{LOT}"

hourly = dg.HourlyPartitionsDefinition("2024-01-29-00:00", end_date="2024-01-30-00:00")


@databuild_asset(partitions_def=hourly)
def orders() -> pd.DataFrame:
    return pd.DataFrame({"n": [0.0]})


clicks = databuild_boundary("clicks", partitions_def=hourly)
prices = databuild_boundary("prices", partitions_def=dg.StaticPartitionsDefinition(["eu", "us"]))


class Landing(OutsideFiles):
    """Files that arrive by hand."""

    def arrive(self, *uris: str, lot: str = LOT, dataset: str = "clicks", **options: Any) -> Arrived:
        arriver = Arriver(self.engine, self.instance, self.datasets[dataset], self.warehouse)
        return arriver.arrive(lot, uris, **options)

    def refused(self, kind: type[DatabuildError], *uris: str, **options: Any) -> DatabuildError:
        return self.refusal(kind, self.arrive, *uris, **options)


@pytest.fixture
def landing(instance: dg.DagsterInstance, tmp_path: Path) -> Iterator[Landing]:
    declared = dg.AssetSpec("declared", partitions_def=hourly)
    landing = Landing(instance, tmp_path, orders, clicks, prices, declared)
    yield landing
    assert landing.check() == []


def test_a_lot_id_a_folder_and_a_pattern_mean_the_same(landing):
    """Rule 10.1."""
    landing.write("a.parquet", 1)

    landing.arrive(str(landing.folder), lot="20240129PT1H005")
    again = landing.arrive(f"{landing.folder}/*.parquet")

    assert landing.arrived() == [[REF]]
    assert again.recorded is None


@pytest.mark.parametrize("arrives_again", ["the file itself", "another file"])
def test_a_correction_that_keeps_size_and_footer_is_seen(landing, arrives_again):
    """Rule 10.6: the footer has the smallest and the largest value, and not the one between."""
    path = landing.write("a.parquet", 10, 20, 40)
    landing.arrive(path)
    before = pq.read_metadata(path)
    landing.write("a.parquet", 10, 30, 40)
    assert pq.read_metadata(path).equals(before)

    landing.arrive(path if arrives_again == "the file itself" else landing.write("b.parquet", 2))

    assert landing.numbers(REF) == ([10, 30, 40] if arrives_again == "the file itself" else [2])
    assert landing.n_instances(REF) == 2


def test_an_empty_lot_is_live_and_may_get_data_later(landing):
    """Rule 10.3."""
    landing.arrive(empty=True)
    again = landing.arrive(empty=True)
    manifest_state = landing.canonical(REF).manifest_state

    landing.arrive(landing.write("a.parquet", 1))

    assert (manifest_state, again.recorded) == ("empty", None)
    assert landing.numbers(REF) == [1]


def test_a_lot_with_data_becomes_empty_only_with_replace(landing):
    landing.arrive(landing.write("a.parquet", 1))

    refused = landing.refused(HasDataAlready, empty=True)
    landing.arrive(empty=True, replace_all=True)

    assert refused.message == f"{REF} has arrived with 1 file, so it is not empty."
    assert landing.numbers(REF) == []


def test_a_tainted_lot_takes_the_same_file_only_with_replace(landing):
    file = landing.write("a.parquet", 1)
    landing.arrive(file)
    landing.taint(REF)

    refused = landing.refused(SaidWrong, file, landing.write("b.parquet", 2))
    landing.arrive(file, replace_all=True)

    assert refused.message == f"{REF} is tainted, and {file} is among its files."
    assert landing.numbers(REF) == [1]


@pytest.mark.parametrize(
    ("where", "kind", "said"),
    [
        ({"lot": "2024-01-29-05:30"}, NoSuchLot, "'2024-01-29-05:30' is no lot of clicks: "),
        ({"lot": "2024-02-29-05:00"}, NoSuchLot, "its partitions end with 2024-01-29-23:00"),
        ({"lot": "20240129PT1H024"}, InvalidLot, "20240129PT1H024"),
        ({"lot": "20240129PT5M005"}, NoLotKey, "lots of PT1H"),
        ({"lot": "20240130PT1H000"}, NoSuchLot, "'20240130PT1H000' is no lot of clicks: "),
        ({"dataset": "orders"}, NotABoundary, "orders is built by its own function, so no lot of it can arrive."),
        ({"dataset": "declared"}, NotABoundary, "declared, and not as a boundary for files from outside"),
        ({"empty": True}, FilesAndEmpty, f"--empty is given for {REF}, and files are given, too."),
    ],
)
def test_a_lot_that_cannot_arrive_is_refused(landing, where, kind, said):
    refused = landing.refused(kind, landing.write("a.parquet", 1), **where)

    assert said in refused.message


def test_an_arrival_without_files_is_refused(landing):
    nothing = landing.refused(NothingGiven)
    unknown = landing.refused(NoSuchFile, f"{landing.folder}/nothing.parquet")

    assert nothing.message == f"No files are given for {REF}."
    assert unknown.message == f"There is no data file {landing.folder}/nothing.parquet."


def test_files_that_cannot_be_read_or_do_not_fit_are_refused(landing):
    file, other = landing.write("a.parquet", 1), landing.write("other.parquet", 1, m=[2])
    bad = landing.folder / "bad.parquet"
    bad.write_bytes(b"PAR1")

    unreadable = landing.refused(CannotRead, file, str(bad))
    unlike = landing.refused(ColumnsDiffer, file, other)

    assert (unreadable.facts["path"], unreadable.facts["ref"]) == (str(bad), REF)
    assert (unlike.facts["path"], unlike.facts["other"]) == (other, file)


def test_late_data_with_other_columns_is_refused(landing):
    file = landing.write("a.parquet", 1)
    landing.arrive(file)
    late = landing.write("b.parquet", 2, m=[3])

    refused = landing.refused(ColumnsDiffer, late, allow_schema_change=True)

    assert (refused.facts["path"], refused.facts["ref"], refused.facts["other"]) == (late, REF, file)
