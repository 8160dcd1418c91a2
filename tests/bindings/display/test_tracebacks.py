"""What a failed job run raised, from the log of its Dagster run (decision 0071)."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pandas as pd
import pytest

from databuild_dagster import BuildContext, databuild_asset
from databuild_dagster.bindings.display import tracebacks
from databuild_dagster.bindings.display.tracebacks import Raised, raised_by, tracebacks_in

DAYS = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-01-05")


def amount_of(day: str) -> float:
    return 1 / (int(day[-1]) - 1)


@databuild_asset(partitions_def=DAYS)
def amounts(context: BuildContext) -> pd.DataFrame:
    if context.partition_key == "2013-01-04":
        raise ValueError("another error, " + "long " * 200)
    return pd.DataFrame({"amount": [amount_of(context.partition_key[:-1] + "1")]})


def raised(site: Any, ref: str) -> Raised:
    run = site.engine.queries.job_runs.get(site.engine.queries.canonical.of([ref])[ref].job_run)
    return raised_by(site.instance, run)


@pytest.fixture
def failed(deploy: Any) -> Any:
    """Four days that failed in a single run, three of them by the same error."""
    site = deploy(amounts)
    site.build(*(f"amounts@2013-01-0{day}" for day in range(1, 5)))
    return site


def test_the_frames_of_the_author_are_marked_also_of_a_ref_that_failed_as_another_did(failed: Any) -> None:
    found = [raised(failed, f"amounts@2013-01-0{day}") for day in range(1, 4)]

    for one in found:
        (traceback,) = one.tracebacks
        functions = [frame.function for frame in traceback.frames if frame.is_authors]
        assert functions == ["amounts", "amount_of"]
        assert traceback.frames[-1].code == "return 1 / (int(day[-1]) - 1)"
        assert {frame.file.split("/")[0] for frame in traceback.frames if not frame.is_authors} == {"databuild_dagster"}
        assert traceback.error == "ZeroDivisionError: division by zero"
        assert (one.step, one.note) == ("amounts", None)


def test_a_long_message_is_whole_and_of_its_own_ref(failed: Any) -> None:
    (traceback,) = raised(failed, "amounts@2013-01-04").tracebacks

    assert len(traceback.error) > 900


def test_no_frame_has_the_path_of_a_file_of_the_server(failed: Any) -> None:
    (traceback,) = raised(failed, "amounts@2013-01-01").tracebacks

    assert {frame.file for frame in traceback.frames if frame.is_authors} == {"display/test_tracebacks.py"}
    assert not any(frame.file.startswith("/") for frame in traceback.frames)


def test_a_run_that_dagster_deleted_is_said_to_be_deleted(failed: Any) -> None:
    id = raised(failed, "amounts@2013-01-01").dagster_run_id
    failed.instance.delete_run(id)

    found = raised(failed, "amounts@2013-01-01")

    assert found.tracebacks == []
    assert found.note is not None
    assert found.note.startswith("Dagster has deleted the run")


def test_the_error_of_the_step_is_shown_where_the_log_is_too_long(deploy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several refs, the step has the error of whichever failed first."""
    monkeypatch.setattr(tracebacks, "MAX_ENTRIES", 0)
    site = deploy(amounts)
    site.build("amounts@2013-01-01")

    (traceback,) = raised(site, "amounts@2013-01-01").tracebacks

    assert [frame.function for frame in traceback.frames if frame.is_authors] == ["amounts", "amount_of"]


CHAIN = """Traceback (most recent call last):
  File "/srv/app/shop/rows.py", line 3, in rows
    return table[name]
           ~~~~~^^^^^^
KeyError: 'a'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/opt/venv/lib/python3.12/site-packages/databuild_dagster/bindings/building/builds.py", line 1, in _call
    function()
  File "/opt/venv/lib/python3.12/site-packages/shop/assets.py", line 9, in sales
    raise Wrong from error
  File "/opt/venv/lib/python3.12/site-packages/pandas/core/frame.py", line 5, in get
  File "/usr/lib/python3.12/json/decoder.py", line 7, in decode
shop.Wrong: two
  indented lines
"""


def test_a_chain_has_every_exception_and_an_installed_project_is_the_authors() -> None:
    first, last = tracebacks_in(CHAIN)

    assert [(frame.file, frame.line, frame.code) for frame in first.frames] == [
        ("shop/rows.py", 3, "return table[name]")
    ]
    assert (first.error, last.error) == ("KeyError: 'a'", "shop.Wrong: two\n  indented lines")
    assert [(frame.file, frame.is_authors) for frame in last.frames] == [
        ("databuild_dagster/bindings/building/builds.py", False),
        ("shop/assets.py", True),
        ("pandas/core/frame.py", False),
        ("json/decoder.py", False),
    ]


GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "/srv/app/shop/rows.py", line 3, in rows
  |     raise ExceptionGroup("two", errors)
  | ExceptionGroup: two (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/srv/app/shop/rows.py", line 1, in first
    |     raise ValueError("x")
    | ValueError: x
    +------------------------------------
"""


def test_a_group_of_exceptions_has_the_traceback_of_each() -> None:
    group, member = tracebacks_in(GROUP)

    assert (group.error, member.error) == ("ExceptionGroup: two (1 sub-exception)", "ValueError: x")
    assert [frame.function for frame in (*group.frames, *member.frames)] == ["rows", "first"]


def test_a_text_that_is_no_traceback_has_none() -> None:
    assert tracebacks_in("Its files are kept in /warehouse/a.") == []


def test_a_database_of_dagster_in_trouble_is_a_note(failed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def in_trouble(*_: Any, **__: Any) -> Any:
        raise OSError("the disk is gone")

    monkeypatch.setattr(failed.instance, "get_records_for_run", in_trouble)

    found = raised(failed, "amounts@2013-01-01")

    assert found.note is not None
    assert "cannot be read now: OSError" in found.note
