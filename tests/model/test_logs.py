"""Records of the package's loggers hold no secret."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from databuild_dagster.model.logs import log_failure, logger, tracebacks_logged

PACKAGE = Path(__file__).parents[2] / "databuild_dagster"
#: Defines `logger`; adds a handler, and logs nothing.
EXEMPT = {"model/logs.py", "calls/streams.py"}


def test_a_record_hides_secrets_in_its_message_its_arguments_and_its_exception(caplog):
    log = logger("databuild_dagster.tests.logs")

    try:
        raise ValueError("refused: http://alice:MaRk" + "@host")
    except ValueError:
        log.warning("databuild: password=%s of %s", "MaRk", "http://u:MaRk@h", exc_info=True)

    # Formatted here, because Spark gives the handlers of its process a format of its own.
    text = logging.Formatter().format(caplog.records[0])
    assert "databuild: password=*** of http://***@h" in text
    assert "ValueError: refused: http://***@host" in text


@pytest.mark.parametrize("wanted", [False, True])
def test_a_failure_is_one_sentence_and_its_traceback_is_logged_on_demand(caplog, wanted):
    with tracebacks_logged(wanted):
        log_failure(logger("databuild_dagster.tests.logs"), "the duty could not end", OSError("no\nspace"))
        log_failure(logger("other.tests.logs"), "the duty could not end", OSError("no space"))

    ours, other = caplog.records
    assert ours.getMessage() == other.getMessage() == "databuild: the duty could not end: OSError: no space"
    assert (bool(ours.exc_info), other.exc_info) == (wanted, None)
    assert logging.getLogger("databuild_dagster").level == logging.NOTSET


def test_every_module_logs_through_it():
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        # A level or a filter for the records of others logs nothing.
        if re.search(r"\bgetLogger\((?!name\)\.setLevel|[^)]+\)\.addFilter)", path.read_text())
    }

    assert found - {"spark/session.py"} == EXEMPT
