"""The versions beside which the package works, as a table: `make matrix` tries each row, and docs/how-to/versions.md shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: The Python of rows that name none, and of the server that clients of a remote Spark use.
PYTHON: Final = "3.11"


@dataclass(frozen=True, slots=True)
class Environment:
    """What pip installs: the plain distribution or the core alone, and the versions of the row."""

    requirements: tuple[str, ...]
    python: str = PYTHON
    #: The core without Spark, where the row brings a client of its own.
    is_core: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One environment and one way to Spark in it."""

    name: str
    environment: Environment
    mode: str
    #: Functions in Python run in workers of the same Python and a PySpark that can read them.
    runs_functions: bool = True
    #: CI tries it at each change; the others are for `make matrix`.
    in_ci: bool = False
    #: Whose Spark the server of a client is; the newest, which is this checkout's, where a row names none.
    server: Environment | None = None

    @property
    def needs_server(self) -> bool:
        """Whether it is a client of a Spark server that others run."""
        return self.mode == "remote"


def _with_pyspark(*requirements: str, python: str = PYTHON) -> Environment:
    """An environment of the plain distribution: Spark, dagster-pyspark and Dagster's web server."""
    return Environment(requirements, python)


#: The oldest of everything that goes together.
_OLDEST = _with_pyspark(
    "pyspark[connect]==3.5.*", "pandas==2.2.*", "pyarrow==18.*", "SQLAlchemy==2.0.40", "numpy<2", "setuptools<80"
)
_PYSPARK = {version: _with_pyspark(f"pyspark[connect]=={version}.*") for version in ("4.0", "4.1", "4.2", "4.3")}


#: The client that CI tries: small, and without any file of Spark's or dagster-pyspark's.
_IN_CI: Final = "pyspark-client==4.1.*"


def _client(requirement: str, python: str = PYTHON) -> Row:
    """A client without Spark. Its functions would need the Python of the server's workers."""
    distribution, _, version = requirement.partition("==")
    name = f"{distribution} {version.removesuffix('.*')}"
    return Row(
        name,
        Environment((requirement,), python, is_core=True),
        "remote",
        runs_functions=python == PYTHON,
        in_ci=requirement == _IN_CI,
    )


def _beside(name: str, *requirements: str, python: str = PYTHON) -> Row:
    return Row(name, _with_pyspark("pyspark[connect]==4.3.*", *requirements, python=python), "shared")


ROWS: Final = (
    Row("PySpark 3.5, classic", _OLDEST, "classic", in_ci=True),
    Row("PySpark 3.5, Connect", _OLDEST, "remote"),
    *(
        Row(f"PySpark {version}, {kind}", environment, mode)
        for version, environment in _PYSPARK.items()
        for kind, mode in (("classic", "classic"), ("Connect", "shared"))
    ),
    _client("pyspark-client==4.0.*"),
    _client("pyspark-client==4.1.*"),
    _client("pyspark-client==4.2.*"),
    _client("databricks-connect==15.4.*"),
    _client("databricks-connect==16.4.*", python="3.12"),
    _client("databricks-connect==17.3.*", python="3.12"),
    _client("databricks-connect==18.3.*", python="3.12"),
    Row("PySpark 4.3, Spark 4.0", _PYSPARK["4.3"], "remote", runs_functions=False, server=_PYSPARK["4.0"]),
    Row("Sail 0.7, PySpark 4.2", _with_pyspark("pyspark[connect]==4.2.*", "pysail==0.7.*"), "sail"),
    Row("Sail 0.7, pyspark-client 4.2", Environment(("pyspark-client==4.2.*", "pysail==0.7.*"), is_core=True), "sail"),
    _beside("Python 3.12", python="3.12"),
    _beside("Python 3.13", python="3.13"),
    _beside("pandas 3", "pandas==3.*"),
    _beside("SQLAlchemy 2.0", "SQLAlchemy==2.0.*"),
    _beside("pyarrow 24", "pyarrow==24.*"),
    _beside("pyarrow 25", "pyarrow==25.*"),
    _beside("pyarrow 26", "pyarrow==26.*"),
    _beside("Dagster 1.12.0", "dagster==1.12.0"),
    _beside("Dagster 1.12, newest", "dagster==1.12.*"),
    _beside("Dagster 1.13.0", "dagster==1.13.0"),
    _beside("Dagster 1.13, newest", "dagster==1.13.*"),
)
