"""One session for all threads of a step, until it is lost."""

import threading
from types import SimpleNamespace
from typing import Any

from databuild_dagster.bindings.reading.frames import SparkUse


class Sessions:
    """A user's Spark resource, with the names of local sessions in place of sessions."""

    def __init__(self) -> None:
        self.opened: list[object] = []

    @property
    def spark_session(self) -> Any:
        if not self.opened or self.opened[-1] is None:
            self.opened.append(SimpleNamespace(sparkContext=SimpleNamespace(master="local[1]")))
        return self.opened[-1]

    def forget_session(self) -> None:
        self.opened.append(None)


def test_a_late_report_of_a_lost_session_does_not_close_the_new_one() -> None:
    """Two threads lose the same session; the faster one has opened another by the time the slower one says so."""
    sessions = Sessions()
    spark = SparkUse(sessions)
    slow_has_begun, fast_has_another = threading.Event(), threading.Event()
    seen: list[Any] = []

    def slow() -> None:
        with spark.interruptible():
            seen.append(spark.session)
            slow_has_begun.set()
            fast_has_another.wait(250)
            spark.forget_lost_session()

    thread = threading.Thread(target=slow)
    thread.start()
    slow_has_begun.wait(250)
    with spark.interruptible():
        seen.append(spark.session)
        spark.forget_lost_session()
        another = spark.session
    fast_has_another.set()
    thread.join(250)

    assert seen[0] is seen[1]
    assert another is not seen[0]
    assert spark.session is another
