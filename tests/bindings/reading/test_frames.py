"""One session for all threads of a step, until it is lost."""

import threading
from pathlib import Path
from typing import Any

import dagster as dg

from databuild_dagster.bindings.reading.frames import Frames


class Sessions:
    """A Spark resource of somebody's own, whose sessions are only told apart here."""

    def __init__(self) -> None:
        self.opened: list[object] = []

    @property
    def spark_session(self) -> Any:
        if not self.opened or self.opened[-1] is None:
            self.opened.append(object())
        return self.opened[-1]

    def forget_session(self) -> None:
        self.opened.append(None)  # type: ignore[arg-type]


def test_a_late_report_of_a_lost_session_does_not_close_the_new_one(tmp_path: Path) -> None:
    """Two threads lose the same session; the faster one has opened another by the time the slower one says so."""
    sessions = Sessions()
    frames = Frames(spark_resource=sessions, warehouse=str(tmp_path), instance=dg.DagsterInstance.ephemeral())
    slow_has_begun, fast_has_another = threading.Event(), threading.Event()
    seen: list[Any] = []

    def slow() -> None:
        with frames.interruptible():
            seen.append(frames.session)
            slow_has_begun.set()
            fast_has_another.wait(30)
            frames.forget_lost_session()

    thread = threading.Thread(target=slow)
    thread.start()
    slow_has_begun.wait(30)
    with frames.interruptible():
        seen.append(frames.session)
        frames.forget_lost_session()
        another = frames.session
    fast_has_another.set()
    thread.join(30)

    assert seen[0] is seen[1]
    assert another is not seen[0]
    assert frames.session is another
