"""The file with Spark's classes belongs to one Java and one PySpark, and no start fails by it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from databuild_dagster.spark.class_archive import archive_for, options_with
from databuild_dagster.spark.installed import JVM_OPTIONS, Java, find_java

JAVA = Java("/opt/java/bin/java", 17, 'openjdk version "17.0.15"')


@pytest.fixture(autouse=True)
def without_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(JVM_OPTIONS, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_each_java_and_each_pyspark_has_an_archive_of_its_own(tmp_path, monkeypatch):
    newer = Java(JAVA.executable, 17, 'openjdk version "17.0.16"')

    places = [archive_for(JAVA, "/spark", "4.3.0"), archive_for(newer, "/spark", "4.3.0")]
    places += [archive_for(JAVA, "/other", "4.3.0"), archive_for(JAVA, "/spark", "4.3.1")]
    monkeypatch.setenv(JVM_OPTIONS, "-XX:+UseSerialGC")
    places.append(archive_for(JAVA, "/spark", "4.3.0"))

    assert len(set(places)) == 5
    assert {place.parent for place in places} == {tmp_path / "databuild" / "classes"}


def test_options_with_an_archive_of_the_user_get_no_second_one(monkeypatch):
    monkeypatch.setenv(JVM_OPTIONS, "-XX:SharedArchiveFile=/mine.jsa")

    assert archive_for(JAVA, "/spark", "4.3.0") is None
    assert options_with(None, "-Xss4m") == "-Xss4m"


def test_only_an_archive_that_is_written_is_named(tmp_path):
    archive = tmp_path / "classes.jsa"
    assert options_with(archive, "-Xss4m") == "-Xss4m"

    # So says a Java that cannot write one.
    archive.touch()
    assert options_with(archive, "-Xss4m") == "-Xss4m"

    archive.write_bytes(b"classes")
    assert options_with(archive, "-Xss4m").startswith(f'-Xss4m "-XX:SharedArchiveFile={archive}"')


def test_java_starts_with_a_damaged_archive_as_without_one(tmp_path):
    archive, java, header = tmp_path / "classes.jsa", find_java().executable, 8192
    write = [java, f"-XX:ArchiveClassesAtExit={archive}", "--list-modules"]
    subprocess.run(write, capture_output=True, timeout=250, check=True)
    good = archive.read_bytes()
    archive.unlink()
    archive.write_bytes(good[:header] + bytes(byte ^ 0x55 for byte in good[header:]))
    # A JVM that logs what the archive holds reads it.
    options = [*options_with(archive, "").replace('"', "").split(), "-Xlog:cds"]

    done = subprocess.run([java, *options, "-version"], cwd=tmp_path, capture_output=True, timeout=250, check=False)

    assert done.returncode == 0
