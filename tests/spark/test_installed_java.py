"""Finding a Java, and saying so when there is none."""

import os
import subprocess
from pathlib import Path

import pytest
from pyspark.find_spark_home import _find_spark_home

from databuild_dagster.spark import installed as java_module
from databuild_dagster.spark.errors import JavaMissing, ServerFailed
from databuild_dagster.spark.installed import find_java
from databuild_dagster.spark.server import use_server
from databuild_dagster.spark.settings import SparkSettings
from tests.spark.stand_in import complaining_spark


def a_java(folder, version):
    executable = folder / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    executable.chmod(0o755)
    return folder


@pytest.fixture
def without_the_extra(monkeypatch):
    """As where only the package itself is installed."""
    monkeypatch.setattr(java_module, "find_spec", lambda name: None)


def test_java_home_comes_before_the_path(tmp_path):
    home, other = a_java(tmp_path / "home", "21.0.2"), a_java(tmp_path / "other", "17.0.1")

    java = find_java({"JAVA_HOME": str(home), "PATH": f"{other / 'bin'}:/bin:/usr/bin"})

    assert (java.home, java.version) == (str(home), 21)


def test_without_java_home_it_is_the_one_on_the_path(tmp_path):
    java = find_java({"PATH": str(a_java(tmp_path, "17.0.15") / "bin")})

    assert java.version == 17


@pytest.mark.usefixtures("without_the_extra")
def test_no_java_at_all_is_one_sentence_with_what_to_do(tmp_path):
    with pytest.raises(JavaMissing, match=r"needs Java 17 .*neither JAVA_HOME nor `java`.* Install one.*\[java\]"):
        find_java({"PATH": str(tmp_path)})


@pytest.mark.parametrize(("version", "number"), [("1.8.0_392", 8), ("11.0.21", 11)])
def test_a_java_that_is_too_old_is_named_with_its_version(tmp_path, version, number):
    with pytest.raises(JavaMissing, match=f"bin/java is version {number}"):
        find_java({"JAVA_HOME": str(a_java(tmp_path, version))})


def test_a_java_home_that_points_nowhere_is_not_passed_over(tmp_path):
    with pytest.raises(JavaMissing, match=r"JAVA_HOME is .* where there is no bin/java"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin"})


@pytest.mark.usefixtures("without_the_extra")
def test_a_java_on_the_path_that_is_too_old_is_named_where_there_is_no_other(tmp_path):
    with pytest.raises(JavaMissing, match="bin/java is version 11"):
        find_java({"PATH": f"{a_java(tmp_path, '11.0.21') / 'bin'}:/bin:/usr/bin"})


def test_the_extras_java_serves_where_the_path_has_none_or_one_too_old(tmp_path):
    nothing = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    too_old = nothing | {"PATH": f"{a_java(tmp_path / 'old', '11.0.21') / 'bin'}:/bin:/usr/bin"}

    found, again = find_java(nothing), find_java(too_old)

    assert found == again
    assert found.version == 21
    assert found.home.startswith(str(tmp_path / "cache"))


@pytest.mark.long("only Java says which modules it lacks")
def test_the_extras_java_starts_in_spite_of_the_module_it_lacks(tmp_path):
    """Spark's launcher names `jdk.incubator.vector` on every command line, and without the shim Java ends there."""
    java = find_java({"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)})
    command = ["--add-modules=jdk.incubator.vector", "-Dword=a b", "-XshowSettings:properties", "-version"]

    bare = subprocess.run(
        [java_module._java_of_the_extra(), *command], capture_output=True, text=True, timeout=240, check=False
    )
    shimmed = subprocess.run([java.executable, *command], capture_output=True, text=True, timeout=240, check=False)

    submit = [f"{_find_spark_home()}/bin/spark-submit", "--version"]
    spark = subprocess.run(
        submit, capture_output=True, text=True, env=os.environ | {"JAVA_HOME": java.home}, timeout=240, check=False
    )

    assert "Module jdk.incubator.vector not found" in bare.stdout + bare.stderr
    assert shimmed.returncode == 0
    assert "word = a b" in shimmed.stderr
    assert (spark.returncode, "OpenJDK 64-Bit Server VM, 21" in spark.stderr) == (0, True), spark.stderr


def test_a_server_is_started_with_the_java_of_the_extra_where_there_is_no_other(tmp_path, monkeypatch):
    """That a JVM of Spark starts with it is shown above."""
    monkeypatch.setenv("SPARK_HOME", complaining_spark(tmp_path / "spark", "Error: JAVA_HOME is '\"$JAVA_HOME\"'"))
    monkeypatch.setenv("PATH", str(a_path_without_java(tmp_path / "bin")))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    with pytest.raises(ServerFailed) as caught:
        use_server(SparkSettings(home=tmp_path / "home"))

    assert f"JAVA_HOME is {find_java().home}" in str(caught.value)
    assert find_java().home.startswith(str(tmp_path / "cache"))


def a_path_without_java(folder):
    """Everything of this machine's PATH but Java, as symlinks."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for executable in Path(place).iterdir() if Path(place).is_dir() else ():
            link = folder / executable.name
            if executable.name not in ("java", "javac") and not link.is_symlink():
                link.symlink_to(executable)
    return folder
