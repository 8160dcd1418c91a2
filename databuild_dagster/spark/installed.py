"""Which PySpark is installed, and what it brings: Spark itself, Spark's Connect server, or a client alone."""

from __future__ import annotations

import os
import re
import sys
import warnings
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from databuild_dagster.spark.errors import NoSparkHere, PySparkMissing, PySparkTooOld, PySparkTwice, SailMissing

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
    #: Whether that Spark has a Connect server. PySpark's own has one since 4.0.
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

    A PySpark that came by PYTHONPATH, as the one of a SPARK_HOME, is no distribution and counts as `pyspark`.
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
