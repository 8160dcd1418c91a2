"""The questions that say whether Spark and the warehouse are out of reach (rule 6.17)."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from databuild_dagster.bindings.reading import probes
from databuild_dagster.bindings.reading.probes import ask_spark, ask_warehouse
from databuild_dagster.spark.errors import NoSession, SparkRunsNoJob
from databuild_dagster.warehouse.layout import Warehouse


def asked(collect: Any, root: Any) -> tuple[type[Exception], bool]:
    """The error of a probe of a session on this machine, and whether the session was dropped."""
    dropped: list[bool] = []
    session = SimpleNamespace(
        range=lambda n: SimpleNamespace(collect=collect), sparkContext=SimpleNamespace(master="local[1]")
    )
    with pytest.raises(NoSession) as raised:
        ask_spark(lambda: session, lambda lost: dropped.append(True), Warehouse(str(root)))
    return raised.type, bool(dropped)


def test_a_session_that_is_busy_is_not_stopped(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of the same process may keep all its workers."""
    monkeypatch.setattr(probes, "PROBE_SECONDS", 0.01)
    done = threading.Event()

    assert asked(done.wait, tmp_path) == (SparkRunsNoJob, False)
    done.set()


def test_a_session_that_raises_is_dropped(tmp_path: Any) -> None:
    """The next question opens another session."""

    def collect() -> None:
        raise ConnectionError("the other end is gone")

    assert asked(collect, tmp_path)[1]


def test_a_store_that_allows_no_removal_answers() -> None:
    """The probe would hold launches back for ever, which need none."""

    def refuse(path: str) -> None:
        raise PermissionError(path)

    files: dict[str, bytes] = {}
    storage = SimpleNamespace(replace=files.__setitem__, read_bytes=files.__getitem__, remove_tree=refuse)

    ask_warehouse(SimpleNamespace(root="s3://bucket", storage=storage, check_usable=lambda: None))  # type: ignore[arg-type]

    assert list(files.values()) == [b"probe"]
