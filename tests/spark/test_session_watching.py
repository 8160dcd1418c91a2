"""The progress of a session while it works, and how others stop it."""

import json
import threading
from urllib.request import urlopen

import pytest

from databuild_dagster.spark.errors import SparkUnreachable
from databuild_dagster.spark.failures import explain_failure
from databuild_dagster.spark.interrupt import interrupt_orphans, session_address
from databuild_dagster.spark.server import server_statuses
from databuild_dagster.spark.session import abandon, open_session, spark_ui_url, tag_operations, watch_progress
from databuild_dagster.spark.settings import SparkSettings
from tests.support.endless import ENDLESS


class Work:
    """A long operation in a thread, known by its tag."""

    def __init__(self, spark, tag, on_progress):
        self.failures = []
        self._spark, self._tag, self._on_progress = spark, tag, on_progress
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        with (
            watch_progress(self._spark, self._on_progress, every_seconds=0.1),
            tag_operations(self._spark, self._tag),
        ):
            try:
                self._spark.sql(ENDLESS).collect()
            except Exception as error:
                self.failures.append(error)

    def end(self):
        self._thread.join(120)
        assert not self._thread.is_alive()


def test_progress_is_reported_by_tag_and_the_address_is_enough_to_stop_the_session(spark, home):
    answer, heard = [], threading.Event()

    def on_progress(tag, done, total):
        answer.append((tag, done, total))
        heard.set()

    work = Work(spark, "job-run-7", on_progress)
    assert heard.wait(120)

    stopped = interrupt_orphans(SparkSettings(home=home), session_address(spark))
    work.end()

    assert len(stopped) == 1
    assert "interrupted" in explain_failure(work.failures[0])
    assert {tag for tag, _, _ in answer} == {"job-run-7"}
    assert all(0 <= done <= total and total > 0 for _, done, total in answer)
    # The session goes on, and so does progress not: its listener has gone.
    assert spark.range(3).count() == 3


def test_the_ui_of_the_server_is_known_answers_here_and_can_be_turned_off(spark, home):
    url = spark_ui_url(spark)

    assert url is not None
    assert url.startswith("http://127.0.0.1:")
    assert url in {status.ui_url for status in server_statuses(home)}
    assert [item["name"] for item in json.load(urlopen(f"{url}/api/v1/applications", timeout=250))] == ["databuild"]


def test_an_unknown_session_is_stopped_quietly_and_an_unknown_server_is_unreachable(spark, home):
    unused = session_address(spark).rpartition("=")[0] + "=6c16e0d6-ed3c-484f-88c1-d7e7e9ce11f3"

    assert interrupt_orphans(SparkSettings(home=home), unused) == ()
    with pytest.raises(SparkUnreachable):
        interrupt_orphans(SparkSettings(home=home), "sc://localhost:1/;user_id=;session_id=x")


def test_a_session_that_was_given_up_is_not_handed_out_again(home):
    from pyspark.sql import SparkSession

    given_up = open_session(SparkSettings(home=home))

    abandon(given_up)

    assert SparkSession.getActiveSession() is not given_up
    assert open_session(SparkSettings(home=home)).range(3).count() == 3
