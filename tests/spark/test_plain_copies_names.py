"""A file is read by each Spark whatever its name is, or it is no data to any (rule 10.2)."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from databuild_dagster.spark.frames import read_arrow, read_instances
from databuild_dagster.spark.keyed import read_keyed
from databuild_dagster.spark.plain_copies import plain_names
from databuild_dagster.spark.reach import told_as
from databuild_dagster.spark.server import stop_server
from databuild_dagster.spark.session import active_in_thread, open_session
from databuild_dagster.spark.settings import SparkSettings
from databuild_dagster.warehouse import local_copies
from databuild_dagster.warehouse.errors import ListedFileLost
from databuild_dagster.warehouse.files import describe_each, find_files
from databuild_dagster.warehouse.layout import Warehouse
from tests.support.instances import landed_manifest

#: Names that an engine takes for a url, a pattern, a folder or another name, if they are given to it as they are.
NAMES = (
    *("10:15.parquet", ":a.parquet", "file:a.parquet", "2024-10-27T10:15:00.csv.parquet"),
    *("a[b].parquet", "a{b,c}.parquet", "a*b.parquet", "a?b.parquet", "a\\b.parquet", "f[1]/x:y.parquet"),
    *("a\nb.parquet", "a\tb.parquet", "a\x01b.parquet", "a\x7fb.parquet", "a\x85b.parquet"),
    *("a%41b.parquet", "a%.parquet", "a#b.parquet", "a b.parquet", "a.parquet ", "~.parquet", "a'\"`$&;|<>b.parquet"),
    *(
        "caf\u00e9.parquet",
        "cafe\u0301.parquet",
        "\u202eabc.parquet",
        "\ufeffa.parquet",
        "a\u00a0b.parquet",
        "a\u2028b.parquet",
    ),
    *("aAb.parquet", "ab.parquet", "a.parquet", "no suffix"),
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(local_copies.DIR_VARIABLE, str(tmp_path / "cache"))


@pytest.fixture
def landed(tmp_path):
    """An instance of each name, with the row of its place."""
    found = []
    for number, name in enumerate(NAMES):
        path = tmp_path / "landing" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"n": [number]}), str(path))
        (described,) = describe_each([(str(path), os.path.getsize(path))])
        manifest = landed_manifest([described], ref=f"flights@{number}")
        found.append(manifest)
    return found


def check_each_is_read(session, warehouse, landed, folder):
    """By itself, with the others, and with its key where files are linked and where they lie."""
    rows = [(number, str(number)) for number in range(len(NAMES))]
    keyed = {str(number): [manifest] for number, manifest in enumerate(landed)}

    assert sorted(row.n for row in read_instances(session, warehouse, landed).collect()) == [n for n, _ in rows]
    assert sorted(map(tuple, read_keyed(session, warehouse, keyed, folder).collect())) == rows
    assert sorted(map(tuple, read_keyed(session, warehouse, keyed, None).collect())) == rows
    assert read_arrow(warehouse, landed).column("n").to_pylist() == [n for n, _ in rows]


def test_spark_on_a_jvm_reads_each(spark, tmp_path, landed):
    check_each_is_read(spark, Warehouse(str(tmp_path / "warehouse")), landed, str(tmp_path / "links"))


@pytest.mark.long("Sail is a process of its own")
def test_sail_reads_each(tmp_path, landed):
    home = tmp_path / "home"
    home.mkdir()
    try:
        session = open_session(SparkSettings(mode="sail", home=home))
        with active_in_thread(session):
            check_each_is_read(session, Warehouse(str(tmp_path / "warehouse")), landed, str(tmp_path / "links"))
        session.stop()
    finally:
        stop_server(home)


def test_a_link_has_the_suffix_of_its_file_and_only_odd_names_get_one(tmp_path):
    odd, plain = tmp_path / "10:15.csv.gz", tmp_path / "a[b].csv.gz"
    odd.write_bytes(b"x")
    plain.write_bytes(b"y")

    link, left, url = plain_names([str(odd), str(plain), "s3://b/10:15.parquet"], escapes=True)
    (of_pattern,) = plain_names([str(plain)], escapes=False)

    assert (os.readlink(link), os.path.basename(link)) == (str(odd), "part-00000.csv.gz")
    assert (left, url) == (str(plain), "s3://b/10:15.parquet")
    assert (os.readlink(of_pattern), plain_names([str(odd)], escapes=True)) == (str(plain), [link])


def test_a_file_that_is_gone_is_named_and_not_its_link(tmp_path):
    path = str(tmp_path / "10:15.parquet")

    with pytest.raises(ListedFileLost, match=path):
        plain_names([path], escapes=True)


def test_links_go_like_copies_and_count_no_bytes_of_their_files(tmp_path):
    path = tmp_path / "10:15.parquet"
    path.write_bytes(bytes(100_000))
    (link,) = plain_names([str(path)], escapes=True)

    local_copies.prune(10_000, 2e9)
    is_there = os.path.lexists(link)
    path.unlink()
    local_copies.prune(0, 2e10)

    assert (is_there, os.path.lexists(link)) == (True, False)


@pytest.mark.parametrize("name", ["_a.parquet", ".a.parquet", "a.parquet._COPYING_"])
def test_a_name_whose_rows_spark_leaves_out_is_no_data(tmp_path, name):
    (tmp_path / name).write_bytes(b"PAR1")

    assert find_files(f"{tmp_path}/*") == []


@pytest.mark.parametrize(
    ("name", "told"), [("\u202ea", "\u202ea"), ("a\u00a0b", "a%C2%A0b"), ("\u0085", "%C2%85"), ("\u2028", "%E2%80%A8")]
)
def test_spark_tells_a_path_by_the_rules_of_java(name, told):
    assert told_as(f"/landing/{name}") == f"file:/landing/{told}"
