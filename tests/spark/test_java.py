"""Finding a Java, and saying so when there is none."""

import pytest

from databuild_dagster.spark import JavaMissing, find_java


def a_java(folder, version):
    executable = folder / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    executable.chmod(0o755)
    return folder


def test_java_home_comes_before_the_path(tmp_path):
    home, other = a_java(tmp_path / "home", "21.0.2"), a_java(tmp_path / "other", "17.0.1")

    java = find_java({"JAVA_HOME": str(home), "PATH": f"{other / 'bin'}:/bin:/usr/bin"})

    assert (java.home, java.version) == (str(home), 21)


def test_without_java_home_it_is_the_one_on_the_path(tmp_path):
    java = find_java({"PATH": str(a_java(tmp_path, "17.0.15") / "bin")})

    assert java.version == 17


def test_no_java_at_all_is_one_sentence_with_what_to_do(tmp_path):
    with pytest.raises(JavaMissing, match=r"needs Java 17 .*neither JAVA_HOME nor `java`.* Install one"):
        find_java({"PATH": str(tmp_path)})


@pytest.mark.parametrize(("version", "number"), [("1.8.0_392", 8), ("11.0.21", 11)])
def test_a_java_that_is_too_old_is_named_with_its_version(tmp_path, version, number):
    with pytest.raises(JavaMissing, match=f"bin/java is version {number}"):
        find_java({"JAVA_HOME": str(a_java(tmp_path, version))})


def test_a_java_home_that_points_nowhere_is_not_passed_over(tmp_path):
    with pytest.raises(JavaMissing, match=r"JAVA_HOME is .* where there is no bin/java"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin"})
