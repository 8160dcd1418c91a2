"""A failure is believed to be of its surroundings only if these do not answer (rule 6.17)."""

from types import SimpleNamespace
from typing import Any

import pytest

from databuild_dagster.bindings.building.owners import KEPT_SECONDS, Owners
from databuild_dagster.model.surroundings import Surrounding
from databuild_dagster.spark.errors import BadSetting, ServerFailed
from databuild_dagster.store.errors import StoreSilent
from databuild_dagster.warehouse.errors import StorageTrouble
from databuild_dagster.warehouse.layout import Warehouse

TROUBLE = StorageTrouble(path="s3://away/x", done="read", why="it does not answer")


class Lost(Exception):
    """As PySpark raises, in whose module it is."""

    __module__ = "pyspark.errors"


def owners(root: str, *, session: Any = None, clock: Any = lambda: 0.0) -> Owners:
    """The owners of a step whose Spark is a resource without one."""
    resource = SimpleNamespace(spark_session=session)
    return Owners(resource, Warehouse(root), clock)


def test_trouble_with_a_warehouse_that_answers_is_of_the_partition(tmp_path) -> None:
    assert owners(str(tmp_path)).of(TROUBLE) is None
    assert not list(tmp_path.glob(".probe*"))


def test_trouble_with_a_warehouse_that_cannot_be_written_is_of_the_warehouse(tmp_path) -> None:
    (tmp_path / "root").write_text("a file in its place")

    found = owners(str(tmp_path / "root")).of(TROUBLE)

    assert found is not None
    assert found.owner is Surrounding.WAREHOUSE
    assert ".probe" not in found.why


def test_an_answer_counts_for_the_failures_of_the_moment(tmp_path) -> None:
    """Many job runs fail at once."""
    (root := tmp_path / "root").write_text("a file in its place")
    now = [0.0]
    asked = owners(str(root), clock=lambda: now[0])
    assert asked.of(TROUBLE)
    root.unlink()

    assert asked.of(TROUBLE)
    now[0] = KEPT_SECONDS + 1
    assert asked.of(TROUBLE) is None


def test_a_lost_session_is_of_spark_if_no_other_answers(tmp_path) -> None:
    found = owners(str(tmp_path)).of(Lost("UNAVAILABLE: Connection refused"))

    assert found is not None
    assert found.owner is Surrounding.SPARK


@pytest.mark.parametrize(
    ("error", "owner"),
    [
        (ServerFailed(why="it ended", log="server.log"), Surrounding.SPARK),
        (StoreSilent(url="postgresql://away", why="no answer"), Surrounding.STATE),
        (BadSetting(what="a setting", why="it is none"), None),
        (ConnectionError("of the author's own service"), None),
        (Lost("UNRESOLVED_COLUMN: no such column"), None),
    ],
)
def test_the_type_of_an_error_decides_what_is_asked(tmp_path, error, owner) -> None:
    found = owners(str(tmp_path)).of(error)

    assert (None if found is None else found.owner) is owner
