"""Copies of what an object store holds: bounded, but never taken away from who may be reading them."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from databuild_dagster.warehouse import local_copies
from databuild_dagster.warehouse.errors import InvalidCacheSize, ListedFileLost

HOUR = 3600


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DATABUILD_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def a_copy(url, *, size_bytes=100, used_hours_ago=0.0):
    path = Path(local_copies.copy_path(url))
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x" * size_bytes)
    used_at = time.time() - used_hours_ago * HOUR
    os.utime(path.parent, (used_at, used_at))
    return path


def test_the_cache_is_where_the_variable_says_else_where_caches_are(cache, monkeypatch):
    assert local_copies.cache_dir() == str(cache)

    monkeypatch.delenv("DATABUILD_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert local_copies.cache_dir() == "/somewhere/databuild_dagster"


def test_what_was_not_used_for_longest_goes_first_until_the_rest_fits(cache):
    old = a_copy("s3://b/a/data/instance=1/part", used_hours_ago=50)
    older = a_copy("s3://b/a/data/instance=2/part", used_hours_ago=60)
    oldest = a_copy("s3://b/c/data/instance=3/part", used_hours_ago=70)

    local_copies.prune(150, time.time())

    assert (old.exists(), older.exists(), oldest.exists()) == (True, False, False)


def test_a_copy_that_may_be_in_use_stays_under_any_bound(cache):
    read = a_copy("s3://b/a/data/instance=1/part", used_hours_ago=1)

    local_copies.prune(0, time.time())

    assert read.exists()


def test_all_copies_are_looked_at_once_an_hour_and_no_more_often(cache, monkeypatch):
    monkeypatch.setenv("DATABUILD_CACHE_MAX_GIB", "0")
    first = a_copy("s3://b/a/data/instance=1/part", used_hours_ago=50)
    local_copies.prune_sometimes()
    second = a_copy("s3://b/a/data/instance=2/part", used_hours_ago=50)
    local_copies.prune_sometimes()

    assert (first.exists(), second.exists()) == (False, True)

    an_hour_ago = time.time() - HOUR - 1
    os.utime(cache / ".pruned", (an_hour_ago, an_hour_ago))
    local_copies.prune_sometimes()
    assert not second.exists()


def test_two_that_fetch_one_copy_at_once_each_have_a_whole_one(cache):
    half_way = Barrier(2)

    def download(url, path):
        with open(path, "wb") as file:
            file.write(b"x" * 50)
            file.flush()
            half_way.wait(250)
            file.write(b"y" * 50)
        half_way.wait(250)

    with ThreadPoolExecutor(2) as threads:
        fetched = list(threads.map(lambda url: local_copies.fetch(url, 100, download), ["s3://b/a/data/i/part"] * 2))

    assert [Path(path).read_bytes() for path in fetched] == [b"x" * 50 + b"y" * 50] * 2
    assert [path.name for path in Path(fetched[0]).parent.iterdir()] == ["part"]


def test_what_arrives_with_another_size_is_no_copy(cache):
    with pytest.raises(ListedFileLost, match="it has 3 bytes instead of 100"):
        local_copies.fetch("s3://b/a/data/i/part", 100, lambda url, path: Path(path).write_bytes(b"cut"))

    assert list((cache / "instances").rglob("part*")) == []


@pytest.mark.parametrize("value", ["many", "-1", "nan", "inf"])
def test_what_is_no_size_is_refused(monkeypatch, value):
    monkeypatch.setenv("DATABUILD_CACHE_MAX_GIB", value)

    with pytest.raises(InvalidCacheSize, match=f"DATABUILD_CACHE_MAX_GIB is '{value}'"):
        local_copies.max_bytes()
